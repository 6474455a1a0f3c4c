"""`bascule watch`: follows a service that serves, and tells when it does not any more."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bascule.errors import BasculeError
from bascule.show.plain import out, print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from bascule.core.nouns import Finding
    from bascule.operate.guard import Change
    from bascule.operate.ward import Ward
    from bascule.watch.serving import Outlook

BROKEN, UNREACHABLE, INTERRUPTED = 1, 3, 130
Flag = Annotated[bool, Parameter(negative="")]


class ServiceBroken(BasculeError):
    """A service does not serve any more."""

    exit_status = BROKEN


def watch(
    service: str | None = None,
    *,
    once: Flag = False,
    probe: Flag = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Follow a service that serves, one line a change; ends with status 1 when it is broken, and says of what.

    A rank that ended, or that a signal stopped, requests that are open while nothing moves, a node that doesn't
    answer. A service that nobody asks is idle, and well. The service itself is left alone, also by Ctrl-C. When it
    is taken down by `bascule down`, that is said, and the status is 0.

    Parameters
    ----------
    service
        Which service; left out: the newest.
    once
        Look at it for some seconds and end: 0 it serves, 1 it is broken or not there, 3 a node doesn't answer.
    probe
        Also ask for an answer of one token, at once and every minute. Without it that is done only in doubt.
    json
        One JSON object a line.
    """
    from bascule.interrupt import run

    status = run(_watch(service, once=once, probe=probe, json=json), INTERRUPTED)
    if status == INTERRUPTED:
        say("the service goes on; nobody watches it now")
    return int(status)


async def _watch(name: str | None, *, once: bool, probe: bool, json: bool) -> int:
    from bascule.journal import Journal
    from bascule.operate.guard import Guard
    from bascule.operate.services import named
    from bascule.operate.trouble import conclude
    from bascule.operate.ward import find_ward

    journal = Journal()
    ward = await find_ward(journal, named(journal, name))
    tell = _teller(ward, json=json)
    tell(_begins(ward))
    guard = Guard(ward, tell, probe)
    try:
        outlook = await guard.until_trouble(once=once)
        finding = await conclude(guard, outlook, journal) if outlook.state.is_trouble else None
    finally:
        await guard.close()
    if finding is None:
        return _well(ward, outlook, tell)
    raise _broken(ward, finding)


def _begins(ward: Ward) -> Change:
    from bascule.operate.guard import Change
    from bascule.watch.serving import State

    where = ", ".join(f"rank {plan.rank} on {plan.node}" for plan in ward.ranks.values())
    return Change(None, "", State.SERVING, f"start {ward.generation}: {where}   {ward.endpoint.url}")


def _teller(ward: Ward, *, json: bool) -> Callable[[Change], None]:
    def tell(change: Change) -> None:
        now = datetime.now().astimezone()
        if json:
            print_json({"at": now, "service": ward.service, **_row(change)}, lines=True)
            return
        who = ward.service if change.rank is None else f"{change.node}  rank {change.rank}"
        state = change.state.upper() if change.state.is_trouble else change.state
        out(f"{now:%H:%M:%S}   {who}  {state}  {change.says}")
        sys.stdout.flush()

    return tell


def _row(change: Change) -> dict[str, object]:
    return {"rank": change.rank, "node": change.node, "state": change.state, "says": change.says}


def _well(ward: Ward, outlook: Outlook, tell: Callable[[Change], None]) -> int:
    """How it ended where nothing broke: taken down, or looked at once."""
    from bascule.operate.guard import Change
    from bascule.watch.serving import State

    if outlook.state is State.DEAD:
        tell(Change(None, "", State.SERVING, f"was taken down: nothing is left of start {ward.generation}"))
        return 0
    if outlook.state is State.UNKNOWN:
        tell(Change(None, "", State.UNKNOWN, outlook.says))
        return UNREACHABLE
    tell(Change(None, "", State.SERVING, "nothing speaks against it"))
    return 0


def _broken(ward: Ward, finding: Finding) -> ServiceBroken:
    lines = [
        f"{one.node}  {one.source}  {one.seen_at.astimezone():%H:%M:%S}  {' '.join(one.excerpt.split())[:240]}"
        for one in finding.evidence
    ]
    error = ServiceBroken(
        finding.code,
        f"{ward.service} is broken: {finding.says}",
        seen="\n".join(lines),
        advice=finding.advice or (f"{finding.change}" if finding.change else "`bascule up RECIPE` starts it anew"),
    )
    error.run = ward.run
    return error
