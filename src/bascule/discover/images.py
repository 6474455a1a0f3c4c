"""The catalogue of known images of engines: who publishes them, which tags to look at, how an engine shows (pure)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from bascule.discover.offers import Kind, Publisher
from bascule.errors import RecipeError
from bascule.registry.oci import Reference, registries

NEWEST = 2  # releases of a repository that are looked at, beside the tags that are named
_RELEASE = re.compile(r"v?(\d+\.\d+\.\d+[\w.]*)")
KINDS: Mapping[str, Kind] = {"project": "project", "vendor": "vendor", "own": "own", "community": "community"}


@dataclass(frozen=True, slots=True)
class Known:
    """A repository of images that is known."""

    name: str
    engine: str
    tags: tuple[str, ...]
    releases: re.Pattern[str] | None
    platforms: tuple[str, ...] = ()
    accelerator: str = ""
    gpus: tuple[str, ...] = ()  # it is only for these; () = any
    note: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Images:
    """The catalogue."""

    known: tuple[Known, ...]
    publishers: Mapping[str, Publisher]  # by id
    words: Mapping[str, tuple[str, ...]]  # engine -> how it shows
    searches: Mapping[str, tuple[str, ...]]  # engine -> what to search for
    gpus: Mapping[str, tuple[str, ...]]  # sm_121 -> words that people use


def read_images(path: Path | None = None) -> Images:
    """The catalogue that came with bascule, or the one in a file. Raises RecipeError."""
    try:
        text = (
            path.read_text() if path else resources.files("bascule.discover").joinpath("data/images.toml").read_text()
        )
        return _images(tomllib.loads(text))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, re.error) as trouble:
        says = f"the catalogue of images {path} can't be read"
        seen = f"{type(trouble).__name__}: {trouble}"[:300]
        raise RecipeError("images-catalogue", says, seen=seen, advice="unset BASCULE_IMAGES, or mend it") from trouble


def publisher_of(reference: Reference, images: Images) -> Publisher:
    """Who publishes an image of this name: somebody known, anybody, or the owner of a registry of one's own."""
    name = reference.publisher
    if name in images.publishers:
        return images.publishers[name]
    if reference.registry not in registries()["public"]:
        return Publisher(name, name, "own")
    return Publisher(name, name.partition("/")[2], "community")


def recognised(texts: Iterable[tuple[str, str]], images: Images) -> tuple[str, str]:
    """The engine that one of these (where, text) mentions, and where; ("", "") when none does."""
    for where, text in texts:
        for engine, words in images.words.items():
            if any(word in text.lower() for word in words):
                return engine, f"{where}: {text[:100]}"
    return "", ""


def shown(
    names: Iterable[str], words: Sequence[str], env: Mapping[str, str], labels: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """What of an image may show its engine, the surest first; `words`: its entrypoint and command."""
    if words:
        yield "entrypoint", " ".join(words)
    for name, value in env.items():
        yield "variable", f"{name}={value}" if name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") else name
    for name, value in labels.items():
        if any(part in name for part in ("title", "source", "name")):
            yield f"label {name}", value
    for name in names:
        yield "name", name


def release_in(engine: str, env: Mapping[str, str], history: Sequence[str]) -> str:
    """The engine's release that a variable or a step of the build names, such as vllm==0.17.1; "" when none does."""
    for name in (f"{engine.upper()}_VERSION", f"{engine.upper()}_RELEASE"):
        if found := _RELEASE.fullmatch(env.get(name, "")):
            return found[1]
    pattern = re.compile(rf"\b{re.escape(engine)}(?:\[[^\]]*\])?==v?(\d+\.\d+[\w.]*)")
    return next((found[1].rstrip(".") for step in reversed(history) if (found := pattern.search(step))), "")


def chosen(known: Known, tags: Sequence[str]) -> tuple[str, ...]:
    """Which tags to look at: those that are named, then the newest releases, the newest first."""
    named = [tag for tag in known.tags if tag in tags]
    fits = [tag for tag in tags if known.releases and known.releases.fullmatch(tag)]
    newest = sorted(fits, key=order, reverse=True)[:NEWEST]
    return tuple(dict.fromkeys((*named, *newest)))


def release_of(known: Known | None, tag: str) -> str:
    """The engine's release that a tag names; "" when its tags don't."""
    match = known.releases.fullmatch(tag) if known and known.releases else None
    return (match.groupdict().get("release") or "") if match else ""


def order(tag: str) -> tuple[tuple[int, ...], str]:
    """A key by which releases in tags sort; what stands behind the numbers comes last."""
    numbers = [int(part[:9]) for part in re.findall(r"\d+", tag)]
    return tuple(numbers), tag


def searches(images: Images, engines: Sequence[str], gpu: str, family: str) -> tuple[str, ...]:
    """What to search a hub for: each engine with the GPU's words, then with the model's family."""
    more = [*images.gpus.get(gpu, ()), *([family] if family else [])]
    found = [f"{word} {extra}" for engine in engines for word in images.searches.get(engine, ()) for extra in more]
    return tuple(dict.fromkeys(found))


def family_of(model_type: str) -> str:
    """A model's family as people write it: qwen3.5 for qwen3_5_moe_text."""
    match = re.match(r"([a-z]+)(\d+)?(?:_(\d+)(?=_|$))?", model_type)
    if not match:
        return ""
    return match[1] + (match[2] or "") + (f".{match[3]}" if match[2] and match[3] else "")


def _images(raw: Mapping[str, Any]) -> Images:
    engines = raw.get("engines", {})
    rows = raw.get("publisher", [])
    return Images(
        tuple(_known(row) for row in raw.get("image", [])),
        {row["id"]: Publisher(row["id"], row["name"], KINDS[row["kind"]]) for row in rows},
        {name: tuple(row["words"]) for name, row in engines.items()},
        {name: tuple(row.get("search", ())) for name, row in engines.items()},
        {name: tuple(words) for name, words in raw.get("gpus", {}).items()},
    )


def _known(row: Mapping[str, Any]) -> Known:
    return Known(
        row["name"],
        row["engine"],
        tuple(row.get("tags", ())),
        re.compile(row["releases"], re.ASCII) if "releases" in row else None,
        tuple(row.get("platforms", ())),
        row.get("accelerator", ""),
        tuple(row.get("gpus", ())),
        row.get("note", ""),
        row.get("source", ""),
    )
