"""A singly diagonally implicit Runge-Kutta method of order 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torsor.integrators.base import Implicit, Table

# The root of x^3 - 3 x^2 + 3/2 x - 1/6 that makes the method L-stable.
GAMMA = 0.43586652150845899942
_B1 = -1.5 * GAMMA**2 + 4.0 * GAMMA - 0.25
_B2 = 1.5 * GAMMA**2 - 5.0 * GAMMA + 1.25


@final
@dataclass(frozen=True)
class SDIRK3(Implicit):
    """Singly diagonally implicit Runge-Kutta of order 3 with three stages, L-stable and stiffly accurate. Alexander
    1977.

    Parameters
    ----------
    h : float
        Step size.
    tolerance : float
        Bound on the estimated error of v that Newton's method leaves, relative to 1 + |v|.
    iterations : int
        Maximum number of Newton iterations for one stage.
    substeps : int
        Maximum number of parts (2, 4, 8, ...) into which a failed step is divided.
    """

    order: ClassVar[int] = 3
    A: ClassVar[Table] = ((GAMMA,), ((1.0 - GAMMA) / 2.0, GAMMA), (_B1, _B2, GAMMA))
