"""Parameters of forces over time: against constant parameters, forces with tables of their own, and differences."""

from dataclasses import replace

import numpy as np
import pytest
from population import sweep
from test_adjoint import INTEGRATORS, JOINTS, Wind, close, differences, scene, weighted
from test_controls import same
from test_steps import NAMES

import torsor as ts
from torsor.integrators.base import Implicit
from torsor.testing import example_forces, example_integrators, random_inertia

H = 0.01


def pulled(seed=1):
    """A tree with a spring, a cable and a force of the user's own."""
    model, q, v, rng = scene(JOINTS[:5], seed)
    forces = [
        ts.SpringDamper("world", (0.1, 0.2, 0.3), "b4", (0.3, 0.1, 0), 5.0, 0.3),
        ts.JointSpring("b3", 2.0, (0.1,), 0.2),
        ts.Cable(["world", "b1", "b4"], [(1, 0, 0), (0, 0.1, 0), (0, 0, 0.2)], 4.0, 0.1, 0.5),
    ]
    return model, q, v, rng, forces


@pytest.mark.parametrize("integrator", sweep([*INTEGRATORS, ts.Adaptive(H)], 4), ids=[*NAMES, "Adaptive"])
def test_a_constant_signal_is_a_parameter(integrator):
    """Of every built-in force, to the last bit; and the gradients of all steps add up to that of the parameter."""
    model, q, v, rng, _ = pulled()
    forces = [f for f in example_forces(model, 0) if not (isinstance(integrator, ts.Adaptive) and not f._frozen)]
    steps = 3
    values = [f._for_model(model).parameters for f in forces]
    rows = [{n: np.broadcast_to(x, (steps, *x.shape)) for n, x in one.items()} for one in values]
    given = {"steps": steps, "integrator": integrator, "forces": forces}
    run, other = ts.simulate(model, q, v, signals=rows, **given), ts.simulate(model, q, v, parameters=values, **given)
    same(run, other)
    for a, b in zip(run.energies, other.energies, strict=True):
        np.testing.assert_array_equal(a, b)
    if isinstance(integrator, ts.Adaptive):
        return
    if isinstance(integrator, ts.LinearlyImplicitEuler) and any(not f._frozen for f in forces):
        return
    w = rng.standard_normal((steps + 1, model.nv))
    g, h = ts.adjoint(run, dloss_dq=w), ts.adjoint(other, dloss_dq=w)
    same(g, h)
    assert h.signals is None
    for k, one in enumerate(values):
        assert set(g.signals[k]) == set(one)
        for name, value in one.items():
            assert g.signals[k][name].shape == (steps, *value.shape)
            scale = np.abs(g.signals[k][name]).max(initial=0.0)
            np.testing.assert_allclose(g.forces[k][name], h.forces[k][name], rtol=0, atol=1e-13 * scale + 1e-300)


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=NAMES)
@pytest.mark.parametrize("every", [1, 2])
def test_gradients_of_signals(integrator, every):
    model, q, v, rng, forces = pulled()
    steps = 6
    lengths, stiffness = rng.uniform(0.5, 1.0, steps), rng.uniform(1.0, 3.0, steps)
    rest = rng.uniform(-0.2, 0.2, (steps, 1))

    def run(lengths=lengths, stiffness=stiffness, rest=rest, dq=0.0, cable=0.5):
        return ts.simulate(
            model, model.plus(q, dq + np.zeros(model.nv)), v, steps=steps, integrator=integrator, forces=forces,
            every=every, parameters=[None, None, {"rest_length": cable}],
            signals=[{"rest_length": lengths}, {"rest": rest, "stiffness": stiffness}, None],
        )  # fmt: skip

    base = run()
    wq, wv = rng.standard_normal((2, len(base.t), model.nv))
    loss = weighted(model, base, wq, wv)
    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)
    assert set(g.signals[1]) == {"rest", "stiffness"} and g.signals[2] == {}
    close(g.signals[0]["rest_length"], differences(lambda x: loss(run(lengths=x)), lengths, 3e-3))
    close(g.signals[1]["stiffness"], differences(lambda x: loss(run(stiffness=x)), stiffness, 3e-2))
    close(g.signals[1]["rest"], differences(lambda x: loss(run(rest=x)), rest, 1e-2))
    close(g.q0, differences(lambda x: loss(run(dq=x)), np.zeros(model.nv)))
    close(g.forces[2]["rest_length"], differences(lambda x: loss(run(cable=x)), 0.5))
    np.testing.assert_allclose(g.forces[1]["stiffness"], g.signals[1]["stiffness"].sum(), rtol=1e-13)
    assert type(ts.adjoint(base, dloss_dq=wq, parameters=False)) is ts.simulation.StateGradient
    np.testing.assert_array_equal(ts.adjoint(base, dloss_dq=wq, parameters=False).q0, ts.adjoint(base, dloss_dq=wq).q0)


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=NAMES)
def test_signals_of_a_force_of_the_users_own(integrator):
    model, q, v, rng = scene(JOINTS[:5])
    steps = 4
    force = Wind(model)
    p = np.asarray(force.p) * rng.uniform(0.5, 1.5, (steps, np.size(force.p)))

    def run(p):
        return ts.simulate(model, q, v, steps=steps, integrator=integrator, forces=[force], signals=[{"p": p}])

    base = run(p)
    w = rng.standard_normal((2, steps + 1, model.nv))
    loss = weighted(model, base, *w)
    close(ts.adjoint(base, dloss_dq=w[0], dloss_dv=w[1]).signals[0]["p"], differences(lambda p: loss(run(p)), p, 3e-2))


