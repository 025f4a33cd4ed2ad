"""Dynamics from the poses of bodies alone, by Taylor arithmetic in NumPy.

Nothing here calls the library: it reads the descriptions of bodies and joints, and goes by what their docstrings say.

A model moves along a curve q(t) with velocity v and acceleration a at t = 0. Every pose is a truncated power series in
t, an array (orders, ..., 4, 4) of coefficients, multiplied out from the definitions of the joints. Velocities and
accelerations are its coefficients; columns of Jacobians, dT/dq_k, are those along the k-th direction. The law of motion
is d'Alembert's principle over mass points: with the moments of mass Sigma = int [x; 1] [x; 1]^T dm of a body,

    tau_k = sum over bodies of trace((d2T/dt2 - G) Sigma (dT/dq_k)^T),   G x = gravity.

No twist, no 6 x 6 inertia, no derivative of S, no recursion from the tips. All of it takes complex numbers, so complex
steps through it give its derivatives; and any batch shape.
"""

from itertools import pairwise

import numpy as np
from population import BarrelCam, Own

import torsor as ts

EPSILON = np.zeros((3, 3, 3))
EPSILON[[0, 1, 2], [1, 2, 0], [2, 0, 1]], EPSILON[[0, 2, 1], [2, 1, 0], [1, 0, 2]] = 1.0, -1.0
X, Y, Z = np.eye(3)


def hat(w):
    return -np.einsum("ijk,...k->...ij", EPSILON, w)


def vee(A):
    """The vector of a skew matrix."""
    return -np.einsum("ijk,...ij->...k", EPSILON, A) / 2


def inverse(T):
    """Of a pose."""
    out = np.zeros_like(T)
    out[..., :3, :3] = np.swapaxes(T[..., :3, :3], -1, -2)
    out[..., :3, 3] = -np.einsum("...ij,...j->...i", out[..., :3, :3], T[..., :3, 3])
    out[..., 3, 3] = 1.0
    return out


def vee6(A):
    """The twist, angular part first, of a matrix T^-1 dT or dT T^-1."""
    return np.concatenate([vee(A[..., :3, :3]), A[..., :3, 3]], axis=-1)


# Series


def times(a, b, product=np.matmul):
    """The product of two series, of matrices or, with np.multiply, of numbers."""
    return np.stack([sum(product(a[i], b[k - i]) for i in range(k + 1)) for k in range(len(a))])


def of_function(x, f, df, d2f):
    """The series of f(x), from the derivatives of f at x[0]."""
    return np.stack([f, df * x[1], *(df * x[2] + d2f * x[1] ** 2 / 2 for _ in x[2:])])


def constant(A, like):
    """The series of a matrix that does not move."""
    return np.stack([A + 0 * like[0][..., None, None], *(0 * A + 0 * x[..., None, None] for x in like[1:])])


def exponential(A):
    """exp of a series of matrices, by its power series, halving the argument before and squaring after."""
    halvings = max(0, int(np.ceil(np.log2(2 * np.abs(A[0]).sum(-1).max(initial=0.25)))))
    A = A / 2**halvings
    term = np.zeros_like(A)
    term[0] = np.eye(A.shape[-1])
    out = term.copy()
    for k in range(1, 20):  # 0.5^20 / 20! and its derivatives are below rounding
        term = times(term, A) / k
        out = out + term
    for _ in range(halvings):
        out = times(out, out)
    return out


# Motions that joints are made of: series of numbers (orders, ...) to series of poses


def turn(axis, angle):
    """Rodrigues' formula."""
    K = np.zeros((4, 4))
    K[:3, :3] = hat(np.asarray(axis) / np.linalg.norm(axis))
    c, s = np.cos(angle[0]), np.sin(angle[0])
    sine, versine = of_function(angle, s, c, -s), of_function(angle, 1 - c, s, c)
    return constant(np.eye(4), angle) + sine[..., None, None] * K + versine[..., None, None] * (K @ K)


