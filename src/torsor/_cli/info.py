"""``torsor info``: what a model has."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from torsor._cli.output import add_command, number, plural, show, table
from torsor._cli.sources import Loaded, add_model_argument, load

if TYPE_CHECKING:
    from torsor.couplings import JointCoupling
    from torsor.model import Model, ModelJoint

_EXAMPLES = """\
examples:
  torsor info robot.urdf
  torsor info scene.xml --json
  torsor info example:humanoid
  torsor info robot.urdf --root free        the robot floats"""


def add(commands: Any) -> None:
    """The arguments of the command."""
    parser = add_command(
        commands,
        "info",
        "what a model has: bodies, joints, limits, masses, actuators",
        "Prints a summary of a model, and what its file has that the model does not. Inertias that are "
        "not physical are loaded as they are: 'torsor check' judges them.",
        _EXAMPLES,
    )
    add_model_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object; limits that are none are null")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the summary."""
    loaded = load(arguments.file, arguments.root, lenient=True)
    if arguments.json:
        show(json.dumps(as_json(loaded), indent=2, allow_nan=False))
    else:
        show("\n\n".join(part for part in _text(loaded) if part))
    return 0


# ---- for programs


def _finite(x: Any) -> Any:
    """Numbers as JSON has them: infinite ones are null."""
    if isinstance(x, (tuple, list)):
        return [_finite(part) for part in x]
    return x if not isinstance(x, float) or math.isfinite(x) else None


def as_json(loaded: Loaded) -> dict[str, Any]:
    """The summary as an object of JSON."""
    from torsor.dynamics import center_of_mass

    model = loaded.model
    com = center_of_mass(model, model.neutral).tolist() if model.mass else None
    return {
        "file": loaded.source.label,
        "format": loaded.source.kind,
        "name": model.name,
        "nbodies": model.nbodies,
        "nq": model.nq,
        "nv": model.nv,
        "mass": model.mass,
        "center_of_mass": com,
        "gravity": list(model.gravity),
        "bodies": [
            {
                "name": body.name,
                "parent": body.parent,
                "joint": body.joint_name,
                "mass": body.inertia.mass,
                "center_of_mass": body.inertia.com.tolist(),
                "inertia": body.inertia.I_com.tolist(),
                "visuals": len(body.visuals),
                "collisions": len(body.collisions),
            }
            for body in model.bodies
        ],
        "joints": [
            {
                "name": joint.name,
                "body": joint.body,
                "kind": type(joint.joint).__name__,
                "axis": _finite(getattr(joint.joint, "axis", None)),
                "q": [joint.q_slice.start, joint.q_slice.stop],
                "v": [joint.v_slice.start, joint.v_slice.stop],
                "follows": list(joint.follows),
                **{
                    name: _finite(getattr(joint, name))
                    for name in ("position_limits", "velocity_limits", "effort_limits", *_LOSSES)
                },
            }
            for joint in model.joints
        ],
        "frames": [{"name": frame.name, "body": frame.body} for frame in model.frames],
        "couplings": [repr(coupling) for coupling in model.couplings],
        "constraints": [
            {"name": constraint.shown_name, "kind": type(constraint).__name__} for constraint in model.constraints
        ],
        "tendons": [{"name": tendon.name, "joints": list(tendon.joints)} for tendon in model.tendons],
        "actuators": [
            {"name": actuator.name, "drives": _driven(actuator), "control_limits": _finite(actuator.control_limits)}
            for actuator in model.actuators
        ],
        "keyframes": list(model.keyframes),
        "left_out": list(loaded.left_out),
    }


# ---- for people

_TREE = ("world", "new coordinates", "├", "└", "│", " ")  # how the lines of a tree begin
_LOSSES = {"damping": "damping", "dry_friction": "friction", "stiffness": "stiffness", "armature": "armature"}


def _text(loaded: Loaded) -> list[str]:
    """The parts of the summary, each a paragraph."""
    model = loaded.model
    return [
        _head(loaded),
        _tree(model),
        _joints(model),
        _frames(model),
        _listed("couplings", [_coupling(coupling) for coupling in model.couplings]),
        _listed("constraints", [f"{c.shown_name} ({type(c).__name__})" for c in model.constraints]),
        _tendons(model),
        _actuators(model),
        _keyframes(model),
        _shapes(model),
        _listed(f"left out of the model, or doubtful in {loaded.source.label}", loaded.left_out),
    ]


