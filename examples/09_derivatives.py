"""First derivatives, exact: as matrices, along one direction and in reverse, of forward dynamics."""

import numpy as np

import torsor as ts

model = ts.models.quadruped()
rng = np.random.default_rng(0)
q, v, tau = model.random(rng), rng.standard_normal(model.nv), rng.standard_normal(model.nv)

d = ts.forward_dynamics_derivatives(model, q, v, tau)
print("da_dq", d.da_dq.shape, " da_dv", d.da_dv.shape, " da_dtau", d.da_dtau.shape)

# Derivatives along q are in the tangent space: of f(plus(q, dq)) at dq = 0.
h, e = 1e-6, np.eye(model.nv)[2]  # about the trunk's own z axis
difference = (
    ts.forward_dynamics(model, model.plus(q, h * e), v, tau) - ts.forward_dynamics(model, model.plus(q, -h * e), v, tau)
) / (2 * h)
error = np.abs(d.da_dq @ e - difference).max() / np.abs(difference).max()
print(f"a central difference agrees to {error:.0e}")
assert error < 1e-6

# The same numbers from inverse dynamics: da/dq = -M^-1 dtau/dq.
a = ts.forward_dynamics(model, q, v, tau)
i = ts.inverse_dynamics_derivatives(model, q, v, a)
assert np.allclose(d.da_dq, -np.linalg.solve(i.dtau_da, i.dtau_dq))

# Along one direction, without the matrices; here in the state, and in the length of a leg.
leg = ts.ModelDirection(placement={"front_left_calf": [0, 0, 0, 0, 0, -1]})
t = ts.forward_dynamics_jvp(model, q, v, tau, dq=e, model_direction=leg)
print(f"turning, with one leg growing, changes the trunk's acceleration by {np.round(t.da[:6], 2)}")

# In reverse: what every parameter of the model does to one number, at once.
w = np.eye(model.nv)[5]  # the trunk's acceleration along its own z axis
g = ts.forward_dynamics_vjp(model, q, v, tau, w)
assert np.isclose(
    w @ t.da, g.q @ e + g.placement[model.bodies.index(model.body("front_left_calf"))] @ [0, 0, 0, 0, 0, -1]
)
print("gradients with respect to masses", np.round(g.inertia[:4, 0], 3), "...")
