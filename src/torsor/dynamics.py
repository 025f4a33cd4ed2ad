"""Inverse, forward and hybrid dynamics, the mass matrix, energies and momenta.

Every function takes one state, arrays of shapes (nq,), (nv,), ..., or any batch of states, (..., nq), (..., nv), ...,
whose batch shapes broadcast. `out` is an array that receives the result in place of a new one. `threads` is the number
of threads among which a batch is divided: 1 by default, "auto" for at most one per core; fewer take part where a
batch is too small to pay for them. Results for one state are the same to the
last bit in any batch, lane, thread or order of bodies. NaN and infinity in a state affect only that state's results; a
quaternion of length 0 raises ValueError.

`f_ext` are external wrenches (..., nbodies, 6) on the bodies, moment first, or a dict of wrenches (..., 6) on some
bodies and frames, by name. `f_ext_frame` is the frame in which they are given: "body", the frame of each body, or the
named one; "world", the world frame, with moments about its origin; "local_world_aligned", the axes of the world, with
moments about the origin of the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor import _core
from torsor._check import axes, direct
from torsor.model import Model, require_model
from torsor.spatial import refuse_mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, Frame, ReferencePoint, Threads, Wrenches


@direct("inverse_dynamics")
def inverse_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Generalized forces that give the model the acceleration a, in O(n). Kim 2012, Table 2.

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
    out : (..., nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    tau : (..., nv) array

    Examples
    --------
    >>> tau = ts.inverse_dynamics(model, q, v, a)
    >>> np.allclose(tau, ts.mass_matrix(model, q) @ a + ts.bias_forces(model, q, v))
    True
    >>> load = {"hand": (0, 0, 0, 0, 0, -10)}  # 10 N downward
    >>> tau = ts.inverse_dynamics(model, q, v, a, f_ext=load, f_ext_frame="local_world_aligned")
    >>> ts.inverse_dynamics(model, model.random(rng, size=100), v, a).shape  # a batch
    (100, 7)
    """
    return _core.inverse_dynamics(model, q, v, a, f_ext, f_ext_frame, out, threads)


