"""What a stick figure shows: bones, joints, supports and constraints of a model at one configuration, as solids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor import constraints as _constraints
from torsor.joints import Cylindrical, Fixed, Free, Free2D, Joint, Planar, Prismatic, Screw, Translational
from torsor.kinematics import body_poses
from torsor.model import WORLD, Body, Model, body_of_frame
from torsor.pictures import symbols
from torsor.pictures.solids import ball, box, cone, cylinder, moved, normals, plate
from torsor.shapes import HalfSpace
from torsor.spatial import SE3
from torsor.view.geometry import moved as moved_surface
from torsor.view.geometry import primitive, shape_surface

if TYPE_CHECKING:
    from torsor._typing import FloatArray
    from torsor.constraints.constraint import Constraint
    from torsor.inertia import Inertia

BONE, SHELL, LOOP, GAP = "#9aa5b1", "#d3dae1", "#30363c", "#c8374b"


class Shell(NamedTuple):
    """A box in the frame of a body: half edges (3,), axes, the columns of a rotation, and centre (3,)."""

    half: FloatArray
    turn: FloatArray
    center: FloatArray


@dataclass
class Skeleton:
    """A figure at one configuration: solids with colours, those that hold it, lines with styles, kinds of joints."""

    solids: list[tuple[FloatArray, str]] = field(default_factory=list)
    supports: list[tuple[FloatArray, str]] = field(default_factory=list)
    lines: list[tuple[FloatArray, str, str]] = field(default_factory=list)  # points, colour, style
    kinds: dict[str, symbols.Kind] = field(default_factory=dict)


@dataclass(frozen=True)
class Anatomy:
    """What does not change with q: the points of each body from which and to which bones go, and sizes."""

    model: Model
    constraints: tuple[Constraint, ...]
    t: float = 0.0  # at which markers are that move as prescribed

    @cached_property
    def markers(self) -> list[tuple[Constraint, list[tuple[int, SE3]]]]:
        """Constraints between bodies, and their markers: body (-1 is the world) and pose in it."""
        found = [(c, list(_markers(self.model, c, self.t))) for c in self.constraints]
        return [(c, places) for c, places in found if places]

    @cached_property
    def ends(self) -> list[FloatArray]:
        """Points (n, 3) of each body, in its frame, to which bones go from its origin."""
        model = self.model
        out: list[list[FloatArray]] = [[] for _ in model.bodies]
        for b in model.bodies:
            if b.parent != WORLD:
                out[model.body_index(b.parent)].append(b.placement.p)
        for _, places in self.markers:
            for i, pose in places:
                if i >= 0:
                    out[i].append(pose.p)
        return [np.array(points).reshape(-1, 3) for points in out]

    @cached_property
    def shells(self) -> list[Shell | None]:
        """The boxes of bodies that carry nothing else: around their visuals or collision shapes, or of the same
        inertia. Files have inertias that are far too large: their boxes reach little further than their centres do."""
        reach = sum(float(np.max(np.linalg.norm(points, axis=-1))) for points in self.ends if len(points))
        return [
            None if len(points) else _outline(b) or _equivalent_box(b.inertia, reach)
            for b, points in zip(self.model.bodies, self.ends, strict=True)
        ]

    def poses(self, q: FloatArray) -> FloatArray:
        """Poses of the bodies (nbodies, 4, 4) at q (nq,)."""
        return body_poses(self.model, q)

    def points(self, poses: FloatArray) -> FloatArray:
        """Points (n, 3) that must be in the picture."""
        out = [poses[:, :3, 3]]
        for i, (X, ends) in enumerate(zip(poses, self.ends, strict=True)):
            out.append(ends @ X[:3, :3].T + X[:3, 3])
            shell = self.shells[i]
            if shell is not None:
                out.append(moved(box(*shell), X).reshape(-1, 3))
        out += [pose.p[None] for _, places in self.markers for i, pose in places if i < 0]
        out += [b.placement.p[None] for b in self.model.bodies if b.parent == WORLD and _is_held(b.joint)]
        return np.concatenate(out)

    def size(self, points: FloatArray) -> float:
        """Half width of the symbols of joints for a picture of these points."""
        whole = float(np.linalg.norm(np.ptp(points, axis=0))) or 1.0
        lengths = np.array([float(np.linalg.norm(p)) for ends in self.ends for p in ends])
        lengths = lengths[lengths > 1e-3 * whole]
        typical = float(np.median(lengths)) if len(lengths) else whole
        return float(np.clip(0.18 * typical, 0.009 * whole, 0.021 * whole))

    def at(self, q: FloatArray, size: float, up: FloatArray) -> Skeleton:
        """The figure at q (nq,)."""
        model = self.model
        tree = model.tree
        q_tree = model.expand(q) if model.couplings else q
        poses, out = self.poses(q), Skeleton()
        for i, (b, X) in enumerate(zip(model.bodies, poses, strict=True)):
            self._add_body(out, i, X, size, up)
            parent = np.eye(4) if b.parent == WORLD else poses[model.body_index(b.parent)]
            base = parent @ b.placement.matrix
            if b.parent == WORLD and _is_held(b.joint):
                below = self._hangs(i, base, poses, up)
                out.supports.append((support(base[:3, 3], up if below else -up, size), symbols.DARK))
                if isinstance(b.joint, Fixed):
                    continue
            if isinstance(b.joint, Fixed) and not (b.placement.p.any() or len(self.ends[i])):
                continue
            kind = symbols.kind_of(b.joint)
            out.kinds[kind.name] = kind
            own, slid = q_tree[tree.joints[i].q_slice], X[:3, 3] - base[:3, 3]
            if _is_rail(b.joint) and np.linalg.norm(slid) > 0.5 * size:
                out.solids.append((cylinder(base[:3, 3], X[:3, 3], 0.3 * size, 8), BONE))
                if np.linalg.norm(slid) > 8 * size and not b.placement.p.any():  # beside the symbol of the parent
                    base[:3, 3] += 0.5 * slid
            out.solids += [(moved(s, base), color) for s, color in symbols.symbol(b.joint, own, size)]
        self._add_constraints(out, poses, size, up)
        self._add_couplings(out, poses)
        return out

    def _hangs(self, i: int, base: FloatArray, poses: FloatArray, up: FloatArray) -> bool:
        """Whether what a root carries is below it."""
        ends = self.ends[i] @ poses[i][:3, :3].T + poses[i][:3, 3]
        shell = self.shells[i]
        if shell is not None:
            ends = (poses[i][:3, :3] @ shell.center + poses[i][:3, 3])[None]
        return bool(len(ends)) and bool(((ends - base[:3, 3]) @ up).mean() < 0)

    def _add_body(self, out: Skeleton, i: int, X: FloatArray, size: float, up: FloatArray) -> None:
        """The bones of a body, or the box of its inertia where nothing is beyond it."""
        origin = X[:3, 3]
        ends = self.ends[i] @ X[:3, :3].T + origin
        apart = ends[np.linalg.norm(ends - origin, axis=-1) > 1e-9]
        out.solids += [(cylinder(origin, end, 0.38 * size), BONE) for end in apart]
        if len(apart) > 2:
            face = plate(apart)
            looks_down = len(face) and normals(face).mean(axis=0) @ up < 0
            out.solids.append((face[:, ::-1] if looks_down else face, SHELL))
        shell = self.shells[i]
        if shell is not None:
            half, turn, center = shell
            middle, longest = X[:3, :3] @ center + origin, int(np.argmax(half))
            thick = np.sort(half)[1]
            if thick < max(0.5 * size, 0.22 * half[longest]):  # a rod
                along = half[longest] * (X[:3, :3] @ turn[:, longest])
                out.solids.append((cylinder(middle - along, middle + along, max(thick, 0.38 * size)), BONE))
                if not np.any(half):
                    out.solids.append((ball(size, middle), BONE))
            else:
                out.solids.append((moved(box(np.maximum(half, 0.35 * size), turn, center), X), SHELL))
            if np.linalg.norm(middle - origin) > np.min(half):
                out.solids.append((cylinder(origin, middle, 0.38 * size), BONE))

    def _add_constraints(self, out: Skeleton, poses: FloatArray, size: float, up: FloatArray) -> None:
        """Loops as joints with dark outlines, rods of distances, planes and lines of points, and open gaps."""
        for constraint, places in self.markers:
            at = [(np.eye(4) if i < 0 else poses[i]) @ pose.matrix for i, pose in places]
            first, last = at[0], at[-1]
            if places[0][0] < 0 and not isinstance(constraint, _constraints.PrescribedBody):
                out.supports.append((support(first[:3, 3], -up, size), symbols.DARK))
            gap = np.stack([first[:3, 3], last[:3, 3]])
            if isinstance(constraint, _constraints.Loop):
                kind = symbols.kind_of(constraint.joint)
                out.kinds[f"{kind.name} loop"] = symbols.Kind(f"{kind.name} loop", LOOP, kind.marker)
                neutral = constraint.joint.neutral
                solids = symbols.symbol(constraint.joint, neutral, size)
                out.solids += [(moved(s, first), LOOP if c != symbols.WHITE else c) for s, c in solids]
                if np.linalg.norm(gap[1] - gap[0]) > 0.3 * size and not _is_rail(constraint.joint):
                    out.lines.append((gap, GAP, "--"))
                continue
            name = _NAMES.get(type(constraint), "constraint")
            out.kinds[name] = symbols.Kind(name, LOOP, "D")
            out.solids += [(ball(0.55 * size, end), LOOP) for end in gap]
            if isinstance(constraint, _constraints.Distance):
                out.solids.append((cylinder(gap[0], gap[1], 0.22 * size, 8), LOOP))
            elif isinstance(constraint, _constraints.PointOnPlane):
                out.solids.append((moved(box((4 * size, 4 * size, 0.05 * size)), first), SHELL))
            elif isinstance(constraint, _constraints.PointOnLine):
                reach = max(5 * size, 1.2 * float(np.linalg.norm(gap[1] - gap[0])))
                out.lines.append((np.stack([first[:3, 3] + s * reach * first[:3, 2] for s in (-1, 1)]), LOOP, "-."))

    def _add_couplings(self, out: Skeleton, poses: FloatArray) -> None:
        """Dotted lines from joints that follow to those that lead, and between joints of one constraint."""
        pairs = [(j.body, leader) for j in self.model.joints for leader in j.follows]
        for c in self.constraints:
            names = _joints_of(c)
            pairs += [*pairwise(names)]
        for a, b in pairs:
            if a in self.model._index["joint"] and b in self.model._index["joint"]:
                at = poses[[self.model._find(a, "joint"), self.model._find(b, "joint")], :3, 3]
                out.lines.append((at, symbols.PURPLE, ":"))
                out.kinds["coupling"] = symbols.Kind("coupling", symbols.PURPLE, "")


_NAMES: dict[type, str] = {
    _constraints.Distance: "distance",
    _constraints.PointOnPlane: "point on a plane",
    _constraints.PointOnLine: "point on a line",
    _constraints.PrescribedBody: "prescribed body",
}


def support(point: FloatArray, away: FloatArray, size: float) -> FloatArray:
    """A pyramid on the ground that holds a joint at `point`, towards `away`."""
    foot = point + 2.6 * size * away
    return np.concatenate(
        [cone(point, foot, 0.0, 1.7 * size, 4), cone(foot, foot + 0.3 * size * away, 2.2 * size, 2.2 * size, 4)]
    )


def _is_held(joint: Joint) -> bool:
    """Whether a joint to the world is a bearing, in contrast to coordinates of a body that moves freely."""
    return not isinstance(joint, (Free, Free2D, Translational, Planar)) and joint.nv < 6


def _is_rail(joint: Joint) -> bool:
    return isinstance(joint, (Prismatic, Screw, Cylindrical))


def _joints_of(constraint: Constraint) -> list[str]:
    """Names of the joints in whose coordinates a constraint is given."""
    named = constraint._named()
    return [] if named is None else sorted(named[1])


def _markers(model: Model, constraint: Any, t: float) -> Iterator[tuple[int, SE3]]:
    """The markers of a constraint on its bodies at a time; none for a constraint in coordinates."""
    if isinstance(constraint, _constraints.PrescribedBody):
        yield _place(model, constraint.body, constraint.placement)
        return
    for side in ("a", "b"):
        body = getattr(constraint, side, None)
        if not isinstance(body, str):
            return
        pose = getattr(constraint, f"placement_{side}", None)
        if callable(pose):
            pose = SE3.from_matrix(_matrix(pose(t)[0]))
        point = getattr(constraint, f"point_{side}", (0.0, 0.0, 0.0))
        yield _place(model, body, SE3(p=point) if pose is None else pose)


def _matrix(pose: Any) -> FloatArray:
    return np.asarray(pose.matrix if isinstance(pose, SE3) else pose, dtype=np.float64)


def _place(model: Model, name: str, pose: SE3) -> tuple[int, SE3]:
    """The body, -1 for the world, and the pose in it, of a pose in a body or frame."""
    if name == WORLD:
        return -1, pose
    i = model._find(name, "frame")
    return body_of_frame(model, i), model.frame(name).placement @ pose


def _outline(body: Body) -> Shell | None:
    """The box around the visuals of a body, or around its collision shapes, other than meshes; None without any."""
    surfaces = [moved_surface(primitive(v.shape, v.size), v.placement) for v in body.visuals if v.shape != "mesh"]
    if not surfaces:
        found = (shape_surface(c.shape, 0.0) for c in body.collisions if not isinstance(c.shape, HalfSpace))
        surfaces = [surface for surface in found if surface is not None]
    if not surfaces:
        return None
    turn = body.visuals[0].placement.R if len(surfaces) == len(body.visuals) == 1 else np.eye(3)
    points = np.concatenate([vertices for vertices, _ in surfaces]) @ turn
    low, high = points.min(axis=0), points.max(axis=0)
    return Shell((high - low) / 2, np.asarray(turn), turn @ (low + high) / 2)


def _equivalent_box(inertia: Inertia, reach: float) -> Shell | None:
    """The homogeneous box of the same inertia, no larger than fits a mechanism of this reach, 0 for any; None without
    mass."""
    if not inertia.mass > 0:
        return None
    moments, axes = np.linalg.eigh(np.asarray(inertia.I_com))
    half = np.sqrt(np.maximum(1.5 * (moments.sum() - 2 * moments), 0.0) / inertia.mass)
    turn, center = axes * np.sign(np.linalg.det(axes)), np.asarray(inertia.com)
    if reach > 0:
        away = float(np.linalg.norm(center))
        along = np.abs(center @ turn) / (away or 1.0)  # of each axis with the line to the centre
        half = np.minimum(half, np.maximum(away * (0.4 + 0.65 * along**2), 0.012 * reach))
    return Shell(half, turn, center)


def tracked(model: Model, names: Sequence[str]) -> list[tuple[int, SE3]]:
    """Bodies and poses in them of bodies and frames by name."""
    return [_place(model, name, SE3()) for name in names]
