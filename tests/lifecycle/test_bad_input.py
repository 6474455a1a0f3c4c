"""What a person gets wrong ends in a clear error, and nothing is started."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from lifecycle.desk import LLAMACPP, TRANSFORMERS, free_port


def test_a_recipe_with_a_mistake(desk):
    recipe = desk.recipe(TRANSFORMERS, more="max_model_length: 5\n")
    told = desk.run("up", recipe)
    assert told.returncode == 2
    assert f"error[recipe]: {recipe}:9:1  unknown key `max_model_length`; did you mean `context`?" in told.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "there is no folder"), ("{", "is no JSON"), ("[]", "is no object"), ("{}", "names no architectures")],
)
def test_a_model_that_is_missing_or_broken(desk, tmp_path, content, says):
    model = tmp_path / "model"
    if content is not None:
        model.mkdir()
        (model / "config.json").write_text(content)
    told = desk.run("up", desk.recipe(TRANSFORMERS, model=model))
    assert told.returncode == 2 and says in told.stderr, told.stderr
    assert not desk.ours()


def test_an_unreachable_node_ends_with_3_and_nothing_is_started_elsewhere(desk):
    recipe = desk.recipe(LLAMACPP)
    recipe.write_text(
        recipe.read_text().replace("name: b, host: local", f'name: b, host: "nobody@127.0.0.1:{free_port()}"')
    )
    told = desk.run("up", recipe)
    assert told.returncode == 3
    assert "node-unreachable" in told.stderr and "Connection refused" in told.stderr
    assert not desk.ours() and not desk.run_dir.exists()
    status = desk.run("status")
    assert status.returncode == 3 and "b does not answer" in status.stdout


def test_an_unknown_option_and_an_unknown_service(desk):
    told = desk.run("up", "x.yaml", "--nodes", "a")
    assert told.returncode == 2 and told.stderr.startswith("error[usage]")
    told = desk.run("down", "nothing")
    assert told.returncode == 2 and "error[no-service]" in told.stderr


def test_init_writes_a_recipe_once(desk, tmp_path):
    path = tmp_path / "new.yaml"
    assert desk.run("init", path).returncode == 0
    before = path.read_text()
    again = desk.run("init", path)
    assert again.returncode == 2 and "File exists" in again.stderr and path.read_text() == before


@pytest.mark.engine
def test_plan_prints_commands_and_starts_nothing(desk):
    recipe = desk.recipe(LLAMACPP + TRANSFORMERS.replace("vllm-0.32.0", "nowhere"))
    told = desk.run("plan", recipe)
    assert told.returncode == 0, told.stderr
    assert "llamacpp_serve.py --model" in told.stdout and "NOT tried" in told.stdout
    assert not desk.ours() and not desk.run_dir.exists()
    planned = json.loads(desk.run("plan", recipe, "--json").stdout)
    assert [one["verdict"] for one in planned["candidates"]] == ["try", "no"]


@pytest.mark.engine
@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small file system, which needs root")
def test_a_full_disk_under_the_run_folder(desk):
    desk.run_dir.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "none", desk.run_dir], check=True)
    try:
        (desk.run_dir / "ballast").write_bytes(b"\0" * (127 << 20))
        told = desk.run("up", desk.recipe(LLAMACPP))
        assert told.returncode == 4 and "disk-full" in told.stderr and "run_dir" in told.stderr
        assert [path.name for path in desk.run_dir.iterdir()] == ["ballast"]
    finally:
        subprocess.run(["umount", desk.run_dir], check=True)
