"""Gradients of whole simulations and Jacobians of steps, against differences of fourth order."""

import copy
import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from compare import differences, to_within
from population import sweep

import torsor as ts
from torsor.testing import check_force, example_forces, random_inertia, random_pose

TIGHT = {"tolerance": 1e-13}
INTEGRATORS = (
    ts.SymplecticEuler(0.01),
    ts.LinearlyImplicitEuler(0.01),
    ts.BDF1(0.01, **TIGHT),
    ts.BDF2(0.01, **TIGHT),
    ts.SDIRK2(0.01, **TIGHT),
    ts.Variational(0.01, **TIGHT),
    ts.Variational(0.01, 4, "lobatto", **TIGHT),
)
# Rounding (1e-13 of Newton's method over 1e-3) and truncation (1e-12) leave 1e-9 or so of the largest entry.
close = to_within(2e-8, least=1e-6)


def scene(joints, seed=1):
    rng = np.random.default_rng(seed)
    builder = ts.ModelBuilder(gravity=(0.3, 0.2, -9.81))
    names = ["world"]
    for k, joint in enumerate(joints):
        parent = names[-1] if k % 3 else names[rng.integers(len(names))]
        builder.add_body(f"b{k}", parent, joint, random_pose(rng), random_inertia(rng))
        names.append(f"b{k}")
    model = builder.build()
    q = model.plus(model.random(rng), np.zeros(model.nv))
    for j in model.joints:
        if isinstance(j.joint, (ts.SphericalEuler, ts.SphericalExp)):
            q[j.q_slice] = (0.3, 0.4, -0.2)
    return model, q, 0.5 * rng.standard_normal(model.nv), rng


JOINTS = [
    ts.Fixed(),
    ts.Spherical(),
    ts.Fixed(),
    ts.Revolute((0, 1, 0.3)),
    ts.Free(),
    ts.SphericalExp(),
    ts.Composite(ts.Prismatic((0, 1, 0)), ts.SphericalEuler("XYZ")),
]


def weighted(model, run, wq, wv):
    """A loss that is linear in velocities and in displacements from the rows of `run`."""
    return lambda other: (wq * model.minus(other.q, run.q)).sum() + (wv * other.v).sum()


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=lambda i: type(i).__name__)
def test_gradients_of_a_rollout(integrator):
    model, q, v, rng = scene(JOINTS)
    steps = 5
    u = rng.standard_normal((steps, model.nv))
    # With the control of each step, all forces but those written in Python; friction and limits where they are smooth.
    skipped = (ts.JointLimits, ts.JointFriction, ts.Contact, ts.CustomSpring, ts.CustomCable)
    forces = [f for f in example_forces(model, 3) if not isinstance(f, skipped)]

    def run(q=q, v=v, u=u, model=model, forces=forces):
        return ts.simulate(model, q, v, steps=steps, integrator=integrator, forces=forces, controls=u)

    base = run()
    assert not base.switches
    wq, wv = rng.standard_normal((2, steps + 1, model.nv))
    loss = weighted(model, base, wq, wv)
    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)
    close(g.q0, differences(lambda x: loss(run(q=model.plus(q, x))), np.zeros(model.nv)))
    close(g.v0, differences(lambda x: loss(run(v=x)), v))
    chosen = np.zeros_like(u, dtype=bool)
    chosen[::2, ::3] = True

    def controls(x):
        changed = u.copy()
        changed[chosen] = x
        return changed

    close(g.controls[chosen], differences(lambda x: loss(run(u=controls(x))), u[chosen], 1e-2))
    close(g.gravity, differences(lambda x: loss(run(model=model.with_gravity(x))), np.array(model.gravity), 1e-2))

    def body(k, **parts):
        bodies = list(model.bodies)
        bodies[k] = replace(bodies[k], **parts)
        return replace(model, bodies=tuple(bodies))

    for k in (2, 3, 4):
        at = model.bodies[k].inertia.parameters
        other = differences(lambda x, k=k: loss(run(model=body(k, inertia=ts.Inertia.from_parameters(x)))), at)
        close(g.inertia[k], other, 1e-7)
    for k in (0, 2, 4):
        b = model.bodies[k]
        moved = differences(
            lambda x, k=k, b=b: loss(run(model=body(k, placement=b.placement @ ts.SE3.exp(x)))), np.zeros(6)
        )
        close(g.placement[k], moved)
    for k, (force, of_force) in enumerate(zip(forces, g.forces, strict=True)):
        assert of_force
        for name, value in of_force.items():
            p = force._for_model(model).parameters[name]
            d = rng.standard_normal(p.shape)

            def moved(s, k=k, name=name, p=p, d=d):
                return loss(run(forces=[*forces[:k], forces[k].with_parameters({name: p + s * d}), *forces[k + 1 :]]))

            # of small influence, rounding counts for more
            assert abs((value * d).sum() - differences(moved, 0.0)) <= 1e-6 * max(np.abs(value * d).sum(), 1e-2)


