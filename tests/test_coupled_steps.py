"""Steps of models with couplings q = phi(z), by every integrator: equations, derivatives, gradients, lanes, orders."""

from itertools import cycle, product

import numpy as np
import pytest
from coupled_models import MAPS, RANDOM, coupled_model, state, tree

import torsor as ts
from torsor.testing import complex_inputs

H = 0.02
INTEGRATORS = {
    "BDF1": ts.BDF1(H, tolerance=1e-13),
    "BDF2": ts.BDF2(H, tolerance=1e-13),
    "SDIRK2": ts.SDIRK2(H, tolerance=1e-13),
    "SymplecticEuler": ts.SymplecticEuler(H),
    "LinearlyImplicitEuler": ts.LinearlyImplicitEuler(H),
    "Variational2": ts.Variational(H, 2, tolerance=1e-13),
    "Variational4": ts.Variational(H, 4, tolerance=1e-13),
}
PAIRS = [*product(MAPS, INTEGRATORS), *zip(cycle(RANDOM), INTEGRATORS)]
CASES = [pytest.param(m, i, id=f"{m}-{i}") for m, i in PAIRS]


def model_of(name, maps=None):
    model = coupled_model(name)
    return model if maps is None else model.tree.couple(*maps)


def forces_of(model):
    tip = model.bodies[-2].name
    return [
        ts.JointSpring(None, 3.0, damping=0.4),
        ts.BodyDamping(tip, 0.2),
        ts.PointSpring(tip, (0, 0.1, 0.3), "world", (1, 0, 0), 2.0, 0.3),
    ]


def start(model):
    q, v, *_ = state(model)
    return q, 0.3 * v


def motion(model, integrator, steps=5, **kwargs):
    q, v = start(model)
    given = {"q": q, "v": v, "forces": forces_of(model)} | kwargs
    return ts.simulate(model, given.pop("q"), given.pop("v"), steps=steps, integrator=integrator, **given)


@pytest.mark.parametrize("name", MAPS)
def test_implicit_euler_solves_its_equations(name):
    model = model_of(name)
    q, v = start(model)
    u = np.linspace(-1.0, 1.0, model.nv)
    q1, v1 = ts.step(model, INTEGRATORS["BDF1"], q, v, u, forces=forces_of(model))
    tau = ts.generalized_forces(model.tree, forces_of(model), model.expand(q1), model.expand_velocity(q1, v1))
    miss = ts.inverse_dynamics(model, q1, v1, (v1 - v) / H) - model.coupling_jacobian(q1).T @ tau - u
    assert np.abs(miss).max() < 1e-9


def test_variational_steps_are_stationary():
    """p0 and p1 are the derivatives of the action of the midpoint rule, by complex step."""
    builder = ts.ModelBuilder()
    for k in range(4):
        inertia = ts.Inertia.box(mass=1.0 + k, size=(0.1, 0.2, 0.5), com=(0.1, 0.0, 0.3))
        at = ts.SE3.translation(0.1, 0.0, 0.5)
        builder.add_body(f"l{k}", "world" if k == 0 else f"l{k - 1}", ts.Revolute((k % 2, 1, 0)), at, inertia)
    model = builder.build().couple(ts.Polynomial("l2", of="l0", coefficients=(0.2, 0.7, -0.5, 0.4)))
    rule = ts.Variational(H)
    q, v = start(model)
    q1, v1 = ts.step(model, rule, q, v)

    def action(a, b):
        middle, speed = 0.5 * (a + b), (b - a) / H
        return H * (ts.kinetic_energy(model, middle, speed) - ts.potential_energy(model, middle))

    tiny, unit = 1e-30, np.eye(model.nv)
    with complex_inputs():
        p0 = [-np.imag(action(q + 1j * tiny * e, q1)) / tiny for e in unit]
        p1 = [np.imag(action(q, q1 + 1j * tiny * e)) / tiny for e in unit]
    np.testing.assert_allclose(p0, ts.generalized_momenta(model, q, v), rtol=0, atol=1e-10)
    np.testing.assert_allclose(p1, ts.generalized_momenta(model, q1, v1), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("name", "method"), CASES)
