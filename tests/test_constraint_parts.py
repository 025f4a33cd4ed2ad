"""Descriptions of constraints: their rows, evaluated in NumPy from what the core is given, parameters, and errors."""

import gc
import pickle
import re
import weakref
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from compare import close, differences

import torsor as ts
from torsor import testing
from torsor.constraints.constraint import compile_constraints, part_rows, part_size, require_constraints
from torsor.spatial import Ad, exp6, vee6
from torsor.testing import complex_step, random_inertia, random_pose

X, Y, Z = np.eye(3)


def tree(seed=0):
    """Two branches with joints of many mechanisms, a body welded to another and one to the world."""
    rng = np.random.default_rng(seed)
    builder = ts.ModelBuilder("tree", gravity=(1, 2, -9))
    for name, parent, joint in (
        ("base", "world", ts.Free()),
        ("arm", "base", ts.Revolute((1, 2, 3))),
        ("camera", "arm", ts.Fixed()),
        ("ball", "arm", ts.Spherical()),
        ("wrist", "ball", ts.SphericalExp()),
        ("slider", "base", ts.Composite(ts.Prismatic((0, 1, 0)), ts.Spherical(), ts.Universal())),
        ("hand", "slider", ts.SphericalEuler("ZYX")),
        ("post", "world", ts.Fixed()),
        ("other", "world", ts.Screw((1, 0, 1), 0.3)),
        ("table", "other", ts.Free2D()),
    ):
        builder.add_body(name, parent, joint, random_pose(rng), random_inertia(rng))
    return builder.build()


MODEL = tree()
EXAMPLES = testing.example_constraints(MODEL, 0)

# ---- parts, read as the core reads them


def matrix(twelve):
    """The pose of a marker."""
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = np.reshape(twelve[:9], (3, 3)), twelve[9:12]
    return T


def pair_rows(part, poses, t, moved=(0.0,) * 12, offsets=None):
    """Rows of a pair, its markers displaced by twists."""
    _, (a, at_a), (b, at_b), rows, motion = part
    A = matrix(at_a if motion is None else motion(t)[:12])
    A = (np.eye(4) if a < 0 else poses[a]) @ A @ exp6(np.array(moved[:6]))
    B = (np.eye(4) if b < 0 else poses[b]) @ matrix(at_b) @ exp6(np.array(moved[6:]))
    T = np.linalg.inv(A) @ B
    R, p = T[:3, :3], T[:3, 3]
    g = []
    for k, row in enumerate(rows):
        offset = row[-1] if offsets is None else offsets[k]
        if row[0] == "norm":
            g.append(np.linalg.norm(p) - offset)
        else:
            g.append(sum(c * np.array([ax, ay, az]) @ (R @ [bx, by, bz] + s * p)
                         for c, ax, ay, az, bx, by, bz, s in row[1]) - offset)  # fmt: skip
    return np.array(g)


def values(model, constraint, q, t=0.3, v=None):
    """g of a constraint from its parts; of rows of velocities their error at v."""
    g = []
    poses = ts.body_poses(model, q)
    for part in constraint._parts(model):
        if part[0] == "pair":
            g.append(pair_rows(part, poses, t))
        elif part[0] == "coupling":
            _, terms, offset, motion = part
            f = 0.0 if motion is None else motion(t)[0]
            g.append([sum(c * q[iq] for c, iq, _ in terms) - offset - f])
        elif part[0] == "twist":
            _, bodies, velocities, motion = part
            V = ts.body_velocities(model, q, v)
            rate = 0.0 if motion is None else motion(t)[0]
            g.append([sum(w @ V[i] for i, w in bodies) + sum(c * v[iv] for c, iv in velocities) - rate])
        else:
            _, bound, rows, _ = part
            g.append(bound._evaluate(q[None], 0 * v[None], 0 * v[None], t)[0, :rows])
    return np.concatenate(g)


def flat_gradient(model, constraint, q, w, t=0.3, v=None):
    """The gradient of w.g with respect to all that the parts have, as the core gives it."""
    out, at = [], 0
    poses = ts.body_poses(model, q)
    for part in constraint._parts(model):
        own = w[at : at + part_rows(part)]
        at += part_rows(part)
        if part[0] == "pair":
            start = np.concatenate([np.zeros(12), [row[-1] for row in part[3]]])
            out.append(differences(lambda x, p=part, o=own: o @ pair_rows(p, poses, t, x[:12], x[12:]), start))
        elif part[0] == "coupling":
            out.append(own[0] * np.array([*(q[iq] for _, iq, _ in part[1]), -1.0]))
        elif part[0] == "twist":
            V = ts.body_velocities(model, q, v)
            out.append(own[0] * np.concatenate([*(V[i] for i, _ in part[1]), [v[iv] for _, iv in part[2]]]))
        else:
            zero = np.zeros_like(own)[None]
            out.append(part[1]._parameter_gradient(q[None], v[None], v[None], t, own[None], zero, zero)[0])
        assert out[-1].size == part_size(part)
    return np.concatenate(out)


# ---- rows


def markers(model, a, b, q, at_a, at_b):
    """The pose of b's placement seen from a's."""
    poses = {"world": np.eye(4)} | dict(zip([x.name for x in model.bodies], ts.body_poses(model, q), strict=True))
    return np.linalg.inv(poses[a] @ at_a.matrix) @ poses[b] @ at_b.matrix


def orientation(R):
    return [(R[2, 1] - R[1, 2]) / 2, (R[0, 2] - R[2, 0]) / 2, (R[1, 0] - R[0, 1]) / 2]


def table(R, p):
    """Section 1 of the derivation, for joints along z and their usual axes."""
    axis = [-R[1, 2], R[0, 2]]
    return {
        ts.Fixed(): [*p, *orientation(R)],
        ts.Revolute(): [*p, *axis],
        ts.Prismatic(): [*p[:2], *axis, orientation(R)[2]],
        ts.Cylindrical(): [*p[:2], *axis],
        ts.Universal(): [*p, R[0, 1]],
        ts.Spherical(): p,
        ts.SphericalEuler("XYX"): p,
        ts.SphericalExp(): p,
        ts.Planar(): [p[2], *orientation(R)],
        ts.Free2D(): [p[2], *axis],
        ts.Translational(): orientation(R),
    }


