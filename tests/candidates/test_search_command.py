"""`bascule search` as a person calls it: a real registry behind a mirror, Docker Hub's API, and what goes wrong."""

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from bascule.core.plain import to_plain
from bascule.errors import BasculeError
from bascule.searching import Wish, check, find
from bascule.show.search import plain
from candidates.hub_api import HubApi, tag
from candidates.installed import install
from probe_views.views_cases import files_of, under
from registry.registry_parts import ACCOUNT, PASSWORD, Front, fronting, say

ROOT = Path(__file__).parents[2]
BASCULE = Path(sys.executable).with_name("bascule")
ADDER = ROOT / "models/adder"
NEW, OLD = (
    under(files_of("vllm-0.32.0", "transformers-5.19.0")),
    under(files_of("vllm-0.14.0", "transformers-4.57.6")),
)
CATALOGUE = """
[engines.vllm]
words = ["vllm"]
search = ["vllm"]
[gpus]
sm_121 = ["gb10"]
[[publisher]]
id = "docker.io/vllm"
name = "vLLM project"
kind = "project"
[[image]]
name = "vllm/vllm-openai"
engine = "vllm"
tags = ["latest"]
releases = 'v(?P<release>\\d+\\.\\d+\\.\\d+)'
[[image]]
name = "hellohal2064/vllm-qwen3.5-gb10"
engine = "vllm"
tags = ["latest"]
note = "one person's build"
"""


@dataclass
class Desk:
    """Where a person sits: a home with docker's files, and what the command may reach."""

    home: Path
    hub: HubApi
    mirror: str

    @property
    def env(self):
        """Nothing of this machine's own settings."""
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "BASCULE_IMAGES": str(self.home / "images.toml"),
            "BASCULE_DOCKER_HUB": self.hub.url,
        }

    def through(self, host):
        """Docker's images come by this mirror from now on."""
        words = json.dumps({"registry-mirrors": [f"http://{host}"]})
        (self.home / ".config/docker/daemon.json").write_text(words)

    def search(self, *words, code=None, **env):
        """The command itself."""
        return self.run("search", *words, code=code, **env)

    def run(self, *words, code=None, **env):
        """Any command."""
        argv = [str(word) for word in (BASCULE, *words)]
        whole = self.env | env
        done = subprocess.run(argv, env=whole, capture_output=True, text=True, timeout=120, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    def found(self, model=ADDER, **wish):
        """What the command finds, as --json gives it."""
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name not in ("PATH", "PYTEST_CURRENT_TEST")]:
                patch.delenv(name)
            for name, value in self.env.items():
                patch.setenv(name, value)
            ask, discovered, lost = asyncio.run(find(str(model), Wish(arch="arm64", **wish)))
        assert lost == []
        return json.loads(json.dumps(to_plain(plain(ask, discovered))))


@pytest.fixture(scope="session")
def filled(real):
    """Images as they lie on Docker Hub; `latest` and v0.32.0 are one."""
    for name in ("latest", "v0.32.0"):
        real.index("vllm/vllm-openai", name, {"amd64": NEW, "arm64": NEW})
    real.index("vllm/vllm-openai", "v0.14.0", {"amd64": OLD, "arm64": OLD})
    real.image("hellohal2064/vllm-qwen3.5-gb10", "latest", {**NEW, "etc/own": b"1"})
    real.image("me/vllm-gb10", "x86", {**NEW, "etc/own": b"2"}, "amd64")
    return real


