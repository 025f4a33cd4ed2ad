"""Models from others: parts added, taken away, exchanged."""

from dataclasses import fields, replace

import numpy as np
import pytest
from population import mixed_tree, state

import torsor as ts
from torsor import testing


def same(a, b, tolerance=1e-11):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def gripper():
    b = ts.ModelBuilder("gripper")
    b.add_body("palm", inertia=ts.Inertia.point(0.4, (0, 0, 0.05)), placement=ts.SE3.rotation((1, 2, 3), 0.4))
    for k, side in enumerate(("left", "right")):
        at = ts.SE3.translation(0.05 - 0.1 * k, 0, 0.1)
        finger = ts.Inertia.box((0.02, 0.02, 0.1), mass=0.1)
        shape = ts.Collision(ts.shapes.Box((0.02, 0.02, 0.1)), f"{side}_box")
        b.add_body(f"{side}_finger", "palm", ts.Prismatic((1, 0, 0)), at, finger, joint_name=side, damping=0.3,
                   position_limits=(0, 0.04), collisions=[shape])  # fmt: skip
    b.add_frame("pinch", "palm", ts.SE3.translation(0, 0, 0.15)).add_frame("mount", "world")
    b.add_constraint(ts.Gear("left", "right", -1.0, name="mirror"))
    b.add_constraint(ts.Distance("left_finger", (0, 0, 0), "pinch", (0, 0, 0), 0.07, name="rod"))
    rules = ts.CollisionRules(exclude=[("left_finger", "right_finger")])
    return replace(b.build(), collision_rules=rules)


ARM = ts.models.arm7().with_frame("tool", "hand", testing.random_pose(np.random.default_rng(5)))


def test_attach_is_the_mechanism_of_both():
    """Poses beyond the frame are those of the gripper alone behind the pose of the frame; forces on it are carried."""
    other = gripper()
    model = ARM.attach(other, at="tool", prefix="g/")
    rng = np.random.default_rng(0)
    q, p = ARM.random(rng), other.random(rng)
    both = np.concatenate([q, p])
    tool = ts.body_pose(ARM, q, "tool")
    for name in ("palm", "left_finger", "right_finger", "pinch", "mount"):
        same(ts.body_pose(model, both, f"g/{name}"), tool @ ts.body_pose(other, p, name))
    for name in ("elbow", "hand", "tool"):
        same(ts.body_pose(model, both, name), ts.body_pose(ARM, q, name))
    same(model.mass, ARM.mass + other.mass)
    same(ts.potential_energy(model, both), ts.potential_energy(ARM, q) + _energy(other, p, tool))
    assert [c.name for c in model.constraints] == ["g/mirror", "g/rod"]
    g, h = (ts.constraint_errors(m, m.constraints, x).g for m, x in ((model, both), (other, p)))
    same(g, h)
    assert model.collision_rules.exclude == (("g/left_finger", "g/right_finger"),)
    assert model.joint("g/left").damping == (0.3,)
    assert model.without("g/palm").without("g/mount") == replace(ARM, collision_rules=replace(ARM.collision_rules))


def _energy(model, q, T):
    """Potential energy of a model whose world is at the pose T of another."""
    total = 0.0
    for body, pose in zip(model.bodies, ts.body_poses(model, q), strict=True):
        total += 9.81 * body.inertia.mass * (T @ pose @ [*body.inertia.com, 1])[2]
    return total


def test_attached_dynamics_are_those_of_one_model():
    tree = mixed_tree()
    name = tree.bodies[2].name
    whole = ARM.attach(tree, at="world", prefix="t/")
    q, v, a, _, _ = state(whole, 1)
    tau = ts.inverse_dynamics(whole, q, v, a)
    n, m = ARM.nq, ARM.nv
    tree = tree.with_gravity(ARM.gravity)
    same(tau, np.concatenate([ts.inverse_dynamics(ARM, q[:n], v[:m], a[:m]),
                              ts.inverse_dynamics(tree, q[n:], v[m:], a[m:])]))  # fmt: skip
    assert whole.subtree(f"t/{name}").nbodies == tree.subtree(name).nbodies


def test_subtree_and_without_are_parts():
    rng = np.random.default_rng(2)
    tree = testing.random_tree(rng, 8).with_frame("f", "body4", testing.random_pose(rng)).with_frame("o", "world")
    part, rest = tree.subtree("body3"), tree.without("body3")
    assert {b.name for b in part.bodies} | {b.name for b in rest.bodies} == {b.name for b in tree.bodies}
    assert part.nq + rest.nq == tree.nq
    assert all(f.name != "o" for f in part.frames)
    q = tree.random(rng)
    place = {j.name: q[j.q_slice] for j in tree.joints}
    p = np.concatenate([place[j.name] for j in part.joints])
    parent = tree.body("body3").parent
    above = np.eye(4) if parent == "world" else ts.body_pose(tree, q, parent)
    for b in part.bodies:
        same(above @ ts.body_pose(part, p, b.name), ts.body_pose(tree, q, b.name))


