"""Base classes of integrators, and integrators as tables of numbers.

Implicit integrators solve inverse_dynamics(q1, v(q1), a(q1)) = tau(q1, v(q1)) for the next configuration, with v(q1)
and a(q1) the formulas of the integrator; docs/derivations/implicit_steps.md has them for all joints. The core does not
know integrators by name: it takes a table of the numbers in these formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from math import isfinite
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

from torsor import _core

_MOST = 1_000_000  # iterations, and parts of a step

Row = tuple[float, float, float, list[float]]  # alpha, beta, fraction, z: core/integrators/table.hpp
Table = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Integrator:
    """Base class of integrators.

    Attributes
    ----------
    h : float
        Step size, in units of time.
    order : int
        Order of accuracy.
    """

    h: float
    order: ClassVar[int]

    def __post_init__(self) -> None:
        require_positive(self.h, f"h of {type(self).__name__}", "a step in units of time")
        object.__setattr__(self, "h", float(self.h))

    @property
    def _fractions(self) -> tuple[float, ...]:
        """The fractions of a step at which controls are taken."""
        return (0.0,)

    @property
    def _weights(self) -> tuple[float, ...]:
        """Weights of the controls of a step in an integral over it, not negative."""
        return (1.0,)

    @cached_property
    def _numbers(self) -> Any:
        """The integrator as the core takes it."""
        raise TypeError(f"{type(self).__name__} has no steps that the core takes")

    @cached_property
    def _options(self) -> dict[str, Any]:
        """Options of the core for one step."""
        return {"integrator": self._numbers}

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def require_positive(value: object, name: str, what: str) -> None:
    try:
        good = isinstance(value, Real) and not isinstance(value, bool) and isfinite(value) and float(value) > 0
    except OverflowError:  # an integer beyond all floats
        good = False
    if not good:
        raise ValueError(f"{name} is {value!r}, expected a positive number: {what}")


def require_rate(value: object, name: str) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not isfinite(value) or float(value) < 0:
        raise ValueError(f"{name} is {value!r}, expected a rate of 0 or more, in 1 / units of time")


def require_at_least_one(value: object, name: str) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) <= _MOST:
        raise ValueError(f"{name} is {value!r}, expected an integer of at least 1, {_MOST} at most")


@dataclass(frozen=True)
class Explicit(Integrator):
    """Integrators that evaluate the equations of motion at the beginning of a step, and impose constraints on
    velocities."""


@dataclass(frozen=True)
class Euler(Explicit):
    """Explicit integrators with one stage.

    Constraints hold for velocities: G v1 + dg/dt + baumgarte g = 0 at the beginning, so that a step removes an error g
    of positions at this rate. By default it is 1 / h: all of it, to first order. Post-stabilisation moves the
    configuration onto the constraints at the end of the step instead, and leaves velocities as they are.
    """

    baumgarte: float | None = None
    stabilization: Literal["baumgarte", "post"] = "baumgarte"
    _kind: ClassVar[_core.StageKind] = _core.StageKind.explicit

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baumgarte is not None:
            require_rate(self.baumgarte, f"baumgarte of {type(self).__name__}")
        if self.stabilization not in ("baumgarte", "post"):
            raise ValueError(
                f"stabilization of {type(self).__name__} is {self.stabilization!r}, expected 'baumgarte' or 'post'"
            )

    @cached_property
    def _numbers(self) -> _core.IntegratorTable:
        post = self.stabilization == "post"
        beta = (0.0 if post else 1.0 / self.h) if self.baumgarte is None else float(self.baumgarte)
        return _core.IntegratorTable(self._kind, [(1.0, 1.0, 0.0, [])], None, [0.0], self.h, 1e-10, 1, 1, beta, post)


@dataclass(frozen=True)
class Implicit(Integrator):
    """Integrators that solve the equations of motion at the end of each stage by Newton's method.

    Subclasses have `A`, the rows of the lower triangle of the matrix of a diagonally implicit Runge-Kutta method. The
    method is stiffly accurate: the last row sums to 1 and holds the weights.
    """

    tolerance: float = 1e-10
    iterations: int = 100
    substeps: int = 1024
    A: ClassVar[Table]
    _multistep: ClassVar[Row | None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        require_positive(self.tolerance, f"tolerance of {name}", "the error that Newton's method may leave")
        for field in ("iterations", "substeps"):
            require_at_least_one(getattr(self, field), f"{field} of {name}")

    @property
    def _fractions(self) -> tuple[float, ...]:
        return stage_fractions(self.A)

    @property
    def _weights(self) -> tuple[float, ...]:
        return self.A[-1] if min(self.A[-1]) >= 0.0 else _shares(self._fractions)

    @cached_property
    def _numbers(self) -> _core.IntegratorTable:
        fractions = self._fractions
        stages = enumerate(zip(self.A, fractions, strict=True))
        rows = [(1.0, row[-1], fraction, earlier_weights(self.A, k)) for k, (row, fraction) in stages]
        return _core.IntegratorTable(
            _core.StageKind.implicit, rows, self._multistep, list(fractions), self.h, self.tolerance, self.iterations,
            self.substeps,
        )  # fmt: skip


def stage_fractions(A: Table) -> tuple[float, ...]:
    """The fractions of a step at which the stages are: the sums of the rows, exactly 1 for the last."""
    return (*(sum(row) for row in A[:-1]), 1.0)


def _shares(fractions: Sequence[float]) -> tuple[float, ...]:
    """The parts of a step nearest to each fraction: positive weights in place of negative ones of the method, so that
    the integral of a positive function is positive."""
    ends = [0.0, *((a + b) / 2.0 for a, b in pairwise(fractions)), 1.0]
    return tuple(b - a for a, b in pairwise(ends))


def earlier_weights(A: Sequence[Sequence[float]], k: int) -> list[float]:
    """z with z A_k = a_k, where A_k is the leading k x k block of A and a_k the first k entries of row k: the rate of
    stage k is (x_k - z.x) / (h A_kk), with x the displacements of the stages."""
    z = [0.0] * k
    for j in reversed(range(k)):
        z[j] = (A[k][j] - sum(z[i] * A[i][j] for i in range(j + 1, k))) / A[j][j]
    return z
