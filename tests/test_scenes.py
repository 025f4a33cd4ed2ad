"""Scenes of many kinds against dynamics, forces and steps by hand (by_hand.py), and gradients by differences."""

from dataclasses import replace
from itertools import pairwise

import by_hand
import numpy as np
import pytest
from population import sweep

import torsor as ts

X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
INTEGRATORS = (ts.SymplecticEuler, ts.LinearlyImplicitEuler, ts.BDF1, ts.BDF2, ts.SDIRK2)
IMPLICIT = INTEGRATORS[2:]


def turns(*axes):
    return [("turn", a) for a in axes]


def slides(*axes):
    return [("slide", a) for a in axes]


def same(joint):
    """The joint as factors of by_hand.Tree."""
    if isinstance(joint, ts.Composite):
        return [factor for part in joint.joints for factor in same(part)]
    if isinstance(joint, ts.SphericalEuler):
        return turns(*({"X": X, "Y": Y, "Z": Z}[c] for c in joint.chart))
    return {
        ts.Fixed: list,
        ts.Revolute: lambda: turns(joint.axis),
        ts.Prismatic: lambda: slides(joint.axis),
        ts.Cylindrical: lambda: turns(joint.axis) + slides(joint.axis),
        ts.Planar: lambda: slides(*joint.directions),
        ts.Translational: lambda: slides(X, Y, Z),
        ts.Universal: lambda: turns(*joint.axes),
        ts.Free2D: lambda: slides(X, Y) + turns(Z),
        ts.Spherical: lambda: [("ball",)],
        ts.Free: lambda: [("free",)],
    }[type(joint)]()


class Scene:
    """A model and a tree by hand, with forces of both."""

    def __init__(self, seed, bodies, gravity=(0.2, -0.1, -9.81)):
        self.rng = rng = np.random.default_rng(seed)
        builder, self.tree = ts.ModelBuilder(gravity=gravity), by_hand.Tree(gravity)
        for name, parent, joint in bodies:
            axis = rng.standard_normal(3)
            R = by_hand.rotation(axis / np.linalg.norm(axis), rng.uniform(-1, 1))
            placement = by_hand.pose(R, 0.5 * rng.standard_normal(3)).real
            A = 0.3 * rng.standard_normal((3, 3))
            P = A @ A.T + 0.02 * np.eye(3)  # second moments of a physical body
            mass, com, I_com = rng.uniform(0.5, 2.0), 0.2 * rng.standard_normal(3), np.trace(P) * np.eye(3) - P
            builder.add_body(name, parent, joint, ts.SE3.from_matrix(placement), ts.Inertia(mass, com, I_com))
            self.tree.add(name, parent, placement, same(joint), mass, com, I_com)
        self.model = builder.build()
        self.q = self.model.plus(self.model.neutral, 0.4 * rng.standard_normal(self.model.nv))
        self.v = rng.standard_normal(self.model.nv)
        self.forces, self.hand = [], []

    def add(self, force, by_hand):
        self.forces.append(force)
        self.hand.append(by_hand)

    def strained(self, b1, x1, b2, x2, k, d, L):
        self.add(
            ts.SpringDamper(b1, x1, b2, x2, k, d, L),
            by_hand.path_spring((b1, b2), (x1, x2), by_hand.strained(k, d, L)),
        )

    def pulled(self, b1, x1, b2, x2, k, d):
        self.add(ts.PointSpring(b1, x1, b2, x2, k, d), by_hand.point_spring(b1, x1, b2, x2, k, d))

    def cable(self, bodies, points, k, d, slack):
        """As long at rest as at the start, times `slack`."""
        s = by_hand.State(self.tree, self.q, self.v)
        x = [s.point(b, p)[0] for b, p in zip(bodies, points, strict=True)]
        L = slack * sum(np.linalg.norm(b - a) for a, b in pairwise(x))
        self.add(ts.Cable(bodies, points, k, d, L), by_hand.path_spring(bodies, points, by_hand.taut(k, d, L)))

    def run(self, integrator, steps, **changes):
        given = {"model": self.model, "q0": self.q, "v0": self.v, "forces": self.forces, **changes}
        return ts.simulate(**given, steps=steps, integrator=integrator)


