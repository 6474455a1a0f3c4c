"""One repository of a registry: its tags, manifests, blobs and what refers to them, by any of the ways to it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from bascule.registry import keep
from bascule.registry.access import Access
from bascule.registry.doors import Door, doors
from bascule.registry.login import authorization
from bascule.registry.oci import DIGEST, LONGEST_JSON, Reference, json_object
from bascule.registry.troubles import ANSWER, MISSING, RegistryTrouble
from bascule.registry.wire import Asking, Body, answered, good, whole

MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
INDEX = "application/vnd.oci.image.index.v1+json"
MOST_PAGES = 20  # of a list of tags
A_PAGE = 1000  # tags that are asked for at once
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_NEXT = re.compile(r'<([^<>]{1,2000})>\s*;\s*rel="?next"?')


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of a repository, in the order in which the registry gives them."""

    names: tuple[str, ...]
    whole: bool = True  # False: there are more than were asked for


class Repository:
    """One repository of a registry; each method raises Unreadable."""

    def __init__(self, reference: Reference, access: Access, count: Callable[[bytes], bytes] = bytes) -> None:
        self.reference, self.access, self.count = reference, access, count
        self.doors = list(doors(reference, access.daemon, access.insecure))
        self.name = str(reference)

    def manifest(self, version: str) -> tuple[dict[str, Any], str]:
        """A manifest or an index by tag or digest, and its own digest."""
        digest = version if DIGEST.fullmatch(version) else self.head(version) if self.access.cache else None
        if digest and (kept := keep.read(self.access.cache, digest)):
            return json_object(kept, f"the manifest of {self.name}"), digest
        with self._get(f"manifests/{version}", MANIFESTS) as (asking, response, body):
            data = whole(asking, body, LONGEST_JSON)
            promised = response.headers.get("docker-content-digest", "")
        found = f"sha256:{hashlib.sha256(data).hexdigest()}"
        promised = version if DIGEST.fullmatch(version) else promised or found
        if promised != found:
            why = f"its manifest has another digest than {promised[:19]}…"
            raise RegistryTrouble(ANSWER, self.name, why, self.reference.host)
        keep.write(self.access.cache, found, data)
        return json_object(data, f"the manifest of {self.name}"), found

    def head(self, version: str) -> str | None:
        """The digest of a manifest without fetching it, which costs no pull; None where the registry doesn't say."""
        with self._get(f"manifests/{version}", MANIFESTS, "HEAD") as (_, response, _):
            digest = response.headers.get("docker-content-digest", "")
        return digest if DIGEST.fullmatch(digest) else None

    def has(self, version: str) -> bool:
        """Whether there is a manifest of this tag or digest."""
        try:
            with self._get(f"manifests/{version}", MANIFESTS, "HEAD"):
                return True
        except RegistryTrouble as trouble:
            if trouble.kind == MISSING:
                return False
            raise

    def config(self, digest: str) -> dict[str, Any]:
        """A small blob."""
        data = keep.read(self.access.cache, digest)
        if data is None:
            with self._get(f"blobs/{digest}", "*/*") as (asking, _, body):
                data = whole(asking, body, LONGEST_JSON)
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            why = f"its config has another digest than {digest[:19]}…"
            raise RegistryTrouble(ANSWER, self.name, why, self.reference.host)
        keep.write(self.access.cache, digest, data)
        return json_object(data, f"the config of {self.name}")

    @contextmanager
    def blob(self, digest: str) -> Iterator[Body]:
        """A blob as it comes over the wire; its digest is for the caller to compare."""
        with self._get(f"blobs/{digest}", "*/*") as (_, _, body):
            yield body

    def tags(self) -> Tags:
        """All tags, page by page, as far as there are not too many."""
        names, path, seen = dict[str, None](), f"tags/list?n={A_PAGE}", set[str]()
        for _ in range(MOST_PAGES):
            with self._get(path, "application/json") as (asking, response, body):
                found = json_object(whole(asking, body, LONGEST_JSON), f"the tags of {self.name}")
                link = _NEXT.search(response.headers.get("link", ""))
                path = self._below(asking.url, link[1]) if link else ""
            rows = found.get("tags")
            names |= dict.fromkeys(tag for tag in rows or () if isinstance(tag, str) and _TAG.fullmatch(tag))
            if not path or path in seen:
                return Tags(tuple(names))
            seen.add(path)
        return Tags(tuple(names), False)

    def referrers(self, digest: str) -> tuple[str, ...]:
        """The kinds of what refers to a manifest, such as signatures; by the referrers API, else by its tag."""
        found = self._index(f"referrers/{digest}", MISSING, ANSWER)
        found = found or self._index(f"manifests/{digest.replace(':', '-')}", MISSING)
        rows = found.get("manifests") if found else None
        rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return tuple(str(row.get("artifactType") or row.get("mediaType") or "")[:200] for row in rows)

    def _index(self, path: str, *none: str) -> dict[str, Any] | None:
        """An index; None for troubles of these kinds: older registries have no API of referrers."""
        try:
            with self._get(path, INDEX) as (asking, _, body):
                return json_object(whole(asking, body, LONGEST_JSON), f"the referrers of {self.name}")
        except RegistryTrouble as trouble:
            if trouble.kind in none:
                return None
            raise

    def _below(self, asked: str, link: str) -> str:
        """The path of the next page, when it is one of this repository at the same host; else ""."""
        url = urlsplit(urljoin(asked, link))
        mark = f"/v2/{self.reference.repository}/"
        _, found, rest = url.path.partition(mark)
        same = url.netloc == urlsplit(asked).netloc
        return f"{rest}?{url.query}" if found and same and rest == "tags/list" else ""

    @contextmanager
    def _get(self, path: str, accept: str, method: str = "GET") -> Iterator[tuple[Asking, httpx2.Response, Body]]:
        """A good answer, by the first way that gives one; a mirror that failed is not asked again."""
        with ExitStack() as stack:
            for door in tuple(self.doors):
                asking = Asking(f"{door.base}/{self.reference.repository}/{path}", self.name, method, accept=accept)
                try:
                    response = stack.enter_context(self._through(door, asking))
                    break
                except RegistryTrouble as trouble:
                    if not self._go_on(door, trouble):
                        raise
            yield asking, response, Body(response, self.access, self.count)

    def _go_on(self, door: Door, trouble: RegistryTrouble) -> bool:
        """Whether another way is left after this one failed."""
        if not door.mirror:
            return False
        if trouble.kind != MISSING:
            self.access.tell(f"mirror {door.host}: {trouble.why}")
            self.doors.remove(door)
        return True

    @contextmanager
    def _through(self, door: Door, asking: Asking) -> Iterator[httpx2.Response]:
        """A good answer from one door; where a login is asked for, once more with it."""
        key = (door.base, self.reference.repository)
        asking = replace(asking, login=self.access.shared.tokens.get(key, ""))
        with answered(asking, self.access) as response:
            if response.status_code != 401:
                yield good(asking, response)
                return
            challenge = response.headers.get("www-authenticate", "")
        login = authorization(challenge, door, asking, self.reference.repository, self.access)
        self.access.shared.tokens[key] = login
        asking = replace(asking, login=login)
        with answered(asking, self.access) as response:
            yield good(asking, response)
