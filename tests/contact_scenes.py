"""Scenes of contact: boxes, spheres, a robot that lands, dominoes, a cup, a wheel, a rod that jams.

Every builder returns a `Scene`. Numbers of the law are arguments, with defaults for the step sizes that are usual here,
5 to 20 ms.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import torsor as ts

GRAVITY = 9.81
LEGS = ("front_left", "front_right", "rear_left", "rear_right")
SIZE = (0.2, 0.2, 0.1)  # of boxes


class Scene(NamedTuple):
    """A model, forces on it and a start."""

    model: ts.Model
    forces: list[ts.Force]
    q: np.ndarray
    v: np.ndarray

    def simulate(self, integrator: ts.Integrator, **options: Any) -> ts.Trajectory:
        return ts.simulate(self.model, self.q, self.v, integrator=integrator, forces=self.forces, **options)

    @property
    def contacts(self) -> list[ts.Contact]:
        return [force for force in self.forces if isinstance(force, ts.Contact)]


def energy(motion: ts.Trajectory) -> np.ndarray:
    """The energy of every row, (..., rows): of motion, in gravity and in springs and contacts."""
    return motion.energies.total


def positions(model: ts.Model, q: np.ndarray, *bodies: str) -> np.ndarray:
    """Origins (..., n, 3) of bodies, of all of them if none is named."""
    names = [b.name for b in model.bodies]
    return ts.body_poses(model, q)[..., [names.index(b) for b in bodies or names], :, :][..., :3, 3]


def ground(**options: Any) -> ts.shapes.HalfSpace:
    return ts.shapes.HalfSpace(**options)


def floating(names: list[str], inertia: ts.Inertia, gravity: Any = (0, 0, -GRAVITY)) -> ts.Model:
    """Free bodies, all alike."""
    builder = ts.ModelBuilder("scene", gravity=gravity)
    for name in names:
        builder.add_body(name, "world", ts.Free(), inertia=inertia)
    return builder.build()


# Boxes on the ground


def incline(theta: float = 0.2, speed: float = 2.0, *, turned: bool = False, **law: Any) -> Scene:
    """A box of 1 kg on an incline, in equilibrium across it, that slides down along x.

    The slope is in gravity, or, if `turned`, in the half-space and in the box.
    """
    law = {"stiffness": 1e5, "dissipation": 1.0, "friction": 0.5, "slip": 1e-4} | law
    down = GRAVITY * np.array([np.sin(theta), 0, -np.cos(theta)])
    slope = ts.SE3.rotation((0, 1, 0), theta if turned else 0.0)  # from the axes of the slope to those of the world
    model = floating(["box"], ts.Inertia.box(mass=1.0, size=SIZE), slope.R @ down)
    contact = ts.Contact("box", ts.shapes.Box(SIZE), "world", ground(normal=slope.R[:, 2]), **law)
    depth = -down[2] / (4 * law["stiffness"]) + law.get("onset", 0.0) / 2
    q, v = model.neutral.copy(), np.zeros(6)
    q[:3], q[3:] = slope.R @ (0, 0, SIZE[2] / 2 - depth), slope.quaternion
    v[3] = speed
    return Scene(model, [contact], q, v)


def stop(theta: float, speed: float, friction: float) -> float:
    """The time after which a box comes to rest on an incline; half of it times the speed is its way."""
    return speed / (GRAVITY * (friction * np.cos(theta) - np.sin(theta)))


def thrown_box(rng: np.random.Generator | int, number: int | None = None, **law: Any) -> Scene:
    """A box thrown to the ground in any attitude, with a spin of 17 rad/s on average; or a batch of throws."""
    rng = np.random.default_rng(rng)
    law = {"stiffness": 1e5, "dissipation": 0.5, "friction": 0.5, "slip": 1e-4} | law
    model = floating(["box"], ts.Inertia.box(mass=1.0, size=SIZE))
    q = model.random(rng, number)
    q[..., :3] = 0, 0, 0.3
    v = rng.standard_normal(6 if number is None else (number, 6)) * (10, 10, 10, 2, 2, 3)
    return Scene(model, [ts.Contact("box", ts.shapes.Box(SIZE), "world", ground(), **law)], q, v)


def stack(number: int = 10, *, mass: float = 1.0, size: Any = SIZE, **law: Any) -> Scene:
    """Boxes on each other, each as deep in the one below as its load presses it."""
    law = {"stiffness": 1e5, "dissipation": 0.5, "friction": 0.6, "slip": 1e-4} | law
    names = [f"box{i}" for i in range(number)]
    model = floating(names, ts.Inertia.box(mass=mass, size=size))
    shape = ts.shapes.Box(size)
    forces: list[ts.Force] = [ts.Contact(names[0], shape, "world", ground(), **law)]
    forces += [ts.Contact(above, shape, below, shape, **law) for below, above in pairwise(names)]
    q = model.neutral.copy()
    for i, name in enumerate(names):
        q[model.joint(name).q_slice][:3] = 0, 0, (i + 0.5) * size[2]
    return Scene(model, forces, q, np.zeros(model.nv))


def dominoes(number: int = 50, *, size: Any = (0.02, 0.1, 0.2), spacing: float = 0.08, **law: Any) -> Scene:
    """A row of boxes that stand in a plane, the first of which is pushed."""
    law = {"stiffness": 1e5, "dissipation": 0.5, "friction": 0.4, "slip": 1e-3} | law
    builder = ts.ModelBuilder("dominoes", gravity=(0, 0, -GRAVITY))
    names = [f"domino{i}" for i in range(number)]
    upright = ts.SE3.rotation((1, 0, 0), np.pi / 2)  # the plane of the joint is x-z of the world
    inertia = ts.Inertia.box(mass=0.1, size=(size[0], size[2], size[1]))
    for i, name in enumerate(names):
        placement = ts.SE3.translation(i * spacing, 0, size[2] / 2) @ upright
        builder.add_body(name, "world", ts.Free2D(), placement, inertia)
    model = builder.build()
    shape = ts.shapes.Box((size[0], size[2], size[1]))
    forces: list[ts.Force] = [ts.Contact(name, shape, "world", ground(), **law) for name in names]
    forces += [ts.Contact(b, shape, a, shape, **law) for a, b in pairwise(names)]
    q, v = np.zeros(model.nq), np.zeros(model.nv)
    v[:3] = 3.0 * np.array([size[2] / 2, size[0] / 2, -1.0])  # the first turns about its lower edge, towards the others
    return Scene(model, forces, q, v)


# Spheres


def pyramid(radius: float = 0.1, **law: Any) -> Scene:
    """Four spheres on the ground and one on top, which pushes them apart: they hold if friction exceeds tan(pi/8)."""
    law = {"stiffness": 1e5, "dissipation": 1.0, "friction": 0.6, "slip": 1e-4} | law
    names = [f"ball{i}" for i in range(5)]
    model = floating(names, ts.Inertia.sphere(mass=1.0, radius=radius))
    ball = ts.shapes.Sphere(radius)
    forces: list[ts.Force] = [ts.Contact(name, ball, "world", ground(), **law) for name in names]
    forces += [ts.Contact("ball4", ball, name, ball, **law) for name in names[:4]]
    forces += [ts.Contact(f"ball{i}", ball, f"ball{j}", ball, **law) for i, j in ((0, 1), (1, 3), (3, 2), (2, 0))]
    q = model.neutral.copy()
    places = [(x * radius, y * radius, radius) for x in (1, -1) for y in (1, -1)]
    for name, place in zip(names, [*places, (0, 0, radius * (1 + np.sqrt(2)))], strict=True):
        q[model.joint(name).q_slice][:3] = place
    return Scene(model, forces, q, np.zeros(model.nv))


def collision(*, turning: bool = True, **law: Any) -> Scene:
    """Two spheres of 1 and 2 kg that meet off centre in empty space, the first with a spin."""
    law = {"stiffness": 1e5, "dissipation": 0.3, "friction": 0.4, "slip": 1e-4} | law
    builder = ts.ModelBuilder("collision", gravity=(0, 0, 0))
    for i in range(2):
        joint = ts.Free() if turning else ts.Translational()
        builder.add_body(f"ball{i}", "world", joint, inertia=ts.Inertia.sphere(mass=1.0 + i, radius=0.1))
    model, ball = builder.build(), ts.shapes.Sphere(0.1)
    q, v = model.neutral.copy(), np.zeros(model.nv)
    q[model.joint("ball1").q_slice][:3] = 0.25, 0.05, 0.0
    if turning:
        v[2], v[3] = 5.0, 2.0
    else:
        v[0] = 2.0
    return Scene(model, [ts.Contact("ball0", ball, "ball1", ball, **law)], q, v)


def cup(walls: str = "capsules", number: int = 10, **law: Any) -> Scene:
    """A ball that is thrown about in a cup of capsules, boxes or spheres, which is part of the world."""
    law = {"stiffness": 1e4, "dissipation": 0.5, "friction": 0.3, "slip": 1e-3} | law
    builder = ts.ModelBuilder("cup", gravity=(0, 0, -GRAVITY))
    builder.add_body("ball", "world", ts.Free(), inertia=ts.Inertia.sphere(mass=0.5, radius=0.1))
    model, ball = builder.build(), ts.shapes.Sphere(0.1)
    shapes: list[Any] = [ground()]
    for angle in 2 * np.pi * np.arange(number) / number:
        place = ts.SE3.rotation((0, 0, 1), angle) @ ts.SE3.translation(0.45, 0, 0) @ ts.SE3.rotation((0, 1, 0), 0.3)
        if walls == "capsules":
            shapes.append(ts.shapes.Capsule(0.1, 1.0, place @ ts.SE3.translation(0, 0, 0.5)))
        elif walls == "boxes":
            shapes.append(ts.shapes.Box((0.2, 0.4, 1.0), place @ ts.SE3.translation(0, 0, 0.5), radius=0.02))
        else:
            shapes += [ts.shapes.Sphere(0.12, (place @ ts.SE3.translation(0, 0, z)).p) for z in np.arange(0, 1, 0.15)]
    forces: list[ts.Force] = [ts.Contact("ball", ball, "world", shape, **law) for shape in shapes]
    q, v = model.neutral.copy(), np.array([3.0, -5.0, 2.0, 2.0, 1.3, -1.0])
    q[:3] = 0, 0, 0.5
    return Scene(model, forces, q, v)


def wheel(shape: str = "cylinder", *, speed: float = 2.0, spin: float | None = None, **law: Any) -> Scene:
    """A wheel on the ground, along x; it rolls without slipping unless another spin is given.

    Its axis is along y and its radius 0.3. Returned in equilibrium with its weight.
    """
    radius, width = 0.3, 0.1
    law = {"stiffness": 1e5, "dissipation": 0.5, "friction": 0.6, "slip": 1e-4} | law
    turned = ts.SE3.rotation((1, 0, 0), np.pi / 2)
    if shape == "cylinder":
        inertia, places = ts.Inertia.cylinder(radius, width, mass=2.0, rotation=turned.R), 2
        own: Any = ts.shapes.Cylinder(radius, width, turned)
    elif shape == "capsule":
        inertia, places = ts.Inertia.capsule(radius, width, mass=2.0, rotation=turned.R), 2
        own = ts.shapes.Capsule(radius, width, turned)
    else:
        inertia, own, places = ts.Inertia.sphere(mass=2.0, radius=radius), ts.shapes.Sphere(radius), 1
    model = floating(["wheel"], inertia)
    depth = 2.0 * GRAVITY / (places * law["stiffness"]) + law.get("onset", 0.0) / 2
    q, v = model.neutral.copy(), np.zeros(6)
    q[2] = radius - depth
    v[1], v[3] = speed / (radius - depth / 2) if spin is None else spin, speed  # forces act in the middle of the depth
    return Scene(model, [ts.Contact("wheel", own, "world", ground(), **law)], q, v)


# A robot


def posture(model: ts.Model) -> np.ndarray:
    """The quadruped on bent legs."""
    q = model.neutral.copy()
    for leg in LEGS:
        q[model.joint(f"{leg}_thigh").q_slice], q[model.joint(f"{leg}_calf").q_slice] = 0.6, -1.2
    return q


def quadruped(**law: Any) -> Scene:
    """A quadruped on four spherical feet that springs hold in its posture, 0.22 m above the ground, falling."""
    law = {"stiffness": 1e5, "dissipation": 0.5, "friction": 0.8, "slip": 1e-3} | law
    model = ts.models.quadruped()
    q, v = posture(model), np.zeros(model.nv)
    forces: list[ts.Force] = [
        ts.JointSpring(name, 300.0, float(q[model.joint(name).q_slice][0]), 10.0)
        for leg in LEGS
        for name in (f"{leg}_hip", f"{leg}_thigh", f"{leg}_calf")
    ]
    foot = ts.shapes.Sphere(0.022)
    forces += [ts.Contact(f"{leg}_foot", foot, "world", ground(), **law) for leg in LEGS]
    q[2] = 0.75
    v[:6] = 0.3, 0.5, 0.2, 0.5, 0.2, -1.0
    return Scene(model, forces, q, v)


def landings(rng: np.random.Generator | int, number: int, **law: Any) -> Scene:
    """A batch of quadrupeds that fall in all directions, tilted by up to 0.5, with spins of up to 3 rad/s."""
    rng = np.random.default_rng(rng)
    scene = quadruped(**law)
    model = scene.model
    d = np.zeros((number, model.nv))
    d[:, :2] = rng.uniform(-0.5, 0.5, (number, 2))
    d[:, 2] = rng.uniform(-np.pi, np.pi, number)
    d[:, 6:] = rng.uniform(-0.2, 0.2, (number, 12))
    v = rng.uniform(-1, 1, (number, model.nv)) * np.repeat([3.0, 1.5, 2.0], [3, 3, 12])
    q = model.plus(np.tile(scene.q, (number, 1)), d)
    lowest = ts.point_positions(model, q, [f"{leg}_foot" for leg in LEGS], np.zeros((4, 3)))[..., 2].min(-1)
    q[:, 2] += rng.uniform(0.03, 0.3, number) - lowest
    # velocities of the trunk in its own axes, downwards in those of the world
    R = ts.body_poses(model, q)[:, 0, :3, :3]
    v[:, 3:6] += np.einsum("nji,nj->ni", R, np.stack([*np.zeros((2, number)), -rng.uniform(0.5, 2.5, number)], -1))
    return Scene(model, scene.forces, q, v)


# Painleve


def rod(angle: float = np.arctan(2.0), speed: float = 1.0, *, friction: float = 2.0, **law: Any) -> Scene:
    """A rod of 1 kg and 2 m in a plane whose lower tip slides along x on the ground, at an angle to it.

    Free2D: x, z and angle of the centre. The tip is ahead of the centre: friction turns the rod into the ground, and
    beyond `critical_friction` the harder it is pressed the more.
    """
    law = {"stiffness": 1e7, "dissipation": 2.0, "slip": 1e-3} | law
    length, radius = 2.0, 1e-3
    builder = ts.ModelBuilder("rod", gravity=(0, 0, -GRAVITY))
    upright = ts.SE3.rotation((1, 0, 0), np.pi / 2)
    inertia = ts.Inertia(1.0, (0, 0, 0), np.diag([1e-4, length**2 / 12, length**2 / 12]))
    model = builder.add_body("rod", "world", ts.Free2D(), upright, inertia).build()
    tip = ts.shapes.Sphere(radius, (length / 2, 0, 0))
    contact = ts.Contact("rod", tip, "world", ground(), friction=friction, **law)
    q = np.array([0.0, length / 2 * np.sin(angle) + radius, -angle])
    return Scene(model, [contact], q, np.array([speed, 0.0, 0.0]))


def critical_friction(angle: float) -> float:
    """Of a thin rod: (1 + 3 cos^2) / (3 sin cos), at least 4/3."""
    return (1 + 3 * np.cos(angle) ** 2) / (3 * np.sin(angle) * np.cos(angle))
