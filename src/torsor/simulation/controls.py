"""Controls: actuation, the map from controls to torques, and their sources: arrays, functions of time, policies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor._check import all_finite, as_array
from torsor.model import require_model
from torsor.simulation.failures import add_note

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor._typing import FloatArray
    from torsor.integrators import Integrator
    from torsor.model import Model
    from torsor.simulation.trajectory import Trajectory

    OfTime = Callable[[float], ArrayLike]
    OfState = Callable[[float, FloatArray, FloatArray], ArrayLike]
    Derivatives = Callable[[float, FloatArray, FloatArray], tuple[ArrayLike, ArrayLike]]


# ---- actuation


@dataclass(frozen=True, eq=False)
class Actuation:
    """Torques B u of controls u: `matrix` is B (nv, nu)."""

    matrix: FloatArray

    @cached_property
    def velocities(self) -> NDArray[np.int64] | None:
        """The velocities on which controls act, if each is the torque of one velocity and no two are the same."""
        if np.count_nonzero(self.matrix) != self.matrix.shape[1]:
            return None
        rows, columns = np.nonzero(self.matrix)
        single = len(rows) == self.matrix.shape[1] == len(set(rows.tolist())) == len(set(columns.tolist()))
        if not single or (self.matrix[rows, columns] != 1.0).any():
            return None
        return np.asarray(rows[np.argsort(columns)])

    def torques(self, u: FloatArray) -> FloatArray:
        """B u (..., nv) of u (..., nu), summed in one order, so that a batch has the same bits as its parts."""
        out = np.zeros((*u.shape[:-1], len(self.matrix)))
        if self.velocities is not None:
            out[..., self.velocities] = u
            return out
        for j, column in enumerate(self.matrix.T):
            out += u[..., j, None] * column
        return out

    def pull_back(self, g: FloatArray) -> FloatArray:
        """Gradients B^T g (..., nu) with respect to controls, of g (..., nv) with respect to torques."""
        if self.velocities is not None:
            return g[..., self.velocities]
        out = np.zeros((*g.shape[:-1], self.matrix.shape[1]))
        for i, row in enumerate(self.matrix):
            out += g[..., i, None] * row
        return out


def read_actuation(model: Model, given: Any) -> Actuation:
    """The actuation, validated: names of joints, or a matrix (nv, nu)."""
    if isinstance(given, str):
        raise TypeError(f"actuation is {given!r}, expected a list of names of joints: did you mean [{given!r}]?")
    if isinstance(given, np.ndarray) and given.dtype.kind == "U":
        given = given.tolist()
    if isinstance(given, Sequence) and not isinstance(given, np.ndarray):
        if len(given) == 0:
            raise ValueError("actuation is empty, expected names of joints or a matrix (nv, nu)")
        if any(isinstance(name, str) for name in given):
            names = tuple(given)
            return _cached(model, names, lambda: _selection(model, names))
    elif not isinstance(given, np.ndarray) and isinstance(given, Iterable):
        raise TypeError(
            f"actuation is a {type(given).__name__}, expected a list of names of joints or a matrix (nv, nu)"
        )
    matrix = as_array("actuation", given)
    if matrix.ndim != 2 or len(matrix) != model.nv or matrix.shape[1] == 0:
        raise ValueError(
            f"actuation has shape {matrix.shape}, expected ({model.nv}, nu), a column of nv = {model.nv} torques for "
            "each control; or a list of names of joints"
        )
    return _cached(model, matrix.tobytes(), lambda: _checked(matrix))


def _checked(matrix: FloatArray) -> FloatArray:
    """A read-only copy of a matrix, which must be finite."""
    if not all_finite(matrix):
        raise ValueError("actuation is not finite")
    copy = np.array(matrix)
    copy.flags.writeable = False
    return copy


def _cached(model: Model, key: tuple[str, ...] | bytes, make: Callable[[], FloatArray]) -> Actuation:
    """An actuation that the model caches."""
    cache: dict[tuple[str, ...] | bytes, Actuation] = require_model(model)._cache.setdefault("actuation", {})
    found = cache.get(key)
    if found is None:
        found = Actuation(make())
        if len(cache) >= 8:
            cache.clear()
        cache[key] = found
    return found


def _selection(model: Model, names: Sequence[str]) -> FloatArray:
    """The columns of the identity that belong to some joints."""
    velocities: list[int] = []
    for name in names:
        found = model._velocities(name, "control")
        if found.start == found.stop:
            raise ValueError(f"actuation names the joint {name!r}, which is fixed and has no torque")
        if found.start in velocities:
            raise ValueError(f"actuation names the joint {name!r} twice")
        velocities += range(found.start, found.stop)
    matrix = np.zeros((model.nv, len(velocities)))
    matrix[velocities, range(len(velocities))] = 1.0
    matrix.flags.writeable = False
    return matrix


# ---- policies


@dataclass(frozen=True)
class Policy:
    """A feedback policy: controls as a function of time and state.

    Parameters
    ----------
    function : callable
        `function(t, q, v)` returns the controls (..., nu) at the time t and the states q (..., nq), v (..., nv) of all
        trajectories of a batch. `simulate` calls it once at the beginning of each step, over which they are constant.
    derivatives : callable, optional
        `derivatives(t, q, v)` returns du_dq and du_dv, each (..., nu, nv), du_dq in the tangent space. Required by
        `adjoint`.

    Examples
    --------
    >>> policy = ts.Policy(lambda t, q, v: -v @ K.T, lambda t, q, v: (np.zeros_like(K), -K))
    """

    function: OfState
    derivatives: Derivatives | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function of a Policy is {self.function!r}, expected a function of (t, q, v)")
        if self.derivatives is not None and not callable(self.derivatives):
            raise TypeError(
                f"derivatives of a Policy is {self.derivatives!r}, expected a function of (t, q, v) or None"
            )

    def __call__(self, t: float, q: FloatArray, v: FloatArray) -> ArrayLike:
        """The controls (..., nu) at the time t and the states q, v."""
        return self.function(t, q, v)

    def _values(self, t: float, step: int, q: FloatArray, v: FloatArray, size: int) -> FloatArray:
        """The controls (..., size) at the beginning of a step. Shapes are validated, values are not; q and v are the
        caller's no more."""
        shape = (*q.shape[:-1], size)
        try:
            u = as_array("policy(t, q, v)", self.function(t, q, v))
        except Exception as error:
            add_note(error, f"in the policy of simulate, at step {step}, t = {t:.6g}")
            raise
        if u.shape == shape:
            return u
        if u.ndim == 0 or u.shape[-1] != size or not _broadcasts(u.shape, shape):
            raise ValueError(
                f"policy(t, q, v) has shape {u.shape} at t = {t:.6g}, expected {shape}: a row of {size} controls for "
                f"each trajectory; at step {step}"
            )
        return np.broadcast_to(u, shape)

    def _jacobians(self, t: float, step: int, q: FloatArray, v: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
        """du_dq and du_dv (..., size, nv) at the beginning of a step, validated."""
        if self.derivatives is None:
            raise TypeError(
                "the controls come from a policy without derivatives, so the gradient would lack the terms of the "
                "feedback; simulate with controls=Policy(function, derivatives), where derivatives(t, q, v) returns "
                "(du_dq, du_dv); for a loaded trajectory give it to Trajectory.load"
            )
        try:
            given = self.derivatives(t, q, v)
        except Exception as error:
            add_note(error, f"in the derivatives of the policy, at step {step}, t = {t:.6g}")
            raise
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            got = type(given).__name__
            raise ValueError(
                f"derivatives of the policy gave {got} at t = {t:.6g}, expected a pair (du_dq, du_dv); at step {step}"
            )
        shape, out = (*q.shape[:-1], size, v.shape[-1]), []
        for name, value in zip(("du_dq", "du_dv"), given, strict=True):
            try:
                array = as_array(f"{name} of the policy", value)
            except Exception as error:
                add_note(error, f"in the derivatives of the policy, at step {step}, t = {t:.6g}")
                raise
            if array.shape[-2:] != shape[-2:] or not _broadcasts(array.shape, shape):
                raise ValueError(
                    f"{name} of the policy has shape {array.shape} at t = {t:.6g}, expected {shape}; at step {step}"
                )
            if not all_finite(array):
                good = np.isfinite(np.broadcast_to(array, shape)).all(axis=(-2, -1))
                bad = int(np.argmin(good))
                where = f" in trajectory {bad} of the batch" if len(shape) > 2 else ""
                raise ValueError(f"{name} of the policy is not finite at t = {t:.6g}{where}, at step {step}")
            out.append(np.broadcast_to(array, shape))
        return out[0], out[1]


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(a in (1, b) for a, b in pairs)


def as_policy(controls: Any) -> Policy | None:
    """The policy, if the controls are one: a `Policy`, or a function of three arguments and not of one. A function of
    one argument may have others with defaults, but not *args: it could be either."""
    if isinstance(controls, Policy):
        return controls
    if not callable(controls):
        return None
    counts = _positional(controls)
    if counts is None:
        return None
    if 1 in counts:
        if not isinstance(counts, range) and 3 in counts:
            signature = inspect.signature(controls)
            if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
                raise TypeError(
                    f"controls is a function of {signature}, which may be one of time or a policy: give "
                    "Policy(function) for a policy, or a function of one argument, lambda t: function(t)"
                )
        return None
    if 3 not in counts:
        signature = inspect.signature(controls)
        raise TypeError(f"controls is a function of {signature}, expected one of time, u(t), or a policy, u(t, q, v)")
    return Policy(controls)


def _positional(function: Any) -> Collection[int] | None:
    """The numbers of positional arguments that a function takes, at least 1 and 3 if it does; None if not known."""
    if type(function) is FunctionType and not function.__dict__:  # inspect.signature takes longer than many steps
        code = function.__code__
        if not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) and code.co_kwonlyargcount == 0:
            return range(code.co_argcount - len(function.__defaults__ or ()), code.co_argcount + 1)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return [count for count in (1, 3) if _takes(signature, count)]


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


