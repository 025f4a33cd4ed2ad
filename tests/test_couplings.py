"""Couplings q = phi(z): values of every function of a coupled model against the tree, and descriptions."""

import pickle

import numpy as np
import pytest
from coupled_models import MAPS, RANDOM, Bend, along, close, columns, coupled_model, state, tree
from functions import FUNCTIONS

import torsor as ts


@pytest.fixture(scope="module", params=MAPS)
def coupled(request):
    return tree().couple(*MAPS[request.param])


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
    with pytest.raises(ts.CouplingError, match="maximal does not take models with couplings"):
        coupled.maximal()


# ---- solves


def test_forward_and_hybrid_dynamics_invert_inverse_dynamics(coupled):
    q, v, a, *_ = state(coupled)
    f = np.random.default_rng(1).standard_normal((coupled.nbodies, 6))
    for frame in ("body", "world"):
        tau = ts.inverse_dynamics(coupled, q, v, a, f_ext=f, f_ext_frame=frame)
        close(ts.forward_dynamics(coupled, q, v, tau, f_ext=f, f_ext_frame=frame), a, 1e-10)
    tau = ts.inverse_dynamics(coupled, q, v, a)
    held = np.arange(coupled.nv) % 3 == 0
    found = ts.hybrid_dynamics(coupled, q, v, a=np.where(held, a, 7.0), tau=np.where(held, 7.0, tau), prescribed=held)
    close(found[0], a, 1e-10)
    close(found[1], tau, 1e-10)
    batch = ts.forward_dynamics(coupled, *(np.stack([x] * 9) for x in (q, v, tau)))
    np.testing.assert_array_equal(batch, np.broadcast_to(ts.forward_dynamics(coupled, q, v, tau), batch.shape))


def test_mass_matrix_solves(coupled):
    q, x, d, *_ = state(coupled)
    M = ts.mass_matrix(coupled, q)
    close(M @ ts.mass_matrix_solve(coupled, q, x), x)
    close(M @ ts.mass_matrix_inverse(coupled, q), np.eye(coupled.nv))
    B = np.random.default_rng(2).standard_normal((coupled.nbodies, 6, 6))
    B = B @ np.swapaxes(B, 1, 2)
    J = ts.maximal_jacobian(coupled, q).reshape(-1, 6, coupled.nv)
    A = M + np.diag(d**2) + np.einsum("bij,bik,bkl->jl", J, B, J)
    close(A @ ts.mass_matrix_solve(coupled, q, x, joint_terms=d**2, body_terms=B), x)


@pytest.mark.parametrize("name", ["mimic", "polynomial", "custom"])
def test_three_solvers_agree(name):
    model = tree().couple(*MAPS[name])
    q, v, tau, *_ = state(model)
    found = []
    for solver in range(3):
        other = tree().couple(*MAPS[name])
        core = other.tree._core.__class__(*_compiled(other))
        core.couple(*other._map.compiled(solver))
        other.__dict__["_core"] = core
        found.append(ts.forward_dynamics(other, q, v, tau))
    close(found[1], found[0], 1e-10)
    close(found[2], found[0], 1e-10)


def _compiled(model):
    from torsor._compile import compile_tree

    return compile_tree(model._tree(), np.array(model.gravity), model.armature)


@pytest.mark.parametrize("n", [60, 300])
def test_long_chains(n):
    """Forward dynamics by multipliers, with few followers, and by columns, with few modes."""
    b = ts.ModelBuilder()
    link = ts.Inertia.box(mass=1.0, size=(0.1, 0.1, 0.3), com=(0, 0, 0.15))
    for k in range(n):
        b.add_body(f"l{k}", "world" if k == 0 else f"l{k - 1}", ts.Revolute((k % 2, 1 - k % 2, 0)),
                   ts.SE3.translation(0, 0, 0.3), link, armature=0.2)  # fmt: skip
    rng = np.random.default_rng(0)
    for couplings in (
        [ts.Mimic("l7", of="l40", ratio=0.5), ts.Mimic("l9", of="l7", ratio=-2.0)],
        [ts.Subspace(None, rng.standard_normal((n, 3)))],
    ):
        model = b.build().couple(*couplings)
        q, v, a = 0.1 * rng.standard_normal((3, 9, model.nv))
        tau = ts.inverse_dynamics(model, q, v, a)
        close(ts.forward_dynamics(model, q, v, tau), a, 1e-7)
        P, Q = model.coupling_jacobian(q[0]), model.expand(q[0])
        tree_tau = ts.inverse_dynamics(model.tree, Q, P @ v[0], P @ a[0])
        close(tau[0], P.T @ tree_tau)


