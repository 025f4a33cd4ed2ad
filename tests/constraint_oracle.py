"""Constraints once more, from poses and their time derivatives, and all of their mechanics by dense matrices.

Nothing here calls the constraints of the library: it reads the list of parts that descriptions compile to
("pair", "coupling", "twist", "custom"), without their index or with it, and uses the unconstrained functions.

Rows are not wrenches here. The pose of a marker is a series T + Tdot e + Tddot e^2/2, from poses, velocities and
accelerations of bodies; what a row reads, R b + s p with R, p = T_A^-1 T_B, is multiplied out by Leibniz' rule. So
`rows` is analytic in q, v, a and in the parameters x, in any batch shape, and complex steps through it give every
derivative. Jacobians are gdot of unit velocities.

`forward_dynamics`, `project` and all steps take complex arguments too, to first order: Newton's method solves for real
parts, and further corrections with the same matrix give the imaginary ones. So their derivatives are complex steps,
`along` for short.

Parameters x are displacements in the order of the core's flat gradient: for a pair 6 twists of marker a, 6 of marker b
(both on the right), one number for each row's offset; for a coupling its coefficients and its offset; for a twist row 6
for each body and its coefficients.
"""

from itertools import pairwise

import numpy as np

import torsor as ts
from torsor import spatial, variational
from torsor.testing import STEP, complex_inputs

STAGES = {  # matrices of stiffly accurate Runge-Kutta methods
    ts.BDF1: ((1.0,),),
    ts.SDIRK2: ((1 - np.sqrt(0.5),), (np.sqrt(0.5), 1 - np.sqrt(0.5))),
}


def parts_of(parts):
    """The parts alone, of a list with or without the indices of their constraints."""
    return [part if isinstance(part[0], str) else part[1] for part in parts]


def count(part):
    """The rows of a part."""
    kind, *rest = part
    return {"pair": lambda: len(rest[2]), "custom": lambda: rest[1]}.get(kind, lambda: 1)()


def size_of(part):
    """The length of a part's flat gradient."""
    kind, *rest = part
    return {
        "pair": lambda: 12 + len(rest[2]),
        "coupling": lambda: len(rest[0]) + 1,
        "twist": lambda: 6 * len(rest[0]) + len(rest[1]),
        "custom": lambda: rest[2],
    }[kind]()


def number_of_rows(parts):
    return sum(map(count, parts_of(parts)))


def size(parts):
    return sum(map(size_of, parts_of(parts)))


def slices(parts):
    """The rows of each part."""
    ends = np.cumsum([0, *map(count, parts_of(parts))])
    return [slice(i, j) for i, j in pairwise(ends)]


def at_velocity_level(parts):
    """A mask (m,) of the rows that have no g: those on twists."""
    return np.array([part[0] == "twist" for part in parts_of(parts) for _ in range(count(part))], dtype=bool)


# Rows


def numbers(*arrays):
    """Arrays of one kind, complex if one of them is."""
    kind = np.result_type(np.float64, *(np.asarray(x).dtype for x in arrays if x is not None))
    return [None if x is None else np.asarray(x, dtype=kind) for x in arrays]


def matrix_of(twelve):
    T = np.eye(4, dtype=np.asarray(twelve).dtype)
    T[:3, :3], T[:3, 3] = np.reshape(twelve[:9], (3, 3)), twelve[9:12]
    return T


def series(T, V=None, A=None):
    """T, dT/dt, d2T/dt2 of poses with the body twist V and its rate A."""
    W = spatial.hat6(V)
    return [T, T @ W, T @ (W @ W + spatial.hat6(A))]


def product(X, Y):
    """The series of a product, by Leibniz' rule."""
    return [X[0] @ Y[0], X[1] @ Y[0] + X[0] @ Y[1], X[2] @ Y[0] + 2 * X[1] @ Y[1] + X[0] @ Y[2]]


def inverse(X):
    """The series of the inverse poses: R^T, -R^T p, which is bilinear."""
    R = [np.swapaxes(x[..., :3, :3], -1, -2) for x in X]
    p = [x[..., :3, 3:] for x in X]
    moved = [R[0] @ p[0], R[1] @ p[0] + R[0] @ p[1], R[2] @ p[0] + 2 * R[1] @ p[1] + R[0] @ p[2]]
    out = []
    for k in range(3):
        T = np.zeros_like(X[k])
        T[..., :3, :3], T[..., :3, 3] = R[k], -moved[k][..., 0]
        T[..., 3, 3] = 1.0 if k == 0 else 0.0
        out.append(T)
    return out


class Motion:
    """Poses, velocities and accelerations of bodies, (..., nbodies, ...), in body frames; and q, v and a of all joints,
    with couplings too."""

    def __init__(self, model, q, v, a):
        self.q, self.v, self.a = q, v, a
        if model.couplings:
            self.q, self.v = model.expand(q), model.expand_velocity(q, v)
            self.a = model.expand_acceleration(q, v, a)
        self.T = ts.body_poses(model, q)
        self.V = ts.body_velocities(model, q, v)
        self.A = ts.body_accelerations(model, q, v, a)

    def body(self, index):
        return series(self.T[..., index, :, :], self.V[..., index, :], self.A[..., index, :])


def marker_series(motion, marker, moving, t, x):
    """The series of a marker's pose in the world, displaced on the right by the twist x."""
    index, twelve = marker
    own = spatial.exp6(x)
    if moving is not None:
        given = np.asarray(moving(t))
        poses = series(matrix_of(given), given[12:18], given[18:24])
    elif index < 0:
        poses = [matrix_of(twelve), np.zeros((4, 4)), np.zeros((4, 4))]
    else:
        own, poses = matrix_of(twelve) @ own, motion.body(index)
    return [T @ own for T in poses]


