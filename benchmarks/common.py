"""What the scripts here share: options, where the data lie, and pages of which a script writes a part."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Evaluation sets, training pictures and teachers: ``$ZENITH_SHARED``, or ../shared beside the checkout.
SHARED = Path(os.environ.get("ZENITH_SHARED", ROOT.parent / "shared"))


def script_parser(description: str | None) -> argparse.ArgumentParser:
    """For the options of a script whose docstring, as it is written, is the help."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def with_part(page: str, begin: str, end: str, text: str) -> str:
    """A page with ``text`` between two marks that it has."""
    head, rest = page.split(begin)
    return f"{head}{begin}\n\n{text}\n{end}{rest.split(end)[1]}"