@pytest.fixture
def desk(filled, hub, tmp_path):
    (tmp_path / ".config/docker").mkdir(parents=True)
    (tmp_path / "images.toml").write_text(CATALOGUE)
    (tmp_path / ".config/docker/daemon.json").write_text(json.dumps({"registry-mirrors": [f"http://{filled.host}"]}))
    hub.found["vllm qwen3.5"] = ["me/vllm-gb10", "hellohal2064/vllm-qwen3.5-gb10", "me/recipes"]
    hub.pulls = {"vllm/vllm-openai": 10_200_000, "hellohal2064/vllm-qwen3.5-gb10": 4200, "me/vllm-gb10": 7}
    hub.tags = {
        "vllm/vllm-openai": [tag("latest"), tag("v0.32.0"), tag("v0.14.0")],
        "hellohal2064/vllm-qwen3.5-gb10": [tag("latest")],
        "me/vllm-gb10": [tag("x86", updated="2026-11-21T00:00:00Z")],
    }
    return Desk(tmp_path, hub, filled.host)


def test_each_image_once_the_best_first_with_a_reason(desk):
    found = desk.found()
    (best,) = found["candidates"]
    assert best["names"] == ["vllm/vllm-openai:latest", "vllm/vllm-openai:v0.32.0"] and best["verdict"] == "YES"
    assert (best["release"], best["pulls"], best["publisher"]["name"]) == ("vLLM 0.32.0", 10_200_000, "vLLM project")
    assert best["because"].startswith("vLLM 0.32.0 knows Qwen3_5MoeForCausalLM; ") and best["digest"][:7] == "sha256:"
    assert best["created"].startswith("2026-11-20") and best["size"] > 0 and best["platforms"][1] == "linux/arm64"
    assert best["evidence"][0]["source"].startswith("vllm/vllm-openai:latest vllm/model_executor/models/registry.py:")
    (held,) = found["held"]
    assert held["names"] == ["hellohal2064/vllm-qwen3.5-gb10:latest"] and held["publisher"]["kind"] == "community"
    assert {row["names"][0]: row["refused"] for row in found["refused"]} == {
        "vllm/vllm-openai:v0.14.0": "vLLM 0.14.0 does not know Qwen3_5MoeForCausalLM (first in 0.27.0)",
        "me/vllm-gb10:x86": "made for linux/amd64, not for linux/arm64",
    }
    seen = [one for part in ("candidates", "held", "refused") for row in found[part] for one in row["identities"]]
    assert len(seen) == len(set(seen))
    assert found["unread"] == [] and found["bytes_received"] > 10_000


def test_the_table_says_it_in_words(desk):
    done = desk.search(ADDER, "--arch", "arm64", code=0)
    text = done.stdout
    lines = text.splitlines()
    first = next(line for line in lines if line.startswith(" 1"))
    for word in ("vLLM 0.32.0", "vllm/vllm-openai:latest@sha256:", "YES", "10.2 M", "vLLM project", "MB", " days"):
        assert word in first
    assert "hellohal2064 (community)" in text and "--trust hellohal2064 if you know them" in text
    assert "one person's build" in text and "also vllm/vllm-openai:v0.32.0" in text
    assert "1 candidates, 1 to ask about, 2 refused" in lines[-1] and "nothing was pulled" in lines[-1]
    assert "looking at 5 images in registries" in done.stderr


def test_trust_takes_a_community_image_among_the_candidates(desk):
    found = desk.found(trust=("hellohal2064",))
    assert [row["names"][0] for row in found["candidates"]] == [
        "vllm/vllm-openai:latest",
        "hellohal2064/vllm-qwen3.5-gb10:latest",
    ]
    assert found["held"] == []


def test_a_layer_that_is_too_large_is_not_read_and_its_release_is_a_hint(desk):
    found = desk.found(read="1k")
    assert [row["code"] for row in found["candidates"]] == ["layers-not-read"] * 2
    best, second = found["candidates"]
    assert (best["verdict"], best["hint"], second["hint"]) == ("UNKNOWN", 1, -1)
    assert "layers are read up to 0 MB" in best["says"] and "--read" in best["advice"]
    assert best["says"].endswith("by its tag or history vLLM 0.32.0, which knows Qwen3_5MoeForCausalLM")
    assert second["says"].endswith("vLLM 0.14.0, which lacks Qwen3_5MoeForCausalLM (first in 0.27.0)")
    assert found["bytes_received"] < 30_000


