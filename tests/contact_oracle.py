"""Contact once more: the law, gaps, generalized forces and the equations of implicit steps, by NumPy.

Nothing here calls the contact of the library: a contact is read as data, the names of its bodies, the kinds of its
shapes and its parameters, and the rest is public kinematics. All of it is analytic in q, v, a and in the parameters,
in any batch shape, so that complex steps give every derivative.

`residual` has the equations of a step as a function of both of its ends, with nothing to solve: the first stage of
`SDIRK2`, which trajectories do not have, follows from the second one, x_1 = (xi - J^-1 v / c) / z. So a step that was
returned is checked from the outside, and its derivatives are those of an implicit function.
"""

from typing import Any, NamedTuple

import constraint_oracle as oracle
import numpy as np

import torsor as ts
from torsor.testing import STEP, complex_inputs

ALPHA = 1 - np.sqrt(0.5)  # of SDIRK2


# The law


def where_real(condition, x, y):
    return np.where(condition, *np.broadcast_arrays(x, y))


def depth_ratio(x, onset):
    """p(x): the normal force of a contact at rest is stiffness p. x^2/(2 e) up to the onset e, then x - e/2."""
    early = x * x / (2 * onset) if np.real(onset) > 0 else 0 * x
    return where_real(np.real(x) <= 0, 0.0, where_real(np.real(x) < np.real(onset), early, x - onset / 2))


def depth_energy(x, onset):
    """P with P' = p, P(0) = 0."""
    early = x**3 / (6 * onset) if np.real(onset) > 0 else 0 * x
    late = (x - onset / 2) ** 2 / 2 + onset**2 / 24
    return where_real(np.real(x) <= 0, 0.0, where_real(np.real(x) < np.real(onset), early, late))


def dissipation_ratio(s):
    """D(s), s = dissipation times the speed of separation: 1 - s, rounded to 0 between 1/2 and 3/2."""
    late = where_real(np.real(s) < 1.5, (1.5 - s) ** 2 / 2, 0.0)
    return where_real(np.real(s) <= 0.5, 1 - s, late)


def slip_ratio(s):
    """F(s) / s, s = |u_t| / slip: F = s (2 - s) up to 1, and 1 from there on."""
    return where_real(np.real(s) < 1, 2 - s, 1 / where_real(np.real(s) < 1, 1.0, s))


def dot(x, y):
    return (x * y).sum(-1, keepdims=True)


def normal_force(gap, un, law):
    """f_n (...), of gaps and speeds of separation."""
    return law["stiffness"] * depth_ratio(-gap, law["onset"]) * dissipation_ratio(law["dissipation"] * un)


def force(gap, normal, u, law):
    """The force (..., 3) on the first body, u (..., 3) its velocity relative to the second at the contact.

    law: a dict of stiffness, dissipation, friction, slip and onset.
    """
    un = dot(normal, u)
    ut = u - un * normal
    fn = normal_force(gap[..., None], un, law)
    s = np.sqrt(dot(ut, ut)) / law["slip"]
    return fn * normal - law["friction"] * fn * slip_ratio(s) * ut / law["slip"]


def creep(ratio, slip):
    """The speed at which friction is the share `ratio` < 1 of its limit."""
    return slip * (1 - np.sqrt(1 - ratio))


# Contacts as data


class Pair(NamedTuple):
    """Two shapes, each a kind and its numbers by name, on two bodies or the world, and the law between them."""

    body: str
    kind: str
    numbers: dict[str, Any]
    other: str
    other_kind: str
    other_numbers: dict[str, Any]
    law: dict[str, Any]


LAW = ("stiffness", "dissipation", "friction", "slip", "onset")


def pair_of(contact, **changed):
    """A `ts.Contact` as data, with other values of some parameters."""
    p = contact.parameters | changed
    kinds = (type(contact.shape).__name__, type(contact.other_shape).__name__)
    own = {k: x for k, x in p.items() if k not in LAW and not k.startswith("other_")}
    other = {k.removeprefix("other_"): x for k, x in p.items() if k.startswith("other_")}
    return Pair(contact.body, kinds[0], own, contact.other, kinds[1], other, {k: p[k] for k in LAW})


def pairs_of(forces):
    """The contacts among forces, as data."""
    return [x if isinstance(x, Pair) else pair_of(x) for x in forces if isinstance(x, Pair) or is_contact(x)]


def is_contact(x):
    return type(x).__name__ == "Contact"


def without_contacts(forces):
    return [x for x in forces if not isinstance(x, Pair) and not is_contact(x)]


# Gaps


