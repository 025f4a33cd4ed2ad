"""Every joint: one contract over all, closed forms, singular places, charts, joints of the user's own."""

import gc
import pickle
import subprocess
import sys
import weakref
from itertools import combinations, permutations

import numpy as np
import pytest
from compare import close_each, to_within
from population import Own, sweep
from scipy.interpolate import BSpline

import torsor as ts
from torsor import spatial, testing

X, Y, Z = np.eye(3)

close = to_within(1e-13, close_each)  # a few roundings of numbers of size 1


# ---- joints of the user's own


def polynomial(terms, q, order):
    """All derivatives of one order, (*batch, n, ..., n), of a sum of monomials {exponents: factor}."""
    n = q.shape[-1]
    out = np.zeros((*q.shape[:-1], *[n] * order), q.dtype)
    for index in np.ndindex(*[n] * order):
        for exponents, factor in terms.items():
            powers = list(exponents)
            for k in index:
                factor, powers[k] = factor * powers[k], powers[k] - 1
            if factor:
                out[(..., *index)] += factor * np.prod(q**powers, axis=-1)
    return out


class Guided(ts.CustomJoint):
    """Turned about z by phi(q) and moved to (x, y, z)(q), polynomials: `guide` holds x, y, z and phi."""

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))

    def jet(self, q, order):
        """Derivatives of the place, turned into the child's frame and components first; and those of phi."""
        x, y, z, phi = (polynomial(terms, q, order) for terms in self.guide)
        angle = polynomial(self.guide[3], q, 0)[(..., *[None] * order)]
        c, s = np.cos(angle), np.sin(angle)
        return np.stack([c * x + s * y, c * y - s * x, z]), phi

    def T(self, q):
        place = [polynomial(terms, q, 0) for terms in self.guide]
        c, s, one = np.cos(place[3]), np.sin(place[3]), np.ones_like(place[3])
        rows = [
            c,
            -s,
            0 * c,
            place[0],
            s,
            c,
            0 * c,
            place[1],
            0 * c,
            0 * c,
            one,
            place[2],
            0 * c,
            0 * c,
            0 * c,
            one,
        ]
        return np.stack(rows, axis=-1).reshape(*q.shape[:-1], 4, 4)

    def S(self, q):
        u, f = self.jet(q, 1)
        return self.columns(q, u, f)

    def dS(self, q):  # the derivative of R^T x by q_k is R^T dx/dq_k - phi_k z x R^T x
        (u, f), (u2, f2) = self.jet(q, 1), self.jet(q, 2)
        return self.columns(q, u2 - across(u)[..., None] * f[..., None, :], f2)

    def d2S(self, q):
        (u, f), (u2, f2), (u3, f3) = (self.jet(q, order) for order in (1, 2, 3))
        du = across(u2)
        rate = du[..., None] * f[..., None, None, :] + du[..., :, None, :] * f[..., None, :, None]
        rate = rate + across(u)[..., None, None] * f2[..., None, :, :]
        square = f[..., :, None] * f[..., None, :]
        return self.columns(q, u3 - rate + across(across(u))[..., None, None] * square[..., None, :, :], f3)

    @staticmethod
    def columns(q, u, f):
        return np.stack([0 * f, 0 * f, f, *u], axis=q.ndim - 1)


def across(u):
    """z x u, components first."""
    return np.stack([-u[1], u[0], 0 * u[2]])


class Knee(Guided):
    """The tibia rolls and slides on the femur: its place depends on the angle. One state at a time."""

    dofs = 1
    guide = ({(1,): 0.02, (2,): -0.01}, {(0,): 0.3, (3,): 0.03}, {(1,): 0.01}, {(1,): 1.0})


class Cam(Guided):
    """Two freedoms on a saddle, turning on the way. Whole batches."""

    dofs = 2
    batched = True
    guide = (
        {(1, 0): 1.0},
        {(0, 1): 1.0, (2, 0): 0.2},
        {(1, 1): 0.3, (3, 0): 0.1},
        {(1, 0): 1.0, (1, 1): 0.5, (0, 3): 0.1},
    )


class Wrapped(Own):
    """One that draws as the built-in joint does."""

    def random(self, rng):
        return self.inner.random(rng)


JOINTS = [*testing.example_joints(), ts.Fixed(), Knee(), Cam()]
every_joint = pytest.mark.parametrize("joint", JOINTS, ids=lambda j: getattr(j, "chart", type(j).__name__))
CURVE, SURFACE = (next(j for j in JOINTS if isinstance(j, kind)) for kind in (ts.SplineCurve, ts.SplineSurface))


# ---- the contract


@every_joint
@pytest.mark.parametrize("seed", range(4))
def test_contract(joint, seed):
    testing.check_joint(joint, seed)