def branching():
    s = Scene(
        1,
        [
            ("root", "world", ts.Revolute(Y)),
            ("left", "root", ts.Universal()),
            ("hand", "left", ts.Revolute((1, 1, 0))),
            ("right", "root", ts.Planar(((1, 0, 0), (0, 1, 0.3)))),
            ("foot", "right", ts.Cylindrical(Z)),
            ("weight", "right", ts.Fixed()),
        ],
    )
    n = s.model.nv
    k, d, rest = s.rng.uniform(5, 20, n), s.rng.uniform(0.1, 1, n), 0.3 * s.rng.standard_normal(n)
    s.add(ts.JointSpring(None, k, rest, d), by_hand.joint_spring(k, rest, d))
    s.strained("hand", (0.1, 0, 0.2), "foot", (0, 0.1, 0), 30.0, 1.0, 0.6)
    c = np.linspace(0.1, 0.6, 6)
    s.add(ts.BodyDamping("weight", c), by_hand.body_damping("weight", c))
    return s


def planar():
    s = Scene(
        2,
        [
            ("a", "world", ts.Planar(((1, 0, 1), (0, 1, 0)))),
            ("b", "a", ts.Revolute(Z)),
            ("c", "b", ts.Prismatic(X)),
            ("d", "c", ts.Free2D()),
        ],
    )
    s.pulled("a", (0, 0.1, 0), "world", Z, 50.0, 2.0)
    s.strained("world", (0, 0, 0), "d", (0.2, 0, 0), 40.0, 3.0, 1.2)
    times, rows = np.array([0.0, 0.02, 0.07]), s.rng.standard_normal((3, 6))
    s.add(
        ts.BodyWrench("c", rows, times),
        by_hand.body_wrench("c", lambda t: np.array([np.interp(t, times, x) for x in rows.T])),
    )
    f = np.array([1.0, 2.0, 3.0])
    s.add(ts.PointForce("d", (0.1, 0.2, 0.3), f), by_hand.point_force("d", (0.1, 0.2, 0.3), lambda t: f))
    return s


def cables():
    """One that becomes slack on the way, one that stays taut, and a path with a law of its own."""
    s = Scene(
        3,
        [
            ("a", "world", ts.Translational()),
            ("b", "a", ts.Universal()),
            ("c", "b", ts.Revolute(X)),
            ("e", "a", ts.SphericalEuler("XYZ")),
        ],
    )
    s.cable(("world", "a", "b", "c"), (Z, (0.1, 0, 0), (0, 0.2, 0), (0.1, 0.1, 0.1)), 800.0, 5.0, 0.995)
    s.cable(("e", "world", "b"), ((0, 0.1, 0.1), X, (0, 0, 0.1)), 300.0, 0.5, 0.9)

    def law(l, ldot):
        return 30 * (l - 0.5) ** 3 + 0.2 * l * ldot, 90 * (l - 0.5) ** 2 + 0.2 * ldot, 0.2 * l

    bodies, points = ("a", "e", "c"), ((0, 0, 0), (0.3, 0, 0), (0, 0.2, 0))
    s.add(
        ts.CustomCable(bodies, points, law),
        by_hand.path_spring(bodies, points, lambda l, ldot: law(l, ldot)[0]),
    )
    return s


def box(joint):
    """A box on a slope, one corner of it in the ground: it sticks, then slips."""
    s = Scene(4, [("box", "world", joint)])
    corners = np.array([[x, y, z] for x in (-0.2, 0.2) for y in (-0.15, 0.15) for z in (-0.1, 0.1)])
    s.q = s.model.plus(s.model.neutral, 0.1 * s.rng.standard_normal(6))
    s.v = 0.5 * s.v
    normal = np.array([0.2, 0.1, 1.0])
    state = by_hand.State(s.tree, s.q, s.v)
    lowest = min((state.point("box", c)[0] for c in corners), key=lambda x: x @ normal)
    at = lowest + 0.02 * normal
    s.add(
        ts.GroundContact("box", corners, 2e3, 10.0, 20.0, 0.43, at, normal),
        by_hand.ground("box", corners, 2e3, 10.0, 20.0, 0.43, at, normal),
    )
    return s


