"""Inertias of files: which of them are faults, which are worth a warning, and their repair.

Links that are fixed to each other move as one body, and only the sum of their inertias matters. A body's inertia is
a *fault* if its mass is negative, or a moment about the origin of its frame is; or if it has a negative principal
moment and the kinetic energy of the whole robot can be negative. All other inertias that no distribution of mass has
load with a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from torsor.dynamics import mass_matrix
from torsor.inertia import Inertia
from torsor.model import Model
from torsor.spatial import SE3

_CONFIGURATIONS = 64  # in which kinetic energy is looked at
_MOST_VELOCITIES = 1000  # of a robot that is looked at so


@dataclass(slots=True)
class Link:
    """A link of a file: its inertia, and the body that it is part of, with its pose there."""

    name: str
    line: int
    inertia: Inertia
    body: int
    pose: SE3


@dataclass
class Findings:
    """What is wrong with the inertias of a file.

    `merged` are links whose own inertia is not physical, in bodies whose inertia is. `bodies` and `faults` are (link,
    reason) for links of bodies whose inertia is not physical; `negative` are those of `bodies` for which it depends on
    the robot whether they are faults.
    """

    merged: list[Link] = field(default_factory=list)
    bodies: list[tuple[Link, str]] = field(default_factory=list)
    faults: list[tuple[Link, str]] = field(default_factory=list)
    negative: list[tuple[Link, str]] = field(default_factory=list)


def examine(links: Sequence[Link]) -> Findings:
    """Judges the inertias of the links of one file."""
    out = Findings()
    bodies: dict[int, list[Link]] = {}
    for link in links:
        bodies.setdefault(link.body, []).append(link)
    for parts in bodies.values():
        found = [(link, fault) for link in parts if (fault := link.inertia._fault()) is not None]
        if not found:
            continue
        whole = sum((link.inertia.transformed(link.pose) for link in parts), Inertia.zero())
        if whole.physical:
            out.merged += [link for link, _ in found]
            continue
        moments = np.linalg.eigvalsh(whole._I_origin)
        if whole.mass < 0 or moments[0] < -1e-9 * np.abs(moments).max():
            out.faults += found
        else:
            out.bodies += found
            out.negative += found if whole.principal()[0][0] < 0 else []
    return out


def all_physical(inertias: Sequence[Inertia]) -> bool:
    """Whether no inertia is suspect, all at once; those that break an inequality by rounding only are suspect too."""
    low, middle, high = np.linalg.eigvalsh(np.array([inertia.I_com for inertia in inertias])).T
    mass = np.array([inertia.mass for inertia in inertias])
    return bool(((mass >= 0) & (low >= 0) & (low + middle >= high)).all())


def negative_energy(model: Model) -> str | None:
    """Why kinetic energy may be negative, from many configurations; None if it is not in any of them.

    Mass matrices are scaled to a diagonal of ones, so that rounding is of the size of each coordinate.
    """
    if model.nv > _MOST_VELOCITIES:
        return f"kinetic energy is not looked at in robots with more than {_MOST_VELOCITIES} velocities"
    q = np.concatenate([model.neutral[None], model.random(0, _CONFIGURATIONS - 1)])
    for M in mass_matrix(model, q):
        diagonal = np.abs(np.diagonal(M))
        scale = 1.0 / np.sqrt(np.where(diagonal > 1e-14 * diagonal.max(initial=0.0), diagonal, 1.0))
        energies, motions = np.linalg.eigh(scale[:, None] * M * scale)
        if energies.min(initial=0.0) < -1e-9:
            most = int(np.abs(motions[:, 0]).argmax())
            name = next(joint.name for joint in model.joints if joint.v_slice.start <= most < joint.v_slice.stop)
            return f"kinetic energy of the robot can be negative, in motions of joint {name!r}"
    return None


def repaired(findings: Findings) -> list[tuple[Link, float]]:
    """Replaces the inertias of links in `bodies` and `faults` by the nearest physical ones.

    Returns the links and how far their inertia was moved, as a part of its size.
    """
    out = []
    for link, _ in (*findings.faults, *findings.bodies):
        old = link.inertia
        link.inertia = old.nearest_physical()
        change = np.linalg.norm(link.inertia.I_com - old.I_com) / np.linalg.norm(old.I_com)
        out.append((link, float(change)))
    return out
