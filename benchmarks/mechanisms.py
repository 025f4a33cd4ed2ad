"""Closed mechanisms here and in MuJoCo: a four-bar and a Stewart platform, with errors against a fine solution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import mujoco
import mujoco.rollout
import numpy as np

import torsor as ts

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A closed mechanism with a start that satisfies its constraints, and the same as MJCF with a step {h}."""

    name: str
    model: ts.Model
    constraints: tuple[ts.Constraint, ...]
    q: Array
    v: Array
    T: float
    mjcf: str
    qpos: Array
    qvel: Array
    anchors: Array  # of each `connect`, on its second body
    compared: tuple[Array, Array]  # coordinates that are compared: here and there


@dataclass(frozen=True)
class Motion:
    """How well steps of one size do: the largest gap, and the error of coordinates at the end."""

    h: float
    gap: float
    error: float


def _rod(length: float, mass: float) -> ts.Inertia:
    return ts.Inertia(mass, (length / 2, 0, 0), mass * np.diag([0.05**2, length**2 / 12, length**2 / 12]))


def _inertial(inertia: ts.Inertia) -> str:
    I = inertia.I_com
    moments = (I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2])
    return f'<inertial pos="{_text(inertia.com)}" mass="{inertia.mass!r}" fullinertia="{_text(moments)}"/>'


def _text(numbers: Any) -> str:
    return " ".join(repr(float(x)) for x in numbers)


def _mjcf(bodies: str, equality: str) -> str:
    return (
        '<mujoco><compiler angle="radian"/><option timestep="{h}" gravity="0 0 -9.81" integrator="implicitfast" '
        'tolerance="1e-12"><flag contact="disable"/></option><worldbody>'
        f"{bodies}</worldbody><equality>{equality}</equality></mujoco>"
    )


def _connect(a: str, b: str, anchor: Any) -> str:
    return (
        f'<connect body1="{a}" body2="{b}" anchor="{_text(anchor)}" solref="{{stiff}} 1" solimp="0.9999 0.9999 0.001"/>'
    )


@cache
def four_bar() -> Mechanism:
    """Closed by a ball joint, of which two rows are in the plane."""
    links = {"crank": (1.0, 1.0), "coupler": (2.2, 2.0), "rocker": (1.8, 1.5)}
    rods = {name: _rod(*size) for name, size in links.items()}
    builder = ts.ModelBuilder("four-bar", gravity=(0, 0, -9.81))
    hinge = ts.Revolute((0, 1, 0))
    builder.add_body("crank", "world", hinge, inertia=rods["crank"])
    builder.add_body("coupler", "crank", hinge, ts.SE3.translation(1, 0, 0), rods["coupler"])
    builder.add_body("rocker", "world", hinge, ts.SE3.translation(2.4, 0, 0), rods["rocker"])
    model = builder.build()
    closing = ts.Loop(
        "coupler", "rocker", ts.Revolute((0, 1, 0)), ts.SE3.translation(2.2, 0, 0), ts.SE3.translation(1.8, 0, 0)
    )
    q, v = ts.project(model, [closing], [-0.7, 0.4, -1.5], [3.0, 0.0, 0.0], keep=["crank"])
    joint = '<joint axis="0 1 0"/>'
    bodies = (
        f'<body name="crank">{joint}{_inertial(rods["crank"])}'
        f'<body name="coupler" pos="1 0 0">{joint}{_inertial(rods["coupler"])}</body></body>'
        f'<body name="rocker" pos="2.4 0 0">{joint}{_inertial(rods["rocker"])}</body>'
    )
    text = _mjcf(bodies, _connect("coupler", "rocker", (2.2, 0, 0)))
    all_of_them = np.arange(3)
    return Mechanism(
        "four-bar", model, (closing,), q, v, 0.5, text, q, v, np.array([[1.8, 0.0, 0.0]]), (all_of_them, all_of_them)
    )  # fmt: skip


