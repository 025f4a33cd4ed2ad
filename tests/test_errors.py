"""It does not break: what `test_contract.py` does not show, because only some functions have it."""

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from compare import same_bits
from functions import FUNCTIONS, VARIANTS
from population import mixed_tree

import torsor as ts
from torsor import testing

MODEL = mixed_tree()


def test_messages_say_why():
    q, v = MODEL.neutral, np.zeros(MODEL.nv)
    with pytest.raises(
        ValueError, match=r"v has shape \(19,\), expected \(..., 17\): model.nv is 17; nq is 19 and nv is 17"
    ):
        ts.inverse_dynamics(MODEL, q, q, v)
    with pytest.raises(ValueError, match=r"because 'base' is a Free joint"):
        ts.inverse_dynamics(MODEL, v, v, v)
    with pytest.raises(ValueError, match=r"f_ext has shape \(10, 5\), expected \(..., 10, 6\): model.nbodies is 10"):
        ts.inverse_dynamics(MODEL, q, v, v, f_ext=np.zeros((10, 5)))


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_matrices_and_memory_maps(tmp_path):
    f = VARIANTS["inverse_dynamics-alone"]
    arrays = f.arguments(MODEL, (11,))
    expected = f(MODEL, *arrays)
    assert same_bits(f(MODEL, *map(np.matrix, arrays)), expected)
    maps = []
    for k, x in enumerate(arrays):
        maps.append(np.memmap(tmp_path / f"{k}.bin", dtype=float, mode="w+", shape=x.shape))
        maps[-1][...] = x
    assert same_bits(f(MODEL, *maps), expected)
    out = np.memmap(tmp_path / "out.bin", dtype=float, mode="w+", shape=expected.shape)
    assert f(MODEL, *maps, out=out) is out
    assert same_bits(np.array(out), expected)


MASKED = "is a masked array, expected a plain one, because masks are ignored"


def test_masked_arrays_elsewhere():
    three, number, six = np.ma.ones(3), np.ma.ones(()), np.ma.ones(6)
    model = ts.models.acrobot()
    q = np.zeros(model.nq)
    run = ts.simulate(model, q, steps=1, integrator=ts.BDF1(0.1), controls=q)
    step = {"steps": 1, "integrator": ts.BDF1(0.1)}
    builder = ts.ModelBuilder()
    for call in (
        lambda: ts.SE3(p=three),
        lambda: ts.Inertia(1.0, three, np.eye(3)),
        lambda: ts.Revolute(three),
        lambda: ts.ModelBuilder(gravity=three),
        lambda: builder.add_body("a", joint=ts.Translational(), position_limits=(three, three + 1)),
        lambda: builder.add_body("a", joint=ts.Translational(), effort_limits=three),
        lambda: model.lock({"elbow": number}),
        lambda: ts.spatial.hat(three),
        lambda: ts.JointSpring(None, three),
        lambda: ts.JointSpring(None, 1.0, three),
        lambda: ts.JointLimits(None, 1.0, lower=three),
        lambda: ts.JointTorque(None, three),
        lambda: ts.BodyWrench("a", six),
        lambda: ts.GroundContact("a", three, 1.0),
        lambda: ts.GroundContact("a", (0, 0, 0), number),
        lambda: ts.GroundContact("a", (0, 0, 0), 1.0, normal=three),
        lambda: ts.simulate(model, np.ma.array(q), **step),
        lambda: ts.simulate(model, q, np.ma.array(q), **step),
        lambda: ts.simulate(model, q, controls=np.ma.array(q), **step),
        lambda: ts.simulate(model, q, controls=lambda t: np.ma.array(q), **step),
        lambda: ts.simulate(model, q, steps=1, integrator=ts.Adaptive(0.1), controls=lambda t: np.ma.array(q)),
        lambda: ts.simulate(
            model, q, forces=[ts.JointDamping(None, 1.0)], parameters=[{"damping": np.ma.ones(2)}], **step
        ),
        lambda: ts.adjoint(run, dloss_dq=np.ma.array(q)),
        lambda: ts.adjoint(run, dloss_du=np.ma.array(q[None])),
        lambda: ts.PointTarget("lower", three, (0, 0, 0)),
        lambda: ts.PointTarget("lower", (0, 0, 0), three),
        lambda: ts.VelocityTarget(np.ma.array(q)),
        lambda: ts.PositionTarget(np.ma.array(q)),
        lambda: ts.ControlEffort(np.ma.array(q)),
        lambda: ts.VelocityTarget().evaluate(model, q, np.ma.array(q)),
        lambda: ts.step_derivatives(model, ts.BDF1(0.1), q, np.ma.array(q)),
        lambda: ts.generalized_forces(model, [], q, q, t=number),
        lambda: ts.hybrid_dynamics(model, q, q, a=q, tau=q, prescribed=np.ma.array([True, False])),
        lambda: ts.point_positions(model, q, "lower", three),
        lambda: ts.point_hessian(model, q, "lower", three),
        lambda: ts.Revolute().Sdot([0.0], np.ma.ones(1)),
        lambda: ts.SphericalEuler().det_S(three),
        lambda: ts.SphericalEuler().from_rotation(np.ma.array(np.eye(3))),
        lambda: ts.SphericalEuler().switch("XYX", (0.1, 0.2, 0.3), three),
    ):
        with pytest.raises(TypeError, match=MASKED):
            call()


