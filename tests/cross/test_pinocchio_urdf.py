"""load_urdf against Pinocchio's reader, on robots of the package example-robot-data."""

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torsor as ts
from torsor.interop import from_pinocchio, to_pinocchio

pin = pytest.importorskip("pinocchio")
try:
    ROBOTS = Path(
        str(metadata.distribution("example-robot-data").locate_file("cmeel.prefix/share/example-robot-data/robots"))
    )
except metadata.PackageNotFoundError:
    pytest.skip("example-robot-data is not installed", allow_module_level=True)

FREE = {
    "anymal_b_simple_description/robots/anymal.urdf",
    "anymal_c_simple_description/urdf/anymal.urdf",
    "g1_description/urdf/g1_29dof_rev_1_0.urdf",
    "go2_description/urdf/go2.urdf",
    "hyq_description/robots/hyq_no_sensors.urdf",
    "icub_description/robots/icub.urdf",
    "romeo_description/urdf/romeo_small.urdf",
    "solo_description/robots/solo12.urdf",
    "talos_data/robots/talos_reduced.urdf",
    "tiago_description/robots/tiago_dual.urdf",
}
FIXED = {
    "allegro_hand_description/urdf/allegro_left_hand.urdf",
    "baxter_description/urdf/baxter.urdf",
    "double_pendulum_description/urdf/double_pendulum_continuous.urdf",
    "human_description/robots/human.urdf",
    "kinova_description/robots/kinova.urdf",
    "panda_description/urdf/panda.urdf",
    "pr2_description/urdf/pr2.urdf",
    "talos_data/robots/talos_full_v2.urdf",
    "ur_description/urdf/ur5_robot.urdf",
    "xarm_description/urdf/xarm7.urdf",
}
WORKCELL = Path(__file__).parents[1] / "data" / "workcell.urdf"


def load(path: Path, free: bool) -> tuple[ts.Model, Any]:
    model = ts.load_urdf(path, root=ts.Free() if free else None, mimic="ignore", unphysical="accept")
    reference = (
        pin.buildModelFromUrdf(str(path), pin.JointModelFreeFlyer()) if free else pin.buildModelFromUrdf(str(path))
    )
    return model, reference


@pytest.fixture(
    scope="module",
    params=[
        *((ROBOTS / name, True) for name in sorted(FREE)),
        *((ROBOTS / name, False) for name in sorted(FIXED)),
        (WORKCELL, False),
        (WORKCELL, True),
    ],
    ids=lambda parameter: f"{parameter[0].stem}-{'free' if parameter[1] else 'fixed'}",
)
def robot(request: pytest.FixtureRequest) -> tuple[ts.Model, Any]:
    return load(*request.param)


def close(x: np.ndarray, y: np.ndarray) -> None:
    """Agreement to 1e-11 of the largest entry."""
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-11 * np.abs(y).max(initial=1e-300))


def test_mass_names_and_limits(robot: tuple[ts.Model, Any]) -> None:
    model, reference = robot
    masses = [body.inertia.mass for body in model.bodies]
    close(np.sum(masses), np.sum([inertia.mass for inertia in reference.inertias]))
    assert {joint.name for joint in model.joints if joint.nv} == set(reference.names) - {"universe"}
    assert model.nv == reference.nv
    for name, theirs in zip(list(reference.names)[1:], list(reference.joints)[1:], strict=True):
        ours = model.joint(name)
        if ours.nv == 1:
            np.testing.assert_array_equal(ours.velocity_limits, reference.upperVelocityLimit[theirs.idx_v])
            np.testing.assert_array_equal(ours.effort_limits, reference.upperEffortLimit[theirs.idx_v])
        if ours.nv == theirs.nq == 1:
            np.testing.assert_array_equal(ours.position_limits[0], reference.lowerPositionLimit[theirs.idx_q])
            np.testing.assert_array_equal(ours.position_limits[1], reference.upperPositionLimit[theirs.idx_q])


def test_every_link_is_where_it_is_in_pinocchio(robot: tuple[ts.Model, Any]) -> None:
    model, reference = robot
    q = model.random(np.random.default_rng(0))
    data = reference.createData()
    pin.framesForwardKinematics(reference, data, to_pinocchio(model, q, order=reference))
    frames = {frame.name: i for i, frame in enumerate(reference.frames) if frame.type == pin.FrameType.BODY}
    poses = ts.body_poses(model, q)
    for pose, body in zip(poses, model.bodies, strict=True):
        np.testing.assert_allclose(pose, data.oMf[frames[body.name]].homogeneous, atol=1e-13)


def test_dynamics(robot: tuple[ts.Model, Any]) -> None:
    model, reference = robot
    data = reference.createData()
    rng = np.random.default_rng(1)
    q = model.random(rng, size=5)
    v, a = rng.standard_normal((2, 5, model.nv))
    tau = ts.inverse_dynamics(model, q, v, a)
    M = ts.mass_matrix(model, q)
    theirs = to_pinocchio(model, q, v, a, tau, order=reference)
    for i, (q_pin, v_pin, a_pin, tau_pin) in enumerate(zip(*theirs, strict=True)):
        close(tau_pin, pin.rnea(reference, data, q_pin, v_pin, a_pin))
        M_pin = pin.crba(reference, data, q_pin)
        half = to_pinocchio(model, q[i], None, None, M[i], order=reference)[1]
        close(to_pinocchio(model, q[i], None, None, half.T, order=reference)[1], M_pin)
    back = from_pinocchio(model, *theirs, order=reference)
    np.testing.assert_allclose(back[0], q, atol=1e-13)
    for x, y in zip(back[1:], (v, a, tau), strict=True):
        close(x, y)


def test_locked_joints() -> None:
    """The arm of a panda with its fingers locked, as Pinocchio's reduced model."""
    model, reference = load(ROBOTS / "panda_description/urdf/panda.urdf", False)
    fingers = {"panda_finger_joint1": 0.01, "panda_finger_joint2": 0.03}
    q_all = pin.neutral(reference)
    for name, position in fingers.items():
        q_all[reference.joints[reference.getJointId(name)].idx_q] = position
    reduced = pin.buildReducedModel(reference, [reference.getJointId(name) for name in fingers], q_all)
    locked = model.lock(fingers)
    assert locked.nv == reduced.nv == 7
    q, v, a = np.random.default_rng(2).standard_normal((3, 7))
    close(ts.inverse_dynamics(locked, q, v, a), pin.rnea(reduced, reduced.createData(), q, v, a))