@cache
def stewart() -> Mechanism:
    """A free platform on six legs, each a universal joint and a slider, closed by ball joints."""
    turn = np.repeat(np.arange(3) * 2 * np.pi / 3, 2)
    at = turn + np.tile([-0.35, 0.35], 3)
    above = turn + np.tile([-0.8, 0.8], 3)
    base = np.stack([np.cos(at), np.sin(at), 0 * at], axis=1)
    top = 0.6 * np.stack([np.cos(above), np.sin(above), 0 * at], axis=1)
    plate = ts.Inertia(4.0, (0, 0, 0), np.diag([0.4, 0.4, 0.8]))
    cylinder, piston = (
        ts.Inertia(m, (0, 0, z), m * np.diag([0.03, 0.03, 0.001])) for m, z in ((0.5, 0.3), (0.3, -0.3))
    )
    builder = ts.ModelBuilder("Stewart platform", gravity=(0, 0, -9.81))
    builder.add_body("platform", "world", ts.Free(), inertia=plate)
    loops, q = [], [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    bodies = f'<body name="platform"><freejoint/>{_inertial(plate)}</body>'
    equality = ""
    for k in range(6):
        x, y, z = base[k]
        builder.add_body(
            f"cylinder{k}", "world", ts.Universal(((1, 0, 0), (0, 1, 0))), ts.SE3.translation(x, y, z), cylinder
        )
        builder.add_body(f"piston{k}", f"cylinder{k}", ts.Prismatic((0, 0, 1)), inertia=piston)
        loops.append(ts.Loop(f"piston{k}", "platform", ts.Spherical(), None, ts.SE3.translation(*top[k])))
        d = top[k] + [0, 0, 1] - base[k]
        first = np.arctan2(-d[1], d[2])  # R_x(first) R_y(second) z = d
        q += [first, np.arctan2(d[0], np.hypot(d[1], d[2])), np.linalg.norm(d)]
        bodies += (
            f'<body name="cylinder{k}" pos="{_text(base[k])}"><joint axis="1 0 0"/><joint axis="0 1 0"/>'
            f'{_inertial(cylinder)}<body name="piston{k}"><joint type="slide" axis="0 0 1"/>'
            f"{_inertial(piston)}</body></body>"
        )
        equality += _connect(f"piston{k}", "platform", (0, 0, 0))
    model = builder.build()
    v = np.zeros(model.nv)
    v[:6] = 0.5, -0.3, 0.8, 0.3, 0.2, -0.1
    q, v = ts.project(model, loops, q, v, keep=["platform"])
    qpos = np.concatenate([q[:3], q[6:7], q[3:6], q[7:]])
    qvel = np.concatenate([v[3:6], v[:3], v[6:]])  # both start with the identity as orientation
    return Mechanism(
        "Stewart", model, tuple(loops), q, v, 0.2, _mjcf(bodies, equality), qpos, qvel, top,
        (np.r_[0:3, 7:25], np.r_[0:3, 7:25]),
    )  # fmt: skip


@cache
def exact(mechanism: Mechanism) -> Array:
    """Coordinates at the end, by steps of order 4 whose error is far below all others."""
    steps = 400
    motion = ts.simulate(
        mechanism.model, mechanism.q, mechanism.v, steps=steps,
        integrator=ts.Variational(mechanism.T / steps, order=4), constraints=mechanism.constraints,
    )  # fmt: skip
    return motion.q[-1]


def our_motion(mechanism: Mechanism, steps: int) -> Motion:
    """Of BDF2."""
    m = mechanism
    motion = ts.simulate(m.model, m.q, m.v, steps=steps, integrator=ts.BDF2(m.T / steps), constraints=m.constraints)
    gap = np.abs(ts.constraint_errors(m.model, m.constraints, motion.q).g).max()
    ours, _ = m.compared
    return Motion(m.T / steps, float(gap), float(np.abs(motion.q[-1] - exact(m))[ours].max()))


class Peer:
    """The mechanism in MuJoCo, with constraints as stiff as a step allows: a time constant of two steps."""

    def __init__(self, mechanism: Mechanism, steps: int) -> None:
        h = mechanism.T / steps
        self.mechanism, self.steps, self.h = mechanism, steps, h
        self.model = mujoco.MjModel.from_xml_string(mechanism.mjcf.format(h=repr(h), stiff=repr(2 * h)))
        self.model.eq_data[:, 3:6] = mechanism.anchors
        self.data = mujoco.MjData(self.model)
        state = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self.data.qpos[:], self.data.qvel[:] = mechanism.qpos, mechanism.qvel
        self.start = np.empty((1, state))
        mujoco.mj_getState(self.model, self.data, self.start[0], mujoco.mjtState.mjSTATE_FULLPHYSICS)

    def run(self) -> Array:
        """Its states (steps, ...)."""
        return mujoco.rollout.rollout(self.model, [self.data], self.start, nstep=self.steps)[0][0]

    def motion(self) -> Motion:
        m, states = self.mechanism, self.run()
        nq = self.model.nq
        qpos = states[:, 1 : 1 + nq]
        gap = 0.0
        for row in qpos[:: max(1, len(qpos) // 200)]:
            self.data.qpos[:] = row
            mujoco.mj_kinematics(self.model, self.data)
            for k in range(self.model.neq):
                a, b = (
                    self.data.xpos[i] + self.data.xmat[i].reshape(3, 3) @ self.model.eq_data[k, 3 * s : 3 * s + 3]
                    for s, i in enumerate((self.model.eq_obj1id[k], self.model.eq_obj2id[k]))
                )
                gap = max(gap, float(np.abs(a - b).max()))
        ours, theirs = m.compared
        return Motion(self.h, gap, float(np.abs(qpos[-1][theirs] - exact(m)[ours]).max()))


def as_exact(mechanism: Mechanism, error: float, most: int = 1 << 17) -> tuple[Peer, Motion]:
    """MuJoCo with the largest step, a power of two of them, at which it is as exact, or the smallest that was tried."""
    steps = 64
    while True:
        peer = Peer(mechanism, steps)
        motion = peer.motion()
        if motion.error <= error or 2 * steps > most:
            return peer, motion
        steps *= 2