def test_zero_quaternions_elsewhere():
    model = ts.ModelBuilder().add_body("a", joint=ts.Free(), inertia=ts.Inertia.sphere(mass=1.0, radius=0.1)).build()
    q, zero, v = model.neutral, np.zeros(7), np.zeros(6)
    steps = ts.Variational(0.01)
    message = "has a quaternion of length 0 at joint 'a'"
    for call in (
        lambda: ts.simulate(model, zero, steps=1, integrator=ts.BDF1(0.1)),
        lambda: ts.simulate(model, [q, zero], steps=1, integrator=ts.BDF1(0.1)),
        lambda: ts.step_derivatives(model, ts.BDF2(0.01), zero, v),
        lambda: ts.step_derivatives(model, ts.BDF2(0.01), q, v, previous=(zero, v)),
        lambda: ts.step_derivatives(model, steps, zero, v),
        lambda: ts.step_derivatives(model, steps, zero, p=v),
        lambda: ts.variational.discrete_euler_lagrange(model, steps, np.stack([q, zero])),
        lambda: ts.inverse_dynamics_derivatives(model, zero, v, v),
        lambda: ts.inverse_dynamics_hessians(model, zero, v, v),
        lambda: ts.forward_dynamics_jvp(model, zero, v, v, dq=v),
        lambda: ts.inverse_dynamics_vjp(model, zero, v, v, v),
        lambda: ts.generalized_forces(model, [ts.JointDamping(None, 1.0)], zero, v),
        lambda: ts.point_hessian(model, zero, "a", (0, 0, 0)),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match=r"q0 has a quaternion of length 0 at joint 'a' in state 1 of the batch"):
        ts.simulate(model, [q, zero], steps=1, integrator=ts.BDF1(0.1))
    with pytest.raises(ValueError, match="q has a quaternion of length 0, expected"):
        ts.Spherical().T(np.zeros(4))
    with testing.complex_inputs(), pytest.raises(ValueError, match=message):
        ts.forward_dynamics(model, zero + 0j, v, v)


