"""Models that ship with the package, for experiments, tests and benchmarks.

Every body is made of homogeneous solids, which are also its visuals. Bodies are in depth-first order. Axes are x
forward, y left, z up; units are metres, kilograms, seconds and radians. The machines are fictitious, with typical
sizes, masses and limits.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial

import numpy as np

from torsor.collision import Collision
from torsor.inertia import Inertia
from torsor.joints import Fixed, Free, Joint, Revolute
from torsor.model import Model, ModelBuilder, Visual
from torsor.shapes import Box, Shape, Sphere
from torsor.spatial import SE3

__all__ = ["acrobot", "arm7", "chain", "humanoid", "pendulum", "quadruped", "tree"]

_X = Revolute((1, 0, 0))
_Y = Revolute((0, 1, 0))
_Z = Revolute((0, 0, 1))

# Rotations that turn the z axis of a solid to the named axis.
_ALONG = {
    "x": np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    "y": np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    "z": np.eye(3),
}

_Point = tuple[float, float, float]
_Part = tuple[Inertia, Visual]


def pendulum() -> Model:
    """Uniform rod on a pivot: 1 kg, 1 m, hanging along -z and turning about y.

    Returns
    -------
    Model
        One body, ``"rod"``; its joint is ``"pivot"``; nq = nv = 1.
    """
    builder = ModelBuilder("pendulum")
    add = partial(_add, builder)
    add("rod", "world", _Y, (0, 0, 0), [_hanging_rod(1.0, 0.02, 1.0)], joint_name="pivot")
    return builder.build()


def acrobot() -> Model:
    """Double pendulum that is driven at its elbow only, swinging in the x-z plane.

    The links are uniform rods of 1 kg, 1 m and 2 m long, as in Spong, "The swing up control problem for the
    acrobot", 1995. The effort limit of the shoulder is zero: it is not driven.

    Returns
    -------
    Model
        Bodies ``"upper"`` and ``"lower"`` on the joints ``"shoulder"`` and ``"elbow"``; nq = nv = 2.
    """
    builder = ModelBuilder("acrobot")
    add = partial(_add, builder)
    upper = [_hanging_rod(1.0, 0.02, 1.0)]
    lower = [_hanging_rod(1.0, 0.02, 2.0)]
    add("upper", "world", _Y, (0, 0, 0), upper, joint_name="shoulder", effort=0.0)
    add("lower", "upper", _Y, (0, 0, -1.0), lower, joint_name="elbow", effort=10.0)
    return builder.build()


def arm7() -> Model:
    """Seven-axis arm bolted to the ground, about 18 kg with its base and its hand.

    At zero the arm points straight up. Axes alternate between roll about the arm and pitch across it.

    Returns
    -------
    Model
        Nine bodies from ``"base"`` to ``"hand"``, both fixed; joints ``"shoulder_yaw"`` to ``"wrist_roll"``;
        nq = nv = 7.
    """
    builder = ModelBuilder("arm7")
    add = partial(_add, builder)

    # fmt: off
    add("base", "world", Fixed(), (0, 0, 0), [_cylinder(3.0, 0.090, 0.14, (0, 0, 0.07))])
    add("turret", "base", _Z, (0, 0, 0.14),
        [_cylinder(3.0, 0.070, 0.20, (0, 0, 0.09))], (-2.9, 2.9), 2.2, 120.0, "shoulder_yaw")
    add("shoulder", "turret", _Y, (0, 0, 0.20),
        [_cylinder(1.6, 0.060, 0.15, (0, 0, 0), "y"), _cylinder(1.0, 0.045, 0.18, (0, 0, 0.10))],
        (-2.0, 2.0), 2.2, 120.0, "shoulder_pitch")
    add("upper_arm", "shoulder", _Z, (0, 0, 0.20),
        [_cylinder(2.4, 0.050, 0.20, (0.01, 0, 0.09))], (-2.9, 2.9), 2.6, 80.0, "shoulder_roll")
    add("elbow", "upper_arm", _Y, (0.04, 0, 0.19),
        [_cylinder(1.3, 0.050, 0.13, (0, 0, 0), "y"), _cylinder(0.9, 0.040, 0.16, (-0.02, 0, 0.09))],
        (-0.1, 2.6), 2.6, 80.0, "elbow_pitch")
    add("forearm", "elbow", _Z, (-0.04, 0, 0.18),
        [_cylinder(1.8, 0.042, 0.20, (0, 0, 0.10))], (-2.9, 2.9), 3.1, 40.0, "forearm_roll")
    add("wrist", "forearm", _Y, (0, 0, 0.21),
        [_cylinder(0.9, 0.040, 0.11, (0, 0, 0), "y"), _cylinder(0.5, 0.035, 0.06, (0.02, 0, 0.04))],
        (-1.9, 1.9), 3.1, 20.0, "wrist_pitch")
    add("flange", "wrist", _Z, (0.04, 0, 0.08),
        [_cylinder(0.5, 0.040, 0.04, (0, 0, 0.02))], (-2.9, 2.9), 3.1, 20.0, "wrist_roll")
    add("hand", "flange", Fixed(), (0, 0, 0.04),
        [_box(0.6, (0.06, 0.18, 0.06), (0, 0, 0.03)), _box(0.2, (0.02, 0.06, 0.06), (0, 0, 0.09))])
    # fmt: on
    return builder.build()


def quadruped() -> Model:
    """Four-legged robot with a free trunk, about 40 kg and twelve driven joints.

    Each leg has a hip that swings it sideways (about x), a thigh and a calf (about y), and a foot fixed to
    the calf's end. At zero the legs are straight, and the feet are 0.61 m below the trunk's frame; the calves
    fold forward, to negative angles. The feet are spheres for contact.

    Returns
    -------
    Model
        17 bodies: ``"trunk"``, and for each of ``front_left``, ``front_right``, ``rear_left`` and
        ``rear_right`` a ``_hip``, ``_thigh``, ``_calf`` and ``_foot``; nq = 19, nv = 18.
    """
    builder = ModelBuilder("quadruped")
    add = partial(_add, builder)
    trunk = [
        _box(14.0, (0.50, 0.22, 0.14)),
        _box(2.0, (0.14, 0.18, 0.12), (0.31, 0, 0)),
        _box(2.0, (0.14, 0.18, 0.12), (-0.31, 0, 0)),
    ]
    add("trunk", "world", Free(), (0, 0, 0), trunk)
    for end, x in (("front", 0.32), ("rear", -0.32)):
        for side, y in (("left", 1.0), ("right", -1.0)):
            leg = f"{end}_{side}"
            hip = [_cylinder(2.0, 0.050, 0.10, (0, 0.03 * y, 0), "y")]
            thigh = [_cylinder(1.6, 0.050, 0.06, (0, 0.01 * y, 0), "y"), _hanging_rod(1.2, 0.025, 0.30)]
            calf = [_hanging_rod(0.5, 0.014, 0.31)]
            foot = [_sphere(0.08, 0.022)]
            # fmt: off
            add(f"{leg}_hip", "trunk", _X, (x, 0.08 * y, 0), hip,
                limits=_mirrored((-0.6, 0.9), y), speed=12.0, effort=60.0)
            add(f"{leg}_thigh", f"{leg}_hip", _Y, (0, 0.10 * y, 0), thigh,
                limits=(-1.5, 2.8), speed=12.0, effort=60.0)
            add(f"{leg}_calf", f"{leg}_thigh", _Y, (0, 0, -0.30), calf,
                limits=(-2.7, 0.0), speed=12.0, effort=80.0)
            # fmt: on
            add(f"{leg}_foot", f"{leg}_calf", Fixed(), (0, 0, -0.31), foot, sole=Sphere(0.022))
    return builder.build()


def humanoid() -> Model:
    """Human-sized robot with a free pelvis, about 70 kg and 31 driven revolute joints.

    Legs of six joints, arms of seven, a waist of three and a neck of two. At zero it stands upright with
    straight legs and hanging arms; the soles are 0.90 m below the pelvis's frame. They are boxes for contact.

    Returns
    -------
    Model
        32 bodies, ``"pelvis"`` first; every other body is named after the joint that carries it, such as
        ``"left_knee"``; nq = 38, nv = 37.
    """
    builder = ModelBuilder("humanoid")
    add = partial(_add, builder)

    pelvis = [_box(6.0, (0.16, 0.24, 0.12)), _box(2.0, (0.10, 0.14, 0.08), (0, 0, 0.08))]
    add("pelvis", "world", Free(), (0, 0, 0), pelvis)

    # fmt: off
    add("waist_yaw", "pelvis", _Z, (0, 0, 0.12),
        [_cylinder(1.5, 0.060, 0.05, (0, 0, 0.02))], (-1.2, 1.2), 6.0, 120.0)
    add("waist_roll", "waist_yaw", _X, (0, 0, 0.05),
        [_cylinder(1.5, 0.050, 0.10, along="x")], (-0.5, 0.5), 6.0, 150.0)
    add("waist_pitch", "waist_roll", _Y, (0, 0, 0),
        [_cylinder(1.5, 0.050, 0.12, along="y"), _box(9.0, (0.18, 0.30, 0.26), (0, 0, 0.26)),
         _box(3.5, (0.10, 0.24, 0.24), (-0.12, 0, 0.26))], (-0.5, 1.2), 6.0, 180.0)
    add("neck_yaw", "waist_pitch", _Z, (0, 0, 0.41),
        [_cylinder(0.5, 0.035, 0.08, (0, 0, 0.04))], (-1.3, 1.3), 8.0, 10.0)
    add("neck_pitch", "neck_yaw", _Y, (0, 0, 0.08),
        [_cylinder(0.4, 0.030, 0.08, along="y"), _sphere(2.2, 0.095, (0.02, 0, 0.10))],
        (-0.6, 0.8), 8.0, 10.0)

    for side, y in (("left", 1.0), ("right", -1.0)):  # arms, from the shoulder down
        add(f"{side}_shoulder_pitch", "waist_pitch", _Y, (0, 0.19 * y, 0.34),
            [_cylinder(1.1, 0.045, 0.08, (0, 0.01 * y, 0), "y")], (-3.0, 1.0), 10.0, 60.0)
        add(f"{side}_shoulder_roll", f"{side}_shoulder_pitch", _X, (0, 0.06 * y, 0),
            [_cylinder(1.0, 0.042, 0.09, along="x")], _mirrored((-0.3, 2.6), y), 10.0, 60.0)
        add(f"{side}_shoulder_yaw", f"{side}_shoulder_roll", _Z, (0, 0, -0.06),
            [_cylinder(1.6, 0.040, 0.20, (0, 0, -0.10))], _mirrored((-1.5, 1.5), y), 10.0, 40.0)
        add(f"{side}_elbow", f"{side}_shoulder_yaw", _Y, (0, 0, -0.22),
            [_cylinder(0.6, 0.035, 0.08, along="y"), _cylinder(0.6, 0.032, 0.14, (0, 0, -0.08))],
            (-2.4, 0.0), 10.0, 40.0)
        add(f"{side}_wrist_yaw", f"{side}_elbow", _Z, (0, 0, -0.15),
            [_cylinder(0.5, 0.030, 0.08, (0, 0, -0.04))], _mirrored((-1.8, 1.8), y), 12.0, 15.0)
        add(f"{side}_wrist_roll", f"{side}_wrist_yaw", _X, (0, 0, -0.09),
            [_cylinder(0.25, 0.024, 0.06, along="x")], _mirrored((-0.6, 0.6), y), 12.0, 15.0)
        add(f"{side}_wrist_pitch", f"{side}_wrist_roll", _Y, (0, 0, 0),
            [_cylinder(0.15, 0.022, 0.06, along="y"), _box(0.4, (0.08, 0.03, 0.16), (0, 0, -0.11))],
            (-0.8, 0.8), 12.0, 15.0)

    sole = Box((0.24, 0.10, 0.03), SE3.translation(0.04, 0, -0.065))
    for side, y in (("left", 1.0), ("right", -1.0)):  # legs, from the hip down
        add(f"{side}_hip_yaw", "pelvis", _Z, (0, 0.09 * y, -0.05),
            [_cylinder(1.6, 0.055, 0.07, (0, 0, -0.02))], _mirrored((-0.8, 1.2), y), 10.0, 100.0)
        add(f"{side}_hip_roll", f"{side}_hip_yaw", _X, (0, 0, -0.05),
            [_cylinder(1.8, 0.050, 0.12, (-0.02, 0, 0), "x")], _mirrored((-0.5, 0.9), y), 10.0, 150.0)
        add(f"{side}_hip_pitch", f"{side}_hip_roll", _Y, (0, 0, 0),
            [_cylinder(2.0, 0.055, 0.12, (0, 0.02 * y, 0), "y"), _cylinder(4.0, 0.065, 0.30, (0, 0, -0.20))],
            (-2.1, 0.7), 12.0, 250.0)
        add(f"{side}_knee", f"{side}_hip_pitch", _Y, (0, 0, -0.37),
            [_cylinder(1.2, 0.050, 0.10, along="y"), _cylinder(2.4, 0.045, 0.28, (-0.01, 0, -0.17))],
            (0.0, 2.4), 14.0, 250.0)
        add(f"{side}_ankle_pitch", f"{side}_knee", _Y, (0, 0, -0.35),
            [_cylinder(0.7, 0.035, 0.09, along="y")], (-0.6, 0.9), 12.0, 120.0)
        add(f"{side}_ankle_roll", f"{side}_ankle_pitch", _X, (0, 0, 0),
            [_box(1.1, (0.24, 0.10, 0.03), (0.04, 0, -0.065)), _cylinder(0.3, 0.030, 0.08, along="x")],
            _mirrored((-0.4, 0.4), y), 12.0, 60.0, sole=sole)
    # fmt: on
    return builder.build()


def chain(n: int) -> Model:
    """Hanging chain of `n` equal links on revolute joints, their axes y and x in turn.

    Each link is a rod of 0.1 kg, 0.1 m long. Time per link is the same however long the chain, which makes it
    the model to measure that with.

    Parameters
    ----------
    n : int
        Number of links, at least 1.

    Returns
    -------
    Model
        Bodies ``"link1"`` to ``f"link{n}"``; nq = nv = n.
    """
    n = _count("n", n)
    builder = ModelBuilder(f"chain{n}")
    add = partial(_add, builder)
    link = [_hanging_rod(0.1, 0.01, 0.1)]
    parent, at = "world", (0.0, 0.0, 0.0)
    for i in range(1, n + 1):
        add(f"link{i}", parent, _Y if i % 2 else _X, at, link)
        parent, at = f"link{i}", (0.0, 0.0, -0.1)
    return builder.build()


def tree(depth: int, branching: int) -> Model:
    """Tree of equal links on revolute joints, every link but the last ones carrying `branching` others.

    Links are spread around the end of their parent; their axes are y and x in turn from level to level. Each
    link is a rod of 0.1 kg, 0.1 m long.

    Parameters
    ----------
    depth : int
        Number of links from the root to any tip, at least 1.
    branching : int
        Number of links that each link carries, at least 1; 1 makes a chain.

    Returns
    -------
    Model
        1 + branching + ... + branching^(depth - 1) bodies. The root is ``"link"``; the children of a link are
        its name with ``_1``, ``_2``, ... appended. nq = nv = the number of bodies.
    """
    depth, branching = _count("depth", depth), _count("branching", branching)
    builder = ModelBuilder(f"tree{depth}x{branching}")
    add = partial(_add, builder)
    link = [_hanging_rod(0.1, 0.01, 0.1)]
    tilt = SE3.rotation((0, 1, 0), 0.5 if branching > 1 else 0.0)
    spread = [
        SE3.translation(0, 0, -0.1) @ SE3.rotation((0, 0, 1), 2 * np.pi * k / branching) @ tilt
        for k in range(branching)
    ]
    pending = [("link", "world", SE3.identity(), 1)]
    while pending:
        name, parent, placement, level = pending.pop()
        add(name, parent, _Y if level % 2 else _X, placement, link)
        if level < depth:
            children = [(f"{name}_{k + 1}", name, spread[k], level + 1) for k in range(branching)]
            pending += reversed(children)
    return builder.build()


def _add(
    builder: ModelBuilder,
    name: str,
    parent: str,
    joint: Joint,
    placement: SE3 | tuple[float, float, float],
    parts: Sequence[_Part],
    limits: tuple[float, float] | None = None,
    speed: float | None = None,
    effort: float | None = None,
    joint_name: str | None = None,
    sole: Shape | None = None,
) -> None:
    """Add a body that consists of `parts`, and touches others with `sole`; a placement given as a point is a
    translation."""
    builder.add_body(
        name,
        parent=parent,
        joint=joint,
        placement=placement if isinstance(placement, SE3) else SE3.translation(*placement),
        inertia=sum((inertia for inertia, _ in parts), Inertia.zero()),
        joint_name=joint_name,
        position_limits=limits,
        velocity_limits=speed,
        effort_limits=effort,
        visuals=tuple(visual for _, visual in parts),
        collisions=() if sole is None else (Collision(sole),),
    )


def _box(mass: float, size: _Point, at: _Point = (0, 0, 0)) -> _Part:
    return Inertia.box(size=size, mass=mass, com=at), Visual("box", size, SE3.translation(*at))


def _sphere(mass: float, radius: float, at: _Point = (0, 0, 0)) -> _Part:
    return Inertia.sphere(radius, mass=mass, com=at), Visual("sphere", (radius,), SE3.translation(*at))


def _cylinder(mass: float, radius: float, length: float, at: _Point = (0, 0, 0), along: str = "z") -> _Part:
    rotation = _ALONG[along]
    inertia = Inertia.cylinder(radius, length, mass=mass, com=at, rotation=rotation)
    return inertia, Visual("cylinder", (radius, length), SE3(rotation, np.asarray(at, dtype=float)))


def _hanging_rod(mass: float, radius: float, length: float) -> _Part:
    """Cylinder from the origin down to -length on the z axis."""
    return _cylinder(mass, radius, length, (0, 0, -0.5 * length))


def _mirrored(limits: tuple[float, float], side: float) -> tuple[float, float]:
    """Limits of a left joint about x or z, as they are, or mirrored for the right side (side < 0)."""
    lower, upper = limits
    return limits if side > 0 else (-upper, -lower)


def _count(name: str, value: int) -> int:
    """Return the value as an int, refusing what is not a whole number of at least 1."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if count < 1:
        raise ValueError(f"{name} must be at least 1, got {count}")
    return count
