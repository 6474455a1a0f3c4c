"""Requests to servers that aren't ours: bounded, patient; a RegistryTrouble when nothing good comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx2

from bascule.registry.access import Access
from bascule.registry.patience import allowance, pause
from bascule.registry.troubles import ANSWER, BUSY, TOO_LARGE, UNREACHABLE, RegistryTrouble, kind_of, says

CHUNK = 1 << 18  # bytes
AGENT = "bascule"


@dataclass(frozen=True, slots=True)
class Asking:
    """One question: where, and with what."""

    url: str
    name: str  # what it is about, for messages
    method: str = "GET"
    who: str = "the registry"
    accept: str = "application/json"
    login: str = field(default="", repr=False)  # the Authorization header; never shown
    params: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        """Who is asked."""
        return urlsplit(self.url).netloc

    @property
    def headers(self) -> dict[str, str]:
        """What is sent; a redirect to another host takes no login along."""
        login = {"Authorization": self.login} if self.login else {}
        return {"Accept": self.accept, "Accept-Encoding": "identity", "User-Agent": AGENT, **login}


class Body:
    """The body of an answer, as it comes. Raises ValueError when the connection breaks or takes too long."""

    def __init__(self, response: httpx2.Response, access: Access, count: Callable[[bytes], bytes]) -> None:
        self.chunks, self.access, self.count = response.iter_raw(CHUNK), access, count
        self.rest = b""
        self.until = access.clock() + access.within

    def read(self, size: int, /) -> bytes:
        """Up to so many bytes; none at the end."""
        if not self.rest:
            if self.access.clock() > self.until:
                raise ValueError(f"took more than {self.access.within:.0f} s")
            try:
                self.rest = self.count(self.access.counted(next(self.chunks, b"")))
            except (httpx2.HTTPError, httpx2.StreamError) as trouble:
                raise ValueError(f"the connection failed: {type(trouble).__name__}") from trouble
        data, self.rest = self.rest[:size], self.rest[size:]
        return data


@contextmanager
def answered(asking: Asking, access: Access) -> Iterator[httpx2.Response]:
    """The answer, whatever its status; "later" is waited for as long as that is sensible. Raises RegistryTrouble."""
    turn = 1
    while True:
        with _sent(asking, access) as response:
            _note_allowance(asking.host, response, access)
            wait = pause(response.status_code, response.headers, turn, access.now())
            if wait is None:
                yield response
                return
            status, refused = response.status_code, _busy(asking, response, wait)
        if not access.waits(wait, f"{asking.host} answers HTTP {status}"):
            raise refused
        turn += 1


def good(asking: Asking, response: httpx2.Response) -> httpx2.Response:
    """The same answer when it is one. Raises RegistryTrouble."""
    status = response.status_code
    if status == 200:
        return response
    kind = kind_of(status)
    if kind == BUSY:
        raise _busy(asking, response, None)
    words = says(kind) if kind_of(status) != ANSWER and status < 500 else f"answers HTTP {status}"
    raise RegistryTrouble(kind, asking.name, f"{asking.who} {words}", asking.host)


def whole(asking: Asking, body: Body, limit: int) -> bytes:
    """All of a body that may have so many bytes; not more of a longer one is read. Raises RegistryTrouble."""
    parts, size = list[bytes](), 0
    try:
        while size <= limit and (more := body.read(CHUNK)):
            parts.append(more)
            size += len(more)
    except ValueError as trouble:
        raise RegistryTrouble(UNREACHABLE, asking.name, str(trouble), asking.host) from trouble
    if size > limit:
        raise RegistryTrouble(TOO_LARGE, asking.name, f"answers with more than {limit} bytes", asking.host)
    return b"".join(parts)


@contextmanager
def _sent(asking: Asking, access: Access) -> Iterator[httpx2.Response]:
    if access.shared.closed:
        raise RegistryTrouble(UNREACHABLE, asking.name, "the command was ended", asking.host)
    if asking.host in access.shared.away:
        raise RegistryTrouble(UNREACHABLE, asking.name, access.shared.away[asking.host], asking.host)
    try:
        with access.connection().stream(
            asking.method,
            asking.url,
            params=asking.params or None,
            data=asking.form,
            headers=asking.headers,
            follow_redirects=asking.form is None,
        ) as response:
            yield response
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as trouble:
        why = f"no answer: {type(trouble).__name__}: {trouble}"[:300]
        if isinstance(trouble, httpx2.ConnectError | httpx2.ConnectTimeout):
            access.shared.away[asking.host] = why
        raise RegistryTrouble(UNREACHABLE, asking.name, why, asking.host) from trouble


def _busy(asking: Asking, response: httpx2.Response, wait: float | None) -> RegistryTrouble:
    kind = kind_of(response.status_code)
    after = response.headers.get("retry-after", "")
    later = f", try again in {after} s" if after.isdecimal() else ""
    if not later and wait is not None:
        later = f", try again in {wait:.0f} s"
    words = says(kind) if kind == BUSY else f"answers HTTP {response.status_code}"
    return RegistryTrouble(kind, asking.name, f"{asking.who} {words}{later}", asking.host)


def _note_allowance(host: str, response: httpx2.Response, access: Access) -> None:
    if found := allowance(response.headers):
        with access.shared.lock:
            access.shared.allowances[host] = found
