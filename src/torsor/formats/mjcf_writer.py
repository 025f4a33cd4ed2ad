"""MJCF files, written."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from math import inf, isinf
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from numpy.polynomial import Polynomial

from torsor._compile import IDENTITY, Pose, compose
from torsor._core import JointKind
from torsor._errors import FormatWarning, ModelError
from torsor._files import whole_file
from torsor.constraints.couplings import Coupling, Gear, PolynomialCoupling, PrescribedJoint
from torsor.constraints.pairs import Loop
from torsor.couplings import Coordinate, JointCoupling, Mimic
from torsor.couplings import Polynomial as JointPolynomial
from torsor.joints import Fixed, Free, Spherical
from torsor.model import WORLD, Body, Model, require_model
from torsor.shapes import Box, Capsule, Cylinder, Ellipsoid, HalfSpace, Mesh, Shape, Sphere
from torsor.spatial import SE3

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torsor._typing import RefuseOrWarn
    from torsor.constraints.constraint import Constraint

_KINDS: dict[int, str] = {
    JointKind.revolute: "hinge", JointKind.prismatic: "slide", JointKind.spherical: "ball", JointKind.free: "free",
}  # fmt: skip

_HALVES = {"box": (0.5, 0.5, 0.5), "cylinder": (1.0, 0.5), "capsule": (1.0, 0.5)}  # sizes there are half of those here


def to_mjcf(model: Model, path: str | os.PathLike[str] | None = None, *, unsupported: RefuseOrWarn = "refuse") -> str:
    """Writes a model as MJCF: `load_mjcf` of the result is the same mechanism, with the same coordinates.

    Bodies become bodies of the same names and frames; bodies without mass that only carry another on their joint become
    joints of that one, as `load_mjcf` reads them. A joint that is a chain of hinges, slides and balls becomes several
    joints (`hip_1`, `hip_2`, ...). Springs, dampers, friction, armature, limits, gravity compensation, tendons,
    actuators, keyframes, visuals, collision shapes and their rules are written, and of constraints `Loop` by `Fixed`
    and `Spherical` joints, `Gear`, `Coupling`, `PolynomialCoupling` and constant `PrescribedJoint`. Numbers have all
    their digits; inertias come back to rounding. Couplings (`Mimic`, and `Polynomial` up to the fourth degree) are
    written as equalities of joints, which `load_mjcf(text, equality="couple")` reads as couplings.

    What MJCF cannot carry: screws, exponential and spline joints and user-defined ones; `Free` joints that are not on
    the world itself; bodies that move and have no mass or a singular inertia; limits of balls and of velocities, and
    those that leave one position; other couplings and constraints; terrains and height fields.

    Parameters
    ----------
    model : Model
    path : str or path-like, optional
        File to write.
    unsupported : {'refuse', 'warn'}
        Whether to refuse models with parts that MJCF cannot carry, or to leave these out with one warning that lists
        them. Joints and bodies that it cannot carry are always refused.

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
    >>> ball = ts.ModelBuilder("ball")
    >>> _ = ball.add_body("ball", joint=ts.Free(), inertia=ts.Inertia.sphere(radius=0.1, mass=1.0))
    >>> text = ts.to_mjcf(ball.build(), "ball.xml")
    >>> ts.load_mjcf(text).mass
    1.0
    """
    if unsupported not in ("refuse", "warn"):
        raise ValueError(f"unsupported must be 'refuse' or 'warn', got {unsupported!r}")
    writer = _Writer(require_model(model))
    try:
        root = writer.root()
        ElementTree.indent(root)
    except RecursionError:
        raise ModelError(f"MJCF nests bodies, and MuJoCo refuses trees as deep as {model.name!r}") from None
    faults = [*writer.refused, *writer.lost]
    if writer.refused or (faults and unsupported == "refuse"):
        hint = "" if writer.refused else "; change the model, or pass unsupported='warn' to leave this out"
        raise ModelError(f"MJCF cannot carry all of {model.name!r}: {'; '.join(faults)}{hint}")
    if writer.lost:
        warnings.warn(f"left out of the MJCF of {model.name!r}: {'; '.join(writer.lost)}", FormatWarning, stacklevel=2)
    text = ElementTree.tostring(root, encoding="unicode") + "\n"
    if path is not None:
        with whole_file(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    return text


def _text(values: Any) -> str:
    """Numbers with all their digits."""
    return " ".join(repr(float(x)) for x in np.atleast_1d(values))


def _place(pose: SE3 | Pose) -> dict[str, str]:
    """Attributes of a pose, without those that are the default."""
    R, p = (pose.R, pose.p) if isinstance(pose, SE3) else pose
    out: dict[str, str] = {}
    if np.any(p):
        out["pos"] = _text(p)
    if not np.array_equal(R, np.eye(3)):
        out["quat"] = _text(np.roll(SE3(R, np.zeros(3)).quaternion, 1))
    return out


@dataclass
class _Step:
    """A joint of the MJCF file: its kind, its frame in that of the joint it begins with, and its owner's numbers."""

    name: str
    kind: str
    frame: Pose
    owner: Body
    first: tuple[int, int]  # of its coordinates and velocities in those of the owner
    nq: int
    nv: int


