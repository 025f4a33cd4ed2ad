"""Large results lie in memory that is kept for later ones. They behave as any array, in threads and forks too."""

import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from compare import arrays_of
from functions import FUNCTIONS
from population import sweep
from test_calls import MODEL

import torsor as ts

LIMIT = 1 << 28  # bytes that are kept at most
ARM = ts.models.arm7()  # its mass matrices have 392 bytes
Q = ARM.random(0, (3200,))


def large(states=1000, seed=0):
    """Mass matrices of states from number `seed` on, above 64 kB."""
    return ts.mass_matrix(ARM, Q[seed : seed + states])


def address(array):
    return array.__array_interface__["data"][0]


def test_large_results_are_ordinary_arrays():
    ts.release_memory()
    one = large()
    assert type(one) is np.ndarray and one.dtype == np.float64 and one.shape == (1000, 7, 7)
    assert one.flags.c_contiguous and one.flags.aligned and one.flags.writeable and one.flags.behaved
    assert address(one) % 64 == 0
    assert type(one.base).__name__ == "PyCapsule"  # the block; that is all that differs from other arrays
    with pytest.raises(ValueError, match="resize"):
        one.resize(10)
    again = pickle.loads(pickle.dumps(one))
    assert again.tobytes() == one.tobytes()
    one += 1.0
    assert np.array_equal(one, again + 1.0)
    assert large(10).base is None and large(10).flags.owndata  # small ones are NumPy's


def test_memory_is_used_again_when_nothing_refers_to_it():
    ts.release_memory()
    one = large()
    at, values = address(one), one.copy()
    del one
    gc.collect()
    two = large()
    assert address(two) == at and np.array_equal(two, values)
    view = two[5:7].T
    del two
    three = large()
    assert address(three) != at
    assert np.array_equal(view, values[5:7].T)
    del view
    assert address(large()) == at


def test_results_that_live_share_no_memory():
    ts.release_memory()
    alive = [large(1000 + 10 * (k % 4), seed=k) for k in range(20)]
    expected = [a.copy() for a in alive]
    for k in range(0, 20, 3):
        alive[k] = large(1000, seed=100 + k)
        expected[k] = alive[k].copy()
    for i, a in enumerate(alive):
        assert np.array_equal(a, expected[i])
        assert not any(np.may_share_memory(a, b) for b in alive[:i])
    record = ts.inverse_dynamics_derivatives(ARM, Q[:1000], Q[:1000], Q[:1000])
    assert not np.may_share_memory(record.dtau_dq, record.dtau_dv)


# Of one point, a result is a view of that of a list of points.
WHOLE = [name for name, f in FUNCTIONS.items() if not f.simulates and not name.endswith(".one")]


@pytest.mark.parametrize("name", sweep(WHOLE, 4))
def test_kernels_write_all_of_their_results(name):
    """What is left in the memory of earlier results must not show: everything in it is NaN."""
    f = FUNCTIONS[name]
    given = f.arguments(MODEL, (60 if f.finite else 1500,))

    def arrays():
        return [x for x in arrays_of(f(MODEL, *given)) if x.size]

    def addresses(results):
        return {address(x) for x in results if x.nbytes >= 1 << 16 and type(x.base).__name__ == "PyCapsule"}

    ts.release_memory()
    first = arrays()
    expected, at = [x.tobytes() for x in first], addresses(first)
    assert at or max(x.nbytes for x in first) < 1 << 16 or "..." in f.gives
    while first:
        x = first.pop()
        x.fill(np.nan)
        del x
    again = arrays()
    assert [x.tobytes() for x in again] == expected
    assert addresses(again) == at


def test_memory_is_given_back_by_a_call():
    ts.release_memory()
    assert ts.release_memory() == 0
    one = large()
    assert ts.release_memory() == 0  # in use
    size = one.nbytes
    del one
    assert size <= ts.release_memory() <= 1.2 * size
    assert ts.release_memory() == 0


def test_no_more_is_kept_than_the_limit_and_the_oldest_goes_first():
    ts.release_memory()
    humanoid = ts.models.humanoid()
    states = 1 << 11  # 22 MB
    q = np.broadcast_to(humanoid.neutral, (states, humanoid.nq))
    alive = [ts.mass_matrix(humanoid, q) for _ in range(14)]
    assert sum(a.nbytes for a in alive) > 1.1 * LIMIT
    addresses = [address(a) for a in alive]
    while alive:
        del alive[0]
    again = [ts.mass_matrix(humanoid, q) for _ in range(8)]
    assert not {address(a) for a in again} & set(addresses[:2])
    assert {address(a) for a in again} == set(addresses[-8:])
    del again
    assert LIMIT // 2 < ts.release_memory() <= LIMIT


