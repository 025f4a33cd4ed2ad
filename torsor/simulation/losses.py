"""Losses of trajectories with their derivatives, for `adjoint`: what the usual objective is a sum of.

Each function takes a `Trajectory` and gives a `Loss`, which can be added to others and multiplied by numbers. In a
batch every trajectory has a loss of its own. `rows` are those that count: an index, a slice or a list; the last row by
default.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import prod
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import as_array, complex_allowed
from torsor.derivatives.matrices import inverse_dynamics_vjp
from torsor.dynamics import gravity_forces, kinetic_energy, mass_matrix, potential_energy
from torsor.forces.custom import CustomForce
from torsor.forces.force import Force, compile_forces
from torsor.inertia import Inertia
from torsor.joints import Free
from torsor.kinematics import body_poses, point_jacobian, point_positions
from torsor.model import Model, ModelBuilder
from torsor.simulation.parameters import steps_of_rows
from torsor.simulation.trajectory import Trajectory

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor.simulation.batch import Batch, Span

    FloatArray = NDArray[np.float64]
    Rows = int | slice | Sequence[int]


@dataclass(frozen=True)
class Loss:
    """A number (...) for each trajectory and its derivatives; None where they are zero.

    dq and dv are (..., rows, nv), dq in the tangent space; du is shaped as the controls. `dinertia`, `dplacement`,
    `dgravity`, `dforces` and `dsignals` are derivatives with respect to what the loss depends on by itself, not through
    the motion: shaped as those of `AdjointGradient`, to which `adjoint` adds them.

    `of` is the trajectory, of which alone `adjoint` takes the loss; in a pickled loss, the digest of its numbers. None,
    for a loss that was made by hand, fits any.
    """

    value: FloatArray
    dq: FloatArray | None = None
    dv: FloatArray | None = None
    du: FloatArray | None = None
    dinertia: FloatArray | None = None
    dplacement: FloatArray | None = None
    dgravity: FloatArray | None = None
    dforces: tuple[dict[str, FloatArray], ...] | None = None
    dsignals: tuple[dict[str, FloatArray], ...] | None = None
    of: Trajectory | str | None = field(default=None, repr=False, compare=False)

    __array_ufunc__: ClassVar[None] = None  # a number of NumPy's leaves products with it to the loss

    def __add__(self, other: Loss) -> Loss:
        if not isinstance(other, Loss):
            return NotImplemented
        if np.shape(self.value) != np.shape(other.value):
            shapes = f"{np.shape(self.value)} and {np.shape(other.value)}"
            raise ValueError(f"losses of shapes {shapes} cannot be added: they are of other trajectories")

        def total(a: Any, b: Any) -> Any:
            if a is None or b is None:
                return b if a is None else a
            if isinstance(a, tuple):
                return tuple(total(x, y) for x, y in zip(a, b, strict=True))
            if isinstance(a, dict):
                return {name: total(a.get(name), b.get(name)) for name in a | b}
            if np.shape(a) != np.shape(b):
                shapes = f"{np.shape(a)} and {np.shape(b)}"
                raise ValueError(f"losses with derivatives {shapes} cannot be added: they are of other trajectories")
            return a + b

        parts = {name: total(getattr(self, name), getattr(other, name)) for name in _NUMBERS}
        if not same_trajectory(self.of, other.of):
            raise ValueError("losses of different trajectories cannot be added; take the gradient of each by itself")
        return Loss(**parts, of=self.of if other.of is None else other.of)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "of": self.of._digest if isinstance(self.of, Trajectory) else self.of}

    def __radd__(self, other: int) -> Loss:
        # sum() begins with 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, factor: float) -> Loss:
        if not isinstance(factor, Real):
            return NotImplemented

        def scaled(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(scaled(y) for y in x)
            if isinstance(x, dict):
                return {name: scaled(y) for name, y in x.items()}
            return None if x is None else factor * x

        return Loss(**{name: scaled(getattr(self, name)) for name in _NUMBERS}, of=self.of)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Loss:
        if not isinstance(divisor, Real):
            return NotImplemented
        return self * (1.0 / float(divisor))

    def __neg__(self) -> Loss:
        return self * -1.0

    def __sub__(self, other: Loss) -> Loss:
        return self + -other if isinstance(other, Loss) else NotImplemented


_NUMBERS = [f.name for f in fields(Loss) if f.name != "of"]


def same_trajectory(a: Trajectory | str | None, b: Trajectory | str | None) -> bool:
    """Whether two losses, or a loss and a trajectory, belong together; copies of a trajectory are as good as it."""
    if a is b or a is None or b is None:
        return True
    return (a if isinstance(a, str) else a._digest) == (b if isinstance(b, str) else b._digest)


class _Terms(NamedTuple):
    """A loss at states (tracks, rows): value, dq and dv (..., nv); then what it depends on by itself, as in `Loss`, but
    for the forces flat."""

    value: FloatArray
    dq: FloatArray
    dv: FloatArray
    inertia: FloatArray | None = None
    placement: FloatArray | None = None
    gravity: FloatArray | None = None
    forces: FloatArray | None = None


def _over_rows(
    trajectory: Trajectory,
    chosen: NDArray[np.int64],
    f: Callable[[Span, FloatArray, FloatArray, NDArray[np.int64]], _Terms],
    batch: Batch | None = None,
) -> Loss:
    """The sum of a loss over rows. f(span, q, v, rows) gives its terms at states (tracks, rows, nq)."""
    n, count, model = prod(trajectory.batch_shape), len(trajectory.t), trajectory.model
    q, v = trajectory.q.reshape(n, count, model.nq), trajectory.v.reshape(n, count, model.nv)
    value, dq, dv = np.zeros(n), np.zeros((n, count, model.nv)), np.zeros((n, count, model.nv))
    direct: dict[str, FloatArray] = {}
    for span in trajectory._spans(batch):
        part, at = chosen[(span.rows.start <= chosen) & (chosen < span.rows.stop)], span.tracks
        if len(part):
            terms = f(span.at(part), q[at, part], v[at, part], part)
            value[at] += terms.value.sum(axis=-1)
            dq[at, part], dv[at, part] = terms.dq, terms.dv
            for name in ("inertia", "placement", "gravity", "forces"):
                x = getattr(terms, name)
                if x is not None:
                    direct.setdefault(name, np.zeros((n, *x.shape[2:])))[at] += x.sum(axis=1)
            if batch is not None and batch.signal_table is not None and terms.forces is not None:
                columns = batch.signal_table[0]
                sums = direct.setdefault("signals", np.zeros((n, trajectory.steps, len(columns))))
                for k, step in enumerate(steps_of_rows(part, trajectory.every).tolist()):
                    sums[at, step : step + 1] += terms.forces[:, k : k + 1, columns]

    def shaped(x: FloatArray | None) -> Any:
        return None if x is None else x.reshape((*trajectory.batch_shape, *x.shape[1:]))

    of_forces = of_signals = None
    if batch is not None and "forces" in direct:
        # Those of the forces in `batch`, each at its place among all of them.
        given = dict(zip(batch.places, batch.compiled.unflatten(shaped(direct["forces"])), strict=True))
        of_forces = tuple(given.get(k, {}) for k in range(len(trajectory.forces)))
        if "signals" in direct:
            given = dict(zip(batch.places, batch.signals_by_name(shaped(direct["signals"])), strict=True))
            of_signals = tuple(given.get(k, {}) for k in range(len(trajectory.forces)))
    return Loss(
        shaped(value), shaped(dq), shaped(dv), None, shaped(direct.get("inertia")), shaped(direct.get("placement")),
        shaped(direct.get("gravity")), of_forces, of_signals, trajectory,
    )  # fmt: skip


# ---- checks


def _require_trajectory(trajectory: Any) -> None:
    if not isinstance(trajectory, Trajectory):
        raise TypeError(f"trajectory must be a Trajectory, got {type(trajectory).__name__}; simulate makes one")


def _chosen(trajectory: Trajectory, rows: Any) -> NDArray[np.int64]:
    """The numbers of the rows that count."""
    count = len(trajectory.t)
    if isinstance(rows, slice):
        chosen = np.arange(count)[rows]
    else:
        try:
            given = [index(r) for r in np.atleast_1d(rows).tolist()]
        except TypeError:
            raise TypeError(f"rows is {rows!r}, expected an index, a slice or a list of indices") from None
        for r in given:
            if not -count <= r < count:
                raise ValueError(f"rows has {r}, but the trajectory has {count} rows: {-count} to {count - 1}")
        chosen = np.array(given, np.int64) % count
    if len(chosen) == 0:
        raise ValueError(f"rows is {rows!r}, which is none of the trajectory's {count} rows")
    if len(np.unique(chosen)) < len(chosen):
        raise ValueError(f"rows is {rows!r}, which has a row twice")
    return chosen


def _finite(name: str, value: Any, expected: Mapping[tuple[int, ...], str]) -> FloatArray:
    """An array of one of these shapes, which are put in words."""
    array = as_array(name, value)
    if array.shape not in expected:
        raise ValueError(f"{name} has shape {array.shape}, expected {' or '.join(expected.values())}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} is not finite")
    return array


# ---- what a loss depends on by itself


_CROSS = np.cross(np.eye(3)[:, None], np.eye(3))  # (j, k, i): component i of e_j x e_k


def _cross(a: FloatArray, b: FloatArray) -> FloatArray:
    """a x b; np.cross takes as long as all the rest of a loss."""
    return np.asarray(np.einsum("jki,...j,...k->...i", _CROSS, a, b))


def _parents(model: Model) -> list[int]:
    """Of every body, -1 for the world."""
    at = {b.name: i for i, b in enumerate(model.bodies)}
    return [at.get(b.parent, -1) for b in model.bodies]


def _by_placement(model: Model, poses: FloatArray, bodies: list[int], wrenches: FloatArray) -> FloatArray:
    """Gradient (..., nbodies, 6) with respect to placements. `wrenches` (..., k, 6) are the gradients with respect to
    motions of k bodies with all that they carry, moment first, in the world's frame."""
    parents = _parents(model)
    world = np.broadcast_to(np.eye(4), (*poses.shape[:-3], 1, 4, 4))
    carried = np.concatenate([poses, world], axis=-3)[..., [parents[i] for i in bodies], :, :]
    frames = carried @ np.array([model.bodies[i].placement.matrix for i in bodies])
    moments = wrenches[..., :3] - _cross(frames[..., :3, 3], wrenches[..., 3:])
    out = np.zeros((*poses.shape[:-2], 6))
    out[..., bodies, :3] = np.einsum("...ji,...j->...i", frames[..., :3, :3], moments)
    out[..., bodies, 3:] = np.einsum("...ji,...j->...i", frames[..., :3, :3], wrenches[..., 3:])
    return out


