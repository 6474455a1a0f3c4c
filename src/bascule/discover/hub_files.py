"""Files of a model on a hub: over HTTP within bounds, or in the cache that hub clients share.

The protocol and the layout of the cache are those of huggingface_hub 2.4.0 (constants.py, file_download.py,
utils/_http.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import httpx2

from bascule.errors import ModelError

ENDPOINT = "https://huggingface.co"
AT_ONCE = 8  # requests
TRIES = 3  # of a request that is answered with "later"
LONGEST_WAIT = 30.0  # seconds that the hub may ask for
_LATER = (429, 500, 502, 503, 504)
_TRUE = ("1", "on", "yes", "true")
_NAME = re.compile(r"(?:\w[\w.-]{0,95}/)?\w[\w.-]{0,95}", re.ASCII)
_REVISION = re.compile(r"\w[\w./-]{0,199}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")
_RESET = re.compile(r";t=(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Hub:
    """Where a hub is and how this user enters it."""

    endpoint: str
    cache: Path
    token: str = field(default="", repr=False)
    offline: bool = False
    within: float = 120  # seconds for all that one model needs

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Hub:
        """As the variables of huggingface_hub say. Raises ModelError for a token that can't be sent."""
        home = Path(env.get("HOME") or "~").expanduser()
        base = Path(env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or home / ".cache") / "huggingface")
        cache = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or base.expanduser() / "hub"
        offline = env.get("HF_HUB_OFFLINE") or env.get("TRANSFORMERS_OFFLINE") or ""
        return cls(
            (env.get("HF_ENDPOINT") or ENDPOINT).rstrip("/"),
            Path(cache).expanduser(),
            _token(env, base.expanduser()),
            offline.lower() in _TRUE,
        )


@dataclass(frozen=True, slots=True)
class HubId:
    """A model on a hub, in one revision."""

    name: str
    revision: str = "main"

    @classmethod
    def parse(cls, text: str) -> HubId:
        """From `owner/name` or `owner/name@revision`. Raises ModelError."""
        name, at, revision = text.partition("@")
        bad_name = not _NAME.fullmatch(name) or ".." in name or "--" in name
        if bad_name or (at and (not _REVISION.fullmatch(revision) or ".." in revision)):
            raise ModelError(
                "model-missing",
                f"{text[:200]!r} is no name of a model on a hub",
                advice="write owner/name or owner/name@revision",
            )
        return cls(name, revision or "main")


@dataclass(frozen=True, slots=True)
class Body:
    """What came of a file: its first bytes, its size where the hub told it, and the commit it belongs to."""

    content: bytes
    size: int | None
    commit: str


def cached(hub: Hub, wanted: HubId) -> Path | None:
    """The snapshot of this revision in the cache; None when there is none."""
    folder = hub.cache / f"models--{wanted.name.replace('/', '--')}"
    commit = wanted.revision
    if not _COMMIT.fullmatch(commit):
        try:
            with (folder / "refs" / commit).open("rb") as file:
                commit = file.read(100).decode(errors="replace").strip()
        except OSError:
            return None
    snapshot = folder / "snapshots" / commit
    return snapshot if _COMMIT.fullmatch(commit) and snapshot.is_dir() else None


