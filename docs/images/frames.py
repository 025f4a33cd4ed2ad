"""Draws docs/images/frames.svg: the frames of a body, its joint and its parent. Run in docs/images."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Polygon

BLUE, GREEN, RED, GREY, INK = "#3578b5", "#2a9d5c", "#c8374b", "#8a949e", "#30363c"


def turn(angle):
    """A rotation in the plane."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]])


def frame(axes, origin, angle, name, offset, color=INK):
    """Two axes, x and z, and a name."""
    for direction, label, shade in (((1, 0), "x", RED), ((0, 1), "z", BLUE)):
        tip = origin + turn(angle) @ np.array(direction) * 0.75
        axes.add_patch(FancyArrowPatch(origin, tip, arrowstyle="-|>", mutation_scale=13, color=shade, lw=2, zorder=6))
        place = origin + turn(angle) @ np.array(direction) * 0.92
        axes.text(*place, label, color=shade, ha="center", va="center", fontsize=11, zorder=7)
    axes.plot(*origin, "o", color="white", mec=color, ms=7, mew=1.6, zorder=7)
    axes.text(*(origin + offset), name, color=color, fontsize=11.5, ha="center", va="center", zorder=7, linespacing=1.4)


def link(axes, start, end, width, color):
    """A body: a bar with pointed ends."""
    along = (end - start) / np.linalg.norm(end - start)
    across = width * np.array([-along[1], along[0]])
    corners = [start - 0.35 * along, start + across, end + across, end + 0.45 * along, end - across, start - across]
    axes.add_patch(Polygon(corners, closed=True, color=color, alpha=0.13, lw=0, zorder=1))


def arrow(axes, start, end, label, place, color, bend=0.0):
    """A transformation from one frame to another."""
    style = f"arc3,rad={bend}"
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=14,
            color=color,
            lw=1.6,
            ls="--",
            connectionstyle=style,
            shrinkA=7,
            shrinkB=7,
            zorder=5,
        )
    )
    axes.text(*place, label, color=color, fontsize=11.5, ha="center", va="center", linespacing=1.4, zorder=8)


figure = Figure(figsize=(9, 5), layout="constrained")
axes = figure.subplots()
world, parent, joint = np.array([0.0, 0.0]), np.array([2.3, 1.6]), np.array([5.2, 2.6])
lean, angle = 0.25, 1.05
child = joint
link(axes, parent, joint, 0.42, GREEN)
tip = child + turn(lean - angle) @ np.array([3.0, 0.0])
link(axes, child, tip, 0.42, BLUE)
frame(axes, world, 0.0, "world", np.array([-0.15, -0.35]))
frame(axes, parent, lean, "frame of the\nparent body", np.array([-1.2, 0.55]), GREEN)
for direction, label in (((1, 0), "x"), ((0, 1), "z")):  # of the joint, before it moves
    end = joint + turn(lean) @ np.array(direction) * 0.75
    axes.add_patch(FancyArrowPatch(joint, end, arrowstyle="-|>", mutation_scale=12, color=GREY, lw=1.6, zorder=5))
    axes.text(
        *(joint + turn(lean) @ np.array(direction) * 0.92), label, color=GREY, fontsize=10, ha="center", va="center"
    )
frame(axes, child, lean - angle, "", np.zeros(2), BLUE)
axes.text(
    3.95, 3.75, "frame of the joint: where the\nbody is if T(q) is the identity", color=GREY, fontsize=11, ha="center"
)
axes.text(7.45, 3.2, "frame of the body:\nmoves with the joint", color=BLUE, fontsize=11.5, ha="center", va="center")
mass = child + turn(lean - angle) @ np.array([1.75, 0.12])
axes.plot(*mass, marker="o", color=INK, ms=8, zorder=6)
axes.text(
    *(mass + [0.25, 0.02]), "centre of mass: com,\nin the body's frame", color=INK, fontsize=11, ha="left", va="center"
)
arrow(axes, world, parent, "body_pose(model, q, parent)", (2.75, 0.45), INK, bend=0.15)
arrow(axes, parent, joint, "placement", (4.3, 1.5), GREEN, bend=0.12)
swing = FancyArrowPatch(
    joint + turn(lean) @ [1.35, 0],
    joint + turn(lean - angle) @ [1.35, 0],
    arrowstyle="-|>",
    mutation_scale=14,
    color=BLUE,
    lw=1.8,
    connectionstyle="arc3,rad=-0.3",
    zorder=5,
)
axes.add_patch(swing)
axes.text(*(joint + turn(lean - 0.45) @ [1.72, 0]), "T(q)", color=BLUE, fontsize=12, ha="center", va="center")
axes.text(
    4.5,
    -0.55,
    "pose of a body = pose of its parent · placement · T(q)",
    color=INK,
    fontsize=12.5,
    weight="bold",
    ha="center",
)
axes.set(xlim=(-0.9, 9.4), ylim=(-0.85, 4.6))
axes.set_aspect("equal")
axes.axis("off")
figure.savefig("frames.svg", metadata={"Date": None})
