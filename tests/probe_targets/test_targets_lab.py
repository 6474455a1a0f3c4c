"""Images and containers on a host: as root by mounted layers, as a user of docker's group by copied paths."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bascule.core.nouns import Artefact, Candidate, Fate, Node
from bascule.lab import hosts
from bascule.probe.image import probe_image
from bascule.probe.views.container import describe, mounted
from bascule.remote.connect import connect
from bascule.remote.facts import read_facts
from lab_parts import lab_of
from probe.probe_cases import NOW, Q35_TEXT, STRANGER
from probe_views.views_cases import digest, files_of, layer, saved, under, whiteouts

pytestmark = pytest.mark.lab

BASCULE = Path(sys.executable).with_name("bascule")
REGISTRY = "vllm/model_executor/models/registry.py"
OLD = {**files_of("vllm-0.14.0", "transformers-4.57.6"), "vllm/_version.py": b"__version__ = version = '0.14.0'\n"}
NEW = files_of("vllm-0.32.0", "transformers-5.19.0")
PLUGIN = {"acme-1.0.dist-info/entry_points.txt": b"[vllm.general_plugins]\nacme = acme:register\n"}
USERS = pytest.mark.parametrize("user", ["root", "op"])


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with lab_of(tmp_path_factory, "plab", 1, 89) as made:
        fill(made)
        yield made


def fill(lab):
    """Every image has Debian's python3 as its lowest layer; the engines are trimmed real ones."""
    without = {path: data for path, data in NEW.items() if path != REGISTRY}
    outside = {f"{next(iter(under({REGISTRY: b''})))}": "/etc/passwd"}
    images = {
        "upper:1": [layer(under(OLD)), layer({}, hides=whiteouts(OLD)), layer(under(NEW))],  # the older one was deleted
        "older:1": [layer(under(OLD))],
        "plugged:1": [layer(under({**OLD, **PLUGIN}))],
        "apart:1": [layer(under(NEW, "srv/apps/env/lib/python3.12/site-packages"))],
        "empty:1": [layer({"srv/readme": b"nothing here\n"})],
        "linked:1": [layer(under(without), links=outside)],
    }
    base = layer({"etc/os-release": b"NAME=x\n"}, links={"usr/local/bin/python3": "python3.12"})
    for tag, layers in images.items():
        load(lab, tag, [base, *layers])
    load(lab, "foreign:1", [base, *images["older:1"]], "arm64")


def load(lab, tag, layers, architecture="amd64"):
    root = {"type": "layers", "diff_ids": [digest(one) for one in layers]}
    config = {"architecture": architecture, "os": "linux", "config": {}, "rootfs": root}
    words = hosts.inside(lab.hosts[0], ("docker", "load"))
    whole = saved(layers, newer=False, config=json.dumps(config).encode())
    subprocess.run(words, input=whole, check=True, capture_output=True)
    inside(lab, "docker", "tag", "engine:1", tag)
    inside(lab, "docker", "rmi", "engine:1")


