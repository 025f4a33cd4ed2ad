"""Couplings q = phi(z): every function of a coupled model against the tree and the chain rule, and by complex step."""

import pickle

import numpy as np
import pytest

import torsor as ts
from torsor.testing import complex_inputs


class Bend(ts.CustomCoupling):
    """y = A z + b + e sin(B z) with parameters e."""

    batched = True

    def __init__(self, joints, of=(), names=(), seed=0):
        rng = np.random.default_rng(seed)
        self.joints, self.of, self.names = tuple(joints), tuple(of), tuple(names)
        k, m = len(self.joints), len(self.of) + len(self.names)
        self.A, self.b, self.B = rng.standard_normal((k, m)), rng.standard_normal(k), rng.standard_normal((k, m))
        self.p = 0.3 + 0.2 * rng.standard_normal(k)

    def __eq__(self, other):
        mine, its = vars(self), vars(other) if isinstance(other, Bend) else {}
        return mine.keys() == its.keys() and all(np.array_equal(np.array(x, object), np.array(its[k], object))
                                                 for k, x in mine.items())  # fmt: skip

    def _angle(self, z):
        return np.einsum("ij,...j->...i", self.B, z)

    def phi(self, z, p):
        return np.einsum("ij,...j->...i", self.A, z) + self.b + p * np.sin(self._angle(z))

    def dphi(self, z, p):
        return self.A + (p * np.cos(self._angle(z)))[..., None] * self.B

    def d2phi(self, z, p):
        return np.einsum("...i,ij,ik->...ijk", -p * np.sin(self._angle(z)), self.B, self.B)

    def d3phi(self, z, p):
        return np.einsum("...i,ij,ik,il->...ijkl", -p * np.cos(self._angle(z)), self.B, self.B, self.B)


def tree(seed=0):
    """A tree with joints of all kinds, among them several of vectors."""
    rng = np.random.default_rng(seed)

    def inertia():
        return ts.Inertia.box(
            mass=rng.uniform(0.5, 2.0), size=rng.uniform(0.1, 0.5, 3), com=0.2 * rng.standard_normal(3)
        )

    def placement():
        return ts.SE3.exp(0.5 * rng.standard_normal(6))

    joints = [
        ("base", "world", ts.Free()),
        ("hip", "base", ts.Revolute((0, 1, 0))),
        ("knee", "hip", ts.Revolute((1, 1, 0))),
        ("ball", "knee", ts.Spherical()),
        ("slide", "base", ts.Prismatic((0, 0, 1))),
        ("wrist", "slide", ts.Universal()),
        ("screw", "wrist", ts.Screw((1, 0, 0), 0.2)),
        ("exp", "slide", ts.SphericalExp()),
        ("tip", "exp", ts.Revolute((0, 0, 1))),
        ("toe", "ball", ts.Prismatic((1, 0, 0))),
    ]
    b = ts.ModelBuilder()
    for name, parent, joint in joints:
        b.add_body(name, parent, joint, placement(), inertia())
    return b.build()


MAPS = {
    "mimic": (ts.Mimic("tip", of="hip", ratio=-0.7, offset=0.2), ts.Mimic("slide", of="tip", ratio=1.5)),
    "subspace": (
        ts.Subspace(
            ["hip", "knee", "wrist", "toe"],
            np.random.default_rng(5).standard_normal((5, 2)),
            np.linspace(-0.3, 0.3, 5),
            ["bend", "twist"],
        ),
        ts.Mimic("tip", of="bend", ratio=0.4),
    ),
    "polynomial": (
        ts.Polynomial("knee", of="hip", coefficients=(0.1, 0.8, -0.4, 0.3, 0.1), origin=0.3),
        ts.Mimic("tip", of="knee", ratio=-0.6, offset=0.1),
        ts.Polynomial("toe", of="knee", coefficients=(0.0, 0.5, 0.4)),
    ),
    "custom": (
        Bend(["knee", ("wrist", 1), ("exp", 0), ("exp", 1), ("exp", 2)], of=["hip", "slide"]),
        ts.Mimic("tip", of="knee", ratio=-1.3),
        ts.Mimic("slide", of="toe", ratio=0.5),
    ),
    "modes": (Bend(["hip", "knee", "slide", "tip"], names=["x", "y"], seed=2),),
}


