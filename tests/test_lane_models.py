"""Batches in which every motion has a model of its own: each is the same, to the last bit, as alone."""

import numpy as np
import pytest
from compare import arrays_of, same_bits

import torsor as ts
from torsor import _core, testing

COUNT = _core.lanes + 3  # a pack and a part of one
STEPS = 3
KINDS = 16  # structures that core/bind/simulation.cpp looks for in a batch
INTEGRATORS = testing.example_integrators(1e-3)
# A batch needs the same class of joint in all its models, so that numbers of joints can differ only within one.
JOINTS = {type(joint).__name__: joint for joint in testing.example_joints()}


def law(l, ldot):
    return l * l + 0.3 * ldot, 2 * l, 0.3


def variants(seed, joints, count=COUNT, children=2):
    """Models of one structure with other inertias, placements, numbers of joints and gravity.

    The first body carries two that are fixed to it, and one is fixed to the world.
    """
    models = []
    for k in range(count):
        rng = np.random.default_rng([seed, k])
        builder = ts.ModelBuilder("varied", gravity=rng.standard_normal(3))

        def add(name, parent, joint, builder=builder, rng=rng):
            builder.add_body(name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng))

        add("post", "world", ts.Fixed())
        for i, joint in enumerate(joints):
            add(f"b{i}", "post" if i == 0 else f"b{(i - 1) // children}", varied(joint, rng))
            if i == 0:
                add("plate", "b0", ts.Fixed())
                add("hook", "plate", ts.Fixed())
        models.append(builder.build())
    return models


def varied(joint, rng):
    """A joint of the same kind with other numbers."""
    if isinstance(joint, ts.Screw):
        return ts.Screw(rng.standard_normal(3), rng.uniform(0.1, 1.0))
    if isinstance(joint, (ts.Revolute, ts.Prismatic, ts.Cylindrical)):
        return type(joint)(rng.standard_normal(3))
    if isinstance(joint, ts.SplineCurve):
        return ts.SplineCurve([testing.random_pose(rng) for _ in joint.frames])
    if isinstance(joint, ts.SplineSurface):
        return ts.SplineSurface(np.array(joint.values) + 0.1 * rng.standard_normal(np.shape(joint.values)))
    return joint


def forces_on_bodies():
    """Forces on single bodies, which depend on where the user's bodies are in those that carry them."""
    return [
        ts.JointDamping(None, 0.5),
        ts.BodyDamping("hook", 0.2),
        *(ts.BodyWrench("hook", 0.3 * np.arange(6), frame=f) for f in ("body", "world", "local_world_aligned")),
        ts.PointForce("plate", (0.1, 0.2, 0.3), (1.0, 0.0, -1.0)),
    ]


def forces_on(last):
    """The same, and forces between bodies: every kind of law."""
    return [
        *forces_on_bodies(),
        ts.PointSpring("hook", (0.1, 0, 0), "post", (0, 0.1, 0), 2.0, 0.3),
        ts.SpringDamper("world", (0, 0, 1), "plate", (0.1, 0, 0), 3.0, 0.2, 0.7),
        ts.CustomSpring("hook", (0.2, 0, 0), last, (0, 0.2, 0), law),
        ts.GroundContact("hook", (0.1, 0.1, 0.1), 5.0, 0.4, 0.1, 1.0, (0, 0, 0.5)),
    ]


def run(model, q0, v0, u, forces, integrator, weights):
    """A simulation and its gradients as arrays, with a leading axis for each motion if there are several models."""
    trajectory = ts.simulate(model, q0, v0, steps=STEPS, integrator=integrator, forces=forces, controls=u)
    gradient = ts.adjoint(trajectory, dloss_dq=weights[0], dloss_dv=weights[1])
    out = [trajectory.q, trajectory.v, trajectory.substeps, gradient.q0, gradient.v0, gradient.controls]
    out += [gradient.inertia, gradient.placement, gradient.gravity, *(x for f in gradient.forces for x in f.values())]
    return arrays_of(out)


def in_lanes(*sizes):
    """How many motions run in lanes, of groups of these sizes. One that is left over runs alone."""
    return sum(n - (n % _core.lanes == 1) for n in sizes)


