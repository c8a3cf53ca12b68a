"""The man page is the commands' own help, and valid roff."""

import importlib
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from zenith_ae.app.cli import cli

ROOT = Path(__file__).parents[1]


@pytest.fixture
def man_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("man_page")


def test_the_page_is_up_to_date(man_page):
    written = (ROOT / "docs" / "man" / "zenith-ae.1").read_text("utf-8")
    assert written == man_page.man_page(), "run: python benchmarks/man_page.py"


def test_a_changed_command_makes_the_page_stale(man_page, monkeypatch):
    before = man_page.man_page()
    denoise = cli.commands["denoise"]
    monkeypatch.setattr(denoise, "params", [*denoise.params, click.Option(["--new"], help="A new one.")])
    assert r"\fB\-\-new\fR" in man_page.man_page() != before


def test_every_command_and_option_is_there(man_page):
    page = man_page.man_page().replace("\\-", "-")
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert f"zenith-ae {name}" in page
        for option in command.params:
            assert option.param_type_name == "argument" or f"\\fB{option.opts[-1]}\\fR" in page, (
                name,
                option.opts,
            )


def test_text_never_becomes_a_request(man_page):
    assert man_page.protect(man_page.escape(".so secret")) == r"\&.so secret"
    assert man_page.protect(man_page.escape("'br")).startswith(r"\(aq")
    assert man_page.escape(r"a\b --c") == r"a\eb \-\-c"
    assert (
        re.search(r"^\.(?!\\\"|TH|SH|SS|PP|TP|B |I |nf|fi|RS|RE|ad|nh)", man_page.man_page(), re.MULTILINE)
        is None
    )


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_groff_has_nothing_to_complain_about(man_page):
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww"],
        input=man_page.man_page(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert "zenith-ae denoise [OPTIONS] INPUT..." in re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)
