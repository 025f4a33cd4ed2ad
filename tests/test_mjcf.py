"""load_mjcf: what it makes of bodies, joints and geoms, and what it says of files that are wrong."""

import sys
from pathlib import Path

import numpy as np
import pytest

import torsor as ts

mujoco = pytest.importorskip("mujoco")

PLAYGROUND = Path(__file__).parent / "data" / "playground.xml"


def world(*content: str) -> str:
    return f"<mujoco><worldbody>{''.join(content)}</worldbody></mujoco>"


def body(*content: str, name: str = "b") -> str:
    return f'<body name="{name}"><geom size="0.1" pos="0.1 0.2 0.3"/>{"".join(content)}</body>'


@pytest.fixture(scope="module")
def playground() -> ts.Model:
    return ts.load_mjcf(PLAYGROUND)


# ---- what is loaded ----------------------------------------------------------------------------------------


def test_bodies_and_joints(playground: ts.Model) -> None:
    assert playground.name == "playground"
    np.testing.assert_array_equal(playground.gravity, (0.3, -0.2, -9.7))
    mj = mujoco.MjModel.from_xml_path(str(PLAYGROUND))
    assert (playground.nq, playground.nv) == (mj.nq, mj.nv)

    names = [mj.body(i).name or f"body{i}" for i in range(1, mj.nbody)]
    assert [body.name for body in playground.bodies if "/" not in body.name] == names
    assert sum(body.inertia.mass for body in playground.bodies) == pytest.approx(mj.body_mass.sum(), rel=1e-14)

    kinds = {joint.name: type(joint.joint) for joint in playground.joints}
    assert kinds["kite_free"] is ts.Free
    assert kinds["tail_hinge"] is kinds["lid_hinge"] is ts.Revolute
    assert kinds["drawer_slide"] is ts.Prismatic
    assert kinds["swing_ball"] is ts.Spherical
    assert kinds["post"] is ts.Fixed
    for name in ("kite_free", "tail_hinge", "swing_ball", "lid_hinge", "drawer_slide"):
        assert playground.joint(name).q_slice.start == mj.joint(name).qposadr[0]
        assert playground.joint(name).v_slice.start == mj.joint(name).dofadr[0]


def test_several_joints_keep_their_names(playground: ts.Model) -> None:
    """Each joint has a body of its own, without mass, but for the last at the body's origin."""
    mj = mujoco.MjModel.from_xml_path(str(PLAYGROUND))
    for i in range(mj.njnt):
        if mj.joint(i).name:
            assert playground.joint(mj.joint(i).name).q_slice.start == mj.joint(i).qposadr[0]
            assert playground.joint(mj.joint(i).name).v_slice.start == mj.joint(i).dofadr[0]
    chain = [b.name for b in playground.bodies if b.name.startswith("foot")]
    assert chain == ["foot/joint", "foot/joint2", "foot"]
    joints = [playground.body(name).joint for name in chain]
    assert joints == [ts.Revolute((1, 0, 0)), ts.Revolute((0, 1, 0)), ts.Prismatic((0, 0, 1))]
    assert playground.body("body8").joint == ts.Fixed()  # its hinges are not at its origin
    np.testing.assert_allclose(playground.body("body8").placement.p, (0, -0.1, -0.02))


def test_ranges(playground: ts.Model) -> None:
    inf, degree = np.inf, np.pi / 180
    tail, drawer = playground.joint("tail_hinge"), playground.joint("drawer_slide")
    np.testing.assert_allclose((*tail.position_limits[0], *tail.position_limits[1]), (-60 * degree, 80 * degree))
    assert drawer.position_limits == ((-0.1,), (0.6,))
    assert playground.joint("swing_ball").position_limits[1] == (inf, inf, inf, inf)
    np.testing.assert_allclose(playground.joint("body8/joint").position_limits[0], [-30 * degree])
    assert playground.joint("body8/joint2").position_limits[0] == (-inf,)


def test_visuals(playground: ts.Model) -> None:
    (kite,) = playground.body("kite").visuals
    assert kite.shape == "box"
    np.testing.assert_allclose(kite.size, (0.6, 0.4, 0.02))
    np.testing.assert_allclose(kite.color, (0.9, 0.1, 0.1, 1.0), rtol=1e-6)
    (tail,) = playground.body("tail").visuals
    assert tail.shape == "capsule"
    np.testing.assert_allclose(tail.size, (0.02, np.hypot(0.4, 0.1)))
    assert tail.color == (0.0, 1.0, 0.0, 0.5)
    assert [playground.body(name).visuals[0].shape for name in ("post", "swing", "drawer")] == [
        "cylinder",
        "ellipsoid",
        "sphere",
    ]
    assert playground.body("walker/joint").visuals == ()


