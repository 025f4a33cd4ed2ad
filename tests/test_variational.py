"""Variational integrators: their equations, order, what they conserve, and their derivatives."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from population import JOINTS, BarrelCam, models

import torsor as ts
from torsor import _core, spatial, testing
from torsor.integrators.variational import quadrature
from torsor.simulation.steps import variational_options
from torsor.testing import complex_step, random_inertia, random_pose

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference" / "variational"
EPS = 1e-30  # of complex steps
RULES = [(rule, order) for rule in ("gauss", "lobatto") for order in (2, 4, 6)]


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


def quaternion_parts(joint, iq, iv):
    """Where joints with quaternions, those inside of composites too, have q and v: (is it free, iq, iv)."""
    if isinstance(joint, ts.Composite):
        for part in joint.joints:
            yield from quaternion_parts(part, iq, iv)
            iq, iv = iq + part.nq, iv + part.nv
    elif isinstance(joint, (ts.Free, ts.Spherical)):
        yield isinstance(joint, ts.Free), iq, iv


def quaternions(model):
    for j in model.joints:
        yield from quaternion_parts(j.joint, j.q_slice.start, j.v_slice.start)


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


@pytest.mark.parametrize("s", [1, 2, 3])
def test_points_and_weights_are_those_of_the_tables(s):
    for rule, points, weights in (("gauss", *GAUSS[s]), ("lobatto", *LOBATTO[s + 1])):
        c, w = quadrature(ts.Variational(0.1, 2 * s, rule))
        np.testing.assert_allclose(c, points, atol=1e-15)
        np.testing.assert_allclose(w, weights, rtol=1e-14)
        np.testing.assert_allclose(ts.Variational(0.1, 2 * s, rule)._fractions, (1 + np.array(points)) / 2, atol=1e-15)


@pytest.mark.parametrize("order", range(2, 34, 2))
@pytest.mark.parametrize("rule", ["gauss", "lobatto"])
def test_quadrature_is_exact_to_the_degree_of_its_order(rule, order):
    """Polynomials of degree order - 1, and no further: the next is off by far more than rounding, as long as that can
    be told."""
    c, w = quadrature(ts.Variational(0.1, order, rule))
    assert len(c) == order // 2 + (rule == "lobatto")
    assert (np.diff(c) > 0).all() and (w > 0).all()
    for degree in range(order):
        exact = 0.0 if degree % 2 else 2 / (degree + 1)
        assert w @ c**degree == pytest.approx(exact, abs=1e-14)  # sums of 17 terms below 1
    if order <= 16:
        assert abs(w @ c**order - 2 / (order + 1)) > 1e-6


def test_names_of_rules():
    model, (q, p, _) = chain(), state(chain(), 0)
    assert ts.Variational(0.1).order == 2 and ts.Variational(0.1).rule == "gauss"
    for name, rule in (("midpoint", "gauss"), ("trapezoid", "lobatto")):
        a, b = (ts.step_derivatives(model, ts.Variational(0.01, rule=r), q, p=p) for r in (name, rule))
        for x, y in zip(a[:8], b[:8], strict=True):
            np.testing.assert_array_equal(x, y)
    # The two are different integrators, by O(h^3) in a step.
    a, b = (ts.step_derivatives(model, ts.Variational(0.01, rule=r), q, p=p).q1 for r in ("gauss", "lobatto"))
    assert np.abs(model.minus(a, b)).max() > 1e-8


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


def discrete_derivatives(model, integrator, points, u, forces, t):
    """Derivatives (order / 2 + 1, nv) of the action by the control points, with the virtual work of forces.

    Written down from its definition: the Lagrangian of the polynomial through the control points, by quadrature.
    """
    s, h, nv = integrator.order // 2, integrator.h, model.nv
    c, w = (np.array(x) for x in (GAUSS[s] if integrator.rule == "gauss" else LOBATTO[s + 1]))
    nodes = np.array(LOBATTO[s + 1][0])
    powers = np.arange(s + 1)
    basis = np.linalg.inv(nodes[:, None] ** powers)  # columns: coefficients of the Lagrange polynomials
    phi = c[:, None] ** powers @ basis
    b = powers[1:] * c[:, None] ** powers[:-1] @ basis[1:] * 2 / h

    def motion(points):
        xi = np.stack([chart(model, points[0], x) for x in points])
        return [retract(model, points[0], phi[a] @ xi, b[a] @ xi) for a in range(len(c))]

    base = motion(points)
    tau = [
        u + ts.generalized_forces(model, forces, *at, t=t + (1 + c[a]) / 2 * h) if forces else u
        for a, at in enumerate(base)
    ]
    out = np.zeros((s + 1, nv))
    with testing.complex_inputs():
        for k in range(s + 1):
            for j in range(nv):
                d = np.zeros(nv, complex)
                d[j] = 1j * EPS
                moved = motion([model.plus(x, d if i == k else 0 * d) for i, x in enumerate(points)])
                for a, (q, v) in enumerate(moved):
                    L = ts.kinetic_energy(model, q, v) - ts.potential_energy(model, q)
                    work = tau[a] @ model.minus(q, base[a][0])
                    out[k, j] += h * w[a] / 2 * np.imag(L + work) / EPS
    return out


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


@pytest.mark.parametrize(("rule", "order"), RULES)
def test_equations_are_derivatives_of_the_action(rule, order):
    model = chain()
    q, _, v = state(model, 1)
    integrator = ts.Variational(0.2, order, rule)  # large, so that no term hides
    points = control_points(model, integrator, q, v, 2)
    u, forces = np.random.default_rng(3).standard_normal(model.nv), mixed_forces(model)
    for given in ((), forces[:1], forces):
        D = discrete_derivatives(model, integrator, points, u, given, 0.3)
        r = ts.variational.discrete_euler_lagrange(model, integrator, points, u, forces=given, t=0.3)
        assert r.residual.shape == (order // 2 - 1, model.nv)
        # Sums of terms p / h, with quotients of phi and b: 1e-13 of the largest.
        np.testing.assert_allclose(np.stack([-r.p0, *r.residual, r.p1]), D, atol=1e-12 * np.abs(D).max())


@pytest.mark.parametrize("model", list(models(5)))
def test_equations_for_every_joint(model):
    q, _, v = state(model, 1)
    integrator = ts.Variational(0.1, 2, "gauss")
    points = control_points(model, integrator, q, v, 2)
    D = discrete_derivatives(model, integrator, points, np.zeros(model.nv), (), 0.0)
    r = ts.variational.discrete_euler_lagrange(model, integrator, points)
    np.testing.assert_allclose(np.stack([-r.p0, r.p1]), D, atol=1e-12 * np.abs(D).max())


def test_equations_of_a_batch_and_of_quaternions_of_any_length():
    model = chain()
    q, _, v = state(model, 1)
    integrator = ts.Variational(0.1, 4)
    points = np.stack([control_points(model, integrator, q, v, k) for k in range(6)]).reshape(2, 3, 3, model.nq)
    u = np.random.default_rng(0).standard_normal((3, model.nv))
    r = ts.variational.discrete_euler_lagrange(model, integrator, points, u, threads=2)
    assert r.p0.shape == r.p1.shape == (2, 3, model.nv) and r.residual.shape == (2, 3, 1, model.nv)
    for i in range(2):
        for j in range(3):
            one = ts.variational.discrete_euler_lagrange(model, integrator, points[i, j], u[j])
            for x, y in zip(r, one, strict=True):
                np.testing.assert_array_equal(x[i, j], y)
    longer = points.copy()
    for free, iq, _ in quaternions(model):
        at = slice(iq + 3, iq + 7) if free else slice(iq, iq + 4)
        longer[..., at] *= np.array([2.0, -0.5, 3.0])[:, None]  # the same rotations
    for x, y in zip(ts.variational.discrete_euler_lagrange(model, integrator, longer, u), r, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12 * np.abs(y).max())


@pytest.mark.parametrize("length", [3.1, 3.3])
def test_exponential_coordinates_keep_their_chart_within_a_step(length):
    """Momenta and velocities belong to the coordinates that are given, beyond half a turn too."""
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("a", "world", ts.SphericalExp(), inertia=random_inertia(np.random.default_rng(0)))
    model = builder.build()
    q, v = length * np.array([1, 2, 2]) / 3, np.array([5.0, 3.0, 4.0])
    integrator = ts.Variational(0.02)
    p = ts.generalized_momenta(model, q, v)
    d = ts.step_derivatives(model, integrator, q, p=p)
    assert np.abs(d.q1 - q).max() < 0.2  # and half a turn lies between, for the first
    r = ts.variational.discrete_euler_lagrange(model, integrator, np.stack([q, d.q1]))
    np.testing.assert_allclose(r.p0, p, atol=1e-12)
    np.testing.assert_allclose(r.p1, d.p1, atol=1e-12)
    by_v = ts.step_derivatives(model, integrator, q, v)
    np.testing.assert_allclose(by_v.q1, d.q1, atol=1e-13)
    np.testing.assert_allclose(ts.generalized_momenta(model, by_v.q1, by_v.v1), d.p1, atol=1e-12)


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


@pytest.mark.parametrize(("rule", "order"), RULES)
@pytest.mark.parametrize("model", list(models(7)))
def test_step_and_its_jacobian_for_every_joint(model, rule, order):
    check_step(model, ts.Variational(0.02, order, rule, tolerance=1e-13), 3)


@pytest.mark.parametrize(("rule", "order"), RULES)
def test_jacobian_with_forces(rule, order):
    """Forces that stay within a joint, and others; once on a tree small enough for a dense solve, once beyond."""
    forces = mixed_forces(chain())
    for given in (forces[:1], forces):
        check_step(chain(), ts.Variational(0.02, order, rule, tolerance=1e-13), 4, given)
    small = ts.ModelBuilder(gravity=(0, 0, -9.81))
    rng = np.random.default_rng(1)
    for k, joint in enumerate((ts.Spherical(), ts.Revolute((0, 1, 0)), ts.Universal())):
        small.add_body(f"b{k}", f"b{k - 1}" if k else "world", joint, random_pose(rng), random_inertia(rng))
    model = small.build()
    for given in (mixed_forces(model)[:1], mixed_forces(model)):
        check_step(model, ts.Variational(0.02, order, rule, tolerance=1e-13), 4, given)


@pytest.mark.parametrize(("rule", "order"), [("gauss", 2), ("lobatto", 4)])
def test_derivatives_by_parameters_of_forces(rule, order):
    """By differences of fourth order, of 1e-3: 1e-12 of truncation and 1e-12 / 1e-3 of what Newton's method leaves."""
    model = chain()
    q, p, _ = state(model, 4)
    integrator = ts.Variational(0.05, order, rule, tolerance=1e-13)
    for forces in (mixed_forces(model), [*mixed_forces(model)[:2], mixed_forces(model)[3]]):
        d = ts.step_derivatives(model, integrator, q, p=p, forces=forces, t=0.3)
        scale = [
            max(np.abs(x).max() for part in all_ for x in part.values()) for all_ in (d.dq1_dforces, d.dp1_dforces)
        ]
        for k, force in enumerate(forces):
            for name, value in force._for_model(model).parameters.items():
                x = np.random.default_rng(k).standard_normal(value.shape)

                def moved(s, k=k, name=name, value=value, x=x, forces=forces, d=d):
                    changed = [*forces[:k], forces[k].with_parameters({name: value + s * x}), *forces[k + 1 :]]
                    m = ts.step_derivatives(model, integrator, q, p=p, forces=changed, t=0.3)
                    return np.stack([model.minus(m.q1, d.q1), m.p1])

                e = 1e-3
                expected = (8 * (moved(e) - moved(-e)) - (moved(2 * e) - moved(-2 * e))) / (12 * e)
                for part, got in enumerate((d.dq1_dforces, d.dp1_dforces)):
                    along = (got[k][name] * x).reshape(model.nv, -1).sum(axis=-1)
                    np.testing.assert_allclose(along, expected[part], atol=1e-8 * scale[part])
    assert ts.step_derivatives(model, integrator, q, p=p).dq1_dforces is None


