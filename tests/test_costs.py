"""Every cost: one contract over all, what each one is, and when it counts along a trajectory."""

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields, replace

import numpy as np
import pytest
from compare import differences, to_within
from population import sweep

import torsor as ts
from torsor import testing

JOINTS = testing.example_joints()
MODELS = {f"random{seed}": testing.random_tree(seed, 5) for seed in range(2)} | {
    f"all{k}": testing.random_tree(9, JOINTS[k::3]) for k in range(3)
}
COUNT = len(testing.example_costs(MODELS["random0"], 0))


# ---- the contract


@pytest.mark.parametrize("k", range(COUNT))
@pytest.mark.parametrize("name", sweep(MODELS, len(MODELS)))
def test_contract(name, k):
    model = MODELS[name]
    for seed in range(1 if name.startswith("all") else 2):
        forces = testing.example_forces(model, seed)
        testing.check_cost(testing.example_costs(model, seed)[k], model, seed, forces=forces)


def test_check_cost_finds_errors():
    model = MODELS["random0"]

    def wrong(q, v, u, t):
        return None, 2.1 * v, None

    cost = ts.CustomCost(lambda q, v, u, t: (v * v).sum(-1), wrong)
    with pytest.raises(AssertionError, match="dv is off by"):
        testing.check_cost(cost, model, 0)
    right = ts.CustomCost(lambda q, v, u, t: (v * v).sum(-1), lambda q, v, u, t: (None, 2 * v, None))
    testing.check_cost(right, model, 0)
    bad = ts.CustomCost(right.function, right.gradient, lambda q, v, u, t: (None,) * 6)
    with pytest.raises(AssertionError, match="dvdv is off by"):
        testing.check_cost(bad, model, 0)
    # Complex numbers come out of it, but with a part of the derivative only.
    half = ts.CustomCost(lambda q, v, u, t: np.linalg.norm(v, axis=-1) + v[..., 0], inputs="v")
    with pytest.raises(AssertionError, match="dv, against real differences, is off by"):
        testing.check_cost(half, model, 0)


@dataclass(frozen=True)
class Height(ts.Cost):
    """The centre of mass along z, which depends on inertias and placements too; derivatives by the first or none."""

    by_inertias: bool
    at = -1
    inputs = "q"

    def _evaluate(self, x, hessians):
        def gradient(d):
            return ts.center_of_mass_jacobian(x.model, x.model.plus(x.q, d))[..., 2, :]

        zero = np.zeros(x.model.nv)
        H = testing.complex_step(gradient, zero)
        dqdq = (H + np.swapaxes(H, -1, -2)) / 2
        return ts.costs.CostValue(
            ts.center_of_mass(x.model, x.q)[..., 2], gradient(zero), dqdq=dqdq if hessians else None
        )

    def _by_parameters(self, x):
        mass, poses = sum(b.inertia.mass for b in x.model.bodies), ts.body_poses(x.model, x.q)
        inertia = np.zeros((*x.shape, x.model.nbodies, 10))
        inertia[..., 0] = (poses[..., 2, 3] - ts.center_of_mass(x.model, x.q)[..., None, 2]) / mass
        inertia[..., 1:4] = poses[..., 2, :3] / mass
        return {"inertia": inertia} if self.by_inertias else {}


def test_check_cost_finds_missing_derivatives_by_parameters(monkeypatch):
    """A cost of the centre of mass depends on inertias and placements."""
    model = MODELS["random1"]
    with pytest.raises(AssertionError, match="derivative by inertias, against real differences, is off by"):
        testing.check_cost(Height(by_inertias=False), model, 0)
    with pytest.raises(AssertionError, match="derivative by placements, against real differences, is off by"):
        testing.check_cost(Height(by_inertias=True), model, 0)
    forces = testing.example_forces(model, 0)
    energy, whole = ts.EnergyCost(["potential", "forces"]), ts.EnergyCost._by_parameters
    testing.check_cost(energy, model, 0, forces=forces)
    for left_out, name in (("gravity", "gravity"), ("springs", "parameters of forces"), ("placement", "placements")):

        def part(cost, x, left_out=left_out):
            return {name: a for name, a in whole(cost, x).items() if name != left_out}

        monkeypatch.setattr(ts.EnergyCost, "_by_parameters", part)
        with pytest.raises(AssertionError, match=f"derivative by {name}, against real differences, is off by"):
            testing.check_cost(energy, model, 0, forces=forces)


@pytest.mark.parametrize("k", range(COUNT))
def test_costs_are_frozen_values(k):
    model = MODELS["random1"]
    cost, again = (testing.example_costs(model, 1)[k] for _ in range(2))
    name = fields(cost)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(cost, name, 1)
    states = testing.example_costs(model, 1)[k]
    n = max(term._rows() or 1 for _, term in cost.terms)
    q, v, u = model.random(0, n), np.ones((n, model.nv)), np.ones((n, model.nv))
    expected = cost.evaluate(model, q, v, u, 0.3).value
    for other in (copy.copy(cost), copy.deepcopy(cost), pickle.loads(pickle.dumps(cost)), states):
        np.testing.assert_array_equal(other.evaluate(model, q, v, u, 0.3).value, expected)
        assert repr(other) == repr(cost) or "CustomCost" in repr(cost)
        if not isinstance(cost, ts.CustomCost):  # whose functions are compared by identity
            assert other == cost == again
            assert hash(other) == hash(cost)
    assert cost != ts.EnergyCost(weight=7.0)
    assert isinstance(ts.costs.Cost, type)
    assert isinstance(cost, ts.Cost)


