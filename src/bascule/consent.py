"""Asks a person at a terminal, where there is one; Ctrl-C ends the question like everything else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

Consent = Callable[[str], Awaitable[bool]]


def at_terminal() -> Consent | None:
    """Who answers; None where nobody could read a question or answer it."""
    return yes if sys.stdin.isatty() and sys.stderr.isatty() else None


async def yes(question: str) -> bool:
    """True for `y` or `yes`; anything else, and the end of the input, is a no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
