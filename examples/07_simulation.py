"""A user-written time step, on a robot that tumbles through space, and what it conserves."""

import numpy as np

import torsor as ts

model = ts.models.quadruped().with_gravity((0, 0, 0))
rng = np.random.default_rng(0)
v0 = rng.standard_normal(model.nv)


def midpoint(q, v, h):
    """One step of the explicit midpoint method, which is of second order on Lie groups too."""
    a = ts.forward_dynamics(model, q, v, np.zeros(model.nv))
    q_mid, v_mid = model.plus(q, 0.5 * h * v), v + 0.5 * h * a
    a_mid = ts.forward_dynamics(model, q_mid, v_mid, np.zeros(model.nv))
    return model.plus(q, h * v_mid), v + h * a_mid


drifts = []
for steps in (100, 200, 400):
    q, v = model.neutral, v0
    energy, momentum = ts.kinetic_energy(model, q, v), ts.momentum(model, q, v)
    for _ in range(steps):
        q, v = midpoint(q, v, 0.5 / steps)
    drifts.append(np.abs(ts.momentum(model, q, v) - momentum).max())
    change = abs(ts.kinetic_energy(model, q, v) - energy)
    print(f"{steps} steps: energy changes by {change:.1e}, momentum by {drifts[-1]:.1e}")

# Halving the step divides the error by four.
assert 3.5 < drifts[1] / drifts[2] < 4.5
