"""What a trajectory gets does not depend on its neighbours: it is the same to the last bit alone and in any batch."""

import numpy as np
import pytest
from compare import arrays_of, helped
from population import sweep

import torsor as ts
from torsor import _core
from torsor.testing import example_integrators

STEPS, SIZE, COPIES = 8, 11, 24
INTEGRATORS = example_integrators(0.02)
NAMES = [f"{type(i).__name__}{i.order}" for i in INTEGRATORS]
COST = ts.VelocityTarget() + ts.PointTarget("tip", (0, 0, -0.2), (0.3, 0.2, 0.1), at="time") + 1e-3 * ts.ControlEffort()


def spinning(joint):
    """A ball on a joint, and a link on the ball."""
    builder = ts.ModelBuilder()
    builder.add_body("ball", joint=joint, inertia=ts.Inertia.box((0.4, 0.5, 0.6), mass=2.0))
    builder.add_body(
        "tip", "ball", ts.Revolute((0, 1, 0)), ts.SE3(p=(0, 0, -0.3)),
        ts.Inertia.box((0.1, 0.1, 0.4), mass=0.5, com=(0, 0, -0.2)), joint_name="hinge",
    )  # fmt: skip
    return builder.build()


MODELS = {
    "euler": spinning(ts.SphericalEuler("XYZ")), "exp": spinning(ts.SphericalExp()), "free": spinning(ts.Free()),
}  # fmt: skip


def scene(name, seed=0, failing=(2, 7)):
    """A batch of easy and hard motions, of which some fail at different steps."""
    model, rng = MODELS[name], np.random.default_rng(seed)
    q = model.plus(model.neutral, 0.6 * rng.standard_normal((SIZE, model.nv)))
    v = rng.standard_normal((SIZE, model.nv)) * rng.choice([0.1, 4.0, 9.0], (SIZE, 1))
    u = 0.3 * rng.standard_normal((SIZE, STEPS, model.nv))
    for k, i in enumerate(failing):
        u[i, 3 + 2 * k, 0] = 1e200
    damping = rng.uniform(0.0, 0.5, SIZE)
    return model, q, v, u, damping


def hasty(integrator):
    """The integrator with so few iterations that some steps are divided."""
    if isinstance(integrator, ts.BDF1 | ts.BDF2 | ts.SDIRK2):
        return type(integrator)(integrator.h, iterations=3)
    return integrator


def simulate(model, integrator, q, v, u, damping, **options):
    return ts.simulate(
        model, q, v, steps=STEPS, integrator=integrator, controls=u, forces=[ts.JointDamping("hinge", 0.1)],
        parameters=[{"damping": damping}], on_failure="keep", **options,
    )  # fmt: skip


def assert_is_alone(batch, i, alone):
    """Trajectory i of a batch is what it is alone."""
    for name in ("q", "v", "a", "substeps"):
        np.testing.assert_array_equal(getattr(batch, name)[i], getattr(alone, name), err_msg=f"{name} of {i}")
    mine = [f for f in batch.failed if f.index == (i,)]
    assert [(f.step, f.t, f.reason) for f in mine] == [(f.step, f.t, f.reason) for f in alone.failed]
    for name in batch.charts:
        assert (batch.charts[name][i] == alone.charts[name]).all()


def assert_same_gradient(batch, i, alone):
    for a, b in zip(arrays_of(batch), arrays_of(alone), strict=True):
        np.testing.assert_array_equal(a[i], b)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 3), ids=NAMES)
def test_trajectories_and_gradients_are_those_of_each_alone(name, integrator):
    model, q, v, u, damping = scene(name)
    integrator = hasty(integrator)
    for every in (1, 4):
        alone = [simulate(model, integrator, q[i], v[i], u[i], damping[i], every=every) for i in range(SIZE)]
        assert {i for i in range(SIZE) if alone[i].failed} >= {2, 7}
        gradients = [ts.adjoint(one, COST) for one in alone]
        order = np.random.default_rng(1).permutation(SIZE)
        # So many on two threads that these share the work.
        for chosen, threads in ((np.arange(SIZE), 1), (np.tile(order, COPIES), 2), (order[:5], 1)):
            batch = simulate(
                model, integrator, q[chosen], v[chosen], u[chosen], damping[chosen], every=every, threads=threads
            )
            gradient = ts.adjoint(batch, COST, threads=threads)
            for k, i in enumerate(chosen[:SIZE].tolist()):
                assert_is_alone(batch, k, alone[i])
                assert_same_gradient(gradient, k, gradients[i])
            for x in (batch.q, batch.v, batch.a, batch.substeps, *arrays_of(gradient)):
                copies = x.reshape(-1, min(len(x), SIZE), *x.shape[1:])
                np.testing.assert_array_equal(copies, np.broadcast_to(copies[0], copies.shape))
            assert batch.finished.tolist() == [not alone[i].failed for i in chosen.tolist()]