def test_constraints_between_parts_are_refused_by_name():
    arm = ARM.with_constraints([ts.Distance("hand", (0, 0, 0), "turret", (0, 0, 0), 0.3, name="strut")])
    with pytest.raises(ts.ModelError, match=r"subtree\('hand'\) cuts apart .* that 'strut' is given in"):
        arm.subtree("hand")
    with pytest.raises(ts.ModelError, match="'strut'"):
        arm.without("hand")
    assert arm.subtree("turret").constraints == arm.constraints
    grounded = ARM.with_constraints([ts.Distance("hand", (0, 0, 0), "world", (0, 0, 0), 0.3, name="leash")])
    assert grounded.subtree("base").constraints
    with pytest.raises(ts.ModelError, match="'leash'"):
        grounded.subtree("turret")
    assert not gripper().without("palm").constraints
    with pytest.raises(ts.ModelError, match="'rod'"):
        gripper().without("pinch")


def test_constraints_with_the_world_of_what_is_attached():
    b = ts.ModelBuilder("pendulum").add_body("bob", joint=ts.Spherical(), inertia=ts.Inertia.point(1.0, (0, 0, -1)))
    b.add_constraint(ts.PointOnPlane("world", "bob", ts.SE3.translation(0, 0, -0.4), (0, 0, -1)))
    b.add_world_collision(ts.Collision(ts.shapes.Sphere(0.1, (1, 0, 0)), "ball"))
    other = b.build()
    model = ARM.attach(other, at="tool")
    rng = np.random.default_rng(3)
    q, p = ARM.random(rng), other.random(rng)
    both = np.concatenate([q, p])
    g, h = (ts.constraint_errors(m, m.constraints, x).g for m, x in ((model, both), (other, p)))
    same(g, h)
    ball = next(c for c in model.body("hand").collisions if c.name == "ball")
    same(ball.shape.position, ARM.frame("tool").placement @ np.array([1.0, 0, 0]))
    held = other.with_constraints([ts.PrescribedBody("bob", ts.SE3(), name="held")])
    with pytest.raises(ts.ModelError, match="'held'"):
        ARM.attach(held, at="tool")
    assert ARM.attach(held, at="world").constraints == held.constraints


def test_names_that_both_have():
    with pytest.raises(ts.ModelError, match=r"both models have a body or frame named 'base', .* give prefix="):
        ARM.attach(ARM)
    with pytest.raises(KeyError, match="did you mean 'tool'"):
        ARM.attach(gripper(), at="tol")
    twice = ARM.attach(gripper(), "tool", "a/").attach(gripper(), "elbow", "b/")
    assert twice.nbodies == ARM.nbodies + 6
    assert ts.ModelBuilder.from_model(twice).build() == twice


def test_changes_of_one_body():
    at = testing.random_pose(np.random.default_rng(4))
    moved = ARM.with_placement("elbow", at).with_placement("tool", at)
    assert moved.body("elbow").placement == at == moved.frame("tool").placement
    changed = ARM.with_body("elbow", position_limits=(-1, 2), damping=0.2, inertia=ts.Inertia.point(3.0))
    assert changed.joint("elbow").position_limits == ((-1.0,), (2.0,))
    assert changed.joint("elbow").damping == (0.2,)
    assert changed.with_body("elbow", **{name: getattr(ARM.body("elbow"), name) for name in
                             ("position_limits", "damping", "inertia")}) == ARM  # fmt: skip
    turned = ARM.with_joint("elbow", ts.Revolute((1, 0, 0)))
    assert turned.joint("elbow").position_limits == ARM.joint("elbow").position_limits
    ball = ARM.with_joint("elbow", ts.Spherical())
    assert (ball.nq, ball.nv) == (ARM.nq + 3, ARM.nv + 2)
    held = ARM.with_body("elbow", gravity_compensation=0.4)
    assert held.body("elbow").gravity_compensation == 0.4
    assert held.with_joint("elbow", ts.Spherical()).body("elbow").gravity_compensation == 0.4
    everything = {f.name for f in fields(ts.Body)} - {"name", "parent", "joint"}
    assert ARM.with_body("elbow", **{name: getattr(ARM.body("elbow"), name) for name in everything}) == ARM
    with pytest.raises(TypeError, match="with_body takes no 'colour'"):
        ARM.with_body("elbow", colour="red")
    with pytest.raises(TypeError, match="got None"):
        ARM.with_joint("elbow", None)
    with pytest.raises(TypeError, match="with_body takes no 'name'"):
        ARM.with_body("elbow", name="knee")
    with pytest.raises(TypeError, match="with_joint changes the joint"):
        ARM.with_body("elbow", joint=ts.Fixed())
    with pytest.raises(ts.ModelError, match="'mirror'"):
        gripper().with_joint("left", ts.Spherical())
    assert gripper().with_joint("left", ts.Prismatic((0, 1, 0))).constraints == gripper().constraints


