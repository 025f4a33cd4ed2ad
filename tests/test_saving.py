"""Models in files: what is loaded equals what was saved."""

import contextlib
import json

import numpy as np
import pytest
from population import BarrelCam, mixed_tree

import torsor as ts
from torsor import testing


def furnished(seed):
    """A random tree with everything that a file can describe."""
    rng = np.random.default_rng(seed)
    b = ts.ModelBuilder.from_model(testing.random_tree(rng, 9))
    solids = (
        ts.shapes.Sphere(0.1, rng.standard_normal(3)),
        ts.shapes.Box((1, 2, 3), testing.random_pose(rng), 0.1),
        ts.shapes.Capsule(0.1, 1 / 3, testing.random_pose(rng)),
        ts.shapes.HalfSpace(rng.standard_normal(3), 0.1),
    )
    for k, joint in enumerate((*testing.example_joints(), ts.Fixed())):
        low, high = joint.range
        b.add_body(
            f"more{k}", f"body{k % 9}", joint, testing.random_pose(rng), testing.random_inertia(rng),
            joint_name=f"joint{k}", position_limits=(low, high), velocity_limits=1 / (k + 3),
            damping=rng.uniform(0, 1, joint.nv), armature=testing.random_armature(rng, joint),
            visuals=[ts.Visual("box", (1, 2, 3), testing.random_pose(rng), (0.1, 0.2, 0.3, 1.0))],
            collisions=[ts.Collision(solids[k % 4], f"shape{k}", friction=0.3, solref=(0.02, 1.0))],
        )  # fmt: skip
    b.add_frame("tool", "more3", testing.random_pose(rng))
    b.add_world_collision(ts.Collision(ts.shapes.HalfSpace()))
    model = b.build()
    for c in testing.example_constraints(model, rng):
        if not isinstance(c, ts.CustomConstraint) and not any(callable(x) for x in vars(c).values()):
            b.add_constraint(c)
    rules = ts.CollisionRules(exclude=[("body1", "more3")], pairs=[ts.CollisionPair("shape1", "shape2", friction=0.1)])
    whole = b.build()
    return ts.Model(
        whole.name, whole.gravity, whole.bodies, whole.constraints, whole.world_collisions, rules, whole.frames
    )


@pytest.mark.parametrize("seed", range(5))
def test_round_trip(seed, tmp_path):
    model = furnished(seed)
    assert len(model.constraints) > 5
    model.save(tmp_path / "model.json")
    loaded = ts.Model.load(tmp_path / "model.json")
    assert loaded == model
    q = model.random(seed)
    v = np.random.default_rng(seed).standard_normal(model.nv)
    np.testing.assert_array_equal(ts.inverse_dynamics(loaded, q, v, v), ts.inverse_dynamics(model, q, v, v))


@pytest.mark.parametrize(
    "model", [ts.models.humanoid(), ts.models.quadruped(), mixed_tree(), ts.ModelBuilder().build()]
)
def test_models(model, tmp_path):
    if any(isinstance(b.joint, ts.CustomJoint) for b in model.bodies):
        with pytest.raises(ts.ModelError, match="joint of Body"):
            model.save(tmp_path / "model.json")
        return
    model.save(tmp_path / "model.json")
    assert ts.Model.load(tmp_path / "model.json") == model


def test_couplings(tmp_path):
    arm, path = ts.models.arm7(), tmp_path / "model.json"
    for coupling in (
        ts.Mimic("wrist_pitch", "elbow_pitch", 0.5, 1 / 3),
        ts.Polynomial("wrist_pitch", "elbow_pitch", (0.1, 1 / 3, 0.2)),
        ts.Subspace(["wrist_pitch", "elbow_pitch"], [[1 / 3], [2.0]]),
    ):
        model = arm.couple(coupling)
        model.save(path)
        assert ts.Model.load(path) == model != arm


def test_what_cannot_be_described(tmp_path):
    path = tmp_path / "model.json"
    model = ts.ModelBuilder().add_body("cam", joint=BarrelCam(), inertia=ts.Inertia.point(1.0)).build()
    with pytest.raises(ts.ModelError, match=r"joint of Body 'cam' is a BarrelCam"):
        model.save(path)
    moving = ts.models.arm7().with_constraints([ts.PrescribedJoint("elbow", np.sin, name="drive")])
    with pytest.raises(ts.ModelError, match=r"motion of PrescribedJoint 'drive' is a function"):
        moving.save(path)
    assert not path.exists()


def test_wrong_files(tmp_path):
    path = tmp_path / "model.json"
    for text, message in (
        ("", "is not a file of Model.save"),
        ("{}", "it has no format"),
        ("[1, 2]", "it has no format"),
        ('{"format": "torsor model", "version": 99}', "has version 99"),
        ('{"format": "torsor model", "version": 1}', "has no model"),
        ('{"format": "torsor model", "version": 1, "model": {"type": "os.system", "x": 1}}', "no such record"),
        (
            '{"format": "torsor model", "version": 1, "model": {"type": "Model", "x": 1}}',
            "Model in the file is invalid",
        ),
    ):
        path.write_text(text)
        with pytest.raises(ts.FormatError, match=message):
            ts.Model.load(path)
    ts.models.arm7().save(path)
    content = json.loads(path.read_text())
    content["model"]["bodies"][2]["joint"]["axis"] = [0, 0, 0]
    path.write_text(json.dumps(content))
    with pytest.raises(ts.FormatError, match="Revolute in the file is invalid: axis"):
        ts.Model.load(path)
    with pytest.raises(FileNotFoundError):
        ts.Model.load(tmp_path / "none.json")


