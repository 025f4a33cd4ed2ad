"""The random stiff scenes are what they say: deterministic, of every joint and force, and sound."""

import numpy as np
import pytest
from population import JOINTS
from stiff_scenes import KINDS, stiff_scene

import torsor as ts
from torsor import testing


def test_every_joint_and_force_occurs():
    joints, forces = set(), set()
    for seed in range(250):
        scene = stiff_scene(seed, KINDS[seed % len(KINDS)])
        joints |= {b.joint if isinstance(b.joint, ts.SphericalEuler) else type(b.joint) for b in scene.model.bodies}
        forces |= {type(f) for f in scene.forces}
        assert scene.u.shape == scene.v.shape == (scene.model.nv,) and np.abs(scene.v).max() <= 10
        a = ts.inverse_dynamics(scene.model, scene.q, scene.v, scene.v)
        a = a + ts.generalized_forces(scene.model, scene.forces, scene.q, scene.v)
        assert np.isfinite(a).all()
    assert joints >= {j if isinstance(j, ts.SphericalEuler) else type(j) for j in (ts.Fixed(), *JOINTS)}
    assert forces >= {type(f) for f in testing.example_forces(testing.random_tree(0), 0)}


@pytest.mark.parametrize("kind", KINDS)
def test_same_for_the_same_seed(kind):
    first, again = (stiff_scene(7, kind) for _ in range(2))
    for a, b in zip(first[2:], again[2:], strict=True):
        np.testing.assert_array_equal(a, b)
    assert first.model == again.model
    at = first.q, first.v
    torques = (ts.generalized_forces(s.model, s.forces, *at) for s in (first, again))
    np.testing.assert_array_equal(*torques)
