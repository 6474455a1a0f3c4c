"""Work in a thread that nobody waits for: who asked for it may be cancelled, and the program may end before it does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def aside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the function gives. A blocked read of a socket ends by its own timeout, and holds nobody up until then."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, trouble: BaseException | None) -> None:
        if future.done():
            return
        if trouble is not None:
            future.set_exception(trouble)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        trouble: BaseException | None = None
        try:
            result = function(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - it is raised where it is awaited
            trouble = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(settle, result, trouble)

    threading.Thread(target=work, daemon=True).start()
    return await future
