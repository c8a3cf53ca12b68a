"""The pages of docs/guide do what they say: their commands run here, and print what is shown.

Blocks in ``sh`` and ``python`` run in order in a fresh folder with the files of `prepare`; a block
after a comment ``<!-- not run: why -->`` does not, and one after ``<!-- needs: module -->`` only where
the module is installed. A ``text`` block is the output of the block before it. Numbers may differ, since
machines do; noise levels a little, since they are those of today's weights. ``python tests/test_guide.py``
writes today's outputs into the pages.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import zenith_ae
from zenith_ae.images import Picture

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "guide").glob("*.md"))
_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[a-z ]+): (?P<why>[^\n]*) -->\n)?"
    r"^```(?P<language>\w+)\n(?P<code>.*?)^```$(?P<gap>\n*)(?:^```text\n(?P<shown>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    shown: str | None  # the output on the page
    mark: str | None
    why: str | None
    span: tuple[int, int]  # of the output in the page's text

    @property
    def runs(self) -> bool:
        if self.language not in ("sh", "python") or self.mark == "not run":
            return False
        return self.mark != "needs" or importlib.util.find_spec(str(self.why)) is not None


def blocks(text: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(text):
        if match["mark"] not in (None, "not run", "needs"):
            raise ValueError(f"unknown mark: {match['mark']}")
        block = Block(
            match["language"], match["code"], match["shown"], match["mark"], match["why"], match.span("shown")
        )
        found.append(block)
    return found


def prepare(folder: Path) -> None:
    """The files that the pages speak of: small pieces of the examples."""
    (folder / "photos" / "holiday").mkdir(parents=True)
    box = (100, 40, 356, 232)
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "a camera", 1
    with Image.open(ROOT / "examples" / "cat.png") as cat:
        cat.crop(box).save(folder / "photos" / "cat.png")
    with Image.open(ROOT / "examples" / "coffee.jpg") as coffee:
        piece = coffee.crop(box)
        for name in ("photos/holiday/coffee.jpg", "photo.jpg"):
            piece.save(folder / name, quality=92, exif=exif)
    with Image.open(ROOT / "examples" / "cat.clean.png") as cat:
        clean = np.asarray(cat.crop(box), np.float64) * 257
    noisy = clean + np.random.default_rng(0).normal(0, 20 * 257, clean.shape)
    deep = np.clip(noisy, 0, 65535).astype(np.uint16)
    Image.fromarray(deep[..., 1]).save(folder / "scan.tif", dpi=(300, 300))
    zenith_ae.write_picture(Picture(deep, "RGB", "RGB"), folder / "slide.tif")


def run_page(text: str, folder: Path) -> list[tuple[Block, str]]:
    """Each block that runs, with what it printed.

    Raises
    ------
    AssertionError
        If one ends with an error.
    """
    prepare(folder)
    programs = folder / ".bin"
    programs.mkdir()
    for name, command in {"zenith-ae": "-m zenith_ae", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (programs / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    names: dict[str, object] = {"__name__": "__main__"}
    results = []
    before = Path.cwd()
    os.chdir(folder)
    try:
        for block in blocks(text):
            if not block.runs:
                continue
            if block.language == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(block.code, "<page>", "exec"), names)
                results.append((block, printed.getvalue()))
                continue
            done = subprocess.run(
                ["bash", "-e", "-c", block.code], env=environment, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{block.code}\nended with {done.returncode}:\n{done.stdout}"
            results.append((block, done.stdout))
    finally:
        os.chdir(before)
    return results


def form(output: str) -> str:
    """What must be equal: all but numbers, hashes and the spaces that line them up."""
    without = re.sub(r"\b[0-9a-f]{16}\b|\d+(\.\d+)?(e[-+]\d+)?", "#", output)
    return "\n".join(" ".join(line.split()) for line in without.strip().splitlines())


def levels(output: str) -> list[float]:
    """The noise levels that an output tells: numbers with a fraction that lines end with."""
    return [float(level) for level in re.findall(r"\b(\d+\.\d+)\)?$", output, re.MULTILINE)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page, tmp_path):
    text = page.read_text("utf-8")
    for block, printed in run_page(text, tmp_path):
        if block.shown is not None:
            what = f"{page.name}:\n{block.code}\nprints:\n{printed}"
            assert form(printed) == form(block.shown), what
            assert levels(printed) == pytest.approx(levels(block.shown), rel=0.03), what


def test_most_blocks_run_and_each_that_does_not_says_why():
    every = [block for page in PAGES for block in blocks(page.read_text("utf-8"))]
    code = [block for block in every if block.language in ("sh", "python")]
    assert len(code) > 20
    still = [block for block in code if block.mark == "not run"]
    assert len(still) < len(code) / 3
    assert all(block.why for block in still)


def test_a_wrong_page_is_noticed(tmp_path):
    page = "```sh\necho one 1\n```\n\n```text\none 2\n```\n```python\nprint('x')\n```\n```text\ny\n```\n"
    (number, first), (word, second) = run_page(page, tmp_path)
    assert form(first) == form(number.shown)  # a number may differ
    assert levels("a.png -> b.png  (sigma 13.5)\ndone a.png 20.11\n0.42 s\n7 of 8\n") == [13.5, 20.11]
    assert form(second) != form(word.shown)
    with pytest.raises(AssertionError, match="ended with 3"):
        run_page("```sh\nexit 3\n```\n", tmp_path / "again")


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target, anchor in re.findall(
            r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text("utf-8")
        ):
            file = (page.parent / target).resolve() if target else page
            assert file.exists(), f"{page.name}: {target}"
            if anchor and file.suffix == ".md":
                titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
                slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
                assert anchor in slugs, f"{page.name}: {target}#{anchor}"


def test_the_gallery_is_whole_and_light():
    folder = ROOT / "docs" / "images" / "gallery"
    shown = re.findall(r"\]\(images/gallery/([^)]+)\)", (ROOT / "docs" / "gallery.md").read_text("utf-8"))
    assert sorted(shown) == sorted(path.name for path in folder.iterdir())
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_500_000


def record(names: list[str]) -> None:
    """Write what the blocks print today into the pages (of these names; all if none)."""
    for page in (page for page in PAGES if not names or page.stem in names):
        text = page.read_text("utf-8")
        with tempfile.TemporaryDirectory() as folder:
            results = run_page(text, Path(folder))
        for block, printed in reversed(results):
            if block.shown is not None:
                start, stop = block.span
                lines = [line.rstrip() for line in printed.strip().splitlines()]
                text = text[:start] + "".join(f"{line}\n" for line in lines) + text[stop:]
        page.write_text(text, "utf-8")
        print(page.relative_to(ROOT), len(results), "blocks")


if __name__ == "__main__":
    record(sys.argv[1:])
