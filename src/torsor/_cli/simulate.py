"""``torsor simulate``: a motion of a model, from a file to a file."""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torsor._cli.output import CommandError, add_command, note, one_line, plural, show
from torsor._cli.sources import add_model_argument, load, tell_left_out
from torsor._files import whole_file

if TYPE_CHECKING:
    from torsor._typing import FloatArray
    from torsor.forces import Force
    from torsor.model import Model
    from torsor.simulation.trajectory import Trajectory

INTEGRATORS = {
    "bdf1": "BDF1", "bdf2": "BDF2", "sdirk2": "SDIRK2", "sdirk3": "SDIRK3", "variational": "Variational",
    "symplectic": "SymplecticEuler", "linear": "LinearlyImplicitEuler", "hard": "HardContact", "adaptive": "Adaptive",
}  # fmt: skip
_OUT = (".npz", ".csv")
_MOVIES = (".mp4", ".gif")

_EXAMPLES = """\
methods: bdf1, bdf2 (the default), sdirk2, sdirk3 are implicit, for stiff forces
and contact; variational does not lose energy; symplectic and linear are Euler
methods with one evaluation a step; hard is for rigid contact; adaptive controls
its error (with SciPy).

The model moves under gravity and under what it keeps: springs, dampers, dry
friction and tendons of its joints, servos of its actuators, and constraints.
Nothing else acts unless an option says so; limits of joints do not.

A file of controls has one row for each step, or one row for all. The first line
of a .csv file names its columns: actuators of the model, or joints if it has no
actuators; those without a column are zero. With a column t, a row holds from
its time on. A .npy file has an array (steps, nu) or (nu,).

A file of forces is a list in JSON, of classes in torsor.forces with arguments:
  [{"type": "JointDamping", "joint": null, "damping": 0.5},
   {"type": "JointSpring", "joint": "elbow", "stiffness": 9, "rest": [0.3]}]

A simulation that cannot take a step writes what it has until there, and ends
with exit status 1.

examples:
  torsor simulate example:acrobot -T 5 --joint shoulder=1 -o motion.npz
  torsor simulate robot.urdf --root free --ground --step 2e-3 -o motion.npz
  torsor simulate scene.xml --keyframe home --contacts --html motion.html
  torsor simulate robot.urdf --controls torques.csv -o motion.csv --quiet"""