def read_row(row, T, offset):
    """g, gdot, gddot of a row of a pair from the series of B's marker seen from A's."""
    p = [x[..., :3, 3] for x in T]
    if row[0] == "norm":
        l = np.sqrt((p[0] * p[0]).sum(-1))
        rate = (p[0] * p[1]).sum(-1) / l
        return l - row[1] - offset, rate, ((p[1] * p[1]).sum(-1) + (p[0] * p[2]).sum(-1) - rate * rate) / l
    out = []
    for k in range(3):
        terms = (
            coef * (np.array(ab[:3]) @ (T[k][..., :3, :3] @ np.array(ab[3:6])[:, None] + s * p[k][..., None]))[..., 0]
            for coef, *ab, s in row[1]
        )
        out.append(sum(terms))
    return out[0] - row[2] - offset, out[1], out[2]


def relative(motion, part, t, x):
    """The series of the pose of B's marker seen from A's."""
    _, a, b, _, moving = part
    A, B = marker_series(motion, a, moving, t, x[..., :6]), marker_series(motion, b, None, t, x[..., 6:12])
    return product(inverse(A), B)


def dots(coefficients, values):
    return sum((c * y for c, y in zip(coefficients, values, strict=True)), np.zeros(1)[0])


def custom_function(bound):
    """value(q, t, p) and p of a user-defined part."""
    return getattr(bound, "constraint", bound).value, np.ravel(bound.p)


def read_part(model, part, motion, t, x):
    """g, gdot, gamma of a part, each (..., rows). x: the displacements of its parameters."""
    kind, *rest = part
    if kind == "pair":
        T = relative(motion, part, t, x)
        found = [read_row(row, T, x[..., 12 + k]) for k, row in enumerate(rest[2])]
        return [np.stack(values, axis=-1) for values in zip(*found, strict=True)]
    if kind == "coupling":
        terms, offset, moving = rest
        f = np.zeros(3) if moving is None else np.asarray(moving(t))
        c = [coef + x[..., k] for k, (coef, _, _) in enumerate(terms)]
        g = dots(c, [motion.q[..., iq] for _, iq, _ in terms]) - offset - x[..., len(terms)] - f[0]
        rates = [dots(c, [y[..., iv] for _, _, iv in terms]) - f[1 + k] for k, y in enumerate((motion.v, motion.a))]
        return [value[..., None] for value in (g, *rates)]
    if kind == "twist":
        bodies, joints, moving = rest
        f = np.zeros(2) if moving is None else np.asarray(moving(t))
        out = []
        for V, v, given in ((motion.V, motion.v, f[0]), (motion.A, motion.a, f[1])):
            value = -given
            for k, (index, wrench) in enumerate(bodies):
                value = value + ((np.array(wrench) + x[..., 6 * k : 6 * k + 6]) * V[..., index, :]).sum(-1)
            for k, (coef, iv) in enumerate(joints):
                value = value + (coef + x[..., 6 * len(bodies) + k]) * v[..., iv]
            out.append(value[..., None])
        return [0 * out[0], *out]
    return read_custom(model, *custom_function(rest[0]), motion, t, x)


def rows(model, parts, q, v=None, a=None, t=0.0, x=None):
    """g, gdot, gamma, each (..., m), at q (..., nq), v and a (..., nv); zeros by default. Complex or real.

    x (..., size) are displacements of the parameters.
    """
    parts = parts_of(parts)
    zero = np.zeros(model.nv)
    q, v, a, x = numbers(
        q, zero if v is None else v, zero if a is None else a, np.zeros(size(parts)) if x is None else x
    )
    batch = np.broadcast_shapes(*(y.shape[:-1] for y in (q, v, a, x)))
    q, v, a, x = (np.broadcast_to(y, (*batch, y.shape[-1])) for y in (q, v, a, x))
    out = [np.zeros((*batch, 0)), np.zeros((*batch, 0)), np.zeros((*batch, 0))]
    with complex_inputs():
        motion, start = Motion(model, q, v, a), 0
        for part in parts:
            found = read_part(model, part, motion, t, x[..., start : start + size_of(part)])
            out = [
                np.concatenate([o, np.broadcast_to(f, (*batch, f.shape[-1]))], axis=-1)
                for o, f in zip(out, found, strict=True)
            ]
            start += size_of(part)
    return tuple(out)


def g(model, parts, q, t=0.0, x=None):
    return rows(model, parts, q, t=t, x=x)[0]


def gdot(model, parts, q, v, t=0.0, x=None):
    return rows(model, parts, q, v, t=t, x=x)[1]


def gamma(model, parts, q, v, a, t=0.0, x=None):
    return rows(model, parts, q, v, a, t, x)[2]


def jacobian(model, parts, q, t=0.0, x=None):
    """G (..., m, nv): gdot of unit velocities, less that of none. Complex or real."""
    n = model.nv
    at = [None if y is None else np.asarray(y)[..., None, :] for y in (q, x)]
    rates = gdot(model, parts, at[0], np.concatenate([np.eye(n), np.zeros((1, n))]), t, at[1])
    return np.swapaxes(rates[..., :n, :] - rates[..., n:, :], -1, -2)


