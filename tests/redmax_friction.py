"""Sueda's bilateral staggered projections (2021, Alg. 8) in maximal coordinates, and joint limits, as his published
code has them: an oracle for scenes 6, 27 and 29.

`as_coded` keeps three errors (docs/derivations/hard_contact.md): reactions lack M_m Jdot v0, quadratic velocities are
counted twice in the last projection, and upper limits are stabilised outwards.
"""

import numpy as np
from reference import load

import torsor as ts
from torsor import _core, spatial


def pose(rows):
    return ts.SE3.from_matrix(np.array(rows, dtype=float))


def least(H, f, A, b):
    """The x with the least x.H x / 2 + f.x where A x >= b."""
    status, x, _ = _core.solve_program(H.ravel(), f, np.ascontiguousarray(A).ravel(), b, 0, 10_000)
    assert status == _core.ProgramStatus.solved
    return np.array(x)


def least_in_box(H, f, limits):
    """The same within limits, H being positive semidefinite: proximal steps, the last of which changes nothing."""
    x, n = np.zeros(len(f)), len(f)
    box, r = np.vstack([np.eye(n), -np.eye(n)]), 1e-6 * np.trace(H)
    for _ in range(200):
        before, x = x, least(H + r * np.eye(n), f - r * x, box, -np.tile(limits, 2))
        if np.abs(x - before).max() < 1e-9 * np.abs(limits).max():
            return x
    raise AssertionError