@every_joint
def test_batches_are_their_states(joint):
    rng = np.random.default_rng(1)
    q = np.array([joint.random(rng) for _ in range(15)]).reshape(3, 5, joint.nq)
    dv = rng.standard_normal((3, 5, joint.nv))
    functions = [joint.T, joint.S, joint.dS, joint.d2S, joint.normalize]
    if isinstance(joint, ts.CustomJoint):
        functions = [joint.normalize]
    for f in functions:
        assert np.array_equal(f(q)[2, 3], f(q[2, 3]))
        assert f(q[:0]).shape == (0, *f(q).shape[1:])
    assert np.array_equal(joint.plus(q, dv)[1, 4], joint.plus(q[1, 4], dv[1, 4]))
    assert np.array_equal(joint.minus(q, q[0])[1, 4], joint.minus(q[1, 4], q[0, 4]))
    if not isinstance(joint, ts.CustomJoint):
        assert np.array_equal(joint.Sdot(q, dv)[2, 0], joint.Sdot(q[2, 0], dv[2, 0]))
        assert np.array_equal(joint.dSdot(q, dv)[2, 0], joint.dSdot(q[2, 0], dv[2, 0]))


@every_joint
def test_neutral_range_and_copies(joint):
    neutral, (low, high) = joint.neutral, joint.range
    assert neutral.shape == low.shape == high.shape == (joint.nq,)
    assert ((low <= neutral) & (neutral <= high)).all()
    if not isinstance(joint, (ts.SplineCurve, ts.SplineSurface, Knee)):
        close(joint.T(neutral), np.eye(4))
    rng = np.random.default_rng(2)
    for _ in range(20):
        q = joint.random(rng)
        assert ((low <= q) & (q <= high)).all()
    again = pickle.loads(pickle.dumps(joint))
    assert again == joint
    assert hash(again) == hash(joint)
    assert np.array_equal(again.T(neutral), joint.T(neutral))
    assert type(joint).__name__ in repr(joint)


@pytest.mark.parametrize(("a", "b"), [*combinations(JOINTS, 2)][::7])
def test_different_joints_are_not_equal(a, b):
    assert a != b


# ---- poses against independent formulas


def translation(direction):
    return np.concatenate([np.zeros(3), direction / np.linalg.norm(direction)])


def rotation(axis, pitch=0.0):
    axis = axis / np.linalg.norm(axis)
    return np.concatenate([axis, pitch * axis])


A, B, C = np.array([0.3, -0.5, 0.8]), np.array([1.0, 2.0, -1.0]), np.array([0.2, 1.0, 0.0])
EXPONENTIALS = [  # joint, twists whose exponentials follow one another
    (ts.Revolute(), [rotation(Z)]),
    (ts.Revolute(A), [rotation(A)]),
    (ts.Revolute(-Z), [rotation(-Z)]),
    (ts.Prismatic(B), [translation(B)]),
    (ts.Screw(A, 0.4), [rotation(A, 0.4)]),
    (ts.Screw(-Y, -2.0), [rotation(-Y, -2.0)]),
    (ts.Cylindrical(C), [rotation(C), translation(C)]),
    (ts.Planar(), [translation(X), translation(Y)]),
    (ts.Planar((A, B)), [translation(A), translation(B)]),
    (ts.Translational(), [translation(d) for d in (X, Y, Z)]),
    (ts.Universal(), [rotation(X), rotation(Y)]),
    (ts.Universal((A, C)), [rotation(A), rotation(C)]),
    (ts.Free2D(), [translation(X), translation(Y), rotation(Z)]),
    (
        ts.Composite(ts.Screw(A, 0.1), ts.Fixed(), ts.Planar((B, C)), ts.Composite(), ts.Revolute(B)),
        [rotation(A, 0.1), translation(B), translation(C), rotation(B)],
    ),
    *(
        (ts.SphericalEuler(chart), [rotation(np.eye(3)["XYZ".index(a)]) for a in chart])
        for chart in ts.SphericalEuler.CHARTS
    ),
]


@pytest.mark.parametrize(("joint", "twists"), EXPONENTIALS, ids=lambda x: repr(x)[:60])
def test_products_of_exponentials(joint, twists):
    rng = np.random.default_rng(3)
    # beyond 1e5 the core leaves its own sine and cosine; the spacing of doubles there is 1e-11
    for scale, tol in ((1.0, 1e-13), (100.0, 1e-12), (1e6, 1e-9)):
        q = scale * rng.standard_normal(joint.nq)
        expected = np.linalg.multi_dot(
            [np.eye(4), np.eye(4), *(spatial.exp6(t * x) for t, x in zip(twists, q, strict=True))]
        )
        np.testing.assert_allclose(joint.T(q), expected, rtol=0, atol=tol * max(1.0, np.abs(expected).max()))


def test_quaternion_and_exponential_joints():
    rng = np.random.default_rng(4)
    x, p, w = rng.standard_normal(4), rng.standard_normal(3), rng.standard_normal(3)
    close(ts.Spherical().T(x)[:3, :3], spatial.quaternion_to_matrix(x))
    T = ts.Free().T(np.concatenate([p, x]))
    close(T[:3, :3], spatial.quaternion_to_matrix(x))
    close(T[:3, 3], p)
    close(ts.SphericalExp().T(w)[:3, :3], spatial.exp3(w))
    close(ts.Spherical().S(x), np.eye(6)[:, :3])
    close(ts.Free().S(np.concatenate([p, x])), np.eye(6))


