"""What commands print: tables, numbers, notes on stderr, and streams that take every character."""

from __future__ import annotations

import argparse
import io
import math
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

_PLAIN = str.maketrans({"└": "`", "├": "|", "│": "|", "─": "-", "…": "~"})


class CommandError(Exception):
    """What a user did wrong; the message is printed, and the exit status is 2."""


def add_command(commands: Any, name: str, summary: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """The parser of a command; the description is wrapped, what comes after the options is shown as it is."""
    out: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(description, 79),
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return out


def adapt_streams() -> None:
    """Lets stdout and stderr replace characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show(text: str) -> None:
    """Prints to stdout, with lines of trees in ASCII where the encoding has no others."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = text.translate(_PLAIN)
    print(text)


def note(text: str) -> None:
    """Prints a note to stderr."""
    print(f"torsor: {text}", file=sys.stderr)


def one_line(text: str) -> str:
    """The text without line breaks and control characters."""
    return "".join(x if x.isprintable() else "?" for x in " ".join(text.split()))


def number(x: float, digits: int = 4) -> str:
    """A number as tables have it; nothing for one that is infinite, which is no limit."""
    return f"{x:.{digits}g}" if math.isfinite(x) else "-"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns side by side; those in `right` are aligned to the right."""
    all_rows = [list(head), *map(list, rows)]
    width = [max(len(row[k]) for row in all_rows) for k in range(len(head))]
    lines = []
    for row in all_rows:
        cells = [cell.rjust(w) if k in right else cell.ljust(w) for k, (cell, w) in enumerate(zip(row, width))]  # noqa: B905
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def plural(count: int, word: str, words: str | None = None) -> str:
    """'1 body', '2 bodies'."""
    return f"{count} {word if count == 1 else words or word + 's'}"
