"""What is read from vLLM's files is what importing them gives: two releases, every table, every flag."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from bascule.core.nouns import Node
from bascule.probe.literal import evaluate
from bascule.probe.readers import arguments, quantization, vllm
from bascule.probe.readers.base import Modules, engine_facts
from bascule.probe.readers.transformers import AUTO, refused_by_backend
from bascule.probe.views.folder import FolderView
from bascule.remote.local import LocalRunner

ENGINES = Path(__file__).parents[2] / ".engines"
FILES = engine_facts("vllm")["files"]

pytestmark = pytest.mark.engine

RUNTIME = """
import importlib, json, sys

def get(module, name):
    return getattr(importlib.import_module(module), name)

def parser():
    for place in ("launchers", "openai"):
        try:
            make = get(f"vllm.entrypoints.{place}.cli_args", "make_arg_parser")
        except ModuleNotFoundError:
            continue
        return make(get("vllm.utils.argparse_utils", "FlexibleArgumentParser")(prog="vllm serve"))

def least(method):
    try:
        return get("vllm.model_executor.layers.quantization", "get_quantization_config")(method).get_min_capability()
    except Exception:  # some can't be asked without their GPU
        return None

methods = get("vllm.model_executor.layers.quantization", "QUANTIZATION_METHODS")
seen = {
    "registry": get("vllm.model_executor.models.registry", "_VLLM_MODELS"),
    "configs": list(get("vllm.transformers_utils.config", "_CONFIG_REGISTRY").keys()),
    "types": list(get("transformers.models.auto.configuration_auto", "CONFIG_MAPPING").keys()),
    "quantization": methods,
    "deprecated": get("vllm.model_executor.layers.quantization", "DEPRECATED_QUANTIZATION_METHODS"),
    "capabilities": {method: least(method) for method in methods},
    "reasoning": get("vllm.reasoning", "ReasoningParserManager").list_registered(),
    "tools": get("vllm.tool_parsers", "ToolParserManager").list_registered(),
    "flags": [word for action in parser()._actions for word in action.option_strings],
}
json.dump(seen, open(sys.argv[1], "w"))
"""


BACKEND = """
import json, sys, transformers
from transformers.models.auto import modeling_auto as auto

