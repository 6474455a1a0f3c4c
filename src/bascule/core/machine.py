"""What a machine has and is, as read from it once: GPUs, links, disks, its container engine; frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

LinkKind = Literal["ethernet", "infiniband", "wifi", "bridge", "virtual", "tunnel", "loopback", "other"]


@dataclass(frozen=True, slots=True)
class Address:
    """One IPv4 address of a node and the interface that carries it."""

    interface: str
    ip: str
    prefix: int  # network bits


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; what the driver does not tell is None."""

    index: int
    name: str
    sm: str | None = None  # compute capability as compilers name it: sm_90, sm_121
    memory_bytes: int | None = None  # None: unified with the machine's own (GB10), or not told
    memory_free_bytes: int | None = None
    uuid: str = ""
    mig: bool = False  # cut into instances


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    gpu_uuid: str
    pid: int
    name: str
    memory_bytes: int | None  # None: not told
    rank: str | None = None  # of bascule's own that it belongs to; "" = none of them; None: can't be told


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface, whatever addresses it has."""

    name: str
    kind: LinkKind = "other"
    up: bool = True  # it has a carrier
    mtu: int | None = None  # bytes
    speed_mbit: int | None = None  # as the driver says; None where it says nothing


@dataclass(frozen=True, slots=True)
class Gid:
    """One usable row of an RDMA port's GID table."""

    index: int
    kind: str  # "IB/RoCE v1" or "RoCE v2", as sysfs says
    ip: str  # IPv4 that is mapped into it, or the IPv6 text


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port of an RDMA device."""

    device: str  # mlx5_0, rocep1s0f0
    port: int
    active: bool
    layer: str  # Ethernet (RoCE) or InfiniBand
    rate_gbit: float | None
    interface: str | None  # the netdev behind it
    gids: tuple[Gid, ...] = ()


@dataclass(frozen=True, slots=True)
class Disk:
    """Free space at one place that matters."""

    what: Literal["docker", "cache", "run", "model"]  # images, the hub's model cache, run folders, one model
    path: str
    mount: str
    free_bytes: int
    source: str = ""  # what is mounted there: a device, an export, or a word such as tmpfs

    @property
    def volume(self) -> str:
        """Two places on one volume share what is free, whatever their mount points."""
        return self.source if "/" in self.source else self.mount


@dataclass(frozen=True, slots=True)
class DockerFacts:
    """The container engine of a node, docker or podman."""

    command: tuple[str, ...]  # words that work there: docker, or sudo -n docker, or podman
    version: str
    store: str  # overlay2, containerd, …: how it keeps images
    root: str  # where it keeps them
    arch: str  # as images name it: amd64, arm64
    nvidia: bool | None = None  # it can give GPUs to containers; None: not told


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was read from a node once; a field that could not be read is None and its reason is in unknown."""

    hostname: str | None = None
    os: str | None = None  # PRETTY_NAME of /etc/os-release
    kernel: str | None = None
    arch: str | None = None  # as uname -m says: x86_64, aarch64
    cores: int | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    run_dir: str | None = None  # absolute
    run_dir_free_bytes: int | None = None
    disks: tuple[Disk, ...] | None = None
    addresses: tuple[Address, ...] = ()
    interfaces: tuple[Interface, ...] | None = None
    default_interface: str | None = None  # which one the default route takes; "" = no default route
    rdma: tuple[RdmaPort, ...] | None = None  # () = none there
    own_name_ip: str | None = None  # what it resolves its own hostname to; "" = nothing
    gpus: tuple[Gpu, ...] | None = None  # () = none there
    driver: str | None = None  # of NVIDIA; "" = no GPU there
    cuda: str | None = None  # the newest that this driver runs: 13.0; "" = no GPU there
    gpu_processes: tuple[GpuProcess, ...] | None = None
    ranks: tuple[str, ...] | None = None  # service.generation.rank of bascule's own that run there
    infiniband: bool | None = None  # /dev/infiniband has a device that NCCL could open
    docker: DockerFacts | None = None  # None: unknown says why
    memlock: bool | None = None  # dockerd may let containers lock all memory
    user_memlock_bytes: int | None = None  # ulimit -l of this user; -1 = unlimited
    cgroup: int | None = None  # version 1 or 2
    python3: str | None = None  # its version; "" = none there
    clock_offset_s: float | None = None  # its clock minus ours
    clock_error_s: float | None = None  # how far off that may be, either way
    round_trip_s: float | None = None  # of one short command over an open connection; only the doctor measures it
    machine_id: str | None = None  # equal for two nodes of one machine
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def unified(self) -> bool:
        """GPU and CPU share one memory, as on GB10: its GPUs have none of their own."""
        return bool(self.gpus) and all(gpu.memory_bytes is None for gpu in self.gpus or ())

    @property
    def lacks(self) -> frozenset[str]:
        """Hardware that is known not to be there, by the words of the failure catalogue's `needs`."""
        return frozenset({"rdma"} if self.rdma == () and self.infiniband is False else ())

    @property
    def foreign_processes(self) -> tuple[GpuProcess, ...]:
        """Those that hold GPU memory and are not known to be bascule's own."""
        return tuple(one for one in self.gpu_processes or () if not one.rank)

    @property
    def sm(self) -> str:
        """The compute capability that its GPUs share, as compilers name it; "" when there is none, or not one."""
        found = {gpu.sm for gpu in self.gpus or ()}
        return found.pop() or "" if len(found) == 1 else ""
