"""The last results of a function are used again when nobody holds them, and never otherwise."""

import ctypes
import gc
import os
import pickle
import sys
import threading
import tracemalloc
import weakref

import numpy as np
import pytest
from test_calls import arguments, each_function, same

import torsor as ts

ARM = ts.models.arm7()
Q, V, A = np.random.default_rng(0).standard_normal((3, 200, ARM.nv))


@pytest.fixture(autouse=True)
def nothing_is_kept():
    ts.release_memory()


def torques(k=0):
    return ts.inverse_dynamics(ARM, Q[k], V[k], A[k])


def matrices(k=0):
    return ts.inverse_dynamics_derivatives(ARM, Q[k], V[k], A[k])


def address(array):
    return array.__array_interface__["data"][0]


def leaves(result):
    return [x for x in (result if isinstance(result, tuple) else [result]) if x is not None]


def copies(result):
    return [x.copy() for x in leaves(result)]


@each_function
def test_results_that_are_held_stay_what_they_are(function):
    args = [arguments(function)] + [[0.5 * x if isinstance(x, np.ndarray) else x for x in arguments(function)]] * 3
    results = [function(*a) for a in args]
    expected = [copies(x) for x in results]
    for a in args * 2:
        function(*a)
    for result, values in zip(results, expected, strict=True):
        assert [x.tobytes() for x in leaves(result)] == [x.tobytes() for x in values]
    all_of_them = [x for result in results for x in leaves(result)]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(all_of_them) for b in all_of_them[:i] if a.size)


@each_function
def test_nothing_of_an_earlier_result_shows(function):
    args = arguments(function)
    first = function(*args)
    expected = copies(first)
    at = {address(x) for x in leaves(first)}
    for x in leaves(first):
        x.fill(np.nan)
    del first, x
    again = function(*args)
    assert {address(x) for x in leaves(again)} == at
    assert [x.tobytes() for x in leaves(again)] == [x.tobytes() for x in expected]


@pytest.mark.parametrize("make", [torques, matrices])
def test_a_loop_that_holds_its_last_result_needs_two(make):
    seen = set()
    for k in range(20):
        result = make(k)
        seen.add(id(leaves(result)[0]))
    assert len(seen) == 2
    unpacked = set()
    for k in range(20):
        first, *others = leaves(make(k))
        unpacked.add(id(first))
    assert len(unpacked) <= 3 and len(others) == len(leaves(result)) - 1


HOLDS = {
    "view": lambda x: x[1:],
    "transpose": lambda x: x.T,
    "reshape": lambda x: x.reshape(-1),
    "memoryview": memoryview,
    "iterator": iter,
    "flat": lambda x: x.flat,
    "flags": lambda x: x.flags,
    "ctypes": lambda x: x.ctypes,
    "frombuffer": lambda x: np.frombuffer(x),
    "dlpack": lambda x: np.from_dlpack(x),
    "ctypes buffer": lambda x: (ctypes.c_double * x.size).from_buffer(x),
    "closure": lambda x: lambda: x,
    "list": lambda x: [x],
    "method": lambda x: x.sum,
}


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
@pytest.mark.parametrize("make", [torques, matrices])
@pytest.mark.parametrize("entry", [0, -1])
def test_whatever_refers_to_a_result_protects_it(make, hold, entry):
    result = make()
    x = leaves(result)[entry]
    at, values = address(x), x.tobytes()
    holder = hold(x)
    del result, x
    later = [make(k) for k in range(1, 5)]
    assert at not in {address(y) for z in later for y in leaves(z)}
    assert ctypes.string_at(at, len(values)) == values
    del holder


def test_a_record_that_is_held_protects_its_arrays_and_an_array_its_record():
    record = matrices()
    expected = copies(record)
    for k in range(1, 4):
        matrices(k)
    assert all(np.array_equal(x, y) for x, y in zip(record, expected, strict=True))
    last = record.dtau_da
    del record
    for k in range(1, 4):
        assert all(y is not last and not np.shares_memory(y, last) for y in matrices(k))
    assert np.array_equal(last, expected[2])


def test_a_weak_reference_protects_a_result():
    x = torques()
    at, gone = address(x), weakref.ref(x)
    del x
    later = [torques(1), torques(2)]  # the second one takes its place
    assert at not in {address(y) for y in later} or gone() is None
    assert all(y is not gone() for y in later)
    torques(3)
    assert gone() is None


def test_a_weak_reference_may_call_back():
    """What is dropped to make room calls a function that keeps results itself."""
    calls = []
    for _ in range(3):
        held = []
        for k in range(6):
            x = torques(k)
            held.append(weakref.ref(x, lambda _, k=k: calls.append((k, torques(k)))))
            matrices(k)
        del x
        ts.release_memory()
    assert len(calls) >= 12
    for k, x in calls:
        assert np.array_equal(x, ts.inverse_dynamics(ARM, Q[k], V[k], A[k], out=np.empty(ARM.nv)))


