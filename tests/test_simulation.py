"""Integrators and trajectories: order, energy, stiffness, charts, batches, files, errors."""

import copy
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from population import Own, sweep

import torsor as ts
from torsor.testing import random_inertia, random_pose

INTEGRATORS = (ts.SymplecticEuler, ts.LinearlyImplicitEuler, ts.BDF1, ts.BDF2, ts.SDIRK2, ts.Variational)
IMPLICIT = (ts.BDF1, ts.BDF2, ts.SDIRK2)


def tree(joints, seed=0, gravity=(0.5, 0.3, -9.81)):
    """A chain of bodies in general position."""
    rng = np.random.default_rng(seed)
    builder = ts.ModelBuilder(gravity=gravity)
    parent = "world"
    for k, joint in enumerate(joints):
        builder.add_body(f"b{k}", parent, joint, random_pose(rng), random_inertia(rng))
        parent = f"b{k}"
    model = builder.build()
    return model, model.random(rng), 0.5 * rng.standard_normal(model.nv)


def vectors():
    return tree([ts.Revolute((0, 1, 0)), ts.Prismatic((1, 0, 1)), ts.Universal()])


def quaternions():
    return tree([ts.Free(), ts.Revolute((0, 1, 0)), ts.Spherical()], seed=3)


def springs(model):
    return [ts.JointSpring(None, 5.0, model.neutral, 0.3), ts.BodyDamping("b1", np.full(6, 0.2))]


def distance(model, a, b):
    return np.abs(model.minus(a.q[-1], b.q[-1])).max() + np.abs(a.v[-1] - b.v[-1]).max()


@pytest.mark.parametrize("make", [vectors, quaternions])
@pytest.mark.parametrize("kind", INTEGRATORS)
def test_measured_order(kind, make):
    model, q, v = make()
    forces = springs(model)
    exact = ts.simulate(model, q, v, T=0.2, integrator=ts.Adaptive(0.2, rtol=1e-12, atol=1e-12), forces=forces)
    errors = []
    for h in (2e-3, 1e-3):
        run = ts.simulate(model, q, v, T=0.2, integrator=kind(h), forces=forces)
        errors.append(distance(model, run, exact))
    # The next term of the error is O(h) of the first: a few per cent here.
    assert np.log2(errors[0] / errors[1]) == pytest.approx(kind.order, abs=0.12)


@pytest.mark.parametrize("kind", INTEGRATORS)
def test_order_with_controls_of_time(kind):
    model, q, v = quaternions()

    def u(t):
        return np.sin(20 * t + np.arange(model.nv))

    exact = ts.simulate(model, q, v, T=0.2, integrator=ts.Adaptive(0.2, rtol=1e-12, atol=1e-12), controls=u)
    errors = [
        distance(model, ts.simulate(model, q, v, T=0.2, integrator=kind(h), controls=u), exact) for h in (2e-3, 1e-3)
    ]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(kind.order, abs=0.15)


def test_free_fall_is_exact():
    """A body with its centre of mass at its origin falls by h^2 g n (n + 1) / 2 under implicit Euler."""
    builder = ts.ModelBuilder(gravity=(0, 0, -10))
    builder.add_body("ball", "world", ts.Free(), inertia=ts.Inertia.sphere(mass=2.0, radius=0.3))
    model = builder.build()
    v0 = np.array([0.0, 0.0, 2.0, 0.0, 0.0, 0.0])
    run = ts.simulate(model, model.neutral, v0, steps=20, integrator=ts.BDF1(0.01))
    n = np.arange(21)
    np.testing.assert_allclose(run.q[:, 2], -10 * 1e-4 * n * (n + 1) / 2, atol=1e-13)
    np.testing.assert_allclose(run.q[:, 3:], [[0, 0, np.sin(x), np.cos(x)] for x in 0.01 * n], atol=1e-13)
    np.testing.assert_allclose(run.v[:, :3], np.broadcast_to(v0[:3], (21, 3)), atol=1e-12)


def test_energy_behaviour():
    model, q, v = vectors()
    start = ts.simulate(model, q, v, steps=0, integrator=ts.BDF1(1e-3)).energies.total[0]
    drift = {}
    for kind in INTEGRATORS:
        energy = ts.simulate(model, q, v, T=1.0, integrator=kind(2e-3)).energies
        np.testing.assert_allclose(energy.total, energy.kinetic + energy.potential, rtol=1e-14)
        drift[kind] = np.abs(energy.total - start).max()
        if kind is ts.BDF1:
            assert energy.total[-1] < start  # it damps
    assert drift[ts.BDF2] < 0.1 * drift[ts.BDF1] and drift[ts.SDIRK2] < 0.1 * drift[ts.BDF1]
    assert drift[ts.SymplecticEuler] < drift[ts.BDF1]


@pytest.mark.parametrize("kind", [*IMPLICIT, ts.LinearlyImplicitEuler])
def test_stiff_spring_stays_finite(kind):
    model, q, v = quaternions()
    anchor = ts.point_positions(model, q, "b2", (0.1, 0.2, 0.3)) + np.array([0.006, 0.0, 0.008])
    forces = [ts.PointSpring("world", anchor, "b2", (0.1, 0.2, 0.3), 1e6, 1e2), ts.JointSpring("b1", 1e6, q[7:8], 0.0)]
    run = ts.simulate(model, q, v, steps=100, integrator=kind(1e-2), forces=forces)
    assert np.isfinite(run.q).all() and np.isfinite(run.v).all()
    assert run.energies.total[-1] < run.energies.total[0]


def test_explicit_blow_up_is_an_error():
    model, q, v = vectors()
    forces = [ts.JointSpring("b1", 1e6, (5.0,), 0.0)]
    message = r"SymplecticEuler stopped at t = .*smaller h, or an implicit"
    with pytest.raises(ts.ConvergenceError, match=message) as caught:
        ts.simulate(model, q, v, steps=1000, integrator=ts.SymplecticEuler(1e-1), forces=forces)
    assert np.isfinite(caught.value.trajectory.q).all()
    assert caught.value.trajectory.steps == caught.value.step


# ---- Newton's method


def test_convergence_error_carries_the_trajectory():
    model, q, v = quaternions()
    good = ts.simulate(model, q, v, steps=3, integrator=ts.BDF1(1e-3))

    def u(t):  # finite, and far too much from the fourth step on
        return np.full(model.nv, 1e9 if t > 3.5e-3 else 0.0)

    message = r"BDF1 stopped at t = 0.003 within 5 .*h = 0.001 divided by 2"
    with pytest.raises(ts.ConvergenceError, match=message) as caught:
        ts.simulate(model, q, v, steps=9, integrator=ts.BDF1(1e-3, iterations=5, substeps=2), controls=u)
    error = caught.value
    assert error.step == 3 and error.t == pytest.approx(3e-3) and error.index is None
    np.testing.assert_array_equal(error.trajectory.q, good.q)
    np.testing.assert_array_equal(error.trajectory.v, good.v)
    assert len(error.trajectory.t) == 4


def test_convergence_error_in_a_batch_names_the_trajectory():
    model, q, v = vectors()
    u = np.zeros((3, 4, model.nv))
    u[1, 2] = 1e12
    integrator = ts.BDF1(1e-2, iterations=5, substeps=1)
    message = r"within 5 iterations with the step h = 0.01: correction of v"
    with pytest.raises(ts.ConvergenceError, match=f"in trajectory 1 of the batch {message}") as caught:
        ts.simulate(model, q, v, steps=4, integrator=integrator, controls=u)
    assert caught.value.index == 1
    run = caught.value.trajectory
    assert np.isfinite(run.q[1, : caught.value.step + 1]).all() and np.isnan(run.q[1, caught.value.step + 1 :]).all()