def test_singular_mass_matrices_name_the_joint():
    b = ts.ModelBuilder()
    b.add_body("a", joint=ts.Revolute((0, 0, 1)), inertia=ts.Inertia.point(1.0, (1, 0, 0)))
    b.add_body("b", "a", joint=ts.Revolute((0, 0, 1)))  # massless
    b.add_body("c", "a", joint=ts.Prismatic((0, 0, 1)))
    light = b.build().couple(ts.Mimic("c", of="b"))
    with pytest.raises(ts.SingularMassMatrixError, match="at joint 'b'"):
        ts.forward_dynamics(light, np.zeros(2), np.zeros(2), np.zeros(2))
    modes = b.build().couple(ts.Subspace(["b", "c"], [[1.0], [2.0]], names=["bend"]))
    with pytest.raises(ts.SingularMassMatrixError, match="at joint 'bend'"):
        ts.forward_dynamics(modes, np.zeros(2), np.zeros(2), np.zeros(2))


def test_coriolis_matrix(coupled):
    q, v, *_ = state(coupled)
    C = ts.coriolis_matrix(coupled, q, v)
    close(C @ v, ts.bias_forces(coupled, q, v) - ts.gravity_forces(coupled, q))
    S = along(coupled, lambda x: ts.mass_matrix(coupled, x), q, v) - 2.0 * C
    close(S, -S.T)


def test_rates_of_jacobians(coupled):
    q, v, x, *_ = state(coupled)
    rate = along(coupled, lambda y: ts.maximal_jacobian(coupled, y), q, v)
    close(ts.maximal_jacobian_dot(coupled, q, v), rate)
    close(ts.jacobian_dot_product(coupled, q, v, x).ravel(), rate @ x)


def test_forces_act_on_the_tree(coupled):
    q, v, *_ = state(coupled)
    model, P = coupled.tree, coupled.coupling_jacobian(q)
    Q, V = coupled.expand(q), coupled.expand_velocity(q, v)
    forces = [ts.JointSpring("tip", 3.0), ts.JointDamping(None, 0.4), ts.BodyDamping("toe", 0.2),
              ts.PointSpring("tip", (0, 0, 1), "world", (1, 0, 0), 2.0, 0.3)]  # fmt: skip
    close(ts.generalized_forces(coupled, forces, q, v), P.T @ ts.generalized_forces(model, forces, Q, V))
    close(ts.force_energies(coupled, forces, q), ts.force_energies(model, forces, Q))


def test_the_same_coupling_as_a_constraint():
    """Forward dynamics in reduced coordinates and with multipliers for the followers."""
    model = tree()
    hand = model.couple(
        ts.Mimic("tip", of="hip", ratio=-0.7, offset=0.2), ts.Polynomial("toe", "knee", (0.1, 0.5, 0.3))
    )
    rows = [
        ts.Coupling(["tip", "hip"], (1.0, 0.7), offset=0.2),
        ts.PolynomialCoupling("knee", "toe", (0.1, 0.5, 0.3)),
    ]
    q, v, tau, *_ = state(hand)
    P = hand.coupling_jacobian(q)
    full = np.linalg.lstsq(P.T, tau, rcond=None)[0]  # any torques that are equivalent
    found = ts.constrained_forward_dynamics(model, rows, hand.expand(q), hand.expand_velocity(q, v), full)
    a = ts.forward_dynamics(hand, q, v, tau)
    close(hand.expand_acceleration(q, v, a), found.a, 1e-10)
    close(ts.constraint_errors(hand, rows, q, v, a).g, np.zeros(2))
    close(ts.constraint_errors(hand, rows, q, v, a).gdot, np.zeros(2))
    close(ts.constraint_errors(hand, rows, q, v, a).gamma, np.zeros(2))
    close(ts.constraint_jacobian(hand, rows, q), np.zeros((2, hand.nv)))


# ---- editing, costs, checks


def test_lock_of_a_leader_locks_its_followers():
    model = tree().couple(*MAPS["polynomial"])
    q = state(model)[0]
    hip = q[model.joint("hip").q_slice]
    locked = model.lock({"hip": hip})
    assert locked.couplings == ()
    assert locked.nv == model.nv - 1
    full = model.expand(q)
    rest = model.tree.lock({name: full[model.tree.joint(name).q_slice] for name in ("hip", "knee", "tip", "toe")})
    assert [j.name for j in locked.joints] == [j.name for j in rest.joints]
    x = rest.random(1)
    close(ts.mass_matrix(locked, x), ts.mass_matrix(rest, x))
    with pytest.raises(ts.ModelError, match="lock 'hip' in its place"):
        model.lock({"knee": 0.1})
    rope = tree().couple(*MAPS["subspace"])
    q = state(rope)[0]
    stiff = rope.lock({"twist": q[-1]})  # the other mode remains
    assert (stiff.nv, stiff.couplings[0].names) == (rope.nv - 1, ("bend",))
    close(stiff.expand(q[:-1]), rope.expand(q))
    rigid = rope.lock({"bend": q[-2], "twist": [q[-1]]})  # and with it all joints, and what follows it
    assert rigid.couplings == ()
    assert {"hip", "knee", "wrist", "toe", "tip"}.isdisjoint(j.name for j in rigid.joints)
    with pytest.raises(ValueError, match=r"position of 'bend' is .*, expected a finite number: a new coordinate"):
        rope.lock({"bend": [0.1, 0.2]})
    one = tree().couple(*MAPS["mimic"]).lock({"knee": 0.2})
    assert one.couplings == MAPS["mimic"]
    with pytest.raises(ts.ModelError, match="cannot be locked in part"):
        tree().couple(Bend(["tip"], of=["hip", "knee"])).lock({"hip": 0.0})


