"""Whatever a machine prints, reading it ends in facts, and each fact that is missing has its reason."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bascule.core.machine import NodeFacts
from bascule.remote.facts import READINGS, parse_facts

FACTS = Path(__file__).parents[1] / "facts"
RECORDED = [path.read_text() for path in sorted(FACTS.glob("*.txt"))]
SECTIONS = [reading.section for reading in READINGS]
WORDS = st.sampled_from(
    ["[N/A]", "{", '{"host":{},"store":[]}', "status 0", "ok docker", "df", "ports", "-1", "9" * 40, "²", "0x", "None"]
)
GARBAGE = st.lists(st.one_of(st.text(max_size=40), WORDS), max_size=6).map("\n".join)


def well_formed(facts: NodeFacts) -> bool:
    fields = [name for reading in READINGS for name in reading.parsers if name != "addresses"]
    missing = [name for name in fields if getattr(facts, name) is None]
    return all(facts.unknown.get(name, "").strip() for name in missing) and "\n" not in "".join(facts.unknown)


@given(st.sampled_from(SECTIONS), GARBAGE)
def test_a_section_of_garbage(section: str, text: str) -> None:
    assert well_formed(parse_facts(f"=== {section}\n{text}\n=== clock_end\n"))


@given(st.sampled_from(RECORDED), st.data())
def test_a_recording_that_ends_early(text: str, data: st.DataObject) -> None:
    assert well_formed(parse_facts(text[: data.draw(st.integers(0, len(text)))]))


@given(st.sampled_from(RECORDED), st.data())
def test_a_recording_with_lines_lost_cut_and_put_in(text: str, data: st.DataObject) -> None:
    lines = text.splitlines()
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.sampled_from(["lose", "cut", "put", "swap"]))
        if change == "lose" and len(lines) > 1:
            del lines[at]
        elif change == "cut":
            lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at])))]
        elif change == "put":
            lines.insert(at, data.draw(st.one_of(WORDS, st.text(max_size=20))))
        else:
            lines[at] = " ".join(reversed(lines[at].split(" ")))
    assert well_formed(parse_facts("\n".join(lines)))


@given(st.text())
def test_any_text_at_all(text: str) -> None:
    assert well_formed(parse_facts(text))


def test_the_property_can_fail() -> None:
    assert not well_formed(NodeFacts())
