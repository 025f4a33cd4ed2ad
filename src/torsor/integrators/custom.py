"""User-defined implicit integrators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import final

from torsor.integrators.base import Implicit, Table, stage_fractions


@final
@dataclass(frozen=True, init=False)
class CustomIntegrator(Implicit):
    """A diagonally implicit Runge-Kutta method given by its matrix.

    Steps, their derivatives and gradients of simulations are those of the built-in implicit integrators.

    Parameters
    ----------
    h : float
        Step size.
    A : sequence of rows
        The matrix of the method, lower triangular with a positive diagonal; zeros above the diagonal may be left out.
        Its last row sums to 1 and holds the weights (stiffly accurate). The sums of the rows, the fractions of a step
        at which the stages are, increase.
    tolerance : float
        Bound on the estimated error of v that Newton's method leaves, relative to 1 + |v|.
    iterations : int
        Maximum number of Newton iterations for one stage.
    substeps : int
        Maximum number of parts (2, 4, 8, ...) into which a failed step is divided.

    Examples
    --------
    >>> midpoint_twice = ts.CustomIntegrator(h=1e-2, A=[[0.5], [0.5, 0.5]])
    """

    A: Table  # type: ignore[misc]

    def __init__(
        self,
        h: float,
        A: Sequence[Sequence[float]],
        tolerance: float = 1e-10,
        iterations: int = 100,
        substeps: int = 1024,
    ) -> None:
        given = {"h": h, "A": _triangle(A), "tolerance": tolerance, "iterations": iterations, "substeps": substeps}
        for name, value in given.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    @property
    def order(self) -> int:  # type: ignore[override]
        """Order of accuracy, 4 at most, from the order conditions of Runge-Kutta methods."""
        c = stage_fractions(self.A)
        sums = {2: [(c, 1 / 2)], 3: [(_times(c, c), 1 / 3), (self._apply(c), 1 / 6)]}
        sums[4] = [
            (_times(c, _times(c, c)), 1 / 4), (_times(c, self._apply(c)), 1 / 8),
            (self._apply(_times(c, c)), 1 / 12), (self._apply(self._apply(c)), 1 / 24),
        ]  # fmt: skip
        order = 1
        for higher, conditions in sums.items():
            if any(abs(sum(_times(self.A[-1], x)) - expected) > 1e-9 for x, expected in conditions):
                break
            order = higher
        return order

    def _apply(self, x: Sequence[float]) -> tuple[float, ...]:
        """The product A x."""
        return tuple(sum(a * b for a, b in zip(row, x, strict=False)) for row in self.A)


def _times(x: Sequence[float], y: Sequence[float]) -> tuple[float, ...]:
    return tuple(a * b for a, b in zip(x, y, strict=True))


def _triangle(A: Sequence[Sequence[float]]) -> Table:
    """The rows of the lower triangle, checked."""
    try:
        given = [[float(a) for a in row] for row in A]
    except (TypeError, ValueError):
        raise TypeError(f"A is {A!r}, expected the rows of a matrix, each a sequence of numbers") from None
    if not given:
        raise ValueError("A has no rows, expected the matrix of a Runge-Kutta method")
    rows = tuple(tuple(row[: k + 1]) for k, row in enumerate(given))
    for k, (row, whole) in enumerate(zip(rows, given, strict=True)):
        if len(row) != k + 1 or any(whole[k + 1 :]) or not all(isfinite(a) for a in row) or not row[-1] > 0.0:
            raise ValueError(
                f"row {k} of A is {whole}, expected {k + 1} numbers, the last positive, and zeros after them"
            )
    if abs(sum(rows[-1]) - 1.0) > 1e-12:
        raise ValueError(f"A ends with {list(rows[-1])}, expected a row with the sum 1: a stiffly accurate method")
    fractions = stage_fractions(rows)
    if any(b <= a for a, b in zip((0.0, *fractions), fractions, strict=False)):
        raise ValueError(f"the stages of A are at {fractions}, expected increasing fractions of the step")
    return rows
