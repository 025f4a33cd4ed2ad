"""Maximal coordinates: the same mechanics with every body free and every joint a constraint."""

import numpy as np
import pytest
from compare import close
from population import JOINTS, mixed_tree, sweep

import torsor as ts
from torsor import testing


def between(joint, rng):
    """A joint between a spherical and a revolute one."""
    builder = ts.ModelBuilder(gravity=(1, -2, -9))
    for name, parent, one in (("a", "world", ts.Spherical()), ("b", "a", joint), ("c", "b", ts.Revolute((1, 0, 0)))):
        builder.add_body(
            name, parent, one, testing.random_pose(rng), testing.random_inertia(rng), joint_name=f"to {name}"
        )
    return builder.build()


def kkt(model, constraints, Q, V, forces=None):
    """Accelerations and multipliers."""
    tau = np.zeros(model.nv) if forces is None else forces
    a, multipliers, rank = ts.constrained_forward_dynamics(model, constraints, Q, V, tau)
    assert rank == multipliers.shape[-1]
    return a, multipliers


ALL = [pytest.param(j, id=f"{k}-{type(j).__name__}") for k, j in enumerate((ts.Fixed(), *JOINTS))]


@pytest.mark.parametrize("joint", ALL)
def test_accelerations_are_those_of_forward_dynamics(joint):
    rng = np.random.default_rng(5)
    model = between(joint, rng)
    q, v = model.random(rng), rng.standard_normal(model.nv)
    free, constraints = model.maximal()
    assert [c.name for c in constraints] == [f"to {x}" for x in "abc" if x != "b" or not isinstance(joint, ts.Free)]
    Q, V = ts.to_maximal(model, q, v)
    g, gdot, _ = ts.constraint_errors(free, constraints, Q, V)
    close(g, 0 * g, 1e-14)
    close(gdot, 0 * gdot, 2e-14)
    assert free.nv - len(g) == model.nv
    A, multipliers = kkt(free, constraints, Q, V)
    expected = ts.body_accelerations(model, q, v, ts.forward_dynamics(model, q, v, np.zeros(model.nv)))
    close(ts.body_accelerations(free, Q, V, A)[: model.nbodies], expected, 1e-11)
    # Wrenches of joints that are rows are the reactions of the tree.
    a = ts.forward_dynamics(model, q, v, np.zeros(model.nv))
    reactions = ts.joint_reactions(model, q, v, a)
    wrenches = ts.constraint_wrenches(free, constraints, Q, multipliers)
    by_name = dict(zip([c.name for c in constraints], wrenches, strict=True))
    for i, b in enumerate(model.bodies):
        if b.joint_name in by_name and free.nbodies == model.nbodies:
            close(by_name[b.joint_name], reactions[i], 1e-11)


@pytest.mark.parametrize("joint", ALL)
def test_conversions(joint):
    rng = np.random.default_rng(6)
    model = between(joint, rng)
    q, v = model.random(rng, (3, 2)), rng.standard_normal((3, 2, model.nv))
    Q, V = ts.to_maximal(model, q, v)
    free, _ = model.maximal()
    assert (Q.shape, V.shape) == ((3, 2, free.nq), (3, 2, free.nv))
    close(ts.body_poses(free, Q)[..., :3, :, :], ts.body_poses(model, q), 1e-14)
    back, w = ts.from_maximal(model, Q, V, near=q)
    close(model.minus(back, q), 0 * v, 1e-13)
    close(w, v, 1e-12)
    # without a hint, the same poses
    back, _ = ts.from_maximal(model, Q, V)
    close(ts.body_poses(model, back), ts.body_poses(model, q), 1e-12)


def test_lengths_of_quaternions_do_not_matter():
    """Of joints that keep their coordinates either."""
    model = mixed_tree()
    q, v = model.random(0), np.ones(model.nv)
    longer = q.copy()
    for j in model.joints:
        if j.nq != j.nv:
            longer[j.q_slice][-4:] *= 3.0
    for x, y in zip(ts.to_maximal(model, longer, v), ts.to_maximal(model, q, v), strict=True):
        close(x, y, 1e-14)


def test_turns_are_kept():
    model = ts.models.arm7()
    q = np.linspace(-15, 12, model.nq)
    Q, V = ts.to_maximal(model, q, np.zeros(model.nv))
    close(ts.from_maximal(model, Q, V, near=q + 0.4)[0], q, 1e-12)
    screw = between(ts.Screw((0, 0, 1), 0.2), np.random.default_rng(0))
    q = screw.neutral
    q[screw.joint("b").q_slice] = 31.0
    Q, V = ts.to_maximal(screw, q, np.zeros(screw.nv))
    close(ts.from_maximal(screw, Q, V)[0][screw.joint("b").q_slice], [31.0], 1e-13)