# ---- controls over the steps of a simulation


@dataclass
class Controls:
    """The controls of all steps of a batch of trajectories.

    `values` are (batch, steps, stages, nu), or (1, ...) where they are the same for all; None without controls.
    `stages` is 1 for torques that are constant over a step. `function` is the function of time from which they were
    sampled, `policy` the policy that fills them in step by step.
    """

    values: FloatArray | None = None
    stages: int = 1
    actuation: Actuation | None = None
    function: OfTime | None = None
    policy: Policy | None = None

    def torques(self, part: slice, start: int, steps: int) -> FloatArray | None:
        """Torques of some steps of some trajectories, (size or 1, steps, stages, nv), in C order."""
        if self.values is None:
            return None
        values = self.values[slice(1) if len(self.values) == 1 else part, start : start + steps]
        return np.ascontiguousarray(values) if self.actuation is None else self.actuation.torques(values)

    def rows(self, steps: int, shape: tuple[int, ...]) -> FloatArray | None:
        """Controls of the first steps, as in a trajectory: (*shape, steps, nu) or (*shape, steps, stages, nu)."""
        if self.values is None:
            return None
        values = self.values[:, :steps, 0] if self.stages == 1 else self.values[:, :steps]
        if len(values) != prod(shape):  # the same memory for all
            return np.broadcast_to(values.reshape(values.shape[1:]), (*shape, *values.shape[1:]))
        return np.ascontiguousarray(values).reshape((*shape, *values.shape[1:]))


