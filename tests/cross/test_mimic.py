"""Couplings of robots with mimic joints against Pinocchio's, which has inverse dynamics and mass matrices of them."""

import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

import torsor as ts

ROBOTS = Path(
    str(metadata.distribution("example-robot-data").locate_file("cmeel.prefix/share/example-robot-data/robots"))
)
NAMES = (
    "baxter_description/urdf/baxter.urdf",
    "panda_description/urdf/panda.urdf",
    "pr2_description/urdf/pr2.urdf",
    "tiago_pro_description/robots/tiago_pro.urdf",
)


def mimics(path):
    """{follower: (leader, ratio, offset)} of a file."""
    out = {}
    for joint in ElementTree.parse(path).getroot().findall("joint"):
        tag = joint.find("mimic")
        if tag is not None and joint.get("type") != "fixed":
            numbers = float(tag.get("multiplier", 1.0)), float(tag.get("offset", 0.0))
            out[joint.get("name")] = (tag.get("joint"), *numbers)
    return out


@pytest.mark.filterwarnings("ignore::torsor.FormatWarning")
@pytest.mark.parametrize("name", NAMES)
def test_robots_with_mimic_joints(name):
    path = ROBOTS / name
    model = ts.load_urdf(path, mimic="ignore").couple(mimics(path))
    reference = pin.buildModelFromUrdf(str(path), True)
    assert model.nv == reference.nv < model.tree.nv
    rng = np.random.default_rng(0)
    q, v, a = 0.5 * rng.standard_normal(model.nq), *rng.standard_normal((2, model.nv))
    q_pin, order = pin.neutral(reference), np.zeros(model.nv, int)
    for i in range(1, reference.njoints):
        theirs = reference.joints[i]
        if "Mimic" in theirs.shortname():
            continue
        ours = model.joint(reference.names[i])
        angle = q[ours.q_slice]
        q_pin[theirs.idx_q : theirs.idx_q + theirs.nq] = (
            angle if theirs.nq == 1 else (np.cos(angle[0]), np.sin(angle[0]))
        )
        order[theirs.idx_v] = ours.v_slice.start
    data = reference.createData()
    tau = pin.rnea(reference, data, q_pin, v[order], a[order])
    M = pin.crba(reference, data, q_pin)
    M = np.triu(M) + np.triu(M, 1).T
    np.testing.assert_allclose(ts.inverse_dynamics(model, q, v, a)[order], tau, rtol=0, atol=1e-13 * np.abs(tau).max())
    np.testing.assert_allclose(ts.mass_matrix(model, q)[np.ix_(order, order)], M, rtol=0, atol=1e-13 * np.abs(M).max())
