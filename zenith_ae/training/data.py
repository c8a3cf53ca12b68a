"""Pictures for training: folders and tar packs in memory, random crops, a resumable prefetcher.

Training pictures are few and small next to the time spent on them, so a pool decodes each of
them once and keeps uint8 pixels; a batch is then a handful of slices. Everything random comes
from the generator handed in, and a `Prefetcher` gives batch ``i`` the generator
``default_rng((seed, i))``: a run resumed at step i sees what the uninterrupted run saw.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tarfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, TypeVar
from zlib import crc32

import numpy as np
from PIL import Image

from ..batches import orient, to_rgb
from ..errors import ImageError, MissingDependencyError
from ..files import is_device, is_passed_by, is_result, reason, say, visible
from ..images import READABLE_SUFFIXES, read_picture, to_8_bits
from . import drawings

SMALL_ONES = 4  # small drawn pictures for each drawn one: a twentieth of the crops beside 1,400 photographs
SMALLEST_SCALE = 0.5  # of reduced crops
VALIDATED = 512  # pixels a side of a picture, at most, that an autoencoder is validated with

T = TypeVar("T")
Read = Callable[[], bytes]


def decode_rgb(data: bytes) -> np.ndarray:
    """Decode an encoded picture to uint8 RGB (H, W, 3), upright; alpha is dropped.

    Raises
    ------
    ImageError
        If the data are no complete picture (`read_picture`).
    """
    picture = read_picture(data)
    return to_8_bits(to_rgb(picture.pixels[None], picture.layout))[0]


def iter_encoded(source: str | Path) -> Iterator[tuple[str, Read]]:
    """Name every picture of a folder (recursive), a .tar pack, or a single file, sorted by name.

    Results of the commands (``photo.denoised.png``) in a folder are left out, and plots of trainings.

    Yields
    ------
    (name, read)
        The path inside the source with forward slashes, and a function that returns the bytes;
        it may be called from any thread.

    Raises
    ------
    ImageError
        Where the source does not exist, is no readable tar pack, or has a folder that cannot be read.
    """
    path = Path(source)
    if path.is_dir():
        files = {file.relative_to(path).as_posix(): file for file in _pictures_below(path)}
        for name in sorted(files):
            yield name, files[name].read_bytes
    elif path.suffix.lower() == ".tar" and path.is_file():
        try:
            with tarfile.open(path, "r:") as tar:
                members = {
                    m.name: m
                    for m in tar
                    if m.isfile()
                    and Path(m.name).suffix.lower() in READABLE_SUFFIXES
                    and not _is_left_out(Path(m.name))
                }
        except (OSError, tarfile.TarError) as error:
            raise ImageError(f"{path}: not a readable uncompressed tar pack ({error})") from None
        for name in sorted(members):
            yield name, _range_reader(path, members[name].offset_data, members[name].size)
    elif path.is_file():
        yield path.name, path.read_bytes
    else:
        raise ImageError(f"{path}: no such folder, tar pack or picture")


def _pictures_below(top: Path) -> Iterator[Path]:
    """The pictures in a folder and in those below, but for what is left out."""

    def refuse(error: OSError) -> None:
        raise ImageError(f"{error.filename}: this folder cannot be read: {reason(error)}")

    for folder, folders, names in os.walk(top, onerror=refuse):
        folders[:] = [name for name in folders if not is_passed_by(name)]
        for file in (Path(folder, name) for name in names if not name.startswith(".")):
            known = file.suffix.lower() in READABLE_SUFFIXES
            # A broken link is taken: whoever reads it, says so.
            if known and not (is_result(file) or _is_plot(file) or is_device(file)):
                yield file


def _is_left_out(path: Path) -> bool:
    """Whether a file is hidden, or a folder on the way to it is passed by."""
    return path.name.startswith(".") or any(map(is_passed_by, path.parts[:-1]))


def _is_plot(path: Path) -> bool:
    """Whether a file is what a training drew of its log, where its folder is among the pictures."""
    return path.name == "log.png" and path.with_name("log.jsonl").exists()


def _range_reader(path: Path, offset: int, size: int) -> Read:
    def read() -> bytes:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)

    return read


class ImagePool(Sequence[np.ndarray]):
    """Pictures decoded to uint8 RGB (H, W, 3) and held in memory, with their names.

    Parameters
    ----------
    sources
        Folders (searched recursively), uncompressed .tar packs or single files.
    drawn
        Add this many drawn pictures (`zenith_ae.training.drawings`), and `SMALL_ONES` as many small ones.
    smallest
        Leave out pictures with a shorter side, in pixels.

    Attributes
    ----------
    names : list of str
        Path of each picture inside its source.
    indices : list of int
        Where each picture is in the pool that it was split off from, which had all of them.
    skipped : dict of str
        Names of the files that looked like pictures but could not be decoded, or are too small, and why.

    Raises
    ------
    ImageError
        Where a source does not exist, or nothing in the sources can be decoded.
    """

    def __init__(
        self,
        sources: Sequence[str | Path] | str | Path,
        drawn: int = 0,
        smallest: int = 1,
    ) -> None:
        if isinstance(sources, (str, Path)):
            sources = [sources]
        entries = [entry for source in sources for entry in iter_encoded(source)]
        self.images: list[np.ndarray] = []
        self.names: list[str] = []
        self.skipped: dict[str, str] = {}
        # Pillow's decoders release the GIL, so threads are enough.
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as executor:
            for (name, _), image in zip(entries, executor.map(_try_decode, entries), strict=True):
                if isinstance(image, str):
                    self.skipped[name] = image
                elif min(image.shape[:2]) < smallest:
                    self.skipped[name] = f"a side below {smallest} pixels"
                else:
                    self.names.append(name)
                    self.images.append(image)
        if not self.images:
            listed = ", ".join(str(source) for source in sources)
            why = f"{len(self.skipped)} could not be decoded" if entries else "no file has the ending of one"
            if entries and smallest > 1:
                why += f" or have a side below {smallest} pixels"
            raise ImageError(f"{listed}: no usable picture ({why})")
        self.images += [drawings.draw(i) for i in range(drawn)]
        self.names += [f"{drawings.PREFIX}{i:05}" for i in range(drawn)]
        self.images += [drawings.draw_small(i) for i in range(SMALL_ONES * drawn)]
        self.names += [f"{drawings.PREFIX}small{i:05}" for i in range(SMALL_ONES * drawn)]
        self.indices = list(range(len(self.images)))
        self._drawn = (1 + SMALL_ONES) * drawn  # of the last ones
        self._index()

    def _index(self) -> None:
        areas = np.array([image.shape[0] * image.shape[1] for image in self.images], dtype=np.float64)
        self._cumulative = np.cumsum(areas) / areas.sum() if len(areas) else areas

    def _subset(self, indices: Sequence[int]) -> ImagePool:
        pool = object.__new__(ImagePool)
        pool.images = [self.images[i] for i in indices]
        pool.names = [self.names[i] for i in indices]
        pool.indices = [self.indices[i] for i in indices]
        pool.skipped = {}
        pool._drawn = sum(i >= len(self) - self._drawn for i in indices)
        pool._index()
        return pool

    def photographs(self) -> ImagePool:
        """The pool without its drawn pictures."""
        return self._subset(range(len(self) - self._drawn))

    def drawings(self) -> ImagePool:
        """The pool's drawn pictures."""
        return self._subset(range(len(self) - self._drawn, len(self)))

    def are_drawn(self, indices: np.ndarray) -> np.ndarray:
        """Which of the pictures at ``indices`` are drawn ones, boolean of the same shape."""
        return indices >= len(self) - self._drawn

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> Any:
        return self.images[index]

    def split(self, validation: int = 16, seed: int = 0) -> tuple[ImagePool, ImagePool]:
        """Split off a validation pool by a hash of each name: the same pictures every time.

        Drawn pictures are for training only, and copies of pictures that are split off for neither.
        Adding pictures moves only those that the newcomers displace; neither the order of the sources nor
        how often each is given matters.
        """
        prints = [_fingerprint(image) for image in self.images]
        real = range(len(self) - self._drawn)
        if not 0 <= validation < len(real):
            left_out = f" ({len(self.skipped)} files are none or too small)" if self.skipped else ""
            raise ImageError(
                f"{validation} pictures are kept for validation, so more are needed; "
                f"there are {len(real)}{left_out}"
            )

        def place(i: int) -> tuple[Any, ...]:  # files of different sources may have one name
            name = f"{seed}:{self.names[i]}".encode("utf-8", "surrogateescape")  # it need not be text
            return hashlib.sha256(name).digest(), prints[i]

        first: dict[Any, int] = {}  # of the copies of each picture
        for i in sorted(real, key=place):
            first.setdefault(prints[i], i)
        chosen = dict(islice(first.items(), validation))
        rest = [i for i in range(len(self)) if prints[i] not in chosen]
        if not rest:
            raise ImageError(
                f"all pictures are copies of the {validation} kept for validation; more are needed"
            )
        return self._subset(rest), self._subset([*chosen.values()])

    def pick(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Indices (count,) of random pictures, each pixel of the pool equally likely."""
        index = np.searchsorted(self._cumulative, rng.random(count), side="right")
        return np.minimum(index, len(self) - 1)


def load_pool(sources: Sequence[str], drawn: int = 0, smallest: int = 1) -> ImagePool:
    """An `ImagePool` for a training, which says on stderr how many files were left out."""
    pool = ImagePool([Path(source) for source in sources], drawn=drawn, smallest=smallest)
    if pool.skipped:
        count = len(pool) - pool._drawn + len(pool.skipped)
        name, why = next(iter(pool.skipped.items()))
        say(
            f"{len(pool.skipped)} of {count} files are no usable pictures or too small and left out, "
            f"such as {visible(name)}: {' '.join(why.split())}"
        )
    return pool


def _fingerprint(picture: np.ndarray) -> tuple[tuple[int, ...], int]:
    return picture.shape, crc32(picture.tobytes())


def _try_decode(entry: tuple[str, Read]) -> np.ndarray | str:
    """The picture, or why there is none."""
    try:
        return decode_rgb(entry[1]())
    except (ImageError, MissingDependencyError, OSError) as error:
        return str(error).removeprefix("<bytes>: ")


def middle(cells: tuple[int, ...], most: int, size: int = 1) -> tuple[slice, ...]:
    """Rows and columns of the middle of so many cells (h, w), at most ``most`` each, of ``size`` pixels each.

    There recipes validate: what a training costs is not to depend on how large pictures are.
    """
    lengths = [min(n, most) for n in cells]
    firsts = [(n - length) // 2 for n, length in zip(cells, lengths, strict=True)]
    return tuple(slice(size * a, size * (a + length)) for a, length in zip(firsts, lengths, strict=True))


def random_crops(
    pool: ImagePool,
    rng: np.random.Generator,
    count: int,
    size: int,
    *,
    scale_probability: float = 0.0,
    augment: bool = True,
    chosen: np.ndarray | None = None,
) -> np.ndarray:
    """Random square crops.

    Parameters
    ----------
    pool, rng
        Where pictures and randomness come from; a picture is chosen with its area as weight.
    count, size
        Number and side of the crops.
    scale_probability
        With this probability a crop is taken larger, by up to 1 / `SMALLEST_SCALE`, and reduced
        with a Lanczos filter: other scales of the world, and cleaner than the file, since
        reduction averages its compression artefacts away.
    augment
        Apply one of the 8 symmetries of the square to each crop.
    chosen
        Indices (count,) of the pictures, as `ImagePool.pick` gives them by default.

    Returns
    -------
    numpy.ndarray
        uint8 (count, size, size, 3). A picture smaller than the crop is continued by reflection.
    """
    if count < 1 or size < 1:
        raise ValueError(f"count and size must be positive, got {count}, {size}")
    crops = np.empty((count, size, size, 3), np.uint8)
    for k, index in enumerate(pool.pick(rng, count) if chosen is None else chosen):
        image = pool[index]
        side = size
        if scale_probability and rng.random() < scale_probability:
            side = max(size, min(round(size / rng.uniform(SMALLEST_SCALE, 1)), *image.shape[:2]))
        pad = [max(0, side - n) for n in image.shape[:2]]
        if any(pad):
            image = np.pad(image, ((0, pad[0]), (0, pad[1]), (0, 0)), mode="reflect")
        top, left = (int(rng.integers(n - side + 1)) for n in image.shape[:2])
        crop = image[top : top + side, left : left + side]
        if side != size:
            reduced = Image.fromarray(crop).resize((size, size), Image.Resampling.LANCZOS)
            crop = np.asarray(reduced)
        crops[k] = orient(crop, int(rng.integers(8))) if augment else crop
    return crops


@dataclass(frozen=True)
class _BatchMaker(Generic[T]):
    make_batch: Callable[[np.random.Generator], T]
    seed: tuple[int, ...]

    def __call__(self, index: int) -> T:
        return self.make_batch(np.random.default_rng((*self.seed, index)))


_worker: _BatchMaker | None = None  # of this process, where it is a Prefetcher's


def _become_worker(maker: _BatchMaker) -> None:
    global _worker
    _worker = maker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """Ends this process when its parent is gone, killed: a pool of pictures takes up gigabytes."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _make_in_worker(index: int) -> Any:
    assert _worker is not None
    return _worker(index)


class Prefetcher(Generic[T]):
    """Batches made ahead of time in background threads or processes, in a fixed order.

    Parameters
    ----------
    make_batch
        Makes a batch from a generator; called in a worker, so it must not change shared
        state. Batch i is ``make_batch(numpy.random.default_rng((*seed, i)))``: it depends on
        neither the batches before it nor the number of workers.
    seed, start_step
        The seed of the run (a number or several) and the index of the first batch (where a resumed
        run continues).
    workers
        Their number; as many batches and two more are prepared beforehand.
    processes
        The workers are processes, forked from this one, so that they share the pictures' memory: a
        GPU is faster than one Python interpreter makes batches. Elsewhere threads.

    Attributes
    ----------
    step : int
        Index of the batch that the next ``next()`` returns.

    An exception inside ``make_batch`` is raised by the ``next()`` that would have returned the
    batch, and by every later one. A worker process that is killed costs the processes, not the batches:
    threads make them from then on. Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        make_batch: Callable[[np.random.Generator], T],
        seed: int | tuple[int, ...],
        start_step: int = 0,
        workers: int = 1,
        processes: bool = False,
    ) -> None:
        self._maker = _BatchMaker(make_batch, (seed,) if isinstance(seed, int) else seed)
        self._workers = workers
        self._executor: Executor
        self._make: Callable[[int], T]
        if processes and sys.platform != "darwin":  # where a fork of what has used BLAS may hang
            # What a forked process is given at its start is inherited, not pickled.
            self._executor = ProcessPoolExecutor(
                workers, mp_context=get_context("fork"), initializer=_become_worker, initargs=(self._maker,)
            )
            self._make = _make_in_worker
        else:
            self._use_threads()
        self._pending: deque[Future[T]] = deque()
        self.step = start_step

    def _use_threads(self) -> None:
        self._executor = ThreadPoolExecutor(self._workers, thread_name_prefix="zenith-batch")
        self._make = self._maker

    def __iter__(self) -> Prefetcher[T]:
        return self

    def __next__(self) -> T:
        try:
            return self._next()
        except BrokenProcessPool:  # out of memory, or a signal to all processes, which the trainer minds
            say("a process that makes batches was killed: threads make them now")
            self.close()
            self._use_threads()
            return self._next()

    def _next(self) -> T:
        while len(self._pending) < self._workers + 2:
            self._pending.append(self._executor.submit(self._make, self.step + len(self._pending)))
        batch = self._pending[0].result()
        self._pending.popleft()
        self.step += 1
        return batch

    def close(self) -> None:
        """Drop the prepared batches and wait for the workers to end; calling it again is harmless."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._pending.clear()

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
