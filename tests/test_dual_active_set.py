"""The quadratic programs of hard contact (core/linear/dual_active_set.hpp), against DAQP and their own conditions."""

import daqp
import numpy as np
import pytest

from torsor import _core
from torsor._core import ProgramStatus

EQUAL = 5  # of DAQP: the row is an equality
# Of a solution, relative to the sizes of its terms: active rows whose matrix has a condition of 1e6 leave 1e-10, and
# random ones are sometimes worse. The oracle's default tolerances are no better.
CLOSE = 1e-8


def solve(H, f, A, b, equalities=0, iterations=1000):
    status, x, a = _core.solve_program(H.ravel(), f, A.ravel(), b, equalities, iterations)
    return status, np.array(x), np.array(a)


def oracle(H, f, A, b, equalities=0):
    upper, sense = np.full(len(b), 1e30), np.zeros(len(b), np.int32)
    upper[:equalities], sense[:equalities] = b[:equalities], EQUAL
    x, _, flag, _ = daqp.solve(H, f, A, upper, b, sense)
    return flag > 0, x


def miss(H, f, A, b, equalities, x, a):
    """By how much the conditions of a solution are not met."""
    w = A @ x - b
    size = 1.0 + np.abs(f).max() + np.abs(A.T * a).sum(axis=1).max()
    parts = [np.abs(H @ x + f - A.T @ a) / size, np.abs(w[:equalities]), -w[equalities:], -a[equalities:]]
    parts.append(np.abs(a * w) / (1.0 + np.abs(a).max(initial=0.0)))
    return max(float(p.max(initial=0.0)) for p in parts) / (1.0 + np.abs(x).max())


def random_program(rng, kind):
    n, m = int(rng.integers(1, 12)), int(rng.integers(1, 25))
    equalities = int(rng.integers(0, min(n, m) + 1)) if rng.random() < 0.4 else 0
    B = rng.normal(size=(n, n))
    H, f = B @ B.T + 10.0 ** rng.integers(-3, 1) * np.eye(n), rng.normal(size=n) * 10.0 ** rng.integers(-2, 3)
    A, b = rng.normal(size=(m, n)), rng.normal(size=m) - rng.random()
    if kind == "repeated" and m > 2:  # rows that are multiples of others, the looser ones of which are redundant
        half = m // 2
        A[half:] = A[rng.integers(0, half, m - half)] * rng.choice([0.5, 1.0, 2.0], size=(m - half, 1))
        b[half:] = -np.abs(b[half:]) - 3.0
    elif kind == "integers":  # rows that depend on each other, and rows of zeros
        A, b = rng.integers(-1, 2, size=(m, n)).astype(float), rng.integers(-3, 1, size=m).astype(float)
    elif kind == "vertex":  # all rows meet in one point
        b = A @ rng.normal(size=n)
    return H, f, A, b, equalities


@pytest.mark.parametrize("kind", ["any", "repeated", "integers", "vertex"])
def test_random_programs(kind):
    rng = np.random.default_rng(7)
    solved = 0
    for _ in range(1500):
        given = random_program(rng, kind)
        status, x, a = solve(*given)
        feasible, expected = oracle(*given)
        assert status == (ProgramStatus.solved if feasible else ProgramStatus.infeasible)
        if not feasible:
            continue
        solved += 1
        assert miss(*given, x, a) < CLOSE
        assert np.abs(x - expected).max() < 1e-6 * (1.0 + np.abs(expected).max())  # the oracle's own tolerance
    assert solved > 500


def test_four_feet():
    """A weight on four legs: of four rows that hold three motions, one has no multiplier."""
    x, y = np.array([1.0, 1.0, -1.0, -1.0]), np.array([1.0, -1.0, 1.0, -1.0])
    A = np.stack([np.ones(4), x, y], axis=1)
    status, v, a = solve(np.eye(3), np.array([1.0, 0.2, -0.1]), A, np.zeros(4))
    assert status == ProgramStatus.solved
    np.testing.assert_allclose(v, 0.0, atol=1e-15)
    np.testing.assert_allclose(A.T @ a, [1.0, 0.2, -0.1], atol=1e-15)
    assert np.count_nonzero(a) == 3 and (a >= 0).all()


def test_equal_rows_count_once():
    A = np.tile([[1.0, 0.0]], (5, 1))
    status, x, a = solve(np.eye(2), np.array([0.0, 3.0]), A, np.array([1.0, 1.0, 1.0, 0.5, 2.0]))
    assert status == ProgramStatus.solved
    np.testing.assert_allclose(x, [2.0, -3.0], atol=1e-15)
    np.testing.assert_allclose(a.sum(), 2.0, atol=1e-15)


def test_contradictions():
    one = np.array([[1.0], [-1.0]])
    assert solve(np.eye(1), np.zeros(1), one, np.array([1.0, 0.5]))[0] == ProgramStatus.infeasible
    assert solve(np.eye(1), np.zeros(1), one, np.array([1.0, -2.0]))[0] == ProgramStatus.solved
    assert solve(np.eye(1), np.zeros(1), one, np.array([1.0, 0.5]), 2)[0] == ProgramStatus.infeasible
    assert solve(np.eye(1), np.zeros(1), one, np.array([1.0, -1.0]), 2)[0] == ProgramStatus.solved
    assert solve(np.eye(1), np.zeros(1), np.zeros((1, 1)), np.array([1.0]))[0] == ProgramStatus.infeasible
    assert solve(np.eye(1), np.zeros(1), np.zeros((1, 1)), np.array([-1.0]))[0] == ProgramStatus.solved


def test_what_is_not_convex_or_not_finite():
    row = np.ones((1, 2))
    assert solve(np.diag([1.0, -1.0]), np.zeros(2), row, np.ones(1))[0] == ProgramStatus.not_convex
    assert solve(np.eye(2), np.array([np.nan, 0.0]), row, np.ones(1))[0] == ProgramStatus.not_convex
    assert solve(np.eye(2), np.zeros(2), row, np.array([np.nan]))[0] == ProgramStatus.not_convex


def test_iterations_are_limited():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(20, 10))
    assert solve(np.eye(10), rng.normal(size=10), A, np.ones(20) * 0.1, 0, 3)[0] == ProgramStatus.exhausted
    with pytest.raises(ValueError, match="wrong length"):
        _core.solve_program([1.0], [0.0, 0.0], [], [], 0, 10)
