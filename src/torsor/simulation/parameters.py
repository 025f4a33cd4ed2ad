"""Parameters of forces that a simulation replaces: for all of it, or as signals with a row for each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor._check import as_array, listed
from torsor.forces.force import Force
from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray

    Parameters = tuple[dict[str, FloatArray], ...]  # for each force by name


def read_parameters(model: Model, forces: Sequence[Force], given: Any, steps: int | None = None) -> Parameters:
    """Parameters that replace those of the forces, or signals with a row for each of `steps` steps. Names and shapes
    are validated, values are not."""
    if given is None:
        return tuple({} for _ in forces)
    what, row = ("parameters", ()) if steps is None else ("signals", (steps,))
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence) or len(given) != len(forces):
        got = f"{len(given)} of them" if isinstance(given, (list, tuple)) else type(given).__name__
        raise TypeError(f"{what} must be a list with a dict, or None, for each of {len(forces)} forces, got {got}")
    out: list[dict[str, FloatArray]] = []
    for k, (force, values) in enumerate(zip(forces, given, strict=True)):
        label = f"force {k} ({type(force).__name__})"
        if values is not None and not isinstance(values, Mapping):
            raise TypeError(f"{what} of {label} must be a dict or None, got {type(values).__name__}")
        out.append({})
        if not values:
            continue
        # A parameter that the force does not have yet, such as a rest length, is a number.
        known = {**dict.fromkeys(force._numbers, ()), **shapes_of(model, force)}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"{label} has no parameter {name!r}; it has {listed([*known], name)}")
            array, shape = as_array(f"{name} of {label}", value), row + known[name]
            if array.shape[array.ndim - len(shape) :] != shape or array.ndim < len(shape):
                expected = f"(..., {', '.join(map(str, shape))})" if shape else "(...)"
                why = "as the force's own" if steps is None else f"as the force's own for each of {steps} steps"
                raise ValueError(f"{name} of {label} has shape {array.shape}, expected {expected}, {why}")
            out[-1][name] = array.copy()
            out[-1][name].flags.writeable = False
    return tuple(out)


def require_apart(forces: Sequence[Force], parameters: Parameters, signals: Parameters) -> None:
    """Rejects a parameter that is given both for all steps and as a signal."""
    for k, (values, rows) in enumerate(zip(parameters, signals, strict=True)):
        for name in rows:
            if name in values:
                raise ValueError(
                    f"{name} of force {k} ({type(forces[k]).__name__}) is given twice, in parameters and in signals"
                )


def batch_shapes(
    model: Model, forces: Sequence[Force], parameters: Parameters, signals: Parameters
) -> list[tuple[int, ...]]:
    """The batch shapes of all parameters and signals."""
    if not any(parameters) and not any(signals):
        return []
    both = (parameters, 0), (signals, 1)
    return [
        lead
        for given, rows in both
        for force, values in zip(forces, given, strict=True)
        for lead in leads_of(model, force, values, rows)
    ]


def leads_of(model: Model, force: Force, values: Mapping[str, FloatArray], rows: int = 0) -> list[tuple[int, ...]]:
    """The batch shapes of parameters of a force, or of its signals, which have one more dimension (`rows` = 1)."""
    own = shapes_of(model, force) if values else {}
    return [value.shape[: value.ndim - rows - len(own.get(name, ()))] for name, value in values.items()]


def shapes_of(model: Model, force: Force) -> dict[str, tuple[int, ...]]:
    """The shapes of the parameters of a force, with those that it takes from the model. The model caches them."""
    cache: dict[int, tuple[Force, dict[str, tuple[int, ...]]]] = model._cache.setdefault("shapes", {})
    found = cache.get(id(force))
    if found is None or found[0] is not force:
        found = force, {name: value.shape for name, value in force._for_model(model.tree).parameters.items()}
        if force._frozen:
            if len(cache) >= 64:
                cache.clear()
            cache[id(force)] = found
    return found[1]


def steps_of_rows(rows: NDArray[np.int64], every: int) -> NDArray[np.int64]:
    """The steps whose parameters hold at rows."""
    return np.maximum(every * rows - 1, 0)