def unit(x):
    return x / np.sqrt(dot(x, x))


def rotated(orientation, x):
    """x (n, 3) turned by a quaternion xyzw of any length."""
    return np.einsum("ij,nj->ni", oracle.rotation(unit(np.asarray(orientation))), x)


def balls(kind, numbers):
    """Centres (n, 3) in the body and radius of the balls by which a shape touches a plane: corners of a box, ends of a
    capsule."""
    if kind == "Sphere":
        return np.asarray(numbers["position"])[None], numbers["radius"]
    if kind == "Capsule":
        ends = np.array([[0, 0, -1], [0, 0, 1]]) * numbers["half_length"]
        return numbers["position"] + rotated(numbers["orientation"], ends), numbers["radius"]
    if kind == "Box":
        signs = np.array([[x, y, z] for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)])
        corners = signs * (np.asarray(numbers["half_size"]) - numbers["radius"])
        return numbers["position"] + rotated(numbers["orientation"], corners), numbers["radius"]
    raise ValueError(f"no balls of a {kind}")


def world(T, x):
    """Points x (n, 3) of a body with the poses T (..., 4, 4): (..., n, 3)."""
    return np.einsum("...ij,nj->...ni", T[..., :3, :3], x) + T[..., None, :3, 3]


def places(pair, A, B):
    """gap (..., n), normal (..., n, 3) from B to A, point (..., n, 3), for bodies with the poses A and B.

    Forces act in the middle between both surfaces.
    """
    if pair.kind == "HalfSpace":
        flipped = Pair(pair.other, pair.other_kind, pair.other_numbers, pair.body, pair.kind, pair.numbers, pair.law)
        gap, normal, point = places(flipped, B, A)
        return gap, -normal, point
    centres, radius = balls(pair.kind, pair.numbers)
    centres = world(A, centres)
    if pair.other_kind == "HalfSpace":
        plane = pair.other_numbers
        normal = np.einsum("...ij,j->...i", B[..., :3, :3], unit(np.asarray(plane["normal"])))[..., None, :]
        gap = dot(normal, centres - B[..., None, :3, 3])[..., 0] - plane["offset"] - radius
        return gap, normal + 0 * centres, centres - (radius + gap[..., None] / 2) * normal
    if pair.kind == pair.other_kind == "Sphere":
        other, other_radius = balls(pair.other_kind, pair.other_numbers)
        other = world(B, other)
        apart = centres - other
        length = np.sqrt(dot(apart, apart))
        normal = apart / length
        gap = length[..., 0] - radius - other_radius
        return gap, normal, other + (other_radius + gap[..., None] / 2) * normal
    raise ValueError(f"no gap of a {pair.kind} and a {pair.other_kind}")


# Kinematics


class Bodies:
    """Poses (..., 4, 4) and twists (..., 6) of bodies by name, those of the world too; and forces on them."""

    def __init__(self, model, q, v):
        self.names = [b.name for b in model.bodies]
        with complex_inputs():
            q, v = oracle.numbers(q, v)
            shape = np.broadcast_shapes(q.shape[:-1], v.shape[:-1])
            q, v = (np.broadcast_to(x, (*shape, x.shape[-1])) for x in (q, v))
            self.T, self.V = ts.body_poses(model, q), ts.body_velocities(model, q, v)
            self.J = ts.maximal_jacobian(model, q).reshape(*shape, model.nbodies, 6, model.nv)
        self.shape = shape

    def pose(self, name):
        return np.broadcast_to(np.eye(4), (*self.shape, 4, 4)) if name == "world" else self.T[..., self._at(name), :, :]

    def velocity(self, name, x):
        """Of the material points of a body that are at x (..., n, 3), in the world's axes."""
        if name == "world":
            return np.zeros_like(x)
        T, V = self.pose(name), self.V[..., self._at(name), :]
        local = np.einsum("...ji,...nj->...ni", T[..., :3, :3], x - T[..., None, :3, 3])
        return np.einsum("...ij,...nj->...ni", T[..., :3, :3], V[..., None, 3:] + np.cross(V[..., None, :3], local))

    def torques(self, name, x, f):
        """Generalized forces (..., nv) of the forces f at the points x, each (..., n, 3)."""
        if name == "world":
            return 0.0
        T = self.pose(name)
        local, own = (np.einsum("...ji,...nj->...ni", T[..., :3, :3], y) for y in (x - T[..., None, :3, 3], f))
        wrench = np.concatenate([np.cross(local, own), own], axis=-1).sum(-2)
        return np.einsum("...ij,...i->...j", self.J[..., self._at(name), :, :], wrench)

    def _at(self, name):
        return self.names.index(name)