def test_torques_as_a_signal_are_controls():
    """To the last bit with one torque for all joints: they enter the same sum, and nothing else does."""
    model, q, v, rng = scene(JOINTS[:5])
    u = rng.standard_normal((5, model.nv))
    for integrator in INTEGRATORS:
        given = {"steps": 5, "integrator": integrator}
        forces = [ts.JointTorque(None, np.zeros(model.nv))]
        run = ts.simulate(model, q, v, forces=forces, signals=[{"torque": u}], **given)
        other = ts.simulate(model, q, v, controls=u, **given)
        # Sums in another order; and what Newton's method leaves.
        np.testing.assert_allclose(run.q, other.q, atol=1e-12)
        w = rng.standard_normal((6, model.nv))
        g, h = ts.adjoint(run, dloss_dv=w), ts.adjoint(other, dloss_dv=w)
        close(g.signals[0]["torque"], h.controls, 1e-9)


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=NAMES)
def test_batches_of_signals_have_the_bits_of_their_parts(integrator):
    model, q, v, rng, forces = pulled()
    several = [model, model.with_gravity((0, 0, -3.0))]
    steps = 4
    lengths = rng.uniform(0.5, 1.0, (3, 1, steps))  # against models
    stiffness = rng.uniform(1.0, 3.0, steps)  # for all
    signals = [{"rest_length": lengths}, {"stiffness": stiffness}, None]
    given = {"steps": steps, "integrator": integrator, "forces": forces}
    run = ts.simulate(several, q, v, signals=signals, threads=2, **given)
    assert run.q.shape[:2] == (3, 2)
    w = rng.standard_normal((steps + 1, model.nv))
    g = ts.adjoint(run, dloss_dq=np.broadcast_to(w, run.v.shape), threads=2)
    assert g.signals[0]["rest_length"].shape == g.signals[1]["stiffness"].shape == (3, 2, steps)
    for i, k in ((0, 0), (2, 1)):
        one_signal = [{"rest_length": lengths[i, 0]}, {"stiffness": stiffness}, None]
        one = ts.simulate(several[k], q, v, signals=one_signal, **given)
        np.testing.assert_array_equal(run.q[i, k], one.q)
        np.testing.assert_array_equal(run.energies.forces[i, k], one.energies.forces)
        h = ts.adjoint(one, dloss_dq=w)
        np.testing.assert_array_equal(g.signals[0]["rest_length"][i, k], h.signals[0]["rest_length"])
        np.testing.assert_array_equal(g.signals[1]["stiffness"][i, k], h.signals[1]["stiffness"])
        np.testing.assert_array_equal(g.q0[i, k], h.q0)