def test_editing_keeps_couplings():
    hand = tree().couple(*MAPS["mimic"])
    two = ts.ModelBuilder().build().attach(hand, prefix="l_").attach(hand, prefix="r_")
    assert two.nv == 2 * hand.nv
    assert two.joint("l_slide").follows == ("l_tip",)
    q, v, a, *_ = state(hand)
    both = ts.inverse_dynamics(two, np.tile(q, 2), np.tile(v, 2), np.tile(a, 2))
    close(both, np.tile(ts.inverse_dynamics(hand, q, v, a), 2))
    assert ts.ModelBuilder.from_model(hand).build() == hand
    assert hand.without("toe").couplings == MAPS["mimic"]
    with pytest.raises(ts.ModelError, match="cuts apart joints that Mimic"):
        hand.without("tip")
    rope = tree().couple(ts.Subspace(None, np.eye(11)[:, :2]))
    assert rope.couplings[0].joints is not None


def test_costs_are_those_of_the_tree(coupled):
    q, v, *_ = state(coupled)
    cost = (
        ts.PositionTarget([0.3], joints="tip", at=0)
        + 0.5 * ts.VelocityTarget([0.2], joints="knee", at=0)
        + ts.PointTarget("toe", (0.1, 0, 0), (1.0, 0.0, 0.5), at=0)
    )
    found = cost.evaluate(coupled, q, v, hessians=True)
    tree_value = cost.evaluate(coupled.tree, coupled.expand(q), coupled.expand_velocity(q, v)).value
    close(found.value, tree_value)
    h, e = 1e-5, np.eye(coupled.nv)
    value = lambda x, y: cost.evaluate(coupled, x, y)  # noqa: E731
    close(found.dq, [(value(coupled.plus(q, h * d), v).value - value(coupled.plus(q, -h * d), v).value) / (2 * h)
                     for d in e], 1e-7)  # fmt: skip
    close(found.dv, [(value(q, v + h * d).value - value(q, v - h * d).value) / (2 * h) for d in e], 1e-7)
    vectors = [k for k, p in enumerate(coupled._map.position) if p >= 0]
    slope = np.stack(
        [(value(coupled.plus(q, h * d), v).dq - value(coupled.plus(q, -h * d), v).dq) / (2 * h) for d in e]
    )
    close(found.dqdq[np.ix_(vectors, vectors)], slope[np.ix_(vectors, vectors)], 1e-7)
    close(found.dqdv, np.stack([(value(q, v + h * d).dq - value(q, v - h * d).dq) / (2 * h) for d in e], -1), 1e-7)
    close(found.dvdv, np.stack([(value(q, v + h * d).dv - value(q, v - h * d).dv) / (2 * h) for d in e], -1), 1e-7)


def test_check_coupling():
    ts.testing.check_coupling(Bend(["a", "b"], of=["c", "d", "e"]), 1)

    class Wrong(Bend):
        def d2phi(self, z, p):
            return 1.01 * super().d2phi(z, p)

    with pytest.raises(AssertionError, match="d2phi is off"):
        ts.testing.check_coupling(Wrong(["a", "b"], of=["c", "d"]), 1)


# ---- all functions

OF_THE_TREE = {
    "expand",
    "expand_velocity",
    "expand_acceleration",
    "coupling_jacobian",
}  # in the shapes of their results
ALL = [name for name, f in FUNCTIONS.items() if "step" not in name and not f.simulates and name not in OF_THE_TREE]


@pytest.mark.parametrize("name", ALL)
def test_every_function_takes_coupled_models(name):
    model, function = tree().couple(*MAPS["polynomial"]), FUNCTIONS[name]
    result = function(model, *function.arguments(model))
    parts = result if isinstance(result, tuple) else (result,)
    shapes = [np.shape(x) for x in parts if not isinstance(x, (tuple, dict))]
    expected = function.shapes(model)
    if "armature" in getattr(result, "_fields", ()):  # of all joints
        expected[result._fields.index("armature")] = (model.tree.nv,)
    assert shapes[: len(expected)] == expected


