"""Models in plain files: JSON, versioned, exact.

A file has {"format": "torsor model", "version": 1, "model": ...}. A record is an object whose "type" is the name of its
class, beside its fields; a pose has R and p, an inertia mass, com and I_com. Infinite numbers are the texts "inf" and
"-inf" in {"number": ...}. Only classes of torsor are written and read; nothing in a file is executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from torsor._errors import FormatError, ModelError
from torsor.inertia import Inertia
from torsor.joints import Composite, CustomJoint
from torsor.model import Model, require_model
from torsor.spatial import SE3

_FORMAT, _VERSION = "torsor model", 1


@cache
def _classes() -> dict[str, type]:
    """The classes of which files have records, by name: the public ones that are records, and shapes."""
    out: dict[str, type] = {}
    for module in (import_module("torsor"), import_module("torsor.shapes")):
        for value in (getattr(module, name) for name in module.__all__):
            if isinstance(value, type) and is_dataclass(value):
                out[value.__name__] = value
    return out


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """As `Model.save`."""
    content = {"format": _FORMAT, "version": _VERSION, "model": _written(require_model(model), "the model")}
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    Path(path).write_text(text, encoding="utf-8")


def _written(value: Any, where: str) -> Any:
    """A value as JSON has it; `where` says in messages what it is."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if isfinite(value) else {"number": str(float(value))}
    if isinstance(value, (tuple, list)):
        return [_written(x, where) for x in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"type": "array", "values": _written(value.tolist(), where)}
    if isinstance(value, SE3):
        return {"type": "SE3", "R": value.R.tolist(), "p": value.p.tolist()}
    if isinstance(value, Inertia):
        return {"type": "Inertia", "mass": value.mass, "com": value.com.tolist(), "I_com": value.I_com.tolist()}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"type": "dict", "items": [[key, _written(x, f"{key!r} of {where}")] for key, x in value.items()]}
    kind = type(value).__name__
    if is_dataclass(value) and not isinstance(value, type) and _classes().get(kind) is type(value):
        name = getattr(value, "name", None)
        of = where if name is None or isinstance(value, Model) else f"{kind} {name!r}"
        parts = {f.name: _written(getattr(value, f.name), f"{f.name} of {of}") for f in fields(value)}
        return {"type": kind, **parts}
    what = "a function" if callable(value) and not isinstance(value, CustomJoint) else f"a {kind}"
    raise ModelError(
        f"{where} is {what}, which a file cannot describe: {value!r}; replace it before saving, or pickle the model"
    )


def load(path: str | os.PathLike[str]) -> Model:
    """As `Model.load`."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"{os.fspath(path)!r} is not a file of Model.save: {error}") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise FormatError(f"{os.fspath(path)!r} is not a file of Model.save: it has no format {_FORMAT!r}")
    version = content.get("version")
    if version != _VERSION:
        raise FormatError(
            f"{os.fspath(path)!r} has version {version!r} of the format, this torsor reads {_VERSION}; load it with "
            "the torsor that saved it, or a newer one"
        )
    model = _read(content.get("model"))
    if not isinstance(model, Model):
        raise FormatError(f"{os.fspath(path)!r} has no model")
    return model


def _read(x: Any) -> Any:
    if isinstance(x, list):
        return tuple(_read(part) for part in x)
    if not isinstance(x, dict):
        return x
    if "number" in x:
        return float(x["number"])
    kind = x.get("type")
    if kind == "dict":
        return {key: _read(value) for key, value in x["items"]}
    if kind == "array":
        return np.array(_read(x["values"]))
    try:
        return _record(str(kind), {key: _read(value) for key, value in x.items() if key != "type"})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        name = f" {x['name']!r}" if isinstance(x.get("name"), str) else ""
        raise FormatError(f"{kind}{name} in the file is invalid: {error}") from None


def _record(kind: str, parts: dict[str, Any]) -> Any:
    """A record of the fields `parts`: made as by a user, so that it is valid, then with exactly these numbers."""
    if kind == "SE3":
        return SE3(**parts)
    if kind == "Inertia":
        return Inertia(**parts, allow_unphysical=True)
    if kind not in _classes():
        raise ValueError("there is no such record in this version of torsor")
    given = {name: value for name, value in parts.items() if not name.startswith("_")}
    made = Composite(*given["joints"]) if kind == "Composite" else _classes()[kind](**given)
    if not isinstance(made, Model):
        for name, value in parts.items():
            if type(getattr(made, name)) is type(value):
                object.__setattr__(made, name, value)
    return made
