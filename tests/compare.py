"""How tests compare: numbers to some roundings, and bits."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import torsor as ts
from torsor import _core
from torsor.testing import complex_step


def close(x: Any, y: Any, tol: float = 1e-12, least: float = 1.0) -> None:
    """Agreement to `tol` of the largest entry, or of `least`: sums of some hundred products, each rounded."""
    assert np.shape(x) == np.shape(y)
    scale = max(least, np.abs(y).max(initial=0.0))
    np.testing.assert_allclose(np.divide(x, scale), np.divide(y, scale), rtol=0, atol=tol)


def close_each(x: Any, y: Any, tol: float = 1e-12) -> None:
    """Agreement of each entry by itself, to `tol` of it and of 1: a few roundings of numbers of size 1 to 100."""
    np.testing.assert_allclose(x, y, rtol=tol, atol=tol)


def to_within(tol: float, compare: Callable[..., None] = close, **more: Any) -> Callable[..., None]:
    """`close`, or `close_each`, with another tolerance by default."""

    def compared(x: Any, y: Any, tol: float = tol) -> None:
        compare(x, y, tol, **more)

    return compared


def conditioned(model: ts.Model, q: Any, free: Any = None, *, solutions: int = 1) -> float:
    """What so many solutions of systems with the mass matrix, one after the other, may lose against others in another
    order: its condition number in roundings, times four or more. With `free`, a mask, its rows and columns of these.

    Nothing else in such functions is so sensitive; the largest of a batch.
    """
    M = ts.mass_matrix(model, q)
    M = M if free is None else M[..., free, :][..., free]
    unit = 1e-15 if solutions == 1 else 1e-14
    return max(1e-12, unit * np.linalg.cond(M).max()) if M.size else 1e-12


def along_q(f: Callable[[np.ndarray], Any], model: ts.Model, q: np.ndarray) -> np.ndarray:
    """The derivative of f(q) in the tangent space, by complex steps."""
    return complex_step(lambda d: f(model.plus(q, d)), np.zeros(model.nv))


def differences(f: Callable[[np.ndarray], Any], x: Any, eps: float = 1e-3) -> np.ndarray:
    """The derivative of f at x, (*f(x).shape, *x.shape), by differences of fourth order."""
    x = np.asarray(x, dtype=float)
    columns = []
    for k in range(x.size):
        d = np.zeros(x.size)
        d[k] = eps
        d = d.reshape(x.shape)
        near, far = (f(x + d) - f(x - d)) / (2 * eps), (f(x + 2 * d) - f(x - 2 * d)) / (4 * eps)
        columns.append((4 * near - far) / 3)
    return np.stack(columns, axis=-1).reshape((*np.shape(columns[0]), *x.shape))


def arrays_of(result: Any) -> list[np.ndarray]:
    """All arrays in a result, one after the other: of an array, a record, dicts in a record, a trajectory."""
    if isinstance(result, ts.Trajectory):
        return [result.q, result.v, result.a]
    if isinstance(result, Mapping):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in arrays_of(part)]
    return [] if result is None else [np.asarray(result)]


def same_bits(x: Any, y: Any) -> bool:
    """Whether two results are equal in every bit that matters; NaN equals NaN."""
    x, y = arrays_of(x), arrays_of(y)
    return len(x) == len(y) > 0 and all(
        a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
        for a, b in zip(x, y, strict=True)
    )


def helped(call: Callable[[], Any], attempts: int = 20) -> bool:
    """Whether another thread computes during a call, where there are two cores. It may come too late on a machine that
    does other things: then the call is repeated."""

    def others() -> float:
        return time.process_time() - time.thread_time()

    for _ in range(attempts):
        before = others()
        call()
        if others() - before > 2e-5:
            return True
    return _core.cores == 1