def test_jacobians_of_a_batch():
    model = chain()
    qs, ps = zip(*(state(model, k)[:2] for k in range(6)), strict=True)
    qs, ps = np.reshape(qs, (2, 3, -1)), np.reshape(ps, (2, 3, -1))
    u = np.random.default_rng(0).standard_normal((3, model.nv))
    forces = mixed_forces(model)
    wq, wp = np.random.default_rng(1).standard_normal((2, model.nv))
    for integrator in (ts.Variational(0.01), ts.Variational(0.01, 4, "lobatto")):
        d = ts.step_derivatives(model, integrator, qs, p=ps, u=u, forces=forces, threads=2)
        H = ts.variational.step_hessian(model, integrator, qs, ps, u, contract=(wq, wp), forces=forces, threads=2)
        assert d.dq1_du.shape == H.dqdq.shape == (2, 3, model.nv, model.nv)
        one = ts.step_derivatives(model, integrator, qs[1, 2], p=ps[1, 2], u=u[2], forces=forces)
        own = ts.variational.step_hessian(model, integrator, qs[1, 2], ps[1, 2], u[2], contract=(wq, wp), forces=forces)
        for x, y in zip((*d[:8], *H), (*one[:8], *own), strict=True):
            np.testing.assert_array_equal(x[1, 2], y)
        for x, y in zip(d.dp1_dforces, one.dp1_dforces, strict=True):
            for name in x:
                np.testing.assert_array_equal(x[name][1, 2], y[name])


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


@pytest.mark.parametrize(("rule", "order"), RULES)
@pytest.mark.parametrize("model", list(models(8)))
def test_steps_are_symplectic(model, rule, order):
    q, p, _ = state(model, 5, 1.0)
    d = ts.step_derivatives(model, ts.Variational(0.02, order, rule, tolerance=1e-13), q, p=p)
    D = np.block([[d.dq1_dq, d.dq1_dp], [d.dp1_dq, d.dp1_dp]])
    defect = D.T @ symplectic_form(model, d.p1) @ D - symplectic_form(model, p)
    # Columns of D are solutions of linear systems, to rounding times the condition of the mass matrix, in their norm.
    norms = np.linalg.norm(D, axis=0)
    rounding = 10 * np.finfo(float).eps * np.linalg.cond(ts.mass_matrix(model, q))
    assert (np.abs(defect) <= rounding * (1.0 + np.outer(norms, norms))).all()


def test_symplectic_without_scaling():
    """The same as a bound on all entries, over 100 steps with springs, which have a potential too."""
    model = chain()
    q, p, _ = state(model, 5)
    forces = [
        ts.JointSpring("b1", 5.0, (0.3,)),
        ts.PointSpring("b2", (0.1, 0.2, 0), "world", (0, 0, 1), 4.0),
        ts.SpringDamper("b3", (0.1, 0.2, 0), "b0", (0, 0.5, 1), 4.0, rest_length=0.3),
    ]
    integrator = ts.Variational(0.01, 4)
    start, D = symplectic_form(model, p), np.eye(2 * model.nv)
    for _ in range(100):
        d = ts.step_derivatives(model, integrator, q, p=p, forces=forces)
        step = np.block([[d.dq1_dq, d.dq1_dp], [d.dp1_dq, d.dp1_dp]])
        defect = step.T @ symplectic_form(model, d.p1) @ step - symplectic_form(model, p)
        assert np.abs(defect).max() < 1e-10
        D, q, p = step @ D, d.q1, d.p1
    # Of the whole motion, whose Jacobian has grown: relative to that.
    assert np.abs(D.T @ symplectic_form(model, p) @ D - start).max() < 1e-10 * np.abs(D).max() ** 2


# ---- second derivatives


def differences(f, n, eps=1e-3):
    """Derivatives of f(d) at d = 0 along n directions, last in the result, to the fourth order of eps."""
    out = []
    for d in eps * np.eye(n):
        near, far = (f(d) - f(-d)) / (2 * eps), (f(2 * d) - f(-2 * d)) / (4 * eps)
        out.append((4 * near - far) / 3)
    return np.stack(out, axis=-1)


def check_hessian(model, integrator, seed, forces=()):
    nv = model.nv
    q, p, _ = state(model, seed)
    rng = np.random.default_rng(seed)
    u, wq, wp = rng.standard_normal((3, nv))
    H = ts.variational.step_hessian(model, integrator, q, p, u, contract=(wq, wp), forces=forces, t=0.3)
    base = ts.step_derivatives(model, integrator, q, p=p, u=u, forces=forces, t=0.3)

    def gradient(dq=0.0, dp=0.0, du=0.0):
        """wq.q1 + wp.p1 along the first directions, q1 in the tangent space of where it is."""
        at = model.plus(q, dq + np.zeros(nv))
        d = ts.step_derivatives(model, integrator, at, p=p + dp, u=u + du, forces=forces, t=0.3)
        dq1, dp1 = step_matrices(d)
        return wq @ dq1 + wp @ dp1

    assert np.isfinite(base.q1).all()
    scale = max(np.abs(x).max() for x in H)
    blocks = (
        (differences(lambda x: gradient(dq=x), nv), (H.dqdq, None, None)),
        (differences(lambda x: gradient(dp=x), nv), (H.dqdp, H.dpdp, None)),
        (differences(lambda x: gradient(du=x), nv, 1e-2), (H.dqdu, H.dpdu, H.dudu)),
    )
    for expected, given in blocks:
        for k, value in enumerate(given):
            if value is not None:
                # Truncation, 1e-8 (eps^4), and rounding of the Jacobians, 1e-12 / eps, of the largest entry.
                np.testing.assert_allclose(value, expected[k * nv : (k + 1) * nv], atol=1e-7 * scale)


@pytest.mark.parametrize("model", list(models(9)))
def test_second_derivatives_for_every_joint(model):
    check_hessian(model, ts.Variational(0.02, tolerance=1e-13), 6)


@pytest.mark.parametrize(("rule", "order"), RULES)
def test_second_derivatives_with_forces(rule, order):
    model = chain()
    check_hessian(model, ts.Variational(0.05, order, rule, tolerance=1e-13), 6, mixed_forces(model))
    check_hessian(model, ts.Variational(0.05, order, rule, tolerance=1e-13), 7, mixed_forces(model)[:1])


