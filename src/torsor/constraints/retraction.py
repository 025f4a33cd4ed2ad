"""Derivatives of `Model.plus` along a displacement, for joints on groups: rotations and poses.

plus(q, xi + d) = plus(plus(q, xi), J d) and plus(plus(q, d), xi) = plus(plus(q, xi), A d) to first order, with J the
right Jacobian of the exponential and A = Ad(exp(-xi)). Both are the identity for all other joints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torsor import spatial
from torsor._core import complex_step as STEP
from torsor.joints import Composite, Free, Joint, Spherical
from torsor.model import Model

if TYPE_CHECKING:
    from torsor._typing import FloatArray


class Retraction:
    """J, A and the derivative of J^T w of a model, at displacements xi (L, nv)."""

    def __init__(self, model: Model) -> None:
        self.nv = model.nv
        self.groups: list[slice] = []  # the velocities of joints on groups: three of a rotation, six of a pose
        for joint in model.joints:
            self._add(joint.joint, joint.v_slice.start)

    def _add(self, joint: Joint, at: int) -> None:
        if isinstance(joint, Composite):
            for part in joint.joints:
                self._add(part, at)
                at += part.nv
        elif isinstance(joint, (Spherical, Free)):
            self.groups.append(slice(at, at + joint.nv))

    def jacobian(self, xi: FloatArray) -> FloatArray:
        """J (L, nv, nv)."""
        out = np.zeros((*xi.shape, self.nv))
        out[:] = np.eye(self.nv)
        for at in self.groups:
            out[:, at, at] = _dexp(xi[:, at])
        return out

    def transport(self, xi: FloatArray) -> FloatArray:
        """A (L, nv, nv)."""
        out = np.zeros((*xi.shape, self.nv))
        out[:] = np.eye(self.nv)
        for at in self.groups:
            d = -xi[:, at]
            out[:, at, at] = spatial.exp3(d) if d.shape[-1] == 3 else spatial.Ad(spatial.exp6(d))
        return out

    def curvature(self, xi: FloatArray, w: FloatArray) -> FloatArray:
        """d(J^T w)/dxi (L, nv, nv) for covectors w (L, nv), by complex steps: exact to rounding."""
        out = np.zeros((*xi.shape, self.nv))
        for at in self.groups:
            n = at.stop - at.start
            moved = xi[:, None, at] + 1j * STEP * np.eye(n)
            out[:, at, at] = np.einsum("lkij,li->ljk", _dexp(moved).imag / STEP, w[:, at])
        return out


def _dexp(xi: FloatArray) -> FloatArray:
    return np.asarray(spatial.dexp3(xi) if xi.shape[-1] == 3 else spatial.dexp6(xi))
