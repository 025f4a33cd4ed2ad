"""load_urdf against Pinocchio's reader, on all robots of the package example-robot-data."""

import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
import pytest

import torsor as ts
from torsor.interop import from_pinocchio, to_pinocchio

ROBOTS = Path(
    str(metadata.distribution("example-robot-data").locate_file("cmeel.prefix/share/example-robot-data/robots"))
)
EMPTY = "ur_description/urdf/ur3.urdf"  # holds no robot
LACKING = "alex_description/urdf/alex_psyonic_hands.urdf"  # mimics joints that it does not have
FILES = sorted({str(path.relative_to(ROBOTS)) for path in ROBOTS.rglob("*.urdf")} - {EMPTY})
WORKCELL = Path(__file__).parents[1] / "data" / "workcell.urdf"
CASES = [(path, free) for path in [*(ROBOTS / name for name in FILES), WORKCELL] for free in (False, True)]

# Files that hold links without an inertia of their own that is physical, and what the warning says of them.
MERGED = {"anymal.urdf", "anymal-kinova.urdf", "b1.urdf", "b1-z1.urdf", "go1.urdf", "hyq_no_sensors.urdf", "pr2.urdf",
          "allegro_left_hand.urdf", "allegro_right_hand.urdf", "tiago.urdf", "tiago_dual.urdf",
          "tiago_no_hand.urdf"}  # fmt: skip
UNPHYSICAL = {"romeo_small.urdf", "romeo_laas_small.urdf"}

pytestmark = pytest.mark.filterwarnings("ignore::torsor.FormatWarning")


def load(path: Path, free: bool) -> tuple[ts.Model, Any]:
    model = ts.load_urdf(path, root=ts.Free() if free else None, mimic="ignore")
    reference = (
        pin.buildModelFromUrdf(str(path), pin.JointModelFreeFlyer()) if free else pin.buildModelFromUrdf(str(path))
    )
    return model, reference


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0].stem}-{'free' if case[1] else 'fixed'}")
def robot(request: pytest.FixtureRequest) -> tuple[ts.Model, Any]:
    return load(*request.param)


def close(x: Any, y: Any, tolerance: float = 1e-12) -> None:
    """Agreement to 1e-12 of the largest entry: results of two libraries differ by rounding."""
    np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * np.abs(y).max(initial=1e-300))