@direct("forward_dynamics")
def forward_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Accelerations of the model under generalized forces tau, in O(n). Kim 2012, Table 3.

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
    out : (..., nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    a : (..., nv) array

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> a = ts.forward_dynamics(model, q, v, tau)
    >>> np.allclose(ts.inverse_dynamics(model, q, v, a), tau)
    True
    """
    return _core.forward_dynamics(model, q, v, tau, f_ext, f_ext_frame, out, threads)


def hybrid_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    *,
    a: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    prescribed: Sequence[str] | ArrayLike,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    out: tuple[FloatArray, FloatArray] | None = None,
    threads: Threads = 1,
) -> tuple[FloatArray, FloatArray]:
    """Accelerations and generalized forces when some of each are given, in O(n). Kim 2012, Table 4.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    a : (..., nv) array_like, optional
        Accelerations, zero by default; only those of prescribed velocities are read.
    tau : (..., nv) array_like, optional
        Generalized forces, zero by default; only those of the other velocities are read.
    prescribed : sequence of str, or (nv,) array_like of bool
        Names of the joints whose accelerations are given, or a mask over velocities.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    out : pair of (..., nv) arrays, optional
        Arrays for the results.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    a, tau : (..., nv) arrays
        All accelerations and all generalized forces, the given ones included.

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint that is not prescribed moves no mass, in any state of the batch.

    Examples
    --------
    >>> a1, tau1 = ts.hybrid_dynamics(model, q, v, a=a, tau=tau, prescribed=["wrist_pitch"])
    >>> wrist = model.joint("wrist_pitch").v_slice
    >>> np.allclose(a1[wrist], a[wrist]), np.allclose(ts.inverse_dynamics(model, q, v, a1), tau1)
    (True, True)
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
            mask[model._velocities(name, "prescribe")] = True
    elif array.dtype == np.bool_ and array.shape == (model.nv,):
        mask = array
    else:
        raise TypeError(
            f"prescribed has dtype {array.dtype} and shape {array.shape}, expected names of joints or a mask of bool "
            f"of shape ({model.nv},)"
        )
    return mask.astype(np.uint8).tobytes()


@direct("mass_matrix")
def mass_matrix(model: Model, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
    """The mass matrix, by the composite-rigid-body algorithm.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    out : (..., nv, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    M : (..., nv, nv) array
        Symmetric, both triangles filled.

    Examples
    --------
    >>> M = ts.mass_matrix(model, q)
    >>> np.allclose(0.5 * v @ M @ v, ts.kinetic_energy(model, q, v))
    True
    """
    return _core.mass_matrix(model, q, out, threads)


@direct("mass_matrix_inverse")
def mass_matrix_inverse(
    model: Model, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
) -> FloatArray:
    """The inverse of the mass matrix, column by column in O(n) each. Sueda 2021, Alg. 10.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    out : (..., nv, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    M_inverse : (..., nv, nv) array

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> np.allclose(ts.mass_matrix_inverse(model, q) @ ts.mass_matrix(model, q), np.eye(7))
    True
    """
    return _core.mass_matrix_inverse(model, q, out, threads)


@direct("mass_matrix_solve")
def mass_matrix_solve(
    model: Model,
    q: ArrayLike,
    x: ArrayLike,
    *,
    joint_terms: ArrayLike | None = None,
    body_terms: ArrayLike | None = None,
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Solves M y = x in O(n), without forming the mass matrix M. Sueda 2021, Alg. 10.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    x : (..., nv) array_like
        Right-hand side.
    joint_terms : (..., nv) array_like, optional
        Added to the diagonal of M, such as h D + h^2 K of joint damping and stiffness.
    body_terms : (..., nbodies, 6, 6) array_like, optional
        Symmetric matrices P on the bodies, in their frames: J^T P J is added to M, with J of `maximal_jacobian`.
    out : (..., nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    y : (..., nv) array

    Raises
    ------
    SingularMassMatrixError
        If some motion of a joint moves no mass, in any state of the batch.

    Examples
    --------
    >>> np.allclose(ts.mass_matrix(model, q) @ ts.mass_matrix_solve(model, q, w), w)
    True
    """
    if body_terms is not None:
        refuse_mask("body_terms", body_terms)
        P = np.asarray(body_terms)
        if P.ndim >= 3 and P.shape[-2:] == (6, 6) and P.dtype.kind in "biufc":
            with np.errstate(invalid="ignore"):  # infinity less infinity is NaN, which is not asymmetric
                skew = np.abs(P - np.swapaxes(P, -1, -2)).max((-3, -2, -1), initial=0.0)
                wrong = skew > 1e-12 * np.abs(P).max((-3, -2, -1), initial=0.0)  # of each state
            if wrong.any():
                worst = skew[wrong].max()
                raise ValueError(f"body_terms are not symmetric: they differ from their transposes by {worst:.3g}")
    return _core.mass_matrix_solve(model, q, x, joint_terms, body_terms, out, threads)


@direct("inverse_dynamics")
def bias_forces(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Generalized forces at zero acceleration: Coriolis, centrifugal, gravity and external terms.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    f_ext : (..., nbodies, 6) array_like or dict, optional
        External wrenches on the bodies, moment first.
    f_ext_frame : {"body", "world", "local_world_aligned"}
        Frame in which `f_ext` is given.
    out : (..., nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    tau : (..., nv) array
        `inverse_dynamics` with a = 0.

    Examples
    --------
    >>> np.allclose(ts.bias_forces(model, q, v), ts.inverse_dynamics(model, q, v, np.zeros(7)))
    True
    """
    return _core.inverse_dynamics(model, q, v, None, f_ext, f_ext_frame, out, threads)


@direct("inverse_dynamics")
def gravity_forces(model: Model, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
    """Generalized forces that hold the model at rest against gravity.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    out : (..., nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    tau : (..., nv) array
        The gradient of `potential_energy`.

    Examples
    --------
    >>> hold = ts.gravity_forces(model, q)
    >>> np.allclose(ts.forward_dynamics(model, q, np.zeros(7), hold), 0)
    True
    """
    return _core.inverse_dynamics(model, q, None, None, None, "body", out, threads)


@direct("coriolis_matrix")
def coriolis_matrix(
    model: Model, q: ArrayLike, v: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
) -> FloatArray:
    """A matrix C with C v = bias_forces - gravity_forces and dM/dt - 2 C skew-symmetric.

    C is the sum over bodies of J^T (I dJ/dt + B J), with B of Singh 2022, eq. (6).

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    out : (..., nv, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    C : (..., nv, nv) array

    Examples
    --------
    >>> C = ts.coriolis_matrix(model, q, v)
    >>> np.allclose(C @ v + ts.gravity_forces(model, q), ts.bias_forces(model, q, v))
    True
    """
    return _core.coriolis_matrix(model, q, v, out, threads)


@direct("kinetic_energy")
def kinetic_energy(
    model: Model, q: ArrayLike, v: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
) -> FloatArray:
    """Kinetic energy v . M v / 2, in O(n).

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    out : (...) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    energy : (...) array

    Examples
    --------
    >>> np.allclose(ts.kinetic_energy(model, q, 2 * v), 4 * ts.kinetic_energy(model, q, v))
    True
    """
    return _core.kinetic_energy(model, q, v, out, threads)


@direct("potential_energy")
def potential_energy(model: Model, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
    """Potential energy of gravity, zero for masses at the origin of the world.

    Bodies fixed to the world do not contribute.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    out : (...) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    energy : (...) array

    Examples
    --------
    >>> higher = ts.potential_energy(model, q) > ts.potential_energy(model, model.neutral)
    """
    return _core.potential_energy(model, q, out, threads)


_ABOUT = {"com": 0, "world": 1}


def about_point(about: str) -> int:
    """The core's number of a reference point."""
    if about not in _ABOUT:
        raise ValueError(f"about is {about!r}, expected 'com' or 'world'")
    return _ABOUT[about]


@direct("momentum")
def momentum(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    *,
    about: ReferencePoint = "com",
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Angular and linear momentum of the model in the axes of the world, in O(n).

    Bodies fixed to the world do not contribute.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    about : {"com", "world"}
        Reference point of the angular part: the centre of mass, or the origin of the world.
    out : (..., 6) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    h : (..., 6) array
        Angular momentum, then linear momentum.

    Examples
    --------
    >>> p = ts.momentum(model, q, v)
    >>> moving = model.mass - model.body("base").inertia.mass
    >>> np.allclose(p[3:], moving * ts.center_of_mass_jacobian(model, q) @ v)
    True
    """
    return _core.momentum(model, q, v, {"axes": about_point(about)}, out, threads)


@direct("momentum_matrix")
def momentum_matrix(
    model: Model,
    q: ArrayLike,
    *,
    about: ReferencePoint = "com",
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """The matrix A of the momentum: A v = momentum(model, q, v, about=about).

    With `about="com"` it is the centroidal momentum matrix.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    about : {"com", "world"}
        Reference point of the angular part: the centre of mass, or the origin of the world.
    out : (..., 6, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    A : (..., 6, nv) array

    Examples
    --------
    >>> np.allclose(ts.momentum_matrix(model, q) @ v, ts.momentum(model, q, v))
    True
    """
    return _core.momentum_matrix(model, q, {"axes": about_point(about)}, out, threads)


@direct("generalized_momenta")
def generalized_momenta(
    model: Model, q: ArrayLike, v: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
) -> FloatArray:
    """Generalized momenta p = M(q) v, in O(n). `mass_matrix_solve` is the inverse.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    v : (..., nv) array_like
        Velocities.
    out : (..., nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    p : (..., nv) array

    Examples
    --------
    >>> np.allclose(ts.generalized_momenta(model, q, v), ts.mass_matrix(model, q) @ v)
    True
    """
    return _core.generalized_momenta(model, q, v, out, threads)


@direct("center_of_mass")
def center_of_mass(model: Model, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1) -> FloatArray:
    """The centre of mass in the world, NaN for a model without mass.

    Bodies fixed to the world do not contribute.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    out : (..., 3) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    position : (..., 3) array

    Examples
    --------
    >>> ts.center_of_mass(model, q).shape
    (3,)
    """
    return _core.center_of_mass(model, q, out, threads)


@direct("center_of_mass_jacobian")
def center_of_mass_jacobian(
    model: Model, q: ArrayLike, *, out: FloatArray | None = None, threads: Threads = 1
) -> FloatArray:
    """The Jacobian J of `center_of_mass`: the velocity of the centre of mass is J v.

    Parameters
    ----------
    model : Model
    q : (..., nq) array_like
        Configurations.
    out : (..., 3, nv) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    J : (..., 3, nv) array

    Examples
    --------
    >>> speed = ts.center_of_mass_jacobian(model, q) @ v
    >>> speed.shape
    (3,)
    """
    return _core.center_of_mass_jacobian(model, q, out, threads)


@direct("joint_reactions")
def joint_reactions(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    a: ArrayLike,
    *,
    f_ext: Wrenches | None = None,
    f_ext_frame: Frame = "body",
    out: FloatArray | None = None,
    threads: Threads = 1,
) -> FloatArray:
    """Wrenches that the bodies receive from their parents through their joints, fixed joints included. Kim 2012, (41).

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
    out : (..., nbodies, 6) array, optional
        Array for the result.
    threads : int or "auto"
        Most threads for a batch, of which as many take part as pay; "auto" for at most one per core.

    Returns
    -------
    F : (..., nbodies, 6) array
        In the frame of each body, moment about its origin first. S^T F is tau of the joint.

    Examples
    --------
    >>> rest = np.zeros(model.nv)
    >>> F = ts.joint_reactions(model, q, rest, rest)
    >>> np.allclose(np.linalg.norm(F[0, 3:]), 9.81 * model.mass)  # the base carries the weight
    True
    """
    return _core.joint_reactions(model, q, v, a, f_ext, f_ext_frame, out, threads)
