"""load_urdf: what it makes of every element, and what it says of files that are wrong."""

import itertools
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import torsor as ts

WORKCELL = Path(__file__).parent / "data" / "workcell.urdf"

UNIT = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'


def robot(*body: str) -> str:
    return f'<robot name="r">{"".join(body)}</robot>'


def link(name: str, content: str = "") -> str:
    return f'<link name="{name}">{content}</link>'


def joint(name: str, parent: str, child: str, content: str = "", kind: str = "revolute") -> str:
    ends = f'<parent link="{parent}"/><child link="{child}"/>'
    return f'<joint name="{name}" type="{kind}">{ends}{content}</joint>'


def two(content: str = "", kind: str = "revolute") -> str:
    """Links a and b, and joint j between them."""
    return robot(link("a"), link("b", UNIT), joint("j", "a", "b", content, kind))


@pytest.fixture(scope="module")
def workcell() -> ts.Model:
    return ts.load_urdf(WORKCELL)


# ---- what is loaded ----------------------------------------------------------------------------------------


def test_bodies_are_links_depth_first_in_file_order(workcell: ts.Model) -> None:
    assert workcell.name == "workcell"
    assert [body.name for body in workcell.bodies] == [
        "bench",
        "arm",
        "forearm",
        "hand",
        "tool",
        "ball",
        "puck",
    ]
    assert [joint.name for joint in workcell.joints] == [
        "root_joint",
        "shoulder",
        "extension",
        "wrist",
        "glue",
        "air",
        "slab",
    ]
    assert (workcell.nq, workcell.nv) == (1 + 1 + 1 + 7 + 3, 1 + 1 + 1 + 6 + 3)
    assert workcell.joint("air").q_slice == slice(3, 10)


def test_joints(workcell: ts.Model) -> None:
    joints = {joint.name: joint.joint for joint in workcell.joints}
    assert joints["root_joint"] == joints["glue"] == ts.Fixed()
    assert joints["shoulder"] == ts.Revolute((0, 3, 4))
    assert joints["wrist"] == ts.Revolute((0, 0, -1))
    assert joints["extension"] == ts.Prismatic((1, 0, 0))  # the format's default axis
    assert joints["air"] == ts.Free()
    assert joints["slab"] == ts.Composite(ts.Planar(((1, 0, 0), (0, 1, 0))), ts.Revolute((0, 0, 1)))


def test_placements(workcell: ts.Model) -> None:
    assert workcell.body("bench").placement == ts.SE3()
    shoulder = workcell.body("arm").placement
    np.testing.assert_allclose(shoulder.p, (0.1, 0.2, 0.0))
    np.testing.assert_allclose(shoulder.R, ts.SE3.rpy(0.1, -0.2, 0.3).R, atol=1e-15)
    np.testing.assert_allclose(workcell.body("tool").placement.R, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-15)


def test_limits(workcell: ts.Model) -> None:
    inf = np.inf
    shoulder, wrist, slide, slab = (workcell.joint(n) for n in ("shoulder", "wrist", "extension", "slab"))
    assert shoulder.position_limits == ((-1.5,), (2.0,))
    assert (shoulder.velocity_limits, shoulder.effort_limits) == ((2.5,), (50.0,))
    assert slide.position_limits == ((0.0,), (0.25,))
    assert wrist.position_limits == ((-inf,), (inf,))
    assert (wrist.velocity_limits, wrist.effort_limits) == ((6.0,), (3.0,))
    assert slab.position_limits[1] == (inf, inf, inf)
    np.testing.assert_array_equal(workcell.position_limits[1], [2.0, 0.25, *[inf] * 11])


def test_a_limit_without_bounds_has_the_defaults_of_the_format() -> None:
    j = ts.load_urdf(two('<limit upper="2" velocity="inf"/>')).joint("j")
    assert (*j.position_limits, j.velocity_limits, j.effort_limits) == ((0.0,), (2.0,), (np.inf,), (np.inf,))


def test_inertias(workcell: ts.Model) -> None:
    arm = workcell.body("arm").inertia
    R = ts.SE3.rpy(0.4, 0.5, 0.6).R
    given = np.array([[0.05, 0.001, -0.002], [0.001, 0.052, 0.003], [-0.002, 0.003, 0.008]])
    assert arm.mass == 3.5
    np.testing.assert_allclose(arm.com, (0, 0, 0.2))
    np.testing.assert_allclose(arm.I_com, R @ given @ R.T, rtol=1e-14)
    assert workcell.body("tool").inertia == ts.Inertia.zero()


