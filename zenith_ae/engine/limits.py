"""How many threads and how much memory this process may use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from functools import cache
from math import ceil
from pathlib import Path
from typing import TypeVar

from ..errors import ConfigError, in_short

_CGROUPS = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")
_MEMORY = Path("/proc/meminfo")

#: Working memory is a SHARE-th of what is free, within these bounds in bytes.
SHARE, LEAST, MOST = 8, 384 * 2**20, 768 * 2**20

Value = TypeVar("Value")


def default_threads() -> int:
    """ZENITH_NUM_THREADS, else the CPUs that this process may run on, at most its cgroup's quota.

    Of CPUs with fast and slow cores (Apple's, many ARMs) only the fast ones count: threads have equal
    shares of a step and wait for each other at its end, so slow ones would hold the others up.

    Raises
    ------
    ConfigError
        If ZENITH_NUM_THREADS is not a positive number.
    """
    if threads := _setting("ZENITH_NUM_THREADS"):
        return threads
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    count = fast_cpus(_CPUS, affinity(0)) if affinity else _fast_cpus_of_macos() or os.cpu_count() or 1
    return max(1, min(count, cpu_quota(_CGROUPS, _own_cgroup()) or count))


def memory_budget(free: int | None = None) -> int:
    """Bytes of working memory above which a picture is cut into tiles.

    ZENITH_MEMORY in MiB, else an eighth of the memory that was free when this was first asked, at
    least 384 and at most 768 MiB, with which a picture of 8K takes less than 2 GB in all. Tiles share
    borders, which are computed for each, so smaller ones cost more time. What comes out is the same.

    Parameters
    ----------
    free : bytes that are free in another memory, a GPU's; then an eighth of these.

    Raises
    ------
    ConfigError
        If ZENITH_MEMORY is not a positive number.
    """
    if megabytes := _setting("ZENITH_MEMORY"):
        return megabytes * 2**20
    return _free_share() if free is None else free // SHARE


@cache  # plans are kept for the sizes of tiles, so these must not change with every call
def _free_share() -> int:
    free = free_memory(_MEMORY, _CGROUPS, _own_cgroup())
    return LEAST if free is None else min(max(free // SHARE, LEAST), MOST)


def _setting(name: str) -> int | None:
    text = os.environ.get(name, "").strip()
    if text and (not text.isdecimal() or len(text) > 18 or int(text) < 1):
        raise ConfigError(f"{name} must be a positive number, got {in_short(text)}")
    return int(text) if text else None


def _own_cgroup() -> str:
    """This process's cgroup below the mount point (version 2), "" for the root."""
    try:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return line[3:].strip("/")
    except OSError:
        pass
    return ""


def _least(root: Path, own: str, measure: Callable[[Path], Value | None], *also: Path) -> Value | None:
    """The least that ``measure`` finds in a cgroup, its parents up to the root, and other folders."""
    folders, folder = [root, *also], root / own
    while folder != root:
        folders.append(folder)
        folder = folder.parent
    found = [value for f in folders if (value := measure(f)) is not None]
    return min(found, default=None)  # type: ignore[type-var]


def fast_cpus(root: Path, allowed: Collection[int]) -> int:
    """How many of the ``allowed`` CPUs have at least half of the fastest one's capacity.

    Parameters
    ----------
    root : where Linux describes CPUs; it tells capacities (cpu0/cpu_capacity) where they may differ.
    """
    try:
        capacities = [int((root / f"cpu{n}" / "cpu_capacity").read_text()) for n in allowed]
    except (OSError, ValueError):
        return len(allowed)
    return sum(2 * capacity >= max(capacities) for capacity in capacities)


def _fast_cpus_of_macos() -> int | None:
    """CPUs but those of the slowest kind; None where there is one kind, or another system."""
    if sys.platform != "darwin":
        return None
    import ctypes

    def number(name: str) -> int:
        value, size = ctypes.c_int64(), ctypes.c_size_t(8)  # zeros, whose lower half may be all that is set
        system = ctypes.CDLL(None)
        failed = system.sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
        return 0 if failed else value.value

    kinds = range(number("hw.nperflevels") - 1)  # from the fastest on, without the slowest
    return sum(number(f"hw.perflevel{kind}.logicalcpu") for kind in kinds) or None


def cpu_quota(root: Path, own: str = "") -> int | None:
    """CPUs that a cgroup's quota amounts to, rounded up; None where there is no quota.

    Parameters
    ----------
    root : where cgroups are mounted; version 2 (cpu.max) or version 1 (cpu/cpu.cfs_quota_us).
    own : this process's group below it; the quotas of its parents hold too.
    """

    def quota(folder: Path) -> float | None:
        for files in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
            try:
                share, period = " ".join((folder / file).read_text().strip() for file in files).split()
                if share != "max" and float(share) > 0:
                    return float(share) / float(period)
            except (OSError, ValueError, ZeroDivisionError):
                continue
        return None

    found = _least(root, own, quota, root / "cpu", root / "cpu,cpuacct")
    return max(1, ceil(found)) if found is not None else None


def free_memory(meminfo: Path, root: Path, own: str = "") -> int | None:
    """Bytes that this process could take: the machine's, at most its cgroup's; None if nobody tells.

    Parameters
    ----------
    meminfo : Linux's /proc/meminfo. Elsewhere half of the machine's memory counts as free.
    root, own : as for `cpu_quota`; memory.max and memory.current, in version 1
        memory/memory.limit_in_bytes and memory/memory.usage_in_bytes. What is used for files that were
        read a while ago (memory.stat) counts as free: the kernel gives it up for the asking.
    """

    def left(folder: Path) -> int | None:
        for most, used, idle in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            try:
                free = int((folder / most).read_text()) - int((folder / used).read_text())
            except (OSError, ValueError):
                continue
            try:
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                free += int(stat.get(idle, 0))
            except (OSError, ValueError):
                pass
            return max(free, 0)
        return None

    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        machine = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        try:
            machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        except (AttributeError, OSError, ValueError):
            return _least(root, own, left, root / "memory")
    group = _least(root, own, left, root / "memory")
    return min(machine, _left_of_address_space(), machine if group is None else group)


def _left_of_address_space() -> int:
    """Bytes of addresses that a limit (``ulimit -v``) leaves this process; all without one."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, AttributeError, OSError, ValueError):
        return sys.maxsize
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(0, limit - used)
