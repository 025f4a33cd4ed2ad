"""Inverse kinematics: targets that can be reached are, within limits; others end in the optimum."""

import warnings
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import torsor as ts
from torsor import ik, testing

ROBOTS = Path(
    str(metadata.distribution("example-robot-data").locate_file("cmeel.prefix/share/example-robot-data/robots"))
)


def robot(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.FormatWarning)
        return ts.load_urdf(ROBOTS / path, mimic="ignore", **options)


PANDA = robot("panda_description/urdf/panda.urdf")
TALOS = robot("talos_data/robots/talos_reduced.urdf", root=ts.Free())


def within(model, q):
    low, high = model.position_limits
    plain = np.concatenate([np.full(j.nq, j.nq == j.nv) for j in model.joints])
    return ((q >= low - 1e-15) & (q <= high + 1e-15))[plain].all()


@pytest.mark.parametrize("seed", range(12))
def test_panda_reaches_poses_within_limits(seed):
    q = PANDA.random(seed)
    pose = ts.SE3.from_matrix(ts.body_pose(PANDA, q, "panda_link8"))
    found = ts.inverse_kinematics(PANDA, {"panda_link8": pose}, restarts=40)
    assert found.converged
    assert found.status == "reached"
    assert within(PANDA, found.q)
    np.testing.assert_allclose(ts.body_pose(PANDA, found.q, "panda_link8"), pose.matrix, atol=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_a_free_tree_reaches_poses_and_points(seed):
    rng = np.random.default_rng(seed)
    model = TALOS.with_frame("tool", "gripper_left_base_link", testing.random_pose(rng))
    q = model.random(rng)
    poses = {name: ts.body_pose(model, q, name) for name in ("left_sole_link", "right_sole_link", "tool")}
    point = ts.point_positions(model, q, "gripper_right_base_link", (0.1, 0.2, 0.3))
    targets = [*poses.items(), ts.PointTarget("gripper_right_base_link", (0.1, 0.2, 0.3), point, 2.0)]
    found = ts.inverse_kinematics(model, targets, model.random(rng), restarts=20)
    assert found.converged
    assert within(model, found.q)
    for name, T in poses.items():
        np.testing.assert_allclose(ts.body_pose(model, found.q, name), T, atol=1e-7)
    reached = ts.point_positions(model, found.q, "gripper_right_base_link", (0.1, 0.2, 0.3))
    np.testing.assert_allclose(reached, point, atol=1e-7)


def test_near_starts_take_few_iterations():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        q = PANDA.random(rng)
        near = np.clip(q + 0.05 * rng.standard_normal(q.size), *PANDA.position_limits)
        found = ts.inverse_kinematics(PANDA, {"panda_link8": ts.body_pose(PANDA, q, "panda_link8")}, near)
        assert found.converged
        assert found.iterations <= 25


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limits", [True, False])
def test_targets_out_of_reach_end_in_the_optimum(seed, limits):
    """No configuration nearby, within the limits, has a smaller sum of squares."""
    rng = np.random.default_rng(seed)
    pose = ts.SE3(testing.random_pose(rng).R, (2.0, 1.0, 1.5))
    found = ts.inverse_kinematics(PANDA, {"panda_link8": pose}, limits=limits, rotation_weight=0.3)
    assert not found.converged
    assert found.status == "optimum"
    assert found.error > 0.5
    problem = ik._Problem(PANDA, {"panda_link8": pose}, limits, 0.3)
    best = problem.value(found.q)
    for size in (1e-4, 1e-2):
        for _ in range(100):
            other = problem.clipped(found.q + size * rng.standard_normal(PANDA.nq))
            assert problem.value(other) >= best - 1e-12


def test_an_arm_stretches_towards_a_far_point():
    model = ts.models.acrobot()
    tip = model.bodies[-1].name
    found = ts.inverse_kinematics(model, [ts.PointTarget(tip, (0, 0, -1.0), (5.0, 0, 5.0))], [0.3, 0.2], limits=False)
    direction = ts.point_positions(model, found.q, tip, (0, 0, -1.0))
    start = ts.body_pose(model, found.q, model.bodies[0].name)[:3, 3]
    away = np.array([5.0, 0, 5.0]) - start
    assert found.status == "optimum"
    np.testing.assert_allclose(np.cross(direction - start, away), 0, atol=1e-6)


def test_half_turns_are_left():
    """Half a turn from the target the gradient is zero, but it is no minimum."""
    model = ts.ModelBuilder().add_body("wheel", joint=ts.Revolute((0, 0, 1)), inertia=ts.Inertia.point(1.0)).build()
    found = ts.inverse_kinematics(model, {"wheel": ts.SE3.rotation((0, 0, 1), np.pi)}, [0.0])
    assert found.converged
    ball = ts.ModelBuilder().add_body("ball", joint=ts.Spherical()).build()
    found = ts.inverse_kinematics(ball, {"ball": ts.SE3.rotation((1, 2, 3), np.pi)})
    assert found.converged


def test_derivatives():
    rng = np.random.default_rng(3)
    tree = testing.random_tree(rng, 7).with_frame("tool", "body6", testing.random_pose(rng))
    targets = {"tool": testing.random_pose(rng), "body3": rng.standard_normal(3), "body5": testing.random_pose(rng)}
    problem = ik._Problem(tree, targets, False, 0.7)
    q, h = tree.random(rng), 1e-6
    g, H = problem.derivatives(q, True)
    steps = h * np.eye(tree.nv)
    value = [problem.value(tree.plus(q, d)) - problem.value(tree.plus(q, -d)) for d in steps]
    np.testing.assert_allclose(g, np.array(value) / (2 * h), atol=1e-8)
    rows = [
        problem.derivatives(tree.plus(q, d), True)[0] - problem.derivatives(tree.plus(q, -d), True)[0] for d in steps
    ]
    rows = np.array(rows) / (2 * h)
    np.testing.assert_allclose(H, 0.5 * (rows + rows.T), atol=1e-7)


def test_constraints_of_the_model_hold():
    b = ts.ModelBuilder()
    rod = ts.Inertia.point(1.0, (0.5, 0, 0))
    b.add_body("a", joint=ts.Revolute((0, 0, 1)), inertia=rod)
    b.add_body("b", "a", ts.Revolute((0, 0, 1)), ts.SE3.translation(1, 0, 0), rod)
    b.add_body("c", "b", ts.Revolute((0, 0, 1)), ts.SE3.translation(1, 0, 0), rod)
    b.add_constraint(ts.Gear("a", "b", 2.0))
    model = b.add_frame("tip", "c", ts.SE3.translation(1, 0, 0)).build()
    q = np.array([0.4, 0.8, -0.5])
    assert abs(ts.constraint_errors(model, model.constraints, q).g).max() < 1e-15
    target = ts.body_pose(model, q, "tip")[:3, 3]
    found = ts.inverse_kinematics(model, {"tip": target}, [0.1, 0.1, 0.1])
    assert found.converged
    np.testing.assert_allclose(ts.constraint_errors(model, model.constraints, found.q).g, 0, atol=1e-8)
    far = ts.inverse_kinematics(model, {"tip": (9.0, 1.0, 0.0)}, [0.1, 0.1, 0.1], max_iterations=500)
    assert far.status == "optimum"
    np.testing.assert_allclose(ts.constraint_errors(model, model.constraints, far.q).g, 0, atol=1e-8)


def test_couplings():
    model = ts.models.arm7().couple(ts.Polynomial("wrist_pitch", "elbow_pitch", (0.1, 0.5, 0.2)))
    q = model.random(1)
    found = ts.inverse_kinematics(model, {"hand": ts.body_pose(model, q, "hand")}, restarts=20)
    assert found.converged
    np.testing.assert_allclose(ts.body_pose(model, found.q, "hand"), ts.body_pose(model, q, "hand"), atol=1e-7)


def test_errors():
    for targets, error, text in (
        ({"panda_link8": (1, 2)}, ValueError, "expected an SE3, a matrix"),
        ({"panda_lnk8": (1, 2, 3)}, KeyError, "did you mean 'panda_link8'"),
        ({}, ValueError, "targets is empty"),
        ("panda_link8", TypeError, "targets must be a dict"),
        ([3], TypeError, "a target must be a pair"),
        ({"panda_link8": (1, np.nan, 3)}, ValueError, "not finite"),
    ):
        with pytest.raises(error, match=text):
            ts.inverse_kinematics(PANDA, targets)
    with pytest.raises(ValueError, match="q0 has shape"):
        ts.inverse_kinematics(PANDA, {"panda_link8": (1, 2, 3)}, [0.0])
    with pytest.raises(ValueError, match="rotation_weight"):
        ts.inverse_kinematics(PANDA, {"panda_link8": (1, 2, 3)}, rotation_weight=0.0)