class Scene:
    def __init__(self, name):
        data = self.data = load(f"redmax/fwd_scene{name}_euler")
        bodies = {b["name"]: b for b in data["bodies"]}
        kinds = {"JointRevolute": ts.Revolute, "JointPrismatic": ts.Prismatic}
        builder = ts.ModelBuilder(gravity=data["grav"])
        parents, order = {j["name"]: j["body"] for j in data["joints"]}, []
        self.joints = data["joints"]
        for j in self.joints:
            I = bodies[j["body"]]["I_i"]
            inertia = ts.Inertia(I[3], np.zeros(3), np.diag(I[:3])).transformed(pose(bodies[j["body"]]["E_ji"]))
            parent = parents[j["parent"]] if j["parent"] else "world"
            builder.add_body(j["body"], parent, kinds[j["class"]](j["axis"]), pose(j["E_pj0"]), inertia)
            order.extend(np.atleast_1d(j["idxR"]).astype(int) - 1)
        self.model, self.order = builder.build(), np.array(order)
        names = [b.name for b in self.model.bodies]
        self.parent = [-1 if not j["parent"] else names.index(parents[j["parent"]]) for j in self.joints]
        self.inertia = [b.inertia.matrix for b in self.model.bodies]
        y, n = np.array(data["y0"], dtype=float), self.model.nv
        self.q, self.v, self.h = y[:n][self.order], y[n:][self.order], data["hEuler"]
        self.rows = np.array(data["traj_step_index_0based"])
        recorded = np.array(data["traj_y"])
        self.recorded_q, self.recorded_v = recorded[:, :n][:, self.order], recorded[:, n:][:, self.order]

    def run(self, step):
        """q and v of all steps."""
        q, v = [self.q], [self.v]
        for _ in range(int(self.rows[-1])):
            v.append(step(q[-1], v[-1]))
            q.append(q[-1] + self.h * v[-1])
        return np.array(q), np.array(v)

    def free(self, q, v):
        """M and M v + h f, the momenta without rows."""
        M = ts.mass_matrix(self.model, q)
        return M, M @ v - self.h * ts.bias_forces(self.model, q, v)

    # ---- limits, (2.112) at the level of velocities

    def limit_step(self, as_coded):
        (limit,) = self.data["constraints"]
        (at,) = (k for k, j in enumerate(self.joints) if j["name"] == limit["joint"])
        rate, lower, upper = self.data["baumgarte"][2], limit["ql"], limit["qu"]

        def step(q, v):
            M, p = self.free(q, v)
            unit = np.eye(len(q))[at]
            if q[at] <= lower:
                return least(M, -p, unit[None], np.array([rate * (lower - q[at])]))
            if q[at] >= upper:
                beyond = q[at] - upper
                return least(M, -p, -unit[None], np.array([-rate * beyond if as_coded else rate * beyond]))
            return np.linalg.solve(M, p)

        return step

    # ---- friction

    def points(self, k):
        """Points of the bearing of a joint, in its frame: position, two normals to the inside, tangent."""
        joint = self.joints[k]
        axis = np.array(joint["axis"], dtype=float)
        if joint["class"] == "JointPrismatic":
            across = [e for e in np.eye(3) if not e @ axis]
            for corner in np.array(np.meshgrid(*[[-0.5, 0.5]] * 3)).reshape(3, -1).T:
                yield corner * joint["sides"], [-np.sign(corner @ e) * e for e in across], axis
            return
        assert list(axis) == [0.0, 0.0, 1.0]
        for angle in np.pi / 2 * np.arange(4):
            n, t = np.array([np.cos(angle), np.sin(angle), 0.0]), np.array([-np.sin(angle), np.cos(angle), 0.0])
            for end in (-0.5, 0.5):
                yield joint["radius"] * n + end * joint["height"] * axis, [-n, -np.sign(end) * axis], t

    def wide_row(self, poses, k, p, d):
        """The velocity of a point of body k along d, relative to its parent, as a row over the twists of all bodies."""
        row, parent = np.zeros((len(poses), 6)), self.parent[k]
        row[k] = [*np.cross(p, d), *d]
        if parent >= 0:
            X = np.linalg.inv(poses[parent]) @ poses[k]
            d, p = X[:3, :3] @ d, X[:3] @ [*p, 1.0]
            row[parent] = [*-np.cross(p, d), *-d]
        return row.ravel()

    def friction_step(self, as_coded, converged=1e-3, load=None):
        """`converged`: of the squared norm of the reactions, relative. `load`: a function of (joint, wrench) that gives
        the load of its bearing, in place of the points of that."""
        model, h, (mu, _) = self.model, self.h, self.data["mu"]
        n = len(self.inertia)
        M = np.zeros((6 * n, 6 * n))
        for k, I in enumerate(self.inertia):
            M[6 * k : 6 * k + 6, 6 * k : 6 * k + 6] = I
        W = np.linalg.inv(M)
        kept = [np.zeros(6 * n)]  # friction of the step before

        def step(q, v):
            poses = ts.body_poses(model, q)
            poses = [np.vstack([p[:3], [0, 0, 0, 1]]) for p in poses]
            J, Jdot_v = ts.maximal_jacobian(model, q), ts.maximal_jacobian_dot(model, q, v) @ v
            f = np.zeros((n, 6))
            for k, I in enumerate(self.inertia):
                V, g = (J @ v).reshape(n, 6)[k], poses[k][:3, :3].T @ self.data["grav"]
                f[k] = spatial.ad(V).T @ (I @ V) + I @ [0, 0, 0, *g]
            wide, (Mr, narrow) = M @ (J @ v) + h * f.ravel(), self.free(q, v)
            N = [[self.wide_row(poses, k, p, d) for p, normals, _ in self.points(k) for d in normals] for k in range(n)]
            T = [[self.wide_row(poses, k, p, t) for p, _, t in self.points(k)] for k in range(n)]
            N, T = [np.array(rows) for rows in N], np.vstack(T)
            friction, last = kept[0], np.zeros(6 * n)
            for iteration in range(self.data["SPiterMax"]):
                v1 = np.linalg.solve(Mr, narrow + h * J.T @ friction)
                reaction = M @ (J @ v1 - W @ (wide + h * friction)) / h
                change = reaction - last
                limits = self.limits(poses, N, W, reaction + (0.0 if as_coded else M @ Jdot_v), mu, load)
                done = change @ W @ change < converged * (reaction @ W @ reaction)
                if done or iteration + 1 == self.data["SPiterMax"]:
                    break
                last = reaction
                on = limits > mu * self.data["SPathresh"]
                beta = least_in_box(T[on] @ W @ T[on].T, -T[on] @ (W @ (wide + h * reaction)), limits[on])
                friction = -T[on].T @ beta / h
            kept[0] = friction
            counted_twice = reaction if as_coded else 0.0
            return np.linalg.solve(Mr, narrow + h * J.T @ (friction + counted_twice))

        return step

    def limits(self, poses, N, W, reaction, mu, load):
        """Limits of the friction of all points, from reactions that are passed from tips to roots."""
        n, h = len(self.inertia), self.h
        on_body = reaction.reshape(n, 6).copy()
        out = [None] * n
        for k in reversed(range(n)):
            parent, passed = self.parent[k], np.zeros((n, 6))
            passed[k] = on_body[k]
            if parent >= 0:
                moved = spatial.Ad(np.linalg.inv(poses[k]) @ poses[parent]).T @ on_body[k]
                on_body[parent] += moved
                passed[parent] = -moved
            if load is not None:
                out[k] = np.full(len(N[k]) // 2, mu * h * load(self.joints[k], on_body[k]) / (len(N[k]) // 2))
                continue
            D = N[k] @ W @ N[k].T + self.data["SPreg"] * np.eye(len(N[k]))
            alpha = np.linalg.solve(D, h * N[k] @ (W @ passed.ravel()))
            out[k] = mu * np.abs(alpha).reshape(-1, 2).sum(axis=1)
        return np.concatenate(out)
