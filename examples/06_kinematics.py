"""Poses and Jacobians: bring the hand of an arm to a point, by Gauss-Newton."""

import numpy as np

import torsor as ts

model = ts.models.arm7()
grip = np.array([0.0, 0.0, 0.10])  # a point of the hand, in the hand's frame
target = np.array([0.45, 0.20, 0.60])

q = model.neutral.copy()
q[model.joint("shoulder_pitch").q_slice] = 0.5
q[model.joint("elbow_pitch").q_slice] = 1.0
for step in range(20):
    error = target - ts.point_positions(model, q, "hand", grip)
    print(f"step {step}: {1e3 * np.linalg.norm(error):9.4f} mm away")
    if np.linalg.norm(error) < 1e-10:
        break
    J = ts.point_jacobian(model, q, "hand", grip)
    q = model.plus(q, np.linalg.lstsq(J, error, rcond=None)[0])
assert np.linalg.norm(error) < 1e-10

# What holding a kilogram there costs each joint: gravity, and J^T times the weight.
effort = ts.gravity_forces(model, q) + ts.point_jacobian(model, q, "hand", grip).T @ [0, 0, 9.81]
for joint, e in zip([j for j in model.joints if j.nv], effort, strict=True):
    print(f"{joint.name:15} {e:7.2f} N m of {joint.effort_limits[0]:.0f}")
