"""A singly diagonally implicit Runge-Kutta method of order 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torsor.integrators.base import Implicit, Table

ALPHA = 0.29289321881345254  # (2 - sqrt 2) / 2


@final
@dataclass(frozen=True)
class SDIRK2(Implicit):
    """Singly diagonally implicit Runge-Kutta of order 2, with stages at (1 - sqrt(1/2)) h and h. Sueda 2021, 3.4.

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

    order: ClassVar[int] = 2
    A: ClassVar[Table] = ((ALPHA,), (1.0 - ALPHA, ALPHA))