def test_visuals(workcell: ts.Model) -> None:
    (bench,) = workcell.body("bench").visuals
    assert bench == ts.Visual(
        "box", (1.2, 0.8, 0.1), ts.SE3.translation(0, 0, -0.05), (0.6, 0.6, 0.65, 1.0), None, (1.0, 1.0, 1.0)
    )
    shell, knob = workcell.body("arm").visuals
    assert (shell.shape, shell.size, shell.color) == ("cylinder", (0.05, 0.4), (0.1, 0.2, 0.9, 0.5))
    assert (knob.shape, knob.size, knob.color) == ("sphere", (0.07,), None)
    (forearm,) = workcell.body("forearm").visuals  # with a colour that another visual has defined
    assert (forearm.shape, forearm.size, forearm.color) == ("mesh", (), (0.1, 0.2, 0.9, 0.5))
    assert forearm.mesh == "package://workcell/meshes/forearm.stl"
    assert forearm.mesh_scale == (0.001, 0.001, -0.001)
    (hand,) = workcell.body("hand").visuals
    assert (hand.shape, hand.size, hand.color) == ("capsule", (0.02, 0.08), None)
    assert workcell.body("tool").visuals == ()


@pytest.mark.parametrize(
    "source",
    [
        str(WORKCELL),
        WORKCELL.read_text(),
        "\ufeff \n" + WORKCELL.read_text(),
        WORKCELL.read_text().replace("utf-8", "latin-1"),
        WORKCELL.read_bytes(),
        b"\xef\xbb\xbf" + WORKCELL.read_bytes(),
        WORKCELL.read_text().replace("utf-8", "utf-16").encode("utf-16"),
        WORKCELL.read_text().replace("\n", "\r\n").encode(),
    ],
    ids=[
        "path",
        "text",
        "text with mark",
        "other encoding declared",
        "bytes",
        "utf-8 mark",
        "utf-16",
        "crlf",
    ],
)
def test_path_text_and_bytes_are_the_same_model(workcell: ts.Model, source: str | bytes) -> None:
    assert ts.load_urdf(source) == workcell


def test_arguments() -> None:
    model = ts.load_urdf(two(), gravity=(0, 1, 0), name="mine")
    assert model.name == "mine"
    np.testing.assert_array_equal(model.gravity, (0, 1, 0))
    assert ts.load_urdf(two()).gravity[2] == -9.81


def test_models_from_files_pickle(workcell: ts.Model) -> None:
    assert pickle.loads(pickle.dumps(workcell)) == workcell


def test_names_that_are_not_ascii() -> None:
    model = ts.load_urdf(robot(link("épaule & 肩".replace("&", "&amp;"))))
    assert model.bodies[0].name == "épaule & 肩"


def test_root() -> None:
    fixed, free = ts.load_urdf(two()), ts.load_urdf(two(), root=ts.Free())
    assert (fixed.nq, fixed.nv) == (1, 1)
    assert (free.nq, free.nv) == (8, 7)
    assert free.joint("root_joint").joint == ts.Free()
    assert ts.load_urdf(two(), ts.Prismatic((0, 0, 1))).nv == 2


def test_root_joint_gives_way_to_a_name_of_the_file() -> None:
    model = ts.load_urdf(two().replace('"j"', '"root_joint"'), root=ts.Free())
    assert [joint.name for joint in model.joints] == ["a", "root_joint"]
    assert model.joint("root_joint").nv == 1


def test_a_root_link_called_world_is_the_world() -> None:
    text = two().replace('"a"', '"world"')
    model = ts.load_urdf(text)
    assert [body.name for body in model.bodies] == ["b"]
    with pytest.raises(ts.FormatError, match=r"link 'world': .*must be the root"):
        ts.load_urdf(two().replace('"b"', '"world"'))
    with pytest.raises(ts.FormatError, match=r"has no <link> but 'world'"):
        ts.load_urdf(robot(link("world")))


