"""Motions as a viewer plays them: configurations at any time, each with the model whose coordinates they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray
    from torsor.simulation.trajectory import Trajectory


class State(NamedTuple):
    """What a motion is at a time: a configuration, its model, and the row of the trajectory at or before the time."""

    model: Model
    q: FloatArray
    row: int


@dataclass(frozen=True, eq=False)
class Motion:
    """One motion, or a configuration that stays.

    Attributes
    ----------
    t : (rows,)
    q : (rows, nq)
        Without rows that are not finite, after a failure.
    spans : tuple of (int, Model)
        The rows from which on q are coordinates of a model: those of `SphericalEuler` joints change in a motion.
    trajectory : Trajectory or None
        That it is from, and its flat index there.
    index : int
    """

    t: FloatArray
    q: FloatArray
    spans: tuple[tuple[int, Model], ...]
    trajectory: Trajectory | None = None
    index: int = 0

    @property
    def model(self) -> Model:
        """The model of the first row."""
        return self.spans[0][1]

    @property
    def moving(self) -> bool:
        """Whether there is more than one row."""
        return len(self.t) > 1

    def _model_at(self, row: int) -> Model:
        return next(model for first, model in reversed(self.spans) if first <= row)

    def at(self, time: float) -> State:
        """The state at a time, between rows on the shortest way from one to the next; before the first row and after
        the last one it stays."""
        row = max(int(np.searchsorted(self.t, time, side="right")) - 1, 0)
        model, q = self._model_at(row), self.q[row]
        if row + 1 < len(self.t) and time > self.t[row] and self._model_at(row + 1) is model and model.nv:
            share = (time - self.t[row]) / (self.t[row + 1] - self.t[row])
            q = model.plus(q, share * model.minus(self.q[row + 1], q))
        return State(model, q, row)

    def sampled(self, count: int) -> list[State]:
        """At most `count` of its rows, evenly spread, with the first and the last one."""
        rows = np.unique(np.linspace(0, len(self.t) - 1, min(count, len(self.t))).astype(int))
        return [State(self._model_at(row), self.q[row], row) for row in rows.tolist()]


def still(model: Model, q: ArrayLike) -> list[Motion]:
    """Configurations (..., nq) that stay, as one motion each."""
    given = np.asarray(q, np.float64)
    if given.ndim == 0 or given.shape[-1] != model.nq:
        raise ValueError(f"q has shape {given.shape}, expected (..., {model.nq}): model.nq is {model.nq}")
    if not np.isfinite(given).all():
        raise ValueError("q is not finite, so there is nothing to show")
    if not prod(given.shape[:-1]):
        raise ValueError(f"q has shape {given.shape}, an empty batch, so there is nothing to show")
    rows = given.reshape(prod(given.shape[:-1]), 1, model.nq)
    return [Motion(np.zeros(1), q_row, ((0, model),)) for q_row in rows]


def motions(trajectory: Trajectory, index: int | Sequence[int] | None = None, most: int = 25) -> list[Motion]:
    """Motions of a trajectory: those with the given flat indices, or the first `most` of all."""
    if not hasattr(trajectory, "segments"):
        raise TypeError(f"expected a Trajectory, got {type(trajectory).__name__}; simulate returns one")
    count = prod(trajectory.batch_shape)
    chosen = range(min(count, most)) if index is None else [index] if isinstance(index, int) else index
    if not len(chosen):
        raise ValueError("there is no motion in an empty batch, or none was chosen")
    for i in chosen:
        if not -count <= i < count:
            raise IndexError(f"there is no motion {i} in a batch of {count}")
    spans: dict[int, list[tuple[int, Model]]] = {}
    for track, first, _, model in trajectory.segments():
        spans.setdefault(track, []).append((first, model))
    q = trajectory.q.reshape(count, len(trajectory.t), trajectory.model.nq)
    out = []
    for i in (i % count for i in chosen):
        finite = np.isfinite(q[i]).all(axis=1)
        rows = len(finite) if finite.all() else max(int(np.argmin(finite)), 1)
        if not finite[0]:
            raise ValueError(f"motion {i} has no finite configuration, so there is nothing to show")
        out.append(Motion(trajectory.t[:rows], q[i, :rows], tuple(spans[i]), trajectory, i))
    return out