def wrenches(model, parts, q, multipliers, t=0.0):
    """For each pair its wrench (6,) on body b, in the frame of b (of the world if b is the world): the power of the
    multipliers for unit twists of that body alone. For other parts None."""
    out = []
    for part, where in zip(parts_of(parts), slices(parts), strict=True):
        if part[0] != "pair":
            out.append(None)
            continue
        _, a, b, lines, moving = part
        with complex_inputs():
            motion, x = Motion(model, q, np.zeros(model.nv), np.zeros(model.nv)), np.zeros(12)
        A = marker_series(motion, a, moving, t, x[:6])
        body = np.eye(4) if b[0] < 0 else motion.T[b[0]]
        own, still = matrix_of(b[1]), np.zeros((4, 4))
        A = [A[0], still, still]
        values = []
        for twist in np.eye(6):
            T = product(inverse(A), [T @ own for T in series(body, twist, np.zeros(6))])
            values.append([read_row(row, T, 0.0)[1] for row in lines])
        out.append(np.array(values) @ np.asarray(multipliers)[where])
    return out


# Derivatives by complex steps


def along(f, x):
    """df/dx (*f.shape, n) at x (n,), by complex steps one after the other."""
    x = np.asarray(x, dtype=np.float64)
    columns = []
    for k in range(x.size):
        z = x.astype(np.complex128)
        z[k] += 1j * STEP
        columns.append(np.imag(f(z)) / STEP)
    return np.stack(columns, axis=-1)


def moved(model, q, d):
    """q (+) d, complex or real."""
    with complex_inputs():
        return model.plus(*numbers(q, d))


def along_q(f, model, q):
    """df/dq in the tangent space, (*f.shape, nv)."""
    return along(lambda d: f(moved(model, q, d)), np.zeros(model.nv))


def _batched(f, n):
    """The derivative of f at 0, where f takes (n, n) directions at once and gives (n, ...)."""
    return np.moveaxis(np.imag(f(1j * STEP * np.eye(n))) / STEP, 0, -1)


def derivatives(model, parts, q, v, a, t=0.0):
    """dgdot_dq, dgamma_dq, dgamma_dv, each (m, nv)."""
    n = model.nv
    by_q = [_batched(lambda d, k=k: rows(model, parts, moved(model, q, d), v, a, t)[k], n) for k in (1, 2)]
    return *by_q, _batched(lambda d: rows(model, parts, q, v + d, a, t)[2], n)


def by_parameters(model, parts, q, v, a, t=0.0):
    """dg_dx, dgdot_dx, dgamma_dx, each (m, size)."""
    n = size(parts)
    return tuple(_batched(lambda d, k=k: rows(model, parts, q, v, a, t, d)[k], n) for k in range(3))


def stiffness(model, parts, q, multipliers, t=0.0):
    """K = d(G^T multipliers)/dq (nv, nv)."""
    return _batched(
        lambda d: np.einsum("...ij,i->...j", jacobian(model, parts, moved(model, q, d), t), multipliers), model.nv
    )


# Linear algebra, complex to first order


def solve(A, b):
    """A^-1 b; analytic, and exact for imaginary parts far below rounding too."""
    return np.linalg.solve(*numbers(A, b))


def pseudo_inverse(A, tolerance=1e-9):
    """A^+ of a matrix whose rank does not change nearby, with its derivative. Golub and Pereyra 1973."""
    P = np.linalg.pinv(A.real, rcond=tolerance)
    if not np.iscomplexobj(A):
        return P
    d, (m, n) = A.imag, A.shape
    left, right = np.eye(m) - A.real @ P, np.eye(n) - P @ A.real
    return P + 1j * (-P @ d @ P + P @ P.T @ d.T @ left + right @ d.T @ P.T @ P)


def rank(model, parts, q, t=0.0, tolerance=1e-9):
    """The rank of G, in the norm of the kinetic energy."""
    return int((singular_values(model, parts, q, t) > tolerance).sum())


def singular_values(model, parts, q, t=0.0):
    """Of G L^-T, M = L L^T, relative to the largest one."""
    L = np.linalg.cholesky(ts.mass_matrix(model, np.real(q)))
    s = np.linalg.svd(np.linalg.solve(L, jacobian(model, parts, np.real(q), t).T), compute_uv=False)
    return s / s.max() if s.size and s.max() > 0 else s


def kept_rows(model, parts, q, t=0.0, tolerance=1e-11):
    """The rows that LDL^T of G M^-1 G^T keeps, one after the other: those whose pivot is more than `tolerance` of their
    diagonal."""
    G = jacobian(model, parts, q, t)
    D = G @ np.linalg.solve(ts.mass_matrix(model, q), G.T)
    diagonal, kept = D.diagonal().copy(), []
    for k in range(len(D)):
        if D[k, k] > tolerance * diagonal[k]:
            kept.append(k)
            D[k + 1 :, k + 1 :] -= np.outer(D[k + 1 :, k], D[k, k + 1 :]) / D[k, k]
    return np.array(kept, dtype=int)


# Dynamics


def mass_matrix(model, q):
    with complex_inputs():
        return ts.mass_matrix(model, q)


def inverse_dynamics(model, q, v, a, forces=(), t=0.0):
    """Less the torques of forces."""
    with complex_inputs():
        q, v, a = numbers(q, v, a)
        tau = ts.inverse_dynamics(model, q, v, a)
        return tau - ts.generalized_forces(model, forces, q, v, t=t) if forces else tau


