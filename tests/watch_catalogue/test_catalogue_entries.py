"""Each entry fires on its own samples, however they are wrapped and whatever the numbers; on nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core.nouns import Fate
from bascule.watch.catalogue import Failure, catalogue, failure, literals, said_by, shortest
from bascule.watch.scan import guess_engine
from watch.real_logs import LOGS
from watch_catalogue.logs_of import diagnosis, found

ENTRIES = {one.id: one for one in catalogue()}
SAMPLES = [(one, sample) for one in catalogue() for sample in one.samples]
NAMED = [(one, sample) for one, sample in SAMPLES if one.kind != "benign"]
IDS = [f"{one.id}-{place}" for place, (one, _) in enumerate(NAMED)]
HEALTHY_LINES = (LOGS / "shared/healthy-lines.txt").read_text().splitlines()

VARIED = [  # what differs from site to site, and what it becomes
    (r"\b(?:192\.0\.2|198\.51\.100|10\.\d+\.\d+)\.\d+\b", "172.20.31.7"),
    (r"node-[ab]|spark-b|gx10-1|^vm:", lambda had: "dgx42:" if had[0].endswith(":") else "dgx-42.lab"),
    (r"pid=\d+", "pid=4193001"),
    (r"\b\d\d:\d\d:\d\d\b", "23:59:58"),
    (r"\.(py|cc|cpp|c|h):\d+", r".\1:77777"),
    (r"/usr/local/lib/python3\.12|/venv/lib/python3\.11|/pytorch", "/opt/other/py3.13"),
    (r"/models/\w+", "/data/my-models/q_3.5"),
    (r"\b\d{5}\b(?!\w)", "45454"),
    (r"\b\d+\.\d+ (GB|GiB|s)\b", r"7.25 \1"),
    (r"Qwen9\w*|FooForCausalLM", "ZebraMoeV2ForCausalLM"),
]
WRAPPED = {
    "docker": lambda text: f"2026-11-30T18:54:55.123456789Z {text}",
    "recorder": lambda text: f"+ 103.4 {text}",
    "compose": lambda text: f"engine-r0-1  | {text}",
    "colour": lambda text: f"\x1b[1;36m{text}\x1b[0m",
    "windows": lambda text: f"{text}\r",
    "bar": lambda text: f"Loading:  50%|█████     | 1/2\r{text}",
}


@pytest.mark.parametrize(("one", "sample"), NAMED, ids=IDS)
def test_an_entry_is_found_by_its_samples(one: Failure, sample: str) -> None:
    assert found(sample)[0] == one.id


@pytest.mark.parametrize(("one", "sample"), [pair for pair in SAMPLES if pair[0].kind == "benign"])
def test_a_harmless_line_is_no_failure(one: Failure, sample: str) -> None:
    assert found(sample)[0] is None
    assert one.found_in(sample)


@pytest.mark.parametrize(("one", "sample"), NAMED, ids=IDS)
def test_an_entry_is_found_with_other_hosts_numbers_and_paths(one: Failure, sample: str) -> None:
    for pattern, other in VARIED:
        sample = re.sub(pattern, other, sample)
    assert found(sample)[0] == one.id


@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.parametrize(("one", "sample"), NAMED, ids=IDS)
def test_an_entry_is_found_behind_any_prefix(one: Failure, sample: str, wrap: str) -> None:
    if one.mode == "response":
        return
    assert found("\n".join(map(WRAPPED[wrap], sample.split("\n"))))[0] == one.id


@pytest.mark.parametrize("line", HEALTHY_LINES)
def test_a_line_of_a_healthy_start_is_no_failure(line: str) -> None:
    assert found(line)[0] is None
    rules = [one for one in said_by(guess_engine([line])) if one.kind != "benign"]
    assert [one.id for one in rules if one.found_in(line)] == []


def test_all_lines_of_healthy_starts_together_are_healthy() -> None:
    assert found("\n".join(HEALTHY_LINES)) == (None, "healthy")


def test_names_are_unique_and_each_entry_is_complete() -> None:
    names = [name for one in catalogue() for name in (one.id, *one.also)]
    assert len(names) == len(set(names))
    for one in catalogue():
        assert one.samples and one.source and one.cause and one.phase, one.id
        assert one.proof in {"run", "source", "thread", "thread-nofix", "knowledge", "inferred", "unseen"}, one.id
        assert one.mode in {"any", "docker", "kernel", "frame", "newest", "repeat", "response"}, one.id
        assert one.kind in {
            *("crash", "hang", "hang-then-crash", "slow", "degraded", "suspect", "wrong-output"),
            *("evidence", "stopped", "cascade", "benign"),
        }, one.id
        assert (one.silence_s > 0) == (one.mode in {"newest", "repeat"}), one.id


def test_what_bascule_changes_by_itself_is_one_setting_that_lowers_no_security() -> None:
    for one in catalogue():
        if one.fate is Fate.ADJUST:
            assert one.remedies[0].is_a_setting, one.id
    assert {one.id for one in catalogue() if any(remedy.security for remedy in one.remedies)} >= {"remote-code-refused"}
    assert not any(remedy.is_a_setting for one in catalogue() for remedy in one.remedies if remedy.security)


def test_consequences_and_harmless_lines_are_never_acted_on() -> None:
    assert {one.fate for one in catalogue() if one.kind in {"cascade", "benign", "stopped"}} == {Fate.UNKNOWN}


@pytest.mark.parametrize(("one", "sample"), SAMPLES, ids=[one.id for one, _ in SAMPLES])
def test_a_literal_of_the_signature_is_in_its_samples(one: Failure, sample: str) -> None:
    assert not one.words or any(word in sample for word in one.words)
    assert one.words or one.mode == "response", "a signature without a literal makes every line slow"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("plain words", ("plain words",)),
        (r"left \d+ and the right|other way", (" and the right", "other way")),
        (r"colou?rful \(x\)", ("rful (x)",)),
        (r"(?:in a group|or) outside", (" outside",)),
        (r"abc|long enough", ()),
        (r"more+ over", (" over",)),
        (r"[|(] classes stay whole", (" classes stay whole",)),
        (r"a{3} times bb", (" times bb",)),
    ],
)
def test_the_literals_of_a_pattern(pattern: str, words: tuple[str, ...]) -> None:
    assert literals(pattern) == words


def test_words_that_hold_another_word_are_left_out() -> None:
    assert shortest(["some error", "error", "rror", "x"]) == ("x", "rror")


def test_an_engine_has_its_own_failures_and_those_of_all() -> None:
    ids = {one.id for one in said_by("sglang")}
    assert {"sglang-no-memory", "disk-full"} <= ids
    assert "vllm-mq-wrong-ip" not in ids
    assert len(said_by(None)) == len(catalogue())


def test_a_new_entry_needs_nothing_but_its_lines() -> None:
    row = {
        "id": "moon", "phase": "serving", "class": "crash", "signature": r"the moon is (?P<how>\w+)", "fate": "unknown",
        "cause": "The moon.", "source": "x", "proof": "run", "samples": ["the moon is full"],
    }  # fmt: skip
    one = failure(row)
    assert (one.words, one.kind, one.mode, one.remedies) == (("the moon is ",), "crash", "any", ())
    match = one.found_in("ERROR the moon is full")
    assert match and match["how"] == "full"


WORDS = st.sampled_from(
    ["widget", "lattice", "cannot", "reach", "the quota", "of plane 7", "mismatch", "unexpected", "missing", "tensor"]
)
NAMES = st.sampled_from(["WidgetError", "acme.lattice.LatticeException", "ValueError", "RuntimeError", "KeyError"])


@given(NAMES, st.lists(WORDS, min_size=3, max_size=9).map(" ".join))
def test_an_invented_error_is_never_named(name: str, words: str) -> None:
    one = diagnosis(f"INFO 01-01 00:00:00 [a.py:1] vLLM begins\n{name}: {words}\nINFO 01-01 00:00:01 [a.py:1] bye")
    assert (one.failure, one.kind) == (None, "unknown")
    assert one.primary and (one.primary.line, one.primary.text) == (2, f"{name}: {words}")
