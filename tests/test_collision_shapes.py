"""Collision shapes that models keep: what loaders make of files, and what copies of models do with them."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import torsor as ts
from torsor import shapes

BALL = ts.Inertia.sphere(0.1, mass=1.0)
LIFT = ts.SE3(ts.SE3.rotation((1, 2, 3), 0.7).R, (0.1, -0.2, 0.3))

ROBOT = """<robot name="r">
  <link name="base">
    <collision name="foot"><origin xyz="0 0 0.1" rpy="0.1 0.2 0.3"/><geometry><box size="1 2 3"/></geometry></collision>
    <collision><geometry><sphere radius="0.5"/></geometry></collision>
  </link>
  <link name="arm">
    <collision><origin xyz="1 2 3"/><geometry><cylinder radius="0.1" length="0.4"/></geometry></collision>
    <collision><geometry><capsule radius="0.1" length="0"/></geometry></collision>
    <collision><geometry><mesh filename="package://r/arm.stl" scale="1 2 -3"/></geometry></collision>
  </link>
  <joint name="j" type="revolute">
    <parent link="base"/><child link="arm"/><axis xyz="0 0 1"/><dynamics damping="1" friction="0.25"/>
    <limit lower="-1" upper="1" velocity="2" effort="3"/>
  </joint>
</robot>"""


def points_of(shape: shapes.Shape) -> np.ndarray:
    """Some points that move with a shape."""
    return np.array([shape.position]) if isinstance(shape, shapes.Sphere) else shape.placement @ np.eye(3)


def depths(plane: shapes.HalfSpace, points: np.ndarray) -> np.ndarray:
    return plane.offset - points @ plane.normal / np.linalg.norm(plane.normal)


# ---- URDF


def test_urdf_collisions() -> None:
    model = ts.load_urdf(ROBOT)
    box, ball = model.body("base").collisions
    assert box == ts.Collision(shapes.Box((1, 2, 3), ts.SE3(ts.SE3.rpy(0.1, 0.2, 0.3).R, (0, 0, 0.1))), "foot")
    assert ball == ts.Collision(shapes.Sphere(0.5))
    cylinder, capsule, mesh = (c.shape for c in model.body("arm").collisions)
    assert cylinder == shapes.Cylinder(0.1, 0.4, ts.SE3.translation(1, 2, 3))
    assert capsule == shapes.Capsule(0.1, 0.0)
    assert mesh == shapes.Mesh("package://r/arm.stl", (1, 2, -3))  # not read: the file does not exist
    assert model.joint("j").dry_friction == model.body("arm").dry_friction == (0.25,)
    assert model.collision_rules == ts.CollisionRules()


def test_urdf_root_named_world_and_loops() -> None:
    text = ROBOT.replace('"base"', '"world"').replace(
        "</robot>",
        '<loop_joint name="l" type="fixed"><link1 link="arm"/><link2 link="world"/></loop_joint></robot>',
    )
    model = ts.load_urdf(text)
    assert [c.name for c in model.world_collisions] == ["foot", None]
    assert model.collision_rules.exclude == (("arm", "world"),)


@pytest.mark.parametrize(
    ("geometry", "fault"),
    [
        ('<box size="1 0 1"/>', "line 3.*'base'.*its box has no volume"),
        ('<sphere radius="0"/>', "its sphere has no volume"),
        ("<plane/>", "has no shape that can be read"),
        ("", "has no shape that can be read"),
    ],
)
def test_urdf_shapes_that_cannot_touch_are_left_out(geometry: str, fault: str) -> None:
    with pytest.warns(UserWarning, match=fault):
        model = ts.load_urdf(ROBOT.replace('<box size="1 2 3"/>', geometry))
    assert len(model.body("base").collisions) == 1


def test_urdf_wrong_numbers() -> None:
    with pytest.raises(ts.FormatError, match="negative size"):
        ts.load_urdf(ROBOT.replace('"1 2 3"/></geometry>', '"1 -2 3"/></geometry>'))
    with pytest.raises(ts.FormatError, match=r"friction = -0\.25 is negative"):
        ts.load_urdf(ROBOT.replace('friction="0.25"', 'friction="-0.25"'))


# ---- MJCF

SCENE = """<mujoco><asset>
  <mesh name="m" vertex="0 0 0  1 0 0  0 1 0  0 0 1  0.1 0.1 0.1  0.2 0.1 0.1"/>
  <hfield name="h" nrow="3" ncol="2" size="1 2 0.5 0.1" elevation="0 1 2 3 4 5"/>