@pytest.mark.parametrize(("a", "b"), [("world", "hand"), ("wrist", "table"), ("base", "world"), ("arm", "ball")])
def test_rows_are_those_of_the_table(a, b):
    rng = np.random.default_rng(1)
    q, at_a, at_b = MODEL.random(rng), random_pose(rng), random_pose(rng)
    T = markers(MODEL, a, b, q, at_a, at_b)
    for joint, expected in table(T[:3, :3], T[:3, 3]).items():
        loop = ts.Loop(a, b, joint, at_a, at_b)
        close(values(MODEL, loop, q), np.array(expected))
        assert len(loop.row_names(MODEL)) == len(expected) == 6 - joint.nv
    close(values(MODEL, ts.PointOnPlane(a, b, at_a, at_b.p, offset=0.3), q), T[2:3, 3] - 0.3)
    close(values(MODEL, ts.PointOnLine(a, b, at_a, at_b.p), q), T[:2, 3])
    length = np.linalg.norm(T[:3, 3])
    close(values(MODEL, ts.Distance(a, at_a.p, b, at_b.p, 1.3), q), np.array([length - 1.3]))
    if a == "world":
        weld = ts.PrescribedBody(b, at_a, at_b)
        close(values(MODEL, weld, q), np.array([*T[:3, 3], *orientation(T[:3, :3])]))


LOOPS = [c for c in EXAMPLES if isinstance(c, ts.Loop) and not callable(c.placement_a)] + [
    ts.Loop("arm", "hand", joint, random_pose(np.random.default_rng(3)), random_pose(np.random.default_rng(4)))
    for joint in (ts.Planar(((1, 0, 0), (1, 1, 0))), ts.Universal(((1, 2, 0), (0, 1, 3))), ts.Prismatic((-1, 0, 0)))
]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda c: type(c.joint).__name__)
def test_a_loop_leaves_what_its_joint_leaves(loop):
    """Where b is placed by the joint, at any of its coordinates, rows are zero, and their derivatives along a motion of
    b are zero for the motions of the joint alone."""
    rng = np.random.default_rng(5)
    ((kind, _, (_, at_b), rows, motion),) = loop._parts(MODEL)
    assert kind == "pair" and motion is None
    form, _, on_b = loop._sides()
    turn_a, turn_b = np.eye(4), np.eye(4)
    turn_a[:3, :3], turn_b[:3, :3] = form.on_a, form.on_b
    close(on_b.matrix @ turn_b, matrix(at_b))
    for _ in range(5):
        qj = loop.joint.random(rng)
        T = loop.joint.T(qj)

        def g(x, T=T, rows=rows):
            world = (-1, np.eye(4)[:3, [0, 1, 2]].ravel().tolist() + [0, 0, 0])
            B = T @ exp6(x) @ turn_b
            relative = np.linalg.inv(turn_a) @ B
            at = (-1, [*relative[:3, :3].ravel(), *relative[:3, 3]])
            return pair_rows(("pair", world, at, rows, None), [], 0.0)

        close(g(np.zeros(6)), np.zeros(len(rows)))
        G, S = differences(g, np.zeros(6)), loop.joint.S(qj)
        close(G @ S, np.zeros((len(rows), S.shape[1])), 1e-9)  # differences of fourth order
        assert np.linalg.matrix_rank(G, 1e-6) == len(rows) == 6 - np.linalg.matrix_rank(S, 1e-6)


@pytest.mark.parametrize("loop", LOOPS, ids=lambda c: type(c.joint).__name__)
def test_at_closes_a_loop(loop):
    rng = np.random.default_rng(6)
    q = MODEL.random(rng)
    assert np.abs(values(MODEL, loop, q)).max() > 1e-3
    closed = loop.at(MODEL, q)
    close(values(MODEL, closed, q), np.zeros(6 - loop.joint.nv), 1e-14, least=10.0)
    assert closed.placement_b == loop.placement_b
    assert not closed.flipped(MODEL, q)


def test_multipliers_of_a_weld_are_force_and_moment():
    """G of a closed weld along twists of b's marker is the identity, force rows first."""
    loop = ts.Loop("world", "hand", ts.Fixed()).at(MODEL, MODEL.neutral)
    (part,) = loop._parts(MODEL)
    poses = ts.body_poses(MODEL, MODEL.neutral)
    G = differences(lambda x: pair_rows(part, poses, 0.0, np.concatenate([np.zeros(6), x])), np.zeros(6))
    close(G, np.roll(np.eye(6), 3, axis=0), 1e-9)


def test_flipped_loops_are_told():
    q = MODEL.random(7)
    half = {axis: ts.SE3.rotation(axis, np.pi) for axis in ((1, 0, 0), (0, 1, 0), (0, 0, 1))}
    for joint, axes in {
        ts.Fixed(): (X, Y, Z),
        ts.Prismatic(): (X, Y, Z),
        ts.Planar(): (X, Y, Z),
        ts.Translational(): (X, Y, Z),
        ts.Revolute(): (X, Y),
        ts.Cylindrical(): (X, Y),
        ts.Free2D(): (X, Y),
        ts.Spherical(): (),
        ts.Universal(): (),
    }.items():
        loop = ts.Loop("arm", "table", joint).at(MODEL, q)
        for axis in (X, Y, Z):
            turned = loop.with_parameters({"placement_b": loop.placement_b @ half[tuple(axis.astype(int).tolist())]})
            told = any(np.array_equal(axis, x) for x in axes)
            assert turned.flipped(MODEL, q) == told
            if told:
                close(values(MODEL, turned, q), np.zeros(6 - joint.nv))
    assert not ts.Gear("arm", "other", 2.0).flipped(MODEL, q)


def test_a_moving_hinge_follows_its_motion():
    """R, p, twist and its rate belong together, after the turn that brings z to the axis."""
    loop = next(c for c in EXAMPLES if c.name == "moving hinge")
    body = next(c for c in EXAMPLES if c.name == "driven body")
    for constraint in (loop, body):
        motion = constraint._parts(MODEL)[0][4]
        for t in (0.0, 0.7):
            now = motion(t)
            assert now.shape == (24,) and now.dtype == np.float64
            T = matrix(now)
            dT = differences(lambda t, m=motion: matrix(m(float(t))), t)
            close(vee6(np.linalg.inv(T) @ dT), now[12:18], 1e-9)
            close(differences(lambda t, m=motion: m(float(t))[12:18], t), now[18:], 1e-9)
    pose = loop.placement_a(0.7)[0]
    close(matrix(loop._parts(MODEL)[0][4](0.7))[:3, 2], pose.R @ np.array(loop.joint.axis))


