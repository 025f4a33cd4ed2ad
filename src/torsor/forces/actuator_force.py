"""Forces of actuators and of tendons that are sums of coordinates, and the matrix from controls to torques."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isinf
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from torsor._check import listed
from torsor.actuators import Actuator, Tendon
from torsor.forces.body_forces import BodyWrench
from torsor.forces.custom import CustomForce
from torsor.forces.evaluation import generalized_forces, generalized_forces_derivatives
from torsor.forces.force import Force
from torsor.forces.joint_forces import JointDamping, JointSpring, JointTorque
from torsor.forces.springs import CustomCable
from torsor.joints import Free, Spherical
from torsor.kinematics import point_positions
from torsor.model import WORLD, Model, require_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import Array, FloatArray


# ---- tendons


def stretch(length: Array, lower: Array, upper: Array) -> Array:
    """How far a length is beyond the interval of rest: zero within it."""
    below, above = length.real < lower.real, length.real > upper.real
    return np.where(below, length - lower, np.where(above, length - upper, 0.0 * length))


def _along(x: Array, c: Array) -> Array:
    """c.x, each row by itself."""
    return np.asarray(np.einsum("...i,i->...", x, c))


class TendonSpring(CustomForce):
    """A spring and damper on a sum of coordinates: the tension stiffness x + damping dl/dt of l = sum of c_i q_i.

    The stretch x is l - upper above the interval `rest` = (lower, upper), l - lower below it, and 0 within. The energy
    is stiffness x^2 / 2, the torque of joint i is minus c_i times the tension. The parameters p are (stiffness,
    damping, lower, upper).

    Parameters
    ----------
    model : Model
    joints : sequence of str
        Joints of the model with one coordinate each.
    coefficients : (n,) array_like
        Their coefficients.
    stiffness, damping : float
    rest : float or (2,) array_like
        Length at rest, or the interval of lengths at which the spring does not pull.
    """

    batched: ClassVar[bool] = True
    complex_derivatives: ClassVar[bool] = True

    def __init__(
        self,
        model: Model,
        joints: Sequence[str],
        coefficients: ArrayLike,
        stiffness: float,
        damping: float = 0.0,
        rest: ArrayLike = 0.0,
    ) -> None:
        self.joints = tuple(joints)
        self.coefficients = np.array(coefficients, dtype=np.float64)
        if self.coefficients.shape != (len(self.joints),):
            raise ValueError(
                f"coefficients has shape {self.coefficients.shape}, expected ({len(self.joints)},), one for each joint"
            )
        lower, upper = np.broadcast_to(np.asarray(rest, dtype=np.float64), 2)
        if stiffness < 0 or damping < 0 or lower > upper:
            raise ValueError(
                f"stiffness {stiffness:g}, damping {damping:g} and rest ({lower:g}, {upper:g}) of TendonSpring: "
                "expected numbers of 0 at least, and an interval"
            )
        self.p = np.array([stiffness, damping, lower, upper])
        self._q, self._v = _sums(require_model(model).tree, self.joints, self.coefficients)

    def __repr__(self) -> str:
        k, d, lower, upper = np.ravel(self.p).tolist()
        terms = " + ".join(f"{c:g} {name}" for name, c in zip(self.joints, self.coefficients, strict=True))
        return f"TendonSpring({terms}, stiffness={k:g}, damping={d:g}, rest=({lower:g}, {upper:g}))"

    def _joints(self, model: Model) -> tuple[str, ...]:
        return self.joints

    def _tension(self, q: Array, v: Array, p: Array) -> tuple[Array, Array]:
        x = stretch(_along(q, self._q), p[..., 2], p[..., 3])
        return x, p[..., 0] * x + p[..., 1] * (_along(v, self._v))

    def value(self, q: Array, v: Array, t: float, p: Array) -> Array:
        """Generalized forces (..., nv) at the states q (..., nq), v (..., nv), the time t and with the parameters p."""
        return -self._tension(q, v, p)[1][..., None] * self._v

    def derivatives(self, q: Array, v: Array, t: float, p: Array) -> tuple[Array, Array]:
        """Derivatives (..., nv, nv) of `value(q, v, t, p)` with respect to q, in the tangent space, and v."""
        x, _ = self._tension(q, v, p)
        pair = np.multiply.outer(self._v, self._v)
        pulls = np.where(x != 0, p[..., 0], 0.0 * p[..., 0])
        return -pulls[..., None, None] * pair, -p[..., 1, None, None] * pair

    def energy(self, q: Array, t: float, p: Array) -> Array:
        """The energy (...) of the spring at (q, t, p)."""
        x = stretch(_along(q, self._q), p[..., 2], p[..., 3])
        return np.asarray(0.5 * p[..., 0] * x * x)

    def gradient(self, q: Array, v: Array, t: float, p: Array, w: Array) -> Array:
        """The gradient (..., 4) of w . value(q, v, t, p) with respect to p."""
        x, _ = self._tension(q, v, p)
        length, along = _along(q, self._q), _along(w, self._v)
        lower = np.where(length.real < p[..., 2].real, p[..., 0], 0.0)
        upper = np.where(length.real > p[..., 3].real, p[..., 0], 0.0)
        return np.stack([-x * along, -(_along(v, self._v)) * along, lower * along, upper * along], axis=-1)


def _sums(tree: Model, joints: Sequence[str], coefficients: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The coefficients of a sum of coordinates by coordinate (nq,) and by velocity (nv,)."""
    q, v = np.zeros(tree.nq), np.zeros(tree.nv)
    for name, coefficient in zip(joints, np.asarray(coefficients, dtype=np.float64), strict=True):
        joint = tree.joint(name)
        if joint.nq != 1:
            raise ValueError(f"joint {name!r} of a sum of coordinates has {joint.nq} coordinates, expected 1")
        q[joint.q_slice] += coefficient
        v[joint.v_slice] += coefficient
    return q, v