@pytest.mark.parametrize("kind", [ts.BDF1, ts.BDF2, ts.SDIRK2])
def test_gradients_through_dry_friction_and_limits(kind):
    """An arm that meets a limit, leaves it and sticks. The laws are C^1, so that gradients are those of differences,
    but for a tenth of their step where a second derivative jumps."""
    integrator = kind(5e-3, tolerance=1e-13)
    arm = ts.Inertia.point(1.0, (0.3, 0, 0))
    builder = ts.ModelBuilder(gravity=(0, 0, 0))
    model = (
        builder.add_body("a", joint=ts.Revolute(), inertia=arm).add_body("b", "a", ts.Revolute(), inertia=arm).build()
    )
    limits = ts.JointLimits("a", 50.0, 0.0, -2.0, 0.2, dissipation=0.1, onset=0.05)
    friction = ts.JointFriction(None, (0.1, 0.3), slip=(0.02, 0.05))

    def run(v=(1.0, -0.4), **changed):
        forces = [limits.with_parameters({k: x for k, x in changed.items() if k in limits.parameters})]
        forces += [friction.with_parameters({k: x for k, x in changed.items() if k in friction.parameters})]
        return ts.simulate(model, [0.1, 0.0], v, steps=100, integrator=integrator, forces=forces)

    base = run()
    assert base.q[:, 0].max() > 0.25 and base.q[-1, 0] < 0.2  # it met the limit, and left it
    assert np.abs(base.v[-1, 1]) < 0.05 < np.abs(base.v[:, 1]).max()  # it slipped, and sticks
    wq, wv = np.zeros((2, 101, 2))
    wq[-1], wv[-1] = (1.0, 2.0), (0.3, -0.7)
    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)
    loss = lambda run: wq[-1] @ run.q[-1] + wv[-1] @ run.v[-1]  # noqa: E731
    by_v = differences(lambda v: loss(run(v=v)), np.array([1.0, -0.4]), 1e-6)
    np.testing.assert_allclose(g.v0, by_v, rtol=0, atol=1e-7)
    for force, by in zip((limits, friction), g.forces, strict=True):
        for name in ("stiffness", "upper", "dissipation", "onset", "torque", "slip"):
            if name in by:
                x = force.parameters[name]
                numerical = differences(lambda x, name=name: loss(run(**{name: x})), x, 1e-6)
                np.testing.assert_allclose(by[name], numerical, rtol=0, atol=1e-7)


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=lambda i: type(i).__name__)
def test_gradients_by_parameters_that_are_not_of_unit_length(integrator):
    """Normals and quaternions may have any length; gradients are by the numbers that were given."""
    builder = ts.ModelBuilder()
    builder.add_body("a", "world", ts.Free(), inertia=random_inertia(np.random.default_rng(0)))
    builder.add_body("b", "a", ts.Spherical(), inertia=random_inertia(np.random.default_rng(1)))
    model = builder.build()
    rng = np.random.default_rng(2)
    q, v = model.random(rng), rng.standard_normal(model.nv)
    forces = [
        ts.GroundContact("b", [(0.1, 0.2, 0.3), (0.3, 0, 0.1)], 50.0, 2.0, 3.0, 0.5, ground=(0, 0, 20)),
        ts.JointSpring("b", (2.0, 3.0, 4.0)),
        ts.JointSpring("a", 3.0),
    ]
    given = {"normal": np.array([0.3, -0.2, 2.9]), "rest": np.array([0.2, 0.5, -0.4, 3.0])}
    free = np.array([0.1, 0.2, 0.3, 0.1, -0.3, 0.2, 0.4])

    def run(normal=given["normal"], rest=given["rest"], free=free):
        parameters = [{"normal": normal}, {"rest": rest}, {"rest": free}]
        made = ts.simulate(model, q, v, steps=3, integrator=integrator, forces=forces, parameters=parameters)
        cost = ts.EnergyCost(("kinetic", "potential", "forces"), 2.0, at=slice(None)) + ts.VelocityTarget(1.0)
        return made, ts.loss(made, cost)

    g = ts.adjoint(*run()).forces
    close(g[0]["normal"], differences(lambda x: run(normal=x)[1].value, given["normal"]), 1e-7)
    close(g[1]["rest"], differences(lambda x: run(rest=x)[1].value, given["rest"]), 1e-7)
    close(g[2]["rest"], differences(lambda x: run(free=x)[1].value, free), 1e-7)
    # Along a vector whose length does not matter there is no gradient, and twice the vector has half of it.
    assert abs(g[0]["normal"] @ given["normal"]) <= 1e-9 * np.abs(g[0]["normal"]).max()
    twice = ts.adjoint(*run(normal=2 * given["normal"])).forces
    close(2 * twice[0]["normal"], g[0]["normal"], 1e-9)


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=lambda i: type(i).__name__)
def test_gradients_through_chart_switches(integrator):
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("a", "world", ts.SphericalEuler("XYZ"), inertia=random_inertia(rng))
    exponential = ts.Composite(ts.Prismatic((1, 0, 0)), ts.SphericalExp())
    builder.add_body("b", "a", exponential, ts.SE3.translation(0.3, 0.1, -0.4), random_inertia(rng))
    model = builder.build()
    q, v = np.array([0.1, 0.95, 0.3, 0.1, 2.9, 0.8, 0.2]), np.array([0.5, 2.0, 0.3, 0.2, 2.0, 2.0, 0.5])
    u = rng.standard_normal((12, model.nv))

    def run(q=q, v=v, u=u, model=model):
        return ts.simulate(model, q, v, steps=12, integrator=integrator, controls=u)

    base = run()
    assert [s.row for s in base.switches] == [5, 6]
    assert base.switches[0].charts != base.switches[0].old  # Euler angles
    assert base.switches[1].charts == base.switches[1].old  # exponential coordinates
    wq, wv = rng.standard_normal((2, 13, model.nv))

    def loss(other):
        assert [s.row for s in other.switches] == [5, 6]
        return (wq * other.q).sum() + (wv * other.v).sum()

    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)
    close(g.q0, differences(lambda x: loss(run(q=x)), q))
    close(g.v0, differences(lambda x: loss(run(v=x)), v))

    def controls(x):
        changed = u.copy()
        changed[::5] = x
        return changed

    close(g.controls[::5], differences(lambda x: loss(run(u=controls(x))), u[::5], 1e-2))
    close(g.gravity, differences(lambda x: loss(run(model=model.with_gravity(x))), np.array(model.gravity), 1e-2))


@pytest.mark.parametrize("kind", [ts.BDF1, ts.BDF2, ts.SDIRK2])
def test_gradients_through_divided_steps(kind):
    model, q, v, rng = scene(JOINTS[:5])
    integrator = kind(0.03, iterations=3, tolerance=1e-12)
    base = ts.simulate(model, q, 4 * v, steps=4, integrator=integrator)
    assert (base.substeps > 1).any()
    wq, wv = rng.standard_normal((2, 5, model.nv))
    loss = weighted(model, base, wq, wv)
    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)

    def at(x):
        run = ts.simulate(model, q, x, steps=4, integrator=integrator)
        np.testing.assert_array_equal(run.substeps, base.substeps)
        return loss(run)

    close(g.v0, differences(at, 4 * v, 1e-4), 1e-7)


def test_gradients_with_controls_of_time():
    """Two rows of controls for each step: at the first stage and at the end."""
    model, q, v, rng = scene(JOINTS[:5])
    amplitude = rng.standard_normal(model.nv)
    for integrator in INTEGRATORS:

        def run(a, integrator=integrator):
            return ts.simulate(model, q, v, steps=4, integrator=integrator, controls=lambda t: a * np.sin(30 * t + 1))

        base = run(amplitude)
        g = ts.adjoint(base, dloss_dv=np.ones(model.nv))
        assert g.controls.shape == base.controls.shape
        axes = tuple(range(base.controls.ndim - 1))
        chain = (g.controls * (base.controls / amplitude)).sum(axis=axes)
        close(chain, differences(lambda a: run(a).v[-1].sum(), amplitude, 1e-2))


