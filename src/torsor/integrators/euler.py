"""Integrators of order 1 that solve at most a linear system a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torsor import _core
from torsor.integrators.base import Explicit


@final
@dataclass(frozen=True)
class SymplecticEuler(Explicit):
    """v1 = v0 + h a(q0, v0), q1 = q0 + h v1: explicit, of order 1. Controls are taken at the beginning of a step."""

    order: ClassVar[int] = 1


@final
@dataclass(frozen=True)
class LinearlyImplicitEuler(Explicit):
    """Symplectic Euler with stiffness and damping of the forces at the end of the step, linearised: order 1.

    Sueda 2021, (2.84)-(2.86).

    One linear system a step: (M - h D - h^2 K) (v1 - v0) = h f + h^2 K v0, with K = dtau/dq and D = dtau/dv of all
    forces, the change of their lever arms included. Gravity and velocity-dependent inertial forces are explicit.
    """

    order: ClassVar[int] = 1
    _kind: ClassVar[_core.StageKind] = _core.StageKind.linearised