@pytest.mark.parametrize("kind", IMPLICIT)
def test_steps_are_divided_when_newton_fails(kind):
    model, q, v = quaternions()
    full = ts.simulate(model, q, 4 * v, steps=4, integrator=kind(0.03))
    hasty = ts.simulate(model, q, 4 * v, steps=4, integrator=kind(0.03, iterations=2, tolerance=1e-12))
    assert (full.substeps == 1).all()
    assert (hasty.substeps > 1).any()
    # Divided steps are more exact; all are within the error of the method.
    assert np.abs(model.minus(full.q, hasty.q)).max() < 0.1


@pytest.mark.parametrize("kind", IMPLICIT)
@pytest.mark.parametrize("links", [20, 50, 100])
def test_long_bent_chains_need_no_division(kind, links):
    """The mass matrix changes much with every correction there, and accelerations are hundreds of rad/s^2."""
    model = ts.models.chain(links)
    for seed in range(3):
        q = 0.3 * np.random.default_rng(seed).standard_normal(links)
        run = ts.simulate(model, q, T=0.05, integrator=kind(0.01, substeps=1))
        exact = ts.simulate(model, q, T=0.05, integrator=ts.SDIRK2(1e-3)).q[-1]
        # Five steps leave (1/5)^order of the way, and no other solution is so near.
        assert np.abs(run.q[-1] - exact).max() < 2 * 0.2**kind.order * np.abs(exact - q).max()


def stretched(name):
    """A spring of 1e6 N/m stretched by 1 m, at the last body of a model."""
    if name == "chain":
        model = ts.models.chain(3)
        q = np.array([0.3, 0.2, 0.1])
    else:
        builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
        box = ts.Inertia.box(mass=1.0, size=(0.1, 0.1, 1.0), com=(0, 0, -0.5))
        builder.add_body("box", "world", ts.Free() if name == "free" else ts.Revolute((0, 1, 0)), inertia=box)
        model = builder.build()
        q = model.neutral
    body, point = model.bodies[-1].name, (0.1, 0.2, 0.3)
    anchor = ts.point_positions(model, q, body, point) + np.array([0.6, 0.0, 0.8])
    return model, q, [ts.PointSpring("world", anchor, body, point, 1e6, 1e2)]


@pytest.mark.parametrize("kind", IMPLICIT)
@pytest.mark.parametrize("name", ["pendulum", "chain", "free"])
def test_stiff_springs_have_no_spurious_solutions(name, kind):
    """Steps of 1e-2 s on a spring whose period is less than that: the equations of a step have many solutions."""
    model, q, forces = stretched(name)
    run = ts.simulate(model, q, T=0.5, integrator=kind(1e-2), forces=forces)
    assert run.energies.total.max() <= run.energies.total[0] * (1 + 1e-9)
    if name == "pendulum":  # it comes to rest at the only place where it can
        small = ts.simulate(model, q, T=0.5, integrator=ts.BDF1(5e-5), forces=forces)
        np.testing.assert_allclose(run.q[-1], small.q[-1], atol=1e-3)
        np.testing.assert_allclose(run.v[-1], 0.0, atol=1e-2)
    elif name == "free":  # what is left of 5e5 J
        assert run.energies.total[-1] < 0.01 * run.energies.total[0]


def test_divided_bdf1_step_is_many_small_ones():
    model, q, v = vectors()
    hasty = ts.simulate(model, q, v, steps=1, integrator=ts.BDF1(0.1, iterations=2, tolerance=1e-8))
    n = int(hasty.substeps[0])
    assert n > 1
    small = ts.simulate(model, q, v, steps=n, integrator=ts.BDF1(0.1 / n))
    np.testing.assert_allclose(hasty.q[-1], small.q[-1], atol=1e-7)


# ---- charts


def test_charts_switch_and_the_motion_does_not():
    rng = np.random.default_rng(5)
    inertia, pose = random_inertia(rng), random_pose(rng)

    def with_joint(joint):
        builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
        builder.add_body("top", "world", joint, pose, inertia)
        return builder.build()

    rotation = ts.SE3.rotation((1, 2, 3), 0.5).R
    omega = np.array([3.0, 5.0, -2.0])
    quaternion = with_joint(ts.Spherical())
    reference = ts.simulate(
        quaternion, ts.SE3(rotation, np.zeros(3)).quaternion, omega, T=1.0, integrator=ts.Adaptive(0.01)
    )
    for joint in (ts.SphericalEuler("ZYX"), ts.SphericalEuler("ZXZ"), ts.SphericalExp()):
        model = with_joint(joint)
        q0 = np.array([0.1, 1.2, 0.3])
        if isinstance(joint, ts.SphericalEuler):
            q0 = joint.from_rotation(rotation)
        else:
            q0 = 0.5 * np.array([1, 2, 3]) / np.sqrt(14)
        v0 = np.linalg.solve(joint.S(q0)[:3], omega)
        errors = []
        for h in (2e-3, 1e-3):
            run = ts.simulate(model, q0, v0, T=1.0, integrator=ts.BDF2(h))
            assert run.switches
            end = run.segments()[-1][3]
            errors.append(np.abs(ts.body_poses(end, run.q[-1]) - ts.body_poses(quaternion, reference.q[-1])).max())
            # In every row energy and pose are those of the row's own chart.
            assert np.abs(np.diff(run.energies.total)).max() < 0.02
        assert errors[0] / errors[1] == pytest.approx(4, abs=0.8)
        if isinstance(joint, ts.SphericalEuler):
            charts = run.charts["top"]
            assert charts.shape == (1001,) and charts[0] == joint.chart and len(set(charts)) > 1
            det = [abs(ts.SphericalEuler(str(c)).det_S(x)) for c, x in zip(charts, run.q, strict=True)]
            assert min(det[1:]) > 0.45
        else:
            assert np.linalg.norm(run.q, axis=1).max() < np.pi + 0.1


ONE_STEP = (ts.SymplecticEuler, ts.LinearlyImplicitEuler, ts.BDF1, ts.SDIRK2, ts.Variational)


@pytest.mark.parametrize("kind", ONE_STEP, ids=lambda kind: kind.__name__)
def test_more_than_half_a_turn_in_the_first_step(kind):
    # A ball that spins about a fixed axis turns by h v in every step, from exponential coordinates of zero too.
    builder = ts.ModelBuilder(gravity=(0, 0, 0))
    builder.add_body("ball", "world", ts.SphericalExp(), inertia=ts.Inertia.sphere(radius=0.1, mass=1.0))
    model = builder.build()
    run = ts.simulate(model, np.zeros(3), (350.0, 0, 0), steps=3, integrator=kind(h=0.01))
    assert len(run.switches) == 2
    expected = [ts.SE3.rotation((1, 0, 0), 3.5 * k).R for k in range(4)]
    assert np.allclose(ts.body_poses(model, run.q)[:, 0, :3, :3], expected, rtol=0, atol=1e-12)
    assert ts.adjoint(run, dloss_dq=np.array([1.0, 0.0, 0.0])).v0[0] == pytest.approx(0.03, abs=1e-12)


@pytest.mark.parametrize("speed", [1e20, 1e100, 1e154])
@pytest.mark.parametrize("kind", [ts.SymplecticEuler, ts.LinearlyImplicitEuler], ids=lambda kind: kind.__name__)
def test_charts_of_a_motion_that_grows_beyond_all_bounds(kind, speed):
    builder = ts.ModelBuilder()
    builder.add_body("top", "world", ts.SphericalExp(), inertia=ts.Inertia.box((0.3, 0.2, 0.1), mass=1.0))
    with pytest.raises(ts.ConvergenceError, match="the motion diverges"):
        ts.simulate(builder.build(), (0.1, 0.2, 0.3), (speed, 0, 0), steps=50, integrator=kind(h=0.01))


def test_a_joint_with_forces_in_its_coordinates_keeps_its_chart():
    model, _, _ = tree([ts.SphericalEuler("XYZ")])
    q0, v0 = np.array([0.0, 0.9, 0.0]), np.array([0.0, 3.0, 0.0])
    free = ts.simulate(model, q0, v0, steps=10, integrator=ts.BDF1(0.01))
    assert free.switches
    kept = ts.simulate(
        model, q0, v0, steps=10, integrator=ts.BDF1(0.01), forces=[ts.JointSpring("b0", 1.0, (0.0, 0.0, 0.0))]
    )
    assert not kept.switches and (kept.charts["b0"] == "XYZ").all()


