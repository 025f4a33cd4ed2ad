"""Jacobian-vector products of dynamics: derivatives along one direction in states, wrenches and the parameters of the
model. Kim 2012, Tables 5-7.

The core's recursions run over dual numbers, one value and one tangent, at less than three times the cost of the
function. Directions that are left out are zero; dq is in the tangent space at q. The other arguments are as in
`torsor.derivatives.matrices`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor import _core, spatial
from torsor._check import axes, listed, record_of
from torsor._compile import Chain, compile_tree
from torsor._core import complex_step
from torsor.derivatives.matrices import output_bits
from torsor.dynamics import prescribed_mask
from torsor.joints import Composite, CustomJoint, Joint, SplineCurve
from torsor.model import Model, require_armature, require_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, Threads, Wrenches


@dataclass(frozen=True)
class ModelDirection:
    """A direction in the parameters of a model. Omitted entries are held fixed.

    Parameters
    ----------
    inertia : mapping from body to (10,)
        Rates of `Inertia.parameters`.
    placement : mapping from body to (6,)
        Twists x: the placement moves as placement @ SE3.exp(t x).
    gravity : (3,), optional
        Rate of the gravity vector.
    joint : mapping from joint to mapping
        Rates of the joint's constants by name: "axis" (3,), "pitch", "directions" (2, 3), "axes" (2, 3), "frames" (n,
        6) as twists of the control frames, "values" (6, m, n), "joints" (one such mapping, or None, for each part of
        a Composite). Axes keep unit length: only the part of their rate perpendicular to them is used.
    armature : mapping from joint to (nv,) or float
        Rates of the armature of the joint, or one number for all of its velocities.
    """

    inertia: Mapping[str, ArrayLike] = field(default_factory=dict)
    placement: Mapping[str, ArrayLike] = field(default_factory=dict)
    gravity: ArrayLike | None = None
    joint: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    armature: Mapping[str, ArrayLike] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("inertia", "placement", "joint", "armature"):
            _require_mapping(getattr(self, name), name, "names")


def _require_mapping(value: object, name: str, keys: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"direction of {name} must be a mapping from {keys} to rates, got {type(value).__name__}")


_UNIT = ("axis", "directions", "axes")
_CONSTANTS = (*_UNIT, "pitch", "frames", "values", "joints")


def _varied(joint: Joint, rates: Mapping[str, Any], name: str) -> Chain:
    """The joint's chain with its constants moved by a complex step."""
    _require_mapping(rates, f"the joint {name!r}", "constants")
    constants: dict[str, Any] = {}
    for key, rate in rates.items():
        known = [k for k in _CONSTANTS if hasattr(joint, k) and not isinstance(joint, CustomJoint)]
        if key not in known:
            raise ValueError(f"joint {name!r} has no constant {key!r}; it has {listed(known, key) or 'none'}")
        if isinstance(joint, Composite):
            if not isinstance(rate, Sequence) or len(rate) != len(joint.joints):
                raise ValueError(
                    f"direction of joints of {name!r} must be a sequence of {len(joint.joints)} mappings or None"
                )
            constants[key] = [_varied(j, {} if r is None else r, name) for j, r in zip(joint.joints, rate, strict=True)]
            continue
        if isinstance(joint, SplineCurve):
            T = np.stack([f.matrix for f in joint.frames])
            twists = _rate(rate, (len(T), 6), f"{key} of {name!r}")
            constants[key] = T + 1j * complex_step * (T @ spatial.hat6(twists))
            continue
        value = np.array(getattr(joint, key), dtype=np.float64)
        d = _rate(rate, value.shape, f"{key} of {name!r}")
        if key in _UNIT:
            d = d - (d * value).sum(-1, keepdims=True) * value
        moved = value + 1j * complex_step * d
        constants[key] = moved if moved.ndim else complex(moved)
    return joint._chain(**constants)


def _rate(value: Any, shape: tuple[int, ...], name: str) -> FloatArray:
    return spatial.frozen_array(value, shape, f"direction of {name}")


