"""An image that no node has is pulled from a real registry by a real podman; and what may stand in the way of it."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import threading
from contextlib import suppress

import pytest

from bascule import settings
from bascule.core.machine import DockerFacts, NodeFacts
from bascule.core.nouns import Artefact, Candidate, Fate, Node
from bascule.distribute.bring import Delivery, bring
from bascule.distribute.images.pull import is_pullable, layers_of, pull, sign_of
from bascule.registry.oci import asked_for, pinned_tag
from bascule.registry.wire import AGENT
from bascule.remote.local import LocalRunner
from probe_views.views_cases import files_of, under
from registry.registry_parts import Front, direct, fronting, registry

NEW = under(files_of("vllm-0.32.0", "transformers-5.19.0"))
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with registry(tmp_path_factory.mktemp("registry")) as server:
        server.image("team/vllm", "1", {**NEW, "etc/pad": os.urandom(300_000)}, "amd64")
        server.index("team/other", "1", {"s390x": NEW})
        yield server


@pytest.fixture
def podman(tmp_path, monkeypatch):
    """The words that reach a podman with a store of its own, and the store's folder."""
    if not shutil.which("podman") or os.getuid():
        if "CI" in os.environ:
            pytest.fail("CI needs podman, as root")
        pytest.skip("no podman for root")
    reach(tmp_path)
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(tmp_path / "registries.conf"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as short:  # podman takes 50 characters here at most
        yield ("podman", "--storage-driver", "vfs", "--root", f"{tmp_path}/root", "--runroot", f"{short}/run")


def reach(tmp_path, *hosts):
    """Podman asks these by http."""
    rows = "".join(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n' for host in hosts)
    (tmp_path / "registries.conf").write_text(rows)


def node_with(command, root):
    return Node(
        "a", "local", facts=NodeFacts(docker=DockerFacts(command, "4", "vfs", str(root), "amd64"), arch="x86_64")
    )


def pulled(ref, node, **more):
    told = []
    found = asyncio.run(pull(ref, node, LocalRunner(node), told.append, direct(**more)))
    return found, told


def images(command):
    words = [*command, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


def test_what_is_pulled_by_its_digest_has_the_tag_that_stands_for_it(real, podman, tmp_path):
    reach(tmp_path, real.host)
    digest = real.image("team/vllm", "2", {**NEW, "etc/own": b"2"}, "amd64")
    ref = pinned_tag(f"{real.host}/team/vllm:2", digest)
    found, _ = pulled(ref, node_with(podman, tmp_path / "root"))
    assert found is None and ref in images(podman)
    assert list(tmp_path.glob("bascule-pull.*")) == []


def test_bring_lets_the_first_node_pull_what_nobody_has(real, podman, tmp_path, monkeypatch):
    reach(tmp_path, real.host)
    node = node_with(podman, tmp_path / "root")
    candidate = Candidate("c", "vllm", Artefact("image", f"{real.host}/team/vllm:1"), str(tmp_path), (), ("a",))
    noted = []
    delivery = Delivery(candidate, [node], [node], {"a": LocalRunner(node)}, lambda kind, **data: noted.append(kind))
    monkeypatch.setenv(settings.OFFLINE_VARIABLE, "1")
    assert asyncio.run(bring(delivery)).code == "image-missing"
    monkeypatch.delenv(settings.OFFLINE_VARIABLE)
    asyncio.run(bring(delivery))
    assert f"{real.host}/team/vllm:1" in images(podman)


def test_a_disk_that_is_too_small_is_told_before_the_pull(real, podman, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "x", small], check=False).returncode:
        pytest.skip("no mounts here")
    try:
        with fronting(Front(real.host)) as front:
            found, told = pulled(f"{front.host}/team/vllm:1", node_with(podman, small))
        assert (found.code, found.fate, told) == ("image-no-room", Fate.CLUSTER, [])
        assert "GB free and needs" in found.says and "docker image prune" in found.advice
        assert not any("/blobs/" in path and "GET" in verb for verb, path, _ in front.asked[3:])
    finally:
        with suppress(subprocess.CalledProcessError):
            subprocess.run(["umount", small], check=True)
    found, _ = pulled("127.0.0.1:1/team/vllm:1", node_with(podman, tmp_path / "root"))  # of unknown size: it is tried
    assert found.code == "registry-unreachable"


@pytest.mark.parametrize(
    ("name", "code"), [("team/vllm:9", "registry-missing"), ("team/other:1", "image-architecture")]
)
def test_what_the_registry_does_not_have(real, podman, tmp_path, name, code):
    reach(tmp_path, real.host)
    found, _ = pulled(f"{real.host}/{name}", node_with(podman, tmp_path / "root"))
    assert (found.code, found.fate) == (code, Fate.HOPELESS), found.evidence[0].excerpt


def test_a_login_that_the_node_does_not_have(real, podman, tmp_path):
    with fronting(Front(real.host, token="t", accounts=())) as front:
        reach(tmp_path, front.host)
        found, _ = pulled(f"{front.host}/team/vllm:1", node_with(podman, tmp_path / "root"))
    assert found.code == "registry-login" and "docker login" in found.advice


def test_a_pull_that_is_cancelled_leaves_nothing_running(real, podman, tmp_path):
    async def cancelled(node, host):
        task = asyncio.ensure_future(pull(f"{host}/team/vllm:1", node, LocalRunner(node), lambda _: None, direct()))
        while not list(tmp_path.glob("bascule-pull.*/pid")):
            await asyncio.sleep(0.05)
        folder = next(tmp_path.glob("bascule-pull.*"))
        pid = int((folder / "pid").read_text())
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return pid

    with fronting(Front(real.host)) as front:
        reach(tmp_path, front.host)
        event = threading.Event()
        front.odd.append(lambda request: request.headers["User-Agent"] != AGENT and not event.wait(60))
        pid = asyncio.run(cancelled(node_with(podman, tmp_path / "root"), front.host))
        event.set()
    assert list(tmp_path.glob("bascule-pull.*")) == []
    with suppress(ProcessLookupError):
        for _ in range(200):
            os.killpg(pid, 0)
            asyncio.run(asyncio.sleep(0.05))
        pytest.fail("the pull goes on")


# As docker 28.5 and podman 4.3 print them.
SAID = {
    "pull-missing": "Error response from daemon: manifest for vllm/x:v9 not found: manifest unknown: manifest unknown",
    "pull-denied": "Error response from daemon: pull access denied for me/x, repository does not exist or may require "
    "'docker login': denied: requested access to the resource is denied",
    "pull-busy": "Error response from daemon: toomanyrequests: You have reached your pull rate limit.",
    "pull-architecture": "no matching manifest for linux/arm64/v8 in the manifest list entries",
    "pull-disk-full": "failed to register layer: write /usr/lib/x: no space left on device",
    "pull-unreachable": 'Error response from daemon: Get "https://h.x/v2/": dial tcp: lookup h.x: no such host',
    "pull-failed": "Error response from daemon: something new",
}


@pytest.mark.parametrize("code", SAID)
def test_what_docker_says_has_a_name(code):
    assert sign_of(f"1: Pulling from x\n{SAID[code]}").id == code


def test_how_far_a_pull_is():
    rows = [("a", "Already exists"), ("b", "Pulling fs layer"), ("c", "Pulling fs layer"), ("b", "Pull complete")]
    log = "1: Pulling from team/vllm\n" + "".join(f"{hexa * 12}: {what}\n" for hexa, what in rows)
    assert layers_of(log) == (2, 3) and layers_of("") == (0, 0)


@pytest.mark.parametrize(
    ("ref", "pullable"),
    [("vllm/vllm-openai:v1", True), (f"a/b@{DIGEST}", True), (DIGEST, False), ("a" * 64, False), ("No Name", False)],
)
def test_what_can_be_pulled(ref, pullable):
    assert is_pullable(ref) is pullable


def test_a_tag_that_stands_for_a_digest():
    tag = pinned_tag("h.x:5000/a/b:v1", DIGEST)
    assert tag == f"h.x:5000/a/b:sha256-{'a' * 64}" and asked_for(tag) == f"h.x:5000/a/b@{DIGEST}"
    assert asked_for("h.x:5000/a/b:v1") == "h.x:5000/a/b:v1"
