"""Threads take part in a batch where the work pays for them, and results do not depend on how many do."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from compare import helped, same_bits
from test_results import Hinge

import torsor as ts
from torsor import _core

ARM = ts.models.arm7()

# Prints how many threads a call has started. Threads of the pool live on.
STARTED = """
import os, sys
import numpy as np, torsor as ts
states, threads = int(sys.argv[1]), eval(sys.argv[2])
arm = ts.models.arm7()
q = np.zeros((states, 7))
ts.forward_dynamics(arm, q, q, q)
before = len(os.listdir("/proc/self/task"))
for _ in range(3):
    ts.forward_dynamics(arm, q, q, q, threads=threads)
print(len(os.listdir("/proc/self/task")) - before)
"""


def started(states, threads):
    command = [sys.executable, "-c", STARTED, str(states), repr(threads)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted as Linux lists them")
@pytest.mark.parametrize("threads", ["auto", 0, 2, 64])
def test_threads_start_where_the_work_pays(threads):
    assert started(16, threads) == 0  # a few us
    most = _core.cores if threads in ("auto", 0) else min(threads, _core.cores)
    assert started(20000, threads) == most - 1


@pytest.mark.parametrize("states", [1, 2, 7, 8, 9, 15, 16, 17, 33, 100, 1000, 4097])
def test_batches_of_every_size(states):
    """Single states at the end of a batch, first states that are measured, blocks: each state is computed once."""
    rng = np.random.default_rng(states)
    for model in (ARM, ts.models.quadruped()):
        q, v, a = model.random(rng, (states,)), *rng.standard_normal((2, states, model.nv))
        for function in (ts.inverse_dynamics, ts.inverse_dynamics_derivatives):
            expected = function(model, q, v, a)
            some = sorted({0, states // 3, states - 1})
            for k in some:
                alone = function(model, q[k], v[k], a[k])
                pairs = zip(alone, expected, strict=True) if isinstance(alone, tuple) else [(alone, expected)]
                assert all(same_bits(x, y[k]) for x, y in pairs)
            for threads in (2, 3, "auto"):
                assert same_bits(function(model, q, v, a, threads=threads), expected)


@pytest.mark.parametrize("threads", [1, 2, "auto"])
@pytest.mark.parametrize("bad", [0, 20, 1999])
def test_the_state_of_an_error_is_named(threads, bad):
    model = ts.models.quadruped()
    q = model.random(0, (2000,))
    q[bad, 3:7] = 0.0
    rest = np.zeros(model.nv)
    with pytest.raises(ValueError, match=rf"^q has a quaternion of length 0 .* in state {bad} of the batch"):
        ts.inverse_dynamics(model, q, rest, rest, threads=threads)
    with pytest.raises(ValueError, match=r"in state 0 of the batch"):
        ts.inverse_dynamics(model, np.zeros((1, model.nq)), rest, rest, threads=threads)


def test_users_code_runs_on_the_thread_of_the_caller():
    """It needs the interpreter lock: other threads would only wait for it."""
    seen = set()
    hinge = Hinge()
    hinge.call = lambda: seen.add(threading.get_ident())
    model = ts.ModelBuilder().add_body("link", joint=hinge, inertia=ts.Inertia.point(1.0, (0.3, 0, 0))).build()
    q = np.linspace(0, 1, 200)[:, None]
    expected = ts.gravity_forces(model, q)
    seen.clear()
    assert same_bits(ts.gravity_forces(model, q, threads="auto"), expected)
    assert seen == {threading.get_ident()}


def test_simulations_and_gradients_take_auto():
    q = ARM.random(0, (200,))
    given = {"steps": 5, "integrator": ts.BDF1(0.01)}
    one, many = ts.simulate(ARM, q, **given), ts.simulate(ARM, q, **given, threads="auto")
    assert same_bits(one.q, many.q)
    w = np.ones_like(one.q)
    assert helped(lambda: ts.simulate(ARM, q, **given, threads="auto"))
    assert helped(lambda: ts.adjoint(one, dloss_dq=w, parameters=False, threads="auto"))
    expected = ts.adjoint(one, dloss_dq=w, parameters=False)
    assert same_bits(ts.adjoint(one, dloss_dq=w, parameters=False, threads="auto"), expected)
    for threads in ("Auto", "", -1, 1.5, None):
        with pytest.raises(ValueError, match=r"^threads is .*, expected an integer, 1 or more, or 'auto' for at most"):
            ts.simulate(ARM, q, **given, threads=threads)


@pytest.mark.parametrize("kind", ["failures", "signals", "models", "policy", "every"])
def test_simulations_of_every_kind_are_the_same_on_two_threads(kind):
    rng, n, steps = np.random.default_rng(0), 400, 10
    q, v = ARM.random(rng, (n,)), rng.standard_normal((n, 7))
    u = rng.standard_normal((n, steps, 7))
    given = {"steps": steps, "integrator": ts.BDF1(0.01, substeps=1), "on_failure": "keep"}
    model = ARM
    if kind == "failures":
        u[::7, 4] = 1e12
        given["controls"] = u
    elif kind == "signals":
        name = ARM.joints[2].name
        given |= {"forces": [ts.JointSpring(name, stiffness=5.0)], "signals": [{"rest": u[..., :1]}]}
    elif kind == "models":
        model, q = [ARM.with_gravity((0, 0, -g)) for g in (1.6, 3.7, 9.8)], q[:, None]
        v = v[:, None]
    elif kind == "policy":
        given["controls"] = ts.Policy(lambda t, q, v: -1e-3 * v, lambda t, q, v: (np.zeros((7, 7)), -1e-3 * np.eye(7)))
    else:
        given |= {"every": 5, "controls": u}
    one, two = (ts.simulate(model, q, v, **given, threads=threads) for threads in (1, 2))
    for name in ("q", "v", "a", "substeps"):
        assert same_bits(getattr(one, name), getattr(two, name))
    assert one.failed == two.failed and bool(one.failed) == (kind == "failures")
    cost = ts.VelocityTarget()
    assert same_bits(tuple(ts.adjoint(two, cost, threads=2))[:3], tuple(ts.adjoint(one, cost))[:3])
    assert helped(lambda: ts.simulate(model, q, v, **given, threads=2))
    assert helped(lambda: ts.adjoint(one, cost, threads=2))
