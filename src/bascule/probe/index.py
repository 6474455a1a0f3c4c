"""A package index: which one pip uses, which releases of a distribution it has, and which wheel is the one to read."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import httpx2

from bascule.core.reading import Unreadable

# The simple API as JSON is PEP 691, its sizes PEP 700, as HTML PEP 503, yanked files PEP 592.
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
PAGE_LIMIT = 32 * 1024 * 1024  # bytes; a distribution with 500 files has 0.2 MB
WITHIN = 60.0  # seconds for a page
REDIRECTS = 5
# A version as PEP 440 writes it, without a local label, which no index takes.
VERSION = re.compile(r"(?:(\d{1,9})!)?(\d{1,9}(?:\.\d{1,9}){0,9})(?:(a|b|rc)\d+)?(?:\.post(\d{1,9}))?(\.dev\d+)?")
# name, version, then build (optional), Python, ABI and platform: the file names of PEP 427.
WHEEL = re.compile(r"([A-Za-z0-9_.]+)-([^-]+)(?:-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel, as an index names it."""

    filename: str
    url: str
    version: str
    size: int | None  # bytes; None: the index doesn't say
    sha256: str  # "": the index doesn't say
    yanked: bool = False

    @property
    def is_final(self) -> bool:
        """True for a release or a post-release, False for a pre-release and for what is no version."""
        parts = VERSION.fullmatch(self.version)
        return parts is not None and parts[3] is None and parts[5] is None


async def index_url(environ: Mapping[str, str] = os.environ) -> str | None:
    """The index that pip here is set up with, else the one that pip itself would ask; None when there is no pip."""
    own = environ.get("PIP_INDEX_URL", "").strip()
    # The list has the address with its password; the help has pip's own default, a password is blotted out there.
    return own or _set_in(await _pip("config", "list")) or _default_of(await _pip("download", "--help"))


def client_for(timeout: float = 30.0) -> httpx2.AsyncClient:
    """A client that follows a few redirects and waits a bounded time for each byte."""
    return httpx2.AsyncClient(
        timeout=timeout, follow_redirects=True, max_redirects=REDIRECTS, headers={"User-Agent": "bascule"}
    )


async def wheels_of(client: httpx2.AsyncClient, index: str, distribution: str) -> tuple[Wheel, ...]:
    """Every wheel of a distribution. Raises Unreadable; a distribution that the index doesn't have is Unreadable."""
    url = f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', distribution).lower()}/"
    try:
        async with asyncio.timeout(WITHIN), client.stream("GET", url, headers={"Accept": ACCEPT}) as answer:
            if answer.status_code != httpx2.codes.OK:
                raise Unreadable(distribution, f"the index answers {answer.status_code} {answer.reason_phrase}".strip())
            body = bytearray()
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > PAGE_LIMIT:
                    raise Unreadable(distribution, f"its page has more than {PAGE_LIMIT} bytes")
            base, kind = str(answer.url), answer.headers.get("content-type", "")
    except TimeoutError:
        raise Unreadable(distribution, f"its page took more than {WITHIN:.0f} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as trouble:
        raise Unreadable(distribution, f"the index: {trouble or type(trouble).__name__}") from None
    return wheels_in(bytes(body), kind, base, distribution)


def wheels_in(page: bytes, content_type: str, base: str, distribution: str) -> tuple[Wheel, ...]:
    """The wheels that a page of the simple API names; what is no wheel of this distribution is left out.

    Raises Unreadable.
    """
    rows = _json_rows(page, distribution) if "json" in content_type else _html_rows(page)
    wanted = _normal(distribution)
    found = []
    for row in rows:
        name = WHEEL.fullmatch(row["filename"])
        url = urldefrag(urljoin(base, row["url"])).url
        if name and _normal(name[1]) == wanted and urlsplit(url).scheme in ("http", "https"):
            found.append(Wheel(row["filename"], url, name[2], row["size"], row["sha256"], row["yanked"]))
    return tuple(found)


def releases(wheels: Iterable[Wheel]) -> tuple[str, ...]:
    """The final releases that still stand, from the oldest to the newest: nothing yanked, no pre-release."""
    return tuple(sorted({one.version for one in wheels if one.is_final and not one.yanked}, key=order))


def smallest(wheels: Iterable[Wheel], version: str) -> Wheel | None:
    """The wheel of a release to read: its Python files are the same for every platform, so the smallest will do."""
    those = [one for one in wheels if order(one.version) == order(version) and not one.yanked]
    return min(those, key=lambda one: (one.size is None, one.size or 0, one.filename), default=None)


def order(version: str) -> tuple[Any, ...]:
    """A key that sorts versions as PEP 440 does, as far as it goes for final ones; no version comes first."""
    parts = VERSION.fullmatch(version)
    if not parts:
        return (-1, (), -1)
    numbers = [int(number) for number in parts[2].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return (int(parts[1] or 0), tuple(numbers), int(parts[4]) if parts[4] else -1)


async def _pip(*words: str) -> str:
    """What pip of this Python prints; "" when it fails or isn't there."""
    pip = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(WITHIN):
            said, _ = await pip.communicate()
    except TimeoutError:
        said = b""
    finally:
        if pip.returncode is None:
            pip.kill()
            await pip.wait()
    return "" if pip.returncode else said.decode(errors="replace").strip()


def _set_in(text: str) -> str | None:
    """`global.index-url='URL'` of pip's settings, as its files have it."""
    found = re.search(r"^global\.index-url=(['\"])(.+)\1$", text, re.MULTILINE)
    return found[2] if found else None


def _default_of(text: str) -> str | None:
    """`--index-url <url> … (default URL)` of pip's help, whose lines are wrapped."""
    found = re.search(r"--index-url\b.*?\(default:?\s+(https?://[^\s)]+)\)", text, re.DOTALL)
    return found[1] if found and "****" not in found[1] else None


def _json_rows(page: bytes, distribution: str) -> Sequence[Mapping[str, Any]]:
    try:
        files = json.loads(page)["files"]
        return [_json_row(file) for file in files]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as broken:
        why = f"its page is no simple API in JSON ({type(broken).__name__})"
        raise Unreadable(distribution, why) from None


def _json_row(file: Mapping[str, Any]) -> Mapping[str, Any]:
    size = file.get("size")
    hashes = file.get("hashes") or {}
    return {
        "filename": str(file["filename"]),
        "url": str(file["url"]),
        "size": size if isinstance(size, int) and size > 0 else None,
        "sha256": _sha256(str(hashes.get("sha256", ""))),
        "yanked": bool(file.get("yanked")),  # True, or the reason
    }


def _html_rows(page: bytes) -> Sequence[Mapping[str, Any]]:
    links = _Links()
    links.feed(page.decode(errors="replace"))
    return links.rows


class _Links(HTMLParser):
    """The files of an HTML page: PEP 503 puts the hash behind the address, PEP 592 adds data-yanked."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Mapping[str, Any]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a link to a file."""
        values = dict(attrs)
        href = values.get("href")
        if tag != "a" or not href:
            return
        address, fragment = urldefrag(href)
        found = re.search(r"(?:^|&)sha256=([^&]*)", fragment)
        self.rows.append(
            {
                "filename": unquote(address.partition("?")[0].rsplit("/", 1)[-1]),
                "url": address,
                "size": None,
                "sha256": _sha256(found[1] if found else ""),
                "yanked": "data-yanked" in values,
            }
        )


def _sha256(text: str) -> str:
    return text.lower() if re.fullmatch(r"[0-9a-fA-F]{64}", text) else ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
