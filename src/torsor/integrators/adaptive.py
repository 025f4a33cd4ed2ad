"""SciPy's integrators with error control, for reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from torsor.integrators.base import Integrator, require_positive

if TYPE_CHECKING:
    from torsor._typing import ScipyMethod

_SCIPY = ("RK23", "RK45", "DOP853", "Radau", "BDF", "LSODA")  # methods of scipy.integrate.solve_ivp


@final
@dataclass(frozen=True)
class Adaptive(Integrator):
    """An integrator of SciPy with error control, for reference. It has no derivatives.

    Parameters
    ----------
    h : float
        Spacing of the rows of the trajectory; the steps are SciPy's.
    method : {"RK23", "RK45", "DOP853", "Radau", "BDF", "LSODA"}
        Method of `scipy.integrate.solve_ivp`.
    rtol, atol : float
        Relative and absolute error tolerance.
    """

    method: ScipyMethod = "DOP853"
    rtol: float = 1e-10
    atol: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in _SCIPY:
            raise ValueError(f"method of Adaptive is {self.method!r}, expected one of SciPy's: {', '.join(_SCIPY)}")
        for field in ("rtol", "atol"):
            require_positive(getattr(self, field), f"{field} of Adaptive", "the error that a step may make")