def test_couplings():
    builder = ts.ModelBuilder()
    for name, joint in (("a", ts.Revolute()), ("b", ts.Planar()), ("c", ts.Prismatic()), ("s", ts.Spherical())):
        builder.add_body(name, joint=joint, joint_name=f"joint {name}", inertia=ts.Inertia.sphere(0.1, mass=1.0))
    model = builder.build()
    q = model.random(0)
    close(values(model, ts.Gear("a", "joint c", -0.5, offset=0.2), q), [q[3] + 0.5 * q[0] - 0.2])
    three = ts.Coupling(["a", ("b", 1), "c"], [1, -1, 2], offset=0.1)
    close(values(model, three, q), [q[0] - q[2] + 2 * q[3] - 0.1])
    assert three.shown_name == "Coupling(a, b[1], c)" and three.row_names(model) == (three.shown_name,)
    held = ts.PrescribedJoint("b", [0.3, 0.4])
    close(values(model, held, q), q[1:3] - [0.3, 0.4])
    assert held.row_names(model) == ("PrescribedJoint(b): coordinate 0", "PrescribedJoint(b): coordinate 1")
    for motion in (
        lambda t: (t**2, 2 * t, 2.0),
        lambda t: np.array([t**2, 2 * t, 2.0]),
        lambda t: ([t**2], [2 * t], [2]),
    ):
        close(values(model, ts.PrescribedJoint("a", motion), q, 3.0), [q[0] - 9.0])
        ((_, _, _, f),) = ts.PrescribedJoint("a", motion)._parts(model)
        close(f(3.0), [9.0, 6.0, 2.0])
    v = np.random.default_rng(0).standard_normal(model.nv)
    V = ts.body_velocities(model, q, v)
    w, u = np.arange(6.0), np.ones(6)
    mixed = ts.TwistConstraint({"a": w, "c": u}, {"s": [1, 0, 2], "joint b": (3, 4)}, lambda t: (np.sin(t), np.cos(t)))
    expected = w @ V[0] + u @ V[2] + v[4] + 2 * v[6] + 3 * v[1] + 4 * v[2] - np.sin(0.3)
    close(values(model, mixed, q, v=v), [expected])
    assert mixed._parts(model)[0][3](0.3).tolist() == [np.sin(0.3), np.cos(0.3)]
    assert ts.TwistConstraint({"a": w}, rate=0.4)._parts(model)[0][3](9.0).tolist() == [0.4, 0.0]
    assert ts.TwistConstraint({"a": w})._parts(model)[0][3] is None


# ---- parameters


@pytest.mark.parametrize("k", range(len(EXAMPLES)), ids=lambda k: EXAMPLES[k].shown_name)
def test_gradients_with_respect_to_parameters(k):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        constraint = testing.example_constraints(MODEL, seed)[k]
        q, v = MODEL.random(rng), rng.standard_normal(MODEL.nv)
        rows = len(constraint.row_names(MODEL))
        assert rows == sum(map(part_rows, constraint._parts(MODEL))) == values(MODEL, constraint, q, v=v).size
        w = rng.standard_normal(rows)
        found = constraint._gradient(flat_gradient(MODEL, constraint, q, w, v=v))
        parameters = constraint.parameters
        assert found.keys() == parameters.keys()
        for name, value in parameters.items():
            assert found[name].shape == value.shape

            def g(x, name=name, w=w, c=constraint, q=q, v=v):
                return w @ values(MODEL, c.with_parameters({name: x}), q, v=v)

            close(found[name], differences(g, value), 1e-8)  # differences of differences for placements
        same = constraint.with_parameters(parameters)
        close(values(MODEL, same, q, v=v), values(MODEL, constraint, q, v=v))
        batch = constraint._gradient(rng.standard_normal((2, 3, flat_gradient(MODEL, constraint, q, w, v=v).size)))
        assert {name: x.shape for name, x in batch.items()} == {n: (2, 3, *x.shape) for n, x in parameters.items()}


def test_gradients_of_placements_with_turned_axes_by_hand():
    """Of a marker placement @ C: a twist x of the placement is Ad(C^-1) x of the marker."""
    loop = ts.Loop("arm", "table", ts.Universal(((1, 0, 1), (0, 1, 0.3))))
    form, *_ = loop._sides()
    flat = np.random.default_rng(0).standard_normal(12 + 4)
    found = loop._gradient(flat)
    for name, C, own in (("placement_a", form.on_a, flat[:6]), ("placement_b", form.on_b, flat[6:12])):
        T = np.eye(4)
        T[:3, :3] = C
        close(found[name], Ad(np.linalg.inv(T)).T @ own)


def test_placements_are_given_as_twists_or_poses():
    loop = ts.Loop("arm", "table", ts.Fixed(), ts.SE3.translation(1, 2, 3))
    assert loop.parameters["placement_a"].tolist() == [0.0] * 6
    x = np.array([0.1, 0.2, 0.3, 1.0, 2.0, 3.0])
    assert loop.with_parameters({"placement_a": x}).placement_a == loop.placement_a @ ts.SE3.exp(x)
    assert loop.with_parameters({"placement_b": ts.SE3.rpy(1, 0, 0)}).placement_b == ts.SE3.rpy(1, 0, 0)
    with pytest.raises(ValueError, match="placement_a has shape"):
        loop.with_parameters({"placement_a": np.zeros(3)})
    with pytest.raises(ValueError, match="no parameter 'offset'; it has 'placement_a', 'placement_b'"):
        loop.with_parameters({"offset": 0.0})
    with pytest.raises(ValueError, match="no parameter 'placement_a'; it has 'placement_b'"):
        next(c for c in EXAMPLES if c.name == "moving hinge").with_parameters({"placement_a": x})


# ---- user-defined constraints


