"""Hybrid dynamics: some joints follow a given motion, the others follow from the equations of motion."""

import numpy as np

import torsor as ts

# An acrobot with prescribed acceleration of the elbow; its shoulder is free.
model = ts.models.acrobot()
q, v = np.array([0.4, 0.0]), np.array([0.0, 0.0])
a, tau = ts.hybrid_dynamics(model, q, v, a=np.array([0.0, 3.0]), tau=np.zeros(2), prescribed=["elbow"])
print("the elbow accelerates as prescribed:  ", a[1])
print("the shoulder accelerates by           ", a[0])
print("the elbow's motor needs the torque    ", tau[1])

# Both satisfy the equations of motion.
assert np.allclose(ts.inverse_dynamics(model, q, v, a), tau)

# All joints prescribed is inverse dynamics, none is forward dynamics.
given = np.array([1.0, -1.0])
_, tau = ts.hybrid_dynamics(model, q, v, a=given, tau=np.zeros(2), prescribed=["shoulder", "elbow"])
assert np.allclose(tau, ts.inverse_dynamics(model, q, v, given))
