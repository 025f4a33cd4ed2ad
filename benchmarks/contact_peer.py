"""Contact here and in MuJoCo: robots on four spherical feet, held by springs, and a stack of boxes.

The geometry is the same: spheres at the ends of the legs, boxes, a plane. MuJoCo's contacts have its own parameters and
are as soft as its defaults make them; its springs are those here, and dampers act at the end of a step in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import mujoco
import mujoco.rollout
import numpy as np
from calls import Array, Call, Disagreement, States, agree, random_states
from mujoco_peer import mjcf, mujoco_pair
from robots import robots

import torsor as ts
from torsor.interop import from_mujoco, to_mujoco

LAW = {"stiffness": 1e5, "dissipation": 0.5, "friction": 0.8, "slip": 1e-3}
GROUND = ts.shapes.HalfSpace()


@dataclass(frozen=True, eq=False)
class Robot:
    """A robot on its feet, in equilibrium here (q) and in MuJoCo (qpos)."""

    name: str
    model: ts.Model
    forces: tuple[ts.Force, ...]
    feet: Mapping[str, float]
    q: Array
    peer: Any  # mujoco.MjModel
    qpos: Array


def standing(h: float) -> Iterator[Robot]:
    """The quadruped of this library, and HyQ."""
    model = ts.models.quadruped()
    legs = [f"{end}_{side}" for end in ("front", "rear") for side in ("left", "right")]
    posture = {f"{leg}_{part}": angle for leg in legs for part, angle in (("thigh", 0.6), ("calf", -1.2))}
    yield _robot("quadruped", model, {f"{leg}_foot": 0.022 for leg in legs}, posture, 0.525, (300.0, 10.0), h)
    model = next(pair.model for pair in robots() if pair.name == "HyQ")
    legs = [f"{side}{end}" for end in "fh" for side in "lr"]
    bent = {"f": (0.75, -1.5), "h": (-0.75, 1.5)}
    posture = {
        f"{leg}_{part}_joint": angle for leg in legs for part, angle in zip(("hfe", "kfe"), bent[leg[1]], strict=True)
    }
    yield _robot("HyQ", model, {f"{leg}_foot": 0.02175 for leg in legs}, posture, 0.6115, (800.0, 20.0), h)


def _robot(
    name: str, model: ts.Model, feet: Mapping[str, float], posture: Mapping[str, float], height: float,
    spring: tuple[float, float], h: float,
) -> Robot:  # fmt: skip
    q = model.neutral.copy()
    for joint, angle in posture.items():
        q[model.joint(joint).q_slice] = angle
    q[2] = height
    stiffness, damping = spring
    hinges = [joint for joint in model.joints if isinstance(joint.joint, ts.Revolute)]
    forces: list[ts.Force] = [
        ts.JointSpring(joint.name, stiffness, float(q[joint.q_slice][0]), damping) for joint in hinges
    ]
    forces += [ts.Contact(foot, ts.shapes.Sphere(r), "world", GROUND, **LAW) for foot, r in feet.items()]
    peer = mujoco.MjModel.from_xml_string(mjcf(model, h, feet, f' stiffness="{stiffness!r}" damping="{damping!r}"'))
    peer.qpos_spring[:] = to_mujoco(model, q)
    data = mujoco.MjData(peer)
    data.qpos[:] = to_mujoco(model, q)
    mujoco.mj_step(peer, data, int(5 / h))
    at_rest = ts.simulate(model, q, T=5.0, integrator=ts.BDF1(h), forces=forces).q[-1]
    return Robot(name, model, tuple(forces), feet, at_rest, peer, data.qpos.copy())


def check(robot: Robot, h: float) -> None:
    """Both are the same mechanism, with the same geometry, and stand."""
    model, peer = robot.model, robot.peer
    free = mujoco_pair(robot.name, model, h).peer
    states, data = random_states(model, spread=0.5), mujoco.MjData(free)
    data.qpos[:], data.qvel[:] = to_mujoco(model, states.q, states.v)
    mujoco.mj_forward(free, data)
    found = from_mujoco(model, data.qpos, data.qvel, data.qacc)[2]
    agree(f"{robot.name}: accelerations", ts.forward_dynamics(model, states.q, states.v, 0 * states.v), found)

    data = mujoco.MjData(peer)
    data.qpos[:] = to_mujoco(model, robot.q)
    mujoco.mj_forward(peer, data)
    theirs = np.array([contact.dist for contact in data.contact])
    agree(f"{robot.name}: gaps", np.sort(gaps(robot, robot.q)), np.sort(theirs))
    for side, q in (("here", robot.q), ("in MuJoCo", from_mujoco(model, robot.qpos))):
        found = gaps(robot, q)
        if not (ts.body_poses(model, q)[0, 2, 2] > 0.99 and (found < 0.0).all() and (found > -0.01).all()):
            raise Disagreement(f"{robot.name} does not stand {side}: its feet are {1e3 * found} mm above the ground")


def gaps(robot: Robot, q: Array) -> Array:
    """Heights of the feet above the ground."""
    centres = ts.point_positions(robot.model, q, list(robot.feet), np.zeros((4, 3)))
    return np.asarray(centres[:, 2] - list(robot.feet.values()))


def rollout(peer: Any, qpos: Array, qvel: Array, steps: int) -> Call:
    """MuJoCo's motions from a batch of states, on one thread, into arrays made here."""
    qpos, qvel = np.atleast_2d(qpos), np.atleast_2d(qvel)
    initial = np.concatenate([np.zeros((len(qpos), 1)), qpos, qvel], axis=1)  # time first
    names = {
        "rollout": mujoco.rollout.rollout,
        "mj": peer,
        "data": mujoco.MjData(peer),
        "initial": initial,
        "steps": steps,
        "state": np.empty((len(qpos), steps, initial.shape[1])),
    }
    return Call("rollout(mj, data, initial, nstep=steps, state=state)", names)


