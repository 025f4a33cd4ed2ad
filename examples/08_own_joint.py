"""A user-defined joint, written in Python: a barrel cam, which lifts the body by h sin(q) as it turns by q."""

import numpy as np

import torsor as ts
from torsor import testing


class BarrelCam(ts.CustomJoint):
    """Turns about z by q and slides along z by h sin(q)."""

    dofs = 1

    def __init__(self, h):
        self.h = h

    def T(self, q):
        c, s = np.cos(q[0]), np.sin(q[0])
        return np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, self.h * s], [0, 0, 0, 1]])

    def S(self, q):
        return np.array([0, 0, 1, 0, 0, self.h * np.cos(q[0])]).reshape(6, 1)

    def dS(self, q):
        return np.array([0, 0, 0, 0, 0, -self.h * np.sin(q[0])]).reshape(6, 1, 1)

    def d2S(self, q):
        return np.array([0, 0, 0, 0, 0, -self.h * np.cos(q[0])]).reshape(6, 1, 1, 1)


# The library checks that T, S and the derivatives agree.
joint = BarrelCam(h=0.05)
testing.check_joint(joint)

b = ts.ModelBuilder("cam")
b.add_body("drum", joint=joint, inertia=ts.Inertia.cylinder(radius=0.1, length=0.2, mass=3.0))
b.add_body("arm", "drum", ts.Revolute((0, 1, 0)), inertia=ts.Inertia.point(0.5, (0.3, 0, 0)))
model = b.build()
print(model)

q, v = np.array([0.7, 0.2]), np.array([3.0, 0.0])
print("falls with acceleration", ts.forward_dynamics(model, q, v, np.zeros(2)))

# The drum's entry of the mass matrix, in closed form.
drum = model.lock({"arm": 0.2}).with_inertia("drum", model.body("drum").inertia)
M = ts.mass_matrix(drum, q[:1])
assert np.allclose(M, 0.5 * 3.0 * 0.1**2 + 3.0 * (0.05 * np.cos(0.7)) ** 2)
