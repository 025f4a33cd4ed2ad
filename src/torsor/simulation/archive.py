"""Trajectories in .npz files: all arrays without loss; models, forces and constraints as records of `torsor.saving`,
where a file can describe them; and a description of them all, by which others are rejected.

Nothing in a file is executed, and arrays are read without pickle.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile
from zlib import error as zlib_error

import numpy as np
from numpy.lib.npyio import NpzFile

from torsor import integrators
from torsor._errors import ModelError
from torsor._files import whole_file
from torsor.constraints.constraint import Constraint, require_constraints
from torsor.forces.force import Force, require_forces
from torsor.integrators import CustomIntegrator, Integrator
from torsor.model import Model
from torsor.saving import from_record, to_record
from torsor.simulation import charts as _charts
from torsor.simulation import fingerprint as _fingerprint
from torsor.simulation.batch import own_constraints, read_models
from torsor.simulation.controls import Policy
from torsor.simulation.failures import Failure
from torsor.simulation.parameters import read_parameters

if TYPE_CHECKING:
    from torsor._typing import FloatArray
    from torsor.simulation.trajectory import Trajectory


_VERSION = 2  # 1 had no models in the files, and no version
Arrays = dict[str, Any]

_NEEDED = ("integrator", "t", "q", "v", "a", "substeps", "scene")


def save(trajectory: Trajectory, path: str | os.PathLike[str]) -> None:
    """Writes a trajectory."""
    scheme = {f.name: getattr(trajectory.integrator, f.name) for f in fields(trajectory.integrator)}
    arrays: dict[str, Any] = {name: getattr(trajectory, name) for name in ("t", "q", "v", "a", "substeps", "every")}
    arrays["version"] = np.array(_VERSION)
    arrays["scene"] = np.frombuffer(_fingerprint.to_bytes(trajectory._description), np.uint8)
    arrays["records"] = np.frombuffer(json.dumps(_records(trajectory), allow_nan=False).encode(), np.uint8)
    if trajectory.controls is not None:
        arrays["controls"] = trajectory.controls
    if trajectory.kinks is not None:
        arrays["kinks"] = trajectory.kinks
    if trajectory.previous is not None:
        arrays["previous_q"], arrays["previous_v"] = trajectory.previous
    if trajectory.actuation is not None:
        arrays["actuation"] = trajectory.actuation
    if trajectory.policy is not None:
        arrays["policy"] = np.array(True)
    for kind, given in (("parameter", trajectory.parameters), ("signal", trajectory.signals)):
        for k, values in enumerate(given):
            for name, value in values.items():
                arrays[f"{kind}_{k}_{name}"] = value
    for name, value in _charts.to_arrays(trajectory.switches).items():
        arrays[f"switch_{name}"] = value
    if trajectory.failed:
        for name in ("index", "step", "t", "reason"):
            arrays[f"failed_{name}"] = np.array([getattr(failure, name) for failure in trajectory.failed])
    for name, value in scheme.items():
        if name != "A" and value is not None:
            arrays[f"integrator_{name}"] = np.array(value)
    arrays["integrator_A"] = _rows_of(trajectory.integrator)
    with whole_file(path) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, integrator=np.array(type(trajectory.integrator).__name__), **arrays)


def _records(trajectory: Trajectory) -> dict[str, list[Any]]:
    """Models, forces and constraints as records; in place of those that a file cannot describe, the reason."""
    out: dict[str, list[Any]] = {"models": [], "forces": [], "constraints": []}
    kinds = (
        ("models", trajectory.models or (trajectory.model,)),
        *((kind, getattr(trajectory, kind)) for kind in ("forces", "constraints")),
    )
    for kind, parts in kinds:
        for k, part in enumerate(parts):
            where = "the model" if kind == "models" else f"{kind[:-1]} {k}"
            try:
                out[kind].append(to_record(part, where))
            except ModelError as error:
                out[kind].append({"reason": str(error).rpartition(";")[0]})
    return out


class _Scene(NamedTuple):
    """What a file has of the simulation beside its arrays."""

    models: tuple[Model, ...]
    forces: tuple[Force, ...]
    constraints: tuple[Constraint, ...]
    missing: tuple[str, ...]  # reasons why some of them are not in it


def _read_scene(label: str, data: Arrays) -> _Scene:
    """The models, forces and constraints in a file."""
    if "records" not in data:
        raise ValueError(f"{label} was written by an earlier torsor and has no model in it; give load the model")
    found: dict[str, list[Any]] = {"models": [], "forces": [], "constraints": []}
    missing: list[str] = []
    try:
        records = json.loads(data["records"].tobytes())
        for kind, parts in found.items():
            for record in records[kind]:
                if "reason" in record:
                    missing.append(str(record["reason"]))
                else:
                    parts.append(from_record(record))
        models = read_models(found["models"]) if found["models"] else ()
        forces, constraints = require_forces(found["forces"]), require_constraints(found["constraints"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{label} has a model that cannot be read: {error}") from None
    if not models:
        raise ValueError(f"{label} has no model in it: {'; '.join(missing)}; give load the model")
    return _Scene(models, forces, constraints, tuple(missing))


def read(
    path: str | os.PathLike[str],
    model: Model | Sequence[Model] | None,
    forces: Sequence[Force],
    policy: Any,
    constraints: Sequence[Constraint] | None = None,
) -> dict[str, Any]:
    """The fields of a saved trajectory, of these models, forces and constraints, with this policy; without a model, of
    those in the file."""
    data, label = _read_arrays(path), repr(os.fspath(path))
    if model is None:
        scene = _read_scene(label, data)
        if scene.missing and not forces:
            raise ValueError(
                f"{label} does not have all of its simulation: {'; '.join(scene.missing)}; give load the model, "
                "forces and constraints"
            )
        model = scene.models[0] if data["q"].ndim == 2 or len(scene.models) == 1 else scene.models
        forces = forces or scene.forces
        constraints = scene.constraints if constraints is None else constraints
    models, forces = read_models(model), require_forces(forces)
    constraints = own_constraints(models) if constraints is None else require_constraints(constraints)
    _check_shapes(label, data, models)
    values, signals = (_numbered(label, data, kind, len(forces)) for kind in ("parameter", "signal"))
    replaced = [{**a, **b} for a, b in zip(values, signals, strict=True)]
    _check_scene(label, data, models, forces, replaced, constraints)
    steps, failed = data["substeps"].shape[-1], _read_failures(data)
    return {
        "model": models[0],
        "models": () if isinstance(model, Model) else models,
        "forces": forces,
        "constraints": constraints,
        "integrator": _read_integrator(label, data),
        **{name: data[name] for name in ("t", "q", "v", "a", "substeps")},
        "controls": data.get("controls"),
        "switches": _charts.from_arrays({n[7:]: data[n] for n in data if n.startswith("switch_")}),
        "parameters": read_parameters(models[0], forces, values),
        "every": int(data["every"]) if "every" in data else 1,
        "previous": (data["previous_q"], data["previous_v"]) if "previous_q" in data else None,
        "signals": read_parameters(models[0], forces, signals, steps) if any(signals) else (),
        "kinks": data.get("kinks"),
        "actuation": data.get("actuation"),
        "policy": _read_policy(label, data, policy, failed),
        "failed": failed,
    }


def read_motion(path: str | os.PathLike[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a saved trajectory for drawing it, and what they lack of the simulation.

    As `read` of the model in the file; but a simulation with parts that a file cannot describe loses all its forces and
    constraints.
    """
    data, label = _read_arrays(path), repr(os.fspath(path))
    scene = _read_scene(label, data)
    if scene.missing:
        _check_shapes(label, data, scene.models)
        several = len(scene.models) > 1
        return {
            "model": scene.models[0],
            "models": scene.models if several else (),
            "forces": (),
            "integrator": _read_integrator(label, data),
            **{name: data[name] for name in ("t", "q", "v", "a", "substeps")},
            "controls": None,
            "switches": _charts.from_arrays({n[7:]: data[n] for n in data if n.startswith("switch_")}),
            "every": int(data["every"]),
        }, scene.missing
    return read(path, None, (), None), ()


