"""Second derivatives of inverse and forward dynamics, exact: whole tensors, or contracted with weights on the output.

`H.d2tau_dqdv[..., i, j, k]` is d/dv_k (dtau_i/dq_j): output, first direction, second direction. Directions of q are in
the tangent space, applied successively: `H.d2tau_dqdq[..., i, j, k]` is the derivative of `dtau_dq[i, j]` at
model.plus(q, dq) along dq_k. It is symmetric in j and k except for two directions of one spherical or free joint, which
do not commute: there `d2tau_dqdq[i, j, k] - d2tau_dqdq[i, k, j]` is the derivative of tau_i along the commutator of the
two, which for two rotations e_j and e_k is dtau_i/dq along the rotation e_k x e_j.

With weights, `contract=w`, the results are the second derivatives of the scalar w . tau. They take about 1.6 times as
long as first derivatives, and nothing of size nv^3 is formed. Batches, `out`, `outputs`, `threads`, `f_ext` and
`f_ext_frame` are as in `torsor.derivatives.matrices`; w (..., nv) broadcasts with the batch, so that (n, nv) are n
weights on one state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from torsor import _core
from torsor._check import axes, direct, record_of
from torsor.derivatives.matrices import output_bits
from torsor.model import require_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, Threads, Wrenches
    from torsor.model import Model


@record_of("inverse_dynamics_hessians")
class InverseDynamicsHessians(NamedTuple):
    """Second derivatives of tau = inverse_dynamics(q, v, a), each (..., nv, nv, nv).

    `d2tau_dadq[..., i, j, k]` is d/dq_k (dtau_i/da_j), the derivative of the mass matrix.
    """

    d2tau_dqdq: FloatArray
    d2tau_dqdv: FloatArray
    d2tau_dvdv: FloatArray
    d2tau_dadq: FloatArray


@record_of("inverse_dynamics_hessians_contracted")
class ContractedInverseDynamicsHessians(NamedTuple):
    """Second derivatives of w . inverse_dynamics(q, v, a), each (..., nv, nv), and its gradients, each (..., nv)."""

    d2tau_dqdq: FloatArray
    d2tau_dqdv: FloatArray
    d2tau_dvdv: FloatArray
    d2tau_dadq: FloatArray
    dtau_dq: FloatArray
    dtau_dv: FloatArray
    dtau_da: FloatArray


@record_of("forward_dynamics_hessians")
class ForwardDynamicsHessians(NamedTuple):
    """Second derivatives of a = forward_dynamics(q, v, tau), each (..., nv, nv, nv).

    `d2a_dtaudq[..., i, j, k]` is d/dq_k (da_i/dtau_j), the derivative of the inverse mass matrix.
    """

    d2a_dqdq: FloatArray
    d2a_dqdv: FloatArray
    d2a_dvdv: FloatArray
    d2a_dtaudq: FloatArray


@record_of("forward_dynamics_hessians_contracted")
class ContractedForwardDynamicsHessians(NamedTuple):
    """Second derivatives of w . forward_dynamics(q, v, tau), each (..., nv, nv), and its gradients, each (..., nv)."""

    d2a_dqdq: FloatArray
    d2a_dqdv: FloatArray
    d2a_dvdv: FloatArray
    d2a_dtaudq: FloatArray
    da_dq: FloatArray
    da_dv: FloatArray
    da_dtau: FloatArray


def _options(f_ext_frame: str, fields: tuple[str, ...], outputs: Sequence[str] | None) -> object:
    return {"axes": axes(f_ext_frame, "f_ext_frame"), "wanted": output_bits(fields, outputs)}


@overload
def inverse_dynamics_hessians(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    f_ext: Wrenches | None = ...,
    f_ext_frame: Frame = ...,
    contract: None = ...,
    outputs: Sequence[str] | None = ...,
    out: InverseDynamicsHessians | None = ...,
    threads: Threads = ...,
) -> InverseDynamicsHessians: ...
@overload
def inverse_dynamics_hessians(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    f_ext: Wrenches | None = ...,
    f_ext_frame: Frame = ...,
    contract: ArrayLike,
    outputs: Sequence[str] | None = ...,
    out: ContractedInverseDynamicsHessians | None = ...,
    threads: Threads = ...,
) -> ContractedInverseDynamicsHessians: ...


@direct("inverse_dynamics_hessians")
def inverse_dynamics_hessians(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    contract: ArrayLike | None = None,
    outputs: Sequence[str] | None = None,
    out: InverseDynamicsHessians | ContractedInverseDynamicsHessians | None = None,
    threads: Threads = 1,
) -> InverseDynamicsHessians | ContractedInverseDynamicsHessians:
    """Second derivatives of inverse dynamics. Singh 2022, Alg. 1, for every joint.

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
    contract : (..., nv) array_like, optional
        Weights w on the generalized forces: gives the second derivatives of w . tau, in O(nv d) with d the depth of the
        tree, and its gradients.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : InverseDynamicsHessians or ContractedInverseDynamicsHessians, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    InverseDynamicsHessians
        d2tau_dqdq, d2tau_dqdv, d2tau_dvdv and d2tau_dadq, each (..., nv, nv, nv).
    ContractedInverseDynamicsHessians
        With `contract`: the same fields, each (..., nv, nv), and dtau_dq, dtau_dv and dtau_da, each (..., nv).

    Examples
    --------
    >>> H = ts.inverse_dynamics_hessians(model, q, v, a)
    >>> h = ts.inverse_dynamics_hessians(model, q, v, a, contract=w)
    >>> np.allclose(h.d2tau_dqdq, np.einsum(\"i,ijk->jk\", w, H.d2tau_dqdq))
    True
    """
    plain = outputs is None and f_ext_frame == "body"
    if contract is None:
        options = "body" if plain else _options(f_ext_frame, InverseDynamicsHessians._fields, outputs)
        return _core.inverse_dynamics_hessians(model, q, v, a, f_ext, options, out, threads)
    options = "body" if plain else _options(f_ext_frame, ContractedInverseDynamicsHessians._fields, outputs)
    return _core.inverse_dynamics_hessians_contracted(model, q, v, a, contract, f_ext, options, out, threads)


@overload
def forward_dynamics_hessians(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    f_ext: Wrenches | None = ...,
    f_ext_frame: Frame = ...,
    contract: None = ...,
    outputs: Sequence[str] | None = ...,
    out: ForwardDynamicsHessians | None = ...,
    threads: Threads = ...,
) -> ForwardDynamicsHessians: ...
@overload
def forward_dynamics_hessians(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    f_ext: Wrenches | None = ...,
    f_ext_frame: Frame = ...,
    contract: ArrayLike,
    outputs: Sequence[str] | None = ...,
    out: ContractedForwardDynamicsHessians | None = ...,
    threads: Threads = ...,
) -> ContractedForwardDynamicsHessians: ...


@direct("forward_dynamics_hessians")
def forward_dynamics_hessians(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    contract: ArrayLike | None = None,
    outputs: Sequence[str] | None = None,
    out: ForwardDynamicsHessians | ContractedForwardDynamicsHessians | None = None,
    threads: Threads = 1,
) -> ForwardDynamicsHessians | ContractedForwardDynamicsHessians:
    """Second derivatives of forward dynamics, from first and second derivatives of inverse dynamics.

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
    contract : (..., nv) array_like, optional
        Weights w on the accelerations: gives the second derivatives of w . a, and its gradients.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : ForwardDynamicsHessians or ContractedForwardDynamicsHessians, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ForwardDynamicsHessians
        d2a_dqdq, d2a_dqdv, d2a_dvdv and d2a_dtaudq, each (..., nv, nv, nv).
    ContractedForwardDynamicsHessians
        With `contract`: the same fields, each (..., nv, nv), and da_dq, da_dv and da_dtau, each (..., nv).

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> H = ts.forward_dynamics_hessians(model, q, v, tau)
    >>> h = ts.forward_dynamics_hessians(model, q, v, tau, contract=w)
    >>> np.allclose(h.d2a_dqdq, np.einsum(\"i,ijk->jk\", w, H.d2a_dqdq))
    True
    """
    plain = outputs is None and f_ext_frame == "body"
    if contract is None:
        options = "body" if plain else _options(f_ext_frame, ForwardDynamicsHessians._fields, outputs)
        return _core.forward_dynamics_hessians(model, q, v, tau, f_ext, options, out, threads)
    options = "body" if plain else _options(f_ext_frame, ContractedForwardDynamicsHessians._fields, outputs)
    return _core.forward_dynamics_hessians_contracted(model, q, v, tau, contract, f_ext, options, out, threads)


def christoffel_symbols(
    model: Model, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
) -> FloatArray:
    """Coefficients G of the Coriolis and centrifugal terms: tau_i = G_ijk v_j v_k, symmetric in j and k.

    For joints with q in R^n they are the Christoffel symbols of the first kind of the mass matrix, (dM_ij/dq_k +
    dM_ik/dq_j - dM_jk/dq_i) / 2. Spherical and free joints have velocities that are not rates of coordinates, and their
    structure constants enter.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    out : (..., nv, nv, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    G : (..., nv, nv, nv) array

    Examples
    --------
    >>> G = ts.christoffel_symbols(model, q)
    >>> np.allclose(np.einsum("ijk,j,k->i", G, v, v), ts.bias_forces(model, q, v) - ts.gravity_forces(model, q))
    True
    """
    rest = np.zeros(require_model(model).nv)
    options = {"wanted": 1 << InverseDynamicsHessians._fields.index("d2tau_dvdv")}
    outs = None if out is None else (None, None, out, None)
    G: FloatArray = _core.inverse_dynamics_hessians(model, q, rest, rest, None, options, outs, threads)[2]
    G *= 0.5
    return G
