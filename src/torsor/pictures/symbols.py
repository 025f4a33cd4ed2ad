"""A symbol for each kind of joint: solids in the frame of the joint, before its motion, and their colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor import joints
from torsor.pictures.solids import ball, box, cone, cylinder, joined, moved, octahedron, pin, wire

if TYPE_CHECKING:
    from torsor._typing import FloatArray

WHITE, DARK = "#ffffff", "#30363c"
BLUE, GREEN, RED, AMBER, PURPLE, GRAY = "#3578b5", "#2a9d5c", "#c8374b", "#e0a030", "#7a1f3d", "#6b7680"


class Kind(NamedTuple):
    """How a kind of joint is named, its colour, and the marker that stands for it in a legend."""

    name: str
    color: str
    marker: str


_KINDS: dict[type[joints.Joint], Kind] = {
    joints.Fixed: Kind("fixed", GRAY, "s"),
    joints.Revolute: Kind("revolute", BLUE, "o"),
    joints.Prismatic: Kind("prismatic", GREEN, "s"),
    joints.Screw: Kind("screw", AMBER, "X"),
    joints.Cylindrical: Kind("cylindrical", "#1b8a9c", "H"),
    joints.Planar: Kind("planar", "#77a83a", "s"),
    joints.Translational: Kind("translational", GREEN, "P"),
    joints.Universal: Kind("universal", "#5b54c4", "P"),
    joints.Spherical: Kind("spherical", RED, "o"),
    joints.SphericalEuler: Kind("spherical", RED, "o"),
    joints.SphericalExp: Kind("spherical", RED, "o"),
    joints.Free: Kind("free", PURPLE, "D"),
    joints.Free2D: Kind("free in a plane", PURPLE, "o"),
    joints.SplineCurve: Kind("spline curve", "#d4691e", "*"),
    joints.SplineSurface: Kind("spline surface", "#d4691e", "d"),
}
_OWN = Kind("custom", "#d0568a", "^")
_COMPOSITE = Kind("composite", DARK, "p")

Symbol = list[tuple["FloatArray", str]]  # solids with their colours


def kind_of(joint: joints.Joint) -> Kind:
    """The kind of a joint."""
    return _COMPOSITE if isinstance(joint, joints.Composite) else _KINDS.get(type(joint), _OWN)


def symbol(joint: joints.Joint, q: FloatArray, size: float) -> Symbol:
    """The symbol of a joint at its coordinates q (nq,), of half width `size`."""
    color = kind_of(joint).color
    if isinstance(joint, joints.Composite):
        return _composite(joint, q, size)
    if isinstance(joint, (joints.Revolute, joints.Universal)):
        return _hinges(joint, q, size, color)
    if isinstance(joint, (joints.Prismatic, joints.Planar, joints.Translational)):
        return _slides(joint, size, color)
    if isinstance(joint, (joints.Screw, joints.Cylindrical)):
        return _spindle(joint, q, size, color)
    if isinstance(joint, (joints.SplineCurve, joints.SplineSurface)):
        return _spline(joint, q, size, color)
    if isinstance(joint, (joints.Spherical, joints.SphericalEuler, joints.SphericalExp)):
        return [(ball(1.15 * size), color)]
    if isinstance(joint, joints.Free2D):
        here = joint.T(q)
        disc = pin((0, 0, 1), 1.7 * size, 0.18 * size, 20), pin((0, 0, 1), 0.6 * size, 0.7 * size, 12)
        return [(moved(disc[0], here), color), (moved(disc[1], here), WHITE)]
    if isinstance(joint, joints.Free):
        return [(moved(octahedron(1.5 * size), joint.T(q)), color)]
    if isinstance(joint, joints.Fixed):
        return [(box((0.6 * size,) * 3), color)]
    return [(cone((0, 0, -0.8 * size), (0, 0, 1.4 * size), 1.3 * size, 0.0, 3), color)]


def _hinges(joint: joints.Revolute | joints.Universal, q: FloatArray, size: float, color: str) -> Symbol:
    """A bearing with a pin; a cross of two, of which the first turns the second."""
    if isinstance(joint, joints.Revolute):
        bearing, axle = pin(joint.axis, size, size), pin(joint.axis, 0.42 * size, 1.15 * size, 12)
        return [(bearing, color), (axle, WHITE)]
    first, second = joint.axes
    turned = joints.Revolute(first).T(q[:1])[:3, :3] @ np.array(second)
    cross = [pin(axis, 0.55 * size, 1.6 * size, 12) for axis in (first, turned)]
    tips = [pin(axis, 0.3 * size, 1.72 * size, 8) for axis in (first, turned)]
    return [(joined(cross), color), (joined(tips), WHITE)]


def _slides(joint: joints.Prismatic | joints.Planar | joints.Translational, size: float, color: str) -> Symbol:
    """A sleeve, a plate, or a cube on three rails."""
    if isinstance(joint, joints.Prismatic):
        turn = joints.z_to(joint.axis)
        return [
            (box((0.75 * size, 0.75 * size, 1.5 * size), turn), color),
            (pin(joint.axis, 0.4 * size, 1.7 * size, 8), WHITE),
        ]
    if isinstance(joint, joints.Planar):
        x, other = (np.array(d) for d in joint.directions)
        z = np.cross(x, other)
        z = z / np.linalg.norm(z)
        turn = np.stack([x, np.cross(z, x), z], axis=1)
        rails = [pin(d, 0.3 * size, 1.9 * size, 8) for d in (x, other)]
        return [(box((1.4 * size, 1.4 * size, 0.18 * size), turn), color), (joined(rails), WHITE)]
    rails = [pin(d, 0.3 * size, 1.9 * size, 8) for d in np.eye(3)]
    return [(box((0.9 * size,) * 3), color), (joined(rails), WHITE)]


def _spindle(joint: joints.Screw | joints.Cylindrical, q: FloatArray, size: float, color: str) -> Symbol:
    """A thread on a rod; a long sleeve with two collars."""
    R = joints.z_to(joint.axis)
    half = 1.9 * size
    if isinstance(joint, joints.Screw):
        angle = np.linspace(0, 6 * np.pi, 49)
        turns = np.stack(
            [0.75 * size * np.cos(angle), 0.75 * size * np.sin(angle), np.linspace(-half, half, 49)], axis=1
        )
        return [(pin(joint.axis, 0.4 * size, 1.15 * half, 8), WHITE), (wire(turns @ R.T, 0.26 * size), color)]
    sleeve = pin(joint.axis, 0.7 * size, 0.85 * half)
    collars = [
        cylinder(z * R[:, 2], (z + 0.35 * size) * R[:, 2], 1.05 * size, 16)
        for z in (-0.85 * half, 0.85 * half - 0.35 * size)
    ]
    return [(joined([sleeve, *collars]), color), (pin(joint.axis, 0.35 * size, 1.1 * half, 8), WHITE)]


def _spline(joint: joints.SplineCurve | joints.SplineSurface, q: FloatArray, size: float, color: str) -> Symbol:
    """The way of the body's origin, or the surface on which it moves, and where it is."""
    low, high = joint.range
    slider = [(ball(0.9 * size, joint.T(q)[:3, 3]), color)]
    if isinstance(joint, joints.SplineCurve):
        way = joint.T(np.linspace(low, high, 40))[:, :3, 3]
        return [(wire(way, 0.22 * size), color), *slider]
    grid = np.stack(
        np.meshgrid(*(np.linspace(a, b, 9) for a, b in zip(low, high, strict=True)), indexing="ij"), axis=-1
    )
    points = joint.T(grid)[..., :3, 3]
    lines = [wire(line, 0.1 * size, 4) for rows in (points, points.swapaxes(0, 1)) for line in rows[::2]]
    return [(joined(lines), color), *slider]


def _composite(joint: joints.Composite, q: FloatArray, size: float) -> Symbol:
    """The symbols of its joints, each where those before have moved it, and smaller from one to the next."""
    out: Symbol = []
    pose, at = np.eye(4), 0
    for k, part in enumerate(joint.joints):
        own = q[at : at + part.nq]
        out += [(moved(solid, pose), color) for solid, color in symbol(part, own, size * max(0.4, 1 - 0.25 * k))]
        pose, at = pose @ part.T(own), at + part.nq
    return out