def _read_arrays(path: str | os.PathLike[str]) -> Arrays:
    """The arrays of a file. Errors of damaged ones become ValueError."""
    label = repr(os.fspath(path))
    with open(path, "rb") as file:
        try:
            data = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, BadZipFile, RuntimeError):  # the last of kinds of zip files that are not known
            data = None
        if not isinstance(data, NpzFile):
            raise ValueError(f"{label} is not a trajectory file: expected a .npz file written by Trajectory.save")
        try:
            arrays = {name: data[name] for name in data}
        except (ValueError, EOFError, BadZipFile, RuntimeError, KeyError, zlib_error) as error:
            raise ValueError(f"{label} is damaged: {error}; write it again") from None
    _check_arrays(label, arrays)
    return arrays


def _check_arrays(label: str, data: Arrays) -> None:
    """Rejects files without the arrays of a trajectory, and those of a later version."""
    missing = [n for n in _NEEDED if n not in data]
    if missing:
        raise ValueError(f"{label} is not a trajectory file: it has no {', '.join(missing)}")
    version = int(data["version"]) if "version" in data else 1
    if version > _VERSION:
        raise ValueError(
            f"{label} has version {version} of the format, this torsor reads up to {_VERSION}; load it with a newer one"
        )
    rows, q, v = data["t"].shape, data["q"].shape, data["v"].shape
    if len(rows) != 1 or len(q) < 2 or q[-2] != rows[0] or q[:-1] != v[:-1] or data["a"].shape != v:
        raise ValueError(f"{label} is damaged: t {rows}, q {q}, v {v} and a {data['a'].shape} do not fit together")


