"""Write docs/man/zenith-ae.1 from the commands' own help: ``python benchmarks/man_page.py``.

One page holds all commands. It is the same with every version of click, which words its own help a little
differently from one to the next. A test fails where the page is stale. With ``--check`` nothing is written
and the exit code says whether the page is up to date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from common import script_parser

from zenith_ae import __version__
from zenith_ae.app.cli import cli

PAGE = Path(__file__).parents[1] / "docs" / "man" / "zenith-ae.1"

ENVIRONMENT = {
    "ZENITH_NUM_THREADS": "Number of CPU threads; by default the CPUs that the process may use.",
    "ZENITH_MEMORY": "Working memory in MiB above which pictures are cut into tiles; by default an eighth of "
    "the free memory, 384 to 768.",
    "ZENITH_ISA": "Level of the kernels, one of those that `zenith-ae doctor` lists.",
    "ZENITH_MAX_PIXELS": "Largest picture that is read, by default 2^28 pixels.",
    "ZENITH_DEBUG": "When set, unexpected errors and pictures that a decoder gave up on show a traceback.",
}
EXIT_STATUS = {
    "0": "Everything is done, or was skipped because it exists.",
    "1": "Something failed; the rest was still done.",
    "2": "Wrong usage; nothing was done.",
    "129": "The terminal was closed.",
    "130": "Interrupted (Ctrl-C).",
    "143": "Terminated.",
}


def man_page() -> str:
    """The page as roff with the man macros."""
    summary, description, examples = sections(cli.help or "")
    lines = [
        '.\\" Written by benchmarks/man_page.py; do not edit.',
        f'.TH ZENITH\\-AE 1 "" "zenith\\-ae {__version__}" "User Commands"',
        ".nh",  # no word of an option is broken
        ".ad l",
        ".SH NAME",
        f"zenith\\-ae \\- {escape(summary[0].lower() + summary[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        r".B zenith\-ae",
        r".I COMMAND",
        r"[\fIOPTION\fR]... [\fIINPUT\fR]...",
        ".SH DESCRIPTION",
        *paragraphs([summary, *description]),
        *paragraphs(["Each command has the option --help; zenith-ae --version prints the version."]),
    ]
    if examples:
        lines += [".SH EXAMPLES", *verbatim(examples)]
    lines.append(".SH COMMANDS")
    context = click.Context(cli, info_name="zenith-ae")
    for name in cli.list_commands(context):
        lines += command_section(cli.get_command(context, name), f"zenith-ae {name}", context)
    for title, entries in (("ENVIRONMENT", ENVIRONMENT), ("EXIT STATUS", EXIT_STATUS)):
        lines.append(f".SH {title}")
        for term, text in entries.items():
            lines += [".TP", rf"\fB{escape(term)}\fR", protect(escape(text))]
    return "\n".join(lines) + "\n"


def command_section(command: click.Command | None, name: str, parent: click.Context) -> Iterator[str]:
    """A command with its arguments, help, options and examples; a group's commands after it."""
    assert command is not None
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from command_section(command.get_command(context, inner), f"{name} {inner}", context)
        return
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    arguments = [p.metavar or p.human_readable_name for p in command.params if isinstance(p, click.Argument)]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(str, arguments)])
    yield f'.SS "{escape(usage)}"'
    summary, description, examples = sections(command.help or "")
    yield from paragraphs([summary, *description])
    for option in options:
        yield ".TP"
        yield option_heading(option)
        text = (option.help or "").rstrip()
        if option.show_default and option.default is not None and not option.is_flag:
            text += f" [default: {option.default}]"
        yield protect(escape(text.strip() or "-"))
    if examples:
        yield ".PP"
        yield "Examples:"
        yield from verbatim(examples)


def option_heading(option: click.Option) -> str:
    r"""``\fB\-o\fR, \fB\-\-output\fR \fIFILE\fR``."""
    names = [f"\\fB{escape(name)}\\fR" for name in option.opts]
    heading = ", ".join(names)
    if option.secondary_opts:
        heading += " / " + ", ".join(f"\\fB{escape(name)}\\fR" for name in option.secondary_opts)
    if not option.is_flag:
        heading += f" \\fI{escape(metavar(option))}\\fR"
    return heading


def metavar(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    kind = option.type
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        return "N"
    if isinstance(kind, click.Path | click.File):
        return "PATH"
    return kind.name if "|" in kind.name else kind.name.upper()


def sections(text: str) -> tuple[str, list[str], list[str]]:
    """Help as (first paragraph, further paragraphs, lines of the examples)."""
    plain, examples = [], []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            title, *lines = paragraph.removeprefix("\b").strip("\n").splitlines()
            if not re.fullmatch(r"Examples?:", title.strip()):
                raise ValueError(f"what is this block of a help text? {title!r}")
            examples += lines
        elif paragraph.strip():
            plain.append(" ".join(paragraph.split()))
    return plain[0], plain[1:], examples


def paragraphs(texts: list[str]) -> Iterator[str]:
    for text in texts:
        yield ".PP"
        yield protect(escape(text))


def verbatim(lines: list[str]) -> Iterator[str]:
    yield ".PP"
    yield ".nf"
    yield ".RS 4"
    for line in lines:
        yield protect(escape(line.strip()))
    yield ".RE"
    yield ".fi"


def escape(text: str) -> str:
    """Text as roff: hyphens stay what they are, since options are copied from the page."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    text = text.replace('"', r"\(dq").replace("'", r"\(aq").replace("`", r"\(ga").replace("^", r"\(ha")
    return text.replace("~", r"\(ti")


def protect(line: str) -> str:
    """A line that begins with a dot is no request."""
    return rf"\&{line}" if line.startswith((".", "'")) else line


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if out of date")
    options = parser.parse_args()
    fresh = man_page()
    if options.check:
        stale = fresh != PAGE.read_text("utf-8")
        sys.exit("docs/man/zenith-ae.1 is out of date: run python benchmarks/man_page.py" if stale else 0)
    PAGE.write_text(fresh, "utf-8")


if __name__ == "__main__":
    main()