def _head(loaded: Loaded) -> str:
    from torsor.dynamics import center_of_mass

    model = loaded.model
    kinds = Counter(type(body.joint).__name__ for body in model.bodies)
    joints = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    lines = [
        f"{model.name}: {plural(model.nbodies, 'body', 'bodies')}, nq {model.nq}, nv {model.nv}, mass {model.mass:.6g}",
        f"file     {loaded.source.label} ({loaded.source.kind})",
        f"joints   {joints}",
        f"gravity  {_vector(model.gravity)}",
    ]
    if model.mass:
        lines.append(f"centre of mass at the neutral configuration  {_vector(center_of_mass(model, model.neutral))}")
    return "\n".join(lines)


def _tree(model: Model) -> str:
    """The tree as `print(model)` shows it; what comes before and after it has paragraphs of its own."""
    return "\n".join(line for line in str(model).split("\n")[1:] if line.startswith(_TREE))


def _vector(x: Iterable[float]) -> str:
    return f"({', '.join(f'{float(part):.4g}' for part in x)})"


def _joints(model: Model) -> str:
    """Limits and losses of the joints that move; columns that would be empty are left out."""
    columns: list[tuple[str, Callable[[ModelJoint], Sequence[float]], float]] = [
        ("lower", lambda joint: joint.position_limits[0], -math.inf),
        ("upper", lambda joint: joint.position_limits[1], math.inf),
        ("velocity", lambda joint: joint.velocity_limits, math.inf),
        ("effort", lambda joint: joint.effort_limits, math.inf),
        *((head, attrgetter(name), 0.0) for name, head in _LOSSES.items()),
    ]
    moving = [joint for joint in model.joints if joint.joint.nv]
    used = [column for column in columns if any(x != column[2] for joint in moving for x in column[1](joint))]
    if not moving:
        return "no joint moves"
    if not used:
        return "no joint has limits, damping, friction, stiffness or armature"
    rows = [
        [joint.name, *(_few(values(joint), default) for _, values, default in used)]
        for joint in moving
        if any(x != default for _, values, default in used for x in values(joint))
    ]
    without = len(moving) - len(rows)
    right = range(1, len(used) + 1)
    text = table(["limits and losses", *(head for head, _, _ in used)], rows, right)
    return text + (f"\n({plural(without, 'other joint')} without any)" if without else "")


def _few(values: Sequence[float], default: float) -> str:
    """The numbers of a joint; one, if they are equal."""
    if not values or all(x == default for x in values):
        return "-"
    if len({*values}) == 1:
        return number(values[0])
    return ",".join(map(number, values))


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)]) if lines else ""


def _frames(model: Model) -> str:
    return _listed("frames", [f"{frame.name} on {frame.body}" for frame in model.frames])


def _coupling(coupling: JointCoupling) -> str:
    from torsor.couplings import Mimic

    if not isinstance(coupling, Mimic):
        return repr(coupling)
    offset = f" {'-' if coupling.offset < 0 else '+'} {abs(coupling.offset):.4g}" if coupling.offset else ""
    return f"{coupling.joint} = {coupling.ratio:.4g} {coupling.of}{offset}"


def _driven(actuator: Any) -> str:
    for kind in ("joint", "tendon", "body"):
        if (name := getattr(actuator, kind)) is not None:
            return f"{kind} {name}"
    return ""


def _tendons(model: Model) -> str:
    lines = []
    for tendon in model.tendons:
        along = (
            " + ".join(f"{c:.4g} {j}" for c, j in zip(tendon.coefficients, tendon.joints, strict=True))
            if tendon.joints
            else "through " + ", ".join(tendon.bodies)
        )
        lines.append(f"{tendon.name}: {along}")
    return _listed("tendons", lines)


def _actuators(model: Model) -> str:
    if not model.actuators:
        return ""
    rows = [
        [
            actuator.name,
            _driven(actuator),
            number(actuator.gear[0]),
            *(f"{number(low)} to {number(high)}" for low, high in (actuator.control_limits, actuator.force_limits)),
        ]
        for actuator in model.actuators
    ]
    return table(["actuators", "drives", "gear", "control", "force"], rows)


def _keyframes(model: Model) -> str:
    return _listed("keyframes", [*model.keyframes])


def _shapes(model: Model) -> str:
    visuals = [visual for body in model.bodies for visual in body.visuals]
    collisions = [shape for body in model.bodies for shape in body.collisions] + [*model.world_collisions]
    meshes = sum(visual.shape == "mesh" for visual in visuals)
    hulls = sum(type(one.shape).__name__ == "Mesh" for one in collisions)
    return (
        f"shapes: {plural(len(visuals), 'visual')} ({plural(meshes, 'mesh', 'meshes')}), "
        f"{len(collisions)} for collision ({plural(hulls, 'mesh', 'meshes')})"
    )