# The table of S in Sueda 2021, Tables 1 and 2, and the signs of det S in Table 3.
SUEDA = {
    "XYX": (-1, lambda c2, s2, c3, s3: [[c2, 0, 1], [s2 * s3, c3, 0], [c3 * s2, -s3, 0]]),
    "XZX": (-1, lambda c2, s2, c3, s3: [[c2, 0, 1], [-c3 * s2, s3, 0], [s2 * s3, c3, 0]]),
    "YZY": (-1, lambda c2, s2, c3, s3: [[c3 * s2, -s3, 0], [c2, 0, 1], [s2 * s3, c3, 0]]),
    "YXY": (-1, lambda c2, s2, c3, s3: [[s2 * s3, c3, 0], [c2, 0, 1], [-c3 * s2, s3, 0]]),
    "ZXZ": (-1, lambda c2, s2, c3, s3: [[s2 * s3, c3, 0], [c3 * s2, -s3, 0], [c2, 0, 1]]),
    "ZYZ": (-1, lambda c2, s2, c3, s3: [[-c3 * s2, s3, 0], [s2 * s3, c3, 0], [c2, 0, 1]]),
    "XYZ": (1, lambda c2, s2, c3, s3: [[c2 * c3, s3, 0], [-c2 * s3, c3, 0], [s2, 0, 1]]),
    "XZY": (-1, lambda c2, s2, c3, s3: [[c2 * c3, -s3, 0], [-s2, 0, 1], [c2 * s3, c3, 0]]),
    "YZX": (1, lambda c2, s2, c3, s3: [[s2, 0, 1], [c2 * c3, s3, 0], [-c2 * s3, c3, 0]]),
    "YXZ": (-1, lambda c2, s2, c3, s3: [[c2 * s3, c3, 0], [c2 * c3, -s3, 0], [-s2, 0, 1]]),
    "ZXY": (1, lambda c2, s2, c3, s3: [[-c2 * s3, c3, 0], [s2, 0, 1], [c2 * c3, s3, 0]]),
    "ZYX": (-1, lambda c2, s2, c3, s3: [[-s2, 0, 1], [c2 * s3, c3, 0], [c2 * c3, -s3, 0]]),
}
charts = pytest.mark.parametrize("chart", SUEDA)
TURN = spatial.exp3(np.array([0.3, 0.5, -0.7]))


def singular_angle(chart, end):
    """q[1] at one of the two singularities of a chart."""
    return (np.pi * end if chart[0] == chart[2] else np.pi * (end - 0.5)) * 1.0


@charts
def test_euler_tables(chart):
    assert sorted(SUEDA) == sorted(ts.SphericalEuler.CHARTS)
    sign, table = SUEDA[chart]
    joint, q = ts.SphericalEuler(chart), np.random.default_rng(5).uniform(-4, 4, (20, 3))
    for x in q:
        S = joint.S(x)
        close(S[:3], table(np.cos(x[1]), np.sin(x[1]), np.cos(x[2]), np.sin(x[2])))
        close(S[3:], np.zeros((3, 3)))
        close(joint.det_S(x), np.linalg.det(S[:3]))
        close(joint.det_S(x), sign * (np.sin(x[1]) if chart[0] == chart[2] else np.cos(x[1])))
    close(joint.det_S(q), [joint.det_S(x) for x in q])


@charts
def test_angles_of_rotations(chart):
    joint, rng = ts.SphericalEuler(chart), np.random.default_rng(6)
    R = spatial.quaternion_to_matrix(rng.standard_normal((50, 4)))
    q = joint.from_rotation(R)
    close(joint.T(q)[..., :3, :3], R)
    low, high = singular_angle(chart, 0), singular_angle(chart, 1)
    assert ((low <= q[:, 1]) & (q[:, 1] <= high)).all()
    inside = np.stack([*rng.uniform(-np.pi, np.pi, (2, 50)), rng.uniform(low + 0.1, high - 0.1, 50)], -1)[:, [0, 2, 1]]
    close(joint.from_rotation(joint.T(inside)[..., :3, :3]), inside, 1e-13 / np.sin(0.1))


@charts
@pytest.mark.parametrize("off", [0, 1e-15, 1e-13, 1e-11, 1e-9, 1e-7, 1e-3])
@pytest.mark.parametrize("end", [0, 1])
def test_angles_of_rotations_at_gimbal_lock(chart, off, end):
    joint = ts.SphericalEuler(chart)
    q = np.array([0.3, singular_angle(chart, end) + off * (1 - 2 * end), 1.1])
    R = TURN @ (TURN.T @ joint.T(q)[:3, :3])  # so that small entries carry roundings of large ones
    angles = joint.from_rotation(R)
    # within 1e-12 of the singularity, where q[2] is 0 by definition, R differs by as much
    close(joint.T(angles)[:3, :3], R, 2e-12 if off <= 1e-12 else 1e-14)
    assert (angles[2] == 0) == (off <= 1e-12)


def motion(joint, q, v, a):
    """Rotation, angular velocity and angular acceleration."""
    S = joint.S(q)[..., :3, :]
    times = lambda M, x: (M @ x[..., None])[..., 0]  # noqa: E731
    return joint.T(q), times(S, v), times(S, a) + times(joint.Sdot(q, v)[..., :3, :], v)


