"""Dynamics and forces written by hand in NumPy, to compare simulations with: nothing here calls the library.

Maximal coordinates taken to reduced ones (Sueda 2021, (2.19)): twists J(q) v of the bodies in their own frames, their
rate by a complex step, and forces at points in the world as the paper's section 1.9 has them.
"""

from itertools import pairwise

import numpy as np

STEP = 1e-30


def hat(a):
    return np.array([[0 * a[0], -a[2], a[1]], [a[2], 0 * a[0], -a[0]], [-a[1], a[0], 0 * a[0]]])


def rotation(axis, angle):
    """Rodrigues' formula, for complex angles too."""
    K = hat(np.asarray(axis, dtype=float))
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


def of_quaternion(x):
    x = x / np.sqrt((x * x).sum())
    v, w = x[:3], x[3]
    return np.eye(3) + 2 * w * hat(v) + 2 * hat(v) @ hat(v)


def pose(R=None, p=None):
    out = np.eye(4, dtype=complex)
    out[:3, :3] = np.eye(3) if R is None else R
    out[:3, 3] = 0 if p is None else p
    return out


def adjoint_of_inverse(T):
    """Takes twists seen from the frame before T to those seen from after it."""
    R, p = T[:3, :3], T[:3, 3]
    return np.block([[R.T, np.zeros((3, 3))], [-R.T @ hat(p), R.T]])


class Tree:
    """Bodies as (parent, placement (4, 4), factors, mass, centre of mass, inertia about it), parents first.

    A factor is ("turn", axis), ("slide", axis), ("ball",) with a quaternion xyzw, or ("free",) with a position before
    that.
    """

    def __init__(self, gravity):
        self.gravity, self.bodies, self.index = np.asarray(gravity, dtype=float), [], {"world": -1}
        self.nq = self.nv = 0

    def add(self, name, parent, placement, factors, mass, com, I_com):
        com = np.asarray(com, dtype=float)
        I = np.zeros((6, 6))
        I[:3, :3] = I_com - mass * hat(com) @ hat(com)
        I[:3, 3:], I[3:, :3], I[3:, 3:] = mass * hat(com), -mass * hat(com), mass * np.eye(3)
        self.index[name] = len(self.bodies)
        self.bodies.append((self.index[parent], placement, factors, mass, com, I))
        for kind, *_ in factors:
            self.nq += {"turn": 1, "slide": 1, "ball": 4, "free": 7}[kind]
            self.nv += {"turn": 1, "slide": 1, "ball": 3, "free": 6}[kind]

    def rates(self, q, v):
        """dq/dt."""
        out, i, j = [], 0, 0
        for _, _, factors, *_ in self.bodies:
            for kind, *_ in factors:
                if kind in ("turn", "slide"):
                    out.append(v[j : j + 1])
                    i, j = i + 1, j + 1
                    continue
                if kind == "free":
                    out.append(of_quaternion(q[i + 3 : i + 7]) @ v[j + 3 : j + 6])
                    i += 3
                x, w = q[i : i + 4], v[j : j + 3]
                out.append(0.5 * np.append(x[3] * w + np.cross(x[:3], w), -x[:3] @ w))
                i, j = i + 4, j + (6 if kind == "free" else 3)
        return np.concatenate(out)

    def kinematics(self, q):
        """Poses (4, 4) and Jacobians (6, nv) of all bodies."""
        q = np.asarray(q)
        poses, Js, i, j = [], [], 0, 0
        for parent, placement, factors, *_ in self.bodies:
            E = np.eye(4, dtype=complex) if parent < 0 else poses[parent]
            J = np.zeros((6, self.nv), dtype=complex) if parent < 0 else Js[parent]
            E, J = E @ placement, adjoint_of_inverse(placement) @ J
            for kind, *axis in factors:
                S = np.zeros((6, 6))[:, : {"turn": 1, "slide": 1, "ball": 3, "free": 6}[kind]]
                if kind == "turn":
                    a = np.asarray(axis[0], dtype=float) / np.linalg.norm(axis[0])
                    T, S[:3, 0] = pose(rotation(a, q[i])), a
                    i += 1
                elif kind == "slide":
                    a = np.asarray(axis[0], dtype=float) / np.linalg.norm(axis[0])
                    T, S[3:, 0] = pose(p=a * q[i]), a
                    i += 1
                else:
                    p = None
                    if kind == "free":
                        p, i = q[i : i + 3], i + 3
                    T = pose(of_quaternion(q[i : i + 4]), p)
                    S[: S.shape[1]] = np.eye(S.shape[1])
                    i += 4
                E, J = E @ T, adjoint_of_inverse(T) @ J
                J[:, j : j + S.shape[1]] += S
                j += S.shape[1]
            poses.append(E)
            Js.append(J)
        return poses, Js


