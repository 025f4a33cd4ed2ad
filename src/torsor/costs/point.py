"""A target for the position of a point of a body."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor.costs.cost import Cost, CostValue, States, row_count, symmetric, target_at, target_rows, weights, when
from torsor.costs.placement import by_placement, carriers, cross
from torsor.derivatives.kinematics import point_hessian
from torsor.forces.force import body_name, numbers
from torsor.kinematics import body_poses, place_poses, point_jacobian, point_positions
from torsor.model import body_of_frame

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import At, AtLike, FloatArray


@final
@dataclass(frozen=True, init=False)
class PointTarget(Cost):
    """weight |x - target|^2 / 2, with x the position in the world of a point of a body, such as an end effector.

    Parameters
    ----------
    body : str
        Name of the body, of its joint, or of a frame.
    point : (3,) array_like
        Point in the body's frame, or in this frame.
    target : (3,) or (n, 3) array_like
        Target in the world frame; or one for each selected row of the trajectory, or for each of `times`.
    weight : float
        Factor, at least 0.
    at : int, slice, list of int or "time"
        Rows of a trajectory over which the cost is summed, by default the last one; or "time" for its integral.
    times : (n,) array_like, optional
        Times of the rows of the target, interpolated linearly.
    """

    body: str
    point: tuple[float, ...]
    target: tuple[Any, ...]
    weight: float
    at: At = field(hash=False)
    times: tuple[float, ...] | None

    inputs: ClassVar[str] = "q"

    def __init__(
        self,
        body: str,
        point: ArrayLike,
        target: ArrayLike,
        weight: float = 1.0,
        at: AtLike = -1,
        times: ArrayLike | None = None,
    ) -> None:
        kept, when_of_rows = target_rows(target, times)
        if np.shape(kept)[-1:] != (3,):
            raise ValueError(f"target has shape {np.shape(kept)}, expected (3,), or rows (n, 3)")
        object.__setattr__(self, "body", body_name(body))
        object.__setattr__(self, "point", numbers(point, (3,), "point"))
        object.__setattr__(self, "target", kept)
        object.__setattr__(self, "weight", weights(weight, one=True))
        object.__setattr__(self, "at", when(at, self.inputs))
        object.__setattr__(self, "times", when_of_rows)

    @cached_property
    def _target(self) -> FloatArray:
        return np.array(self.target)

    @cached_property
    def _point(self) -> FloatArray:
        return np.array(self.point)

    def _rows(self) -> int | None:
        return row_count(self.target, self.times)

    def _evaluate(self, x: States, hessians: bool) -> CostValue:
        off = point_positions(x.model, x.q, self.body, self._point) - target_at(self._target, self.times, x)
        J = point_jacobian(x.model, x.q, self.body, self._point)
        value, dq = 0.5 * self.weight * (off**2).sum(-1), self.weight * (off[..., None, :] @ J)[..., 0, :]
        if not hessians:
            return CostValue(value, dq)
        H = np.einsum("...ijk,...i->...jk", point_hessian(x.model, x.q, self.body, self._point), off)
        return CostValue(value, dq, dqdq=self.weight * (np.swapaxes(J, -1, -2) @ J + symmetric(H)))

    def _by_parameters(self, x: States) -> dict[str, FloatArray]:
        i = x.model._find(self.body, "frame")
        poses = body_poses(x.model, x.q)
        (T,) = place_poses(x.model, poses, [i])
        place = T[..., :3, :3] @ self._point + T[..., :3, 3]
        off = place - target_at(self._target, self.times, x)
        wrench = self.weight * np.concatenate([cross(place, off), off], axis=-1)[..., None, :]
        return {"placement": by_placement(x.model, poses, carriers(x.model, body_of_frame(x.model, i)), wrench)}