# ---- batches


@pytest.mark.parametrize("kind", INTEGRATORS)
def test_a_trajectory_is_the_same_alone_and_in_a_batch(kind):
    model, q, v = quaternions()
    rng = np.random.default_rng(0)
    qs = model.plus(q, 0.3 * rng.standard_normal((2, 3, model.nv)))
    u = rng.standard_normal((3, 5, model.nv))
    forces = springs(model)
    batch = ts.simulate(model, qs, v, steps=5, integrator=kind(0.01), forces=forces, controls=u, threads=2)
    assert batch.q.shape == (2, 3, 6, model.nq) and batch.controls.shape == (2, 3, 5, model.nv)
    for i in range(2):
        for j in range(3):
            one = ts.simulate(model, qs[i, j], v, steps=5, integrator=kind(0.01), forces=forces, controls=u[j])
            for name in ("q", "v", "a", "substeps"):
                np.testing.assert_array_equal(getattr(batch, name)[i, j], getattr(one, name))
            np.testing.assert_array_equal(batch.energies.total[i, j], one.energies.total)


def test_switches_in_a_batch():
    model, _, _ = tree([ts.SphericalEuler("XYZ"), ts.Composite(ts.Prismatic((1, 0, 0)), ts.SphericalExp())])
    rng = np.random.default_rng(1)
    qs, vs = 0.3 * rng.standard_normal((4, model.nq)), 5 * rng.standard_normal((4, model.nv))
    batch = ts.simulate(model, qs, vs, steps=40, integrator=ts.BDF2(0.01))
    assert {s.track for s in batch.switches} and len({s.row for s in batch.switches}) > 1
    for i in range(4):
        one = ts.simulate(model, qs[i], vs[i], steps=40, integrator=ts.BDF2(0.01))
        np.testing.assert_array_equal(batch.q[i], one.q)
        np.testing.assert_array_equal(batch.charts["b0"][i], one.charts["b0"])
        assert [s.row for s in batch.switches if s.track == i] == [s.row for s in one.switches]