@pytest.mark.parametrize("every", [1, 2])
def test_energies_have_the_parameters_of_the_step_before(every):
    model, q, v, rng, forces = pulled()
    steps = 6
    lengths = rng.uniform(0.5, 1.0, steps)
    run = ts.simulate(
        model, q, v, steps=steps, integrator=ts.SDIRK2(H), forces=forces,
        signals=[{"rest_length": lengths}, None, None], every=every,
    )  # fmt: skip
    for row in range(len(run.t)):
        length = lengths[max(every * row - 1, 0)]
        now = [forces[0].with_parameters({"rest_length": length}), *forces[1:]]
        expected = ts.force_energies(model, now, run.q[row])
        np.testing.assert_array_equal(run.energies.forces[row], expected)


@pytest.mark.parametrize("every", [1, 2])
def test_energies_of_forces_as_a_loss(every):
    model, q, v, rng, forces = pulled()
    steps = 6
    stiffness = rng.uniform(1.0, 3.0, steps)
    lengths = rng.uniform(0.5, 1.0, steps)

    def loss(stiffness, lengths):
        run = ts.simulate(
            model, q, v, steps=steps, integrator=ts.BDF2(H, tolerance=1e-13), forces=forces, every=every,
            signals=[{"rest_length": lengths}, {"stiffness": stiffness}, None],
        )  # fmt: skip
        return run, ts.loss(run, ts.EnergyCost(parts=("kinetic", "forces"), at=slice(None)))

    g = ts.adjoint(*loss(stiffness, lengths))
    close(g.signals[1]["stiffness"], differences(lambda x: loss(x, lengths)[1].value, stiffness, 3e-2))
    close(g.signals[0]["rest_length"], differences(lambda x: loss(stiffness, x)[1].value, lengths, 3e-3))
    np.testing.assert_allclose(g.forces[0]["rest_length"], g.signals[0]["rest_length"].sum(), rtol=1e-11)
    total = loss(stiffness, lengths)[1]
    np.testing.assert_allclose((2 * total + total).dsignals[1]["stiffness"], 3 * total.dsignals[1]["stiffness"])


def test_a_pumped_spring_gains_the_energy_that_is_put_in():
    """A spring that becomes stiffer while stretched: the change of its energy is the work of the pump."""
    builder = ts.ModelBuilder(gravity=(0, 0, 0))
    builder.add_body("a", "world", ts.Prismatic((1, 0, 0)), inertia=ts.Inertia.sphere(mass=1.0, radius=0.1))
    model = builder.build()
    stiffness = np.where(np.arange(400) < 200, 1.0, 9.0)
    forces = [ts.JointSpring("a", 1.0)]
    run = ts.simulate(
        model, [0.5], steps=400, integrator=ts.Variational(5e-3), forces=forces, signals=[{"stiffness": stiffness}]
    )
    total, x = run.energies.total, run.q[200, 0]
    np.testing.assert_allclose(total[:201], 0.125, rtol=1e-4)
    np.testing.assert_allclose(total[202:] - total[200], 0.5 * 8.0 * x**2, rtol=1e-3)