def test_derivatives_of_steps(name, method):
    model, integrator = model_of(name), INTEGRATORS[method]
    q, v = start(model)
    d = ts.step_derivatives(model, integrator, q, v, forces=forces_of(model))
    q1, v1 = ts.step(model, integrator, q, v, forces=forces_of(model))
    rng, step = np.random.default_rng(0), 5e-4
    dq, dv, du = rng.standard_normal((3, model.nv))

    def moved(s):
        a, b = ts.step(model, integrator, model.plus(q, s * dq), v + s * dv, s * du, forces=forces_of(model))
        return np.concatenate([model.minus(a, q1), b - v1])

    expected = (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step)
    found = np.concatenate(
        [d.dq1_dq @ dq + d.dq1_dv @ dv + d.dq1_du @ du, d.dv1_dq @ dq + d.dv1_dv @ dv + d.dv1_du @ du]
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("name", [*MAPS, *RANDOM])
def test_derivatives_of_implicit_euler_solve_the_derivatives_of_its_equations(name):
    """By complex step: the residual stays what it is as all of q1, v1 and u move as their derivatives say."""
    model, integrator = model_of(name), INTEGRATORS["BDF1"]
    q, v = start(model)
    q1, v1 = ts.step(model, integrator, q, v, forces=forces_of(model))
    d = ts.step_derivatives(model, integrator, q, v, forces=forces_of(model))

    def residual_rate(dq1, dv1, dv):
        with complex_inputs():
            x, y = model.plus(q1, 1e-30j * dq1), v1 + 1e-30j * dv1
            r = ts.inverse_dynamics(model, x, y, (y - v - 1e-30j * dv) / H) - ts.generalized_forces(
                model, forces_of(model), x, y
            )
        return r.imag / 1e-30

    none = np.zeros(model.nv)
    size = np.abs(ts.mass_matrix(model, q1)).max() / H**2  # of the terms that cancel
    for e in np.eye(model.nv):
        close(residual_rate(d.dq1_dq @ e, d.dv1_dq @ e, none), none, 1e-11 * size)
        close(residual_rate(d.dq1_dv @ e, d.dv1_dv @ e, e), none, 1e-11 * size)
        close(residual_rate(d.dq1_du @ e, d.dv1_du @ e, none), e, 1e-11)


@pytest.mark.parametrize(("name", "method"), CASES)
def test_gradients_are_those_of_the_steps(name, method):
    """The adjoint against products of the derivatives of all steps."""
    model, integrator = model_of(name), INTEGRATORS[method]
    rng = np.random.default_rng(1)
    trajectory = motion(model, integrator, controls=rng.standard_normal((5, model.nv)))
    wq, wv = rng.standard_normal((2, model.nv))
    g = ts.adjoint(trajectory, dloss_dq=wq, dloss_dv=wv, parameters=False)
    a, b, before = wq, wv, (np.zeros(model.nv), np.zeros(model.nv))
    for k in reversed(range(5)):
        previous = None if method != "BDF2" or k == 0 else (trajectory.q[k - 1], trajectory.v[k - 1])
        d = ts.step_derivatives(
            model, integrator, trajectory.q[k], trajectory.v[k], trajectory.controls[k],
            forces=forces_of(model), t=k * H, previous=previous,
        )  # fmt: skip
        close(g.controls[k], a @ d.dq1_du + b @ d.dv1_du)
        next_a, next_b = a @ d.dq1_dq + b @ d.dv1_dq + before[0], a @ d.dq1_dv + b @ d.dv1_dv + before[1]
        before = np.zeros(model.nv), np.zeros(model.nv)
        if previous is not None:
            before = a @ d.dq1_dprevious_q + b @ d.dv1_dprevious_q, a @ d.dq1_dprevious_v + b @ d.dv1_dprevious_v
        a, b = next_a, next_b
    close(g.q0, a)
    close(g.v0, b)


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * (1 + np.abs(b).max()))