def _dual_model(model: Model, direction: ModelDirection | None) -> _core.DualModel | None:
    """The core's model with tangents along the direction."""
    if direction is None:
        return None
    if not isinstance(direction, ModelDirection):
        raise TypeError(f"model_direction must be a ModelDirection, got {type(direction).__name__}")
    tree: list[Any] = list(require_model(model)._tree())
    for name, rate in direction.inertia.items():
        i = model._find(name, "body")
        n, p, chain, placement, pi = tree[i]
        tree[i] = (n, p, chain, placement, pi + 1j * complex_step * _rate(rate, (10,), f"inertia of {name!r}"))
    for name, rate in direction.placement.items():
        i = model._find(name, "body")
        n, p, chain, (R, x), pi = tree[i]
        twist = _rate(rate, (6,), f"placement of {name!r}")
        tree[i] = (
            n,
            p,
            chain,
            (R + 1j * complex_step * R @ spatial.hat(twist[:3]), x + 1j * complex_step * R @ twist[3:]),
            pi,
        )
    for name, rates in direction.joint.items():
        i = model._find(name, "joint")
        n, p, _, placement, pi = tree[i]
        tree[i] = (n, p, _varied(model.bodies[i].joint, rates, name), placement, pi)
    gravity = np.array(model.gravity) + 0j
    if direction.gravity is not None:
        gravity = gravity + 1j * complex_step * _rate(direction.gravity, (3,), "gravity")
    armature = model.armature + 0j
    for name, rate in direction.armature.items():
        at = model.tree.joints[model._find(name, "joint")].v_slice
        size = at.stop - at.start
        drive = _rate(np.full(size, rate) if np.ndim(rate) == 0 else rate, (size,), f"armature of {name!r}")
        require_armature(name, model.joint(name).joint, drive.tolist())
        armature[at] += 1j * complex_step * drive
    return _core.DualModel(complex_step, *compile_tree(tree, gravity, armature, model._named()))


@record_of("inverse_dynamics_jvp")
class InverseDynamicsJVP(NamedTuple):
    """tau and its derivative along the direction, each (..., nv)."""

    tau: FloatArray
    dtau: FloatArray


@record_of("forward_dynamics_jvp")
class ForwardDynamicsJVP(NamedTuple):
    """a and its derivative along the direction, each (..., nv)."""

    a: FloatArray
    da: FloatArray


@record_of("hybrid_dynamics_jvp")
class HybridDynamicsJVP(NamedTuple):
    """a, tau and their derivatives along the direction, each (..., nv)."""

    a: FloatArray
    tau: FloatArray
    da: FloatArray
    dtau: FloatArray


@record_of("joint_reactions_jvp")
class JointReactionsJVP(NamedTuple):
    """The wrenches F of joint reactions and their derivative along the direction, each (..., nbodies, 6)."""

    F: FloatArray
    dF: FloatArray


@record_of("inverse_dynamics_derivatives_jvp")
class InverseDynamicsDerivativesJVP(NamedTuple):
    """First derivatives of tau and, prefixed by a second `d`, their derivatives along the direction, each (..., nv,
    nv)."""

    dtau_dq: FloatArray
    dtau_dv: FloatArray
    dtau_da: FloatArray
    ddtau_dq: FloatArray
    ddtau_dv: FloatArray
    ddtau_da: FloatArray


@record_of("forward_dynamics_derivatives_jvp")
class ForwardDynamicsDerivativesJVP(NamedTuple):
    """First derivatives of a and, prefixed by a second `d`, their derivatives along the direction, each (..., nv,
    nv)."""

    da_dq: FloatArray
    da_dv: FloatArray
    da_dtau: FloatArray
    dda_dq: FloatArray
    dda_dv: FloatArray
    dda_dtau: FloatArray


