"""Simulations with variational integrators: momenta, forces, charts, batches and gradients."""

from dataclasses import replace

import numpy as np
import pytest
from population import sweep
from variational_cases import (
    RULES,
    check_step,
    mixed_forces,
    ordered_tree,
)

import torsor as ts
from torsor.testing import random_inertia, random_pose

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


HUNDRED = sweep((pytest.param(*x) for x in (("gauss", 2), ("gauss", 4), ("lobatto", 2), ("lobatto", 6))), 4)


@pytest.mark.parametrize(("rule", "order"), HUNDRED)
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