@pytest.mark.parametrize(("name", "method"), CASES)
def test_gradients_with_respect_to_couplings_and_bodies(name, method):
    model, integrator = model_of(name), INTEGRATORS[method]
    maps = model.couplings
    rng = np.random.default_rng(2)
    trajectory = motion(model, integrator)
    end, (wq, wv) = trajectory.q[-1], rng.standard_normal((2, model.nv))
    g = ts.adjoint(trajectory, dloss_dq=wq, dloss_dv=wv)

    def difference(make, step=1e-6):
        values = []
        for s in (step, -step):
            last = motion(make(s), integrator)
            values.append(wq @ model.minus(last.q[-1], end) + wv @ last.v[-1])
        return (values[0] - values[1]) / (2 * step)

    along = [{key: rng.standard_normal(x.shape) for key, x in c.parameters.items()} for c in maps]

    def varied(s):
        moved = [{key: x + s * d[key] for key, x in c.parameters.items()} for c, d in zip(maps, along, strict=True)]
        return model.with_parameters(couplings=moved)

    found = sum(np.sum(g[key] * d[key]) for g, d in zip(g.couplings, along, strict=True) for key in d)
    assert found == pytest.approx(difference(varied), rel=2e-6, abs=2e-6)
    body = model.bodies[2]
    change = 0.01 * rng.standard_normal(10)

    def heavier(s):
        return model.with_inertia(body.name, ts.Inertia.from_parameters(body.inertia.parameters + s * change))

    assert g.inertia[2] @ change == pytest.approx(difference(heavier), rel=2e-6, abs=2e-6)


@pytest.mark.parametrize("name", MAPS)
def test_costs_depend_on_couplings_themselves(name):
    """Costs are those of the tree, which moves with the parameters at fixed reduced states."""
    maps, integrator, rng = MAPS[name], INTEGRATORS["BDF1"], np.random.default_rng(3)
    model = model_of(name)
    cost = (
        ts.PointTarget("tip", (0.1, 0.2, 0.3), (1.0, 0.0, 0.5), at="time")
        + 0.3 * ts.EnergyCost(("kinetic", "potential"))
        + ts.VelocityTarget(np.zeros(model.tree.nv))
        + 0.1 * ts.ControlEffort()
    )

    def run(model):
        return motion(model, integrator, controls=np.ones((5, model.nv)))

    g = ts.adjoint(run(model), cost)
    for k, coupling in enumerate(maps):
        along = {key: rng.standard_normal(value.shape) for key, value in coupling.parameters.items()}
        found = sum(np.sum(g.couplings[k][key] * along[key]) for key in along)
        values = []
        for s in (1e-6, -1e-6):
            moved = coupling.with_parameters({key: x + s * along[key] for key, x in coupling.parameters.items()})
            values.append(ts.loss(run(model_of(name, [*maps[:k], moved, *maps[k + 1 :]])), cost).value)
        assert found == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    "force", [ts.JointSpring("tip", 2.0), ts.JointSpring(None, 2.0), ts.JointLimits("tip", 100.0, 1.0)]
)
def test_forces_on_followers_take_parameters_and_signals(force, tmp_path):
    base = tree().with_body("tip", position_limits=((-0.1,), (0.1,)))
    model = base.couple(ts.Mimic("tip", of="hip", ratio=-0.7, offset=0.2))
    model = model.with_body("hip", position_limits=((-np.inf,), (np.inf,)))
    q, v = start(model)
    expected = ts.simulate(model, q, v, steps=4, integrator=INTEGRATORS["BDF1"], forces=[force])
    stiffness = np.asarray(force.parameters["stiffness"])
    for given in (
        {"parameters": [{"stiffness": stiffness}]},
        {"signals": [{"stiffness": np.broadcast_to(stiffness, (4, *stiffness.shape))}]},
    ):
        found = ts.simulate(model, q, v, steps=4, integrator=INTEGRATORS["BDF1"], forces=[force], **given)
        np.testing.assert_array_equal(found.q, expected.q)
    both = ts.simulate([model, model], q, v, steps=4, integrator=INTEGRATORS["BDF1"], forces=[force])
    np.testing.assert_allclose(both.q[1], expected.q, atol=1e-12)
    expected.save(tmp_path / "motion.npz")


