"""``torsor convert``: models in other formats."""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torsor._check import listed
from torsor._cli.output import CommandError, add_command, note, one_line
from torsor._cli.sources import add_model_argument, kind_by_suffix, load, tell_left_out
from torsor._errors import FormatError, FormatWarning, ModelError
from torsor._files import whole_file

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
_MESHES = (".stl", ".obj", ".msh")
_UNREADABLE = f"mesh files that are not found, or that MuJoCo cannot read (it reads {', '.join(_MESHES)})"
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
    model = loaded.model
    if kind == "MJCF":
        model, lost = _with_meshes_for_mujoco(model)
        if lost and not arguments.lossy:
            raise CommandError(f"{_UNREADABLE}: {listed(lost)}; give --lossy to go on without")
        if lost and not arguments.quiet:
            note(f"left out: {_UNREADABLE}: {listed(lost)}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FormatWarning)
        try:
            text = _written(model, kind, arguments.lossy)
        except ModelError as error:
            always = "; joints and bodies are never left out" if arguments.lossy else ""
            raise CommandError(_advised(error) + always) from error
    for warning in caught if not arguments.quiet else ():
        note(one_line(str(warning.message)))
    if out is None:
        sys.stdout.write(text)
    else:
        with whole_file(out) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    return 0


def _with_meshes_for_mujoco(model: Model) -> tuple[Model, list[str]]:
    """The model with whole paths of mesh files, which MuJoCo needs; and the names of those that it cannot read, without
    which the model is."""
    from torsor.shapes import Mesh

    lost: list[str] = []

    def path(name: str | None, file: str | None) -> str | None:
        if file is None or Path(file).suffix.lower() not in _MESHES:
            lost.append(str(name))
            return None
        return str(Path(file).resolve())

    bodies = []
    for body in model.bodies:
        visuals = [
            replace(visual, mesh=found) if visual.shape == "mesh" else visual
            for visual in body.visuals
            if visual.shape != "mesh" or (found := path(visual.mesh, visual.file)) is not None
        ]
        collisions = []
        for one in body.collisions:
            if isinstance(one.shape, Mesh) and one.shape.vertices is None:
                if (found := path(one.shape.path, one.shape.file)) is None:
                    continue
                one = replace(one, shape=Mesh(found, one.shape.scale, one.shape.placement, radius=one.shape.radius))
            collisions.append(one)
        bodies.append(replace(body, visuals=tuple(visuals), collisions=tuple(collisions)))
    return replace(model, bodies=tuple(bodies)), [*dict.fromkeys(lost)]


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