class Bump(ts.CustomConstraint):
    """A point of a body stays on a surface, f(x, t) = 0, and on another: closed forms for everything."""

    rows = 2

    def __init__(self, model, body, p=(0.7, -0.4)):
        self.model, self.body, self.p = model, body, p
        self.point = np.array([0.3, 0.2, -0.1])

    def value(self, q, t, p):
        x, y, z = ts.point_positions(self.model, q, self.body, self.point)
        return np.array([p[0] * x * x * y + np.sin(p[1] * z + t), x * y * z * np.exp(0.3 * t) - p[1] ** 2])

    def by_hand(self, q, v, a, t, p):
        """g, gdot, gamma and G."""
        x, y, z = r = ts.point_positions(self.model, q, self.body, self.point)
        J = ts.point_jacobian(self.model, q, self.body, self.point)
        i = [b.name for b in self.model.bodies].index(self.body)
        R = ts.body_poses(self.model, q)[i, :3, :3]
        V = ts.body_velocities(self.model, q, v, frame="local_world_aligned")[i]
        A = ts.body_accelerations(self.model, q, v, a, frame="local_world_aligned")[i]
        arm = R @ self.point
        rdot = V[3:] + np.cross(V[:3], arm)
        rddot = A[3:] + np.cross(A[:3], arm) + np.cross(V[:3], np.cross(V[:3], arm))
        c, s, e = np.cos(p[1] * z + t), np.sin(p[1] * z + t), np.exp(0.3 * t)
        n = np.array([[2 * p[0] * x * y, p[0] * x * x, p[1] * c], [y * z * e, x * z * e, x * y * e]])
        H = np.array(
            [
                [[2 * p[0] * y, 2 * p[0] * x, 0 * x], [2 * p[0] * x, 0 * x, 0 * x], [0 * x, 0 * x, -(p[1] ** 2) * s]],
                [[0 * x, z * e, y * e], [z * e, 0 * x, x * e], [y * e, x * e, 0 * x]],
            ]
        )
        f_t, f_tt = np.array([c, 0.3 * x * y * z * e]), np.array([-s, 0.09 * x * y * z * e])
        n_t = np.array([[0 * x, 0 * x, -p[1] * s], [0.3 * y * z * e, 0.3 * x * z * e, 0.3 * x * y * e]])
        gdot = n @ rdot + f_t
        gamma = n @ rddot + np.einsum("rij,i,j->r", H, rdot, rdot) + 2 * n_t @ rdot + f_tt
        return self.value(q, t, p), gdot, gamma, n @ J, r


class BumpWithJacobian(Bump):
    """The same with derivatives."""

    def jacobian(self, q, t, p):
        return self.by_hand(q, np.zeros(self.model.nv), np.zeros(self.model.nv), t, p)[3]


def states(model, seed, n=3):
    rng = np.random.default_rng(seed)
    return model.random(rng, n), *rng.standard_normal((2, n, model.nv)), 0.4


@pytest.mark.parametrize(("kind", "first", "third"), [(Bump, 1e-12, 2e-11), (BumpWithJacobian, 1e-12, 5e-12)])
@pytest.mark.parametrize("body", ["hand", "wrist", "table"])
def test_user_defined_constraints_against_closed_forms(kind, first, third, body):
    constraint = kind(MODEL, body)
    bound = constraint._bound(MODEL)
    nv, t = MODEL.nv, 0.4
    zero = np.zeros(nv)
    q, v, a, t = states(MODEL, 8)
    rng = np.random.default_rng(9)
    lam, wg, wgdot, wgamma = rng.standard_normal((4, 3, 2))
    found = bound._evaluate(q, v, a, t)
    derivatives = bound._derivatives(q, v, a, t).reshape(3, 3, 2, nv)
    stiffness = bound._stiffness(q, t, lam).reshape(3, nv, nv)
    by_p = bound._parameter_gradient(q, v, a, t, wg, wgdot, wgamma)
    p = np.array(constraint.p)
    for i in range(3):
        g, gdot, gamma, G, _ = constraint.by_hand(q[i], v[i], a[i], t, p)
        close(found[i, :2], g)
        close(found[i, 2:4], gdot)
        close(found[i, 4:6], gamma, first)
        close(found[i, 6:].reshape(2, nv), G)

        def along_q(part, i=i):
            return complex_step(lambda d: constraint.by_hand(MODEL.plus(q[i], d), v[i], a[i], t, p)[part], zero)

        close(derivatives[i, 0], along_q(1), first)
        close(derivatives[i, 1], along_q(2), third)
        by_v = complex_step(lambda x, i=i: constraint.by_hand(q[i], x, a[i], t, p)[2], v[i])
        close(derivatives[i, 2], by_v, third)
        close(stiffness[i], np.einsum("rjk,r->jk", along_q(3), lam[i]), first)

        def total(p, i=i):
            g, gdot, gamma, *_ = constraint.by_hand(q[i], v[i], a[i], t, p)
            return wg[i] @ g + wgdot[i] @ gdot + wgamma[i] @ gamma

        close(by_p[i], complex_step(total, p), third)


@pytest.mark.parametrize("kind", [Bump, BumpWithJacobian])
def test_user_defined_constraints_carry_complex_steps(kind):
    """Imaginary parts of inputs that are steps come out as derivatives along them."""
    constraint = kind(MODEL, "hand")
    bound, p = constraint._bound(MODEL), np.array(constraint.p)
    nv, h = MODEL.nv, testing.STEP
    q, v, a, t = states(MODEL, 10, 1)
    rng = np.random.default_rng(11)
    dq, dv, da = rng.standard_normal((3, 1, nv))
    w, dw = rng.standard_normal((2, 3, 1, 2))

    def state(s):
        with testing.complex_inputs():
            return MODEL.plus(q, s * dq), v + s * dv, a + s * da

    def compare(f, expected, tol):
        out = f(*state(1j * h))
        close(out.real, f(q, v, a))
        close(out.imag / h, expected, tol)

    def by_hand(s):
        x, y, z = state(s)
        g, gdot, gamma, G, _ = constraint.by_hand(x[0], y[0], z[0], t, p)
        return np.concatenate([g, gdot, gamma, G.ravel()])

    exact = complex_step(lambda s: by_hand(s[0]), np.zeros(1))[:, 0]
    compare(lambda *x: bound._evaluate(*x, t)[0], exact, 1e-11)
    # differences with steps of 1e-3, of what is exact to 1e-11 and, for the stiffness, to 1e-13
    along = differences(lambda s: bound._derivatives(*state(float(s)), t)[0], 0.0)
    compare(lambda *x: bound._derivatives(*x, t)[0], along, 1e-7)

    def stiffness(s):
        return bound._stiffness(state(s)[0], t, w[0] + s * dw[0])[0]

    close(stiffness(1j * h).imag / h, differences(lambda s: stiffness(float(s)), 0.0), 1e-8)

    def gradient(s):
        return bound._parameter_gradient(*state(s), t, *(w + s * dw))[0]

    close(gradient(1j * h).imag / h, differences(lambda s: gradient(float(s)), 0.0), 1e-7)


