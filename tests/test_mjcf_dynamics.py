"""Models of tests/mjcf_models.py: accelerations under all that their files have, against MuJoCo's."""

import numpy as np
import pytest
from mjcf_models import MODELS

import torsor as ts
from torsor import interop

mujoco = pytest.importorskip("mujoco")

RIGID = ("CONTACT", "LIMIT", "FRICTIONLOSS", "EQUALITY")  # what MuJoCo solves softly


def smooth(text: str) -> mujoco.MjModel:
    mj = mujoco.MjModel.from_xml_string(text)
    for flag in RIGID:
        mj.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))
    return mj


def states(mj: mujoco.MjModel, model: ts.Model, seed: int, count: int = 5):
    """Random states and controls in MuJoCo, with the same here."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        data = mujoco.MjData(mj)
        q, v = model.random(rng), rng.standard_normal(model.nv)
        for j in model.joints:  # of one coordinate: within a turn
            if j.nq == 1:
                q[j.q_slice] = rng.uniform(-1.0, 1.0)
        u = 1.5 * rng.standard_normal(mj.nu)
        data.qpos[:], data.qvel[:] = interop.to_mujoco(model, q, v)
        data.ctrl[:] = u
        mujoco.mj_forward(mj, data)
        yield data, q, v, u


def accelerations(model: ts.Model, q, v, forces, tau=0.0):
    tau = ts.generalized_forces(model, forces, q, v) + tau
    a = ts.forward_dynamics(model, q, v, tau)
    return interop.to_mujoco(model, q, v, a)[2]


@pytest.mark.parametrize("name", MODELS)
def test_accelerations_are_those_of_mujoco(name: str) -> None:
    mj = smooth(MODELS[name])
    model = ts.load_mjcf(mj)
    assert (model.nq, model.nv, len(model.actuators)) == (mj.nq, mj.nv, mj.nu)
    passive = ts.forces_from(model, friction=False, actuators=False)
    for data, q, v, u in states(mj, model, seed=len(name)):
        a = accelerations(model, q, v, [*passive, ts.ActuatorForce(model, u)] if mj.nu else passive)
        scale = np.abs(data.qacc).max()
        np.testing.assert_allclose(a, data.qacc, rtol=0, atol=1e-10 * max(scale, 1.0))
        M = np.zeros((mj.nv, mj.nv))
        mujoco.mj_fullM(mj, data, M) if mujoco.__version__ >= "4" else mujoco.mj_fullM(mj, M, data.qM)
        free = [j for j in model.joints if isinstance(j.joint, ts.Free)]
        if not free:  # whose velocities have other frames
            np.testing.assert_allclose(ts.mass_matrix(model, q), M, rtol=1e-12, atol=1e-12 * np.abs(M).max())