def test_signals_with_chart_switches():
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    inertia = ts.Inertia.box(mass=1.0, size=(0.3, 0.2, 0.5))
    builder.add_body("a", "world", ts.SphericalEuler("XYZ"), inertia=inertia)
    model = builder.build()
    forces = [ts.SpringDamper("world", (1, 0, 0), "a", (0.2, 0.1, 0.4), 5.0, 0.1, 0.5)]
    lengths = rng.uniform(0.3, 0.8, 12)
    q, v = np.array([0.1, 0.95, 0.3]), np.array([0.5, 3.0, 0.3])

    def run(lengths, q=q):
        return ts.simulate(
            model, q, v, steps=12, integrator=ts.BDF2(H, tolerance=1e-13), forces=forces,
            signals=[{"rest_length": lengths}],
        )  # fmt: skip

    base = run(lengths)
    rows = [s.row for s in base.switches]
    assert rows
    w = rng.standard_normal((13, 3))

    def loss(run):
        assert [s.row for s in run.switches] == rows
        return (w * run.v).sum()

    g = ts.adjoint(base, dloss_dv=w)
    close(g.signals[0]["rest_length"], differences(lambda x: loss(run(x)), lengths))
    both = run(lengths, np.stack([q, q + 0.05]))
    np.testing.assert_array_equal(both.energies.total[0], base.energies.total)


ONE_OF_EACH = [replace(i, tolerance=1e-13) if hasattr(i, "tolerance") else i for i in example_integrators(H)]
DIVIDED = [replace(i, h=0.03, tolerance=1e-12, iterations=3) for i in ONE_OF_EACH if isinstance(i, Implicit)]


@pytest.mark.parametrize(
    "integrator", sweep([*ONE_OF_EACH, *DIVIDED], 8), ids=lambda i: f"{type(i).__name__}-{i.order}-{i.h}"
)
@pytest.mark.parametrize("every", [1, 3])
def test_everything_at_once(integrator, every):
    """A batch with signals, parameters, a policy and actuation, through changes of charts and divided steps."""
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("a", "world", ts.SphericalEuler("XYZ"), inertia=random_inertia(rng))
    exponential = ts.Composite(ts.Prismatic((1, 0, 0)), ts.SphericalExp())
    builder.add_body("b", "a", exponential, ts.SE3.translation(0.3, 0.1, -0.4), random_inertia(rng))
    model = builder.build()
    forces = [ts.SpringDamper("world", (0, 1, 0), "b", (0.1, 0, 0), 5.0, 0.3, 0.5), ts.BodyDamping("b", 0.1)]
    B, K = rng.standard_normal((model.nv, 2)), rng.standard_normal((2, model.nv))
    policy = ts.Policy(
        lambda t, q, v: np.sin((K * v[..., None, :]).sum(-1) + t),
        lambda t, q, v: (np.zeros((2, model.nv)), np.cos((K * v[..., None, :]).sum(-1) + t)[..., None] * K),
    )
    steps, divided = 12, integrator.h > H
    point = {
        "q": np.array([[0.1, 1.0, 0.3, 0.1, 2.95, 0.8, 0.2], [0.1, 0.3, 0.3, 0.1, 0.9, 0.8, 0.2]]),
        "v": (3.0 if divided else 1.0) * np.array([0.5, 3.0, 0.3, 0.2, 3.0, 2.0, 0.5]) * np.ones((2, 1)),
        "length": rng.uniform(0.5, 1.0, (2, steps)),
        "damping": rng.uniform(0.1, 0.2, (steps, 6)),
        "stiffness": np.array([4.0, 6.0]),
    }

    def run(q, v, length, damping, stiffness):
        return ts.simulate(
            model, q, v, steps=steps, integrator=integrator, forces=forces, controls=policy, actuation=B, every=every,
            parameters=[{"stiffness": stiffness}, None], signals=[{"rest_length": length}, {"coefficients": damping}],
        )  # fmt: skip

    base = run(**point)
    assert any(s.track == 0 for s in base.switches)
    assert not divided or (base.substeps > 1).any()
    wq, wv = rng.standard_normal((2, *base.v.shape))

    def loss(other):
        assert [(s.track, s.row) for s in other.switches] == [(s.track, s.row) for s in base.switches]
        np.testing.assert_array_equal(other.substeps, base.substeps)
        return (wq * (other.q - base.q)).sum() + (wv * (other.v - base.v)).sum()

    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)
    gradient = {
        "q": g.q0,
        "v": g.v0,
        "length": g.signals[0]["rest_length"],
        "damping": g.signals[1]["coefficients"].sum(axis=0),  # one for both trajectories
        "stiffness": g.forces[0]["stiffness"],
    }
    # What Newton's method leaves, 1e-13 or 1e-12, over steps of differences that change no division.
    eps, tolerance = (1e-6, 1e-5) if divided else (1e-4, 1e-8)
    for name, x in point.items():
        d = rng.standard_normal(x.shape)
        along = differences(lambda s, name=name, d=d: loss(run(**{**point, name: point[name] + s * d})), 0.0, eps)
        assert abs((gradient[name] * d).sum() - along) <= tolerance * max(1.0, abs(along)), name