def test_batched_user_defined_constraints_and_scale():
    class Circle(ts.CustomConstraint):
        rows, batched, scale = 1, True, 0.05

        def value(self, q, t, p):
            x, y = q[..., 0], q[..., 1]
            return (np.sqrt(x * x + y * y) - 0.1 - 0.01 * np.sin(20 * t))[..., None]

    builder = ts.ModelBuilder()
    builder.add_body("a", joint=ts.Planar(), inertia=ts.Inertia.sphere(0.1, mass=1.0))
    model = builder.build()
    bound = Circle()._bound(model)
    q, v, a = np.array([[0.06, 0.08], [0.1, 0.0]]), np.array([[0.3, -0.1], [0.0, 0.2]]), np.array([[1.0, 2.0], [0, 0]])
    found = bound._evaluate(q, v, a, 0.1)
    r = np.linalg.norm(q, axis=1)
    n = q / r[:, None]
    swing = 0.01 * np.array([np.sin(2.0), 20 * np.cos(2.0), -400 * np.sin(2.0)])
    rate = (n * v).sum(1)
    close(found[:, 0], r - 0.1 - swing[0])
    close(found[:, 1], rate - swing[1])
    close(found[:, 2], (n * a).sum(1) + ((v * v).sum(1) - rate**2) / r - swing[2], 1e-11)
    close(found[:, 3:], n)
    for i in range(2):
        close(bound._evaluate(q[i : i + 1], v[i : i + 1], a[i : i + 1], 0.1)[0], found[i], 1e-13)


def test_errors_of_user_defined_constraints():
    class Wrong(ts.CustomConstraint):
        rows = 2

        def value(self, q, t, p):
            return q[:1]

    class Real(ts.CustomConstraint):
        rows = 1

        def value(self, q, t, p):
            return np.real(q[:1])

    with pytest.raises(ValueError, match=r"Wrong.value gave shape \(1,\) and dtype float64, expected \(2,\)"):
        compile_constraints(MODEL, [Wrong()])
    wrong = Wrong()
    for rows in (0, -1, 1.5, None, True):
        wrong.rows = rows
        with pytest.raises(ts.ConstraintError, match=f"Wrong.rows is {rows}, expected an integer"):
            compile_constraints(MODEL, [wrong])
    wrong = Real()
    wrong.scale = 0.0
    with pytest.raises(ts.ConstraintError, match=r"Real.scale is 0.0, expected a number"):
        compile_constraints(MODEL, [wrong])
    wrong = Real()
    wrong.p = [1.0, np.nan]
    with pytest.raises(ValueError, match="p of Real is not finite"):
        compile_constraints(MODEL, [wrong])


# ---- compilation


def test_compiled_constraints():
    compiled = compile_constraints(MODEL, EXAMPLES)
    assert compiled.rows == len(compiled.row_names) == len(set(compiled.row_names)) == compiled.row_slices[-1].stop
    assert compiled.size == sum(part_size(part) for _, part in compiled.parts)
    assert [i for i, _ in compiled.parts] == sorted(i for i, _ in compiled.parts)
    flat = np.random.default_rng(0).standard_normal((5, compiled.size))
    for constraint, gradient in zip(EXAMPLES, compiled.unflatten(flat), strict=True):
        assert {n: x.shape for n, x in gradient.items()} == {n: (5, *x.shape) for n, x in constraint.parameters.items()}
    assert compile_constraints(MODEL, EXAMPLES) is compiled is compile_constraints(MODEL, list(EXAMPLES))
    assert compile_constraints(MODEL, EXAMPLES[:2]) is not compiled
    empty = compile_constraints(MODEL, [])
    assert (empty.rows, empty.size, empty.unflatten(np.zeros((2, 0)))) == (0, 0, ())


def test_names():
    loop, other = (ts.Loop("arm", "table", joint) for joint in (ts.Spherical(), ts.Fixed()))
    compiled = compile_constraints(MODEL, [loop, other, ts.Distance("arm", X, "table", Y, 1.0, name="rod")])
    assert compiled.names == ("Loop(arm, table)", "Loop(arm, table) (2)", "rod")
    assert compiled.row_names[2:4] == ("Loop(arm, table): position z", "Loop(arm, table) (2): position x")
    assert compiled.row_names[-1] == "rod"
    assert loop.row_names(MODEL) == compiled.row_names[:3]


def test_changed_parameters_of_user_defined_constraints_are_compiled_again():
    constraint = Bump(MODEL, "hand")
    first = compile_constraints(MODEL, [constraint])
    assert compile_constraints(MODEL, [constraint]) is first
    constraint.p = (1.0, 2.0)
    second = compile_constraints(MODEL, [constraint])
    assert second is not first
    assert second.parts[0][1][1].p.tolist() == [1.0, 2.0]
    other = constraint.with_parameters({"p": [3.0, 4.0]})
    assert constraint.p == (1.0, 2.0) and other.p.tolist() == [3.0, 4.0]


def test_charts_of_coordinates_in_constraints_are_kept():
    gear = compile_constraints(MODEL, [ts.Gear("arm", "other", 2.0)])
    assert gear.joints == {"arm", "other"}
    assert compile_constraints(MODEL, [ts.Loop("arm", "table", ts.Fixed())]).joints == set()
    assert compile_constraints(MODEL, [Bump(MODEL, "hand")]).joints == {j.name for j in MODEL.joints}
    assert compile_constraints(MODEL, [ts.TwistConstraint(joints={"hand": [1, 2, 3]})]).joints == {"hand"}


@pytest.mark.parametrize("k", range(len(EXAMPLES)), ids=lambda k: EXAMPLES[k].shown_name)
def test_constraints_are_frozen_values(k):
    constraint = EXAMPLES[k]
    if isinstance(constraint, ts.CustomConstraint):
        return
    with pytest.raises(FrozenInstanceError):
        constraint.name = "other"
    copy = pickle.loads(pickle.dumps(constraint))
    assert repr(copy).split("(")[0] == type(constraint).__name__
    functions = [x for x in vars(constraint).values() if callable(x)]
    if not functions:
        assert copy == constraint and hash(copy) == hash(constraint)