@pytest.mark.parametrize("joint", [ts.Spherical(), ts.Free()])
def test_order_of_second_derivatives(joint):
    # R^-1 d_j R is a different thing to differentiate than R^-1 d_k R, by their bracket.
    model = testing.random_tree(3, [joint, ts.Revolute((0, 1, 0))], branching=0.0)
    nv, n, integrator = model.nv, joint.nv, ts.Variational(0.02, order=4, tolerance=1e-13)
    q, p, _ = state(model, 2)
    wq, wp = np.random.default_rng(2).standard_normal((2, nv))
    H = ts.variational.step_hessian(model, integrator, q, p, contract=(wq, wp))
    d = ts.step_derivatives(model, integrator, q, p=p)

    def bracket(a, b):
        turn = np.cross(a[:3], b[:3])
        return turn if n == 3 else np.concatenate([turn, np.cross(a[:3], b[3:]) - np.cross(b[:3], a[3:])])

    def excess(by_j, by_k):
        return np.array([[wq[:n] @ bracket(by_j[:n, j], by_k[:n, k]) for k in range(nv)] for j in range(nv)])

    for block, by in ((H.dpdp, d.dq1_dp), (H.dudu, d.dq1_du)):
        np.testing.assert_allclose(block - block.T, excess(by, by), rtol=0, atol=1e-12 * np.abs(block).max())

    def by_momenta(dq):
        moved = ts.step_derivatives(model, integrator, model.plus(q, dq), p=p)
        return wq @ moved.dq1_dp + wp @ moved.dp1_dp

    other = differences(by_momenta, nv).T
    # Truncation and rounding as in check_hessian.
    np.testing.assert_allclose(H.dqdp - other, excess(d.dq1_dq, d.dq1_dp), rtol=0, atol=1e-7 * np.abs(H.dqdp).max())


# ---- against trep


def load_reference():
    path = REFERENCE / "double_pendulum_pointmass.json"
    if not path.exists():
        pytest.skip("the reference data is not beside this repository")
    return json.loads(path.read_text())


def read_pendulum(data):
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    parent, placement = "world", ts.SE3()
    for body in data["bodies"]:
        assert body["joint"] == "RY" and body["then"] == "TZ(-1)"
        inertia = ts.Inertia.point(body["mass"], (0, 0, -1))
        builder.add_body(body["q"], parent, ts.Revolute((0, 1, 0)), placement, inertia)
        parent, placement = body["q"], ts.SE3.translation(0, 0, -1)
    return builder.build(), ts.Variational(data["dt"], rule="midpoint")


def test_trajectory_of_trep():
    data = load_reference()
    model, integrator = read_pendulum(data)
    run = ts.simulate(model, data["q0"], p0=data["p0"], steps=data["nsteps"], integrator=integrator)
    # trep solves to 1e-11, and 200 steps add that up.
    np.testing.assert_allclose(run.q, data["q_traj"], atol=1e-9)
    np.testing.assert_allclose(run.p, data["p_traj"], atol=1e-9)
    middle, rate = (run.q[1:] + run.q[:-1]) / 2, np.diff(run.q, axis=0) / data["dt"]
    energy = ts.kinetic_energy(model, middle, rate) + ts.potential_energy(model, middle)
    np.testing.assert_allclose(energy, data["midpoint_energy_traj"], atol=1e-8)


@pytest.mark.parametrize("step", [0, 100])
def test_step_derivatives_of_trep(step):
    data = load_reference()
    model, integrator = read_pendulum(data)
    expected = data[f"derivs_step{step}"]
    d = ts.step_derivatives(model, integrator, expected["q1"], p=expected["p1"])
    for ours, theirs in (("q1", "q2"), ("p1", "p2")):
        np.testing.assert_allclose(getattr(d, ours), expected[theirs], atol=1e-10)
        for by in "qp":
            np.testing.assert_allclose(getattr(d, f"d{ours}_d{by}"), expected[f"{theirs}_d{by}1"], atol=1e-8)


def test_second_derivatives_of_trep():
    data = load_reference()
    model, integrator = read_pendulum(data)
    expected = data["derivs_step0"]
    for i, w in enumerate(np.eye(4)):
        H = ts.variational.step_hessian(model, integrator, expected["q1"], expected["p1"], contract=(w[:2], w[2:]))
        name, output = ("q2", i) if i < 2 else ("p2", i - 2)
        for by, value in (("dq1dq1", H.dqdq), ("dq1dp1", H.dqdp), ("dp1dp1", H.dpdp)):
            theirs = np.array(expected[f"{name}_{by}"])[:, :, output]  # their output comes last
            np.testing.assert_allclose(value, theirs, atol=1e-8)


# ---- order


def ordered_tree():
    rng = np.random.default_rng(4)
    builder = ts.ModelBuilder(gravity=(0.3, 0.2, -9.81))
    kinds = [ts.Free(), ts.Revolute((0, 1, 0)), ts.Spherical(), ts.SphericalExp()]
    for k, joint in enumerate(kinds):
        builder.add_body(f"b{k}", f"b{k - 1 - k // 3}" if k else "world", joint, random_pose(rng), random_inertia(rng))
    model = builder.build()
    q = model.random(rng)
    q[model.joint("b3").q_slice] = (0.3, 0.4, -0.2)
    return model, q, 0.5 * rng.standard_normal(model.nv)


def distance(model, a, b):
    return np.abs(model.minus(a.q[-1], b.q[-1])).max() + np.abs(a.v[-1] - b.v[-1]).max()


@pytest.mark.parametrize("with_forces", [False, True])
@pytest.mark.parametrize(("rule", "order"), RULES)
def test_measured_order(rule, order, with_forces):
    """Order 2s, of q and of v, also with damping and with controls that are functions of time."""
    model, q, v = ordered_tree()
    T = 0.48
    given = {}
    if with_forces:
        given["forces"] = [
            ts.JointSpring(None, 3.0, model.neutral, 0.3),
            ts.BodyDamping("b2", np.full(6, 0.2)),
            ts.PointSpring("b3", (0.1, 0, 0), "world", (0, 0, 1), 10.0, 0.5),
        ]
        given["controls"] = lambda t: np.sin(10 * t + np.arange(model.nv))
    exact = ts.simulate(model, q, v, T=T, integrator=ts.Variational(T / 96, 8), **given)
    # Steps whose errors are far above the 1e-11 of Newton's method and of the fine solution, and far enough below 1 for
    # the first term to rule; the next one is O(h), and shifts the order by some per cent.
    coarse = {2: 60, 4: 16, 6: 6 if with_forces else 3}[order]
    errors = [
        distance(model, ts.simulate(model, q, v, T=T, integrator=ts.Variational(T / n, order, rule), **given), exact)
        for n in (coarse, 2 * coarse)
    ]
    assert errors[1] > 1e-10
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.25)


def test_another_method_agrees():
    """High order in few steps: to the tolerance of SciPy's integrator."""
    model, q, v = ordered_tree()
    exact = ts.simulate(model, q, v, T=0.24, integrator=ts.Adaptive(0.24, rtol=1e-12, atol=1e-12))
    for rule in ("gauss", "lobatto"):
        run = ts.simulate(model, q, v, T=0.24, integrator=ts.Variational(0.01, 10, rule))
        assert distance(model, run, exact) < 1e-10


def test_very_high_order_in_one_step():
    """A pendulum by one step of order 32, whose error is that of rounding."""
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("a", "world", ts.Revolute((0, 1, 0)), inertia=ts.Inertia.point(1.0, (0, 0, -1.0)))
    model = builder.build()
    exact = ts.simulate(model, [1.0], [0.5], T=0.4, integrator=ts.Variational(0.02, 8))
    run = ts.simulate(model, [1.0], [0.5], steps=1, integrator=ts.Variational(0.4, 32))
    assert distance(model, run, exact) < 1e-11
    # The most unknowns that a joint may have, in the step and in its derivatives.
    model, q, v = ordered_tree()
    p = ts.generalized_momenta(model, q, v)
    for rule in ("gauss", "lobatto"):
        d = ts.step_derivatives(model, ts.Variational(0.05, 32, rule), q, p=p)
        exact = ts.simulate(model, q, v, T=0.05, integrator=ts.Variational(0.005, 8))
        np.testing.assert_allclose(model.minus(d.q1, exact.q[-1]), 0, atol=1e-11)
        D = np.block([[d.dq1_dq, d.dq1_dp], [d.dp1_dq, d.dp1_dp]])
        assert np.abs(D.T @ symplectic_form(model, d.p1) @ D - symplectic_form(model, p)).max() < 1e-10


# ---- what is conserved


def pendulum(n, gravity=9.81):
    builder = ts.ModelBuilder(gravity=(0, 0, -gravity))
    for k in range(n):
        placement = ts.SE3.translation(0, 0, -1) if k else ts.SE3()
        parent = f"b{k - 1}" if k else "world"
        builder.add_body(f"b{k}", parent, ts.Revolute((0, 1, 0)), placement, ts.Inertia.point(1.0, (0, 0, -1)))
    return builder.build()


