"""Runs where the engine is installed, only when asked: what its own registries say, as one line of JSON.

Arguments: ENGINE ARCHITECTURE MODEL_TYPE. Needs nothing but the engine; what can't be imported is said, not guessed.
"""

import json
import sys


def vllm(architecture):
    """The names in vLLM's registry."""
    from vllm.model_executor.models.registry import ModelRegistry

    return architecture in ModelRegistry.get_supported_archs()


def sglang(architecture):
    """The names in SGLang's registry, which leaves out models whose import fails."""
    from sglang.srt.models.registry import ModelRegistry

    return architecture in ModelRegistry.get_supported_archs()


def lmdeploy(architecture):
    """The names in the map of LMDeploy's PyTorch engine."""
    from lmdeploy.pytorch.models.module_map import MODULE_MAP

    return architecture in MODULE_MAP


def transformers(architecture):
    """Whether transformers has the class."""
    import transformers as package

    return hasattr(package, architecture)


def reads(model_type):
    """Whether transformers beside it, and what the engine added to it, read this model_type."""
    from transformers import CONFIG_MAPPING

    return model_type in CONFIG_MAPPING


def asked(question, word):
    """A yes, a no, or why it could not be told."""
    try:
        return question(word)
    except BaseException as trouble:  # also SystemExit of a library that gives up
        return f"{type(trouble).__name__}: {trouble}"[:300]


ENGINES = {"vllm": vllm, "sglang": sglang, "lmdeploy": lmdeploy, "transformers": transformers}

if __name__ == "__main__":
    engine, architecture, model_type = sys.argv[1:4]
    found = {"architecture": asked(ENGINES[engine], architecture), "model_type": asked(reads, model_type)}
    print("\n=== " + json.dumps(found))
