"""Integrators as small frozen descriptions, each a step size and what its solver may do.

The implicit ones solve inverse_dynamics(q1, v(q1), a(q1)) = tau(q1, v(q1)) for the next configuration, v(q1) and a(q1)
being the integrator's formula; docs/derivations/implicit_steps.md has it for all joints.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isfinite
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray


_ALPHA = (2.0 - 2.0**0.5) / 2.0

_MOST = 1_000_000  # iterations, and parts of a step
_SCIPY = ("RK23", "RK45", "DOP853", "Radau", "BDF", "LSODA")  # methods of scipy.integrate.solve_ivp


@dataclass(frozen=True)
class Integrator:
    """What every integrator has: the step h, in units of time."""

    h: float
    order: ClassVar[int]
    _method: ClassVar[int]  # as in core/integrators/integrate.hpp
    _fractions: ClassVar[tuple[float, ...]] = (0.0,)  # of a step, at which controls are taken
    _weights: ClassVar[tuple[float, ...]] = (1.0,)  # of the controls in an integral over the step

    def __post_init__(self) -> None:
        _positive(self.h, f"h of {type(self).__name__}", "a step in units of time")
        object.__setattr__(self, "h", float(self.h))

    @property
    def _scheme(self) -> tuple[int, float, float, int, int]:
        """(method, h, tolerance, iterations, substeps), for the core."""
        return (self._method, self.h, 1e-10, 1, 1)

    @cached_property
    def _numbers(self) -> NDArray[np.float64]:
        """The scheme as an array."""
        return np.array(self._scheme, dtype=np.float64)


def _positive(value: object, name: str, what: str) -> None:
    try:
        good = isinstance(value, Real) and not isinstance(value, bool) and isfinite(value) and float(value) > 0
    except OverflowError:  # an integer beyond all floats
        good = False
    if not good:
        raise ValueError(f"{name} is {value!r}, expected a positive number: {what}")


def _at_least_one(value: object, name: str) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) <= _MOST:
        raise ValueError(f"{name} is {value!r}, expected an integer of at least 1, {_MOST} at most")


@dataclass(frozen=True)
class _Implicit(Integrator):
    tolerance: float = 1e-10
    iterations: int = 100
    substeps: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        _positive(self.tolerance, f"tolerance of {name}", "the error that Newton's method may leave")
        for field in ("iterations", "substeps"):
            _at_least_one(getattr(self, field), f"{field} of {name}")

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
        Corrections that it may try for one stage.
    substeps : int
        Into how many parts a step may be divided (2, 4, 8, ...) when it fails.
    """

    order: ClassVar[int] = 1
    _method: ClassVar[int] = 2
    _fractions: ClassVar[tuple[float, ...]] = (1.0,)


@final
@dataclass(frozen=True)
class BDF2(_Implicit):
    """Backward differences of order 2; the first step, and a step that has to be divided, by SDIRK2. Sueda 2021, 3.4.

    Parameters as for `BDF1`.
    """

    order: ClassVar[int] = 2
    _method: ClassVar[int] = 3
    _fractions: ClassVar[tuple[float, ...]] = (_ALPHA, 1.0)
    _weights: ClassVar[tuple[float, ...]] = (1.0 - _ALPHA, _ALPHA)


@final
@dataclass(frozen=True)
class SDIRK2(_Implicit):
    """Singly diagonally implicit Runge-Kutta of order 2 with two stages, the first at (1 - sqrt(1/2)) h. Sueda 2021,
    3.4.

    Parameters as for `BDF1`.
    """

    order: ClassVar[int] = 2
    _method: ClassVar[int] = 4
    _fractions: ClassVar[tuple[float, ...]] = (_ALPHA, 1.0)
    _weights: ClassVar[tuple[float, ...]] = (1.0 - _ALPHA, _ALPHA)


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