def test_there_are_68_robots() -> None:
    assert len(FILES) == 68
    with pytest.raises(ts.FormatError, match="has no <link>"):
        ts.load_urdf(ROBOTS / EMPTY)
    with pytest.raises(ts.FormatError, match=r"mimicked and missing: 'index_q1' \(of 'Left_index_q2'\), 'middle_q1'"):
        ts.load_urdf(ROBOTS / LACKING)


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("name", sorted({*FILES} - {LACKING}))
def test_all_load_by_default_with_one_warning_at_most(name: str, free: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = ts.load_urdf(ROBOTS / name, ts.Free() if free else None)
    assert model.nbodies
    text = "".join(str(one.message) for one in caught)
    assert len(caught) <= 1
    file = Path(name).name
    assert ("not physical by themselves" in text) == (file in MERGED)
    assert ("no distribution of mass has" in text) == (file in UNPHYSICAL)


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
            np.testing.assert_array_equal(ours.damping, reference.damping[theirs.idx_v])
            np.testing.assert_array_equal(ours.dry_friction, reference.upperDryFrictionLimit[theirs.idx_v])
        if ours.nv == theirs.nq == 1:
            np.testing.assert_array_equal(ours.position_limits[0], reference.lowerPositionLimit[theirs.idx_q])
            np.testing.assert_array_equal(ours.position_limits[1], reference.upperPositionLimit[theirs.idx_q])


def test_poses_and_jacobians_of_every_link(robot: tuple[ts.Model, Any]) -> None:
    model, reference = robot
    q = model.random(np.random.default_rng(0))
    data = reference.createData()
    q_pin = to_pinocchio(model, q, order=reference)
    pin.framesForwardKinematics(reference, data, q_pin)
    if model.nv:  # else Pinocchio crashes
        pin.computeJointJacobians(reference, data, q_pin)
    frames = {frame.name: i for i, frame in enumerate(reference.frames) if frame.type == pin.FrameType.BODY}
    turn = velocities(model, q, reference)
    ours = ts.maximal_jacobian(model, q).reshape(model.nbodies, 6, model.nv) @ turn
    poses = ts.body_poses(model, q)
    for pose, J, body in zip(poses, ours, model.bodies, strict=True):
        frame = frames["world" if body.name == "world_link" else body.name]
        close(pose, data.oMf[frame].homogeneous)
        if model.nv:
            close(J, np.roll(pin.getFrameJacobian(reference, data, frame, pin.LOCAL), 3, axis=0))


def velocities(model: ts.Model, q: np.ndarray, reference: Any) -> np.ndarray:
    """The matrix X with v = X v_pin, which is orthogonal."""
    rows = np.eye(model.nv)
    return to_pinocchio(model, np.broadcast_to(q, (model.nv, model.nq)), rows, order=reference)[1]


def test_dynamics(robot: tuple[ts.Model, Any]) -> None:
    model, reference = robot
    data = reference.createData()
    rng = np.random.default_rng(1)
    q = model.random(rng)
    v, a = rng.standard_normal((2, model.nv))
    tau = ts.inverse_dynamics(model, q, v, a)
    M = ts.mass_matrix(model, q)
    q_pin, v_pin, a_pin, tau_pin = theirs = to_pinocchio(model, q, v, a, tau, order=reference)
    close(tau_pin, pin.rnea(reference, data, q_pin, v_pin, a_pin))
    X = velocities(model, q, reference)
    M_pin = pin.crba(reference, data, q_pin)
    close(X.T @ M @ X, M_pin)
    back = from_pinocchio(model, *theirs, order=reference)
    np.testing.assert_allclose(back[0], q, atol=1e-13)
    for x, y in zip(back[1:], (v, a, tau), strict=True):
        close(x, y)
    moments = np.linalg.eigvalsh(M_pin)
    if model.nv == 0 or moments[0] < 1e-12 * moments[-1]:  # massless links at the tips
        return
    ours = to_pinocchio(model, q, v, ts.forward_dynamics(model, q, v, tau), order=reference)[2]
    condition = moments[-1] / moments[0]  # rounding of tau grows by it
    close(ours, pin.aba(reference, data, q_pin, v_pin, tau_pin), 1e-12 + 1e-15 * condition)


def test_what_is_written_is_the_same_robot(robot: tuple[ts.Model, Any]) -> None:
    """When it is loaded again, and when Pinocchio reads it."""
    model, _ = robot
    text = ts.to_urdf(model)
    again = ts.load_urdf(text)
    assert [body.name for body in again.bodies] == [body.name for body in model.bodies]
    rng = np.random.default_rng(3)
    q = model.random(rng)
    v, a = rng.standard_normal((2, model.nv))
    tau = ts.inverse_dynamics(model, q, v, a)
    close(ts.inverse_dynamics(again, q, v, a), tau, 1e-14)
    close(ts.mass_matrix(again, q), ts.mass_matrix(model, q), 1e-14)
    theirs = pin.buildModelFromXML(text)
    q_pin, v_pin, a_pin, tau_pin = to_pinocchio(model, q, v, a, tau, order=theirs)
    close(pin.rnea(theirs, theirs.createData(), q_pin, v_pin, a_pin), tau_pin)


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize(
    "name",
    [
        "panda_description/urdf/panda.urdf",
        "baxter_description/urdf/baxter.urdf",
        "pr2_description/urdf/pr2.urdf",
        "tiago_pro_description/robots/tiago_pro.urdf",
    ],
)
def test_mimic_joints(name: str, free: bool) -> None:
    model = ts.load_urdf(ROBOTS / name, root=ts.Free() if free else None)
    root = [pin.JointModelFreeFlyer()] if free else []
    reference = pin.buildModelFromUrdf(str(ROBOTS / name), *root, True)
    assert model.nv == reference.nv < model.tree.nv
    rng = np.random.default_rng(4)
    q = model.random(rng)
    v, a = rng.standard_normal((2, model.nv))
    tau = ts.inverse_dynamics(model, q, v, a)
    data = reference.createData()
    q_pin, v_pin, a_pin, tau_pin = to_pinocchio(model, q, v, a, tau, order=reference)
    close(tau_pin, pin.rnea(reference, data, q_pin, v_pin, a_pin))
    X = velocities(model, q, reference)
    close(X.T @ ts.mass_matrix(model, q) @ X, pin.crba(reference, data, q_pin))
    again = ts.load_urdf(ts.to_urdf(model))
    assert again.couplings == model.couplings
    close(ts.inverse_dynamics(again, q, v, a), tau, 1e-14)


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