# ---- transmissions: the length l of an actuator, its moment arms m with dl/dt = m.v, and dm/dq


class _Transmission:
    """A transmission with constant moment arms m, and l = c.q."""

    def __init__(self, c: FloatArray, m: FloatArray) -> None:
        self.c, self.m = c, m

    constant: ClassVar[bool] = True
    has_length: ClassVar[bool] = True  # whether l is not 0; dl/dq is then m

    def length(self, q: Array) -> Array:
        return _along(q, self.c)

    def moments(self, q: Array) -> Array:
        """m (..., nv)."""
        return np.broadcast_to(self.m, (*q.shape[:-1], len(self.m)))

    def turned(self, q: Array) -> Array | float:
        """dm/dq (..., nv, nv), moment arms first."""
        return 0.0


class _Ball(_Transmission):
    """A torque on a spherical joint, in the frame of its body, or before its rotation."""

    has_length: ClassVar[bool] = False

    def __init__(self, model: Model, actuator: Actuator) -> None:
        joint = model.joint(str(actuator.joint))
        self.q, self.v, self.nv = joint.q_slice, joint.v_slice, model.nv
        self.gear = np.array(actuator.gear[:3])
        self.constant = not actuator.in_parent  # type: ignore[misc]

    def length(self, q: Array) -> Array:
        return np.zeros(q.shape[:-1])

    def _arms(self, q: Array) -> Array:
        if self.constant:
            return np.broadcast_to(self.gear, (*q.shape[:-1], 3))
        x = q[..., self.q]
        x = x / np.sqrt((x * x).sum(-1, keepdims=True))
        u, w = -x[..., :3], x[..., 3:]  # of the inverse rotation
        t = 2.0 * _cross(u, self.gear)
        return np.asarray(self.gear + w * t + _cross(u, t))

    def moments(self, q: Array) -> Array:
        arms = self._arms(q)
        out = np.zeros((*q.shape[:-1], self.nv), arms.dtype)
        out[..., self.v] = arms
        return out

    def turned(self, q: Array) -> Array | float:
        if self.constant:
            return 0.0
        arms = self._arms(q)
        out = np.zeros((*q.shape[:-1], self.nv, self.nv), arms.dtype)
        for k, unit in enumerate(np.eye(3)):
            out[..., self.v, self.v.start + k] = _cross(arms, unit)
        return out


def _cross(a: Array, b: Array) -> Array:
    a, b = np.broadcast_arrays(a, b)
    return np.stack([a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))], axis=-1)


