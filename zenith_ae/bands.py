"""Work on large arrays in bands of rows that stay in a core's cache."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["bands"]

# A few arrays of so many floats fit into the second level cache of any core.
_VALUES = 2**17


def bands(rows: int, row_values: int) -> Iterator[slice]:
    """Slices of ``rows``, each of which has about ``row_values`` values.

    numpy makes an array for each step of a formula. Of a whole picture each is as large as that, and has to
    come from memory again in the next step, which takes longer than the step. Several threads of Python gain
    nothing here: steps are so short that they wait for the interpreter's lock.
    """
    step = max(1, _VALUES // max(1, row_values))
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))