def six_joints():
    """Six joints of several kinds in a tree; the chart of exponential coordinates is kept."""
    rng = np.random.default_rng(2)
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    kinds = [ts.Revolute((0, 1, 0)), ts.Spherical(), ts.Prismatic((1, 0, 0)), ts.Universal(), ts.Revolute((1, 0, 0))]
    parents = ["world", "b0", "b0", "b1", "b3", "b2"]
    for k, joint in enumerate([*kinds, ts.Screw((0, 0, 1), 0.2)]):
        placement = ts.SE3.translation(*(0.3 * rng.standard_normal(3)))
        builder.add_body(f"b{k}", parents[k], joint, placement, random_inertia(rng))
    return builder.build()


@pytest.mark.parametrize(
    ("make", "h", "forces"),
    [(lambda: pendulum(2), 0.02, ()), (six_joints, 0.01, (ts.JointSpring(None, 60.0),))],
    ids=["double pendulum", "tree"],
)
def test_energy_does_not_drift(make, h, forces):
    model = make()
    rng = np.random.default_rng(0)
    q = model.plus(model.neutral, (8.0 if not forces else 0.3) * rng.standard_normal(model.nv))

    def energies(integrator, steps):
        found = ts.simulate(model, q, steps=steps, every=100, integrator=integrator, forces=forces).energies
        return found.total - found.total[0], found.kinetic.max()

    error, size = energies(ts.Variational(h), 100_000)
    # It swings within a narrow band (h^2 times what is there) that does not move: of both, the first tenth knows all.
    tenths = np.array_split(error[1:], 10)
    assert np.abs(error).max() < 5e-3 * size
    assert np.abs(error).max() < 3 * np.abs(tenths[0]).max()
    means = [x.mean() for x in tenths]
    assert max(means) - min(means) < 0.5 * np.abs(error).max()
    # BDF2 loses far more in a tenth of the time, and goes on.
    damped, _ = energies(ts.BDF2(h), 10_000)
    assert damped[-1] < damped[50] < damped[20] < damped[10] < -10 * np.abs(error).max()


@pytest.mark.parametrize(("rule", "order"), RULES)
def test_energy_error_shrinks_with_the_order(rule, order):
    model = six_joints()
    rng = np.random.default_rng(0)
    q = model.plus(model.neutral, 0.4 * rng.standard_normal(model.nv))
    worst = []
    for h in (0.04, 0.02):
        total = ts.simulate(model, q, T=4.0, integrator=ts.Variational(h, order, rule)).energies.total
        worst.append(np.abs(total - total[0]).max())
    assert np.log2(worst[0] / worst[1]) > order - 0.8  # the largest of an error that swings


def world_momentum(model, q, v):
    return ts.momentum(model, q, v, about="world")


@pytest.mark.parametrize("internal", [False, True], ids=["free", "springs"])
@pytest.mark.parametrize(("rule", "order"), [("gauss", 2), ("lobatto", 4), ("gauss", 6)])
@pytest.mark.parametrize("part", range(4))
def test_momentum_of_a_floating_tree(part, rule, order, internal):
    """All joints there are, on a free base without gravity; also with springs, dampers and torques inside."""
    joints = [JOINTS[k] for k in np.array_split(np.random.default_rng(0).permutation(len(JOINTS)), 4)[part]]
    model = testing.random_tree(part, [ts.Free(), ts.Fixed(), *joints], branching=0.3)
    model = joined_to_base(model).with_gravity((0, 0, 0))
    q, _, v = state(model, 3, 0.3)
    forces, controls = [], None
    if internal:
        own = [b.name for b in model.bodies[1:]]
        forces = [
            *(ts.JointSpring(name, 1.0, damping=0.1) for name in own[1:4]),
            ts.SpringDamper(own[2], (0.1, 0.2, 0), own[-1], (0, 0, 0.3), 2.0, 0.2, 0.5),  # along its line
        ]
        controls = np.r_[np.zeros(6), np.sin(np.arange(model.nv - 6))]
    integrator = ts.Variational(0.004, order, rule, tolerance=1e-13)
    run = ts.simulate(model, q, v, steps=25, integrator=integrator, forces=forces, controls=controls)
    value = np.concatenate([world_momentum(at, run.q[a:b], run.v[a:b]) for _, a, b, at in run.segments()])
    assert value.shape == (26, 6)
    # Of each step: what Newton's method and rounding leave.
    assert np.abs(np.diff(value, axis=0)).max() < 1e-11 * (1 + np.abs(value[0]).max())


def joined_to_base(model):
    """The same with all trees on the first body."""
    bodies = [model.bodies[0]]
    for b in model.bodies[1:]:
        bodies.append(replace(b, parent=model.bodies[0].name) if b.parent in (None, "world") else b)
    return ts.Model(model.name, model.gravity, tuple(bodies))


def test_momentum_over_many_steps():
    """10 000 steps of a tumbling tree: the sum of the rounding of each, which is far below 1e-11 a step."""
    model, q, v = ordered_tree()
    model = model.with_gravity((0, 0, 0))
    run = ts.simulate(model, q, 2 * v, steps=10_000, every=100, integrator=ts.Variational(0.005))
    rows = [world_momentum(at, run.q[a:b], run.v[a:b]) for _, a, b, at in run.segments()]
    value = np.concatenate(rows)
    assert np.abs(value - value[0]).max() < 1e-9 * (1 + np.abs(value[0]).max())


@pytest.mark.parametrize("order", [2, 4])
def test_tolerance_is_what_newton_leaves(order):
    """Errors of single steps beside those of a far smaller tolerance; allowed is 1e-12 (1 + |v|)."""
    for joints in ([ts.Free()], [ts.Free(), ts.Revolute((0, 1, 0))], [ts.Spherical(), ts.Revolute((0, 1, 0))]):
        rng = np.random.default_rng(4)
        builder = ts.ModelBuilder(gravity=(0.3, 0.2, -9.81))
        for k, joint in enumerate(joints):
            builder.add_body(f"b{k}", f"b{k - 1}" if k else "world", joint, random_pose(rng), random_inertia(rng))
        model = builder.build()
        q = model.plus(model.neutral, 0.3 * rng.standard_normal(model.nv))
        v = 0.5 * rng.standard_normal(model.nv)
        for h in (0.12, 0.06, 0.03):
            run = ts.simulate(model, q, v, T=0.48, integrator=ts.Variational(h, order, tolerance=1e-14))
            d = ts.step_derivatives(model, ts.Variational(h, order), run.q[:-1], run.v[:-1])
            # v1 = M^-1 p1 has a few times the error of the step's own velocities.
            allowed = 1e-12 * (1 + np.abs(run.v).max())
            assert np.abs(d.v1 - run.v[1:]).max() < 20 * allowed


def test_rest_stays_rest():
    """Equations that hold from the beginning, to the last bit; the mass matrix is all that there is to factor."""
    model = pendulum(3)
    for q in (np.zeros(3), np.array([np.pi, 0, 0])):
        for rule, order in RULES:
            run = ts.simulate(model, q, steps=20, integrator=ts.Variational(0.01, order, rule))
            np.testing.assert_allclose(run.q, np.tile(q, (21, 1)), atol=1e-13)


# ---- Newton's method


def newton_system(model, integrator, points, right, u=None, forces=()):
    options, compiled = variational_options(model, integrator, forces)
    parameters = None if compiled is None else compiled.parameters
    return _core.variational_newton_system(model, points, u, np.array(0.3), parameters, right, options, None, 1)