@pytest.mark.parametrize(("name", "method"), CASES)
def test_motions_in_lanes_are_those_of_single_states(name, method):
    model, integrator = model_of(name), INTEGRATORS[method]
    q, v = start(model)
    q = model.plus(q, 0.2 * np.random.default_rng(4).standard_normal((9, model.nv)))
    batch = motion(model, integrator, q=q, v=v)
    for k in (0, 8):
        alone = motion(model, integrator, q=q[k], v=v)
        np.testing.assert_array_equal(batch.q[k], alone.q)
        np.testing.assert_array_equal(batch.v[k], alone.v)


def test_a_linear_coupling_is_the_constraint_in_implicit_euler():
    """Both impose the same positions at the end of each step."""
    maps = (ts.Mimic("tip", of="hip", ratio=-0.7, offset=0.2),)
    model = model_of("mimic", maps)
    held = ts.Coupling(["tip", "hip"], [1.0, 0.7], offset=0.2)
    q, v = start(model)
    coupled = ts.simulate(model, q, v, steps=10, integrator=INTEGRATORS["BDF1"], forces=forces_of(model))
    constrained = ts.simulate(
        model.tree, model.expand(q), model.expand_velocity(q, v), steps=10, integrator=INTEGRATORS["BDF1"],
        forces=forces_of(model), constraints=[held],
    )  # fmt: skip
    np.testing.assert_allclose(model.expand(coupled.q), constrained.q, atol=1e-9)


@pytest.mark.parametrize(("method", "order"), [(ts.BDF1, 1), (ts.SDIRK2, 2), (ts.BDF2, 2), (ts.Variational, 2)])
def test_orders(method, order):
    model = model_of("polynomial")

    def end(h):
        last = ts.simulate(model, *start(model), T=0.16, integrator=method(h, tolerance=1e-13), forces=forces_of(model))
        return np.concatenate([last.q[-1], last.v[-1]])

    reference = ts.simulate(model, *start(model), T=0.16, integrator=ts.Variational(0.005, 6), forces=forces_of(model))
    exact = np.concatenate([reference.q[-1], reference.v[-1]])
    coarse, fine = (np.abs(end(h) - exact).max() for h in (0.005, 0.0025))
    assert np.log2(coarse / fine) == pytest.approx(order, abs=0.25)


def test_energy_of_variational_steps_stays():
    model = model_of("polynomial").with_gravity((0, 0, 0))
    total = ts.simulate(model, *start(model), T=16.0, integrator=ts.Variational(0.02)).energies.total
    assert np.ptp(total[400:]) < 2 * np.ptp(total[:400]) < 2e-2 * np.abs(total[0])


def test_feet_land():
    model = model_of("polynomial")
    ground = ts.shapes.HalfSpace(offset=-1.0)
    law = {"stiffness": 1e5, "friction": 0.8}
    feet = [
        ts.Contact("tip", ts.shapes.Sphere(0.2), "world", ground, **law),
        ts.Contact("toe", ts.shapes.Box((0.3, 0.3, 0.3)), "world", ground, **law),
        ts.JointSpring(None, 20.0, damping=1.0),
    ]
    q, v, *_ = state(model, size=12)
    q[:, 2] = 1.0
    for integrator in (ts.BDF1(0.01), ts.BDF2(0.01)):
        landing = ts.simulate(model, q, 0.5 * v, T=1.0, integrator=integrator, forces=feet)
        assert (landing.contacts.gap < 0).any(axis=(1, 2)).all()
        assert np.diff(landing.energies.total, axis=1).max() < 1e-3 * np.abs(landing.energies.total[:, 0]).max()