PRESSURE = """
import resource
import numpy as np, torsor as ts
humanoid = ts.models.humanoid()
def matrices(megabytes):
    q = np.broadcast_to(humanoid.neutral, (megabytes * 10**6 // (8 * humanoid.nv**2), humanoid.nq))
    return ts.mass_matrix(humanoid, q)
small = matrices(20)
kept = [matrices(20) for _ in range(8)]
del kept
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 40 * 10**6, used + 40 * 10**6))
one = matrices(120)
assert np.array_equal(one[:10], small[:10])
try:
    matrices(1000)
except MemoryError as error:
    print("too much:", error)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="needs the limits of Linux, and an allocator that returns when there is no memory",
)
def test_memory_is_given_back_before_an_allocation_fails():
    done = subprocess.run([sys.executable, "-c", PRESSURE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "too much: Unable to allocate" in done.stdout


def hammer(seed, rounds, failures):
    """Makes and drops results of many sizes, and looks whether they stay what they were."""
    rng = np.random.default_rng(seed)
    alive = []
    for _ in range(rounds):
        states = int(rng.integers(200, 3000))
        result = large(states, seed=seed)
        alive.append((result, result[::17].copy()))
        if len(alive) > 5:
            result, expected = alive.pop(int(rng.integers(len(alive))))
            if not np.array_equal(result[::17], expected):
                failures.append(seed)
            result.fill(np.nan)
        if rng.random() < 0.02:
            ts.release_memory()


def test_threads_do_not_disturb_each_other():
    failures = []
    threads = [threading.Thread(target=hammer, args=(k, 60, failures)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_child_computes_while_threads_of_the_parent_do():
    failures, stop = [], threading.Event()

    def work(seed):
        while not stop.is_set():
            hammer(seed, 5, failures)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    try:
        mine = large(seed=50)
        expected = mine.copy()
        for _ in range(20):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # Python's word against forks in threads
                child = os.fork()
            if child == 0:
                found = []
                hammer(7, 10, found)
                good = not found and np.array_equal(large(seed=50), expected)
                mine.fill(0.0)  # its own copy
                os._exit(0 if good else 1)
            assert os.waitpid(child, 0)[1] == 0
        assert np.array_equal(mine, expected)
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not failures


@pytest.mark.parametrize("method", [m for m in ("fork", "spawn") if m in multiprocessing.get_all_start_methods()])
def test_results_travel_between_processes(method):
    ts.release_memory()
    expected = [large(seed=k) for k in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with multiprocessing.get_context(method).Pool(2) as pool:
            results = pool.starmap(ts.mass_matrix, [(ARM, Q[k : k + 1000]) for k in range(4)])
    for a, b in zip(results, expected, strict=True):
        assert np.array_equal(a, b)


PEAK = """
import resource
import sys
import numpy as np, torsor as ts
arm, n, call, steps = ts.models.arm7(), 20_000, sys.argv[1], int(sys.argv[2])
q = np.random.default_rng(0).uniform(-1, 1, (n, arm.nq))
joint = [next(j.name for j in arm.joints if j.nv)]
options = {"callback": {"callback": lambda *_: None}}
options["policy"] = {"controls": lambda t, q, v: -v[..., :1], "actuation": joint}
def run(q, steps):
    trajectory = ts.simulate(
        arm, q, steps=steps, every=steps, integrator=ts.SymplecticEuler(1e-3), **options.get(call, {})
    )
    if call == "adjoint":
        ts.adjoint(trajectory, dloss_dv=np.ones(trajectory.v[:, 0].shape), parameters=False)
    return trajectory
run(q[:64], 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
trajectory = run(q, steps)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of the memory in kB, as Linux gives it")
@pytest.mark.parametrize(
    ("call", "by_step"), [("plain", 0.08), ("callback", 0.08), ("policy", 0.08 + 0.16), ("adjoint", 0.08 + 1.12)]
)
def test_memory_does_not_grow_with_the_steps_between_rows(call, by_step):
    """Rows of one step of 20 000 trajectories have 3.4 MB. What steps may add is `by_step` (MB), of which there are
    rows for all: numbers of substeps, controls of a policy, gradients of controls; and the steps of those trajectories
    that run together, 4096 at most: 14 MB, and 33 MB with their gradients."""
    used = {}
    for steps in (2, 22):
        done = subprocess.run([sys.executable, "-c", PEAK, call, str(steps)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        used[steps] = int(done.stdout) / 1000
    assert used[22] - used[2] < 20 * by_step + (40 if call == "adjoint" else 20)