def variants(model, count, seed=0):
    """Models of the same structure with other inertias, placements and gravity."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        bodies = [
            replace(b, inertia=random_inertia(rng), placement=b.placement @ ts.SE3.exp(0.2 * rng.standard_normal(6)))
            for b in model.bodies
        ]
        out.append(ts.Model("variant", rng.standard_normal(3), tuple(bodies)))
    return out


@pytest.mark.parametrize("kind", [*INTEGRATORS, ts.Variational, ts.Adaptive])
def test_batches_of_parameters(kind):
    """States (2, 1) with parameters (3,): each trajectory is to the last bit that of forces with these parameters."""
    model, q, v = quaternions()
    rng = np.random.default_rng(0)
    qs = model.plus(q, 0.1 * rng.standard_normal((2, 1, model.nv)))
    forces = [
        ts.JointSpring("b1", 3.0),
        ts.BodyDamping("b0", 0.1),
        ts.SpringDamper("b1", (0.1, 0, 0), "world", (0, 0, 1), 20.0, 1.0),
        ts.GroundContact("b0", [(0.3, 0.1, 0), (0, 0, 0.2)], 50.0),
    ]
    stiffness, points = np.array([1.0, 2.0, 0.0]), rng.standard_normal((3, 2, 3))
    values = [
        {"stiffness": stiffness, "damping": 0.3},
        None,
        {"rest_length": np.array([[0.5], [0.7]])},  # which the force has none of
        {"points": points, "normal": (0.1, 0.2, 1.0)},
    ]
    batch = ts.simulate(
        model, qs, v, steps=4, integrator=kind(0.01), forces=forces, parameters=values, controls=np.ones(model.nv),
        threads=2,
    )  # fmt: skip
    assert batch.q.shape == (2, 3, 5, model.nq)
    for i in range(2):
        for j in range(3):
            own = [
                forces[0].with_parameters({"stiffness": stiffness[j], "damping": 0.3}),
                forces[1],
                forces[2].with_parameters({"rest_length": [0.5, 0.7][i]}),
                forces[3].with_parameters({"points": points[j], "normal": (0.1, 0.2, 1.0)}),
            ]
            u = np.ones(model.nv)
            one = ts.simulate(model, qs[i, 0], v, steps=4, integrator=kind(0.01), forces=own, controls=u)
            for name in ("q", "v", "a", "substeps"):
                np.testing.assert_array_equal(getattr(batch, name)[i, j], getattr(one, name))
            for a, b in zip(batch.energies, one.energies, strict=True):
                np.testing.assert_array_equal(a[i, j], b)


@pytest.mark.parametrize("kind", [*INTEGRATORS, ts.Variational, ts.Adaptive])
def test_batches_of_models(kind):
    """Models (3,) with initial velocities (2, 1): each trajectory is to the last bit that of its model."""
    model, q, v = quaternions()
    models, vs = variants(model, 3), np.stack([v, 2 * v])[:, None]
    # Point springs are compiled for each model by itself, and so are limits, which are left to it.
    forces = [ts.PointSpring("b1", (0.1, 0, 0), "world", (0, 0, 1), 20.0, 1.0), ts.JointSpring(None, 1.0)]
    batch = ts.simulate(models, q, vs, steps=4, integrator=kind(0.01), forces=forces, threads=2)
    assert batch.q.shape == (2, 3, 5, model.nq) and batch.models == tuple(models) and batch.model == models[0]
    for i in range(2):
        for j in range(3):
            one = ts.simulate(models[j], q, vs[i, 0], steps=4, integrator=kind(0.01), forces=forces)
            for name in ("q", "v", "a"):
                np.testing.assert_array_equal(getattr(batch, name)[i, j], getattr(one, name))
            for a, b in zip(batch.energies, one.energies, strict=True):
                np.testing.assert_array_equal(a[i, j], b)


def switching_batch(**options):
    """Models, stiffnesses and velocities of their own, and charts that are switched at different steps."""
    model, _, _ = tree([ts.SphericalEuler("XYZ"), ts.Composite(ts.Prismatic((1, 0, 0)), ts.SphericalExp())])
    rng = np.random.default_rng(1)
    qs, vs = 0.3 * rng.standard_normal((4, model.nq)), 5 * rng.standard_normal((4, model.nv))
    forces = [ts.PointSpring("b1", (0.1, 0, 0), "world", (0, 0, 1), 2.0)]
    values = [{"stiffness": np.array([1.0, 5.0, 10.0, 20.0])}]
    models = variants(model, 4)
    given = {"steps": 40, "integrator": ts.BDF2(0.01), "forces": forces, "parameters": values, **options}
    return models, qs, vs, ts.simulate(models, qs, vs, **given)


def test_switches_in_a_batch_of_models_and_parameters():
    models, qs, vs, batch = switching_batch()
    assert len({s.track for s in batch.switches}) > 1 and len({s.row for s in batch.switches}) > 1
    for i in range(4):
        own = [ts.PointSpring("b1", (0.1, 0, 0), "world", (0, 0, 1), [1.0, 5.0, 10.0, 20.0][i])]
        one = ts.simulate(models[i], qs[i], vs[i], steps=40, integrator=ts.BDF2(0.01), forces=own)
        np.testing.assert_array_equal(batch.q[i], one.q)
        np.testing.assert_array_equal(batch.energies.total[i], one.energies.total)
        assert [s.row for s in batch.switches if s.track == i] == [s.row for s in one.switches]


@pytest.mark.parametrize("every", [2, 5, 8, 40])
def test_every_keeps_some_of_the_rows(every):
    *_, full = switching_batch()
    *_, some = switching_batch(every=every)
    assert some.steps == 40 and some.q.shape[1] == 40 // every + 1
    for name in ("q", "v", "a"):
        np.testing.assert_array_equal(getattr(some, name), getattr(full, name)[:, ::every])
    np.testing.assert_array_equal(some.t, full.t[::every])
    np.testing.assert_array_equal(some.substeps, full.substeps)
    np.testing.assert_array_equal(some.energies.total, full.energies.total[:, ::every])
    np.testing.assert_array_equal(some.charts["b0"], full.charts["b0"][:, ::every])
    assert [(s.track, s.row) for s in sorted(some.switches, key=lambda s: (s.row, s.track))] == [
        (s.track, s.row) for s in sorted(full.switches, key=lambda s: (s.row, s.track))
    ]


@pytest.mark.parametrize("kind", [*INTEGRATORS, ts.Variational])
def test_every_with_controls_of_time_and_a_callback(kind):
    model, q, v = quaternions()
    seen = []
    # Times of tables are those of the whole run, to the last bit.
    force = ts.JointTorque("b1", [[0.0], [10.0]], times=(1.0, 1.3))
    given = {"steps": 12, "integrator": kind(0.01), "t0": 1.0, "forces": [force]}
    given["controls"] = lambda t: np.sin(30 * t) * np.ones(model.nv)
    full = ts.simulate(model, q, v, **given)
    some = ts.simulate(model, q, v, every=4, callback=lambda row, t, q, v: seen.append((row, t, q.copy())), **given)
    for name in ("q", "v", "a"):
        np.testing.assert_array_equal(getattr(some, name), getattr(full, name)[::4])
    assert [s[0] for s in seen] == list(range(1, 13)) and [s[1] for s in seen] == full.t[1:].tolist()
    np.testing.assert_array_equal([s[2] for s in seen], full.q[1:])


def test_every_and_a_step_that_fails():
    model, q, v = vectors()
    u = np.zeros((8, model.nv))
    u[6] = 1e12
    integrator = ts.BDF1(1e-2, iterations=5, substeps=1)
    with pytest.raises(ts.ConvergenceError, match=r"at t = 0\.06") as caught:
        ts.simulate(model, q, v, steps=8, integrator=integrator, controls=u, every=4)
    run = caught.value.trajectory
    assert caught.value.step == 6 and run.t.tolist() == [0.0, 0.04] and run.steps == 4
    np.testing.assert_array_equal(run.q, ts.simulate(model, q, v, steps=4, integrator=integrator, every=4).q)


def test_constant_controls_and_no_steps():
    model, q, v = vectors()
    u = np.arange(model.nv, dtype=float)
    one = ts.simulate(model, q, v, steps=3, integrator=ts.BDF1(0.01), controls=u)
    rows = ts.simulate(model, q, v, steps=3, integrator=ts.BDF1(0.01), controls=np.tile(u, (3, 1)))
    np.testing.assert_array_equal(one.q, rows.q)
    none = ts.simulate(model, q, v, steps=0, integrator=ts.BDF1(0.01))
    assert none.steps == 0 and none.q.shape == (1, model.nq)


def test_first_acceleration_is_that_of_forward_dynamics():
    model, q, v = quaternions()
    forces, u = springs(model), np.arange(model.nv, dtype=float)
    tau = u + ts.generalized_forces(model, forces, q, v)
    expected = ts.forward_dynamics(model, q, v, tau)
    for kind in (ts.SymplecticEuler, *IMPLICIT, ts.Adaptive, ts.Variational):
        run = ts.simulate(model, q, v, steps=1, integrator=kind(1e-3), forces=forces, controls=u)
        np.testing.assert_allclose(run.a[0], expected, rtol=1e-9, atol=1e-9)


def test_rows_satisfy_the_equations_of_motion():
    model, q, v = quaternions()
    forces = springs(model)
    u = np.random.default_rng(0).standard_normal((6, model.nv))
    for kind in IMPLICIT:
        run = ts.simulate(model, q, v, steps=6, integrator=kind(0.01, tolerance=1e-12), forces=forces, controls=u)
        tau = ts.inverse_dynamics(model, run.q[1:], run.v[1:], run.a[1:])
        applied = u + ts.generalized_forces(model, forces, run.q[1:], run.v[1:])
        np.testing.assert_allclose(tau, applied, atol=1e-7)


def test_callback_sees_every_row():
    model, q, v = vectors()
    seen = []
    run = ts.simulate(
        model, q, v, steps=5, integrator=ts.BDF2(0.01), callback=lambda row, t, q, v: seen.append((row, t, q.copy(), v))
    )
    assert [s[0] for s in seen] == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal([s[2] for s in seen], run.q[1:])
    plain = ts.simulate(model, q, v, steps=5, integrator=ts.BDF2(0.01))
    np.testing.assert_array_equal(run.q, plain.q)


@pytest.mark.parametrize("kind", [*INTEGRATORS, ts.Adaptive])
def test_nothing_to_move_and_nothing_to_do(kind):
    builder = ts.ModelBuilder()
    builder.add_body("a", "world", ts.Fixed(), inertia=ts.Inertia.sphere(mass=1.0, radius=0.1))
    still = ts.simulate(builder.build(), np.zeros(0), steps=3, integrator=kind(0.1))
    assert still.q.shape == (4, 0) and still.energies.total.shape == (4,)
    model, _, _ = vectors()
    none = ts.simulate(model, np.zeros((0, model.nq)), steps=3, integrator=kind(0.1))
    assert none.q.shape == (0, 4, model.nq)
    spring = {"forces": [ts.JointSpring(None, 1.0)], "parameters": [{"stiffness": np.zeros(0)}]}
    none = ts.simulate([model], np.zeros((0, model.nq)), steps=3, integrator=kind(0.1), **spring)
    assert none.q.shape == (0, 4, model.nq) and none.energies.forces.shape == (0, 4, 1)
    if kind is not ts.Adaptive:
        assert ts.adjoint(none, dloss_dq=none.v).inertia.shape == (0, model.nbodies, 10)


def test_a_massless_body_on_a_spring_needs_an_implicit_integrator():
    builder = ts.ModelBuilder()
    builder.add_body("a", "world", ts.Revolute(), inertia=ts.Inertia.zero())
    model = builder.build()
    forces = [ts.JointSpring(None, 10.0, (0.0,), 1.0)]  # q' = -10 q
    run = ts.simulate(model, [1.0], steps=5, integrator=ts.BDF1(0.1), forces=forces)
    np.testing.assert_allclose(run.q[:, 0], 0.5 ** np.arange(6), rtol=1e-10)
    with pytest.raises(ts.ConvergenceError, match="the mass matrix is singular"):
        ts.simulate(model, [1.0], steps=5, integrator=ts.SymplecticEuler(0.1), forces=forces)


def redundant_scene(rng, joint=None):
    """A body on a joint that repeats itself, at a root or on an arm, which gravity, a spring and damping act on."""
    u = rng.standard_normal(3)
    joints = (
        ts.Composite(ts.Translational(), ts.Prismatic(u)),
        ts.Composite(ts.SphericalEuler("XYZ"), ts.Revolute(u)),
        ts.Composite(ts.Free(), ts.Revolute(u)),
        ts.Composite(ts.Revolute(u), ts.Spherical()),
    )
    joint = joints[rng.integers(4)] if joint is None else joint
    builder, parent = ts.ModelBuilder(gravity=(0.5, 0.3, -9.81)), "world"
    if rng.random() < 0.5:
        builder.add_body("arm", "world", ts.Revolute(rng.standard_normal(3)), inertia=random_inertia(rng))
        parent = "arm"
    builder.add_body("x", parent, joint, random_pose(rng), random_inertia(rng))
    model = builder.build()
    forces = (
        [],
        [ts.PointSpring("world", (0, 0, 1.0), "x", (0.3, 0, 0), 50.0)],
        [ts.BodyDamping("x", np.ones(6)), ts.BodyWrench("x", np.ones(6))],
    )[rng.integers(3)]
    return model, model.random(rng), 0.5 * rng.standard_normal(model.nv), forces


@pytest.mark.parametrize("kind", [*INTEGRATORS, lambda h: ts.Variational(h, 4)])
def test_motions_that_nothing_determines_are_refused(kind):
    """Freedoms that repeat each other: BDF1, BDF2 and SDIRK2 found some point on the line of solutions."""
    rng = np.random.default_rng(0)
    for k in range(60):
        model, q, v, forces = redundant_scene(rng)
        u = rng.standard_normal(model.nv) if k % 3 == 0 else None
        given = {"steps": 3, "integrator": kind(0.01), "forces": forces, "controls": u}
        with pytest.raises(ts.ConvergenceError, match="at t = 0: the mass matrix is singular at joint 'x'") as caught:
            ts.simulate(model, q, v, **given)
        assert caught.value.trajectory.q.shape == (1, model.nq)
        with pytest.raises(ts.ConvergenceError, match="the mass matrix is singular"):
            ts.step_derivatives(model, kind(0.01), q, v, u, forces=forces)


@pytest.mark.parametrize("kind", IMPLICIT)
def test_motions_that_move_no_mass_are_determined_by_springs_and_dampers(kind):
    """What the message says that helps: rows satisfy the equations of motion, and gradients agree with differences."""
    rng = np.random.default_rng(1)
    for k in range(12):
        model, q, v, forces = redundant_scene(rng, ts.Composite(ts.SphericalEuler("XYZ"), ts.Revolute((1, 2, 3))))
        q = model.plus(model.neutral, 0.3 * rng.standard_normal(model.nv))
        spring = ts.JointSpring("x", 20.0, model.neutral[model.joint("x").q_slice], 1.0)
        forces = [*forces, spring if k % 2 else ts.JointDamping("x", 2.0)]
        integrator = kind(0.01, tolerance=1e-12)
        run = ts.simulate(model, q, v, steps=5, integrator=integrator, forces=forces)
        applied = ts.generalized_forces(model, forces, run.q[1:], run.v[1:])
        tau = ts.inverse_dynamics(model, run.q[1:], run.v[1:], run.a[1:])
        np.testing.assert_allclose(tau, applied, rtol=0, atol=1e-8 * (1 + np.abs(applied).max()))
        d = ts.step_derivatives(model, integrator, q, v, forces=forces)
        e = 1e-4 * rng.standard_normal(model.nv)
        ends = [
            ts.simulate(model, model.plus(q, s * e), v, steps=1, integrator=integrator, forces=forces).q[1]
            for s in (1, -1)
        ]
        # 1e-4 of differences: their truncation
        np.testing.assert_allclose(model.minus(ends[0], ends[1]) / 2, d.dq1_dq @ e, rtol=0, atol=1e-4 * np.abs(e).max())


def test_a_spring_on_one_of_two_redundant_motions_does_not_determine_the_other():
    builder = ts.ModelBuilder()
    joint = ts.Composite(ts.Revolute((0, 0, 1)), ts.Revolute((0, 0, 1)), ts.Revolute((0, 0, 1)))
    builder.add_body("x", "world", joint, inertia=ts.Inertia.box((1, 2, 3), mass=1.0))
    model = builder.build()
    for stiffness, good in (((1.0, 0.0, 0.0), False), ((1.0, 2.0, 0.0), True), ((1.0, 1.0, 1.0), True)):
        forces = [ts.JointSpring("x", stiffness, np.zeros(3))]
        if good:
            assert np.isfinite(ts.simulate(model, np.ones(3), steps=3, integrator=ts.BDF1(0.1), forces=forces).q).all()
        else:
            with pytest.raises(ts.ConvergenceError, match="no spring or damper determines"):
                ts.simulate(model, np.ones(3), steps=3, integrator=ts.BDF1(0.1), forces=forces)


# ---- files and pictures


@pytest.mark.parametrize("kind", [*INTEGRATORS, ts.Adaptive])
def test_save_and_load_without_loss(kind, tmp_path):
    model, q, v = quaternions()
    forces = springs(model)
    u = np.full(model.nv, 0.5)
    run = ts.simulate(model, q, v, steps=4, integrator=kind(0.01), forces=forces, controls=lambda t: t * u)
    run.save(tmp_path / "run.npz")
    back = ts.Trajectory.load(tmp_path / "run.npz", model, forces)
    assert back.integrator == run.integrator and back.forces == run.forces
    for name in ("t", "q", "v", "a", "controls", "substeps"):
        np.testing.assert_array_equal(getattr(back, name), getattr(run, name))


def test_save_and_load_with_switches(tmp_path):
    model, _, _ = tree([ts.SphericalEuler("XYZ")])
    q0, v0 = np.array([0.0, 0.9, 0.0]), np.array([0.5, 3.0, 0.2])
    run = ts.simulate(model, q0, v0, steps=12, integrator=ts.BDF2(0.01))
    run.save(tmp_path / "run.npz")
    back = ts.Trajectory.load(tmp_path / "run.npz", model)
    assert len(back.switches) == len(run.switches) > 0
    np.testing.assert_array_equal(back.charts["b0"], run.charts["b0"])
    w = np.ones((13, model.nv))
    a, b = ts.adjoint(run, dloss_dq=w), ts.adjoint(back, dloss_dq=w)
    np.testing.assert_array_equal(a.q0, b.q0)


@pytest.mark.parametrize("every", [1, 5])
def test_save_and_load_a_batch_of_models_and_parameters(every, tmp_path):
    models, _, _, run = switching_batch(every=every)
    run.save(tmp_path / "run.npz")
    back = ts.Trajectory.load(tmp_path / "run.npz", models, run.forces)
    assert back.every == every and back.models == run.models and len(back.switches) == len(run.switches)
    np.testing.assert_array_equal(back.parameters[0]["stiffness"], run.parameters[0]["stiffness"])
    np.testing.assert_array_equal(back.energies.total, run.energies.total)
    w = np.ones((4, len(run.t), run.model.nv))
    np.testing.assert_array_equal(ts.adjoint(run, dloss_dq=w).q0, ts.adjoint(back, dloss_dq=w).q0)
    with pytest.raises(ValueError, match=r"has trajectories \(4,\), which 3 models do not fit"):
        ts.Trajectory.load(tmp_path / "run.npz", models[:3], run.forces)
    with pytest.raises(ValueError, match="has parameters of force 0, got 0 forces"):
        ts.Trajectory.load(tmp_path / "run.npz", models)


def test_copies_of_a_trajectory():
    *_, run = switching_batch(every=5)
    w = np.ones((4, len(run.t), run.model.nv))
    g = ts.adjoint(run, dloss_dq=w)  # after which the trajectory has forces compiled for the core
    _ = run.energies
    for copied in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run)):
        np.testing.assert_array_equal(copied.q, run.q)
        assert not copied.q.flags.writeable
        np.testing.assert_array_equal(ts.adjoint(copied, dloss_dq=w).q0, g.q0)


def test_load_refuses_what_does_not_fit(tmp_path):
    model, q, v = vectors()
    ts.simulate(model, q, v, steps=1, integrator=ts.BDF1(0.01)).save(tmp_path / "run.npz")
    with pytest.raises(ValueError, match="nq 4 and nv 4, got one with nq 12"):
        ts.Trajectory.load(tmp_path / "run.npz", quaternions()[0])
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="is not a trajectory file: it has no integrator"):
        ts.Trajectory.load(tmp_path / "other.npz", model)
    (tmp_path / "text.npz").write_text("once upon a time")
    (tmp_path / "empty.npz").touch()
    (tmp_path / "cut.npz").write_bytes((tmp_path / "run.npz").read_bytes()[:400])
    np.save(tmp_path / "one.npy", np.zeros(3))
    for name in ("text.npz", "empty.npz", "cut.npz", "one.npy"):
        with pytest.raises(ValueError, match=f"{name}' is not a trajectory file: expected a .npz file"):
            ts.Trajectory.load(tmp_path / name, model)
    with np.load(tmp_path / "run.npz") as data:
        arrays = dict(data)
    np.savez(tmp_path / "future.npz", **{**arrays, "integrator": np.array("BDF9")})
    with pytest.raises(ValueError, match="is of an integrator 'BDF9', which this version"):
        ts.Trajectory.load(tmp_path / "future.npz", model)


class Pump(ts.CustomForce):
    """A force of the user's own, with numbers of two kinds."""

    def __init__(self, p, gain):
        self.p, self.gain, self._calls = p, gain, 0

    def value(self, q, v, t, p):
        self._calls += 1
        return self.gain * p[0] * np.ones_like(v)

    def derivatives(self, q, v, t, p):
        return np.zeros((v.size, v.size)), np.zeros((v.size, v.size))

    def gradient(self, q, v, t, p, w):
        return [self.gain * w.sum()]


