"""llama.cpp: its architectures are C strings in the library of the xllamacpp wheel."""

from __future__ import annotations

from bascule.core.reading import Spot
from bascule.probe.facts import gguf_architecture
from bascule.probe.gguf import HEAD, NotGguf, architecture
from bascule.probe.packages import Package
from bascule.probe.readers.base import reader_of
from bascule.probe.values import Answer
from bascule.probe.verdict import Answers, Question
from bascule.probe.views.base import View, ere

FOLDER = "xllamacpp"
LIBRARIES = ("xllamacpp/*.so*", "xllamacpp.libs/*.so*")
CONTROL = "llama"  # every llama.cpp has it: where it isn't found, the search says nothing


async def look(view: View, question: Question, package: Package | None) -> Answers:
    """Look for the GGUF architecture among the strings of its libraries."""
    name, seen = await _architecture(view, question)
    if name is None:
        unknown = Answer(None, (seen,), seen.text)
        return Answers(unknown, unknown)
    answer = await _in_libraries(view, name)
    spots = (*answer.seen, seen, *((package.spot,) if package else ()))
    registered = Answer(answer.yes, spots, answer.why)
    model_type = Answer(True, (seen,)) if answer.yes else registered
    return Answers(registered, model_type, quantization=_quantization(question))


READER = reader_of("llamacpp", look)


def _quantization(question: Question) -> Answer | None:
    """It reads GGUF files, which have types of their own, and not the weights that a config.json speaks of."""
    if question.model.quantization is None or question.candidate.model.endswith(".gguf"):
        return None
    seen = Spot(f"{question.model.path}/config.json", None, f"quantization_config: {question.model.quantization}")
    return Answer(None, (seen,), "llama.cpp takes a GGUF file, whose types are its own")


async def _architecture(view: View, question: Question) -> tuple[str | None, Spot]:
    """What the GGUF file says, where it is on the node; else what llama.cpp calls the model's type."""
    path = question.candidate.model
    if path.endswith(".gguf") and path.startswith("/"):
        head = await view.head(path, HEAD)
        if head is not None:
            try:
                own = architecture(head)
            except NotGguf as broken:
                return None, Spot(path, None, str(broken))
            return own, Spot(path, None, f"general.architecture = {own}")
    model_type = question.model.model_type
    name = gguf_architecture(model_type)
    says = f"model_type {model_type} is {name} there" if name else f"no GGUF name of model_type {model_type!r} is known"
    return name, Spot("config.json", None, says)


async def _in_libraries(view: View, name: str) -> Answer:
    """A whole string is a yes, and so is the type name of its class; neither, nor a tail of another string, is a no.

    Linkers let strings share tails: in xllamacpp 2026.10.11549 `qwen2` is only the end of `rwkv6qwen2`.
    """
    type_name = f"[0-9]+llama_model_{ere(name.replace('-', '_'))}"
    found = await view.words(f"^({ere(name)}|{type_name}|{CONTROL})$", *LIBRARIES)
    if not any(hit.text == CONTROL for hit in found.hits):
        seen = Spot(FOLDER, None, f"no string {CONTROL} in {found.files} libraries")
        return Answer(None, (seen,), "its libraries could not be searched")
    for hit in sorted(found.hits, key=lambda hit: hit.text != name):
        if hit.text == name or CONTROL not in (hit.text, name):
            return Answer(True, (hit,))
    tails = await view.words(f"{ere(name)}$", *LIBRARIES)
    if tails.hits:
        return Answer(None, tails.hits[:1], f"{name} is there only as the end of other strings")
    libraries = ", ".join(dict.fromkeys(hit.path for hit in found.hits))
    return Answer(False, (Spot(libraries, None, f"no string {name} (and {CONTROL} is there)"),))