def test_a_root_link_called_world_can_move() -> None:
    """With all that hangs on it, by joints of any kind: as a link of another name does."""
    parts = [
        link("world"),
        link("b", UNIT),
        link("c", UNIT),
        link("world_link", UNIT),
        joint("i", "world", "b", '<origin xyz="1 2 3" rpy="0.1 0.2 0.3"/>', "fixed"),
        joint("j", "world", "c", '<axis xyz="0 1 0"/>'),
        joint("k", "c", "world_link", '<origin xyz="1 0 0"/>'),
        '<loop_joint name="l"><link1 link="world"/><link2 link="world_link"/></loop_joint>',
    ]
    model = ts.load_urdf(robot(*parts), root=ts.Free())
    assert [(body.name, body.parent) for body in model.bodies] == [
        ("world_link_", "world"),
        ("b", "world_link_"),
        ("c", "world_link_"),
        ("world_link", "c"),
    ]
    assert model.constraints[0].a == "world_link_"
    assert model.joint("root_joint").joint == ts.Free()
    other = ts.load_urdf(robot(*parts).replace('"world"', '"other"'), root=ts.Free())
    rng = np.random.default_rng(0)
    q, (v, a) = model.random(rng), rng.standard_normal((2, model.nv))
    np.testing.assert_array_equal(ts.inverse_dynamics(model, q, v, a), ts.inverse_dynamics(other, q, v, a))


def test_links_and_joints_may_share_names() -> None:
    """As in many robots: joint 'hip' carries link 'thigh', and link 'hip' hangs on joint 'waist'."""
    model = ts.load_urdf(
        robot(
            link("base", UNIT),
            link("hip", UNIT),
            link("thigh", UNIT),
            joint("waist", "base", "hip"),
            joint("hip", "hip", "thigh"),
        )
    )
    assert model.joint("hip").body == "thigh"
    assert model.body("hip").joint_name == "waist"


def test_the_root_joint_has_a_name_of_its_own() -> None:
    """Where joints of the file are called root_joint and like the root link."""
    parts = [link("a"), link("b", UNIT), link("c", UNIT), joint("root_joint", "a", "b"), joint("a", "a", "c")]
    assert [joint.name for joint in ts.load_urdf(robot(*parts)).joints] == ["a_", "root_joint", "a"]


def test_fixed_joints_are_frames() -> None:
    parts = [link("a"), link("b", UNIT), link("tip"), link("c")]
    joints = [
        joint("j", "a", "b"),
        joint("weld", "b", "tip", '<origin xyz="1 0 0"/>', "fixed"),
        joint("b", "b", "c", kind="fixed"),
    ]
    model = ts.load_urdf(robot(*parts, *joints))
    assert [(frame.name, frame.body, frame.placement) for frame in model.frames] == [("weld", "tip", ts.SE3())]


@pytest.mark.parametrize("axis", [(0, 0, 1), (1, 0, 0), (0, -1, 0), (1, 2, 3), (0.5, 0.5, 0.5)])
def test_planar_directions_are_normal_to_the_axis(axis: tuple[float, ...]) -> None:
    text = " ".join(map(str, axis))
    composite = ts.load_urdf(two(f'<axis xyz="{text}"/>', "planar")).joint("j").joint
    planar, revolute = composite.joints
    n = np.array(axis) / np.linalg.norm(axis)
    np.testing.assert_allclose(revolute.axis, n, atol=1e-15)
    np.testing.assert_allclose(np.cross(*planar.directions), n, atol=1e-15)


def test_axes_of_any_length_are_normalised() -> None:
    for scale in ("1e-200", "1e200"):
        revolute = ts.load_urdf(two(f'<axis xyz="{scale} 0 {scale}"/>')).joint("j").joint
        np.testing.assert_allclose(revolute.axis, [0.5**0.5, 0, 0.5**0.5], rtol=1e-15)


def test_origin_as_quaternion() -> None:
    model = ts.load_urdf(two('<origin xyz="1 2 3" quat_xyzw="0 0 1 1"/>'))
    np.testing.assert_allclose(model.body("b").placement.p, (1, 2, 3))
    np.testing.assert_allclose(model.body("b").placement.R, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-15)


def fingers(*mimics: str) -> str:
    """Joint j0, and joints j1, j2, ... with these contents."""
    parts = [link("a"), link("f0", UNIT), joint("j0", "a", "f0")]
    for i, mimic in enumerate(mimics, 1):
        parts += [link(f"f{i}", UNIT), joint(f"j{i}", "a", f"f{i}", mimic)]
    return robot(*parts)


def test_mimic_joints_can_be_refused_or_ignored() -> None:
    text = fingers('<mimic joint="j0" multiplier="-1"/>', "", '<mimic joint="j0"/>')
    with pytest.raises(ts.FormatError, match=r"joint 'j1': mimics.*in all 'j1', 'j3';.*mimic='ignore'"):
        ts.load_urdf(text, mimic="refuse")
    assert ts.load_urdf(text, mimic="ignore").nv == 4
    assert ts.load_urdf(two('<mimic joint="k"/>', "fixed")).nv == 0  # copies nothing
    assert ts.load_urdf(fingers('<mimic joint="none"/>'), mimic="ignore").nv == 2


