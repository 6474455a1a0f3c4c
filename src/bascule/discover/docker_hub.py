"""What Docker Hub says of repositories beside their images: search, pulls, when they were pushed to, their newest tags.

Shapes: docs.docker.com/reference/api/hub/latest (tags, paging, rate limits with X-Retry-After as a time), read 2026-12;
the search is the one of hub.docker.com's own pages, which that document leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from bascule.registry.access import Access
from bascule.registry.oci import DIGEST, LONGEST_JSON, json_object, time_of
from bascule.registry.troubles import MISSING, RegistryTrouble
from bascule.registry.wire import Asking, Body, answered, good, whole

HUB = "https://hub.docker.com"
A_PAGE = 100  # rows, the most that it gives
MOST_PAGES = 3
WHO = "Docker Hub"


@dataclass(frozen=True, slots=True)
class Found:
    """A repository that a search gave."""

    name: str  # owner/name
    pulls: int
    says: str


@dataclass(frozen=True, slots=True)
class Popularity:
    """What it counts of a repository."""

    pulls: int | None
    updated: datetime | None


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag, with what it holds for each platform."""

    name: str
    updated: datetime | None
    platforms: tuple[str, ...]
    digest: str = ""


@dataclass(frozen=True, slots=True)
class DockerHub:
    """Docker Hub's own API; each method raises Unreadable."""

    access: Access
    base: str = HUB

    def search(self, query: str, most: int) -> tuple[Found, ...]:
        """The repositories that fit best, as it orders them."""
        rows = self._rows(f"/v2/search/repositories/?query={quote(query)}&page_size={min(most, A_PAGE)}", query, most)
        return tuple(found for row in rows if (found := _found(row)))

    def popularity(self, repository: str) -> Popularity | None:
        """Pulls and age of owner/name; None when it isn't there."""
        try:
            row = self._get(f"{self.base}/v2/repositories/{quote(repository)}/", repository)
        except RegistryTrouble as trouble:
            if trouble.kind == MISSING:
                return None
            raise
        return Popularity(_count(row.get("pull_count")), time_of(row.get("last_updated")))

    def tags(self, repository: str, most: int = 2 * A_PAGE) -> tuple[Tag, ...]:
        """The newest tags of owner/name."""
        owner, _, name = repository.partition("/")
        path = f"/v2/namespaces/{quote(owner)}/repositories/{quote(name)}/tags?page_size={A_PAGE}"
        return tuple(tag for row in self._rows(path, repository, most) if (tag := _tag(row)))

    def _rows(self, path: str, name: str, most: int) -> Iterator[Mapping[str, Any]]:
        """Rows of all pages, so many at most; a next page elsewhere is not followed."""
        url, left = f"{self.base}{path}", most
        for _ in range(MOST_PAGES):
            found = self._get(url, name)
            rows = found.get("results")
            for row in rows[:left] if isinstance(rows, list) else ():
                if isinstance(row, dict):
                    yield row
            left -= len(rows) if isinstance(rows, list) else 0
            following = found.get("next")
            if left <= 0 or not isinstance(following, str) or not following:
                return
            url = urljoin(url, following)
            if urlsplit(url).netloc != urlsplit(self.base).netloc:
                return

    def _get(self, url: str, name: str) -> dict[str, Any]:
        asking = Asking(url, name, who=WHO)
        with answered(asking, self.access) as response:
            good(asking, response)
            data = whole(asking, Body(response, self.access, bytes), LONGEST_JSON)
        return json_object(data, f"{WHO}'s answer about {name}")


def _found(row: Mapping[str, Any]) -> Found | None:
    name = row.get("repo_name")
    if not isinstance(name, str) or not 0 < len(name) < 256:
        return None
    name = name if "/" in name else f"library/{name}"
    says = row.get("short_description")
    return Found(
        name,
        _count(row.get("pull_count")) or 0,
        says[:200] if isinstance(says, str) else "",
    )


def _tag(row: Mapping[str, Any]) -> Tag | None:
    name = row.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= 128:
        return None
    digest = row.get("digest")
    return Tag(
        name,
        time_of(row.get("tag_last_pushed")) or time_of(row.get("last_updated")),
        _platforms(row.get("images")),
        digest if isinstance(digest, str) and DIGEST.fullmatch(digest) else "",
    )


def _platforms(images: object) -> tuple[str, ...]:
    """Its document shows one object where its answers have a list."""
    rows: Sequence[object] = images if isinstance(images, list) else [images]
    pairs = [(row.get("os"), row.get("architecture")) for row in rows if isinstance(row, dict)]
    return tuple(dict.fromkeys(f"{os}/{arch}" for os, arch in pairs if os and arch and arch != "unknown"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
