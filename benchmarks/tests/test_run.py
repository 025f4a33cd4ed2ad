"""`run.py` runs: every section with hardly any repeats, its checks, table, file and picture."""

import gc
import json
from dataclasses import replace

import calls
import measure
import mujoco_peer
import pytest
import robots
import run
from plot import draw

import torsor as ts

TINY = run.Plan(
    effort=measure.Effort(turn=1e-6, repeats=2, seconds=0.0, limit=0.0, fewest=2),
    batch=9,
    lengths=(2, 5),
    links=3,
    steps=3,
    rollouts=5,
    rollout_steps=2,
    simulated=(2, 5),
    reversed=(3,),
    motions=3,
    links_of_file=7,
    imports=1,
    copied=1 << 12,
)
MACHINES = ["panda", "HyQ", "Talos", "chain 2", "chain 5"]
MODELS = {  # in order, without repetitions
    "state": MACHINES,
    "batch": MACHINES,
    "hybrid": MACHINES,
    "threads": MACHINES if measure.cores() > 1 else [],
    "length": ["one state", "batch"],
    "joints": ["Universal", "SphericalEuler", "Free2D"],
    "derivatives": ["panda", "HyQ", "Talos"],
    "constraints": ["HyQ", "Talos"],
    "loops": ["four-bar", "Stewart", "100 links"],
    "contact": ["quadruped", "HyQ", "10 boxes"],
    "directions": ["panda", "HyQ", "Talos"],
    "growth": ["chains", "balanced trees"],
    "simulation": ["UR5", "HyQ", "Talos", "chains", "chain 2", "chain 5", "chain 3"],
    "motions": ["UR5", "HyQ", "Talos", "chain 20"],
    "variational": ["chain 20", "chain 128", "chains", *(f"chain {n}" for n in (4, 8, 12, 16, 32, 64))],
    "files": ["PR2", "Talos", "7 links", "panda", "TIAGo"],
    "import": [""],
    "memory": ["panda", "HyQ", "Talos", ""],
}
TARGETS = {
    "state": {2.5, 2.8, 1.5},
    "batch": {12},
    "hybrid": {1.5},
    "threads": {1.7, None},
    "length": {1.5},
    "joints": {2.0},
    "derivatives": {2.4, 2.5, 10.0, 3.3, None},
    "constraints": {3, 2.5, 12, 5, 1.8, None},
    "loops": {5, 3, 2.5},
    "contact": {2.0, 3.0, 1.0, 8.0, 60.0, None},
    "directions": {3.0, 5.0},
    "growth": {None},
    "simulation": {4.0, 3.0, 60.0, 2.0, 2.5, None},
    "motions": {14.0, 4.5, 12.0, 10.0, 1.8, 15.0, 9.0, 1.2, 20.0, 1.25, 2.7, 2.5, None}
    | ({1.7} if measure.cores() > 1 else set()),
    "variational": {0.08, 0.4, 12.0, 0.15, None} | ({1.7} if measure.cores() > 1 else set()),
    "files": {60.0, 2.0, 1.1, None},
    "import": {30.0},
    "memory": {None},
}