def check(models, forces, integrator, seed, expected, speed=1.0):
    """Compares motions with models of their own with each alone. Returns how many steps were taken alone."""
    rng = np.random.default_rng(seed)
    nv = models[0].nv
    q0 = models[0].plus(np.broadcast_to(models[0].random(rng), (len(models), models[0].nq)), 0.1 * rng.normal(size=nv))
    v0, u = speed * rng.standard_normal((len(models), nv)), rng.standard_normal((len(models), STEPS, nv))
    weights = rng.standard_normal((2, len(models), nv))
    before = _core.lane_counts()
    whole = run(models, q0, v0, u, forces, integrator, weights)
    steps, alone = np.subtract(_core.lane_counts(), before)
    assert steps == 2 * STEPS * expected  # forward and back
    for k, model in enumerate(models):
        single = run(model, q0[k], v0[k], u[k], forces, integrator, weights[:, k])
        assert same_bits(single, [x[k] for x in whole]), k
    # That the models differ matters: with the first of them, another motion has another result.
    assert not same_bits(run(models[0], q0[1], v0[1], u[1], forces, integrator, weights[:, 1]), [x[1] for x in whole])
    return alone


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=repr)
@pytest.mark.parametrize("forces", [[], forces_on_bodies(), forces_on("b3")], ids=["none", "on bodies", "all"])
def test_motions_with_models_of_their_own(integrator, forces):
    models = variants(1, (ts.Free(), ts.Revolute(), ts.Spherical(), ts.Screw(pitch=0.3)))
    alone = check(models, forces, integrator, 2, in_lanes(COUNT))
    assert alone == 0


@pytest.mark.parametrize("name", JOINTS)
def test_every_joint(name):
    models = variants(3, (ts.Revolute(), JOINTS[name], ts.Prismatic()))
    for integrator in (ts.SymplecticEuler(h=1e-3), ts.BDF1(h=1e-3), ts.Variational(h=1e-3)):
        check(models, [ts.JointDamping(None, 0.1)], integrator, 4, in_lanes(COUNT))


IMPLICIT = [i for i in testing.example_integrators(0.03) if hasattr(i, "iterations")]


@pytest.mark.parametrize("integrator", IMPLICIT, ids=repr)
def test_steps_that_are_taken_alone(integrator):
    """A stiff spring and fast motions: some lanes need divided steps or continuation, with their own model."""
    stiffness = 3e4  # with which all motions finish
    if isinstance(integrator, ts.Variational):
        stiffness = 3e3 if integrator.order == 2 else 1e4
    models = variants(9, (ts.Spherical(), ts.Revolute(), ts.Revolute()), 11)
    forces = [ts.PointSpring("b1", (0.3, 0.2, 0), "world", (0, 0, 1), stiffness, 1.0), ts.JointDamping(None, 0.1)]
    alone = check(models, forces, integrator, 10, in_lanes(11), speed=6.0)
    assert 0 < alone < 2 * STEPS * in_lanes(11)


@pytest.mark.parametrize("integrator", [ts.BDF1(h=1e-3), ts.Variational(h=1e-3)], ids=repr)
def test_deep_trees(integrator):
    """Systems that are solved over the tree."""
    models = variants(18, (ts.Revolute(),) * 26, children=1)
    check(models, forces_on_bodies(), integrator, 19, in_lanes(COUNT))


@pytest.mark.parametrize("integrator", [ts.BDF1(h=1e-3), ts.Variational(h=1e-3)], ids=repr)
def test_parameters_and_signals_of_each_motion(integrator):
    models = variants(20, (ts.Revolute(), ts.Spherical()), 2 * COUNT)
    rng = np.random.default_rng(21)
    q0, v0 = models[0].random(rng), rng.standard_normal(4)
    k, torque = rng.uniform(1, 2, 2 * COUNT), rng.standard_normal((2 * COUNT, STEPS, 1))
    forces = [ts.JointSpring("b0", 1.0), ts.JointTorque("b0", 0.0)]

    def final(model, k, torque):
        options = {"steps": STEPS, "integrator": integrator, "forces": forces, "threads": 2}
        values = {"parameters": [{"stiffness": k}, None], "signals": [None, {"torque": torque}]}
        return ts.simulate(model, q0, v0, **options, **values).q[..., -1, :]

    before = _core.lane_counts()[0]
    whole = final(models, k, torque)
    assert _core.lane_counts()[0] - before == STEPS * in_lanes(2 * COUNT)
    for i, model in enumerate(models):
        assert same_bits([final(model, k[i], torque[i])], [whole[i]])


