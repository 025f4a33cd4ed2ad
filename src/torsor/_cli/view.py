"""``torsor view``: a model or a motion in the browser."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from torsor._cli.output import add_command, note, show
from torsor._cli.sources import add_model_argument, find, load, tell_left_out

if TYPE_CHECKING:
    from torsor.simulation.trajectory import Trajectory

_EXAMPLES = """\
examples:
  torsor view robot.urdf
  torsor view motion.npz --speed 0.5
  torsor view example:humanoid --port 8090 --no-browser"""


def add(commands: Any) -> None:
    """The arguments of the command."""
    parser = add_command(
        commands,
        "view",
        "show a model or a motion in the browser",
        "Opens a page that shows a model, with sliders for its joints, or plays a motion that "
        "'torsor simulate' or Trajectory.save has written. Ctrl-C ends it. Only programs on this machine can reach the "
        "page. Needs pip install torsor[view].",
        _EXAMPLES,
    )
    add_model_argument(parser, "model or motion")
    parser.add_argument("--port", type=_port, help="port of the page (default: one that is free)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")
    parser.add_argument("--speed", type=float, default=1.0, help="of a motion; 1 is real time (default: %(default)g)")
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, expected a number from 1 to 65535")
    return int(text)


def load_motion(path: str) -> Trajectory:
    """A motion from its file, for drawing; notes on stderr what cannot be drawn of it."""
    from torsor.simulation.archive import read_motion
    from torsor.simulation.trajectory import Trajectory

    fields, missing = read_motion(path)
    if missing:
        note(f"{path}: drawn without forces and constraints: {'; '.join(missing)}")
    return Trajectory(**fields)


def run(arguments: argparse.Namespace) -> int:
    """Shows the page until it is interrupted."""
    motion = load_motion(arguments.file) if find(arguments.file).kind == "motion" else None
    if motion is None:
        loaded = load(arguments.file, arguments.root, lenient=True)
        tell_left_out(loaded)
        model = loaded.model
    else:
        model = motion.model
    from torsor.view import Viewer

    with Viewer(model, port=arguments.port, open_browser=not arguments.no_browser) as viewer:
        if motion is not None:
            viewer.play(motion, speed=arguments.speed)
        show(f"{viewer.url}  (Ctrl-C ends)")
        viewer.wait()
    return 0