def read_controls(
    model: Model, integrator: Integrator, controls: Any, actuation: Actuation | None, t: FloatArray
) -> tuple[FloatArray | None, int]:
    """Controls (..., steps, stages, nu) from an array or a function, and the number of stages. t: times of the rows."""
    steps, size = len(t) - 1, model.nv if actuation is None else actuation.matrix.shape[1]
    letters = "model.nv is" if actuation is None else "the actuation has controls"
    if callable(controls):
        array = _sample(integrator, controls, t, size, letters)
        if array is None:
            return None, len(integrator._fractions)
        stages = array.shape[-2]
    else:
        array, stages = as_array("controls", controls), 1
        if array.shape == (size,):
            constant, array = array, np.empty((steps, size))
            array[:] = constant
        if array.ndim < 2 or array.shape[-2:] != (steps, size):
            letter = "nv" if actuation is None else "nu"
            raise ValueError(
                f"controls have shape {array.shape}, expected (..., {steps}, {size}), a row of {letter} = {size} "
                f"torques for each of {steps} steps; or ({size},), constant; or a function of time or of (t, q, v)"
            )
        array = array[..., None, :]
    if not all_finite(array):
        *batch, step, _, _ = np.argwhere(~np.isfinite(array))[0].tolist()
        where = f"of trajectory {batch} of the batch" if batch else ""
        raise ValueError(f"controls are not finite: those of step {step} {where}".rstrip())
    return np.array(array, order="C"), stages  # a copy, independent of the caller's array


def _sample(integrator: Integrator, function: OfTime, t: FloatArray, size: int, letters: str) -> FloatArray | None:
    """Values (..., steps, stages, size) of a function of time at the stages of all steps."""
    shifts = [integrator.h * fraction for fraction in integrator._fractions]
    samples = []
    for time in t[:-1].tolist():
        for shift in shifts:
            u = as_array("controls(t)", function(time + shift))
            if u.ndim == 0 or u.shape[-1] != size:
                raise ValueError(f"controls(t) has shape {u.shape}, expected (..., {size}): {letters} {size}")
            samples.append(u)
    if not samples:
        return None
    array = np.array(samples) if all(u.ndim == 1 for u in samples) else np.stack(np.broadcast_arrays(*samples), axis=-2)
    return array.reshape(*array.shape[:-2], len(t) - 1, len(shifts), size)


def controls_of(trajectory: Trajectory) -> Controls:
    """The controls of a trajectory, as arrays."""
    u, shape, matrix = trajectory.controls, trajectory.batch_shape, trajectory.actuation
    actuation = None if matrix is None else Actuation(matrix)
    if u is None:
        return Controls(None, actuation=actuation)
    stages = u.shape[-2] if u.ndim - len(shape) == 3 else 1
    if shape and u.size and not any(u.strides[: len(shape)]):  # the same for all
        return Controls(u[(0,) * len(shape)].reshape(1, trajectory.steps, stages, u.shape[-1]), stages, actuation)
    return Controls(u.reshape(prod(shape), trajectory.steps, stages, u.shape[-1]), stages, actuation)