class _ByForces(_Transmission):
    """A transmission whose moment arms are the generalized forces of others, at a force of one."""

    constant: ClassVar[bool] = False

    def __init__(self, model: Model, forces: Sequence[Force], tendon: Tendon | None = None, gear: float = 1.0) -> None:
        self.model, self.forces, self.tendon, self.gear = model, tuple(forces), tendon, gear
        self.has_length = tendon is not None  # type: ignore[misc]

    def length(self, q: Array) -> Array:
        if self.tendon is None:
            return np.zeros(q.shape[:-1])
        points = [
            np.broadcast_to(p, (*q.shape[:-1], 3)) if body == WORLD else point_positions(self.model, q, body, p)
            for body, p in zip(self.tendon.bodies, self.tendon.points, strict=True)
        ]
        total = 0.0 * q[..., 0]
        for a, b in pairwise(points):
            total = total + np.sqrt(((b - a) ** 2).sum(-1))
        return np.asarray(self.gear * total)

    def moments(self, q: Array) -> Array:
        return generalized_forces(self.model, self.forces, q, np.zeros(self.model.nv))

    def turned(self, q: Array) -> Array | float:
        return generalized_forces_derivatives(self.model, self.forces, q, np.zeros(self.model.nv)).dtau_dq


def _pull(l: Any, ldot: Any, p: Any) -> tuple[Any, Any, Any, Any]:
    """The law of a cable with constant tension -p."""
    return -p[..., 0], 0.0 * l, 0.0 * l, -1.0 + 0.0 * p


def transmission(model: Model, actuator: Actuator) -> _Transmission:
    """The transmission of an actuator, in the coordinates of a model without couplings."""
    if actuator.tendon is not None:
        tendon = next(x for x in model.tendons if x.name == actuator.tendon)
        if not tendon.is_path:
            c, m = _sums(model, tendon.joints, tendon.coefficients)
            return _Transmission(actuator.gear[0] * c, actuator.gear[0] * m)
        cable = CustomCable(tendon.bodies, tendon.points, _pull, law_parameters=[actuator.gear[0]], batched=True)
        return _ByForces(model, [cable], tendon, actuator.gear[0])
    force, moment = np.array(actuator.gear[:3]), np.array(actuator.gear[3:])
    if actuator.body == WORLD:
        return _Transmission(np.zeros(model.nq), np.zeros(model.nv))
    if actuator.body is not None:
        R, p = actuator.placement.R, actuator.placement.p
        wrench = np.concatenate([R @ moment + np.cross(p, R @ force), R @ force])
        return _ByForces(model, [BodyWrench(actuator.body, wrench)])
    joint = model.joint(str(actuator.joint))
    if isinstance(joint.joint, Spherical):
        return _Ball(model, actuator)
    if isinstance(joint.joint, Free):
        none = np.zeros(3)
        fixed = np.concatenate([moment if actuator.in_parent else none, force])
        wrenches: list[Force] = [BodyWrench(joint.body, fixed, frame="local_world_aligned")]
        if not actuator.in_parent:
            wrenches.append(BodyWrench(joint.body, np.concatenate([moment, none])))
        return _ByForces(model, wrenches)
    if joint.nq != 1:
        raise ValueError(
            f"actuator {actuator.name!r} drives joint {joint.name!r} with {joint.nv} velocities, expected a joint with "
            "one coordinate, a Spherical or a Free one"
        )
    c, m = _sums(model, [joint.name], [actuator.gear[0]])
    return _Transmission(c, m)


# ---- the force of all actuators


class _Laws:
    """The forces of actuators (..., k) along their lengths (..., k)."""

    def __init__(self, actuators: Sequence[Actuator]) -> None:
        self.gain, self.bias, self.control_limits, self.force_limits = (
            np.array([getattr(x, name) for x in actuators]).T
            for name in ("gain", "bias", "control_limits", "force_limits")
        )

    def __call__(self, l: Array, rate: Array, u: Array) -> tuple[Array, Array, Array, Array]:
        """F, and its derivatives by l, dl/dt and u."""
        (g0, g1, g2), (b0, b1, b2) = self.gain, self.bias
        low, high = self.control_limits
        free = (u.real >= low) & (u.real <= high)
        u = np.where(free, u, np.clip(u.real, low, high))
        gain = g0 + g1 * l + g2 * rate
        F = gain * u + b0 + b1 * l + b2 * rate
        low, high = self.force_limits
        moves = (F.real >= low) & (F.real <= high)
        F = np.where(moves, F, np.clip(F.real, low, high))
        by = (g1 * u + b1, g2 * u + b2, np.where(free, gain, 0.0))
        return (F, *(np.where(moves, x, 0.0) for x in by))


