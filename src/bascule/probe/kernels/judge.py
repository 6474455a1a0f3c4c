"""The policy: from an engine's fat binaries to one word; it is a no where a needed library has nothing for the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bascule.core.reading import Spot
from bascule.probe.kernels.lore import Place, driver_for, need
from bascule.probe.kernels.rules import Tally, describe, labels
from bascule.probe.verdict import KERNELS_MISSING, Judgement, Question, Word


@dataclass(frozen=True, slots=True)
class Part:
    """One library that the engine loads on this GPU, and what it is for."""

    place: Place
    tally: Tally

    @property
    def spot(self) -> Spot:
        """What was seen in it."""
        library = self.tally.library
        return Spot(library.path, None, library.trouble or f".nv_fatbin: {describe(self.tally)}")

    @property
    def trouble(self) -> str:
        """Why it could not be read, as sentences say it."""
        return self.tally.library.trouble and f"{self.tally.library.path} {self.tally.library.trouble}"

    @property
    def lost(self) -> bool:
        """True when it was read to its end, carries GPU code, and none of it runs."""
        return not self.trouble and 0 < self.tally.total == len(self.tally.dead)


# What a remark makes of the answer, the first wins: a known trouble says more than what was not read.
ORDER = (Word.MAYBE, Word.UNKNOWN, Word.LIKELY)


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that keeps the answer from being a plain yes."""

    word: Word
    says: str
    spot: Spot
    change: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """What was seen beside the libraries: compilers, and PyTorch's words about itself."""

    remarks: tuple[Remark, ...] = ()
    seen: tuple[Spot, ...] = ()


def judge(question: Question, parts: Sequence[Part], absent: Sequence[Place], found: Findings) -> Judgement:
    """The word about an engine's libraries; `absent` are the needed ones that aren't there."""
    name = question.label or question.candidate.engine
    spots = [part.spot for part in parts]
    lost = next((part for part in parts if part.lost and part.place.weight == "needed"), None)
    if lost:
        says = f"{name} can't work on {question.gpu}: nothing in {lost.place.what} runs there"
        seen = _unique([lost.spot, *spots])
        return Judgement(Word.NO, says, seen, change=lost.place.change, code=KERNELS_MISSING)
    remarks = [*found.remarks, *_doubts(parts, absent)]
    remarks += [remark for part in parts for remark in _remarks(question, part)]
    if not remarks:
        return Judgement(Word.YES, f"{name} has compiled code for {question.gpu}", _unique([*spots, *found.seen]))
    remarks.sort(key=lambda remark: ORDER.index(remark.word))
    first = remarks[0]
    seen = _unique([*(remark.spot for remark in remarks), *spots, *found.seen])
    if first.word is Word.UNKNOWN:
        return unknown(question, first.says, seen)
    change = next((remark.change for remark in remarks if remark.word is first.word and remark.change), "")
    return Judgement(first.word, f"{name} has code for {question.gpu}, but {first.says}", seen, change=change)


def unknown(question: Question, why: str, seen: Sequence[Spot], word: Word = Word.UNKNOWN) -> Judgement:
    """The judgement that it could not be told, and why."""
    name = question.label or question.candidate.engine
    return Judgement(word, f"whether {name} has code for {question.gpu} could not be told: {why}", tuple(seen))


def _doubts(parts: Sequence[Part], absent: Sequence[Place]) -> Iterator[Remark]:
    """What had to be read and could not be."""
    for place in absent:
        yield Remark(Word.UNKNOWN, f"{place.what} are not there", Spot(place.globs[0], None, "no such file"))
    places = dict.fromkeys(part.place for part in parts if part.place.weight == "needed")
    for place in places:
        own = [part for part in parts if part.place == place]
        if not any(part.tally.total or part.trouble for part in own):
            yield Remark(Word.UNKNOWN, f"{place.what} carry no CUDA code", own[0].spot)


def _remarks(question: Question, part: Part) -> Iterator[Remark]:
    tally, what, spot = part.tally, part.place.what, part.spot
    if part.place.weight == "optional":
        return
    if part.trouble:
        yield Remark(Word.UNKNOWN, part.trouble, spot)
        return
    if part.lost:
        yield Remark(Word.MAYBE, f"nothing in {what} runs there", spot, part.place.change)
        return
    if tally.general:
        says = f"{len(tally.general)} of {tally.total} parts of {what} are built for many GPUs, and not for this one"
        yield Remark(Word.MAYBE, says, spot)
    if tally.near:
        yield _near(question, part)
    if tally.jit:
        driver = f" by {driver_for(tally.isa)}" if tally.isa else ""
        says = (
            f"{len(tally.jit)} of {tally.total} parts of {what} are PTX: a long compilation{driver} at the first start"
        )
        yield Remark(Word.LIKELY, says, spot)
    if tally.family:
        says = f"{len(tally.family)} of {tally.total} parts of {what} are made for the family, and some such fail there"
        yield Remark(Word.LIKELY, says, spot)


def _near(question: Question, part: Part) -> Remark:
    """What code for an earlier GPU of this generation means: it matters when the model's quantization wants it."""
    tally, quantization = part.tally, question.model.quantization
    some = f"some of {part.place.what} don't run there: {labels(tally.near, tally.sm)}"
    if quantization is None:
        return Remark(Word.LIKELY, f"{some}, none that an unquantized model is known to need", part.spot)
    wanted = need(quantization)
    named = any(binary.kernels for binary in tally.near)
    if wanted is None or not named:
        why = "their names are compressed" if wanted else f"which of them {quantization} needs is not known"
        return Remark(Word.MAYBE, f"{some}, maybe those that {quantization} needs: {why}", part.spot)
    count = sum(any(wanted.kernels.search(name) for name in binary.kernels) for binary in tally.near)
    if not count:
        return Remark(Word.LIKELY, f"{some}, none that {quantization} is known to need", part.spot)
    spot = Spot(part.spot.path, None, f"{part.spot.text}; {wanted.what} in {count} of the {len(tally.near)} near ones")
    change = wanted.change.get(question.candidate.engine, "")
    return Remark(Word.MAYBE, f"{some}, {count} of them with {wanted.what}", spot, change)


def _unique(spots: Sequence[Spot]) -> tuple[Spot, ...]:
    """One spot for each place: what was said of it first."""
    kept: dict[tuple[str, int | None], Spot] = {}
    for spot in spots:
        kept.setdefault((spot.path, spot.line), spot)
    return tuple(kept.values())