def test_layout():
    """Bodies first, then the coordinates of joints that are kept; frames have none."""
    rng = np.random.default_rng(1)
    builder = ts.ModelBuilder()
    builder.add_body(
        "base", "world", ts.Screw((0, 0, 1), 0.3), inertia=testing.random_inertia(rng), joint_name="thread"
    )
    builder.add_body("camera", "base", placement=testing.random_pose(rng))
    builder.add_body("arm", "camera", ts.Revolute((0, 1, 0)), inertia=testing.random_inertia(rng))
    slide = ts.Composite(ts.Prismatic((1, 0, 0)), ts.Universal())
    limits = ([-1, -2, -3], [1, 2, 3])
    builder.add_body("hand", "arm", slide, inertia=testing.random_inertia(rng), position_limits=limits)
    model = builder.build()
    free, constraints = model.maximal()
    assert [b.name for b in free.bodies] == ["base", "camera", "arm", "hand", "thread/joint", "hand/joint"]
    assert [free.joint(n).q_slice for n in ("base", "arm", "hand", "thread/joint", "hand/joint")] == [
        slice(0, 7), slice(7, 14), slice(14, 21), slice(21, 22), slice(22, 25),
    ]  # fmt: skip
    assert free.joint("camera").nq == 0
    assert free.joint("hand/joint").position_limits == model.joint("hand").position_limits
    assert [(c.name, c.a, c.b) for c in constraints] == [
        ("thread", "thread/joint", "base"), ("arm", "camera", "arm"), ("hand", "hand/joint", "hand"),
    ]  # fmt: skip
    assert free.mass == pytest.approx(model.mass, rel=1e-15)
    q, v = model.random(rng), rng.standard_normal(model.nv)
    Q, V = ts.to_maximal(model, q, v)
    close(Q[21:], q[[0, 2, 3, 4]], 0)
    close(V[18:], v[[0, 2, 3, 4]], 0)
    A, _ = kkt(free, constraints, Q, V)
    expected = ts.body_accelerations(model, q, v, ts.forward_dynamics(model, q, v, np.zeros(model.nv)))
    close(ts.body_accelerations(free, Q, V, A)[:4], expected, 1e-11)


def test_constraints_of_the_model_remain():
    model = mixed_tree()
    loop = ts.Distance("ball", (0, 0, 0), "gate", (1, 0, 0), 1.0)
    assert model.with_constraints([loop]).maximal()[1][-1] is loop
    coupled = model.with_constraints([ts.PrescribedJoint("arm", 0.3)])
    with pytest.raises(ts.ModelError, match=r"'PrescribedJoint\(arm\)' of the model is in coordinates of joints"):
        coupled.maximal()
    q, v = model.random(0), np.ones(model.nv)
    np.testing.assert_array_equal(ts.to_maximal(coupled, q, v)[0], ts.to_maximal(model, q, v)[0])


def test_forces_on_bodies_are_the_same():
    """Springs between bodies, drag and wrenches give the same accelerations in both."""
    rng = np.random.default_rng(3)
    model = mixed_tree()
    forces = [
        ts.SpringDamper("ball", (0.1, 0, 0), "gate", (0, 0.2, 0), 40.0, 2.0, 0.3), ts.BodyDamping("slider", 0.7),
        ts.BodyWrench("wrist", rng.standard_normal(6)), ts.PointForce("arm", (0.1, 0.2, 0.3), (1, 2, 3)),
    ]  # fmt: skip
    q, v = model.random(rng), rng.standard_normal(model.nv)
    free, constraints = model.maximal()
    Q, V = ts.to_maximal(model, q, v)
    A, _ = kkt(free, constraints, Q, V, ts.generalized_forces(free, forces, Q, V))
    a = ts.forward_dynamics(model, q, v, ts.generalized_forces(model, forces, q, v))
    n = model.nbodies
    close(ts.body_accelerations(free, Q, V, A)[:n], ts.body_accelerations(model, q, v, a), 1e-11)


def test_open_joints_are_named():
    model = between(ts.Universal(), np.random.default_rng(2))
    q, v = model.random(3), np.zeros(model.nv)
    Q, V = ts.to_maximal(model, q, v)
    free, _ = model.maximal()
    at = free.joint("c").q_slice.start
    Q[at] += 0.03
    with pytest.raises(
        ts.ConstraintError, match=r"joint 'to c' is open by 0\.03 in position and .* rad, expected 1e-06"
    ):
        ts.from_maximal(model, Q, V, near=q)
    close(ts.from_maximal(model, Q, V, near=q, tolerance=0.1)[0][:-1], q[:-1], 1e-13)
    with pytest.raises(ts.ConstraintError, match=r"joint 'to c' is open by 0\.03 .* rad in state 1"):
        ts.from_maximal(model, np.stack([ts.to_maximal(model, q, v)[0], Q]), V, near=q)


