"""Inverse, forward and hybrid dynamics, the mass matrix, and what is made of them.

Every function takes one state, arrays of shapes (nq,), (nv,), ..., or any batch of states, (..., nq), (..., nv), ...,
whose batch shapes broadcast. `out` receives the result instead of a new array. `threads` shares a batch among
threads: 1 by default, 0 for one per core. Results for one state are the same to the last bit whatever batch, lane,
thread or order of bodies it is computed in. NaN and infinity in a state spoil its own results and no other's;
a quaternion of length 0 is a ValueError.

`f_ext` are external wrenches (..., nbodies, 6) on the bodies, moment first, each in its body's frame; with
`f_ext_frame="world"` in the world's frame (moment about the world's origin), with "local_world_aligned" in the
world's axes, moment about the body's origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor import _core
from torsor._check import axes
from torsor._core import forward_dynamics as _forward_dynamics
from torsor._core import inverse_dynamics as _inverse_dynamics
from torsor._core import mass_matrix as _mass_matrix
from torsor.model import Model, require_model
from torsor.spatial import refuse_mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, ReferencePoint


def inverse_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    f_ext: ArrayLike | None = None,
    out: FloatArray | None = None,
    threads: int = 1,
    f_ext_frame: Frame = "body",
) -> FloatArray:
    """Torques tau (..., nv) with which the model at q, v accelerates by a. Kim 2012, Table 2."""
    return _inverse_dynamics(model, q, v, a, f_ext, f_ext_frame, out, threads)


def forward_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    f_ext: ArrayLike | None = None,
    out: FloatArray | None = None,
    threads: int = 1,
    f_ext_frame: Frame = "body",
) -> FloatArray:
    """Accelerations a (..., nv) of the model at q, v under torques tau, in O(n). Kim 2012, Table 3.

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.
    """
    return _forward_dynamics(model, q, v, tau, f_ext, f_ext_frame, out, threads)


def hybrid_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    *,
    a: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    prescribed: Sequence[str] | ArrayLike,
    f_ext: ArrayLike | None = None,
    out: tuple[FloatArray, FloatArray] | None = None,
    threads: int = 1,
    f_ext_frame: Frame = "body",
) -> tuple[FloatArray, FloatArray]:
    """Accelerations and torques (a, tau), each (..., nv), when some of each are given, in O(n). Kim 2012, Table 4.

    Parameters
    ----------
    model, q, v
        The model and its state.
    a : (..., nv) array_like, optional
        Accelerations; only those of prescribed velocities are read. Zero if left out.
    tau : (..., nv) array_like, optional
        Torques; only those of the other velocities are read. Zero if left out.
    prescribed : sequence of names, or (nv,) mask of bool
        The joints whose accelerations are given, or a mask over single velocities.
    f_ext, out, threads
        As for every function here; `out` is a pair of arrays.
    """
    given = prescribed_mask(model, prescribed)
    if a is None or tau is None:
        rest = np.zeros(model.nv)
        a, tau = rest if a is None else a, rest if tau is None else tau
    options = {"prescribed": given, "axes": axes(f_ext_frame, "f_ext_frame")}
    return _core.hybrid_dynamics(model, q, v, a, tau, f_ext, options, out, threads)


def prescribed_mask(model: Model, prescribed: Any) -> bytes:
    """One byte for each velocity: 1 if its acceleration is prescribed."""
    require_model(model)
    if type(prescribed) is np.ndarray and prescribed.dtype == np.bool_ and prescribed.shape == (model.nv,):
        return prescribed.tobytes()
    if isinstance(prescribed, str):
        raise TypeError(f"prescribed is {prescribed!r}, expected a sequence of names, [{prescribed!r}], or a mask")
    refuse_mask("prescribed", prescribed)
    array = np.asarray(list(prescribed) if isinstance(prescribed, (set, frozenset, dict)) else prescribed)
    if array.dtype.kind == "U" or (array.size == 0 and array.dtype != np.bool_):
        mask = np.zeros(model.nv, np.bool_)
        for name in array.ravel().tolist():
            mask[model.joint(name).v_slice] = True
    elif array.dtype == np.bool_ and array.shape == (model.nv,):
        mask = array
    else:
        raise TypeError(
            f"prescribed has dtype {array.dtype} and shape {array.shape}, expected names of joints or a mask of bool "
            f"of shape ({model.nv},)"
        )
    return mask.astype(np.uint8).tobytes()


def mass_matrix(model: Model, q: ArrayLike, out: FloatArray | None = None, threads: int = 1) -> FloatArray:
    """The mass matrix M (..., nv, nv), by composite rigid bodies."""
    return _mass_matrix(model, q, out, threads)


def mass_matrix_inverse(model: Model, q: ArrayLike, out: FloatArray | None = None, threads: int = 1) -> FloatArray:
    """The inverse (..., nv, nv) of the mass matrix, column by column in O(n) each. Sueda 2021, Alg. 10."""
    return _core.mass_matrix_inverse(model, q, out, threads)


def mass_matrix_solve(
    model: Model,
    q: ArrayLike,
    x: ArrayLike,
    joint_terms: ArrayLike | None = None,
    body_terms: ArrayLike | None = None,
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """M^-1 x (..., nv) in O(n), without forming M. Sueda 2021, Alg. 10.

    Parameters
    ----------
    model, q
        The model and its configuration.
    x : (..., nv) array_like
        Right-hand side.
    joint_terms : (..., nv) array_like, optional
        Added to the diagonal of M, such as h D + h^2 K of joint damping and stiffness.
    body_terms : (..., nbodies, 6, 6) array_like, optional
        Symmetric matrices P on the bodies, in their frames: J^T P J is added to M, J the maximal-reduced Jacobian.
    """
    if body_terms is not None:
        refuse_mask("body_terms", body_terms)
        P = np.asarray(body_terms)
        if P.ndim >= 3 and P.shape[-2:] == (6, 6) and P.dtype.kind in "biufc":
            with np.errstate(invalid="ignore"):  # infinity less infinity: not a number is not asymmetric
                skew = np.abs(P - np.swapaxes(P, -1, -2)).max((-3, -2, -1), initial=0.0)
                wrong = skew > 1e-12 * np.abs(P).max((-3, -2, -1), initial=0.0)  # of each state
            if wrong.any():
                worst = skew[wrong].max()
                raise ValueError(f"body_terms are not symmetric: they differ from their transposes by {worst:.3g}")
    return _core.mass_matrix_solve(model, q, x, joint_terms, body_terms, out, threads)


def bias_forces(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    f_ext: ArrayLike | None = None,
    out: FloatArray | None = None,
    threads: int = 1,
    f_ext_frame: Frame = "body",
) -> FloatArray:
    """The torques (..., nv) that hold the model at zero acceleration: Coriolis, centrifugal, gravity and external
    ones."""
    return _inverse_dynamics(model, q, v, None, f_ext, f_ext_frame, out, threads)


def gravity_forces(model: Model, q: ArrayLike, out: FloatArray | None = None, threads: int = 1) -> FloatArray:
    """The torques (..., nv) that hold the model at rest against gravity: the gradient of `potential_energy`."""
    return _inverse_dynamics(model, q, None, None, None, "body", out, threads)


def coriolis_matrix(
    model: Model, q: ArrayLike, v: ArrayLike, out: FloatArray | None = None, threads: int = 1
) -> FloatArray:
    """A matrix C (..., nv, nv) with C v = bias_forces - gravity_forces and dM/dt - 2 C skew-symmetric.

    C is the sum over bodies of J^T (I dJ/dt + B J), with B of Singh 2022, eq. (6).
    """
    return _core.coriolis_matrix(model, q, v, out, threads)


def kinetic_energy(
    model: Model, q: ArrayLike, v: ArrayLike, out: FloatArray | None = None, threads: int = 1
) -> FloatArray:
    """Kinetic energy (...), v.M v / 2, in O(n)."""
    return _core.kinetic_energy(model, q, v, out, threads)


def potential_energy(model: Model, q: ArrayLike, out: FloatArray | None = None, threads: int = 1) -> FloatArray:
    """Potential energy (...) of gravity, zero for masses at the world's origin; bodies fixed to the world do not
    count."""
    return _core.potential_energy(model, q, out, threads)


_ABOUT = {"com": 0, "world": 1}


def about_point(about: str) -> int:
    if about not in _ABOUT:
        raise ValueError(f"about is {about!r}, expected 'com' or 'world'")
    return _ABOUT[about]


def momentum(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    about: ReferencePoint = "com",
    out: FloatArray | None = None,
    threads: int = 1,
) -> FloatArray:
    """Momentum (..., 6): angular about the centre of mass ("com") or the world's origin ("world"), then linear.

    In the world's axes, in O(n); bodies fixed to the world do not count.
    """
    return _core.momentum(model, q, v, {"axes": about_point(about)}, out, threads)


def momentum_matrix(
    model: Model, q: ArrayLike, about: ReferencePoint = "com", out: FloatArray | None = None, threads: int = 1
) -> FloatArray:
    """The matrix A (..., 6, nv) with A v = momentum(model, q, v, about=about)."""
    return _core.momentum_matrix(model, q, {"axes": about_point(about)}, out, threads)


def generalized_momenta(
    model: Model, q: ArrayLike, v: ArrayLike, out: FloatArray | None = None, threads: int = 1
) -> FloatArray:
    """Momenta p = M(q) v (..., nv), in O(n); `mass_matrix_solve` gives v back."""
    return _core.generalized_momenta(model, q, v, out, threads)


def center_of_mass(model: Model, q: ArrayLike, out: FloatArray | None = None, threads: int = 1) -> FloatArray:
    """The centre of mass (..., 3) in the world; NaN for a model without mass. Bodies fixed to the world do not
    count."""
    return _core.center_of_mass(model, q, out, threads)


def center_of_mass_jacobian(model: Model, q: ArrayLike, out: FloatArray | None = None, threads: int = 1) -> FloatArray:
    """The Jacobian (..., 3, nv) of `center_of_mass`: its velocity is J v."""
    return _core.center_of_mass_jacobian(model, q, out, threads)


def joint_reactions(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    f_ext: ArrayLike | None = None,
    out: FloatArray | None = None,
    threads: int = 1,
    f_ext_frame: Frame = "body",
) -> FloatArray:
    """Wrenches (..., nbodies, 6) that each body receives from its parent through its joint, in the body's frame.

    Moment first, about the origin of the body's frame, for fixed joints too. S^T of it is tau. Kim 2012, (41).
    """
    return _core.joint_reactions(model, q, v, a, f_ext, f_ext_frame, out, threads)