@dataclass(frozen=True)
class _Drive:
    """An actuator and its transmission."""

    actuator: Actuator
    along: _Transmission

    @property
    def is_plain(self) -> bool:
        """Whether its moment arms are constant and its length is a sum of coordinates."""
        return type(self.along) is _Transmission


class _Sums:
    """Drives with constant moment arms, all at once: l = C q, dl/dt = A v, and the torques A^T F."""

    def __init__(self, drives: Sequence[_Drive], places: list[int]) -> None:
        self.places = places  # among all drives
        self.C, self.A = (np.stack([getattr(x.along, name) for x in drives]) for name in ("c", "m"))
        self.laws = _Laws([x.actuator for x in drives])

    def forces(self, q: Array, v: Array, p: Array) -> tuple[Array, Array, Array, Array]:
        l, rate = (np.einsum("...i,ki->...k", x, matrix) for x, matrix in ((q, self.C), (v, self.A)))
        return self.laws(l, rate, p[..., self.places])

    def torques(self, F: Array) -> Array:
        return np.asarray(np.einsum("...k,ki->...i", F, self.A))

    def matrix(self, k: Array) -> Array:
        """A^T diag(k) A."""
        return np.asarray(np.einsum("ki,...kj->...ij", self.A, k[..., None] * self.A))


class _Other:
    """A drive whose moment arms depend on the configuration, or that has no length."""

    def __init__(self, drive: _Drive, place: int) -> None:
        self.along, self.place, self.laws = drive.along, place, _Laws([drive.actuator])

    def forces(self, q: Array, v: Array, p: Array) -> tuple[Array, ...]:
        """Moment arms (..., nv), and F and its derivatives (..., 1)."""
        m = self.along.moments(q)
        rate = np.einsum("...i,...i->...", m, v)
        return m, *self.laws(self.along.length(q)[..., None], rate[..., None], p[..., [self.place]])


