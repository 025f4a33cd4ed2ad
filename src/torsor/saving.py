"""Models in plain files: JSON, versioned, exact.

A file has {"format": "torsor model", "version": 1, "model": ...}. A record is an object whose "type" is the name of its
class, beside its fields; a pose has R and p, an inertia mass, com and I_com. Infinite numbers are the texts "inf" and
"-inf" in {"number": ...}. Only classes of torsor are written and read; nothing in a file is executed.
"""

from __future__ import annotations

import ast
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
from torsor._files import whole_file
from torsor.inertia import Inertia
from torsor.joints import Composite, CustomJoint
from torsor.model import Model, require_model
from torsor.spatial import SE3

_FORMAT, _VERSION = "torsor model", 1


@cache
def _class(kind: str) -> type | None:
    """The class of records of a kind: a public one that is a record, or a shape; None if there is none."""
    for module in (import_module("torsor"), import_module("torsor.shapes")):
        if kind in module.__all__ and kind[0].isupper():  # the others are functions and modules
            value = getattr(module, kind)
            if isinstance(value, type) and is_dataclass(value):
                return value
    return None


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """As `Model.save`."""
    text = to_text(model)
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def to_text(model: Model) -> str:
    """The text of the file of a model."""
    content = {"format": _FORMAT, "version": _VERSION, "model": to_record(require_model(model), "the model")}
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def to_record(value: Any, where: str) -> Any:
    """A model, or a part of one, a force or a constraint, as JSON has it; `where` says in messages what it is."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if isfinite(value) else {"number": str(float(value))}
    if isinstance(value, (tuple, list)):
        return [to_record(x, where) for x in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"type": "array", "values": to_record(value.tolist(), where)}
    if isinstance(value, SE3):
        return {"type": "SE3", "R": value.R.tolist(), "p": value.p.tolist()}
    if isinstance(value, Inertia):
        return {"type": "Inertia", "mass": value.mass, "com": value.com.tolist(), "I_com": value.I_com.tolist()}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"type": "dict", "items": [[key, to_record(x, f"{key!r} of {where}")] for key, x in value.items()]}
    kind = type(value).__name__
    if is_dataclass(value) and not isinstance(value, type) and _class(kind) is type(value):
        name = getattr(value, "name", None)
        of = where if name is None or isinstance(value, Model) else f"{kind} {name!r}"
        parts = {f.name: to_record(getattr(value, f.name), f"{f.name} of {of}") for f in fields(value)}
        return {"type": kind, **parts}
    what = "a function" if callable(value) and not isinstance(value, CustomJoint) else f"a {kind}"
    raise ModelError(
        f"{where} is {what}, which a file cannot describe: {value!r}; replace it before saving, or pickle the model"
    )


def load(path: str | os.PathLike[str]) -> Model:
    """As `Model.load`."""
    model = from_record(record_of(path))
    if not isinstance(model, Model):
        raise FormatError(f"{os.fspath(path)!r} has no model")
    return model


def record_of(path: str | os.PathLike[str]) -> Any:
    """The record of the model in a file."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
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
    return content.get("model")


def from_record(x: Any) -> Any:
    """The inverse of `to_record`. Raises FormatError if the record is invalid."""
    try:
        return _read(x)
    except RecursionError:
        raise FormatError("a record in the file is nested too deeply") from None


def _read(x: Any) -> Any:
    if isinstance(x, list):
        return tuple(_read(part) for part in x)
    if not isinstance(x, dict):
        return x
    kind = x.get("type")
    try:
        if "number" in x:
            return float(x["number"])
        if kind == "dict":
            return {key: _read(value) for key, value in x["items"]}
        if kind == "array":
            return np.array(_read(x["values"]))
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
    found = _class(kind)
    if found is None:
        raise ValueError("there is no such record in this version of torsor")
    _require_kinds(found, parts)
    given = {name: value for name, value in parts.items() if not name.startswith("_")}
    made = Composite(*given["joints"]) if kind == "Composite" else found(**given)
    if not isinstance(made, Model):
        for name, value in parts.items():
            if type(getattr(made, name)) is type(value):
                object.__setattr__(made, name, value)
    return made


# ---- kinds of values, as the fields of records are annotated

_NAMED: dict[str, tuple[type, ...]] = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}
_OBJECTS = {"SE3", "Inertia", "Joint", "Constraint", "JointCoupling"}  # beside records, whose names are public
_AMBIGUOUS = {"Frame", "Shape"}  # classes, and words that are options


@cache
def _annotations(kind: type) -> dict[str, tuple[str, ast.expr]]:
    """The annotations of the fields of a record: as text, and parsed."""
    texts = {f.name: f.type if isinstance(f.type, str) else getattr(f.type, "__name__", "Any") for f in fields(kind)}
    return {name: (text, ast.parse(text, mode="eval").body) for name, text in texts.items()}


def _require_kinds(kind: type, parts: Mapping[str, Any]) -> None:
    """Rejects values of other kinds than the fields of a record have, which nothing else may look at for long."""
    for name, (text, annotation) in _annotations(kind).items():
        if name in parts and not _fits(parts[name], annotation):
            raise ValueError(f"{name} is {parts[name]!r}, expected {text}")


def _fits(value: Any, annotation: ast.expr) -> bool:
    """Whether a value is of the kind that an annotation says; names that are not known here are for all values."""
    if isinstance(annotation, ast.BinOp):
        return _fits(value, annotation.left) or _fits(value, annotation.right)
    if isinstance(annotation, ast.Constant):
        return annotation.value is not None or value is None
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if annotation.value.id == "tuple":
            return isinstance(value, tuple) and _fit_all(value, inner)
        if annotation.value.id in ("dict", "Mapping"):
            return isinstance(value, dict) and all(_fits(x, inner[-1]) for x in value.values())
        return True
    if not isinstance(annotation, ast.Name):
        return True
    name = annotation.id
    if name in _NAMED:
        return isinstance(value, _NAMED[name]) and (name == "bool" or not isinstance(value, bool))
    if name in _OBJECTS or (name not in _AMBIGUOUS and _class(name) is not None):
        return name in {parent.__name__ for parent in type(value).__mro__}
    return True


def _fit_all(values: tuple[Any, ...], inner: list[ast.expr]) -> bool:
    if len(inner) == 2 and isinstance(inner[1], ast.Constant) and inner[1].value is Ellipsis:
        return all(_fits(x, inner[0]) for x in values)
    return len(values) == len(inner) and all(map(_fits, values, inner))
