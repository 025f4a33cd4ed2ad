"""find_problems: all problems of a file at once, with their lines; and none where there are none."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import torsor as ts

DATA = Path(__file__).parent / "data"
BODY = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
LIMIT = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'


def found(path, **options):
    """(severity, line, message) of all problems."""
    return [(p.severity, p.line, p.message) for p in ts.find_problems(path, **options)]


def has(problems, severity, line, *words):
    """Whether one of them is this."""
    return any(s == severity and n == line and all(word in m for word in words) for s, n, m in problems)


def urdf(tmp_path, *lines):
    """A file of a robot whose first element is on line 2."""
    path = tmp_path / "robot.urdf"
    path.write_text("\n".join(['<robot name="robot">', *lines, "</robot>"]))
    return path


def test_all_problems_of_a_urdf_file(tmp_path):
    path = urdf(
        tmp_path,
        f'<link name="a">{BODY}</link>',
        f'<link name="b">{BODY.replace("1", "zero", 1)}<visual><geometry><box size="1"/></geometry></visual></link>',
        '<link name="b"/>',
        '<link name="c"><collision><geometry><sphere radius="-1"/></geometry></collision></link>',
        '<link name="lost"/>',
        '<joint name="j1" type="revolute"><parent link="a"/><child link="b"/><limit lower="1" upper="-1"/>'
        '<dynamics damping="-3"/></joint>',
        '<joint name="j2" type="prismatic"><parent link="b"/><child link="d"/><axis xyz="0 0 0"/></joint>',
        '<joint name="j3" type="revolut"><parent link="b"/><child link="c"/></joint>',
        '<joint name="j4" type="revolute"><parent link="b"/><child link="c"/><mimic joint="nope"/></joint>',
        '<loop_joint name="l" type="odd"/>',
        '<material name="red"><color rgba="1 0 0"/></material>',
        "<frobnicate/>",
        "<joint/>",
    )
    problems = found(path)
    for severity, line, *words in (
        ("error", 3, "link 'b'", "'zero', expected a number"),
        ("error", 3, "size has 1 values, expected 3"),
        ("error", 4, "the name is already used on line 3"),
        ("error", 5, "link 'c'", "negative size"),
        ("error", 6, "2 links have no parent", "'a', 'lost'"),
        ("error", 7, "joint 'j1'", "lower = 1 is above upper = -1"),
        ("error", 7, "joint 'j1'", "damping = -3 is negative"),
        ("error", 9, "child link 'd' is not in the file"),
        ("error", 9, "is zero, expected a direction"),
        ("error", 10, "unknown type 'revolut'"),
        ("error", 11, "its joint 'nope' is not in the file"),
        ("error", 11, "already has a parent, through joint 'j3'"),
        ("error", 12, "unknown type 'odd'"),
        ("error", 13, "rgba has 3 values"),
        ("error", 15, "has no attribute 'name'"),
        ("warning", 11, "joint 'j4'", "no <limit>"),
        ("warning", None, "ignored", "<frobnicate>"),
    ):
        line = line if line is None or line < 8 else line - 1  # j1 is one line of the file
        assert has(problems, severity, line, *words), (words, problems)
    assert sum(severity == "error" for severity, *_ in problems) == 15
    with pytest.raises(ts.FormatError):
        ts.load_urdf(path)


def test_what_only_the_whole_robot_shows(tmp_path):
    thin = BODY.replace('izz="1"', 'izz="9"')
    path = urdf(
        tmp_path,
        f'<link name="a">{thin}</link>',
        f'<link name="b">{BODY.replace("1", "0")}'
        '<visual><geometry><mesh filename="package://robot/hand.stl"/></geometry></visual></link>',
        f'<link name="c">{BODY}</link>',
        '<joint name="j" type="revolute"><parent link="a"/><child link="b"/>'
        '<limit lower="0" upper="0" effort="1"/></joint>',
        f'<joint name="k" type="continuous"><parent link="a"/><child link="c"/>{LIMIT}</joint>',
        f'<link name="d">{BODY}</link>',
        f'<joint name="l" type="prismatic"><parent link="c"/><child link="d"/>{LIMIT.replace("-1", "0.5")}</joint>',
    )
    problems = found(path)
    assert has(problems, "error", None, "joints that move no mass: 'j'")
    assert has(problems, "warning", 2, "link 'a': inertia is not physical: principal moments break the triangle")
    assert has(problems, "warning", 3, "link 'b'", "mass is 0")
    assert has(problems, "warning", None, "limits are equal", "'j'")
    assert has(problems, "warning", None, "mesh file 'package://robot/hand.stl' of 'b' is not found")
    assert has(problems, "note", 5, "joint 'j'", "no velocity")
    assert has(problems, "note", None, "exclude the neutral configuration: 'l'")
    assert has(problems, "note", None, "bodies without mass on joints that move: 'b'")
    assert len(problems) == 8
    (tmp_path / "hand.stl").touch()
    (tmp_path / "robot").mkdir()
    (tmp_path / "robot" / "hand.stl").touch()
    assert not any("mesh file" in message for *_, message in found(path))


def test_negative_inertias_are_errors_and_those_of_fixed_links_are_judged_together(tmp_path):
    negative = BODY.replace('ixx="1"', 'ixx="-1"')
    path = urdf(
        tmp_path,
        f'<link name="a">{BODY}</link>',
        f'<link name="b">{negative}</link>',
        f'<joint name="j" type="revolute"><parent link="a"/><child link="b"/>{LIMIT}</joint>',
    )
    assert has(found(path), "error", 3, "link 'b': inertia is not physical: smallest principal moment is -1")
    path.write_text(path.read_text().replace('type="revolute"', 'type="fixed"'))
    assert has(found(path, root=ts.Free()), "error", None, "joints that move no mass: 'root_joint'")  # 1 - 1 about x
    path.write_text(path.read_text().replace('ixx="-1"', 'ixx="-0.5"'))
    problems = found(path, root=ts.Free())
    assert [s for s, *_ in problems] == ["note"] and "together with the links" in problems[0][2]


def test_loops_of_links(tmp_path):
    ends = (("a", "b"), ("b", "a"))
    path = urdf(
        tmp_path,
        '<link name="root"/>',
        *(f'<link name="{name}"/>' for name in "ab"),
        *(f'<joint name="{p}{c}" type="fixed"><parent link="{p}"/><child link="{c}"/></joint>' for p, c in ends),
    )
    assert found(path) == [
        ("error", 3, "links form a loop, or hang on one: 'a', 'b'; links form a tree, and <loop_joint> closes loops")
    ]


def test_singular_only_in_some_configurations(tmp_path):
    # Two axes that are parallel at zero, with all the mass on the second: there they move no mass together.
    body = BODY.replace("</inertial>", '<origin xyz="0.1 0 0"/></inertial>')
    path = urdf(
        tmp_path,
        '<link name="a"/><link name="b"/>',
        f'<link name="c"/><link name="d">{body}</link>',
        f'<joint name="x" type="revolute"><parent link="a"/><child link="b"/>{LIMIT}<axis xyz="1 0 0"/></joint>',
        f'<joint name="y" type="revolute"><parent link="b"/><child link="c"/>{LIMIT}<axis xyz="0 1 0"/></joint>',
        f'<joint name="z" type="revolute"><parent link="c"/><child link="d"/>{LIMIT}<axis xyz="1 0 0"/></joint>',
    )
    assert has(found(path), "warning", None, "singular in the neutral configuration, in motions of 'x', 'z'")


def test_all_problems_of_an_mjcf_file(tmp_path):
    pytest.importorskip("mujoco")
    path = tmp_path / "scene.xml"
    path.write_text(
        """<mujoco model="bad">
  <asset><mesh name="m" file="missing.stl"/></asset>
  <worldbody>
    <body name="a" hue="3"><foo/><joint name="j" type="hingy" range="1 -1" limited="true"/><geom size="0.1"/>
      <body name="a"><joint name="k"/></body>
      <body name="c"><joint name="l"/><geom/><geom type="mesh" mesh="m"/></body>
      <body name="d"><joint name="j" axis="0 0 x"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 9"/></body>
    </body>
  </worldbody>
  <include file="none.xml"/>
  <actuator><motor joint="nope"/><motor joint="j"/><general joint="k" dyntype="integrator"/></actuator>
  <keyframe><key qpos="1 2 3 4 5"/><key name="w" qpos="0 0 0 0"/></keyframe>
  <sensor><gyro site="s"/></sensor>