class ActuatorForce(CustomForce):
    """The generalized forces of all actuators of a model, whose controls are the parameters p (nu,).

    It takes every actuator: moment arms that depend on the configuration, gains that depend on lengths, and the limits
    of controls and forces, at which u and the force are clipped (and derivatives jump). The sum of the torques of all
    actuators is clipped at the `effort_limits` of the joints. Give controls that change with time as signals:
    `simulate(..., forces=[ts.ActuatorForce(model)], signals=[{"p": u}])`, u (steps, nu).

    It is written in Python. Where `actuation(model)` can be had, `simulate(..., controls=u, actuation=...)` with the
    bias forces of `forces_from(model)` is faster.

    Parameters
    ----------
    model : Model
        Its actuators are used.
    controls : (nu,) array_like, optional
        Zero by default.
    """

    batched: ClassVar[bool] = True

    def __init__(self, model: Model, controls: ArrayLike | None = None) -> None:
        self._drive(require_model(model), model.actuators)
        if not self._drives:
            raise ValueError(f"model {model.name!r} has no actuators")
        self.effort_limits = model.tree.effort_limits
        # what saved trajectories are compared by
        self.laws = [[*a.gear, *a.gain, *a.bias, *a.control_limits, *a.force_limits] for a in model.actuators]
        self.p = np.zeros(len(self._drives)) if controls is None else np.array(controls, dtype=np.float64)
        if np.shape(self.p) != (len(self._drives),):
            raise ValueError(
                f"controls has shape {np.shape(self.p)}, expected ({len(self._drives)},), one for each actuator"
            )

    def __repr__(self) -> str:
        parts = (f"{x.actuator.name}={u:g}" for x, u in zip(self._drives, np.ravel(self.p), strict=True))
        return f"ActuatorForce({', '.join(parts)})"

    def _drive(self, model: Model, actuators: Sequence[Actuator]) -> None:
        """Sets the drives: those with constant moment arms together, and others one by one."""
        self._drives = _drives(model, actuators)
        plain = [k for k, drive in enumerate(self._drives) if drive.is_plain]
        self._sums = [_Sums([self._drives[k] for k in plain], plain)] if plain else []
        self._others = [_Other(drive, k) for k, drive in enumerate(self._drives) if not drive.is_plain]

    @property
    def complex_derivatives(self) -> bool:  # type: ignore[override]
        """Whether `derivatives` takes complex numbers: not of tendons through points, and of wrenches on bodies."""
        return not any(isinstance(drive.along, _ByForces) for drive in self._drives)

    def value(self, q: Array, v: Array, t: float, p: Array) -> Array:
        """Generalized forces (..., nv) at the states q (..., nq), v (..., nv), the time t and with the parameters p."""
        tau = self._sum(q, v, p)
        limit = self.effort_limits
        return np.where(self._within(tau), tau, np.clip(tau.real, -limit, limit))

    def _sum(self, q: Array, v: Array, p: Array) -> Array:
        """The torques (..., nv) before they are clipped at the limits of joints."""
        tau = 0.0 * v
        for sums in self._sums:
            tau = tau + sums.torques(sums.forces(q, v, p)[0])
        for drive in self._others:
            m, F, *_ = drive.forces(q, v, p)
            tau = tau + F * m
        return np.asarray(tau)

    def _within(self, tau: Array) -> Array:
        """Which torques are not clipped."""
        return np.asarray(np.abs(tau.real) <= self.effort_limits)

    def derivatives(self, q: Array, v: Array, t: float, p: Array) -> tuple[Array, Array]:
        """Derivatives (..., nv, nv) of `value(q, v, t, p)` with respect to q, in the tangent space, and v."""
        K = 0.0 * (q[..., :1, None] + v[..., :, None] * v[..., None, :] + p[..., :1, None])
        D = K
        for sums in self._sums:
            _, by_l, by_rate, _ = sums.forces(q, v, p)
            K, D = K + sums.matrix(by_l), D + sums.matrix(by_rate)
        for drive in self._others:
            m, F, by_l, by_rate, _ = drive.forces(q, v, p)
            by_q = by_l * m if drive.along.has_length else 0.0 * m
            if not drive.along.constant:
                turned = drive.along.turned(q)
                by_q = by_q + by_rate * np.einsum("...i,...ij->...j", v, turned)
                K = K + F[..., None] * turned
            K = K + m[..., :, None] * by_q[..., None, :]
            D = D + by_rate[..., None] * m[..., :, None] * m[..., None, :]
        if np.isfinite(self.effort_limits).any():
            moves = self._within(self._sum(q, v, p))[..., None]
            K, D = np.where(moves, K, 0.0), np.where(moves, D, 0.0)
        return K, D

    def gradient(self, q: Array, v: Array, t: float, p: Array, w: Array) -> Array:
        """The gradient (..., nu) of w . value(q, v, t, p) with respect to the controls p."""
        if np.isfinite(self.effort_limits).any():
            w = np.where(self._within(self._sum(q, v, p)), w, 0.0)
        out = 0.0 * (p + q[..., :1] + v[..., :1] + w[..., :1])
        for sums in self._sums:
            out[..., sums.places] = sums.forces(q, v, p)[3] * np.einsum("...i,ki->...k", w, sums.A)
        for drive in self._others:
            m, *_, by_u = drive.forces(q, v, p)
            out[..., drive.place] = by_u[..., 0] * np.einsum("...i,...i->...", w, m)
        return np.asarray(out)


def _drives(model: Model, actuators: Sequence[Actuator]) -> tuple[_Drive, ...]:
    drives, tree = [], model.tree
    for actuator in actuators:
        along = transmission(tree, actuator)
        if isinstance(along, _Ball) and (actuator.gain[1] or actuator.bias[1]):
            raise ValueError(
                f"actuator {actuator.name!r} measures the rotation of the spherical joint {actuator.joint!r}, which is "
                "no length; use a motor or a velocity servo, or hinges"
            )
        drives.append(_Drive(actuator, along))
    return tuple(drives)


class ActuatorBias(ActuatorForce):
    """The generalized forces of actuators at controls of zero, whatever their limits: springs and dampers of servos.

    `forces_from` has one for each actuator whose bias is no built-in force. It has no parameters.

    Parameters
    ----------
    model : Model
    actuators : sequence of Actuator, optional
        Those of the model by default.
    """

    p: ArrayLike = ()

    def __init__(self, model: Model, actuators: Sequence[Actuator] | None = None) -> None:
        none = (0.0, 0.0, 0.0)
        given = require_model(model).actuators if actuators is None else [*actuators]
        free = [replace(x, gain=none, control_limits=(-inf, inf)) for x in given]
        self._drive(model, free)
        self.effort_limits = np.full(model.tree.nv, inf)
        self.laws = [[*a.gear, *a.bias, *a.force_limits] for a in free]

    def __repr__(self) -> str:
        return f"ActuatorBias({', '.join(x.actuator.name for x in self._drives)})"

    def value(self, q: Array, v: Array, t: float, p: Array) -> Array:
        """Generalized forces (..., nv) at the states q (..., nq), v (..., nv); t and p do not matter."""
        return super().value(q, v, t, self._none(q))

    def derivatives(self, q: Array, v: Array, t: float, p: Array) -> tuple[Array, Array]:
        """Derivatives (..., nv, nv) of `value(q, v, t, p)` with respect to q, in the tangent space, and v."""
        return super().derivatives(q, v, t, self._none(q))

    def _none(self, q: Array) -> FloatArray:
        return np.zeros((*q.shape[:-1], len(self._drives)))


