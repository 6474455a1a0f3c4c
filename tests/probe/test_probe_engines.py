"""The probe on the real environments under .engines."""

import json
import subprocess
from pathlib import Path

import pytest

from bascule.core.nouns import Fate, Model
from bascule.probe.literal import evaluate
from probe.probe_cases import GLM, LLAMA, NEXT, NOBODY, Q35, Q35_TEXT

ENGINES = Path(__file__).parents[2] / ".engines"
VLLM = ENGINES / "vllm-0.32.0"
SITE = VLLM / "lib/python3.11/site-packages"

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("engine", "folder", "model", "fate", "says"),
    [
        ("vllm", "vllm-0.32.0", Q35_TEXT, Fate.OK, "vLLM 0.32.0 knows Qwen3_5MoeForCausalLM"),
        ("vllm", "vllm-0.32.0", NOBODY, Fate.HOPELESS, "vLLM 0.32.0 does not know NobodyForCausalLM"),
        (
            "vllm",
            "vllm-0.32.0",
            Model("/m", ("MT5ForConditionalGeneration",), "mt5"),
            Fate.UNKNOWN,
            "may be served through",
        ),
        (
            "vllm",
            "vllm-0.14.0",
            Q35_TEXT,
            Fate.HOPELESS,
            "vLLM 0.14.0 does not know Qwen3_5MoeForCausalLM (first in 0.27.0)",
        ),
        ("vllm", "vllm-0.14.0", Q35, Fate.HOPELESS, "(first in 0.17.0)"),
        ("vllm", "vllm-0.14.0", NEXT, Fate.OK, "vLLM 0.14.0 knows Qwen3NextForCausalLM"),
        ("transformers", "vllm-0.32.0", Q35_TEXT, Fate.OK, "transformers 5.19.0 knows"),
        ("transformers", "vllm-0.32.0", GLM, Fate.OK, "transformers 5.19.0 knows"),
        ("llamacpp", "llamacpp", Q35_TEXT, Fate.OK, "knows qwen35moe"),
        ("llamacpp", "llamacpp", LLAMA, Fate.OK, "knows llama"),
        ("llamacpp", "llamacpp", Model("/m", (), "qwen2"), Fate.OK, "knows qwen2"),
        ("sglang", "llamacpp", LLAMA, Fate.HOPELESS, "there is no SGLang"),
    ],
)
def test_real_environments(ask, engine, folder, model, fate, says):
    if not (ENGINES / folder).is_dir():
        pytest.skip(f"no .engines/{folder}")
    finding = ask(engine, ENGINES / folder, model)
    assert (finding.fate, says in finding.says) == (fate, True), finding.says


RUNTIME = """
import json, sys
from vllm.model_executor.models.registry import _VLLM_MODELS
from vllm.transformers_utils.config import _CONFIG_REGISTRY
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
out = {"models": _VLLM_MODELS, "configs": sorted(_CONFIG_REGISTRY.keys()), "types": sorted(CONFIG_MAPPING.keys())}
json.dump(out, open(sys.argv[1], "w"))
"""


@pytest.mark.slow
def test_reading_gives_what_importing_gives(tmp_path):
    out = tmp_path / "runtime.json"
    subprocess.run([VLLM / "bin/python", "-c", RUNTIME, out], check=True, capture_output=True, timeout=300)
    runtime = json.loads(out.read_text())

    def names(path: str, known=None):
        return evaluate((SITE / path).read_bytes(), path, known)

    models = names("vllm/model_executor/models/registry.py")["_VLLM_MODELS"]
    assert {name: list(value) for name, value in models.entries.items()} == runtime["models"]
    assert sorted(names("vllm/transformers_utils/config.py")["_CONFIG_REGISTRY"].entries) == runtime["configs"]
    auto = "transformers/models/auto"
    known = names(f"{auto}/auto_mappings.py")
    assert sorted(names(f"{auto}/configuration_auto.py", known)["CONFIG_MAPPING_NAMES"].entries) == runtime["types"]