def test_meshes_keep_the_frame_of_their_file(playground: ts.Model) -> None:
    (lid,) = playground.body("lid").visuals
    assert (lid.shape, lid.mesh_scale) == ("mesh", (0.1, 0.2, 0.3))
    assert lid.mesh is not None
    assert Path(lid.mesh) == PLAYGROUND.parent / "tetrahedron.obj"
    np.testing.assert_allclose(lid.placement.p, (0.1, 0, 0), atol=1e-7)  # MuJoCo's meshes are single precision
    R = ts.SE3.rotation((1, 0, 0), np.radians(15)) @ ts.SE3.rotation((0, 1, 0), np.radians(25))
    R = R @ ts.SE3.rotation((0, 0, 1), np.radians(35))
    np.testing.assert_allclose(lid.placement.R, R.R, atol=1e-6)


def test_inertial_frames(playground: ts.Model) -> None:
    inertia = playground.body("swing").inertia
    R = ts.SE3.from_quaternion((0.1, -0.3, 0.2, 0.9)).R
    assert inertia.mass == 1.3
    np.testing.assert_allclose(inertia.com, (0.02, 0.1, -0.03))
    np.testing.assert_allclose(inertia.I_com, R @ np.diag([0.02, 0.03, 0.04]) @ R.T, atol=1e-15)


def test_sources_are_the_same_model(playground: ts.Model) -> None:
    assert ts.load_mjcf(str(PLAYGROUND)) == playground
    assert ts.load_mjcf(mujoco.MjModel.from_xml_path(str(PLAYGROUND))) == playground
    path = str(PLAYGROUND.parent / "tetrahedron.obj")  # text has no folder to find its meshes in
    text = PLAYGROUND.read_text().replace("tetrahedron.obj", path)
    assert ts.load_mjcf(text) == playground
    assert ts.load_mjcf(b"\xef\xbb\xbf" + text.encode()) == playground


def test_gravity_and_name() -> None:
    text = world(body())
    assert ts.load_mjcf(text).gravity[2] == -9.81
    model = ts.load_mjcf(text, gravity=(1, 2, 3), name="mine")
    assert model.name == "mine"
    np.testing.assert_array_equal(model.gravity, (1, 2, 3))
    weightless = text.replace("<worldbody>", '<option><flag gravity="disable"/></option><worldbody>')
    np.testing.assert_array_equal(ts.load_mjcf(weightless).gravity, (0, 0, 0))


def test_names_that_meet() -> None:
    """Joints named as bodies, and bodies without names beside those that take the names they would get."""
    model = ts.load_mjcf(
        world(
            body('<joint name="b" pos="1 0 0"/>'),
            body('<joint type="slide"/><joint axis="1 0 0"/>', name="c"),
            body('<joint name="c"/>', name="body4"),
            '<body><geom size="1"/></body>',
        )
    )
    assert [body.name for body in model.bodies] == ["b/joint", "b", "c/joint", "c", "body4", "body42"]
    assert model.joint("b").joint == ts.Revolute((0, 0, 1))
    assert model.joint("c").body == "body4"
    assert model.joint("c/joint").joint == ts.Prismatic((0, 0, 1))


def test_numbers_of_joints() -> None:
    joint = '<joint name="j" armature="0.25" stiffness="3" damping="2" springref="0.2" frictionloss="0.4" {}/>'
    rest = 'actuatorfrclimited="true" actuatorfrcrange="-5 5" limited="true" range="-1 2"'
    model = ts.load_mjcf(world(body(joint.format(rest))).replace("<mujoco>", '<mujoco><compiler angle="radian"/>'))
    b = model.body("b")
    assert (b.armature, b.stiffness, b.damping, b.rest, b.dry_friction) == ((0.25,), (3.0,), (2.0,), (0.2,), (0.4,))
    assert (b.effort_limits, b.position_limits) == ((5.0,), ((-1.0,), (2.0,)))
    off = "".join(f'{x}="disable" ' for x in ("spring", "damper", "frictionloss", "limit"))
    text = world(body(joint.format(rest))).replace("<mujoco>", f"<mujoco><option><flag {off}/></option>")
    b = ts.load_mjcf(text).body("b")
    assert not any((*b.stiffness, *b.damping, *b.dry_friction)) and b.position_limits == ((-np.inf,), (np.inf,))