@pytest.fixture(scope="module", params=MAPS)
def coupled(request):
    return tree().couple(*MAPS[request.param])


def state(model, seed=3, size=None):
    rng = np.random.default_rng(seed)
    shape = (model.nv,) if size is None else (size, model.nv)
    return (model.random(rng, size), *(rng.standard_normal(shape) for _ in range(4)))


def close(a, b, tolerance=1e-11):
    scale = max(1.0, np.abs(b).max(initial=0.0))
    np.testing.assert_allclose(a, b, atol=tolerance * scale, rtol=0)


def along(model, f, q, d, step=1e-30):
    """The derivative of f along d in the tangent space, by complex step."""
    with complex_inputs():
        return np.imag(f(model.plus(q, 1j * step * d))) / step


def columns(model, f, q):
    """The derivative of f in the tangent space at q, by complex step; the last axis are directions."""
    return np.stack([along(model, f, q, e) for e in np.eye(model.nv)], axis=-1)


def directional(f, x, step=1e-30):
    with complex_inputs():
        return np.stack([np.imag(f(x + 1j * step * e)) / step for e in np.eye(len(x))], axis=-1)


# ---- the map


def test_expansion_is_the_users_function():
    model = tree()
    joint, hand = model.joint, model.couple(*MAPS["mimic"])
    q, v, *_ = state(hand)
    full, rate = hand.expand(q), hand.expand_velocity(q, v)
    assert (hand.nq, hand.nv) == (model.nq - 2, model.nv - 2)
    close(full[joint("tip").q_slice], -0.7 * full[joint("hip").q_slice] + 0.2)
    close(full[joint("slide").q_slice], 1.5 * full[joint("tip").q_slice])
    close(rate[joint("slide").v_slice], -1.05 * rate[joint("hip").v_slice])
    for name in ("base", "ball", "hip", "wrist"):  # pass through
        np.testing.assert_array_equal(full[joint(name).q_slice], q[hand.joint(name).q_slice])
    leg = model.couple(*MAPS["polynomial"])
    q, *_ = state(leg)
    full = leg.expand(q)
    x = full[joint("hip").q_slice] - 0.3
    knee = 0.1 + 0.8 * x - 0.4 * x**2 + 0.3 * x**3 + 0.1 * x**4
    close(full[joint("knee").q_slice], knee)
    close(full[joint("tip").q_slice], -0.6 * knee + 0.1)
    close(full[joint("toe").q_slice], 0.5 * knee + 0.4 * knee**2)
    rope = model.couple(*MAPS["subspace"])
    q, *_ = state(rope)
    subspace, full = MAPS["subspace"][0], rope.expand(q)
    given = np.concatenate([full[joint(name).q_slice] for name in ("hip", "knee", "wrist", "toe")])
    close(given, subspace.origin + subspace.basis @ q[-2:])
    close(full[joint("tip").q_slice], 0.4 * q[-2:-1])


def test_derivatives_of_the_map(coupled):
    q, v, a, *_ = state(coupled)
    P = coupled.coupling_jacobian(q)
    vector = np.concatenate([np.full(j.nv, j.nq == j.nv) for j in coupled.tree.joints])
    rows = np.concatenate([np.full(j.nq, j.nq == j.nv) for j in coupled.tree.joints])
    close(P[vector], columns(coupled, coupled.expand, q)[rows])
    close(coupled.expand_velocity(q, v), P @ v)
    rate = along(coupled, lambda x: coupled.expand_velocity(x, v), q, v)
    close(coupled.expand_acceleration(q, v, a), P @ a + rate)


def test_batches_lanes_and_single_states_agree_to_the_last_bit(coupled):
    q, v, a, *_ = state(coupled, size=19)
    rows = ts.inverse_dynamics(coupled, q, v, a)
    for i in (0, 7, 18):
        np.testing.assert_array_equal(rows[i], ts.inverse_dynamics(coupled, q[i], v[i], a[i]))
    np.testing.assert_array_equal(rows, ts.inverse_dynamics(coupled, q, v, a, threads=2))
    np.testing.assert_array_equal(coupled.plus(q, v)[3], coupled.plus(q[3], v[3]))