# ---- trajectories


def described_forces():
    """Forces of every kind that a file can describe, on the quadruped."""
    foot, hip, knee = "front_left_foot", "front_left_hip", "front_left_calf"
    return [
        ts.JointSpring(knee, 10.0, [0.1], 0.3), ts.JointDamping(None, 1 / 3), ts.JointFriction(hip, 0.2),
        ts.JointLimits(hip, 100.0, 1.0), ts.JointTorque(knee, 0.1), ts.BodyDamping("trunk", 0.1),
        ts.PointForce(foot, (0.1, 0, 0), (1, 2, 3)), ts.BodyWrench("trunk", np.arange(6.0)),
        ts.SpringDamper(foot, (0, 0, 0), "trunk", (0, 0, 0.1), 10.0, 0.2, 1.0),
        ts.PointSpring(foot, (0, 0, 0), "world", (1, 0, 0), 3.0),
        ts.Cable([foot, "trunk", hip], np.zeros((3, 3)), 10.0, 0.1, 0.5), ts.BearingFriction(hip, 0.1, 0.02),
        *ts.contacts(ts.models.quadruped(), ground=ts.shapes.HalfSpace()),
    ]  # fmt: skip


def test_a_trajectory_has_its_model_and_forces(tmp_path):
    model, path = ts.models.quadruped(), tmp_path / "a motion.npz"
    forces = described_forces()
    run = ts.simulate(model, model.neutral, steps=3, integrator=ts.BDF2(h=1e-3), forces=forces)
    run.save(path)
    back = ts.Trajectory.load(path)
    assert back.model == model and back.forces == run.forces
    np.testing.assert_array_equal(back.energies.total, run.energies.total)
    w = np.ones((4, model.nv))
    np.testing.assert_array_equal(ts.adjoint(back, dloss_dq=w).v0, ts.adjoint(run, dloss_dq=w).v0)


def test_a_batch_of_models_and_constraints_comes_back(tmp_path):
    model = ts.models.arm7()
    models = [model, model.with_gravity((0, 0, -1.6))]
    gear = ts.Gear("shoulder_yaw", "wrist_roll", 2.0)
    run = ts.simulate(models, model.neutral, steps=2, integrator=ts.BDF1(h=1e-3), constraints=[gear])
    run.save(tmp_path / "run.npz")
    back = ts.Trajectory.load(tmp_path / "run.npz")
    assert back.models == tuple(models) and back.constraints == (gear,)
    one = ts.simulate(models[:1], model.neutral, steps=2, integrator=ts.BDF1(h=1e-3))
    one.save(tmp_path / "one.npz")
    assert ts.Trajectory.load(tmp_path / "one.npz").batch_shape == (1,)


class Wind(ts.CustomForce):
    """A force that a file cannot describe."""

    p = np.zeros(0)

    def value(self, q, v, t, p):
        return -v

    def derivatives(self, q, v, t, p):
        n = len(v)
        return np.zeros((n, n)), -np.eye(n)


def test_what_a_file_cannot_describe_must_be_given(tmp_path):
    from torsor.simulation.archive import read_motion

    model, path = ts.models.pendulum(), tmp_path / "run.npz"
    run = ts.simulate(model, [0.3], steps=3, integrator=ts.BDF1(h=1e-2), forces=[Wind()])
    run.save(path)
    with pytest.raises(ValueError, match=r"does not have all of its simulation: force 0 is a Wind, .*; give load the"):
        ts.Trajectory.load(path)
    assert len(ts.Trajectory.load(path, model, [Wind()]).forces) == 1
    fields, missing = read_motion(path)  # enough to draw it
    assert fields["model"] == model and len(missing) == 1
    np.testing.assert_array_equal(ts.Trajectory(**fields).q, run.q)


def test_damaged_trajectories(tmp_path):
    model, path = ts.models.pendulum(), tmp_path / "run.npz"
    ts.simulate(model, [0.3], steps=3, integrator=ts.BDF1(h=1e-2)).save(path)
    with np.load(path) as data:
        arrays = dict(data)

    def changed(**new):
        np.savez(path, **{key: x for key, x in {**arrays, **new}.items() if x is not None})
        return path

    with pytest.raises(ValueError, match="has version 99 of the format, this torsor reads up to 2"):
        ts.Trajectory.load(changed(version=np.array(99)))
    with pytest.raises(ValueError, match="written by an earlier torsor and has no model in it; give load the model"):
        ts.Trajectory.load(changed(records=None, version=None))
    assert ts.Trajectory.load(path, model).steps == 3
    with pytest.raises(ValueError, match=r"is damaged: t \(4,\), q \(3, 1\)"):
        ts.Trajectory.load(changed(q=arrays["q"][1:]))
    for text in (
        "",
        "{}",
        "[]",
        "[[",
        '{"models": 3}',
        '{"models": [{"type": "Box"}], "forces": [], "constraints": []}',
    ):
        with pytest.raises(ValueError, match="has a model that cannot be read"):
            ts.Trajectory.load(changed(records=np.frombuffer(text.encode(), np.uint8)))
    whole = changed().read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(100):
        bad = bytearray(whole)
        for at in rng.integers(0, len(bad), 3):
            bad[at] ^= int(rng.integers(1, 256))
        path.write_bytes(bad[: int(rng.integers(len(bad) // 2, len(bad)))] if rng.random() < 0.3 else bad)
        with contextlib.suppress(ValueError):
            ts.Trajectory.load(path)