class State(NamedTuple):
    """Of all places of a contact: gap (..., n); normal, point, slip velocity, force on the first body, (..., n, 3)."""

    gap: np.ndarray
    normal: np.ndarray
    point: np.ndarray
    slip: np.ndarray
    force: np.ndarray


def state(pair, bodies):
    gap, normal, point = places(pair, bodies.pose(pair.body), bodies.pose(pair.other))
    u = bodies.velocity(pair.body, point) - bodies.velocity(pair.other, point)
    return State(gap, normal, point, u - dot(normal, u) * normal, force(gap, normal, u, pair.law))


def states(model, forces, q, v):
    """The state of each contact."""
    bodies = Bodies(model, q, v)
    return [state(pair, bodies) for pair in pairs_of(forces)]


def torques(model, forces, q, v):
    """Generalized forces (..., nv) of the contacts among forces. Complex or real."""
    bodies, out = Bodies(model, q, v), 0.0
    for pair in pairs_of(forces):
        s = state(pair, bodies)
        out = out + bodies.torques(pair.body, s.point, s.force) - bodies.torques(pair.other, s.point, s.force)
    return out + np.zeros((*bodies.shape, model.nv))


def energies(model, forces, q):
    """The energy (..., contacts) stored in each contact."""
    out = []
    for pair, s in zip(pairs_of(forces), states(model, forces, q, np.zeros(model.nv)), strict=True):
        out.append((pair.law["stiffness"] * depth_energy(-s.gap, pair.law["onset"])).sum(-1))
    return np.stack(out, axis=-1)


def friction_power(model, forces, q, v):
    """The power (...) of friction of all contacts: forces along the planes of contact on slip velocities."""
    return sum((s.force * s.slip).sum((-1, -2)) for s in states(model, forces, q, v))


def gaps(model, forces, q):
    """All gaps (..., n)."""
    return np.concatenate([s.gap for s in states(model, forces, q, np.zeros(model.nv))], axis=-1)


# Steps


def balance(model, forces, q, v, a, u, t):
    """ID - tau - u, contact included."""
    tau = oracle.inverse_dynamics(model, q, v, a, without_contacts(forces), t)
    return tau - torques(model, forces, q, v) - u


def rates(model, xi, other, c, z):
    """The velocity J(xi) c (xi - z x) of a stage in coordinates xi with another node x."""
    return np.einsum("...ij,...j->...i", oracle.chart_jacobian(model, xi), c * (xi - z * other))


def residual(model, integrator, forces, q0, v0, q1, v1, u=0.0, t=0.0, previous=None):
    """The equations (..., 2 nv) of a step from (q0, v0) to (q1, v1), in units of velocity and of acceleration times M.

    BDF2 with the state `previous` one step before; without it, as for its first step and after an impact, SDIRK2.
    """
    h, xi = integrator.h, oracle.chart(model, q0, q1)
    if isinstance(integrator, ts.SDIRK2) or (isinstance(integrator, ts.BDF2) and previous is None):
        c, z = 1 / (ALPHA * h), (1 - ALPHA) / ALPHA
        J = oracle.chart_jacobian(model, xi)
        first = (xi - np.linalg.solve(J, (v1 / c)[..., None])[..., 0]) / z
        v = rates(model, first, 0 * first, c, 0.0)
        stage = balance(model, forces, oracle.retract(model, q0, first), v, c * (v - v0), u, t + ALPHA * h)
        end = balance(model, forces, q1, v1, c * (v1 - (1 - z) * v0 - z * v), u, t + h)
        return np.concatenate([stage, end], axis=-1)
    if isinstance(integrator, ts.BDF2):
        c, z, other, before = 1.5 / h, -1 / 3, oracle.chart(model, q0, previous[0]), previous[1]
    else:
        c, z, other, before = 1 / h, 0.0, 0 * xi, 0.0
    a = c * (v1 - (1 - z) * v0 - z * before)
    return np.concatenate([v1 - rates(model, xi, other, c, z), balance(model, forces, q1, v1, a, u, t + h)], axis=-1)


def correction(model, integrator, forces, q0, v0, q1, v1, u=0.0, t=0.0, previous=None):
    """Newton's correction (2 nv,) of (q1, v1) as a solution of the equations of a step: its error, if it is small."""

    def f(d):
        q = oracle.moved(model, q1, d[..., : model.nv])
        return residual(model, integrator, forces, q0, v0, q, v1 + d[..., model.nv :], u, t, previous)

    return -np.linalg.solve(_jacobian(f, 2 * model.nv), f(np.zeros(2 * model.nv)).real)


