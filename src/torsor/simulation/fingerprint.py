"""Descriptions of the models and forces of a trajectory, by which differences can be reported.

A description maps labels, such as "inertia of 'hand'", to texts or to lists of numbers. It contains everything that a
motion depends on and nothing else: not names of models, visuals, or limits that no force enforces. User-defined joints,
forces and functions are described by their names and by public attributes that are numbers, texts, joints or poses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from numbers import Number
from typing import Any

import numpy as np

from torsor.constraints.constraint import Constraint
from torsor.forces.custom import CustomForce
from torsor.forces.force import Force
from torsor.joints import Joint
from torsor.model import WORLD, Model
from torsor.spatial import SE3

Description = dict[str, Any]  # label -> text, or list of numbers

_ROUNDING = 1e-12  # relative to the largest of some numbers: rounding differs between machines
_SHOWN = 4  # differences that a message lists


def describe(
    models: Sequence[Model],
    forces: Sequence[Force],
    replaced: Sequence[Mapping[str, Any]],
    constraints: Sequence[Constraint] = (),
) -> Description:
    """Describes models, forces and constraints, without parameters of forces that were replaced."""
    out: Description = {}
    if len(models) > 1:
        out["number of models"] = [float(len(models))]
    for m, model in enumerate(models):
        where = f" in model[{m}]" if len(models) > 1 else ""
        _add_model(out, model, where)
    out["number of forces"] = [float(len(forces))]
    for k, force in enumerate(forces):
        own = replaced[k] if k < len(replaced) else {}
        out[f"force {k}"] = type(force).__name__
        for m, model in enumerate(models):
            where = f" in model[{m}]" if len(models) > 1 else ""
            _add_force(out, force, model, own, f"force {k} ({type(force).__name__}){where}")
    if constraints:
        out["number of constraints"] = [float(len(constraints))]
    for k, constraint in enumerate(constraints):
        label = f"constraint {k} ({type(constraint).__name__})"
        out[f"constraint {k}"] = type(constraint).__name__
        for name, value in _attributes(constraint).items():
            if name != "name":
                _add(out, f"{name} of {label}", value)
    return out


def _add_model(out: Description, model: Model, where: str) -> None:
    out["gravity" + where] = list(model.gravity)
    out["bodies" + where] = ", ".join(repr(b.name) for b in model.bodies)
    for b in model.bodies:
        label = f"{b.name!r}{where}"
        out[f"parent of {label}"] = b.parent
        _add(out, f"joint of {label}", b.joint)
        _add(out, f"placement of {label}", b.placement)
        out[f"inertia of {label}"] = b.inertia.parameters.tolist()
        if any(b.armature):
            out[f"armature of {label}"] = list(b.armature)
    for frame in model.frames:
        out[f"body of {frame.name!r}{where}"] = frame.body
        _add(out, f"placement of {frame.name!r}{where}", frame.placement)
    for k, coupling in enumerate(model.couplings):
        label = f"coupling {k} ({type(coupling).__name__}){where}"
        out[f"coupling {k}{where}"] = type(coupling).__name__
        for name, value in _attributes(coupling).items():
            _add(out, f"{name} of {label}", value)


def _add_force(out: Description, force: Force, model: Model, replaced: Mapping[str, Any], label: str) -> None:
    numbers = force._for_model(model.tree).parameters
    for name, value in numbers.items():
        if name not in replaced:
            out[f"{name} of {label}"] = value.ravel().tolist()
    known = {*numbers, *force._numbers, *replaced, *(("p",) if isinstance(force, CustomForce) else ())}
    for name, value in _attributes(force).items():
        if name not in known:
            ours = not isinstance(force, CustomForce)
            _add(out, f"{name} of {label}", _place(model, name, value) if ours else value)


def _place(model: Model, name: str, value: Any) -> Any:
    """Fields that name bodies or joints, by the names of bodies; other values unchanged."""
    if name == "joint" and value is not None:
        return model.joint(value).body
    if name in ("body", "body1", "body2", "other"):
        return value if value == WORLD else model.frame(value).name
    if name == "bodies":
        return ", ".join(repr(_place(model, "body", b)) for b in value)
    return value


def _attributes(thing: object) -> dict[str, Any]:
    """The fields of a dataclass, and all public attributes."""
    names = [f.name for f in fields(thing)] if is_dataclass(thing) else []
    names += sorted(name for name in getattr(thing, "__dict__", {}) if name not in names)
    return {name: getattr(thing, name) for name in names if not name.startswith("_")}


def _add(out: Description, label: str, value: Any) -> None:
    """Adds numbers, texts, joints and poses; of any other value, its name."""
    if isinstance(value, SE3):
        out[label] = value.matrix[:3].ravel().tolist()
    elif isinstance(value, Joint):
        out[label] = type(value).__name__
        for name, part in _attributes(value).items():
            _add(out, f"{name} of the {label}", part)
    elif value is None or isinstance(value, str):
        out[label] = str(value)
    elif isinstance(value, (list, tuple)) and any(isinstance(x, (SE3, Joint, str)) for x in value):
        out[f"number of {label}"] = [float(len(value))]
        for k, part in enumerate(value):
            _add(out, f"{label}[{k}]", part)
    else:
        array = np.array(None)
        if isinstance(value, (Number, np.ndarray, list, tuple)):
            with suppress(ValueError):  # rows of different lengths
                array = np.asarray(value)
        if array.dtype.kind in "biuf":
            out[label] = array.astype(np.float64).ravel().tolist()
        elif array.dtype.kind == "c":
            out[label] = np.stack([array.real, array.imag]).ravel().tolist()
        elif isinstance(value, (list, tuple)):
            out[f"number of {label}"] = [float(len(value))]
            for k, part in enumerate(value):
                _add(out, f"{label}[{k}]", part)
        else:
            out[label] = str(getattr(value, "__name__", type(value).__name__))


def to_bytes(description: Description) -> bytes:
    """The description as JSON, with exact numbers."""
    return json.dumps(description).encode()


def from_bytes(data: bytes) -> Description:
    """The description from the result of `to_bytes`; anything else raises ValueError."""
    out = json.loads(data.decode())
    if not isinstance(out, dict):
        raise ValueError("no description")
    return out


def differences(saved: Description, given: Description) -> str:
    """A text that lists the differences, empty if there are none."""
    found: list[str] = []
    for label in {**saved, **given}:
        was, now, before = saved.get(label), given.get(label), len(found)
        if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
            found += _numbers(label, was, now)
        elif was != now:
            found.append(f"{label} was {_text(was)}, is {_text(now)}")
        # With another structure everything else differs too.
        if len(found) > before and label.startswith(
            ("number of models", "bodies", "number of forces", "number of constraints")
        ):
            break
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


def _numbers(label: str, was: list[Any], now: list[Any]) -> list[str]:
    """The first number that differs by more than rounding."""
    try:
        a, b = np.array(was, np.float64), np.array(now, np.float64)
    except (TypeError, ValueError):
        return [f"{label} was {_text(was)}, is {_text(now)}"]
    size = max(np.abs(x[np.isfinite(x)]).max(initial=0.0) for x in (a, b))
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= _ROUNDING * size)
    if same.all():
        return []
    k = int(np.argmin(same))
    return [f"{label}{f'[{k}]' if len(was) > 1 else ''} was {was[k]!r}, is {now[k]!r}"]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"{value[0]!r}" if len(value) == 1 else f"{len(value)} numbers"
    return "not there" if value is None else str(value)