def test_switching_charts_keeps_the_motion():
    rng = np.random.default_rng(7)
    for a, b in permutations(ts.SphericalEuler.CHARTS, 2):
        old, new = ts.SphericalEuler(a), ts.SphericalEuler(b)
        q = np.array([old.random(rng) for _ in range(6)]).reshape(2, 3, 3)
        v, acc = rng.standard_normal((2, 2, 3, 3))
        switched = old.switch(b, q, v, acc)
        # the inverse of S loses as many digits as det S is small, twice for the acceleration
        loss = 1 / np.abs(new.det_S(switched[0])).min() ** 3
        for x, y in zip(motion(old, q, v, acc), motion(new, *switched), strict=True):
            close(x, y, 1e-13 * max(1.0, loss))
        for k, part in enumerate(((q,), (q, v))):
            result = old.switch(new, *part)
            assert len(result) == k + 1
            assert all(np.array_equal(x, y) for x, y in zip(result, switched, strict=False))


def test_switching_there_and_back_is_the_same_state():
    rng = np.random.default_rng(8)
    old = ts.SphericalEuler("ZYX")
    q, v, a = np.array([0.4, 1.2, -0.7]), *rng.standard_normal((2, 3))
    for x, y in zip(ts.SphericalEuler("ZXZ").switch(old, *old.switch("ZXZ", q, v, a)), (q, v, a), strict=True):
        close(x, y, 1e-12)  # det S of both is above 0.3


# ---- exponential coordinates


class At:
    """A joint that draws one q only, so that check_joint looks there."""

    def __init__(self, joint, q):
        self.joint, self.q = joint, np.asarray(q, dtype=float)

    def __getattr__(self, name):
        return getattr(self.joint, name)

    def __repr__(self):
        return repr(self.joint)

    def random(self, rng):
        return self.q


# zero, series against closed form (at length 2), pi, 2 pi, beyond
LENGTHS = [0, 1e-300, 1e-12, 1e-8, 1e-4, 1e-2, 0.5, 2 - 1e-9, 2, 2 + 1e-9, np.pi - 1e-8, np.pi, np.pi + 1e-8]
LENGTHS += [2 * np.pi - 1e-2, 2 * np.pi - 1e-8, 2 * np.pi, 2 * np.pi + 1e-8, 7.0, 20.0]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("direction", [X, -Z, np.array([2, -3, 6]) / 7])
def test_exponential_coordinates(length, direction):
    joint, q = ts.SphericalExp(), length * direction
    testing.check_joint(At(joint, q))
    close(joint.T(q)[:3, :3], spatial.exp3(q))
    close(joint.S(q)[:3], spatial.dexp3(q))


@pytest.mark.parametrize("length", [*LENGTHS[:-5], 6.0, 6.5, 7.0, 20.0])
def test_reparametrising_exponential_coordinates_keeps_the_motion(length):
    joint, rng = ts.SphericalExp(), np.random.default_rng(9)
    q, v, a = np.array([2, -3, 6]) / 7 * length, *rng.standard_normal((2, 3))
    new = joint.reparametrize(q, v, a)
    assert np.linalg.norm(new[0]) <= np.pi * (1 + 1e-15)
    assert np.array_equal(new[0], joint.normalize(q))
    # v and a grow with 1 / det S of either; 6.0 and 6.5 are 0.3 and 0.2 away from 2 pi, where it is 0
    for x, y in zip(motion(joint, q, v, a), motion(joint, *new), strict=True):
        close(x, y, 1e-12)
    if length <= np.pi:
        assert np.array_equal(new[0], q)
    assert len(joint.reparametrize(q)) == 1
    assert len(joint.reparametrize(q, v)) == 2


# ---- places where charts end: T, S and inverse dynamics hold, forward dynamics says what is wrong


@pytest.mark.parametrize(
    ("joint", "q"),
    [
        *((ts.SphericalEuler(c), [0.3, singular_angle(c, end), 0.8]) for c in SUEDA for end in (0, 1)),
        (ts.SphericalExp(), 2 * np.pi * np.array([2, -3, 6]) / 7),
        *((ts.SphericalExp(), 2 * np.pi * e) for e in np.eye(3)),
    ],
    ids=lambda x: getattr(x, "chart", type(x).__name__),
)
def test_singular_charts(joint, q):
    testing.check_joint(At(joint, q))
    rng = np.random.default_rng(10)
    builder = ts.ModelBuilder().add_body("arm", "world", ts.Revolute(X), inertia=testing.random_inertia(rng))
    builder.add_body("ball", "arm", joint, testing.random_pose(rng), testing.random_inertia(rng), joint_name="socket")
    model = builder.build()
    q, v, a = np.array([0.2, *q]), *rng.standard_normal((2, 4))
    turned = ts.Spherical()  # the same motion with another joint, from which torques follow by virtual work
    S, Sdot = joint.S(q[1:])[:3], joint.Sdot(q[1:], v[1:])[:3]
    other = ts.ModelBuilder()
    for body in model.bodies:
        other.add_body(
            body.name,
            body.parent,
            turned if body.name == "ball" else body.joint,
            body.placement,
            body.inertia,
        )
    x = np.concatenate([q[:1], spatial.matrix_to_quaternion(joint.T(q[1:])[:3, :3])])
    w, dw = np.concatenate([v[:1], S @ v[1:]]), np.concatenate([a[:1], S @ a[1:] + Sdot @ v[1:]])
    tau = ts.inverse_dynamics(other.build(), x, w, dw)
    close(ts.inverse_dynamics(model, q, v, a), np.concatenate([tau[:1], S.T @ tau[1:]]), 1e-12)
    for call in (ts.forward_dynamics, lambda m, *s: ts.mass_matrix_inverse(m, s[0])):
        with pytest.raises(ts.SingularMassMatrixError, match="'socket'"):
            call(model, q, v, a)
    # nearby there is an answer, with the digits that are left: the pivot is as small as the distance squared
    q[1:] += 1e-3 * (q[1:] / np.linalg.norm(q[1:]) if isinstance(joint, ts.SphericalExp) else Y)
    tau = ts.inverse_dynamics(model, q, v, a)
    close(ts.forward_dynamics(model, q, v, tau), a, 1e-15 / 1e-3**2 * 100)