def test_mimic_joints_follow_others() -> None:
    """Inverse dynamics of the coupled model is that of the tree, with forces of followers carried over to leaders."""
    text = fingers('<mimic joint="j0" multiplier="-2" offset="0.5"/>', "", '<mimic joint="j1" multiplier="3"/>')
    model, tree = ts.load_urdf(text), ts.load_urdf(text, mimic="ignore")
    assert model.couplings == (ts.Mimic("j1", "j0", -2.0, 0.5), ts.Mimic("j3", "j1", 3.0))
    assert (model.nv, tree.nv) == (2, 4)
    P = np.array([[1, 0], [-2, 0], [0, 1], [-6, 0]])
    q, v, a = np.random.default_rng(0).standard_normal((3, 2))
    tau = ts.inverse_dynamics(tree, P @ q + [0, 0.5, 0, 1.5], P @ v, P @ a)
    np.testing.assert_allclose(ts.inverse_dynamics(model, q, v, a), P.T @ tau, rtol=1e-13)


@pytest.mark.parametrize(
    ("mimics", "message"),
    [
        (['<mimic joint="j2"/>', '<mimic joint="j1"/>'], "<mimic> of joint 'j1': "),
        (['<mimic joint="x"/>', "", '<mimic joint="y"/>'], r"<mimic> of joint 'j1'.*missing: 'x' \(of 'j1'\), 'y'"),
        (['<mimic joint="j1"/>'], "<mimic> of joint 'j1': .*itself"),
        (["<mimic/>"], "<mimic> of joint 'j1': has no attribute 'joint'"),
        (['<mimic joint="j0" multiplier="two"/>'], "<mimic> of joint 'j1': multiplier has 'two'"),
    ],
)
def test_wrong_mimics(mimics: list[str], message: str) -> None:
    with pytest.raises(ts.FormatError, match=message):
        ts.load_urdf(fingers(*mimics))


@pytest.mark.parametrize("kind", ["fixed", "floating", "planar"])
def test_joints_of_other_kinds_cannot_be_mimicked(kind: str) -> None:
    text = fingers('<mimic joint="j0"/>').replace('"j0" type="revolute"', f'"j0" type="{kind}"')
    with pytest.raises(ts.FormatError, match=f"<mimic> of joint 'j1': couples a {kind} joint, expected revolute"):
        ts.load_urdf(text)


@pytest.mark.parametrize(
    ("ratio", "offset", "limit", "stuck"),
    [
        (1, 0, (0, 1), False), (-1, 0, (0, 1), True), (-1, 1, (0, 1), False), (0, 0.5, (0, 1), False),
        (-1, 0, (-1, 0), False),
    ],
)  # fmt: skip
def test_limits_that_contradict_a_mimic_are_noted(
    ratio: float, offset: float, limit: tuple[float, float], stuck: bool
) -> None:
    text = fingers(
        f'<mimic joint="j0" multiplier="{ratio}" offset="{offset}"/><limit lower="{limit[0]}" upper="{limit[1]}"/>'
    )
    text = text.replace('<child link="f0"/>', '<child link="f0"/><limit lower="0" upper="1"/>')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ts.load_urdf(text)
    assert ["leave these no range of motion: 'j1'" in str(one.message) for one in caught] == [True] * stuck


def test_limits_that_leave_no_position_are_refused() -> None:
    text = fingers('<mimic joint="j0" offset="2"/><limit lower="0" upper="1"/>')
    text = text.replace('<child link="f0"/>', '<child link="f0"/><limit lower="0" upper="1"/>')
    with pytest.raises(
        ts.FormatError, match=r"<mimic> of joint 'j1': .*limits of joint 'j1' leave no position for joint"
    ):
        ts.load_urdf(text)


def test_losses_of_joints_are_kept() -> None:
    model = ts.load_urdf(two('<dynamics damping="0.5" friction="2"/>'))
    np.testing.assert_array_equal(model.damping, [0.5])
    np.testing.assert_array_equal(model.dry_friction, [2.0])
    for attribute in ("damping", "friction"):
        with pytest.raises(ts.FormatError, match=f"<dynamics> of joint 'j': {attribute} = -1 is negative"):
            ts.load_urdf(two(f'<dynamics {attribute}="-1"/>'))


# ---- inertias ----------------------------------------------------------------------------------------------


def tensor(mass: float, xx: float, yy: float, zz: float, xyz: str = "0 0 0") -> str:
    entries = f'<inertia ixx="{xx}" iyy="{yy}" izz="{zz}" ixy="0" ixz="0" iyz="0"/>'
    return f'<inertial><origin xyz="{xyz}"/><mass value="{mass}"/>{entries}</inertial>'


