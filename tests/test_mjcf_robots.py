"""MJCF files of robots: loaded, driven by their actuators, simulated, differentiated."""

import numpy as np
import pytest
from mjcf_robots import ROBOTS
from test_mjcf_dynamics import accelerations, smooth, states

import torsor as ts

mujoco = pytest.importorskip("mujoco")


@pytest.mark.parametrize("name", ROBOTS)
def test_accelerations_are_those_of_mujoco(name: str) -> None:
    mj = smooth(ROBOTS[name])
    model = ts.load_mjcf(mj)
    passive = ts.forces_from(model, friction=False, actuators=False)
    for data, q, v, u in states(mj, model, seed=5, count=3):
        a = accelerations(model, q, v, [*passive, ts.ActuatorForce(model, u)])
        np.testing.assert_allclose(a, data.qacc, rtol=0, atol=1e-10 * max(1.0, np.abs(data.qacc).max()))


@pytest.mark.parametrize(("name", "equality"), [*((name, "constrain") for name in ROBOTS), ("hand", "couple")])
def test_motions_and_their_gradients(name: str, equality) -> None:
    """Forty steps from a keyframe or a closed configuration; gradients by controls against differences."""
    model = ts.load_mjcf(ROBOTS[name], equality=equality)
    home = model.keyframes.get("home")
    q = model.start if home is None else np.array(home.q)
    q = ts.project(model, model.constraints, q) if model.constraints else q
    u = np.full(len(model.actuators), 0.1) if home is None else np.array(home.controls)
    passive = ts.forces_from(model, actuators=False)
    forces = [*passive, *ts.contacts(model, world_only=True), ts.ActuatorForce(model)]
    rng = np.random.default_rng(0)
    w, du = rng.standard_normal(model.nv), rng.standard_normal(len(u))

    def run(controls: np.ndarray) -> ts.Trajectory:
        signals = [*[None] * (len(forces) - 1), {"p": np.tile(controls, (40, 1))}]
        return ts.simulate(model, q, steps=40, integrator=ts.BDF2(2e-3), forces=forces, signals=signals)

    one = run(u)
    if model.constraints:
        assert np.abs(ts.constraint_errors(model, model.constraints, one.q)).max() < 1e-9
    signals = ts.adjoint(one, dloss_dq=w).signals
    assert signals is not None
    step = 1e-6  # within which dry friction does not pass its kinks
    ends = [run(u + sign * step * du).q[-1] for sign in (1, -1)]
    difference = w @ model.minus(ends[0], ends[1]) / (2 * step)
    np.testing.assert_allclose(np.sum(signals[-1]["p"] @ du), difference, rtol=1e-5)