def test_adjoint_of_a_batch_is_that_of_each():
    model, q, v, rng = scene(JOINTS[:5])
    qs = model.plus(q, 0.1 * rng.standard_normal((2, 2, model.nv)))
    forces = [ts.JointSpring(None, 2.0, model.neutral)]
    for integrator in INTEGRATORS:
        batch = ts.simulate(model, qs, v, steps=3, integrator=integrator, forces=forces)
        w = rng.standard_normal((2, 2, 4, model.nv))
        g = ts.adjoint(batch, dloss_dq=w, dloss_dv=w, threads=2)
        one = ts.simulate(model, qs[1, 0], v, steps=3, integrator=integrator, forces=forces)
        h = ts.adjoint(one, dloss_dq=w[1, 0], dloss_dv=w[1, 0])
        for name in ("q0", "v0", "controls", "inertia", "placement", "gravity"):
            np.testing.assert_array_equal(getattr(g, name)[1, 0], getattr(h, name))
        np.testing.assert_array_equal(g.forces[0]["stiffness"][1, 0], h.forces[0]["stiffness"])
        short = ts.adjoint(one, dloss_dq=w[1, 0], dloss_dv=w[1, 0], parameters=False)
        np.testing.assert_array_equal(short.controls, h.controls)
        assert type(short) is ts.simulation.StateGradient and type(h) is ts.simulation.AdjointGradient


def equal(g, h, pick=(), tolerance=0.0):
    """Gradients of one trajectory, of a batch and alone, to the last bit unless a tolerance is given."""

    def compare(a, b):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=0))

    for name in ("q0", "v0", "controls", "inertia", "placement", "gravity"):
        compare(getattr(g, name)[pick], getattr(h, name))
    for a, b in zip(g.forces, h.forces, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            compare(a[name][pick], b[name])


def rounding(integrator):
    """Of gradients between windows of steps, in (q, v) there: Variational goes by (q, p), and rounds M and M^-1."""
    return 1e-11 if isinstance(integrator, ts.Variational) else 0.0


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=lambda i: type(i).__name__)
def test_adjoint_of_a_batch_of_models_and_parameters(integrator):
    model, q, v, rng = scene(JOINTS[:5])
    models = []
    for _ in range(3):
        bodies = [replace(b, inertia=random_inertia(rng), placement=random_pose(rng)) for b in model.bodies]
        models.append(ts.Model("other", rng.standard_normal(3), tuple(bodies)))
    forces = [
        ts.JointSpring(None, 2.0, model.neutral),
        ts.PointSpring("b3", (0, 0, 1), "b4", (1, 0, 0), 5.0, 1.0),
        ts.BodyDamping("b4", 0.3),
    ]
    stiffness, points = np.array([[1.0], [2.0]]), rng.standard_normal((3, 3))
    values = [{"stiffness": stiffness}, {"point1": points, "damping": 0.4}, None]
    batch = ts.simulate(models, q, v, steps=3, integrator=integrator, forces=forces, parameters=values, threads=2)
    assert batch.batch_shape == (2, 3)
    wq, wv = rng.standard_normal((2, 2, 3, 4, model.nv))
    g = ts.adjoint(batch, dloss_dq=wq, dloss_dv=wv, threads=2)
    for i in range(2):
        for j in range(3):
            own = [
                forces[0].with_parameters({"stiffness": stiffness[i, 0]}),
                forces[1].with_parameters({"point1": points[j], "damping": 0.4}),
                forces[2],
            ]
            one = ts.simulate(models[j], q, v, steps=3, integrator=integrator, forces=own)
            equal(g, ts.adjoint(one, dloss_dq=wq[i, j], dloss_dv=wv[i, j]), (i, j))


def test_losses_of_a_batch_of_models_and_parameters():
    """Differences over one call: the batch is all the points that they need."""
    model, q, v, _ = scene(JOINTS[:5])
    forces = [ts.JointSpring(None, 2.0, model.neutral), ts.PointSpring("b3", (0, 0, 1), "b4", (1, 0, 0), 5.0, 1.0)]
    eps = 1e-3
    shifts = eps * np.array([0.0, 1, -1, 2, -2])
    integrator = ts.BDF2(0.01, **TIGHT)
    run = ts.simulate(
        model, q, v, steps=5, integrator=integrator, forces=forces, parameters=[None, {"stiffness": 5.0 + shifts}]
    )
    cost = ts.PointTarget("b4", (0.1, 0, 0), (1, 0, 0), at=slice(None)) + ts.EnergyCost()
    _, a, b, c, d = ts.loss(run, cost).value
    expected = (4 * (a - b) / (2 * eps) - (c - d) / (4 * eps)) / 3
    close(ts.adjoint(run, cost).forces[1]["stiffness"][0], expected)
    models = [model.with_gravity(np.array(model.gravity) + (s, 0, 0)) for s in 10 * shifts]
    run = ts.simulate(models, q, v, steps=5, integrator=integrator, forces=forces)
    _, a, b, c, d = ts.loss(run, cost).value
    expected = (4 * (a - b) / (20 * eps) - (c - d) / (40 * eps)) / 3
    close(ts.adjoint(run, cost).gravity[0, 0], expected)


