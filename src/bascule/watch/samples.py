"""What is counted of a rank at one moment: the raw material of every verdict on whether a start moves (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Counters only grow while a rank lives; gauges go up and down. Names are columns of the CSV that evidence keeps.
COUNTERS = ("log_bytes", "cpu_s", "read_bytes", "written_bytes", "net_rx_bytes", "net_tx_bytes", "rdma_bytes")
REQUESTS = ("requests", "request_since")  # that wait at the head's API, and when the first came by the watcher's clock
GAUGES = (  # where `paused` is told, `stopped` are all processes of the container
    "memory_bytes",
    "gpu_bytes",
    "gpu_percent",
    "gpu_watts",
    "cache_bytes",
    "processes",
    "compilers",
    "stopped",
    "paused",
    "runnable",
    *REQUESTS,
)


@dataclass(frozen=True, slots=True)
class Socket:
    """One TCP socket of a rank's processes."""

    state: str  # LISTEN, SYN-SENT, ESTABLISHED, … as the kernel counts them
    local: str  # address:port
    remote: str  # address:port; "" of a listening one


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one rank. What could not be read is missing from `values`: never taken for zero."""

    rank: int
    at: float  # seconds of the watcher's clock
    values: Mapping[str, float]  # by the names above; bytes, seconds, percent, watts
    sockets: tuple[Socket, ...] | None = None  # None: not read at this look
    busiest: tuple[str, ...] = field(default=())  # names of the processes that used most CPU since the last look
