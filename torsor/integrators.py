"""Integrators as small frozen descriptions, each a step size and what its solver may do.

The implicit ones solve inverse_dynamics(q1, v(q1), a(q1)) = tau(q1, v(q1)) for the next configuration, v(q1) and a(q1)
being the integrator's formula; docs/derivations/implicit_steps.md has it for all joints.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from numbers import Integral, Real
from typing import ClassVar, final

_MOST = 1_000_000  # iterations, and parts of a step
_SCIPY = ("RK23", "RK45", "DOP853", "Radau", "BDF", "LSODA")  # methods of scipy.integrate.solve_ivp


@dataclass(frozen=True)
class Integrator:
    """What every integrator has: the step h, in units of time."""

    h: float
    order: ClassVar[int]
    _method: ClassVar[int]  # as in core/integrate.hpp

    def __post_init__(self) -> None:
        _positive(self.h, f"h of {type(self).__name__}", "a step in units of time")
        object.__setattr__(self, "h", float(self.h))

    @property
    def _scheme(self) -> tuple[int, float, float, int, int]:
        """(method, h, tolerance, iterations, substeps), for the core."""
        return (self._method, self.h, 1e-10, 1, 1)


def _positive(value: object, name: str, what: str) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not isfinite(value) or not float(value) > 0:
        raise ValueError(f"{name} is {value!r}, expected a positive number: {what}")


@dataclass(frozen=True)
class _Implicit(Integrator):
    tolerance: float = 1e-10
    iterations: int = 50
    substeps: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        _positive(self.tolerance, f"tolerance of {name}", "the error that Newton's method may leave")
        for field in ("iterations", "substeps"):
            value = getattr(self, field)
            if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) <= _MOST:
                raise ValueError(f"{field} of {name} is {value!r}, expected an integer of at least 1, {_MOST} at most")

    @property
    def _scheme(self) -> tuple[int, float, float, int, int]:
        return (self._method, self.h, self.tolerance, self.iterations, self.substeps)


@final
@dataclass(frozen=True)
class SymplecticEuler(Integrator):
    """v1 = v0 + h a(q0, v0), q1 = q0 + h v1: explicit, of order 1. Controls are taken at the beginning of a step."""

    order: ClassVar[int] = 1
    _method: ClassVar[int] = 0


@final
@dataclass(frozen=True)
class LinearlyImplicitEuler(Integrator):
    """Symplectic Euler with stiffness and damping of the forces at the end of the step, linearised: order 1.

    Sueda 2021, (2.84)-(2.86).

    One linear system a step: (M - h D - h^2 K) (v1 - v0) = h f + h^2 K v0, with K = dtau/dq and D = dtau/dv of all
    forces, the change of their lever arms included. Gravity and velocity-dependent inertial forces are explicit.
    """

    order: ClassVar[int] = 1
    _method: ClassVar[int] = 1


@final
@dataclass(frozen=True)
class BDF1(_Implicit):
    """Implicit Euler: order 1, and damps. Sueda 2021, 3.4.

    Parameters
    ----------
    h : float
        The step.
    tolerance : float
        Estimated error of v that Newton's method may leave, relative to 1 + |v|.
    iterations : int
        Evaluations of the residual that it may take for one stage.
    substeps : int
        Into how many parts a step may be divided (2, 4, 8, ...) when it fails.
    """

    order: ClassVar[int] = 1
    _method: ClassVar[int] = 2


@final
@dataclass(frozen=True)
class BDF2(_Implicit):
    """Backward differences of order 2; the first step, and a step that has to be divided, by SDIRK2. Sueda 2021, 3.4.

    Parameters as for `BDF1`.
    """

    order: ClassVar[int] = 2
    _method: ClassVar[int] = 3


@final
@dataclass(frozen=True)
class SDIRK2(_Implicit):
    """Singly diagonally implicit Runge-Kutta of order 2 with two stages, the first at (1 - sqrt(1/2)) h. Sueda 2021,
    3.4.

    Parameters as for `BDF1`.
    """

    order: ClassVar[int] = 2
    _method: ClassVar[int] = 4


@final
@dataclass(frozen=True)
class Adaptive(Integrator):
    """An explicit method with error control, from SciPy: for reference. h is the spacing of the rows only.

    `method` is one of `scipy.integrate.solve_ivp`'s, with its rtol and atol. No derivatives.
    """

    method: str = "DOP853"
    rtol: float = 1e-10
    atol: float = 1e-10
    _method: ClassVar[int] = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in _SCIPY:
            raise ValueError(f"method of Adaptive is {self.method!r}, expected one of SciPy's: {', '.join(_SCIPY)}")
        for field in ("rtol", "atol"):
            _positive(getattr(self, field), f"{field} of Adaptive", "the error that a step may make")
