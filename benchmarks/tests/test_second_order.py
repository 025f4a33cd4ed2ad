"""`second_order.py` runs, and its peers are compiled once. Needs the packages of `make bench-cpp`."""

from dataclasses import replace

import calls
import casadi
import measure
import numpy as np
import peers
import pytest
import robots
import run
import second_order
from generated import inverse_dynamics

import torsor as ts

ANSWER = '__attribute__((visibility("default"))) int answer(void) { return 42; }'
TINY = replace(
    second_order.PLAN,
    effort=measure.Effort(turn=1e-6, repeats=2, seconds=0.0, limit=0.0, fewest=2),
    batch=9,
    lengths=(2, 5),
)
MODELS = {
    "state": ["UR5", "panda", "HyQ", "Talos", "chain 2", "chain 5"],
    "batch": ["UR5", "panda", "HyQ", "Talos"],
    "generated": ["UR5"],
    "growth": ["chains", "balanced trees"],
}


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "CACHE", tmp_path)
    return tmp_path


def test_a_peer_is_compiled_when_its_source_changes_and_only_then(cache, capfd):
    for source, value, compiles in ((ANSWER, 42, 1), (ANSWER, 42, 0), (ANSWER.replace("2", "3"), 43, 1)):
        assert peers.compiled("the answer", source, ["-x", "c"]).answer() == value
        assert capfd.readouterr().err.count("compiling the answer, once: 0 s") == compiles
    assert len(list(cache.glob("*.so"))) == 2


def test_a_peer_that_does_not_compile_leaves_no_library(cache):
    with pytest.raises(RuntimeError, match="the answer could not be compiled"):
        peers.compiled("the answer", "int answer(", ["-x", "c"])
    assert not list(cache.glob("*.so"))


def test_dense_batches_fit_in_memory():
    sizes = {pair.name: second_order.dense_batch(pair.model, run.Plan()) for pair in (robots.ur5(), *robots.robots())}
    assert sizes == {"UR5": 4096, "panda": 4096, "HyQ": 256, "Talos": 32}
    assert second_order.dense_batch(robots.ur5().model, TINY) == 9


@pytest.mark.parametrize("name", ["UR5", "panda", "chain 4"])
def test_generated_code_is_of_the_same_robot(name):
    pair = {pair.name: pair for pair in (robots.ur5(), *robots.robots(), robots.chain(4))}[name]
    states = calls.random_states(pair.model)
    q, v, a = (casadi.SX.sym(name, pair.model.nv) for name in "qva")
    tau = casadi.Function("tau", [q, v, a], [inverse_dynamics(pair.peer, q, v, a)])(states.q, states.v, states.a)
    calls.agree(name, np.array(tau).ravel(), ts.inverse_dynamics(pair.model, states.q, states.v, states.a))


@pytest.mark.parametrize("section", second_order.SECTIONS)
def test_section_has_its_models_and_times(section):
    lines = run.run(TINY, [section], second_order.SECTIONS)[section]
    assert list(dict.fromkeys(line.model for line in lines)) == MODELS[section]
    for line in lines:
        assert line.ours > 0 and line.other > 0 and np.isfinite(line.value)


@pytest.mark.parametrize("contract", [False, True])
def test_different_models_are_noticed(contract):
    pair = robots.chain(4)
    states = calls.random_states(pair.model)
    tensors = peers.Pinocchio(pair.peer).tensors(calls.peer_states(pair, states))
    second_order.check(pair, second_order.our_job(pair.model, states, contract=contract), tensors)
    other = pair.model.with_gravity((0, 0, -9.81 * (1 + 1e-7)))
    with pytest.raises(calls.Disagreement, match="chain 4, d2tau_dqdq"):
        second_order.check(pair, second_order.our_job(other, states, contract=contract), tensors)