class State:
    """What forces see: poses, Jacobians and twists at q, v."""

    def __init__(self, tree, q, v):
        self.tree, self.q, self.v = tree, q, v
        self.poses, self.J = ([x.real for x in y] for y in tree.kinematics(q))
        self.V = [J @ v for J in self.J]

    def point(self, body, local):
        """Place, velocity and Jacobian (3, nv) of a point in the world."""
        local = np.asarray(local, dtype=float)
        if body == "world":
            return local, np.zeros(3), np.zeros((3, self.tree.nv))
        k = self.tree.index[body]
        R = self.poses[k][:3, :3]
        J = R @ np.hstack([-hat(local), np.eye(3)]) @ self.J[k]
        return R @ local + self.poses[k][:3, 3], J @ self.v, J


def mass_and_bias(tree, q, v):
    """M and the torques without acceleration, gravity included."""
    s = State(tree, q, v)
    moved = tree.kinematics(q + 1j * STEP * tree.rates(q, v))[1]
    M, bias = np.zeros((tree.nv, tree.nv)), np.zeros(tree.nv)
    for k, (_, _, _, mass, com, I) in enumerate(tree.bodies):
        J, V = s.J[k], s.V[k]
        ad = np.block([[hat(V[:3]), np.zeros((3, 3))], [hat(V[3:]), hat(V[:3])]])
        M += J.T @ I @ J
        bias += J.T @ (I @ (moved[k].imag / STEP @ v) - ad.T @ I @ V)
        weight = mass * s.poses[k][:3, :3].T @ tree.gravity
        bias -= J.T @ np.concatenate([np.cross(com, weight), weight])
    return M, bias, s


def torques(s, forces, t):
    return sum((f(s, t) for f in forces), np.zeros(s.tree.nv))


def acceleration(tree, forces, q, v, t, u=0.0):
    M, bias, s = mass_and_bias(tree, q, v)
    return np.linalg.solve(M, torques(s, forces, t) + u - bias)


def energy(tree, q, v):
    """Kinetic energy and that of gravity."""
    s = State(tree, q, v)
    kinetic = sum(0.5 * V @ body[5] @ V for V, body in zip(s.V, tree.bodies, strict=True))
    potential = -sum(
        body[3] * tree.gravity @ (E[:3, :3] @ body[4] + E[:3, 3]) for E, body in zip(s.poses, tree.bodies, strict=True)
    )
    return kinetic, potential


# ---- forces, each f(state, t) -> torques


def point_force(body, local, f):
    return lambda s, t: s.point(body, local)[2].T @ f(t)


def body_wrench(body, f):
    return lambda s, t: s.J[s.tree.index[body]].T @ f(t)


def body_damping(body, c):
    def force(s, t):
        k = s.tree.index[body]
        return -s.J[k].T @ (c * s.V[k])

    return force


def point_spring(b1, x1, b2, x2, k, d):
    """Sueda 2021, 1.9.5."""

    def force(s, t):
        (p, u, J), (r, w, L) = s.point(b1, x1), s.point(b2, x2)
        f = k * (r - p) + d * (w - u)
        return J.T @ f - L.T @ f

    return force


def path_spring(bodies, points, law):
    """A tension law(l, dl/dt) along a path, Sueda 2021, 1.9.7-1.9.10."""

    def force(s, t):
        at = [s.point(b, x) for b, x in zip(bodies, points, strict=True)]
        l = ldot = 0.0
        pull = np.zeros(s.tree.nv)
        for (p, u, J), (r, w, L) in pairwise(at):
            length = np.sqrt((r - p) @ (r - p))
            along = (r - p) / length
            l, ldot = l + length, ldot + along @ (w - u)
            pull += (J - L).T @ along
        return law(l, ldot) * pull

    return force


def strained(k, d, L):
    return lambda l, ldot: k * (l - L) / L + d * ldot / L


def taut(k, d, L):
    return lambda l, ldot: strained(k, d, L)(l, ldot) if l > L else 0.0


def ground(body, points, k, damping, kt, mu, at=(0, 0, 0), normal=(0, 0, 1)):
    """Sueda 2021, 1.9.6, signs corrected: d < 0 in the ground, -k d n, and friction against the slip."""
    n = np.asarray(normal, dtype=float) / np.linalg.norm(normal)

    def force(s, t):
        out = np.zeros(s.tree.nv)
        for local in points:
            x, u, J = s.point(body, local)
            d = n @ (x - at)
            if d >= 0:
                continue
            a = u - n * (n @ u)
            speed = np.sqrt(a @ a)
            f = -k * d * n - damping * (n @ u) * n
            if speed > 0:
                f -= min(kt * speed, mu * k * abs(d)) * a / speed
            out += J.T @ f
        return out

    return force


def joint_spring(k, rest, damping):
    """For coordinates whose rates are the velocities; k, rest and damping (nv,)."""
    return lambda s, t: -k * (s.q - rest) - damping * s.v


