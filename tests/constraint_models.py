"""Closed mechanisms for tests: a tree, the constraints that close it, and a state that satisfies them.

A constraint is a `Tie`: its kind, two bodies and two markers. Every kind has z for its axis (a universal joint x on a
and y on b). `part` is what the core gets of it, `describe` the description that users write; one is written from the
theory, the other is the library's, and tests compare them.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import constraint_oracle as oracle
import numpy as np

import torsor as ts
from torsor import spatial
from torsor.testing import example_joints, random_inertia, random_pose, random_tree

X, Y, Z = np.eye(3)
NONE = np.zeros(3)


def term(coef, a, b, s):
    return (float(coef), *map(float, a), *map(float, b), float(s))


def linear(*terms, offset=0.0):
    return ("linear", list(terms), offset)


def at(axis):
    """A coordinate of the point."""
    return linear(term(1, axis, NONE, 1))


TILTS = [linear(term(-1, Y, Z, 0)), linear(term(1, X, Z, 0))]
TURNS = [linear(term(0.5, a, b, 0), term(-0.5, b, a, 0)) for a, b in ((Z, Y), (X, Z), (Y, X))]
ROWS = {
    "point": [at(X), at(Y), at(Z)],
    "line": [at(X), at(Y)],
    "plane": [at(Z)],
    "revolute": [at(X), at(Y), at(Z), *TILTS],
    "universal": [at(X), at(Y), at(Z), linear(term(1, X, Y, 0))],
    "cylindrical": [at(X), at(Y), *TILTS],
    "prismatic": [at(X), at(Y), *TILTS, TURNS[2]],
    "planar pair": [at(Z), *TILTS],
    "planar": [at(Z), *TURNS],
    "orientation": TURNS,
    "weld": [at(X), at(Y), at(Z), *TURNS],
    "distance": [("norm", 0.0)],
}
KINDS = tuple(ROWS)


def twelve(T):
    return [*map(float, T[:3, :3].ravel()), *map(float, T[:3, 3])]


@dataclass(frozen=True)
class Course:
    """A pose that moves as start exp(first sin(1.3 t + 0.4)) exp(second cos(0.7 t)), with its twist and its rate."""

    start: Any
    first: Any
    second: Any

    def __call__(self, t):
        f = np.sin(1.3 * t + 0.4), 1.3 * np.cos(1.3 * t + 0.4), -1.69 * np.sin(1.3 * t + 0.4)
        h = np.cos(0.7 * t), -0.7 * np.sin(0.7 * t), -0.49 * np.cos(0.7 * t)
        A, B = spatial.exp6(self.first * f[0]), spatial.exp6(self.second * h[0])
        seen = spatial.Ad(np.linalg.inv(B)) @ self.first
        twist = seen * f[1] + self.second * h[1]
        rate = seen * f[2] + self.second * h[2] - spatial.ad(self.second * h[1]) @ (seen * f[1])
        return self.start @ A @ B, twist, rate

    def moved_to(self, T, t):
        """The same course, but at T at the time t."""
        return replace(self, start=T @ np.linalg.inv(self(t)[0]) @ self.start)


def random_course(rng):
    return Course(random_pose(rng).matrix, *(0.4 * rng.standard_normal((2, 6))))


@dataclass(frozen=True)
class Swing:
    """f(t) = value + 0.3 sin(1.1 t), its rate and second rate."""

    value: float = 0.0

    def __call__(self, t):
        return self.value + 0.3 * np.sin(1.1 * t), 0.33 * np.cos(1.1 * t), -0.363 * np.sin(1.1 * t)


@dataclass(frozen=True)
class Tie:
    """A constraint between markers of two bodies ("world" is one), at A and B in their frames."""

    kind: str
    a: str
    b: str
    A: Any = field(default_factory=lambda: np.eye(4))
    B: Any = field(default_factory=lambda: np.eye(4))
    offset: float = 0.0  # of a distance or of a plane
    course: Course | None = None  # of marker A, on the world

    def part(self, model):
        index = {"world": -1} | {b.name: i for i, b in enumerate(model.bodies)}
        lines = [(*row[:-1], row[-1] + self.offset) for row in ROWS[self.kind]]
        moving = None
        if self.course is not None:

            def moving(t, course=self.course):
                T, twist, rate = course(t)
                return np.concatenate([T[:3, :3].ravel(), T[:3, 3], twist, rate])

        return ("pair", (index[self.a], twelve(self.A)), (index[self.b], twelve(self.B)), lines, moving)

    def at(self, model, q, t=0.0):
        """The same tie with marker A where B is at q, so that it is closed; of a distance, with the length at q."""
        here = {"world": np.eye(4)} | {b.name: T for b, T in zip(model.bodies, ts.body_poses(model, q), strict=True)}
        T = np.linalg.inv(here[self.a]) @ here[self.b] @ self.B
        if self.kind == "distance":
            A = self.A if self.course is None else self.course(t)[0]
            return replace(self, offset=float(np.linalg.norm((np.linalg.inv(A) @ T)[:3, 3])))
        if self.course is not None:
            return replace(self, course=self.course.moved_to(T, t), offset=0.0)
        return replace(self, A=T, offset=0.0)

    def describe(self):
        """As users write it."""
        A, B = (ts.SE3(T[:3, :3], T[:3, 3]) for T in (self.A, self.B))
        if self.kind == "distance":
            if not np.array_equal(self.A[:3, :3], np.eye(3)) or self.course is not None:
                raise ValueError("a distance is one of points")
            return ts.Distance(self.a, self.A[:3, 3], self.b, self.B[:3, 3], self.offset)
        place = A if self.course is None else Described(self.course)
        if self.kind == "plane":
            return ts.PointOnPlane(self.a, self.b, place, self.B[:3, 3], offset=self.offset)
        if self.kind == "line":
            return ts.PointOnLine(self.a, self.b, place, self.B[:3, 3])
        joints = {
            "point": ts.Spherical(),
            "revolute": ts.Revolute(Z),
            "universal": ts.Universal((X, Y)),
            "cylindrical": ts.Cylindrical(Z),
            "prismatic": ts.Prismatic(Z),
            "planar pair": ts.Free2D(),
            "planar": ts.Planar((X, Y)),
            "orientation": ts.Translational(),
            "weld": ts.Fixed(),
        }
        return ts.Loop(self.a, self.b, joints[self.kind], place, B)


@dataclass(frozen=True)
class Described:
    """A course as functions of users give it: an SE3, its twist and twist rate."""

    course: Course

    def __call__(self, t):
        T, twist, rate = self.course(t)
        return ts.SE3(T[:3, :3], T[:3, 3]), twist, rate


@dataclass(frozen=True)
class Relation:
    """sum of c_i q_i = offset + f(t) between joints of one velocity each."""

    joints: tuple[str, ...]
    coefficients: tuple[float, ...]
    offset: float = 0.0
    course: Swing | None = None

    def part(self, model):
        terms = [
            (c, model.joint(j).q_slice.start, model.joint(j).v_slice.start)
            for c, j in zip(self.coefficients, self.joints, strict=True)
        ]
        return ("coupling", terms, self.offset, None if self.course is None else lambda t: np.array(self.course(t)))

    def at(self, model, q, t=0.0):
        reached = sum(c * q[model.joint(j).q_slice.start] for c, j in zip(self.coefficients, self.joints, strict=True))
        return replace(self, offset=float(reached - (0.0 if self.course is None else self.course(t)[0])))

    def describe(self):
        if self.course is None:
            return ts.Coupling(list(self.joints), list(self.coefficients), offset=self.offset)
        if self.coefficients != (1.0,):
            raise ValueError("only single joints have a prescribed motion")
        return ts.PrescribedJoint(self.joints[0], replace(self.course, value=self.course.value + self.offset))


@dataclass(frozen=True)
class Case:
    """A closed mechanism with a state (q, v) at time t that satisfies its constraints to rounding."""

    model: ts.Model
    ties: tuple[Any, ...]
    q: Any
    v: Any
    t: float = 0.0

    @property
    def parts(self):
        return [tie.part(self.model) for tie in self.ties]

    @property
    def constraints(self):
        return [tie.describe() for tie in self.ties]


def closed(model, ties, q, v, *, t=0.0, keep=()):
    """The case with q and v projected onto the constraints, `keep` being velocities along which q is kept."""
    parts = [tie.part(model) for tie in ties]
    q = oracle.project(model, parts, q, t, keep=keep)
    return Case(model, tuple(ties), q, oracle.project_velocity(model, parts, q, v, t)[0], t)


def rod(length, mass=1.0, radius=0.05, start=0.0):
    """A slender rod along x from `start`."""
    I = mass * length**2 / 12 * np.eye(3)
    I[0, 0] = mass * radius**2
    return ts.Inertia(mass, (start + length / 2, 0, 0), I)


def frame(axis, p=(0, 0, 0)):
    """A pose (4, 4) at p whose z is the axis, the same for the same axis."""
    z = np.asarray(axis, dtype=float) / np.linalg.norm(axis)
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    T = np.eye(4)
    T[:3, 0], T[:3, 2], T[:3, 3] = x / np.linalg.norm(x), z, p
    T[:3, 1] = np.cross(z, T[:3, 0])
    return T


# Planar mechanisms

LENGTHS = {"crank": 1.0, "coupler": 2.2, "rocker": 1.8, "base": 2.4}


def four_bar(closing="revolute", cut="coupler-rocker", *, angles=(-0.7, -0.3, -1.5), speed=3.0, gravity=-9.81):
    """Crank, coupler and rocker about y, from the world at 0 over A and B to the world at (2.4, 0, 0).

    closing: "line" (2 rows), "point" (3), "revolute" (5), or "planes" (2 rows of points on planes). cut: the joint that
    the constraint is in place of: "world-crank", "crank-coupler", "coupler-rocker" or "rocker-world". angles: those of
    the links in the plane (the crank's is kept); speed: that of the crank. `link_angles(case)` has the angles.
    """
    L, turn = LENGTHS, ts.Revolute(Y)
    forward = {name: rod(L[name], mass) for name, mass in (("crank", 1.0), ("coupler", 2.0), ("rocker", 1.5))}
    back = {name: rod(L[name], i.mass, start=-L[name]) for name, i in forward.items()}
    # (body, parent, where on the parent, whether the frame is at the far end); rods are crank 0-A, coupler A-B, rocker
    # C-B
    trees = {
        "coupler-rocker": [
            ("crank", "world", 0.0, False),
            ("coupler", "crank", L["crank"], False),
            ("rocker", "world", L["base"], False),
        ],
        "crank-coupler": [
            ("crank", "world", 0.0, False),
            ("rocker", "world", L["base"], False),
            ("coupler", "rocker", L["rocker"], True),
        ],
        "rocker-world": [
            ("crank", "world", 0.0, False),
            ("coupler", "crank", L["crank"], False),
            ("rocker", "coupler", L["coupler"], True),
        ],
        "world-crank": [
            ("rocker", "world", L["base"], False),
            ("coupler", "rocker", L["rocker"], True),
            ("crank", "coupler", -L["coupler"], True),
        ],
    }
    ends = {
        "coupler-rocker": ("coupler", "rocker", L["coupler"], L["rocker"]),
        "crank-coupler": ("crank", "coupler", L["crank"], -L["coupler"]),
        "rocker-world": ("world", "rocker", L["base"], -L["rocker"]),
        "world-crank": ("world", "crank", 0.0, -L["crank"]),
    }
    b = ts.ModelBuilder(f"four-bar cut at {cut}", gravity=(0, 0, gravity))
    absolute = dict(zip(("crank", "coupler", "rocker"), angles, strict=True)) | {"world": 0.0}
    q = []
    for body, parent, where, far in trees[cut]:
        b.add_body(body, parent, turn, ts.SE3.translation(where, 0, 0), (back if far else forward)[body])
        q.append(absolute[body] - absolute[parent])
    model = b.build()
    first, second, x, y = ends[cut]
    A, B = frame(Y, (x, 0, 0)), frame(Y, (y, 0, 0))
    if closing == "planes":  # points on two planes of A that are not orthogonal
        ties = [Tie("plane", first, second, frame(n, (x, 0, 0)), B) for n in (X, (0.6, 0, 0.8))]
    else:
        ties = [Tie(closing, first, second, A, B)]
    case = closed(model, ties, np.array(q), np.zeros(3), keep=() if cut == "world-crank" else (0,))
    if cut == "world-crank":  # the crank's angle is the sum of all
        return _with_crank(case, absolute["crank"], speed)
    return _with_speed(case, speed)


def link_angles(case):
    """Angles and rates, each (3,), of crank, coupler and rocker in the plane."""
    model = case.model
    V = ts.body_velocities(model, case.q, case.v, frame="world")[:, 1]
    R = ts.body_poses(model, case.q)[:, :3, :3]
    at = [[b.name for b in model.bodies].index(name) for name in ("crank", "coupler", "rocker")]
    return np.array([np.arctan2(-R[i, 2, 0], R[i, 0, 0]) for i in at]), V[at]


def _with_speed(case, speed):
    """The motion along the constraint in which the crank has a given speed."""
    free = np.linalg.svd(oracle.jacobian(case.model, case.parts, case.q, case.t))[2][-1]
    crank = [b.name for b in case.model.bodies].index("crank")
    return replace(case, v=free * speed / ts.body_velocities(case.model, case.q, free, frame="world")[crank, 1])


def _with_crank(case, angle, speed):
    """The same with the crank at an angle, by Newton's method along the constraint."""
    for _ in range(20):
        case = _with_speed(case, 1.0)
        miss = angle - link_angles(case)[0][0]
        case = closed(case.model, case.ties, case.q + miss * case.v, case.v, t=case.t)
        if abs(miss) < 1e-15:
            break
    return _with_speed(case, speed)


def slider_crank(closing="revolute", *, speed=4.0):
    """A crank of 0.5, a rod of 1.5 and a slider along x, closed between rod and slider."""
    b = ts.ModelBuilder("slider-crank")
    b.add_body("crank", "world", ts.Revolute(Y), None, rod(0.5, 1.0))
    b.add_body("rod", "crank", ts.Revolute(Y), ts.SE3.translation(0.5, 0, 0), rod(1.5, 1.2))
    b.add_body("slider", "world", ts.Prismatic(X), None, ts.Inertia.sphere(mass=0.8, radius=0.1))
    model = b.build()
    ties = [Tie(closing, "rod", "slider", frame(Y, (1.5, 0, 0)), frame(Y))]
    case = closed(model, ties, np.array([0.8, -1.0, 1.8]), np.zeros(3), keep=(0,))
    return _with_speed(case, speed)


def ring(n=6, closing="line", *, seed=0, speed=1.0):
    """n rods, each on the one before by a hinge about y, the first on the world and the last closed to it: n - 2
    freedoms. The state is near a regular polygon."""
    length, rng = 2 * np.pi / n, np.random.default_rng(seed)
    b = ts.ModelBuilder(f"ring of {n}")
    for k in range(n):
        parent, where = ("world", 0.0) if k == 0 else (f"link{k - 1}", length)
        b.add_body(
            f"link{k}", parent, ts.Revolute(Y), ts.SE3.translation(where, 0, 0), rod(length, 0.5 + 0.1 * (k % 3))
        )
    model = b.build()
    ties = [Tie(closing, "world", f"link{n - 1}", frame(Y), frame(Y, (length, 0, 0)))]
    q = np.full(n, 2 * np.pi / n) + 0.1 / np.sqrt(n) * rng.standard_normal(n)
    return closed(model, ties, q, speed * rng.standard_normal(n))


# Spatial mechanisms


def bennett(alpha=0.6, beta=1.1, a=1.0, *, speed=2.0):
    """Bennett's linkage: four skew hinges with sin(alpha) / a = sin(beta) / b, one freedom; 5 rows of rank 2."""
    b = a * np.sin(beta) / np.sin(alpha)
    builder, placement, parent = ts.ModelBuilder("Bennett linkage"), ts.SE3(), "world"
    for k, (l, turn) in enumerate(((a, alpha), (b, beta), (a, alpha))):
        builder.add_body(f"link{k}", parent, ts.Revolute(Z), placement, rod(l, 1.0 + 0.3 * k))
        placement, parent = ts.SE3.translation(l, 0, 0) @ ts.SE3.rotation(X, turn), f"link{k}"
    model = builder.build()
    last = ts.SE3.translation(b, 0, 0) @ ts.SE3.rotation(X, beta)  # the base, from the fourth hinge to the first
    ties = [Tie("revolute", "world", "link2", last.inverse().matrix, placement.matrix)]
    parts, rng = [tie.part(model) for tie in ties], np.random.default_rng(0)
    for _ in range(200):
        q = rng.uniform(-3, 3, 3)
        for _ in range(60):
            d = np.linalg.pinv(oracle.jacobian(model, parts, q), rcond=1e-9) @ oracle.g(model, parts, q)
            q = q - d * min(1.0, 0.5 / np.abs(d).max())
            if np.abs(d).max() < 1e-15:
                break
        if np.abs(oracle.g(model, parts, q)).max() < 1e-14 and np.abs(np.sin(q)).min() > 0.2:
            break
    else:
        raise RuntimeError("the linkage does not close")
    free = np.linalg.svd(oracle.jacobian(model, parts, q))[2][-1]
    return Case(model, tuple(ties), q, speed * free / free[0])


def stewart_points(radius, half_angle, turn=0.0):
    """Six points (6, 3) on a circle, in pairs."""
    angles = turn + np.array([2 * np.pi * k / 3 + s * half_angle for k in range(3) for s in (-1, 1)])
    return np.stack([radius * np.cos(angles), radius * np.sin(angles), 0 * angles], axis=-1)


def stewart(base=None, top=None, *, pose=None, seed=0):
    """A platform on six legs, each universal, prismatic and closed by a point: n = 24, 18 rows, 6 freedoms.

    base, top: (6, 3) points in the world and in the platform's frame. pose: that of the platform.
    """
    base = stewart_points(1.2, 0.3) if base is None else np.asarray(base)
    top = stewart_points(0.7, 0.7) if top is None else np.asarray(top)
    pose = ts.SE3.translation(0.05, -0.1, 1.4) @ ts.SE3.rpy(0.1, -0.15, 0.2) if pose is None else pose
    rng = np.random.default_rng(seed)
    b = ts.ModelBuilder("Stewart platform")
    b.add_body("platform", "world", ts.Free(), None, ts.Inertia(8.0, (0, 0, 0), np.diag([1.0, 1.0, 1.96])))
    q = [*pose.p, *pose.quaternion]
    ties = []
    for k in range(6):
        b.add_body(f"cylinder{k}", "world", ts.Universal((X, Y)), ts.SE3.translation(*base[k]), _along_z(0.8, 1.0))
        b.add_body(f"rod{k}", f"cylinder{k}", ts.Prismatic(Z), None, _along_z(-0.8, 0.6))
        d = pose.R @ top[k] + pose.p - base[k]
        l = np.linalg.norm(d)
        x, y, z = d / l  # Rx(q0) Ry(q1) z = (sin q1, -sin q0 cos q1, cos q0 cos q1)
        q += [np.arctan2(-y, z), np.arcsin(x), l]
        T = np.eye(4)
        T[:3, 3] = top[k]
        ties.append(Tie("point", "platform", f"rod{k}", T))
    model = b.build()
    return closed(model, ties, np.array(q), rng.standard_normal(model.nv))


def _along_z(length, mass):
    I = mass * length**2 / 12 * np.eye(3)
    I[2, 2] = mass * 0.05**2
    return ts.Inertia(mass, (0, 0, length / 2), I)


def floating_loop(gravity=(0.0, 0.0, 0.0), closing="point", *, seed=0, speed=1.0):
    """A free hub with a crank, a coupler on a ball joint, an arm on a universal joint and a rocker, closed between arm
    and rocker. Momentum is conserved without gravity."""
    rng = np.random.default_rng(seed)
    b = ts.ModelBuilder("floating loop", gravity=gravity)
    b.add_body("hub", "world", ts.Free(), None, random_inertia(rng))
    b.add_body("crank", "hub", ts.Revolute(Y), ts.SE3.translation(0.1, 0, 0.1), rod(0.6, 1.0, 0.1))
    b.add_body("coupler", "crank", ts.Spherical(), ts.SE3.translation(0.6, 0, 0), rod(0.9, 1.0, 0.3))
    b.add_body("arm", "coupler", ts.Universal((Z, Y)), ts.SE3.translation(0.9, 0, 0), rod(0.7, 0.8, 0.2))
    b.add_body("rocker", "hub", ts.Revolute((0.3, 1, 0.1)), ts.SE3.translation(1.6, 0.2, 0), rod(1.2, 1.0, 0.1))
    model = b.build()
    start = model.plus(model.neutral, np.array([0.3, -0.2, 0.5, 0, 0, 0, -0.6, 0.1, 0.3, 0.2, 0.3, 0.4, -1.2]))
    ties = [Tie(closing, "arm", "rocker", frame((0.2, 0.1, 1), (0.7, 0, 0)), frame((0.3, 0.2, 1), (1.2, 0, 0)))]
    return closed(model, ties, start, speed * rng.standard_normal(model.nv))


def humanoid(*, feet="weld", seed=0, still=False):
    """A tree of a free pelvis, a torso, two arms and two legs, its two feet tied to the world: n = 27, 12 rows."""
    rng = np.random.default_rng(seed)
    b = ts.ModelBuilder("humanoid")
    down = ts.SE3.translation
    b.add_body("pelvis", "world", ts.Free(), None, ts.Inertia.sphere(mass=9.0, radius=0.14))
    b.add_body(
        "torso",
        "pelvis",
        ts.Spherical(),
        down(0, 0, 0.12),
        _along_z(0.5, 24.0) + ts.Inertia.sphere(mass=8.0, radius=0.12),
    )
    q = np.zeros(0)
    for side, y in (("left", 1.0), ("right", -1.0)):
        b.add_body(f"{side}_thigh", "pelvis", ts.Spherical(), down(0, 0.1 * y, -0.05), _along_z(-0.42, 7.0))
        b.add_body(f"{side}_shin", f"{side}_thigh", ts.Revolute(Y), down(0, 0, -0.42), _along_z(-0.4, 3.5))
        box = ts.Inertia(1.1, (0.05, 0, -0.04), np.diag([0.002, 0.005, 0.006]))
        b.add_body(f"{side}_foot", f"{side}_shin", ts.Universal((Y, X)), down(0, 0, -0.4), box)
        b.add_body(f"{side}_arm", "torso", ts.Universal((Y, X)), down(0, 0.22 * y, 0.45), _along_z(-0.3, 2.0))
        b.add_body(f"{side}_hand", f"{side}_arm", ts.Revolute(Y), down(0, 0, -0.3), _along_z(-0.35, 1.5))
    model = b.build()
    bend = {"left_thigh": (0.05, -0.4, 0.02), "right_thigh": (-0.04, -0.3, 0.03), "left_shin": 0.8, "right_shin": 0.65}
    bend |= {"left_foot": (-0.4, -0.05), "right_foot": (-0.35, 0.04), "left_hand": -0.5, "right_hand": -0.9}
    d = np.zeros(model.nv)
    for name, value in bend.items():
        d[model.joint(name).v_slice] = value
    d[3:6] = 0, 0, 0.9
    q = model.plus(model.neutral, d)
    ties = [Tie(feet, "world", f"{side}_foot", B=frame(Z, (0.05, 0, -0.06))).at(model, q) for side in ("left", "right")]
    return closed(model, ties, q, np.zeros(model.nv) if still else rng.standard_normal(model.nv))


def driven(*, seed=0, speed=0.5):
    """An arm whose hand follows a point that moves, and whose first joint swings as prescribed: n = 9, 4 rows that
    depend on time, at t = 0.3."""
    rng = np.random.default_rng(seed)
    b = ts.ModelBuilder("driven arm")
    b.add_body("column", "world", ts.Revolute(Z), None, rod(0.4, 1.0, 0.1))
    b.add_body("upper", "column", ts.Spherical(), ts.SE3.translation(0.2, 0, 0.3), rod(0.8, 1.0, 0.2))
    b.add_body("lower", "upper", ts.Universal((Z, Y)), ts.SE3.translation(0.8, 0, 0), rod(0.7, 0.8, 0.2))
    b.add_body("hand", "lower", ts.SphericalExp(), ts.SE3.translation(0.7, 0, 0), rod(0.3, 0.5, 0.1))
    model = b.build()
    q = model.plus(model.neutral, np.array([0.2, 0.1, -0.5, 0.3, 0.7, 0.9, 0.2, 0.6, -0.4]))
    course = Course(np.eye(4), *(0.2 * rng.standard_normal((2, 6))))
    ties = [Tie("point", "world", "hand", B=frame(X, (0.3, 0, 0)), course=course)]
    ties = [tie.at(model, q, 0.3) for tie in (*ties, Relation(("column",), (1.0,), 0.0, Swing()))]
    return closed(model, ties, q, speed * rng.standard_normal(model.nv), t=0.3)


# Random ones


def paths(model):
    """For each body the set of itself and its ancestors."""
    out = {"world": set()}
    for b in model.bodies:
        out[b.name] = {b.name} | out[b.parent]
    return out


def relation_of(model, a, b):
    """ "world", "one path", "two branches" or "two trees"."""
    if "world" in (a, b):
        return "world"
    p = paths(model)
    if a in p[b] or b in p[a]:
        return "one path"
    return "two branches" if p[a] & p[b] else "two trees"


def random_tie(model, rng, kind=None, *, relation=None, moving=False):
    """A tie of random markers between random bodies whose motions differ, of a given kind and relation if there is a
    pair of bodies with it."""
    kind = KINDS[rng.integers(len(KINDS))] if kind is None else kind
    carried = {b.name: b.joint.nv > 0 for b in model.bodies} | {"world": False}
    p = paths(model)
    names = ["world", *(b.name for b in model.bodies)]
    pairs = [(a, b) for a in names for b in names if any(carried[c] for c in p[a] ^ p[b])]
    if moving:
        pairs = [(a, b) for a, b in pairs if a == "world"]
    wanted = [(a, b) for a, b in pairs if relation_of(model, a, b) == relation]
    pairs = wanted or pairs
    a, b = pairs[rng.integers(len(pairs))]
    A, B = random_pose(rng).matrix, random_pose(rng).matrix
    if kind == "distance":
        A[:3, :3] = B[:3, :3] = np.eye(3)
    if moving:
        A = np.eye(4)
    offset = {"distance": rng.uniform(0.5, 1.5), "plane": rng.standard_normal()}.get(kind, 0.0)
    return Tie(kind, a, b, A, B, float(offset), random_course(rng) if moving else None)


def random_relation(model, rng):
    """A coupling of up to three joints of one coordinate; None if there are none."""
    plain = [j.name for j in model.joints if j.nq == j.nv == 1]
    if not plain:
        return None
    some = rng.choice(plain, size=min(len(plain), int(rng.integers(1, 4))), replace=False)
    if len(some) == 1:
        return Relation((str(some[0]),), (1.0,), float(rng.standard_normal()), Swing())
    return Relation(
        tuple(map(str, some)), tuple(rng.uniform(0.5, 1.5, len(some)).tolist()), float(rng.standard_normal())
    )


RELATIONS = ("world", "one path", "two branches", "two trees")


def random_constraints(model, rng, count=4, *, share=0.6):
    """Random ties over all kinds of pairs of bodies, one with a moving marker, and a coupling: at most `share` of nv
    rows. They do not hold at any state; `consistent` moves their markers so that they do."""
    rng = np.random.default_rng(rng)
    ties, rows = [], 0
    relation = random_relation(model, rng)
    first = int(rng.integers(len(RELATIONS)))
    for k in range(count):
        tie = random_tie(model, rng, relation=RELATIONS[(first + k) % len(RELATIONS)], moving=k == 1)
        if rows + len(ROWS[tie.kind]) <= share * model.nv:
            ties.append(tie)
            rows += len(ROWS[tie.kind])
    if relation is not None and rows + 1 <= share * model.nv:
        ties.append(relation)
    return ties or [random_tie(model, rng, "distance")]


def off_constraint(model, ties, rng, t=0.3):
    """A case whose state is random: it does not satisfy the constraints."""
    rng = np.random.default_rng(rng)
    return Case(model, tuple(ties), model.random(rng), rng.standard_normal(model.nv), t)


def on_constraint(model, ties, rng, t=0.3):
    """A case with a random state which satisfies the constraints, because their markers are moved there."""
    rng = np.random.default_rng(rng)
    q, v = model.random(rng), rng.standard_normal(model.nv)
    ties = tuple(tie.at(model, q, t) for tie in ties)
    parts = [tie.part(model) for tie in ties]
    for _ in range(2):
        v = oracle.project_velocity(model, parts, q, v, t)[0]
    return Case(model, ties, q, v, t)


def random_case(seed, *, joints=8, count=4, on=True, charts=True):
    """A random tree with random constraints of full rank; joints in R^n alone without `charts`."""
    rng = np.random.default_rng(seed)
    while True:
        population = [j for j in example_joints() if charts or (j.nq == j.nv and not isinstance(j, ts.Composite))]
        chosen = [population[k] for k in rng.integers(len(population), size=joints)]
        model = random_tree(rng, chosen)
        ties = random_constraints(model, rng, count)
        case = (on_constraint if on else off_constraint)(model, ties, rng)
        values = oracle.singular_values(model, case.parts, case.q, case.t)
        if values.min() > 1e-2:
            return case