def forward_dynamics(
    model, parts, q, v, tau, t=0.0, *, baumgarte=(0.0, 0.0), compliance=0.0, f_ext=None, f_ext_frame="body", x=None
):
    """a, multipliers: ID = tau + G^T multipliers and gamma + 2 alpha gdot + beta^2 g + compliance multipliers = 0, with
    baumgarte = (alpha, beta). Multipliers of least norm where rows are redundant. Complex or real."""
    q, v, tau = numbers(q, v, tau)
    n, m = model.nv, number_of_rows(parts)
    alpha, beta = baumgarte
    with complex_inputs():
        options = {} if f_ext is None else {"f_ext": numbers(q, f_ext)[1], "f_ext_frame": f_ext_frame}
        M, bias = ts.mass_matrix(model, q), ts.inverse_dynamics(model, q, v, 0 * v, **options)
    values = rows(model, parts, q, v, 0 * v, t, x)
    b = -(values[2] + 2 * alpha * values[1] + beta**2 * values[0])
    G = jacobian(model, parts, q, t, x)
    if compliance == 0.0 and rank(model, parts, q, t) < m:
        Y = solve(M, np.swapaxes(G, -1, -2))
        free = solve(M, tau - bias)
        multipliers = pseudo_inverse(G @ Y) @ (b - G @ free)
        return free + Y @ multipliers, multipliers
    matrix = np.block([[M, -G.T], [G, compliance * np.eye(m)]])
    z = solve(matrix, np.concatenate([tau - bias, b]))
    return z[:n], z[n:]


def forward_dynamics_derivatives(model, parts, q, v, tau, t=0.0, **options):
    """da_dq, da_dv, da_dtau, dmultipliers_dq, dmultipliers_dv, dmultipliers_dtau."""

    def both(q, v, tau):
        return np.concatenate(forward_dynamics(model, parts, q, v, tau, t, **options))

    n = model.nv
    found = (
        along_q(lambda q: both(q, v, tau), model, q),
        along(lambda v: both(q, v, tau), v),
        along(lambda tau: both(q, v, tau), tau),
    )
    return *(x[:n] for x in found), *(x[n:] for x in found)


def forward_dynamics_by_parameters(model, parts, q, v, tau, t=0.0, **options):
    """da_dx (nv, size), dmultipliers_dx (m, size)."""
    found = along(
        lambda x: np.concatenate(forward_dynamics(model, parts, q, v, tau, t, x=x, **options)), np.zeros(size(parts))
    )
    return found[: model.nv], found[model.nv :]


def inverse_dynamics_under(model, parts, q, v, a, actuated, t=0.0):
    """tau (nv,), zero but at the velocities `actuated` (a mask or indices), and multipliers, together of least norm
    among those that fit best."""
    G = jacobian(model, parts, q, t)
    B = np.eye(model.nv)[:, actuated]
    A = np.concatenate([B, G.T], axis=1)
    z = pseudo_inverse(A) @ inverse_dynamics(model, q, v, a)
    return B @ z[: B.shape[1]], z[B.shape[1] :]


# Charts: q0 (+) xi, with the Jacobian of the body tangent by xi


def leaves(model):
    """Joints without composites, with the slices of their coordinates and velocities; None for new coordinates of
    couplings."""
    nq = nv = 0

    def visit(joint):
        nonlocal nq, nv
        if isinstance(joint, ts.Composite):
            for part in joint.joints:
                yield from visit(part)
            return
        yield joint, slice(nq, nq + joint.nq), slice(nv, nv + joint.nv)
        nq, nv = nq + joint.nq, nv + joint.nv

    if model.couplings:
        for joint in model.joints:
            if joint.v_slice.stop > joint.v_slice.start:
                yield joint.joint, joint.q_slice, joint.v_slice
                nq, nv = joint.q_slice.stop, joint.v_slice.stop
        yield None, slice(nq, model.nq), slice(nv, model.nv)
        return
    for b in model.bodies:
        yield from visit(b.joint)


def quaternion_of(w):
    """The quaternion xyzw of a rotation vector (..., 3)."""
    s = (w * w).sum(-1, keepdims=True)
    small = np.abs(s) < 1e-8
    angle = np.sqrt(np.where(small, 1.0, s))
    sine = np.where(small, 0.5 - s / 48, np.sin(angle / 2) / angle)
    return np.concatenate([sine * w, np.where(small, 1 - s / 8, np.cos(angle / 2))], axis=-1)


def rotation_vector(q):
    """Of a quaternion xyzw, that of the shorter way round."""
    q = q * np.where(q[..., 3:].real < 0, -1.0, 1.0)
    s = (q[..., :3] * q[..., :3]).sum(-1, keepdims=True)
    small = np.abs(s) < 1e-8
    sine = np.sqrt(np.where(small, 1.0, s))
    angle = 2 * np.where(small, 1.0, np.arctan(sine / q[..., 3:]) / sine)
    return q[..., :3] * np.where(small, 2 / q[..., 3:] * (1 - s / (3 * q[..., 3:] ** 2)), angle)


def quaternion_product(x, y):
    u, w, r, s = x[..., :3], x[..., 3:], y[..., :3], y[..., 3:]
    return np.concatenate([w * r + s * u + np.cross(u, r), w * s - (u * r).sum(-1, keepdims=True)], axis=-1)


def retract(model, q0, xi):
    """The chart of steps: q0 + xi, q0 exp(xi) of a rotation, (p0 + R0 y, R0 exp(w)) of a free joint, xi = (w, y)."""
    q0, xi = numbers(q0, xi)
    q0 = np.broadcast_to(q0, (*np.broadcast_shapes(q0.shape[:-1], xi.shape[:-1]), q0.shape[-1]))
    out = []
    for joint, iq, iv in leaves(model):
        q, x = q0[..., iq], xi[..., iv]
        if not isinstance(joint, (ts.Spherical, ts.Free)):
            out.append(q + x)
            continue
        unit = q[..., -4:] / np.sqrt((q[..., -4:] ** 2).sum(-1, keepdims=True))
        if isinstance(joint, ts.Free):
            R = spatial.quaternion_to_matrix(unit.real) if not np.iscomplexobj(unit) else rotation(unit)
            out.append(q[..., :3] + (R @ x[..., 3:, None])[..., 0])
        out.append(quaternion_product(unit, quaternion_of(x[..., :3])))
    return np.concatenate(out, axis=-1)


