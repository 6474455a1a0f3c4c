"""What must hold before anything is started: room for logs, and ports that nobody else holds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bascule.core.machine import NodeFacts
from bascule.core.nouns import Fate, Finding, Node
from bascule.preflight.checks import RUN_DIR_NEEDS, Listener, ports_are_free, run_folder_has_space

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PORTS = [("port", 8000), ("rendezvous_port", 29500)]
HEAD = Node("spark-1", "spark-1")


def node(free: int | None) -> Node:
    return Node("spark-1", "spark-1", facts=NodeFacts(run_dir="/r", run_dir_free_bytes=free))


def test_a_full_disk_is_told_before_the_logs_are_lost() -> None:
    finding = run_folder_has_space(node(RUN_DIR_NEEDS - 1), NOW)
    assert finding is not None
    assert (finding.fate, finding.code) == (Fate.CLUSTER, "disk-full")
    assert finding.says == "the disk under /r on spark-1 has 65535 KiB left"
    assert finding.evidence[0].source == "df /r"
    assert finding.advice == "free some space there, or give spark-1 another `run_dir`"
    assert run_folder_has_space(node(RUN_DIR_NEEDS), NOW) is None


def check(*listening: Listener) -> Finding | None:
    return ports_are_free(HEAD, "10.0.0.1", PORTS, listening, NOW)


@pytest.mark.parametrize("address", ["10.0.0.1", "0.0.0.0", "::"])
@pytest.mark.parametrize(
    ("port", "code", "fate"),
    [(8000, "api-port-taken", Fate.CLUSTER), (29500, "rendezvous-port-taken", Fate.HOPELESS)],
)
def test_a_port_that_somebody_holds_where_we_will_listen(address: str, port: int, code: str, fate: Fate) -> None:
    finding = check(Listener("127.0.0.1", 22, None, ""), Listener(address, port, 8123, "python3, user aurora"))
    assert finding is not None
    assert (finding.fate, finding.code, finding.scope) == (fate, code, "candidate")
    assert finding.says == f"port {port} on spark-1 is held by python3, user aurora (pid 8123)"
    assert finding.evidence[0].excerpt == f"LISTEN {address}:{port} python3, user aurora (pid 8123)"


@pytest.mark.parametrize("other", [Listener("127.0.0.1", 8000, 1, "x"), Listener("10.0.0.1", 8001, 1, "x")])
def test_other_addresses_and_ports_do_not_matter(other: Listener) -> None:
    assert check(other) is None


def test_the_advice_names_the_key_to_change() -> None:
    finding = check(Listener("::", 29500, None, ""))
    assert finding is not None
    assert finding.says == "port 29500 on spark-1 is held by a process of another user"
    assert finding.advice == "stop that process, or choose another `rendezvous_port`"