def test_a_short_run_has_all_sections_makes_a_file_and_a_picture(tmp_path):
    results = run.run(TINY, list(run.SECTIONS))
    assert results.keys() == run.SECTIONS.keys()
    for section, lines in results.items():
        assert list(dict.fromkeys(line.model for line in lines)) == MODELS[section], section
        if lines:
            assert {line.target for line in lines} == TARGETS[section], section
        for line in lines:
            assert line.other > 0
            assert line.value > 0
            assert line.ours is None or line.ours > 0
            assert ("ok" in run.row(line) or "BELOW" in run.row(line)) == (line.target is not None)
    check_directions(results["variational"])
    report = json.loads(json.dumps(run.as_json(results, TINY, measure.machine())))
    assert report["sections"].keys() == run.SECTIONS.keys()
    assert report["machine"]["lanes"] >= 1
    draw(report, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def check_directions(lines):
    """The two ways to a direction cross."""
    ours = [line for line in lines if "direction" in line.what]
    assert [int(line.model.split()[1]) for line in ours] == [4, 8, 12, 16, 32, 64, 128]
    assert ours[-1].value < 0.5  # O(n) against O(n^3), which no noise hides
    assert lines[-1].what == "links where both take the same time"
    assert 4 <= lines[-1].value <= 128


def test_robots_have_the_freedoms_of_the_issue():
    assert {pair.name: pair.model.nv for pair in robots.robots()} == {"panda": 7, "HyQ": 18, "Talos": 38}


@pytest.mark.parametrize("size", [None, 5])
def test_different_models_are_noticed(size):
    pair = robots.chain(4)
    states = calls.random_states(pair.model, size)
    theirs = calls.peer_calls(pair, states)
    calls.check_pair(pair, states, calls.our_calls(pair.model, states), theirs)
    other = pair.model.with_gravity((0, 0, -9.81 * (1 + 1e-7)))
    with pytest.raises(calls.Disagreement, match=r"chain 4, pin\.rnea"):
        calls.check_pair(pair, states, calls.our_calls(other, states), theirs)


def test_different_models_of_mujoco_are_noticed():
    model = robots.ur5().model
    pair = mujoco_peer.mujoco_pair("UR5", model, 0.01)
    states, many = calls.random_states(model), calls.random_states(model, 3)
    mujoco_peer.check_accelerations(pair, states)
    mujoco_peer.check_rollouts(pair, many, 0.01, 4)
    other = replace(pair, model=model.with_gravity((0, 0, -9.81 * (1 + 1e-6))))
    with pytest.raises(calls.Disagreement, match="UR5, accelerations"):
        mujoco_peer.check_accelerations(other, states)
    with pytest.raises(calls.Disagreement, match="UR5, rollouts"):
        mujoco_peer.check_rollouts(other, many, 0.01, 4)


def test_rollouts_of_a_floating_body_converge_to_those_of_mujoco():
    model = ts.models.humanoid()
    pair, many = mujoco_peer.mujoco_pair("humanoid", model, 0.005), calls.random_states(model, 3)
    mujoco_peer.check_rollouts(pair, many, 0.005, 4)
    other = replace(pair, model=model.with_gravity((0, 0, -9.81 * 1.01)))
    with pytest.raises(calls.Disagreement, match="half the step leaves"):
        mujoco_peer.check_rollouts(other, many, 0.005, 4)


def test_models_of_mujoco_have_motors_and_no_fixed_bodies():
    pair = mujoco_peer.mujoco_pair("humanoid", ts.models.humanoid(), 0.005)
    moving = [body for body in pair.model.bodies if not isinstance(body.joint, ts.Fixed)]
    assert (pair.peer.nv, pair.peer.nu, pair.peer.nbody) == (pair.model.nv, pair.model.nv - 6, len(moving) + 1)
    assert pair.peer.opt.timestep == 0.005
    assert pair.peer.body_mass.sum() == pytest.approx(pair.model.mass)


def test_nan_is_noticed():
    with pytest.raises(calls.Disagreement):
        calls.agree("nothing", float("nan") * calls.np.ones(2), calls.np.ones(2))


def test_general_joints_and_their_parts_have_the_same_freedoms():
    for general, parts in robots.GENERAL.values():
        assert robots.joint_tree([general], 5).nv == robots.joint_tree(parts, 5).nv == 5 * len(parts)


def test_hybrid_prescribes_half_of_the_joints():
    assert calls.half_of_joints(ts.models.chain(5)).tolist() == [False, True, False, True, False]


def test_calls_take_turns_back_and_forth_without_garbage_collection():
    log, collecting = [], []
    names = {"log": log, "collecting": collecting, "gc": gc}
    effort = measure.Effort(turn=0.0, repeats=3, seconds=0.0, limit=9.0, fewest=1)
    times = measure.measure(
        {name: calls.Call(f"log.append('{name}'); collecting.append(gc.isenabled())", names) for name in "ab"},
        effort,
    )
    assert times.keys() == {"a", "b"}
    assert "".join(log) == "aabb" + "ab" + "ba" + "ab"  # the first ones to warm up and to see how long they take
    assert not any(collecting)
    assert gc.isenabled()


def test_calibration_counts_calls():
    assert measure.calibrate(lambda count: 1e-6 * count, 2e-3) * 1e-6 >= 2e-3
    assert measure.calibrate(lambda count: 1e-6 * count, 2e-3) < 4000
    assert measure.calibrate(lambda count: 5.0 * count, 2e-3) == 1


def test_verdicts():
    line = run.faster("arm", "inverse dynamics", 1e-6, 2.4e-6, 2.5)
    assert not line.met
    assert "2.40 x  >= 2.5  BELOW" in run.row(line)
    assert replace(line, value=2.5).met
    line = run.within("arm", "hybrid dynamics", 1.6e-6, 1e-6, 1.5)
    assert not line.met
    assert replace(line, value=1.5).met


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_exit_code(monkeypatch, capsys, options, code):
    missed = run.faster("arm", "inverse dynamics", 1.0, 1.0, 2.5)
    section = run.Section("Title", ("a", "b", "c"), lambda plan: iter([missed]))
    monkeypatch.setattr(run, "SECTIONS", {"state": section})
    assert run.main(["--only", "state", *options]) == code
    out = capsys.readouterr().out
    assert "BELOW" in out
    assert "0 of 1 targets met" in out
    assert f"torsor {ts.__version__}" in out


def test_disagreement_ends_the_run(monkeypatch, capsys):
    def lines(plan):
        raise calls.Disagreement("arm: the results differ")

    monkeypatch.setattr(run, "SECTIONS", {"state": run.Section("Title", ("a", "b", "c"), lines)})
    assert run.main(["--only", "state"]) == 1
    assert "the results differ" in capsys.readouterr().err


def test_stored_results_are_of_a_whole_run():
    report = json.loads(run.RESULTS.read_text())
    assert report["sections"].keys() == run.SECTIONS.keys()
    assert report["plan"]["batch"] == run.Plan().batch
