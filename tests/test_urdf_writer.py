"""to_urdf: what it writes is the same mechanism when it is loaded, and what it cannot write it says."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import torsor as ts
from torsor import shapes, testing

WORKCELL = Path(__file__).parent / "data" / "workcell.urdf"
EULER = [ts.SphericalEuler(chart) for chart in ts.SphericalEuler.CHARTS]
JOINTS = [
    ts.Fixed(), ts.Revolute((1, 2, 3)), ts.Prismatic((0, -1, 2)), ts.Free(), ts.Free2D(), ts.Cylindrical((1, 1, 0)),
    ts.Planar(((1, 0, 0), (1, 1, 0))), ts.Translational(), ts.Universal(((1, 0, 1), (0, 1, 0))), *EULER,
    ts.Composite(ts.Planar(), ts.Revolute()), ts.Composite(ts.Translational(), ts.SphericalEuler("XYZ")),
    ts.Composite(ts.Revolute((0, 1, 0)), ts.Free2D()), ts.Composite(), ts.Composite(ts.Fixed(), ts.Prismatic()),
]  # fmt: skip
REFUSED = [ts.Spherical(), ts.SphericalExp(), ts.Screw(pitch=0.1), ts.Composite(ts.Revolute(), ts.Spherical())]
ROD = ts.Inertia.box(mass=1.0, size=(1.0, 0.1, 0.1), com=(0.5, 0, 0))


def in_order(model: ts.Model, other: ts.Model) -> np.ndarray:
    """Where velocities of the other model are in those of `model`; chains of one joint are next to each other."""
    found = []
    for joint in other.joints:
        if not joint.nv:
            continue
        name = joint.name if joint.name in {j.name for j in model.joints} else joint.name.rpartition("_")[0]
        found.append((name, joint.nv))
    start = {joint.name: joint.v_slice.start for joint in model.joints}
    out: list[int] = []
    for name, nv in found:
        out += range(start[name], start[name] + nv)
        start[name] += nv
    return np.array(out, dtype=int)


def same_mechanics(model: ts.Model, other: ts.Model, rng: np.random.Generator) -> None:
    order = in_order(model, other)
    for _ in range(3):
        v, a, dq = rng.standard_normal((3, model.nv))
        q, q_other = model.plus(model.neutral, dq), other.plus(other.neutral, dq[order])
        tau = ts.inverse_dynamics(model, q, v, a)
        np.testing.assert_allclose(
            ts.inverse_dynamics(other, q_other, v[order], a[order]), tau[order], atol=1e-13 * np.abs(tau).max()
        )
        M = ts.mass_matrix(model, q)
        np.testing.assert_allclose(
            ts.mass_matrix(other, q_other), M[np.ix_(order, order)], atol=1e-13 * np.abs(M).max()
        )


@pytest.mark.parametrize("seed", range(12))
def test_random_trees_come_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    joints = [JOINTS[i] for i in rng.permutation(len(JOINTS))[:8]]
    model = testing.random_tree(seed, joints, branching=0.5, armature=False).with_gravity((0, 0, -9.81))
    again = ts.load_urdf(ts.to_urdf(model))
    assert again.nv == model.nv
    assert {body.name for body in model.bodies} <= {body.name for body in again.bodies}
    same_mechanics(model, again, rng)


@pytest.mark.parametrize("joint", JOINTS, ids=repr)
def test_every_joint_that_can_be_carried_comes_back(joint: ts.Joint) -> None:
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder()
    builder.add_body("arm", "world", ts.Revolute((0, 1, 0)), testing.random_pose(rng), ROD)
    builder.add_body("tool", "arm", joint, testing.random_pose(rng), ROD, joint_name="wrist")
    model = builder.build()
    again = ts.load_urdf(ts.to_urdf(model))
    same_mechanics(model, again, rng)
    if isinstance(joint, (ts.Fixed, ts.Revolute, ts.Prismatic, ts.Free)):
        assert again.joint("wrist").joint == joint
    for name in ("arm", "tool"):
        assert again.body(name).inertia == model.body(name).inertia


@pytest.mark.parametrize("joint", REFUSED, ids=repr)
def test_other_joints_are_refused(joint: ts.Joint) -> None:
    builder = ts.ModelBuilder("odd")
    builder.add_body("a", joint=joint, inertia=ROD, joint_name="j").add_body("b", "a", ts.SphericalExp())
    for unsupported in ("refuse", "warn"):
        with pytest.raises(
            ts.ModelError, match=rf"URDF cannot carry all of 'odd': joint 'j', a {type(joint).__name__}; jo"
        ):
            ts.to_urdf(builder.build(), unsupported=unsupported)


@pytest.mark.parametrize("root", [None, ts.Free(), ts.Prismatic((0, 0, 1))], ids=repr)
def test_files_come_back_as_they_were(root: ts.Joint | None, tmp_path: Path) -> None:
    model = ts.load_urdf(WORKCELL, root)
    path = tmp_path / "written.urdf"
    text = ts.to_urdf(model, path)
    assert path.read_text("utf-8") == text
    again = ts.load_urdf(path)
    for a, b in zip(model.bodies, again.bodies, strict=True):
        for field in dataclasses.fields(ts.Body):
            x, y = getattr(a, field.name), getattr(b, field.name)
            if field.name == "placement":
                np.testing.assert_allclose(x.matrix, y.matrix, atol=1e-15)
            elif field.name not in ("visuals", "collisions"):
                assert x == y
    assert ts.to_urdf(again) == text
    assert ("world" in text) == (root is not None)


def test_limits_and_losses_come_back() -> None:
    inf = np.inf
    builder = ts.ModelBuilder()
    cases = [
        {}, {"position_limits": (-1, 2)}, {"position_limits": (-inf, 2)}, {"velocity_limits": 3}, {"effort_limits": 4},
        {"position_limits": (0, 0), "damping": 0.1, "dry_friction": 0.2}, {"damping": 0.3},
    ]  # fmt: skip
    for joint in (ts.Revolute(), ts.Prismatic(), ts.Universal(), ts.Free2D(), ts.SphericalEuler()):
        for k, case in enumerate(cases):
            builder.add_body(f"{type(joint).__name__}{k}", "world", joint, inertia=ROD, **case)
    model = builder.build()
    again = ts.load_urdf(ts.to_urdf(model))
    order = in_order(model, again)
    for name in ("velocity_limits", "effort_limits", "damping", "dry_friction"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name)[order])
    for end in (0, 1):
        np.testing.assert_array_equal(again.position_limits[end], model.position_limits[end][order])


@pytest.mark.parametrize("pitch", [0.3, np.pi / 2, -np.pi / 2, np.pi / 2 - 1e-9, 1e-9])
def test_orientations_come_back(pitch: float) -> None:
    for roll, yaw in ((0.0, 0.0), (1.0, 2.0), (-3.0, 3.0), (np.pi, np.pi)):
        pose = ts.SE3.rpy(roll, pitch, yaw)
        model = ts.ModelBuilder().add_body("a", placement=pose, joint=ts.Revolute(), inertia=ROD).build()
        np.testing.assert_allclose(ts.load_urdf(ts.to_urdf(model)).body("a").placement.R, pose.R, atol=1e-15)


def test_loops_and_gears_come_back() -> None:
    y = ts.Revolute((0, 1, 0))
    builder = ts.ModelBuilder()
    for name in "abc":
        builder.add_body(name, "world", y, ts.SE3.rpy(0.1, 0.2, 0.3), ROD)
    builder.add_body("ball", "world", ts.Universal(), inertia=ROD)
    at, on = ts.SE3.translation(1, 2, 3), ts.SE3(ts.SE3.rpy(1, 2, 3).R, (1, 0, 0))
    made = [
        ts.Loop("a", "b", y, at, on, name="hinge"),
        ts.Loop("world", "c", ts.Spherical(), name="ball joint"),
        ts.Loop("a", "c", ts.Free2D(), name="plane"),
        ts.Loop("b", "c", ts.Prismatic((1, 0, 0)), name="slide"),
        ts.Loop("ball", "c", ts.Fixed(), name="weld"),
    ]
    model = builder.build().with_constraints(
        [*made, ts.Gear("a", "b", -2.0, offset=0.1), ts.Gear("c", ("ball", 1), 3.0)]
    )
    again = ts.load_urdf(ts.to_urdf(model))
    loops = {c.name: c for c in again.constraints if isinstance(c, ts.Loop)}
    assert [*loops] == [loop.name for loop in made]
    for loop in made:
        other = loops[loop.name]
        assert (other.a, other.b, other.joint) == (loop.a, loop.b, loop.joint)
        for x, z in ((loop.placement_a, other.placement_a), (loop.placement_b, other.placement_b)):
            np.testing.assert_allclose(x.matrix, z.matrix, atol=1e-15)
    assert again.couplings == (ts.Mimic("b", "a", -2.0, 0.1), ts.Mimic("ball", "c", 3.0))


def test_couplings_come_back() -> None:
    builder = ts.ModelBuilder()
    for name in "abc":
        builder.add_body(name, "world", ts.Revolute((0, 1, 0)), inertia=ROD)
    builder.add_body("d", "world", ts.Universal(), inertia=ROD)
    model = builder.build().couple(ts.Mimic("b", "a", -2.0, 0.1), ts.Mimic(("d", 0), "b", 3.0))
    again = ts.load_urdf(ts.to_urdf(model))
    assert again.couplings == (ts.Mimic("b", "a", -2.0, 0.1), ts.Mimic("d_1", "b", 3.0))
    q, v, a = np.random.default_rng(0).standard_normal((3, model.nv))
    np.testing.assert_allclose(ts.inverse_dynamics(again, q, v, a), ts.inverse_dynamics(model, q, v, a), rtol=1e-13)
    curved = builder.build().couple(ts.Polynomial("b", "a", (0, 1, 2)))
    with pytest.raises(ts.ModelError, match="couplings of kind 'Polynomial'"):
        ts.to_urdf(curved)


def test_frames_become_links() -> None:
    at = ts.SE3(ts.SE3.rpy(0.1, 0.2, 0.3).R, (1, 2, 3))
    builder = ts.ModelBuilder()
    builder.add_body("a", "world", ts.Revolute(), inertia=ROD).add_body("b", "a", placement=at, joint_name="weld")
    builder.add_frame("weld", "b").add_frame("tip", "a", at).add_frame("corner", "world", at)
    model = builder.build()
    again = ts.load_urdf(ts.to_urdf(model))
    assert [body.name for body in again.bodies] == ["a", "b", "tip", "corner"]
    assert [frame.name for frame in again.frames] == ["weld", "tip_joint", "corner_joint"]
    for name in ("weld", "tip", "corner"):
        ours = ts.body_pose(model, np.array([0.3]), name)
        np.testing.assert_allclose(ts.body_pose(again, np.array([0.3]), name), ours, atol=1e-15)
    same_mechanics(model, again, np.random.default_rng(0))


def test_shapes_come_back() -> None:
    at = ts.SE3(ts.SE3.rpy(0.1, 0.2, 0.3).R, (1, 2, 3))
    visuals = [
        ts.Visual("box", (1, 2, 3), at, (1, 0, 0, 1)), ts.Visual("sphere", (2.0,)), ts.Visual("cylinder", (1.0, 2.0)),
        ts.Visual("mesh", (), at, (1, 0, 0, 1), "a b.stl", (1, -1, 0.1)), ts.Visual("capsule", (1.0, 2.0)),
    ]  # fmt: skip
    solids = [
        shapes.Box((1, 2, 3), at), shapes.Sphere(1.0, (1, 2, 3)), shapes.Cylinder(1.0, 2.0, at),
        shapes.Capsule(1.0, 2.0, at), shapes.Mesh("a.stl", (1, 2, 3), at),
    ]  # fmt: skip
    collisions = [ts.Collision(solid, f"<{k}>") for k, solid in enumerate(solids)]
    builder = ts.ModelBuilder("shapes & names")
    builder.add_body('a "quoted"', "world", ts.Revolute(), inertia=ROD, visuals=visuals, collisions=collisions)
    builder.add_world_collision(ts.Collision(shapes.Box((9, 9, 1))))
    model = builder.build()
    again = ts.load_urdf(ts.to_urdf(model))
    assert again.name == model.name
    assert again.world_collisions == model.world_collisions
    (a,), (b,) = model.bodies, again.bodies
    assert [(c.name, type(c.shape)) for c in a.collisions] == [(c.name, type(c.shape)) for c in b.collisions]
    for one, two in zip(a.collisions, b.collisions, strict=True):
        for name, x in one.shape.numbers.items():
            np.testing.assert_allclose(two.shape.numbers[name], x, atol=1e-15)
    for one, two in zip(a.visuals, b.visuals, strict=True):
        assert dataclasses.replace(one, placement=ts.SE3()) == dataclasses.replace(two, placement=ts.SE3())
        np.testing.assert_allclose(one.placement.matrix, two.placement.matrix, atol=1e-15)


def test_all_that_cannot_be_carried_is_listed() -> None:
    builder = ts.ModelBuilder("m", gravity=(0, 0, -1.6))
    rough = ts.Collision(shapes.Sphere(1.0), friction=0.5)
    builder.add_body("a", joint=ts.Revolute(), inertia=ROD, stiffness=2.0, armature=0.1, collisions=[rough],
                     gravity_compensation=0.5)  # fmt: skip
    builder.add_body("b", joint=ts.Free(), inertia=ROD, damping=0.1, visuals=[ts.Visual("ellipsoid", (1, 2, 3))])
    builder.add_world_collision(ts.Collision(shapes.HalfSpace()))
    builder.add_constraint(ts.Distance("a", (0, 0, 0), "b", (0, 0, 0), 1.0, name="rope"))
    model = dataclasses.replace(
        builder.build(), collision_rules=ts.CollisionRules(exclude=[("a", "b")]),
        tendons=(ts.Tendon("cord", joints=("a",), coefficients=(1.0,)),), actuators=(ts.Actuator("motor", joint="a"),),
        keyframes={"home": ts.Keyframe((0.0,) * 8, (0.0,) * 7)},
    )  # fmt: skip
    parts = [
        r"gravity \(0.0, 0.0, -1.6\)", "stiffness of joints 'a'", "armature of joints 'a'", "softness of .* 'a'",
        "limits, damping and dry friction of joints 'b'", "visuals of shape ellipsoid of 'b'", "constraints 'rope'",
        "collision shapes HalfSpace of 'world'", "rules for contact", "tendons 'cord'", "actuators 'motor'",
        "keyframes 'home'", "gravity compensation of 'a'",
    ]  # fmt: skip
    with pytest.raises(ts.ModelError, match="unsupported='warn'") as caught:
        ts.to_urdf(model)
    for part in parts:
        assert re.search(part, str(caught.value))
    with pytest.warns(ts.FormatWarning, match="left out of the URDF of 'm'") as warned:
        text = ts.to_urdf(model, unsupported="warn")
    assert len(warned) == 1
    bare = model.with_body("a", armature=(0.0,)).with_gravity((0, 0, -9.81))
    same_mechanics(bare, ts.load_urdf(text), np.random.default_rng(0))


def test_names() -> None:
    def chain(body: str, joint: str, other: str) -> ts.Model:
        builder = ts.ModelBuilder().add_body(other, joint=ts.Revolute(), inertia=ROD)
        return builder.add_body(body, other, ts.Universal(), inertia=ROD, joint_name=joint).build()

    taken = chain("b", "j", "b_1")  # the name of the link between the two rotations
    again = ts.load_urdf(ts.to_urdf(taken))
    assert [body.name for body in again.bodies] == ["b_1", "b_1_", "b"]
    for name in ("a\0", "\ud800", " "):
        with pytest.raises(ts.ModelError, match="names that XML cannot have"):
            ts.to_urdf(chain("b", "j", name))
    blank = ts.ModelBuilder(" ").add_body("a", visuals=[ts.Visual("mesh", mesh="a.stl")]).build()
    assert ts.load_urdf(ts.to_urdf(blank)).name == " "
    with pytest.raises(ts.ModelError, match="names that XML cannot have"):
        ts.to_urdf(ts.ModelBuilder().add_body("a", visuals=[ts.Visual("mesh", mesh="\1.stl")]).build())
    odd = "tab\tline\n<&>'\"肩"
    assert ts.load_urdf(ts.to_urdf(chain("b", "j", odd))).bodies[0].name == odd


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"model must be a torsor\.Model, got str"):
        ts.to_urdf("model")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unsupported must be 'refuse' or 'warn', got 'ignore'"):
        ts.to_urdf(ts.models.pendulum(), unsupported="ignore")  # type: ignore[arg-type]