CHANGES = {
    "shape": lambda x: setattr(x, "shape", (1, x.size)),
    "dtype": lambda x: setattr(x, "dtype", np.int64),
    "byte order": lambda x: setattr(x, "dtype", x.dtype.newbyteorder()),
    "read-only": lambda x: x.setflags(write=False),
    "resized": lambda x: x.resize(x.size + 1, refcheck=False),
    "smaller": lambda x: x.resize(1, refcheck=False),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("make", [torques, matrices])
def test_a_result_that_was_changed_is_not_used_again(make, change):
    expected = copies(make())
    for _ in range(3):
        result = make()
        change(leaves(result)[-1])
        del result
        again = make()
        for x, y in zip(leaves(again), expected, strict=True):
            assert x.flags.writeable and x.flags.c_contiguous and x.flags.owndata and x.base is None
            assert x.dtype == np.float64 and x.dtype.isnative and x.shape == y.shape and np.array_equal(x, y)
        del again, x


def test_sizes_and_kinds_of_results_do_not_mix():
    other = ts.models.chain(3)
    batch = np.zeros((4, 3))
    with ts.testing.complex_inputs():
        for _ in range(3):
            assert torques().shape == (7,)
            assert ts.inverse_dynamics(other, np.zeros(3), np.zeros(3), np.zeros(3)).shape == (3,)
            assert ts.inverse_dynamics(other, batch, batch, batch).shape == (4, 3)
            assert ts.inverse_dynamics(other, batch[None], batch[None], batch[None]).shape == (1, 4, 3)
            assert ts.inverse_dynamics(other, np.zeros(3, complex), np.zeros(3), np.zeros(3)).dtype == np.complex128
            assert ts.inverse_dynamics(other, np.zeros((0, 3)), batch[:0], batch[:0]).shape == (0, 3)


def test_outputs_that_are_not_requested_stay_none():
    for _ in range(3):
        assert ts.inverse_dynamics_derivatives(ARM, Q[0], V[0], A[0], outputs=["dtau_dq"])[1:] == (None, None)
        assert all(x is not None for x in matrices())
        only = ts.inverse_dynamics_derivatives(ARM, Q[0], V[0], A[0], outputs=["dtau_dv"])
        assert only.dtau_dq is None and np.array_equal(only.dtau_dv, matrices().dtau_dv)


def test_arrays_that_are_given_are_the_user_s():
    out = np.empty(ARM.nv)
    assert ts.inverse_dynamics(ARM, Q[0], V[0], A[0], out=out) is out
    values = out.copy()
    gone = weakref.ref(out)
    for k in range(1, 5):
        torques(k)
    assert np.array_equal(out, values)
    del out
    assert gone() is None  # nothing was kept
    mine = torques(5)
    assert ts.inverse_dynamics(ARM, Q[0], V[0], A[0], out=mine) is mine  # a result given back
    assert np.array_equal(mine, values)
    for k in range(1, 5):
        torques(k)
    assert np.array_equal(mine, values)


def test_a_result_may_be_an_input_of_the_next_call():
    x = np.zeros(ARM.nv)
    expected = x
    for k in range(10):
        x = ts.inverse_dynamics(ARM, Q[k], V[k], x)
        expected = ts.inverse_dynamics(ARM, Q[k], V[k], expected.copy(), out=np.empty(ARM.nv))
        assert np.array_equal(x, expected)
        x = ts.inverse_dynamics(ARM, x[::-1], V[k], x)  # converted
        expected = ts.inverse_dynamics(ARM, expected[::-1].copy(), V[k], expected.copy(), out=np.empty(ARM.nv))
        assert np.array_equal(x, expected)


def test_large_results_are_not_kept():
    q = np.zeros((1 << 10, 7))  # 57 kB
    x = ts.gravity_forces(ARM, q)
    assert ts.release_memory() == 0 and x.base is None  # held
    del x
    gone = weakref.ref(ts.gravity_forces(ARM, q))
    assert gone() is not None
    ts.release_memory()
    assert gone() is None
    record = ts.inverse_dynamics_derivatives(ARM, q[:100], q[:100], q[:100])  # 3 x 39 kB
    gone = weakref.ref(record.dtau_dq)
    del record
    assert gone() is None


def test_release_memory_drops_and_counts_what_nobody_holds():
    for k in range(3):
        torques(k)
        matrices(k)
    assert ts.release_memory() == 8 * (7 + 3 * 49)
    assert ts.release_memory() == 0
    held, also = torques(), matrices().dtau_dv
    assert ts.release_memory() == 0
    expected = held.copy(), also.copy()
    for k in range(4):
        torques(k)
        matrices(k)
    assert np.array_equal(held, expected[0]) and np.array_equal(also, expected[1])
    assert ts.release_memory() == 8 * (7 + 3 * 49)


def test_nothing_leaks():
    def work():
        for k in range(50):
            torques(k)
            matrices(k)
            kept.append(torques(k))
            with pytest.raises(ValueError, match="shape"):
                ts.inverse_dynamics(ARM, Q[k][:3], V[k], A[k])
        kept.clear()
        ts.release_memory()

    kept = []
    work()
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10):
            work()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 2000
    finally:
        tracemalloc.stop()
    counts = sys.getrefcount(None), sys.getrefcount(type(matrices()))
    for k in range(200):
        ts.inverse_dynamics_derivatives(ARM, Q[k % 9], V[0], A[0], outputs=["dtau_dq"])
    after = sys.getrefcount(None), sys.getrefcount(type(matrices()))
    assert all(abs(a - b) < 50 for a, b in zip(counts, after, strict=True))


