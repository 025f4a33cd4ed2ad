"""Integrators of order 1 that solve at most one linear system per step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torsor import _core
from torsor.integrators.base import Euler


@final
@dataclass(frozen=True)
class SymplecticEuler(Euler):
    """Semi-implicit (symplectic) Euler, explicit, of order 1: v1 = v0 + h a(q0, v0), q1 = q0 + h v1.

    Controls are taken at the beginning of a step.

    Parameters
    ----------
    h : float
        Step size.
    baumgarte : float, optional
        Rate at which errors of constraints are removed; Sueda 2021, (1.97). By default 1 / h, and 0 with
        post-stabilisation.
    stabilization : {"baumgarte", "post"}
        With "post", the end of a step is moved onto the constraints, to first order and by the shortest way in the
        metric of the mass matrix: post-stabilisation, Sueda 2021, 1.12.
    """

    order: ClassVar[int] = 1


@final
@dataclass(frozen=True)
class LinearlyImplicitEuler(Euler):
    """Symplectic Euler with the forces linearised at the end of the step, of order 1. Sueda 2021, (2.84)-(2.86).

    One linear system per step: (M - h D - h^2 K) (v1 - v0) = h f + h^2 K v0, with K = dtau/dq and D = dtau/dv of all
    forces, the change of their lever arms included. Gravity and velocity-dependent inertial forces are explicit.

    Parameters
    ----------
    h : float
        Step size.
    baumgarte : float, optional
        Rate at which errors of constraints are removed; Sueda 2021, (1.97). By default 1 / h, and 0 with
        post-stabilisation.
    stabilization : {"baumgarte", "post"}
        With "post", the end of a step is moved onto the constraints, to first order and by the shortest way in the
        metric of the mass matrix: post-stabilisation, Sueda 2021, 1.12.
    """

    order: ClassVar[int] = 1
    _kind: ClassVar[_core.StageKind] = _core.StageKind.linearised
