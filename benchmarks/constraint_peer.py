"""Robots that stand on their feet, here and in Pinocchio: the calls of constrained forward dynamics.

HyQ stands on the points of three feet (9 rows), Talos on two welded feet (12 rows), at a random state that is on these
constraints. `computeConstraintDynamicsDerivatives` reads what `constraintDynamics` left for the same state, so that the
derivatives of a state take both calls; the time of the second by itself is measured too. Pinocchio runs one iteration
without regularisation, as in its own benchmarks: its fastest setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pinocchio as pin
from calls import Array, Call, Disagreement, States, agree, peer_states, random_states
from robots import Pair, robots

import torsor as ts
from torsor.interop import to_pinocchio

FEET = {
    "HyQ": (ts.Spherical(), ("lf_foot", "rf_foot", "lh_foot")),
    "Talos": (ts.Fixed(), ("leg_left_6_link", "leg_right_6_link")),
}


@dataclass(frozen=True)
class Standing:
    """A robot on its feet: constraints of both libraries, and a state that fulfils them."""

    pair: Pair
    constraints: list[ts.Constraint]
    rows: Any  # pinocchio's constraint models
    states: States


def standing() -> Iterator[Standing]:
    """The robots that have feet."""
    for pair in robots():
        if pair.name not in FEET:
            continue
        joint, feet = FEET[pair.name]
        model, states = pair.model, random_states(pair.model, spread=0.5)
        poses = dict(zip((b.name for b in model.bodies), ts.body_poses(model, states.q), strict=True))
        constraints: list[ts.Constraint] = []
        rows = pin.StdVec_RigidConstraintModel()
        for foot in feet:
            T = poses[foot]
            R = np.eye(3) if isinstance(joint, ts.Spherical) else T[:3, :3]
            constraints.append(ts.Loop("world", foot, joint, ts.SE3(R, T[:3, 3])))
            frame = pair.peer.frames[pair.peer.getFrameId(foot)]
            kind = pin.ContactType.CONTACT_3D if isinstance(joint, ts.Spherical) else pin.ContactType.CONTACT_6D
            place = pin.SE3(R, T[:3, 3])
            rows.append(
                pin.RigidConstraintModel(
                    kind, pair.peer, frame.parentJoint, frame.placement, 0, place, pin.ReferenceFrame.LOCAL
                )
            )
        # The velocity on the constraints that is nearest, in the metric of the mass matrix.
        G = ts.constraint_jacobian(model, constraints, states.q)
        Y = np.linalg.solve(ts.mass_matrix(model, states.q), G.T)
        v = states.v - Y @ np.linalg.solve(G @ Y, G @ states.v)
        yield Standing(pair, constraints, rows, replace(states, v=v))


def our_calls(robot: Standing, states: States) -> dict[str, Call]:
    """Our functions for these states; those of a batch write to arrays made here."""
    model, c = robot.pair.model, robot.constraints
    names = {"ts": ts, "model": model, "feet": c, **vars(states)}
    options = dict.fromkeys(("value", "derivatives", "free"), "")
    if states.q.ndim > 1:
        arguments = model, c, states.q, states.v, states.tau
        names["value"] = ts.constrained_forward_dynamics(*arguments)
        names["derivatives"] = ts.constrained_forward_dynamics_derivatives(*arguments)
        names["free"] = np.empty_like(states.v)
        options = {name: f", out={name}" for name in options}
    return {
        "value": Call(f"ts.constrained_forward_dynamics(model, feet, q, v, tau{options['value']})", names),
        "derivatives": Call(
            f"ts.constrained_forward_dynamics_derivatives(model, feet, q, v, tau{options['derivatives']})", names
        ),
        "free": Call(f"ts.forward_dynamics(model, q, v, tau{options['free']})", names),
    }


def peer_calls(robot: Standing) -> dict[str, Call]:
    """Pinocchio's functions for the one state."""
    model, rows = robot.pair.peer, robot.rows
    names = {
        "pin": pin,
        "model": model,
        "data": model.createData(),
        "rows": rows,
        "row_data": pin.StdVec_RigidConstraintData([row.createData() for row in rows]),
        "once": pin.ProximalSettings(1e-12, 0.0, 1),
        **vars(peer_states(robot.pair, robot.states)),
    }
    pin.initConstraintDynamics(model, names["data"], rows, names["row_data"])
    value = "pin.constraintDynamics(model, data, q, v, tau, rows, row_data, once)"
    derivatives = "pin.computeConstraintDynamicsDerivatives(model, data, rows, row_data, once)"
    return {
        "value": Call(value, names),
        "derivatives": Call(f"{value}; {derivatives}", names),
        "derivatives alone": Call(derivatives, names),
    }


def check(robot: Standing) -> None:
    """Both compute the same accelerations, and the same derivatives."""
    ours, theirs = our_calls(robot, robot.states), peer_calls(robot)
    E = _columns(robot)
    value = _result(ours["value"])
    agree(f"{robot.pair.name}: a", E @ value.a, np.array(_result(theirs["value"])))
    found, expected = _result(ours["derivatives"]), _result(theirs["derivatives alone"])
    for name, x, y in zip(("da_dq", "da_dv", "da_dtau"), found, expected, strict=False):
        agree(f"{robot.pair.name}: {name}", E @ x @ E.T, np.asarray(y))
    if value.rank != len(value.multipliers):
        raise Disagreement(f"{robot.pair.name} does not stand on independent rows")


def _result(call: Call) -> Any:
    return eval(call.statement, dict(call.names))


def _columns(robot: Standing) -> Array:
    """The matrix from our velocities to Pinocchio's."""
    model, n = robot.pair.model, robot.pair.model.nv
    return np.asarray(to_pinocchio(model, np.tile(robot.states.q, (n, 1)), np.eye(n), order=robot.pair.peer)[1]).T