def add(commands: Any) -> None:
    """The arguments of the command."""
    parser = add_command(
        commands,
        "simulate",
        "simulate a model, and write the motion",
        "Simulates a model, prints a summary, and writes the motion.",
        _EXAMPLES,
    )
    add_model_argument(parser)
    parser.add_argument(
        "--lenient", action="store_true", help="leave out what a model cannot hold, and take inertias as they are"
    )
    run_group = parser.add_argument_group("integration")
    run_group.add_argument("-T", "--time", type=_positive, metavar="T", help="duration (default: 1)")
    run_group.add_argument("--steps", type=_count, metavar="N", help="number of steps, in place of -T")
    run_group.add_argument("--step", type=_positive, default=1e-2, metavar="H", help="step size (default: %(default)g)")
    run_group.add_argument(
        "--integrator",
        type=str.lower,
        choices=[*INTEGRATORS],
        default="bdf2",
        metavar="METHOD",
        help="one of those below (default: %(default)s)",
    )
    run_group.add_argument(
        "--every", type=_count, default=1, metavar="K", help="store every K-th step only (default: 1)"
    )
    start = parser.add_argument_group("initial state")
    start.add_argument(
        "--q0",
        metavar="Q",
        help="neutral, random, random:SEED, numbers separated by commas, or a .npy or .csv file",
    )
    start.add_argument("--v0", metavar="V", help="velocities: numbers separated by commas, or a file (default: zero)")
    start.add_argument("--keyframe", metavar="NAME", help="state and controls of a keyframe of the model")
    start.add_argument(
        "--joint",
        action="append",
        default=[],
        metavar="NAME=Q",
        help="coordinates of one joint, separated by commas; may be repeated",
    )
    start.add_argument(
        "--velocity", action="append", default=[], metavar="NAME=V", help="velocities of one joint; may be repeated"
    )
    acting = parser.add_argument_group("what acts")
    acting.add_argument("--controls", metavar="FILE", help="controls of actuators, or torques of joints: .csv or .npy")
    acting.add_argument("--forces", metavar="FILE", help="further forces: .json")
    acting.add_argument("--no-passive", action="store_true", help="without springs, dampers, friction and servos")
    acting.add_argument("--limits", type=_positive, metavar="K", help="impose limits of joints with this stiffness")
    acting.add_argument("--contacts", action="store_true", help="contact of all collision shapes that may touch")
    acting.add_argument(
        "--ground",
        nargs="?",
        type=_height,
        const="auto",
        metavar="Z",
        help="a ground that collision shapes touch, at the height Z; without Z just below the initial state",
    )
    acting.add_argument("--gravity", metavar="X,Y,Z", help="acceleration of gravity (default: that of the model)")
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", metavar="FILE", help="the motion: .npz, which 'torsor view' shows, or .csv")
    out.add_argument("--html", metavar="FILE", help="a page that plays the motion, in one file")
    out.add_argument("--movie", metavar="FILE", help="a film: .mp4 or .gif")
    out.add_argument("--quiet", action="store_true", help="no progress, no summary")
    parser.set_defaults(run=run)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _height(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a height") from None


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Simulates."""
    from torsor._errors import ConvergenceError
    from torsor.simulation.simulate import simulate

    _check_outputs(arguments)
    loaded = load(arguments.file, arguments.root, lenient=arguments.lenient)
    if not arguments.quiet:
        tell_left_out(loaded)
    model = loaded.model
    if arguments.gravity:
        model = model.with_gravity(_numbers("--gravity", arguments.gravity, 3))
    task = _task(model, arguments)
    begin, status = time.perf_counter(), 0
    try:
        trajectory = simulate(task.model, task.q, task.v, forces=task.forces, **task.options)
    except ConvergenceError as error:
        trajectory, status = error.trajectory, 1
        print(f"torsor: error: {one_line(str(error))}", file=sys.stderr)
        if trajectory is None:
            return 1
    seconds = time.perf_counter() - begin
    if not arguments.quiet:
        show(_summary(trajectory, seconds))
    for path in _write(trajectory, arguments):
        if not arguments.quiet:
            show(f"written  {path} ({_size(path)})")
    return status


# ---- what is asked for


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Refuses outputs that cannot be written before the time of a simulation is spent."""
    wanted = (
        ("-o", arguments.output, _OUT),
        ("--html", arguments.html, (".html",)),
        ("--movie", arguments.movie, _MOVIES),
    )
    for option, name, endings in wanted:
        if name is None:
            continue
        path = Path(os.path.realpath(name))
        if Path(name).suffix.lower() not in endings:
            raise CommandError(f"{option} {name}: expected a name that ends in {' or '.join(endings)}")
        exists = path.exists()
        try:
            with path.open("ab"):
                pass
            if not exists:
                path.unlink()
        except OSError as error:
            raise CommandError(f"{option} {name} cannot be written: {error.strerror}") from None


def _numbers(option: str, text: str, count: int) -> list[float]:
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        raise CommandError(f"{option} is {text!r}, expected numbers separated by commas") from None
    if len(values) != count:
        raise CommandError(f"{option} has {plural(len(values), 'number')}, expected {count}")
    return values


def _state(model: Model, option: str, text: str, count: int) -> FloatArray:
    """Numbers from the command line, or from a file with one row of them."""
    import numpy as np

    if Path(text).suffix.lower() not in (".npy", ".csv"):
        return np.array(_numbers(option, text, count))
    values = _npy(text) if text.lower().endswith(".npy") else _csv(text)[1]
    if values.size != count:
        raise CommandError(f"{option} {text} has {plural(values.size, 'number')}, expected {count}")
    return values.ravel()


def _set_joints(model: Model, option: str, given: Sequence[str], values: FloatArray, part: str) -> None:
    """Sets coordinates or velocities of single joints."""
    for text in given:
        name, equals, numbers = text.rpartition("=")
        if not equals:
            raise CommandError(f"{option} is {text!r}, expected NAME=NUMBERS")
        where: slice = getattr(model.joint(name), part)
        values[where] = _numbers(f"{option} {name}", numbers, where.stop - where.start)


def _initial(model: Model, arguments: argparse.Namespace) -> tuple[FloatArray, FloatArray]:
    """The initial state, which satisfies the constraints of the model."""
    import numpy as np

    q, v = model.start.copy(), np.zeros(model.nv)
    if arguments.keyframe is not None:
        from torsor._check import listed

        if arguments.keyframe not in model.keyframes:
            names = [*model.keyframes]
            has = f"keyframes are {listed(names, arguments.keyframe)}" if names else "the model has none"
            raise CommandError(f"no keyframe named {arguments.keyframe!r}; {has}")
        key = model.keyframes[arguments.keyframe]
        q, v = np.array(key.q), np.array(key.v)
    if arguments.q0 is not None:
        word, _, seed = arguments.q0.partition(":")
        if word == "random":
            try:
                q = model.random(int(seed or 0))
            except ValueError:
                raise CommandError(f"--q0 is {arguments.q0!r}, expected random:SEED with an integer") from None
        elif word == "neutral":
            q = model.neutral.copy()
        else:
            q = _state(model, "--q0", arguments.q0, model.nq)
    if arguments.v0 is not None:
        v = _state(model, "--v0", arguments.v0, model.nv)
    _set_joints(model, "--joint", arguments.joint, q, "q_slice")
    _set_joints(model, "--velocity", arguments.velocity, v, "v_slice")
    if model.constraints:
        from torsor.constraints import project

        closed, rates = project(model, model.constraints, q, v)
        moved = float(np.abs(model.minus(closed, q)).max(initial=0.0))
        if moved > 1e-6 and not arguments.quiet:
            note(f"the initial state was moved by up to {moved:.2g} to satisfy the constraints of the model")
        q, v = closed, rates
    return q, v


# ---- controls and forces


def _npy(path: str) -> FloatArray:
    """The numbers of a .npy file."""
    import numpy as np

    try:
        return np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
    except (ValueError, TypeError, EOFError):
        raise CommandError(f"{path} is not a .npy file of numbers") from None


def _csv(path: str) -> tuple[list[str], FloatArray]:
    """Names of the columns of a .csv file, empty if it has none, and its numbers."""
    import numpy as np

    with open(path, newline="", encoding="utf-8-sig") as file:
        try:
            rows = [row for row in csv.reader(file) if row and any(cell.strip() for cell in row)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise CommandError(f"{path} is not a table: {error}") from None
    if not rows:
        raise CommandError(f"{path} is empty")
    names: list[str] = []
    try:
        [float(cell) for cell in rows[0]]
    except ValueError:
        names, rows = [cell.strip() for cell in rows[0]], rows[1:]
    width = len(names or rows[0])
    for k, row in enumerate(rows):
        if len(row) != width:
            raise CommandError(f"{path}: row {k + 1} has {plural(len(row), 'number')}, expected {width}")
    try:
        return names, np.array(rows, dtype=np.float64).reshape(len(rows), width)
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None


def _read_controls(model: Model, path: str, names: Sequence[str], steps: int, h: float) -> FloatArray:
    """Controls (steps, nu), from a file."""
    import numpy as np

    nu = len(names)
    if path.lower().endswith(".npy"):
        u = _npy(path)
        u = u[None] if u.ndim == 1 else u
        if u.ndim != 2 or u.shape[1] != nu:
            raise CommandError(f"{path} has an array of shape {u.shape}, expected (steps, {nu}) or ({nu},)")
    elif path.lower().endswith(".csv"):
        u = _table_of_controls(path, names, steps, h)
    else:
        raise CommandError(f"--controls {path}: expected a name that ends in .csv or .npy")
    if len(u) not in (1, steps):
        raise CommandError(
            f"{path} has {plural(len(u), 'row')} of controls, expected 1 or one for each of {steps} steps"
        )
    return np.broadcast_to(u, (steps, nu))


def _table_of_controls(path: str, names: Sequence[str], steps: int, h: float) -> FloatArray:
    import numpy as np

    columns, values = _csv(path)
    if not len(values):
        raise CommandError(f"{path} has no rows")
    if not columns:
        if values.shape[1] != len(names):
            raise CommandError(f"{path} has {values.shape[1]} columns, expected {len(names)}, or a first line of names")
        return values
    from torsor._check import listed

    unknown = [name for name in columns if name not in (*names, "t")]
    if unknown:
        raise CommandError(f"{path} has a column {unknown[0]!r}; controls are {listed([*names], unknown[0])}")
    u = np.zeros((len(values), len(names)))
    for k, name in enumerate(columns):
        if name != "t":
            u[:, names.index(name)] = values[:, k]
    if "t" not in columns:
        return u
    t = values[:, columns.index("t")]
    if np.any(np.diff(t) <= 0):
        raise CommandError(f"{path}: times in column t must increase")
    rows = np.searchsorted(t, h * np.arange(steps) + 1e-9 * h, side="right") - 1
    return np.where((rows >= 0)[:, None], u[np.maximum(rows, 0)], 0.0)


def _read_forces(path: str) -> list[Force]:
    """The forces of a .json file."""
    from torsor.forces.force import Force, require_forces
    from torsor.saving import from_record

    try:
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CommandError(f"{path} is not JSON: {error}") from None
    records = content.get("forces") if isinstance(content, dict) else content
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise CommandError(f'{path} has no list of forces: expected [{{"type": "JointDamping", ...}}, ...]')
    forces = [from_record(record) for record in records]
    for force in forces:
        if not isinstance(force, Force):
            raise CommandError(f"{path} has a {type(force).__name__}, which is not a force")
    return [*require_forces(forces)]


@dataclass
class _Task:
    """All arguments of a simulation."""

    model: Model
    q: FloatArray
    v: FloatArray
    steps: int
    forces: list[Force] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


def _options(arguments: argparse.Namespace, steps: int) -> dict[str, Any]:
    """What `simulate` is told beside the model, its state and its forces."""
    import torsor

    kind = getattr(torsor, INTEGRATORS[arguments.integrator])
    return {
        "steps": steps,
        "integrator": kind(h=arguments.step),
        "every": arguments.every,
        "progress": _progress(arguments),
    }


def _progress(arguments: argparse.Namespace) -> bool:
    """Whether to show progress bars."""
    return not arguments.quiet and sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None


def _steps(arguments: argparse.Namespace) -> int:
    """The number of steps, of which the duration is a multiple."""
    if arguments.steps is not None:
        if arguments.time is not None:
            raise CommandError("give -T or --steps, not both")
        count: int = arguments.steps
    else:
        exact = (arguments.time or 1.0) / arguments.step
        count = max(1, round(min(exact, 1e12)))
        if abs(exact - count) > 1e-6 * max(1.0, exact):
            raise CommandError(f"-T is {exact:.6g} times --step, expected a whole number of steps")
    if count % arguments.every:
        raise CommandError(f"--every is {arguments.every}, expected a divisor of the number of steps, {count}")
    return count


def _task(model: Model, arguments: argparse.Namespace) -> _Task:
    """The initial state, forces and controls that are asked for."""
    steps = _steps(arguments)
    task = _Task(model, *_initial(model, arguments), steps, options=_options(arguments, steps))
    if arguments.forces:
        task.forces += _read_forces(arguments.forces)
    if arguments.contacts or arguments.ground is not None:
        task.forces += _contacts(model, task.q, arguments)
    _drive(task, arguments)
    return task


def _drive(task: _Task, arguments: argparse.Namespace) -> None:
    """Adds passive forces and controls."""
    import numpy as np

    from torsor.forces import ActuatorForce, actuation, forces_from

    model = task.model
    of_key = () if arguments.keyframe is None else model.keyframes[arguments.keyframe].controls
    names = [actuator.name for actuator in model.actuators] or _velocity_names(model)
    u = np.array(of_key) if model.actuators and len(of_key) == len(names) else None
    if arguments.controls is not None:
        u = _read_controls(model, arguments.controls, names, task.steps, arguments.step)
        if model.actuators:
            u = np.clip(u, *model.control_limits)
    passive = not arguments.no_passive
    kinds = {"springs": passive, "damping": passive, "friction": passive, "tendons": passive}
    kinds["gravity_compensation"] = passive
    options = {"limits": arguments.limits, "limit_damping": 0.0 if arguments.limits is None else arguments.limits / 100}
    if not model.actuators:
        task.forces += forces_from(model, **kinds, **options)
        if u is not None:
            task.options["controls"] = u
        return
    servos = passive or u is not None
    try:
        matrix = actuation(model)
        task.forces += forces_from(model, **kinds, **options, actuators=servos)
        if u is not None:
            task.options |= {"controls": u, "actuation": matrix}
    except ValueError:  # moment arms, gains or limits that need a force of all actuators
        task.forces += forces_from(model, **kinds, **options, actuators=False)
        if servos:
            drive = ActuatorForce(model, u if u is not None and u.ndim == 1 else None)
            if u is not None and u.ndim == 2:
                task.options["signals"] = [*({} for _ in task.forces), {"p": u}]
            task.forces.append(drive)


def _velocity_names(model: Model) -> list[str]:
    """Names of velocities: of the joint, with a number if it has several."""
    return [name for joint in model.joints for name in _parts(joint.name, joint.nv)]


def _parts(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}[{k}]" for k in range(count)]


def _contacts(model: Model, q: FloatArray, arguments: argparse.Namespace) -> list[Force]:
    """Contacts of collision shapes, and with a ground."""
    import numpy as np

    from torsor.forces import contact_states, contacts
    from torsor.shapes import HalfSpace

    def made(height: float | None, world_only: bool) -> list[Force]:
        ground = None if height is None else HalfSpace((0, 0, 1), height)
        options: dict[str, Any] = {"world_only": world_only, "skip_overlapping_at": q, "unsupported": "skip"}
        return [*contacts(model, ground=ground, **options)]

    height = arguments.ground
    if height == "auto":
        only = made(0.0, True)
        if not only:
            raise CommandError("--ground: the model has no collision shapes that can touch a ground")
        states = contact_states(model, only, q, np.zeros(model.nv))
        height = float(states.gap.min()) - 1e-6
    forces = made(height, not arguments.contacts)
    if not forces:
        raise CommandError("--contacts: the model has no collision shapes that may touch")
    return forces


# ---- what comes out


def _summary(trajectory: Trajectory, seconds: float) -> str:
    import numpy as np

    model, rate = trajectory.model, trajectory.steps / seconds
    lines = [
        f"{model.name}: {plural(trajectory.steps, 'step')} of {type(trajectory.integrator).__name__}, h = "
        f"{trajectory.integrator.h:g}, t from {trajectory.t[0]:g} to {trajectory.t[-1]:g}; {seconds:.2g} s, "
        f"{rate:.3g} steps/s",
    ]
    energy = trajectory.energies.total
    finite = np.flatnonzero(np.isfinite(energy))
    if len(finite):
        first, last = energy[finite[0]], energy[finite[-1]]
        lines.append(f"energy   {first:.6g} at the beginning, {last:.6g} at the end")
    if trajectory.forces:
        kinds: dict[str, int] = {}
        for force in trajectory.forces:
            kinds[type(force).__name__.lstrip("_")] = kinds.get(type(force).__name__.lstrip("_"), 0) + 1
        lines.append("forces   " + ", ".join(f"{count} {kind}" for kind, count in kinds.items()))
    if trajectory.controls is not None:
        lines.append(f"controls {plural(trajectory.controls.shape[-1], 'column')}")
    if beyond := _beyond(trajectory):
        lines.append(f"beyond their limits at some time: {beyond}")
    return "\n".join(lines)


def _beyond(trajectory: Trajectory) -> str:
    """Joints that have left their limits."""
    import numpy as np

    from torsor._check import listed

    model = trajectory.model
    low, high = model.position_limits
    slack = 1e-6 * (1.0 + np.abs(trajectory.q))
    outside = np.any((trajectory.q < low - slack) | (trajectory.q > high + slack), axis=0)
    return listed([joint.name for joint in model.joints if joint.nq and outside[joint.q_slice].any()])


def _write(trajectory: Trajectory, arguments: argparse.Namespace) -> list[str]:
    """Writes the motion; returns the names of the files."""
    out = []
    if arguments.output is not None:
        if arguments.output.lower().endswith(".csv"):
            _write_csv(trajectory, arguments.output)
        else:
            trajectory.save(arguments.output)
        out.append(arguments.output)
    if arguments.html is not None:
        trajectory.html(arguments.html)
        out.append(arguments.html)
    if arguments.movie is not None:
        trajectory.movie(arguments.movie, progress=_progress(arguments))
        out.append(arguments.movie)
    return out


def _write_csv(trajectory: Trajectory, path: str) -> None:
    model = trajectory.model
    head = ["t"]
    for letter, part in (("q", "nq"), ("v", "nv"), ("a", "nv")):
        names = [name for joint in model.joints for name in _parts(joint.name, getattr(joint, part))]
        size = getattr(model, part)
        names += [f"new[{k}]" for k in range(size - len(names))]  # coordinates of couplings
        head += [f"{letter}:{name}" for name in names]
    with contextlib.ExitStack() as stack:
        unfinished = stack.enter_context(whole_file(path))
        file = stack.enter_context(open(unfinished, "w", newline="", encoding="utf-8"))
        rows = csv.writer(file)
        rows.writerow(head)
        for k in range(len(trajectory.t)):
            values = (trajectory.t[k : k + 1], trajectory.q[k], trajectory.v[k], trajectory.a[k])
            rows.writerow([repr(float(x)) for part in values for x in part])


def _size(path: str) -> str:
    size = os.path.getsize(path)
    return f"{size} bytes" if size < 2000 else f"{size / 1e3:.0f} kB" if size < 2e6 else f"{size / 1e6:.1f} MB"