# ---- values


def test_inverse_dynamics_mass_matrix_and_momenta(coupled):
    q, v, a, *_ = state(coupled)
    Q, V, A, P = (
        coupled.expand(q), coupled.expand_velocity(q, v), coupled.expand_acceleration(q, v, a),
        coupled.coupling_jacobian(q),
    )  # fmt: skip
    model = coupled.tree
    f = np.random.default_rng(1).standard_normal((model.nbodies, 6))
    close(ts.inverse_dynamics(coupled, q, v, a, f_ext=f), P.T @ ts.inverse_dynamics(model, Q, V, A, f_ext=f))
    rest = coupled.expand_acceleration(q, v, 0 * a)
    close(ts.bias_forces(coupled, q, v), P.T @ ts.inverse_dynamics(model, Q, V, rest))
    close(ts.gravity_forces(coupled, q), P.T @ ts.gravity_forces(model, Q))
    M = ts.mass_matrix(coupled, q)
    close(M, P.T @ ts.mass_matrix(model, Q) @ P)
    np.testing.assert_array_equal(M, M.T)
    close(M @ a, ts.inverse_dynamics(coupled, q, v, a) - ts.bias_forces(coupled, q, v))
    close(ts.generalized_momenta(coupled, q, v), M @ v)
    close(ts.kinetic_energy(coupled, q, v), v @ M @ v / 2)
    close(along(coupled, lambda x: ts.potential_energy(coupled, x), q, v), ts.gravity_forces(coupled, q) @ v)
    close(ts.momentum(coupled, q, v), ts.momentum_matrix(coupled, q) @ v)
    close(ts.joint_reactions(coupled, q, v, a), ts.joint_reactions(model, Q, V, A))
    Y = ts.inertial_regressor(coupled, q, v, a)
    close(Y @ model.inertial_parameters, ts.inverse_dynamics(coupled, q, v, a))


def test_inverse_dynamics_is_lagranges_equation(coupled):
    """d/dt dL/dv - dL/dq, with L of the coupled model alone: nothing of the tree's chain rule."""
    q, v, a, *_ = state(coupled)
    vectors = [k for k, p in enumerate(coupled._map.position) if p >= 0]  # momenta of rotations have another equation
    p = lambda x, y: ts.generalized_momenta(coupled, x, y)  # noqa: E731
    rate = along(coupled, lambda x: p(x, v), q, v) + p(q, a)
    dL = columns(coupled, lambda x: ts.kinetic_energy(coupled, x, v) - ts.potential_energy(coupled, x), q)
    close((rate - dL)[vectors], ts.inverse_dynamics(coupled, q, v, a)[vectors])


def test_kinematics(coupled):
    q, v, a, *_ = state(coupled)
    Q = coupled.expand(q)
    close(ts.body_poses(coupled, q), ts.body_poses(coupled.tree, Q))
    points = np.random.default_rng(4).standard_normal((2, 3))
    bodies = ["toe", "tip"]
    close(ts.point_jacobian(coupled, q, bodies, points),
          columns(coupled, lambda x: ts.point_positions(coupled, x, bodies, points), q))  # fmt: skip
    close(ts.center_of_mass_jacobian(coupled, q), columns(coupled, lambda x: ts.center_of_mass(coupled, x), q))
    J = ts.maximal_jacobian(coupled, q)
    V = ts.body_velocities(coupled, q, v)
    close(V.ravel(), J @ v)
    close(ts.jacobian(coupled, q, "toe") @ v, V[[b.name for b in coupled.bodies].index("toe")])
    close(ts.jacobian_product(coupled, q, v), V)
    y = np.random.default_rng(5).standard_normal(V.shape)
    close(ts.jacobian_transpose_product(coupled, q, y), J.T @ y.ravel())
    rate = along(coupled, lambda x: ts.body_velocities(coupled, x, v), q, v)
    close(ts.body_accelerations(coupled, q, v, a), (J @ a).reshape(-1, 6) + rate)


