"""Argument checks and their messages, in one place.

The core recognises float64 arrays in C order of fitting shapes. Other inputs are converted or rejected here. NaN and
infinity are accepted, and affect only the results of their state. Quaternions of length 0 are rejected, because they
are not rotations, and masked arrays, because masks would be ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from functools import update_wrapper
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np

from torsor import _core
from torsor._errors import ConstraintError, CouplingError, SingularMassMatrixError
from torsor.spatial import refuse_mask

if TYPE_CHECKING:
    from torsor._typing import Array

    Slot = tuple[str, tuple[int, ...], bool]  # name, shape for one state, whether it is optional

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound="tuple[Any, ...]")
MAX_BATCH_DIMENSIONS = 28
_LAYOUT: Final = ("C", "ALIGNED")
_DOUBLE: Final = np.dtype(np.float64)
complex_allowed: ContextVar[bool] = ContextVar("complex_allowed", default=False)


_AXES = {"body": 0, "world": 1, "local_world_aligned": 2}


def axes(frame: str, name: str = "frame") -> int:
    """The core's number of a frame of expression."""
    if not isinstance(frame, str) or frame not in _AXES:
        raise ValueError(f"{name} is {frame!r}, expected 'body', 'world' or 'local_world_aligned'")
    return _AXES[frame]


def listed(names: Sequence[str], wanted: object = None, accepted: Iterable[str] = ()) -> str:
    """The names as 'a', 'b', 'c', truncated when there are many, and the one, of these or of others that are accepted,
    that `wanted` may have meant."""
    shown = ", ".join(repr(n) for n in names[:12])
    shown = shown if len(names) <= 12 else f"{shown}, ... ({len(names)} in all)"
    near = get_close_matches(wanted, [*names, *accepted], n=1) if isinstance(wanted, str) else []
    return f"{shown}; did you mean {near[0]!r}?" if near else shown


def unknown(kind: str, name: object, names: Sequence[str], where: str = "", accepted: Iterable[str] = ()) -> KeyError:
    """The error for an unknown name: what there is, and what is nearest. `where` says what it was given for."""
    plural = "bodies" if kind == "body" else f"{kind}s"
    return KeyError(f"no {kind} named {name!r}{where}; {plural} are {listed(names, name, accepted)}")


def _reason(model: Any, name: str, shape: tuple[int, ...]) -> str:
    """The reason for the expected length of an array, for error messages."""
    joints = getattr(model, "joints", None)
    if not hasattr(model, "nbodies") or joints is None or not shape:
        return ""
    nq, nv, nbodies = model.nq, model.nv, model.nbodies
    longer = [j for j in joints if j.nq != j.nv]
    hint = ""
    if longer:
        kind = type(longer[0].joint).__name__
        hint = f"; nq is {nq} and nv is {nv} because {longer[0].name!r} is a {kind} joint"
    if shape == (nq,) and (nq != nv or "q" in name.split()[-1]):
        return f": model.nq is {nq}{hint}"
    if shape == (nv,):
        return f": model.nv is {nv}{hint}"
    if shape[:1] == (nbodies,):
        return f": model.nbodies is {nbodies}"
    return ""


def require_finite(**given: Any) -> None:
    """Rejects arrays that are not finite, where they would cause a misleading error later."""
    for name, value in given.items():
        bad = np.zeros(0) if value is None else np.argwhere(~np.isfinite(array := as_array(name, value)))
        if len(bad):
            where = bad[0].tolist()
            raise ValueError(f"{name} is not finite: {name}{where or ''} is {array[tuple(where)]}")


def all_finite(array: Array) -> bool:
    """Whether all numbers are finite. A sum usually decides: of squares for small arrays, which costs a quarter of the
    full test, but wakes other threads for large ones."""
    if array.size < 4096:
        total = np.vdot(array, array)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            total = array.sum()
    return isfinite(total) or bool(np.isfinite(array).all())


def _shape_text(shape: tuple[int, ...]) -> str:
    return f"(..., {', '.join(map(str, shape))})" if shape else "(...)"


def as_array(name: str, value: Any) -> Array:
    """`value` as a native float64 (or, where allowed, complex128) array in C order."""
    if type(value) is np.ndarray and value.dtype is _DOUBLE and value.flags.c_contiguous and value.flags.aligned:
        return value
    refuse_mask(name, value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} is not an array: its rows differ in length") from None
    if array.dtype.kind == "c":
        if not complex_allowed.get():
            raise TypeError(f"{name} is complex, expected real numbers; torsor.testing.complex_inputs() allows it")
        return np.require(array, np.complex128, _LAYOUT)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} has dtype {array.dtype}, expected numbers, got {type(value).__name__}")
    return np.require(array, np.float64, _LAYOUT)