</mujoco>"""
    )
    problems = found(path)
    for line, *words in (
        (2, "its file 'missing.stl' is not found"),
        (4, "body 'a'", "unrecognized attribute: 'hue'"),
        (4, "<foo>", "unrecognized element"),
        (4, "invalid keyword: 'hingy'"),
        (4, "joint 'j'", "range[0] should be smaller"),
        (5, "repeated name 'a'"),
        (5, "body 'a'", "mass and inertia of moving bodies"),
        (6, "size 0 must be positive"),
        (7, "repeated name 'j'"),
        (7, "attribute 'axis'"),
        (7, "body 'd'", "A + B >= C"),
        (10, "there is no file 'none.xml'"),
        (11, "'nope'"),
        (12, "invalid qpos size"),
        (13, "<gyro>", "'s'"),
        (None, "has a state of its own", "which a model cannot hold"),
    ):
        assert has(problems, "error", line, *words), (words, problems)
    assert sum(severity == "error" for severity, *_ in problems) == 16


def test_an_mjcf_file_that_a_model_cannot_hold(tmp_path):
    pytest.importorskip("mujoco")
    path = tmp_path / "scene.xml"
    path.write_text(
        """<mujoco><worldbody><body name="a"><joint name="j" range="-1 1" limited="true"/><geom size="0.1"/>
        <body name="b"><joint name="b" type="ball" limited="true" range="0 1"/><geom size="0.1"/></body></body>
        </worldbody>
        <option density="1"/><compiler angle="radian"/>
        <keyframe><key name="far" qpos="2 1 0 0 0"/></keyframe></mujoco>"""
    )
    problems = found(path)
    assert has(problems, "error", None, "a ball with a range, which a model cannot hold")
    assert has(problems, "error", None, "fluid")
    assert has(problems, "warning", None, "keyframe 'far' is beyond the limits of 'j'")
    assert len(problems) == 3


def test_all_problems_of_a_saved_model(tmp_path):
    path = tmp_path / "model.json"
    ts.models.arm7().save(path)
    assert found(path) == []
    content = json.loads(path.read_text())
    bodies = content["model"]["bodies"]
    bodies[2]["joint"]["axis"] = [0, 0, 0]
    bodies[4]["position_limits"] = [[1.0], [-1.0]]
    bodies[5]["name"] = bodies[1]["name"]
    bodies[6]["inertia"]["mass"] = -1.0
    bodies[7]["parent"] = "moon"
    bodies[8]["visuals"][0]["size"] = [1, "two"]
    bodies[8]["damping"] = None
    content["model"]["frames"] = [{"type": "Frame", "name": "tool"}]
    path.write_text(json.dumps(content))
    problems = found(path)
    assert has(problems, "error", None, "body 'shoulder'", "axis")
    assert has(problems, "error", None, "'elbow'", "lower [1.0] above upper [-1.0]")
    assert has(problems, "error", None, "2 bodies are named 'turret'")
    assert has(problems, "error", None, "body 'flange'", "parent 'moon' is not in the file")
    assert has(problems, "error", None, "frame 'tool'", "body")
    assert has(problems, "error", None, "body 'hand'", "size is (1, 'two'), expected tuple[float, ...]")
    assert has(problems, "warning", None, "body 'wrist'", "mass is -1")
    assert len(problems) == 8  # and the parent of the wrist, which has another name now


def test_a_model_in_memory_and_files_without_problems(tmp_path):
    for name in ("pendulum", "arm7", "quadruped", "humanoid"):
        model = getattr(ts.models, name)()
        assert ts.find_problems(model) == ()
        ts.to_urdf(model, tmp_path / "model.urdf")
        assert not [p for p in found(tmp_path / "model.urdf") if p[0] != "note"]
    massless = ts.ModelBuilder()
    massless.add_body("a", "world", ts.Revolute((0, 0, 1)))
    (problem,) = ts.find_problems(massless.build())
    assert str(problem).startswith("error: joints that move no mass: 'a'")
    assert found(DATA / "workcell.urdf") == [
        ("warning", None, "mesh file 'package://workcell/meshes/forearm.stl' of 'forearm' is not found")
    ]


def test_constraints_that_cannot_be_satisfied():
    model = ts.models.arm7().with_constraints([ts.Distance("base", (0, 0, 0), "hand", (0, 0, 0), 50.0)])
    (problem,) = ts.find_problems(model)
    assert problem.severity == "warning" and "no configuration was found" in problem.message
    model = model.with_constraints([ts.Distance("base", (0, 0, 0), "hand", (0, 0, 0), 0.8)])
    (problem,) = ts.find_problems(model)
    assert problem.severity == "note" and "does not satisfy the constraints" in problem.message


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError):
        ts.find_problems(tmp_path / "none.urdf")
    for text, message in (
        ("", "is empty"),
        ("<robot", "not well-formed"),
        ("<robot><link>", "not well-formed"),
        ("<html/>", "begins with <html>"),
        ("{}", "it has no format"),
        ("\0\1\2", "is not a model"),
    ):
        path = tmp_path / "file"
        path.write_text(text)
        with pytest.raises(ts.FormatError, match=message):
            ts.find_problems(path)
    with pytest.raises(ts.FormatError, match="is a directory"):
        ts.find_problems(tmp_path)


@pytest.mark.parametrize("seed", range(2))
def test_what_has_no_errors_can_be_loaded(seed, tmp_path):
    """Mutated files: find_problems either raises FormatError, or finds an error, or the file loads."""
    rng = np.random.default_rng(seed)
    text = ts.to_urdf(ts.models.quadruped()) if seed else (DATA / "workcell.urdf").read_text()
    text = text[text.index("<robot") :]
    words = ["0", "-1", "nan", "1e400", "", "x", "1 2", "fixed", "floating", "world", "base", "trunk"]
    path = tmp_path / "robot.urdf"
    kinds = set()
    for _ in range(150):
        parts = text.split('"')
        for at in rng.integers(0, len(parts) // 2, int(rng.integers(1, 4))):
            parts[2 * at + 1] = words[rng.integers(len(words))]
        path.write_text('"'.join(parts), encoding="utf-8")
        errors = [p for p in ts.find_problems(path) if p.severity == "error"]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ts.FormatWarning)
                ts.load_urdf(path)
            kinds.add("loads")
        except ts.FormatError:
            assert errors
            kinds.add("refused")
    assert kinds == {"loads", "refused"}
