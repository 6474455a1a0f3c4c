"""A registry's API, as far as reading one image needs it: the OCI distribution specification and its token logins."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from bascule.probe.views.base import Unreadable
from bascule.probe.views.oci import DIGEST, LONGEST_JSON, Reference, json_object
from bascule.probe.views.streams import Meter, Reader, explained

CHUNK = 1 << 18  # bytes
LONGEST_TOKEN = 64 << 10  # bytes of a login's answer
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
SAYS = {
    401: "wants a login that this account doesn't have (docker login)",
    403: "does not let this account read it",
    404: "has no such image, or doesn't show it to everyone (docker login)",
}


def new_client() -> httpx2.Client:
    """A client for the time of one request; a proxy is taken from the environment."""
    return httpx2.Client(timeout=httpx2.Timeout(30, connect=10), max_redirects=5)


@dataclass(frozen=True, slots=True)
class Access:
    """How a registry is reached."""

    insecure: bool = False  # http, for a registry of one's own
    client: Callable[[], httpx2.Client] = new_client
    accounts: Path = field(
        default_factory=lambda: Path(os.environ.get("DOCKER_CONFIG", "~/.docker")).expanduser() / "config.json"
    )
    within: float = 3600  # seconds for one layer
    clock: Callable[[], float] = time.monotonic


class Hub:
    """One repository of a registry; each method raises Unreadable."""

    def __init__(self, reference: Reference, access: Access, meter: Meter) -> None:
        self.reference, self.access, self.meter = reference, access, meter
        self.insecure = access.insecure or _is_here(reference.host)
        self.scheme = "http" if self.insecure else "https"
        self.base = f"{self.scheme}://{reference.host}/v2/{reference.repository}"
        self._login = ""  # the Authorization header; never shown

    def manifest(self, version: str) -> tuple[dict[str, Any], str]:
        """A manifest or an index by tag or digest, and its own digest."""
        with self._get(f"{self.base}/manifests/{version}", MANIFESTS) as (response, reader):
            data = self._whole(reader, LONGEST_JSON)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        promised = version if DIGEST.fullmatch(version) else response.headers.get("docker-content-digest", digest)
        if promised != digest:
            raise Unreadable(str(self.reference), f"its manifest has another digest than {promised[:19]}…")
        return json_object(data, f"the manifest of {self.reference}"), digest

    def config(self, digest: str) -> dict[str, Any]:
        """A small blob."""
        with self.blob(digest) as reader:
            data = self._whole(reader, LONGEST_JSON)
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise Unreadable(str(self.reference), f"its config has another digest than {digest[:19]}…")
        return json_object(data, f"the config of {self.reference}")

    @contextmanager
    def blob(self, digest: str) -> Iterator[Reader]:
        """A blob as it comes over the wire; its digest is for the caller to compare."""
        with self._get(f"{self.base}/blobs/{digest}", "*/*") as (_, reader):
            yield reader

    def _whole(self, reader: Reader, limit: int) -> bytes:
        data = b""
        with explained(str(self.reference)):
            while len(data) <= limit and (more := reader.read(CHUNK)):
                data += more
        if len(data) > limit:
            raise Unreadable(str(self.reference), f"answers with more than {limit} bytes")
        return data

    @contextmanager
    def _get(self, url: str, accept: str) -> Iterator[tuple[httpx2.Response, Reader]]:
        """A good answer; where a login is asked for, once more with it."""
        with _translated(str(self.reference)), self.access.client() as client:
            with client.stream("GET", url, headers=self._headers(accept), follow_redirects=True) as response:
                if response.status_code != 401:
                    yield self._good(response), self._body(response)
                    return
                challenge = response.headers.get("www-authenticate", "")
            self._login = self._log_in(client, challenge)
            with client.stream("GET", url, headers=self._headers(accept), follow_redirects=True) as response:
                yield self._good(response), self._body(response)

    def _headers(self, accept: str) -> dict[str, str]:
        login = {"Authorization": self._login} if self._login else {}
        return {"Accept": accept, "Accept-Encoding": "identity", **login}

    def _body(self, response: httpx2.Response) -> Reader:
        return Wire(response.iter_raw(CHUNK), self.meter, self.access)

    def _good(self, response: httpx2.Response) -> httpx2.Response:
        status = response.status_code
        if status == 200:
            return response
        says = SAYS.get(status, f"answers HTTP {status}")
        if status == 429:
            after = response.headers.get("retry-after", "")
            says = "has had too many requests (HTTP 429)" + (f", try again in {after} s" if after.isdigit() else "")
        raise Unreadable(str(self.reference), f"the registry {says}")

    def _log_in(self, client: httpx2.Client, challenge: str) -> str:
        """The Authorization that a challenge asks for: the account itself, or a token that is given for it."""
        kind, _, rest = challenge.partition(" ")
        account = account_of(self.access.accounts, self.reference.accounts)
        if kind.lower() == "basic" and account:
            return f"Basic {account}"
        fields = dict(re.findall(r'(\w+)="([^"]*)"', rest[:4096]))
        if kind.lower() != "bearer" or "realm" not in fields:
            raise Unreadable(str(self.reference), f"the registry {SAYS[401]}")
        if not fields["realm"].startswith("https://") and not self.insecure:
            raise Unreadable(str(self.reference), "the registry wants a login over a connection that isn't encrypted")
        asks = {"service": fields.get("service", ""), "scope": f"repository:{self.reference.repository}:pull"}
        headers = {"Authorization": f"Basic {account}"} if account else {}
        with client.stream("GET", fields["realm"], params=asks, headers=headers) as response:
            if response.status_code != 200:
                raise Unreadable(str(self.reference), f"its login answers HTTP {response.status_code} (docker login)")
            answer = json_object(self._whole(self._body(response), LONGEST_TOKEN), "the login of the registry")
        token = answer.get("token") or answer.get("access_token")
        if not (isinstance(token, str) and token.isascii() and token.isprintable()):
            raise Unreadable(str(self.reference), "its login gives no token")
        return f"Bearer {token}"


class Wire:
    """The body of an answer; see Reader. Raises ValueError."""

    def __init__(self, chunks: Iterator[bytes], meter: Meter, access: Access) -> None:
        self.chunks, self.meter, self.access = chunks, meter, access
        self.rest = b""
        self.until = access.clock() + access.within

    def read(self, size: int, /) -> bytes:
        """See Reader."""
        if not self.rest:
            if self.access.clock() > self.until:
                raise ValueError(f"took more than {self.access.within:.0f} s")
            try:
                self.rest = self.meter.count(next(self.chunks, b""))
            except (httpx2.HTTPError, httpx2.StreamError) as trouble:
                raise ValueError(f"the connection failed: {type(trouble).__name__}") from trouble
        data, self.rest = self.rest[:size], self.rest[size:]
        return data


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as trouble:
        raise Unreadable(name, f"no answer: {type(trouble).__name__}: {trouble}"[:300]) from trouble


def account_of(path: Path, names: tuple[str, ...]) -> str:
    """`user:password` in base64, as `docker login` keeps it without a helper program; "" = none. Never show it."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(LONGEST_JSON))
        rows = found.get("auths", {}) if isinstance(found, dict) else {}
        rows = [rows[name] for name in names if isinstance(rows, dict) and isinstance(rows.get(name), dict)]
        auth = next((row["auth"] for row in rows if isinstance(row.get("auth"), str)), "")
        return auth if b":" in base64.b64decode(auth, validate=True) else ""
    except (OSError, ValueError, RecursionError, binascii.Error):
        return ""


def _is_here(host: str) -> bool:
    """A registry on this machine, which docker reaches by http as well."""
    name = host.rpartition(":")[0] or host
    return name == "localhost" or name.startswith("127.") or name == "[::1]"