def joint_limits(k, damping, lower, upper, dissipation, onset):
    def press(x, out):
        p = np.where(x < onset, x**2 / (2 * onset), x - onset / 2)
        s = dissipation * out
        return k * p * np.where(s < 0.5, 1 - s, np.where(s < 1.5, (1.5 - s) ** 2 / 2, 0.0))

    def force(s, t):
        low, high = s.q < lower, s.q > upper
        damped = (low | high) * -damping * s.v
        return damped + low * press(lower - s.q, s.v) - high * press(s.q - upper, -s.v)

    return force


def dry_friction(limit, slip):
    def force(s, t):
        x = np.abs(s.v) / slip
        return -limit * np.where(x < 1, x * (2 - x), 1.0) * np.sign(s.v)

    return force


# ---- motions


def exact(tree, forces, q, v, T, u=None, rtol=1e-11):
    """q, v at time T, by SciPy with error control."""
    from scipy.integrate import solve_ivp

    def rate(t, y):
        q, v = y[: tree.nq], y[tree.nq :]
        a = acceleration(tree, forces, q, v, t, 0.0 if u is None else u(t))
        return np.concatenate([tree.rates(q, v), a])

    y = solve_ivp(rate, (0, T), np.concatenate([q, v]), method="DOP853", rtol=rtol, atol=rtol).y[:, -1]
    return y[: tree.nq], y[tree.nq :]


def implicit_steps(tree, forces, q, v, h, steps, method, u=None):
    """BDF1, BDF2 or SDIRK2 where rates are velocities, the equations solved by SciPy: rows of q and v.

    The integrators for the first-order system (q, v)' = (v, a(q, v)): Sueda 2021, 3.4.
    """
    from scipy.optimize import root

    alpha = 1 - np.sqrt(0.5)

    def solve(q_bar, v_bar, gamma, t, guess, control):
        """q1 = q_bar + gamma v1, v1 = v_bar + gamma a(q1, v1)."""

        def residual(v1):
            q1 = q_bar + gamma * v1
            M, bias, s = mass_and_bias(tree, q1, v1)
            return M @ (v1 - v_bar) - gamma * (torques(s, forces, t) + control - bias)

        found = root(residual, guess, method="hybr", options={"xtol": 1e-14})
        v1 = found.x
        for _ in range(2):  # what the solver left
            r = residual(v1)
            A = np.stack([(residual(v1 + d) - residual(v1 - d)) / 2e-6 for d in 1e-6 * np.eye(tree.nv)], axis=-1)
            v1 = v1 - np.linalg.solve(A, r)
        return q_bar + gamma * v1, v1

    qs, vs = [np.asarray(q, dtype=float)], [np.asarray(v, dtype=float)]
    for k in range(steps):
        q0, v0, t = qs[-1], vs[-1], k * h
        control = np.zeros(tree.nv) if u is None else u[k]
        if method == "BDF1":
            q1, v1 = solve(q0, v0, h, t + h, v0, control)
        elif method == "BDF2" and k > 0:
            bars = ((4 * now - before) / 3 for now, before in ((q0, qs[-2]), (v0, vs[-2])))
            q1, v1 = solve(*bars, 2 * h / 3, t + h, v0, control)
        else:  # Y_1 = y_0 + alpha h f_1, y_1 = y_0 + (1 - alpha) h f_1 + alpha h f_2
            _, va = solve(q0, v0, alpha * h, t + alpha * h, v0, control)
            a = (va - v0) / (alpha * h)
            q1, v1 = solve(q0 + (1 - alpha) * h * va, v0 + (1 - alpha) * h * a, alpha * h, t + h, va, control)
        qs.append(q1)
        vs.append(v1)
    return np.array(qs), np.array(vs)


def explicit_steps(tree, forces, q, v, h, steps, method, u):
    """SymplecticEuler or LinearlyImplicitEuler where rates are velocities: rows of q and v.

    Sueda 2021, (2.86): the forces at the end of the step, linearised, with K and D by central differences.
    """
    qs, vs = [np.asarray(q, dtype=float)], [np.asarray(v, dtype=float)]
    for k in range(steps):
        q0, v0, t = qs[-1], vs[-1], k * h
        M, bias, s = mass_and_bias(tree, q0, v0)
        f = torques(s, forces, t) + u[k] - bias
        K = D = np.zeros((tree.nv, tree.nv))
        if method == "LinearlyImplicitEuler":

            def tau(q, v, t=t):
                return torques(State(tree, q, v), forces, t)

            shifts = 1e-5 * np.eye(tree.nv)
            K = np.stack([(tau(q0 + d, v0) - tau(q0 - d, v0)) / 2e-5 for d in shifts], axis=-1)
            D = np.stack([(tau(q0, v0 + d) - tau(q0, v0 - d)) / 2e-5 for d in shifts], axis=-1)
        vs.append(np.linalg.solve(M - h * D - h**2 * K, (M - h * D) @ v0 + h * f))
        qs.append(q0 + h * vs[-1])
    return np.array(qs), np.array(vs)
