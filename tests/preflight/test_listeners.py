"""Who holds a port, from the kernel's own table; a taken port found late costs a start of minutes."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

from bascule.core.machine import Address, NodeFacts
from bascule.core.nouns import Fate, Node
from bascule.preflight.checks import Listener
from bascule.preflight.gather import preflight
from bascule.preflight.listeners import parse_listeners, read_listeners
from bascule.remote.local import LocalRunner

# sshd on every address, a server on 127.0.0.3:8000 and a connection to it; on IPv6 a server on every address, one on
# ::1, and one that is bound to ::ffff:10.0.0.1.
RECORDED = (Path(__file__).parent / "proc-net-tcp.txt").read_text()


def test_the_kernels_table_is_read() -> None:
    assert parse_listeners(RECORDED) == [
        Listener("0.0.0.0", 22, None, ""),
        Listener("127.0.0.3", 8000, 8123, "/usr/bin/python3, user aurora"),
        Listener("::", 29500, None, ""),
        Listener("::1", 631, None, ""),
        Listener("10.0.0.1", 9000, None, ""),
    ]


def test_no_table_is_no_listener() -> None:
    assert parse_listeners("=== owners\n") == parse_listeners("") == []


def listening_on(address: str) -> socket.socket:
    server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    server.bind((address, 0))
    server.listen()
    return server


def test_a_real_listener_is_found_with_its_process() -> None:
    with listening_on("127.0.0.3") as server:
        port = server.getsockname()[1]
        found = asyncio.run(read_listeners(LocalRunner(Node("here", "local")), [port]))
    ours = [listener for listener in found if listener.port == port]
    assert [(listener.address, listener.pid) for listener in ours] == [("127.0.0.3", os.getpid())]
    command = Path("/proc/self/cmdline").read_text().split("\0")[0]
    assert ours[0].owner.startswith(f"{command}, user ")
    gone = asyncio.run(read_listeners(LocalRunner(Node("here", "local")), [port]))
    assert all(listener.port != port for listener in gone)


def test_only_asked_ports_are_looked_up() -> None:
    with listening_on("127.0.0.3") as server:
        port = server.getsockname()[1]
        found = asyncio.run(read_listeners(LocalRunner(Node("here", "local")), [1]))
    assert [listener.pid for listener in found if listener.port == port] == [None]


def test_a_taken_port_stops_the_run_before_anything_is_started() -> None:
    facts = NodeFacts(addresses=(Address("lo", "127.0.0.3", 8),), run_dir_free_bytes=2**40)
    node = Node("here", "local", "127.0.0.3", facts=facts)
    with listening_on("127.0.0.3") as server:
        port = server.getsockname()[1]
        taken = asyncio.run(preflight([node], {"here": LocalRunner(node)}, [("port", port)]))
    free = asyncio.run(preflight([node], {"here": LocalRunner(node)}, [("port", port)]))
    assert (taken.fate, taken.code, free.fate, free.code) == (Fate.CLUSTER, "api-port-taken", Fate.OK, "nodes-ready")
    assert f"(pid {os.getpid()})" in taken.says
    assert sys.executable.rpartition("/")[2] in taken.says or "python" in taken.says