@pytest.mark.parametrize("every", [2, 4, 6])
@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=lambda i: type(i).__name__)
def test_adjoint_with_every(integrator, every):
    """Steps that are taken once more give the same gradients, to the last bit."""
    model, q, v, rng = scene(JOINTS)
    qs = model.plus(q, 0.1 * rng.standard_normal((2, model.nv)))
    skipped = (ts.JointLimits, ts.CustomSpring, ts.CustomCable)
    given = {
        "steps": 12,
        "integrator": integrator,
        "forces": [f for f in example_forces(model, 3) if not isinstance(f, skipped)],
        "controls": lambda t: np.sin(30 * t) * np.ones(model.nv),
        "t0": 0.3,
    }
    full = ts.simulate(model, qs, v, **given)
    some = ts.simulate(model, qs, v, every=every, **given)
    wq, wv = np.zeros((2, 2, 13, model.nv))
    wq[:, ::every], wv[:, ::every] = rng.standard_normal((2, 2, 12 // every + 1, model.nv))
    equal(
        ts.adjoint(some, dloss_dq=wq[:, ::every], dloss_dv=wv[:, ::every], threads=2),
        ts.adjoint(full, dloss_dq=wq, dloss_dv=wv),
        tolerance=rounding(integrator),
    )


@pytest.mark.parametrize("every", sweep([2, 3, 5, 6, 10, 30], 3))
@pytest.mark.parametrize("kind", [ts.SymplecticEuler, ts.BDF1, ts.BDF2, ts.Variational])
def test_adjoint_with_every_through_switches(kind, every):
    """Switches inside of the steps between rows, and at rows: 5 and 6, 10 and 12 among them."""
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("a", "world", ts.SphericalEuler("XYZ"), inertia=random_inertia(rng))
    exponential = ts.Composite(ts.Prismatic((1, 0, 0)), ts.SphericalExp())
    builder.add_body("b", "a", exponential, ts.SE3.translation(0.3, 0.1, -0.4), random_inertia(rng))
    model = builder.build()
    q, v = np.array([0.1, 0.95, 0.3, 0.1, 2.9, 0.8, 0.2]), np.array([0.5, 2.0, 0.3, 0.2, 2.0, 2.0, 0.5])
    vs = np.stack([v, 0.5 * v, 0 * v])
    full = ts.simulate(model, q, vs, steps=30, integrator=kind(0.01))
    rows = {s.row for s in full.switches}
    assert {5, 6} <= rows and len({s.track for s in full.switches}) == 2
    some = ts.simulate(model, q, vs, steps=30, integrator=kind(0.01), every=every)
    w = np.zeros((3, 31, model.nv))
    w[:, ::every] = rng.standard_normal((3, 30 // every + 1, model.nv))
    g = ts.adjoint(some, dloss_dq=w[:, ::every], dloss_dv=w[:, ::every])
    equal(g, ts.adjoint(full, dloss_dq=w, dloss_dv=w), tolerance=rounding(kind(0.01)))
    loss = ts.loss(some, ts.PointTarget("b", (0, 0, 1), (1, 0, 0), at=slice(None)))
    other = ts.loss(full, ts.PointTarget("b", (0, 0, 1), (1, 0, 0), at=slice(0, None, every)))
    np.testing.assert_array_equal(loss.value, other.value)
    equal(ts.adjoint(some, loss), ts.adjoint(full, other), tolerance=rounding(kind(0.01)))


def test_adjoint_of_a_variational_integrator_with_every():
    """Gradients go by momenta within the steps and by velocities at the rows, so rounding differs."""
    model, q, v, rng = scene(JOINTS)
    forces = [ts.PointSpring("b3", (0, 0, 1), "b4", (1, 0, 0), 5.0, 1.0), ts.JointDamping(None, 0.2)]
    given = {"steps": 12, "integrator": ts.Variational(0.01), "forces": forces}
    given["parameters"] = [{"stiffness": np.array([1.0, 20.0])}, None]
    full, some = ts.simulate(model, q, v, **given), ts.simulate(model, q, v, every=4, **given)
    w = np.zeros((2, 13, model.nv))
    w[:, ::4] = rng.standard_normal((2, 4, model.nv))
    g = ts.adjoint(full, dloss_dq=w, dloss_dv=w)
    h = ts.adjoint(some, dloss_dq=w[:, ::4], dloss_dv=w[:, ::4])
    for name in ("q0", "v0", "controls", "inertia", "placement", "gravity"):
        close(getattr(h, name), getattr(g, name), 1e-11)
    close(h.forces[0]["stiffness"], g.forces[0]["stiffness"], 1e-11)


def test_every_bounds_memory():
    """What is kept, and what adjoint takes beyond it, are a tenth of what they are with all rows, or less."""
    model, q, v, _ = scene(JOINTS)
    kept, most = [], []
    for every in (1, 50):
        run = ts.simulate(model, q, v, steps=2000, integrator=ts.BDF2(0.001), every=every)
        arrays = (run.t, run.q, run.v, run.a, *(run.previous or ()))
        kept.append(sum(x.nbytes for x in arrays))
        ts.adjoint(run, dloss_dq=np.zeros(model.nv), parameters=False)  # imports and caches
        tracemalloc.start()
        ts.adjoint(run, dloss_dq=np.ones(model.nv), parameters=False)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    controls = 2000 * model.nv * 8  # whose gradient is there in any case
    assert kept[1] < 0.1 * kept[0]
    assert most[1] - controls < 0.1 * (most[0] - controls)


class Wind(ts.CustomForce):
    """Drag of the centre of mass, p[0] |c|^2 times its velocity, and a pull to the origin: all by hand, for complex
    numbers too."""

    complex_derivatives = True

    def __init__(self, model, p=(2.0, 0.7)):
        self.model, self.p = model, p

    def parts(self, q, v):
        c, J = ts.center_of_mass(self.model, q), ts.center_of_mass_jacobian(self.model, q)
        return c, J, J @ v

    def value(self, q, v, t, p):
        c, J, velocity = self.parts(q, v)
        return -J.T @ (p[0] * (c @ c) * velocity + p[1] * c)

    def derivatives(self, q, v, t, p):
        c, J, velocity = self.parts(q, v)
        H = np.stack([self.along(q, e) for e in np.eye(v.size)], axis=-1)  # dJ/dq
        force = p[0] * (c @ c) * velocity + p[1] * c
        dforce = p[0] * (2 * np.outer(velocity, c @ J) + (c @ c) * np.einsum("ijk,j->ik", H, v)) + p[1] * J
        return -np.einsum("ijk,i->jk", H, force) - J.T @ dforce, -p[0] * (c @ c) * J.T @ J

    def along(self, q, e):
        """The derivative of J along e, to the eighth order."""
        weights = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))
        out = 0.0
        for k, weight in weights:
            ahead, behind = (
                ts.center_of_mass_jacobian(self.model, self.model.plus(q, s * k * 3e-3 * e)) for s in (1, -1)
            )
            out = out + weight * (ahead - behind) / 3e-3
        return out

    def gradient(self, q, v, t, p, w):
        c, J, velocity = self.parts(q, v)
        return -np.array([(c @ c) * (w @ J.T @ velocity), w @ J.T @ c])


def test_linearly_implicit_euler_with_a_force_of_the_users_own():
    model, q, v, rng = scene([ts.Spherical(), ts.Revolute((0, 1, 0.3)), ts.Free()])
    # Differences within the force leave 1e-11 or so.
    check_force(Wind(model), model, 0, tolerance=1e-9)
    integrator, steps = ts.LinearlyImplicitEuler(0.02), 4

    def run(q=q, v=v, p=(2.0, 0.7), controls=None):
        return ts.simulate(model, q, v, steps=steps, integrator=integrator, forces=[Wind(model, p)], controls=controls)

    base = run()
    wq, wv = rng.standard_normal((2, steps + 1, model.nv))
    loss = weighted(model, base, wq, wv)
    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)
    close(g.q0, differences(lambda x: loss(run(q=model.plus(q, x))), np.zeros(model.nv)))
    close(g.v0, differences(lambda x: loss(run(v=x)), v))
    close(g.forces[0]["p"], differences(lambda x: loss(run(p=x)), np.array([2.0, 0.7])))
    u = rng.standard_normal((steps, model.nv))
    controls = differences(lambda x: loss(run(controls=np.concatenate([x[None], 0 * u[1:]]))), 0 * u[0], 1e-2)
    close(g.controls[0], controls)
    d = ts.step_derivatives(model, integrator, q, v, forces=[Wind(model)])
    np.testing.assert_allclose(d.v1, base.v[1], rtol=1e-13)

    class Plain(Wind):
        complex_derivatives = False

    other = ts.simulate(model, q, v, steps=1, integrator=integrator, forces=[Plain(model)])
    with pytest.raises(TypeError, match="its derivatives need second derivatives of Plain; write its methods"):
        ts.adjoint(other)
    with pytest.raises(TypeError, match="or use BDF1"):
        ts.step_derivatives(model, integrator, q, v, forces=[Plain(model)])


def test_second_derivatives_of_a_force_are_checked():
    class Blind(Wind):
        def derivatives(self, q, v, t, p):
            K, D = super().derivatives(q, v, t, p)
            return K.real, D.real

    model, *_ = scene([ts.Revolute((0, 1, 0.3)), ts.Revolute((1, 0, 0))])
    with pytest.raises(AssertionError, match="second derivative is off by"):
        check_force(Blind(model), model, 0, tolerance=1e-9)


def test_steps_that_cannot_be_repeated_are_told():
    model, q, v, _ = scene(JOINTS[:5])

    class Fickle(ts.CustomForce):
        torque = 1.0

        def value(self, q, v, t, p):
            return np.full(v.shape, Fickle.torque)

        def derivatives(self, q, v, t, p):
            return np.zeros((2, v.size, v.size))

    run = ts.simulate(model, q, v, steps=4, integrator=ts.BDF1(0.01), forces=[Fickle()], every=2)
    Fickle.torque = 2.0
    with pytest.raises(ValueError, match=r"steps between t = 0.02 and 0.04 cannot be repeated: they end elsewhere"):
        ts.adjoint(run, dloss_dq=np.ones(model.nv))


# ---- single steps


def columns(f, n, eps=1e-3):
    out = []
    for k in range(n):
        d = np.zeros(n)
        d[k] = eps
        near, far = (f(d) - f(-d)) / (2 * eps), (f(2 * d) - f(-2 * d)) / (4 * eps)
        out.append((4 * near - far) / 3)
    return np.stack(out, axis=-1)


@pytest.mark.parametrize("integrator", sweep(INTEGRATORS, 4), ids=lambda i: type(i).__name__)
def test_step_derivatives(integrator):
    model, q, v, rng = scene(JOINTS)
    u = rng.standard_normal(model.nv)
    forces = [ts.JointSpring(None, 2.0, model.neutral, 0.1), ts.PointSpring("b3", (0, 0, 1), "b5", (1, 0, 0), 5.0, 1.0)]
    d = ts.step_derivatives(model, integrator, q, v, u, forces=forces)
    n = model.nv

    def step(dq=0.0, dv=0.0, du=0.0):
        start = model.plus(q, dq + np.zeros(n))
        run = ts.simulate(model, start, v + dv, steps=1, integrator=integrator, forces=forces, controls=u + du)
        return np.concatenate([model.minus(run.q[-1], d.q1), run.v[-1]])

    np.testing.assert_allclose(step(), np.concatenate([np.zeros(n), d.v1]), atol=1e-11)
    close(np.concatenate([d.dq1_dq, d.dv1_dq]), columns(lambda x: step(dq=x), n))
    close(np.concatenate([d.dq1_dv, d.dv1_dv]), columns(lambda x: step(dv=x), n))
    close(np.concatenate([d.dq1_du, d.dv1_du]), columns(lambda x: step(du=x), n))
    assert type(d) is ts.simulation.StepDerivatives


def test_step_derivatives_of_bdf2_with_the_state_before():
    model, q, v, rng = scene(JOINTS[:5])
    integrator, n = ts.BDF2(0.01, **TIGHT), model.nv
    u = rng.standard_normal((3, n))
    run = ts.simulate(model, q, v, steps=3, integrator=integrator, controls=u)
    before = (run.q[1], run.v[1])
    d = ts.step_derivatives(model, integrator, run.q[2], run.v[2], u[2], previous=before, t=0.02)
    np.testing.assert_allclose(model.minus(d.q1, run.q[3]), 0, atol=1e-12)

    def step(x):
        moved = ts.step_derivatives(
            model, integrator, model.plus(run.q[2], x[:n]), run.v[2] + x[n : 2 * n], u[2],
            previous=(model.plus(run.q[1], x[2 * n : 3 * n]), run.v[1] + x[3 * n :]),
        )  # fmt: skip
        return np.concatenate([model.minus(moved.q1, d.q1), moved.v1])

    exact = np.block(
        [
            [d.dq1_dq, d.dq1_dv, d.dq1_dprevious_q, d.dq1_dprevious_v],
            [d.dv1_dq, d.dv1_dv, d.dv1_dprevious_q, d.dv1_dprevious_v],
        ]
    )
    close(exact, columns(step, 4 * n))


def test_steps_chain_to_the_adjoint():
    """The product of the steps' Jacobians is the adjoint's gradient, to rounding."""
    model, q, v, rng = scene(JOINTS[:5])
    for integrator in (INTEGRATORS[0], INTEGRATORS[2], INTEGRATORS[4], INTEGRATORS[6]):
        u = rng.standard_normal((6, model.nv))
        run = ts.simulate(model, q, v, steps=6, integrator=integrator, controls=u)
        wq, wv = rng.standard_normal((2, model.nv))
        g = ts.adjoint(run, dloss_dq=wq, dloss_dv=wv)
        for k in reversed(range(6)):
            d = ts.step_derivatives(model, integrator, run.q[k], run.v[k], u[k])
            close(g.controls[k], wq @ d.dq1_du + wv @ d.dv1_du, 1e-10)
            wq, wv = wq @ d.dq1_dq + wv @ d.dv1_dq, wq @ d.dq1_dv + wv @ d.dv1_dv
        close(g.q0, wq, 1e-10)
        close(g.v0, wv, 1e-10)


def test_step_derivatives_of_a_batch():
    model, q, v, rng = scene(JOINTS[:5])
    qs = model.plus(q, 0.1 * rng.standard_normal((3, 2, model.nv)))
    batch = ts.step_derivatives(model, ts.SDIRK2(0.01), qs, v, threads=2)
    assert batch.dq1_du.shape == (3, 2, model.nv, model.nv)
    one = ts.step_derivatives(model, ts.SDIRK2(0.01), qs[2, 1], v)
    for name in ("q1", "v1", "dq1_dq", "dv1_dv", "dv1_du"):
        np.testing.assert_array_equal(getattr(batch, name)[2, 1], getattr(one, name))


# ---- losses


def test_losses_have_the_derivatives_that_they_say():
    model, q, v, rng = scene(JOINTS)
    forces = [ts.JointSpring(None, 2.0, model.neutral, 0.1), ts.PointForce("b3", (0, 0, 1), (1, 2, 3))]
    u = rng.standard_normal((4, model.nv))
    integrator = ts.BDF2(0.01, **TIGHT)

    def run(q, v, u):
        return ts.simulate(model, q, v, steps=4, integrator=integrator, forces=forces, controls=u)

    cost = (
        ts.PointTarget("b5", (0.1, 0.2, 0.3), (1, 0, 0), weight=3.0)
        + ts.PointTarget("b3", (0.1, 0, 0), rng.standard_normal((2, 3)), at=[1, 3])
        + 2.0 * ts.EnergyCost(("kinetic", "potential", "forces"), at=slice(1, 4))
        + ts.VelocityTarget(0.1, at=-2)
        + ts.ControlEffort(0.5)
    )
    g = ts.adjoint(run(q, v, u), cost)
    zero = np.zeros(model.nv)

    def value(*given):
        return ts.loss(run(*given), cost).value

    close(g.q0, differences(lambda x: value(model.plus(q, x), v, u), zero))
    close(g.v0, differences(lambda x: value(q, x, u), v))
    close(g.controls[1], differences(lambda x: value(q, v, np.stack([u[0], x, *u[2:]])), u[1], 1e-2))


def test_losses_know_their_trajectory():
    model, q, v, _ = scene(JOINTS[:5])
    given = {"steps": 2, "integrator": ts.BDF1(0.01), "controls": np.zeros(model.nv)}
    heavy = model.with_inertia("b0", model.bodies[0].inertia + ts.Inertia.sphere(mass=1.0, radius=0.1))
    run, other, start = (ts.simulate(m, q, x, **given) for m, x in ((model, v), (model, 2 * v), (heavy, v)))
    energy, speed, effort = ts.EnergyCost(), ts.VelocityTarget(), ts.ControlEffort()
    for cost in (ts.PointTarget("b3", (0, 0, 0), (1, 0, 0)), speed, energy, effort):

        def make(trajectory, cost=cost):
            return ts.loss(trajectory, cost)

        for wrong in (make(other), make(start), 2 * make(other), -make(other), sum([make(other), make(other)])):
            with pytest.raises(ValueError, match="loss belongs to another trajectory"):
                ts.adjoint(run, wrong)
            with pytest.raises(ValueError, match="losses of different trajectories cannot be added"):
                make(run) + wrong
            with pytest.raises(ValueError, match="losses of different trajectories cannot be added"):
                wrong - make(run)
            with pytest.raises(ValueError, match="losses of different trajectories cannot be added"):
                sum([make(run), wrong])
    # Without a step the motion is the same in both models, and the losses are not.
    still, moved = (ts.simulate(m, q, v, steps=0, integrator=ts.BDF1(0.01)) for m in (model, heavy))
    with pytest.raises(ValueError, match="loss belongs to another trajectory"):
        ts.adjoint(still, ts.loss(moved, energy))
    # Copies are as good.
    loss = ts.loss(run, energy) - 2 * ts.loss(run, speed)
    g = ts.adjoint(run, loss)
    for copied in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), replace):
        equal(ts.adjoint(run, copied(loss)), g)
        equal(ts.adjoint(copied(run), loss), g)
        equal(ts.adjoint(copied(run), copied(loss) + 0 * copied(ts.loss(run, effort))), g)
        with pytest.raises(ValueError, match="loss belongs to another trajectory"):
            ts.adjoint(other, copied(loss))
    # One that was made by hand fits any.
    by_hand = ts.simulation.Loss(np.zeros(()), dv=np.ones((3, model.nv)))
    equal(ts.adjoint(run, by_hand), ts.adjoint(run, dloss_dv=np.ones((3, model.nv))))
    with pytest.raises(ValueError, match="loss belongs to another trajectory"):
        ts.adjoint(run, by_hand + ts.loss(other, speed))