@pytest.mark.parametrize(("rule", "order"), RULES)
@pytest.mark.parametrize("model", list(models(11)))
def test_recursion_is_the_dense_solve(model, rule, order):
    """Over the tree in O(n), and a dense factorisation: the same direction, and the same with the transpose."""
    integrator = ts.Variational(0.02, order, rule)
    q, _, v = state(model, 1)
    points = control_points(model, integrator, q, v, 2)
    rng = np.random.default_rng(3)
    right, u = rng.standard_normal(order // 2 * model.nv), rng.standard_normal(model.nv)
    names = [b.name for b in model.bodies]
    springs = [ts.JointSpring(None, 2.0, model.random(rng), 0.3)]
    on_bodies = [
        ts.BodyDamping(names[-1], rng.uniform(0.1, 0.3, 6)),
        ts.BodyWrench(names[2], rng.standard_normal(6), frame="world"),
        ts.PointForce(names[-2], (0.1, 0.2, 0.3), (1.0, 2.0, 3.0)),
        ts.SpringDamper("world", (0, 0, 3.0), names[-1], rng.standard_normal(3), 5.0, 0.5, 1.0),
    ]
    for forces in ((), springs, [*springs, *on_bodies]):
        J, x, y = newton_system(model, integrator, points, right, u, forces)
        for matrix, value in ((J, x), (J.T, y)):
            expected = np.linalg.solve(matrix, right)
            # Both lose the digits of the condition number, of which 1e4 and more are common here.
            assert np.abs(value - expected).max() <= 1e-10 * np.abs(expected).max()
            assert np.abs(matrix @ value - right).max() <= 1e-10 * (np.abs(matrix) @ np.abs(value)).max()


@pytest.mark.parametrize(("rule", "order"), RULES)
def test_newton_matrix_is_the_derivative_of_the_equations(rule, order):
    """By complex step of the discrete Euler-Lagrange equations along the control coordinates."""
    model, integrator = chain(), ts.Variational(0.1, order, rule)
    s, nv = order // 2, model.nv
    q, _, v = state(model, 1)
    points = control_points(model, integrator, q, v, 2)
    u = np.random.default_rng(3).standard_normal(nv)
    xi = np.concatenate([chart(model, q, x) for x in points[1:]])

    def covectors(x, y):
        """J(x)^T y and Ad(x)^T y: a covector at the end of x as one of the coordinates x, and one at their origin."""
        by_chart, by_start = y.copy(), y.copy()
        for free, _, iv in quaternions(model):
            at, w = slice(iv, iv + (6 if free else 3)), x[iv : iv + 3]
            R = spatial.exp3(w)
            J, Ad = spatial.dexp3(w), R.T
            if free:
                J = np.block([[J, np.zeros((3, 3))], [np.zeros((3, 3)), R.T]])
                Ad = np.block([[R.T, np.zeros((3, 3))], [-R.T @ spatial.hat(x[iv + 3 : iv + 6]), R.T]])
            by_chart[at], by_start[at] = J.T @ y[at], Ad.T @ y[at]
        return by_chart, by_start

    for forces in ((), mixed_forces(model)[:1], mixed_forces(model)):

        def equations(x, forces=forces):
            steps = x.reshape(s, nv)
            moved = np.stack([points[0].astype(x.dtype), *(retract(model, q, y, 0 * y)[0] for y in steps)])
            r = ts.variational.discrete_euler_lagrange(model, integrator, moved, u, forces=forces, t=0.3)
            pairs = [covectors(y, z) for y, z in zip(steps[:-1], r.residual, strict=True)]
            return np.concatenate([sum((b for _, b in pairs), -r.p0), *(a for a, _ in pairs)])

        J = newton_system(model, integrator, points, np.zeros(s * nv), u, forces)[0]
        expected = complex_step(equations, xi)
        np.testing.assert_allclose(J, expected, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("n", [2, 14])
def test_singular_pivot_of_a_regular_system(n):
    """The last pendulum upright and at rest, h = 2 sqrt(l/g): its own pivot is 0, and the step is taken all the same.

    Two pendulums are solved densely in any case, and 14 of them over the tree where that can be.
    """
    model, nv = pendulum(n), n
    integrator = ts.Variational(2 * np.sqrt(1 / 9.81))
    q = np.zeros(n)
    q[-1] = np.pi
    J, x, y = newton_system(model, integrator, np.stack([q, q]), np.ones(nv))
    assert np.linalg.cond(J) < 1e4
    assert np.isnan(x).all() and np.isnan(y).all()
    u = np.zeros(nv)
    u[-1] = 1e-3
    d = ts.step_derivatives(model, integrator, q, p=np.zeros(nv), u=u)
    q1, p1, dq1, dp1 = implicit_step(model, integrator, q, np.zeros(nv), u, (), 0.0)
    np.testing.assert_allclose(d.q1, q1, atol=1e-12)
    np.testing.assert_allclose(d.p1, p1, atol=1e-11)
    run = ts.simulate(model, q, steps=1, integrator=integrator, controls=u)
    np.testing.assert_allclose(run.q[-1], q1, atol=1e-12)
    # Derivatives where the pivot is 0, of the step that stays at rest.
    d = ts.step_derivatives(model, integrator, q, p=np.zeros(nv), u=0 * u)
    q1, p1, dq1, dp1 = implicit_step(model, integrator, q, np.zeros(nv), 0 * u, (), 0.0)
    for value, expected in zip(step_matrices(d), (dq1, dp1), strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-10 * np.abs(expected).max())
    run = ts.simulate(model, q, steps=1, integrator=integrator, controls=0 * u)
    w = np.random.default_rng(0).standard_normal(nv)
    g = ts.adjoint(run, dloss_dq=w)
    np.testing.assert_allclose(g.q0, w @ d.dq1_dq, atol=1e-10 * np.abs(d.dq1_dq).max())
    np.testing.assert_allclose(g.controls[0], w @ d.dq1_du, atol=1e-10 * np.abs(d.dq1_du).max())


# ---- by velocities


@pytest.mark.parametrize(("rule", "order"), RULES)
@pytest.mark.parametrize("with_forces", [False, True])
def test_step_derivatives_by_velocities(rule, order, with_forces):
    """p0 = M(q0) v0 and v1 = M(q1)^-1 p1 around the step by momenta."""
    model = chain()
    q, p, v = state(model, 8)
    u = np.random.default_rng(8).standard_normal(model.nv)
    given = {"forces": mixed_forces(model), "t": 0.3} if with_forces else {}
    integrator = ts.Variational(0.02, order, rule)
    d = ts.step_derivatives(model, integrator, q, p=p, u=u, **given)
    by_v = ts.step_derivatives(model, integrator, q, v, u, **given)
    assert type(by_v) is ts.simulation.StepDerivatives
    np.testing.assert_allclose(model.minus(by_v.q1, d.q1), 0, atol=1e-12)
    np.testing.assert_allclose(ts.generalized_momenta(model, by_v.q1, by_v.v1), d.p1, atol=1e-11 * np.abs(d.p1).max())
    zero = np.zeros(model.nv)
    M0, M1 = ts.mass_matrix(model, q), ts.mass_matrix(model, by_v.q1)
    turned0 = complex_step(lambda x: ts.generalized_momenta(model, model.plus(q, x), v), zero)
    turned1 = complex_step(lambda x: ts.generalized_momenta(model, model.plus(by_v.q1, x), by_v.v1), zero)
    for name, q_part, p_part in (
        ("q", d.dq1_dq + d.dq1_dp @ turned0, d.dp1_dq + d.dp1_dp @ turned0),
        ("v", d.dq1_dp @ M0, d.dp1_dp @ M0),
        ("u", d.dq1_du, d.dp1_du),
    ):
        v_part = np.linalg.solve(M1, p_part - turned1 @ q_part)
        for value, expected in ((f"dq1_d{name}", q_part), (f"dv1_d{name}", v_part)):
            # Products with M and M^-1: its condition number, 1e3 or so, times rounding and Newton's tolerance.
            np.testing.assert_allclose(getattr(by_v, value), expected, atol=1e-10 * np.abs(expected).max())


def test_generalized_momenta_of_every_joint():
    for case in models(12):
        model = case.values[0]
        rng = np.random.default_rng(0)
        q, v = np.stack([model.random(rng) for _ in range(5)]), rng.standard_normal((5, model.nv))
        p = ts.generalized_momenta(model, q, v)
        expected = np.einsum("...ij,...j->...i", ts.mass_matrix(model, q), v)
        np.testing.assert_allclose(p, expected, atol=1e-13 * np.abs(expected).max())
        np.testing.assert_allclose(0.5 * (p * v).sum(axis=-1), ts.kinetic_energy(model, q, v), rtol=1e-12)
        # dT/dv, and every state alone as in the batch
        by_v = complex_step(lambda x, model=model, q=q: ts.kinetic_energy(model, q[0], x), v[0])
        np.testing.assert_allclose(p[0], by_v, atol=1e-12 * np.abs(by_v).max())
        np.testing.assert_allclose(ts.generalized_momenta(model, q[3], v[3]), p[3], atol=1e-13 * np.abs(p).max())
        out = np.empty_like(p)
        assert ts.generalized_momenta(model, q, v, out=out) is out
        np.testing.assert_array_equal(out, p)


# ---- simulation


def test_momenta_of_a_trajectory():
    model, q, v = ordered_tree()
    p = ts.generalized_momenta(model, q, v)
    a = ts.simulate(model, q, v, steps=5, integrator=ts.Variational(0.01, 4))
    b = ts.simulate(model, q, p0=p, steps=5, integrator=ts.Variational(0.01, 4))
    np.testing.assert_allclose(a.p[0], p, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(a.q, b.q, atol=1e-12)
    np.testing.assert_allclose(a.p, b.p, atol=1e-11)
    # Step after step in momenta.
    x, y = q, p
    for k in range(5):
        d = ts.step_derivatives(model, ts.Variational(0.01, 4), x, p=y)
        x, y = d.q1, d.p1
        np.testing.assert_allclose(model.minus(a.q[k + 1], x), 0, atol=1e-12)
        np.testing.assert_allclose(a.p[k + 1], y, atol=1e-11)
    # p0 is for all integrators, and for batches of models.
    other = ts.simulate(model, q, p0=p, steps=1, integrator=ts.BDF1(0.01))
    np.testing.assert_allclose(other.v[0], v, atol=1e-12)
    heavy = model.with_gravity((0, 0, 1))
    both = ts.simulate([model, heavy], q, p0=np.stack([p, 2 * p]), steps=2, integrator=ts.Variational(0.01))
    np.testing.assert_allclose(both.v[:, 0], [v, 2 * v], atol=1e-12)
    assert both.p.shape == (2, 3, model.nv)


def test_consecutive_steps_satisfy_the_discrete_equations():
    """Of three rows: p1 of the first two is p0 of the last two; with forces, controls and time."""
    model, q, v = ordered_tree()
    forces, h = mixed_forces(model), 0.01
    u = np.random.default_rng(0).standard_normal((8, model.nv))
    for rule in ("gauss", "lobatto"):
        integrator = ts.Variational(h, rule=rule)
        run = ts.simulate(model, q, v, steps=8, integrator=integrator, forces=forces, controls=u, t0=0.2)
        assert not run.switches
        pairs = np.stack([run.q[:-1], run.q[1:]], axis=1)
        r = [
            ts.variational.discrete_euler_lagrange(model, integrator, pairs[k], u[k], forces=forces, t=run.t[k])
            for k in range(8)
        ]
        for k in range(7):
            # Newton's tolerance, and rounding of q over h: M / h times 1e-15.
            np.testing.assert_allclose(r[k].p1, r[k + 1].p0, atol=1e-11 * np.abs(run.p).max())
            np.testing.assert_allclose(r[k].p1, run.p[k + 1], atol=1e-11 * np.abs(run.p).max())


def test_forces_that_do_no_harm_to_exactness():
    """A constant force, and one that is linear in time, on a free mass: parabolas, and cubics of order 4, are exact."""
    builder = ts.ModelBuilder(gravity=(0, 0, -10))
    builder.add_body("ball", "world", ts.Translational(), inertia=ts.Inertia.sphere(mass=2.0, radius=0.3))
    model = builder.build()
    push = ts.PointForce("ball", (0, 0, 0), (4.0, 0.0, 0.0))
    run = ts.simulate(
        model, np.zeros(3), [0, 0, 3.0], steps=20, integrator=ts.Variational(0.1), forces=[push], controls=[0, 2.0, 0]
    )
    t = run.t
    np.testing.assert_allclose(run.q, np.stack([t**2, t**2 / 2, 3 * t - 5 * t**2], axis=-1), atol=1e-12)
    np.testing.assert_allclose(run.p, 2 * np.stack([2 * t, t, 3 - 10 * t], axis=-1), atol=1e-12)
    for rule in ("gauss", "lobatto"):
        ramp = ts.simulate(
            model, np.zeros(3), steps=20, integrator=ts.Variational(0.1, 4, rule), controls=lambda t: [6.0 * t, 0, 0]
        )
        np.testing.assert_allclose(ramp.q[:, 0], t**3 / 2, atol=1e-12)


@pytest.mark.parametrize(("rule", "order"), RULES)
def test_damped_oscillator(rule, order):
    """m q'' + c q' + k q = 0 loses energy as its exact solution does."""
    builder = ts.ModelBuilder(gravity=(0, 0, 0))
    builder.add_body("mass", "world", ts.Prismatic((1, 0, 0)), inertia=ts.Inertia.sphere(mass=2.0, radius=0.3))
    model, k, c = builder.build(), 18.0, 0.8
    rate, turn = c / 4, np.sqrt(k / 2 - (c / 4) ** 2)
    errors = []
    for h in (0.1, 0.05):
        run = ts.simulate(
            model,
            [1.0],
            T=4.0,
            integrator=ts.Variational(h, order, rule),
            forces=[ts.JointSpring("mass", k, (0.0,), c)],
        )
        exact = np.exp(-rate * run.t) * (np.cos(turn * run.t) + rate / turn * np.sin(turn * run.t))
        errors.append(np.abs(run.q[:, 0] - exact).max())
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.1)
    assert run.energies.total[-1] == pytest.approx(run.energies.total[0] * np.exp(-2 * rate * 4.0), rel=0.15)


@pytest.mark.parametrize("order", [2, 4])
def test_work_is_the_change_of_energy(order):
    """Of wrenches, controls and dampers, to the order of the method."""
    model, q, v = ordered_tree()
    acting = [
        ts.BodyWrench("b2", (0.5, 0.2, -0.3, 1.0, 2.0, -1.0), frame="world"),
        ts.JointDamping(None, 0.5),
        ts.BodyDamping("b1", np.full(6, 0.3)),
    ]

    def torque(t):
        return np.cos(3 * t + np.arange(model.nv))

    errors = []
    for h in (0.02, 0.01):
        run = ts.simulate(model, q, v, T=0.48, integrator=ts.Variational(h, order), forces=acting, controls=torque)
        assert not run.switches
        tau = ts.generalized_forces(model, acting, run.q, run.v) + np.stack([torque(t) for t in run.t])
        power = (tau * run.v).sum(axis=-1)
        work = h / 3 * (power[0] + power[-1] + 4 * power[1:-1:2].sum() + 2 * power[2:-1:2].sum())  # Simpson
        energy = run.energies.kinetic + run.energies.potential
        errors.append(abs(energy[-1] - energy[0] - work))
    assert abs(work) > 0.1
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.4)


@pytest.mark.parametrize("kind", [ts.SphericalEuler("XYZ"), ts.SphericalExp()])
@pytest.mark.parametrize(("rule", "order"), [("gauss", 2), ("gauss", 4), ("lobatto", 4)])
def test_charts_switch_and_the_motion_does_not(kind, rule, order):
    """A top in coordinates that change, and with a quaternion: the same to the order of the method."""
    rng = np.random.default_rng(5)
    inertia, pose = random_inertia(rng), random_pose(rng)
    joints = (kind, ts.Spherical())
    tops = []
    for joint in joints:
        builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
        builder.add_body("top", "world", joint, pose, inertia)
        tops.append(builder.build())
    q0, v0 = np.array([0.2, 0.9, -0.4]), np.array([3.0, 5.0, -2.0])
    omega = kind.S(q0)[:3] @ v0
    start = ts.SE3.from_matrix(kind.T(q0)).quaternion
    exact = ts.simulate(tops[1], start, omega, T=1.0, integrator=ts.Variational(0.005, 8))
    errors = []
    for h in (0.01, 0.005):
        run = ts.simulate(tops[0], q0, v0, T=1.0, integrator=ts.Variational(h, order, rule))
        assert run.switches
        end = run.segments()[-1][3]
        errors.append(np.abs(ts.body_poses(end, run.q[-1]) - ts.body_poses(tops[1], exact.q[-1])).max())
        # Momenta are those of the row's own chart.
        np.testing.assert_allclose(0.5 * (run.p * run.v).sum(axis=-1), run.energies.kinetic, rtol=1e-12)
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.5)


