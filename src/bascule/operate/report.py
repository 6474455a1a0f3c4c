"""Finding a run in the journal, and the files that were kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bascule.errors import RecipeError
from bascule.journal import Journal
from bascule.watch.archive import pack


def find_run(journal: Journal, run: int | None) -> int:
    """The number of this run, or of the newest. Raises RecipeError when there is none."""
    runs = [event.run for event in journal.starts()]
    if run is None and runs:
        return runs[0]
    if run in runs:
        return runs[runs.index(run)]
    says = f"no run {run}" if run is not None else "no run yet"
    raise RecipeError("no-run", says, seen=f"runs: {min(runs)} to {max(runs)}" if runs else "the journal is empty")


def evidence_files(journal: Journal, run: int) -> list[Path]:
    """Logs and raw answers of a run."""
    return sorted(path for path in journal.evidence_dir(run).rglob("*") if path.is_file())


def pack_evidence(journal: Journal, run: int, out: Path) -> Path:
    """All that was kept of a run as one masked archive. Raises BasculeError."""
    nodes = (event.data["nodes"] for event in journal.events(run) if event.kind == "nodes")
    told: list[dict[str, Any]] = next(nodes, [])
    hosts = {str(node[key]) for node in told for key in ("name", "host") if node.get(key) not in (None, "local")}
    return pack(journal.evidence_dir(run), out, hosts)
