"""Which candidates come first and why, which are refused, and which a person is asked about first (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bascule.core.nouns import Finding
from bascule.core.units import size
from bascule.discover.offers import Offer

# The probe's words, from the best to the worst, in the classes that the order knows.
CLASSES = {
    "YES": 0,
    "YES-via-transformers": 1,
    "LIKELY": 1,
    "MAYBE": 2,
    "UNKNOWN": 2,
    "PLUGIN": 9,
    "REMOVED": 9,
    "NO": 9,
}
GOOD, REFUSED = 1, 9
PREFERENCE = ("vllm", "sglang", "lmdeploy", "llamacpp", "transformers")  # fast over several nodes first
TRUST = {"own": 0, "project": 0, "vendor": 0, "community": 1}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the probe says of an offer, or why it says nothing."""

    word: str
    says: str
    trouble: str = ""  # the code of what decided it, or of why nothing was read
    release: str = ""  # `vLLM 0.32.0`, where its files say it
    hint: int = 0  # what its release lets expect where nothing was read: 1 good, -1 bad
    advice: str = ""
    bytes_read: int = 0
    finding: Finding | None = None  # with the evidence


@dataclass(frozen=True, slots=True)
class Wanted:
    """For whom it is ranked."""

    nodes: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()  # of the nodes; () = not known
    accelerator: str = ""  # of the nodes: cuda, cpu; "" = not known
    gpu: str = ""
    engines: Collection[str] = ()  # that bascule can start; () = all
    unfit: Mapping[str, str] = field(default_factory=dict)  # engine -> why it is none for this model
    trust: tuple[str, ...] = ()  # publishers


@dataclass(frozen=True, slots=True)
class Ranked:
    """An offer in its place."""

    offer: Offer
    verdict: Verdict
    because: str
    held: bool = False  # somebody unknown publishes it, and nobody has said to trust them
    refused: str = ""  # why it is not tried at all


@dataclass(frozen=True, slots=True)
class Ranking:
    """All offers, the best first."""

    candidates: tuple[Ranked, ...]
    held: tuple[Ranked, ...]
    refused: tuple[Ranked, ...]

    @property
    def rows(self) -> tuple[Ranked, ...]:
        """All of them."""
        return (*self.candidates, *self.held, *self.refused)


def rank(pairs: Sequence[tuple[Offer, Verdict]], wanted: Wanted, now: datetime) -> Ranking:
    """The order: what the probe says, then what is there already, who publishes it, the engine, its age and size."""
    ordered = sorted(pairs, key=lambda pair: _key(pair[0], pair[1], wanted, now))
    rows = [_ranked(offer, verdict, wanted, now) for offer, verdict in ordered]
    return Ranking(
        tuple(row for row in rows if not row.refused and not row.held),
        tuple(row for row in rows if not row.refused and row.held),
        tuple(row for row in rows if row.refused),
    )


def refusal(offer: Offer, wanted: Wanted) -> str:
    """Why an offer can't be a candidate, by what is known without looking into it; "" when it can."""
    lacks = [one for one in wanted.platforms if offer.platforms and not _made_for(one, offer.platforms)]
    if lacks:
        return f"made for {', '.join(offer.platforms)}, not for {', '.join(lacks)}"
    if offer.accelerator == "rocm" and wanted.accelerator in ("cuda", "cpu"):
        return "made for AMD's GPUs"
    if offer.accelerator == "cuda" and wanted.accelerator == "cpu":
        return "made for NVIDIA's GPUs, and these nodes have none"
    if offer.engine in wanted.unfit:
        return wanted.unfit[offer.engine]
    if wanted.engines and offer.engine not in wanted.engines:
        return f"bascule can't start {offer.engine}" if offer.engine else "no engine that bascule knows was found in it"
    return ""


def trusted(offer: Offer, trust: Sequence[str]) -> bool:
    """Whether nobody need be asked: it is named, or its publisher is known or trusted."""
    return offer.named or offer.publisher.kind != "community" or any(one in trust for one in offer.publisher.words)


def age(created: datetime | None, now: datetime) -> str:
    """How old: 5 h, 12 days, 7 months; "" when that isn't known."""
    if created is None:
        return ""
    old = max(now - created, timedelta(0))
    if old < timedelta(days=2):
        return f"{old.total_seconds() / 3600:.0f} h"
    return f"{old.days} days" if old.days < 100 else f"{old.days / 30.44:.0f} months"


def _ranked(offer: Offer, verdict: Verdict, wanted: Wanted, now: datetime) -> Ranked:
    refused = refusal(offer, wanted)
    if not refused and CLASSES.get(verdict.word, REFUSED) == REFUSED:
        refused = verdict.says
    held = not refused and not trusted(offer, wanted.trust)
    return Ranked(offer, verdict, _because(offer, verdict, wanted, now), held, refused)


def _key(offer: Offer, verdict: Verdict, wanted: Wanted, now: datetime) -> tuple[float | str, ...]:
    missing = [node for node in wanted.nodes if node not in offer.nodes]
    there = 0 if not missing else 1 if offer.nodes else 2
    old = (now - offer.created).total_seconds() if offer.created else float("inf")
    engine = PREFERENCE.index(offer.engine) if offer.engine in PREFERENCE else len(PREFERENCE)
    gpu_build = 0 if wanted.accelerator in ("", offer.accelerator or wanted.accelerator) else 1
    moved = offer.size if offer.size is not None else float("inf")
    certain = CLASSES.get(verdict.word, REFUSED)
    trust = 0 if offer.named else TRUST[offer.publisher.kind]
    return (not offer.named, certain, -verdict.hint, there, trust, gpu_build, engine, old, moved, offer.name)


def _because(offer: Offer, verdict: Verdict, wanted: Wanted, now: datetime) -> str:
    """One sentence: what it can, where it is, whose it is, how old."""
    parts = [verdict.says]
    missing = [node for node in wanted.nodes if node not in offer.nodes]
    if offer.nodes:
        parts.append("on " + ("every node" if wanted.nodes and not missing else ", ".join(offer.nodes)))
    if offer.size and (missing or not wanted.nodes):
        to = f" to {', '.join(missing)}" if offer.nodes and missing else ""
        parts.append(f"{size(offer.size)} to {'copy' if offer.nodes else 'pull'}{to}")
    if offer.kind == "image":
        parts.append(_whose(offer))
    if old := age(offer.created, now):
        parts.append(f"{old} old")
    return "; ".join(part for part in parts if part)


def _whose(offer: Offer) -> str:
    if offer.publisher.kind == "community":
        return f"community image of {offer.publisher.name}"
    return f"by {offer.publisher.name}" if offer.publisher.id else offer.publisher.name


def _made_for(platform: str, platforms: Sequence[str]) -> bool:
    return any(one.split("/")[:2] == platform.split("/")[:2] for one in platforms)
