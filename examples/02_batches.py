"""A million states at a time: batch shapes, broadcasting, `out=` and `threads=`."""

import time

import numpy as np

import torsor as ts

model = ts.models.arm7()
rng = np.random.default_rng(0)

# Any leading shape, and shapes broadcast: 100 configurations with 50 velocities each.
q = model.random(rng, size=(100, 1))
v = rng.standard_normal((50, model.nv))
tau = ts.inverse_dynamics(model, q, v, np.zeros(model.nv))
print("q", q.shape, "and v", v.shape, "give tau", tau.shape)

# Results are the same as for single states, to the last bit.
assert np.array_equal(tau[7, 3], ts.inverse_dynamics(model, q[7, 0], v[3], np.zeros(model.nv)))

# Results can be written into an existing array, by several threads.
n = 100_000
q, v = model.random(rng, size=n), rng.standard_normal((n, model.nv))
a = np.zeros((n, model.nv))
ts.forward_dynamics(model, q, v, np.zeros(model.nv), out=a)
for threads in (1, 2):
    start = time.perf_counter()
    ts.forward_dynamics(model, q, v, np.zeros(model.nv), out=a, threads=threads)
    print(f"{n} states, {threads} thread(s): {1e6 * (time.perf_counter() - start) / n:.2f} us per state")