tables = [getattr(auto, name) for name in dir(auto) if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES")]
values = [value for table in tables for value in table.values()]
seen = {}
for name in {name for value in values for name in ([value] if isinstance(value, str) else value)}:
    found = getattr(transformers, name, None)
    if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
        takes = found.is_backend_compatible() or found._can_set_attn_implementation()
        seen[name] = [found.__module__, bool(takes)]
json.dump(seen, open(sys.argv[1], "w"))
"""


def site(engine: str) -> Path:
    return ENGINES / engine / "lib/python3.11/site-packages"


@pytest.fixture(scope="module", params=["0.14.0", "0.32.0"])
def release(request, tmp_path_factory) -> tuple[Path, dict]:
    """The packages of a release, and what they say when they are imported.

    .engines/vllm-0.14.0 is a bare wheel: its own files are imported on top of the packages of 0.32.0, of gguf from
    .engines/llamacpp, and of an empty diskcache, which its argument parser only imports.
    """
    folder, here = tmp_path_factory.mktemp("runtime"), site(f"vllm-{request.param}")
    if not here.is_dir() or not site("llamacpp").is_dir():
        pytest.skip(f"no .engines/vllm-{request.param} or no .engines/llamacpp")
    (folder / "diskcache.py").write_text("Cache = None\n")
    places = map(str, (here, site("vllm-0.32.0"), site("llamacpp"), folder))
    environment = {**os.environ, **({"PYTHONPATH": ":".join(places)} if request.param == "0.14.0" else {})}
    words = (ENGINES / "vllm-0.32.0/bin/python", "-c", RUNTIME, folder / "seen.json")
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return here, json.loads((folder / "seen.json").read_text())


def view(root: Path) -> FolderView:
    return FolderView(LocalRunner(Node("h1", "local")), str(root))


@pytest.mark.parametrize(
    ("what", "file", "name", "least"),
    [
        ("registry", "registry", "_VLLM_MODELS", 250),
        ("configs", "configs", "_CONFIG_REGISTRY", 25),
        ("quantization", "quantization", "QuantizationMethods", 25),
        ("deprecated", "quantization", "DEPRECATED_QUANTIZATION_METHODS", 2),
        ("reasoning", "reasoning", "_REASONING_PARSERS_TO_REGISTER", 15),
        ("tools", "tools", "_TOOL_PARSERS_TO_REGISTER", 30),
    ],
)
def test_tables(release, what, file, name, least):
    root, runtime = release
    table = asyncio.run(Modules(view(root)).value(FILES[file], name))
    assert (sorted(table.entries), table.gaps) == (sorted(runtime[what]), ())
    assert len(table.entries) >= least
    if what == "registry":  # with its modules and classes
        assert {key: list(value) for key, value in table.entries.items()} == runtime[what]
    for key, spot in table.spots.items():
        assert key in (root / spot.path).read_text().splitlines()[spot.line - 1]


def test_model_types_of_transformers(release):
    _, runtime = release  # both were run with the transformers beside 0.32.0
    root = site("vllm-0.32.0") / AUTO
    known = evaluate((root / "auto_mappings.py").read_bytes(), "auto_mappings.py")
    names = evaluate((root / "configuration_auto.py").read_bytes(), "configuration_auto.py", known)
    table = names["CONFIG_MAPPING_NAMES"]
    assert (sorted(table.entries), table.gaps) == (sorted(runtime["types"]), ())
    assert len(table.entries) > 700


def test_flags(release):
    root, runtime = release
    table = asyncio.run(vllm.known_flags(Modules(view(root))))
    negated = {f"--no-{name[2:]}" for name, has in table.entries.items() if has}
    assert table.gaps == ()
    assert set(table.entries) <= set(runtime["flags"])
    assert set(runtime["flags"]) - set(table.entries) == negated | {"-h", "--help"}
    assert len(table.entries) > 220
    assert len(negated) > 50


def test_least_capabilities(release):
    """What is read is what the class returns; what can't be read is no answer, and not another number."""
    root, runtime = release
    modules, path = Modules(view(root)), FILES["quantization"][0]

    async def of_each() -> dict[str, int | None]:
        return {
            method: await quantization.least_capability(modules, path, method) for method in runtime["capabilities"]
        }

    found = asyncio.run(of_each())
    told = {method: value for method, value in found.items() if value is not None}
    assert told == {method: runtime["capabilities"][method] for method in told}
    assert len(told) >= 24


def test_every_file_that_flags_come_from_is_parsed(release):
    root, _ = release
    paths = asyncio.run(view(root).find(*engine_facts("vllm")["flags"]["server"]))
    assert len(paths) == 1
    assert arguments.Source((root / paths[0]).read_bytes(), paths[0]).broken is None


def test_what_the_generic_backend_refuses(tmp_path):
    """Of each class that transformers maps: vLLM asks it just these two methods (registry.py)."""
    root = site("vllm-0.32.0")
    if not root.is_dir():
        pytest.skip("no .engines/vllm-0.32.0")
    words = (ENGINES / "vllm-0.32.0/bin/python", "-c", BACKEND, tmp_path / "seen.json")
    subprocess.run(words, capture_output=True, timeout=300, check=True)
    seen = json.loads((tmp_path / "seen.json").read_text())
    sources = {module: (root / f"{module.replace('.', '/')}.py").read_bytes() for module, _ in seen.values()}
    refused = {module: refused_by_backend(source, module) for module, source in sources.items()}
    assert {name for name, (module, _) in seen.items() if refused[module]} == {
        n for n, (_, yes) in seen.items() if not yes
    }
    assert len(seen) > 1400
