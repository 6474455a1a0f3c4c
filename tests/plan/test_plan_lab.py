"""`bascule plan` over two hosts: what is missing where, in bytes and seconds, and a disk that has no room for it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from plan.conftest import ENGINE, HOME, MODEL

pytestmark = pytest.mark.lab

OWN = f"name: own, engine: vllm, venv: {ENGINE}, tensor_parallel: 2"
IMAGE = "name: packed, engine: vllm, image: 'engine-image:1', tensor_parallel: 2"
ALONE = f"name: alone, engine: vllm, venv: {ENGINE}, nodes: [h1]"


def weight(bench) -> int:
    return sum(path.stat().st_size for path in (bench.home(1) / "models/adder").rglob("*") if path.is_file())


def test_what_a_host_lacks_is_told_in_bytes_and_time(bench):
    told = bench.planned(OWN, ALONE)
    assert set(told) == {"nodes", "addresses", "model", "candidates", "held", "notices"}
    assert [node["name"] for node in told["nodes"]] == ["h1", "h2"]
    own, alone = told["candidates"]
    keys = "candidate verdict because finding changes fit unknown bound cost last_start asks commands"
    assert set(own) == set(keys.split())
    (lack,) = own["cost"]["lacks"]
    assert (lack["node"], lack["what"], lack["source"], lack["bytes"]) == ("h2", "model", "h1", weight(bench))
    rates = [pair["rate"] for pair in told["addresses"]["pairs"]]
    assert own["cost"]["rate"] == min(rates)
    assert own["cost"]["seconds"] == pytest.approx(weight(bench) / min(rates))
    assert own["commands"][0] == f"bascule copy weights {MODEL} --from h1 --to h2"
    assert own["verdict"] == "try" and own["fit"]["layout"]["tensor"] == 2 and own["last_start"] is None
    assert alone["cost"]["lacks"] == [] and alone["cost"]["bytes"] == 0 and "copy" not in alone["commands"][0]
    assert not (bench.home(2) / "models").exists(), "nothing was moved"


def test_an_image_that_one_host_has_travels_to_the_other(bench):
    (one,) = bench.planned(IMAGE)["candidates"]
    image, model = one["cost"]["lacks"]
    assert (image["node"], image["what"], image["source"], image["at_most"]) == ("h2", "image", "h1", False)
    size = int(bench.inside(1, "docker", "image", "inspect", "--format", "{{.Size}}", "engine-image:1"))
    assert image["bytes"] == size > 0 and model["what"] == "model"
    assert one["cost"]["bytes"] == size + weight(bench)
    assert one["commands"][0] == "bascule copy image engine-image:1 --from h1 --to h2"


def test_the_page_can_be_pasted(bench):
    page = bench.run("plan", bench.recipe(OWN, IMAGE)).stdout
    lines = page.splitlines()
    assert lines[0].split() == ["#", "adder", "on", "h1,", "h2", "plan:", "nothing", "is", "started"]
    for words in ("# node       h1", "# fabric     h1 10.81.0.1", "# 1          own   would be tried", "#   fits "):
        assert any(line.startswith(words) for line in lines), words
    assert any(line.startswith("#   cost     h2 lacks the model, and gets it from h1: 3.0 MB") for line in lines)
    assert any(line.startswith("#   cost     between the nodes at least 0.0 s at ") for line in lines)
    assert f"bascule copy weights {MODEL} --from h1 --to h2" in lines
    subprocess.run(("sh", "-n"), input=page, text=True, check=True)


@pytest.fixture
def small_disk(bench):
    """2 MiB for models on h2."""
    bench.inside(2, "mkdir", "-p", f"{HOME}/models")
    bench.inside(2, "mount", "-t", "tmpfs", "-o", "size=2m,mode=777", "none", f"{HOME}/models")
    yield
    bench.inside(2, "umount", f"{HOME}/models")
    bench.inside(2, "rmdir", f"{HOME}/models")


def test_a_disk_that_is_too_small_ends_a_candidate_before_a_byte_moves(bench, small_disk):
    own, alone = bench.planned(OWN, ALONE)["candidates"]
    assert (own["verdict"], own["finding"]["code"], own["finding"]["fate"]) == ("no", "disk-too-small", "hopeless")
    assert own["commands"] == []
    assert own["because"] == f"0.003 GB are still to come to {MODEL} on h2, and 0.0021 GB are free there"
    assert alone["verdict"] == "try", "it needs nothing of h2"
    told = bench.run("up", bench.recipe(OWN), code=4)
    assert "disk-too-small" in told.stderr and "  copy" not in told.stderr
    assert bench.inside(2, "ls", "-A", f"{HOME}/models") == ""


def test_a_half_copy_has_its_room_already(bench, small_disk):
    """What lies there need not come again, so the rest may fit."""
    part = f"{HOME}/models/.adder.bascule-part"
    bench.inside(2, "sh", "-c", f"mkdir {part} && head -c 1500000 /dev/zero >{part}/data")
    (own,) = bench.planned(OWN)["candidates"]
    assert own["verdict"] == "no", "1.5 MB of the 3 MB are to come, and 0.5 MB are free"
    bench.inside(2, "mount", "-o", "remount,size=4m", f"{HOME}/models")
    (own,) = bench.planned(OWN)["candidates"]
    assert own["verdict"] == "try"
    bench.inside(2, "rm", "-r", part)


def test_an_engine_that_the_second_host_lacks_is_no_candidate(bench):
    bench.inside(1, "cp", "-r", ENGINE, f"{ENGINE}-too")
    (one,) = bench.planned(OWN.replace(ENGINE, f"{ENGINE}-too"))["candidates"]
    bench.inside(1, "rm", "-r", f"{ENGINE}-too")
    assert (one["verdict"], one["finding"]["code"]) == ("no", "artefact-missing") and "h2 has no" in one["because"]


@pytest.fixture
def fast_clock(bench):
    """The clock of h2 is 400 s ahead, as far as its `date` tells."""
    real = bench.home(2) / "date"
    shutil.copy("/usr/bin/date", real)
    fake = bench.home(2) / "fake-date"
    fake.write_text(f'#!/bin/sh\nexec {HOME}/date -d "400 seconds" "$@"\n')
    for path in (real, fake):
        path.chmod(0o755)
    bench.inside(2, "mount", "--bind", f"{HOME}/fake-date", "/usr/bin/date")
    yield
    bench.inside(2, "umount", "/usr/bin/date")


def test_a_clock_that_is_off_by_minutes_is_told(bench, fast_clock):
    page = bench.run("plan", bench.recipe(ALONE)).stdout.splitlines()
    told = [line for line in page if "clock-off" in line]
    assert told == ["# notice     clock-off: the clock of h2 is 7 min ahead of this machine's"]


def test_what_is_to_know_of_the_hosts_is_told_once(bench):
    """And nothing of docker where no candidate is an image."""
    notices = [(one["node"], one["code"]) for one in bench.planned(OWN)["notices"]]
    assert len(notices) == len(set(notices))
    assert not {"stores-differ", "docker-denied", "docker-missing", "no-nvidia-runtime"} & {code for _, code in notices}
