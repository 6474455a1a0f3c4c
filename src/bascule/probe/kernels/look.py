"""The kernels' question: does an engine's compiled code run on this GPU?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bascule.core.reading import EXCERPT, Spot, Unreadable
from bascule.probe.kernels.judge import Findings, Part, Remark, judge, unknown
from bascule.probe.kernels.lore import Places, places, tools
from bascule.probe.kernels.rules import tally, target
from bascule.probe.verdict import KERNELS_MISSING, Judgement, Question, Word, not_asked
from bascule.probe.views.base import View


async def look(view: View, question: Question) -> Judgement:
    """The judgement about its kernels; what can't be read makes it UNKNOWN."""
    if not question.gpu:
        return not_asked("no GPU was named")
    sm, where = target(question.gpu), places(question.candidate.engine)
    if sm is None:
        return unknown(question, "it is no NVIDIA GPU by its name", (Spot(view.root, None, "not read"),))
    if where is None:
        return unknown(question, "where it keeps compiled code is not known", (Spot(view.root, None, "not read"),))
    try:
        return await _judged(view, question, where, sm)
    except Unreadable as trouble:
        return unknown(question, trouble.why, (trouble.spot,))


async def _judged(view: View, question: Question, where: Places, sm: int) -> Judgement:
    version = await _cuda_of_torch(view) if where.torch else None
    if version and re.search(r"= *None", version.text):
        says = f"{question.label or question.candidate.engine} stands on a PyTorch without CUDA"
        return Judgement(Word.NO, says, (version,), change="a build for CUDA", code=KERNELS_MISSING)
    served = [place for place in where.libraries if place.serves(sm)]
    found = await view.libraries(*(glob for place in served for glob in place.globs))
    if not found:
        globs = ", ".join(glob for place in served for glob in place.globs)
        return unknown(question, "no compiled libraries are there", (Spot(view.root, None, f"nothing like {globs}"),))
    homes = [(next((place for place in served if place.holds(library.path)), None), library) for library in found]
    parts = [Part(place, tally(library, sm)) for place, library in homes if place]
    parts = [part for part in parts if part.place.weight != "optional" or part.tally.total or part.trouble]
    if not where.torch and not any(part.tally.total or part.trouble for part in parts):
        return await _without_cuda(view, question, where, parts)
    absent = [p for p in served if p.weight == "needed" and not any(part.place == p for part in parts)]
    remarks = await _compilers(view, question, sm) if where.triton else ()
    seen = (*((version,) if version else ()), *(await _declared(view) if where.torch else ()), *await _nvcc(view))
    return judge(question, parts, absent, Findings(remarks, seen))


async def _cuda_of_torch(view: View) -> Spot | None:
    """The line of PyTorch that names its CUDA: `cuda = '12.8'`, or None; nothing without PyTorch."""
    path = tools().version
    text = await view.read(path)
    for number, line in enumerate((text or b"").decode(errors="replace").splitlines(), 1):
        if re.match(r"cuda\b[^=]*=", line):
            return Spot(path, number, line.strip()[:EXCERPT])
    return None


async def _without_cuda(view: View, question: Question, where: Places, parts: Sequence[Part]) -> Judgement:
    """No library has CUDA code; another way to the GPU may be built in."""
    name, seen = question.label or question.candidate.engine, tuple(part.spot for part in parts)
    globs = [glob for place in where.libraries for glob in place.globs]
    others = await view.words(where.others, *globs) if where.others else None
    if others and others.hits:
        return unknown(question, "it reaches GPUs without CUDA code", (others.hits[0], *seen), Word.MAYBE)
    return Judgement(Word.NO, f"{name} is a build without CUDA", seen, change="a build for CUDA", code=KERNELS_MISSING)


async def _compilers(view: View, question: Question, sm: int) -> tuple[Remark, ...]:
    """Triton's own assembler must know the GPU; engines fall back on Triton's kernels."""
    found = await view.words(f"sm_{sm}a?", *tools().ptxas)
    if not found.files or found.hits:
        return ()
    spot = Spot(tools().ptxas[0], None, f"no string sm_{sm} in {found.files} files")
    says = f"the ptxas of its Triton doesn't know {question.gpu}: no kernel of Triton compiles there"
    return (Remark(Word.MAYBE, says, spot, tools().change),)


async def _declared(view: View) -> tuple[Spot, ...]:
    """The architectures that PyTorch says it was built for."""
    found = await view.words("^sm_[0-9]+[af]?( (sm|compute)_[0-9]+[af]?)*$", tools().declared)
    return found.hits[:1]


async def _nvcc(view: View) -> tuple[Spot, ...]:
    """A compiler beside it, with which FlashInfer and DeepGEMM make what is missing."""
    return tuple(Spot(path, None, "nvcc is there") for path in (await view.find(*tools().nvcc))[:1])