def test_a_model_with_compiled_constraints_is_freed():
    model = tree(3)
    compile_constraints(model, testing.example_constraints(model, 0)[:5])
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


# ---- loops by joints whose coordinates are kept


class Cam(ts.CustomJoint):
    """Screw with a pitch that grows."""

    dofs = 1

    def T(self, q):
        c, s, one = np.cos(q[0]), np.sin(q[0]), 1 + 0 * q[0]
        o = 0 * q[0]
        return np.array([[c, -s, o, o], [s, c, o, o], [o, o, one, q[0] ** 2], [o, o, o, one]])

    def S(self, q):
        return np.array([0 * q[0], 0 * q[0], 1 + 0 * q[0], 0 * q[0], 0 * q[0], 2 * q[0]])[:, None]

    def dS(self, q):
        return np.array([0, 0, 0, 0, 0, 2 + 0 * q[0]])[:, None, None]

    def d2S(self, q):
        return np.zeros((6, 1, 1, 1), q.dtype)


JOINTS = [j for j in testing.example_joints() if not isinstance(j, ts.Free)] + [Cam(), ts.Fixed()]


@pytest.mark.parametrize("joint", JOINTS, ids=lambda j: type(j).__name__)
def test_with_loop_keeps_the_mechanics(joint):
    """Where the loop is closed, all momenta and energies are those of the model without the new body."""
    rng = np.random.default_rng(12)
    loop = ts.Loop("arm", "table", joint, random_pose(rng), random_pose(rng), name="thread")
    wide, weld = MODEL.with_loop(loop)
    assert (wide.nq, wide.nv) == (MODEL.nq + joint.nq, MODEL.nv + joint.nv)
    assert [b.name for b in wide.bodies] == [*(b.name for b in MODEL.bodies), "thread"]
    new = wide.body("thread")
    assert (new.parent, new.joint, new.joint_name) == ("arm", joint, "thread")
    assert weld == ts.Loop("thread", "table", ts.Fixed(), ts.SE3(), loop.placement_b, name="thread")
    total = wide.body("table").inertia + new.inertia.transformed(loop.placement_b)
    close(total.matrix, MODEL.body("table").inertia.matrix, 1e-13)
    close(wide.mass, MODEL.mass)
    # A state on the loop: the table is placed so that the joint is at random coordinates.
    q, qj = MODEL.random(rng), joint.random(rng)
    closed = loop.at(MODEL, q)
    neutral = ts.SE3.from_matrix(joint.T(joint.neutral))
    moved = ts.SE3.from_matrix(joint.T(qj))
    closed = closed.with_parameters({"placement_a": closed.placement_a @ neutral @ moved.inverse()})
    wide, weld = MODEL.with_loop(closed)
    both = np.concatenate([q, qj])
    close(values(wide, weld, both), np.zeros(6), 1e-13, least=10.0)
    close(ts.potential_energy(wide, both), ts.potential_energy(MODEL, q))
    # The same momentum for velocities of the model alone, if the new body moves as the table does.
    v = rng.standard_normal(MODEL.nv)
    V = ts.body_velocities(MODEL, q, v)
    table, arm = (MODEL.bodies.index(MODEL.body(name)) for name in ("table", "arm"))
    carried = Ad(closed.placement_b.inverse().matrix) @ V[table]
    half = wide.body("thread").inertia.matrix
    energy = ts.kinetic_energy(wide, both, np.concatenate([v, np.zeros(joint.nv)]))
    own = Ad(np.linalg.inv(closed.placement_a.matrix @ joint.T(qj))) @ V[arm]
    close(energy - own @ half @ own / 2 + carried @ half @ carried / 2, ts.kinetic_energy(MODEL, q, v), 1e-11)


def test_joints_that_cannot_be_a_loop_say_what_helps():
    kept = (ts.Screw, ts.SplineCurve, ts.SplineSurface, ts.Composite, ts.CustomJoint)
    found = [j for j in JOINTS if isinstance(j, kept)]
    assert {type(j) for j in found} == {*kept[:4], Cam}
    for joint in found:
        loop = ts.Loop("arm", "table", joint)
        with pytest.raises(TypeError, match=rf"by a {type(joint).__name__}, .*model.with_loop\(loop\)"):
            compile_constraints(MODEL, [loop])
        wide, weld = MODEL.with_loop(loop)
        assert compile_constraints(wide, [weld]).rows == 6
        assert wide.bodies[-1].name == "Loop(arm, table)"


def test_errors_of_with_loop():
    screw = ts.Screw(pitch=0.1)
    with pytest.raises(ValueError, match="'hand', as a body or joint of the model; give the loop another name="):
        MODEL.with_loop(ts.Loop("arm", "table", screw, name="hand"))
    with pytest.raises(ValueError, match="ends at the world, expected a body half of whose inertia"):
        MODEL.with_loop(ts.Loop("arm", "world", screw))
    light = MODEL.with_inertia("table", ts.Inertia.zero())
    with pytest.raises(ValueError, match="ends at body 'table', which has no mass"):
        light.with_loop(ts.Loop("arm", "table", screw))
    with pytest.raises(ValueError, match=r"placement_a of .* moves"):
        MODEL.with_loop(ts.Loop("world", "table", screw, lambda t: None))
    with pytest.raises(TypeError, match="with_loop takes a Loop, got 'arm'"):
        MODEL.with_loop("arm")
    with pytest.raises(ts.ConstraintError, match="fixed to each other"):
        MODEL.with_loop(ts.Loop("arm", "camera", screw))


# ---- errors