def loop():
    """Four bars, closed by a stiff spring."""
    s = Scene(5, [("a", "world", ts.Revolute(Y)), ("b", "a", ts.Revolute(Y)), ("c", "b", ts.Revolute(Y))])
    end = by_hand.State(s.tree, s.q, s.v).point("c", (0, 0, 0.5))[0]
    s.pulled("c", (0, 0, 0.5), "world", end, 1e5, 50.0)
    return s


def limits():
    s = Scene(
        6,
        [
            ("a", "world", ts.Revolute(Y)),
            ("b", "a", ts.Universal()),
            ("c", "b", ts.Prismatic(Z)),
            ("d", "b", ts.Translational()),
        ],
    )
    s.q, s.v, n = 0.5 * s.q, 3.0 * s.v, s.model.nv
    k, d, low, high = np.linspace(100, 300, n), np.linspace(0.5, 3, n), np.full(n, -0.1), np.full(n, 0.15)
    law = np.linspace(0.1, 0.3, n), 0.05
    s.add(ts.JointLimits(None, k, d, low, high, *law), by_hand.joint_limits(k, d, low, high, *law))
    friction = np.linspace(1, 3, n), 0.5
    s.add(ts.JointFriction(None, *friction), by_hand.dry_friction(*friction))
    return s


def quaternions():
    s = Scene(
        7,
        [
            ("base", "world", ts.Free()),
            ("arm", "base", ts.Spherical()),
            ("leg", "base", ts.Composite(ts.Prismatic(X), ts.Spherical())),
            ("tip", "arm", ts.Universal((X, Z))),
        ],
    )
    s.strained("arm", (0.1, 0, 0.2), "leg", (0, 0.1, 0), 30.0, 1.0, 0.6)
    s.pulled("base", (0, 0.1, 0), "world", Z, 50.0, 2.0)
    c = np.linspace(0.1, 0.6, 6)
    s.add(ts.BodyDamping("tip", c), by_hand.body_damping("tip", c))
    return s


SCENES = {
    "branching": branching,
    "planar": planar,
    "cables": cables,
    "box": lambda: box(ts.Composite(ts.Translational(), ts.SphericalEuler("XYZ"))),
    "free box": lambda: box(ts.Free()),
    "loop": loop,
    "limits": limits,
    "quaternions": quaternions,
}
VECTORS = [name for name in SCENES if name not in ("free box", "quaternions")]
SMOOTH = ("branching", "planar", "quaternions")


