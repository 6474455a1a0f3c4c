"""The probe on the real environments under .engines."""

from pathlib import Path

import pytest

from bascule.core.nouns import Fate, Model
from probe.probe_cases import GLM, LLAMA, NEXT, NOBODY, Q35, Q35_TEXT

ENGINES = Path(__file__).parents[2] / ".engines"

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("engine", "folder", "model", "fate", "says"),
    [
        ("vllm", "vllm-0.32.0", Q35_TEXT, Fate.OK, "vLLM 0.32.0 knows Qwen3_5MoeForCausalLM"),
        ("vllm", "vllm-0.32.0", NOBODY, Fate.HOPELESS, "vLLM 0.32.0 does not know NobodyForCausalLM"),
        # a class of transformers whose attention no generic backend can replace, and one where it can
        ("vllm", "vllm-0.32.0", Model("/m", ("MptForCausalLM",), "mpt"), Fate.HOPELESS, "does not know"),
        ("vllm", "vllm-0.32.0", Model("/m", ("DogeForCausalLM",), "doge"), Fate.UNKNOWN, "served through"),
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
        ("llamacpp", "llamacpp", Q35_TEXT, Fate.OK, "knows Qwen3_5MoeForCausalLM"),
        ("llamacpp", "llamacpp", LLAMA, Fate.OK, "knows LlamaForCausalLM"),
        ("llamacpp", "llamacpp", Model("/m", (), "qwen2"), Fate.OK, "knows qwen2"),
        ("sglang", "llamacpp", LLAMA, Fate.HOPELESS, "there is no SGLang"),
    ],
)
def test_real_environments(ask, engine, folder, model, fate, says):
    if not (ENGINES / folder).is_dir():
        pytest.skip(f"no .engines/{folder}")
    finding = ask(engine, ENGINES / folder, model)
    assert (finding.fate, says in finding.says) == (fate, True), finding.says