@pytest.mark.parametrize("kind", [ts.SymplecticEuler, ts.LinearlyImplicitEuler])
def test_gradients_at_a_kink_are_those_of_one_side(kind):
    """A body that comes to a limit. K jumps there, and with it the step of LinearlyImplicitEuler: differences across
    the limit show the jump."""
    h, m, k, speed, eps = 0.1, 2.0, 30.0, 1.5, 1e-6
    builder = ts.ModelBuilder(gravity=(0, 0, 0))
    builder.add_body("a", "world", ts.Prismatic((1, 0, 0)), inertia=ts.Inertia.point(m))
    model, forces = builder.build(), [ts.JointLimits("a", k, 0.0, -10.0, 0.0)]

    def end(x):
        return ts.simulate(model, [x], [speed], steps=1, integrator=kind(h), forces=forces)

    for at, side in ((0.0, -1), (1e-3, 1), (-1e-3, -1)):  # at the limit the force is that of the free side
        g = ts.adjoint(end(at), dloss_dv=np.ones(1)).q0[0]
        one_sided = side * (end(at + side * eps).v[1, 0] - end(at).v[1, 0]) / eps
        assert g == pytest.approx(one_sided, rel=1e-6, abs=1e-8)
        expected = 0.0 if side < 0 else -h * k / m if kind is ts.SymplecticEuler else -h * k / (m + h * h * k)
        assert g == pytest.approx(expected, rel=1e-12)
    jump = end(eps).v[1, 0] - end(-eps).v[1, 0]
    expected = 0.0 if kind is ts.SymplecticEuler else -h * h * k * speed / (m + h * h * k)
    assert jump == pytest.approx(expected, abs=2 * h * k * eps / m)