def rotation(q):
    """The matrix of a unit quaternion xyzw."""
    W = spatial.hat(q[..., :3])
    return np.eye(3) + 2 * q[..., 3:, None] * W + 2 * W @ W


def chart(model, q0, q1):
    """xi with retract(q0, xi) = q1."""
    q0, q1 = numbers(q0, q1)
    out = []
    for joint, iq, _ in leaves(model):
        a, b = q0[..., iq], q1[..., iq]
        if not isinstance(joint, (ts.Spherical, ts.Free)):
            out.append(b - a)
            continue
        a, b = (np.concatenate([y[..., :-4], unit_quaternion(y[..., -4:])], axis=-1) for y in (a, b))
        back = np.concatenate([-a[..., -4:-1], a[..., -1:]], axis=-1)
        out.append(rotation_vector(quaternion_product(back, b[..., -4:])))
        if isinstance(joint, ts.Free):
            out.append((np.swapaxes(rotation(a[..., -4:]), -1, -2) @ (b[..., :3] - a[..., :3])[..., None])[..., 0])
    return np.concatenate(out, axis=-1)


def unit_quaternion(q):
    return q / np.sqrt((q * q).sum(-1, keepdims=True))


def chart_jacobian(model, xi, exponential=False):
    """J (..., nv, nv): the body tangent of retract(q0, xi), or of model.plus(q0, xi) if `exponential`, is J dxi."""
    J = np.zeros((*xi.shape, xi.shape[-1]), xi.dtype)
    J[..., range(model.nv), range(model.nv)] = 1.0
    for joint, _, iv in leaves(model):
        w = xi[..., iv]
        if isinstance(joint, ts.Spherical):
            J[..., iv, iv] = spatial.dexp3(w)
        elif isinstance(joint, ts.Free) and exponential:
            J[..., iv, iv] = spatial.dexp6(w)
        elif isinstance(joint, ts.Free):
            J[..., iv.start : iv.start + 3, iv.start : iv.start + 3] = spatial.dexp3(w[..., :3])
            J[..., iv.start + 3 : iv.stop, iv.start + 3 : iv.stop] = spatial.exp3(-w[..., :3])
    return J


def newton(f, z, tolerance=1e-13, iterations=60):
    """z with f(z) = 0, f taking batches (..., n). If f has complex arguments inside, z is complex to first order.

    Stops when corrections no longer shrink, after the first that is below the tolerance relative to 1 + |z|.
    """
    z, n, last, steady = np.asarray(z, dtype=np.complex128), len(z), np.inf, 0
    for _ in range(iterations):
        values = f(np.concatenate([z[None], z + 1j * STEP * np.eye(n)]))
        A = (values[1:].imag - values[0].imag).T / STEP
        d = np.linalg.solve(A, np.stack([values[0].real, values[0].imag], axis=-1))
        z = z - d[:, 0] - 1j * d[:, 1]
        length = np.abs(d[:, 0]).max() / (1 + np.abs(z.real).max())
        steady += length < tolerance or (length < 1e-9 and length > last / 2)
        last = length
        if steady == 3:  # two more for rounding, and for imaginary parts, which follow the real ones
            return z
    raise RuntimeError(f"Newton's method does not converge: the last correction is {last:.1e}")


def plain(z, *inputs):
    """z without its imaginary part if all inputs are real."""
    return z if any(np.iscomplexobj(x) for x in inputs) else np.real(z)


# Projections


def project(model, parts, q, t=0.0, *, keep=(), exponential=True, x=None, only=None, guess=None):
    """q (+) xi with g = 0 and least xi.M(q) xi, where (+) is model.plus, or the chart of steps if not `exponential`.

    keep: indices of velocities along which q does not move. only: the rows to use, those of full rank by default.
    Complex or real. guess: xi to begin with.
    """
    n, M = model.nv, mass_matrix(model, np.asarray(q))
    moves = np.setdiff1d(np.arange(n), keep)
    real = q.real if np.iscomplexobj(q) else q
    used = np.nonzero(~at_velocity_level(parts))[0]
    if only is not None:
        used = np.array(only)

    def place(xi):
        return moved(model, q, xi) if exponential else retract(model, q, xi)

    if guess is None:  # Gauss-Newton, which finds the rows that are independent at the solution
        guess, at = np.zeros(n), real
        for _ in range(100):
            miss = g(model, parts, at, t)[used]
            G = jacobian(model, parts, at, t)[used][:, moves]
            W = np.linalg.inv(np.linalg.cholesky(M.real[np.ix_(moves, moves)]))
            d = np.zeros(n)
            d[moves] = -W.T @ np.linalg.pinv(G @ W.T, rcond=1e-9) @ miss
            d *= min(1.0, 0.5 / max(np.abs(d).max(), 1e-300))
            at = model.plus(at, d)
            if np.abs(d).max() < 1e-9:
                break
        guess = model.minus(at, real) if exponential else chart(model, real, at)
        if only is None:
            used = used[kept_rows_of(M.real[np.ix_(moves, moves)], jacobian(model, parts, at, t)[used][:, moves])]

    def residual(z):
        xi, multipliers = z[..., :n], z[..., n:]
        at = place(xi)
        J = chart_jacobian(model, xi, exponential)
        G = jacobian(model, parts, at, t, x)[..., used, :]
        balance = np.einsum("ij,...j->...i", M, xi) + np.einsum("...kj,...ik,...i->...j", J, G, multipliers)
        balance[..., list(keep)] = xi[..., list(keep)]
        return np.concatenate([balance, g(model, parts, at, t, x)[..., used]], axis=-1)

    z = newton(residual, np.concatenate([guess, np.zeros(len(used))]))
    return plain(place(z[:n]), q, *([] if x is None else [x]))