LEFT_OUT = {
    "joint 'j' is free and has armature 0.5": ('<joint name="j" type="free" armature="0.5"/>', ""),
    "joint 'j' is a ball with a range": ('<joint name="j" type="ball" limited="true" range="0 1"/>', ""),
    "tendon 't' has armature": ('<joint name="j"/>', '<tendon><fixed name="t" armature="2"><joint joint="j" coef="1"/>'
        "</fixed></tendon>"),
    "tendon 't' winds around a geom": ('<joint name="j"/><site name="x"/>', '<tendon><spatial name="t" stiffness="1">'
        '<site site="x"/><geom geom="g"/><site site="y"/></spatial></tendon>'),
    "actuator 'a' is a muscle": ('<joint name="j"/>', '<actuator><muscle name="a" joint="j" lengthrange="-1 1"/>'
        '</actuator>'),
    "actuator 'a' has a state of its own": ('<joint name="j"/>', '<actuator><general name="a" joint="j" '
        'dyntype="filter" dynprm="1"/></actuator>'),
    "actuator 'a' has a gain that is not affine": ('<joint name="j"/>', '<actuator><general name="a" joint="j" '
        'gaintype="user"/></actuator>'),
    "actuator 'a' acts between two sites": ('<joint name="j"/><site name="x"/>', '<actuator><motor name="a" '
        'site="x" refsite="y" gear="1 0 0 0 0 0"/></actuator>'),
    "actuator 'a' measures the rotation of a ball joint": ('<joint name="j" type="ball"/>', '<actuator><position '
        'name="a" joint="j" gear="1 0 0"/></actuator>'),
    "actuator 'a' has a gain that is not affine; actuator 'b' acts": ('<joint name="j"/><site name="x"/>', '<actuator>'
        '<pid name="a" joint="j" kp="1"/><motor name="b" site="x" refsite="y" gear="1 0 0 0 0 0"/></actuator>'),
    "joint 'j' has an actuatorfrcrange from -1 to 2": ('<joint name="j" actuatorfrcrange="-1 2"/>', '<actuator>'
        '<intvelocity name="a" joint="j" actrange="-1 1"/></actuator>'),
    "joint 'j' has actuatorgravcomp, and there are no actuators": ('<joint name="j" actuatorgravcomp="true"/>', ""),
    "joint 'j' has a margin of 0.6": ('<joint name="j" range="-30 30" margin="0.6"/>', ""),
    "tendon 't' has an actuatorfrcrange": ('<joint name="j"/>', '<tendon><fixed name="t" actuatorfrcrange="-1 1">'
        '<joint joint="j" coef="1"/></fixed></tendon>'),
    "geom 'h' has adhesion": ('<joint name="j"/><geom name="h" size="0.1" adhesion="1"/>', ""),
    "geom 'h' has a surface that moves": ('<joint name="j"/><geom name="h" size="0.1" surfacevel="1 0 0"/>', ""),
    "the flag 'override' replaces": ('<joint name="j"/>', '<option><flag override="enable"/></option>'),
    "a fluid": ('<joint name="j"/>', '<option density="1"/>'),
    "body 'b' is moved from outside": ("", ""),
}  # fmt: skip


@pytest.mark.parametrize(("message", "parts"), LEFT_OUT.items(), ids=LEFT_OUT)
def test_what_a_model_cannot_hold(message: str, parts: tuple[str, str]) -> None:
    """It is refused, or left out with one warning; what is left is the tree."""
    inside, outside = parts
    text = world('<site name="y" pos="1 1 1"/><geom name="g" size="0.1" pos="0 0 2"/>', body(inside))
    text = text.replace("</mujoco>", f"{outside}</mujoco>")
    if "gravcomp" in message:
        text = text.replace('<body name="b"', '<body name="b" gravcomp="1"')
    if "moved" in message:
        text = text.replace('<body name="b"', '<body name="b" mocap="true"')
    with pytest.raises(ts.FormatError, match=f"what a model cannot hold: .*{message}.*unsupported='warn'"):
        ts.load_mjcf(text)
    with pytest.warns(UserWarning, match=f"left out of the model: .*{message}") as caught:
        model = ts.load_mjcf(text, unsupported="warn")
    assert len(caught) == 1 and model.actuators == ()


def test_margins_narrow_the_limits() -> None:
    """MuJoCo's limits push from their margin on: what leans on one rests there."""
    joint = '<joint name="j" axis="0 0 1" range="-0.5 0.8" margin="0.2" damping="20" solreflimit="0.005 1"/>'
    text = world(body(joint)).replace("<mujoco>", '<mujoco><compiler angle="radian"/>')
    text = text.replace("</mujoco>", '<actuator><motor joint="j"/></actuator></mujoco>')
    mujoco = pytest.importorskip("mujoco")
    model, mj = ts.load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    np.testing.assert_allclose(model.position_limits, ([-0.3], [0.6]))
    data = mujoco.MjData(mj)
    data.ctrl[:] = 5.0
    for _ in range(2000):
        mujoco.mj_step(mj, data)
    np.testing.assert_allclose(data.qpos, 0.6, atol=1e-3)