class Wheel(Own):
    """A user-defined joint with a number."""

    def __init__(self, lead):
        super().__init__(ts.Screw((0, 0, 1), lead))
        self.lead = lead


def pull(l, ldot):
    return l, 1.0, 0.0


def saved_scene(**changed):
    """A model and forces, each number of which can be changed."""
    c = {
        "gravity": -9.81, "axis": 0.0, "shift": 0.1, "mass": 1.0, "com": 0.0, "pitch": 0.2, "chart": "XYZ", "lead": 0.1,
        "parent": "a", "upper": 0.1, "stiffness": 2.0, "rest": 0.0, "body": "b", "point": 0.3, "law": pull, "p": 0.5,
        "gain": 1.0, "joint": "a", "frame": "body", "times": 1.0, "order": 1, "dropped": 0, "name": "c", **changed,
    }  # fmt: skip
    b = ts.ModelBuilder(gravity=(0, 0, c["gravity"]))
    inertia = ts.Inertia.box(mass=c["mass"], size=(0.1, 0.2, 0.3), com=(0, 0, c["com"]))
    solid = ts.Inertia.sphere(mass=1.0, radius=0.2)
    b.add_body("a", "world", ts.Revolute((1, c["axis"], 0)), inertia=inertia, position_limits=(-1, c["upper"]))
    b.add_body("b", "a", ts.Screw((0, 0, 1), c["pitch"]), ts.SE3.translation(c["shift"], 0, 0), solid)
    chain = ts.Composite(ts.Prismatic((1, 0, 0)), ts.SphericalEuler(c["chart"]))
    b.add_body(c["name"], c["parent"], chain, ts.SE3.translation(0, 0.2, 0), solid)
    b.add_body("d", c["name"], Wheel(c["lead"]), ts.SE3.translation(0, 0.2, 0), solid)
    forces = [
        ts.JointSpring(c["joint"], c["stiffness"], rest=(c["rest"],)),
        ts.JointLimits("a", 3.0),
        ts.PointForce(c["body"], (0, 0, c["point"]), (1, 2, 3)),
        ts.CustomSpring("a", (0, 0, 1), "world", (0, 0, 1.5), c["law"]),
        Pump((c["p"],), c["gain"]),
        ts.BodyWrench("b", np.ones((2, 6)), (0.0, c["times"]), frame=c["frame"]),
    ][c["dropped"] :: c["order"]]
    return b.build(), forces


