"""The helper that exchanges bytes on a node, in Python (also the oldest that it promises) and in Perl."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from importlib import resources
from pathlib import Path

import pytest

from bascule.preflight import bundle

TOKEN = "0123456789abcdef" * 2
OLD = [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.6*/bin/python"))]
PYTHONS = [sys.executable, *OLD]  # 3.6 where it is installed


class Helper:
    """One helper that runs here, and its orders."""

    def __init__(self, interpreter: str, **env: str) -> None:
        words = bundle.words()
        starter, language = (words[6], bundle.PERL) if "perl" in interpreter else (words[4], bundle.PYTHON)
        script = bundle.script(language)
        option = "-e" if language == bundle.PERL else "-c"
        self.process = subprocess.Popen(
            [interpreter, option, starter, str(len(script))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **env},
        )
        self.process.stdin.write(script)

    def ask(self, *words: object) -> list[str]:
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().rstrip("\n").split(" ")

    def listen(self, address: str = "127.0.0.1") -> int:
        kind, tag, port = self.ask("listen", "L", address, TOKEN)
        assert (kind, tag) == ("listening", "L")
        return int(port)

    def reach(self, port: int, address: str = "127.0.0.1", patience: float = 3) -> list[str]:
        kind, tag, *words = self.ask("reach", "R", address, port, TOKEN, patience)
        assert (kind, tag) == ("pair", "R")
        return words

    def end(self) -> int:
        self.process.stdin.close()
        return self.process.wait(20)


@pytest.fixture
def helper():
    """Makes helpers that end with the test."""
    with contextlib.ExitStack() as stack:

        def make(interpreter: str, **env: str) -> Helper:
            one = Helper(interpreter, **env)
            stack.callback(one.process.stdout.close)
            stack.callback(one.process.wait, 20)
            stack.callback(_kill, one.process)
            return one

        yield make


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)


def perl() -> str:
    if not shutil.which("perl"):
        pytest.skip("no perl here")
    return shutil.which("perl")


ALL = [pytest.param(path, id=Path(path).parts[-3] if "pyenv" in path else "this python") for path in PYTHONS]
ALL.append(pytest.param("perl", id="perl"))


@pytest.fixture(params=ALL)
def language(request) -> str:
    return perl() if request.param == "perl" else request.param


@contextlib.contextmanager
def server(answer):
    """A listener here; each guest gets what `answer` does with it."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            with contextlib.suppress(OSError):
                guest, _ = door.accept()
                with guest:
                    answer(guest)

        threading.Thread(target=serve, daemon=True).start()
        yield door.getsockname()[1]


def test_it_reaches_itself_and_measures(helper, language):
    one = helper(language)
    port = one.listen()
    outcome, local, connect_s, round_trip_s, *_ = one.reach(port)
    assert (outcome, local) == ("reached", "127.0.0.1")
    assert 0 < float(round_trip_s) < 5 and 0 < float(connect_s) < 5
    kind, tag, size, seconds, *_ = one.ask("rate", "B", "127.0.0.1", port, TOKEN, 8 << 20, 5)
    assert (kind, tag) == ("rate", "B") and 4 << 20 < int(size) <= 8 << 20 and float(seconds) > 0


def test_perl_measures_without_the_module_that_its_base_lacks(helper, tmp_path):
    tmp_path.joinpath("Time").mkdir()
    tmp_path.joinpath("Time/HiRes.pm").write_text("die 'not in perl-base';")
    one = helper(perl(), PERL5LIB=str(tmp_path))
    outcome, _, connect_s, round_trip_s, *_ = one.reach(one.listen())
    assert outcome == "reached" and 0 < float(round_trip_s) < 5 and 0 < float(connect_s) < 5


def test_both_languages_speak_the_same(helper, language):
    one, other = helper(language), helper(perl())
    assert one.reach(other.listen())[0] == "reached"
    assert other.reach(one.listen())[0] == "reached"
    assert one.ask("rate", "B", "127.0.0.1", other.listen(), TOKEN, 4 << 20, 5)[2] != "-"


def test_nobody_there_is_refused(helper, language):
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    outcome, local, *_, text = helper(language).reach(port)
    assert (outcome, local) == ("refused", "-") and text


