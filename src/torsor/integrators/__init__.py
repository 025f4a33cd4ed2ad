"""Integrators as small frozen descriptions, each a step size and what its solver may do.

An implicit integrator of the user's own is a subclass of `Implicit` with the matrix of a Runge-Kutta method, as in
`torsor.integrators.sdirk3`.
"""

from torsor.integrators.adaptive import Adaptive
from torsor.integrators.base import Implicit, Integrator
from torsor.integrators.bdf import BDF1, BDF2
from torsor.integrators.euler import LinearlyImplicitEuler, SymplecticEuler
from torsor.integrators.sdirk2 import SDIRK2
from torsor.integrators.sdirk3 import SDIRK3
from torsor.integrators.variational import Variational

__all__ = [
    "BDF1",
    "BDF2",
    "SDIRK2",
    "SDIRK3",
    "Adaptive",
    "Implicit",
    "Integrator",
    "LinearlyImplicitEuler",
    "SymplecticEuler",
    "Variational",
]