@pytest.mark.parametrize(("rule", "order"), [("gauss", 2), ("lobatto", 4)])
def test_batches_and_threads(rule, order):
    model, q, v = ordered_tree()
    rng = np.random.default_rng(0)
    qs = model.plus(q, 0.2 * rng.standard_normal((2, 3, model.nv)))
    given = {"steps": 6, "integrator": ts.Variational(0.02, order, rule), "forces": mixed_forces(model)}

    def controls(t):
        return np.sin(30 * t + np.arange(model.nv))

    batch = ts.simulate(model, qs, v, controls=controls, threads=2, **given)
    points = order // 2 + (rule == "lobatto")
    assert batch.controls.shape == ((2, 3, 6, points, model.nv) if points > 1 else (2, 3, 6, model.nv))
    w = rng.standard_normal((2, 3, 7, model.nv))
    g = ts.adjoint(batch, dloss_dq=w, dloss_dv=2 * w, threads=2)
    for i in range(2):
        for j in range(3):
            one = ts.simulate(model, qs[i, j], v, controls=controls, **given)
            for name in ("q", "v", "a", "controls"):
                np.testing.assert_array_equal(getattr(batch, name)[i, j], getattr(one, name))
            h = ts.adjoint(one, dloss_dq=w[i, j], dloss_dv=2 * w[i, j])
            for name in ("q0", "v0", "controls", "inertia", "placement", "gravity"):
                np.testing.assert_array_equal(getattr(g, name)[i, j], getattr(h, name))


# ---- gradients of simulations