def test_an_address_without_a_way_to_it_is_no_route(helper, language):
    outcome, *words = helper(language).reach(9, address="255.255.255.255")
    assert outcome in ("no-route", "unproven") and words[-1]


def test_somebody_else_is_a_stranger(helper, language):
    with server(lambda guest: guest.sendall(b"x" * 40) or time.sleep(1)) as port:
        assert helper(language).reach(port)[0] == "stranger"


def test_one_who_closes_without_a_word_is_mute(helper, language):
    with server(lambda guest: guest.recv(32)) as port:
        outcome, local, connect_s, *_ = helper(language).reach(port)
    assert (outcome, local) == ("mute", "127.0.0.1") and connect_s != "-"


def test_one_that_stops_reading_is_slow_and_not_stalled(helper, language):
    """Its kernel takes the payload all the same: a busy node is no black hole."""

    def answer(guest: socket.socket) -> None:
        guest.sendall(guest.recv(32))
        for _ in range(5):
            guest.sendall(guest.recv(1))
        time.sleep(1)  # longer than the patience
        left = 48 * 1024 + 1
        while left:
            left -= len(guest.recv(left))
        guest.sendall(b"b")

    with server(answer) as port:
        assert helper(language).reach(port, patience=0.5)[0] == "reached"


def test_a_guest_without_the_token_learns_nothing(helper, language):
    port = helper(language).listen()
    with socket.create_connection(("127.0.0.1", port)) as guest:
        guest.sendall(b"GET / HTTP/1.1\r\nHost: somebody-else\r\n\r\n")
        guest.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert guest.recv(100) == b""


def test_it_listens_at_its_own_address_alone(helper, language):
    port = helper(language).listen("127.0.0.2")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    socket.create_connection(("127.0.0.2", port), 5).close()


def test_an_address_of_somebody_else_can_not_be_listened_at(helper, language):
    kind, tag, *text = helper(language).ask("listen", "L", "192.0.2.1", TOKEN)
    assert (kind, tag) == ("failed", "L") and "assign" in " ".join(text)


def test_it_ends_with_its_input_and_takes_listeners_and_guests_along(helper, language):
    one = helper(language)
    port = one.listen()
    with socket.create_connection(("127.0.0.1", port)) as guest:
        guest.sendall(b"half")
        time.sleep(0.1)
        one.end()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
        guest.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert guest.recv(1) == b""


def test_both_languages_have_the_same_measures():
    folder = resources.files("bascule.preflight").joinpath("node")
    python, other = (folder.joinpath(f"exchange.{suffix}").read_text() for suffix in ("py", "pl"))
    names = ("LIFE", "ROUNDS", "BULK", "ANSWER", "CHUNK")
    numbers = [eval(re.search(rf"^{name} = ([\d.* <]+)", python, re.M)[1]) for name in names]
    assert "my ($LIFE, $ROUNDS, $BULK, $ANSWER, $CHUNK) = (60, 5, 48 * 1024, 10, 1 << 20);" in other
    assert numbers == [60, 5, 48 * 1024, 10, 1 << 20]


@pytest.mark.parametrize(
    ("programs", "first"),
    [(("python3", "perl"), "python3 "), (("perl",), "perl "), ((), "nothing python3: ")],
)
def test_the_node_says_what_it_has(tmp_path, programs, first):
    for name in ("sh", "tr", "uname", *programs):
        if not shutil.which(name):
            pytest.skip(f"no {name} here")
        tmp_path.joinpath(name).symlink_to(sys.executable if name == "python3" else shutil.which(name))
    done = subprocess.run(
        ["/bin/sh", *bundle.words()[1:]], env={"PATH": str(tmp_path)}, input=b"", capture_output=True, check=False
    )
    assert done.stdout.decode().startswith(first)
    assert done.stdout.count(b"\n") == 1


def test_a_python3_that_does_not_run_is_none(tmp_path):
    tmp_path.joinpath("python3").write_text("#!/bin/sh\nexit 127\n")
    tmp_path.joinpath("python3").chmod(0o755)
    for name in ("sh", "tr"):
        tmp_path.joinpath(name).symlink_to(shutil.which(name))
    done = subprocess.run(
        ["/bin/sh", *bundle.words()[1:]], env={"PATH": str(tmp_path)}, capture_output=True, check=False
    )
    assert done.stdout.startswith(b"nothing ")
