"""The robots as models of MuJoCo, and its calls: steps with derivatives by differences, and rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import mujoco.rollout
import numpy as np
from calls import Call, Disagreement, States, agree

import torsor as ts
from torsor.interop import from_mujoco, to_mujoco


@dataclass(frozen=True)
class MujocoPair:
    """The same mechanism here and in MuJoCo."""

    name: str
    model: ts.Model
    peer: Any  # mujoco.MjModel


def mujoco_pair(name: str, model: ts.Model, h: float) -> MujocoPair:
    """The model in MuJoCo, with step h: neither contacts nor limits, a motor on every joint but free ones."""
    return MujocoPair(name, model, mujoco.MjModel.from_xml_string(mjcf(model, h)))


def mjcf(model: ts.Model, h: float, feet: Mapping[str, float] | None = None, joint: str = "") -> str:
    """The model as MJCF: free joints, revolutes, and fixed ones, whose bodies become part of their parents.

    feet: bodies that have a sphere of this radius at their origin, above a plane at height 0; without them nothing
    collides. joint: more attributes of all hinges.
    """
    carriers = {"world": ("world", ts.SE3())}  # each body's moving body, and its pose there
    children: dict[str, list[ts.Body]] = {"world": []}
    placements, inertias = {}, {"world": ts.Inertia.zero()}
    for body in model.bodies:
        carrier, pose = carriers[body.parent]
        pose = pose @ body.placement
        if isinstance(body.joint, ts.Fixed):
            carriers[body.name] = carrier, pose
            inertias[carrier] += body.inertia.transformed(pose)
        else:
            carriers[body.name] = body.name, ts.SE3()
            children[carrier].append(body)
            children[body.name], placements[body.name], inertias[body.name] = [], pose, body.inertia

    def element(body: ts.Body) -> str:
        placement, inertia = placements[body.name], inertias[body.name]
        x, y, z, w = placement.quaternion
        I = inertia.I_com
        if isinstance(body.joint, ts.Free):
            own = f'<freejoint name="{body.name}"/>'
        elif isinstance(body.joint, ts.Revolute):
            own = f'<joint name="{body.name}" type="hinge" axis="{_text(*body.joint.axis)}"{joint}/>'
        else:
            raise ValueError(f"{body.name} has a {type(body.joint).__name__} joint, expected Free, Revolute or Fixed")
        return (
            f'<body name="{body.name}" pos="{_text(*placement.p)}" quat="{_text(w, x, y, z)}">{own}'
            f'<inertial pos="{_text(*inertia.com)}" mass="{_text(inertia.mass)}" '
            f'fullinertia="{_text(I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2])}"/>'
            + "".join(
                f'<geom type="sphere" size="{_text(radius)}" pos="{_text(*carriers[foot][1].p)}"/>'
                for foot, radius in (feet or {}).items()
                if carriers[foot][0] == body.name
            )
            + "".join(map(element, children[body.name]))
            + "</body>"
        )

    hinges = [body.name for body in model.bodies if isinstance(body.joint, ts.Revolute)]
    flags = "" if feet else '<flag contact="disable" constraint="disable"/>'
    return (
        '<mujoco><compiler angle="radian"/>'
        f'<option gravity="{_text(*model.gravity)}" timestep="{h!r}" integrator="Euler">{flags}</option><worldbody>'
        + ('<geom type="plane" size="0 0 1"/>' if feet else "")
        + "".join(map(element, children["world"]))
        + "</worldbody><actuator>"
        + "".join(f'<motor joint="{name}"/>' for name in hinges)
        + "</actuator></mujoco>"
    )


def _text(*numbers: float) -> str:
    return " ".join(repr(float(x)) for x in numbers)


def check_accelerations(pair: MujocoPair, states: States) -> None:
    """Check that both have the same accelerations under gravity and torques, at one state."""
    data = mujoco.MjData(pair.peer)
    data.qpos[:], data.qvel[:], _, data.qfrc_applied[:] = to_mujoco(
        pair.model, states.q, states.v, states.a, states.tau
    )
    mujoco.mj_forward(pair.peer, data)
    theirs = from_mujoco(pair.model, data.qpos, data.qvel, data.qacc)[2]
    ours = ts.forward_dynamics(pair.model, states.q, states.v, states.tau)
    agree(f"{pair.name}, accelerations of MuJoCo", ours, theirs)


def transition_call(pair: MujocoPair, states: States) -> Call:
    """The derivatives of MuJoCo's step by forward differences, with respect to the state and the motors."""
    mj, nv = pair.peer, pair.peer.nv
    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:] = to_mujoco(pair.model, states.q, states.v)
    names = {"mujoco": mujoco, "mj": mj, "data": data, "A": np.zeros((2 * nv, 2 * nv)), "B": np.zeros((2 * nv, mj.nu))}
    return Call("mujoco.mjd_transitionFD(mj, data, 1e-6, False, A, B, None, None)", names)


def rollout_call(pair: MujocoPair, states: States, steps: int) -> Call:
    """MuJoCo's rollouts of a batch on one thread, without torques, into arrays made here."""
    mj = pair.peer
    q, v = to_mujoco(pair.model, states.q, states.v)
    initial = np.concatenate([np.zeros((len(q), 1)), q, v], axis=1)  # time first
    if initial.shape[1] != mujoco.mj_stateSize(mj, mujoco.mjtState.mjSTATE_FULLPHYSICS):
        raise RuntimeError("the state of MuJoCo is more than time, qpos and qvel")
    names = {
        "rollout": mujoco.rollout.rollout,
        "mj": mj,
        "data": mujoco.MjData(mj),
        "initial": initial,
        "steps": steps,
        "state": np.empty((len(q), steps, initial.shape[1])),
    }
    return Call("rollout(mj, data, initial, nstep=steps, state=state)", names)


def check_rollouts(pair: MujocoPair, states: States, h: float, steps: int) -> None:
    """Check that symplectic Euler here and MuJoCo's Euler end at the same configurations.

    They are one method for revolutes, and agree to rounding. MuJoCo integrates the velocity of a free body in other
    coordinates: with a free body the difference is of the order of both methods, and must halve when the step does.
    """

    def difference(parts: int) -> float:
        ours = ts.simulate(pair.model, few.q, few.v, steps=parts * steps, integrator=ts.SymplecticEuler(h / parts))
        peer = copy(pair.peer)
        peer.opt.timestep = h / parts
        call = rollout_call(replace(pair, peer=peer), few, parts * steps)
        names = dict(call.names)
        eval(call.statement, names)
        theirs = from_mujoco(pair.model, names["state"][:, -1, 1 : 1 + pair.peer.nq])
        return float(np.abs(pair.model.minus(ours.q[:, -1], theirs)).max())

    few = States(*(x[:16] for x in vars(states).values()))
    if not any(isinstance(body.joint, ts.Free) for body in pair.model.bodies):
        if not difference(1) <= 1e-9:
            raise Disagreement(f"{pair.name}, rollouts: the last configurations differ from MuJoCo's")
        return
    whole, half, quarter = (difference(parts) for parts in (1, 2, 4))
    for ratio in (whole / half, half / quarter):
        if not 1.95 <= ratio <= 2.05:
            raise Disagreement(
                f"{pair.name}, rollouts: half the step leaves 1/{ratio:.3f} of the difference to MuJoCo's"
            )
