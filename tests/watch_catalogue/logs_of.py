"""Reads logs into what they tell, as the command does, from a text or a file."""

from __future__ import annotations

from pathlib import Path

from bascule.engines.base import read_lore
from bascule.watch.judge import Diagnosis, judge
from bascule.watch.scan import Scan, guess_engine
from bascule.watch.told import Told

HERE = Path(__file__).parent / "logs"
LOGS = Path(__file__).parents[1] / "logs"


def told(text: str, name: str = "log", engine: str | None = None) -> Told:
    """What one log tells."""
    engine = engine or guess_engine(text.split("\n"))
    scan = Scan(name, engine, read_lore(engine).phases if engine else ())
    scan.block(text)
    return scan.told()


def diagnosis(*texts: str) -> Diagnosis:
    """The diagnosis from the logs of ranks 0, 1, …"""
    return judge([told(text, f"r{rank}") for rank, text in enumerate(texts)])


def text_of(path: Path) -> str:
    """A whole log."""
    return path.read_bytes().decode(errors="replace").removesuffix("\n")


def found(*texts: str) -> tuple[str | None, str]:
    """The id of the failure and the class."""
    one = diagnosis(*texts)
    return one.failure.id if one.failure else None, one.kind
