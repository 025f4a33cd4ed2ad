"""The matrix of Newton's method in its three forms: over the tree, along paths, dense."""

import numpy as np
import pytest
from population import JOINTS

import torsor as ts
from torsor import _core
from torsor.forces.force import compile_forces
from torsor.testing import example_forces, random_inertia, random_pose, random_tree


def directions(model, q, v, xi, c, forces=()):
    scene = compile_forces(model, forces)
    out = np.empty((3, model.nv))
    given = (scene.core, scene.parameters) if forces else (None, None)
    _core.newton_directions(model, *given, q, v, xi, c, out)
    return out


def agree(out):
    tree, paths, dense = out
    assert np.isfinite(dense).all()
    for form in (tree, paths):
        np.testing.assert_allclose(form, dense, rtol=0, atol=1e-10 * np.abs(dense).max())


def state(model, rng, h=0.01):
    v = rng.standard_normal(model.nv)
    return model.random(rng), v, h * (v + 0.3 * rng.standard_normal(model.nv)), 1 / h


@pytest.mark.parametrize("seed", range(5))
def test_random_trees_of_every_joint(seed):
    rng = np.random.default_rng(seed)
    model = random_tree(rng, [JOINTS[k] for k in rng.permutation(len(JOINTS))])
    agree(directions(model, *state(model, rng)))


def local(model, forces):
    """Forces at one joint or on one body."""
    return [f for f in forces if compile_forces(model, [f]).core.on_single_bodies]


@pytest.mark.parametrize("seed", range(5))
def test_forces_at_one_joint_or_body(seed):
    rng = np.random.default_rng(seed)
    model = random_tree(rng, 8)
    forces = local(model, example_forces(model, rng))
    tip = model.bodies[-1].name
    forces += [
        ts.PointSpring("world", (0.3, 0.2, 0.1), tip, (0.1, 0.2, 0.3), 50.0, 3.0),
        ts.SpringDamper("world", (1.3, 0.2, 0.1), tip, (0.1, 0.2, 0.3), 50.0, 3.0, 0.7),
        ts.BodyDamping(tip, rng.uniform(0.1, 1.0, 6)),
    ]
    assert {type(f).__name__ for f in forces} >= {
        "JointSpring",
        "JointLimits",
        "BodyWrench",
        "BodyDamping",
        "PointForce",
        "GroundContact",
    }
    agree(directions(model, *state(model, rng), forces))
    for force in forces:  # alone, so that what one needs is not there for another
        agree(directions(model, *state(model, rng), [force]))


def test_forces_between_branches_are_solved_densely():
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder()
    for name, parent in (("root", "world"), ("left", "root"), ("right", "root")):
        builder.add_body(name, parent, ts.Revolute((0, 1, 0)), inertia=ts.Inertia.sphere(mass=1.0, radius=0.1))
    model = builder.build()
    spring = ts.PointSpring("left", (0, 0, 1.0), "right", (0.5, 0, 0), 100.0, 1.0)
    tree, paths, dense = directions(model, *state(model, rng), [spring])
    assert np.isnan(tree).all() and np.isnan(paths).all() and np.isfinite(dense).all()
    # Along one path they leave the entries between branches zero.
    tree, paths, dense = directions(
        model, *state(model, rng), [ts.PointSpring("root", (0, 0, 1.0), "left", (1, 0, 0), 9.0)]
    )
    assert np.isnan(tree).all()
    np.testing.assert_allclose(paths, dense, rtol=1e-12)


def test_a_leaf_that_cannot_be_solved_by_itself():
    """Its own entry of H is zero while H is not singular: elimination without pivots is given up, or exact still."""
    builder = ts.ModelBuilder(gravity=(0, 0, -10.0))
    ball = ts.Inertia(1.0, (0, 0, 1.0), np.zeros((3, 3)))
    builder.add_body("a", "world", ts.Revolute((0, 1, 0)), inertia=ball)
    builder.add_body("b", "a", ts.Revolute((0, 1, 0)), ts.SE3.translation(0.3, 0, 1), inertia=ball)
    model = builder.build()
    # Upright and at rest: H_bb = m l^2 / h^2 - m g l, zero at h = sqrt(l / g).
    tree, paths, dense = directions(model, np.zeros(2), np.zeros(2), np.zeros(2), np.sqrt(10.0))
    assert np.isnan(paths).all()
    if np.isfinite(tree).all():
        np.testing.assert_allclose(tree, dense, rtol=0, atol=1e-12)
    run = ts.simulate(model, np.zeros(2), steps=1, integrator=ts.BDF1(np.sqrt(0.1)))
    tau = ts.inverse_dynamics(model, run.q[1], run.v[1], run.a[1])
    np.testing.assert_allclose(tau, 0.0, atol=1e-7)


@pytest.mark.parametrize("kind", [ts.BDF1, ts.BDF2, ts.SDIRK2])
def test_long_chains_with_joints_of_several_freedoms(kind):
    """Deep enough to be solved over the tree: rows satisfy the equations of motion."""
    rng = np.random.default_rng(1)
    model = random_tree(
        rng, [ts.Spherical(), ts.Revolute((0, 1, 0)), ts.Universal(), ts.Prismatic()] * 4, branching=0.0
    )
    assert model.nv > 24
    q, v = model.plus(model.neutral, 0.2 * rng.standard_normal(model.nv)), 0.2 * rng.standard_normal(model.nv)
    forces = [ts.JointDamping(None, 0.5), ts.BodyDamping(model.bodies[-1].name, np.ones(6))]
    run = ts.simulate(model, q, v, steps=5, integrator=kind(0.002, tolerance=1e-12), forces=forces)
    tau = ts.inverse_dynamics(model, run.q[1:], run.v[1:], run.a[1:])
    applied = ts.generalized_forces(model, forces, run.q[1:], run.v[1:])
    np.testing.assert_allclose(tau, applied, rtol=0, atol=1e-7 * np.abs(tau).max())


def test_matrices_that_are_singular_are_not_factored():
    """Along a repeated translation nothing changes: H is singular wherever it is taken and for any step."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        builder, parent = ts.ModelBuilder(gravity=(0, 0, -9.81)), "world"
        if rng.random() < 0.5:
            builder.add_body("arm", "world", ts.Revolute(rng.standard_normal(3)), inertia=random_inertia(rng))
            parent = "arm"
        joint = ts.Composite(ts.Translational(), ts.Prismatic(rng.standard_normal(3)))
        builder.add_body("x", parent, joint, random_pose(rng), random_inertia(rng))
        model = builder.build()
        _, paths, dense = directions(model, *state(model, rng, 10.0 ** rng.uniform(-6, 0)))
        assert np.isnan(paths).all() and np.isnan(dense).all()