def two_bodies(*contents: str) -> str:
    """Links b0, b1, ..., each on a joint of its own."""
    parts = [link("a")]
    for i, content in enumerate(contents):
        parts += [link(f"b{i}", content), joint(f"j{i}", "a", f"b{i}", '<axis xyz="0 0 1"/>')]
    return robot(*parts)


def test_inertias_that_are_faults_are_refused_all_at_once() -> None:
    text = two_bodies(tensor(1, 1, 1, -0.02), UNIT, tensor(-2, 1, 1, 1), tensor(1, -3, 1, 1))
    message = (
        r"link 'b0' \(line 1\): smallest principal moment is -0.02; link 'b2' .*: mass is -2; "
        r"link 'b3' .*moment is -3; .*inertia='repair'.*inertia='accept'"
    )
    with pytest.raises(ts.FormatError, match=message):
        ts.load_urdf(text)
    inertia = ts.load_urdf(text, inertia="accept").body("b0").inertia
    np.testing.assert_array_equal(inertia.I_com, np.diag([1, 1, -0.02]))
    with pytest.raises(ts.FormatError, match="negative mass cannot be repaired: 'b2'; correct"):
        ts.load_urdf(text, inertia="repair")
    assert ts.load_urdf(two(), inertia="accept") == ts.load_urdf(two())


def test_kinetic_energy_decides_about_negative_moments_off_the_joint() -> None:
    """A moment that is negative about the centre of mass, and not about the origin of the frame."""
    content = tensor(1, 0.1, 0.1, -0.2, "1 0 0")
    with pytest.warns(ts.FormatWarning, match=r"no distribution of mass has.*'b0': smallest principal moment is -0.2"):
        ts.load_urdf(two_bodies(content))  # turns about its joint alone
    with pytest.raises(ts.FormatError, match=r"kinetic energy.* can be negative, in motions of joint .*link 'b0'"):
        ts.load_urdf(two_bodies(content), root=ts.Free())
    heavy = two_bodies(content).replace('<link name="a">', '<link name="a">' + tensor(1e3, 1e3, 1e3, 1e3))
    with pytest.warns(ts.FormatWarning, match="no distribution of mass has"):
        model = ts.load_urdf(heavy, root=ts.Free())  # the base holds the joint still
    assert np.linalg.eigvalsh(ts.mass_matrix(model, model.random(0, 50))).min() > 0


def test_inertias_are_judged_with_the_links_that_they_are_fixed_to() -> None:
    """A tensor of 1e-6 (1, 1, 1), all entries, is not physical; beside a link that is, it does not matter."""
    bad = UNIT.replace('"0"', '"1e-6"').replace('"1"/><inertia', '"0.25"/><inertia').replace('"1"', '"1e-6"')
    parts = [link("a"), link("b", bad), link("c", UNIT), link("d", bad.replace("0.25", "0.75"))]
    shift = '<origin xyz="1 0 0"/>'
    joints = [joint("j", "a", "b"), joint("k", "b", "c", shift, "fixed"), joint("l", "c", "d", kind="fixed")]
    text = robot(*parts, *joints)
    with pytest.warns(ts.FormatWarning, match=r"not physical by themselves.*: 'b' \(0.12\), 'd' \(0.38\)$") as caught:
        model = ts.load_urdf(text)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert not model.body("b").inertia.physical
    alone = robot(*parts[:2], joints[0])
    with pytest.warns(ts.FormatWarning, match=r"no distribution of mass has.*'b': .*triangle.*inertia='repair'"):
        ts.load_urdf(alone)
    with pytest.warns(ts.FormatWarning, match=r"repaired .*: 'b' \(0.71\)$"):
        repaired = ts.load_urdf(alone, inertia="repair").body("b").inertia
    assert repaired.physical
    # C = tr(I) / 2 - I has eigenvalues 1.5, 1.5, -1.5 times 1e-6; the last becomes zero
    np.testing.assert_allclose(np.linalg.eigvalsh(repaired.I_com), [1.5e-6, 1.5e-6, 3e-6], rtol=1e-12)
    assert repaired.mass == 0.25


def test_massless_links_may_have_rotational_inertia() -> None:
    inertia = ts.load_urdf(two_bodies(tensor(0, 1, 1, 1, "1 1 1"))).body("b0").inertia
    assert inertia == ts.Inertia(0, (0, 0, 0), (1, 1, 1))


