"""First derivatives of inverse, forward and hybrid dynamics and of joint reactions as matrices, exact.

Derivatives with respect to q are in the tangent space: of f(model.plus(q, dq)) at dq = 0. `d.dtau_dq[..., i, j]` is the
derivative of output i along direction j. Batches, `out`, `threads`, `f_ext` and `f_ext_frame` are as in
`torsor.dynamics`; wrenches are held fixed in the frame in which they are given. `out` takes a record of the type that
the function returns. `outputs` names the fields to compute, all by default; the others are None in the record and are
not computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import axes, direct, listed, record_of
from torsor.dynamics import prescribed_mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, Threads, Wrenches
    from torsor.model import Model


@record_of("inverse_dynamics_derivatives")
class InverseDynamicsDerivatives(NamedTuple):
    """Derivatives of tau = inverse_dynamics(q, v, a), each (..., nv, nv)."""

    dtau_dq: FloatArray
    dtau_dv: FloatArray
    dtau_da: FloatArray


@record_of("forward_dynamics_derivatives")
class ForwardDynamicsDerivatives(NamedTuple):
    """Derivatives of a = forward_dynamics(q, v, tau), each (..., nv, nv)."""

    da_dq: FloatArray
    da_dv: FloatArray
    da_dtau: FloatArray


@record_of("hybrid_dynamics_derivatives")
class HybridDynamicsDerivatives(NamedTuple):
    """Derivatives of (a, tau) = hybrid_dynamics(q, v, a, tau), each (..., nv, nv).

    Prescribed quantities pass through: da_da is the identity on prescribed velocities, dtau_dtau on the others. Inputs
    that are not read have zero columns: da_da and dtau_da at the other velocities, da_dtau and dtau_dtau at prescribed
    ones.
    """

    da_dq: FloatArray
    da_dv: FloatArray
    da_da: FloatArray
    da_dtau: FloatArray
    dtau_dq: FloatArray
    dtau_dv: FloatArray
    dtau_da: FloatArray
    dtau_dtau: FloatArray


@record_of("joint_reactions_derivatives")
class JointReactionsDerivatives(NamedTuple):
    """Derivatives of F = joint_reactions(q, v, a), each (..., nbodies, 6, nv)."""

    dF_dq: FloatArray
    dF_dv: FloatArray
    dF_da: FloatArray


def output_bits(fields: tuple[str, ...], outputs: Sequence[str] | None) -> int:
    """One bit for each requested field."""
    if outputs is None:
        return (1 << len(fields)) - 1
    names = (outputs,) if isinstance(outputs, str) or not isinstance(outputs, Iterable) else tuple(outputs)
    for name in names:
        if name not in fields:
            raise ValueError(f"no output {name!r}; outputs are {listed(fields, name)}")
    return sum(1 << k for k, field in enumerate(fields) if field in names)


@direct("inverse_dynamics_derivatives")
def inverse_dynamics_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    out: InverseDynamicsDerivatives | None = None,
    threads: Threads = 1,
) -> InverseDynamicsDerivatives:
    """Derivatives of inverse dynamics. Singh 2022, eqs. (7)-(10), for every joint.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : InverseDynamicsDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    InverseDynamicsDerivatives
        dtau_dq, dtau_dv and dtau_da (the mass matrix), each (..., nv, nv).

    Examples
    --------
    >>> d = ts.inverse_dynamics_derivatives(model, q, v, a)
    >>> np.allclose(d.dtau_da, ts.mass_matrix(model, q))
    True
    >>> change = d.dtau_dq @ (1e-3 * w)  # of tau, to first order, from q to model.plus(q, 1e-3 * w)
    """
    options: object = "body"
    if outputs is not None or f_ext_frame != "body":
        wanted = output_bits(InverseDynamicsDerivatives._fields, outputs)
        options = {"axes": axes(f_ext_frame, "f_ext_frame"), "wanted": wanted}
    return _core.inverse_dynamics_derivatives(model, q, v, a, f_ext, options, out, threads)


@direct("forward_dynamics_derivatives")
def forward_dynamics_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    out: ForwardDynamicsDerivatives | None = None,
    threads: Threads = 1,
) -> ForwardDynamicsDerivatives:
    """Derivatives of forward dynamics.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, tau : (..., nv) array_like
        Velocities and generalized forces.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : ForwardDynamicsDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ForwardDynamicsDerivatives
        da_dq, da_dv and da_dtau (the inverse mass matrix), each (..., nv, nv).

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> d = ts.forward_dynamics_derivatives(model, q, v, tau)
    >>> np.allclose(d.da_dtau, ts.mass_matrix_inverse(model, q))
    True
    """
    options: object = "body"
    if outputs is not None or f_ext_frame != "body":
        wanted = output_bits(ForwardDynamicsDerivatives._fields, outputs)
        options = {"axes": axes(f_ext_frame, "f_ext_frame"), "wanted": wanted}
    return _core.forward_dynamics_derivatives(model, q, v, tau, f_ext, options, out, threads)


def hybrid_dynamics_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    *,
    a: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    prescribed: Sequence[str] | ArrayLike,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    out: HybridDynamicsDerivatives | None = None,
    threads: Threads = 1,
) -> HybridDynamicsDerivatives:
    """Derivatives of hybrid dynamics. Kim 2012, Table 7.

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
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : HybridDynamicsDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    HybridDynamicsDerivatives
        da_dq, da_dv, da_da, da_dtau, dtau_dq, dtau_dv, dtau_da and dtau_dtau, each (..., nv, nv).

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint that is not prescribed moves no mass, in any state of the batch.

    Examples
    --------
    >>> d = ts.hybrid_dynamics_derivatives(model, q, v, a=a, tau=tau, prescribed=["wrist_pitch"])
    >>> d.da_dtau.shape, d.dtau_da.shape
    ((7, 7), (7, 7))
    """
    options = {
        "prescribed": prescribed_mask(model, prescribed),
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "wanted": output_bits(HybridDynamicsDerivatives._fields, outputs),
    }
    rest = np.zeros(model.nv)
    a = rest if a is None else a
    tau = rest if tau is None else tau
    return _core.hybrid_dynamics_derivatives(model, q, v, a, tau, f_ext, options, out, threads)


@direct("joint_reactions_derivatives")
def joint_reactions_derivatives(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    out: JointReactionsDerivatives | None = None,
    threads: Threads = 1,
) -> JointReactionsDerivatives:
    """Derivatives of joint reactions, in the frames of the bodies.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : JointReactionsDerivatives, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    JointReactionsDerivatives
        dF_dq, dF_dv and dF_da, each (..., nbodies, 6, nv).

    Examples
    --------
    >>> d = ts.joint_reactions_derivatives(model, q, v, a)
    >>> dF = d.dF_da @ w  # of the wrenches through the joints, along a change w of accelerations
    >>> dF.shape
    (9, 6)
    """
    options: object = "body"
    if outputs is not None or f_ext_frame != "body":
        wanted = output_bits(JointReactionsDerivatives._fields, outputs)
        options = {"axes": axes(f_ext_frame, "f_ext_frame"), "wanted": wanted}
    return _core.joint_reactions_derivatives(model, q, v, a, f_ext, options, out, threads)
