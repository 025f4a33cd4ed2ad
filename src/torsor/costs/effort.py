"""The cost of controls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from torsor.costs.cost import Cost, CostValue, States, diagonal, weights

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import At


@final
@dataclass(frozen=True, init=False)
class ControlEffort(Cost):
    """The integral over time of the sum of weight u^2 / 2 over the controls.

    Parameters
    ----------
    weight : float or (nu,) array_like
        One number for all controls, or one for each; at least 0.
    """

    weight: float | tuple[float, ...]

    at: At = "time"

    inputs: ClassVar[str] = "u"

    def __init__(self, weight: ArrayLike = 1.0) -> None:
        object.__setattr__(self, "weight", weights(weight))

    def _evaluate(self, x: States, hessians: bool) -> CostValue:
        weight, nu = np.array(self.weight), x.u.shape[-1]
        if weight.shape not in ((), (nu,)):
            raise ValueError(f"weight has shape {weight.shape}, expected a number or ({nu},): there are {nu} controls")
        du = weight * x.u
        value = 0.5 * (du * x.u).sum(-1)
        return CostValue(value, du=du, dudu=diagonal(x, np.broadcast_to(weight, (nu,))) if hessians else None)