def test_batches_have_what_makes_neighbours_differ():
    """Charts that change at different rows, divided steps and failures are in the batches of the test above."""
    for name in ("euler", "exp"):
        model, q, v, u, damping = scene(name)
        batch = simulate(model, hasty(ts.BDF2(0.02)), q, v, u, damping)
        assert len({s.row for s in batch.switches}) > 1
        assert len({f.step for f in batch.failed}) > 1
        good = batch.substeps[batch.finished]
        assert (good > 1).any() and (good == 1).any()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("integrator", INTEGRATORS, ids=NAMES)
def test_batches_have_work_for_two_threads(name, integrator):
    model, *given = scene(name)
    integrator = hasty(integrator)
    q, v, u, damping = (np.tile(x, (COPIES, *[1] * (x.ndim - 1))) for x in given)
    assert helped(lambda: simulate(model, integrator, q, v, u, damping, threads=2))
    batch = simulate(model, integrator, q, v, u, damping)
    assert helped(lambda: ts.adjoint(batch, COST, threads=2))
    alone = [helped(lambda: simulate(model, integrator, q, v, u, damping), attempts=1) for _ in range(5)]
    assert not all(alone) or _core.cores == 1


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 3), ids=NAMES)
def test_policies_and_callbacks_do_not_couple_neighbours(name, integrator):
    model, q, v, u, damping = scene(name)
    torques = u.copy()

    def policy(t, q, v):
        k = round(t / 0.02)
        rows = torques[chosen, k] if np.ndim(q) > 1 else torques[chosen[0], k]
        return rows - 0.01 * v

    seen = []
    for every in (1, 4):
        alone = []
        for i in range(SIZE):
            chosen = [i]
            alone.append(simulate(model, integrator, q[i], v[i], policy, damping[i], every=every))
        chosen = np.random.default_rng(2).permutation(SIZE)
        batch = simulate(model, integrator, q[chosen], v[chosen], policy, damping[chosen], every=every)
        for k, i in enumerate(chosen.tolist()):
            assert_is_alone(batch, k, alone[i])
            np.testing.assert_array_equal(batch.controls[k], alone[i].controls)
        seen.clear()
        heard = simulate(
            model, integrator, q, v, u, damping, every=every, callback=lambda k, t, q, v: seen.append((k, q, v))
        )
        silent = simulate(model, integrator, q, v, u, damping, every=every)
        for field in ("q", "v", "a", "substeps"):
            np.testing.assert_array_equal(getattr(heard, field), getattr(silent, field))
        assert [k for k, _, _ in seen] == [*range(1, STEPS + 1)]
        for k, at, _ in seen:
            if k % every == 0:
                np.testing.assert_array_equal(at, silent.q[:, k // every])


def test_large_batches_are_run_in_parts():
    """More trajectories than run together, with failures in several parts; and models, signals and shared controls."""
    model, rng = ts.models.acrobot(), np.random.default_rng(0)
    n, integrator = 5000, ts.SymplecticEuler(0.01)
    q, v = rng.standard_normal((2, n, 2))
    failing = [3, 4095, 4096, 4999]
    u = np.zeros((n, 4, 2))
    u[failing, 2] = 1e308
    for options in ({}, {"every": 2}, {"every": 4, "actuation": np.array([[0.0, 1.0], [1.0, 0.0]])}):
        batch = ts.simulate(model, q, v, steps=4, integrator=integrator, controls=u, on_failure="keep", **options)
        assert [f.index for f in batch.failed] == [(i,) for i in failing]
        cost = ts.VelocityTarget()
        gradient = ts.adjoint(batch, cost)
        for i in (0, 3, 4095, 4096, 4097, 4998, 4999):
            alone = ts.simulate(
                model, q[i], v[i], steps=4, integrator=integrator, controls=u[i], on_failure="keep", **options
            )
            assert_is_alone(batch, i, alone)
            assert_same_gradient(gradient, i, ts.adjoint(alone, cost))
        first = min(batch.failed, key=lambda f: (f.step, f.index))
        with pytest.raises(ts.ConvergenceError, match=f"in trajectory {first.index[0]} of the batch") as caught:
            ts.simulate(model, q, v, steps=4, integrator=integrator, controls=u, **options)
        assert caught.value.step == first.step and caught.value.trajectory.failed == batch.failed
        np.testing.assert_array_equal(caught.value.trajectory.q, batch.q)
    planets = [model.with_gravity((0, 0, -g)) for g in (1.6, 3.7, 9.8)]
    spring = [ts.JointSpring("elbow", stiffness=5.0, rest=0.2)]
    rest = rng.standard_normal((2000, 1, 4, 1))
    batch = ts.simulate(
        planets, q[:2000, None], v[:2000, None], steps=4, integrator=integrator, forces=spring, controls=[0.1, 0.2],
        signals=[{"rest": rest}], every=2, threads=2,
    )  # fmt: skip
    for i, m in ((0, 0), (1365, 0), (1365, 1), (1999, 2)):
        alone = ts.simulate(
            planets[m], q[i], v[i], steps=4, integrator=integrator, forces=spring, controls=[0.1, 0.2],
            signals=[{"rest": rest[i, 0]}], every=2,
        )  # fmt: skip
        for field in ("q", "v", "a", "substeps", "controls"):
            np.testing.assert_array_equal(getattr(batch, field)[i, m], getattr(alone, field))