@pytest.mark.parametrize(("rule", "order"), [("gauss", 2), ("gauss", 4), ("lobatto", 2), ("lobatto", 6)])
def test_adjoint_of_a_hundred_steps(rule, order):
    """By the initial state, controls of every quadrature point, inertias, placements, gravity and forces."""
    model, q, v = ordered_tree()
    nv, steps, rng = model.nv, 100, np.random.default_rng(1)
    forces = [
        ts.JointSpring(None, np.full(nv, 3.0), model.neutral, 0.3),
        ts.PointSpring("b2", (0.1, 0, 0), "b3", (0, 0, 0.4), 5.0, 0.5),
        ts.BodyWrench("b1", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
    ]
    # Of all rows; small enough for gradients of order 1.
    wq, wv = 0.1 * rng.standard_normal((2, steps + 1, nv))

    def run(q=q, v=v, model=model, forces=forces, push=0.0):
        return ts.simulate(
            model, q, v, steps=steps, integrator=ts.Variational(0.01, order, rule, tolerance=1e-13), forces=forces,
            controls=lambda t: np.sin(20 * t + np.arange(nv)) + push * np.cos(15 * t) * np.arange(nv),
        )  # fmt: skip

    base = run()
    assert not base.switches
    points = order // 2 + (rule == "lobatto")
    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)
    assert g.controls.shape == ((steps, points, nv) if points > 1 else (steps, nv))

    def loss(other):
        return (wq * model.minus(other.q, base.q)).sum() + (wv * other.v).sum()

    def check(value, f, size=1e-3):
        """Along one direction, by differences of fourth order: 1e-12 of rounding over 1e-3, of a loss of order 10."""
        near = (loss(f(size)) - loss(f(-size))) / (2 * size)
        far = (loss(f(2 * size)) - loss(f(-2 * size))) / (4 * size)
        assert value == pytest.approx((4 * near - far) / 3, rel=1e-7, abs=1e-7)

    x = rng.standard_normal(nv)
    check(g.q0 @ x, lambda s: run(q=model.plus(q, s * x)))
    check(g.v0 @ x, lambda s: run(v=v + s * x))
    h = 0.01
    times = base.t[:-1, None] + h * np.array(base.integrator._fractions)
    shape = np.cos(15 * times)[..., None] * np.arange(nv)
    check((g.controls.reshape(shape.shape) * shape).sum(), lambda s: run(push=s))
    y = rng.standard_normal(3)
    check(g.gravity @ y, lambda s: run(model=model.with_gravity(np.array(model.gravity) + s * y)))
    bodies = model.bodies
    z, masses = 0.3 * rng.standard_normal((4, 6)), 0.1 * rng.standard_normal((4, 10))

    def placed(s):
        moved = (replace(b, placement=b.placement @ ts.SE3.exp(s * e)) for b, e in zip(bodies, z, strict=True))
        return run(model=replace(model, bodies=tuple(moved)))

    def weighed(s):
        changed = (
            replace(b, inertia=ts.Inertia.from_parameters(b.inertia.parameters + s * e))
            for b, e in zip(bodies, masses, strict=True)
        )
        return run(model=replace(model, bodies=tuple(changed)))

    check((g.placement * z).sum(), placed)
    check((g.inertia * masses).sum(), weighed)
    for k, name in ((0, "stiffness"), (0, "damping"), (0, "rest"), (1, "stiffness"), (1, "point1"), (2, "wrench")):
        at = forces[k]._for_model(model).parameters[name]
        e = rng.standard_normal(np.shape(at))

        def changed(s, k=k, name=name, at=at, e=e):
            return run(forces=[*forces[:k], forces[k].with_parameters({name: at + s * e}), *forces[k + 1 :]])

        check((g.forces[k][name] * e).sum(), changed)


@pytest.mark.parametrize("every", [5, 20])
def test_adjoint_from_some_of_the_rows(every):
    """Windows meet in (q, v), the steps within them in (q, p): the same but for the rounding of M and M^-1."""
    model, q, v = ordered_tree()
    given = {"steps": 20, "integrator": ts.Variational(0.01, 4), "forces": mixed_forces(model)}
    full, some = ts.simulate(model, q, v, **given), ts.simulate(model, q, v, every=every, **given)
    np.testing.assert_array_equal(some.p, full.p[::every])
    w = np.zeros((21, model.nv))
    w[::every] = np.random.default_rng(0).standard_normal((20 // every + 1, model.nv))
    a, b = ts.adjoint(some, dloss_dq=w[::every], dloss_dv=w[::every]), ts.adjoint(full, dloss_dq=w, dloss_dv=w)
    for name in ("q0", "v0", "controls", "inertia", "placement", "gravity"):
        x, y = getattr(a, name), getattr(b, name)
        np.testing.assert_allclose(x, y, atol=1e-12 * np.abs(y).max())


class Drag(ts.CustomForce):
    """Written in Python."""

    def value(self, q, v, t, p):
        return -0.3 * v * (1 + v**2)

    def derivatives(self, q, v, t, p):
        return np.zeros((v.size, v.size)), np.diag(-0.3 * (1 + 3 * v**2))


def test_a_force_of_the_users_own():
    model, q, v = ordered_tree()
    integrator = ts.Variational(0.02, 4, tolerance=1e-13)
    p = ts.generalized_momenta(model, q, v)
    check_step(model, integrator, 4, [Drag(), ts.JointSpring("b1", 2.0, (0.1,))])
    run = ts.simulate(model, q, v, steps=10, integrator=integrator, forces=[Drag()])
    assert run.energies.total[-1] < run.energies.total[0]
    x = np.random.default_rng(0).standard_normal(model.nv)
    g = ts.adjoint(run, dloss_dv=x).v0 @ x

    def at(s):
        return ts.simulate(model, q, v + s * x, steps=10, integrator=integrator, forces=[Drag()]).v[-1] @ x

    # Fourth order of 1e-3, and rounding over it.
    expected = (8 * (at(1e-3) - at(-1e-3)) - (at(2e-3) - at(-2e-3))) / 12e-3
    assert g == pytest.approx(expected, rel=1e-8)
    with pytest.raises(TypeError, match=r"second derivatives of forces, which force 1, a CustomForce, lacks; take"):
        ts.variational.step_hessian(
            model, integrator, q, p, contract=(x, x), forces=[ts.JointDamping(None, 0.1), Drag()]
        )


# ---- steps that fail, and bad input


def test_convergence_error_carries_the_trajectory():
    model, q, v = ordered_tree()
    integrator = ts.Variational(0.01, 4)
    good = ts.simulate(model, q, v, steps=3, integrator=integrator)

    def torque(t):  # finite, and far too much from the fourth step on
        return np.full(model.nv, 1e9 if t > 0.03 else 0.0)

    message = r"Newton's method of Variational stopped at t = 0.03 within 50 iterations: correction of v .* > .*; try a"
    with pytest.raises(ts.ConvergenceError, match=message) as caught:
        ts.simulate(model, q, v, steps=9, integrator=integrator, controls=torque)
    error = caught.value
    assert error.step == 3 and error.t == pytest.approx(0.03) and error.index is None
    np.testing.assert_array_equal(error.trajectory.q, good.q)
    np.testing.assert_array_equal(error.trajectory.p, good.p)
    u = np.zeros((3, 4, model.nv))
    u[1, 2] = 1e12
    with pytest.raises(ts.ConvergenceError, match="in trajectory 1 of the batch") as caught:
        ts.simulate(model, q, v, steps=4, integrator=integrator, controls=u)
    assert caught.value.index == 1 and caught.value.step == 2
    assert np.isfinite(caught.value.trajectory.q[1, :3]).all() and np.isnan(caught.value.trajectory.q[1, 3:]).all()


def test_steps_that_cannot_be_taken():
    model = chain()
    q, p, v = state(model, 0)
    integrator, bad = ts.Variational(0.01), np.full(model.nv, np.nan)
    message = "Newton's method of Variational stopped in the step from the given state within 50 iterations"
    with pytest.raises(ValueError, match=r"p is not finite: p\[0\] is nan"):
        ts.step_derivatives(model, integrator, q, p=bad)
    with pytest.raises(ValueError, match=r"v is not finite: v\[0\] is nan"):
        ts.step_derivatives(model, integrator, q, bad)
    with pytest.raises(ValueError, match=r"u is not finite: u\[0\] is"):
        ts.variational.step_hessian(model, integrator, q, p, bad, contract=(v, v))
    with pytest.raises(ts.ConvergenceError, match=message):
        ts.step_derivatives(model, integrator, q, p=1e8 * p)
    with pytest.raises(ValueError, match="q has a quaternion of length 0 at joint 'b0'"):
        ts.step_derivatives(model, integrator, np.zeros_like(q), p=p)
    builder = ts.ModelBuilder()
    builder.add_body("a", "world", ts.Revolute(), inertia=ts.Inertia.zero())
    massless = builder.build()
    with pytest.raises(ts.ConvergenceError, match="the mass matrix is singular"):
        ts.simulate(massless, [1.0], steps=1, integrator=integrator)
    with pytest.raises(ts.ConvergenceError, match="the mass matrix is singular"):
        ts.step_derivatives(massless, integrator, [1.0], p=[0.0])


def test_bad_numbers_stay_in_their_state():
    model, integrator = chain(), ts.Variational(0.01)
    q, _, v = state(model, 0)
    points = np.stack([control_points(model, integrator, q, v, k) for k in range(4)])
    expected = ts.variational.discrete_euler_lagrange(model, integrator, points)
    points[1, 0, 0], points[2, 1] = np.nan, np.nan
    r = ts.variational.discrete_euler_lagrange(model, integrator, points)
    for x, y in zip(r, expected, strict=True):
        np.testing.assert_array_equal(x[[0, 3]], y[[0, 3]])
    assert np.isnan(r.p0[1]).any() and np.isnan(r.p0[2]).any()


def test_nothing_to_move():
    builder = ts.ModelBuilder()
    builder.add_body("a", "world", ts.Fixed(), inertia=ts.Inertia.sphere(mass=1.0, radius=0.1))
    still, integrator = builder.build(), ts.Variational(0.1, 4)
    assert ts.simulate(still, np.zeros(0), steps=3, integrator=integrator).p.shape == (4, 0)
    assert ts.step_derivatives(still, integrator, [], p=[]).dq1_du.shape == (0, 0)
    assert ts.variational.step_hessian(still, integrator, [], [], contract=([], [])).dqdq.shape == (0, 0)
    assert ts.variational.discrete_euler_lagrange(still, integrator, np.zeros((3, 0))).residual.shape == (1, 0)
    model = chain()
    none = np.zeros((0, model.nq))
    assert ts.step_derivatives(model, integrator, none, p=np.zeros(model.nv)).q1.shape == (0, model.nq)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 3}, r"order of Variational is 3, expected an even integer: 2, 4, 6"),
        ({"order": 0}, r"order of Variational is 0, expected an even integer"),
        ({"order": 2.0}, r"order of Variational is 2.0, expected an even integer"),
        ({"order": True}, r"order of Variational is True, expected an even integer"),
        ({"order": 34}, r"order of Variational is 34, expected at most 32"),
        ({"rule": "simpson"}, r"rule of Variational is 'simpson', expected 'gauss', 'lobatto', 'trapezoid' or 'midp"),
        ({"rule": None}, r"rule of Variational is None, expected"),
        ({"order": 4, "rule": "midpoint"}, r"the midpoint rule has order 2, got order 4; rule='gauss' has any order"),
        ({"order": 4, "rule": "trapezoid"}, r"trapezoid rule has order 2, got order 4; rule='lobatto' has any order"),
        ({"h": 0.0}, r"h of Variational is 0.0, expected a positive number"),
        ({"tolerance": np.nan}, r"tolerance of Variational is nan, expected a positive number"),
        ({"iterations": 0}, r"iterations of Variational is 0, expected an integer of at least 1"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        ts.Variational(**{"h": 0.01, **options})


MODEL = chain()


def test_actuation_is_a_matrix_before_the_torques():
    q, p, _ = state(MODEL, 3)
    B = np.random.default_rng(4).standard_normal((MODEL.nv, 2))
    integrator, u = ts.Variational(0.01, 4), np.array([0.3, -0.2])
    d = ts.step_derivatives(MODEL, integrator, q, p=p, u=u, actuation=B)
    full = ts.step_derivatives(MODEL, integrator, q, p=p, u=B @ u)
    assert type(d) is ts.simulation.MomentumStepDerivatives
    np.testing.assert_array_equal(d.p1, full.p1)
    np.testing.assert_allclose(d.dq1_du, full.dq1_du @ B, rtol=1e-12)
    np.testing.assert_allclose(d.dp1_du, full.dp1_du @ B, rtol=1e-12)


GOOD = {"model": MODEL, "integrator": ts.Variational(0.01), "q": state(MODEL, 0)[0], "p": np.zeros(MODEL.nv)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"integrator": ts.BDF1(0.01)}, TypeError, r"is for Variational, .* to BDF1|Variational\(h, order\), got BDF1"),
        ({"integrator": ts.Variational}, TypeError, r"integrator must .* got <class"),
        ({"integrator": 0.01}, TypeError, r"integrator must .* got 0.01"),
        ({"model": "arm"}, TypeError, "model must be a torsor.Model, got str"),
        ({"q": np.zeros(3)}, ValueError, r"q has shape \(3,\), expected \(..., 16\): model.nq is 16"),
        ({"p": np.zeros(3)}, ValueError, r"p has shape \(3,\), expected \(..., 14\): model.nv is 14"),
        ({"p": "fast"}, TypeError, r"p has dtype .*, expected numbers, got str"),
        ({"p": 1j * np.zeros(14)}, TypeError, r"p is complex, expected real numbers"),
        ({"u": np.zeros((2, 3))}, ValueError, r"u has shape \(2, 3\), expected \(..., 14\)"),
        ({"q": np.zeros((2, 16)), "p": np.zeros((3, 14))}, ValueError, "batch shapes do not fit together"),
        ({"forces": ts.JointSpring(None, 1.0)}, TypeError, "forces must be a sequence of forces, got JointSpring"),
        ({"forces": [3]}, TypeError, "force 0 must be a Force, got 3"),
        ({"forces": [ts.BodyDamping("b9", 1.0)]}, KeyError, "no body named 'b9'"),
        ({"threads": -1}, ValueError, "threads is -1, expected an integer"),
    ],
)
def test_bad_input_is_told(change, error, message):
    with pytest.raises(error, match=message):
        ts.step_derivatives(**{**GOOD, **change})
    weights = (np.ones(14), np.ones(14))
    with pytest.raises(error, match=message):
        ts.variational.step_hessian(**{**GOOD, **change}, contract=weights)