def slide(direction, distance):
    K = np.zeros((4, 4))
    K[:3, 3] = np.asarray(direction) / np.linalg.norm(direction)
    return constant(np.eye(4), distance) + distance[..., None, None] * K


def chain(*parts):
    out = parts[0]
    for part in parts[1:]:
        out = times(out, part)
    return out


def quaternion(x):
    """The rotation (..., 3, 3) of a quaternion xyzw of any length."""
    x = x / np.sqrt((x * x).sum(-1))[..., None]
    W = hat(x[..., :3])
    return np.eye(3) + 2 * x[..., 3, None, None] * W + 2 * W @ W


def moving_frame(R, p, rates):
    """The pose R, p with the body twist rates[0] + rates[1] t: dR/dt = R hat(w), dp/dt = R v."""
    T = np.zeros((*np.broadcast_shapes(R.shape[:-2], *(x.shape[:-1] for x in rates)), 4, 4), np.result_type(R, *rates))
    T[..., :3, :3], T[..., :3, 3], T[..., 3, 3] = R, p, 1.0
    twists = [np.zeros(T.shape, T.dtype) for _ in rates]
    for A, x in zip(twists, rates, strict=True):
        A[..., :3, :3], A[..., :3, 3] = hat(x[..., :3]), x[..., 3:]
    first = T @ twists[0]
    return np.stack([T, first, *((first @ twists[0] + T @ A) / 2 for A in twists[1:])])


# Splines: uniform and cubic


BASIS = np.array([[1, -3, 3, -1], [4, 0, -6, 3], [1, 3, 3, -3], [0, 0, 0, 1]]) / 6  # coefficients of 1, u, u^2, u^3


def weights(x, count):
    """First of the four control values at x, of `count`, and the series of their weights."""
    first = np.clip(np.floor(x[0].real), 0, count - 4).astype(int)
    u = np.concatenate([x[:1] - first, x[1:]])
    powers = [constant(np.eye(1), u)[..., 0, 0], u]
    powers += [times(u, u, np.multiply)]
    powers += [times(powers[2], u, np.multiply)]
    return first, [sum(c * p for c, p in zip(row, powers, strict=True)) for row in BASIS]


def logarithm(T):
    """The matrix A with exp(A) = T, of a pose that turns by less than pi."""
    R = T[:3, :3]
    w = vee(R - R.T) / 2
    sine = np.sqrt(w @ w)
    angle = np.arctan2(sine, (np.trace(R) - 1) / 2)
    W = hat(w * (angle / sine if sine > 1e-9 else 1.0))
    V = np.eye(3) + W / 2 + W @ W / 6
    if angle > 1e-9:
        V = np.eye(3) + (1 - np.cos(angle)) / angle**2 * W + (angle - np.sin(angle)) / angle**3 * W @ W
    A = np.zeros((4, 4))
    A[:3, :3], A[:3, 3] = W, np.linalg.solve(V, T[:3, 3])
    return A


def along_curve(frames, x):
    """F_k exp(b_1 log(F_k^-1 F_k+1)) exp(b_2 log(F_k+1^-1 F_k+2)) exp(b_3 log(F_k+2^-1 F_k+3)), b_i the sum of the
    weights from the i-th on."""
    F = np.stack([np.block([[f.R, f.p[:, None]], [np.zeros(3), 1.0]]) for f in frames])
    steps = np.stack([logarithm(np.linalg.inv(a) @ b) for a, b in pairwise(F)])
    first, b = weights(x, len(F))
    parts = [exponential(sum(b[i:])[..., None, None] * steps[first + i - 1]) for i in (1, 2, 3)]
    return chain(constant(F[first], x), *parts)


def on_surface(values, x, y):
    """Translations along x, y, z, then rotations about x, y, z, each by its sum of products of weights."""
    values = np.array(values)
    (i, b), (j, c) = weights(x, values.shape[1]), weights(y, values.shape[2])
    f = [
        sum(times(b[m], c[n], np.multiply) * grid[i + m, j + n] for m in range(4) for n in range(4)) for grid in values
    ]
    return chain(
        *(slide(e, f[k]) for k, e in enumerate((X, Y, Z))), *(turn(e, f[3 + k]) for k, e in enumerate((X, Y, Z)))
    )