@final
@dataclass(frozen=True)
class Variational(Integrator):
    """A variational integrator: symplectic, conserves momenta exactly and energy without drift. Fan 2018.

    A step makes the action of a polynomial through order / 2 + 1 control points stationary, integrated by quadrature;
    controls, damping and other forces enter by the principle of Lagrange and d'Alembert. The state between steps is
    (q, p), p = M(q) v being the momenta. A step is never divided: that would end the conservation.

    Parameters
    ----------
    h : float
        The step.
    order : int
        2, 4, 6, ...: twice the number of control points beyond the first.
    rule : "gauss", "lobatto", "trapezoid" or "midpoint"
        The quadrature. "gauss" has order / 2 points, "lobatto" order / 2 + 1, which are the control points (Fan's own).
        "midpoint" is "gauss" and "trapezoid" is "lobatto", of order 2 both.
    tolerance : float
        Estimated error of v that Newton's method may leave, relative to 1 + |v|.
    iterations : int
        Evaluations of the equations that it may take for one step.
    """

    order: int = 2  # type: ignore[misc]
    rule: str = "gauss"
    tolerance: float = 1e-12
    iterations: int = 50
    _method: ClassVar[int] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.order, Integral) or isinstance(self.order, bool) or self.order < 2 or self.order % 2:
            raise ValueError(f"order of Variational is {self.order!r}, expected an even integer: 2, 4, 6, ...")
        if self.order > 32:
            raise ValueError(f"order of Variational is {self.order}, expected at most 32")
        if self.rule not in ("gauss", "lobatto", "trapezoid", "midpoint"):
            raise ValueError(
                f"rule of Variational is {self.rule!r}, expected 'gauss', 'lobatto', 'trapezoid' or 'midpoint'"
            )
        if self.rule in ("trapezoid", "midpoint") and self.order != 2:
            other = {"trapezoid": "lobatto", "midpoint": "gauss"}[self.rule]
            raise ValueError(f"the {self.rule} rule has order 2, got order {self.order}; rule={other!r} has any order")
        _positive(self.tolerance, "tolerance of Variational", "the error that Newton's method may leave")
        _at_least_one(self.iterations, "iterations of Variational")

    @property
    def _fractions(self) -> tuple[float, ...]:  # type: ignore[override]
        return tuple(((1.0 + _quadrature(self)[0]) / 2.0).tolist())

    @property
    def _weights(self) -> tuple[float, ...]:  # type: ignore[override]
        return tuple((_quadrature(self)[1] / 2.0).tolist())

    @property
    def _scheme(self) -> Any:
        return _variational_scheme(self)


def _quadrature(integrator: Variational) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points and weights on [-1, 1]."""
    s = integrator.order // 2
    return np.polynomial.legendre.leggauss(s) if integrator.rule in ("gauss", "midpoint") else _lobatto(s + 1)


@lru_cache(maxsize=64)
def _variational_scheme(integrator: Variational) -> _core.VariationalScheme:
    """Control points, quadrature, and the Lagrange polynomials of the one at the points of the other."""
    s = integrator.order // 2
    nodes, _ = _lobatto(s + 1)
    points, weights = _quadrature(integrator)
    phi = np.empty((len(points), s + 1))
    b = np.empty((len(points), s + 1))
    for k in range(s + 1):
        # In the basis of Legendre polynomials, which is well conditioned.
        values = np.zeros(s + 1)
        values[k] = 1.0
        polynomial = np.polynomial.legendre.legfit(nodes, values, s)
        phi[:, k] = np.polynomial.legendre.legval(points, polynomial)
        b[:, k] = 2.0 * np.polynomial.legendre.legval(points, np.polynomial.legendre.legder(polynomial))
    return _core.VariationalScheme(
        integrator.h, integrator.tolerance, integrator.iterations, ((1.0 + nodes) / 2.0).tolist(),
        ((1.0 + points) / 2.0).tolist(), (weights / 2.0).tolist(), phi.ravel().tolist(), b.ravel().tolist(),
    )  # fmt: skip


def _lobatto(n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights of the Gauss-Lobatto quadrature with n >= 2 points on [-1, 1]."""
    legendre = np.zeros(n)
    legendre[-1] = 1.0  # P_{n-1}, whose derivative has its roots at the inner nodes
    slope, curvature = np.polynomial.legendre.legder(legendre), np.polynomial.legendre.legder(legendre, 2)
    inner = np.polynomial.legendre.legroots(slope)
    for _ in range(3):  # to the last digit
        inner = inner - np.polynomial.legendre.legval(inner, slope) / np.polynomial.legendre.legval(inner, curvature)
    inner = 0.5 * (inner - inner[::-1])  # symmetric
    nodes = np.concatenate([[-1.0], inner, [1.0]])
    return nodes, 2.0 / (n * (n - 1) * np.polynomial.legendre.legval(nodes, legendre) ** 2)
