"""A humanoid that stands on two welded feet: the torques that hold it, what each foot carries, and a shove."""

import numpy as np

import torsor as ts

model = ts.models.humanoid()
feet = ["left_ankle_roll", "right_ankle_roll"]
indices = [i for i, body in enumerate(model.bodies) if body.name in feet]
motors = [joint.name for joint in model.joints if joint.name != "pelvis"]
weight = model.mass * 9.81

# Knees bent, feet flat. Each foot is welded to the ground where it is now.
q = model.neutral
for side in ("left", "right"):
    for joint, angle in (("hip_pitch", -0.35), ("knee", 0.7), ("ankle_pitch", -0.35)):
        q[model.joint(f"{side}_{joint}").q_slice] = angle
welds = [ts.Loop("world", foot, ts.Fixed(), name=foot).at(model, q) for foot in feet]
rest = np.zeros(model.nv)
print(ts.mobility(model, welds, q))

# Without torques it collapses, and the feet carry less than its weight.
fall = ts.constrained_forward_dynamics(model, welds, q, rest, rest)
print(f"limp, the pelvis falls at {fall.a[5]:.2f} m/s^2, and the feet carry ", end="")


def carried(q, multipliers):
    """Forces (..., 2, 3) of the ground on the feet, in the world's axes."""
    wrenches = ts.constraint_wrenches(model, welds, q, multipliers)  # in the frames of the feet, moment first
    R = ts.body_poses(model, q)[..., indices, :3, :3]
    return np.einsum("...ij,...j->...i", R, wrenches[..., 3:])


print(f"{carried(q, fall.multipliers).sum(axis=0)[2]:.0f} of {weight:.0f} N")

# The torques of the motors that hold it still: 31 of them and 12 multipliers for 37 equations, so those of least norm.
hold, multipliers = ts.constrained_inverse_dynamics(model, welds, q, rest, rest, actuated=motors)
stand = ts.constrained_forward_dynamics(model, welds, q, rest, hold)
print(
    f"held by torques of up to {np.abs(hold).max():.1f} Nm: largest acceleration {np.abs(stand.a).max():.0e}, ", end=""
)
print(f"feet carry {np.round(carried(q, stand.multipliers)[:, 2], 1)} N")
assert np.abs(stand.a).max() < 1e-9
assert np.allclose(carried(q, stand.multipliers).sum(axis=0), [0, 0, weight], rtol=0, atol=1e-8)

# The pelvis sways 8 cm to either side, and legs follow: one batch of states, each consistent. Without motors that roll
# the ankles, feet carry no moment about their length, and the weight goes from one to the other.
sway = np.linspace(-0.08, 0.08, 21)
guess = np.tile(q, (len(sway), 1))
guess[:, 1] += sway
swayed = ts.project(model, welds, guess, keep=["pelvis"])
driven = [joint for joint in motors if joint not in feet]
_, loads = ts.constrained_inverse_dynamics(model, welds, swayed, rest, rest, actuated=driven)
ground = carried(swayed, loads)
assert np.allclose(ground.sum(axis=1), [0, 0, weight], rtol=0, atol=1e-8)
print(f"with the pelvis 8 cm to the left, the left foot carries {ground[-1, 0, 2] / weight:.0%} of the weight")

# A sideways shove of 100 N at the torso for a tenth of a second, against springs in all joints that hold the posture.
springs = [ts.JointSpring(j, stiffness=2000.0, rest=q[model.joint(j).q_slice], damping=100.0) for j in motors]
shove = ts.PointForce("waist_pitch", (0, 0, 0.3), [(0, 100, 0), (0, 100, 0), (0, 0, 0)], times=[0.0, 0.1, 0.101])
motion = ts.simulate(
    model, q, T=1.5, integrator=ts.BDF2(h=0.01), forces=[*springs, shove], controls=hold, constraints=welds
)
force = carried(motion.q, motion.multipliers)
gap = np.abs(ts.constraint_errors(model, welds, motion.q).g).max()
print(f"a shove moves the pelvis by {1e3 * np.ptp(motion.q[:, 1]):.0f} mm; ", end="")
print(f"feet stay within {gap:.0e} m, and carry {force[-1, :, 2].sum():.1f} N in the end")
assert gap < 1e-10

try:
    from matplotlib.figure import Figure
except ImportError:
    print("Matplotlib is not installed; `pip install matplotlib` adds a picture.")
else:
    figure = Figure(figsize=(10, 3.6), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    for k, (name, color) in enumerate((("left", "#3578b5"), ("right", "#c8374b"))):
        left.plot(1e3 * sway, ground[:, k, 2], color=color, lw=1.8, label=f"{name} foot")
        right.plot(motion.t, force[:, k, 2], color=color, lw=1.8)
        right.plot(motion.t, force[:, k, 1], color=color, lw=1.2, ls="--")
    left.set(xlabel="sway of the pelvis to the left [mm]")
    right.set(xlabel="t [s]")
    left.set_title("Weight on each foot [N]", loc="left", weight="bold")
    right.set_title("After a shove: upward, and sideways (dashed) [N]", loc="left", weight="bold")
    left.legend(frameon=False)
    for axes in (left, right):
        axes.grid(color="#e8ebee")
        axes.spines[:].set_visible(False)
    figure.savefig("humanoid.png")
    print("humanoid.png")

try:
    motion.html("humanoid.html")  # a page that plays the motion
except ImportError as error:
    print(error)