def kept_rows_of(M, G, tolerance=1e-9):
    """As `kept_rows`, of matrices."""
    D = G @ np.linalg.solve(M, G.T)
    diagonal, kept = D.diagonal().copy(), []
    for k in range(len(D)):
        if D[k, k] > tolerance * diagonal[k]:
            kept.append(k)
            D[k + 1 :, k + 1 :] -= np.outer(D[k + 1 :, k], D[k, k + 1 :]) / D[k, k]
    return np.array(kept, dtype=int)


def project_velocity(model, parts, q, v, t=0.0, *, x=None, only=None, keep=()):
    """v1 and kappa: M (v1 - v) + G^T kappa = 0, gdot(q, v1) = 0. Least norm where rows are redundant. Complex or real.

    keep: indices of velocities that do not change; the equations of these are left out.
    """
    q, v = numbers(q, v)
    m = number_of_rows(parts)
    used = np.arange(m) if only is None else np.asarray(only)
    G, rate = jacobian(model, parts, q, t, x)[used], gdot(model, parts, q, v, t, x)[used]
    moves = np.setdiff1d(np.arange(model.nv), keep)
    G = G[:, moves]
    Y = solve(mass_matrix(model, q)[np.ix_(moves, moves)], G.T)
    D = G @ Y
    found = pseudo_inverse(D) @ rate if np.linalg.matrix_rank(D.real, tol=1e-9) < len(used) else solve(D, rate)
    v1 = v.astype(np.result_type(v, found))
    v1[moves] = v[moves] - Y @ found
    kappa = np.zeros(m, found.dtype)
    kappa[used] = found
    return v1, kappa


# Implicit steps


def stage(model, parts, q0, v0, t1, c, others=(), u=0.0, *, forces=(), only=None, x=None, guess=None):
    """One implicit stage and the projection of its velocity: q1, v1, multipliers, xi1.

    others: (z, chart coordinates at q0, velocity) of each other node; c: 1 / (h A_kk). only: the rows used, of which
    the others get no multiplier.
    """
    n, m = model.nv, number_of_rows(parts)
    used = np.arange(m) if only is None else np.asarray(only)
    twists = at_velocity_level(parts)[used]
    share = 1 - sum(z for z, _, _ in others)
    back = sum((z * y for z, y, _ in others), np.zeros(n))
    before = share * v0 + sum((z * w for z, _, w in others), np.zeros(n))

    def motion(xi):
        v = np.einsum("...ij,...j->...i", chart_jacobian(model, xi), c * (xi - back))
        return retract(model, q0, xi), v, c * (v - before)

    def residual(z):
        xi, scaled = z[..., :n], z[..., n:]  # multipliers / c^2
        q, v, a = motion(xi)
        values = rows(model, parts, q, v, t=t1, x=x)
        kept = np.where(twists, values[1][..., used] / c, values[0][..., used])
        G = jacobian(model, parts, q, t1, x)[..., used, :]
        r = (inverse_dynamics(model, q, v, a, forces, t1) - u) / c**2 - np.einsum("...ij,...i->...j", G, scaled)
        return np.concatenate([r, kept], axis=-1)

    start = np.real(back + v0 / c) if guess is None else guess
    z = newton(residual, np.concatenate([start, np.zeros(len(used))]))
    q1, v, _ = motion(z[:n])
    v1, kappa = project_velocity(model, parts, q1, v, t1, x=x, only=only)
    multipliers = np.zeros(m, complex)
    multipliers[used] = c**2 * z[n:]
    return q1, v1, multipliers - c * kappa, z[:n]


def matrix_of_method(integrator):
    if isinstance(integrator, ts.BDF2):
        return STAGES[ts.SDIRK2]
    return STAGES.get(type(integrator)) or integrator.A


def implicit_step(model, parts, integrator, q0, v0, u=None, t=0.0, *, previous=None, forces=(), only=None, x=None):
    """q1, v1, multipliers of a step of BDF1, SDIRK2, another diagonally implicit method, or BDF2, whose first step,
    without `previous`, the state (q, v) before, is one of SDIRK2. Complex or real."""
    inputs = [q0, v0, *([] if u is None else [u]), *([] if x is None else [x]), *(previous or ())]
    u = np.zeros(model.nv) if u is None else u
    h, options = integrator.h, {"forces": forces, "only": only, "x": x}
    if isinstance(integrator, ts.BDF2) and previous is not None:
        other = (-1 / 3, chart(model, q0, previous[0]), np.asarray(previous[1]))
        found = stage(model, parts, q0, v0, t + h, 1.5 / h, [other], u, guess=np.real(h * v0), **options)
    else:
        A, nodes = matrix_of_method(integrator), []
        for k, row in enumerate(A):
            z = np.linalg.solve(np.array([[*r, *([0.0] * (k - len(r)))] for r in A[:k]]).T, row[:k]) if k else []
            others = [(w, xi, v) for w, (xi, v) in zip(z, nodes, strict=True)]
            end = sum(row)
            found = stage(
                model, parts, q0, v0, t + end * h, 1 / (h * row[-1]), others, u, guess=np.real(end * h * v0), **options
            )
            nodes.append((found[3], found[1]))
    return tuple(plain(y, *inputs) for y in found[:3])


