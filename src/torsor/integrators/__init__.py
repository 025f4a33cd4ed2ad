"""Integrators as small frozen descriptions, each a step size and the limits of its solver.

`CustomIntegrator` takes the matrix of a user-defined implicit Runge-Kutta method.
"""

from torsor.integrators.adaptive import Adaptive
from torsor.integrators.base import Integrator
from torsor.integrators.bdf import BDF1, BDF2
from torsor.integrators.custom import CustomIntegrator
from torsor.integrators.euler import LinearlyImplicitEuler, SymplecticEuler
from torsor.integrators.hard_contact import HardContact
from torsor.integrators.sdirk2 import SDIRK2
from torsor.integrators.sdirk3 import SDIRK3
from torsor.integrators.variational import Variational

__all__ = [
    "BDF1",
    "BDF2",
    "SDIRK2",
    "SDIRK3",
    "Adaptive",
    "CustomIntegrator",
    "HardContact",
    "Integrator",
    "LinearlyImplicitEuler",
    "SymplecticEuler",
    "Variational",
]