def test_rows_of_all_joints():
    trajectory = motion(model_of("polynomial"), INTEGRATORS["BDF1"])
    model = trajectory.model
    assert trajectory.tree_q.shape == (6, model.tree.nq)
    T = ts.body_poses(model.tree, trajectory.tree_q)
    np.testing.assert_allclose(T, ts.body_poses(model, trajectory.q), atol=1e-13)
    V = ts.body_velocities(model.tree, trajectory.tree_q, trajectory.tree_v)
    np.testing.assert_allclose(V, ts.body_velocities(model, trajectory.q, trajectory.v), atol=1e-11)


def test_gradients_can_be_applied():
    model = model_of("mimic")
    g = ts.adjoint(motion(model, INTEGRATORS["BDF1"]), dloss_dv=np.ones(model.nv))
    values = [
        {key: c.parameters[key] - 0.1 * d[key] for key in d} for c, d in zip(model.couplings, g.couplings, strict=True)
    ]
    moved = model.with_parameters(couplings=values)
    assert moved.couplings[0].ratio == pytest.approx(-0.7 - 0.1 * g.couplings[0]["ratio"])


def test_models_of_a_batch_say_in_what_they_differ():
    base, (q, v) = tree(), start(tree())
    mimic = ts.Mimic("tip", of="hip", ratio=-0.7, offset=0.2)
    model = base.couple(mimic)
    for other, message in (
        (base, r"model\[1\] has 0 couplings, model\[0\] has 1"),
        (base.couple(ts.Mimic("tip", of="knee")), r"coupling 0 of model\[1\], Mimic.*, in its leaders"),
        (base.couple(ts.Polynomial("tip", "hip", (0.1, 1.0))), "in its kind, numbers of parameters"),
        (model.with_frame("hook", "toe"), r"model\[1\] has the frame 'hook' on 'toe' where model\[0\] has no further"),
    ):
        with pytest.raises(ValueError, match=message):
            ts.simulate([model, other], q[:-1], v[:-1], steps=2, integrator=INTEGRATORS["BDF1"])
    both = ts.simulate(
        [model, base.couple(ts.Mimic("tip", of="hip", ratio=0.3))], *start(model), steps=2, integrator=ts.BDF1(H)
    )
    assert np.abs(both.q[0, -1] - both.q[1, -1]).max() > 1e-6


def test_new_coordinates_are_named_where_coordinates_are():
    model = coupled_model("subspace")
    q, v = start(model)
    push = ts.simulate(model, q, v, steps=3, integrator=ts.BDF1(H), controls=np.ones((3, 1)), actuation=["bend"])
    assert push.controls.shape == (3, 1)
    held = ts.hybrid_dynamics(model, q, v, a=np.full(model.nv, 7.0), prescribed=["twist"])
    assert held[0][-1] == 7.0
    with pytest.raises(KeyError, match="no joint named 'bend': it is a new coordinate of a coupling, on no joint"):
        ts.simulate(model, q, v, steps=1, integrator=ts.BDF1(H), forces=[ts.JointSpring("bend", 1.0)])
    with pytest.raises(KeyError, match="forces and constraints act on the joints 'base', 'hip'"):
        model.joint("twist")
    cost = ts.PositionTarget([0.3, -0.2], joints=["twist", "bend"], at=-1) + ts.VelocityTarget(joints="bend", at="time")
    found = cost.terms[0][1].evaluate(model, q, v, hessians=True)
    x = q[[-1, -2]] - np.array([0.3, -0.2])
    assert found.value == pytest.approx(0.5 * x @ x)
    np.testing.assert_allclose(found.dq[-2:], x[::-1])
    assert not found.dq[:-2].any()
    np.testing.assert_array_equal(found.dqdq, np.diag([0.0] * (model.nv - 2) + [1.0, 1.0]))
    g = ts.adjoint(push, cost)
    values = []
    for s in (1e-6, -1e-6):
        moved = ts.simulate(
            model.with_parameters(couplings=[{"basis": model.couplings[0].basis + s}, {}]), q, v, steps=3,
            integrator=ts.BDF1(H, tolerance=1e-13), controls=np.ones((3, 1)), actuation=["bend"],
        )  # fmt: skip
        values.append(ts.loss(moved, cost).value)
    assert g.couplings[0]["basis"].sum() == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5)
    with pytest.raises(ValueError, match="'bend' are new coordinates of couplings beside joints; give two costs"):
        ts.PositionTarget([0.3, 0.2], joints=["bend", "hip"]).evaluate(model, q)