def test_flags_that_disable_passive_forces_and_constraints() -> None:
    text = world(body('<joint name="j" damping="1"/>').replace("<body", '<body gravcomp="1"'))
    assert ts.load_mjcf(text).body("b").gravity_compensation == 1.0
    off = '<mujoco><option><flag spring="disable" damper="disable"/></option>'
    assert ts.load_mjcf(text.replace("<mujoco>", off)).body("b").gravity_compensation == 0.0
    assert len(ts.load_mjcf(text).body("b").collisions) == 1
    off = '<mujoco><option><flag constraint="disable"/></option>'
    assert ts.load_mjcf(text.replace("<mujoco>", off)).body("b").collisions == ()


def test_controls_beside_actuators_with_several() -> None:
    """In MuJoCo 4 some actuators have two controls; limits and keyframes of the others keep theirs."""
    drives = '<pid name="two" joint="j" kp="1" kv="1"/><motor name="one" joint="j" ctrlrange="-2 3"/>'
    key = '<keyframe><key ctrl="1 2 3"/></keyframe>'
    text = world(body('<joint name="j"/>')).replace("</mujoco>", f"<actuator>{drives}</actuator>{key}</mujoco>")
    with pytest.warns(ts.FormatWarning, match="actuator 'two'"):
        model = ts.load_mjcf(text, unsupported="warn")
    assert [(a.name, a.control_limits) for a in model.actuators] == [("one", (-2.0, 3.0))]
    assert model.keyframes["key0"].controls == (3.0,)


def test_names_of_frames_and_keyframes_that_meet() -> None:
    inside = '<joint/><joint axis="1 0 0"/><site name="b/joint"/><site name="b"/><site name="b/site"/>'
    cameras = '<camera name="b/site"/>'
    keys = '<keyframe><key name="key1" qpos="1 0"/><key qpos="2 0"/></keyframe>'
    model = ts.load_mjcf(world(body(inside, cameras)).replace("</mujoco>", f"{keys}</mujoco>"))
    assert [f.name for f in model.frames] == ["b/joint", "b/site2", "b/site", "b/site/camera"]
    assert [b.name for b in model.bodies] == ["b/joint2", "b"]
    assert {name: key.q[0] for name, key in model.keyframes.items()} == {"key1": 1.0, "key12": 2.0}


def test_hidden_groups_are_not_drawn() -> None:
    model = ts.load_mjcf(world(body("<freejoint/>", '<geom size="0.2" group="3"/>')))
    assert (len(model.body("b").visuals), len(model.body("b").collisions)) == (1, 2)


def test_sites_and_cameras_are_frames() -> None:
    inside = '<site name="tip" pos="1 0 0"/><site/><site name="b" pos="0 1 0"/><camera name="eye" pos="0 0 1"/>'
    model = ts.load_mjcf(world('<site name="home" pos="1 2 3"/>', body("<joint/>", inside)))
    assert [f.name for f in model.frames] == ["home", "tip", "b/site", "eye"]
    np.testing.assert_array_equal(ts.body_pose(model, [0.0], "tip")[:3, 3], (1, 0, 0))
    assert model.frame("home").body == "world"


def test_drives_of_actuators() -> None:
    """Armature and damping of an actuator are those of its joint, times the square of the gear."""
    text = world(body('<joint name="j" armature="0.1" damping="0.2"/>')).replace(
        "</mujoco>", '<actuator><motor joint="j" gear="3" armature="0.2" damping="0.5"/></actuator></mujoco>'
    )
    mj = mujoco.MjModel.from_xml_string(text)
    model, data = ts.load_mjcf(mj), mujoco.MjData(mj)
    data.qpos[:], data.qvel[:], data.ctrl[:] = 0.3, 1.5, 0.7
    mujoco.mj_forward(mj, data)
    forces = [*ts.forces_from(model), ts.ActuatorForce(model, [0.7])]
    tau = ts.generalized_forces(model, forces, [0.3], [1.5])
    np.testing.assert_allclose(ts.forward_dynamics(model, [0.3], [1.5], tau), data.qacc, rtol=1e-12)