def _wrenches(model: Any, name: str, given: Mapping[Any, Any], axes: int) -> Any:
    """`f_ext` or its tangent (..., nbodies, 6) from wrenches (..., 6) by the names of bodies and frames.

    A wrench at a frame is one at its body: moved there if it is given in the frame's own axes, the same in the world's
    frame. In the world's axes at the frame's origin it would depend on the configuration.
    """
    if name not in ("f_ext", "df_ext"):
        raise TypeError(f"{name} is a dict, expected an array")
    parts: list[tuple[int, Array]] = []
    for key, value in given.items():
        i, wrench = model._find(key, "frame"), as_array(f"{name}[{key!r}]", value)
        if wrench.shape[-1:] != (6,):
            raise ValueError(f"{name}[{key!r}] has shape {wrench.shape}, expected (..., 6): moment, then force")
        if i >= model.nbodies:
            frame = model.frames[i - model.nbodies]
            if frame.body == "world":
                continue
            i = model._find(frame.body, "body")
            if axes == _AXES["body"]:
                wrench = wrench @ frame.placement.inverse().adjoint
            elif axes != _AXES["world"] and frame.placement.p.any():
                raise ValueError(
                    f"{name}[{key!r}] is given in 'local_world_aligned' at a frame away from the origin of body "
                    f"{frame.body!r}, about which its moment changes with q; give it in 'body' or 'world', or as a "
                    "PointForce"
                )
        parts.append((i, wrench))
    try:
        batch = np.broadcast_shapes(*(wrench.shape[:-1] for _, wrench in parts))
    except ValueError:
        shapes = ", ".join(f"{key!r} {np.shape(value)}" for key, value in given.items())
        raise ValueError(f"batch shapes of {name} do not fit together: {shapes}") from None
    out = np.zeros((*batch, model.nbodies, 6), np.result_type(np.float64, *(wrench for _, wrench in parts)))
    for i, wrench in parts:
        out[..., i, :] += wrench
    return out


def prepare(
    model: Any,
    in_slots: Sequence[Slot],
    inputs: Sequence[Any],
    out_slots: Sequence[Slot | None],
    out: Any,
    axes: int = 0,
) -> tuple[tuple[Array | None, ...], Any, Callable[[Any], Any] | None, bool]:
    """Converts arguments for the core.

    `out_slots` has None for outputs that are not requested; `axes` is the number of the frame in which wrenches are
    given. Returns the inputs; the outputs, or None where the core allocates them; a function from the core's result to
    the caller's, or None; and whether the call is complex.
    """
    arrays: list[Array | None] = []
    batches: list[tuple[int, ...]] = []
    for (name, shape, optional), value in zip(in_slots, inputs, strict=True):
        if value is None:
            if not optional:
                raise TypeError(f"{name} is missing, expected an array of shape {_shape_text(shape)}")
            arrays.append(None)
            continue
        array = as_array(name, _wrenches(model, name, value, axes) if isinstance(value, Mapping) else value)
        lead = array.ndim - len(shape)
        if lead < 0 or array.shape[lead:] != shape:
            raise ValueError(
                f"{name} has shape {array.shape}, expected {_shape_text(shape)}{_reason(model, name, shape)}"
            )
        if lead > MAX_BATCH_DIMENSIONS:
            raise ValueError(f"{name} has {lead} batch dimensions, expected {MAX_BATCH_DIMENSIONS} at most")
        arrays.append(array)
        batches.append(array.shape[:lead])
    try:
        batch = np.broadcast_shapes(*batches)
    except ValueError:
        given = ", ".join(
            f"{name} {a.shape}" for (name, _, _), a in zip(in_slots, arrays, strict=True) if a is not None
        )
        raise ValueError(f"batch shapes do not fit together: {given}") from None
    is_complex = any(a is not None and a.dtype.kind == "c" for a in arrays)
    dtype = np.complex128 if is_complex else np.float64
    for i, ((_, shape, _), a) in enumerate(zip(in_slots, arrays, strict=True)):
        if a is None:
            continue
        if a.ndim > len(shape) and prod(a.shape[: a.ndim - len(shape)]) == 1 != prod(batch):
            a = a.reshape(shape)  # the same for all states: the core repeats it
        if a.ndim > len(shape) and a.shape != batch + shape:
            a = np.broadcast_to(a, batch + shape)
        arrays[i] = np.require(a, dtype, _LAYOUT)
    if out is None:
        return tuple(arrays), None, None, is_complex
    outs = [out] if len(out_slots) == 1 else list(out) if isinstance(out, (tuple, list)) else None
    if outs is None or len(outs) != len(out_slots):
        got = type(out).__name__ if outs is None else f"{len(outs)}"
        raise TypeError(f"out must be a tuple of {len(out_slots)} arrays, got {got}")
    wanted = [(slot, array) for slot, array in zip(out_slots, outs, strict=True) if slot is not None]
    for (name, shape, _), array in wanted:
        label = "out" if len(out_slots) == 1 else f"out ({name})"
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{label} must be a NumPy array, got {type(array).__name__}")
        refuse_mask(label, array)
        if array.shape != batch + shape:
            raise ValueError(f"{label} has shape {array.shape}, expected {batch + shape}")
        if array.dtype != dtype:
            raise TypeError(f"{label} has dtype {array.dtype}, expected {np.dtype(dtype)}")
        if not array.flags.writeable:
            raise ValueError(f"{label} is read-only")
    for i, (_, a) in enumerate(wanted):
        for _, b in wanted[:i]:
            if np.shares_memory(a, b):
                raise ValueError("two arrays of out share memory")

    def finish(result: Any) -> Any:
        for slot, target, value in zip(out_slots, outs, [result] if len(outs) == 1 else result, strict=True):
            if slot is not None:
                np.copyto(target, value)
        if len(outs) == 1:
            return out
        return tuple(o if slot is not None else None for slot, o in zip(out_slots, outs, strict=True))

    return tuple(arrays), None, finish, is_complex


