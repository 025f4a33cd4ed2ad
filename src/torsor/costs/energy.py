"""Energies as costs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np

from torsor import _core
from torsor._check import complex_allowed
from torsor._core import complex_step
from torsor.costs.cost import Cost, CostValue, States, symmetric, weights, when
from torsor.costs.placement import by_placement, carriers, cross, parents
from torsor.derivatives.hessians import inverse_dynamics_hessians
from torsor.derivatives.matrices import inverse_dynamics_derivatives
from torsor.derivatives.vjp import inverse_dynamics_vjp
from torsor.dynamics import gravity_forces, kinetic_energy, mass_matrix, potential_energy
from torsor.forces.force import CompiledForces, compile_forces
from torsor.inertia import Inertia
from torsor.joints import Free
from torsor.kinematics import body_poses
from torsor.model import Model, ModelBuilder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import At, AtLike, EnergyPart, FloatArray


_PARTS = ("kinetic", "potential", "forces")


@final
@dataclass(frozen=True, init=False)
class EnergyCost(Cost):
    """A multiple of kinetic energy, potential energy of gravity, and energies of forces.

    Derivatives of the energies of forces with respect to their parameters are complex steps: with "forces", the
    `energy` of a user-defined force with parameters must accept complex numbers.

    Parameters
    ----------
    parts : sequence of {"kinetic", "potential", "forces"}
        The energies in the sum.
    weight : float
        Factor, at least 0.
    at : int, slice, list of int or "time"
        Rows of a trajectory over which the cost is summed, by default the last one; or "time" for its integral.
    """

    parts: tuple[EnergyPart, ...]
    weight: float
    at: At = field(hash=False)

    def __init__(self, parts: Sequence[EnergyPart] = ("kinetic",), weight: float = 1.0, at: AtLike = -1) -> None:
        listed = isinstance(parts, Sequence) and not isinstance(parts, str)
        if not listed or not parts or any(p not in _PARTS for p in parts):
            raise ValueError(f"parts are {parts!r}, expected a list of 'kinetic', 'potential' and 'forces'")
        if len(set(parts)) < len(parts):
            raise ValueError(f"parts are {parts!r}, expected each energy once; weight= makes it count for more")
        object.__setattr__(self, "parts", tuple(parts))
        object.__setattr__(self, "weight", weights(weight, one=True))
        object.__setattr__(self, "at", when(at, self.inputs))

    @property
    def inputs(self) -> str:  # type: ignore[override]
        """The inputs, "qv" with the kinetic energy, else "q"."""
        return "qv" if "kinetic" in self.parts else "q"

    @property
    def uses_forces(self) -> bool:  # type: ignore[override]
        """Whether the energies of forces are among the parts."""
        return "forces" in self.parts

    def _evaluate(self, x: States, hessians: bool) -> CostValue:
        model, q, v, rest = x.model, x.q, x.v, np.zeros(x.model.nv)
        total: dict[str, Any] = {}

        def add(**given: FloatArray) -> None:
            for name, part in given.items():
                total[name] = self.weight * part + total.get(name, 0.0)

        if "kinetic" in self.parts:
            # v . M(q) v / 2 is v . inverse_dynamics(q, 0, v) / 2 without gravity.
            still = model._weightless
            M = mass_matrix(model, q)
            dq = 0.5 * inverse_dynamics_vjp(still, q, rest, v, v, outputs=("q",)).q
            add(value=kinetic_energy(model, q, v), dq=dq, dv=np.einsum("...ij,...j->...i", M, v))
            if hessians:
                outputs = ("d2tau_dqdq", "d2tau_dadq")
                H = inverse_dynamics_hessians(still, q, rest, v, contract=v, outputs=outputs)
                add(dqdq=symmetric(0.5 * H.d2tau_dqdq), dqdv=np.swapaxes(H.d2tau_dadq, -1, -2), dvdv=M)
        if "potential" in self.parts:
            add(value=potential_energy(model, q), dq=gravity_forces(model, q))
            if hessians:
                d = inverse_dynamics_derivatives(model, q, rest, rest, outputs=("dtau_dq",))
                add(dqdq=symmetric(d.dtau_dq))
        if "forces" in self.parts and x.springs is not None:
            given = (model, q, rest, x.t, x.springs.parameters, {"forces": x.springs.core}, None, 1)
            add(value=_core.force_energies(*given).sum(-1), dq=-_core.generalized_forces(*given))
            if hessians:
                add(dqdq=-symmetric(_core.generalized_forces_derivatives(*given)[0]))
        return CostValue(**{"value": np.zeros(x.shape), **total})

    def _by_parameters(self, x: States) -> dict[str, FloatArray]:
        model, q, rest = x.model, x.q, np.zeros(x.model.nv)
        total: dict[str, Any] = {}

        def add(name: str, part: FloatArray) -> None:
            total[name] = self.weight * part + total.get(name, 0.0)

        if "kinetic" in self.parts:
            outputs = ("inertia", "placement", "armature")
            g = inverse_dynamics_vjp(model._weightless, q, rest, x.v, x.v, outputs=outputs)
            for name in outputs:
                add(name, 0.5 * getattr(g, name))
        if "potential" in self.parts:
            for name, part in zip(("inertia", "placement", "gravity"), _potential(model, q), strict=True):
                add(name, part)
        if "forces" in self.parts and x.springs is not None:
            add("springs", _by_parameters(x, x.springs))
            add("placement", _by_placement(x, x.springs))
        return total


def _potential(model: Model, q: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Derivatives of the potential energy, -sum of g.(m p + R h), by inertias, placements and gravity."""
    g, poses = np.array(model.gravity), body_poses(model, q)
    above, every = parents(model), list(range(model.nbodies))
    # Bodies fixed to the world do not count.
    moves = np.array([any(model.joints[j].nv for j in carriers(model, i)) for i in every], dtype=float)
    inertia = np.zeros((*q.shape[:-1], model.nbodies, 10))
    inertia[..., 0] = -moves * (poses[..., :3, 3] @ g)
    inertia[..., 1:4] = -moves[:, None] * np.einsum("...ji,j->...i", poses[..., :3, :3], g)
    parameters = moves[:, None] * model.inertial_parameters.reshape(-1, 10)
    mass, h = parameters[:, :1], parameters[:, 1:4]
    moments = mass * poses[..., :3, 3] + np.einsum("...ij,...j->...i", poses[..., :3, :3], h)
    wrenches = np.concatenate([-cross(moments, g), -mass * np.ones_like(moments) * g], axis=-1)
    for i in reversed(every):
        if above[i] >= 0:
            wrenches[..., above[i], :] += wrenches[..., i, :]
    return inertia, by_placement(model, poses, every, wrenches), -moments.sum(axis=-2)