# ---- what each one is


def ball():
    """A revolute joint with a ball joint and a free body on it."""
    rng = np.random.default_rng(4)
    builder = ts.ModelBuilder()
    for name, parent, joint in (
        ("arm", "world", ts.Revolute((0, 1, 0))),
        ("ball", "arm", ts.Spherical()),
        ("free", "world", ts.Free()),
    ):
        builder.add_body(
            name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng), joint_name=f"{name}_joint"
        )
    return builder.build()


BALL = ball()


def test_position_target_is_half_the_square_of_an_angle():
    q, target = BALL.neutral, BALL.neutral
    q[0], target[0] = 0.5, 0.2
    q[1:5] = ts.SE3.rotation((1, 2, 2), 1.2).quaternion
    value = ts.PositionTarget(target, 3.0).evaluate(BALL, q).value
    assert value == pytest.approx(3.0 * (0.3**2 + 1.2**2) / 2, rel=1e-14)
    one = ts.PositionTarget(target[1:5], 3.0, "ball").evaluate(BALL, q)
    assert one.value == pytest.approx(3.0 * 1.2**2 / 2, rel=1e-14)
    # Equal weights pull along the axis, by the angle; names of joints and of bodies are both good.
    np.testing.assert_allclose(one.dq, [0, *(3.0 * 1.2 * np.array([1, 2, 2]) / 3), *np.zeros(6)], atol=1e-14)
    both = ts.PositionTarget([*target[1:5], 0.2], 3.0, ["ball_joint", "arm_joint"]).evaluate(BALL, q)
    assert both.value == pytest.approx(value, rel=1e-14)
    np.testing.assert_array_equal(ts.PositionTarget(0.2, 3.0, "arm").evaluate(BALL, q).dq[:1], both.dq[:1])


def test_position_target_at_the_target_and_near_half_a_turn():
    """The Hessian at the target is the weight; the gradient is exact up to the kink."""
    weight = np.arange(1.0, BALL.nv + 1)
    found = ts.PositionTarget(BALL.neutral, weight).evaluate(BALL, BALL.neutral, hessians=True)
    assert found.value == 0
    np.testing.assert_array_equal(found.dq, np.zeros(BALL.nv))
    np.testing.assert_allclose(found.dqdq, np.diag(weight), atol=1e-15)
    for angle in (1e-9, 1e-3, 3.1, np.pi - 1e-9):
        q = BALL.neutral
        q[1:5] = ts.SE3.rotation((1, -2, 0.5), angle).quaternion
        cost = ts.PositionTarget(BALL.neutral, weight)
        steps = testing.complex_step(lambda d, q=q, c=cost: c.evaluate(BALL, BALL.plus(q, d)).value, np.zeros(BALL.nv))
        np.testing.assert_allclose(cost.evaluate(BALL, q).dq, steps, rtol=1e-11, atol=1e-11)


def test_targets_over_time_move_evenly_and_stay_at_the_ends():
    a, b = BALL.neutral, BALL.neutral
    b[0] = 1.0
    b[1:5] = ts.SE3.rotation((0, 0, 1), 0.8).quaternion
    cost = ts.PositionTarget([a, b], times=(1.0, 3.0))
    for t, fraction in ((0.0, 0.0), (1.0, 0.0), (1.5, 0.25), (3.0, 1.0), (9.0, 1.0)):
        q = BALL.plus(a, fraction * BALL.minus(b, a))
        assert cost.evaluate(BALL, q, t=t).value == pytest.approx(0.0, abs=1e-28)
        assert cost.evaluate(BALL, a, t=t).value == pytest.approx(fraction**2 * (1 + 0.8**2) / 2, rel=1e-13)
        v = np.array([2.0 * fraction, *np.zeros(9)])
        speed = ts.VelocityTarget([[0.0], [2.0]], joints="arm", times=(1.0, 3.0))
        assert speed.evaluate(BALL, q, v, t=t).value == pytest.approx(0.0, abs=1e-28)
    x = ts.point_positions(BALL, a, "ball", (0, 0, 1))
    point = ts.PointTarget("ball", (0, 0, 1), [x, x + 2.0], times=(0.0, 1.0))
    np.testing.assert_allclose(point.evaluate(BALL, a, t=[0.0, 0.5, 7.0]).value, [0, 1.5, 6], atol=1e-14)
    single = ts.PointTarget("ball", (0, 0, 1), [x], times=[0.3])
    np.testing.assert_array_equal(single.evaluate(BALL, a, t=[0.0, 5.0]).value, [0.0, 0.0])