def inside(lab, *words):
    done = subprocess.run(hosts.inside(lab.hosts[0], words), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def ask(lab, user, image, model=Q35_TEXT):
    """What the pivot loop is told; nothing may be left on the host."""
    node = Node("h1", f"{user}@h1")
    runner = connect([node])["h1"]
    node = asyncio.run(read_facts(runner, node))
    candidate = Candidate("c", "vllm", Artefact("image", image), "/m")
    finding = asyncio.run(probe_image(candidate, model, runner, node, lambda: NOW))
    assert left(lab) == ""
    return finding


def left(lab):
    """Containers, folders and mounts that are no part of the host."""
    return inside(lab, "sh", "-c", "docker ps -aq; ls -A /tmp; grep ' /mnt ' /proc/mounts || true")


def bascule(*words):
    return subprocess.run([BASCULE, "probe", *words], capture_output=True, text=True, timeout=120, check=False)


@USERS
def test_the_upper_engine_counts_and_not_the_deleted_one(lab, user):
    finding = ask(lab, user, "upper:1")
    assert (finding.fate, finding.says) == (Fate.OK, "vLLM 0.32.0 knows Qwen3_5MoeForCausalLM")
    assert finding.evidence[0].source.startswith(f"upper:1 {REGISTRY}:")


@USERS
def test_an_old_engine_is_a_firm_no(lab, user):
    finding = ask(lab, user, "older:1")
    assert (finding.fate, finding.code) == (Fate.HOPELESS, "architecture-unknown")
    assert finding.says == "vLLM 0.14.0 does not know Qwen3_5MoeForCausalLM (first in 0.27.0)"


@USERS
def test_a_plugin_makes_the_no_a_maybe(lab, user):
    finding = ask(lab, user, "plugged:1", STRANGER)
    assert (finding.fate, finding.code) == (Fate.UNKNOWN, "probe-undecided")
    assert "the plugin acme may teach it more" in finding.says


@USERS
def test_an_environment_in_an_unusual_place_is_found(lab, user):
    assert ask(lab, user, "apart:1").fate is Fate.OK


@USERS
def test_no_engine_at_all(lab, user):
    finding = ask(lab, user, "empty:1")
    assert (finding.fate, finding.code) == (Fate.HOPELESS, "engine-missing")
    assert finding.says == "there is no vLLM in empty:1"


@USERS
def test_a_link_that_leads_out_of_the_image_shows_nothing_of_the_host(lab, user):
    finding = ask(lab, user, "linked:1")
    assert finding.fate is Fate.UNKNOWN
    assert not any("root:" in one.excerpt for one in finding.evidence)


def test_root_reads_the_layers_themselves_and_others_a_container_that_is_never_started(lab):
    async def views():
        found = []
        for user in ("root", "op"):
            node = Node("h1", f"{user}@h1")
            runner = connect([node])["h1"]
            found.append(await mounted(runner, await describe(runner, ("docker",), "upper:1"), "vllm"))
        return found

    as_root, as_op = asyncio.run(views())
    assert (as_root.root, as_op) == ("/mnt/usr/local/lib/python3.12/dist-packages", None)
    events = inside(lab, "docker", "events", "--since", "10m", "--until", "0s", "--format", "{{.Action}}")
    assert "create" in events and "start" not in events.split()


@USERS
def test_a_container_is_read_where_it_is(lab, user):
    inside(lab, "docker", "create", "--name", "old-one", "older:1", "true")
    try:
        done = bascule("container:old-one", "--node", f"{user}@h1", "--model", "LlamaForCausalLM:llama", "--json")
    finally:
        inside(lab, "docker", "rm", "old-one")
    row = json.loads(done.stdout)
    assert (row["overall"], row["release"], done.returncode) == ("YES", "vLLM 0.14.0", 0)


def test_the_engine_is_found_and_each_question_has_its_evidence(lab):
    done = bascule(
        "upper:1", "older:1", "--node", "root@h1", "--model", "Qwen3_5MoeForCausalLM:qwen3_5_moe_text", "--json"
    )
    upper, older = map(json.loads, done.stdout.splitlines())
    assert set(upper) >= {"target", "model", "overall", "questions"}
    assert set(upper["questions"]) == {"architecture", "config", "quantization", "kernels", "flags"}
    assert (upper["engine"], upper["overall"], older["overall"], done.returncode) == ("vllm", "YES", "NO", 0)
    assert upper["questions"]["architecture"]["evidence"][0]["source"].startswith(f"{REGISTRY}:")
    assert older["questions"]["architecture"]["change"] == "first release that knows it: 0.27.0"
    assert upper["bytes_read"] < 1_000_000


def test_another_processor_is_a_no_when_one_is_asked_for(lab):
    words = ("foreign:1", "--node", "root@h1", "--model", "LlamaForCausalLM:llama")
    assert bascule(*words).returncode == 0
    done = bascule(*words, "--platform", "linux/amd64", "--json")
    assert (
        json.loads(done.stdout)["questions"]["kernels"]["says"]
        == "foreign:1 is made for linux/arm64, not for linux/amd64"
    )
    assert done.returncode == 4


def test_what_is_not_there_is_an_error(lab):
    done = bascule("image:nothing:1", "--node", "op@h1", "--model", "LlamaForCausalLM")
    assert done.returncode == 2
    assert done.stderr.startswith("error[target-missing]: h1 has no image nothing:1\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_interrupted_it_leaves_nothing(lab):
    """As op the whole image goes by; Ctrl-C ends that, and the host is as before."""
    words = ("apart:1", "--node", "op@h1", "--engine", "vllm", "--model", "Qwen3_5MoeForCausalLM:qwen3_5_moe_text")
    with subprocess.Popen([BASCULE, "probe", *words], stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 30
        while not left(lab) and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (130, 0)
        assert "Traceback" not in process.stderr.read()
    while left(lab) and time.monotonic() < until:
        time.sleep(0.1)
    assert left(lab) == ""


def test_a_model_whose_config_is_on_the_node(lab):
    folder = lab.host_folder(lab.hosts[0]) / "home/op/model"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    done = bascule("older:1", "--node", "op@h1", "--model", "/home/op/model", "--json")
    assert json.loads(done.stdout)["overall"] == "YES"