def other_pull(l, ldot):
    return l, 1.0, 0.0


CHANGES = [
    ({"gravity": -9.8}, r"gravity\[2\] was -9.81, is -9.8;"),
    ({"axis": 1e-6}, r"axis of the joint of 'a'\[1\] was 0.0, is 9.99"),
    ({"shift": 0.11}, r"placement of 'b'\[3\] was 0.1, is 0.11"),
    ({"mass": 1.0 + 1e-9}, r"inertia of 'a'\[0\] was 1.0, is 1.000000001"),
    ({"com": 0.01}, r"inertia of 'a'\[3\] was 0.0, is 0.01"),
    ({"pitch": 0.3}, "pitch of the joint of 'b' was 0.2, is 0.3"),
    ({"chart": "ZYX"}, r"chart of the joints of the joint of 'c'\[1\] was XYZ, is ZYX"),
    ({"lead": 0.2}, "lead of the joint of 'd' was 0.1, is 0.2"),
    ({"parent": "b"}, "parent of 'c' was a, is b"),
    ({"upper": 0.2}, r"upper of force 1 \(JointLimits\) was 0.1, is 0.2"),
    ({"stiffness": 2.5}, r"stiffness of force 0 \(JointSpring\) was 2.0, is 2.5"),
    ({"rest": 0.1}, r"rest of force 0 \(JointSpring\) was 0.0, is 0.1"),
    ({"joint": "b"}, r"joint of force 0 \(JointSpring\) was a, is b"),
    ({"body": "c"}, r"body of force 2 \(PointForce\) was b, is c"),
    ({"point": 0.4}, r"point of force 2 \(PointForce\)\[2\] was 0.3, is 0.4"),
    ({"law": other_pull}, r"law of force 3 \(CustomSpring\) was pull, is other_pull"),
    ({"p": 0.6}, r"p of force 4 \(Pump\) was 0.5, is 0.6"),
    ({"gain": 2.0}, r"gain of force 4 \(Pump\) was 1.0, is 2.0"),
    ({"frame": "world"}, r"frame of force 5 \(BodyWrench\) was body, is world"),
    ({"times": 2.0}, r"times of force 5 \(BodyWrench\)\[1\] was 1.0, is 2.0"),
    ({"order": -1, "dropped": 5}, "force 0 was JointSpring, is BodyWrench"),
    ({"dropped": 1}, "number of forces was 6.0, is 5.0"),
    ({"name": "e"}, "bodies was 'a', 'b', 'c', 'd', is 'a', 'b', 'e', 'd'"),
    (
        {"gravity": 0.0, "mass": 2.0, "stiffness": 3.0, "point": 0.5, "p": 1.0, "gain": 3.0},
        r"gravity\[2\] .*; inertia of 'a'\[0\] .*; stiffness of force 0 .*; point of .*; and 2 more",
    ),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=lambda x: "-".join(x) if isinstance(x, dict) else "")
def test_load_says_what_differs(change, message, tmp_path):
    model, forces = saved_scene()
    run = ts.simulate(model, np.full(model.nq, 0.3), steps=2, integrator=ts.BDF1(0.01), forces=forces)
    run.save(tmp_path / "run.npz")
    back = ts.Trajectory.load(tmp_path / "run.npz", *saved_scene())  # made anew, and Pump has not been called
    np.testing.assert_array_equal(back.q, run.q)
    with pytest.raises(
        ValueError, match="is a trajectory of another model, or of other forces or constraints: .*" + message
    ) as error:
        ts.Trajectory.load(tmp_path / "run.npz", *saved_scene(**change))
    assert "load it with those that it was simulated with" in str(error.value)


def test_load_takes_what_makes_no_difference(tmp_path):
    model, q, v = vectors()
    forces = [ts.JointSpring(None, 1.0)]
    given = {"steps": 1, "integrator": ts.BDF1(0.01), "forces": forces, "parameters": [{"stiffness": np.ones(2)}]}
    run = ts.simulate(model, q, v, **given)
    run.save(tmp_path / "run.npz")
    same = replace(
        model, name="other", bodies=tuple(replace(b, velocity_limits=(1.0,) * b.joint.nv) for b in model.bodies)
    )
    back = ts.Trajectory.load(tmp_path / "run.npz", same, [ts.JointSpring(None, 5.0)])  # whose stiffness was replaced
    np.testing.assert_array_equal(back.parameters[0]["stiffness"], np.ones(2))
    models = [model, model.with_gravity((0, 0, -1))]
    ts.simulate(models, q, v, **given).save(tmp_path / "two.npz")
    ts.Trajectory.load(tmp_path / "two.npz", models, forces)
    with pytest.raises(ValueError, match=r"gravity in model\[0\]\[0\] was 0.5, is 0.0; gravity in model\[1\]"):
        ts.Trajectory.load(tmp_path / "two.npz", models[::-1], forces)
    with np.load(tmp_path / "run.npz") as data:
        arrays = dict(data)
    np.savez(tmp_path / "odd.npz", **{**arrays, "scene": np.zeros(3, np.uint8)})
    with pytest.raises(ValueError, match=r"odd.npz' is not a trajectory file: it has no description"):
        ts.Trajectory.load(tmp_path / "odd.npz", model, forces)