def test_energy_cost_is_the_energy():
    q, v = BALL.random(0, 3), np.random.default_rng(1).standard_normal((3, BALL.nv))
    forces = [ts.PointSpring("world", (0, 0, 1), "ball", (0, 0, 1), 3.0), ts.JointDamping(None, 1.0)]
    parts = {
        "kinetic": ts.kinetic_energy(BALL, q, v),
        "potential": ts.potential_energy(BALL, q),
        "forces": ts.force_energies(BALL, forces, q).sum(-1),
    }
    for name, energy in parts.items():
        found = ts.EnergyCost([name], 2.0).evaluate(BALL, q, v, forces=forces)
        np.testing.assert_allclose(found.value, 2 * energy, rtol=1e-14)
    total = ts.EnergyCost([*parts]).evaluate(BALL, q, v, forces=forces)
    np.testing.assert_allclose(total.value, sum(parts.values()), rtol=1e-14)
    np.testing.assert_array_equal(ts.EnergyCost(["forces"]).evaluate(BALL, q).value, np.zeros(3))  # no forces


class Parabola(ts.CustomForce):
    """With the potential 3 q.q and no parameters, for joints whose coordinates are vectors."""

    def value(self, q, v, t, p):
        return -6.0 * q

    def derivatives(self, q, v, t, p):
        return -6.0 * np.eye(len(q)), np.zeros((len(q), len(q)))

    def energy(self, q, t, p):
        return 3.0 * (q * q).sum()


def test_energies_of_forces_without_parameters():
    model = ts.models.acrobot()
    run = ts.simulate(model, [0.1, 0.2], steps=2, integrator=ts.BDF1(0.01), forces=[Parabola()])
    loss = ts.loss(run, ts.EnergyCost(["forces"]))
    assert loss.value == pytest.approx(3.0 * (run.q[-1] ** 2).sum(), rel=1e-14)
    np.testing.assert_allclose(loss.dq[-1], 6.0 * run.q[-1], rtol=1e-14)
    testing.check_cost(ts.EnergyCost(["forces"]), model, 0, forces=[Parabola()])


def test_costs_of_a_model_without_bodies():
    model = ts.ModelBuilder().build()
    run = ts.simulate(model, [], [], steps=2, integrator=ts.BDF1(0.01))
    for cost in (ts.EnergyCost(["kinetic", "potential", "forces"]), ts.VelocityTarget(), ts.PositionTarget([])):
        assert ts.loss(run, cost).value == 0
        np.testing.assert_array_equal(ts.adjoint(run, cost).gravity, np.zeros(3))


def test_sums_of_costs():
    a, b, c = ts.EnergyCost(), ts.VelocityTarget(0.5), ts.ControlEffort(2.0)
    q, v, u = BALL.random(0, 3), np.ones((3, BALL.nv)), np.ones((3, 2))
    x, y, z = (k.evaluate(BALL, q, v, u, hessians=True) for k in (a, b, c))
    for cost, i, j, k in (
        (a + b, 1, 1, 0),
        (sum([a, b, c, a]), 2, 1, 1),
        (a - (b - c), 1, -1, 1),
        (-(a + 2 * b) / 4, -0.25, -0.5, 0),
        (np.float64(3) * (a + np.float32(0.5) * c) * 2, 6, 0, 3),
    ):
        got = cost.evaluate(BALL, q, v, u, hessians=True)
        for name in got._fields:
            parts = [f * getattr(p, name) for f, p in ((i, x), (j, y), (k, z)) if f and getattr(p, name) is not None]
            if parts:
                np.testing.assert_allclose(getattr(got, name), sum(parts), rtol=1e-13, atol=1e-13)
            else:
                assert getattr(got, name) is None
        assert cost == pickle.loads(pickle.dumps(cost))
        assert {type(term) for _, term in cost.terms} <= {ts.EnergyCost, ts.VelocityTarget, ts.ControlEffort}
    assert ts.costs.CostSum([(1, a), [2.0, b]]) == a + 2 * b
    for summands, error, message in (
        ((), ValueError, "there are no summands, expected pairs of a finite number and a Cost that is not a sum"),
        (a, TypeError, "summands are EnergyCost"),
        (((1.0, a + b),), TypeError, r"summands have \(1.0, CostSum"),
        (((1.0, 3),), TypeError, r"summands have \(1.0, 3\), expected pairs"),
        (((1.0,),), TypeError, r"summands have \(1.0,\), expected pairs"),
        ((("2", a),), TypeError, r"summands have \('2', EnergyCost"),
        (((np.inf, a),), ValueError, "summands have the factor inf"),
    ):
        with pytest.raises(error, match=message):
            ts.costs.CostSum(summands)
    with pytest.raises(ValueError, match="the factor inf"):
        1e200 * (1e200 * a)
    with pytest.raises(AttributeError, match="a sum of costs has no `at` of its own; its terms have"):
        _ = (a + b).at
    assert (a + c).inputs == "qvu" and (b / 2).inputs == "v"
    for wrong in (lambda: a + 1, lambda: 1 - a, lambda: a * b, lambda: "2" * a, lambda: a / b, lambda: a * np.ones(3)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="multiplied by nan, expected a finite number"):
        np.nan * a
    with pytest.raises(ZeroDivisionError):
        a / 0