def test_wrong_input():
    builder = ts.ModelBuilder()
    builder.add_body("point", "world", ts.Spherical(), inertia=ts.Inertia.point(1.0, (0, 0, 1)))
    with pytest.raises(ts.ModelError, match=r"body 'point' has the principal moments .*give it inertia, or lock"):
        builder.build().maximal()
    builder = ts.ModelBuilder()
    builder.add_body("none", "world", ts.Revolute())
    with pytest.raises(ts.ModelError, match="body 'none' has no mass"):
        builder.build().maximal()
    model = between(ts.Universal(), np.random.default_rng(2))
    Q, V = ts.to_maximal(model, model.random(0), np.zeros(model.nv))
    for wrong, match in (
        ({"Q": Q[1:]}, r"Q has shape \(20,\), expected \(\.\.\., 21\)"), ({"V": V[1:]}, "V has shape"),
        ({"near": Q}, "near has shape"), ({"Q": Q * np.nan}, "Q is not finite"),
        ({"tolerance": -1.0}, "tolerance is -1"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            ts.from_maximal(model, **({"Q": Q, "V": V} | wrong))
    builder = ts.ModelBuilder()
    heavy = testing.random_inertia(np.random.default_rng(0))
    builder.add_body("nut", "world", ts.Screw(), inertia=heavy)
    builder.add_body("nut/joint", "nut", ts.Revolute(), inertia=heavy)
    with pytest.raises(ts.ModelError, match="adds a body named 'nut/joint'"):
        builder.build().maximal()


def a_tree():
    """Of revolute, universal, spherical, screw and spline joints."""
    rng = np.random.default_rng(5)
    builder = ts.ModelBuilder()
    curve = next(j for j in JOINTS if isinstance(j, ts.SplineCurve))
    for name, parent, joint in (
        ("a", "world", ts.Revolute((0, 1, 0))), ("b", "a", ts.Universal()), ("c", "b", ts.Spherical()),
        ("d", "b", ts.Screw((0, 0, 1), 0.2)), ("e", "a", curve),
    ):  # fmt: skip
        size = rng.uniform(0.2, 0.5, 3)
        inertia = ts.Inertia.box(mass=rng.uniform(0.5, 2), size=size, com=rng.uniform(-0.1, 0.1, 3))
        builder.add_body(name, parent, joint, ts.SE3.exp(0.4 * rng.standard_normal(6)), inertia)
    model = builder.build()
    q = model.neutral
    q[model.joint("e").q_slice] = 1.5
    return model, model.plus(q, 0.3 * rng.standard_normal(model.nv)), 0.3 * rng.standard_normal(model.nv)


SCHEMES = {
    "Euler": (ts.SymplecticEuler, {"baumgarte": 0.0}),
    "Baumgarte": (ts.SymplecticEuler, {}),
    "post": (ts.SymplecticEuler, {"stabilization": "post"}),
    "BDF1": (ts.BDF1, {}),
}


@pytest.mark.parametrize("scheme", sweep(SCHEMES, 2))
def test_steps_converge_to_those_of_joint_coordinates(scheme):
    """Two discretisations of one motion: they differ by O(h)."""
    model, q, v = a_tree()
    free, constraints = model.maximal()
    Q, V = ts.to_maximal(model, q, v)
    kind, options = SCHEMES[scheme]
    T, gaps, opened = 0.2, [], []
    for steps in (20, 40, 80):
        reduced = ts.simulate(model, q, v, steps=steps, integrator=kind(T / steps))
        full = ts.simulate(free, Q, V, steps=steps, integrator=kind(T / steps, **options), constraints=constraints)
        poses = ts.body_poses(free, full.q[-1])[: model.nbodies]
        gaps.append(np.abs(poses - ts.body_poses(model, reduced.q[-1])).max())
        g, gdot, _ = ts.constraint_errors(free, constraints, full.q[-1], full.v[-1], t=T)
        opened.append(np.abs(g).max())
    orders = np.log2(np.array(gaps[:-1]) / gaps[1:])
    assert 0.8 < orders[-1] < 1.3, gaps
    drift = np.log2(np.array(opened[:-1]) / np.maximum(opened[1:], 1e-300))
    if scheme == "BDF1":
        assert opened[-1] < 1e-13
        assert np.abs(gdot).max() < 1e-12
        close(ts.body_poses(model, ts.from_maximal(model, full.q[-1], full.v[-1], near=q)[0]), poses, 1e-12)
    else:  # O(h) without stabilisation, O(h^2) with Baumgarte's 1 / h, O(h^4) with post-stabilisation
        order = {"Euler": 1, "Baumgarte": 2, "post": 4}[scheme]
        assert drift[-1] == pytest.approx(order, abs=0.35), opened
