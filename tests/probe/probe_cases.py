"""Models that the tests of the probe ask about."""

from datetime import UTC, datetime
from pathlib import Path

from bascule.core.nouns import Model

FILES = Path(__file__).parent / "files"
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

Q35_TEXT = Model("/m", ("Qwen3_5MoeForCausalLM",), "qwen3_5_moe_text")
Q35 = Model("/m", ("Qwen3_5MoeForConditionalGeneration",), "qwen3_5_moe")
NEXT = Model("/m", ("Qwen3NextForCausalLM",), "qwen3_next")
GLM = Model("/m", ("Glm4MoeLiteForCausalLM",), "glm4_moe_lite")
LLAMA = Model("/m", ("LlamaForCausalLM",), "llama")
NOBODY = Model("/m", ("NobodyForCausalLM",), "nobody")
STRANGER = Model("/m", ("NobodyForCausalLM",), "llama")  # its config.json can be read
MODELS = {"q35_text": Q35_TEXT, "q35": Q35, "next": NEXT, "glm": GLM, "llama": LLAMA, "nobody": NOBODY}
