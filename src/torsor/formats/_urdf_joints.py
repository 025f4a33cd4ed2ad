"""What is in a joint of a URDF: its kind, axis, limits and losses; and joints that close loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from torsor.constraints.pairs import Loop
from torsor.formats._urdf_links import placed
from torsor.formats._xml import Element
from torsor.joints import Composite, Fixed, Free, Free2D, Joint, Planar, Prismatic, Revolute, Spherical, z_to
from torsor.model import WORLD
from torsor.spatial import SE3

JOINT_TYPES = ("fixed", "revolute", "continuous", "prismatic", "floating", "planar")
ONE_AXIS = ("revolute", "continuous", "prismatic")
NO_LIMIT = 1e308  # written where there is no limit, because some readers need a number and have no infinity
LOOP_TYPES = ("fixed", "revolute", "continuous", "prismatic", "spherical", "planar")


def joint_of(joint: Element, made: dict[tuple[str, ...], Joint]) -> Joint:
    """The joint of a <joint>, by its type; one that was made before if it is the same."""
    kind = joint.text("type")
    axis = joint.child("axis")
    key = (kind, "" if axis is None else axis.attributes.get("xyz", "none"))
    if key not in made:
        made[key] = _new_joint(joint, kind)
    return made[key]


def _new_joint(joint: Element, kind: str) -> Joint:
    if kind == "fixed":
        return Fixed()
    if kind == "floating":
        return Free()
    if kind not in JOINT_TYPES:
        joint.fail(f"unknown type {kind!r}, expected one of {', '.join(JOINT_TYPES)}")
    axis = _axis(joint)
    if kind == "prismatic":
        return Prismatic(axis)
    rotation = Revolute(axis)
    return rotation if kind != "planar" else Composite(Planar(plane(rotation.axis)), rotation)


def plane(axis: tuple[float, float, float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The two directions of a planar joint: orthonormal, and normal to its axis."""
    n = np.array(axis)
    first = np.roll(np.eye(3)[np.abs(n).argmax()], 1)
    first -= n * (n @ first)
    first /= np.linalg.norm(first)
    return tuple(first.tolist()), tuple(np.cross(n, first).tolist())


def _axis(joint: Element) -> list[float]:
    """The axis of a <joint> or <loop_joint>."""
    child = joint.child("axis")
    if child is None:
        return [1.0, 0.0, 0.0]
    axis = child.numbers("xyz", 3)
    if not any(axis):
        child.fail("is zero, expected a direction")
    return axis


def joint_numbers(joint: Element | None, made: Joint) -> dict[str, Any]:
    """Limits, damping and dry friction of a joint, as `Body` has them."""
    kind = "" if joint is None else joint.attributes["type"]
    if joint is None or kind not in ONE_AXIS:
        limits = tuple(tuple(end.tolist()) for end in made.range)
        free = (np.inf,) * made.nv
        return {"position_limits": limits, "velocity_limits": free, "effort_limits": free}
    lower, upper = -np.inf, np.inf
    rates = {"velocity": np.inf, "effort": np.inf}
    limit, dynamics = joint.child("limit"), joint.child("dynamics")
    if limit is not None:
        if kind != "continuous":
            lower, upper = (_limit(limit, end) if end in limit.attributes else 0.0 for end in ("lower", "upper"))
            if lower > upper:
                limit.fail(f"lower = {lower:g} is above upper = {upper:g}")
        rates |= _amounts(limit, rates, _limit)
    losses = {} if dynamics is None else _amounts(dynamics, ("damping", "friction"), Element.number)
    return {
        "position_limits": ((lower,), (upper,)),
        "velocity_limits": (rates["velocity"],),
        "effort_limits": (rates["effort"],),
        "dry_friction": (losses.get("friction", 0.0),),
        "damping": (losses.get("damping", 0.0),),
        "stiffness": (0.0,),
        "rest": (0.0,),
        "armature": (0.0,),
    }


def _limit(limit: Element, name: str) -> float:
    value = limit.number(name, infinite=True)
    return value if abs(value) < NO_LIMIT else math.copysign(math.inf, value)


def _amounts(element: Element, names: Iterable[str], read: Callable[[Element, str], float]) -> dict[str, float]:
    """Those of the attributes that are there, none negative."""
    out = {name: read(element, name) for name in names if name in element.attributes}
    for name, value in out.items():
        if value < 0.0:
            element.fail(f"{name} = {value:g} is negative, expected 0 or more")
    return out


def loop_of(joint: Element, links: dict[str, Element], renamed: dict[str, str]) -> Loop:
    """The loop that a <loop_joint> closes."""
    kind = joint.text("type") if "type" in joint.attributes else "revolute"
    if kind not in LOOP_TYPES:
        joint.fail(f"unknown type {kind!r}, expected one of {', '.join(LOOP_TYPES)}")
    axis = _axis(joint)
    made: Joint = {"fixed": Fixed(), "prismatic": Prismatic(axis), "spherical": Spherical()}.get(kind, Revolute(axis))
    turn = SE3()
    if kind == "planar":
        made, turn = Free2D(), SE3(z_to(Revolute(axis).axis))
    ends: list[str] = []
    placements: list[SE3] = []
    for tag in ("link1", "link2"):
        end = joint.required(tag)
        name = end.text("link")
        if name not in links and name != WORLD:
            end.fail(f"its link {name!r} is not in the file")
        ends.append(renamed.get(name, name))
        placements.append(placed(end) @ turn)
    try:
        return Loop(ends[0], ends[1], made, placements[0], placements[1], name=joint.text("name"))
    except ValueError as error:
        joint.fail(str(error), error)