def test_files_and_failures(tmp_path):
    model, q, v, rng, forces = pulled()
    signals = [{"rest_length": rng.uniform(0.5, 1.0, 4)}, {"stiffness": rng.uniform(1, 2, 4)}, None]
    given = {"integrator": ts.BDF2(H), "forces": forces}
    run = ts.simulate(model, q, v, steps=4, signals=signals, **given)
    run.save(tmp_path / "run.npz")
    back = ts.Trajectory.load(tmp_path / "run.npz", model, forces)
    same(back, run)
    np.testing.assert_array_equal(back.signals[1]["stiffness"], signals[1]["stiffness"])
    np.testing.assert_array_equal(back.energies.total, run.energies.total)
    w = rng.standard_normal((5, model.nv))
    a, b = ts.adjoint(run, dloss_dq=w), ts.adjoint(back, dloss_dq=w)
    np.testing.assert_array_equal(a.signals[0]["rest_length"], b.signals[0]["rest_length"])
    # The force's own rest length is not known, and does not matter.
    other = [ts.SpringDamper("world", (0.1, 0.2, 0.3), "b4", (0.3, 0.1, 0), 5.0, 0.3, 7.0), *forces[1:]]
    same(ts.Trajectory.load(tmp_path / "run.npz", model, other), run)
    with pytest.raises(ValueError, match="has signals of force 1, got 1 forces"):
        ts.Trajectory.load(tmp_path / "run.npz", model, forces[:1])
    torques = np.zeros((10, model.nv))
    torques[5] = 1e300
    with pytest.raises(ts.ConvergenceError) as error:
        ts.simulate(
            model, q, v, steps=10, integrator=ts.SymplecticEuler(H), forces=[ts.JointTorque(None, torques[0])],
            signals=[{"torque": torques}],
        )  # fmt: skip
    part = error.value.trajectory
    assert part.signals[0]["torque"].shape == (part.steps, model.nv)
    good = ts.adjoint(part, dloss_dq=np.ones((part.steps + 1, model.nv)))
    assert good.signals[0]["torque"].shape == (part.steps, model.nv)
    nothing = ts.simulate(model, q, v, steps=0, signals=[{"rest_length": np.zeros(0)}, None, None], **{
        **given, "forces": [forces[0].with_parameters({"rest_length": 1.0}), *forces[1:]]})  # fmt: skip
    assert nothing.energies.total.shape == (1,)


