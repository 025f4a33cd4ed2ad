"""Ctrl-C ends every long call within a second."""

import pickle
import signal
import threading
import time

import numpy as np
import pytest

import torsor as ts


def interrupted(call):
    """Seconds from an interrupt, 0.3 s after the call began, to its end, and the exception; None if it had ended."""
    at, handler = [], signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    timer = threading.Timer(0.3, lambda: (at.append(time.monotonic()), signal.raise_signal(signal.SIGINT)))
    timer.start()
    try:
        call()
        return None, None
    except KeyboardInterrupt as interrupt:
        return time.monotonic() - at[0], interrupt
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, handler)


def test_interrupts_end_long_calls():
    model = ts.models.humanoid()
    rng = np.random.default_rng(0)
    q, v = model.random(rng), 0.1 * rng.standard_normal(model.nv)
    order8 = ts.Variational(1e-3, order=8)
    short = ts.simulate(model, q, v, steps=20, integrator=order8)
    batch = np.broadcast_to(q, (64, model.nq))
    many, long = rng.standard_normal((100_000, model.nv)), ts.models.chain(400)
    calls = (
        lambda: ts.simulate(model, q, v, steps=100_000, integrator=order8),
        lambda: ts.simulate(model, batch, v, steps=2_000, integrator=ts.SDIRK2(1e-3), threads=0),
        lambda: [ts.adjoint(short, ts.VelocityTarget()) for _ in range(1000)],
        lambda: ts.variational.step_hessian(model, order8, np.broadcast_to(q, (200, model.nq)), p=v, contract=(v, v)),
        lambda: ts.inverse_dynamics_hessians(model, np.broadcast_to(q, (100_000, model.nq)), many, many, contract=v),
        lambda: ts.mass_matrix_inverse(model, np.broadcast_to(q, (200_000, model.nq)), threads=2),
        lambda: ts.forward_dynamics_hessians(long, 0.1 * np.ones(400), np.zeros(400), np.zeros(400)),
    )
    for k, call in enumerate(calls):
        taken, _ = interrupted(call)
        assert taken is not None and taken < 1.0, (k, taken)


def assert_rows_until(trajectory):
    """All trajectories have rows up to one, and NaN after it, and some are not finished."""
    q = trajectory.q.reshape(-1, *trajectory.q.shape[-2:])
    known = np.isfinite(q).all(axis=-1)
    assert np.array_equal(known, np.isfinite(trajectory.v.reshape(len(q), q.shape[1], -1)).all(axis=-1))
    reached = known.sum(axis=1)
    assert all(known[i, : reached[i]].all() for i in range(len(q)))
    assert reached.min() >= 1 and reached.max() > 1 and reached.min() < q.shape[1]
    assert not trajectory.finished.all() and trajectory.failed == ()


def test_an_interrupted_simulation_has_its_rows():
    model = ts.models.humanoid()
    rng = np.random.default_rng(0)
    q, v = model.random(rng), 0.1 * rng.standard_normal(model.nv)
    batch = np.broadcast_to(q, (8, model.nq))
    slow = ts.Variational(1e-3, order=8)  # 3 ms for a step

    def policy(t, q, v):
        return -0.1 * v

    for given, options in (
        ({"q0": q}, {"steps": 5000}),
        ({"q0": q}, {"steps": 5000, "every": 5}),
        ({"q0": batch}, {"steps": 1000}),
        ({"q0": batch}, {"steps": 1000, "threads": 2, "on_failure": "keep"}),
        ({"q0": q}, {"steps": 5000, "controls": policy}),
        ({"q0": batch}, {"steps": 1000, "controls": policy, "every": 2}),
    ):
        taken, interrupt = interrupted(lambda: ts.simulate(model, v0=v, integrator=slow, **given, **options))  # noqa: B023
        assert taken is not None and taken < 1.0, (options, taken)
        assert type(interrupt) is ts.SimulationInterrupted and not isinstance(interrupt, Exception)
        run = interrupt.trajectory
        assert run.q.shape == (*given["q0"].shape[:-1], options["steps"] // options.get("every", 1) + 1, model.nq)
        assert_rows_until(run)
        assert "simulate was interrupted: " in str(interrupt)
        if "controls" in options:
            assert np.isnan(run.controls[..., -1, :]).all() and np.isfinite(run.controls[..., 0, :]).all()
        # The rows are those of a call that ends.
        short = ts.simulate(model, q, v, steps=1, integrator=slow, controls=options.get("controls"))
        if options.get("every", 1) == 1:
            rows = run.q.reshape(-1, *run.q.shape[-2:])[0]
            np.testing.assert_array_equal(rows[:2], short.q)


def test_large_batches_end_at_once_and_make_their_rows_on_demand():
    model = ts.models.arm7()
    q = np.broadcast_to(model.random(0), (60_000, 7))
    call = lambda: ts.simulate(model, q, steps=100, integrator=ts.SymplecticEuler(1e-3))  # noqa: E731
    taken, interrupt = interrupted(call)
    assert taken is not None and taken < 1.0, taken
    assert "trajectory" not in interrupt.__dict__ and interrupt._make is not None
    run = interrupt.trajectory
    assert run is interrupt.trajectory and run.q.shape == (60_000, 101, 7)
    assert np.isnan(run.q[-1, 1:]).all() and np.isnan(run.a[-1]).all()
    assert int(str(interrupt).split()[5]) <= np.count_nonzero(run.finished) < 60_000


def test_interrupts_are_pickled_with_their_rows():
    def stop(step, t, q, v):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(ts.SimulationInterrupted, match="at least 0 of 4 trajectories are finished") as caught:
        ts.simulate(ts.models.acrobot(), np.zeros((4, 2)), steps=10, integrator=ts.BDF1(0.01), callback=stop)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is ts.SimulationInterrupted and str(again) == str(caught.value)
    np.testing.assert_array_equal(again.trajectory.q, caught.value.trajectory.q)
    assert np.isfinite(again.trajectory.q).all(axis=-1).sum(axis=-1).tolist() == [4] * 4


def test_interrupts_in_functions_of_the_user():
    model = ts.models.acrobot()

    def stop(t, q, v):
        if t > 0.045:
            raise KeyboardInterrupt
        return -v

    with pytest.raises(ts.SimulationInterrupted, match=r"interrupted: at t = 0.05") as caught:
        ts.simulate(model, [0.3, 0.2], steps=10, integrator=ts.BDF1(0.01), controls=stop)
    assert "stop" in [entry.name for entry in caught.traceback]
    run = caught.value.trajectory
    expected = ts.simulate(model, [0.3, 0.2], steps=5, integrator=ts.BDF1(0.01), controls=lambda t, q, v: -v)
    np.testing.assert_array_equal(run.q[:6], expected.q)
    assert np.isnan(run.q[6:]).all()
    with pytest.raises(ValueError, match="not finished has no gradient"):
        ts.adjoint(run, dloss_dq=np.zeros(2))

    def slope(t, q, v):
        raise KeyboardInterrupt

    feedback = ts.Policy(lambda t, q, v: -v, slope)
    done = ts.simulate(model, [0.3, 0.2], steps=3, integrator=ts.BDF1(0.01), controls=feedback)
    with pytest.raises(KeyboardInterrupt) as plain:
        ts.adjoint(done, ts.VelocityTarget())
    assert type(plain.value) is KeyboardInterrupt
