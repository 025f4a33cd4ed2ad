"""load_mjcf against MuJoCo itself: poses, velocities, mass matrix, inverse and forward dynamics."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from compare import to_within

import torsor as ts
from torsor.interop import from_mujoco, to_mujoco

close = to_within(1e-11, least=1e-300)  # of the largest entry, however small
PLAYGROUND = Path(__file__).parents[1] / "data" / "playground.xml"


def random_mjcf(seed: int) -> str:
    """A random tree: bodies anywhere, up to six joints of any kind on each, anywhere, with any reference."""
    rng = np.random.default_rng(seed)

    def numbers(*values: float) -> str:
        return " ".join(map(repr, map(float, values)))

    def pose() -> str:
        return f'pos="{numbers(*rng.normal(size=3))}" quat="{numbers(*rng.normal(size=4))}"'

    def joint(kind: str) -> str:
        place = f'pos="{numbers(*rng.normal(size=3) * rng.integers(2))}"'
        axis = f'axis="{numbers(*rng.normal(size=3))}" ref="{float(rng.normal() * rng.integers(2))!r}"'
        return f'<joint type="{kind}" {place} {"" if kind == "ball" else axis}/>'

    def inertial() -> str:
        moments = numbers(*rng.uniform(1, 1.9, 3))
        return f'<inertial {pose()} mass="{float(rng.uniform(0.1, 2))!r}" diaginertia="{moments}"/>'

    def body(depth: int) -> str:
        joints = "<freejoint/>"
        if depth > 0 or rng.random() < 0.5:
            hinges, slides = ["hinge"] * int(rng.integers(4)), ["slide"] * int(rng.integers(4))
            kinds = [str(kind) for kind in rng.permutation([*hinges, *slides])]
            if rng.random() < 0.2:  # MuJoCo takes no rotation after a ball
                kinds = [*slides[:1], "ball", *slides[1:]]
            joints = "".join(joint(kind) for kind in kinds)
        children = [body(depth + 1) for _ in range(rng.integers(3))] if depth < 3 else []
        return f"<body {pose()}>{joints}{inertial()}{''.join(children)}</body>"

    bodies = "".join(body(0) for _ in range(3))
    compiler = '<compiler angle="radian"/><option gravity="1 2 3"/>'
    return f"<mujoco>{compiler}<worldbody>{bodies}</worldbody></mujoco>"


@pytest.fixture(
    scope="module", params=["playground", *range(20)], ids=lambda p: p if isinstance(p, str) else f"tree{p}"
)
def pair(request: pytest.FixtureRequest) -> tuple[ts.Model, Any]:
    if request.param == "playground":
        return ts.load_mjcf(PLAYGROUND), mujoco.MjModel.from_xml_path(str(PLAYGROUND))
    text = random_mjcf(request.param)
    return ts.load_mjcf(text), mujoco.MjModel.from_xml_string(text)


def state(model: ts.Model, mj: Any, seed: int) -> tuple[Any, tuple[np.ndarray, ...]]:
    """MuJoCo's data at a random state, all forces but gravity left out, and the same state of ours."""
    rng = np.random.default_rng(seed)
    q, v, a = model.random(rng), rng.standard_normal(model.nv), rng.standard_normal(model.nv)
    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:], data.qacc[:] = to_mujoco(model, q, v, a)
    mujoco.mj_fwdPosition(mj, data)
    mujoco.mj_fwdVelocity(mj, data)
    return data, (q, v, a)


def mujoco_bodies(model: ts.Model, mj: Any) -> list[int]:
    """Where MuJoCo's bodies are among ours."""
    ours = [body.name for body in model.bodies]
    return [ours.index(mj.body(i).name or f"body{i}") for i in range(1, mj.nbody)]


def test_sizes(pair: tuple[ts.Model, Any]) -> None:
    model, mj = pair
    assert (model.nq, model.nv) == (mj.nq, mj.nv)
    data = mujoco.MjData(mj)
    close(to_mujoco(model, from_mujoco(model, data.qpos)), data.qpos)


@pytest.mark.parametrize("seed", range(3))
def test_poses_and_velocities(pair: tuple[ts.Model, Any], seed: int) -> None:
    model, mj = pair
    data, (q, v, _) = state(model, mj, seed)
    bodies = mujoco_bodies(model, mj)
    poses = ts.body_poses(model, q)[bodies]
    close(poses[:, :3, 3], data.xpos[1:])
    close(poses[:, :3, :3], data.xmat[1:].reshape(-1, 3, 3))
    twists = ts.body_velocities(model, q, v)[bodies]
    for i, twist in enumerate(twists):
        theirs = np.zeros(6)
        mujoco.mj_objectVelocity(mj, data, mujoco.mjtObj.mjOBJ_XBODY, i + 1, theirs, 1)
        np.testing.assert_allclose(twist, theirs, atol=1e-11 * (1 + np.abs(twists).max()))


@pytest.mark.parametrize("seed", range(3))
def test_dynamics(pair: tuple[ts.Model, Any], seed: int) -> None:
    model, mj = pair
    data, (q, v, a) = state(model, mj, seed)
    tau = ts.inverse_dynamics(model, q, v, a)
    theirs = np.zeros(mj.nv)
    mujoco.mj_rne(mj, data, 1, theirs)
    close(to_mujoco(model, q, v, a, tau)[3], theirs)
    close(from_mujoco(model, data.qpos, data.qvel, data.qacc, theirs)[3], tau)

    M = ts.mass_matrix(model, q)
    mujoco.mj_energyVel(mj, data)
    close(0.5 * v @ M @ v, data.energy[1])

    data.qfrc_applied[:] = theirs
    mujoco.mj_fwdActuation(mj, data)
    mujoco.mj_fwdAcceleration(mj, data)
    acceleration = to_mujoco(model, q, v, ts.forward_dynamics(model, q, v, tau))[2]
    bound = 1e-14 * np.linalg.cond(M) * np.abs(data.qacc).max()  # what rounding does to a solution with M
    np.testing.assert_allclose(acceleration, data.qacc_smooth, rtol=0, atol=max(bound, 1e-11))