@pytest.mark.parametrize(
    ("joint", "starts"),
    [
        (ts.Spherical(), (0,)),
        (ts.Free(), (0,)),
        (ts.Composite(ts.Revolute(A), ts.Spherical(), ts.Free()), (1, 4)),
    ],
)
@pytest.mark.parametrize("angle", [0, 1e-300, 1e-12, 1e-8, 1e-4, 1.9e-3, 2.1e-3, 0.1, 2, np.pi - 1e-3, np.pi - 1e-9])
def test_plus_and_minus_are_inverses_and_differentiable(joint, starts, angle):
    rng = np.random.default_rng(11)
    q, dv = joint.random(rng), rng.standard_normal(joint.nv)
    for k in starts:  # of rotation vectors
        dv[k : k + 3] *= angle / np.linalg.norm(dv[k : k + 3])
    q1 = joint.plus(q, dv)
    close(joint.minus(q1, q), dv)
    close(joint.T(joint.plus(q, joint.minus(q1, q))), joint.T(q1))
    close(joint.minus(q, q), np.zeros(joint.nv), 2e-16)
    # The rotation by dv as a quaternion is known to 1e-16, and dv from it to as much, at every angle; the
    # derivative loses what the division by |dv|, 1e-3 at the change to the series, loses.
    identity = testing.complex_step(lambda d: joint.minus(joint.plus(q, d), q), dv)
    close(identity, np.eye(joint.nv), 1e-12)
    along = testing.complex_step(lambda d: joint.T(joint.plus(q, d)), np.zeros(joint.nv))
    twists = np.stack([spatial.vee6(np.linalg.inv(joint.T(q)) @ along[..., k]) for k in range(joint.nv)], -1)
    close(twists, joint.S(q))


@pytest.mark.parametrize("scale", [1e-100, 1e-3, -1.0, 7.0, 1e100])
def test_quaternions_of_any_length(scale):
    rng = np.random.default_rng(12)
    joint = ts.Free()
    q, dv = joint.random(rng), rng.standard_normal(6)
    long = np.concatenate([q[:3], scale * q[3:]])
    close(joint.T(long), joint.T(q))
    close(joint.normalize(long), np.concatenate([q[:3], np.sign(scale) * q[3:]]))
    close(joint.T(joint.plus(long, dv)), joint.T(joint.plus(q, dv)))
    close(np.linalg.norm(joint.plus(long, dv)[3:]), 1)
    close(joint.minus(long, q), np.zeros(6))
    close(joint.minus(joint.plus(q, dv), long), dv)
    model = testing.random_tree(12, [joint, ts.Revolute(A)])
    state = model.random(rng), *rng.standard_normal((2, 7))
    longer = state[0] * [1, 1, 1, scale, scale, scale, scale, 1]
    close(ts.inverse_dynamics(model, longer, *state[1:]), ts.inverse_dynamics(model, *state), 1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 5.0, 1e300])
def test_axes_of_any_length(scale):
    axis = np.array([3, 4, 12])
    for kind in (ts.Revolute, ts.Prismatic, ts.Screw, ts.Cylindrical):
        close(kind(scale * axis).axis, axis / 13)
    close(ts.Planar((scale * X, scale * axis)).directions, [X, axis / 13])
    close(ts.Universal((scale * X, scale * axis)).axes, [X, axis / 13])


# ---- splines


def curve_pose(joint, q):
    """T as the product of all exp(b_i(q) D_i), with SciPy's B-splines added up to b_i. Sueda 2021, (2.74)."""
    frames, count = joint.frames, len(joint.frames)
    T, knots = frames[0].matrix, np.arange(-3.0, count + 1)
    for i in range(1, count):
        step = spatial.log6((frames[i - 1].inverse() @ frames[i]).matrix)
        T = T @ spatial.exp6(step * BSpline(knots, (np.arange(count) >= i) * 1.0, 3, extrapolate=True)(q))
    return T


def surface_pose(joint, q):
    """T as translations and rotations by tensor products of SciPy's B-splines. Sueda 2021, (2.78)."""
    values = np.array(joint.values)
    basis = [BSpline(np.arange(-3.0, n + 1), np.eye(n), 3)(x) for n, x in zip(values.shape[1:], q, strict=True)]
    T = np.eye(4)
    for k, f in enumerate(np.einsum("kij,i,j->k", values, *basis)):
        T = T @ spatial.exp6(f * np.eye(6)[(k + 3) % 6])
    return T


OUTSIDE = [-2.0, -0.3, 0.0, 1.0, 1.7, 2.0, 3.0, 3.4, 6.0]  # the curve's parameter runs from 0 to 3


