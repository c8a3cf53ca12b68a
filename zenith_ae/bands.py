"""Work on large arrays in bands of rows that stay in a core's cache, by several threads.

numpy makes an array for each step of a formula. Of a whole picture each is as large as that, and has to come
from memory again in the next step, which takes longer than the step.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_bands"]

T = TypeVar("T")

# A few arrays of so many floats fit into the second level cache of any core.
_VALUES = 2**17
# For fewer bands than so many it is not worth to start a thread.
_LEAST_BANDS = 8


def in_bands(work: Callable[[slice], T], rows: int, row_values: int, threads: int = 1) -> list[T]:
    """What ``work`` makes of one band after the other of ``rows``, each of about ``row_values`` values.

    Bands are worked on in any order, by up to ``threads`` threads, this one among them; by it alone where no
    other can be had, as when the program is about to end. numpy releases the interpreter's lock, so that they
    run at the same time.
    """
    step = max(1, _VALUES // max(1, row_values))
    bands = [slice(first, min(first + step, rows)) for first in range(0, rows, step)]
    todo: deque[slice] = deque(bands)
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def help_out() -> None:
        try:
            while band := _next(todo):
                results[band.start] = work(band)
        except BaseException as error:
            errors.append(error)
            todo.clear()

    helpers = []
    try:
        for _ in range(min(threads, len(bands) // _LEAST_BANDS) - 1):
            helper = threading.Thread(target=help_out)
            helper.start()
            helpers.append(helper)
    except RuntimeError:  # no more threads
        pass
    help_out()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
    return [results[band.start] for band in bands]


def _next(todo: deque[slice]) -> slice | None:
    try:
        return todo.popleft()
    except IndexError:
        return None
