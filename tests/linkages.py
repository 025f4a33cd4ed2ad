"""Mechanisms with loops, beside those of `constraint_models`, and constraints that hold at a configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from constraint_models import rod

import torsor as ts
from torsor import _core, testing
from torsor.constraints.constraint import compile_constraints

Y = ts.Revolute((0, 1, 0))


def parallelogram() -> tuple[ts.Model, list[ts.Constraint]]:
    """Cranks of 1, coupler and base of 2, closed in its plane: flat at zero, where it can fold either way."""
    builder = ts.ModelBuilder()
    builder.add_body("left", "world", Y, ts.SE3(), rod(1.0))
    builder.add_body("coupler", "left", Y, ts.SE3.translation(1, 0, 0), rod(2.0))
    builder.add_body("right", "world", Y, ts.SE3.translation(2, 0, 0), rod(1.0))
    end = ts.SE3.translation(2, 0, 0) @ ts.SE3.rotation((1, 0, 0), -np.pi / 2)
    return builder.build(), [ts.PointOnLine("coupler", "right", end, (1, 0, 0), name="closing")]


def chain(joint: ts.Joint, rng: np.random.Generator, links: int = 9) -> tuple[ts.Model, list[ts.Constraint]]:
    """A chain of random hinges whose last body is on the world by another joint, at some configuration."""
    builder, parent = ts.ModelBuilder(), "world"
    for k in range(links):
        axis = rng.standard_normal(3)
        hinge = ts.Revolute(axis / np.sqrt(axis @ axis))
        builder.add_body(f"{k}", parent, hinge, testing.random_pose(rng), testing.random_inertia(rng))
        parent = f"{k}"
    model = builder.build()
    loop = ts.Loop("world", parent, joint, ts.SE3(), testing.random_pose(rng), name="closing")
    return model, [loop.at(model, model.random(rng))]


def two_bodies(joint: ts.Joint, rng: np.random.Generator) -> tuple[ts.Model, list[ts.Constraint]]:
    """Two free bodies, joined."""
    builder = ts.ModelBuilder()
    for name in "ab":
        builder.add_body(name, "world", ts.Free(), testing.random_pose(rng), testing.random_inertia(rng))
    return builder.build(), [ts.Loop("a", "b", joint, testing.random_pose(rng), testing.random_pose(rng))]


def errors(model: ts.Model, constraints: Any, q: Any, v: Any = None, t: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """g and dg/dt of all rows."""
    options = compile_constraints(model, constraints).options
    g, gdot, _ = _core.constraint_errors(model, q, v, t, None, options, None, 1)
    return g, gdot


def at_configuration(
    model: ts.Model, q: np.ndarray, t: float, rng: np.random.Generator, rows: int
) -> list[ts.Constraint]:
    """Some of the examples of every constraint, moved so that they hold at q and t: at most so many rows."""
    examples, found, count = testing.example_constraints(model, rng), [], 0
    for k in rng.permutation(len(examples)):
        one = _closed(model, examples[k], q, t)
        if one is None or count + len(one.row_names(model)) > rows:
            continue
        found.append(one)
        count += len(one.row_names(model))
        if len(found) == 4:
            break
    return found


def _closed(model: ts.Model, one: Any, q: np.ndarray, t: float) -> Any:
    g = errors(model, [one], q, t=t)[0]
    if isinstance(one, ts.TwistConstraint):
        return one
    if callable(getattr(one, "placement_a", None)):
        return None
    if isinstance(one, ts.Loop):
        return one.at(model, q)
    if isinstance(one, ts.PrescribedBody):
        at = ts.SE3.from_matrix(ts.body_poses(model, q)[model._index["body"][one.body]]) @ one.placement
        if callable(one.motion):
            back = ts.SE3.exp(-np.sin(2 * t) * one.motion.twist)
            return replace(one, motion=replace(one.motion, pose=at @ back))
        return replace(one, motion=at)
    if isinstance(one, ts.PointOnLine):
        return replace(one, placement_a=one.placement_a @ ts.SE3.translation(*g, 0))
    if isinstance(one, ts.Distance):
        return replace(one, length=one.length + g[0])
    if isinstance(one, (ts.PointOnPlane, ts.Coupling, ts.Gear)):
        return replace(one, offset=one.offset + g[0])
    if isinstance(one, ts.PrescribedJoint):
        if callable(one.motion):
            return replace(one, motion=replace(one.motion, center=one.motion.center + g))
        return replace(one, motion=q[model.joint(one.joint).q_slice])
    return None