def zeros(models, rng, of):
    """Models with these bodies, of which those in of["placement"] have no offset, those in of["inertia"] no mass."""
    out = []
    for special in of:
        builder = ts.ModelBuilder("special", gravity=rng.standard_normal(3))
        for b in models[0].bodies:
            place = ts.SE3.identity() if b.name in special["placement"] else testing.random_pose(rng)
            inertia = ts.Inertia.zero() if b.name in special["inertia"] else testing.random_inertia(rng)
            builder.add_body(b.name, b.parent, b.joint, place, inertia, armature=b.armature)
        out.append(builder.build())
    return out


def test_models_that_differ_in_what_is_zero():
    """Two without an offset, two with a massless body, one whose fixed body stands where its carrier does."""
    models = variants(5, (ts.Free(), ts.Prismatic(), ts.Revolute(), ts.Revolute()))
    without = [{"placement": ["b2"], "inertia": []}, {"placement": [], "inertia": ["b1"]}]
    special = zeros(models, np.random.default_rng(6), [*without, *without, {"placement": ["plate"], "inertia": []}])
    for k, model in enumerate(special):
        models.insert(2 * k + 1, model)
    for integrator in INTEGRATORS:
        check(models, forces_on("b3"), integrator, 7, in_lanes(COUNT, 2, 2, 1))


def test_many_structures():
    """More than are looked for: the others run alone."""
    models = variants(11, (ts.Revolute(),) * 6, 1)
    names = [f"b{k}" for k in range(1, 6)]
    of = [{"placement": [n for i, n in enumerate(names) if k >> i & 1], "inertia": []} for k in range(20) for _ in "12"]
    models = zeros(models, np.random.default_rng(12), of)
    check(models, [], ts.SymplecticEuler(h=1e-3), 13, 2 * KINDS)


def test_one_model_for_some_of_the_motions():
    a, b, c = variants(14, (ts.Revolute(), ts.Spherical()), 3)
    check([a, *[b] * (2 * _core.lanes), c, b, a], [], ts.BDF1(h=1e-3), 15, in_lanes(2 * _core.lanes + 4))


def test_motions_that_end_before_others():
    """A motion that fails in the middle of a pack leaves the others as they are."""
    models = variants(16, (ts.Revolute(), ts.Revolute()))
    rng = np.random.default_rng(17)
    q0, v0 = rng.standard_normal((2, COUNT, 2))
    u = np.zeros((COUNT, STEPS, 2))
    u[1, 1] = 1e200
    options = {"steps": STEPS, "integrator": ts.BDF1(h=1e-3), "on_failure": "keep"}
    whole = ts.simulate(models, q0, v0, controls=u, **options)
    assert [f.index for f in whole.failed] == [(1,)]
    for k, model in enumerate(models):
        assert same_bits(arrays_of(ts.simulate(model, q0[k], v0[k], controls=u[k], **options).q), arrays_of(whole.q[k]))


def test_models_of_one_tree_share_the_forces():
    models = variants(8, (ts.Free(), ts.Revolute(), ts.Spherical()))
    batch = ts.simulation.batch.Batch(tuple(models), forces_on("b2"), ({},) * len(forces_on("b2")), (len(models),))
    sets = [batch.ready(batch.charts, m)[1] for m in range(len(models))]
    assert all(one is sets[0] for one in sets)
    other = variants(8, (ts.Free(), ts.Prismatic(), ts.Spherical()), 1)[0]
    assert models[0]._core.same_tree(models[1]._core) and not models[0]._core.same_tree(other._core)
