"""The command line: ``torsor info | check | simulate | view | bench | convert``.

One module to a command, each with `add(parsers)` for its arguments and `run(arguments)`, which returns the exit status.
Modules that compute are imported by `run`, so that ``torsor --help`` stays short.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

import torsor
from torsor._cli import bench, check, convert, info, simulate, view
from torsor._cli.output import CommandError, adapt_streams, one_line
from torsor._errors import TorsorError

_DESCRIPTION = "Models and motions of articulated rigid bodies, from the command line."
_EPILOG = """\
A model is a URDF or MJCF file, a file of Model.save, or a name:
  example:NAME   one that comes with torsor: example:humanoid, example:chain:10,
                 also acrobot, arm7, pendulum, quadruped, tree:DEPTH:BRANCHING
  robot:NAME     one of the package robot_descriptions: robot:anymal_c

examples:
  torsor info robot.urdf
  torsor check robot.urdf
  torsor simulate example:quadruped -T 1 --ground -o motion.npz
  torsor view motion.npz

exit status: 0 success; 1 problems were found (check), or a simulation could not
be finished; 2 wrong arguments, or a file that cannot be read or written; 130
interrupted.

'torsor COMMAND --help' says more about a command."""

_TOLD = (CommandError, TorsorError, OSError, ValueError, KeyError, ImportError, MemoryError, ArithmeticError)


class _Parser(argparse.ArgumentParser):
    """Errors in one line, and no abbreviations of options, which would keep new ones from being added."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {one_line(message)}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    whole = _Parser(
        prog="torsor",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"torsor {torsor.__version__}")
    commands = whole.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for module in (info, check, simulate, view, bench, convert):
        module.add(commands)
    return whole


def _joined(argv: Sequence[str]) -> list[str]:
    """The arguments, with lists that begin with a negative number joined to their options, which argparse asks for."""
    out: list[str] = []
    for word in argv:
        if re.match(r"-[\d.][^,]*,", word) and out and re.fullmatch(r"--[\w-]+", out[-1]):
            out[-1] += f"={word}"
        else:
            out.append(word)
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments after the name of the program; those of the process by default.

    Returns
    -------
    int
        The exit status.
    """
    adapt_streams()
    whole = parser()
    try:
        arguments = whole.parse_args(_joined(sys.argv[1:] if argv is None else argv))
        if arguments.command is None:
            whole.print_help(sys.stderr)
            return 2
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except SystemExit as end:  # of argparse
        return end.code if isinstance(end.code, int) else 2
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except _TOLD as error:
        print(f"torsor: error: {_told(error)}", file=sys.stderr)
        return 2


def _told(error: BaseException) -> str:
    """What an error says, in one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return one_line(f"{error.filename}: {error.strerror}")
    if isinstance(error, KeyError) and error.args:  # whose text is a repr
        return one_line(str(error.args[0]))
    if isinstance(error, MemoryError):
        return one_line(f"not enough memory: {error}")
    return one_line(str(error)) or type(error).__name__