@pytest.mark.parametrize("q", OUTSIDE)
def test_spline_curve_within_and_beyond_its_range(q):
    assert [float(end[0]) for end in CURVE.range] == [0, 3]
    close(CURVE.T([q]), curve_pose(CURVE, q), 1e-12)
    testing.check_joint(At(CURVE, [q]), tolerance=1e-10)  # rates grow with the cube of the distance outside


@pytest.mark.parametrize("q", [(0, 0), (0.4, 1.7), (1, 2), (-0.5, 0.5), (0.5, 3.1), (2, -1), (1, 1)])
def test_spline_surface_within_and_beyond_its_range(q):
    assert np.array_equal(SURFACE.range, [[0, 0], [1, 2]])
    close(SURFACE.T(q), surface_pose(SURFACE, q), 1e-12)
    testing.check_joint(At(SURFACE, q), tolerance=1e-10)


@pytest.mark.parametrize(
    ("joint", "knot", "move"),
    [(CURVE, [1.0], [1.0]), (CURVE, [2.0], [1.0]), (SURFACE, [0.3, 1.0], [0.0, 1.0])],
)
def test_splines_are_twice_differentiable_at_knots(joint, knot, move):
    before = np.array(knot) - 1e-14 * np.array(move)
    for f in (joint.T, joint.S, joint.dS):  # T, its first and its second derivative; d2S jumps
        close(f(before), f(knot), 1e-12)
    assert np.abs(joint.d2S(before) - joint.d2S(knot)).max() > 1e-3


def test_spline_curve_through_equal_frames_stands_there():
    frame = ts.SE3.rpy(0.1, 0.2, 0.3) @ ts.SE3.translation(1, 2, 3)
    joint = ts.SplineCurve([frame] * 4)
    close(joint.T([0.7]), frame.matrix)
    close(joint.S([0.7]), np.zeros((6, 1)))


# ---- composites and the user's own joints in models


def model_of(rng, joint, split=False):
    """A tree with `joint` in its middle; split: made of its parts, with massless bodies between."""
    rng = np.random.default_rng(rng)
    poses, inertias = (
        [testing.random_pose(rng) for _ in range(3)],
        [testing.random_inertia(rng) for _ in range(3)],
    )
    builder = ts.ModelBuilder(gravity=(1, 2, -9)).add_body("low", "world", ts.Revolute(A), poses[0], inertias[0])
    parent, pose = "low", poses[1]
    parts = joint.joints if split else [joint]
    for k, part in enumerate(parts):
        last = k == len(parts) - 1
        name = "middle" if last else f"between{k}"
        builder.add_body(name, parent, part, pose, inertias[1] if last else None)
        parent, pose = name, None
    return builder.add_body("high", "middle", ts.Revolute(B), poses[2], inertias[2]).build()


def assert_same_dynamics(one, other, rng, tol=1e-12):
    """Torques, accelerations, mass and Coriolis matrices, in one state and in a batch, to rounding."""
    q, v, a = one.random(rng, 9), *rng.standard_normal((2, 9, one.nv))
    assert (one.nq, one.nv) == (other.nq, other.nv)
    for part in (0, slice(None)):
        state = q[part], v[part], a[part]
        tau = ts.inverse_dynamics(one, *state)
        close(ts.inverse_dynamics(other, *state), tau, tol)
        close(ts.mass_matrix(other, q[part]), ts.mass_matrix(one, q[part]), tol)
        close(ts.coriolis_matrix(other, *state[:2]), ts.coriolis_matrix(one, *state[:2]), tol)
        close(ts.forward_dynamics(other, *state[:2], tau), a[part], 1e3 * tol)  # as well as M is conditioned
        close(ts.body_poses(other, q[part])[..., -1, :, :], ts.body_poses(one, q[part])[..., -1, :, :], tol)


@pytest.mark.parametrize(
    "joint",
    [
        ts.Composite(ts.Prismatic(A), ts.Spherical(), ts.Prismatic(B)),
        ts.Composite(ts.Translational(), ts.SphericalEuler("YZX")),
        ts.Composite(ts.SphericalExp(), ts.Translational()),
        ts.Composite(ts.Universal(), ts.Screw(C, 0.3), Knee(), ts.Planar((A, B))),
        ts.Composite(CURVE, SURFACE),
        ts.Composite(ts.Composite(ts.Revolute(A), ts.Fixed()), Cam()),
    ],
    ids=lambda joint: "-".join(type(part).__name__ for part in joint.joints),
)
def test_composite_is_the_chain_of_its_joints(joint):
    assert_same_dynamics(model_of(0, joint), model_of(0, joint, split=True), np.random.default_rng(13))


@pytest.mark.parametrize(
    ("joint", "batched"),
    [(j, b) for j in JOINTS if 0 < j.nq == j.nv for b in (False, True) if not (b and isinstance(j, Knee))],
    ids=lambda x: getattr(x, "chart", type(x).__name__ if isinstance(x, ts.Joint) else x),
)
def test_joints_wrapped_as_custom_ones(joint, batched):
    wrapped = Wrapped(joint, batched)
    testing.check_joint(wrapped, 14)
    assert_same_dynamics(model_of(1, joint), model_of(1, wrapped), np.random.default_rng(14))


