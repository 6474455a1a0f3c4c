"""The main job over SSH and Docker: two hosts, images on one of them, one for another processor, one too old."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from hashlib import sha256

import pytest

from bascule.lab import hosts, images
from bascule.lab.spec import USERS, Lab
from lifecycle.desk import BASCULE, ENGINES, ROOT

pytestmark = [
    pytest.mark.lab,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("CI") and (os.getuid() != 0 or not shutil.which("dockerd")), reason="needs root and dockerd"
    ),
]
PORT = 8000
MODEL = "/home/op/models/adder"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docker-lab")
    made = Lab("elab", folder / "elab", 2, 93)
    hosts.up(made)
    yield made
    hosts.down("elab")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def built(lab):
    """Images and the model on h1 alone."""
    h1 = lab.hosts[0]
    base = images.base_layer(hosts.folder_of("x").parent.parent / "lab-cache")
    model = lab.host_folder(h1) / MODEL.lstrip("/")
    shutil.copytree(ROOT / "models/adder", model)
    for path in (model.parent, model, *model.iterdir()):
        os.chown(path, USERS["op"], USERS["op"])
    images.build(h1, lab.host_folder(h1), ENGINES / "vllm-0.14.0", "vllm-0.14:lab", base)
    images.build(h1, lab.host_folder(h1), ENGINES / "vllm-0.32.0", "vllm-0.32:lab", base)
    load(h1, for_arm64())
    return h1


def load(host, archive):
    subprocess.run(hosts.inside(host, ("docker", "load")), input=archive, check=True, capture_output=True)


def for_arm64():
    """The archive of an image whose config says arm64; what is in it doesn't matter."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add(tar, "usr/local/lib/python3.11/dist-packages/vllm/__init__.py", b"")
    digest = sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": "arm64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        add(tar, "layer.tar", layer.getvalue())
        add(tar, "config.json", json.dumps(config).encode())
        entry = {"Config": "config.json", "RepoTags": ["arm:lab"], "Layers": ["layer.tar"]}
        add(tar, "manifest.json", json.dumps([entry]).encode())
    return whole.getvalue()


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def sent_by(lab, host):
    """Bytes a host has sent over both networks."""
    told = subprocess.run(
        hosts.inside(host, ("cat", "/proc/net/dev")), capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in told.splitlines() if line.strip().startswith(("fab0", "lan0"))]
    return sum(int(row[9]) for row in rows)


def test_serves_over_two_dockerds_and_copies_only_what_can_serve(lab, built, tmp_path):
    recipe = tmp_path / "lab.yaml"
    nodes = "".join(f"  - {{name: {host.name}, address: {host.address('fabric')}}}\n" for host in lab.hosts)
    threads = "".join(f"      {host.name}: {{VLLM_CPU_OMP_THREADS_BIND: {at}}}\n" for at, host in enumerate(lab.hosts))
    recipe.write_text(
        f"service: adder\nmodel: {MODEL}\nport: {PORT}\ncontext: 512\nnodes:\n{nodes}candidates:\n"
        "  - {name: old, engine: vllm, image: 'vllm-0.14:lab'}\n"
        "  - {name: arm, engine: vllm, image: 'arm:lab', args: --trust-remote-code}\n"
        "  - name: good\n    engine: vllm\n    image: vllm-0.32:lab\n"
        "    args: --enforce-eager --reasoning-parser qwen3 --kv-cache-memory-bytes 67108864\n"
        f"    env: {{TORCHDYNAMO_DISABLE: 1}}\n    env_on:\n{threads}"
    )
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "BASCULE_SSH": f"ssh -F {lab.folder}/ssh_config"}

    def bascule(*words):
        return subprocess.run(
            [BASCULE, *map(str, words)], env=env, capture_output=True, text=True, timeout=600, check=False
        )

    before = sent_by(lab, lab.hosts[0])
    told = bascule("up", recipe)
    assert told.returncode == 0, told.stderr
    events = json.loads(bascule("why", "--json").stdout)["events"]
    probed = {e["data"]["candidate"]["name"]: e["data"]["finding"] for e in events if e["kind"] == "probed"}
    assert (probed["old"]["fate"], probed["old"]["code"]) == ("hopeless", "architecture-unknown")
    refused = [
        e["data"]["finding"]["code"] for e in events if e["kind"] == "finding" and e["data"]["finding"]["fate"] != "ok"
    ]
    assert refused == ["image-architecture"]
    copied, weights = [e["data"] for e in events if e["kind"] == "copied"]
    assert copied["what"] == "vllm-0.32:lab" and list(copied["outcomes"]) == ["h2"]
    assert weights["what"] == MODEL and list(weights["outcomes"]) == ["h2"]
    size = copied["outcomes"]["h2"]["sent"]
    assert size < sent_by(lab, lab.hosts[0]) - before < 1.1 * size + 50e6

    (status,) = json.loads(bascule("status", "--json").stdout)
    assert status["state"] == "serving"
    assert [(rank["node"], rank["runtime"], rank["alive"]) for rank in status["ranks"]] == [
        ("h1", "image", True),
        ("h2", "image", True),
    ]
    shown = subprocess.run(
        hosts.inside(lab.hosts[1], ("docker", "inspect", "bascule." + events_name(events))),
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    container = json.loads(shown)[0]
    host_config = container["HostConfig"]
    assert (host_config["NetworkMode"], host_config["Privileged"], host_config["AutoRemove"]) == ("host", False, False)
    assert host_config["RestartPolicy"]["Name"] == "no" and container["Path"] == "python3"
    assert "| " in bascule("logs").stdout
    down = bascule("down")
    assert down.returncode == 0 and "rank 1 on h2" in down.stdout
    for host in lab.hosts:
        left = subprocess.run(hosts.inside(host, ("docker", "ps", "-aq")), capture_output=True, text=True, check=True)
        assert left.stdout == ""


def events_name(events):
    """The name of rank 1 in the last launch."""
    generation = [e["data"]["generation"] for e in events if e["kind"] == "launch"][-1]
    return f"adder.{generation}.r1"


def test_an_ssh_user_without_docker_rights_is_told_what_is_missing(lab, built, tmp_path):
    hide = "[ ! -e /usr/bin/podman ] || mount --bind /dev/null /usr/bin/podman"  # which would run images as anybody
    subprocess.run(hosts.inside(lab.hosts[0], ("sh", "-c", hide)), check=True)
    recipe = tmp_path / "guest.yaml"
    recipe.write_text(
        f"service: guest\nmodel: {MODEL}\n"
        f"nodes: [{{name: h1, host: guest@h1, address: {lab.hosts[0].address('fabric')}}}]\n"
        "candidates:\n  - {engine: vllm, image: 'any:lab', args: --trust-remote-code}\n"
    )
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "BASCULE_SSH": f"ssh -F {lab.folder}/ssh_config"}
    told = subprocess.run([BASCULE, "up", recipe], env=env, capture_output=True, text=True, check=False)
    assert told.returncode == 4
    assert "no-docker" in told.stderr and "permission denied" in told.stderr
