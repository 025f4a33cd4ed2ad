"""Build a model, and go from accelerations to efforts and back."""

import numpy as np

import torsor as ts

b = ts.ModelBuilder("double pendulum")
rod = ts.Inertia.cylinder(radius=0.02, length=0.5, mass=0.8, com=(0, 0, -0.25))
axis = ts.Revolute(axis=(0, 1, 0))
b.add_body("upper", parent="world", joint=axis, inertia=rod, joint_name="shoulder")
b.add_body("lower", "upper", axis, ts.SE3.translation(0, 0, -0.5), rod, joint_name="elbow")
model = b.build()
print(model)

q, v, a = np.array([0.3, -0.5]), np.array([1.0, 2.0]), np.array([0.0, -1.0])
tau = ts.inverse_dynamics(model, q, v, a)
print("efforts        ", tau)
print("accelerations  ", ts.forward_dynamics(model, q, v, tau))

# The terms of inverse dynamics: tau = M a + C v + gravity.
M = ts.mass_matrix(model, q)
C = ts.coriolis_matrix(model, q, v)
assert np.allclose(M @ a + C @ v + ts.gravity_forces(model, q), tau)

# Names give slices of q, v and tau.
print("effort at elbow", tau[model.joint("elbow").v_slice])