@pytest.mark.parametrize("kind", [ts.SymplecticEuler, ts.LinearlyImplicitEuler])
def test_gradients_with_forces_that_are_not_smooth(kind):
    """Limits, ground with friction and a cable, each in a general position on either side: wherever the states of the
    differences stay on one side, they agree."""
    builder = ts.ModelBuilder()
    rng = np.random.default_rng(5)
    builder.add_body("a", "world", ts.Free(), inertia=random_inertia(rng))
    builder.add_body("b", "a", ts.Universal(), random_pose(rng), random_inertia(rng))
    model, points = builder.build(), rng.standard_normal((6, 3))
    for _ in range(6):
        q, v = model.random(rng), rng.standard_normal(model.nv)
        x = ts.point_positions(model, q, "b", points)
        forces = [
            ts.JointLimits("b", 200.0, 3.0, q[7:] - (0.1, 1.0), q[7:] + (1.0, -0.05)),
            ts.GroundContact("b", points, 300.0, 2.0, 20.0, 0.4, x.mean(axis=0), rng.standard_normal(3)),
            ts.Cable(["a", "world", "b"], points[:3], 100.0, 2.0, rng.uniform(0.5, 5.0)),
            ts.Cable(["a", "b"], points[3:5], 100.0, 0.0, 0.1),
        ]

        def run(x, q=q, v=v, forces=forces):
            start = model.plus(q, x[: model.nv])
            return ts.simulate(model, start, v + x[model.nv :], steps=3, integrator=kind(0.01), forces=forces)

        base = run(np.zeros(2 * model.nv))
        wq, wv = rng.standard_normal((2, 4, model.nv))
        g, loss = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv), weighted(model, base, wq, wv)
        other = differences(lambda x, loss=loss, run=run: loss(run(x)), np.zeros(2 * model.nv), 1e-5)
        close(np.concatenate([g.q0, g.v0]), other, 1e-6)