@dataclass(frozen=True, slots=True)
class Wire:
    """An open connection to the files of one model."""

    client: httpx2.AsyncClient
    hub: Hub
    wanted: HubId
    gate: asyncio.Semaphore

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, hub: Hub, wanted: HubId) -> AsyncIterator[Wire]:
        """Connections with the user's token, which follows no redirect to another host."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "bascule"}
        if hub.token:
            headers["Authorization"] = f"Bearer {hub.token}"
        timeout = httpx2.Timeout(20, connect=10)
        async with httpx2.AsyncClient(
            headers=headers, timeout=timeout, follow_redirects=True, max_redirects=5
        ) as client:
            yield cls(client, hub, wanted, asyncio.Semaphore(AT_ONCE))

    def at(self, commit: str) -> Wire:
        """The same model in this very commit."""
        return replace(self, wanted=replace(self.wanted, revision=commit))

    async def get(self, file: str, most: int, *, part: bool = False) -> Body | None:
        """The first `most` bytes of a file; None when the model has no such file. `part`: ask for just these.

        Raises ModelError for everything else that the hub answers, and httpx2.HTTPError.
        """
        where = f"{self.wanted.name}/resolve/{quote(self.wanted.revision, safe='')}/{quote(file)}"
        headers = {"Range": f"bytes=0-{most - 1}"} if part else {}
        async with self.gate:
            for tries in range(1, TRIES + 1):
                async with self.client.stream("GET", f"{self.hub.endpoint}/{where}", headers=headers) as answer:
                    if answer.status_code in (200, 206):
                        return await _body(answer, most)
                    if answer.status_code not in _LATER:
                        self._only_the_file_is_missing(answer, file)
                        return None
                    wait = self._wait(answer, tries)
                await asyncio.sleep(wait)
        raise self._busy(f"HTTP {answer.status_code}, {TRIES} times")

    def _wait(self, answer: httpx2.Response, tries: int) -> float:
        """Seconds until the next try; raises ModelError when the hub wants more than is sensible."""
        if tries == TRIES:
            return 0
        wait = _asked_to_wait(answer, tries)
        if wait > LONGEST_WAIT:
            raise self._busy(f"HTTP {answer.status_code}, wait {wait:g} s")
        return wait

    def _busy(self, seen: str) -> ModelError:
        return ModelError(
            "hub-unreachable",
            f"{self.hub.endpoint} has no time for {self.wanted.name}",
            seen=seen,
            advice="try again later; with HF_TOKEN set, hubs allow more requests",
        )

    def _only_the_file_is_missing(self, answer: httpx2.Response, file: str) -> None:
        """Raises ModelError when it is the model, the revision or the right to see them that is missing."""
        code, name = answer.headers.get("X-Error-Code", ""), self.wanted.name
        seen = f"HTTP {answer.status_code} {code} for {file}".replace("  ", " ")
        if answer.status_code == 416 or (
            answer.status_code == 404 and (code == "EntryNotFound" or (not code and file != "config.json"))
        ):
            return
        if code == "GatedRepo" or (answer.status_code == 403):
            raise ModelError(
                "model-denied",
                f"{self.hub.endpoint} does not give {name} to this user",
                seen=seen,
                advice="accept the model's terms on its page, and set HF_TOKEN to a token of that user",
            )
        if code == "RevisionNotFound":
            raise ModelError("model-missing", f"{name} has no revision {self.wanted.revision}", seen=seen)
        if answer.status_code in (401, 404):
            raise ModelError(
                "model-missing",
                f"{self.hub.endpoint} has no model {name}, or does not show it to this user",
                seen=seen,
                advice="check the name; a private model needs HF_TOKEN",
            )
        raise ModelError("hub-unreachable", f"{self.hub.endpoint} gave no answer about {name}", seen=seen)


async def _body(answer: httpx2.Response, most: int) -> Body:
    """The beginning of an answer; a hub that knows no ranges is left after it."""
    content = bytearray()
    async for chunk in answer.aiter_bytes():
        content += chunk[: most - len(content)]
        if len(content) >= most:
            break
    spans = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    length = answer.headers.get("Content-Length", "")
    size = int(spans[2]) if spans else None
    if answer.status_code == 200 and length.isdecimal() and len(length) < 19:
        size = int(length)
    if spans and spans[1] != "0":
        raise httpx2.RemoteProtocolError(f"asked for the first bytes, got {spans[0]}")
    # Behind a redirect is a store that knows no commits.
    commits = (one.headers.get("X-Repo-Commit") for one in (*answer.history, answer))
    return Body(bytes(content), size, next((commit for commit in commits if commit), ""))


def _asked_to_wait(answer: httpx2.Response, tries: int) -> float:
    """Seconds that the hub asks to wait, else some more with each try."""
    asked = answer.headers.get("Retry-After", "")
    reset = _RESET.search(answer.headers.get("RateLimit", ""))
    if asked.isdecimal() and len(asked) < 7:
        return float(asked)
    return float(reset[1]) if reset else float(2**tries)


def _token(env: Mapping[str, str], base: Path) -> str:
    """HF_TOKEN, or the file that a login leaves."""
    if env.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").lower() in _TRUE:
        return ""
    token = (env.get("HF_TOKEN") or env.get("HUGGING_FACE_HUB_TOKEN") or "").strip()
    where = "HF_TOKEN"
    if not token:
        path = Path(env.get("HF_TOKEN_PATH") or base / "token").expanduser()
        where = str(path)
        with contextlib.suppress(OSError):
            if path.is_file():
                with path.open("rb") as file:
                    token = file.read(10_000).decode(errors="replace").strip()
    if not re.fullmatch(r"[\x21-\x7e]*", token):
        raise ModelError("model-denied", f"{where} holds no token", advice="a token is one word of ASCII characters")
    return token