def test_states_broadcast():
    cost = ts.PositionTarget(BALL.neutral) + ts.ControlEffort()
    found = cost.evaluate(BALL, BALL.random(0, (4, 1)), u=np.ones((3, 2)), t=np.zeros((2, 1, 1)), hessians=True)
    assert found.value.shape == (2, 4, 3)
    assert found.dq.shape == (2, 4, 3, BALL.nv) and found.du.shape == (2, 4, 3, 2)
    assert found.dqdq.shape == (2, 4, 3, BALL.nv, BALL.nv) and found.dudu.shape == (2, 4, 3, 2, 2)
    assert found.dv is None and found.dqdu is None


# ---- along a trajectory

close = to_within(1e-8)  # against differences of fourth order


def motion(q=None, v=None, u=None, integrator=None, steps=4, **given):
    integrator = ts.SDIRK2(0.02, tolerance=1e-13) if integrator is None else integrator
    rng = np.random.default_rng(3)
    own = BALL.random(rng), rng.standard_normal(BALL.nv), rng.standard_normal((steps, BALL.nv))
    q, v, u = (default if x is None else x for x, default in zip((q, v, u), own, strict=True))
    return ts.simulate(BALL, q, v, steps=steps, integrator=integrator, controls=u, **given)


@pytest.mark.parametrize("k", sweep(range(COUNT), 4))
def test_gradients_of_rollouts(k):
    cost = testing.example_costs(BALL, 5)[k]
    base = motion()
    g = ts.adjoint(base, cost)
    q, v, u = base.q[0], base.v[0], base.controls
    w = np.random.default_rng(0).standard_normal(u.shape)

    def value(**given):
        return ts.loss(motion(**given), cost).value

    close(g.q0, differences(lambda x: value(q=BALL.plus(q, x)), np.zeros(BALL.nv)))
    close(g.v0, differences(lambda x: value(v=x), v))
    close((g.controls * w).sum(), differences(lambda s: value(u=u + s * w), np.zeros(1))[0])


@pytest.mark.parametrize("integrator", [ts.BDF1(0.02), ts.SDIRK2(0.02), ts.Variational(0.02, order=4)], ids=repr)
@pytest.mark.parametrize("of_time", [False, True])
def test_the_integral_over_time_is_what_it_says(integrator, of_time):
    """h sum_s w_s/2 (c(x_k, u_ks, t_k) + c(x_k+1, u_ks, t_k+1)) over all steps k and rows s of their controls."""
    u = (lambda t: np.sin(3 * t + np.arange(BALL.nv))) if of_time else None
    run = motion(u=u, integrator=integrator, t0=0.3)
    stages = integrator._weights if of_time else (1.0,)
    controls = run.controls.reshape(run.steps, len(stages), BALL.nv)
    for cost in testing.example_costs(BALL, 5):
        if cost.terms[0][1].at != "time" or len(cost.terms) > 1:
            continue
        total = 0.0
        for k in range(run.steps):
            for s, weight in enumerate(stages):
                ends = (cost.evaluate(BALL, run.q[j], run.v[j], controls[k, s], run.t[j]).value for j in (k, k + 1))
                total += integrator.h * weight * sum(ends) / 2
        assert ts.loss(run, cost).value == pytest.approx(total, rel=1e-12)


def test_integrals_of_a_falling_body():
    """Of v^2/2, a^2/6 after a unit of time, with the error a^2 h^2/12 of the trapezoidal rule; and of the power of a
    force, its work."""
    builder = ts.ModelBuilder(gravity=(0, 0, -9.0))
    builder.add_body("a", "world", ts.Prismatic((0, 0, 1)), inertia=ts.Inertia.point(2.0))
    model = builder.build()
    power = ts.CustomCost(lambda q, v, u, t: (v * u).sum(-1), inputs="vu", at="time")
    a = -9.0 + 4.0 / 2.0
    for h in (0.05, 0.025):
        run = ts.simulate(model, [0.0], T=1.0, integrator=ts.SDIRK2(h), controls=np.array([4.0]))
        assert ts.loss(run, ts.VelocityTarget(at="time")).value == pytest.approx(a**2 / 6 + a**2 * h**2 / 12, rel=1e-9)
        assert ts.loss(run, power).value == pytest.approx(4.0 * a / 2, rel=1e-9)
        assert ts.loss(run, ts.EnergyCost()).value == pytest.approx(2.0 * a**2 / 2, rel=1e-9)
    still = ts.simulate(model, [0.0], steps=0, integrator=ts.SDIRK2(0.05), controls=np.zeros(1))
    for cost in (ts.VelocityTarget(1.0, at="time"), ts.ControlEffort(), power):
        assert ts.loss(still, cost).value == 0


