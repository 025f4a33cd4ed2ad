"""Random MJCF files against MuJoCo: what is held acts as there, and what is not is named."""

import warnings

import numpy as np
import pytest
from mjcf_random import RandomFile
from test_mjcf_dynamics import accelerations, smooth, states

import torsor as ts
from torsor import interop

mujoco = pytest.importorskip("mujoco")


def compiled(seed: int, odd: bool) -> mujoco.MjModel:
    """The compiled file, without what MuJoCo solves softly."""
    return smooth(RandomFile(seed, odd).text)


def mass_matrix(mj: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    M = np.zeros((mj.nv, mj.nv))
    mujoco.mj_fullM(mj, data, M) if mujoco.__version__ >= "4" else mujoco.mj_fullM(mj, M, data.qM)
    return M


def name_of(mj: mujoco.MjModel, kind: str, i: int) -> str:
    return mujoco.mj_id2name(mj, getattr(mujoco.mjtObj, f"mjOBJ_{kind}"), i)


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_what_is_held_acts_as_in_mujoco(first: int) -> None:
    """Poses of bodies and sites, the mass matrix, forces of springs and of actuators, accelerations."""
    compared = 0
    for seed in range(first, first + 20):
        mj = compiled(seed, odd=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = ts.load_mjcf(mj, unsupported="warn")
        if caught:
            assert "measures the rotation of a ball" in str(caught[0].message)
        if caught or not model.nv:
            continue
        passive = ts.forces_from(model, friction=False, actuators=False)
        for data, q, v, u in states(mj, model, seed, count=2):
            M = mass_matrix(mj, data)
            if (condition := np.linalg.cond(M)) > 1e10:
                continue
            compared += 1
            for kind, poses in (("BODY", data.xpos), ("SITE", data.site_xpos)):
                for i in range(kind == "BODY", len(poses)):
                    pose = ts.body_pose(model, q, name_of(mj, kind, i))
                    np.testing.assert_allclose(pose[:3, 3], poses[i], rtol=0, atol=1e-12, err_msg=str(seed))
            ours = interop.convert_matrix(model, q, ts.mass_matrix(model, q), to="mujoco")
            np.testing.assert_allclose(ours, M, rtol=0, atol=1e-12 * np.abs(M).max(), err_msg=str(seed))
            forces = [*passive, ts.ActuatorForce(model, u)] if mj.nu else [*passive]
            for which, theirs in ((passive, data.qfrc_passive), (forces[len(passive) :], data.qfrc_actuator)):
                if which:
                    tau = interop.to_mujoco(model, q, v, None, ts.generalized_forces(model, which, q, v))[-1]
                    scale = max(1.0, np.abs(theirs).max())
                    np.testing.assert_allclose(tau, theirs, rtol=0, atol=1e-11 * scale, err_msg=str(seed))
            a = accelerations(model, q, v, forces)
            scale = max(1.0, np.abs(data.qacc).max())
            tolerance = max(1e-10, 1e-15 * condition)  # of a solve
            np.testing.assert_allclose(a, data.qacc, rtol=0, atol=tolerance * scale, err_msg=str(seed))
    assert compared > 15


def test_what_is_not_held_is_named_once() -> None:
    """Where a file with odd parts loads without a warning, its accelerations are MuJoCo's; others have one warning."""
    named = 0
    for seed in range(1000, 1060):
        mj = compiled(seed, odd=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = ts.load_mjcf(mj, unsupported="warn")
        assert len(caught) <= 1
        if caught:
            named += 1
            with pytest.raises(ts.FormatError, match="what a model cannot hold"):
                ts.load_mjcf(mj)
            continue
        passive = ts.forces_from(model, friction=False, actuators=False)
        for data, q, v, u in states(mj, model, seed, count=1 if model.nv else 0):
            if (condition := np.linalg.cond(mass_matrix(mj, data))) < 1e10:
                a = accelerations(model, q, v, [*passive, ts.ActuatorForce(model, u)] if mj.nu else passive)
                scale, tolerance = max(1.0, np.abs(data.qacc).max()), max(1e-10, 1e-15 * condition)
                np.testing.assert_allclose(a, data.qacc, rtol=0, atol=tolerance * scale, err_msg=str(seed))
    assert 15 < named < 55


def test_equalities_have_the_rows_of_mujoco() -> None:
    """On configurations that satisfy them here, MuJoCo's are satisfied, and both allow the same velocities."""
    compared = 0
    for seed in range(60):
        mj = mujoco.MjModel.from_xml_string(RandomFile(seed, False).text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ts.FormatWarning)  # of tendons through sites
            model = ts.load_mjcf(mj, unsupported="warn")
        if len(model.constraints) < mj.neq or not model.constraints:
            continue
        try:
            q = ts.project(model, model.constraints, model.random(seed))
        except (ts.ConvergenceError, ts.SingularMassMatrixError):  # of equalities that cannot be met
            continue
        for flag in ("CONTACT", "LIMIT", "FRICTIONLOSS"):
            mj.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))
        mj.opt.jacobian, data = 0, mujoco.MjData(mj)
        data.qpos[:] = interop.to_mujoco(model, q, np.zeros(model.nv))[0]
        mujoco.mj_forward(mj, data)
        np.testing.assert_allclose(data.efc_pos[: data.ne], 0, atol=1e-7, err_msg=str(seed))
        turned = np.stack([interop.from_mujoco(model, data.qpos, e)[1] for e in np.eye(mj.nv)], axis=1)
        theirs = data.efc_J.reshape(-1, mj.nv)[: data.ne]
        ours = ts.constraint_jacobian(model, model.constraints, q) @ turned
        ranks = [np.linalg.matrix_rank(J, 1e-7) for J in (theirs, ours, np.vstack([theirs, ours]))]
        assert ranks[0] == ranks[1] == ranks[2], seed
        compared += 1
    assert compared > 10
