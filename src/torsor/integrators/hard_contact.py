"""Steps with hard contact, limits and Coulomb friction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

from torsor import _core
from torsor.integrators.base import Explicit, require_at_least_one, require_positive


@final
@dataclass(frozen=True)
class HardContact(Explicit):
    """Symplectic Euler with hard contact, of order 1: velocities at the end of a step do not let shapes overlap.

    Sueda 2021, 1.11-1.13, with the gap in the rows and a round cone of friction. Each step solves

    - M (v1 - v0) = h (tau - bias) + impulses of contacts, limits and constraints, and q1 = q0 + h v1;
    - at each place of a contact, and at each limit of a joint: the impulse pushes, n.u1 + gap / h >= 0, and one of both
      is zero;
    - friction, at most the coefficient of friction times the impulse along the normal, acts against the slip, and is
      that large where a contact slips. A contact that sticks does not creep.

    Contacts are the forces `Contact`: their shapes and `friction` are taken, and `stiffness`, `dissipation`, `slip` and
    `onset` are ignored. Limits are the forces `JointLimits`, without their stiffness and damping. Friction of joints is
    `JointFriction` and `BearingFriction`, without `slip`. All other forces are explicit, as in `SymplecticEuler`, and
    so is `GroundContact`. Impacts are plastic. A state in which shapes overlap by d is resolved within one step, which
    leaves the velocity d / h: start without overlap.

    Constraints hold for velocities together with the contacts, with the gain 1 / h. Gradients are those of the contacts
    that are closed, stick and slip; where a contact is about to change (`Trajectory.kinks`), those of the open and the
    slipping side.

    Parameters
    ----------
    h : float
        Step size.
    tolerance : float
        Bound on the error of all these conditions, in velocities and relative to 1 + |v|.
    iterations : int
        Maximum number of rounds of staggered projections, of impulses along normals and of friction.

    Examples
    --------
    >>> b = ts.ModelBuilder("ball")
    >>> _ = b.add_body("ball", joint=ts.Free(), inertia=ts.Inertia.sphere(radius=0.1, mass=1.0))
    >>> ball, ground = b.build(), ts.shapes.HalfSpace()
    >>> touch = ts.Contact("ball", ts.shapes.Sphere(0.1), "world", ground, stiffness=1e5, friction=0.8)
    >>> start = [0, 0, 0.5, 0, 0, 0, 1]
    >>> motion = ts.simulate(ball, start, T=1.0, integrator=ts.HardContact(h=5e-3), forces=[touch])
    >>> np.allclose(motion.q[-1, 2], 0.1, atol=1e-3)
    True
    """

    tolerance: float = 1e-10
    iterations: int = 1000
    order: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self.tolerance, "tolerance of HardContact", "the error that contacts may have")
        require_at_least_one(self.iterations, "iterations of HardContact")

    @cached_property
    def _numbers(self) -> _core.HardScheme:
        return _core.HardScheme(self.h, self.tolerance, self.iterations)
