"""How a mechanism can move: rank of its constraints, redundant rows, singular points. docs/derivations/constraints.md,
section 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from torsor import _core
from torsor._check import as_array, require_finite
from torsor._errors import ConstraintError, ConvergenceError
from torsor.constraints.closing import Residuals, reach_of
from torsor.constraints.constraint import CompiledConstraints, Constraint, compile_constraints
from torsor.constraints.nearest import roots
from torsor.constraints.projection import project
from torsor.model import Model, require_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray

_GAP = (
    1e-6  # largest error of a row at q, relative to 1 and to the largest coordinate, as for the start of a simulation
)
_SAMPLES = 3
_STEP = 0.05  # radians, or parts of the mechanism's size, to configurations nearby


@dataclass(frozen=True, eq=False)
class Mobility:
    """What constraints leave of the freedoms of a model at a configuration, the result of `mobility`.

    Attributes
    ----------
    rank : int
        Number of independent rows.
    freedoms : int
        Number of independent velocities that satisfy the rows, nv - rank.
    redundant : tuple of str
        Names of rows that depend on those before them.
    singular : bool
        Whether the rank is larger at configurations nearby, so that motions bifurcate at q; or there are none, although
        rows leave velocities, so that q moves to first order only. Multipliers and derivatives of the dynamics are not
        continuous there.
    rank_nearby : int
        The largest rank at some random configurations nearby that satisfy the constraints.
    gruebler : int
        Grübler's count nv - rows, in which redundant rows count too.
    singular_values : (min(rows, nv),)
        Those of the rows with the mass matrix as metric of velocities, in decreasing order.
    motions : (nv, freedoms)
        A basis of the velocities that satisfy the rows, orthonormal in the mass matrix; dg/dt of prescribed motions is
        not in it.
    """

    rank: int
    freedoms: int
    redundant: tuple[str, ...]
    singular: bool
    rank_nearby: int
    gruebler: int
    singular_values: FloatArray
    motions: FloatArray

    def __str__(self) -> str:
        rows = f"; redundant: {', '.join(self.redundant)}" if self.redundant else ""
        nearby = ""
        if self.singular:
            larger = self.rank_nearby > self.rank
            nearby = f" (singular: {f'rank {self.rank_nearby} nearby' if larger else 'to first order only'})"
        return f"{self.freedoms} freedoms, rank {self.rank}{nearby}; Grübler's count {self.gruebler}{rows}"


def mobility(
    model: Model,
    constraints: Sequence[Constraint],
    q: ArrayLike,
    *,
    t: float = 0.0,
    tolerance: float = 1e-9,
    rng: np.random.Generator | int = 0,
) -> Mobility:
    """What constraints leave of the freedoms of a model at a configuration.

    Lengths of velocities are measured by kinetic energy, so that the rank depends neither on units of coordinates nor
    on the order of bodies.

    Parameters
    ----------
    model : Model
        With a regular mass matrix.
    constraints : sequence of Constraint
    q : (nq,) array_like
        A configuration that satisfies them.
    t : float
        Time.
    tolerance : float
        Largest singular value that counts as zero, relative to the largest row.
    rng : Generator or int
        Generator of random numbers, or its seed, for configurations nearby.

    Returns
    -------
    Mobility

    Raises
    ------
    ConstraintError
        If q does not satisfy the constraints.

    Examples
    --------
    >>> pin = ts.Loop("world", "hand", ts.Spherical()).at(model, q)  # the hand stays where it is
    >>> m = ts.mobility(model, [pin], q)
    >>> m.freedoms
    4
    """
    compiled = compile_constraints(require_model(model), constraints)
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance is {tolerance!r}, expected a number between 0 and 1")
    if np.ndim(q) != 1:
        raise ValueError(f"q has shape {np.shape(q)}, expected ({model.nq},): mobility is about one configuration")
    require_finite(q=q, t=t)
    rng = np.random.default_rng(rng)
    at = _closed(model, compiled, as_array("q", q), t)
    A, root = _rows(model, compiled, at, t)
    rank, s = _rank(A, tolerance)
    Vt = np.linalg.svd(A, full_matrices=True)[2]
    motions = root.T @ Vt[rank:].T
    nearby, stuck = rank, False
    if motions.shape[1] > 0 and rank < min(A.shape):
        directions = motions @ rng.standard_normal((motions.shape[1], _SAMPLES))
        found = [_nearby(model, compiled, at, t, along) for along in directions.T]
        ranks = [_rank(_rows(model, compiled, there, t)[0], tolerance)[0] for there in found if there is not None]
        nearby, stuck = max([rank, *ranks]), not ranks
    return Mobility(
        rank=rank,
        freedoms=model.nv - rank,
        redundant=tuple(compiled.row_names[k] for k in _dependent(A, tolerance)),
        singular=nearby > rank or stuck,
        rank_nearby=nearby,
        gruebler=model.nv - compiled.rows,
        singular_values=s,
        motions=motions,
    )


def _closed(model: Model, compiled: CompiledConstraints, q: FloatArray, t: float) -> FloatArray:
    """The configuration, projected to rounding."""
    rows = Residuals(model, compiled)
    g, time = _core.constraint_errors(model, q, None, t, None, compiled.options, None, 1)[0], np.array([t])
    gap = np.abs(g[rows.of]) / reach_of(model, q[None])
    if gap.max(initial=0.0) > _GAP or rows.flipped(q[None], time)[0]:
        k = int(rows.of[np.argmax(gap)])
        what = f"{compiled.row_names[k]!r} stays open by {abs(g[k]):.3g}"
        if gap.max(initial=0.0) <= _GAP:
            what = "a loop is closed half a turn from what it means"
        raise ConstraintError(
            f"q does not satisfy the constraints: {what}; q = ts.project(model, constraints, q) does",
            rows=(compiled.row_names[k],),
        )
    try:
        return project(model, compiled.constraints, q, t=t)
    except ConvergenceError:  # at a singular point rows may stay open by less than is allowed
        return q


def _rows(model: Model, compiled: CompiledConstraints, q: FloatArray, t: float) -> tuple[FloatArray, FloatArray]:
    """G L^-T (rows, nv) and L^-1, with the mass matrix L L^T."""
    M = np.asarray(_core.mass_matrix(model, q[None], None, 1))
    root = roots(M, model, np.arange(model.nv), False)[0]
    G = np.asarray(_core.constraint_jacobian(model, q, None, t, None, compiled.options, None, 1))
    return G @ root.T, root


def _rank(A: FloatArray, tolerance: float) -> tuple[int, FloatArray]:
    """The rank of rows, and their singular values."""
    s = np.asarray(np.linalg.svd(A, compute_uv=False), np.float64)
    largest = np.sqrt((A * A).sum(axis=1)).max(initial=0.0)
    return int((s > tolerance * largest).sum()), s


def _dependent(A: FloatArray, tolerance: float) -> list[int]:
    """The rows that depend on those before them: those that an LDL^T of A A^T without pivoting skips, found by the
    rows themselves, which does not square their errors."""
    basis, out = np.zeros((0, A.shape[1])), []
    limit = tolerance * np.sqrt((A * A).sum(axis=1)).max(initial=0.0)
    for k, row in enumerate(A):
        rest = row - basis.T @ (basis @ row)
        rest = rest - basis.T @ (basis @ rest)
        size = np.sqrt(rest @ rest)
        if size > max(limit, tolerance * np.sqrt(row @ row)):
            basis = np.concatenate([basis, rest[None] / size])
        else:
            out.append(k)
    return out


def _nearby(
    model: Model, compiled: CompiledConstraints, q: FloatArray, t: float, motion: FloatArray
) -> FloatArray | None:
    """A configuration near q, in the direction of a motion, that satisfies the constraints; None if none is found but
    q."""
    rotation = Residuals(model, compiled).rotation
    unit = np.where(rotation > 0, np.maximum(rotation, 1e-150), 1.0 / reach_of(model, q[None])[0])
    size = np.abs(motion * unit).max(initial=0.0)
    moved = np.asarray(model.plus(q, _STEP * motion / size))
    try:
        there = project(model, compiled.constraints, moved, t=t)
    except ConvergenceError:
        return None
    return there if np.abs(model.minus(there, q) * unit).max() > 0.01 * _STEP else None