WELD, ZERO, SIX = ts.Fixed(), (0, 0, 0), np.zeros(6)


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: ts.Loop("arm", "arm", WELD), ts.ConstraintError, "between 'arm' and itself"),
        (lambda: ts.Distance("arm", ZERO, "arm", ZERO, 1.0), ValueError, "between 'arm' and itself"),
        (lambda: ts.Loop("arm", "camera", WELD), ts.ConstraintError, "'arm' and 'camera', which are fixed to each"),
        (lambda: ts.PointOnPlane("world", "post"), ts.ConstraintError, "'world' and 'post', which are fixed to each"),
        (lambda: ts.PrescribedBody("post", ts.SE3()), ts.ConstraintError, "fixed to each other"),
        (lambda: ts.Loop("arm", "leg", WELD), KeyError, "no body named 'leg' for .*; bodies are 'world', 'base'"),
        (lambda: ts.Loop(1, "leg", WELD), TypeError, "named by a string, got 1"),
        (lambda: ts.Loop("arm", "table", ts.Free()), ValueError, "by a Free joint, which constrains nothing"),
        (lambda: ts.Loop("arm", "table", ts.Fixed), TypeError, r"must be a Joint, .*; did you mean Fixed\(\)\?"),
        (lambda: ts.Loop("arm", "table", "Fixed"), TypeError, "must be a Joint, got 'Fixed'"),
        (lambda: ts.Loop("arm", "table", WELD, ZERO), TypeError, "placement_a of Loop must be an SE3, got"),
        (lambda: ts.Loop("arm", "table", WELD, ts.SE3(), np.eye(4)), TypeError, "placement_b of Loop must be an SE3"),
        (lambda: ts.Loop("arm", "table", WELD, lambda t: None), ValueError, "function of time on the body 'arm'"),
        (lambda: ts.Loop("arm", "table", WELD, name=""), TypeError, "must be a non-empty string, got ''"),
        (lambda: ts.Loop("arm", "table", WELD, name=3), TypeError, "must be a non-empty string, got 3"),
        (lambda: ts.Distance("arm", ZERO, "table", ZERO, 0), ValueError, "length is 0, .* Spherical"),
        (lambda: ts.Distance("arm", ZERO, "table", ZERO, -1), ValueError, "length is -1, expected a number above 0"),
        (lambda: ts.Distance("arm", ZERO, "table", (1, 2), 1), ValueError, r"point_b has shape \(2,\)"),
        (lambda: ts.PointOnPlane("arm", "table", offset=np.nan), ValueError, "offset is not finite"),
        (lambda: ts.PointOnLine("arm", "table", ts.SE3(), (0, 0, np.inf)), ValueError, "point_b is not finite"),
        (lambda: ts.PrescribedBody("world", ts.SE3()), ValueError, "motion of 'world' cannot be prescribed"),
        (lambda: ts.PrescribedBody("arm", ZERO), TypeError, "motion of PrescribedBody must be an SE3, got"),
        (lambda: ts.Gear("arm", "leg", 1.0), KeyError, r"no joint named 'leg'; .*; got that name in Gear\(arm, leg\)"),
        (lambda: ts.Gear("arm", "arm", 1.0), ts.ConstraintError, "names one coordinate twice, as 'arm' and 'arm'"),
        (lambda: ts.Gear("arm", "other", 0.0), ValueError, "ratio is 0"),
        (lambda: ts.Gear("arm", "base", 1.0), ts.ConstraintError, "'base' .* is Free, whose coordinates contain a"),
        (lambda: ts.Gear("arm", "ball", 1.0), ts.ConstraintError, "'ball' .* is Spherical, whose coordinates contain"),
        (lambda: ts.Gear("arm", ("slider", 0), 1.0), ts.ConstraintError, "is Composite, whose coordinates contain"),
        (lambda: ts.Gear("arm", ("wrist", 0), 1.0), ts.ConstraintError, "is SphericalExp, whose coordinates change"),
        (lambda: ts.Gear("arm", ("hand", 0), 1.0), ts.ConstraintError, "is SphericalEuler, whose coordinates change"),
        (lambda: ts.Gear("arm", "camera", 1.0), ts.ConstraintError, "'camera' .* is Fixed, which has no coordinates"),
        (lambda: ts.Gear("arm", "table", 1.0), ts.ConstraintError, r"has 3 coordinates; name one .* \('table', k\)"),
        (lambda: ts.Gear("arm", ("table", 3), 1.0), ts.ConstraintError, "has no coordinate 3, .* from 0 to 2"),
        (lambda: ts.Gear("arm", ("table", -1), 1.0), ts.ConstraintError, "has no coordinate -1"),
        (lambda: ts.Gear("arm", ("table", 0.5), 1.0), TypeError, r"\(name, k\) for its coordinate k, got"),
        (lambda: ts.Coupling([], []), ValueError, "joints is empty"),
        (lambda: ts.Coupling("arm", [1.0]), TypeError, "joints is 'arm', expected a sequence"),
        (lambda: ts.Coupling(["arm", "other"], []), ValueError, r"coefficients has shape \(0,\), expected \(2,\)"),
        (lambda: ts.Coupling(["arm", "other"], [1, 0]), ValueError, "coefficient of 'other' is 0"),
        (lambda: ts.Coupling(["arm", ("arm", 0)], [1, 2]), ts.ConstraintError, r"as 'arm' and 'arm\[0\]'; add their"),
        (lambda: ts.PrescribedJoint("table", 0.3), ValueError, r"motion of .* has shape \(\), expected \(3,\)"),
        (lambda: ts.PrescribedJoint("table", [1, 2]), ValueError, r"motion of .* has shape \(2,\), expected \(3,\)"),
        (lambda: ts.PrescribedJoint("base", np.zeros(7)), ts.ConstraintError, "use a Loop or a PrescribedBody"),
        (lambda: ts.PrescribedJoint(("table", 0), 0.3), TypeError, "a joint is named by a string"),
        (lambda: ts.TwistConstraint(), ValueError, "needs bodies or joints, got none"),
        (lambda: ts.TwistConstraint({}, {}), ValueError, "needs bodies or joints, got none"),
        (lambda: ts.TwistConstraint({"arm": SIX}), ValueError, r"bodies\['arm'\] is zero"),
        (lambda: ts.TwistConstraint({"arm": ZERO}), ValueError, r"bodies\['arm'\] has shape \(3,\), expected \(6,\)"),
        (lambda: ts.TwistConstraint(joints={"arm": 0.0}), ValueError, r"joints\['arm'\] is zero or empty"),
        (lambda: ts.TwistConstraint(joints={"table": 1.0}), ts.ConstraintError, "has 1 coefficients, expected 3"),
        (lambda: ts.TwistConstraint(joints={"camera": 1.0}), ts.ConstraintError, "has 1 coefficients, expected 0"),
        (lambda: ts.TwistConstraint(joints={"leg": 1.0}), KeyError, "no joint named 'leg'"),
        (lambda: ts.TwistConstraint({"leg": SIX + 1}), KeyError, "no body named 'leg'"),
        (lambda: ts.TwistConstraint({"post": SIX + 1}), ts.ConstraintError, "'post' of .* does not move"),
        (lambda: ts.TwistConstraint({"world": SIX + 1}), ts.ConstraintError, "'world' of .* does not move"),
        (lambda: ts.TwistConstraint("arm"), TypeError, "bodies is 'arm', expected a dict by name"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(make, kind, text):
    with pytest.raises(kind, match=text):
        compile_constraints(MODEL, [make()])


def test_one_body_or_joint_by_two_names():
    builder = ts.ModelBuilder()
    for name in "ab":
        builder.add_body(name, joint=ts.Revolute(), joint_name=f"joint {name}", inertia=ts.Inertia.sphere(1, mass=1.0))
    model = builder.build()
    for constraint, text in (
        (ts.Gear("a", "joint a", 1.0), "names one coordinate twice, as 'joint a' and 'a'"),
        (ts.Loop("a", "joint a", WELD), "between 'a' and itself"),
        (ts.TwistConstraint({"a": SIX + 1, "joint a": SIX + 1}), "names body 'a' twice"),
        (ts.TwistConstraint(joints={"a": 1.0, "joint a": 1.0}), "names joint 'joint a' twice"),
    ):
        with pytest.raises(ts.ConstraintError, match=text):
            compile_constraints(model, [constraint])


@pytest.mark.parametrize(
    ("motion", "kind", "text"),
    [
        (lambda t: ts.SE3(), ValueError, r"the motion of feet gave SE3\(\) at t = 0.5, expected \(pose, twist, twist"),
        (lambda t: (ts.SE3(), SIX), ValueError, "at t = 0.5, expected"),
        (lambda t: (np.eye(4), SIX, SIX), TypeError, "as pose at t = 0.5, expected an SE3"),
        (lambda t: (ts.SE3(), SIX[:3], SIX), ValueError, r"twist of the motion of feet at t = 0.5 has shape \(3,\)"),
        (lambda t: (ts.SE3(), SIX, SIX * np.nan), ValueError, "twist rate of the motion of feet at t = 0.5 is not"),
        (lambda t: None, ValueError, "gave None at t = 0.5"),
    ],
)  # fmt: skip
def test_errors_of_motions_of_bodies(motion, kind, text):
    for constraint in (
        ts.PrescribedBody("arm", motion, name="feet"),
        ts.Loop("world", "arm", ts.Revolute(), motion, name="feet"),
    ):
        with pytest.raises(kind, match=text):
            constraint._parts(MODEL)[0][4](0.5)


@pytest.mark.parametrize(
    ("joint", "motion", "text"),
    [
        ("arm", lambda t: t, r"the motion of crank gave 0.5 at t = 0.5, expected \(value, rate, second rate\)"),
        ("arm", lambda t: (t, t), "gave .* at t = 0.5, expected"),
        ("arm", lambda t: (t, t, np.nan), "second rate of the motion of crank at t = 0.5 is not finite"),
        ("arm", lambda t: (t, t, "x"), "second rate of the motion of crank at t = 0.5 has dtype"),
        ("table", lambda t: (t, t, t), r"value of the motion of crank at t = 0.5 has shape \(\), expected \(3,\)"),
        ("table", lambda t: ([1, 2, 3], [1, 2], [1, 2, 3]), r"rate of the motion .* has shape \(2,\), expected \(3,\)"),
    ],
)  # fmt: skip
def test_errors_of_motions_of_joints(joint, motion, text):
    with pytest.raises(ValueError, match=text):
        ts.PrescribedJoint(joint, motion, name="crank")._parts(MODEL)[0][3](0.5)


def test_errors_of_rates():
    for rate, text in ((lambda t: t, "gave 0.5 at t = 0.5"), (lambda t: (t, np.inf), "rate of the motion of roll")):
        with pytest.raises(ValueError, match=text):
            ts.TwistConstraint({"arm": SIX + 1}, rate=rate, name="roll")._parts(MODEL)[0][3](0.5)


def test_errors_of_lists():
    loop = ts.Loop("arm", "table", WELD, name="closing")
    with pytest.raises(TypeError, match=re.escape("got Loop; did you mean [Loop(...)]?")):
        require_constraints(loop)
    with pytest.raises(TypeError, match="constraints must be a sequence of constraints, got int"):
        require_constraints(3)
    with pytest.raises(TypeError, match="sequence of constraints, got dict"):
        require_constraints({"closing": loop})
    with pytest.raises(TypeError, match=re.escape("constraint 1 must be a Constraint, got <class 'torsor")):
        require_constraints([loop, ts.Gear])
    with pytest.raises(TypeError, match=re.escape("did you mean Gear(...)?")):
        compile_constraints(MODEL, (x for x in [loop, ts.Gear]))
    with pytest.raises(TypeError, match="constraint 0 must be a Constraint, got JointDamping"):
        compile_constraints(MODEL, [ts.JointDamping(None, 0.1)])
    with pytest.raises(ts.ConstraintError, match="constraints 0 and 2 are both named 'closing'"):
        compile_constraints(
            MODEL, [loop, ts.Gear("arm", "other", 1.0), ts.Distance("arm", X, "hand", X, 1, name="closing")]
        )
    with pytest.raises(TypeError, match=r"model must be a torsor.Model"):
        compile_constraints("model", [loop])


def test_errors_of_at():
    loop = ts.Loop("arm", "table", WELD)
    with pytest.raises(ValueError, match=r"q has shape \(2, \d+\), expected .*: one configuration for Loop"):
        loop.at(MODEL, MODEL.random(0, 2))
    with pytest.raises(ValueError, match="q is not finite"):
        loop.at(MODEL, np.full(MODEL.nq, np.nan))
    with pytest.raises(ValueError, match=r"placement_a of .* moves, so it cannot be taken"):
        ts.Loop("world", "table", WELD, lambda t: None).at(MODEL, MODEL.neutral)
    with pytest.raises(TypeError, match=r"model must be a torsor.Model"):
        loop.at(None, MODEL.neutral)


def test_constraint_errors_are_pickled_with_their_rows():
    error = ts.ConstraintError("two rows contradict each other", ["a: position x", "b"])
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and copy.rows == ("a: position x", "b")
    assert isinstance(error, ValueError) and isinstance(error, ts.TorsorError)