class Broken(Knee):
    """A knee of which one method fails, or returns something else, when q is large."""

    def __init__(self, method, result):
        self.method, self.result = method, result

    def fail(self, method, q):
        if self.method == method and q[0] > 10:
            if isinstance(self.result, Exception):
                raise self.result
            return np.asarray(self.result)
        return getattr(super(), method)(q)

    def T(self, q):
        return self.fail("T", q)

    def S(self, q):
        return self.fail("S", q)

    def dS(self, q):
        return self.fail("dS", q)


@pytest.mark.parametrize("method", sweep(["T", "S", "dS"], 3))
@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (ZeroDivisionError("the knee gave way"), ZeroDivisionError, "the knee gave way"),
        (np.zeros(5), ts.ModelError, r"Broken\..* gave shape \(5,\)"),
        (np.array([["a"]]), ts.ModelError, r"Broken\..* gave shape \(1, 1\)"),
    ],
)
def test_errors_in_custom_joints_reach_the_caller(method, result, error, message):
    model = model_of(2, Broken(method, result))
    q, v, tau = np.zeros((140, 3)), np.ones((140, 3)), np.ones((140, 3))  # more than a thread takes at a time
    good = ts.forward_dynamics(model, q, v, tau, threads=2)
    bad = q.copy()
    bad[131, 1] = 11.0
    for f in (ts.forward_dynamics, ts.inverse_dynamics):
        with pytest.raises(error, match=message):
            f(model, bad[131], v[0], tau[0])
        for threads in (1, 2):
            with pytest.raises(error, match=message):
                f(model, bad, v, tau, threads=threads)
    # and nothing is left behind
    assert np.array_equal(ts.forward_dynamics(model, q, v, tau, threads=2), good)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (np.zeros((3, 3)), r"Broken.T gave shape \(3, 3\) and dtype float64, expected \(4, 4\)"),
        (1j * np.eye(4), "Broken.T gave shape .* and dtype complex128, expected .* float64"),
        (None, "Broken.T gave shape .* and dtype object"),
    ],
)
def test_wrong_results_of_custom_joints_are_named(result, expected):
    with pytest.raises(ts.ModelError, match=expected):
        ts.body_poses(model_of(2, Broken("T", result)), [0.0, 11.0, 0.0])


@pytest.mark.parametrize("dofs", [0, 7, -1, True, "2", 2.0, None])
def test_dofs_of_custom_joints(dofs):
    joint = Knee()
    joint.dofs = dofs
    with pytest.raises(ts.ModelError, match=r"dofs is .*, expected an integer from 1 to 6"):
        ts.ModelBuilder().add_body("a", "world", joint)


def test_custom_joints_and_their_models_are_freed():
    joint = Knee()
    model = model_of(2, joint)
    q = joint.plus(joint.neutral, [0.1])
    ts.body_poses(model, np.concatenate([q, q, q]))
    gone = weakref.ref(joint), weakref.ref(model)
    del joint, model
    gc.collect()
    assert [x() for x in gone] == [None, None]


SCRIPT = """
import numpy as np, torsor as ts
class Slide(ts.CustomJoint):
    dofs = 1
    def T(self, q): return ts.Prismatic((1, 0, 0)).T(q)
    def S(self, q): return ts.Prismatic((1, 0, 0)).S(q)
    def dS(self, q): return np.zeros((6, 1, 1))
    def d2S(self, q): return np.zeros((6, 1, 1, 1))
joint = Slide()
model = ts.ModelBuilder().add_body("a", "world", joint).build()
print(ts.body_poses(model, joint.plus([0.5], [0.5]))[0, 0, 3])
"""


def test_a_script_with_a_custom_joint_ends_in_silence(tmp_path):
    # its class, model and module hold each other; started elsewhere, it finds the package where this process did
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("1.0\n", "")


def test_custom_joints_may_call_the_library():
    class Nested(Knee):
        def T(self, q):
            assert np.isfinite(ts.forward_dynamics(inner, np.full((300, 1), q[0].real), ones, ones, threads=2)).all()
            return super().T(q)

    inner, ones = ts.models.pendulum(), np.ones((300, 1))
    q, v = np.random.default_rng(15).standard_normal((2, 300, 3))
    nested, plain = model_of(3, Nested()), model_of(3, Knee())
    assert np.array_equal(ts.inverse_dynamics(nested, q, v, v, threads=2), ts.inverse_dynamics(plain, q, v, v))


# ---- what makes no sense