def test_what_is_not_carried_is_listed_in_one_warning() -> None:
    text = robot(
        '<transmission name="t"/><gazebo><plugin name="p"/></gazebo><ros2_control/><sensor name="s"/>',
        '<gazebo reference="b"><mu1>0.9</mu1><turnGravityOff>false</turnGravityOff></gazebo>',
        link("a", "<contact><lateral_friction value='1'/></contact><gravity>1</gravity><kinematic>0</kinematic>"),
        link("b", "<contact/><self_filter/>"),
        joint("j", "a", "b", '<safety_controller k_velocity="1"/><calibration rising="0"/><dynamics K="1" D="2"/>'),
    )
    with pytest.warns(ts.FormatWarning) as caught:
        ts.load_urdf(text)
    assert [str(one.message) for one in caught] == [
        "URDF text: ignored: <contact> of links 'a', 'b'; D, K of <dynamics> of joints 'j'"
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('<gazebo><joint name="closing" type="revolute"/></gazebo>', "<joint> of <gazebo>"),
        ('<gazebo reference="j"><springStiffness>2</springStiffness></gazebo>', "<springStiffness> of <gazebo> 'j'"),
        ('<gazebo reference="a"><turnGravityOff> true </turnGravityOff></gazebo>', "<turnGravityOff> of <gazebo> 'a'"),
        ('<drake:bushing name="x"/>', "<drake:bushing> 'x'"),
        ('<link name="b"><gravity value="0"/></link>' + joint("j", "a", "b"), "<gravity> of links 'b'"),
        (link("b") + joint("j", "a", "b", '<dynamics damping="1"/>', "planar"), "<dynamics> of floating and planar"),
        (link("b") + joint("j", "a", "b", '<spring k="1"/>'), "<spring> of joints 'j'"),
    ],
)
def test_what_may_change_the_mechanism_is_listed(content: str, message: str) -> None:
    with pytest.warns(ts.FormatWarning, match=f"ignored: {message}"):
        ts.load_urdf(robot(link("a"), content))


def test_a_chain_of_two_thousand_links() -> None:
    n = 2_000  # twice as deep as Python recurses
    names = [f"link{i}" for i in range(n)]
    links = [link(name, UNIT) for name in names]
    joints = [joint(f"j{i}", *pair, '<axis xyz="0 1 0"/>') for i, pair in enumerate(itertools.pairwise(names))]
    model = ts.load_urdf(robot(*joints[::-1], *links))  # joints from the tip to the root, before any link
    assert model.nv == n - 1
    assert [body.name for body in model.bodies] == names
    with pytest.raises(ts.FormatError, match="loop"):
        ts.load_urdf(robot(*links, *joints, joint("last", names[-1], names[0])))


def test_a_wide_tree_keeps_the_order_of_the_file() -> None:
    n = 300
    names = [f"leg{i}" for i in np.random.default_rng(0).permutation(n)]
    text = robot(link("hub", UNIT), *(link(x, UNIT) for x in sorted(names)), *(joint(x, "hub", x) for x in names))
    assert [body.name for body in ts.load_urdf(text).bodies] == ["hub", *names]


# ---- what is refused ---------------------------------------------------------------------------------------

BILLION_LAUGHS = (
    '<!DOCTYPE robot [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True))
    + ']><robot name="&j;"/>'
)
EXTERNAL = '<!DOCTYPE robot [<!ENTITY a SYSTEM "file:///etc/passwd">]><robot name="&a;"/>'
QUADRATIC = f'<!DOCTYPE r [<!ENTITY a "{"a" * 100_000}">]><robot name="{"&a;" * 10_000}"/>'

