"""How long it takes to find, look into and rank 20 candidates against a registry on this machine.

Whole processes, medians of several: of `bascule search` with nothing kept and with the manifests of before, and of
`bascule plan`, which also looks at this machine and at what each candidate costs. The
registry is Debian's docker-registry behind a mirror of docker.io, Docker Hub's own API a small server beside it. The
images are trimmed real engines, 20 of them with digests of their own. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
BASCULE = Path(sys.executable).with_name("bascule")
sys.path[0] = str(ROOT / "tests")  # instead of this folder, whose probe.py is another one

from candidates.hub_api import HubApi, speaking, tag  # noqa: E402
from probe_views.views_cases import files_of, under  # noqa: E402
from registry.registry_parts import Registry, registry  # noqa: E402

MODEL = ROOT / "models/adder"
SEARCH = ("search", str(MODEL), "--arch", "arm64", "--json")
PLAN = ("plan", str(MODEL), "--search", "--node", "local", "--json")
REPOSITORIES, TAGS, ROUNDS, GOAL_S = 10, 2, 5, 5.0
HEAD = """
[engines.vllm]
words = ["vllm"]
[[publisher]]
id = "docker.io/vllm"
name = "vLLM project"
kind = "project"
"""
ROW = '[[image]]\nname = "vllm/engine-{number}"\nengine = "vllm"\ntags = []\nreleases = \'v\\d+\'\n'


def main() -> None:
    """Both cases."""
    with tempfile.TemporaryDirectory() as name, speaking(HubApi()) as hub:
        folder = Path(name)
        (folder / "registry").mkdir()
        with registry(folder / "registry") as server:
            fill(server, hub)
            env = settle(folder, server, hub)
            caches = [{**env, "XDG_CACHE_HOME": str(folder / f"cache-{at}")} for at in range(2 * ROUNDS)]
            first = [timed(SEARCH, one) for one in caches[:ROUNDS]]
            again = [timed(SEARCH, caches[0]) for _ in range(ROUNDS)]
            plan = [timed(PLAN, one) for one in caches[ROUNDS:]]
    print(f"search, 20 candidates, nothing kept      {median(first):6.2f} s")
    print(f"search, 20 candidates, manifests kept    {median(again):6.2f} s")
    print(f"plan, 20 candidates, nothing kept        {median(plan):6.2f} s   (goal: under {GOAL_S:g} s)")
    figures = {"search_s": first, "search_again_s": again, "plan_s": plan}
    print(json.dumps({name: round(median(taken), 3) for name, taken in figures.items()}))


def fill(server: Registry, hub: HubApi) -> None:
    """Repositories with two releases each, of which every second one is too old for the model."""
    new, old = (
        under(files_of("vllm-0.32.0", "transformers-5.19.0")),
        under(files_of("vllm-0.14.0", "transformers-4.57.6")),
    )
    for number in range(REPOSITORIES):
        name = f"vllm/engine-{number}"
        for version in range(TAGS):
            files = {**(new if version else old), "etc/own": f"{number} {version}".encode() * 1000}
            server.index(name, f"v{version}", {"amd64": files, "arm64": files})
        hub.pulls[name] = 1000 + number
        hub.tags[name] = [tag(f"v{version}", "linux/amd64", "linux/arm64") for version in range(TAGS)]


def settle(folder: Path, server: Registry, hub: HubApi) -> dict[str, str]:
    """The variables of a person whose docker.io is this registry."""
    (folder / ".config/docker").mkdir(parents=True)
    (folder / ".config/docker/daemon.json").write_text(json.dumps({"registry-mirrors": [f"http://{server.host}"]}))
    (folder / "images.toml").write_text(HEAD + "".join(ROW.format(number=number) for number in range(REPOSITORIES)))
    own = {"HOME": str(folder), "BASCULE_IMAGES": str(folder / "images.toml"), "BASCULE_DOCKER_HUB": hub.url}
    return {**os.environ, **own}


def timed(words: tuple[str, ...], env: dict[str, str]) -> float:
    """Seconds of one whole process; an answer without 20 candidates ends the benchmark."""
    began = time.perf_counter()
    done = subprocess.run((BASCULE, *words), env=env, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    good = [row for row in found["candidates"] if row["verdict"] in ("YES", "try")]
    bad = [*found.get("refused", ()), *(row for row in found["candidates"] if row not in good)]
    assert len(good) == len(bad) == REPOSITORIES, done.stdout
    print(f"{took:6.2f} s   {words[0]}", flush=True)
    return took


if __name__ == "__main__":
    main()
