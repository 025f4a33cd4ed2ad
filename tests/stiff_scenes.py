"""Random stiff scenes: what implicit steps have to solve, far from equilibrium.

Stiffness is 1e2 to 1e7, masses 1e-2 to 1e2, both log-uniform; damping from none to critical; springs are stretched by
1 at most, velocities 10 at most. Every joint and every built-in force occurs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from population import JOINTS

import torsor as ts
from torsor import testing

KINDS = ("light body", "box", "pendulum", "chain", "tree")


class StiffScene(NamedTuple):
    """A model, forces on it, a state and controls (nv,)."""

    model: ts.Model
    forces: list[ts.Force]
    q: np.ndarray
    v: np.ndarray
    u: np.ndarray


def stiff_scene(rng: np.random.Generator | int, kind: str) -> StiffScene:
    """A scene of one of KINDS, the same for the same seed."""
    rng = np.random.default_rng(rng)
    model = _model(rng, kind)
    draw = _Draw(rng, model, model.random(rng))
    always = {"light body": (draw.spring_to_world,), "box": (draw.contact,)}.get(kind, draw.springs)
    makers = [_one(rng, always), *(_one(rng, draw.all) for _ in range(rng.integers(4)))]
    v = rng.uniform(0, 10) * rng.uniform(-1, 1, model.nv)
    u = np.zeros(model.nv)
    if rng.uniform() < 0.5:
        u = _log_uniform(rng, 1, 1e4) * draw.inertia * rng.uniform(-1, 1, model.nv)  # accelerations of 1e4 at most
    return StiffScene(model, [make() for make in makers], draw.q, v, u)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _one(rng: np.random.Generator, choices: Sequence) -> object:
    return choices[rng.integers(len(choices))]


def _direction(rng: np.random.Generator) -> np.ndarray:
    x = rng.standard_normal(3)
    return x / np.linalg.norm(x)


def _model(rng: np.random.Generator, kind: str) -> ts.Model:
    builder = ts.ModelBuilder(kind, gravity=_one(rng, ((0, 0, -9.81), (0, 0, 0), 10 * _direction(rng))))
    mass = partial(_log_uniform, rng, 1e-2, 1e2)
    box = partial(ts.Inertia.box, rng.uniform(0.05, 0.5, 3))
    if kind == "light body":
        point = rng.uniform() < 0.5
        joint, inertia = (ts.Translational(), ts.Inertia.point(mass())) if point else (ts.Free(), box(mass=mass()))
        return builder.add_body("body0", "world", joint, inertia=inertia).build()
    if kind == "box":
        joint = _one(rng, (ts.Free(), ts.Free2D(), ts.Composite(ts.Translational(), ts.SphericalExp())))
        return builder.add_body("body0", "world", joint, inertia=box(mass=mass())).build()
    turning = [j for j in JOINTS if isinstance(j, (ts.Revolute, ts.Universal, ts.Spherical, ts.SphericalExp))]
    count = {"pendulum": 1, "chain": int(rng.integers(2, 7)), "tree": int(rng.integers(1, 9))}[kind]
    branching = 0.5 if kind == "tree" else 0.0
    alike = mass() if rng.uniform() < 0.5 else None  # all of one mass, or masses of all sizes
    names = ["world"]
    for k in range(count):
        joint = _one(rng, JOINTS if kind == "tree" else turning)
        if kind == "tree" and rng.uniform() < 0.1:
            joint = ts.Fixed() if k else ts.Revolute()
        parent = _one(rng, names) if rng.uniform() < branching else names[-1]
        inertia = box(mass=alike or mass()).transformed(testing.random_pose(rng))
        builder.add_body(f"body{k}", parent, joint, testing.random_pose(rng), inertia)
        names.append(f"body{k}")
    return builder.build()


class _Draw:
    """Forces on a model at the configuration q."""

    def __init__(self, rng: np.random.Generator, model: ts.Model, q: np.ndarray) -> None:
        self.rng, self.model, self.q = rng, model, q
        self.poses = dict(zip((b.name for b in model.bodies), ts.body_poses(model, q), strict=True))
        self.poses["world"] = np.eye(4)
        self.inertia = ts.mass_matrix(model, q).diagonal()
        self.springs = (self.pair, self.tension, self.path, self.joint_spring)
        self.all: tuple[Callable[[], ts.Force], ...] = (
            *self.springs, self.limits, self.contact, self.joint_torque, self.push, self.damping,
        )  # fmt: skip

    def stiffness(self) -> float:
        return _log_uniform(self.rng, 1e2, 1e7)

    def fraction(self) -> float:
        """Of the critical damping: none, critical, or between."""
        return float(_one(self.rng, (0.0, self.rng.uniform(), 1.0)))

    def body(self) -> str:
        return f"body{self.rng.integers(self.model.nbodies)}"

    def other(self) -> str:
        return self.body() if self.rng.uniform() < 0.7 else "world"

    def mass(self, *bodies: str) -> float:
        """Of the lightest body."""
        return min(self.model.body(b).inertia.mass for b in bodies if b != "world")

    def local(self, body: str, x: np.ndarray) -> np.ndarray:
        """The point x of the world in the frame of a body."""
        return (np.linalg.inv(self.poses[body]) @ np.append(x, 1.0))[:3]

    def ends(self, *bodies: str) -> tuple[list[np.ndarray], float]:
        """Points of the bodies, 1 from one to the next at most, and the length of the path through them."""
        place = self.poses[bodies[0]][:3] @ np.append(0.3 * self.rng.standard_normal(3), 1.0)
        points, length = [self.local(bodies[0], place)], 0.0
        for body in bodies[1:]:
            step = self.rng.uniform(0.05, 1.0)
            place, length = place + step * _direction(self.rng), length + step
            points.append(self.local(body, place))
        return points, length

    def spring_to_world(self) -> ts.Force:
        return self.pair("world")

    def pair(self, other: str | None = None) -> ts.Force:
        """A spring between two points, with or without a length at rest."""
        body1, body2 = self.body(), other or self.other()
        (point1, point2), length = self.ends(body1, body2)
        k, rest = self.stiffness(), max(0.05, length + self.rng.uniform(-1, 1))
        ends, critical = (body1, point1, body2, point2), 2 * np.sqrt(k * self.mass(body1, body2))
        if self.rng.uniform() < 0.3:
            return ts.PointSpring(*ends, k, self.fraction() * critical)
        return ts.SpringDamper(*ends, k, self.fraction() * critical * np.sqrt(rest), rest)

    def tension(self) -> ts.Force:
        """A spring that stiffens, straight or through points of several bodies: k (x + x^3) + c dx/dt."""
        bodies = [self.body(), *(self.other() for _ in range(self.rng.integers(1, 4)))]
        points, length = self.ends(*bodies)
        k, rest = self.stiffness(), length + self.rng.uniform(-1, 1)
        p = (k, 2 * self.fraction() * np.sqrt(k * self.mass(*bodies)), rest)

        def law(l, ldot, p):
            x = l - p[2]
            slope = p[0] * (1 + 3 * x**2)
            return p[0] * (x + x**3) + p[1] * ldot, slope, p[1], np.array([x + x**3, ldot, -slope])

        def energy(l, p):
            return p[0] * ((l - p[2]) ** 2 / 2 + (l - p[2]) ** 4 / 4)

        if len(bodies) == 2:
            return ts.CustomSpring(bodies[0], points[0], bodies[1], points[1], law, energy, p)
        return ts.CustomCable(bodies, points, law, energy, p)

    def path(self) -> ts.Force:
        """A cable, taut or slack."""
        bodies = [self.body(), *(self.other() for _ in range(self.rng.integers(1, 4)))]
        points, length = self.ends(*bodies)
        k, rest = self.stiffness(), max(0.05, length + self.rng.uniform(-1, 0.2))
        return ts.Cable(bodies, points, k, 2 * self.fraction() * np.sqrt(k * self.mass(*bodies) * rest), rest)

    def joint(self, plain: bool = False) -> ts.ModelJoint:
        """One with freedoms, and without a quaternion if plain."""
        return _one(self.rng, [j for j in self.model.joints if j.nv and (j.nq == j.nv or not plain)])

    def critical(self, j: ts.ModelJoint, k: float) -> np.ndarray:
        return 2 * self.fraction() * np.sqrt(k * self.inertia[j.v_slice])

    def joint_spring(self) -> ts.Force:
        j, k = self.joint(), self.stiffness()
        q = self.q[j.q_slice]
        rest = j.joint.plus(q, self.rng.uniform(-1, 1, j.nv))
        return ts.JointSpring(j.name, k, rest, self.critical(j, k))

    def limits(self) -> ts.Force:
        """Limits about q, or beside it."""
        if all(j.nq != j.nv for j in self.model.joints if j.nv):
            return self.joint_spring()
        j, k = self.joint(plain=True), self.stiffness()
        lower = self.q[j.q_slice] + self.rng.uniform(-1, 0.5, j.nq)
        return ts.JointLimits(j.name, k, self.critical(j, k), lower, lower + self.rng.uniform(0.01, 1, j.nq))

    def contact(self) -> ts.Force:
        """The corners of a box against a plane that is below, touched, or above some of them."""
        body, k = self.body(), self.stiffness()
        size = self.rng.uniform(0.05, 0.5, 3)
        corners = (np.indices((2, 2, 2)).reshape(3, -1).T - 0.5) * size
        places = corners @ self.poses[body][:3, :3].T + self.poses[body][:3, 3]
        normal = _one(self.rng, (np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0]), _direction(self.rng)))
        height = _one(self.rng, (self.rng.uniform(0, 0.5), 0.0, -_log_uniform(self.rng, 1e-4, 0.3)))
        ground = ((places @ normal).min() - height) * normal
        c = 2 * self.fraction() * np.sqrt(k * self.mass(body))
        slip, friction = _log_uniform(self.rng, 1.0, 1e4), _one(self.rng, (0.0, self.rng.uniform(), 100.0))
        if int(k) % 2:
            plane = ts.shapes.HalfSpace(normal, ground @ normal)
            law = {"stiffness": k, "friction": min(friction, 2.0), "slip": 0.1 / slip, "onset": 1e-4 * size.min()}
            return ts.Contact(body, ts.shapes.Box(size), "world", plane, **law)
        return ts.GroundContact(body, corners, k, c, slip, friction, ground, normal)

    def sudden(self, size: float, shape: int) -> tuple[np.ndarray, tuple[float, ...] | None]:
        """A load that is there all the time, or sets in within a moment."""
        load = size * self.rng.uniform(-1, 1, shape)
        return (load, None) if self.rng.uniform() < 0.5 else (np.stack([0 * load, load]), (0.0, 1e-3))

    def joint_torque(self) -> ts.Force:
        j = self.joint()
        size = float(self.inertia[j.v_slice].max()) * _log_uniform(self.rng, 1, 1e4)
        return ts.JointTorque(j.name, *self.sudden(size, j.nv))

    def push(self) -> ts.Force:
        """A force at a point, or a wrench."""
        body = self.body()
        size = self.mass(body) * _log_uniform(self.rng, 1, 1e4)
        if self.rng.uniform() < 0.5:
            return ts.PointForce(body, 0.3 * self.rng.standard_normal(3), *self.sudden(size, 3))
        return ts.BodyWrench(
            body, *self.sudden(size, 6), frame=_one(self.rng, ("body", "world", "local_world_aligned"))
        )

    def damping(self) -> ts.Force:
        if self.rng.uniform() < 0.5:
            body = self.body()
            return ts.BodyDamping(body, self.mass(body) * _log_uniform(self.rng, 1e-2, 1e4))
        j, rate = self.joint(), _log_uniform(self.rng, 1e-2, 1e4)
        if rate < 1:
            return ts.JointFriction(j.name, 100 * rate * self.inertia[j.v_slice], slip=1e-2)
        return ts.JointDamping(j.name, rate * self.inertia[j.v_slice])