def transitions(robot: Robot, qpos: Array, qvel: Array) -> Call:
    """The derivatives of MuJoCo's step by forward differences."""
    mj, nv = robot.peer, robot.peer.nv
    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:] = qpos, qvel
    names = {"mujoco": mujoco, "mj": mj, "data": data, "A": np.zeros((2 * nv, 2 * nv)), "B": np.zeros((2 * nv, mj.nu))}
    return Call("mujoco.mjd_transitionFD(mj, data, 1e-6, False, A, B, None, None)", names)


def swaying(robot: Robot, number: int, size: float) -> tuple[States, tuple[Array, Array]]:
    """States about the equilibrium here, and those about the one in MuJoCo, with the same displacements of joints, of
    the given size, and with velocities of ten times that."""
    rng = np.random.default_rng(0)
    d, v = rng.standard_normal((2, number, robot.model.nv))
    d, v = size * d, 10 * size * v
    d[:, :6] = 0.0
    here = robot.model.plus(robot.q, d)
    there = robot.model.plus(from_mujoco(robot.model, robot.qpos), d)
    return States(here, v, v, v), to_mujoco(robot.model, there, v)


def falling(robot: Robot) -> tuple[Array, Array]:
    """A state 5 cm above the ground, tilted, at 1 m/s downwards with a spin: all four feet land in 0.2 s."""
    model = robot.model
    d, v = np.zeros(model.nv), np.zeros(model.nv)
    d[:2], v[:6] = (0.1, -0.06), (0.3, 0.5, 0.2, 0.5, 0.2, -1.0)
    q = model.plus(robot.q, d)
    q[2] += 0.12
    return q, v


@dataclass(frozen=True, eq=False)
class Stack:
    """Boxes on each other, and the same in MuJoCo."""

    model: ts.Model
    forces: tuple[ts.Force, ...]
    q: Array
    peer: Any
    qpos: Array


def stack(number: int, h: float) -> Stack:
    """Boxes of 1 kg, 0.2 x 0.2 x 0.1 m, at rest."""
    size = (0.2, 0.2, 0.1)
    builder, names = ts.ModelBuilder("stack", gravity=(0, 0, -9.81)), [f"box{i}" for i in range(number)]
    bodies = ""
    for i, name in enumerate(names):
        builder.add_body(name, "world", ts.Free(), inertia=ts.Inertia.box(size, mass=1.0))
        geom = '<geom type="box" size="0.1 0.1 0.05" mass="1"/>'
        bodies += f'<body pos="0 0 {(i + 0.5) * size[2]!r}"><freejoint/>{geom}</body>'
    model, box = builder.build(), ts.shapes.Box(size)
    forces = [ts.Contact(names[0], box, "world", GROUND, **LAW)]
    forces += [ts.Contact(b, box, a, box, **LAW) for a, b in pairwise(names)]
    q = model.neutral.copy()
    for i, name in enumerate(names):
        q[model.joint(name).q_slice][:3] = 0, 0, (i + 0.5) * size[2]
    peer = mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="{h!r}"/><worldbody><geom type="plane" size="0 0 1"/>{bodies}</worldbody></mujoco>'
    )
    data = mujoco.MjData(peer)
    mujoco.mj_step(peer, data, int(2 / h))
    at_rest = ts.simulate(model, q, T=2.0, integrator=ts.BDF1(h), forces=forces).q[-1]
    return Stack(model, tuple(forces), at_rest, peer, data.qpos.copy())
