"""Trees, states, quadratures and steps that tests of variational integrators share."""

import numpy as np
import pytest
from population import BarrelCam, quaternions, sweep

import torsor as ts
from torsor import spatial, testing
from torsor.testing import random_armature, random_inertia, random_pose

EPS = 1e-30  # of complex steps

RULES = sweep((pytest.param(rule, order) for rule in ("gauss", "lobatto") for order in (2, 4, 6)), 4)


def state(model, seed, speed=0.5):
    """q, p and v in general position, away from the singularities of the joints' charts."""
    rng = np.random.default_rng(seed)
    q = model.random(rng)
    for j in model.joints:
        while j.nq == j.nv == 3 and np.linalg.cond(j.joint.S(q[j.q_slice])) > 10:
            q[j.q_slice] = j.joint.random(rng)
    q = model.plus(q, np.zeros(model.nv))
    v = speed * rng.standard_normal(model.nv)
    return q, ts.generalized_momenta(model, q, v), v


def mixed_forces(model, seed=0):
    """Springs and dampers at joints, of bodies, between bodies, and a force that depends on time."""
    rng = np.random.default_rng(seed)
    names = [b.name for b in model.bodies]
    return [
        ts.JointSpring(None, rng.uniform(1, 2, model.nv), model.random(rng), rng.uniform(0.1, 0.3, model.nv)),
        ts.BodyDamping(names[-1], rng.uniform(0.1, 0.3, 6)),
        ts.PointSpring(names[1], rng.standard_normal(3), names[-1], rng.standard_normal(3), 3.0, 0.4),
        ts.SpringDamper("world", (0, 0, 3.0), names[-1], rng.standard_normal(3), 5.0, 0.5, 1.0),
        ts.BodyWrench(names[2], rng.standard_normal((3, 6)), (0.0, 0.5, 1.7), frame="world"),
    ]


# ---- the rules

THIRD, FIFTH = np.sqrt(1 / 3), np.sqrt(1 / 5)

# Points and weights on [-1, 1], from tables.
GAUSS = {
    1: ([0.0], [2.0]),
    2: ([-THIRD, THIRD], [1.0, 1.0]),
    3: ([-np.sqrt(0.6), 0.0, np.sqrt(0.6)], [5 / 9, 8 / 9, 5 / 9]),
}

LOBATTO = {
    2: ([-1.0, 1.0], [1.0, 1.0]),
    3: ([-1.0, 0.0, 1.0], [1 / 3, 4 / 3, 1 / 3]),
    4: ([-1.0, -FIFTH, FIFTH, 1.0], [1 / 6, 5 / 6, 5 / 6, 1 / 6]),
}


# ---- the discrete Euler-Lagrange equations


def chart(model, q0, q1):
    """Coordinates xi of q1 at q0: of a rotation its logarithm, of a translation that in the frame of q0."""
    xi = model.minus(q1, q0)
    for free, iq, iv in quaternions(model):
        if free:
            R = spatial.quaternion_to_matrix(q0[iq + 3 : iq + 7])
            xi[iv + 3 : iv + 6] = R.T @ (q1[iq : iq + 3] - q0[iq : iq + 3])
    return xi


def retract(model, q0, xi, rate):
    """q of coordinates xi, and v of their rate."""
    q, v = model.plus(q0, xi), rate.copy()
    for free, iq, iv in quaternions(model):
        w, wdot = xi[iv : iv + 3], rate[iv : iv + 3]
        v[iv : iv + 3] = spatial.dexp3(w) @ wdot
        if free:
            R = spatial.quaternion_to_matrix(q0[iq + 3 : iq + 7])
            q[iq : iq + 3] = q0[iq : iq + 3] + R @ xi[iv + 3 : iv + 6]
            v[iv + 3 : iv + 6] = spatial.exp3(w).T @ rate[iv + 3 : iv + 6]
    return q, v


def chain(seed=0, gravity=(0.3, 0.2, -9.81)):
    """Few joints, of each kind that the equations treat differently."""
    rng = np.random.default_rng(seed)
    builder = ts.ModelBuilder(gravity=gravity)
    kinds = [ts.Free(), ts.Revolute((0, 1, 0.3)), ts.Spherical(), ts.SphericalExp(), BarrelCam()]
    for k, joint in enumerate(kinds):
        parent = "world" if k == 0 else f"b{k - 1 if k < 4 else 1}"
        builder.add_body(f"b{k}", parent, joint, random_pose(rng), random_inertia(rng))
    return builder.build()