def record_of(function: str) -> Callable[[type[R]], type[R]]:
    """Makes a NamedTuple the type of the results of a function of the core."""

    def register(record: type[R]) -> type[R]:
        _core.set_record_type(function, record)
        return record

    return register


def direct(kernel: str) -> Callable[[F], F]:
    """Makes plain calls of a function go straight to a kernel of the core, without the cost of a Python call.

    For functions that only pass their arguments on: positional parameters are the model and the first inputs of the
    kernel, the defaults of all others are those of the kernel, and `f_ext`, if there is one, is its last input. Calls
    with keywords other than `f_ext`, `out` and `threads`, and wrong calls, run the function. A second parameter named
    `constraints` goes to the options of the kernel, whose third input is then t, 0 by default; the first call with a
    list of constraints runs the function.
    """

    def wrap(function: F) -> F:
        code = function.__code__
        keywords = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        constrained = code.co_varnames[1:2] == ("constraints",)
        made = _core.Function(kernel, function, code.co_argcount, "f_ext" in keywords, constrained)
        return cast(F, update_wrapper(made, function))

    return wrap


def raise_zero_quaternion(model: Any, name: str, joint: int, state: int | None) -> None:
    """Raises the error for a quaternion of length 0 in an input, in a state of a batch (flat index) or in all."""
    where = "" if state is None else f" in state {state} of the batch (counted flat)"
    at = f" at joint {model.joints[joint].name!r}" if hasattr(model, "joints") else ""
    raise ValueError(
        f"{name} has a quaternion of length 0{at}{where}, expected a positive length; the identity is (0, 0, 0, 1)"
    )


class StepFailed(Exception):
    """The core's report of a failed step: the state of a batch (flat index, None for a single one), and (outcome,
    error, allowed) as for `simulate`."""

    def __init__(self, state: int | None, failure: tuple[int, float, float]) -> None:
        self.state, self.failure = state, failure


def raise_step_failed(given: dict[str, Any], state: int | None, failure: tuple[int, float, float]) -> None:
    """Raises StepFailed, or the error for inputs `given` that are not finite."""
    require_finite(**{name: given[name] for name in ("q", "v", "p", "u", "t") if name in given})
    raise StepFailed(state, failure)


def raise_singular(model: Any, joint: int, state: int | None) -> None:
    """Raises the error for a mass matrix that is singular at a joint, in a state of a batch (flat index) or in a single
    one."""
    where = "" if state is None else f" in state {state} of the batch (counted flat)"
    name = "?"
    if hasattr(model, "joints"):
        new = len(model.joints)  # coordinates of couplings come after them
        name = model.joints[joint].name if joint < new else model._map.new[joint - new]
    raise SingularMassMatrixError(
        f"the mass matrix is singular at joint {name!r}{where}: some motion of this joint moves no mass; give the "
        "bodies beyond it inertia, leave the singularity of its coordinates, or prescribe it in hybrid_dynamics"
    )


def raise_uncoupled(function: str) -> None:
    """Raises the error for a function that does not take models with couplings."""
    raise CouplingError(
        f"{function} does not take models with couplings; use model.tree with constraints such as Coupling or Gear in "
        "place of the couplings"
    )


def raise_contradiction(names: Sequence[str], row: int, others: Sequence[int], state: int | None) -> None:
    """Raises the error for a row of constraints that cannot be fulfilled beside others, in a state of a batch (flat
    index) or in a single one."""
    where = "" if state is None else f" in state {state} of the batch (counted flat)"
    if others:
        what = f"{names[row]!r} contradicts {listed([names[r] for r in others])}{where}: it depends on these rows alone"
    else:
        what = f"{names[row]!r} cannot be fulfilled{where}: no joint moves it"
    raise ConstraintError(
        f"{what}, but asks for another acceleration; correct its numbers or prescribed motion, start from a state that "
        "fulfils all constraints, leave it out, or give compliance=",
        [names[row], *(names[r] for r in others)],
    )
