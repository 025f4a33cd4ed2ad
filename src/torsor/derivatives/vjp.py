"""First derivatives of inverse, forward and hybrid dynamics in reverse, exact: gradients of one weighted sum of the
outputs with respect to all inputs and to the parameters of the model, in O(n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import axes, record_of
from torsor.derivatives.matrices import output_bits
from torsor.dynamics import prescribed_mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame
    from torsor.model import Model


@record_of("inverse_dynamics_vjp")
class InverseDynamicsVJP(NamedTuple):
    """Gradients of w . inverse_dynamics(q, v, a), shaped as what they belong to (q as v)."""

    q: FloatArray
    v: FloatArray
    a: FloatArray
    f_ext: FloatArray
    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray


@record_of("forward_dynamics_vjp")
class ForwardDynamicsVJP(NamedTuple):
    """Gradients of w . forward_dynamics(q, v, tau), shaped as what they belong to (q as v)."""

    q: FloatArray
    v: FloatArray
    tau: FloatArray
    f_ext: FloatArray
    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray


@record_of("hybrid_dynamics_vjp")
class HybridDynamicsVJP(NamedTuple):
    """Gradients of w_a . a + w_tau . tau over the results of hybrid dynamics, shaped as what they belong to (q as v).

    Zero for what is not read: `a` of free velocities, `tau` of prescribed ones.
    """

    q: FloatArray
    v: FloatArray
    a: FloatArray
    tau: FloatArray
    f_ext: FloatArray
    inertia: FloatArray
    placement: FloatArray
    gravity: FloatArray


def inverse_dynamics_vjp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    w: ArrayLike,
    f_ext: ArrayLike | None = None,
    out: InverseDynamicsVJP | None = None,
    threads: int = 1,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
) -> InverseDynamicsVJP:
    """Gradients of w . inverse_dynamics(q, v, a) with respect to everything that it depends on, in O(n).

    Returns
    -------
    InverseDynamicsVJP
        q, v, a (..., nv); f_ext (..., nbodies, 6); inertia (..., nbodies, 10), with respect to `Inertia.parameters`;
        placement (..., nbodies, 6), along twists x of placement @ SE3.exp(x); gravity (..., 3).
    """
    options = {
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "wanted": output_bits(InverseDynamicsVJP._fields, outputs),
    }
    return _core.inverse_dynamics_vjp(model, q, v, a, w, f_ext, options, out, threads)


def forward_dynamics_vjp(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    w: ArrayLike,
    f_ext: ArrayLike | None = None,
    out: ForwardDynamicsVJP | None = None,
    threads: int = 1,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
) -> ForwardDynamicsVJP:
    """Gradients of w . forward_dynamics(q, v, tau) with respect to everything that it depends on, in O(n).

    Results as those of `inverse_dynamics_vjp`, with tau in place of a.
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
    f_ext: ArrayLike | None = None,
    out: HybridDynamicsVJP | None = None,
    threads: int = 1,
    f_ext_frame: Frame = "body",
    outputs: Sequence[str] | None = None,
) -> HybridDynamicsVJP:
    """Gradients of w_a . a + w_tau . tau over the results (a, tau) of `hybrid_dynamics`, in O(n); weights left out
    are zero."""
    options = {
        "prescribed": prescribed_mask(model, prescribed),
        "axes": axes(f_ext_frame, "f_ext_frame"),
        "wanted": output_bits(HybridDynamicsVJP._fields, outputs),
    }
    rest = np.zeros(model.nv)
    a, tau, w_a, w_tau = (rest if x is None else x for x in (a, tau, w_a, w_tau))
    return _core.hybrid_dynamics_vjp(model, q, v, a, tau, w_a, w_tau, f_ext, options, out, threads)


def inertial_regressor(
    model: Model, q: ArrayLike, v: ArrayLike, a: ArrayLike, out: FloatArray | None = None, threads: int = 1
) -> FloatArray:
    """The matrix Y (..., nv, 10 nbodies) with inverse_dynamics(q, v, a) = Y model.inertial_parameters."""
    return _core.inertial_regressor(model, q, v, a, out, threads)
