"""Backward differentiation formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torsor.integrators.base import Implicit, Row, Table
from torsor.integrators.sdirk2 import SDIRK2


@final
@dataclass(frozen=True)
class BDF1(Implicit):
    """Implicit Euler, of order 1, with strong numerical dissipation. Sueda 2021, 3.4.

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

    order: ClassVar[int] = 1
    A: ClassVar[Table] = ((1.0,),)


@final
@dataclass(frozen=True)
class BDF2(Implicit):
    """Backward differentiation formula of order 2. Sueda 2021, 3.4.

    The first step, and a step that has to be divided, are taken by `SDIRK2`.

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
    A: ClassVar[Table] = SDIRK2.A
    _multistep: ClassVar[Row | None] = (1.5, 1.0, 1.0, [-1.0 / 3.0])  # x1 - 4/3 x0 + 1/3 x' = 2/3 h xdot1, and x0 = 0