@pytest.mark.parametrize("name", SCENES)
def test_accelerations_and_energies(name):
    """Rounding alone: 1e-14 of the numbers that add up."""
    s = SCENES[name]()
    m = s.model
    states = [(m.plus(s.q, d), s.v + e) for d, e in 0.2 * s.rng.standard_normal((4, 2, m.nv))]
    first = by_hand.energy(s.tree, s.q, s.v)[1] - ts.potential_energy(m, s.q)  # of another zero
    for q, v in states:
        a = by_hand.acceleration(s.tree, s.hand, q, v, 0.03)
        tau = ts.generalized_forces(m, s.forces, q, v, t=0.03)
        np.testing.assert_allclose(ts.forward_dynamics(m, q, v, tau), a, rtol=0, atol=1e-11 * np.abs(a).max())
        kinetic, potential = by_hand.energy(s.tree, q, v)
        assert ts.kinetic_energy(m, q, v) == pytest.approx(kinetic, rel=1e-12)
        assert ts.potential_energy(m, q) == pytest.approx(potential - first, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("kind", sweep(IMPLICIT, 3))
@pytest.mark.parametrize("name", sweep(VECTORS, 3))
def test_implicit_steps(name, kind):
    """The same equations, solved by SciPy: what both solvers leave is 1e-12 of v, ten times that after some steps."""
    s = SCENES[name]()
    u = s.rng.standard_normal((5, s.model.nv))
    h = 0.001 if name == "limits" else 0.01  # so that steps resolve what happens at limits
    q, v = by_hand.implicit_steps(s.tree, s.hand, s.q, s.v, h, 5, kind.__name__, u)
    run = s.run(kind(h, tolerance=1e-12), 5, controls=u)
    assert (run.substeps == 1).all() and not run.switches
    np.testing.assert_allclose(run.q, q, rtol=0, atol=1e-10)
    np.testing.assert_allclose(run.v, v, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", INTEGRATORS[:2])
@pytest.mark.parametrize("name", VECTORS)
def test_explicit_steps(name, kind):
    """K and D of the comparison are differences, right to 1e-10 of themselves; h K and h D stay below M here."""
    s = SCENES[name]()
    h = 1e-3
    u = s.rng.standard_normal((5, s.model.nv))
    q, v = by_hand.explicit_steps(s.tree, s.hand, s.q, s.v, h, 5, kind.__name__, u)
    run = s.run(kind(h), 5, controls=u)
    np.testing.assert_allclose(run.q, q, rtol=0, atol=1e-10)
    np.testing.assert_allclose(run.v, v, rtol=0, atol=1e-8 if kind is ts.LinearlyImplicitEuler else 1e-11)


@pytest.mark.parametrize("name", SMOOTH)
def test_orders(name):
    s = SCENES[name]()
    m = s.model

    def u(t):
        return np.sin(30 * t + np.arange(m.nv))

    q, v = by_hand.exact(s.tree, s.hand, s.q, s.v, 0.05, u)
    close = s.run(ts.Adaptive(0.025), 2, controls=u)
    assert np.abs(m.minus(close.q[-1], q)).max() < 1e-9 and np.abs(close.v[-1] - v).max() < 1e-8
    for kind in INTEGRATORS:
        errors = []
        for steps in (100, 200):
            run = s.run(kind(0.05 / steps), steps, controls=u)
            errors.append(np.abs(m.minus(run.q[-1], q)).max() + np.abs(run.v[-1] - v).max())
        assert np.log2(errors[0] / errors[1]) == pytest.approx(kind.order, abs=0.1)


@pytest.mark.parametrize("name", ["box", "free box"])
def test_friction_and_dampers_take_energy_away(name):
    """Nothing but gravity, a conservative spring, dampers and friction: the energy of the exact motion never grows."""
    s = SCENES[name]()
    energy = s.run(ts.Adaptive(2e-3, rtol=1e-9, atol=1e-9), 100).energies.total
    assert np.diff(energy).max() < 1e-7
    assert energy[-1] < energy[0] - 0.1


def test_boxes_land_on_stiff_ground():
    """1e6 and a damper that sets in with a jump, at h = 1e-2: some steps have no solution, and are divided until they
    have one."""
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("box", "world", ts.Free(), inertia=ts.Inertia.box((1.0, 1.0, 1.0), mass=1.0))
    model = builder.build()
    corners = 0.5 * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    contact = ts.GroundContact("box", corners, 1e6, 1e3, 1e4, 0.3)
    rng = np.random.default_rng(1)
    q = model.plus(np.array([0, 0, 1.2, 0, 0, 0, 1.0]), 0.4 * rng.standard_normal((5, 6)))
    run = ts.simulate(model, q, rng.standard_normal((5, 6)), T=1.0, integrator=ts.BDF1(1e-2), forces=[contact])
    assert run.substeps.max() > 64
    assert (run.q[:, -1, 2] > 0.499).all() and (run.q[:, -1, 2] < 0.87).all()  # on a side or on the way there
    assert (run.energies.total[:, -1] < run.energies.total[:, 0]).all()


def along(f, eps):
    """The derivative of f(x) at 0, to the fourth order of eps."""
    near, far = (f(eps) - f(-eps)) / (2 * eps), (f(2 * eps) - f(-2 * eps)) / (4 * eps)
    return (4 * near - far) / 3


@pytest.mark.parametrize("kind", sweep(INTEGRATORS, 3))
@pytest.mark.parametrize("name", SCENES)
def test_gradients(name, kind):
    """Of a random loss of all rows, along random directions of every class of parameters."""
    s = SCENES[name]()
    m, rng, steps = s.model, s.rng, 6
    # Springs of 1e5 want smaller steps of an explicit integrator. Corners, limits and cables stay on their sides.
    h = 2e-4 if name == "loop" and kind is ts.SymplecticEuler else 4e-3
    integrator = kind(h, tolerance=1e-14) if kind in IMPLICIT else kind(h)
    eps = 1e-4 if name in (*SMOOTH, "loop") else 1e-5
    u = rng.standard_normal((steps, m.nv))
    base = s.run(integrator, steps, controls=u)
    wq, wv = rng.standard_normal((2, steps + 1, m.nv))
    g = ts.adjoint(base, dloss_dq=wq, dloss_dv=wv)
    size = np.abs(g.v0).max()

    def check(gradient, change, at):
        """`change(x)` are the arguments of a run whose parameters are `at` + x."""
        d = rng.standard_normal(np.shape(at)) * np.maximum(1.0, np.abs(at))

        def loss(e):
            run = s.run(integrator, steps, **{"controls": u, **change(np.asarray(at) + e * d)})
            return (wq * m.minus(run.q, base.q)).sum() + (wv * (run.v - base.v)).sum()

        terms = np.asarray(gradient) * d
        assert along(loss, eps) == pytest.approx(terms.sum(), abs=1e-7 * max(np.abs(terms).max(), 0.1 * size))

    def body(k, **parts):
        bodies = list(m.bodies)
        bodies[k] = replace(bodies[k], **parts)
        return {"model": replace(m, bodies=tuple(bodies))}

    check(g.q0, lambda x: {"q0": m.plus(s.q, x)}, np.zeros(m.nv))
    check(g.v0, lambda x: {"v0": x}, s.v)
    check(g.controls, lambda x: {"controls": x}, u)
    check(g.gravity, lambda x: {"model": m.with_gravity(x)}, np.array(m.gravity))
    for k, b in enumerate(m.bodies):
        of_body = b.inertia.parameters
        check(
            g.inertia[k],
            lambda x, k=k: body(k, inertia=ts.Inertia.from_parameters(x, allow_unphysical=True)),
            of_body,
        )
        check(g.placement[k], lambda x, k=k, b=b: body(k, placement=b.placement @ ts.SE3.exp(x)), np.zeros(6))
    for k, force in enumerate(s.forces):
        for name_, value in ((n, x) for n, x in force.parameters.items() if x.size):

            def with_value(x, k=k, force=force, name_=name_):
                changed = force.with_parameters({name_: x})
                return {"forces": [*s.forces[:k], changed, *s.forces[k + 1 :]]}

            check(g.forces[k][name_], with_value, value)


@pytest.mark.parametrize("kind", [ts.SymplecticEuler, ts.BDF2])
def test_batches_through_chart_switches(kind):
    """Each trajectory of a batch, and its gradient, as alone, although their charts change at different times."""
    s = Scene(
        8,
        [
            ("a", "world", ts.SphericalEuler("XYZ")),
            ("b", "a", ts.SphericalEuler("ZYZ")),
            ("c", "b", ts.Revolute(X)),
        ],
    )
    s.q, s.v = np.array([0.1, 0.95, 0.3, 0.2, 0.65, 0.1, 0.3]), np.array([0.5, 2.0, 0.3, 0.2, -2.0, 0.5, 1.0])
    s.pulled("c", (0, 0.1, 0), "world", Z, 50.0, 2.0)
    m, steps, n = s.model, 15, 8
    q = s.q + 0.05 * s.rng.standard_normal((n, m.nq))
    v, u = s.v + 0.3 * s.rng.standard_normal((n, m.nv)), s.rng.standard_normal((n, steps, m.nv))
    w = s.rng.standard_normal((n, steps + 1, m.nv))
    batch = s.run(kind(0.01), steps, q0=q, v0=v, controls=u, threads=2)
    g = ts.adjoint(batch, dloss_dq=w, dloss_dv=w, threads=2)
    assert len({s.row for s in batch.switches}) > 2
    for i in range(n):
        one = s.run(kind(0.01), steps, q0=q[i], v0=v[i], controls=u[i])
        h = ts.adjoint(one, dloss_dq=w[i], dloss_dv=w[i])
        for name in ("q", "v", "a"):
            np.testing.assert_array_equal(getattr(batch, name)[i], getattr(one, name))
        np.testing.assert_array_equal(batch.energies.total[i], one.energies.total)
        for name in ("q0", "v0", "controls", "inertia", "placement", "gravity"):
            np.testing.assert_array_equal(getattr(g, name)[i], getattr(h, name))
        np.testing.assert_array_equal(g.forces[0]["point1"][i], h.forces[0]["point1"])