WRONG = {
    # not XML, or not a robot
    "empty": ("", "empty"),
    "blank": (" \n\t ", "empty"),
    "empty bytes": (b" ", "empty"),
    "cut short": ("<robot><link", "not well-formed XML.*line 1"),
    "tags crossed": ("<robot><link></robot></link>", "mismatched tag"),
    "two tops": ("<robot/><robot/>", "not well-formed"),
    "no top": ("<!-- nothing -->", "not well-formed"),
    "null bytes": (b"<robot>\0</robot>", "not well-formed"),
    "not text": (bytes(range(256)), "not well-formed"),
    "lone surrogate": ("<robot name='\ud800'/>", "cannot be decoded"),
    "unknown encoding": (b'<?xml version="1.0" encoding="klingon"?><robot/>', "klingon|encoding"),
    "undefined entity": ("<robot>&nbsp;</robot>", "undefined entity"),
    "other top": ("<sdf/>", "<sdf>: .*<robot>"),
    "mujoco": ("<mujoco/>", "load_mjcf"),
    "macros": (robot('<xacro:leg side="left"/>'), "xacro:leg.*xacro first"),
    "billion laughs": (BILLION_LAUGHS, "DOCTYPE"),
    "external entity": (EXTERNAL, "DOCTYPE"),
    "quadratic blowup": (QUADRATIC, "DOCTYPE"),
    "deep nesting": (f"<robot>{'<x>' * 100_000}{'</x>' * 100_000}</robot>", "too deep"),
    # the tree
    "no links": (robot(), "<robot>: has no <link>"),
    "link without name": (robot("<link/>"), "link ''.* no attribute 'name'"),
    "joint without name": (robot(link("a"), "<joint/>"), "joint ''.* no attribute 'name'"),
    "duplicate link": (robot(link("a"), link("a")), "link 'a': the name is already used on line 1"),
    "duplicate joint": (
        robot(link("a"), link("b"), link("c"), joint("j", "a", "b"), joint("j", "a", "c")),
        "joint 'j': the name is already used",
    ),
    "missing parent link": (robot(link("b"), joint("j", "a", "b")), "joint 'j': its parent link 'a' is not"),
    "missing child link": (robot(link("a"), joint("j", "a", "b")), "joint 'j': its child link 'b' is not"),
    "no parent": (two().replace('<parent link="a"/>', ""), "joint 'j': has no <parent>"),
    "no child": (two().replace('<child link="b"/>', ""), "joint 'j': has no <child>"),
    "parent without link": (
        two().replace('<parent link="a"/>', "<parent/>"),
        "<parent> of joint 'j'.*'link'",
    ),
    "two parents in a joint": (two('<parent link="a"/>'), "<parent> of joint 'j': there are 2"),
    "two roots": (robot(link("a"), link("b")), "2 links have no parent.*'a', 'b'"),
    "link with two parents": (
        robot(link("a"), link("b"), link("c"), joint("i", "a", "c"), joint("j", "b", "c")),
        "joint 'j': its child link 'c' already has a parent, through joint 'i'",
    ),
    "loop": (
        robot(link("a"), link("b"), link("c"), joint("i", "a", "b"), joint("j", "b", "c"), joint("k", "c", "a")),
        "joint 'k': links form a loop: 'a' -> 'b' -> 'c' -> 'a'",
    ),
    "loop beside a tree": (
        robot(link("r"), link("a"), link("b"), joint("i", "a", "b"), joint("j", "b", "a")),
        "loop: 'a' -> 'b' -> 'a'",
    ),
    "joint to itself": (robot(link("a"), joint("j", "a", "a")), "joint 'j': links form a loop: 'a' -> 'a'"),
    # joints
    "no type": (two().replace(' type="revolute"', ""), "joint 'j': has no attribute 'type'"),
    "unknown type": (two(kind="hinge"), "joint 'j': unknown type 'hinge', expected one of fixed, revolute"),
    "zero axis": (two('<axis xyz="0 0 0"/>'), "<axis> of joint 'j': is zero"),
    "axis of two": (two('<axis xyz="0 1"/>'), "<axis> of joint 'j': xyz has 2 values, expected 3: '0 1'"),
    "axis without xyz": (two("<axis/>"), "<axis> of joint 'j': has no attribute 'xyz'"),
    "axis of words": (two('<axis xyz="0 one 0"/>'), "<axis> of joint 'j': xyz has 'one', expected a number"),
    "axis of nan": (two('<axis xyz="0 nan 1"/>'), "<axis> of joint 'j': xyz has 'nan', expected a finite"),
    "two axes": (two('<axis xyz="0 0 1"/><axis xyz="0 0 1"/>'), "<axis> of joint 'j': there are 2"),
    "decimal comma": (two('<origin xyz="0,1 0 0"/>'), "xyz has '0,1'"),
    "python's underscore": (two('<origin xyz="1_0 0 0"/>'), "xyz has '1_0'"),
    "infinite origin": (two('<origin xyz="inf 0 0"/>'), "<origin> of joint 'j': xyz has 'inf'"),
    "origin of four": (two('<origin rpy="0 0 0 1"/>'), "<origin> of joint 'j': rpy has 4 values"),
    "two rotations": (two('<origin rpy="0 0 0" quat_xyzw="0 0 0 1"/>'), "both rpy and quat_xyzw"),
    "zero quaternion": (two('<origin quat_xyzw="0 0 0 0"/>'), "quat_xyzw is zero"),
    "limits crossed": (
        two('<limit lower="1" upper="-1"/>'),
        "<limit> of joint 'j': lower = 1 is above upper = -1",
    ),
    "limit of nan": (two('<limit lower="nan" upper="1"/>'), "<limit> of joint 'j': lower has 'nan'"),
    "negative effort": (two('<limit effort="-1"/>'), "<limit> of joint 'j': effort = -1 is negative"),
    # links
    "no mass": (
        robot(link("a", UNIT.replace('<mass value="1"/>', ""))),
        "<inertial> of link 'a': has no <mass>",
    ),
    "no tensor": (
        robot(link("a", '<inertial><mass value="1"/></inertial>')),
        "<inertial> of link 'a': .*<inertia>",
    ),
    "half a tensor": (robot(link("a", UNIT.replace('ixy="0"', ""))), "<inertia> of link 'a': .*'ixy'"),
    "mass of nan": (
        robot(link("a", UNIT.replace('value="1"', 'value="NaN"'))),
        "<mass> of link 'a': value has 'NaN'",
    ),
    "negative mass": (robot(link("a", UNIT.replace('value="1"', 'value="-1"'))), r"link 'a' \(line 1\): mass is -1"),
    "overflow": (
        robot(link("a", UNIT.replace("<mass", '<origin rpy="1 2 3"/><mass').replace('"1"', '"1e308"'))),
        "<inertial> of link 'a': has numbers beyond 1e.100, whose products overflow",
    ),
    "far away": (two('<origin xyz="0 1e200 0"/>'), "<origin> of joint 'j': xyz has numbers beyond 1e.100"),
    "no axis, then an empty one": (
        robot(link("a"), link("b"), link("c"), joint("i", "a", "b"), joint("j", "a", "c", "<axis/>")),
        "<axis> of joint 'j': has no attribute 'xyz'",
    ),
    "two inertials": (robot(link("a", UNIT + UNIT)), "<inertial> of link 'a': there are 2"),
    "no geometry": (robot(link("a", "<visual/>")), "<visual> of link 'a': has no <geometry>"),
    "no shape": (robot(link("a", "<visual><geometry/></visual>")), "<geometry> of link 'a': has no shape"),
    "negative radius": (
        robot(link("a", '<visual><geometry><sphere radius="-1"/></geometry></visual>')),
        "<sphere> of link 'a': has a negative size",
    ),
    "mesh without file": (
        robot(link("a", "<visual><geometry><mesh/></geometry></visual>")),
        "<mesh> of link 'a'",
    ),
    "colour of three": (
        robot('<material name="m"><color rgba="1 1 1"/></material>', link("a")),
        "<color> of material 'm': rgba has 3 values",
    ),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_wrong_files(text: str | bytes, message: str) -> None:
    with pytest.raises(ts.FormatError, match=message):
        ts.load_urdf(text)


def test_errors_say_the_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.urdf"
    path.write_text(WORKCELL.read_text().replace('xyz="0 3 4"', 'xyz="0 3"'))
    with pytest.raises(ts.FormatError, match=r"bad\.urdf', line 32: <axis> of joint 'shoulder': xyz has 2 values"):
        ts.load_urdf(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no URDF file at .*nothing\.urdf"):
        ts.load_urdf(tmp_path / "nothing.urdf")
    with pytest.raises(ts.FormatError, match="is a directory"):
        ts.load_urdf(tmp_path)
    (tmp_path / "empty.urdf").touch()
    with pytest.raises(ts.FormatError, match=r"empty\.urdf' is empty"):
        ts.load_urdf(tmp_path / "empty.urdf")
    for text in ("not a path\0", "robot " * 1000):
        with pytest.raises((ts.FormatError, FileNotFoundError), match=r"'<'"):
            ts.load_urdf(text)
    if hasattr(os, "mkfifo"):  # reading from it would never end
        os.mkfifo(tmp_path / "pipe.urdf")
        with pytest.raises(ts.FormatError, match="not a regular file"):
            ts.load_urdf(tmp_path / "pipe.urdf")


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="expected a path or URDF text, got int"):
        ts.load_urdf(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="root must be a joint"):
        ts.load_urdf(two(), root="free")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mimic must be 'couple' or 'refuse' or 'ignore', got 'yes'"):
        ts.load_urdf(two(), mimic="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inertia must be 'refuse' or 'repair' or 'accept', got 'yes'"):
        ts.load_urdf(two(), inertia="yes")  # type: ignore[arg-type]


def test_parsers_are_imported_when_used(tmp_path: Path) -> None:
    code = "import sys, torsor; print(sorted({'xml.parsers', 'mujoco'} & {*sys.modules}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert out.strip() == "[]"
