"""`bascule diagnose` as it is run: files, standard input, gzip, broken bytes, logs without end."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bascule import diagnosing
from bascule.errors import RecipeError
from watch_catalogue.logs_of import LOGS

RUN = """
import sys
from bascule.diagnosing import app
app(result_action="return_value")
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
"""
ETH9 = [str(LOGS / f"vllm/vllm-0.32-gloo-eth9.r{rank}.log") for rank in (0, 1)]


def run(*words: str, stdin: bytes = b"") -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", RUN, *words], input=stdin, capture_output=True, check=True)
    return done.stdout.decode(), done.stderr.decode()


def as_json(*words: str, stdin: bytes = b"") -> dict[str, object]:
    return json.loads(run("--json", *words, stdin=stdin)[0])  # type: ignore[no-any-return]


def test_data_for_programs_has_these_keys_and_no_other() -> None:
    row = as_json(*ETH9)
    assert list(row) == ["primary", "failure", "class", "cause", "remedies", "cascades"]
    assert row["primary"] == {
        "file": ETH9[1],
        "line": 73,
        "text": "RuntimeError: [enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] "
        "ifa != nullptr. Unable to find address for: eth9",
        "phase": "rendezvous",
    }
    assert (row["failure"], row["class"], row["cascades"]) == ("gloo-interface-missing", "crash", 1)
    (remedy,) = row["remedies"]  # type: ignore[misc]
    assert remedy["kind"] == "env" and remedy["name"] == "GLOO_SOCKET_IFNAME" and remedy["node"] == "affected"


def test_a_healthy_log_has_no_primary_and_no_failure() -> None:
    row = as_json(str(LOGS / "vllm/vllm-0.32-tp2-ok.r0.log"))
    assert (row["primary"], row["failure"], row["class"], row["remedies"]) == (None, None, "healthy", [])


def test_a_person_reads_what_where_why_and_what_to_try() -> None:
    told = run(*ETH9)[0].splitlines()
    assert told[0] == "crash  gloo-interface-missing"
    assert told[1] == f"  where  {ETH9[1]}:73, in `rendezvous`"
    assert told[2].startswith("  said   RuntimeError: [enforce fail")
    assert told[4] == "  try    1. GLOO_SOCKET_IFNAME=<interface of its address> on the affected node"


def test_standard_input_and_gzip_are_read_like_files(tmp_path: Path) -> None:
    plain = Path(ETH9[1]).read_bytes()
    packed = tmp_path / "r1.log"
    packed.write_bytes(gzip.compress(plain))
    expected = as_json(ETH9[1])
    for row, name in ((as_json("-", stdin=plain), "-"), (as_json(str(packed)), str(packed))):
        primary = row["primary"]
        assert isinstance(primary, dict) and primary.pop("file") == name
        assert {**row, "primary": {"file": ETH9[1], **primary}} == expected
    assert as_json("-", stdin=gzip.compress(plain))["failure"] == "gloo-interface-missing"


def test_what_could_be_unpacked_of_a_cut_gzip_is_read_and_the_rest_is_told(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"INFO x\n" * 9000 + b"ValueError: odd\n" + bytes(range(256)) * 99)[:-40])
    out, err = run(str(cut))
    assert out.startswith("unknown\n") and f"{cut}: only its beginning could be read" in err


@pytest.mark.parametrize(
    "raw",
    [b"", b"\n\n", b"\xff\xfe\x00\x01" * 50, b"\x00" * 70_000, b"\r\r\r\n", b"\xef\xbb\xbfx"],
    ids=["empty", "newlines", "no-text", "zeros", "returns", "byte-order"],  # a name goes into the environment
)
def test_any_bytes_can_be_read(raw: bytes) -> None:
    row = as_json("-", stdin=raw)
    assert row["failure"] is None and row["class"] in {"unknown", "hang?"}


def test_control_characters_of_a_log_do_not_reach_the_terminal() -> None:
    out = run("-", stdin=b"ValueError: \x1b]0;owned\x07 \x9b31m\n")[0]
    assert out.isprintable() or set(out) - set(map(chr, range(32, 127))) <= {"\n", "·", "�", "…"}


def test_a_long_log_and_a_long_line_are_read_in_bounded_memory(tmp_path: Path) -> None:
    long = tmp_path / "long.log"
    line = b"(APIServer pid=1) INFO 01-01 00:00:00 [x.py:1] request %032x took 7 ms\n"
    with long.open("wb") as file:
        file.write(b"vLLM begins\n")
        for number in range(20):
            file.write(b"".join(line % (number * 10_000 + at) ** 9 for at in range(10_000))[: 10_000 * len(line) * 2])
        file.write(b"x" * 30_000_000 + b"\nValueError: odd\n")
    out, err = run("--json", str(long))
    assert json.loads(out)["primary"]["line"] == 200_003
    assert int(err) < 80_000, "kilobytes"


def test_the_engine_can_be_said_or_is_taken_from_another_rank(tmp_path: Path) -> None:
    bare = tmp_path / "r1.log"
    bare.write_text("Load weight begin\nValueError: odd\n")
    assert as_json(str(bare))["primary"]["phase"] == "unknown"  # type: ignore[index]
    assert as_json("--engine", "sglang", str(bare))["primary"]["phase"] == "weights"  # type: ignore[index]
    head = tmp_path / "r0.log"
    head.write_text("[2026-01-01 00:00:00 TP0] server_args=x\n")
    assert as_json(str(head), str(bare))["primary"]["phase"] == "weights"  # type: ignore[index]


@pytest.mark.parametrize(
    ("files", "engine", "code"), [((), None, "usage"), (("/nosuch",), None, "log-unread"), (("-",), "vlm", "usage")]
)
def test_what_can_not_be_meant_is_told(files: tuple[str, ...], engine: str | None, code: str) -> None:
    with pytest.raises(RecipeError) as told:
        diagnosing.diagnose(*files, engine=engine)
    assert told.value.code == code and told.value.advice


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="can't be read"):
        diagnosing.diagnose(str(tmp_path))