@pytest.mark.parametrize("steps", sweep([0, 3], 2))
def test_losses_know_what_they_depend_on_by_themselves(steps):
    """Energies depend on inertias, stiffnesses and so on, and points on placements, also where nothing moves."""
    model, q, v, rng = scene([*JOINTS[:6], ts.Fixed(), ts.Revolute((1, 0, 0))])
    bodies = list(model.bodies)
    bodies[6] = replace(bodies[6], parent="world")  # a body that is fixed to the world and carries one that moves
    bodies[7] = replace(bodies[7], parent="b6")
    model = replace(model, bodies=tuple(bodies))

    def law(l, ldot, p):
        return p[0] * l**3, 3 * p[0] * l**2, 0.0, np.array([l**3])

    forces = [
        ts.JointSpring("b1", 3.0, damping=0.2),
        ts.JointDamping(None, 0.1),
        ts.JointLimits("b3", 3.0, 0.0, [q[5] + 0.1], [np.inf]),
        ts.PointForce("b4", (0.1, 0.2, 0), (1, 2, 3)),
        ts.PointSpring("b2", (0, 0, 0.3), "b5", (0.2, 0, 0), 5.0, 0.1),
        ts.Cable(["b7", "world", "b3"], rng.standard_normal((3, 3)), 4.0, 0.1, 0.5),
        ts.GroundContact("b4", (0.1, 0.2, 0.3), 7.0, ground=(0, 0, 20)),
        ts.CustomSpring("b6", (0.1, 0, 0), "b0", (0, 1, 0), law, lambda l, p: p[0] * l**4 / 4, [1.3]),
    ]
    targets = rng.standard_normal((1 + (steps > 0), 3))

    def total(model=model, forces=forces):
        run = ts.simulate(model, q, v, steps=steps, integrator=ts.BDF2(0.01, **TIGHT), forces=forces)
        parts = [
            ts.EnergyCost(("kinetic",), 0.3),
            ts.EnergyCost(("potential",), 0.2, at=0),
            ts.EnergyCost(("forces",), 0.4, at=slice(None)) / 2,
            3.0 * ts.PointTarget("b5", (0.1, 0.2, 0.3), targets, at=sorted({0, steps})),
            -ts.PointTarget("b7", (0.1, 0.2, 0.3), (1, 0, 0)),
        ]
        return run, ts.loss(run, sum(parts) - ts.VelocityTarget())

    run, loss = total()
    g = ts.adjoint(run, loss)
    if steps == 0:  # nothing but what the loss depends on by itself
        np.testing.assert_array_equal(g.inertia, loss.dinertia)
        np.testing.assert_array_equal(g.placement, loss.dplacement)

    def value(model=model, forces=forces):
        return total(model, forces)[1].value

    def body(k, **parts):
        bodies = list(model.bodies)
        bodies[k] = replace(bodies[k], **parts)
        return replace(model, bodies=tuple(bodies))

    def along(f, size, got, tol=1e-7, eps=1e-3, least=1e-6):
        """The derivative along a random direction of that shape."""
        d = rng.standard_normal(size)
        expected = differences(lambda s: f(s * d), 0.0, eps)
        assert abs((got * d).sum() - expected) <= tol * max(np.abs(got * d).sum(), least)

    along(lambda d: value(model.with_gravity(np.array(model.gravity) + d)), 3, g.gravity, eps=1e-2)
    for k, b in enumerate(model.bodies):
        at = b.inertia.parameters
        along(
            lambda d, k=k, at=at: value(body(k, inertia=ts.Inertia.from_parameters(at * (1 + d)))),
            10,
            g.inertia[k] * at,
        )
        along(lambda d, k=k, b=b: value(body(k, placement=b.placement @ ts.SE3.exp(d))), 6, g.placement[k])
    for k, (force, of_force) in enumerate(zip(forces, g.forces, strict=True)):
        for name, got in of_force.items():
            p = force._for_model(model).parameters[name]
            if not np.isfinite(p).all() or (p.shape == () and p == 0):  # a limit that is none; damping and friction
                assert np.isfinite(got).all()
                continue

            def changed(d, k=k, name=name, p=p):
                return value(forces=[*forces[:k], forces[k].with_parameters({name: p + d}), *forces[k + 1 :]])

            along(changed, p.shape, got, 1e-6, least=1e-2)  # against rounding of the value