class Sudden(ts.CustomForce):
    """No number from some time on."""

    def __init__(self, start):
        self.start = start

    def value(self, q, v, t, p):
        return np.full_like(v, np.nan if t >= self.start else 0.0)

    def derivatives(self, q, v, t, p):
        return np.zeros((v.size, v.size)), np.zeros((v.size, v.size))


@pytest.mark.parametrize("method", sweep(["RK23", "RK45", "DOP853", "Radau", "BDF", "LSODA"], 3))
def test_adaptive_stops_where_there_is_no_going_on(method):
    model, q, v = vectors()
    given = {"steps": 4, "integrator": ts.Adaptive(0.1, method=method, rtol=1e-6, atol=1e-6)}
    for start, rows in ((0.0, 1), (0.15, 2), (0.3, 3)):
        with pytest.raises(
            ts.ConvergenceError, match=f"SciPy's {method} stopped at t = .*acceleration is not"
        ) as error:
            ts.simulate(model, q, v, forces=[Sudden(start)], **given)
        assert error.value.trajectory.q.shape == (rows, model.nq) and error.value.step == rows - 1
        assert np.isfinite(error.value.trajectory.q).all()
    for speed in (1e155, 1e150, 1e77):
        with pytest.raises(ts.ConvergenceError, match=f"SciPy's {method} stopped at t = 0"):
            ts.simulate(model, q, np.full(model.nv, speed), **given)
    with pytest.raises(ts.ConvergenceError, match="at t = 0 in trajectory 1 of the batch") as error:
        ts.simulate(model, q, np.stack([v, np.full(model.nv, 1e155)]), **given)
    assert np.isfinite(error.value.trajectory.q[0]).all() and error.value.index == 1
    with pytest.raises(ValueError, match="the user's own"):
        ts.simulate(model, q, v, controls=lambda t: np.zeros(4) if t < 0.1 else int("the user's own"), **given)


@pytest.mark.parametrize(("kind", "every"), [(ts.BDF1, 1), (ts.BDF2, 2), (ts.Adaptive, 1)])
def test_callbacks_keep_every_row_of_all(kind, every):
    model, q, v = vectors()
    given = {"q0": np.stack([q, q + 0.1]), "v0": v, "steps": 4, "integrator": kind(0.01)}
    rows = []

    def callback(row, t, q, v):
        v[:] = np.nan  # its own
        rows.append((row, q))

    ts.simulate(model, **given, every=every, callback=callback)
    run = ts.simulate(model, **given)
    assert [row for row, _ in rows] == [1, 2, 3, 4]
    for row, at in rows:
        np.testing.assert_array_equal(at, run.q[:, row])


def test_forces_may_come_one_by_one():
    """A generator can be read but once: nothing may be lost."""
    model, q, v = vectors()
    forces = springs(model)
    run = ts.simulate(model, q, v, steps=2, integrator=ts.BDF1(0.01), forces=(f for f in forces))
    assert run.forces == tuple(forces)
    for kind in INTEGRATORS:
        one = ts.step_derivatives(model, kind(0.01), q, v, forces=(f for f in forces))
        np.testing.assert_array_equal(one.v1, ts.step_derivatives(model, kind(0.01), q, v, forces=forces).v1)


def test_plot():
    model, q, v = quaternions()
    run = ts.simulate(model, q, v, steps=3, integrator=ts.BDF1(0.01))
    labels = ["q [m]", "v [m/s]", "q [quaternion]", "v [rad/s]", "q [rad]", "v [rad/s]", "energy [J]"]
    assert [axis.get_ylabel() for axis in run.plot().axes] == labels
    one = run.plot(joints=["b1"])
    assert [axis.get_ylabel() for axis in one.axes] == ["q [rad]", "v [rad/s]", "energy [J]"]
    assert len(one.axes[0].lines) == 1


# ---- bad input


@pytest.mark.parametrize("h", [0.0, -1e-2, np.nan, np.inf, "fast", None])
def test_h_must_be_positive(h):
    with pytest.raises(ValueError, match=r"h of BDF1 is .*, expected a positive number"):
        ts.BDF1(h)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0}, "tolerance of SDIRK2 is 0, expected a positive number"),
        ({"iterations": 0}, "iterations of SDIRK2 is 0, expected an integer of at least 1"),
        ({"substeps": 2.5}, r"substeps of SDIRK2 is 2.5, expected an integer"),
        ({"substeps": 10**12}, "substeps of SDIRK2 is 10+, expected an integer of at least 1, 1000000 at most"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        ts.SDIRK2(0.01, **options)


def test_methods_of_scipy_are_named():
    with pytest.raises(ValueError, match="method of Adaptive is 'RK4', expected one of SciPy's: RK23, RK45"):
        ts.Adaptive(0.01, method="RK4")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"T": 1.0}, TypeError, "either T, the duration, or steps, their number: got both"),
        ({"steps": None}, TypeError, "got neither"),
        ({"steps": None, "T": 0.015}, ValueError, r"T = 0.015 is 1.5 steps of h = 0.01, expected a whole number"),
        ({"steps": -1}, ValueError, "steps is -1, expected at least 0"),
        ({"steps": 2.5}, TypeError, "steps is 2.5, expected an integer"),
        ({"q0": np.zeros(3)}, ValueError, r"q0 has shape \(3,\), expected \(..., 4\): model.nq is 4"),
        ({"v0": np.zeros((2, 5))}, ValueError, r"v0 has shape \(2, 5\), expected \(..., 4\)"),
        ({"q0": np.array([0, np.nan, 0, 0])}, ValueError, r"q0 is not finite: q0\[1\] is nan"),
        ({"v0": np.array([0, 0, np.inf, 0])}, ValueError, r"v0 is not finite: v0\[2\] is inf"),
        ({"controls": np.zeros((6, 4))}, ValueError, r"controls have shape \(6, 4\), expected \(..., 5, 4\)"),
        ({"controls": np.full(4, np.nan)}, ValueError, "controls are not finite"),
        ({"controls": lambda t: np.zeros(2)}, ValueError, r"controls\(t\) has shape \(2,\), expected \(..., 4\)"),
        ({"integrator": 0.01}, TypeError, r"integrator must be an Integrator such as BDF2\(h=1e-2\), got 0.01"),
        ({"integrator": ts.BDF1}, TypeError, "integrator must be an Integrator"),
        ({"model": "arm"}, TypeError, "model must be a torsor.Model"),
        ({"t0": np.nan}, ValueError, "t0 is nan"),
        ({"t0": None}, ValueError, "t0 is None, expected a time: a number"),
        ({"t0": [0.0, 1.0]}, ValueError, r"t0 is \[0.0, 1.0\], expected a time: a number"),
        ({"callback": 3}, TypeError, r"callback is 3, expected a function of \(step, t, q, v\)"),
        ({"steps": 10**12}, ValueError, "steps is 1000000000000, expected at least 0, 1000000000 at most"),
        ({"steps": None, "T": 1e300}, ValueError, r"T = 1e\+300 is 1e\+302 steps of h = 0.01, expected 1000000000 at"),
        ({"q0": np.zeros((2, 4)), "v0": np.zeros((3, 4))}, ValueError, r"shapes do not fit together: q0 \(2, 4\)"),
        ({"forces": ts.JointSpring(None, 1.0)}, TypeError, "forces must be a sequence"),
        ({"forces": [ts.BodyDamping("b9", np.ones(6))]}, KeyError, "no body named 'b9'"),
        ({"threads": -1}, ValueError, "threads is -1"),
        ({"threads": None}, ValueError, "threads is None, expected an integer"),
        ({"every": 2}, ValueError, "every is 2, expected a divisor of the number of steps, 5"),
        ({"every": 0}, ValueError, "every is 0, expected a divisor"),
        ({"every": 2.5}, TypeError, "every is 2.5, expected an integer"),
        ({"every": 5, "integrator": ts.Adaptive(0.01)}, ValueError, "the rows of Adaptive are h apart"),
        ({"model": []}, ValueError, "model is an empty sequence"),
        ({"model": [None]}, TypeError, r"model\[0\] must be a torsor.Model, got NoneType"),
        ({"parameters": {}}, TypeError, "a list with a dict, or None, for each of 0 forces, got dict"),
        ({"parameters": [{}]}, TypeError, "for each of 0 forces, got 1 of them"),
    ],
)
def test_bad_input_is_told(change, error, message):
    model, q, v = vectors()
    arguments = {"model": model, "q0": q, "v0": v, "steps": 5, "integrator": ts.BDF1(0.01), **change}
    with pytest.raises(error, match=message):
        ts.simulate(**arguments)