def test_integrals_with_every():
    full, some = motion(steps=12), motion(steps=12, every=3)
    speed = ts.VelocityTarget(at="time")
    half = 0.5 * (full.v[::3] ** 2).sum(-1)
    expected = 0.06 * (half.sum() - (half[0] + half[-1]) / 2)
    assert ts.loss(some, speed).value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_array_equal(ts.loss(some, ts.ControlEffort()).value, ts.loss(full, ts.ControlEffort()).value)
    g = ts.adjoint(some, speed + ts.ControlEffort())
    assert g.controls.shape == (12, BALL.nv)
    coupled = ts.CustomCost(lambda q, v, u, t: (v * u).sum(-1), inputs="vu", at="time")
    with pytest.raises(ValueError, match=r"every=3 does not have the states of all steps; simulate with every=1"):
        ts.loss(some, coupled)


def test_a_batch_is_its_trajectories():
    rng = np.random.default_rng(2)
    forces = [ts.PointSpring("world", (0, 0, 1), "ball", (0, 0, 1), 3.0), ts.JointDamping(None, 1.0)]
    models = [BALL, BALL.with_gravity((0, 0, -1))]
    given = {
        "steps": 3,
        "integrator": ts.BDF2(0.02),
        "forces": forces,
        "parameters": [{"stiffness": np.array([[1.0], [2.0], [4.0]])}, None],
    }
    q, v, u = BALL.random(rng, (3, 2)), rng.standard_normal(BALL.nv), rng.standard_normal((3, 2, 3, BALL.nv))
    batch = ts.simulate(models, q, v, controls=u, **given)
    for cost in testing.example_costs(BALL, 6):
        whole = ts.loss(batch, cost)
        for i, j in np.ndindex(3, 2):
            given["parameters"] = [{"stiffness": (1.0, 2.0, 4.0)[i]}, None]
            one = ts.loss(ts.simulate(models[j], q[i, j], v, controls=u[i, j], **given), cost)
            for name in ("value", "dq", "dv", "du", "dinertia", "dplacement", "dgravity"):
                a, b = getattr(whole, name), getattr(one, name)
                assert (a is None) == (b is None)
                if a is not None:
                    np.testing.assert_allclose(a[i, j], b, rtol=1e-12, atol=1e-12)


def test_controls_have_a_dimension_of_their_own():
    """What controls are, torques or less than these, is for the trajectory to say."""
    run = replace(motion(), controls=np.ones((4, 2)))
    loss = ts.loss(run, ts.ControlEffort([1.0, 3.0]))
    assert loss.value == pytest.approx(0.08 * 4 / 2, rel=1e-14)
    np.testing.assert_allclose(loss.du, 0.02 * np.ones((4, 1)) * [1, 3], rtol=1e-14)
    with pytest.raises(ValueError, match=r"weight has shape \(3,\), expected a number or \(2,\): there are 2 controls"):
        ts.loss(run, ts.ControlEffort([1.0, 3.0, 1.0]))


def test_parameters_are_left_out_on_request():
    run = motion()
    cost = ts.EnergyCost(["kinetic", "potential"]) + ts.PointTarget("ball", (0, 0, 1), (1, 0, 0))
    with_them, without = ts.loss(run, cost), ts.loss(run, cost, parameters=False)
    np.testing.assert_array_equal(with_them.dq, without.dq)
    assert with_them.dinertia is not None and with_them.dplacement is not None and with_them.dgravity is not None
    assert without.dinertia is None and without.dplacement is None and without.dgravity is None
    g, h = ts.adjoint(run, cost), ts.adjoint(run, with_them)
    np.testing.assert_array_equal(g.inertia, h.inertia)
    np.testing.assert_array_equal(ts.adjoint(run, cost, parameters=False).controls, g.controls)


def test_costs_in_coordinates_that_change_are_refused():
    rng = np.random.default_rng(2)
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("a", "world", ts.SphericalEuler("XYZ"), inertia=testing.random_inertia(rng))
    builder.add_body("b", "a", ts.Revolute(), inertia=testing.random_inertia(rng))
    builder.add_body("c", "b", ts.SphericalExp(), inertia=testing.random_inertia(rng))
    model = builder.build()
    q, v = np.array([0.1, 0.95, 0.3, 0, 2.9, 0.8, 0.2]), np.array([0.5, 2.0, 0.3, 0.1, 2.0, 2.0, 0.5])
    run = ts.simulate(model, q, v, steps=30, integrator=ts.BDF1(0.01), controls=np.zeros(7))
    first = {
        name: min(s.row for s in run.switches if s.old[k] != s.charts[k] or name == "c") for k, name in enumerate("ac")
    }
    whole = ts.PositionTarget(q, at="time")
    custom = ts.CustomCost(lambda q, v, u, t: (q**2).sum(-1))
    moving = ts.VelocityTarget(1.0)
    for cost in (whole, ts.PositionTarget(q[:3], joints="a"), custom, moving):
        with pytest.raises(ValueError, match=r"is given in the coordinates of '[ac]', which changed at row"):
            ts.loss(run, cost)
    with pytest.raises(ValueError, match=r"in the coordinates of 'c', which changed at row"):
        ts.loss(run, ts.PositionTarget(q[4:], joints="c"))
    # What does not depend on these coordinates, or counts before they change, is good.
    before = slice(0, min(first.values()))
    for cost in (ts.PositionTarget(0.3, joints="b", at="time"), ts.VelocityTarget(), ts.PositionTarget(q, at=before)):
        ts.adjoint(run, cost)


