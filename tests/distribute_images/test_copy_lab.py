"""Copies between real hosts with real sshd and dockerd: what travels, what arrives, what is left."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from bascule.core.nouns import Fate, Finding
from bascule.distribute.images.copy import CopyProgress, Receipt, receipt
from bascule.lab import hosts
from bascule.lab.spec import shape
from bascule.remote.connect import connect
from distribute_images.conftest import MIB, Bench, build

pytestmark = pytest.mark.lab


def received(outcome: Receipt | Finding) -> Receipt:
    assert isinstance(outcome, Receipt), outcome
    return outcome


def test_an_empty_target_gets_every_layer_once_and_nothing_else_is_left(bench: Bench) -> None:
    seen: list[CopyProgress] = []
    got = received(bench.copy("img:v1", "root@h1", "h2", watch=seen.append)["h2"])
    assert bench.layers("h2", "img:v1") == bench.layers("h1", "img:v1")
    assert (got.method, got.resumed) == ("pull", 0)
    assert 36 * MIB < got.sent < 36.2 * MIB
    assert bench.references("h2") == ["img:v1"]
    assert bench.spooled("h2") == []
    assert seen[-1].total == got.sent
    assert any("overlay2" in reason for reason in got.reasons)


def test_only_what_is_missing_travels_and_a_second_copy_sends_nothing(bench: Bench) -> None:
    bench.copy("img:v1", "root@h1", "h2")
    got = received(bench.copy("img:v2", "root@h1", "h2")["h2"])
    assert got.method == "load"
    assert 3 * MIB < got.sent < 3.1 * MIB
    again = received(bench.copy("img:v2", "root@h1", "h2")["h2"])
    assert (again.method, again.sent) == ("nothing", 0)
    assert bench.references("h2") == ["img:v1", "img:v2"]
    assert bench.layers("h2", "img:v2") == bench.layers("h1", "img:v2")


def test_two_targets_cost_the_source_one_copy_over_the_fabric(bench: Bench) -> None:
    before = sent_bytes(bench, "h1", "fab0")
    got = bench.copy("img:v1", "root@h1", "h2", "h3")
    assert {received(each).content.image_id for each in got.values()} == {bench.layers("h1", "img:v1").split()[0]}
    assert 36 * MIB < sent_bytes(bench, "h1", "fab0") - before < 39 * MIB
    assert sent_bytes(bench, "h1", "lan0") < 5 * MIB


def test_a_source_without_root_saves_first_and_leaves_nothing(bench: Bench) -> None:
    got = received(bench.copy("img:v1", "op@h1", "h2")["h2"])
    assert any("docker save" in reason for reason in got.reasons)
    assert bench.layers("h2", "img:v1") == bench.layers("h1", "img:v1")
    assert bench.run("h1", "sh", "-c", "ls /home/op/.cache/bascule/spool | wc -l") == "0"


def test_a_target_without_python_gets_it_through_the_controller(bench: Bench) -> None:
    bench.run("h3", "mount", "--bind", "/bin/false", os.path.realpath("/usr/bin/python3"))
    try:
        got = bench.copy("img:v1", "root@h1", "h2", "h3")
    finally:
        bench.run("h3", "umount", os.path.realpath("/usr/bin/python3"))
    assert [received(got[name]).method for name in ("h2", "h3")] == ["load", "stream"]
    assert bench.layers("h3", "img:v1") == bench.layers("h1", "img:v1")


def test_nodes_that_cannot_reach_each_other_get_a_tunnel(bench: Bench) -> None:
    hosts.cut(bench.host("h1"), bench.host("h3"))
    got = received(bench.copy("img:v2", "root@h1", "h3")["h3"])
    assert bench.layers("h3", "img:v2") == bench.layers("h1", "img:v2")
    assert got.sent > 35 * MIB


def test_an_image_by_id_gets_a_name_and_is_found_again(bench: Bench) -> None:
    image_id = bench.layers("h1", "img:v1").split()[0]
    assert received(bench.copy(image_id, "root@h1", "h2")["h2"]).content.image_id == image_id
    assert bench.references("h2") == [f"bascule-copied:sha256-{image_id[7:19]}"]
    assert received(bench.copy(image_id, "root@h1", "h2")["h2"]).method == "nothing"


def test_without_a_forward_it_goes_through_the_controller(bench: Bench) -> None:
    hosts.cut(bench.host("h1"), bench.host("h3"))
    config = bench.lab.host_folder(bench.host("h3")) / "sshd_config"
    before = config.read_text()
    config.write_text(before + "AllowTcpForwarding no\n")
    restart_sshd(bench, "h3")
    try:
        got = received(bench.copy("img:v2", "root@h1", "h3")["h3"])
    finally:
        config.write_text(before)
        restart_sshd(bench, "h3")
    assert got.method == "stream"
    assert bench.layers("h3", "img:v2") == bench.layers("h1", "img:v2")


def test_a_slow_link_is_packed_and_a_slow_target_comes_last(bench: Bench) -> None:
    folder = bench.lab.host_folder(bench.host("h1")) / "build"
    folder.mkdir(exist_ok=True)
    (folder / "words").write_bytes(b"".join(b"%d words of %d\n" % (number, number % 7) for number in range(900_000)))
    (folder / "Dockerfile").write_text("FROM scratch\nADD words /\nCMD /x\n")
    bench.run("h1", "docker", "build", "--quiet", "--tag", "img:words", "/run/host/build")
    for command in shape(bench.host("h2"), "fabric", "30mbit"):  # with a burst that no short measurement fits into
        words = [word.replace("2mb", "32kb") for word in command]
        subprocess.run(words, check="add" in words, capture_output=True)
    got = {name: received(each) for name, each in bench.copy("img:words", "root@h1", "h2", "h3").items()}
    assert got["h2"].sent < 0.4 * got["h3"].sent
    assert any("times as fast" in reason for reason in got["h2"].reasons)
    assert any(reason.startswith("from h3:") for reason in got["h2"].reasons)
    assert bench.layers("h2", "img:words") == bench.layers("h1", "img:words")


def test_a_receipt_tells_content(bench: Bench) -> None:
    nodes = [bench.node("h1"), bench.node("h2")]
    runners = connect(nodes)

    async def ask() -> tuple[Receipt | None, Receipt | None]:
        return await receipt("img:v1", nodes[0], runners["h1"]), await receipt("img:v1", nodes[1], runners["h2"])

    here, there = asyncio.run(ask())
    assert here is not None
    assert len(here.diff_ids) == 3
    assert here.config_digest.startswith("sha256:")
    assert there is None


def test_the_wrong_architecture_and_no_rights_are_refused_before_a_byte(bench: Bench) -> None:
    build(bench, "img:tiny", (("tiny", 1),))
    bench.run("h1", "sh", "-c", ARM.replace("IMAGE", "img:tiny"))
    before = sent_bytes(bench, "h1", "fab0")
    got = bench.copy("img:arm", "root@h1", "h2")["h2"]
    assert isinstance(got, Finding)
    assert (got.code, got.fate) == ("image-architecture", Fate.HOPELESS)
    assert "linux/arm64" in got.says
    denied = bench.copy("img:v1", "root@h1", "guest@h2")["h2"]
    assert isinstance(denied, Finding)
    assert (denied.code, denied.fate) == ("docker-denied", Fate.CLUSTER)
    assert "usermod" in denied.advice
    missing = bench.copy("img:none", "root@h1", "h2")["h2"]
    assert isinstance(missing, Finding)
    assert missing.code == "artefact-missing"
    assert sent_bytes(bench, "h1", "fab0") - before < 0.1 * MIB


def restart_sshd(bench: Bench, host: str) -> None:
    hosts.stop(bench.lab, bench.host(host), "sshd")
    hosts.start(bench.lab, bench.host(host), "sshd")
    bench.run(host, "sh", "-c", "until ss -Hltn sport = :22 | grep -q .; do sleep 0.1; done")


# The same image with another architecture in its config, as a docker archive.
ARM = r"""
set -e; rm -rf /tmp/arm; mkdir /tmp/arm; cd /tmp/arm; docker save IMAGE | tar x
python3 - <<'PY'
import json, pathlib
manifest = json.loads(pathlib.Path("manifest.json").read_text())
config = json.loads(pathlib.Path(manifest[0]["Config"]).read_text())
config["architecture"] = "arm64"
pathlib.Path("arm.json").write_text(json.dumps(config))
manifest[0].update(Config="arm.json", RepoTags=["img:arm"])
pathlib.Path("manifest.json").write_text(json.dumps(manifest))
PY
tar c . | docker load
"""


def sent_bytes(bench: Bench, host: str, interface: str) -> int:
    """What an interface of a host has sent, by the kernel's own counter."""
    lines = bench.run(host, "cat", "/proc/net/dev").splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith(f"{interface}:"))