def _check_shapes(label: str, data: Arrays, models: Sequence[Model]) -> None:
    nq, nv = data["q"].shape[-1], data["v"].shape[-1]
    if (nq, nv) != (models[0].nq, models[0].nv):
        raise ValueError(
            f"{label} is a trajectory of a model with nq {nq} and nv {nv}, got one with nq {models[0].nq} and nv "
            f"{models[0].nv}; load it with the model that it was simulated with"
        )
    shape = data["q"].shape[:-2]
    if len(models) > 1 and (not shape or shape[-1] != len(models)):
        raise ValueError(f"{label} has trajectories {shape}, which {len(models)} models do not fit")


def _numbered(label: str, data: Arrays, kind: str, forces: int) -> list[dict[str, FloatArray]]:
    """The arrays "kind_k_name", for each force k by name."""
    out: list[dict[str, FloatArray]] = [{} for _ in range(forces)]
    for file_name in data:
        if file_name.startswith(f"{kind}_"):
            k, name = file_name[len(kind) + 1 :].split("_", 1)
            if int(k) >= forces:
                raise ValueError(f"{label} has {kind}s of force {k}, got {forces} forces")
            out[int(k)][name] = data[file_name]
    return out


def _check_scene(
    label: str,
    data: Arrays,
    models: Sequence[Model],
    forces: Sequence[Force],
    replaced: list[dict[str, FloatArray]],
    constraints: Sequence[Constraint],
) -> None:
    """Rejects models and forces other than those of the file."""
    try:
        saved = _fingerprint.from_bytes(data["scene"].tobytes())
    except ValueError:
        raise ValueError(f"{label} is not a trajectory file: it has no description of its models") from None
    different = _fingerprint.differences(saved, _fingerprint.describe(models, forces, replaced, constraints))
    if different:
        raise ValueError(
            f"{label} is a trajectory of another model, or of other forces or constraints: {different}; load it with "
            "those that it was simulated with"
        )


def _lost(t: float, q: FloatArray, v: FloatArray) -> FloatArray:
    """Substitute for the function of a policy that was not given."""
    raise RuntimeError("the policy is not in the file of a trajectory; give it to Trajectory.load")


def _read_failures(data: Arrays) -> tuple[Failure, ...]:
    """The trajectories that failed; none in files that were written before there were any."""
    if "failed_step" not in data:
        return ()
    columns = (data[f"failed_{name}"].tolist() for name in ("index", "step", "t", "reason"))
    return tuple(Failure(tuple(index), *rest) for index, *rest in zip(*columns, strict=True))


def _read_policy(label: str, data: Arrays, given: Any, failed: Sequence[Failure]) -> Policy | None:
    """The policy that gave the controls of the file; another one is rejected if its first controls differ."""
    if "policy" not in data:
        if given is not None:
            raise ValueError(f"{label} was simulated without a policy, got {given!r}")
        return None
    if given is None:
        return Policy(_lost)
    policy = given if isinstance(given, Policy) else Policy(given)
    u = data["controls"]
    if u.shape[-2]:
        q, v = data["q"][..., 0, :], data["v"][..., 0, :]
        expected = np.array(policy._values(float(data["t"][0]), 0, q, v, u.shape[-1]))
        first = u[..., 0, :].copy()
        for failure in failed:
            if failure.step == 0:  # of controls that were not finite
                first[failure.index] = expected[failure.index] = 0.0
        error = np.abs(first - expected).max(initial=0.0)
        if not error <= 1e-9 * (1.0 + np.abs(expected).max(initial=0.0)):
            raise ValueError(
                f"{label} is a trajectory of another policy: its first controls differ from this one's by {error:.2g}"
            )
    return policy


def _read_integrator(label: str, data: Arrays) -> Integrator:
    name = str(data["integrator"])
    kind = getattr(integrators, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Integrator)):
        raise ValueError(f"{label} is of an integrator {name!r}, which this version of torsor does not have")
    stored = [f.name for f in fields(kind) if f.name != "A" and f"integrator_{f.name}" in data]
    given = {name: data[f"integrator_{name}"].item() for name in stored}
    A = data["integrator_A"] if "integrator_A" in data else np.zeros(0)
    if kind is CustomIntegrator:
        ends = np.cumsum(np.arange(1, len(A) + 1))
        return kind(**given, A=[row.tolist() for row in np.split(A, ends[ends < len(A)])])
    if not np.array_equal(_rows_of(kind), A):
        raise ValueError(f"{label} is of another integrator {name!r} than the one here: its matrix A differs")
    return kind(**given)


def _rows_of(integrator: Integrator | type[Integrator]) -> FloatArray:
    """The matrix A of an implicit integrator, row by row."""
    return np.array([a for row in getattr(integrator, "A", ()) for a in row], dtype=np.float64)
