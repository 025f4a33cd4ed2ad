"""Backward differentiation formulas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torsor.integrators.base import Implicit, Row, Table
from torsor.integrators.sdirk2 import SDIRK2


@final
@dataclass(frozen=True)
class BDF1(Implicit):
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
    A: ClassVar[Table] = ((1.0,),)


@final
@dataclass(frozen=True)
class BDF2(Implicit):
    """Backward differences of order 2; the first step, and a step that has to be divided, by SDIRK2. Sueda 2021, 3.4.

    Parameters as for `BDF1`.
    """

    order: ClassVar[int] = 2
    A: ClassVar[Table] = SDIRK2.A
    _multistep: ClassVar[Row | None] = (1.5, 1.0, 1.0, [-1.0 / 3.0])  # x1 - 4/3 x0 + 1/3 x' = 2/3 h xdot1, and x0 = 0
