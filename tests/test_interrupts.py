"""Ctrl-C ends every long call within a second."""

import signal
import threading
import time

import numpy as np

import torsor as ts


def interrupted(call):
    """Seconds from an interrupt, 0.3 s after the call began, to its end; None if it had ended before."""
    at, handler = [], signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    timer = threading.Timer(0.3, lambda: (at.append(time.monotonic()), signal.raise_signal(signal.SIGINT)))
    timer.start()
    try:
        call()
        return None
    except KeyboardInterrupt:
        return time.monotonic() - at[0]
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
        taken = interrupted(call)
        assert taken is not None and taken < 1.0, (k, taken)