def inverse_dynamics_jvp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    dq: ArrayLike | None = None,
    dv: ArrayLike | None = None,
    da: ArrayLike | None = None,
    df_ext: Wrenches | None = None,
    model_direction: ModelDirection | None = None,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    out: InverseDynamicsJVP | None = None,
    threads: Threads = 1,
) -> InverseDynamicsJVP:
    """Inverse dynamics and its derivative along one direction. Kim 2012, Table 5.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    dq, dv, da : (..., nv) array_like, optional
        Direction in q, v and a.
    df_ext : (..., nbodies, 6) array_like or dict, optional
        Direction in the wrenches.
    model_direction : ModelDirection, optional
        Direction in the parameters of the model.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    out : InverseDynamicsJVP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    InverseDynamicsJVP
        tau and dtau, each (..., nv).

    Examples
    --------
    >>> heavier = ts.ModelDirection(gravity=(0, 0, -1))
    >>> t = ts.inverse_dynamics_jvp(model, q, v, a, dq=w, model_direction=heavier)
    >>> t.tau.shape, t.dtau.shape
    ((7,), (7,))
    """
    options = {"axes": axes(f_ext_frame, "f_ext_frame"), "direction": _dual_model(model, model_direction)}
    return _core.inverse_dynamics_jvp(model, q, v, a, f_ext, dq, dv, da, df_ext, options, out, threads)


def forward_dynamics_jvp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    dq: ArrayLike | None = None,
    dv: ArrayLike | None = None,
    dtau: ArrayLike | None = None,
    df_ext: Wrenches | None = None,
    model_direction: ModelDirection | None = None,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    out: ForwardDynamicsJVP | None = None,
    threads: Threads = 1,
) -> ForwardDynamicsJVP:
    """Forward dynamics and its derivative along one direction. Kim 2012, Table 6.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, tau : (..., nv) array_like
        Velocities and generalized forces.
    dq, dv, dtau : (..., nv) array_like, optional
        Direction in q, v and tau.
    df_ext : (..., nbodies, 6) array_like or dict, optional
        Direction in the wrenches.
    model_direction : ModelDirection, optional
        Direction in the parameters of the model.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    out : ForwardDynamicsJVP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ForwardDynamicsJVP
        a and da, each (..., nv).

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> t = ts.forward_dynamics_jvp(model, q, v, tau, dq=w)
    >>> np.allclose(t.da, ts.forward_dynamics_derivatives(model, q, v, tau).da_dq @ w)
    True
    """
    options = {"axes": axes(f_ext_frame, "f_ext_frame"), "direction": _dual_model(model, model_direction)}
    return _core.forward_dynamics_jvp(model, q, v, tau, f_ext, dq, dv, dtau, df_ext, options, out, threads)


def hybrid_dynamics_jvp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    *,
    a: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    prescribed: Sequence[str] | ArrayLike,
    dq: ArrayLike | None = None,
    dv: ArrayLike | None = None,
    da: ArrayLike | None = None,
    dtau: ArrayLike | None = None,
    df_ext: Wrenches | None = None,
    model_direction: ModelDirection | None = None,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    out: HybridDynamicsJVP | None = None,
    threads: Threads = 1,
) -> HybridDynamicsJVP:
    """Hybrid dynamics and its derivative along one direction. Kim 2012, Table 7.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    a, tau : (..., nv) array_like, optional
        Accelerations and generalized forces, zero by default.
    prescribed : sequence of str, or (nv,) array_like of bool
        Names of the joints whose accelerations are given, or a mask over velocities.
    dq, dv, da, dtau : (..., nv) array_like, optional
        Direction in q, v, a and tau.
    df_ext : (..., nbodies, 6) array_like or dict, optional
        Direction in the wrenches.
    model_direction : ModelDirection, optional
        Direction in the parameters of the model.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    out : HybridDynamicsJVP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    HybridDynamicsJVP
        a, tau, da and dtau, each (..., nv).

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint that is not prescribed moves no mass, in any state of the batch.

    Examples
    --------
    >>> t = ts.hybrid_dynamics_jvp(model, q, v, a=a, tau=tau, prescribed=["wrist_pitch"], dtau=w)
    >>> t.da.shape, t.dtau.shape
    ((7,), (7,))
    """
    options = {
        "prescribed": prescribed_mask(model, prescribed),
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "direction": _dual_model(model, model_direction),
    }
    rest = np.zeros(model.nv)
    a = rest if a is None else a
    tau = rest if tau is None else tau
    return _core.hybrid_dynamics_jvp(model, q, v, a, tau, f_ext, dq, dv, da, dtau, df_ext, options, out, threads)


