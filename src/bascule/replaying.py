"""`bascule replay`: an old start judged again from its evidence or its logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from bascule.errors import BasculeError
from bascule.show.plain import out, print_json

if TYPE_CHECKING:
    from bascule.engines.base import Lore
    from bascule.watch.recording import Recording
    from bascule.watch.replay import Replayed

app = App(name="replay", help="Judge an old start again, from its evidence or its logs.")

LARGEST = 64 * 2**20  # bytes of one log that are read; what comes behind is passed over
_RANK = re.compile(r"(?:rank[-_]?|(?:^|[._-])r)(\d{1,4})(?=\D|$)")
_SAYS_RANK = re.compile(r"world_size=\d+ rank=(\d{1,4}) ")


class EvidenceError(BasculeError):
    """Something to replay that is not there, or is no evidence."""

    exit_status = 2


@app.default
def replay(
    *evidence: Path, engine: str | None = None, json: Annotated[bool, Parameter(name="--json", negative="")] = False
) -> int:
    """Judge an old start again: phases, the rule about stalls, and the diagnosis, faster than it happened.

    Parameters
    ----------
    evidence
        A folder of evidence (rank0.log, rank1.log, …, samples.csv), or logs, one file a rank. A log's name tells its
        rank (rank1.log, x.r1.log), else its place does.
    engine
        The engine that wrote the logs; left out, it is guessed from them.
    json
        Print data for programs.
    """
    from bascule.watch.budgets import Facts
    from bascule.watch.replay import replay as played

    recordings = _read(evidence)
    lore = _lore(engine, recordings)
    replayed = played(recordings, lore, Facts())
    row = _row(replayed)
    if json:
        print_json(row)
        return 0
    found = replayed.judgement
    where = f" in `{found.phase}`" if found.phase else ""
    out(f"{found.verdict}{where}, by the phases of {lore.name}: {found.says}")
    if found.next_step and row["verdict"] != "READY":
        out(f"  next in the normal order: {found.next_step}")
    if row["failure"]:
        out(f"  failure: {row['failure']}")
    return 0


def _row(replayed: Replayed) -> dict[str, Any]:
    found = replayed.judgement
    return {
        "verdict": found.verdict,
        "phase": found.phase,
        "rank": found.rank,
        "failure": replayed.failure,
        "since_s": round(found.since_s, 1),
        "moving": found.moving,
        "says": found.says,
        "next_step": found.next_step,
    }


def _lore(engine: str | None, recordings: Sequence[Recording]) -> Lore:
    from bascule.engines.catalogue import ENGINES
    from bascule.watch.recording import guess

    if engine is None:
        return guess(recordings, [known.lore for known in ENGINES.values()])
    if engine not in ENGINES:
        raise EvidenceError("unknown-engine", f"no engine {engine!r} is known", advice=f"one of: {', '.join(ENGINES)}")
    return ENGINES[engine].lore


def _read(evidence: Sequence[Path]) -> list[Recording]:
    """The recordings in rank order. Raises EvidenceError where there is nothing to read."""
    from bascule.watch.recording import Recording
    from bascule.watch.samples_csv import NotSamples, from_csv

    if not evidence:
        raise EvidenceError("no-evidence", "nothing to replay", advice="name a folder of evidence, or logs")
    logs, tables = _files(evidence)
    try:
        samples = [from_csv(_text(path)) for path in tables]
    except NotSamples as trouble:
        raise EvidenceError("no-evidence", f"{tables[0]} holds no samples", seen=str(trouble)) from None
    counted = samples[0] if samples else {}
    texts = _by_rank(logs)
    return [Recording(rank, texts.get(rank, ""), tuple(counted.get(rank, ()))) for rank in sorted({*texts, *counted})]


def _files(evidence: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Logs and, at most one, table of samples."""
    if len(evidence) == 1 and evidence[0].is_dir():
        folder = evidence[0]
        logs, tables = sorted(folder.glob("*.log")), sorted(folder.glob("samples.csv"))
        if ranks := [path for path in logs if re.fullmatch(r"rank\d{1,4}\.log", path.name)]:
            logs = ranks
        if not logs and not tables:
            raise EvidenceError("no-evidence", f"{folder} holds no rank0.log and no samples.csv")
        return logs, tables
    tables = [path for path in evidence if path.suffix == ".csv"]
    if len(tables) > 1:
        raise EvidenceError("no-evidence", "more than one table of samples", advice="name one .csv file")
    return [path for path in evidence if path not in tables], tables


def _by_rank(logs: Sequence[Path]) -> dict[int, str]:
    """Texts by rank: as the names say, if they say it of all and differently; else as the logs do; else in order."""
    texts = [_text(path) for path in logs]
    named = [_RANK.findall(path.name)[-1:] for path in logs]
    said = [_SAYS_RANK.findall(text)[:1] for text in texts]
    for found in (named, said):
        ranks = [int(one[0]) for one in found if one]
        if len(set(ranks)) == len(logs):
            return dict(zip(ranks, texts, strict=True))
    return dict(enumerate(texts))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST).decode(errors="replace")
    except OSError as trouble:
        raise EvidenceError("no-evidence", f"{path} can't be read", seen=str(trouble)) from None