# Joints


def sizes(joint):
    """Numbers of coordinates and of velocities."""
    if isinstance(joint, ts.Composite):
        return tuple(map(sum, zip((0, 0), *map(sizes, joint.joints), strict=True)))
    if isinstance(joint, ts.CustomJoint):
        return joint.dofs, joint.dofs
    n = {ts.Fixed: 0, ts.Cylindrical: 2, ts.Planar: 2, ts.Universal: 2, ts.SplineSurface: 2, ts.Free: 6}
    n |= dict.fromkeys((ts.Translational, ts.Spherical, ts.SphericalEuler, ts.SphericalExp, ts.Free2D), 3)
    nv = n.get(type(joint), 1)
    return nv + isinstance(joint, (ts.Spherical, ts.Free)), nv


def split(joints, *rows):
    """What of q (..., nq) and of arrays (..., nv) belongs to each joint."""
    i = j = 0
    for joint in joints:
        nq, nv = sizes(joint)
        yield joint, rows[0][..., i : i + nq], *(x[..., j : j + nv] for x in rows[1:])
        i, j = i + nq, j + nv


def joint_pose(joint, q, rates):
    """The series of the child's pose in the joint's frame, from q and its rates v, or v and a."""
    match joint:
        case ts.Composite(joints=joints):
            return chain(*(joint_pose(j, x, y) for j, x, *y in split(joints, q, *rates)))
        case Own(inner=inner):
            return joint_pose(inner, q, rates)
        case ts.Spherical():
            return moving_frame(quaternion(q), 0.0, [np.concatenate([x, 0 * x], -1) for x in rates])
        case ts.Free():
            return moving_frame(quaternion(q[..., 3:]), q[..., :3], rates)
        case ts.Fixed():
            shape = np.broadcast_shapes(q.shape[:-1], *(x.shape[:-1] for x in rates))
            return constant(np.eye(4), np.zeros((1 + len(rates), *shape)))
    curve = np.broadcast_arrays(q, rates[0], *(x / 2 for x in rates[1:]))  # q + v t + a t^2 / 2
    x = np.moveaxis(np.stack(curve), -1, 0)
    match joint:
        case ts.Revolute(axis=axis):
            return turn(axis, x[0])
        case ts.Prismatic(axis=axis):
            return slide(axis, x[0])
        case ts.Screw(axis=axis, pitch=pitch):
            return chain(turn(axis, x[0]), slide(axis, pitch * x[0]))
        case ts.Cylindrical(axis=axis):
            return chain(turn(axis, x[0]), slide(axis, x[1]))
        case ts.Planar(directions=(first, second)):
            return chain(slide(first, x[0]), slide(second, x[1]))
        case ts.Translational():
            return chain(slide(X, x[0]), slide(Y, x[1]), slide(Z, x[2]))
        case ts.Universal(axes=(first, second)):
            return chain(turn(first, x[0]), turn(second, x[1]))
        case ts.SphericalEuler(chart=chart):
            return chain(*(turn({"X": X, "Y": Y, "Z": Z}[c], y) for c, y in zip(chart, x, strict=True)))
        case ts.SphericalExp():
            A = np.zeros((*x.shape[1:], 4, 4), x.dtype)
            A[..., :3, :3] = hat(np.moveaxis(x, 0, -1))
            return exponential(A)
        case ts.Free2D():
            return chain(slide(X, x[0]), slide(Y, x[1]), turn(Z, x[2]))
        case ts.SplineCurve(frames=frames):
            return along_curve(frames, x[0])
        case ts.SplineSurface(values=values):
            return on_surface(values, x[0], x[1])
        case BarrelCam():
            s, c = np.sin(x[0][0]), np.cos(x[0][0])
            return chain(turn(Z, x[0]), slide(Z, 0.4 * of_function(x[0], s, c, -s)))
    raise NotImplementedError(f"no definition of {joint!r}")


# Trees


