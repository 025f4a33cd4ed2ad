"""Models in files: what is loaded equals what was saved."""

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