def test_keyframes() -> None:
    text = world(body('<freejoint/><body name="c"><joint type="ball"/><geom size="0.1"/></body>'))
    key = 'qpos="1 2 3 0 0 0 2 0.5 0.5 0.5 0.5" qvel="1 2 3 4 5 6 7 8 9" time="0.5"'
    model = ts.load_mjcf(text.replace("</mujoco>", f'<keyframe><key name="home" {key}/></keyframe></mujoco>'))
    home = model.keyframes["home"]
    np.testing.assert_allclose(home.q, (1, 2, 3, 0, 0, 1, 0, 0.5, 0.5, 0.5, 0.5))
    np.testing.assert_allclose(home.v, (4, 5, 6, -1, -2, 3, 7, 8, 9), atol=1e-15)  # turned by half a turn about z
    assert home.t == 0.5
    assert model.lock({"c": (0, 0, 0, 1)}).keyframes == {}


# ---- what is refused ---------------------------------------------------------------------------------------

WRONG = {
    "empty": ("", "MJCF text is empty"),
    "cut short": ("<mujoco", "MuJoCo refuses MJCF text.*line number=1"),
    "unknown element": (world("<nonsense/>"), "MuJoCo refuses.*nonsense"),
    "massless": (world('<body name="b"><joint/></body>'), "mass and inertia of moving bodies.*'b'"),
    "duplicate name": (world(body(), body()), "repeated name 'b'"),
    "free inside": (world(body(body("<freejoint/>", name="c"))), "free joint can only be used on top level"),
    "deep nesting": (world("<body>" * 20_000 + "</body>" * 20_000), "nesting is too deep"),
    "missing mesh": ('<mujoco><asset><mesh file="no.obj"/></asset></mujoco>', r"no\.obj"),
    "bytes that are not text": (b"<\xff", "MuJoCo refuses MJCF text.*decode"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_wrong_files(text: str | bytes, message: str) -> None:
    with pytest.raises(ts.FormatError, match=f"(?i){message}"):
        ts.load_mjcf(text)


@pytest.mark.parametrize(
    "text",
    [
        world(body().replace("0.1 0.2 0.3", "nan 0 0")),
        world(body('<joint ref="nan"/>')),
        world(body('<joint range="nan 1" limited="true"/>')),
        world(body()).replace("<worldbody>", '<option gravity="0 0 nan"/><worldbody>'),
    ],
    ids=["position", "reference", "range", "gravity"],
)
def test_nan_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ts.FormatError, match="NaN"):
        ts.load_mjcf(text)
    assert list(tmp_path.iterdir()) == []  # no log left behind


def test_unphysical_inertias() -> None:
    inertial = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 2"/>'
    mj = mujoco.MjModel.from_xml_string(world(f'<body name="b"><joint/>{inertial}</body>'))
    mj.body_inertia[1] = (1, 1, 5)  # MuJoCo itself refuses such a file
    with pytest.raises(ts.FormatError, match=r"body 'b': .*triangle inequality.*unphysical='accept'"):
        ts.load_mjcf(mj)
    assert not ts.load_mjcf(mj, unphysical="accept").body("b").inertia.physical


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no MJCF file at .*nothing\.xml"):
        ts.load_mjcf(tmp_path / "nothing.xml")
    with pytest.raises(ts.FormatError, match="is a directory"):
        ts.load_mjcf(tmp_path)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="unsupported must be 'refuse' or 'warn', got 'keep'"):
        ts.load_mjcf(PLAYGROUND, unsupported="keep")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unphysical must be"):
        ts.load_mjcf(PLAYGROUND, unphysical="keep")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a path or MJCF text, got int"):
        ts.load_mjcf(3)  # type: ignore[arg-type]


def test_without_mujoco(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ImportError, match=r"pip install torsor\[mjcf\]"):
        ts.load_mjcf(PLAYGROUND)


def test_bodies_start_where_the_file_has_them():
    text = """<mujoco><worldbody><body name="a" pos="0 1 .5" quat="0 1 0 0"><freejoint/><geom size=".1"/>
      <body name="b"><joint name="hinge" ref="20"/><geom size=".1"/></body></body></worldbody></mujoco>"""
    mujoco = pytest.importorskip("mujoco")
    model, mj = ts.load_mjcf(text), mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(mj)
    mujoco.mj_forward(mj, data)
    np.testing.assert_allclose(model.start, model.keyframes["qpos0"].q)
    np.testing.assert_allclose(ts.body_poses(model, model.start)[:, :3, 3], data.xpos[1:], atol=1e-15)
    again = ts.load_mjcf(ts.to_mjcf(model))
    np.testing.assert_allclose(again.start, model.start, atol=1e-15)
    level = ts.load_mjcf("<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>")
    assert not level.keyframes
    np.testing.assert_array_equal(level.start, level.neutral)
