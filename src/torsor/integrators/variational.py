"""Variational integrators of any even order. Fan 2018."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from numbers import Integral
from typing import TYPE_CHECKING, Any, final

import numpy as np

from torsor import _core
from torsor.integrators.base import Integrator, require_at_least_one, require_positive

if TYPE_CHECKING:
    from torsor._typing import FloatArray, QuadratureRule


@final
@dataclass(frozen=True)
class Variational(Integrator):
    """A variational integrator: symplectic, conserves momenta exactly and energy without drift. Fan 2018.

    A step makes the action of a polynomial through order / 2 + 1 control points stationary, integrated by quadrature;
    controls, damping and other forces enter by the Lagrange-d'Alembert principle. The state between steps is (q, p),
    with momenta p = M(q) v. Steps are never divided: that would destroy conservation. Constraints hold at all control
    points, and their rates at the end of each step; order, symplectic form and momenta are kept.

    Parameters
    ----------
    h : float
        Step size.
    order : int
        2, 4, 6, ...: twice the number of control points beyond the first.
    rule : {"gauss", "lobatto", "trapezoid", "midpoint"}
        Quadrature. "gauss" has order / 2 points, "lobatto" order / 2 + 1, which are the control points (as in Fan
        2018). "midpoint" is "gauss" of order 2, "trapezoid" is "lobatto" of order 2.
    tolerance : float
        Bound on the estimated error of v that Newton's method leaves, relative to 1 + |v|.
    iterations : int
        Maximum number of evaluations of the equations for one step.
    """

    order: int = 2  # type: ignore[misc]
    rule: QuadratureRule = "gauss"
    tolerance: float = 1e-12
    iterations: int = 50

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
        require_positive(self.tolerance, "tolerance of Variational", "the error that Newton's method may leave")
        require_at_least_one(self.iterations, "iterations of Variational")

    @property
    def _fractions(self) -> tuple[float, ...]:
        return tuple(((1.0 + quadrature(self)[0]) / 2.0).tolist())

    @property
    def _weights(self) -> tuple[float, ...]:
        return tuple((quadrature(self)[1] / 2.0).tolist())

    @cached_property
    def _numbers(self) -> _core.VariationalScheme:
        return _scheme(self)


def quadrature(integrator: Variational) -> tuple[FloatArray, FloatArray]:
    """Points and weights on [-1, 1]."""
    return _quadrature(integrator.order // 2, integrator.rule in ("gauss", "midpoint"))


@lru_cache
def _quadrature(s: int, gauss: bool) -> tuple[Any, Any]:
    return np.polynomial.legendre.leggauss(s) if gauss else lobatto(s + 1)


def _scheme(integrator: Variational) -> _core.VariationalScheme:
    """Control points, quadrature, and the Lagrange polynomials of the one at the points of the other."""
    s = integrator.order // 2
    nodes, _ = lobatto(s + 1)
    points, weights = quadrature(integrator)
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


def lobatto(n: int) -> tuple[FloatArray, FloatArray]:
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