def euler_step(model, parts, h, q0, v0, u=None, t=0.0, *, beta=None, forces=(), linearised=False, only=None, x=None):
    """q1, v1, multipliers of symplectic Euler at velocity level: M (v1 - v0) + h ID(q0, v0, 0) = h u + G^T h
    multipliers and G v1 + g_t + beta g = 0, all at (q0, t), q1 = retract(q0, h v1). beta = 1 / h by default.

    linearised: M - h D - h^2 K in place of M, and h^2 K v0 on the right. Complex or real.
    """
    inputs = [q0, v0, *([] if u is None else [u]), *([] if x is None else [x])]
    q, v, u = numbers(q0, v0, np.zeros(model.nv) if u is None else u)
    m = number_of_rows(parts)
    used = np.arange(m) if only is None else np.asarray(only)
    beta = 1 / h if beta is None else beta
    f = u - inverse_dynamics(model, q, v, 0 * v, forces, t)
    M = mass_matrix(model, q)
    right = h * f
    if linearised and forces:
        with complex_inputs():
            d = ts.generalized_forces_derivatives(model, forces, q, v, t=t)
        M, right = M - h * d.dtau_dv - h**2 * d.dtau_dq, right + h**2 * d.dtau_dq @ v
    values = rows(model, parts, q, v, t=t, x=x)
    G = jacobian(model, parts, q, t, x)[used]
    A = np.block([[M, -G.T], [G, np.zeros((len(used), len(used)))]])
    z = solve(A, np.concatenate([right, -(values[1] + beta * values[0])[used]]))
    v1 = v + z[: model.nv]
    multipliers = np.zeros(m, z.dtype)
    multipliers[used] = z[model.nv :] / h
    return tuple(plain(y, *inputs) for y in (retract(model, q, h * v1), v1, multipliers))


# Variational steps


def lobatto(n):
    """Nodes and weights on [0, 1]."""
    P = np.polynomial.Legendre.basis(n - 1)
    nodes = np.concatenate([[-1.0], np.sort(P.deriv().roots().real) if n > 2 else [], [1.0]])
    return (nodes + 1) / 2, 1 / (n * (n - 1) * P(nodes) ** 2)


def variational_step(model, parts, integrator, q0, p0, u=None, t=0.0, *, forces=(), only=None, x=None):
    """q1, p1, multipliers (order / 2 + 1, m) at the control points. Constraints hold at the control points, with the
    weights of the Lobatto quadrature whose nodes these are. Complex or real."""
    if at_velocity_level(parts).any():
        raise ValueError("rows on twists have no discrete action")
    inputs = [q0, p0, *([] if u is None else [u]), *([] if x is None else [x])]
    n, m, h, s = model.nv, number_of_rows(parts), integrator.h, integrator.order // 2
    used = np.arange(m) if only is None else np.asarray(only)
    k = len(used)
    nodes, weights = lobatto(s + 1)
    p0 = np.asarray(p0)
    G0 = jacobian(model, parts, q0, t, x)[used]

    def momenta(xi):
        """The points (..., s + 1, nq) and what discrete_euler_lagrange says of them, (..., s + 1, nv)."""
        points = retract(model, q0, xi.reshape(*xi.shape[:-1], s, n))
        first = np.broadcast_to(q0, (*points.shape[:-2], 1, model.nq))
        points = np.concatenate([first, points], axis=-2)
        with complex_inputs():
            torques = None if u is None else np.broadcast_to(numbers(points, u)[1], (*xi.shape[:-1], n))
            d = variational.discrete_euler_lagrange(model, integrator, points, torques, forces=forces, t=t)
        return points, np.concatenate([d.p0[..., None, :], d.residual, d.p1[..., None, :]], axis=-2)

    def residual(z):
        xi, scaled = z[..., : s * n], z[..., s * n :].reshape(*z.shape[:-1], s, k)  # h weight multipliers
        points, D = momenta(xi)
        out = [D[..., 0, :] - p0 - np.einsum("ij,...i->...j", G0, scaled[..., 0, :])]
        for i in range(1, s):
            G = jacobian(model, parts, points[..., i, :], t + nodes[i] * h, x)[..., used, :]
            out.append(D[..., i, :] + np.einsum("...ij,...i->...j", G, scaled[..., i, :]))
        out = [y / h for y in out]
        out += [g(model, parts, points[..., i, :], t + nodes[i] * h, x)[..., used] / h for i in range(1, s + 1)]
        return np.concatenate(out, axis=-1)

    v0 = np.linalg.solve(ts.mass_matrix(model, np.real(q0)), p0.real)
    z = newton(residual, np.concatenate([*(c * h * v0 for c in nodes[1:]), np.zeros(s * k)]))
    points, D = momenta(z[: s * n])
    q1, p = points[-1], D[-1]
    M, G = mass_matrix(model, q1), jacobian(model, parts, q1, t + h, x)[used]
    v = solve(M, p)
    last = -solve(G @ solve(M, G.T), gdot(model, parts, q1, v, t + h, x)[used])
    multipliers = np.zeros((s + 1, m), complex)
    scaled = np.concatenate([z[s * n :].reshape(s, k), last[None]])
    multipliers[:, used] = scaled / (h * weights[:, None])
    return tuple(plain(y, *inputs) for y in (q1, p + G.T @ last, multipliers))