</asset><worldbody>
  <geom name="floor" type="plane" size="1 1 1" pos="1 2 3" euler="30 0 0" friction="0.3 1 1"/>
  <geom name="hills" type="hfield" hfield="h" pos="0 0 -9"/>
  <body name="a"><freejoint/><geom name="ga" type="box" size="0.1 0.2 0.3" contype="6" conaffinity="1" priority="2"
    condim="4" solref="0.01 0.5" solimp="0.8 0.9 0.01 0.4 3" solmix="0.3" margin="0.02" gap="0.01"/>
    <geom name="seen" size="1" contype="0" conaffinity="0"/>
    <body name="b"><joint type="ball" frictionloss="0.3" pos="0 0 1"/><geom name="gb" size="1" contype="0"
      conaffinity="0"/>
      <body name="c"><joint/><joint axis="1 0 0" frictionloss="0.1"/><geom type="mesh" mesh="m" name="gm"/></body>
    </body></body>
</worldbody><contact><exclude body1="c" body2="a"/><exclude body1="world" body2="b"/>
  <pair geom1="gb" geom2="floor" friction="0.9 0.8 0.7 0.6 0.5" condim="1" margin="0.1" solref="-500 -20"/>
</contact></mujoco>"""


@pytest.fixture(scope="module")
def scene() -> ts.Model:
    pytest.importorskip("mujoco")
    return ts.load_mjcf(SCENE)


def test_mjcf_geoms(scene: ts.Model) -> None:
    floor, hills = scene.world_collisions
    assert (floor.name, floor.friction, hills.name) == ("floor", 0.3, "hills")
    normal = ts.SE3.rotation((1, 0, 0), np.radians(30)).R[:, 2]
    np.testing.assert_allclose(floor.shape.normal, normal, atol=1e-15)
    np.testing.assert_allclose(floor.shape.offset, normal @ (1, 2, 3), rtol=1e-14)
    (ga,) = scene.body("a").collisions  # without the one that touches nothing
    np.testing.assert_allclose(ga.shape.size, (0.2, 0.4, 0.6))
    assert (ga.contype, ga.conaffinity, ga.priority, ga.condim, ga.solmix) == (6, 1, 2, 4, 0.3)
    assert (ga.solref, ga.solimp, ga.margin, ga.gap) == ((0.01, 0.5), (0.8, 0.9, 0.01, 0.4, 3.0), 0.02, 0.01)
    (gb,) = scene.body("b").collisions  # of a pair
    assert (gb.name, gb.contype, gb.conaffinity) == ("gb", 0, 0)


def test_mjcf_height_field(scene: ts.Model) -> None:
    hills = scene.world_collisions[1].shape
    assert (hills.size, hills.depth, hills.heights.shape) == ((2.0, 4.0), 0.1, (3, 2))
    assert hills.placement == ts.SE3.translation(0, 0, -9)
    # the file lists rows from the largest y down; heights are parts of 0.5
    np.testing.assert_allclose(hills.heights, 0.5 * np.array([[4, 5], [2, 3], [0, 1]]) / 5, rtol=1e-6)


def test_mjcf_meshes_are_convex_hulls(scene: ts.Model) -> None:
    (gm,) = scene.body("c").collisions
    vertices = gm.shape.placement @ gm.shape.vertices
    # two vertices lie inside; MuJoCo's are single precision
    expected = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    np.testing.assert_allclose(vertices[np.lexsort(vertices.round(3).T[::-1])], expected, atol=1e-6)
    corners = vertices[gm.shape.faces]
    outward = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert (np.einsum("ij,ij->i", outward, corners.mean(axis=1) - vertices.mean(axis=0)) > 0).all()


def test_mjcf_rules(scene: ts.Model) -> None:
    rules = scene.collision_rules
    assert rules.parents == "filter_moving"
    assert {frozenset(pair) for pair in rules.exclude} == {frozenset("ac"), frozenset(("world", "b"))}
    (pair,) = rules.pairs
    assert {pair.first, pair.second} == {"gb", "floor"}
    assert (pair.friction, pair.condim, pair.margin, pair.solref) == (0.9, 1, 0.1, (-500.0, -20.0))
    allowed = SCENE.replace("<mujoco>", '<mujoco><option><flag filterparent="disable"/></option>')
    assert ts.load_mjcf(allowed).collision_rules.parents == "allow"
    disabled = ts.load_mjcf(SCENE.replace("<mujoco>", '<mujoco><option><flag contact="disable"/></option>'))
    assert disabled.world_collisions == disabled.body("a").collisions == disabled.collision_rules.pairs == ()


def test_mjcf_frictionloss(scene: ts.Model) -> None:
    assert scene.body("b/joint").dry_friction == (0.3, 0.3, 0.3)
    assert (scene.body("c/joint").dry_friction, scene.body("c").dry_friction) == ((0.0,), (0.1,))
    assert scene.body("a").dry_friction == (0.0,) * 6
    assert scene.dry_friction.tolist() == [0.0] * 6 + [0.3] * 3 + [0.0, 0.1]
    fast = np.linspace(-1.0, 1.0, scene.nv) + 0.05  # all beyond the slip velocity
    tau = ts.generalized_forces(scene, [ts.JointFriction(None, scene.dry_friction)], scene.neutral, fast)
    np.testing.assert_allclose(tau, -scene.dry_friction * np.sign(fast), atol=1e-15)


# ---- copies of models


def chain() -> ts.Model:
    every = [
        shapes.HalfSpace((0, 1, 2), 0.3),
        shapes.Sphere(0.1, (1, 2, 3)),
        shapes.Capsule(0.1, 0.2, LIFT),
        shapes.Box((0.1, 0.2, 0.3), LIFT, 0.01),
        shapes.Cylinder(0.1, 0.2, LIFT),
        shapes.Ellipsoid((0.1, 0.2, 0.3), LIFT),
        shapes.Mesh("a.stl", (1, 1, 1), LIFT),
        shapes.HeightField(np.arange(6.0).reshape(2, 3), (1, 2), 0.1, LIFT),
    ]
    builder = ts.ModelBuilder().add_world_collision(ts.Collision(shapes.HalfSpace(), "floor", friction=0.5))
    builder.add_body("a", joint=ts.Free(), inertia=BALL, collisions=[ts.Collision(shapes.Sphere(0.2), "ga")])
    collisions = [ts.Collision(shape, f"g{i}") for i, shape in enumerate(every)]
    builder.add_body("b", "a", ts.Revolute((0, 1, 0)), LIFT, BALL, collisions=collisions, dry_friction=0.3)
    builder.add_body("c", "b", ts.Prismatic((0, 0, 1)), LIFT, BALL, collisions=[ts.Collision(shapes.Sphere(0.2), "gc")])
    return replace(builder.build(), collision_rules=ts.CollisionRules(exclude=[("a", "c")]))


def test_lock_moves_collisions() -> None:
    model = chain()
    locked = model.lock({"b": 0.4})
    assert [c.name for c in locked.body("a").collisions] == ["ga", *(f"g{i}" for i in range(8))]
    assert [c.source for c in locked.body("a").collisions] == [None] + ["b"] * 8
    q = model.neutral
    q[model.joint("b").q_slice] = 0.4
    pose = ts.SE3.from_matrix(ts.body_poses(model, q)[1])
    for then, now in zip(model.body("b").collisions, locked.body("a").collisions[1:], strict=True):
        assert type(now.shape) is type(then.shape)
        if isinstance(now.shape, shapes.HalfSpace):
            np.testing.assert_allclose(depths(now.shape, pose @ np.eye(3)), depths(then.shape, np.eye(3)), atol=1e-14)
        else:
            np.testing.assert_allclose(points_of(now.shape), pose @ points_of(then.shape), atol=1e-14)
    twice = model.lock({"b": 0.4, "c": 0.1})
    assert [c.source for c in twice.body("a").collisions][-1] == "c"
    other = model.lock({"c": 0.1}).lock({"b": 0.4})
    sources = [[(c.name, c.source) for c in one.body("a").collisions] for one in (twice, other)]
    assert sources[0] == sources[1]
    assert twice.world_collisions == model.world_collisions
    assert twice.collision_rules == model.collision_rules


def test_lock_to_the_world_keeps_the_body() -> None:
    builder = ts.ModelBuilder().add_body(
        "a", joint=ts.Prismatic((0, 0, 1)), inertia=BALL, collisions=[ts.Collision(shapes.Sphere(1.0))], dry_friction=2
    )
    body = builder.build().lock({"a": 0.3}).body("a")
    assert body.collisions == (ts.Collision(shapes.Sphere(1.0)),)
    assert body.dry_friction == ()


def test_copies_keep_collisions() -> None:
    model = chain()
    loop = ts.Loop("a", "c", ts.Spherical(), name="loop")
    for copy in (
        model.with_gravity((0, 0, -1)),
        model.with_inertia("a", BALL),
        model.with_constraints([loop]),
        pickle.loads(pickle.dumps(model)),
        model.with_loop(loop)[0],
    ):
        assert copy.world_collisions == model.world_collisions
        assert copy.collision_rules == model.collision_rules
        assert [b.collisions for b in copy.bodies][:3] == [b.collisions for b in model.bodies]
        assert [b.dry_friction for b in copy.bodies][:3] == [(0.0,) * 6, (0.3,), (0.0,)]
    assert pickle.loads(pickle.dumps(model)) == model
    assert hash(pickle.loads(pickle.dumps(model))) == hash(model)


def test_maximal_keeps_collisions_and_adjacency() -> None:
    model = chain()
    free, _ = model.maximal()
    assert [b.collisions for b in free.bodies] == [b.collisions for b in model.bodies]
    assert free.world_collisions == model.world_collisions
    assert {frozenset(pair) for pair in free.collision_rules.exclude} == {frozenset(x) for x in ("ac", "ab", "bc")}


def test_models_differ_by_their_collisions() -> None:
    model = chain()
    assert model != replace(model, world_collisions=())
    assert model != replace(model, collision_rules=ts.CollisionRules())
    b = model.body("b")
    for k in range(len(b.collisions)):
        fewer = tuple(c for i, c in enumerate(b.collisions) if i != k)
        assert replace(b, collisions=fewer) != b


def test_motions_do_not_depend_on_collision_shapes(tmp_path) -> None:
    """They are no forces: a saved motion loads with a model that has none."""
    model = chain()
    bare = replace(model, bodies=tuple(replace(b, collisions=()) for b in model.bodies), world_collisions=())
    motion = ts.simulate(model, model.neutral, np.ones(model.nv), steps=3, integrator=ts.BDF1(h=0.01))
    motion.save(tmp_path / "motion.npz")
    assert np.array_equal(ts.Trajectory.load(tmp_path / "motion.npz", bare).q, motion.q)


# ---- bad input


def test_records_are_checked() -> None:
    ball = shapes.Sphere(1.0)
    with pytest.raises(TypeError, match=r"collisions of 'a' must be Collision records.*did you mean Collision\(Sphere"):
        ts.ModelBuilder().add_body("a", collisions=[ball])
    with pytest.raises(TypeError, match="collisions of the world must be Collision records, got 1"):
        ts.ModelBuilder().add_world_collision(1)
    with pytest.raises(TypeError, match=r"shape of a Collision must be one of torsor\.shapes, got 'box'"):
        ts.Collision("box")
    with pytest.raises(ts.ModelError, match="friction of a collision shape is -1, expected a number of at least 0"):
        ts.Collision(ball, friction=-1)
    with pytest.raises(ts.ModelError, match="condim of a collision shape is 2, expected 1, 3, 4 or 6"):
        ts.Collision(ball, condim=2)
    with pytest.raises(TypeError, match="contype of a Collision must be an integer"):
        ts.Collision(ball, contype=0.5)
    with pytest.raises(ValueError, match="parents is 'no', expected 'filter', 'filter_moving', 'allow'"):
        ts.CollisionRules(parents="no")
    with pytest.raises(TypeError, match="exclude must be a sequence of pairs of names, got 'ab' in it"):
        ts.CollisionRules(exclude=["ab"])
    with pytest.raises(TypeError, match="pairs must be CollisionPair records, got 3"):
        ts.CollisionRules(pairs=[3])
    with pytest.raises(TypeError, match="collision_rules must be CollisionRules, got 3"):
        replace(ts.models.pendulum(), collision_rules=3)
    with pytest.raises(ts.ModelError, match="dry_friction of 'a' is negative"):
        ts.ModelBuilder().add_body("a", joint=ts.Revolute((0, 0, 1)), inertia=BALL, dry_friction=-1.0)
    with pytest.raises(ts.ModelError, match=r"dry_friction of 'a' has shape \(2,\), expected one number or 1"):
        ts.ModelBuilder().add_body("a", joint=ts.Revolute((0, 0, 1)), inertia=BALL, dry_friction=[1.0, 2.0])


def test_meshes_and_height_fields_are_checked() -> None:
    corners = np.eye(3)
    with pytest.raises(ValueError, match="a Mesh needs path=, or vertices= and faces="):
        shapes.Mesh()
    with pytest.raises(ValueError, match=r"faces has shape \(3,\)"):
        shapes.Mesh(vertices=corners, faces=[0, 1, 2])
    with pytest.raises(ValueError, match="faces has indices 0 to 3 of 3 vertices"):
        shapes.Mesh(vertices=corners, faces=[[0, 1, 3]])
    with pytest.raises(ValueError, match="heights has shape"):
        shapes.HeightField([1.0, 2.0], (1, 1))
    with pytest.raises(ValueError, match="expected two numbers above 0"):
        shapes.HeightField(np.zeros((2, 2)), (0, 1))
    moved = shapes.Mesh("a.stl").with_numbers({"position": (1, 2, 3)})
    assert moved == shapes.Mesh("a.stl", placement=ts.SE3.translation(1, 2, 3))
