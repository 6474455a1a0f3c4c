"""The archive for a bug report: no secret, name or address is left, and it can still be read."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.errors import BasculeError
from bascule.watch.archive import HEAD, TAIL, pack
from bascule.watch.masking import Masks, hide_in_plain, hide_secrets

LOG = """USER=alice
HOSTNAME=spark-7f3a.lab.example.org
loading /home/alice/models/qwen
ssh bob@gateway9.corp
rank 0 10.77.0.1:29500 <- 10.77.0.2, lan 192.168.1.23, [::ffff:10.77.0.2]:5, mac 3c:6d:66:01:02:03
inet 10.77.0.1/24 brd 10.77.0.255; netmask 255.255.255.0; local 127.0.0.1 127.0.1.1 0.0.0.0 [::]:80 ::1
link fe80::3e6d:66ff:fe01:203/64 and fd00:1234::5
VLLM_HOST_IP=10.77.0.1 tcp://10.77.0.1_29500 nvidia-cudnn==9.1.0.70
gloo connect to spark-7f3a failed at 12:34:56, alice-s file
HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz
later the value hf_abcdefghijklmnopqrstuvwxyz again; Authorization: Bearer abc.def-ghi123
"api_key": "short1", --api-key sk_my_own_key, pad_token_id=151643, max_tokens=16
"""


def unpack(path):
    with tarfile.open(path) as tar:
        return {
            member.name.removeprefix("bascule-evidence/"): tar.extractfile(member).read().decode() for member in tar
        }


@pytest.fixture
def evidence(tmp_path):
    folder = tmp_path / "evidence"
    (folder / "capture1").mkdir(parents=True)
    (folder / "rank0.log").write_text(LOG)
    (folder / "capture1" / "spark-7f3a.network.txt").write_text(
        "nodename=other-box\n10.77.0.2 lladdr 3c:6d:66:01:02:03\n"
    )
    return folder


def test_nothing_that_tells_who_or_where_is_left(evidence, tmp_path):
    files = unpack(pack(evidence, tmp_path / "out.tar.gz", ["node-b", "carol@node-c.internal"]))
    everything = "".join([*files, *files.values()])
    for word in (
        "alice", "spark", "7f3a", "gateway9", "corp", "bob", "other-box", "10.77.", "192.168.1.23", "3c:6d:66",
        "fe80", "fd00:1234", "hf_abc", "abc.def-ghi123", "short1", "sk_my_own_key", "lab.example.org",
    ):  # fmt: skip
        assert word not in everything, word


def test_it_can_still_be_read_equal_things_have_equal_masks(evidence, tmp_path):
    files = unpack(pack(evidence, tmp_path / "out.tar.gz"))
    log = files["rank0.log"]
    assert "rank 0 192.0.2.1:29500 <- 192.0.2.2, lan 198.51.100.1, [::ffff:192.0.2.2]:5, mac 02:00:00:00:00:01" in log
    assert (
        "inet 192.0.2.1/24 brd 192.0.2.255; netmask 255.255.255.0; local 127.0.0.1 127.0.1.1 0.0.0.0 [::]:80 ::1" in log
    )
    assert "VLLM_HOST_IP=192.0.2.1 tcp://192.0.2.1_29500 nvidia-cudnn==9.1.0.70" in log
    assert "USER=user1\nHOSTNAME=host1.example\nloading /home/user1/models/qwen\nssh user2@host2.example\n" in log
    assert "gloo connect to host1 failed at 12:34:56, user1-s file" in log
    assert "pad_token_id=151643, max_tokens=16" in log
    assert "192.0.2.2 lladdr 02:00:00:00:00:01" in files["capture1/host1.network.txt"]


def test_the_manifest_lists_every_file_as_it_is_in_the_archive(evidence, tmp_path):
    (evidence / "core").write_bytes(b"\x7fELF\0\0")
    (evidence / "link").symlink_to("/etc/passwd")
    os.mkfifo(evidence / "pipe")
    out = pack(evidence, tmp_path / "out.tar.gz")
    files = unpack(out)
    manifest = json.loads(files.pop("MANIFEST.json"))
    told = {row["path"]: (row["bytes"], row["sha256"]) for row in manifest["files"]}
    assert told == {
        name: (len(text.encode()), hashlib.sha256(text.encode()).hexdigest()) for name, text in files.items()
    }
    assert manifest["left_out"] == {"core": "no text", "link": "no regular file", "pipe": "no regular file"}
    assert manifest["masked"] == {"hosts": 3, "users": 2, "addresses": 7}
    assert "root:" not in "".join(files.values())
    assert out.read_bytes() == pack(evidence, tmp_path / "again.tar.gz").read_bytes()


def test_a_huge_log_keeps_its_beginning_and_its_end(evidence, tmp_path):
    size = HEAD + TAIL + 500_000
    (evidence / "rank1.log").write_bytes(b"first\n" + b"x" * (size - 11) + b"last\n")
    began = time.process_time()
    files = unpack(pack(evidence, tmp_path / "out.tar.gz"))
    assert time.process_time() - began < 20
    log = files["rank1.log"]
    assert log.startswith("first\n")
    assert log.endswith("last\n")
    assert "… 500000 bytes are left out …" in log
    assert json.loads(files["MANIFEST.json"])["cut"] == {"rank1.log": 500_000}


@pytest.mark.parametrize("line", ["a=" * 200_000, "1." * 200_000, "a:" * 200_000, "'x': " * 80_000, "--a-" * 100_000])
def test_lines_made_to_be_slow_are_not(line, tmp_path):
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "rank0.log").write_text(line)
    began = time.process_time()
    pack(tmp_path / "e", tmp_path / "out.tar.gz")
    assert time.process_time() - began < 5


def test_what_can_not_be_packed_says_why_and_leaves_nothing(evidence, tmp_path):
    with pytest.raises(BasculeError, match="can't be packed"):
        pack(tmp_path / "none", tmp_path / "out.tar.gz")
    with pytest.raises(BasculeError, match="can't be packed"):
        pack(evidence, tmp_path / "no" / "out.tar.gz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evidence"]


octets = st.integers(1, 254)


@given(st.lists(st.tuples(octets, octets, octets, octets), min_size=1, max_size=60, unique=True))
def test_different_addresses_stay_different_and_neighbours_stay_neighbours(rows):
    rows = [row for row in rows if row[0] != 127 and not row[0] >= 224 and row[:2] != (169, 254)]
    texts = [".".join(map(str, row)) for row in rows]
    masks = Masks()
    hidden = masks.apply(" ".join(texts)).split()
    assert len(set(hidden)) == len(set(texts))
    networks = [one.rpartition(".")[0] for one in texts], [one.rpartition(".")[0] for one in hidden]
    assert len(set(zip(*networks, strict=True))) == len(set(networks[0])) == len(set(networks[1]))
    assert all(one.startswith(("192.0.2.", "198.51.100.", "203.0.113.", "198.18.")) for one in hidden)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("HF_TOKEN='a b c d e f'", "HF_TOKEN=***"),
        ("{'hf_token': 'abcdefgh', 'port': 8000}", "{'hf_token': '***', 'port': 8000}"),
        ('"API-KEY": "abc\\"def"', '"API-KEY": "***"'),
        ("https://me:pass@host/x", "https://***@host/x"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "***"),
        ("--hf-token=abcdef --tokenizer x", "--hf-token=*** --tokenizer x"),
        ("['--api-key', 'abcdef']", "['--api-key', '***']"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc", "***"),
        ("tokens=5 n_tokens=7 token_id=3", "tokens=5 n_tokens=7 token_id=3"),
        ("secret=True", "secret=True"),
    ],
)
def test_secrets_are_hidden_by_name_and_by_shape(text, masked):
    assert hide_secrets(text) == masked


def test_parsed_json_is_hidden_at_every_depth():
    raw = {"a": [{"Env": ["MY_SECRET=abc", "N=1"], "password": "x"}], "PASSWORD": "y", "n": 5}
    assert hide_in_plain(raw) == {"a": [{"Env": ["MY_SECRET=***", "N=1"], "password": "x"}], "PASSWORD": "***", "n": 5}
