"""What tests of derivatives run over: every joint there is, and trees of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import torsor as ts
from torsor import testing

FRAMES = ("body", "world", "local_world_aligned")


class BarrelCam(ts.CustomJoint):
    """Turns about z by q and slides along z by 0.4 sin(q). One state at a time."""

    dofs = 1

    def T(self, q):
        c, s = np.cos(q[0]), np.sin(q[0])
        return np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0.4 * s], [0, 0, 0, 1]])

    def S(self, q):
        return np.array([0, 0, 1, 0, 0, 0.4 * np.cos(q[0])]).reshape(6, 1)

    def dS(self, q):
        return np.array([0, 0, 0, 0, 0, -0.4 * np.sin(q[0])]).reshape(6, 1, 1)

    def d2S(self, q):
        return np.array([0, 0, 0, 0, 0, -0.4 * np.cos(q[0])]).reshape(6, 1, 1, 1)


class Own(ts.CustomJoint):
    """A built-in joint behind the contract for joints of the user's own."""

    def __init__(self, inner: ts.Joint, batched: bool = True) -> None:
        self.inner, self.dofs, self.batched = inner, inner.nv, batched

    def T(self, q):
        return self.inner.T(q)

    def S(self, q):
        return self.inner.S(q)

    def dS(self, q):
        return self.inner.dS(q)

    def d2S(self, q):
        return self.inner.d2S(q)


JOINTS = (*testing.example_joints(), BarrelCam(), Own(ts.SphericalExp()), Own(ts.Universal(), batched=False))
CURVE, SURFACE = (next(j for j in JOINTS if isinstance(j, kind)) for kind in (ts.SplineCurve, ts.SplineSurface))


def models(seed: int) -> Iterator[Any]:
    """Two of every joint, in trees on the world and again in trees on a free base.

    In all of them bodies on fixed joints: on the world, between others, and at the tips.
    """
    rng = np.random.default_rng(seed)
    for turn in range(2):
        for part, order in enumerate(np.array_split(rng.permutation(len(JOINTS)), len(JOINTS) // 7)):
            picked = [JOINTS[k] for k in order]
            joints = [ts.Fixed(), *[ts.Free()] * turn, *picked[:3], ts.Fixed(), *picked[3:], ts.Fixed()]
            tree = testing.random_tree(2 * part + turn, joints, branching=0.3)
            yield pytest.param(tree, id=f"{'free' if turn else 'fixed'}-{part}")
