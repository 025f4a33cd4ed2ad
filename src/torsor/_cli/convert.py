"""``torsor convert``: models in other formats."""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torsor._cli.output import CommandError, add_command, note, one_line
from torsor._cli.sources import add_model_argument, kind_by_suffix, load, tell_left_out
from torsor._errors import FormatError, FormatWarning, ModelError

if TYPE_CHECKING:
    from torsor.model import Model

_EXAMPLES = """\
formats, by the ending of OUT or by --to:
  .urdf            URDF
  .xml, .mjcf      MJCF, of MuJoCo
  .json, .torsor   torsor's own, which loses nothing

examples:
  torsor convert robot.urdf robot.xml
  torsor convert scene.xml robot.urdf --lossy
  torsor convert example:arm7 - --to urdf       to stdout"""
_FORMATS = {"urdf": "URDF", "mjcf": "MJCF", "torsor": "torsor"}


def add(commands: Any) -> None:
    """The arguments of the command."""
    parser = add_command(
        commands,
        "convert",
        "write a model in another format: URDF, MJCF, or torsor's own",
        "Writes a model in another format. What the format cannot carry is an error that names all of it; "
        "with --lossy it is left out, and named on stderr.",
        _EXAMPLES,
    )
    add_model_argument(parser)
    parser.add_argument("out", metavar="OUT", help="the file to write; - for stdout")
    parser.add_argument("--to", choices=[*_FORMATS], help="the format, if the ending of OUT does not say it")
    parser.add_argument("--lossy", action="store_true", help="leave out what cannot be read, or not be written")
    parser.add_argument("--quiet", action="store_true", help="do not name what is left out")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Converts."""
    out = None if arguments.out == "-" else Path(arguments.out)
    kind = _FORMATS[arguments.to] if arguments.to else None if out is None else kind_by_suffix(out)
    if kind is None or kind not in _FORMATS.values():
        end = "stdout" if out is None else f"{out.suffix!r}" if out.suffix else "a name without an ending"
        raise CommandError(f"{end} is no format: end OUT in .urdf, .xml or .json, or give --to {{urdf,mjcf,torsor}}")
    try:
        loaded = load(arguments.file, arguments.root, lenient=arguments.lossy)
    except FormatError as error:
        raise CommandError(_advised(error)) from error
    if not arguments.quiet:
        tell_left_out(loaded)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FormatWarning)
        try:
            text = _written(loaded.model, kind, arguments.lossy)
        except ModelError as error:
            always = "; joints and bodies are never left out" if arguments.lossy else ""
            raise CommandError(_advised(error) + always) from error
    for warning in caught if not arguments.quiet else ():
        note(one_line(str(warning.message)))
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")
    return 0


def _advised(error: ModelError) -> str:
    """The message, with the option of the command line in place of those of the functions."""
    text = one_line(str(error))
    return re.sub(r"(; |, or )pass (unsupported|unphysical|inertia)=.*$", r"\1give --lossy to go on without", text)


def _written(model: Model, kind: str, lossy: bool) -> str:
    """The text of a file."""
    if kind == "torsor":
        from torsor.saving import to_text

        return to_text(model) + "\n"
    if kind == "URDF":
        from torsor.formats.urdf_writer import to_urdf

        return to_urdf(model, unsupported="warn" if lossy else "refuse")
    from torsor.formats.mjcf_writer import to_mjcf

    return to_mjcf(model, unsupported="warn" if lossy else "refuse")