def test_what_was_fetched_once_is_asked_for_by_its_digest_alone(desk):
    with fronting(Front(desk.mirror)) as front:
        desk.through(front.host)
        desk.found(limit=1)
        before = len(front.asked)
        desk.found(limit=1)
    manifests = [path for path in front.paths("GET")[before:] if "/manifests/v" in path or path.endswith("latest")]
    assert before and manifests == []


def test_a_recipe_s_images_are_looked_at_first_and_need_no_asking(desk, tmp_path):
    recipe = tmp_path / "r.yaml"
    image = "hellohal2064/vllm-qwen3.5-gb10:latest"
    recipe.write_text(
        f"service: s\nmodel: {ADDER}\nnodes: [{{name: a, host: local}}]\n"
        f"candidates: [{{engine: vllm, image: '{image}'}}]\n"
    )
    found = desk.found(recipe)
    assert found["candidates"][0]["names"][0] == image and found["candidates"][0]["sources"] == ["recipe", "catalogue"]
    assert found["held"] == []


def test_a_recipe_s_environment_is_looked_into(desk, tmp_path):
    install(tmp_path / "own", "vllm-0.32.0", "transformers-5.19.0")
    recipe = tmp_path / "r.yaml"
    words = "candidates: [{engine: vllm, venv: own}, {engine: vllm, image: 'vllm/none:1'}]"
    recipe.write_text(f"service: s\nmodel: {ADDER}\nnodes: [{{name: a, host: local}}]\n{words}\n")
    found = desk.found(recipe, limit=0)
    (row,) = found["candidates"]
    assert (row["names"], row["sources"], row["verdict"]) == ([str(tmp_path / "own")], ["recipe"], "YES")
    assert [(one["source"], one["code"]) for one in found["unread"]] == [("vllm/none:1", "registry-unreachable")]


def test_an_image_of_a_registry_of_one_s_own(desk, filled):
    filled.image("team/vllm", "1", NEW)
    found = desk.found(image=(f"{filled.host}/team/vllm:1",), limit=0)
    (row,) = found["candidates"]
    assert (row["verdict"], row["publisher"]["kind"], row["publisher"]["name"]) == ("YES", "own", filled.host)
    assert row["signed"] == "absent"


def test_an_unreachable_registry_is_not_read_and_the_rest_goes_on(desk):
    (desk.home / "images.toml").write_text(
        CATALOGUE + '[[image]]\nname="127.0.0.1:1/a/vllm"\nengine="vllm"\ntags=["x"]\n'
    )
    found = desk.found()
    (unread,) = found["unread"]
    assert (unread["source"], unread["code"]) == ("127.0.0.1:1/a/vllm", "registry-unreachable") and unread["advice"]
    assert len(found["candidates"]) == 1
    text = desk.search(ADDER, "--arch", "arm64", "--limit", "0", code=4).stdout
    assert "not read\n    127.0.0.1:1/a/vllm\n      [registry-unreachable] no answer: ConnectError" in text


@pytest.mark.parametrize(
    ("status", "code"), [(429, "registry-busy"), (403, "registry-denied"), (500, "registry-broken")]
)
def test_a_hub_that_refuses_leaves_the_registries(desk, status, code):
    desk.hub.answers = [(status, {"Retry-After": "3600"})] * 99
    found = desk.found()
    assert len(found["candidates"]) == 1 and found["candidates"][0]["pulls"] is None
    assert {(row["source"], row["code"]) for row in found["unread"]} == {("docker hub search: vllm qwen3.5", code)}


def test_offline_asks_nobody(desk):
    done = desk.search(ADDER, code=4, BASCULE_OFFLINE="1")
    assert "0 candidates" in done.stdout
    assert desk.found(offline=True)["candidates"] == [] and desk.hub.asked == []