# ---- arguments that are not arrays


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q: ts.jacobian(MODEL, q, "hand"), KeyError, "no body named 'hand'; bodies are 'base', 'arm'"),
        (
            lambda q: ts.jacobian(MODEL, q, "arm", frame="World"),
            ValueError,
            "frame is 'World', expected 'body', 'world'",
        ),
        (lambda q: ts.jacobian(MODEL, q, "arm", frame=None), ValueError, "frame is None"),
        (
            lambda q: ts.bias_forces(MODEL, q, q[:-2], f_ext_frame="World"),
            ValueError,
            "f_ext_frame is 'World', expected",
        ),
        (lambda q: ts.body_velocities(MODEL, q, q[:-2], frame=0), ValueError, "frame is 0"),
        (
            lambda q: ts.momentum(MODEL, q, q[:-2], about="base"),
            ValueError,
            "about is 'base', expected 'com' or 'world'",
        ),
        (lambda q: ts.point_positions(MODEL, q, "arm", [1, 2]), ValueError, r"points has shape \(2,\)"),
        (lambda q: ts.point_positions(MODEL, q, "arm", 3), ValueError, r"points has shape \(\)"),
        (
            lambda q: ts.point_positions(MODEL, q, ["arm"], [1, 2, 3]),
            ValueError,
            r"points has shape \(3,\), expected \(..., 1, 3\)",
        ),
        (
            lambda q: ts.point_positions(MODEL, q, ["arm", "base"], [[1, 2, 3]]),
            ValueError,
            r"expected \(..., 2, 3\)",
        ),
        (lambda q: ts.point_positions(MODEL, q, ["arm", "leg"], np.ones((2, 3))), KeyError, "no body named 'leg'"),
        (
            lambda q: ts.hybrid_dynamics(MODEL, q, q[:-2], prescribed="arm"),
            TypeError,
            r"prescribed is 'arm', .* \['arm'\]",
        ),
        (
            lambda q: ts.hybrid_dynamics(MODEL, q, q[:-2], prescribed=["leg"]),
            KeyError,
            "no joint named 'leg'",
        ),
        (
            lambda q: ts.hybrid_dynamics(MODEL, q, q[:-2], prescribed=[True]),
            TypeError,
            r"shape \(1,\), expected names",
        ),
        (lambda q: ts.hybrid_dynamics(MODEL, q, q[:-2], prescribed=np.ones(14)), TypeError, "dtype float64"),
        (lambda q: ts.hybrid_dynamics(MODEL, q, q[:-2], prescribed=None), TypeError, "dtype object"),
        (lambda q: ts.forward_dynamics(MODEL, q, None, q[:-2]), TypeError, "v is missing"),
        (
            lambda q: ts.mass_matrix_solve(MODEL, q, q[:-2], body_terms=np.arange(360.0).reshape(10, 6, 6)),
            ValueError,
            "body_terms are not symmetric",
        ),
        (
            lambda q: ts.mass_matrix_solve(MODEL, q, q[:-2], body_terms=np.zeros((7, 6, 6))),
            ValueError,
            r"body_terms has shape \(7, 6, 6\), expected \(..., 10, 6, 6\)",
        ),
    ],
)
def test_other_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(MODEL.neutral)


def test_asymmetric_body_terms_beside_nan():
    q, x, _, P = FUNCTIONS["mass_matrix_solve.terms"].arguments(MODEL, (3,))
    P[0] = np.nan
    P[1, 0, 0, 1] += 1
    with pytest.raises(ValueError, match="body_terms are not symmetric"):
        ts.mass_matrix_solve(MODEL, q, x, body_terms=P)


# ---- many processes, many states


def answer(queue, arrays):
    queue.put(FUNCTIONS["forward_dynamics"](MODEL, *arrays, threads=2))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_forks_while_threads_work():
    f = FUNCTIONS["forward_dynamics"]
    arrays = f.arguments(MODEL, (500,))
    expected = f(MODEL, *arrays, threads=2)
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            f(MODEL, *arrays, threads=2)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(5):
            queue = context.SimpleQueue()
            child = context.Process(target=answer, args=(queue, arrays))
            child.start()
            reader = ThreadPoolExecutor(1)
            result = reader.submit(queue.get)
            assert same_bits(result.result(timeout=60), expected)
            reader.shutdown()
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        busy.join()


MEMORY = """
import resource, sys, numpy as np, torsor as ts
n = 1_000_000
model = ts.models.pendulum()
q = v = tau = np.ones((n, 1))
ts.forward_dynamics(model, q[:1000], v[:1000], tau[:1000], threads=2)  # threads and their memory exist now
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before = peak()
a = ts.forward_dynamics(model, q, v, tau, threads=2)
assert peak() - before < a.nbytes + 4e6, peak() - before
out, before = np.zeros_like(a), peak()
ts.inverse_dynamics(model, q, v, a, out=out)
assert peak() - before < 4e6, peak() - before
"""


def test_memory_of_a_million_states_is_that_of_the_results(tmp_path):
    # 8 MB of results and no more than half of that beside them. A process of its own has a peak of its own; it starts
    # elsewhere, so that it finds the package where this process did.
    command = [sys.executable, "-c", MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_one_row_for_all_states_is_not_repeated_in_memory():
    model = ts.models.pendulum()
    q = np.zeros((1000, 1))
    f_ext = np.ones((1, 1, model.nbodies, 6))
    expected = ts.inverse_dynamics(model, q, [0.0], [0.0], f_ext=f_ext[0, 0])
    assert np.array_equal(ts.inverse_dynamics(model, q, [[0.0]], [[0.0]], f_ext=f_ext[0]), expected)
    assert ts.inverse_dynamics(model, q, [[0.0]], [[0.0]], f_ext=f_ext).shape == (1, 1000, 1)
    assert ts.inverse_dynamics(model, [[0.0]], [[0.0]], [[0.0]]).shape == (1, 1)