# Trajectories


def rollout(model, parts, integrator, q, v, steps, u=None, t=0.0, *, x=None, forces=(), only=None):
    """q (steps + 1, nq) and v (steps + 1, nv), from a start that satisfies the constraints. Complex or real.

    u: torques (steps, nv). A variational integrator has v = M^-1 p between steps, as trajectories have.
    """
    qs, vs = [q], [v]
    for k in range(steps):
        now, torques = t + k * integrator.h, None if u is None else u[k]
        options = {"x": x, "forces": forces, "only": only}
        if isinstance(integrator, ts.Variational):
            p = mass_matrix(model, qs[-1]) @ vs[-1]
            q, p, _ = variational_step(model, parts, integrator, qs[-1], p, torques, now, **options)
            v = solve(mass_matrix(model, q), p)
        elif isinstance(integrator, (ts.SymplecticEuler, ts.LinearlyImplicitEuler)):
            options |= {"beta": integrator.baumgarte, "linearised": isinstance(integrator, ts.LinearlyImplicitEuler)}
            q, v, _ = euler_step(model, parts, integrator.h, qs[-1], vs[-1], torques, now, **options)
        else:
            options["previous"] = (qs[-2], vs[-2]) if k and isinstance(integrator, ts.BDF2) else None
            q, v, _ = implicit_step(model, parts, integrator, qs[-1], vs[-1], torques, now, **options)
        qs.append(q)
        vs.append(v)
    return np.stack(qs), np.stack(vs)


# Second derivatives, for functions that are analytic for any complex arguments


def second(f, h=3e-3):
    """f''(0) from Im(f(x) + f(-x)) / h^2 = f'' - h^4 f^(6) / 360 + ..., x = h exp(i pi/4), extrapolated to h = 0."""
    turn = np.exp(0.25j * np.pi)
    wide, narrow = (np.imag(f(turn * y) + f(-turn * y)) / y**2 for y in (h, h / 2))
    return (16 * narrow - wide) / 15


def mixed(f):
    """d2f/dx dy at 0 of f(x, y)."""
    return (second(lambda e: f(e, e)) - second(lambda e: f(e, -e))) / 4


def forward_dynamics_hessians(model, parts, q, v, tau, weights, t=0.0, **options):
    """The second derivatives of w_a . a + w_l . multipliers, weights = (w_a, w_l), by pairs of q, v, tau: a dict of
    (nv, nv) with the keys "qq", "qv", "qtau", "vv". Row j, column k is the derivative along the second direction k of
    that along j. Rows of full rank. To 1e-10 or so."""
    n = model.nv
    w = np.concatenate(weights)

    def value(dq, more, dv, dtau):
        at = moved(model, moved(model, q, dq), more)
        return w @ np.concatenate(forward_dynamics(model, parts, at, v + dv, tau + dtau, t, **options))

    E, none = np.eye(n), np.zeros(n)
    forms = {
        "qq": lambda j, k: lambda x, y: value(y * E[k], x * E[j], none, none),
        "qv": lambda j, k: lambda x, y: value(x * E[j], none, y * E[k], none),
        "qtau": lambda j, k: lambda x, y: value(x * E[j], none, none, y * E[k]),
        "vv": lambda j, k: lambda x, y: value(none, none, x * E[j] + y * E[k], none),
    }
    return {name: np.array([[mixed(form(j, k)) for k in range(n)] for j in range(n)]) for name, form in forms.items()}


# User-defined rows: functions that are analytic in q, t and p, differentiated by Cauchy's integrals


CIRCLE = 0.1 * np.exp(2j * np.pi * np.arange(16) / 16)


def taylor(f, k):
    """The coefficients of f(e) up to e^k, by Cauchy's integrals over a circle about 0."""
    values = np.stack([f(e) for e in CIRCLE])
    return [np.tensordot(CIRCLE ** (-float(i)), values, 1) / len(CIRCLE) for i in range(k + 1)]


def custom_rows(model, value, q, v, a, t, p):
    """g, gdot, gamma (rows,) of g = value(q, t, p) along a motion, of any complex arguments."""

    def along_motion(e):
        return np.asarray(value(moved(model, q, e * v + e * e / 2 * a), t + e, p))

    g, gdot, half = taylor(along_motion, 2)
    return np.stack([g, gdot, 2 * half])


def read_custom(model, value, p, motion, t, x):
    """g, gdot, gamma, each (..., rows), of user-defined rows. Imaginary parts far below rounding are taken as
    directions, and carried to first order."""
    inputs = np.broadcast_arrays(*(y[..., :1] for y in (motion.q, x))) if x.shape[-1] else [motion.q[..., :1]]
    batch, out = inputs[0].shape[:-1], []
    for i in np.ndindex(batch):
        z = [motion.q[i], motion.v[i], motion.a[i], np.asarray(p) + x[i]]
        size = max(np.abs(np.imag(y)).max(initial=0.0) for y in z)
        if size == 0.0 or size > 1e-20:
            found = custom_rows(model, value, *z[:3], t, z[3])
            out.append(found.real if size == 0.0 else found)
            continue

        def moves(e, z=z, size=size):
            at = [y.real + e * y.imag / size for y in z]
            return custom_rows(model, value, *at[:3], t, at[3])

        found, slope = taylor(moves, 1)
        out.append(found.real + 1j * size * slope.real)
    found = np.stack(out).reshape(*batch, 3, -1)
    return [found[..., k, :] for k in range(3)]