def control_points(model, integrator, q, v, seed):
    """Near a motion, but none."""
    rng = np.random.default_rng(seed)
    times = integrator.h * (1 + np.array(LOBATTO[integrator.order // 2 + 1][0])) / 2
    return np.stack([model.plus(q, t * (v + rng.standard_normal(model.nv))) for t in times])


# ---- derivatives of a step


def implicit_step(model, integrator, q, p, u, forces, t):
    """q1, p1 and their derivatives by (q, p, u), from the equations alone: Newton's method and the implicit function
    theorem with complex steps."""
    s, nv = integrator.order // 2, model.nv
    v = ts.mass_matrix_solve(model, q, p)
    times = integrator.h * (1 + np.array(LOBATTO[s + 1][0])) / 2
    points = np.stack([model.plus(q, t * v) for t in times])
    directions = 1j * EPS * np.eye((s + 2) * nv).reshape(-1, s + 2, nv)

    def derivatives():
        with testing.complex_inputs():
            moved = model.plus(points, directions[:, : s + 1])
            r = ts.variational.discrete_euler_lagrange(
                model, integrator, moved, u + directions[:, s + 1], forces=forces, t=t
            )
        rows = np.concatenate([r.p0[:, None], r.residual, r.p1[:, None]], axis=1).reshape(len(directions), -1)
        return rows[0].real, np.imag(rows.T) / EPS

    for _ in range(12):
        value, J = derivatives()
        value[:nv] -= p
        step = -np.linalg.solve(J[: s * nv, nv : (s + 1) * nv], value[: s * nv])
        points[1:] = model.plus(points[1:], step.reshape(s, nv))
        if np.abs(step).max() < 1e-14:
            break
    value, J = derivatives()
    by_p = np.zeros(((s + 1) * nv, nv))
    by_p[:nv] = -np.eye(nv)
    right = np.hstack([J[:, :nv], by_p, J[:, (s + 1) * nv :]])
    inner = -np.linalg.solve(J[: s * nv, nv : (s + 1) * nv], right[: s * nv])
    dp1 = right[s * nv :] + J[s * nv :, nv : (s + 1) * nv] @ inner
    return points[-1], value[s * nv :], inner[-nv:], dp1


def step_matrices(d):
    return np.hstack([d.dq1_dq, d.dq1_dp, d.dq1_du]), np.hstack([d.dp1_dq, d.dp1_dp, d.dp1_du])


def check_step(model, integrator, seed, forces=(), tolerance=1e-11):
    q, p, _ = state(model, seed)
    u = np.random.default_rng(seed).standard_normal(model.nv)
    d = ts.step_derivatives(model, integrator, q, p=p, u=u, forces=forces, t=0.3)
    q1, p1, dq1, dp1 = implicit_step(model, integrator, q, p, u, forces, 0.3)
    np.testing.assert_allclose(model.minus(d.q1, q1), 0, atol=1e-12)
    np.testing.assert_allclose(d.p1, p1, atol=1e-11 * (1 + np.abs(p1).max()))  # derivative of p1 by q1 is M / h
    for value, expected in zip(step_matrices(d), (dq1, dp1), strict=True):
        # Momenta have other units than angles: each block is compared with itself.
        for part in range(3):
            at = slice(part * model.nv, (part + 1) * model.nv)
            scale = np.abs(expected[:, at]).max()
            np.testing.assert_allclose(value[:, at], expected[:, at], atol=tolerance * scale)


def symplectic_form(model, p):
    """[[p.[e_a, e_b], 1], [-1, 0]], the brackets being those of the groups of joints with quaternions."""
    nv = model.nv
    form = np.zeros((2 * nv, 2 * nv))
    form[:nv, nv:], form[nv:, :nv] = np.eye(nv), -np.eye(nv)
    for free, _, iv in quaternions(model):
        n = 6 if free else 3
        for a in range(n):
            for b in range(n):
                e, f = np.zeros((2, 6))
                e[a], f[b] = 1.0, 1.0
                form[iv + a, iv + b] = p[iv : iv + n] @ (spatial.ad(e) @ f)[:n]
    return form


# ---- models


def ordered_tree():
    rng = np.random.default_rng(4)
    builder = ts.ModelBuilder(gravity=(0.3, 0.2, -9.81))
    kinds = [ts.Free(), ts.Revolute((0, 1, 0)), ts.Spherical(), ts.SphericalExp()]
    drives = np.random.default_rng(5)
    for k, joint in enumerate(kinds):
        parent, armature = f"b{k - 1 - k // 3}" if k else "world", random_armature(drives, joint)
        builder.add_body(f"b{k}", parent, joint, random_pose(rng), random_inertia(rng), armature=armature)
    model = builder.build()
    q = model.random(rng)
    q[model.joint("b3").q_slice] = (0.3, 0.4, -0.2)
    return model, q, 0.5 * rng.standard_normal(model.nv)


def pendulum(n, gravity=9.81):
    builder = ts.ModelBuilder(gravity=(0, 0, -gravity))
    for k in range(n):
        placement = ts.SE3.translation(0, 0, -1) if k else ts.SE3()
        parent = f"b{k - 1}" if k else "world"
        builder.add_body(f"b{k}", parent, ts.Revolute((0, 1, 0)), placement, ts.Inertia.point(1.0, (0, 0, -1)))
    return builder.build()


def rods(n):
    """A chain of n rods of unit mass, 0.1 long."""
    b = ts.ModelBuilder(gravity=(0, 0, -9.81))
    rod = ts.Inertia.cylinder(radius=0.01, length=0.1, mass=1.0, com=(0, 0, -0.05))
    for k in range(n):
        place = ts.SE3.translation(0, 0, -0.1 if k else 0.0)
        b.add_body(f"rod{k}", f"rod{k - 1}" if k else "world", ts.Revolute((0, 1, 0)), place, rod)
    return b.build()