def test_plots_show_followers_and_new_coordinates():
    trajectory = motion(coupled_model("subspace"), INTEGRATORS["BDF1"])
    model = trajectory.model
    figure = trajectory.plot(joints=["tip", "twist"])
    drawn = [np.asarray(line.get_ydata()) for axis in figure.axes for line in axis.lines]
    for expected in (trajectory.tree_q[:, model.tree.joint("tip").q_slice][:, 0], trajectory.q[:, -1]):
        assert any(curve.shape == expected.shape and np.allclose(curve, expected) for curve in drawn)


@pytest.mark.parametrize("given", [ts.JointSpring(None, np.ones(3)), ts.JointSpring(None, 1.0, rest=np.ones(3))])
def test_sizes_of_all_joints_are_called_those_of_the_tree(given):
    model = model_of("mimic")
    nq, nv = model.tree.nq, model.tree.nv
    with pytest.raises(ValueError, match=f"the tree of this coupled model has ({nq} coordinates|{nv} velocities)"):
        ts.generalized_forces(model, [given], *start(model))
    with pytest.raises(ValueError, match=f"the tree of this coupled model has {nq} coordinates"):
        ts.PositionTarget(np.zeros(3)).evaluate(model, start(model)[0])
    with pytest.raises(ValueError, match="the model has"):
        ts.PositionTarget(np.zeros(3)).evaluate(tree(), tree().neutral)


@pytest.mark.parametrize("kind", [ts.SphericalExp, ts.SphericalEuler])
@pytest.mark.parametrize("coupling", [ts.Mimic("wheel", of=("ball", 0)), ts.Mimic(("ball", 2), of="wheel", ratio=0.5)])
def test_coupled_joints_keep_their_charts(kind, coupling):
    """Couplings are functions of coordinates, which another chart would change: free motions keep their energy."""
    b = ts.ModelBuilder(gravity=(0, 0, 0))
    b.add_body("ball", joint=kind(), inertia=ts.Inertia.box(mass=1.0, size=(0.3, 0.2, 0.1)))
    b.add_body("wheel", "ball", ts.Revolute((0, 0, 1)), inertia=ts.Inertia.box(mass=0.5, size=(0.1, 0.1, 0.4)))
    b.add_body("free", "wheel", ts.SphericalExp(), inertia=ts.Inertia.box(mass=0.5, size=(0.1, 0.1, 0.4)))
    model = b.build().couple(coupling)
    q, v = np.full(model.nq, 0.3), np.full(model.nv, 1.0)
    motion = ts.simulate(model, q, v, T=1.0, integrator=ts.SDIRK2(h=1e-3))
    energy = motion.energies.total
    np.testing.assert_allclose(energy, energy[0], rtol=1e-4)  # the scheme's own error at this step is below 1e-5


def test_rows_of_the_tree_are_those_of_each_model():
    models = [tree().couple(ts.Mimic("tip", of="hip", ratio=r, offset=r)) for r in (0.5, 0.9)]
    q, v = start(models[0])
    both = ts.simulate(models, q, v, steps=3, integrator=ts.BDF1(H))
    for k, model in enumerate(models):
        np.testing.assert_array_equal(both.tree_q[k], model.expand(both.q[k]))
        np.testing.assert_array_equal(both.tree_v[k], model.expand_velocity(both.q[k], both.v[k]))
