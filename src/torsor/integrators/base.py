"""What all integrators have, and integrators as tables of numbers.

The implicit ones solve inverse_dynamics(q1, v(q1), a(q1)) = tau(q1, v(q1)) for the next configuration, v(q1) and a(q1)
being the integrator's formula; docs/derivations/implicit_steps.md has it for all joints. The core knows no integrator
by name: it takes a table of the numbers in these formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from math import isfinite
from numbers import Integral, Real
from typing import Any, ClassVar

from torsor import _core

_MOST = 1_000_000  # iterations, and parts of a step

Row = tuple[float, float, float, list[float]]  # alpha, beta, fraction, z: core/integrators/table.hpp
_IMPLICIT, _EXPLICIT, _LINEARISED = range(3)  # StageKind of core/integrators/table.hpp


@dataclass(frozen=True)
class Integrator:
    """What every integrator has: the step h, in units of time."""

    h: float
    order: ClassVar[int]
    _fractions: ClassVar[tuple[float, ...]] = (0.0,)  # of a step, at which controls are taken
    _weights: ClassVar[tuple[float, ...]] = (1.0,)  # of the controls in an integral over the step, not negative

    def __post_init__(self) -> None:
        require_positive(self.h, f"h of {type(self).__name__}", "a step in units of time")
        object.__setattr__(self, "h", float(self.h))

    @cached_property
    def _numbers(self) -> Any:
        """The integrator as the core takes it."""
        raise TypeError(f"{type(self).__name__} has no steps that the core takes")

    @cached_property
    def _options(self) -> dict[str, Any]:
        """Those of a function of the core for one step."""
        return {"integrator": self._numbers}

    @cached_property
    def _options_of_one_step(self) -> dict[str, Any]:
        """The same without derivatives by the state before."""
        return {"integrator": self._numbers, "wanted": 0xFF}

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def require_positive(value: object, name: str, what: str) -> None:
    try:
        good = isinstance(value, Real) and not isinstance(value, bool) and isfinite(value) and float(value) > 0
    except OverflowError:  # an integer beyond all floats
        good = False
    if not good:
        raise ValueError(f"{name} is {value!r}, expected a positive number: {what}")


def require_at_least_one(value: object, name: str) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) <= _MOST:
        raise ValueError(f"{name} is {value!r}, expected an integer of at least 1, {_MOST} at most")


@dataclass(frozen=True)
class Explicit(Integrator):
    """Integrators with the equations of motion at the beginning of a step."""

    _kind: ClassVar[int] = _EXPLICIT

    @cached_property
    def _numbers(self) -> _core.IntegratorTable:
        return _core.IntegratorTable(self._kind, [(1.0, 1.0, 0.0, [])], None, [0.0], self.h, 1e-10, 1, 1)


@dataclass(frozen=True)
class Implicit(Integrator):
    """Integrators with the equations of motion at the end of each stage, solved by Newton's method.

    A subclass declares `A`, the matrix of a diagonally implicit Runge-Kutta method: lower triangular, with a positive
    diagonal, and stiffly accurate: its last row sums to 1 and stands for the weights. Stages follow each other in time.
    """

    tolerance: float = 1e-10
    iterations: int = 100
    substeps: int = 1024
    A: ClassVar[tuple[tuple[float, ...], ...]]
    _multistep: ClassVar[Row | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        name = cls.__name__
        A: tuple[tuple[float, ...], ...] = getattr(cls, "A", ())
        if len(A) == 0:
            raise TypeError(f"{name} has no A, expected the rows of the matrix of a Runge-Kutta method")
        for k, row in enumerate(A):
            if len(row) != k + 1 or not all(isfinite(a) for a in row) or not row[-1] > 0.0:
                raise TypeError(f"row {k} of A of {name} is {row!r}, expected {k + 1} numbers, the last positive")
        if abs(sum(A[-1]) - 1.0) > 1e-12:
            raise TypeError(
                f"A of {name} ends with {A[-1]!r}, expected a row with the sum 1: a stiffly accurate method"
            )
        cls._fractions = tuple(1.0 if k + 1 == len(A) else sum(row) for k, row in enumerate(A))
        cls._weights = A[-1] if min(A[-1]) >= 0.0 else _shares(cls._fractions)
        if any(b <= a for a, b in zip((0.0, *cls._fractions), cls._fractions, strict=False)):
            raise TypeError(f"the stages of {name} are at {cls._fractions}, expected increasing fractions of the step")

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if any(f.name == "A" for f in fields(self)):
            raise TypeError(f"A is a field of {name}, expected a constant of the class: A: ClassVar[...] = ...")
        if type(self) is Implicit:
            raise TypeError("Implicit has no formula of its own; use BDF1, BDF2, SDIRK2, SDIRK3 or a subclass with A")
        require_positive(self.tolerance, f"tolerance of {name}", "the error that Newton's method may leave")
        for field in ("iterations", "substeps"):
            require_at_least_one(getattr(self, field), f"{field} of {name}")

    @cached_property
    def _numbers(self) -> _core.IntegratorTable:
        stages = enumerate(zip(self.A, self._fractions, strict=True))
        rows = [(1.0, row[-1], fraction, earlier_weights(self.A, k)) for k, (row, fraction) in stages]
        return _core.IntegratorTable(
            _IMPLICIT, rows, self._multistep, list(self._fractions), self.h, self.tolerance, self.iterations,
            self.substeps,
        )  # fmt: skip


def _shares(fractions: Sequence[float]) -> tuple[float, ...]:
    """The parts of a step that are nearest to each fraction: weights that are positive where those of the method are
    not, so that the integral of what is positive is."""
    ends = [0.0, *((a + b) / 2.0 for a, b in pairwise(fractions)), 1.0]
    return tuple(b - a for a, b in pairwise(ends))


def earlier_weights(A: Sequence[Sequence[float]], k: int) -> list[float]:
    """z with z A_k = a_k, A_k being the leading k x k block of A and a_k the rest of row k: with it the rate of stage k
    is (x_k - z.x) / (h A_kk), x being the displacements of the stages."""
    z = [0.0] * k
    for j in reversed(range(k)):
        z[j] = (A[k][j] - sum(z[i] * A[i][j] for i in range(j + 1, k))) / A[j][j]
    return z