FRAMES = [ts.SE3.translation(k, 0, 0) for k in range(4)]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        *((lambda kind=kind: kind((0, 0, 0)), ValueError, "axis is zero, expected a vector")
          for kind in (ts.Revolute, ts.Prismatic, ts.Screw, ts.Cylindrical)),
        (lambda: ts.Revolute((np.nan, 0, 1)), ValueError, "axis is not finite"),
        (lambda: ts.Revolute((np.inf, 0, 1)), ValueError, "axis is not finite"),
        (lambda: ts.Revolute((1, 0)), ValueError, r"axis has shape \(2,\), expected \(3,\)"),
        (lambda: ts.Revolute("z"), ValueError, "axis has dtype"),
        (lambda: ts.Revolute((1j, 0, 0)), ValueError, "axis has dtype complex128"),
        (lambda: ts.Screw(Z, np.inf), ValueError, "pitch is not finite"),
        (lambda: ts.Screw(Z, (1, 2)), ValueError, "pitch has shape"),
        (lambda: ts.Planar((X, -2 * X)), ValueError, "parallel"),
        (lambda: ts.Planar((X, 0 * X)), ValueError, r"directions\[1\] is zero"),
        (lambda: ts.Planar(X), ValueError, r"directions has shape \(3,\)"),
        (lambda: ts.Universal((A, A)), ValueError, "parallel"),
        (lambda: ts.SphericalEuler("XXY"), ValueError, "no chart 'XXY'; charts are XYX"),
        (lambda: ts.SphericalEuler("zyx"), ValueError, "no chart 'zyx'"),
        (lambda: ts.SphericalEuler().switch("XYZZ", np.zeros(3)), ValueError, "no chart"),
        (lambda: ts.Composite(ts.Revolute(), "hinge"), TypeError, "Composite takes joints, got str"),
        (lambda: ts.Composite(ts.Revolute), TypeError, "Composite takes joints"),
        (lambda: ts.SplineCurve(FRAMES[:3]), ValueError, "needs 4 frames at least, got 3"),
        (lambda: ts.SplineCurve([*FRAMES, np.eye(4)]), TypeError, "must be SE3"),
        (lambda: ts.SplineCurve([*FRAMES, ts.SE3.rotation(X, np.pi)]), ValueError, "3 and 4 are half"),
        (lambda: ts.SplineSurface(np.zeros((6, 3, 4))), ValueError, r"\(6, 3, 4\), expected \(6, m, n\)"),
        (lambda: ts.SplineSurface(np.zeros((5, 4, 4))), ValueError, r"expected \(6, m, n\)"),
        (lambda: ts.SplineSurface(np.full((6, 4, 4), np.nan)), ValueError, "not finite"),
        (lambda: ts.Revolute().T([1, 2]), ValueError, r"q has shape \(2,\), expected \(..., 1\)"),
        (lambda: ts.Free().plus(np.zeros(6), np.zeros(6)), ValueError, r"q has shape \(6,\), expected .*7"),
        (lambda: ts.Free().minus(np.zeros(7), [1j] * 7), TypeError, "q0 is complex"),
        (lambda: ts.Joint(), TypeError, "abstract"),
        (lambda: ts.CustomJoint(), TypeError, "abstract"),
    ],
)  # fmt: skip
def test_errors(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_joints_are_frozen():
    for joint, name in ((ts.Revolute(), "axis"), (ts.SphericalEuler(), "chart"), (CURVE, "frames")):
        with pytest.raises(AttributeError):
            setattr(joint, name, None)


def test_check_joint_finds_mistakes():
    class Wrong(Knee):
        def __init__(self, method):
            self.method = method

        def S(self, q):
            return super().S(q) * (1 + 1e-6 * (self.method == "S"))

        def dS(self, q):
            return super().dS(q) + 1e-6 * (self.method == "dS")

        def d2S(self, q):
            return super().d2S(q) + 1e-6 * (self.method == "d2S")

        def T(self, q):
            return super().T(q) * (1 + 1e-6 * (self.method == "T"))

    testing.check_joint(Wrong("nothing"), 0)
    for method, name in (
        ("S", "S is off"),
        ("dS", "dS is off"),
        ("d2S", "d2S is off"),
        ("T", "T's rotation is off"),
    ):
        with pytest.raises(AssertionError, match=name):
            testing.check_joint(Wrong(method), 0)


@pytest.mark.parametrize("length", [1e-310, 1e-300, 1e-160, 1e-20, 1e20, 1e160, 1e300])
@pytest.mark.parametrize("joint", [ts.Spherical(), ts.Free()], ids=["Spherical", "Free"])
def test_quaternions_of_any_length_mean_their_direction(joint, length):
    q = joint.random(np.random.default_rng(1))
    scaled = q.copy()
    scaled[-4:] *= length
    # 1e-5 where the components are denormal numbers, which have few digits
    tolerance = 1e-5 if length < 1e-307 else 1e-14
    np.testing.assert_allclose(joint.T(scaled), joint.T(q), atol=tolerance)
    np.testing.assert_allclose(joint.normalize(scaled), q, atol=tolerance)


def test_joints_are_not_models():
    with pytest.raises(TypeError, match=r"model must be a torsor\.Model, got Revolute"):
        ts.inverse_dynamics(ts.Revolute(), [0.0], [0.0], [0.0])
    with pytest.raises(ValueError, match=r"q has shape \(99,\), expected \(\.\.\., 5\)"):
        ts.Composite(ts.Revolute(), ts.Spherical()).T(np.zeros(99))


def test_axes_survive_their_own_text():
    for joint in (ts.Revolute((0.3, -0.5, 0.8)), ts.Screw((1, 2, 3), 0.1), ts.Universal(((1, 1, 0), (0, 1, 1)))):
        assert eval(repr(joint), vars(ts)) == joint


def test_switching_into_a_singular_chart_names_it():
    old = ts.SphericalEuler("ZYX")
    with pytest.raises(ValueError, match=r"ZXZ.* is singular at this rotation"):
        old.switch("ZXZ", [0.4, 0.0, 0.0], [1.0, 0.0, 0.0])
    with pytest.raises(TypeError, match="switch needs v"):
        old.switch("XYZ", [0.4, 0.1, 0.0], a=[1.0, 0.0, 0.0])