# ---- user-defined costs


def test_custom_costs_are_called_with_all_rows_at_a_time():
    shapes = []

    def function(q, v, u, t):
        shapes.append(tuple(None if a is None else a.shape for a in (q, v, u, t)))
        return (np.asarray(v) ** 2).sum(-1) * t

    run = motion()
    ts.loss(run, ts.CustomCost(function, lambda q, v, u, t: (None, 2 * v * t[..., None], None), inputs="v", at="time"))
    assert shapes == [(None, (1, 5, BALL.nv), None, (1, 5))]
    with pytest.raises(TypeError, match="are complex steps through its gradient, which was not given"):
        ts.CustomCost(function).evaluate(BALL, run.q, run.v, t=run.t, hessians=True)


def test_custom_costs_that_are_not_analytic_are_told():
    """Complex steps through abs, norm or float give 0, or a warning that nobody reads."""
    model = ts.models.acrobot()
    state = (model, [0.1, 0.2], [1.0, 2.0], [0.3, -0.4])
    given = {"inputs": "qvu", "at": "time"}
    for function, message in (
        (lambda q, v, u, t: np.linalg.norm(v, axis=-1) ** 2, "gave real numbers for complex v, but depends on v"),
        (lambda q, v, u, t: np.abs(u).sum(-1), "gave real numbers for complex u, but depends on u"),
        (lambda q, v, u, t: (q * q.conj()).real.sum(-1), "gave real numbers for complex q, but depends on q"),
        (lambda q, v, u, t: np.abs(v).sum(-1) + (q * q).sum(-1), "gave real numbers for complex v"),
        (lambda q, v, u, t: float(v[0]) ** 2, "takes no complex numbers: Casting complex values"),
        (lambda q, v, u, t: v[..., 0] % 2.0, "takes no complex numbers: ufunc 'remainder' not supported"),
    ):
        with pytest.raises(
            TypeError, match=f"function of CustomCost {message}.*write it for complex .* give gradient="
        ):
            ts.CustomCost(function, **given).evaluate(*state)
    # At the minimum too, where the gradient would be right.
    with pytest.raises(TypeError, match="gave real numbers for complex v"):
        ts.CustomCost(lambda q, v, u, t: np.abs(v).sum(-1) ** 2).evaluate(model, [0.1, 0.2], [0.0, 0.0])
    # What does not depend on an input may be real: a part, a constant, a count.
    for function, expected in (
        (lambda q, v, u, t: (v * v).sum(-1), [2.0, 4.0]),
        (lambda q, v, u, t: 3.0, [0.0, 0.0]),
        (lambda q, v, u, t: (v.real > 1.5).sum(-1), [0.0, 0.0]),
    ):
        found = ts.CustomCost(function, **given).evaluate(*state)
        np.testing.assert_array_equal(found.dv, expected)
        np.testing.assert_array_equal([found.dq, found.du], np.zeros((2, 2)))
    # With a gradient, the function may be any; for second derivatives, the gradient may not.
    length = ts.CustomCost(
        lambda q, v, u, t: np.linalg.norm(v, axis=-1),
        lambda q, v, u, t: (None, v / np.linalg.norm(v, axis=-1, keepdims=True), None),
        inputs="v",
    )
    np.testing.assert_allclose(length.evaluate(*state).dv, np.array([1, 2]) / 5**0.5, rtol=1e-15)
    size = ts.CustomCost(length.function, lambda q, v, u, t: (None, np.abs(v), None), inputs="v")
    with pytest.raises(TypeError, match=r"gradient of CustomCost gave real numbers for complex v.* or give hessian="):
        size.evaluate(*state, hessians=True)
    linear = ts.CustomCost(lambda q, v, u, t: v.sum(-1), lambda q, v, u, t: (None, np.ones(v.shape), None))
    np.testing.assert_array_equal(linear.evaluate(*state, hessians=True).dvdv, np.zeros((2, 2)))


def test_custom_costs_read_what_they_declare():
    model = ts.models.acrobot()
    for function in (lambda q, v, u, t: (v * v).sum(-1), lambda q, v, u, t: v.sum(-1), lambda q, v, u, t: v[..., 0]):
        with pytest.raises(
            TypeError, match=r"function of CustomCost failed: .*None for v and u, as inputs is 'q'; name"
        ):
            ts.CustomCost(function, inputs="q").evaluate(model, [0.1, 0.2], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"gave shape .* and with None for v and u, as inputs is 'q'; name all inputs"):
        ts.CustomCost(lambda q, v, u, t: np.sum(v, -1), inputs="q").evaluate(model, [0.1, 0.2], [1.0, 2.0])
    with pytest.raises(TypeError, match=r"gradient of CustomCost failed: .* None for u, as inputs is 'qv'"):
        ts.CustomCost(lambda q, v, u, t: 0.0, lambda q, v, u, t: (None, u * v, None)).evaluate(
            model, [0.1, 0.2], [1.0, 2.0]
        )