def test_an_exception_in_the_middle_leaves_what_is_kept_usable():
    quadruped = ts.models.quadruped()
    q, rest = quadruped.random(0), np.zeros(quadruped.nv)
    zero = q.copy()
    zero[3:7] = 0.0
    expected = ts.inverse_dynamics(quadruped, q, rest, rest).copy()
    held = ts.inverse_dynamics(quadruped, q, rest, rest)
    for _ in range(5):
        with pytest.raises(ValueError, match="quaternion"):
            ts.inverse_dynamics(quadruped, zero, rest, rest)
        assert np.array_equal(ts.inverse_dynamics(quadruped, q, rest, rest), expected)
    assert np.array_equal(held, expected)


class Hinge(ts.CustomJoint):
    """A hinge about z, in whose pose a function is called."""

    dofs = 1
    call = staticmethod(lambda: None)

    def T(self, q):
        self.call()
        c, s = np.cos(q[0]), np.sin(q[0])
        return np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])

    def S(self, q):
        return np.eye(6)[:, 2:3] + 0 * q[0]

    def dS(self, q):
        return np.zeros((6, 1, 1)) + 0 * q[0]

    def d2S(self, q):
        return np.zeros((6, 1, 1, 1)) + 0 * q[0]


def test_a_joint_that_calls_back_gets_results_of_its_own():
    hinge = Hinge()
    builder = ts.ModelBuilder()
    builder.add_body("link", joint=hinge, inertia=ts.Inertia.point(1.0, (0.3, 0, 0.1)))
    model, plain = builder.build(), ts.models.chain(1)
    q, v, a = np.ones(1), np.ones(1), np.ones(1)
    inside = []
    expected = ts.inverse_dynamics(model, q, v, a).copy(), copies(ts.inverse_dynamics_derivatives(model, q, v, a))
    within = ts.inverse_dynamics(plain, q, v, a).copy()

    def call():  # the functions that are running, with results of the same shapes, some of which are held
        inside.append(ts.inverse_dynamics(plain, q, v, a))
        ts.inverse_dynamics(plain, q + 1, v, a)
        ts.inverse_dynamics_derivatives(plain, q + 1, v, a)
        ts.release_memory()

    hinge.call = call
    outside = [ts.inverse_dynamics(model, q, v, a) for _ in range(4)]
    records = [ts.inverse_dynamics_derivatives(model, q, v, a) for _ in range(4)]
    assert len(inside) >= 8 and all(np.array_equal(x, within) for x in inside)
    assert all(np.array_equal(x, expected[0]) for x in outside)
    assert all(np.array_equal(x, y) for r in records for x, y in zip(r, expected[1], strict=True))

    hinge.call = lambda: 1 / 0
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            ts.inverse_dynamics(model, q, v, a)
    hinge.call = lambda: None
    assert np.array_equal(ts.inverse_dynamics(model, q, v, a), expected[0])
    assert all(np.array_equal(x, expected[0]) for x in outside)


def test_threads_do_not_take_each_other_s_results():
    """Of a model above 64 bodies the interpreter lock is released while a result is written."""
    long = ts.models.chain(70)
    rng = np.random.default_rng(1)
    states = rng.standard_normal((6, 3, 70))
    out = [ts.forward_dynamics(long, *s, out=np.empty(70)).copy() for s in states]
    failures = []

    def work(i):
        held = []
        for k in range(300):
            x = ts.forward_dynamics(long, *states[(i + k) % 6])
            if not np.array_equal(x, out[(i + k) % 6]):
                failures.append((i, k))
            if k % 7 == 0:
                held.append((x, (i + k) % 6))
            if k % 50 == 0:
                ts.release_memory()
        failures.extend((i, j) for x, j in held if not np.array_equal(x, out[j]))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_results_of_its_own():
    mine = torques()
    expected = mine.copy()
    torques(1)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            pairs = [(torques(k), ts.inverse_dynamics(ARM, Q[k], V[k], A[k], out=np.empty(7))) for k in range(9)]
            good = all(np.array_equal(x, y) for x, y in pairs)
            mine.fill(0.0)
            os._exit(0 if good else 1)
        torques(2)
        assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(mine, expected)


def test_results_are_pickled_and_collected_as_any_other():
    record = matrices()
    again = pickle.loads(pickle.dumps(record))
    assert same(record, again)
    del record
    gc.collect()
    assert same(matrices(), again)