def test_losses_add_up():
    model, q, v, _ = scene(JOINTS[:5])
    forces = [ts.JointSpring(None, 2.0, model.neutral)]
    run = ts.simulate(model, q, v, steps=2, integrator=ts.BDF1(0.01), forces=forces)
    energy, point = ts.EnergyCost(("kinetic", "forces")), ts.PointTarget("b3", (0, 0, 0), (1, 0, 0))
    a, b = ts.loss(run, energy), ts.loss(run, point)
    g, h = ts.adjoint(run, a), ts.adjoint(run, b)
    for loss, x, y in (
        (a + b, 1, 1),
        (sum([a, b, a]), 2, 1),
        (a - b, 1, -1),
        (-a, -1, 0),
        (a / 4 + np.float64(3) * b * 2, 0.25, 6),
        (np.float32(0.5) * a - b / np.int64(2), 0.5, -0.5),
    ):
        assert isinstance(loss, ts.simulation.Loss)
        np.testing.assert_allclose(loss.value, x * a.value + y * b.value, rtol=1e-14)
        got = ts.adjoint(run, loss)
        for name in ("q0", "v0", "inertia", "placement", "gravity"):
            expected = x * getattr(g, name) + y * getattr(h, name)
            np.testing.assert_allclose(getattr(got, name), expected, rtol=1e-12, atol=1e-12)
        expected = x * g.forces[0]["stiffness"] + y * h.forces[0]["stiffness"]
        np.testing.assert_allclose(got.forces[0]["stiffness"], expected, rtol=1e-12)
    for wrong in (lambda: a + 1, lambda: 1 - a, lambda: a * b, lambda: "2" * a, lambda: a / b, lambda: a * np.ones(3)):
        with pytest.raises(TypeError):
            wrong()
    other = ts.simulate(model, np.stack([q, q]), v, steps=2, integrator=ts.BDF1(0.01), forces=forces)
    with pytest.raises(ValueError, match=r"losses of shapes \(\) and \(2,\) cannot be added"):
        a + ts.loss(other, energy)
    start = ts.simulate(model, q, v, steps=0, integrator=ts.BDF1(0.01), forces=forces)
    with pytest.raises(ValueError, match=r"losses with derivatives \(.*\) and \(1, .*\) cannot be added"):
        a + ts.loss(start, energy)  # which would broadcast


def test_control_effort_is_an_integral():
    """Of exp(2 t) / 2 over one unit of time, to the order of the integrator."""
    model = ts.models.pendulum()
    exact = (np.exp(2.0) - 1) / 4
    schemes = [ts.SymplecticEuler, ts.BDF1, ts.BDF2, ts.SDIRK2, ts.Variational, lambda h: ts.Variational(h, order=4)]
    for kind in schemes:
        errors = []
        for h in (0.05, 0.025):
            run = ts.simulate(model, [0.1], T=1.0, integrator=kind(h), controls=lambda t: [np.exp(t)])
            loss = ts.loss(run, ts.ControlEffort())
            errors.append(abs(loss.value - exact))
            # Quadratic in the controls, so that the derivative along these is twice the value.
            np.testing.assert_allclose((loss.du * run.controls).sum(), 2 * loss.value, rtol=1e-12)
        assert np.log2(errors[0] / errors[1]) == pytest.approx(kind(h).order, abs=0.1)


def test_losses_across_a_switch():
    rng = np.random.default_rng(2)
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("a", "world", ts.SphericalEuler("XYZ"), inertia=random_inertia(rng))
    model = builder.build()
    q, v = np.array([0.1, 0.95, 0.3]), np.array([0.5, 2.0, 0.3])

    def total(v):
        run = ts.simulate(model, q, v, steps=12, integrator=ts.BDF2(0.01, **TIGHT))
        assert run.switches
        cost = ts.PointTarget("a", (1, 0, 0), (0, 1, 0), at=slice(None)) + ts.EnergyCost(at=[2, 11])
        return run, ts.loss(run, cost)

    run, loss = total(v)
    close(ts.adjoint(run, loss).v0, differences(lambda x: total(x)[1].value, v))


# ---- bad input


def test_bad_input_is_told():
    model, q, v, _ = scene(JOINTS[:5])
    run = ts.simulate(model, q, v, steps=2, integrator=ts.BDF1(0.01))
    nv = model.nv
    with pytest.raises(TypeError, match="trajectory must be a Trajectory, got ndarray"):
        ts.adjoint(run.q)
    with pytest.raises(ValueError, match=rf"dloss_dq has shape \(5,\), expected \(3, {nv}\)"):
        ts.adjoint(run, dloss_dq=np.zeros(5))
    with pytest.raises(ValueError, match="dloss_dv is not finite"):
        ts.adjoint(run, dloss_dv=np.full(nv, np.nan))
    with pytest.raises(ValueError, match="dloss_du has shape"):
        ts.adjoint(run, dloss_du=np.zeros((3, nv)))
    with pytest.raises(TypeError, match="either a loss or its derivatives"):
        ts.adjoint(run, ts.VelocityTarget(), dloss_dv=np.zeros(nv))
    with pytest.raises(TypeError, match=r"adjoint takes a loss, or its derivatives .*: got none of them"):
        ts.adjoint(run)
    with pytest.raises(TypeError, match="loss must be a Cost or a Loss"):
        ts.adjoint(run, np.zeros((3, nv)))
    exact = ts.simulate(model, q, v, steps=1, integrator=ts.Adaptive(0.01))
    with pytest.raises(TypeError, match="Adaptive has no adjoint"):
        ts.adjoint(exact)
    with pytest.raises(TypeError, match="previous is for BDF2"):
        ts.step_derivatives(model, ts.BDF1(0.01), q, v, previous=(q, v))
    with pytest.raises(TypeError, match="integrator must have steps"):
        ts.step_derivatives(model, ts.Adaptive(0.01), q, v)
    with pytest.raises(ValueError, match=rf"v has shape \(2,\), expected \(..., {nv}\)"):
        ts.step_derivatives(model, ts.BDF1(0.01), q, np.zeros(2))
    for integrator in INTEGRATORS:
        with pytest.raises(ValueError, match=r"v is not finite: v\["):
            ts.step_derivatives(model, integrator, q, np.full(nv, np.nan))
        with pytest.raises(ValueError, match=r"q is not finite: q\["):
            ts.step_derivatives(model, integrator, np.stack([q, np.nan * q]), v)
    with pytest.raises(TypeError, match=r"previous must be the state \(q, v\) one step before, got"):
        ts.step_derivatives(model, ts.BDF2(0.01), q, v, previous=(q,))
    with pytest.raises(ValueError, match="previous_v is not finite"):
        ts.step_derivatives(model, ts.BDF2(0.01), q, v, previous=(q, np.inf * v))
    with pytest.raises(
        ts.ConvergenceError,
        match="BDF1 stopped in the step from the given state within 2",
    ):
        ts.step_derivatives(model, ts.BDF1(0.5, iterations=2, substeps=1), q, 1e3 + v)
    plain, q, v, _ = scene([ts.Revolute(), ts.Revolute()])
    with pytest.raises(ValueError, match=r"v has shape \(3,\), expected \(..., 2\): model.nv is 2"):
        ts.step_derivatives(plain, ts.BDF1(0.01), q, np.zeros(3))
    with pytest.raises(ValueError, match=r"q has shape \(3,\), expected \(..., 2\): model.nq is 2"):
        ts.step_derivatives(plain, ts.BDF1(0.01), np.zeros(3), v)