def _by_parameters(x: States, springs: CompiledForces) -> FloatArray:
    """Derivatives (..., n) of the energy of all forces by their parameters, by complex steps."""
    rest, p = np.zeros(x.model.nv), springs.parameters
    out = np.zeros((*x.shape, p.shape[-1]))
    token = complex_allowed.set(True)
    try:
        with warnings.catch_warnings():
            # math.sqrt and the like take the real part.
            warnings.filterwarnings("error", message="Casting complex values")
            for k in np.flatnonzero(np.isfinite(p).all(axis=tuple(range(p.ndim - 1)))):
                moved = p.astype(complex)
                moved[..., k] += 1j * complex_step
                energies: Any = _core.force_energies(x.model, x.q, rest, x.t, moved, {"forces": springs.core}, None, 1)
                out[..., k] = energies.imag.sum(axis=-1) / complex_step
    except (TypeError, RuntimeWarning) as error:
        raise TypeError(
            f"EnergyCost takes complex steps of the energies of forces, one of which takes no complex numbers: {error}"
        ) from error
    finally:
        complex_allowed.reset(token)
    return out


def _loosened(model: Model) -> tuple[Model, NDArray[np.int64], NDArray[np.int64]]:
    """The model with a free joint, at rest, for every placement; where its own coordinates are in those of the new one,
    and where the velocities of the new joints are, (nbodies, 6)."""
    taken = {name for b in model.bodies for name in (b.name, b.joint_name)}
    suffix = "'"
    while any(name + suffix in taken for name in taken):
        suffix += "'"
    builder, own, new, nq, nv = ModelBuilder(gravity=model.gravity), [], [], 0, 0
    for b in model.bodies:
        builder.add_body(b.name + suffix, b.parent, Free(), b.placement, Inertia.zero())
        builder.add_body(b.name, b.name + suffix, b.joint, inertia=b.inertia, joint_name=b.joint_name)
        new.append(nv + np.arange(6))
        own.append(nq + 7 + np.arange(b.joint.nq))
        nq, nv = nq + 7 + b.joint.nq, nv + 6 + b.joint.nv
    return builder.build(), np.concatenate([np.zeros(0, np.int64), *own]), np.array(new, np.int64).reshape(-1, 6)


def _by_placement(x: States, springs: CompiledForces) -> FloatArray:
    """Derivatives (..., nbodies, 6) of the energy of forces by placements: minus the torques in joints put there."""
    forces = springs.forces
    sizes = [sum(p.size for p in force.parameters.values()) for force in forces]
    ends = np.cumsum(sizes)
    # Energies in the coordinates of joints do not depend on placements.
    kept = [k for k, f in enumerate(forces) if not f._joints(x.model)]
    if not kept:
        return np.zeros((*x.shape, x.model.nbodies, 6))
    model, own, new = _loosened(x.model)
    columns = np.concatenate([np.arange(ends[k] - sizes[k], ends[k]) for k in kept])
    wide = np.broadcast_to(model.neutral, (*x.shape, model.nq)).copy()
    wide[..., own] = x.q
    compiled = compile_forces(model, [forces[k] for k in kept])
    parameters = np.ascontiguousarray(springs.parameters[..., columns])
    tau = _core.generalized_forces(model, wide, np.zeros(model.nv), x.t, parameters, {"forces": compiled.core}, None, 1)
    return -tau[..., new]