def test_configurations(coupled):
    q, v, *_ = state(coupled)
    q1 = coupled.plus(q, v)
    close(coupled.minus(coupled.plus(q, 0.3 * v), q), 0.3 * v)
    close(coupled.normalize(2.0 * coupled.neutral), coupled.neutral)
    for joint in coupled.joints:
        if joint.nq == joint.nv:
            close(q1[joint.q_slice], q[joint.q_slice] + v[joint.v_slice])
    with pytest.raises(ValueError, match="quaternion of length 0 at joint 'base'"):
        ts.body_poses(coupled, np.zeros(coupled.nq))


# ---- descriptions


def test_names_rings_and_limits():
    model = tree()
    with pytest.raises(ts.ModelError, match="ring: joint 'hip' follows joint 'tip' follows joint 'hip'"):
        model.couple(ts.Mimic("hip", of="tip"), ts.Mimic("tip", of="hip"))
    with pytest.raises(ts.ModelError, match="'ball', a Spherical joint"):
        model.couple(ts.Mimic("ball", of="hip"))
    with pytest.raises(ts.ModelError, match="'tip' is coupled twice"):
        model.couple({"tip": ("hip", 1.0)}, {"tip": ("knee", 1.0)})
    with pytest.raises(KeyError, match="no joint named 'elbow'"):
        model.couple(ts.Mimic("elbow", of="hip"))
    with pytest.raises(ts.ModelError, match="rank 1, expected 2"):
        ts.Subspace(["hip", "knee"], np.ones((2, 2)))
    with pytest.raises(ts.ModelError, match="3 rows, expected 2"):
        model.couple(ts.Subspace(["hip", "knee"], np.ones((3, 1))))
    with pytest.raises(ts.ModelError, match="coordinates to 'hip' with 1"):
        model.couple(ts.Mimic("wrist", of="hip"))
    hand = model.couple({"tip": ("hip", -0.5, 0.1)})
    assert hand.couplings == (ts.Mimic("tip", "hip", -0.5, 0.1),)
    assert hand.joint("tip").v_slice.start == hand.joint("tip").v_slice.stop
    assert hand.joint("tip").follows == ("hip",)
    assert "follows hip" in str(hand)
    assert hand.tree == model
    with pytest.raises(ts.ModelError, match="'tip' follows 'hip' by a coupling"):
        ts.hybrid_dynamics(hand, *state(hand)[:2], prescribed=["tip"])


def test_limits_are_intersections():
    b = ts.ModelBuilder()
    limits = {"a": (-1.0, 2.0), "b": (-0.5, 0.5), "c": (-9.0, 9.0)}
    for name, (low, high) in limits.items():
        b.add_body(name, joint=ts.Revolute(), inertia=ts.Inertia.point(1.0, (1, 0, 0)),
                   position_limits=(low, high), velocity_limits=3.0, effort_limits=5.0)  # fmt: skip
    model = b.build().couple(ts.Mimic("b", of="a", ratio=-0.5, offset=0.1), ts.Mimic("c", of="b", ratio=4.0))
    lower, upper = model.position_limits
    np.testing.assert_allclose((lower, upper), ([-0.8], [1.2]))
    np.testing.assert_allclose((model.velocity_limits, model.effort_limits), ([1.5], [5.0]))
    q = model.random(1, 50)
    assert ((q >= lower) & (q <= upper)).all()
    assert q.std() > 0.3
    with pytest.raises(ts.ModelError, match="limits of joint 'b' leave no position for joint 'a'"):
        b.build().couple(ts.Mimic("b", of="a", ratio=1.0, offset=7.0))


def test_models_are_values(coupled):
    again = pickle.loads(pickle.dumps(coupled))
    assert again == coupled
    q, v, a, *_ = state(coupled)
    np.testing.assert_array_equal(ts.inverse_dynamics(again, q, v, a), ts.inverse_dynamics(coupled, q, v, a))
    light = coupled.with_gravity((0, 0, 0))
    assert light.couplings == coupled.couplings
    close(ts.gravity_forces(light, q), np.zeros(coupled.nv))


def test_functions_without_couplings_say_so(coupled):
    q, v, *_ = state(coupled)
    with pytest.raises(ts.CouplingError, match="simulate does not take models with couplings"):
        ts.simulate(coupled, q, v, steps=2, integrator=ts.BDF1(h=0.01))
