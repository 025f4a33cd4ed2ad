"""A box slides down a rough incline and stops: distance, creep and gradients, against closed forms and MuJoCo.

Friction mu m g cos(theta) exceeds the pull m g sin(theta), so that the box stops after v0 / a and goes v0^2 / (2 a),
a = g (mu cos(theta) - sin(theta)): dx/dv0 = v0 / a.
"""

import numpy as np

import torsor as ts

theta, mu, v0, g = 0.2, 0.5, 2.0, 9.81
a = g * (mu * np.cos(theta) - np.sin(theta))
way, slope = v0**2 / (2 * a), v0 / a
gravity = (g * np.sin(theta), 0, -g * np.cos(theta))  # x is down the slope

size = (0.2, 0.2, 0.1)
builder = ts.ModelBuilder("incline", gravity=gravity)
builder.add_body("box", "world", ts.Free(), inertia=ts.Inertia.box(size, mass=1.0))
model = builder.build()
law = {"stiffness": 1e5, "dissipation": 1.0, "friction": mu, "slip": 1e-4}
contact = ts.Contact("box", ts.shapes.Box(size), "world", ts.shapes.HalfSpace(), **law)
q0, u0 = model.neutral, np.zeros(model.nv)
q0[2] = size[2] / 2 - g * np.cos(theta) / (4 * law["stiffness"])  # four corners carry its weight
u0[3] = v0

print(f"{'closed form':44}  distance {way:.5f}             dx/dv0 {slope:.4f}")
for integrator in (ts.BDF1(0.01), ts.BDF2(0.01), ts.SDIRK2(0.01)):
    motion = ts.simulate(model, q0, u0, T=1.0, integrator=integrator, forces=[contact])
    last = np.zeros(motion.v.shape)
    last[-1, 3] = 1.0  # x of the last row
    gradient = ts.adjoint(motion, dloss_dq=last)
    off, by_speed = motion.q[-1, 0] - way, gradient.v0[3]
    print(
        f"{type(integrator).__name__:44}  error {off:+.1e}  {'':11} dx/dv0 {by_speed:.4f}, "
        f"creep {1e6 * motion.v[-1, 3]:.1f} um/s"
    )
    if integrator.order == 2:
        assert abs(off) < 1e-5
    if isinstance(integrator, ts.BDF2):
        assert abs(by_speed - slope) < 3e-3 * slope

# The law's own creep: friction carries tan(theta) / mu of its limit.
creep = law["slip"] * (1 - np.sqrt(1 - np.tan(theta) / mu))
print(f"{'creep of the law':44}  {1e6 * creep:.1f} um/s")
assert abs(motion.v[-1, 3] / creep - 1) < 0.01

# By friction too: dx/dmu = -v0^2 g cos(theta) / (2 a^2).
by_friction = gradient.forces[0]["friction"]
print(f"{'dx/dmu of SDIRK2, and of the closed form':44}  {by_friction:.4f}, {-way / a * g * np.cos(theta):.4f}")
assert abs(by_friction / (-way / a * g * np.cos(theta)) - 1) < 0.01

try:
    import mujoco
except ImportError:
    print("MuJoCo is not installed; `pip install mujoco` adds a comparison.")
else:

    def peer(h, impratio, noslip):
        """Where MuJoCo's box stops; dx/dv0 by its chained derivatives of steps, and by differences of motions."""
        m = mujoco.MjModel.from_xml_string(
            f'<mujoco><option timestep="{h}" gravity="{gravity[0]} 0 {gravity[2]}" cone="elliptic" '
            f'impratio="{impratio}" noslip_iterations="{noslip}" tolerance="1e-12" iterations="200"/>'
            f'<worldbody><geom type="plane" size="0 0 1" friction="{mu} 0.005 0.0001"/><body pos="0 0 0.05">'
            f'<freejoint/><geom type="box" size="0.1 0.1 0.05" mass="1" friction="{mu} 0.005 0.0001"/>'
            "</body></worldbody></mujoco>"
        )
        data, steps = mujoco.MjData(m), round(1 / h)
        for _ in range(steps):  # at rest across the slope first
            data.qvel[:] = 0
            mujoco.mj_step(m, data)
            data.qpos[0] = data.qvel[0] = 0
        qpos, A, G = data.qpos.copy(), np.zeros((12, 12)), np.eye(12)

        def start(speed):
            mujoco.mj_resetData(m, data)
            data.qpos[:], data.qvel[0] = qpos, speed

        start(v0)
        for _ in range(steps):
            mujoco.mjd_transitionFD(m, data, 1e-6, True, A, None, None, None)
            G = A @ G
            mujoco.mj_step(m, data)
        stop, speed, ends = data.qpos[0], data.qvel[0], []
        for change in (1e-4, -1e-4):
            start(v0 + change)
            mujoco.mj_step(m, data, steps)
            ends.append(data.qpos[0])
        return stop - way, speed, G[0, 6], (ends[0] - ends[1]) / 2e-4

    for impratio, noslip in ((1, 0), (10, 0), (10, 10)):
        for h in (0.01, 0.0025):
            off, speed, chained, differences = peer(h, impratio, noslip)
            name = f"MuJoCo, h {h}, impratio {impratio}, noslip {noslip}"
            print(
                f"{name:44}  error {off:+.1e}  {'':11} dx/dv0 {chained:.4f} chained, {differences:.4f} by differences, "
                f"creep {1e6 * speed:.1f} um/s"
            )
