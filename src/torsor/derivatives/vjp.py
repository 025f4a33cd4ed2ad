"""Vector-Jacobian products of inverse, forward and hybrid dynamics and of joint reactions, exact: gradients of one
weighted sum of the outputs with respect to all inputs and to the parameters of the model, in O(n).

Arguments are as in `torsor.derivatives.matrices`. A gradient has the shape of the quantity with respect to which it is
taken, the one with respect to q the shape of v: it is in the tangent space.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import axes, direct, record_of
from torsor.derivatives.matrices import output_bits
from torsor.dynamics import prescribed_mask
from torsor.model import require_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, Threads, Wrenches
    from torsor.model import Model


@record_of("inverse_dynamics_vjp")
class InverseDynamicsVJP(NamedTuple):
    """Gradients of w . inverse_dynamics(q, v, a).

    Attributes
    ----------
    q, v, a : (..., nv)
    f_ext : (..., nbodies, 6)
    inertia : (..., nbodies, 10)
        With respect to `Inertia.parameters` of every body.
    placement : (..., nbodies, 6)
        With respect to twists x of the placements, placement @ SE3.exp(x).
    gravity : (..., 3)
    armature : (..., nv)
        With respect to `Model.armature`: zero at `Free` joints, which have none, and equal for the three velocities of
        a `Spherical` joint, of whose one number each has a third of the derivative.
    """

    q: FloatArray
    v: FloatArray
    a: FloatArray
    f_ext: FloatArray
    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray
    armature: FloatArray


@record_of("forward_dynamics_vjp")
class ForwardDynamicsVJP(NamedTuple):
    """Gradients of w . forward_dynamics(q, v, tau).

    The fields are those of `InverseDynamicsVJP`, with tau (..., nv) in place of a.
    """

    q: FloatArray
    v: FloatArray
    tau: FloatArray
    f_ext: FloatArray
    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray
    armature: FloatArray


@record_of("hybrid_dynamics_vjp")
class HybridDynamicsVJP(NamedTuple):
    """Gradients of w_a . a + w_tau . tau, with (a, tau) the results of hybrid dynamics.

    The fields are those of `InverseDynamicsVJP`, with both a and tau (..., nv). They are zero for inputs that are not
    read: `a` of free velocities, `tau` of prescribed ones.
    """

    q: FloatArray
    v: FloatArray
    a: FloatArray
    tau: FloatArray
    f_ext: FloatArray
    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray
    armature: FloatArray


@record_of("joint_reactions_vjp")
class JointReactionsVJP(NamedTuple):
    """Gradients of the sum of w F over all bodies, with F the result of joint_reactions(q, v, a).

    The fields are those of `InverseDynamicsVJP`.
    """

    q: FloatArray
    v: FloatArray
    a: FloatArray
    f_ext: FloatArray
    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray
    armature: FloatArray


@direct("inverse_dynamics_vjp")
def inverse_dynamics_vjp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    w: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    out: InverseDynamicsVJP | None = None,
    threads: Threads = 1,
) -> InverseDynamicsVJP:
    """Gradients of w . inverse_dynamics(q, v, a) with respect to all inputs and model parameters, in O(n).

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    w : (..., nv) array_like
        Cotangents: weights on the generalized forces.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : InverseDynamicsVJP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    InverseDynamicsVJP
        q, v, a (..., nv); f_ext (..., nbodies, 6); inertia (..., nbodies, 10); placement (..., nbodies, 6); gravity
        (..., 3); armature (..., nv).

    Examples
    --------
    >>> g = ts.inverse_dynamics_vjp(model, q, v, a, w)
    >>> np.allclose(g.q, w @ ts.inverse_dynamics_derivatives(model, q, v, a).dtau_dq)
    True
    >>> g.inertia.shape  # with respect to mass, first moments and moments of inertia of every body
    (9, 10)
    """
    options = {
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "wanted": output_bits(InverseDynamicsVJP._fields, outputs),
    }
    return _core.inverse_dynamics_vjp(model, q, v, a, w, f_ext, options, out, threads)


@direct("forward_dynamics_vjp")
def forward_dynamics_vjp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    w: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    out: ForwardDynamicsVJP | None = None,
    threads: Threads = 1,
) -> ForwardDynamicsVJP:
    """Gradients of w . forward_dynamics(q, v, tau) with respect to all inputs and model parameters, in O(n).

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, tau : (..., nv) array_like
        Velocities and generalized forces.
    w : (..., nv) array_like
        Cotangents: weights on the accelerations.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : ForwardDynamicsVJP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    ForwardDynamicsVJP
        q, v, tau (..., nv); f_ext (..., nbodies, 6); inertia (..., nbodies, 10); placement (..., nbodies, 6); gravity
        (..., 3); armature (..., nv).

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> g = ts.forward_dynamics_vjp(model, q, v, tau, w)
    >>> np.allclose(g.tau, ts.mass_matrix_solve(model, q, w))
    True
    """
    options = {
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "wanted": output_bits(ForwardDynamicsVJP._fields, outputs),
    }
    return _core.forward_dynamics_vjp(model, q, v, tau, w, f_ext, options, out, threads)


def hybrid_dynamics_vjp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    *,
    a: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    prescribed: Sequence[str] | ArrayLike,
    w_a: ArrayLike | None = None,
    w_tau: ArrayLike | None = None,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    out: HybridDynamicsVJP | None = None,
    threads: Threads = 1,
) -> HybridDynamicsVJP:
    """Gradients of w_a . a + w_tau . tau, with (a, tau) of `hybrid_dynamics`, in O(n).

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
    w_a, w_tau : (..., nv) array_like, optional
        Cotangents: weights on the resulting accelerations and generalized forces, zero by default.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : HybridDynamicsVJP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    HybridDynamicsVJP
        q, v, a, tau (..., nv); f_ext (..., nbodies, 6); inertia (..., nbodies, 10); placement (..., nbodies, 6);
        gravity (..., 3); armature (..., nv).

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint that is not prescribed moves no mass, in any state of the batch.

    Examples
    --------
    >>> g = ts.hybrid_dynamics_vjp(model, q, v, a=a, tau=tau, prescribed=["wrist_pitch"], w_a=w)
    >>> g.q.shape
    (7,)
    """
    options = {
        "prescribed": prescribed_mask(model, prescribed),
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "wanted": output_bits(HybridDynamicsVJP._fields, outputs),
    }
    rest = np.zeros(model.nv)
    a, tau, w_a, w_tau = (rest if x is None else x for x in (a, tau, w_a, w_tau))
    return _core.hybrid_dynamics_vjp(model, q, v, a, tau, w_a, w_tau, f_ext, options, out, threads)


@direct("joint_reactions_vjp")
def joint_reactions_vjp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    w: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
    out: JointReactionsVJP | None = None,
    threads: Threads = 1,
) -> JointReactionsVJP:
    """Gradients of the sum of w joint_reactions(q, v, a) with respect to all inputs and model parameters, in O(n).

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    w : (..., nbodies, 6) array_like
        Cotangents: weights on the reactions in the frames of the bodies.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    outputs : sequence of str, optional
        Names of the fields to compute, all by default; the others are None.
    out : JointReactionsVJP, optional
        Record of arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    JointReactionsVJP
        q, v, a (..., nv); f_ext (..., nbodies, 6); inertia (..., nbodies, 10); placement (..., nbodies, 6); gravity
        (..., 3); armature (..., nv).

    Examples
    --------
    >>> g = ts.joint_reactions_vjp(model, q, v, a, np.ones((model.nbodies, 6)))
    >>> g.q.shape
    (7,)
    """
    options = {
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "wanted": output_bits(JointReactionsVJP._fields, outputs),
    }
    return _core.joint_reactions_vjp(model, q, v, a, w, f_ext, options, out, threads)


@direct("inertial_regressor")
def inertial_regressor(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """The matrix Y with inverse_dynamics(q, v, a) = Y model.inertial_parameters + model.armature a.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    out : (..., nv, 10 nbodies) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    Y : (..., nv, 10 nbodies) array

    Examples
    --------
    >>> Y = ts.inertial_regressor(model, q, v, a)  # tau is linear in the inertias
    >>> np.allclose(Y @ model.parameters.inertia.ravel(), ts.inverse_dynamics(model, q, v, a))
    True
    """
    return _core.inertial_regressor(model, q, v, a, out, threads)


def coupling_vjp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    w: ArrayLike,
    *,
    f_ext: ArrayLike | None = None,
    f_ext_frame: Frame = "body",
    threads: Threads = 1,
) -> tuple[dict[str, FloatArray], ...]:
    """Gradients of w . inverse_dynamics(q, v, a) with respect to the parameters of the couplings of a model.

    Those of w . forward_dynamics are minus these at its accelerations, with mass_matrix_solve(model, q, w) for w.

    Parameters
    ----------
    model : Model
        With couplings (`Model.couple`); without any the result is empty.
    q : (..., nq) array_like
        Configurations.
    v, a : (..., nv) array_like
        Velocities and accelerations.
    w : (..., nv) array_like
        Cotangents: weights on the generalized forces.
    f_ext : (..., nbodies, 6) array_like, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    tuple of dict
        For each coupling, arrays (..., *shape) by the names of its `parameters`.

    Examples
    --------
    >>> coupled = model.couple(ts.Mimic("flange", of="wrist_pitch", ratio=-1.0))
    >>> g = ts.coupling_vjp(coupled, q[:6], v[:6], a[:6], w[:6])
    >>> sorted(g[0])
    ['offset', 'ratio']
    """
    resolved = require_model(model)._map
    if resolved is None:
        return ()
    options = {"axes": axes(f_ext_frame, "f_ext_frame")}
    numbers = _core.coupling_vjp(model, q, v, a, w, f_ext, options, None, threads)
    return resolved.gradients(numbers)
