"""URDF files, written."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields
from math import atan2, cos, hypot, sin
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor._check import listed
from torsor._compile import IDENTITY, compose
from torsor._core import JointKind
from torsor._errors import FormatWarning, ModelError
from torsor._files import whole_file
from torsor.collision import Collision
from torsor.constraints.couplings import Coordinate, Gear
from torsor.constraints.pairs import Loop
from torsor.couplings import Mimic
from torsor.formats._urdf_joints import NO_LIMIT, plane
from torsor.formats._urdf_links import SIZES, TENSOR
from torsor.inertia import Inertia
from torsor.joints import Composite, Fixed, Free, Free2D, Joint, Planar, Prismatic, Revolute, Spherical
from torsor.model import WORLD, Body, Frame, Model, Visual, require_model
from torsor.shapes import Box, Capsule, Cylinder, Mesh, Sphere
from torsor.spatial import SE3

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from torsor._typing import RefuseOrWarn

_KINDS: dict[int, str] = {JointKind.revolute: "revolute", JointKind.prismatic: "prismatic"}  # those of URDF
_LOOPS: dict[type[Joint], str] = {
    Fixed: "fixed", Revolute: "revolute", Prismatic: "prismatic", Spherical: "spherical", Free2D: "planar",
}  # fmt: skip
_WRITTEN = {"name", "gravity", "bodies", "constraints", "world_collisions", "collision_rules", "frames", "couplings"}
_GRAVITY = (0.0, 0.0, -9.81)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_urdf(model: Model, path: str | os.PathLike[str] | None = None, *, unsupported: RefuseOrWarn = "refuse") -> str:
    """Writes a model as URDF: `load_urdf` of the result is the same mechanism.

    Bodies become links, and the world a link called `'world'`, unless `load_urdf` adds the only joint to it by itself.
    A joint of several degrees of freedom that is a chain of rotations and translations becomes such a chain, with links
    without mass between them: `body_1`, `body_2`, ... on joints `joint_1`, `joint_2`, ... Frames become links on fixed
    joints. Limits, damping, dry friction, inertias, visuals, collision shapes and their names are written; a `Mimic`,
    or a `Gear` between two joints, as `<mimic>`, a `Loop` as `<loop_joint>`. Numbers have all their digits;
    orientations are as roll, pitch and yaw, and come back to rounding. Bodies of the loaded model are depth first:
    where those of `model` are not, coordinates are in another order.

    What URDF cannot carry: `Spherical`, `SphericalExp`, `Screw`, splines and user-defined joints; limits and losses of
    `Free`; stiffness, armature; other couplings, constraints and rules for contact; tendons, actuators and keyframes;
    compensation of gravity; friction and softness of collision shapes; ellipsoids, half-spaces, terrains, meshes
    without a file; gravity, which is an argument of `load_urdf`.

    Parameters
    ----------
    model : Model
    path : str or path-like, optional
        File to write.
    unsupported : {'refuse', 'warn'}
        Whether to refuse models with parts that URDF cannot carry, or to leave these out with one `FormatWarning` that
        lists them. Joints that it cannot carry are always refused.

    Returns
    -------
    str
        The text.

    Raises
    ------
    ModelError
        With all that cannot be written.

    Examples
    --------
    >>> text = ts.to_urdf(model, "robot.urdf")
    >>> again = ts.load_urdf(text)
    """
    if unsupported not in ("refuse", "warn"):
        raise ValueError(f"unsupported must be 'refuse' or 'warn', got {unsupported!r}")
    writer = _Writer(require_model(model))
    robot = writer.robot()
    lost = [f"{what} {listed(owners)}".rstrip() for what, owners in writer.lost.items()]
    if writer.refused or (lost and unsupported == "refuse"):
        hint = "" if writer.refused else "; change the model, or pass unsupported='warn' to leave this out"
        raise ModelError(f"URDF cannot carry all of {model.name!r}: {'; '.join([*writer.refused, *lost])}{hint}")
    if lost:
        warnings.warn(f"left out of the URDF of {model.name!r}: {'; '.join(lost)}", FormatWarning, stacklevel=2)
    from xml.etree import ElementTree

    ElementTree.indent(robot)
    text = '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(robot, encoding="unicode") + "\n"
    if path is not None:
        with whole_file(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    return text


class _Step(NamedTuple):
    """A joint of the URDF: its kind, axis and position in the frame of the joint of the model."""

    kind: str
    axis: tuple[float, ...] = ()
    position: tuple[float, ...] = (0.0, 0.0, 0.0)


class _Writer:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.lost: dict[str, list[str]] = {}  # what cannot be carried, and where it is
        self.refused: list[str] = []
        self.names = {body.name for body in model.bodies} | {frame.name for frame in model.frames} | {WORLD}
        self.joint_names = {body.joint_name for body in model.bodies}
        self.steps: dict[str, tuple[list[str], list[str]]] = {}  # names and kinds of what a joint of the model becomes
        self.bare = self._is_bare()
        self.mimics: dict[str, dict[str, str]] = {}
        self.colors: dict[tuple[float, ...], str] = {}

    def lose(self, what: str, *owners: str) -> None:
        self.lost.setdefault(what, []).extend(owners)

    def robot(self) -> Element:
        from xml.etree.ElementTree import Element

        model = self.model
        for field in fields(model):
            if field.name not in _WRITTEN and (kept := getattr(model, field.name)):
                self.lose(field.name, *(kept if isinstance(kept, Mapping) else [part.name for part in kept]))
        if model.gravity != _GRAVITY:
            self.lose(f"gravity {model.gravity}, which load_urdf(..., gravity=) gives")
        robot = Element("robot", name=model.name)
        if not self.bare:
            world = _add(robot, "link", name=WORLD)
            self._collisions(world, model.world_collisions, WORLD)
        plans = {body.name: self._plan(body) for body in model.bodies}
        loops = self._constraints()
        for body in model.bodies:
            self._body(robot, body, plans[body.name])
        for frame in model.frames:
            self._frame(robot, frame)
        for loop in loops:
            self._loop(robot, loop)
        self._rules(loops)
        self._check_text(robot)
        return robot

    def _is_bare(self) -> bool:
        """Whether the only body on the world is there as `load_urdf` puts the root link there."""
        roots = [body for body in self.model.bodies if body.parent == WORLD]
        return (
            len(roots) == 1
            and isinstance(roots[0].joint, Fixed)
            and roots[0].joint_name == "root_joint"
            and roots[0].placement == SE3()
            and not self.model.world_collisions
            and all(frame.body != WORLD for frame in self.model.frames)
        )

    def _check_text(self, robot: Element) -> None:
        """Refuses names that XML cannot have, or that readers take for missing."""
        texts = {text for element in robot.iter() for text in element.attrib.values()}
        wrong = {text for text in texts if _NOT_XML.search(text)}
        wrong |= {name for name in self.names | self.joint_names if not name.strip()}
        if wrong:
            self.refused.append(f"names that XML cannot have: {listed(sorted(wrong))}")

    def _free_name(self, name: str, taken: set[str]) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    # ---- bodies

    def _plan(self, body: Body) -> list[_Step]:
        """The joints of a body, named."""
        steps = _steps(body)
        if steps is None:
            self.refused.append(f"joint {body.joint_name!r}, a {type(body.joint).__name__}")
            steps = [_Step("fixed")]
        more = [self._free_name(f"{body.joint_name}_{k}", self.joint_names) for k in range(1, len(steps))]
        self.steps[body.joint_name] = [*more, body.joint_name], [step.kind for step in steps]
        return steps

    def _body(self, robot: Element, body: Body, steps: list[_Step]) -> None:
        parent, before = body.parent, np.zeros(3)
        names, _ = self.steps[body.joint_name]
        for k, (step, name) in enumerate(zip(steps, names, strict=True)):
            last = k == len(steps) - 1
            child = body.name if last else self._free_name(f"{body.name}_{k + 1}", self.names)
            link = _add(robot, "link", name=child)
            if last:
                self._link(link, body)
                if parent == WORLD and self.bare:
                    return
            joint = _add(robot, "joint", name=name, type=step.kind)
            _add(joint, "parent", link=parent)
            _add(joint, "child", link=child)
            at = SE3.translation(np.subtract(step.position, before))
            _pose(joint, body.placement @ at if k == 0 else at)
            if step.axis:
                _add(joint, "axis", xyz=_text(step.axis))
            self._numbers(joint, body, k, step.kind)
            if name in self.mimics:
                _add(joint, "mimic", **self.mimics[name])
            parent, before = child, np.array(step.position)
        for what, values in (("stiffness", body.stiffness), ("armature", body.armature)):
            if any(values):
                self.lose(f"{what} of joints", body.joint_name)
        if body.gravity_compensation:
            self.lose("gravity compensation of", body.name)

    def _numbers(self, joint: Element, body: Body, k: int, kind: str) -> None:
        """Limits and losses of the velocity k of a joint."""
        if kind not in ("revolute", "prismatic"):
            if _has_numbers(body):
                self.lose("limits, damping and dry friction of joints", body.joint_name)
            return
        (lower, upper), (velocity, effort) = (
            (end[k] for end in pair) for pair in (body.position_limits, (body.velocity_limits, body.effort_limits))
        )
        limits = {"lower": lower, "upper": upper}
        if kind == "revolute" and lower == -np.inf and upper == np.inf:
            joint.set("type", "continuous")
            limits = {}
        if limits or velocity < np.inf or effort < np.inf:
            numbers = limits | {"effort": effort, "velocity": velocity}
            _add(joint, "limit", **{name: _text([np.clip(x, -NO_LIMIT, NO_LIMIT)]) for name, x in numbers.items()})
        if body.damping[k] or body.dry_friction[k]:
            _add(joint, "dynamics", damping=_text([body.damping[k]]), friction=_text([body.dry_friction[k]]))

    def _link(self, link: Element, body: Body) -> None:
        if body.inertia != Inertia.zero():
            inertial = _add(link, "inertial")
            _pose(inertial, SE3.translation(body.inertia.com))
            _add(inertial, "mass", value=_text([body.inertia.mass]))
            entries = body.inertia.I_com[np.triu_indices(3)]
            _add(inertial, "inertia", **{name: _text([x]) for name, x in zip(TENSOR, entries, strict=True)})
        for visual in body.visuals:
            self._visual(link, visual, body.name)
        self._collisions(link, body.collisions, body.name)

    def _frame(self, robot: Element, frame: Frame) -> None:
        """A link on a fixed joint, unless the frame is that of a fixed joint, which `load_urdf` adds."""
        if frame.body != WORLD and frame.placement == SE3():
            body = self.model.body(frame.body)
            if (
                isinstance(body.joint, Fixed)
                and body.joint_name == frame.name
                and not (body.parent == WORLD and self.bare)
            ):
                return
        _add(robot, "link", name=frame.name)
        joint = _add(robot, "joint", name=self._free_name(f"{frame.name}_joint", self.joint_names), type="fixed")
        _add(joint, "parent", link=frame.body)
        _add(joint, "child", link=frame.name)
        _pose(joint, frame.placement)

    # ---- shapes

    def _visual(self, link: Element, visual: Visual, owner: str) -> None:
        if visual.shape not in SIZES or (visual.shape == "mesh" and visual.mesh is None):
            self.lose(f"visuals of shape {visual.shape} of", owner)
            return
        element = _add(link, "visual")
        _pose(element, visual.placement)
        _geometry(element, visual.shape, visual.size, visual.mesh, visual.mesh_scale)
        if visual.color is not None:
            known = visual.color in self.colors
            name = self.colors.setdefault(visual.color, f"color_{len(self.colors) + 1}")
            material = _add(element, "material", name=name)
            if not known:
                _add(material, "color", rgba=_text(visual.color))

    def _collisions(self, link: Element, collisions: Iterable[Collision], owner: str) -> None:
        for collision in collisions:
            shape = collision.shape
            mesh, scale, size = None, (1.0, 1.0, 1.0), _size(shape)
            if isinstance(shape, Mesh):
                mesh, scale = shape.path, shape.scale
            if size is None:
                self.lose(f"collision shapes {type(shape).__name__} of", owner)
                continue
            if collision != Collision(shape, collision.name, source=collision.source):
                self.lose("friction, bits and softness of collision shapes of", owner)
            element = _add(link, "collision", **({} if collision.name is None else {"name": collision.name}))
            _pose(element, SE3.translation(shape.position) if isinstance(shape, Sphere) else shape.placement)  # type: ignore[attr-defined]
            _geometry(element, type(shape).__name__.lower(), size, mesh, scale)

    def _rules(self, loops: Iterable[Loop]) -> None:
        """What the rules for contact say beyond those of a URDF."""
        rules = self.model.collision_rules
        closed = {frozenset((loop.a, loop.b)) for loop in loops}
        if rules.parents != "filter" or rules.pairs or {frozenset(pair) for pair in rules.exclude} - closed:
            self.lose("rules for contact")

    # ---- constraints

    def _constraints(self) -> list[Loop]:
        """The loops; gears become mimics, as couplings of that kind do."""
        loops = []
        for coupling in self.model.couplings:
            if not (isinstance(coupling, Mimic) and self._mimic(coupling.of, coupling.joint, coupling)):
                self.lose("couplings of kind", type(coupling).__name__)
        for constraint in self.model.constraints:
            if isinstance(constraint, Gear) and self._mimic(constraint.driver, constraint.driven, constraint):
                continue
            known = isinstance(constraint, Loop) and type(constraint.joint) in _LOOPS
            if isinstance(constraint, Loop) and known and not callable(constraint.placement_a):
                loops.append(constraint)
            else:
                self.lose("constraints", constraint.shown_name)
        return loops

    def _mimic(self, of: Coordinate, joint: Coordinate, by: Gear | Mimic) -> bool:
        """Whether both are joints of the URDF, the second of which mimics no other yet."""
        driver, driven = self._step(of), self._step(joint)
        if driver is None or driven is None or driven in self.mimics:
            return False
        self.mimics[driven] = {"joint": driver, "multiplier": _text([by.ratio]), "offset": _text([by.offset])}
        return True

    def _step(self, coordinate: Coordinate) -> str | None:
        """The joint of the URDF that has a coordinate, if that is its only one."""
        name, k = (coordinate, 0) if isinstance(coordinate, str) else coordinate
        if name not in self.model._index["joint"]:  # a new coordinate of a coupling
            return None
        names, kinds = self.steps[self.model.joint(name).name]
        several = isinstance(coordinate, str) and len(names) > 1
        return names[k] if kinds[k] in _KINDS.values() and not several else None

    def _loop(self, robot: Element, loop: Loop) -> None:
        kind = _LOOPS[type(loop.joint)]
        element = _add(robot, "loop_joint", name=loop.shown_name, type=kind)
        for tag, name, placement in (("link1", loop.a, loop.placement_a), ("link2", loop.b, loop.placement_b)):
            body = WORLD if name == WORLD else self.model.body(name).name
            _add(element, tag, link=body, **_place(placement))  # type: ignore[arg-type]
        axis = (0.0, 0.0, 1.0) if kind == "planar" else getattr(loop.joint, "axis", None)
        if axis is not None:
            _add(element, "axis", xyz=_text(axis))


def _steps(body: Body) -> list[_Step] | None:
    """The joints of a URDF that a joint of the model is a chain of; None if there are none."""
    joint = body.joint
    if isinstance(joint, Fixed):
        return [_Step("fixed")]
    if isinstance(joint, Free):
        return [_Step("floating")]
    if isinstance(joint, (Revolute, Prismatic)):
        return [_Step(type(joint).__name__.lower(), joint.axis)]
    if (axis := _planar(joint)) and not _has_numbers(body):
        return [_Step("planar", axis)]
    factors, after = joint._factors
    at, steps = IDENTITY, []
    for factor in factors:
        at = compose(at, factor.before)
        if factor.kind not in _KINDS:
            return None
        steps.append(_Step(_KINDS[factor.kind], tuple(at[0][:, 2].tolist()), tuple(at[1].tolist())))
    R, p = compose(at, after)
    if np.abs(R - np.eye(3)).max() > 1e-14:  # of a user's own joint
        return None
    return [*steps, _Step("fixed", (), tuple(p.tolist()))] if not steps or np.any(p != steps[-1].position) else steps


def _planar(joint: Joint) -> tuple[float, ...] | None:
    """The axis of a planar joint."""
    if isinstance(joint, Free2D):
        return 0.0, 0.0, 1.0
    if isinstance(joint, Composite) and len(joint.joints) == 2:
        planar, revolute = joint.joints
        if isinstance(planar, Planar) and isinstance(revolute, Revolute):
            off = np.abs(np.subtract(planar.directions, plane(revolute.axis))).max()
            return revolute.axis if off < 1e-15 else None
    return None


def _has_numbers(body: Body) -> bool:
    """Whether a joint has limits or losses."""
    limits = (*body.position_limits[0], *body.position_limits[1], *body.velocity_limits, *body.effort_limits)
    return any(np.isfinite(limits)) or any(body.damping) or any(body.dry_friction)


def _size(shape: Any) -> tuple[float, ...] | None:
    """The numbers of a collision shape in a URDF; None if it cannot have it."""
    if isinstance(shape, Box) and not shape.radius:
        return shape.size
    if isinstance(shape, Sphere) and shape.radius:
        return (shape.radius,)
    if isinstance(shape, (Cylinder, Capsule)):
        return shape.radius, shape.length
    if isinstance(shape, Mesh) and shape.path and shape.vertices is None and not shape.radius:
        return ()
    return None


def _geometry(
    owner: Element, kind: str, size: Iterable[float], mesh: str | None, scale: tuple[float, float, float]
) -> None:
    numbers = iter(size)
    attributes = {name: _text([next(numbers) for _ in range(count)]) for name, count in SIZES[kind]}
    if mesh is not None:
        attributes["filename"] = mesh
        if scale != (1.0, 1.0, 1.0):
            attributes["scale"] = _text(scale)
    _add(_add(owner, "geometry"), kind, **attributes)


# ---- XML ---------------------------------------------------------------------------------------------------


def _add(parent: Element, tag: str, **attributes: str) -> Element:
    from xml.etree.ElementTree import SubElement

    return SubElement(parent, tag, attributes)


def _text(values: Iterable[float]) -> str:
    """Numbers with all their digits."""
    return " ".join(repr(float(x)).removesuffix(".0") for x in values)


def _pose(element: Element, pose: SE3) -> None:
    if attributes := _place(pose):
        _add(element, "origin", **attributes)


def _place(pose: SE3) -> dict[str, str]:
    """Attributes of a pose that are not zero."""
    out = {"xyz": _text(pose.p)} if pose.p.any() else {}
    rpy = _rpy(pose)
    return out | ({"rpy": _text(rpy)} if any(rpy) else {})


def _rpy(pose: SE3) -> tuple[float, float, float]:
    """Roll, pitch and yaw. Where pitch is +-pi/2, roll makes up for whatever yaw is."""
    (xx, xy, xz), (yx, yy, yz), (zx, _, _) = pose.R.tolist()
    yaw = atan2(yx, xx)
    c, s = cos(yaw), sin(yaw)
    return atan2(s * xz - c * yz, c * yy - s * xy), atan2(-zx, hypot(xx, yx)), yaw