def step_jacobian(model, integrator, forces, q0, v0, q1, v1, u=0.0, t=0.0, previous=None):
    """d(q1, v1) (2 nv, m) by (q0, v0), by u and, if it is given, by the state `previous`: m = 3 or 5 nv."""
    n, both = model.nv, previous is not None
    u = np.broadcast_to(u, n)

    def after(d):
        q = oracle.moved(model, q1, d[..., :n])
        return residual(model, integrator, forces, q0, v0, q, v1 + d[..., n:], u, t, previous)

    def before(d):
        q = oracle.moved(model, q0, d[..., :n])
        early = None
        if both:
            early = oracle.moved(model, previous[0], d[..., 3 * n : 4 * n]), previous[1] + d[..., 4 * n :]
        return residual(
            model, integrator, forces, q, v0 + d[..., n : 2 * n], q1, v1, u + d[..., 2 * n : 3 * n], t, early
        )

    return -np.linalg.solve(_jacobian(after, 2 * n), _jacobian(before, (5 if both else 3) * n))


def _jacobian(f, n):
    """Of f at 0, which takes directions (n, n) at once."""
    return np.imag(f(1j * STEP * np.eye(n))).T / STEP


def parts_of_step(trajectory, k):
    """Step k of a single motion as steps of one formula: (integrator, q0, v0, q1, v1, u, t, previous) of each; None if
    the states between them are not known.

    Steps with an impact (`substeps` is 0) are of BDF1. Steps that were divided, and those of `BDF2` that started anew,
    have as many parts as `substeps` says, of SDIRK2 if the integrator is BDF2. The states between the parts are not in
    the trajectory: `ts.step` is asked for them.
    """
    m, h, count = trajectory, trajectory.integrator.h, abs(int(trajectory.substeps[k]))
    u = 0.0 if m.controls is None else m.controls[k]
    two = isinstance(m.integrator, ts.BDF2)
    if count == 0:  # with an impact
        euler = ts.BDF1(h, tolerance=m.integrator.tolerance)
        return [(euler, m.q[k], m.v[k], m.q[k + 1], m.v[k + 1], u, m.t[k], None)]
    if m.substeps[k] == 1:
        previous = (m.q[k - 1], m.v[k - 1]) if two and k else None
        return [(m.integrator, m.q[k], m.v[k], m.q[k + 1], m.v[k + 1], u, m.t[k], previous)]
    part = (ts.SDIRK2 if two else type(m.integrator))(h / count, tolerance=m.integrator.tolerance)
    states = [(m.q[k], m.v[k])]
    for i in range(count - 1):
        t = m.t[k] + i * h / count
        given = (*states[-1], u if np.ndim(u) else None)
        states.append(ts.step(m.model, part, *given, forces=m.forces, t=t))
        euler = ts.step(m.model, ts.BDF1(h / count, tolerance=part.tolerance), *given, forces=m.forces, t=t)
        if not isinstance(part, ts.BDF1) and np.abs(states[-1][1] - euler[1]).max() < 1e-9:
            return None  # `ts.step` took it as an impact, a part of a step does not
    states.append((m.q[k + 1], m.v[k + 1]))
    return [(part, *states[i], *states[i + 1], u, m.t[k] + i * h / count, None) for i in range(count)]


def step_errors(trajectory):
    """For each step of a single motion the largest error of a velocity, relative to 1 + |v|."""
    m, out = trajectory, np.zeros(trajectory.steps)
    for k in range(m.steps):
        parts = parts_of_step(m, k)
        if parts is None:
            out[k] = np.nan
            continue
        for integrator, *given, previous in parts:
            d = correction(m.model, integrator, m.forces, *given, previous)
            out[k] = max(out[k], np.abs(d[m.model.nv :]).max() / (1 + np.abs(given[3]).max()))
    return out


def chained(trajectory):
    """d(q, v) of the last row of a single motion by those of the first, (2 nv, 2 nv): the product of the Jacobians of
    its steps."""
    m, n = trajectory, trajectory.model.nv
    before, now = np.zeros((2 * n, 2 * n)), np.eye(2 * n)
    for k in range(m.steps):
        start = now
        for integrator, *given, previous in parts_of_step(m, k):
            J = step_jacobian(m.model, integrator, m.forces, *given, previous)
            now = J[:, : 2 * n] @ now + (J[:, 3 * n :] @ before if previous is not None else 0.0)
        before = start
    return now