# ---- states of the tree


@pytest.mark.parametrize("name", [*MAPS, *RANDOM[:3]])
def test_reduce_is_the_inverse_of_expand(name):
    model = coupled_model(name)
    q, v, *_ = state(model, size=4)
    Q, V = model.expand(q), model.expand_velocity(q, v)
    found = model.reduce(Q, V, near=model.plus(q, 0.05 * np.ones(model.nv)))
    close(found[0], q)
    close(found[1], v)
    if name != "modes" and "random" not in name:  # without nonlinear functions of new coordinates
        close(model.reduce(Q), q)
    Q[2, model._map.rows()[0]] += 0.1 * np.arange(1, 1 + len(model._map.rule)) ** 2
    with pytest.raises(ts.ConstraintError, match="tree_q does not fulfil the couplings of the model: joint '"):
        model.reduce(Q, near=q)


@pytest.mark.parametrize("name", ["mimic", "subspace", "polynomial"])
def test_maximal_coordinates_are_those_of_the_tree(name):
    model = coupled_model(name)
    q, v, *_ = state(model, size=3)
    q, v = model.normalize(0.5 * q), v
    Q, V = ts.to_maximal(model, q, v)
    expected = ts.to_maximal(model.tree, model.expand(q), model.expand_velocity(q, v))
    close(Q, expected[0])
    close(V, expected[1])
    back = ts.from_maximal(model, Q, V, near=q)
    close(model.minus(back[0], q), np.zeros_like(v), 1e-7)
    close(back[1], v, 1e-7)
    with pytest.raises(ts.CouplingError, match=r"model\.tree\.maximal\(\)"):
        model.maximal()


@pytest.mark.parametrize("name", ["mimic", "subspace", "polynomial", "custom"])
def test_states_of_mujoco_have_all_joints(name):
    model = coupled_model(name)
    q, v, a, tau, _ = state(model, size=2)
    Q, V, A = model.expand(q), model.expand_velocity(q, v), model.expand_acceleration(q, v, a)
    theirs = ts.interop.to_mujoco(model, q, v, a)
    for x, y in zip(theirs, ts.interop.to_mujoco(model.tree, Q, V, A), strict=True):
        close(x, y)
    close(ts.interop.to_mujoco(model, q), theirs[0])
    for x, y in zip(ts.interop.from_mujoco(model, *theirs), (q, v, a), strict=True):
        close(x, y)
    close(ts.interop.from_mujoco(model, theirs[0]), q)
    P = model.coupling_jacobian(q)
    if name == "subspace":
        with pytest.raises(ts.CouplingError, match="forces of new coordinates 'bend', 'twist', which are on no joint"):
            ts.interop.to_mujoco(model, q, v, a, tau)
    else:
        force = ts.interop.to_mujoco(model, q, v, a, tau)[3]
        close(np.sum(force * theirs[1], axis=-1), np.sum(tau * v, axis=-1))  # the same power
        close(ts.interop.from_mujoco(model, *theirs, force)[3], tau)
    J = ts.interop.convert_jacobian(model.tree, Q, ts.jacobian(model.tree, Q, "toe"), to="mujoco")
    close(ts.interop.convert_jacobian(model, q, J, source="mujoco"), ts.jacobian(model.tree, Q, "toe") @ P)
    for refused in (
        lambda: ts.interop.convert_jacobian(model, q, ts.jacobian(model, q, "toe"), to="mujoco"),
        lambda: ts.interop.convert_matrix(model, q, ts.mass_matrix(model, q), to="mujoco"),
    ):
        with pytest.raises(ts.CouplingError, match=r"convert that of model\.tree at model\.expand\(q\)"):
            refused()


def test_states_of_pinocchio_have_the_joints_that_it_has():
    """With mimic joints followers have no coordinates, and with the names of all joints they have."""
    model = coupled_model("mimic")
    q, v, *_ = state(model)
    names = [j.name for j in model.tree.joints if j.nv]
    own = [j.name for j in model.joints if j.nv]
    assert ts.interop.to_pinocchio(model, q, order=own).shape == (model.nq,)
    theirs = ts.interop.to_pinocchio(model, q, v, order=names)
    for x, y in zip(theirs, ts.interop.to_pinocchio(model.tree, model.expand(q), model.expand_velocity(q, v)),
                    strict=True):  # fmt: skip
        close(x, y)
    for x, y in zip(ts.interop.from_pinocchio(model, *theirs, order=names), (q, v), strict=True):
        close(x, y)
    rope = coupled_model("subspace")
    assert ts.interop.to_pinocchio(rope, state(rope)[0]).shape == (rope.tree.nq,)