def test_couplings_go_along_or_are_refused():
    arm = ARM.couple(ts.Mimic("wrist_pitch", "elbow_pitch", 0.5))
    assert arm.subtree("turret").couplings == arm.couplings
    assert arm.attach(arm, "tool", "b/").couplings[1] == ts.Mimic("b/wrist_pitch", "b/elbow_pitch", 0.5)
    with pytest.raises(ts.ModelError, match="Mimic"):
        arm.without("wrist")
    with pytest.raises(ts.ModelError, match=r"renames the joint 'elbow_pitch' that .*Mimic"):
        arm.with_body("elbow", joint_name="bend")
    with pytest.raises(ts.ModelError, match=r"Mimic.*for couplings, model\.tree\.couple\(\.\.\.\)"):
        arm.with_joint("elbow", ts.Universal())


def test_gradients_are_applied_in_one_line():
    """Steps along the gradient by each kind of parameters reduce the loss as the gradient says."""
    model = ARM
    rng = np.random.default_rng(6)
    q, v = model.random(rng), np.zeros(model.nv)
    cost = ts.PointTarget("tool", (0, 0, 0), (0.1, 0.2, 0.3))

    def loss(m):
        return ts.loss(ts.simulate(m, q, v, steps=20, integrator=ts.BDF1(h=1e-2)), cost).value

    gradient = ts.adjoint(ts.simulate(model, q, v, steps=20, integrator=ts.BDF1(h=1e-2)), cost)
    for name in ("inertia", "placement", "gravity"):
        g = getattr(gradient, name)
        h = 1e-6 / np.abs(g).max()
        ahead, behind = (
            loss(model.with_parameters(**{name: getattr(model.parameters, name) + s * g}, allow_unphysical=True))
            for s in (h, -h)
        )
        same((ahead - behind) / (2 * h), (g * g).sum(), 1e-5)
    x, g = model.parameter_vector(), model.parameter_vector(gradient)
    assert x.shape == g.shape == (16 * model.nbodies + 3,)
    assert model.with_parameter_vector(x) == model
    h = 1e-6 / np.abs(g).max()
    ahead, behind = (loss(model.with_parameter_vector(x + s * g, allow_unphysical=True)) for s in (h, -h))
    same((ahead - behind) / (2 * h), g @ g, 1e-5)
    assert model.parameter_vector(names=["gravity"]).tolist() == list(model.gravity)
    names = ["armature", "inertia"]
    x = model.parameter_vector(names=names) + 0.01
    same(model.with_parameter_vector(x, names, allow_unphysical=True).parameter_vector(names=names), x)


def test_flat_parameters_of_bodies():
    """As `inertial_parameters` has them, and the columns of the regressor."""
    heavier = 1.1 * ARM.inertial_parameters
    made = ARM.with_parameters(inertia=heavier)
    same(made.inertial_parameters, heavier)
    assert ARM.with_parameters(inertia=heavier.reshape(-1, 10)) == made
    assert ARM.with_parameters(inertia=ARM.inertial_parameters) == ARM
    twists = 0.1 * np.random.default_rng(2).standard_normal((ARM.nbodies, 6))
    assert ARM.with_parameters(placement=twists.ravel()) == ARM.with_parameters(placement=twists)
    one = ts.ModelBuilder()
    one.add_body("a", joint=ts.Revolute(), inertia=ts.Inertia.box(mass=1.0, size=(1, 2, 3)))
    single = one.build()
    assert single.with_parameters(inertia=single.inertial_parameters) == single
    with pytest.raises(ValueError, match="inertia has shape"):
        ARM.with_parameters(inertia=heavier[:-1])


def test_wrong_parameters():
    bad = ARM.parameters.inertia
    bad[3, 0] = -1.0
    with pytest.raises(ts.ModelError, match=r"inertia is not physical: 'upper_arm' \(mass is -1\)"):
        ARM.with_parameters(inertia=bad)
    with pytest.raises(ts.ModelError, match="inertia of 'base': mass is 0"):
        ARM.with_parameters(inertia=np.eye(9, 10, 1))
    with pytest.raises(ValueError, match="placement has shape"):
        ARM.with_parameters(placement=np.zeros(6))
    with pytest.raises(KeyError, match="did you mean 'inertia'"):
        ARM.parameter_vector(names=["inertias"])
    with pytest.raises(ValueError, match="x has shape"):
        ARM.with_parameter_vector(np.zeros(3))
    model = gripper().with_parameters(constraints=[{"ratio": -2.0}, None])
    assert model.constraints[0].ratio == -2.0