def test_trajectories_stay_as_they_were():
    """What the caller does afterwards to the arrays that it gave reaches no trajectory, and so no gradient."""
    model, q, v = vectors()
    u = np.ones((4, model.nv))
    run = ts.simulate(model, q, v, steps=4, integrator=ts.BDF1(0.01), controls=u)
    before = ts.adjoint(run, dloss_dv=v).inertia
    u[:] = q[:] = 100.0
    np.testing.assert_array_equal(run.controls, 1.0)
    np.testing.assert_array_equal(ts.adjoint(run, dloss_dv=v).inertia, before)
    assert run == run and run != replace(run) and hash(run) is not None  # each is itself


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([3.0], TypeError, r"parameters of force 0 \(JointSpring\) must be a dict or None, got float"),
        (
            [{"mass": 1.0}],
            ValueError,
            r"force 0 \(JointSpring\) has no parameter 'mass'; it has 'stiffness', 'damping'",
        ),
        ([{"stiffness": np.ones((3, 2))}], ValueError, r"do not fit together: q0 \(5, 4\).*, parameters \(3, 2\)"),
        ([{"rest": np.ones(3)}], ValueError, r"rest of force 0 \(JointSpring\) has shape \(3,\), expected \(..., 4\)"),
        ([{"rest": 1.0}], ValueError, r"has shape \(\), expected \(..., 4\), as the force's own"),
        ([{"stiffness": "soft"}], TypeError, r"stiffness of force 0 \(JointSpring\) has dtype"),
        ([{"stiffness": [1, 2, 3, -4, 5]}], ValueError, r"in trajectory 3 of the batch: stiffness is -4, expected 0"),
        ([{"stiffness": [1, 2, np.nan, 4, 5]}], ValueError, r"in trajectory 2 of the batch: stiffness"),
        ([{"damping": np.inf}], ValueError, r"force 0 \(JointSpring\) in trajectory 0 of the batch: damping"),
    ],
)
def test_bad_parameters_are_told(values, error, message):
    model, q, v = vectors()
    given = {"steps": 1, "integrator": ts.BDF1(0.01), "forces": [ts.JointSpring(None, 1.0)], "parameters": values}
    with pytest.raises(error, match=message):
        ts.simulate(model, np.tile(q, (5, 1)), v, **given)


def test_models_of_a_batch_must_fit():
    model, q, v = vectors()
    given = {"q0": q, "v0": v, "steps": 1, "integrator": ts.BDF1(0.01)}
    other, _, _ = quaternions()
    with pytest.raises(ValueError, match=r"bodies, model\[0\] has"):
        ts.simulate([model, replace(model, bodies=model.bodies[:-1])], **given)
    with pytest.raises(
        ValueError, match=r"the joint of 'b0' is .*in model\[1\].*; models of a batch must have the same"
    ):
        ts.simulate([model, replace(model, bodies=(other.bodies[0], *model.bodies[1:]))], **given)
    renamed = replace(model, bodies=(*model.bodies[:-1], replace(model.bodies[-1], name="hand")))
    with pytest.raises(ValueError, match="has 'hand' on "):
        ts.simulate([model, renamed], **given)
    with pytest.raises(ValueError, match=r"batch shapes do not fit together: .*, models \(2,\)"):
        ts.simulate([model, model], **{**given, "q0": np.tile(q, (3, 1))})
    with pytest.raises(ValueError, match="mass"):  # a negative one never gets as far as a simulation
        replace(model.bodies[0], inertia=ts.Inertia.from_parameters(-model.bodies[0].inertia.parameters))


def test_zero_quaternion_is_told():
    model, q, v = quaternions()
    with pytest.raises(ValueError, match="quaternion of length 0"):
        ts.simulate(model, np.zeros_like(q), v, steps=1, integrator=ts.BDF1(0.01))


def test_results_do_not_depend_on_the_order_of_bodies():
    model, q, v = tree([ts.Spherical(), ts.Revolute((0, 1, 0)), ts.Revolute((1, 0, 0))])
    bodies = [model.bodies[0], replace(model.bodies[2], parent="b0"), model.bodies[1]]
    first = ts.Model("a", model.gravity, (bodies[0], bodies[1], bodies[2]))
    second = ts.Model("b", model.gravity, (bodies[0], bodies[2], bodies[1]))
    order_q, order_v = [0, 1, 2, 3, 5, 4], [0, 1, 2, 4, 3]
    a = ts.simulate(first, q, v, steps=20, integrator=ts.BDF2(0.01))
    b = ts.simulate(second, q[order_q], v[order_v], steps=20, integrator=ts.BDF2(0.01))
    np.testing.assert_allclose(a.q, b.q[:, order_q], atol=1e-11)


def test_progress_shows_steps_and_trajectories(capsys):
    pytest.importorskip("tqdm")
    model, q, v = vectors()
    for integrator in (ts.BDF2(0.01), ts.Variational(0.01)):
        single = ts.simulate(model, q, v, steps=20, integrator=integrator, progress=True)
        assert re.search(r"20/20 \[.*step", capsys.readouterr().err)
        starts = np.broadcast_to(q, (300, model.nq))
        for options in ({}, {"every": 5}, {"controls": lambda t, q, v: -0.1 * v}, {"callback": lambda *_: None}):
            batch = ts.simulate(model, starts, v, steps=20, integrator=integrator, progress=True, **options)
            shown = capsys.readouterr().err
            assert re.search(r"6000/6000 \[.*step.*300 of 300 trajectories", shown)
            quiet = ts.simulate(model, starts, v, steps=20, integrator=integrator, **options)
            np.testing.assert_array_equal(batch.q, quiet.q)
            np.testing.assert_array_equal(batch.a, quiet.a)
        np.testing.assert_array_equal(single.q, ts.simulate(model, q, v, steps=20, integrator=integrator).q)
    failing = np.zeros((2, 4, model.nv))
    failing[1, 2] = 1e308
    given = {"steps": 4, "integrator": ts.SymplecticEuler(0.01), "progress": True}
    ts.simulate(model, q, v, controls=failing, on_failure="keep", **given)
    assert re.search(r"8/8 \[.*1 of 2 trajectories, 1 failed", capsys.readouterr().err)
    many = np.zeros((300, 4, model.nv))
    many[:130, 1] = 1e308  # two whole parts, and some of the third
    for options in ({}, {"every": 2}, {"callback": lambda *_: None}):
        ts.simulate(model, q, v, controls=many, on_failure="keep", **given, **options)
        assert re.search(r"1200/1200 \[.*170 of 300 trajectories, 130 failed", capsys.readouterr().err)
    with pytest.raises(ts.ConvergenceError):
        ts.simulate(model, q, v, controls=many, **given)
    assert re.search(r"1200/1200 \[.*170 of 300 trajectories, 130 failed", capsys.readouterr().err)
    with pytest.raises(ts.ConvergenceError):
        ts.simulate(model, q, v, controls=many, callback=lambda *_: None, **given)
    assert re.search(r" 900/1200 \[.* 0 of 300 trajectories, 130 failed", capsys.readouterr().err)
