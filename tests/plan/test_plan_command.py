"""`bascule plan` on this machine: the demo's recipe, an image that is held back, Python of a model, many candidates."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
from contextlib import contextmanager

import pytest

from candidates.hub_api import tag
from candidates.installed import install
from plan.conftest import BASCULE, NEW, ROOT
from probe_views.views_cases import files_of, under

CATALOGUE = """
[engines.vllm]
words = ["vllm"]
[[image]]
name = "hellohal2064/vllm-qwen3.5"
engine = "vllm"
tags = ["latest"]
"""


def run(tmp_path, *words, code=0, **env):
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1", **env}
    argv = [str(word) for word in (BASCULE, "plan", *words)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("looking at" in done.stderr) == ("--search" in words), "what is waited for is told beside the page"
    return done.stdout


def comments(page):
    return [line for line in page.splitlines() if line.startswith("# ")]


@pytest.mark.engine
def test_the_demo_is_foreseen(tmp_path):
    page = run(tmp_path, ROOT / "examples/adder-two-nodes.yaml")
    told = comments(page)
    assert any("vllm-0.14   NOT tried: vLLM 0.14.0 does not know Qwen3_5MoeForCausalLM" in line for line in told)
    assert any("change   GLOO_SOCKET_IFNAME=lo on b   (interface-missing: " in line for line in told)
    assert "export GLOO_SOCKET_IFNAME=lo" in page and "eth9" not in "".join(set(page.splitlines()) - set(told))
    assert sum("nothing has to be copied" in line for line in told) == 3
    subprocess.run(("sh", "-n"), input=page, text=True, check=True)


@pytest.fixture
def held(real, hub, tmp_path):
    """An environment that would do, and an image of somebody who is not known."""
    real.image("hellohal2064/vllm-qwen3.5", "latest", under(files_of(*NEW)), "amd64")
    hub.tags["hellohal2064/vllm-qwen3.5"] = [tag("latest")]
    (tmp_path / "images.toml").write_text(CATALOGUE)
    (tmp_path / ".config/docker").mkdir(parents=True)
    mirror = json.dumps({"registry-mirrors": [f"http://{real.host}"]})
    (tmp_path / ".config/docker/daemon.json").write_text(mirror)
    install(tmp_path / "engines/new", *NEW)
    return {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_CONFIG_HOME": str(tmp_path / ".config"),
        "BASCULE_IMAGES": str(tmp_path / "images.toml"),
        "BASCULE_DOCKER_HUB": hub.url,
    }


def test_an_image_of_a_stranger_is_not_taken_without_asking(held, tmp_path):
    words = (ROOT / "models/adder", "--node", "name=a,host=local", "--venv", tmp_path / "engines/new", "--search")
    plan = json.loads(run(tmp_path, *words, "--json", **held))
    assert [row["names"] for row in plan["held"]] == [["hellohal2064/vllm-qwen3.5:latest"]]
    assert [one["candidate"]["artefact"]["kind"] for one in plan["candidates"]] == ["venv"]
    asked = [line for line in comments(run(tmp_path, *words, **held)) if line.startswith("# asks")]
    assert len(asked) == 1 and "hellohal2064/vllm-qwen3.5:latest" in asked[0] and "--trust hellohal2064" in asked[0]
    trusted = json.loads(run(tmp_path, *words, "--trust", "hellohal2064", "--json", **held))
    assert trusted["held"] == [] and len(trusted["candidates"]) == 2


@contextmanager
def at_terminal(tmp_path, held):
    """`bascule up` with a real terminal, with registries to ask and nothing else."""
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1", **held}
    words = [BASCULE, "up", ROOT / "models/adder", "--node", "name=a,host=local", "--venv", tmp_path / "nowhere"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def read_until(terminal, word=""):
    """What came until a word, or until the other side is closed."""
    told = b""
    while not word or word not in told.decode(errors="replace"):
        try:
            more = os.read(terminal, 4096)
        except OSError:  # closed
            break
        if not more:
            break
        told += more
    return told.decode()


@pytest.mark.parametrize(("answer", "taken"), [(b"\n", False), (b"no\n", False), (b"yes\n", True)])
def test_a_person_at_a_terminal_is_asked(held, tmp_path, answer, taken):
    with at_terminal(tmp_path, held) as (process, terminal):
        asked = read_until(terminal, "[y/N] ")
        assert "take images of hellohal2064 for this run? [y/N] " in asked
        os.write(terminal, answer)
        told = read_until(terminal)
        process.wait(60)
    assert ("error[image-not-trusted]" in told) is not taken
    assert ("trusted    hellohal2064" in told and "1 could serve it" in told) is taken


def test_ctrl_c_at_the_question_ends_the_run(held, tmp_path):
    with at_terminal(tmp_path, held) as (process, terminal):
        read_until(terminal, "[y/N] ")
        process.send_signal(signal.SIGINT)
        read_until(terminal)
        assert process.wait(60) == 130


def test_a_word_from_a_thread_of_a_registry_reaches_the_journal(held, real, tmp_path):
    """A mirror that is away is told while others answer; the journal belongs to another thread."""
    mirrors = json.dumps({"registry-mirrors": ["http://127.0.0.1:1", f"http://{real.host}"]})
    (tmp_path / ".config/docker/daemon.json").write_text(mirrors)
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1", **held}
    words = [BASCULE, "up", ROOT / "models/adder", "--node", "name=a,host=local", "--venv", tmp_path / "nowhere"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and "error[image-not-trusted]" in done.stderr, done.stderr
    assert "asking     mirror 127.0.0.1:1: " in done.stderr


def recipe(tmp_path, model, count, args=""):
    """So many environments of one trimmed engine."""
    rows = []
    for number in range(count):
        folder = tmp_path / f"engines/{number}"
        install(folder, *NEW)
        rows.append(f"  - {{name: own-{number}, engine: vllm, venv: {folder}, args: '{args}'}}\n")
    nodes = "".join(f"  - {{name: {name}, host: local, address: 127.0.0.{at}}}\n" for at, name in enumerate("ab", 1))
    path = tmp_path / "recipe.yaml"
    path.write_text(f"service: s\nmodel: {model}\nnodes:\n{nodes}candidates:\n{''.join(rows)}")
    return path


def test_python_of_a_model_is_not_run_without_asking(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(ROOT / "models/adder", model)
    config = json.loads((model / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "own.OwnConfig"}
    (model / "config.json").write_text(json.dumps(config))
    (model / "own.py").write_text("class OwnConfig: pass\n")
    path = recipe(tmp_path, model, 1)
    (one,) = json.loads(run(tmp_path, path, "--json"))["candidates"]
    assert one["asks"] == ["--trust-remote-code: the model brings Python of its own (OwnConfig), which is not run"]
    assert any(line.startswith("#   asks     --trust-remote-code") for line in comments(run(tmp_path, path)))
    path.write_text(path.read_text().replace("args: ''", "args: '--trust-remote-code'"))
    (one,) = json.loads(run(tmp_path, path, "--json"))["candidates"]
    assert one["asks"] == [] and any("--trust-remote-code" in text for text in one["commands"])


def test_twenty_candidates(tmp_path):
    path = recipe(tmp_path, ROOT / "models/adder", 20)
    plan = json.loads(run(tmp_path, path, "--json"))
    assert [one["verdict"] for one in plan["candidates"]] == ["try"] * 20
    assert [one["candidate"]["name"] for one in plan["candidates"]] == [f"own-{number}" for number in range(20)]