def test_custom_costs_that_are_wrong_are_told():
    q, v = BALL.neutral, np.zeros(BALL.nv)
    for cost, message in (
        (
            ts.CustomCost(lambda q, v, u, t: v),
            r"function of CustomCost gave shape \(10,\) and dtype float64, expected \(\)",
        ),
        (ts.CustomCost(lambda q, v, u, t: 1j), "gave shape .* and dtype complex128"),
        (
            ts.CustomCost(lambda q, v, u, t: 0.0, lambda *x: 0.0),
            "gradient of CustomCost gave 0.0, expected a tuple of 3",
        ),
        (ts.CustomCost(lambda q, v, u, t: 0.0, lambda *x: (q, v, None)), r"gradient of CustomCost gave shape \(12,\)"),
        (
            ts.CustomCost(lambda q, v, u, t: 0.0, lambda *x: (None,) * 3, lambda *x: (None,) * 3),
            "hessian of CustomCost gave .* expected a tuple of 6",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            cost.evaluate(BALL, q, v, hessians=True)
    with pytest.raises(ValueError, match="controls belong to steps, not to rows: a cost of controls is an integral"):
        ts.CustomCost(lambda q, v, u, t: 0.0, inputs="u")
    with pytest.raises(ValueError, match="inputs is 'qx', expected those of 'q', 'v' and 'u'"):
        ts.CustomCost(lambda q, v, u, t: 0.0, inputs="qx")
    with pytest.raises(TypeError, match="gradient is 3, expected a function"):
        ts.CustomCost(lambda q, v, u, t: 0.0, 3)


# ---- bad input


def test_bad_costs_are_told():
    run = motion(steps=2)
    q, v, nq, nv = run.q[0], run.v[0], BALL.nq, BALL.nv
    for make in (
        lambda at: ts.PointTarget("ball", (0, 0, 0), (1, 0, 0), at=at),
        lambda at: ts.PositionTarget(q, at=at),
        lambda at: ts.VelocityTarget(at=at),
        lambda at: ts.EnergyCost(at=at),
    ):
        for at, error, message in (
            (99, ValueError, "at has 99, but the trajectory has 3 rows: -3 to 2"),
            (-4, ValueError, "at has -4"),
            ([0, 7], ValueError, "at has 7"),
            ([1, -2], ValueError, r"at is \(1, -2\), which has a row twice"),
            ([], ValueError, r"at is \[\], which selects no row"),
            (slice(5, 9), ValueError, "which is none of the trajectory's 3 rows"),
            (1.5, TypeError, "at is 1.5, expected 'time', an index, a slice or a list of indices"),
            ("end", ValueError, "at is 'end', expected 'time'"),
            (None, TypeError, "at is None"),
            (True, TypeError, "at is True, expected 'time', an index"),
            ([True, False], TypeError, r"at is \[True, False\], .*; np.flatnonzero\(mask\) has the indices of a mask"),
            (np.array([True, False]), TypeError, "has the indices of a mask"),
            ([0, [1, 2]], TypeError, r"at is \[0, \[1, 2\]\], expected 'time', an index, a slice or a list of indices"),
            (np.ma.array([0, 1]), TypeError, "at is a masked array"),
            (slice("a"), TypeError, r"at is slice\(None, 'a', None\), expected a slice of indices"),
            (slice(0, 2, 0), ValueError, "expected a step other than 0"),
        ):
            with pytest.raises(error, match=message):
                ts.loss(run, make(at))
    rows = np.zeros((4, 3))
    for call, error, message in (
        (lambda: ts.PointTarget("ball", (0, 0), (1, 0, 0)), ValueError, r"point has shape \(2,\), expected \(3,\)"),
        (lambda: ts.PointTarget("ball", (0, 0, 0), (1, 2)), ValueError, r"target has shape \(2,\), expected \(3,\)"),
        (lambda: ts.PointTarget("ball", (0, 0, 0), (1, 0, np.nan)), ValueError, "target is not finite"),
        (lambda: ts.PointTarget("ball", (0, 0, 0), (1, 0, 0), [1, 2]), ValueError, r"weight has shape \(2,\)"),
        (lambda: ts.PointTarget("ball", (0, 0, 0), (1, 0, 0), "much"), TypeError, "weight has dtype"),
        (lambda: ts.PointTarget("ball", (0, 0, 0), (1, 0, 0), -1.0), ValueError, "weight is -1.0, expected at least 0"),
        (lambda: ts.PointTarget(3, (0, 0, 0), (1, 0, 0)), TypeError, "a body is named by a string, got 3"),
        (lambda: ts.PointTarget("ball", (0, 0, 0), rows, times=(0, 1)), ValueError, r"\(4, 3\) and times \(2,\)"),
        (lambda: ts.PointTarget("ball", (0, 0, 0), rows, times=(0, 2, 1, 3)), ValueError, "times must increase, but"),
        (lambda: ts.VelocityTarget(0.0, np.inf), ValueError, "weight is not finite"),
        (lambda: ts.VelocityTarget(0.0, [1.0, -2.0]), ValueError, "to maximise a cost, negate it"),
        (lambda: ts.VelocityTarget(joints=3), TypeError, "joints is 3, expected a name, a list of names, or None"),
        (lambda: ts.VelocityTarget(joints=["arm", "arm"]), ValueError, "expected each joint once"),
        (lambda: ts.PositionTarget(np.zeros((2, 2, 2))), ValueError, r"target has shape \(2, 2, 2\)"),
        (lambda: ts.EnergyCost(weight=np.nan), ValueError, "weight is not finite"),
        (lambda: ts.EnergyCost("kinetic"), ValueError, "expected a list of 'kinetic'"),
        (lambda: ts.EnergyCost(()), ValueError, "expected a list of 'kinetic'"),
        (lambda: ts.EnergyCost(None), ValueError, "expected a list of 'kinetic'"),
        (lambda: ts.EnergyCost(("heat",)), ValueError, "expected a list of 'kinetic'"),
        (lambda: ts.EnergyCost(["kinetic", "kinetic"]), ValueError, "expected each energy once"),
        (lambda: ts.loss(run.q, ts.EnergyCost()), TypeError, "trajectory must be a Trajectory, got ndarray"),
        (lambda: ts.loss(run, ts.EnergyCost), TypeError, r"did you mean EnergyCost\(...\)\?"),
        (lambda: ts.adjoint(run, ts.EnergyCost), TypeError, "loss must be a Cost or a Loss"),
        (lambda: ts.VelocityTarget().evaluate(BALL, q), TypeError, "v is missing: VelocityTarget"),
        (lambda: ts.ControlEffort().evaluate(BALL, q), TypeError, "u is missing: ControlEffort"),
        (lambda: ts.EnergyCost().evaluate(BALL, v, v), ValueError, rf"q has shape \({nv},\), expected \(..., {nq}\)"),
        (lambda: ts.EnergyCost().evaluate(BALL, [q, q], [v] * 3), ValueError, "batch shapes do not fit together"),
        (lambda: ts.ControlEffort().evaluate(BALL, q, u=1.0), ValueError, r"u is a number, expected \(..., nu\)"),
        (lambda: ts.EnergyCost().evaluate("model", q, v), TypeError, "model must be a torsor.Model"),
        (
            lambda: ts.PointTarget("ball", (0, 0, 0), rows).evaluate(BALL, [q, q]),
            ValueError,
            "target has 4 rows, one for",
        ),
    ):
        with pytest.raises(error, match=message):
            call()
    zero = q.copy()
    zero[1:5] = 0
    for cost, error, message in (
        (ts.PointTarget("ball", (0, 0, 0), rows), ValueError, "target has 4 rows, expected 1, one for each row"),
        (ts.PointTarget("b77", (0, 0, 0), (1, 2, 3)), KeyError, "no body named 'b77'"),
        (ts.VelocityTarget(np.zeros(2)), ValueError, rf"target has shape \(2,\), expected one number or \(..., {nv}\)"),
        (ts.VelocityTarget(0.0, np.ones(2)), ValueError, r"weight has shape \(2,\)"),
        (ts.VelocityTarget(joints="elbow"), KeyError, "no joint named 'elbow'; joints are 'arm_joint'"),
        (
            ts.PositionTarget(v),
            ValueError,
            rf"target has shape \({nv},\), expected \(..., {nq}\): the model has {nq} coord",
        ),
        (ts.PositionTarget(v, joints="ball"), ValueError, r"expected \(..., 4\): 'ball' has 4 coordinates"),
        (ts.VelocityTarget(joints=["ball", "ball_joint"]), ValueError, "which has a joint twice, by its name and by"),
        (ts.PositionTarget(zero), ValueError, "target has a quaternion of length 0 at joint 'ball_joint'"),
    ):
        with pytest.raises(error, match=message):
            ts.loss(run, cost)
    with pytest.raises(ValueError, match="the trajectory has no controls, on which ControlEffort"):
        ts.loss(ts.simulate(BALL, q, steps=1, integrator=ts.BDF1(0.01)), ts.ControlEffort())

    def law(l, ldot, p):
        return p[0] * l, p[0], 0.0, np.array([l])

    spring = ts.CustomSpring("ball", (0, 0, 0), "world", (0, 0, 1), law, lambda l, p: p[0] * math.pow(l, 2) / 2, [2.0])
    run = motion(steps=1, forces=[spring])
    with pytest.raises(TypeError, match="EnergyCost takes complex steps of the energies of forces, one of which"):
        ts.loss(run, ts.EnergyCost(["forces"]))