def test_other_bad_input_is_told():
    model, integrator, q, p = GOOD.values()
    for contract in (None, 3, (p,), (p, p, p)):
        with pytest.raises(TypeError, match=r"contract must be \(wq, wp\), weights on q1 and on p1, got"):
            ts.variational.step_hessian(model, integrator, q, p, contract=contract)
    with pytest.raises(ValueError, match=r"weight of p1 has shape \(3,\), expected \(..., 14\)"):
        ts.variational.step_hessian(model, integrator, q, p, contract=(p, np.zeros(3)))
    with pytest.raises(TypeError, match=r"weight of q1 is missing, expected an array"):
        ts.variational.step_hessian(model, integrator, q, p, contract=(None, p))
    with pytest.raises(TypeError, match=r"integrator must be Variational\(h, order\), got BDF2"):
        ts.variational.discrete_euler_lagrange(model, ts.BDF2(0.01), np.stack([q, q]))
    with pytest.raises(ValueError, match=r"q has shape \(16,\), expected \(..., 2, 16\)"):
        ts.variational.discrete_euler_lagrange(model, integrator, q)
    with pytest.raises(ValueError, match=r"q has shape \(2, 16\), expected \(..., 3, 16\)"):
        ts.variational.discrete_euler_lagrange(model, ts.Variational(0.01, 4), np.stack([q, q]))
    with pytest.raises(TypeError, match="previous is for BDF2, which has two steps; Variational has one"):
        ts.step_derivatives(model, integrator, q, p, previous=(q, p))
    for given, count in (({"v": p, "p": p}, "both"), ({}, "neither")):
        with pytest.raises(TypeError, match=f"either v, the velocities, or p, the momenta: got {count}"):
            ts.step_derivatives(model, integrator, q, **given)
    for t, message in ((None, "dtype object"), ("now", "dtype <U3"), (1j, "t is complex")):
        for given in ({"v": p}, {"p": p}):
            with pytest.raises(TypeError, match=message):
                ts.step_derivatives(model, integrator, q, **given, t=t)
        with pytest.raises(TypeError, match=message):
            ts.variational.discrete_euler_lagrange(model, integrator, np.stack([q, q]), t=t)
        with pytest.raises(TypeError, match=message):
            ts.step_derivatives(model, ts.BDF1(0.01), q, p, t=t)
    with pytest.raises(ValueError, match=r"h of Variational is 10+, expected a positive number"):
        ts.Variational(10**400)
    given = {"steps": 1, "integrator": integrator}
    with pytest.raises(TypeError, match="either v0, the velocities, or p0, the momenta: got both"):
        ts.simulate(model, q, p, p0=p, **given)
    with pytest.raises(ValueError, match=r"p0 has shape \(3,\), expected \(..., 14\): model.nv is 14"):
        ts.simulate(model, q, p0=np.zeros(3), **given)
    with pytest.raises(ValueError, match=r"p0 is not finite: p0\[0\] is nan"):
        ts.simulate(model, q, p0=np.full(14, np.nan), **given)
    with pytest.raises(ValueError, match=r"batch shapes do not fit together: q0 \(2, 16\), p0 \(3, 14\)"):
        ts.simulate(model, np.stack([q, q]), p0=np.zeros((3, 14)), **given)
    builder = ts.ModelBuilder()
    builder.add_body("a", "world", ts.Revolute(), inertia=ts.Inertia.zero())
    with pytest.raises(ts.SingularMassMatrixError, match="the mass matrix is singular at joint 'a'"):
        ts.simulate(builder.build(), [1.0], p0=[0.0], **given)


def rods(n):
    """A chain of n rods of unit mass, 0.1 long."""
    b = ts.ModelBuilder(gravity=(0, 0, -9.81))
    rod = ts.Inertia.cylinder(radius=0.01, length=0.1, mass=1.0, com=(0, 0, -0.05))
    for k in range(n):
        place = ts.SE3.translation(0, 0, -0.1 if k else 0.0)
        b.add_body(f"rod{k}", f"rod{k - 1}" if k else "world", ts.Revolute((0, 1, 0)), place, rod)
    return b.build()


def test_long_chains_go_on_where_rounding_is_above_the_tolerance():
    """Let go from the horizontal: corrections that rounding asks for grow to 1e-9, the default tolerance is 1e-12."""
    model, q = rods(100), np.zeros(100)
    q[0] = np.pi / 2
    run = ts.simulate(model, q, steps=2000, integrator=ts.Variational(1e-3))
    energy = run.energies
    # A step of 1 ms resolves it: the error of the energy is of second order, far below what falls.
    assert np.abs(energy.total - energy.total[0]).max() < 1e-3 * energy.kinetic.max()


def test_derivatives_by_velocities_keep_their_digits():
    """Against gradients of the same step in reverse, on a chain whose mass matrix has a condition of 1e6 and more."""
    model, rng, n = rods(40), np.random.default_rng(0), 40
    q, v = 0.1 * rng.standard_normal((2, n))
    integrator = ts.Variational(1e-3)
    d = ts.step_derivatives(model, integrator, q, v)
    run = ts.simulate(model, q, v, steps=1, integrator=integrator)
    for k in (0, 17, 39):
        g = ts.adjoint(run, dloss_dv=np.eye(n)[k])
        for ours, reverse in ((d.dv1_dq[k], g.q0), (d.dv1_dv[k], g.v0)):
            np.testing.assert_allclose(ours, reverse, atol=1e-8 * np.abs(reverse).max())