class _Writer:
    def __init__(self, coupled: Model) -> None:
        self.coupled, self.model = coupled, coupled.tree
        model = self.model
        self.refused: list[str] = []
        self.lost: list[str] = []
        self.children: dict[str, list[Body]] = {}
        for body in model.bodies:
            self.children.setdefault(body.parent, []).append(body)
        self.joint_names: dict[tuple[str, int], str] = {}  # by joint of the model and coordinate
        self.assets: dict[tuple[Any, ...], str] = {}
        self.geom_names: set[str] = set()
        self.sites: dict[str, list[tuple[str, SE3]]] = {}
        for frame in model.frames:
            self.sites.setdefault(frame.body, []).append((frame.name, frame.placement))
        self.site_names = {frame.name for frame in model.frames}
        self.named = self._referred()

    def _referred(self) -> set[str]:
        """Bodies that something refers to, which must remain bodies."""
        model, out = self.model, set[str]()
        for constraint in model.constraints:
            out |= {str(getattr(constraint, end, "")) for end in ("a", "b", "body")}
        for tendon in model.tendons:
            out |= {*tendon.bodies}
        out |= {str(actuator.body) for actuator in model.actuators}
        named = {frame.name: frame.body for frame in model.frames}
        return {named.get(name, name) for name in out} | {*named.values()}

    def _site(self, name: str, place: str, pose: SE3, *, point: bool = False) -> str:
        """Name of a site at a pose on a body or frame, or at a point: that of a frame, or of a new one."""
        body = WORLD
        if place != WORLD:
            on = self.model.frame(place)
            body, pose = on.body, on.placement @ pose
        for frame in self.model.frames:
            same = frame.body == body and np.array_equal(frame.placement.p, pose.p)
            if same and (point or np.array_equal(frame.placement.R, pose.R)):
                return frame.name
        free, number = name, 1
        while free in self.site_names:
            number += 1
            free = f"{name}_{number}"
        self.site_names.add(free)
        self.sites.setdefault(body, []).append((free, pose))
        return free

    def root(self) -> Element:
        """The whole file."""
        model = self.model
        root = Element("mujoco", {"model": model.name} if model.name else {})
        SubElement(root, "compiler", {"angle": "radian", "autolimits": "false", "inertiafromgeom": "false"})
        option = SubElement(root, "option", {"gravity": _text(model.gravity)})
        if model.collision_rules.parents == "allow":
            SubElement(option, "flag", {"filterparent": "disable"})
        asset = Element("asset")
        later = [self._tendons(), self._equality(), self._actuators()]  # which give bodies their sites
        world = Element("worldbody")
        self._geoms(world, (), model.world_collisions)
        self._put_sites(world, WORLD)
        for child in self.children.get(WORLD, []):
            self._body(world, child, WORLD, IDENTITY, [])
        for (kind, *what), name in self.assets.items():
            SubElement(asset, "mesh", {"name": name, kind: str(what[0]), **({"scale": what[1]} if what[1] else {})})
        parts = [asset, world, self._contact(), *later, self._keyframes()]
        root.extend(part for part in parts if len(part) or part.tag == "worldbody")
        return root

    # ---- bodies

    def _is_step(self, body: Body) -> bool:
        """Whether a body only carries its one child on its joint."""
        below = self.children.get(body.name, [])
        plain = not (body.visuals or body.collisions or body.inertia.parameters.any() or body.name in self.named)
        return plain and body.joint.nv > 0 and len(below) == 1 and not isinstance(body.joint, Free)

    def _body(self, parent: Element, body: Body, above: str, start: Pose, steps: list[_Step]) -> None:
        """Writes a body with the joints before it; `start`: the pose of its parent's frame when these do not move."""
        pose = compose(start, (body.placement.R, body.placement.p))
        factors, after = body.joint._factors
        at_q = at_v = 0
        for k, factor in enumerate(factors):
            pose = compose(pose, factor.before)
            name = body.joint_name if len(factors) == 1 else f"{body.joint_name}_{k + 1}"
            if factor.kind not in _KINDS:
                self.refused.append(f"joint {body.joint_name!r} is {type(body.joint).__name__}")
            kind = _KINDS.get(factor.kind, "hinge")
            steps.append(_Step(name, kind, pose, body, (at_q, at_v), factor.nq, factor.nv))
            for c in range(factor.nq):
                self.joint_names[body.joint_name, at_q + c] = name
            at_q, at_v = at_q + factor.nq, at_v + factor.nv
        end = compose(pose, after)
        if self._is_step(body):
            self._body(parent, self.children[body.name][0], above, end, steps)
            return
        element = SubElement(parent, "body", {"name": body.name})
        if body.gravity_compensation:
            element.set("gravcomp", repr(float(body.gravity_compensation)))
        rest = self._joints(element, body, above, end, steps)
        for key, value in _place(rest).items():
            element.set(key, value)
        self._inertial(element, body, bool(steps))
        self._geoms(element, body.visuals, body.collisions)
        self._put_sites(element, body.name)
        for child in self.children.get(body.name, []):
            self._body(element, child, body.name, IDENTITY, [])

    def _joints(self, element: Element, body: Body, above: str, end: Pose, steps: list[_Step]) -> Pose:
        """Writes the joints of a body. Its pose at the reference: `end`, or where the spring of a free joint rests."""
        R, p = end
        inverse = (R.T, -R.T @ p)
        for step in steps:
            frame = compose(inverse, step.frame)
            if step.kind == "free":
                exact = np.array_equal(step.frame[0], np.eye(3)) and not step.frame[1].any()
                if above != WORLD or len(steps) > 1 or not exact or np.any(frame[1]) or self._turned(frame):
                    self.refused.append(f"joint {step.name!r} is free, but not directly on the world")
            if step.kind == "ball" and self._turned(frame):
                self.refused.append(f"joint {step.name!r} is a ball whose frame is not aligned with body {body.name!r}")
            attributes = {"name": step.name, "type": step.kind}
            if step.kind in ("hinge", "slide"):
                attributes["axis"] = _text(frame[0][:, 2])
            if step.kind in ("hinge", "ball") and frame[1].any():
                attributes["pos"] = _text(frame[1])
            SubElement(element, "joint", attributes | self._numbers(step))
        free = [step for step in steps if step.kind == "free"]
        if free and any(free[0].owner.stiffness):
            rest = np.array(free[0].owner.rest)
            return SE3.from_quaternion(rest[3:], rest[:3]).R, rest[:3]
        return end

    @staticmethod
    def _turned(frame: Pose) -> bool:
        return not np.allclose(frame[0], np.eye(3), rtol=0, atol=1e-14)

    def _numbers(self, step: _Step) -> dict[str, str]:
        """Springs, dampers, friction, armature and limits of a joint."""
        b, (iq, iv) = step.owner, step.first
        out: dict[str, str] = {}

        def uniform(name: str, values: Iterable[float]) -> float:
            own = [*values][iv : iv + step.nv]
            if len(set(own)) > 1:
                self.lost.append(f"{name} of joint {step.name!r} that differs between its velocities")
            return float(own[0])

        for name, key in (
            ("stiffness", "stiffness"), ("damping", "damping"), ("dry_friction", "frictionloss"),
            ("armature", "armature"),
        ):  # fmt: skip
            if any(getattr(b, name)[iv : iv + step.nv]):
                out[key] = repr(uniform(name, getattr(b, name)))
        rest = b.rest[iq : iq + step.nq]
        if step.nq == 1:
            if "stiffness" in out:
                out["springref"] = repr(float(rest[0]))
            low, high = b.position_limits[0][iq], b.position_limits[1][iq]
            if low == high:
                self.lost.append(f"limits of joint {step.name!r}, which leave one position")
            elif not isinf(low) or not isinf(high):
                # MuJoCo has both limits or none
                out |= {"limited": "true", "range": _text([max(low, -1e10), min(high, 1e10)])}
            effort = b.effort_limits[iv]
            if not isinf(effort):
                out |= {"actuatorfrclimited": "true", "actuatorfrcrange": _text([-effort, effort])}
        else:
            if "stiffness" in out and step.kind == "ball" and abs(rest[3]) != np.linalg.norm(rest):
                self.lost.append(f"rest of the spring of ball {step.name!r}")
            limits = (*b.position_limits[0][iq : iq + step.nq], *b.position_limits[1][iq : iq + step.nq])
            if not all(isinf(x) for x in (*limits, *b.effort_limits[iv : iv + step.nv])):
                self.lost.append(f"limits of joint {step.name!r}")
        if not all(isinf(x) for x in b.velocity_limits[iv : iv + step.nv]):
            self.lost.append(f"velocity limits of joint {step.name!r}")
        return out

    def _inertial(self, element: Element, body: Body, moves: bool) -> None:
        inertia = body.inertia
        moments = np.linalg.eigvalsh(inertia.I_com)
        if moves and (inertia.mass < 1e-15 or moments[0] < 1e-15):
            what = "no mass" if inertia.mass < 1e-15 else f"the principal moments of inertia {moments.tolist()}"
            self.refused.append(f"body {body.name!r} moves and has {what}")
        if inertia.mass:
            J = inertia.I_com
            full = [J[0, 0], J[1, 1], J[2, 2], J[0, 1], J[0, 2], J[1, 2]]
            tensor = {"fullinertia": _text(full)} if moments[0] > 0 else {"diaginertia": _text(np.diag(J))}
            SubElement(element, "inertial", {"mass": repr(float(inertia.mass)), "pos": _text(inertia.com), **tensor})

    def _put_sites(self, element: Element, body: str) -> None:
        for name, pose in self.sites.get(body, []):
            SubElement(element, "site", {"name": name, **_place(pose)})

    # ---- geoms

    def _geoms(self, element: Element, visuals: Iterable[Any], collisions: Iterable[Any]) -> None:
        for visual in visuals:
            attributes = {"type": visual.shape, "contype": "0", "conaffinity": "0", "group": "2"}
            if visual.shape == "mesh":
                attributes["mesh"] = self._mesh(("file", str(visual.mesh), _text(visual.mesh_scale)))
            else:
                attributes["size"] = _text(visual.size * np.array(_HALVES.get(visual.shape, 1.0)))
            if visual.color is not None:
                attributes["rgba"] = _text(visual.color)
            SubElement(element, "geom", attributes | _place(visual.placement))
        for collision in collisions:
            attributes = self._shape(collision.shape)
            if not attributes:
                self.lost.append(f"a collision shape {type(collision.shape).__name__}")
                continue
            attributes["group"] = "3"  # not shown
            if collision.name:
                self.geom_names.add(collision.name)
                attributes["name"] = collision.name
            for name in ("contype", "conaffinity", "condim", "priority"):
                attributes[name] = str(getattr(collision, name))
            for name in ("solmix", "margin", "gap"):
                attributes[name] = repr(float(getattr(collision, name)))
            for name in ("solref", "solimp"):
                if getattr(collision, name) is not None:
                    attributes[name] = _text(getattr(collision, name))
            if collision.friction is not None:
                attributes["friction"] = _text([collision.friction, 0.005, 0.0001])
            SubElement(element, "geom", attributes)

    def _mesh(self, key: tuple[Any, ...]) -> str:
        return self.assets.setdefault(key, f"mesh{len(self.assets)}")

    def _shape(self, shape: Shape) -> dict[str, str]:
        """Attributes of the geom of a shape; none if there is no such geom."""
        if isinstance(shape, HalfSpace):
            normal = np.array(shape.normal) / np.linalg.norm(shape.normal)
            return {"type": "plane", "size": "0 0 1", "pos": _text(shape.offset * normal), "zaxis": _text(normal)}
        if isinstance(shape, Sphere):
            return {"type": "sphere", "size": _text(shape.radius), "pos": _text(shape.position)}
        if isinstance(shape, (Capsule, Cylinder)):
            size = _text([shape.radius, shape.length / 2])
            return {"type": type(shape).__name__.lower(), "size": size, **_place(shape.placement)}
        if isinstance(shape, Box) and shape.radius == 0:
            return {"type": "box", "size": _text(np.array(shape.size) / 2), **_place(shape.placement)}
        if isinstance(shape, Ellipsoid):
            return {"type": "ellipsoid", "size": _text(shape.semi_axes), **_place(shape.placement)}
        if isinstance(shape, Mesh) and shape.radius == 0 and (shape.path or shape.vertices is not None):
            key = ("file", shape.path, _text(shape.scale)) if shape.path else ("vertex", _text(shape.vertices), "")
            return {"type": "mesh", "mesh": self._mesh(key), **_place(shape.placement)}
        return {}

    def _contact(self) -> Element:
        contact, rules = Element("contact"), self.model.collision_rules
        for a, b in rules.exclude:
            SubElement(contact, "exclude", {"body1": a, "body2": b})
        for pair in rules.pairs:
            if not {pair.first, pair.second} <= self.geom_names:
                self.lost.append(f"the contact pair {pair.first!r}, {pair.second!r}")
                continue
            attributes = {"geom1": pair.first, "geom2": pair.second, "condim": str(pair.condim)}
            attributes |= {"margin": repr(float(pair.margin)), "gap": repr(float(pair.gap))}
            if pair.friction is not None:
                attributes["friction"] = _text([pair.friction, pair.friction, 0.005, 0.0001, 0.0001])
            for name in ("solref", "solimp"):
                if getattr(pair, name) is not None:
                    attributes[name] = _text(getattr(pair, name))
            SubElement(contact, "pair", attributes)
        return contact

    # ---- tendons, constraints, actuators, keyframes

    def _joint_of(self, coordinate: Any) -> str | None:
        """The joint of the file that a coordinate of the model is; joints are named before bodies are written."""
        name, k = (coordinate, 0) if isinstance(coordinate, str) else coordinate
        joint = self.model.joint(name)
        at = 0
        factors = joint.joint._factors[0]
        for i, factor in enumerate(factors):
            if at == k and factor.nq == 1:
                return joint.name if len(factors) == 1 else f"{joint.name}_{i + 1}"
            at += factor.nq
        return None

    def _tendons(self) -> Element:
        self.tendon_section = section = Element("tendon")
        for tendon in self.model.tendons:
            attributes = {"name": tendon.name}
            if tendon.stiffness or tendon.damping:
                attributes |= {
                    "stiffness": repr(float(tendon.stiffness)), "damping": repr(float(tendon.damping)),
                    "springlength": _text(tendon.rest),
                }  # fmt: skip
            if not all(isinf(x) for x in tendon.limits):
                low, high = max(tendon.limits[0], -1e10), min(tendon.limits[1], 1e10)
                attributes |= {"limited": "true", "range": _text([low, high])}
            element = SubElement(section, "spatial" if tendon.is_path else "fixed", attributes)
            for name, coefficient in zip(tendon.joints, tendon.coefficients, strict=True):
                SubElement(element, "joint", {"joint": self._joint_of(name) or name, "coef": repr(coefficient)})
            for k, (body, point) in enumerate(zip(tendon.bodies, tendon.points, strict=True)):
                site = self._site(f"{tendon.name}_{k + 1}", body, SE3.translation(point), point=True)
                SubElement(element, "site", {"site": site})
        return section

    def _equality(self) -> Element:
        section = Element("equality")
        for coupling in self.coupled.couplings:
            if not self._write_coupling(section, coupling):
                self.refused.append(f"the coupling {coupling!r}")
        for k, constraint in enumerate(self.model.constraints):
            if not self._write_constraint(section, constraint, f"constraint{k}"):
                self.lost.append(f"the constraint {constraint.shown_name!r}")
        return section

    def _write_coupling(self, section: Element, coupling: JointCoupling) -> bool:
        if isinstance(coupling, Mimic):
            return self._write_polynomial(section, {}, coupling.joint, coupling.of, [coupling.offset, coupling.ratio])
        if isinstance(coupling, JointPolynomial):
            c, center = coupling.coefficients, coupling.center
            return self._write_polynomial(section, {}, coupling.joint, coupling.of, c, center)
        return False

    def _write_polynomial(
        self,
        section: Element,
        named: dict[str, str],
        driven: Coordinate,
        driver: Coordinate,
        coefficients: Sequence[float],
        center: float = 0.0,
    ) -> bool:
        """Writes an equality of two joints, if both are joints of the file and the degree is at most four."""
        y, x = self._joint_of(driven), self._joint_of(driver)
        c = Polynomial(coefficients)(Polynomial([-center, 1.0])).coef.tolist() if center else [*coefficients]
        if y is None or x is None or len(c) > 5:
            return False
        c += [0.0] * (5 - len(c))
        SubElement(section, "joint", named | {"joint1": y, "joint2": x, "polycoef": _text(c)})
        return True

    def _write_constraint(self, section: Element, constraint: Constraint, label: str) -> bool:
        named = {"name": str(constraint.name)} if getattr(constraint, "name", None) else {}
        if isinstance(constraint, Loop):
            kinds: dict[type, str] = {Fixed: "weld", Spherical: "connect"}
            kind, placement = kinds.get(type(constraint.joint)), constraint.placement_a
            if kind is None or not isinstance(placement, SE3):
                return False
            a = self._site(f"{label}_a", constraint.a, placement)
            b = self._site(f"{label}_b", constraint.b, constraint.placement_b)
            SubElement(section, kind, named | {"site1": a, "site2": b})
            return True
        if isinstance(constraint, Gear):
            c = [constraint.offset, constraint.ratio]
            return self._write_polynomial(section, named, constraint.driven, constraint.driver, c)
        if isinstance(constraint, PolynomialCoupling):
            numbers = constraint.coefficients, constraint.center
            return self._write_polynomial(section, named, constraint.driven, constraint.driver, *numbers)
        if isinstance(constraint, PrescribedJoint) and not callable(constraint.motion):
            joint = self._joint_of(constraint.joint)
            if joint is None or np.size(constraint.motion) != 1:
                return False
            value = float(np.ravel(constraint.motion)[0])
            SubElement(section, "joint", named | {"joint1": joint, "polycoef": _text([value, 0, 0, 0, 0])})
            return True
        if isinstance(constraint, Coupling):
            joints = [self._joint_of(c) for c in constraint.joints]
            if None in joints:
                return False
            name = self._sum([str(joint) for joint in joints], constraint.coefficients, label)
            offset = _text([constraint.offset, 0, 0, 0, 0])
            SubElement(section, "tendon", named | {"tendon1": name, "polycoef": offset})
            return True
        return False

    def _sum(self, joints: list[str], coefficients: Sequence[float], name: str) -> str:
        """Name of a tendon that is this sum of joints: that of a tendon of the model, or of a new one."""
        for tendon in self.model.tendons:
            own = [self._joint_of(joint) for joint in tendon.joints]
            if own == joints and np.array_equal(tendon.coefficients, coefficients):
                return tendon.name
        used = {str(element.get("name")) for element in self.tendon_section}
        free, number = name, 1
        while free in used:
            number += 1
            free = f"{name}_{number}"
        element = SubElement(self.tendon_section, "fixed", {"name": free})
        for joint, coefficient in zip(joints, coefficients, strict=True):
            SubElement(element, "joint", {"joint": joint, "coef": repr(float(coefficient))})
        return free

    def _actuators(self) -> Element:
        section = Element("actuator")
        for actuator in self.model.actuators:
            attributes = {
                "name": actuator.name, "gear": _text(actuator.gear), "gainprm": _text(actuator.gain),
                "biasprm": _text(actuator.bias), "gaintype": "affine" if any(actuator.gain[1:]) else "fixed",
                "biastype": "affine" if any(actuator.bias) else "none",
            }  # fmt: skip
            for name, (low, high) in (("ctrl", actuator.control_limits), ("force", actuator.force_limits)):
                if (low, high) != (-inf, inf):
                    attributes |= {f"{name}limited": "true", f"{name}range": _text([max(low, -1e10), min(high, 1e10)])}
            if actuator.tendon is not None:
                attributes["tendon"] = actuator.tendon
            elif actuator.body is not None:
                attributes["site"] = self._site(f"{actuator.name}_site", actuator.body, actuator.placement)
            else:
                joint = self.model.joint(str(actuator.joint)).name
                attributes["jointinparent" if actuator.in_parent else "joint"] = joint
            SubElement(section, "general", attributes)
        return section

    def _keyframes(self) -> Element:
        section = Element("keyframe")
        for name, key in self.coupled.keyframes.items():
            q, v = np.array(key.q), np.array(key.v)
            if self.coupled.couplings:
                q, v = self.coupled.expand(q), self.coupled.expand_velocity(q, v)
            for joint in self.model.joints:
                at, dof = joint.q_slice.start, joint.v_slice.start
                for factor in joint.joint._factors[0]:
                    if factor.nq > factor.nv:
                        last = slice(at + factor.nq - 4, at + factor.nq)
                        if factor.kind == JointKind.free:
                            R = SE3.from_quaternion(q[last]).R
                            v[dof : dof + 6] = np.concatenate([R @ v[dof + 3 : dof + 6], v[dof : dof + 3]])
                        q[last] = np.roll(q[last], 1)
                    at, dof = at + factor.nq, dof + factor.nv
            attributes = {"name": name, "time": repr(float(key.t)), "qpos": _text(q), "qvel": _text(v)}
            if key.controls:
                attributes["ctrl"] = _text(key.controls)
            SubElement(section, "key", attributes)
        return section
