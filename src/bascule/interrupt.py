"""Ctrl-C, TERM and HUP: once to stop in good order, twice to leave at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any

from bascule.show.plain import say


def run(work: Coroutine[Any, Any, Any], interrupted: int) -> Any:
    """Run to the end and give its result, or `interrupted` after it was cancelled and has cleaned up."""
    return asyncio.run(_guarded(work, interrupted))


async def _guarded(work: Coroutine[Any, Any, Any], interrupted: int) -> Any:
    task = asyncio.ensure_future(work)
    heard: list[int] = []

    def interrupt(number: int) -> None:
        heard.append(number)
        if len(heard) == 1:
            say("interrupted: stopping what this command started (again: leave at once)")
            task.cancel()
        else:
            say("left at once; `bascule status` shows what still runs, `bascule down` ends it")
            os._exit(interrupted)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, interrupt, number)
    try:
        return await task
    except asyncio.CancelledError:
        return interrupted
