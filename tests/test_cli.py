"""The command line: what it prints and writes, its exit status, and that no file makes it print a traceback."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

import torsor as ts
from torsor._cli import main

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
COMMANDS = ("info", "check", "simulate", "view", "bench", "convert")


@pytest.fixture
def torsor(capsys):
    """Runs a command in this process: (exit status, stdout, stderr)."""

    def run(*arguments):
        status = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def arm(tmp_path):
    """The file of an arm; the name has a space."""
    path = tmp_path / "an arm.urdf"
    ts.to_urdf(ts.models.arm7(), path)
    return path


def shell(*arguments, **options):
    """Runs a command in a process of its own."""
    command = [sys.executable, "-m", "torsor", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **options.pop("env", {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, **options)


# ---- help and errors


def test_help(torsor):
    status, out, err = torsor("--help")
    assert status == 0 and not err
    assert all(re.search(rf"^    {command} ", out, re.MULTILINE) for command in COMMANDS)
    for command in COMMANDS:
        status, out, err = torsor(command, "--help")
        assert status == 0 and not err
        assert f"torsor {command} " in out.partition("examples:")[2]  # each shows how it is used
        assert max(map(len, out.splitlines())) <= 82


def test_version_and_no_command(torsor):
    assert torsor("--version") == (0, f"torsor {ts.__version__}\n", "")
    status, out, err = torsor()
    assert status == 2 and not out and "COMMAND" in err


def test_help_loads_nothing_that_it_does_not_need():
    script = f"import sys; sys.path[:] = {sys.path!r}\nimport torsor\nbefore = set(sys.modules)\n"
    script += "from torsor._cli import main\nmain(['--help'])\nprint(*(set(sys.modules) - before), file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    loaded = {name for name in run.stderr.split() if name.split(".")[0] == "torsor"}
    assert loaded == {
        "torsor._files",
        "torsor._cli",
        *(f"torsor._cli.{part}" for part in ("output", "sources", *COMMANDS)),
    }
    assert not {"xml", "scipy", "tqdm", "mujoco", "zipfile"} & {*run.stderr.split()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "none.urdf"], "none.urdf: No such file or directory"),
        (["info", "."], "'.' is a directory"),
        (["info", "a\0b"], "is not the name of a file"),
        (["info", "example:humanoidd"], "did you mean 'humanoid'?"),
        (["info", "example:chain"], "example:chain takes 1 number, got 0: write example:chain:N"),
        (["info", "example:chain:many"], "takes integers, got 'many'"),
        (["info", "example:chain:0"], "0"),
        (["info", "example:arm7", "--root", "free"], "--root free is for URDF files"),
        (["check", "example:arm7", "--root", "free"], "--root free is for URDF files"),
        (["fly", "example:arm7"], "invalid choice: 'fly'"),
        (["info"], "the following arguments are required: FILE"),
        (["info", "--jso", "example:arm7"], "unrecognized arguments: --jso"),
        (["simulate", "example:arm7", "--integrator", "rk4"], "invalid choice: 'rk4'"),
        (["simulate", "example:arm7", "-T", "-1"], "-1 is not a positive number"),
        (["simulate", "example:arm7", "-T", "soon"], "'soon' is not a number"),
        (["simulate", "example:arm7", "-T", "1", "--step", "0.3"], "-T is 3.33333 times --step"),
        (["simulate", "example:arm7", "-T", "1", "--steps", "3"], "give -T or --steps, not both"),
        (["simulate", "example:arm7", "--steps", "1000000000000"], "steps"),
        (["simulate", "example:arm7", "--every", "7"], "--every is 7, expected a divisor"),
        (["simulate", "example:arm7", "--q0", "1,2"], "--q0 has 2 numbers, expected 7"),
        (["simulate", "example:arm7", "--q0", "random:x"], "expected random:SEED"),
        (["simulate", "example:arm7", "--q0", "nan,0,0,0,0,0,0"], "q0 is not finite"),
        (["simulate", "example:arm7", "--joint", "elbo=1"], "no joint named 'elbo'"),
        (["simulate", "example:arm7", "--joint", "elbow"], "expected NAME=NUMBERS"),
        (["simulate", "example:arm7", "--keyframe", "home"], "no keyframe named 'home'; the model has none"),
        (["simulate", "example:arm7", "--ground"], "no collision shapes"),
        (["simulate", "example:arm7", "--contacts"], "no collision shapes"),
        (["simulate", "example:arm7", "--gravity", "1,2"], "--gravity has 2 numbers, expected 3"),
        (["simulate", "example:arm7", "--controls", "none.csv"], "none.csv: No such file"),
        (["simulate", "example:arm7", "--controls", "u.txt"], "ends in .csv or .npy"),
        (["simulate", "example:arm7", "--forces", "none.json"], "none.json: No such file"),
        (["simulate", "example:arm7", "-o", "motion.txt"], "ends in .npz or .csv"),
        (["simulate", "example:arm7", "-o", "none/motion.npz"], "cannot be written: No such file or directory"),
        (["simulate", "example:arm7", "--movie", "motion.html"], "ends in .mp4 or .gif"),
        (["convert", "example:arm7", "arm.docx"], "'.docx' is no format"),
        (["convert", "example:arm7", "arm"], "a name without an ending is no format"),
        (["convert", "example:arm7", "-"], "stdout is no format"),
        (["convert", "example:arm7", "none/arm.urdf"], "none/arm.urdf: No such file or directory"),
        (["view", "example:arm7", "--port", "99999"], "'99999' is not a port"),
        (["view", "none.npz"], "none.npz: No such file"),
        (["bench", "--batch", "0"], "--batch is 0"),
    ],
)
def test_errors_are_one_line_and_status_two(arguments, message, torsor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = torsor(*arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1 and re.match(r"torsor( \w+)?: error: ", err) and message in err
    assert not [*tmp_path.iterdir()]


def test_files_that_are_no_models(torsor, tmp_path):
    path = tmp_path / "file.urdf"
    rng = np.random.default_rng(0)
    for content, message in (
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"\xef\xbb\xbf", "is not a model"),
        (rng.bytes(5000), "is not a model"),
        (b"\0" * 100, "is not a model"),
        (b"PK\3\4", "is a motion"),
        (b"<html></html>", "begins with <html>"),
        (b"<robot>", "not well-formed"),
        (b"<!-- <robot/> --><!DOCTYPE x><mujoco>", ""),
        (b'<?xml version="1.0" encoding="klingon"?><robot/>', ""),
        (b"{", "is not a file of Model.save"),
        (b'{"format": "torsor model", "version": 1, "model": {"type": "Model"}}', ""),
        (b"[" * 100_000, "is not a model"),
        (b'{"a":' * 100_000, "is not a file of Model.save"),
        (b"<robot>" + b"<a>" * 200_000, ""),
    ):
        path.write_bytes(content)
        for command in ("info", "check"):
            status, out, err = torsor(command, path)
            assert status == 2 and not out and err.count("\n") == 1 and message in err, (content[:40], err)


def test_a_file_that_is_too_large_is_refused_without_being_read(torsor, tmp_path):
    path = tmp_path / "huge.urdf"
    with path.open("wb") as file:
        file.write(b"<robot>")
        file.truncate(3 << 30)  # a hole: it takes no room
    begin = time.perf_counter()
    status, _, err = torsor("info", path)
    assert status == 2 and "3.0 GB" in err and time.perf_counter() - begin < 5.0


# ---- info


def test_info_is_as_the_manual_shows_it(torsor):
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    shown = re.search(r"^    \$ torsor info example:acrobot\n(.*?)^\S", page, re.MULTILINE | re.DOTALL)
    _, out, _ = torsor("info", "example:acrobot")
    assert out.strip() == re.sub(r"^    ", "", shown[1], flags=re.MULTILINE).strip()


def test_info_of_every_kind_of_file(torsor, tmp_path, arm):
    ts.models.arm7().save(tmp_path / "arm.json")
    ts.to_mjcf(ts.models.pendulum(), tmp_path / "pendulum.xml")
    for name, kind in ((arm, "URDF"), (tmp_path / "arm.json", "torsor"), (tmp_path / "pendulum.xml", "MJCF")):
        status, out, err = torsor("info", name)
        assert status == 0 and not err and f"({kind})" in out
    _, out, _ = torsor("info", arm, "--root", "free")
    assert "nq 14, nv 13" in out


def test_info_names_what_the_model_has_and_has_not(torsor, tmp_path):
    pytest.importorskip("mujoco")
    path = tmp_path / "scene.xml"
    path.write_text(
        """<mujoco model="scene"><option density="1"/><compiler angle="radian"/><worldbody><body name="a">
        <joint name="j" damping="0.3" range="-1 1" limited="true"/><geom size="0.1"/><site name="tip"/>
        <body name="b"><joint name="k"/><geom size="0.1"/></body></body></worldbody>
        <actuator><motor name="m" joint="j" gear="3"/></actuator>
        <equality><joint joint1="j" joint2="k" name="same"/></equality>
        <keyframe><key name="home" qpos="0.1 0.1"/></keyframe>
        <tendon><fixed name="t"><joint joint="j" coef="2"/></fixed></tendon></mujoco>"""
    )
    status, out, _ = torsor("info", path)
    assert status == 0
    for text in ("tip on a", "same (Gear)", "home", "t: 2 j", "fluid", "damping", "0.3"):
        assert text in out
    assert re.search(r"^m +joint j +3 ", out, re.MULTILINE)
    _, out, _ = torsor("info", path, "--json")
    told = json.loads(out)
    assert told["keyframes"] == ["home"] and told["actuators"][0]["drives"] == "joint j"
    assert told["constraints"] == [{"name": "same", "kind": "Gear"}] and "fluid" in told["left_out"][0]
    assert told["joints"][0]["position_limits"] == [[-1.0], [1.0]]
    assert told["joints"][1]["position_limits"] == [[None], [None]]


def test_info_of_mimic_joints_and_of_a_model_without_joints(torsor, tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(
        '<robot name="r"><link name="a"/><link name="b"/><link name="c"/>'
        '<joint name="j" type="continuous"><parent link="a"/><child link="b"/></joint>'
        '<joint name="k" type="continuous"><parent link="a"/><child link="c"/>'
        '<mimic joint="j" multiplier="-2"/></joint></robot>'
    )
    _, out, _ = torsor("info", path)
    assert "follows j" in out and "couplings:" in out and "nq 1, nv 1, mass 0" in out
    path.write_text('<robot name="r"><link name="a"/></robot>')
    status, out, _ = torsor("info", path)
    assert status == 0 and "no joint moves" in out


# ---- check


def test_check(torsor, tmp_path, arm):
    assert torsor("check", arm) == (0, f"{arm}: no problems\n", "")
    bad = tmp_path / "bad.urdf"
    bad.write_text(arm.read_text().replace('lower="-2.9" upper="2.9"', 'lower="2.9" upper="-2.9"').replace("yaw", ""))
    status, out, err = torsor("check", bad)
    assert status == 1 and not err and len(re.findall("^error .*lower = 2.9 is above", out, re.MULTILINE)) == 4
    assert out.endswith(f"{bad}: 4 errors\n")
    _, out, _ = torsor("check", bad, "--json")
    told = json.loads(out)["problems"]
    assert len(told) == 4 and told[0]["severity"] == "error" and told[0]["line"] > 1
    warned = tmp_path / "warned.urdf"
    warned.write_text(arm.read_text().replace("</robot>", "<odd/></robot>"))
    assert torsor("check", warned)[0] == 1
    assert torsor("check", warned, "--severity", "error") == (0, f"{warned}: no errors\n", "")
    assert torsor("check", "example:quadruped")[0] == 0


# ---- simulate


def test_simulate_is_what_simulate_is(torsor, tmp_path, arm):
    out = tmp_path / "a motion.npz"
    status, text, err = torsor(
        "simulate", arm, "-T", "0.1", "--step", "5e-3", "--joint", "elbow_pitch=0.5", "--velocity", "hand=",
        "-o", out,
    )  # fmt: skip
    assert status == 2  # a fixed joint has no velocities
    status, text, err = torsor("simulate", arm, "-T", 0.1, "--step", 5e-3, "--joint", "elbow_pitch=0.5", "-o", out)
    assert status == 0 and not err and "20 steps of BDF2, h = 0.005" in text and f"written  {out}" in text
    model = ts.load_urdf(arm)
    q0 = model.neutral.copy()
    q0[model.joint("elbow_pitch").q_slice] = 0.5
    motion = ts.simulate(model, q0, T=0.1, integrator=ts.BDF2(h=5e-3))
    back = ts.Trajectory.load(out)
    np.testing.assert_array_equal(back.q, motion.q)
    assert back.model == model


def test_simulate_writes_tables_and_reads_controls_and_forces(torsor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("u.csv").write_text("\ufefft,elbow\n0,1\n0.05,-1\n", encoding="utf-8")
    Path("f.json").write_text('[{"type": "JointDamping", "joint": null, "damping": 0.5}]')
    command = ["simulate", "example:acrobot", "-T", "0.1", "--integrator", "bdf1", "--quiet"]
    assert torsor(*command, "--controls", "u.csv", "--forces", "f.json", "-o", "m.csv") == (0, "", "")
    model = ts.models.acrobot()
    u = np.zeros((10, 2))
    u[:, 1] = np.where(np.arange(10) < 5, 1.0, -1.0)
    damping = ts.JointDamping(None, 0.5)
    motion = ts.simulate(model, [0, 0], T=0.1, integrator=ts.BDF1(h=1e-2), controls=u, forces=[damping])
    head, *rows = Path("m.csv").read_text().splitlines()
    assert head == "t,q:shoulder,q:elbow,v:shoulder,v:elbow,a:shoulder,a:elbow"
    table = np.array([[float(x) for x in row.split(",")] for row in rows])
    np.testing.assert_array_equal(table, np.column_stack([motion.t, motion.q, motion.v, motion.a]))
    np.save("u.npy", u)
    assert torsor(*command, "--controls", "u.npy", "--forces", "f.json", "-o", "n.csv")[0] == 0
    assert Path("n.csv").read_text() == Path("m.csv").read_text()


@pytest.mark.parametrize(
    ("option", "name", "content", "message"),
    [
        ("--controls", "u.csv", "", "u.csv is empty"),
        ("--controls", "u.csv", "elbow\n", "u.csv has no rows"),
        ("--controls", "u.csv", "1,2,3\n", "has 3 columns, expected 2"),
        ("--controls", "u.csv", "1,2\n3\n", "row 2 has 1 number, expected 2"),
        ("--controls", "u.csv", "1,2\n3,4\n", "has 2 rows of controls, expected 1 or one for each of 100 steps"),
        (
            "--controls",
            "u.csv",
            "elbo\n1\n",
            "a column 'elbo'; controls are 'shoulder', 'elbow'; did you mean 'elbow'?",
        ),
        ("--controls", "u.csv", "t,elbow\n1,0\n0,0\n", "times in column t must increase"),
        ("--controls", "u.csv", "elbow\nfast\n", "could not convert"),
        ("--controls", "u.csv", "elbow\nnan\n", "controls"),
        ("--controls", "u.npy", "what", "u.npy is not a .npy file of numbers"),
        ("--forces", "f.json", "", "f.json is not JSON"),
        ("--forces", "f.json", "3", "has no list of forces"),
        ("--forces", "f.json", '[{"type": "JointDamping"}]', "invalid"),
        ("--forces", "f.json", '[{"type": "Sphere", "radius": 1}]', "has a Sphere, which is not a force"),
        ("--forces", "f.json", '[{"type": "JointDamping", "joint": "elbo", "damping": 1}]', "no joint named 'elbo'"),
        ("--q0", "q.csv", "1,2,3", "has 3 numbers, expected 2"),
    ],
)
def test_wrong_files_of_controls_and_forces(option, name, content, message, torsor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(content)
    status, out, err = torsor("simulate", "example:acrobot", option, name)
    assert status == 2 and not out and err.count("\n") == 1 and message in err, err


def test_actuators_keyframes_and_constraints_of_a_file(torsor, tmp_path):
    pytest.importorskip("mujoco")
    path, out = tmp_path / "scene.xml", tmp_path / "m.npz"
    text = """<mujoco><compiler angle="radian"/><worldbody><body name="a"><joint name="j" axis="0 1 0" range="-1 1"
        limited="true"/><geom size="0.1" pos="0 0 -0.5"/><body name="b"><joint name="k" axis="0 1 0"/>
        <geom size="0.1" pos="0 0 -0.3"/></body></body></worldbody>
        <actuator><position name="servo" joint="j" kp="50" kv="5"/></actuator>
        <equality><joint joint1="k" joint2="j" polycoef="0 1 0 0 0"/></equality>
        <keyframe><key name="home" qpos="0.4 0.4" ctrl="0.4"/></keyframe></mujoco>"""
    path.write_text(text)
    command = ["simulate", path, "-T", 0.2, "-o", out]
    assert torsor(*command, "--keyframe", "home", "--quiet") == (0, "", "")
    held = ts.Trajectory.load(out)
    assert len(held.constraints) == 1 and held.controls.shape == (20, 1)
    assert np.all(held.controls == 0.4)
    assert torsor(*command, "--quiet")[0] == 0
    at_rest = ts.Trajectory.load(out)  # the servo holds zero
    np.testing.assert_allclose(at_rest.q, 0.0, atol=1e-9)
    status, _, err = torsor(*command, "--joint", "j=0.3")
    assert status == 0 and "was moved by up to" in err
    np.testing.assert_allclose(np.diff(ts.Trajectory.load(out).q[0]), 0.0, atol=1e-9)
    path.write_text(text.replace('kv="5"', 'kv="5" forcerange="-1 1"'))  # which needs ActuatorForce
    assert torsor(*command, "--keyframe", "home", "--quiet")[0] == 0
    with pytest.raises(ValueError, match="ActuatorForce"):
        ts.Trajectory.load(out)


def test_ground_limits_gravity_and_random_states(torsor, tmp_path):
    out = tmp_path / "m.npz"
    assert torsor("simulate", "example:quadruped", "--ground", "-T", 0.05, "-o", out, "--quiet")[0] == 0
    motion = ts.Trajectory.load(out)
    assert len(motion.forces) == 4 and abs(motion.q[-1, 2]) < 2e-3  # it stands where it is
    assert torsor("simulate", "example:quadruped", "--ground", "-1", "-T", 0.05, "-o", out, "--quiet")[0] == 0
    fallen = ts.Trajectory.load(out).q[-1, 2]
    np.testing.assert_allclose(fallen, -0.5 * 9.81 * 0.05**2, rtol=0.3)  # not yet on the ground
    command = ["simulate", "example:arm7", "-T", 0.05, "-o", out, "--quiet"]
    assert torsor(*command, "--q0", "random:3", "--limits", 1e4, "--gravity", "0,0,0", "--every", 5)[0] == 0
    motion = ts.Trajectory.load(out)
    np.testing.assert_array_equal(motion.q[0], ts.models.arm7().random(3))
    assert motion.model.gravity == (0, 0, 0) and len(motion.forces) == 7 and len(motion.t) == 2


def test_a_simulation_that_cannot_be_finished(torsor, tmp_path):
    out = tmp_path / "m.npz"
    status, _, err = torsor("simulate", "example:acrobot", "--velocity", "elbow=1e160", "--step", 1, "-T", 9, "-o", out)
    assert status == 1 and err.startswith("torsor: error: ") and err.count("\n") == 1 and "Traceback" not in err
    assert ts.Trajectory.load(out).steps < 9


def test_progress_on_a_terminal_alone(torsor, monkeypatch):
    pytest.importorskip("tqdm")
    assert torsor("simulate", "example:pendulum", "-T", 0.1)[2] == ""
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: True, raising=False)
    assert "10/10" in torsor("simulate", "example:pendulum", "-T", 0.1)[2]
    assert torsor("simulate", "example:pendulum", "-T", 0.1, "--quiet") == (0, "", "")
    assert "inverse dynamics" in torsor("bench", "example:pendulum", "--seconds", 0.01, "--batch", 4)[2]


# ---- bench, convert, view


def test_bench(torsor):
    status, out, err = torsor("bench", "example:arm7", "--seconds", 0.05, "--batch", 16)
    assert status == 0 and not err
    for name in ("inverse dynamics", "forward dynamics", "second derivatives", "step of BDF2"):
        line = next(line for line in out.splitlines() if re.match(rf"{name}[ ,]", line))
        row = re.split(r"  +", line)
        assert len(row) == 4 and all(0 < float(x) < 1e6 for x in row[1:])


def test_convert_there_and_back(torsor, tmp_path, arm):
    model = ts.load_urdf(arm)
    assert torsor("convert", arm, tmp_path / "arm.json") == (0, "", "")
    assert ts.Model.load(tmp_path / "arm.json") == model
    assert torsor("convert", tmp_path / "arm.json", tmp_path / "again.urdf") == (0, "", "")
    q, v = model.random(0), np.ones(model.nv)
    again = ts.load_urdf(tmp_path / "again.urdf")
    expected = ts.bias_forces(model, q, v)
    np.testing.assert_allclose(ts.bias_forces(again, q, v), expected, atol=1e-12)
    status, out, err = torsor("convert", arm, tmp_path / "arm.xml")
    assert status == 2 and "velocity limits of joint 'shoulder_yaw'" in err and "give --lossy" in err
    assert not (tmp_path / "arm.xml").exists()
    status, out, err = torsor("convert", arm, tmp_path / "arm.xml", "--lossy")
    assert status == 0 and not out and err.startswith("torsor: left out of the MJCF of 'arm7': velocity limits")
    np.testing.assert_allclose(ts.bias_forces(ts.load_mjcf(tmp_path / "arm.xml"), q, v), expected, atol=1e-12)
    assert torsor("convert", arm, tmp_path / "arm.xml", "--lossy", "--quiet") == (0, "", "")
    status, out, err = torsor("convert", tmp_path / "arm.xml", "-", "--to", "torsor")
    assert status == 0 and json.loads(out)["format"] == "torsor model"


def test_convert_names_what_was_not_read(torsor, tmp_path, arm):
    odd = tmp_path / "odd.urdf"
    odd.write_text(arm.read_text().replace("</robot>", "<odd name='thing'/></robot>"))
    status, _, err = torsor("convert", odd, tmp_path / "out.json")
    assert status == 0 and "ignored: <odd> 'thing'" in err
    ball = tmp_path / "ball.xml"
    ball.write_text('<mujoco><worldbody><body><joint type="ball"/><geom size="1"/></body></worldbody></mujoco>')
    status, _, err = torsor("convert", ball, tmp_path / "out.urdf", "--lossy")
    assert status == 2 and "Spherical" in err and "joints and bodies are never left out" in err


def test_convert_meshes_for_mujoco(torsor, tmp_path):
    """Names of packages become paths, and meshes that MuJoCo cannot read are named."""
    pytest.importorskip("mujoco")
    (tmp_path / "robot").mkdir()
    (tmp_path / "robot" / "part.obj").write_bytes((DATA / "tetrahedron.obj").read_bytes())
    (tmp_path / "robot" / "part.dae").touch()
    model = ts.ModelBuilder("robot")
    parts = [ts.Visual("mesh", mesh=f"package://robot/part.{end}") for end in ("obj", "dae")]
    hull = ts.Collision(ts.shapes.Mesh("package://robot/part.obj"))
    model.add_body(
        "a",
        "world",
        ts.Revolute((0, 0, 1)),
        inertia=ts.Inertia.sphere(mass=1.0, radius=0.1),
        visuals=parts,
        collisions=[hull],
    )
    ts.to_urdf(model.build(), tmp_path / "robot.urdf")
    status, _, err = torsor("convert", tmp_path / "robot.urdf", tmp_path / "robot.xml")
    assert status == 2 and "'package://robot/part.dae'; give --lossy" in err
    status, _, err = torsor("convert", tmp_path / "robot.urdf", tmp_path / "robot.xml", "--lossy")
    assert status == 0 and "left out: mesh files" in err
    (body,) = ts.load_mjcf(tmp_path / "robot.xml").bodies
    assert len(body.collisions) == 1
    assert [Path(visual.mesh).name for visual in body.visuals] == ["part.obj"]


class FakeViewer:
    """Stands in for the viewer."""

    made = ()

    def __init__(self, model, port=None, open_browser=True, **options):
        type(self).made, self.model, self.options = self, model, (port, open_browser)
        self.shown, self.url = None, "http://127.0.0.1:1234"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def wait(self):
        self.waited = True

    def play(self, motion, speed=1.0):
        self.shown = motion, speed


def test_view(torsor, tmp_path, monkeypatch):
    fake = types.ModuleType("torsor.view")
    fake.Viewer = FakeViewer
    monkeypatch.setitem(sys.modules, "torsor.view", fake)
    status, out, _ = torsor("view", "example:arm7", "--port", 8000, "--no-browser")
    viewer = FakeViewer.made
    assert status == 0 and "http://127.0.0.1:1234" in out and viewer.options == (8000, False)
    assert viewer.waited and viewer.closed and viewer.model == ts.models.arm7() and viewer.shown is None
    path = tmp_path / "m.npz"
    ts.simulate(ts.models.pendulum(), [0.1], steps=3, integrator=ts.BDF1(h=0.1)).save(path)
    assert torsor("view", path, "--speed", 0.5)[0] == 0
    motion, speed = FakeViewer.made.shown
    assert motion.steps == 3 and speed == 0.5 and FakeViewer.made.model == ts.models.pendulum()


def test_view_without_its_packages(torsor, monkeypatch):
    monkeypatch.setitem(sys.modules, "torsor.view", None)
    status, out, err = torsor("view", "example:arm7", "--no-browser")
    assert status == 2 and not out and err.count("\n") == 1 and err.startswith("torsor: error: ")


# ---- robots by name


@pytest.fixture
def descriptions(tmp_path, monkeypatch, arm):
    """A package robot_descriptions with three robots, one of which cannot be fetched."""
    package = tmp_path / "robot_descriptions"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_empty_description.py").touch()
    (package / "arm_description.py").write_text(f"URDF_PATH = {str(arm)!r}")
    ts.to_mjcf(ts.models.pendulum(), tmp_path / "pendulum.xml")
    (package / "pendulum_mj_description.py").write_text(f"MJCF_PATH = {str(tmp_path / 'pendulum.xml')!r}")
    (package / "far_description.py").write_text("raise RuntimeError('git clone failed:\\nno network')")
    (package / "none_description.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("robot_descriptions")]:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [name for name in sys.modules if name.startswith("robot_descriptions")]:
        del sys.modules[name]


@pytest.mark.usefixtures("descriptions")
def test_robots_by_name(torsor):
    assert ts.load_description("arm", root=ts.Free()).nv == 13
    assert ts.load_description("arm_description").nv == 7
    assert ts.load_description("pendulum").nv == 1
    assert ts.load_description("pendulum_mj_description", gravity=(0, 0, 0)).gravity == (0, 0, 0)
    status, out, _ = torsor("info", "robot:arm")
    assert status == 0 and "robot:arm (URDF)" in out
    assert torsor("check", "robot:arm")[0] == 0
    with pytest.raises(KeyError, match=r"no robot description named 'armm'; there are 'arm', .* did you mean 'arm'\?"):
        ts.load_description("armm")
    with pytest.raises(ts.FormatError, match="'far_description' cannot be fetched: RuntimeError: git clone failed: no"):
        ts.load_description("far")
    with pytest.raises(ts.FormatError, match="has neither a URDF nor an MJCF file"):
        ts.load_description("none")
    status, out, err = torsor("info", "robot:far")
    assert (status, out) == (2, "") and err.count("\n") == 1


def test_robots_by_name_without_the_package(torsor, monkeypatch):
    monkeypatch.setitem(sys.modules, "robot_descriptions", None)
    with pytest.raises(ImportError, match="pip install robot_descriptions"):
        ts.load_description("arm")
    assert "pip install robot_descriptions" in torsor("info", "robot:arm")[2]


# ---- the shell


def test_python_m_torsor_in_an_ascii_locale(tmp_path, arm):
    (tmp_path / "bräcket.urdf").write_text(arm.read_text().replace('"arm7"', '"bräcket"'), encoding="utf-8")
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    run = shell("info", tmp_path / "bräcket.urdf", env=environment)
    assert run.returncode == 0 and not run.stderr
    assert "br\\xe4cket: 9 bodies" in run.stdout and "`- base" in run.stdout and run.stdout.isascii()


def test_a_reader_that_goes_away_is_silent():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "torsor", "info", "example:chain:3000", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(60) == 141
    process.stderr.close()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupt():
    script = f"import sys; sys.path[:] = {sys.path!r}\nfrom torsor._cli import main\nprint('ready', flush=True)\n"
    script += "sys.exit(main(['simulate', 'example:humanoid', '--steps', '40000000', '--every', '100000']))"
    process = subprocess.Popen(  # which would ignore SIGINT if these tests ran in the background of a shell
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout.readline() == b"ready\n"
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == b"" and err.strip() == b""


# ---- damaged files


@pytest.mark.parametrize("kind", ["urdf", "xml", "json", "npz"])
def test_damaged_files_make_no_traceback(kind, torsor, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torsor.view", None)  # of a motion that is whole enough
    rng = np.random.default_rng(1)
    path = tmp_path / f"file.{kind}"
    if kind == "npz":
        ts.simulate(ts.models.arm7(), np.zeros(7), steps=2, integrator=ts.BDF1(h=1e-2)).save(path)
    elif kind == "json":
        ts.models.arm7().save(path)
    elif kind == "xml":
        pytest.importorskip("mujoco")
        text = re.sub(r"<mesh[^>]*>", "", (DATA / "playground.xml").read_text())
        path.write_text(text.replace('type="mesh" mesh="tetrahedron"', 'size="0.1"'))
    else:
        path.write_bytes((DATA / "workcell.urdf").read_bytes())
    whole = path.read_bytes()
    statuses = set()
    for k in range(60):
        bad = bytearray(whole)
        if k % 3 == 0:
            bad = bad[: int(rng.integers(1, len(bad)))]
        for at in rng.integers(0, len(bad), int(rng.integers(0, 6))):
            bad[at] = int(rng.integers(0, 256)) if k % 2 else ord(rng.choice([*'<>"/{}[],0-e. ']))
        path.write_bytes(bad)
        commands = [["view", path]] if kind == "npz" else [["info", path], ["check", path]]
        for command in commands:
            status, _, err = torsor(*command)
            statuses.add(status)
            assert status in (0, 1, 2), command
            assert status < 2 or (err.count("\n") == 1 and err.startswith("torsor: error: ")), err
    assert 2 in statuses


def test_lists_that_begin_with_a_negative_number(torsor, tmp_path):
    out = tmp_path / "motion.npz"
    numbers = ("--q0", "-1,2", "--v0", "-.5,0", "--gravity", "-1,0,-9")
    assert torsor("simulate", "example:acrobot", "--steps", 2, *numbers, "-o", out, "--quiet")[0] == 0
    motion = ts.Trajectory.load(out)
    np.testing.assert_array_equal(motion.q[0], [-1.0, 2.0])
    np.testing.assert_array_equal(motion.v[0], [-0.5, 0.0])
    np.testing.assert_array_equal(motion.model.gravity, [-1.0, 0.0, -9.0])


@pytest.mark.skipif(sys.platform == "win32", reason="links and limits of sizes are those of POSIX")
def test_files_are_written_whole_or_not_at_all(torsor, tmp_path):
    import resource

    model = ts.models.acrobot()
    motion = ts.simulate(model, model.neutral, steps=50, integrator=ts.BDF1(h=1e-2))
    (tmp_path / "link.npz").symlink_to(tmp_path / "motion.npz")
    assert torsor("simulate", "example:acrobot", "--steps", 2, "-o", tmp_path / "link.npz", "--quiet")[0] == 0
    assert (tmp_path / "link.npz").is_symlink()
    old = (tmp_path / "motion.npz").read_bytes()
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
        with pytest.raises(OSError, match=r"motion\.npz"):
            motion.save(tmp_path / "motion.npz")
        with pytest.raises(OSError, match=r"model\.json"):
            model.save(tmp_path / "model.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "motion.npz").read_bytes() == old
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.npz", "motion.npz"]
