"""Newton's method of variational integrators: its matrix, its tolerance, and steps that cannot be taken."""

import numpy as np
import pytest
from compare import same_bits
from population import models, quaternions
from variational_cases import (
    RULES,
    chain,
    chart,
    control_points,
    implicit_step,
    mixed_forces,
    ordered_tree,
    pendulum,
    retract,
    rods,
    state,
    step_matrices,
)

import torsor as ts
from torsor import _core, spatial
from torsor.simulation.steps import variational_options
from torsor.testing import complex_step, random_inertia, random_pose

# ---- tolerance


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


# ---- Newton's method


def newton_system(model, integrator, points, right, u=None, forces=()):
    options, compiled = variational_options(model, integrator, forces)
    parameters = None if compiled is None else compiled.parameters
    return _core.variational_newton_system(model, points, u, np.array(0.3), parameters, right, options, None, 1)


@pytest.mark.parametrize(("rule", "order"), RULES)
@pytest.mark.parametrize("model", models(11))
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
@pytest.mark.parametrize("model", models(12))
def test_systems_in_lanes_are_those_of_single_states(model, rule, order):
    """To the last bit, with pivots of their own in each lane, and beside a state that is NaN."""
    integrator = ts.Variational(0.3, order, rule)
    rng = np.random.default_rng(4)
    count = 2 * _core.lanes + 1
    points = []
    for k in range(count):
        q, _, v = state(model, k)
        points.append(control_points(model, integrator, q, 10.0 ** rng.uniform(-1, 1) * v, k))
    points = np.stack(points)
    points[3] = np.nan
    right, u = rng.standard_normal((count, order // 2 * model.nv)), rng.standard_normal((count, model.nv))
    for forces in ((), [ts.JointSpring(None, 2.0, model.random(rng), 0.3)]):
        together = newton_system(model, integrator, points, right, u, forces)
        for k in range(count):
            alone = newton_system(model, integrator, points[k], right[k], u[k], forces)
            assert all(same_bits(x[k], y) for x, y in zip(together, alone, strict=True))


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


# ---- steps that fail


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


def test_long_chains_go_on_where_rounding_is_above_the_tolerance():
    """Let go from the horizontal: corrections that rounding asks for grow to 1e-9, the default tolerance is 1e-12."""
    model, q = rods(100), np.zeros(100)
    q[0] = np.pi / 2
    run = ts.simulate(model, q, steps=2000, integrator=ts.Variational(1e-3))
    energy = run.energies
    # A step of 1 ms resolves it: the error of the energy is of second order, far below what falls.
    assert np.abs(energy.total - energy.total[0]).max() < 1e-3 * energy.kinetic.max()