class Oracle:
    """What the library says of a model, said again. Arguments as there; `bodies` in the order of `model.bodies`."""

    def __init__(self, model):
        self.bodies, self.joints = model.bodies, [b.joint for b in model.bodies]
        self.parents = [
            [b.name for b in model.bodies].index(b.parent) if b.parent != "world" else -1 for b in model.bodies
        ]
        self.nv = sum(sizes(j)[1] for j in self.joints)
        self.armature = np.concatenate([np.zeros(0)] + [np.array(b.armature) for b in model.bodies])
        self.G = np.zeros((4, 4))
        self.G[:3, 3] = model.gravity
        self.known = {}  # poses that were asked for before
        self.placements, self.Sigma, self.moves = [], [], []
        for b, p in zip(model.bodies, self.parents, strict=True):
            self.placements.append(np.block([[b.placement.R, b.placement.p[:, None]], [np.zeros(3), 1.0]]))
            m, c, I = b.inertia.mass, b.inertia.com, b.inertia.I_com
            x = np.append(c, 1.0)
            S = m * np.outer(x, x)
            S[:3, :3] += np.trace(I) / 2 * np.eye(3) - I  # second moments about the centre of mass
            self.Sigma.append(S)
            self.moves.append(sizes(b.joint)[1] > 0 or (p >= 0 and self.moves[p]))
        self.Sigma = np.array(self.Sigma)
        self.counted = self.Sigma * np.array(self.moves)[:, None, None]  # without bodies fixed to the world

    def poses(self, q, v, a=None):
        """T, dT/dt and, given a, d2T/dt2 of all bodies, each (..., nbodies, 4, 4)."""
        q, *rates = (np.asarray(x) for x in (q, v, a) if x is not None)
        key = tuple((x.shape, x.dtype, x.tobytes()) for x in (q, *rates))
        if key in self.known:
            return self.known[key]
        out = []
        for i, (joint, x, *y) in enumerate(split(self.joints, q, *rates)):
            T = np.matmul(self.placements[i], joint_pose(joint, x, y))
            out.append(T if self.parents[i] < 0 else times(out[self.parents[i]], T))
        T = np.stack(out, axis=-3)
        self.known[key] = (T[0], T[1]) if a is None else (T[0], T[1], 2 * T[2])
        return self.known[key]

    def columns(self, q):
        """T (..., 1, nbodies, 4, 4), and dT/dq_k (..., nv, nbodies, 4, 4)."""
        T, dT = self.poses(np.asarray(q)[..., None, :], np.eye(self.nv))
        return T[..., :1, :, :, :], dT

    def moved(self, q, dv):
        """q (+) dv to first order in dv, which is what a complex step needs."""
        out = []
        for joint, x, d in self._leaves(self.joints, np.asarray(q), np.asarray(dv)):
            if not isinstance(joint, (ts.Spherical, ts.Free)):
                out.append(x + d)
                continue
            if isinstance(joint, ts.Free):
                out.append(x[..., :3] + np.einsum("ij,...j->...i", quaternion(x[..., 3:]), d[..., 3:]))
            u, w, d = x[..., -4:-1], x[..., -1:], d[..., :3] / 2
            out += [u + w * d + np.cross(u, d), w - (u * d).sum(-1, keepdims=True)]
        shape = np.shape(dv)[:-1]
        return np.concatenate([np.broadcast_to(x, (*shape, x.shape[-1])) for x in out], axis=-1)

    def _leaves(self, joints, q, d):
        for joint, x, y in split(joints, q, d):
            if isinstance(joint, ts.Composite):
                yield from self._leaves(joint.joints, x, y)
            else:
                yield joint, x, y

    def twists(self, T, dT, frame):
        """(..., 6) of poses that change by dT."""
        if frame == "body":
            return vee6(inverse(T) @ dT)
        world = vee6(dT @ inverse(T))
        return world if frame == "world" else np.concatenate([world[..., :3], dT[..., :3, 3]], axis=-1)

    def velocities(self, q, v, frame="body"):
        return self.twists(*self.poses(q, v), frame)

    def accelerations(self, q, v, a, frame="body"):
        T, Tdot, Tddot = self.poses(q, v, a)
        if frame == "body":
            A = inverse(T) @ Tdot
            return vee6(inverse(T) @ Tddot - A @ A)
        A = Tdot @ inverse(T)
        world = vee6(Tddot @ inverse(T) - A @ A)
        return world if frame == "world" else np.concatenate([world[..., :3], Tddot[..., :3, 3]], axis=-1)

    def jacobian(self, q, body, frame="body"):
        T, dT = (x[..., body, :, :] for x in self.columns(q))
        return np.swapaxes(self.twists(T, dT, frame), -1, -2)

    def point_jacobian(self, q, body, point):
        return np.swapaxes((self.columns(q)[1][..., body, :3, :] @ np.append(point, 1.0)), -1, -2)

    def mass_matrix(self, q):
        dT = self.columns(q)[1]
        return np.einsum("...kbij,...lbij->...kl", dT @ self.Sigma, dT) + np.diag(self.armature)

    def inverse_dynamics(self, q, v, a, f_ext=None, frame="body"):
        T, dT = self.columns(q)
        balance = (self.poses(q, v, a)[2] - self.G) @ self.Sigma
        tau = np.einsum("...bij,...kbij->...k", balance, dT) + self.armature * a
        if f_ext is not None:
            tau = tau - np.einsum("...bi,...kbi->...k", f_ext, self.twists(T, dT, frame))
        return tau

    def forward_dynamics(self, q, v, tau, f_ext=None, frame="body"):
        bias = self.inverse_dynamics(q, v, np.zeros(self.nv), f_ext, frame)
        return np.linalg.solve(self.mass_matrix(q), (tau - bias)[..., None])[..., 0]

    def joint_reactions(self, q, v, a, f_ext):
        """Sums over subtrees of the forces on mass points, less external ones, taken to the bodies' frames."""
        T, _, Tddot = self.poses(q, v, a)
        D = (Tddot - self.G) @ self.Sigma @ np.swapaxes(T, -1, -2)  # int (acceleration) x^T dm
        moment, force = vee(D[..., :3, :3] - np.swapaxes(D[..., :3, :3], -1, -2)), D[..., :3, 3]
        R, p = T[..., :3, :3], T[..., :3, 3]
        pushed = np.einsum("...ij,...j->...i", R, f_ext[..., 3:])
        force = force - pushed
        moment = moment - np.einsum("...ij,...j->...i", R, f_ext[..., :3]) - np.cross(p, pushed)
        for i in reversed(range(len(self.bodies))):
            if self.parents[i] >= 0:
                force[..., self.parents[i], :] += force[..., i, :]
                moment[..., self.parents[i], :] += moment[..., i, :]
        parts = (moment - np.cross(p, force), force)
        return np.concatenate([np.einsum("...ji,...j->...i", R, x) for x in parts], axis=-1)

    def kinetic_energy(self, q, v):
        Tdot = self.poses(q, v)[1]
        return np.einsum("...bij,...bij->...", Tdot @ self.Sigma, Tdot) / 2 + (self.armature * v * v).sum(-1) / 2

    def potential_energy(self, q):
        T = self.poses(q, np.zeros(self.nv))[0]
        return -np.einsum("ij,...bij->...", self.G, T @ self.counted)

    def center_of_mass(self, q):
        T = self.poses(q, np.zeros(self.nv))[0]
        return (T @ self.counted)[..., :3, 3].sum(-2) / self.counted[:, 3, 3].sum()

    def momentum(self, q, v, about="com"):
        T, Tdot = self.poses(q, v)
        D = (Tdot @ self.counted @ np.swapaxes(T, -1, -2)).sum(-3)  # int (velocity) x^T dm
        angular, linear = vee(D[..., :3, :3] - np.swapaxes(D[..., :3, :3], -1, -2)), D[..., :3, 3]
        if about == "com":
            angular = angular - np.cross(self.center_of_mass(q), linear)
        return np.concatenate([angular, linear], axis=-1)