@pytest.mark.parametrize(
    ("signals", "error", "message"),
    [
        ({}, TypeError, "signals must be a list with a dict, or None, for each of 3 forces, got dict"),
        ([None], TypeError, "signals must be a list with a dict, or None, for each of 3 forces, got 1 of them"),
        ([1, None, None], TypeError, r"signals of force 0 \(SpringDamper\) must be a dict or None, got int"),
        (
            [{"length": np.ones(4)}, None, None],
            ValueError,
            r"force 0 \(SpringDamper\) has no parameter 'length'",
        ),
        (
            [{"stiffness": np.ones(3)}, None, None],
            ValueError,
            r"stiffness of force 0 \(SpringDamper\) has shape \(3,\), expected \(..., 4\), as the force's own for",
        ),
        (
            [{"point1": np.ones((4, 2))}, None, None],
            ValueError,
            r"point1 of force 0 \(SpringDamper\) has shape \(4, 2\), expected \(..., 4, 3\)",
        ),
        (
            [{"stiffness": [1, 2, -1, 2]}, None, None],
            ValueError,
            r"force 0 \(SpringDamper\) at step 2: stiffness is -1, expected 0 at least",
        ),
        ([None, {"stiffness": [1, 2, 3, np.nan]}, None], ValueError, r"force 1 \(JointSpring\) at step 3: .*finite"),
        (
            [{"stiffness": np.array([[1.0, 1, 1, 1], [1, -2, 1, 1]])}, None, None],
            ValueError,
            r"force 0 \(SpringDamper\) at step 1 in trajectory 1 of the batch: stiffness is -2",
        ),
        (
            [None, None, {"damping": np.zeros(4)}],
            ValueError,
            r"damping of force 2 \(Cable\) is given twice, in parameters and in signals",
        ),
        ([{"stiffness": np.ones((5, 4))}, None, None], ValueError, r"batch shapes do not fit together: .*parameters"),
    ],
)
def test_bad_signals_are_told(signals, error, message):
    model, q, v, _, forces = pulled()
    first = forces[0].with_parameters({"rest_length": 1.0})
    with pytest.raises(error, match=message):
        ts.simulate(
            model, np.stack([q, q]) if "fit" in message else q, v, steps=4, integrator=ts.BDF1(H),
            forces=[first, *forces[1:]], signals=signals, parameters=[None, None, {"damping": 0.1}],
        )  # fmt: skip


def test_values_that_depend_on_each_other_are_checked_row_by_row():
    model, q, v, _ = scene(JOINTS[:5])
    given = {"steps": 3, "integrator": ts.BDF1(H)}
    limits = [ts.JointLimits("b3", 10.0, 0.1, -1.0, 1.0)]
    lower, upper = np.array([[-1.0], [2.0], [-1.0]]), np.array([[1.0], [3.0], [-0.5]])
    ts.simulate(model, q, v, forces=limits, signals=[{"lower": lower, "upper": upper}], **given)
    with pytest.raises(ValueError, match=r"force 0 \(JointLimits\) at step 1: lower limit 2 is above the upper"):
        ts.simulate(model, q, v, forces=limits, signals=[{"lower": lower, "upper": [[1.0], [1.0], [-0.5]]}], **given)
    rest = np.array([[0, 0, 0, 1.0], [0, 0, 0, 0], [0, 0, 1, 1]])
    with pytest.raises(ValueError, match=r"force 0 \(JointSpring\) at step 1: rest of joint 'b1' has a zero"):
        ts.simulate(model, q, v, forces=[ts.JointSpring("b1", 1.0)], signals=[{"rest": rest}], **given)


def test_signals_are_checked_with_the_parameters_beside_them():
    """Limits: whether one is above the other depends on both."""
    model = ts.models.acrobot()
    limits = ts.JointLimits(None, 10.0, 0.0, [-1.0, -1.0], [0.1, 0.1])

    def run(upper, lower):
        given = {"parameters": [{"upper": upper}], "signals": [{"lower": lower}]}
        return ts.simulate(model, np.zeros(2), steps=2, integrator=ts.BDF1(0.01), forces=[limits], **given)

    assert np.isfinite(run([2.0, 2.0], np.full((2, 2), 0.5)).q).all()
    with pytest.raises(ValueError, match=r"at step 1: lower limit 3 is above the upper limit 2"):
        run([2.0, 2.0], [[0.5, 0.5], [0.5, 3.0]])
