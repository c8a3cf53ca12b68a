"""Work on large arrays in bands of rows that stay in a core's cache, by several threads.

numpy makes an array for each step of a formula. Of a whole picture each is as large as that, and has to come
from memory again in the next step, which takes longer than the step.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_bands"]

T = TypeVar("T")

# A few arrays of so many floats fit into the second level cache of any core.
_VALUES = 2**17
# For fewer bands than so many it is not worth to start a thread.
_LEAST_BANDS = 8


def in_bands(work: Callable[[slice], T], rows: int, row_values: int, threads: int = 1) -> list[T]:
    """What ``work`` makes of one band after the other of ``rows``, each of about ``row_values`` values.

    Bands are worked on in any order, by up to ``threads`` threads. numpy releases the interpreter's lock, so
    that they run at the same time.
    """
    step = max(1, _VALUES // max(1, row_values))
    bands = [slice(first, min(first + step, rows)) for first in range(0, rows, step)]
    workers = min(threads, len(bands) // _LEAST_BANDS)
    if workers < 2:
        return [work(band) for band in bands]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, bands))