def joint_reactions_jvp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    dq: ArrayLike | None = None,
    dv: ArrayLike | None = None,
    da: ArrayLike | None = None,
    df_ext: Wrenches | None = None,
    model_direction: ModelDirection | None = None,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    out: JointReactionsJVP | None = None,
    threads: Threads = 1,
) -> JointReactionsJVP:
    """Joint reactions and their derivative along one direction.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    dq, dv, da : (..., nv) array_like, optional
        Direction in q, v and a.
    df_ext : (..., nbodies, 6) array_like or dict, optional
        Direction in the wrenches.
    model_direction : ModelDirection, optional
        Direction in the parameters of the model.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    out : JointReactionsJVP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    JointReactionsJVP
        F and dF, each (..., nbodies, 6).

    Examples
    --------
    >>> t = ts.joint_reactions_jvp(model, q, v, a, da=w)
    >>> t.dF.shape
    (9, 6)
    """
    options = {"axes": axes(f_ext_frame, "f_ext_frame"), "direction": _dual_model(model, model_direction)}
    return _core.joint_reactions_jvp(model, q, v, a, f_ext, dq, dv, da, df_ext, options, out, threads)


def inverse_dynamics_derivatives_jvp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    dq: ArrayLike | None = None,
    dv: ArrayLike | None = None,
    da: ArrayLike | None = None,
    df_ext: Wrenches | None = None,
    model_direction: ModelDirection | None = None,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    out: InverseDynamicsDerivativesJVP | None = None,
    threads: Threads = 1,
) -> InverseDynamicsDerivativesJVP:
    """The matrices of `inverse_dynamics_derivatives` and their derivatives along one direction.

    `ddtau_dq` along dq is `inverse_dynamics_hessians(...).d2tau_dqdq @ dq`.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    dq, dv, da : (..., nv) array_like, optional
        Direction in q, v and a.
    df_ext : (..., nbodies, 6) array_like or dict, optional
        Direction in the wrenches.
    model_direction : ModelDirection, optional
        Direction in the parameters of the model.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : InverseDynamicsDerivativesJVP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    InverseDynamicsDerivativesJVP
        dtau_dq, dtau_dv, dtau_da, ddtau_dq, ddtau_dv and ddtau_da, each (..., nv, nv).

    Examples
    --------
    >>> t = ts.inverse_dynamics_derivatives_jvp(model, q, v, a, dq=w)
    >>> t.ddtau_dq.shape  # of the matrix dtau_dq along w
    (7, 7)
    """
    options = {
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "direction": _dual_model(model, model_direction),
        "wanted": output_bits(InverseDynamicsDerivativesJVP._fields, outputs),
    }
    return _core.inverse_dynamics_derivatives_jvp(model, q, v, a, f_ext, dq, dv, da, df_ext, options, out, threads)


def forward_dynamics_derivatives_jvp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    dq: ArrayLike | None = None,
    dv: ArrayLike | None = None,
    dtau: ArrayLike | None = None,
    df_ext: Wrenches | None = None,
    model_direction: ModelDirection | None = None,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    out: ForwardDynamicsDerivativesJVP | None = None,
    threads: Threads = 1,
) -> ForwardDynamicsDerivativesJVP:
    """The matrices of `forward_dynamics_derivatives` and their derivatives along one direction.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, tau : (..., nv) array_like
        Velocities and generalized forces.
    dq, dv, dtau : (..., nv) array_like, optional
        Direction in q, v and tau.
    df_ext : (..., nbodies, 6) array_like or dict, optional
        Direction in the wrenches.
    model_direction : ModelDirection, optional
        Direction in the parameters of the model.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : ForwardDynamicsDerivativesJVP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ForwardDynamicsDerivativesJVP
        da_dq, da_dv, da_dtau, dda_dq, dda_dv and dda_dtau, each (..., nv, nv).

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> t = ts.forward_dynamics_derivatives_jvp(model, q, v, tau, dq=w)
    >>> t.dda_dq.shape  # of the matrix da_dq along w
    (7, 7)
    """
    options = {
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "direction": _dual_model(model, model_direction),
        "wanted": output_bits(ForwardDynamicsDerivativesJVP._fields, outputs),
    }
    return _core.forward_dynamics_derivatives_jvp(model, q, v, tau, f_ext, dq, dv, dtau, df_ext, options, out, threads)
