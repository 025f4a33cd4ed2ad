"""All problems of the file of a model at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from torsor._errors import FormatError
from torsor.formats._mjcf_problems import examine_mjcf
from torsor.formats._model_problems import examine_meshes, examine_model, note_massless, note_unlimited
from torsor.formats._problem import Problem, Problems
from torsor.formats._saved_problems import examine_saved
from torsor.formats._source import kind_of
from torsor.formats._urdf_problems import examine_urdf
from torsor.model import Model

if TYPE_CHECKING:
    from torsor.joints import Joint

__all__ = ["Problem", "find_problems"]


def find_problems(source: str | os.PathLike[str] | Model, *, root: Joint | None = None) -> tuple[Problem, ...]:
    """Looks for all problems of a model, or of a file: URDF, MJCF, or that of `Model.save`.

    Loaders raise at the first fault of a file; this reads on. It finds elements that cannot be read, names that are
    missing or used twice, links that form no tree, inertias that are not physical, joints that move no mass, limits
    that are missing or wrong, keyframes beyond limits, constraints that cannot be satisfied, mesh files that are not
    there, and what a model leaves out of its file. A file without errors can be loaded.

    Parameters
    ----------
    source : str, path-like or Model
        Path of a file; or a model.
    root : Joint, optional
        Joint between the world and the root link of a URDF file, as for `load_urdf`.

    Returns
    -------
    tuple of Problem
        Errors first; empty if nothing was found.

    Raises
    ------
    FormatError
        If the file is not of one of these formats at all.
    FileNotFoundError
        If there is no file at the path.
    ImportError
        If the file is MJCF, and the package `mujoco` is not installed.

    Examples
    --------
    >>> ts.find_problems(ts.models.arm7())
    ()
    """
    problems = Problems()
    if isinstance(source, Model):
        for body in source.bodies:
            if (fault := body.inertia._fault()) is not None:
                problems.add("warning", f"body {body.name!r}: inertia is not physical: {fault}")
        examine_model(source, problems)
        return problems.sorted()
    path = Path(source)
    kind = kind_of(path)
    if kind == "motion":
        raise FormatError(f"{str(path)!r} is a motion, expected a model")
    if kind == "URDF":
        model = examine_urdf(path, root, problems)
    else:
        model = examine_mjcf(path, problems) if kind == "MJCF" else examine_saved(path, problems)
    if model is None:
        return problems.sorted()
    examine_model(model, problems)
    if kind != "MJCF":  # whose meshes are read, and whose joints have bodies that are not in the file
        examine_meshes(model, problems)
        note_massless(model, problems)
    if kind != "URDF":  # where they are called continuous
        note_unlimited(model, problems)
    return problems.sorted()