def test_what_an_environment_on_a_node_has_comes_first(desk, tmp_path):
    install(tmp_path / "engines/own", "vllm-0.32.0", "transformers-5.19.0")
    found = desk.found(node=("local",), venv=(str(tmp_path / "engines"),))
    assert [(row["kind"], row["verdict"], row["nodes"]) for row in found["candidates"]] == [
        ("venv", "YES", ["local"]),
        ("image", "YES", []),
    ]
    assert found["candidates"][0]["because"].endswith("on every node")


def test_no_secret_is_ever_printed_or_kept(desk):
    helper = desk.home / "bin/docker-credential-keys"
    helper.parent.mkdir()
    helper.write_text(f'#!/bin/sh\ncat >/dev/null\necho \'{{"Username": "me", "Secret": "{PASSWORD}"}}\'\n')
    helper.chmod(0o755)
    for program in ("docker", "podman", "sudo"):  # a machine without them
        (helper.parent / program).write_text("#!/bin/sh\nexit 1\n")
        (helper.parent / program).chmod(0o755)
    (desk.home / ".docker").mkdir()
    (desk.home / ".docker/config.json").write_text('{"credsStore": "keys"}')
    token = "bearer-nobody-may-see"
    path = {"PATH": f"{helper.parent}{os.pathsep}{os.environ['PATH']}"}
    with fronting(Front(desk.mirror, token=token, accounts=(f"Basic {ACCOUNT}",))) as front:
        desk.through(front.host)
        printed = [desk.search(ADDER, "--arch", "amd64", "--json", code=0, **path)]
        printed.append(desk.run("up", ADDER, "--node", "local", "--venv", desk.home, code=4, **path))
        front.odd.append(lambda request: say(request, 500, token.encode()) is None)
        printed.append(desk.search(ADDER, "--arch", "amd64", "--limit", "1", **path))
    assert any(headers.get("Authorization") == f"Basic {ACCOUNT}" for _, _, headers in front.asked)
    kept = b"".join(file.read_bytes() for file in desk.home.rglob("*") if file.is_file() and file != helper)
    assert b"discovered" in kept and b"vllm/vllm-openai" in kept  # the journal, and the manifests
    for secret in (PASSWORD, ACCOUNT, token):
        assert secret.encode() not in kept
        assert all(secret not in done.stdout + done.stderr for done in printed)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpu", "rtx"), "rtx is no GPU architecture"),
        (("--engine", "acme"), "bascule can't start acme"),
        (("--node", "a b"), "name"),
    ],
)
def test_what_cannot_be_meant_is_an_error(desk, words, says):
    done = desk.search(ADDER, *words, code=2)
    assert done.stderr.startswith("error[") and says in done.stderr and done.stdout == ""


def test_a_model_or_a_catalogue_that_is_not_there(desk):
    with pytest.raises(BasculeError) as caught:
        desk.found("/nowhere")
    assert caught.value.code == "model-missing"
    (desk.home / "images.toml").unlink()
    with pytest.raises(BasculeError) as caught:
        desk.found()
    assert caught.value.code == "images-catalogue"


def test_sizes_that_cannot_be_meant(desk):
    for wish, says in ((Wish(read="much"), "'much' is no size"), (Wish(limit=-1), "--limit")):
        with pytest.raises(BasculeError, match=says):
            check(wish)


def test_an_interrupt_ends_it(desk):
    def slow(request):
        time.sleep(30)
        return False

    with fronting(Front(desk.mirror, odd=[slow])) as front:
        desk.through(front.host)
        argv = [BASCULE, "search", str(ADDER), "--arch", "arm64"]
        with subprocess.Popen(argv, env=desk.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            until = time.monotonic() + 20
            while not front.asked:
                assert time.monotonic() < until and process.poll() is None
                time.sleep(0.05)
            process.send_signal(2)
            assert process.wait(60) == 130
