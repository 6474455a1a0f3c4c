"""Two hosts made by system calls, and what stands in for ssh to them: bascule's own Runners go through it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bascule.core.layout import host_ids
from bascule.core.nouns import Node, RankPlan
from bascule.engines.chat import CompletionFailed, ask
from bascule.errors import NodeUnreachable
from bascule.launch.venv import VenvRuntime
from bascule.remote.channel import open_channel
from bascule.remote.facts import read_facts
from bascule.remote.runner import Result
from bascule.remote.ssh import SshRunner
from bascule.remote.tunnel import tunnel

pytestmark = pytest.mark.lab

GPU = Path(__file__).parents[2] / "examples" / "gpu"
NAME = "gpunet"


def namespaces(verb: str) -> None:
    subprocess.run([sys.executable, GPU / "namespaces.py", verb, NAME], check=True)


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Node]]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    namespaces("up")
    yield [Node(f"h{k}", f"root@{NAME}-{k}", f"10.77.0.{k}") for k in (1, 2)]
    namespaces("down")
    assert not [*Path("/run/netns").glob(f"{NAME}-*")]


@pytest.fixture(autouse=True)
def _shim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASCULE_SSH", f"{sys.executable} {GPU / 'netns_ssh.py'}")


def run(node: Node, script: str, within: float = 20) -> Result:
    return asyncio.run(SshRunner(node).run(("sh", "-c", script), within=within))


def test_each_host_sees_its_own_links_and_nothing_of_the_machines(hosts: list[Node]) -> None:
    read = [asyncio.run(read_facts(SshRunner(host), host)) for host in hosts]
    for k, node in enumerate(read, 1):
        seen = {(one.interface, one.ip) for one in node.facts.addresses}
        assert seen == {("lo", "127.0.0.1"), (f"fab{k}", f"10.77.0.{k}"), (f"lan{k}", f"10.88.{k}.2")}
        assert run(node, "ls /sys/class/net").text.split() == sorted((f"fab{k}", f"lan{k}", "lo"))
    assert read[0].facts.machine_id != read[1].facts.machine_id
    assert host_ids("s", read) == {"h1": "s-h1", "h2": "s-h2"}  # one kernel: to NCCL they would be one host


def test_they_reach_each_other_by_the_fabric_alone(hosts: list[Node]) -> None:
    listen = 'python3 -c \'import socket; s = socket.create_server(("", 9000)); s.accept()[0].sendall(b"there")\''
    dial = (
        "import socket, sys, time\n"
        "for _ in range(100):\n"
        "    try: s = socket.create_connection((sys.argv[1], 9000), 1)\n"
        "    except OSError as e: time.sleep(0.05); why = e; continue\n"
        "    print(s.recv(9).decode()); sys.exit()\n"
        "print(type(why).__name__)"
    )
    listener = subprocess.Popen([sys.executable, GPU / "netns_ssh.py", hosts[0].host, listen])
    try:
        assert run(hosts[1], f"python3 -c '{dial}' 10.77.0.1").text == "there\n"
        assert run(hosts[1], f"python3 -c '{dial.replace('100', '1')}' 10.88.1.2").text != "there\n"
    finally:
        listener.kill()
        listener.wait()


def test_they_do_not_share_dev_shm_and_keep_the_rest_of_the_machine(hosts: list[Node], tmp_path: Path) -> None:
    assert run(hosts[0], f"touch /dev/shm/mine; ls /dev/shm; echo x > {tmp_path}/seen").text == "mine\n"
    assert run(hosts[1], f"ls /dev/shm; cat {tmp_path}/seen; ls -d /sys/fs/cgroup").text == "x\n/sys/fs/cgroup\n"
    assert not Path("/dev/shm/mine").exists()


def test_status_output_and_input_come_through(hosts: list[Node]) -> None:
    result = run(hosts[0], "cat; echo trouble >&2; exit 255")
    assert (result.status, result.complaint) == (255, "trouble")
    told = asyncio.run(SshRunner(hosts[0]).run(("sh", "-s", "--", "two words"), stdin='echo "<$1>"'))
    assert told.text == "<two words>\n"


def test_a_host_that_is_not_there_is_unreachable(hosts: list[Node]) -> None:
    with pytest.raises(NodeUnreachable) as caught:
        run(replace(hosts[0], host=f"{NAME}-9"), "true")
    assert caught.value.seen == f"netns_ssh: there is no network namespace '{NAME}-9'"


def test_a_long_talk_goes_through_one_process(hosts: list[Node]) -> None:
    async def talk() -> bytes:
        async with open_channel(hosts[1], ("cat",)) as channel:
            await channel.write(b"one\n")
            first = await channel.line()
            await channel.write(b"two\n")
            return first + await channel.line()

    assert asyncio.run(talk()) == b"one\ntwo\n"


SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_error(418, "a teapot")
http.server.HTTPServer(("10.77.0.1", 8123), Handler).serve_forever()
"""


def test_a_rank_is_started_there_asked_through_the_forward_and_stopped(hosts: list[Node], tmp_path: Path) -> None:
    node = replace(hosts[0], run_dir=str(tmp_path / "ranks"))
    runtime = VenvRuntime()

    async def whole_life() -> tuple[str, list[bool]]:
        runner = SshRunner(node)
        known = await read_facts(runner, node)
        plan = RankPlan(0, "h1", (sys.executable, "server.py"), {}, {"server.py": SERVER})
        started = await runtime.start(runner, known, "gpunet.1.1.r0", plan, {"service": "gpunet"})
        assert started.ok, started.complaint
        alive = [state.alive for state in await runtime.find(runner, known, "gpunet")]
        try:
            async with tunnel(node, "10.77.0.1", 8123) as socket:
                said = await _teapot(socket)
        finally:
            await runtime.stop(runner, known, ["gpunet.1.1.r0"], 5)
        return said, [*alive, *(state.alive for state in await runtime.find(runner, known, "gpunet"))]

    said, alive = asyncio.run(whole_life())
    assert (said, alive) == ("HTTP 418", [True, False])


async def _teapot(socket: str | None) -> str:
    for _ in range(200):
        try:
            await ask("http://10.77.0.1:8123/v1", "m", "?", max_tokens=1, socket=socket)
        except CompletionFailed as failed:
            if failed.says.startswith("HTTP"):
                return failed.says
        await asyncio.sleep(0.05)
    return "no answer"