def _carriers(model: Model, body: int) -> list[int]:
    """A body and all that carry it."""
    parents, out = _parents(model), [body]
    while parents[out[-1]] >= 0:
        out.append(parents[out[-1]])
    return out


def _potential_terms(model: Model, q: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Derivatives of the potential energy, -sum of g.(m p + R h), by inertias, placements and gravity."""
    g, poses = np.array(model.gravity), body_poses(model, q)
    parents, every = _parents(model), list(range(model.nbodies))
    # Bodies fixed to the world do not count.
    moves = np.array([any(model.joints[j].nv for j in _carriers(model, i)) for i in every], dtype=float)
    inertia = np.zeros((*q.shape[:-1], model.nbodies, 10))
    inertia[..., 0] = -moves * (poses[..., :3, 3] @ g)
    inertia[..., 1:4] = -moves[:, None] * np.einsum("...ji,j->...i", poses[..., :3, :3], g)
    parameters = moves[:, None] * model.inertial_parameters.reshape(-1, 10)
    mass, h = parameters[:, :1], parameters[:, 1:4]
    moments = mass * poses[..., :3, 3] + np.einsum("...ij,...j->...i", poses[..., :3, :3], h)
    wrenches = np.concatenate([-_cross(moments, g), -mass * np.ones_like(moments) * g], axis=-1)
    for i in reversed(every):
        if parents[i] >= 0:
            wrenches[..., parents[i], :] += wrenches[..., i, :]
    return inertia, _by_placement(model, poses, every, wrenches), -moments.sum(axis=-2)


def _by_parameters(span: Span, q: FloatArray, t: FloatArray) -> FloatArray:
    """Derivatives (..., n) of the energy of all forces by their parameters, by complex steps."""
    rest, p = np.zeros(span.model.nv), span.parameters
    out = np.zeros((*q.shape[:-1], p.shape[-1]))
    token = complex_allowed.set(True)
    try:
        with warnings.catch_warnings():
            # math.sqrt and the like take the real part.
            warnings.filterwarnings("error", message="Casting complex values")
            for k in np.flatnonzero(np.isfinite(p).reshape(-1, p.shape[-1]).all(axis=0)):
                moved = p.astype(complex)
                moved[..., k] += 1e-30j
                energies: Any = _core.force_energies(span.model, q, rest, t, moved, span.options, None, 1)
                out[..., k] = energies.imag.sum(axis=-1) / 1e-30
    except (TypeError, RuntimeWarning) as error:
        raise TypeError(
            f"energy_loss takes complex steps of the energies of forces, one of which takes no complex numbers: {error}"
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


def _energies_by_placement(span: Span, forces: Sequence[Force], q: FloatArray, t: FloatArray) -> FloatArray:
    """Derivatives (..., nbodies, 6) of the energy of forces by placements: minus the torques in joints put there."""
    sizes = [sum(x.size for x in force.parameters.values()) for force in forces]
    ends = np.cumsum(sizes)
    # Energies in the coordinates of joints do not depend on placements.
    kept = [k for k, f in enumerate(forces) if not hasattr(f, "joint") and not isinstance(f, CustomForce)]
    if not kept:
        return np.zeros((*q.shape[:-1], span.model.nbodies, 6))
    model, own, new = _loosened(span.model)
    columns = np.concatenate([np.arange(ends[k] - sizes[k], ends[k]) for k in kept])
    wide = np.broadcast_to(model.neutral, (*q.shape[:-1], model.nq)).copy()
    wide[..., own] = q
    scene = compile_forces(model, [forces[k] for k in kept])
    parameters = np.ascontiguousarray(span.parameters[..., columns])
    tau = _core.generalized_forces(model, wide, np.zeros(model.nv), t, parameters, {"forces": scene.core}, None, 1)
    return -tau[..., new]


# ---- losses


def point_target(
    trajectory: Trajectory,
    body: str,
    point: ArrayLike,
    target: ArrayLike,
    weight: float = 1.0,
    rows: Rows = -1,
) -> Loss:
    """weight |x - target|^2 / 2, x the world position of a point (3,) of a body: where an end effector should be.

    `target` is (3,), or a row of 3 for each of the rows.
    """
    _require_trajectory(trajectory)
    chosen, weight = _chosen(trajectory, rows), float(_finite("weight", weight, {(): "a number"}))
    each = f"({len(chosen)}, 3), one for each of the rows"
    goal = _finite("target", target, {(3,): "(3,)", (len(chosen), 3): each})
    local = _finite("point", point, {(3,): "(3,)"})
    carriers = _carriers(trajectory.model, trajectory.model._find(body, "body"))
    lookup = {int(r): k for k, r in enumerate(chosen)}

    def f(span: Span, q: FloatArray, v: FloatArray, at: NDArray[np.int64]) -> _Terms:
        x, J = point_positions(span.model, q, body, local), point_jacobian(span.model, q, body, local)
        off = x - (goal if goal.ndim == 1 else goal[[lookup[int(r)] for r in at]])
        wrench = weight * np.concatenate([_cross(x, off), off], axis=-1)[..., None, :]
        return _Terms(
            0.5 * weight * (off**2).sum(-1), weight * np.einsum("...ij,...i->...j", J, off), np.zeros_like(v),
            placement=_by_placement(span.model, body_poses(span.model, q), carriers, wrench),
        )  # fmt: skip

    return _over_rows(trajectory, chosen, f)


def velocity_target(trajectory: Trajectory, target: ArrayLike = 0.0, weight: ArrayLike = 1.0, rows: Rows = -1) -> Loss:
    """sum of weight (v - target)^2 / 2, target and weight each a number or (nv,): to come to rest, by default."""
    _require_trajectory(trajectory)
    nv = trajectory.model.nv
    shapes = {(): "a number", (nv,): f"({nv},): model.nv is {nv}"}
    goal, factor = _finite("target", target, shapes), _finite("weight", weight, shapes)

    def f(span: Span, q: FloatArray, v: FloatArray, at: NDArray[np.int64]) -> _Terms:
        off = v - goal
        return _Terms((0.5 * factor * off**2).sum(-1), np.zeros_like(v), factor * off)

    return _over_rows(trajectory, _chosen(trajectory, rows), f)


def energy_loss(
    trajectory: Trajectory, weight: float = 1.0, rows: Rows = -1, parts: Sequence[str] = ("kinetic",)
) -> Loss:
    """weight times energies: any of "kinetic", "potential" (of gravity) and "forces" (of those that have one).

    Derivatives of the energies of forces by their parameters come by complex steps: with "forces", the `energy` of a
    force of the user's own must take complex numbers if the force has parameters.
    """
    _require_trajectory(trajectory)
    weight = float(_finite("weight", weight, {(): "a number"}))
    known = ("kinetic", "potential", "forces")
    if isinstance(parts, str) or not isinstance(parts, Sequence) or not parts or any(p not in known for p in parts):
        raise ValueError(f"parts are {parts!r}, expected a list of 'kinetic', 'potential' and 'forces'")
    springs = [k for k, force in enumerate(trajectory.forces) if force.has_energy and "forces" in parts]
    batch = trajectory._batch.select(springs)

    def f(span: Span, q: FloatArray, v: FloatArray, at: NDArray[np.int64]) -> _Terms:
        model, shape = span.model, q.shape[:-1]
        value, dq, dv = np.zeros(shape), np.zeros_like(v), np.zeros_like(v)
        inertia, placement = np.zeros((*shape, model.nbodies, 10)), np.zeros((*shape, model.nbodies, 6))
        gravity, of_forces = np.zeros((*shape, 3)), None
        if "kinetic" in parts:
            # v . M(q) v / 2 is v . inverse_dynamics(q, 0, v) / 2 without gravity.
            still = model.with_gravity((0.0, 0.0, 0.0))
            value += kinetic_energy(model, q, v)
            g = inverse_dynamics_vjp(still, q, np.zeros_like(v), v, v, outputs=("q", "inertia", "placement"))
            dq, inertia, placement = 0.5 * g.q, 0.5 * g.inertia, 0.5 * g.placement
            dv = np.einsum("...ij,...j->...i", mass_matrix(model, q), v)
        if "potential" in parts:
            value += potential_energy(model, q)
            dq = dq + gravity_forces(model, q)
            by_inertia, by_placement, by_gravity = _potential_terms(model, q)
            inertia, placement, gravity = inertia + by_inertia, placement + by_placement, by_gravity
        if springs:
            t = trajectory.t[at]
            given = (model, q, np.zeros_like(v), t, span.parameters, span.options, None, 1)
            value += _core.force_energies(*given).sum(-1)
            dq = dq - _core.generalized_forces(*given)
            of_forces = weight * _by_parameters(span, q, t)
            placement = placement + _energies_by_placement(span, batch.compiled.forces, q, t)
        return _Terms(
            weight * value, weight * dq, weight * dv, weight * inertia, weight * placement, weight * gravity, of_forces
        )

    return _over_rows(trajectory, _chosen(trajectory, rows), f, batch)


def control_effort(trajectory: Trajectory, weight: ArrayLike = 1.0) -> Loss:
    """The integral over time of sum of weight u^2 / 2, weight a number or (nu,), one for each control.

    Controls that were a function of time are summed with the integrator's own weights.
    """
    _require_trajectory(trajectory)
    u, h = trajectory.controls, trajectory.integrator.h
    if u is None:
        raise ValueError("the trajectory has no controls; simulate with controls= to weigh them")
    axes = tuple(range(len(trajectory.batch_shape), u.ndim))
    nu = u.shape[-1]
    factor = h * _finite("weight", weight, {(): "a number", (nu,): f"({nu},): the trajectory has {nu} controls"})
    if len(axes) == 3:
        factor = np.array(trajectory.integrator._weights)[:, None] * factor
    return Loss(np.asarray((0.5 * factor * u**2).sum(axis=axes)), du=factor * u, of=trajectory)