def _clipped(model: Model, drive: _Drive) -> bool:
    """Whether the force of an actuator is limited, or that of a joint which it drives."""
    if not all(isinf(x) for x in drive.actuator.force_limits):
        return True
    limited = np.isfinite(model.tree.effort_limits)
    return bool(np.any(drive.along.m[limited]) if type(drive.along) is _Transmission else limited.any())


def actuation(model: Model) -> FloatArray:
    """The matrix B (nv, nu) of the torques B u that controls u of the model's actuators exert beside their bias.

    For `simulate(..., controls=u, actuation=ts.actuation(model), forces=ts.forces_from(model))`: `forces_from` has the
    bias, springs and dampers of position and velocity servos, which are exact in implicit steps. `simulate` does not
    clip controls: `numpy.clip(u, *model.control_limits)` does.

    Parameters
    ----------
    model : Model

    Returns
    -------
    (nv, nu) ndarray

    Raises
    ------
    ValueError
        If there are no actuators, or B is not constant: wrenches on bodies, tendons through points, gains that depend
        on lengths, limited forces or joints with `effort_limits`, and joints that follow others by a function that is
        not linear. `ActuatorForce` takes these.

    Examples
    --------
    >>> robot = ts.load_mjcf('''
    ... <mujoco>
    ...   <worldbody><body name="wheel"><joint name="axle" axis="0 1 0"/><geom size="0.1"/></body></worldbody>
    ...   <actuator><motor joint="axle" gear="5"/></actuator>
    ... </mujoco>''')
    >>> ts.actuation(robot)
    array([[5.]])
    """
    drives = _drives(require_model(model), model.actuators)
    if not drives:
        raise ValueError(f"model {model.name!r} has no actuators")
    neutral = model.tree.neutral
    bent = np.zeros(model.tree.nv, dtype=bool) if model._map is None else model._map.is_nonlinear
    others = [
        x.actuator.name
        for x in drives
        if not x.along.constant
        or any(x.actuator.gain[1:])
        or _clipped(model, x)
        or np.any(x.along.moments(neutral)[bent])
    ]
    if others:
        raise ValueError(
            f"the torques of {listed(others)} are no constant matrix times controls: their moment arms or gains "
            "change, or their forces are limited; use ActuatorForce(model), with controls as signals"
        )
    B = np.stack([x.actuator.gain[0] * x.along.moments(neutral) for x in drives], axis=1)
    return model.coupling_jacobian(model.neutral).T @ B if model.couplings else B


def bias_forces(model: Model) -> list[Force]:
    """The forces of actuators at controls of zero: built-in ones where there are such."""
    model = model.tree
    biased = [x for x in model.actuators if any(x.bias)]
    clipped = [x.actuator.name for x in _drives(model, biased) if _clipped(model, x)]
    if clipped:
        raise ValueError(
            f"the forces of {listed(clipped)} are limited, so that bias and controls cannot be told apart; use "
            "forces_from(model, actuators=False) and ActuatorForce(model), with controls as signals"
        )
    forces: list[Force] = []
    for actuator in biased:
        b0, b1, b2 = actuator.bias
        name, gear = actuator.joint, actuator.gear[0]
        if name is None or model.joint(name).nq != 1 or b1 > 0 or b2 > 0:
            forces.append(ActuatorBias(model, [actuator]))
            continue
        if b1 and gear:
            forces.append(JointSpring(name, -b1 * gear**2, [-b0 / (b1 * gear)], -b2 * gear**2))
            continue
        if b2:
            forces.append(JointDamping(name, -b2 * gear**2))
        if b0:
            forces.append(JointTorque(name, [b0 * gear]))
    return forces
