"""How many threads this process may use."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

from ..errors import ConfigError

__all__ = ["default_threads"]

_CGROUPS = Path("/sys/fs/cgroup")


def default_threads() -> int:
    """ZENITH_NUM_THREADS, else the CPUs that this process may run on, at most its cgroup's quota.

    Raises
    ------
    ConfigError
        If ZENITH_NUM_THREADS is not a positive number.
    """
    text = os.environ.get("ZENITH_NUM_THREADS", "").strip()
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise ConfigError(f"ZENITH_NUM_THREADS must be a positive number, got {text!r}")
        return int(text)
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(count, cgroup_limit(_CGROUPS, _own_cgroup()) or count))


def _own_cgroup() -> str:
    """This process's cgroup below the mount point (version 2), "" for the root."""
    try:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return line[3:].strip("/")
    except OSError:
        pass
    return ""


def cgroup_limit(root: Path, own: str = "") -> int | None:
    """CPUs that a cgroup's quota amounts to, rounded up; None where there is no quota.

    Parameters
    ----------
    root : where cgroups are mounted; version 2 (cpu.max) or version 1 (cpu/cpu.cfs_quota_us).
    own : this process's group below it; the quotas of its parents hold too.
    """
    limits = []
    folder = root / own
    while True:
        limits.append(_quota(folder / "cpu.max"))
        if folder == root:
            break
        folder = folder.parent
    for name in ("cpu", "cpu,cpuacct"):
        v1 = root / name
        limits.append(_quota(v1 / "cpu.cfs_quota_us", v1 / "cpu.cfs_period_us"))
    found = [limit for limit in limits if limit is not None]
    return max(1, ceil(min(found))) if found else None


def _quota(*files: Path) -> float | None:
    """Quota / period, from one file with both or one file each."""
    try:
        quota, period = " ".join(file.read_text().strip() for file in files).split()
        return float(quota) / float(period) if quota != "max" and float(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
