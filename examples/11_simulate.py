"""A robot on springs falls to the ground and comes to rest: forces, an implicit integrator, energies."""

import numpy as np

import torsor as ts

model = ts.models.quadruped()
legs = [f"{end}_{side}" for end in ("front", "rear") for side in ("left", "right")]
stance = {"hip": 0.0, "thigh": 0.7, "calf": -1.4}

q0 = model.neutral.copy()
forces = []
for leg in legs:
    for part, angle in stance.items():
        q0[model.joint(f"{leg}_{part}").q_slice] = angle
        forces.append(ts.JointSpring(f"{leg}_{part}", stiffness=300.0, rest=angle, damping=5.0))
    foot = ts.GroundContact(
        f"{leg}_foot", (0, 0, 0), stiffness=1e4, damping=50.0, friction_stiffness=200.0, friction=0.8
    )
    forces.append(foot)

lowest = min(ts.body_poses(model, q0)[i, 2, 3] for i, body in enumerate(model.bodies) if body.name.endswith("foot"))
q0[2] += 0.1 - lowest  # the feet begin 10 cm above the ground

trajectory = ts.simulate(model, q0, T=2.0, integrator=ts.BDF2(h=5e-3), forces=forces)

print("   t   height   kinetic     total energy")
for row in range(0, trajectory.steps + 1, 40):
    energies = trajectory.energies
    numbers = trajectory.t[row], trajectory.q[row, 2], energies.kinetic[row], energies.total[row]
    print("{:4.1f} {:8.3f} {:9.4f} {:12.3f}".format(*numbers))

# It stands: hardly any motion is left, and what gravity lost went to springs and dampers.
assert trajectory.energies.kinetic[-1] < 1e-2
assert trajectory.energies.total[-1] < trajectory.energies.total[0]

# Many starts in one call, each the same as alone.
many = np.stack([model.plus(q0, [0, 0, 0, 0, 0, z, *np.zeros(model.nv - 6)]) for z in (0.0, 0.05, 0.1)])
batch = ts.simulate(model, many, T=2.0, integrator=ts.BDF2(h=5e-3), forces=forces, threads=2)
assert np.array_equal(batch.q[0], trajectory.q)
print("heights after falls of 10, 15 and 20 cm:", np.round(batch.q[:, -1, 2], 3))

try:
    batch.html("falls.html")  # a page that plays the motions, side by side
except ImportError as error:
    print(error)
