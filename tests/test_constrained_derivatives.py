"""Constrained forward dynamics: gradients, derivatives along directions and second derivatives, over random trees with
random constraints off which the states are, and where rows depend on each other."""

import numpy as np
import pytest
from compare import along_q, close, differences, same_bits
from population import FRAMES, models, sweep

import torsor as ts
from torsor import testing
from torsor.constraints.constraint import compile_constraints
from torsor.constraints.dynamics import constrained_forward_dynamics
from torsor.testing import complex_step

T = 0.7
GAINS = ({}, {"baumgarte": (1.3, 2.1)}, {"baumgarte": (0.4, 0.7), "compliance": 0.2})
EXACT = 1e-11  # two systems whose condition numbers are at most 1e4


def chosen(model, seed=0, custom=False):
    """Constraints of many kinds that do not depend on each other, and leave some degrees of freedom."""
    rng = np.random.default_rng(seed)
    q, found = model.random(np.random.default_rng(100 + seed)), []
    given = testing.example_constraints(model, seed)
    for k in rng.permutation(len(given)):
        if isinstance(given[k], (ts.CustomConstraint, ts.PolynomialCoupling)) and not custom:
            continue
        G = ts.constraint_jacobian(model, [*found, given[k]], q, t=T)
        M = ts.mass_matrix(model, q)
        if len(G) <= model.nv - 2 and np.linalg.cond(G @ np.linalg.solve(M, G.T)) < 1e4:
            found.append(given[k])
    assert found
    return found


class Case:
    """A tree, constraints, a state of which neither holds, and weights."""

    def __init__(self, model, seed=0, custom=False):
        self.model, self.constraints = model, chosen(model, seed, custom)
        rng = np.random.default_rng(100 + seed)
        self.q = model.random(rng)
        self.v, self.tau, self.w_a = rng.standard_normal((3, model.nv))
        self.f_ext = rng.standard_normal((model.nbodies, 6))
        self.w_l = rng.standard_normal(compile_constraints(model, self.constraints).rows)

    @property
    def state(self):
        return self.q, self.v, self.tau

    def value(self, q, v, tau, f_ext=None, **options):
        """a and multipliers, in one array."""
        f_ext = self.f_ext if f_ext is None else f_ext
        a, multipliers, _ = constrained_forward_dynamics(
            self.model, self.constraints, q, v, tau, f_ext=f_ext, t=T, **options
        )
        return np.concatenate([a, multipliers], axis=-1)

    def weighted(self, *state, **options):
        return np.asarray(self.value(*state, **options) @ np.concatenate([self.w_a, self.w_l]))

    def gradient(self, q, v, tau, **options):
        return ts.constrained_forward_dynamics_vjp(
            self.model, self.constraints, q, v, tau, w_a=self.w_a, w_multipliers=self.w_l, f_ext=self.f_ext, t=T,
            **options,
        )  # fmt: skip


TREES = sweep(models(5), 2)
every_tree = pytest.mark.parametrize("model", TREES)
every_gain = pytest.mark.parametrize("gains", GAINS, ids=["exact", "baumgarte", "compliant"])


every_frame = pytest.mark.parametrize("frame", FRAMES)


# ---- gradients


@every_frame
@every_gain
@every_tree
def test_gradients_by_states(model, gains, frame):
    c, options = Case(model), {**gains, "f_ext_frame": frame}
    found = c.gradient(*c.state, **options)
    close(found.q, along_q(lambda q: c.weighted(q, c.v, c.tau, **options), model, c.q), EXACT)
    close(found.v, complex_step(lambda v: c.weighted(c.q, v, c.tau, **options), c.v), EXACT)
    close(found.tau, complex_step(lambda tau: c.weighted(c.q, c.v, tau, **options), c.tau), EXACT)
    by_f = complex_step(lambda f: c.weighted(*c.state, f.reshape(-1, 6), **options), c.f_ext.ravel())
    close(found.f_ext, by_f.reshape(-1, 6), EXACT)


def test_gradients_with_user_defined_rows():
    """Their second derivatives are differences of the user's values."""
    model = models(5)[0].values[0]
    c = next(c for c in (Case(model, seed, custom=True) for seed in range(20)) if has_custom(c))
    found = c.gradient(*c.state)
    close(found.q, along_q(lambda q: c.weighted(q, c.v, c.tau), model, c.q), 1e-8)
    close(found.v, complex_step(lambda v: c.weighted(c.q, v, c.tau), c.v), 1e-8)
    dq, dv = np.random.default_rng(1).standard_normal((2, model.nv))
    along = ts.constrained_forward_dynamics_jvp(model, c.constraints, *c.state, dq=dq, dv=dv, f_ext=c.f_ext, t=T)
    close(c.w_a @ along.da + c.w_l @ along.dmultipliers, found.q @ dq + found.v @ dv, 1e-8)


def has_custom(case):
    return any(isinstance(x, ts.CustomConstraint) for x in case.constraints)


@every_gain
@every_tree
def test_gradients_by_parameters_are_those_of_the_two_equations(model, gains):
    """They are those of mu.ID - lambda.(G mu) + nu.(gamma + 2 alpha gdot + beta^2 g), each of which is verified."""
    c = Case(model)
    found = c.gradient(*c.state, **gains)
    alpha, beta = gains.get("baumgarte", (0.0, 0.0))
    n = model.nv
    a, multipliers = np.split(c.value(*c.state, **gains), [n])
    G, M = ts.constraint_jacobian(model, c.constraints, c.q, t=T), ts.mass_matrix(model, c.q)
    e = gains.get("compliance", 0.0) * np.eye(len(G))
    mu, nu = np.split(np.linalg.solve(np.block([[M, G.T], [G, -e]]), np.concatenate([-c.w_a, c.w_l])), [n])
    by_motion = ts.inverse_dynamics_vjp(model, c.q, c.v, a, mu, f_ext=c.f_ext)
    rows = ts.constraint_vjp(
        model, c.constraints, c.q, c.v, a, w_g=beta**2 * nu, w_gdot=2 * alpha * nu, w_gamma=nu, t=T
    )
    moved, rest = (ts.constraint_vjp(model, c.constraints, c.q, v, w_gdot=-multipliers, t=T) for v in (mu, np.zeros(n)))
    close(found.inertia, by_motion.inertia, EXACT)
    close(found.gravity, by_motion.gravity, EXACT)
    close(found.placement, by_motion.placement + rows.placement + moved.placement - rest.placement, EXACT)
    for mine, x, y, z in zip(found.parameters, rows.parameters, moved.parameters, rest.parameters, strict=True):
        for name in mine:
            close(mine[name], x[name] + y[name] - z[name], EXACT)


def test_gradients_by_parameters_against_differences():
    """Differences of fourth order with steps of 3e-4, whose rounding and truncation are 1e-9 each."""
    model = models(5)[2].values[0]
    c = Case(model)
    found = c.gradient(*c.state)

    def changed(model, constraints):
        a, multipliers, _ = constrained_forward_dynamics(model, constraints, *c.state, f_ext=c.f_ext, t=T)
        return c.w_a @ a + c.w_l @ multipliers

    def of_body(k, **fields):
        bodies = list(model.bodies)
        bodies[k] = testing.replace(bodies[k], **fields)
        return changed(testing.replace(model, bodies=tuple(bodies)), c.constraints)

    for k, constraint in enumerate(c.constraints):
        for name, value in constraint.parameters.items():

            def at(x, k=k, constraint=constraint, name=name):
                others = [*c.constraints[:k], constraint.with_parameters({name: x}), *c.constraints[k + 1 :]]
                return changed(model, others)

            close(found.parameters[k][name], differences(at, value, 3e-4), 1e-8)
    for k in (1, model.nbodies - 1):
        place = model.bodies[k].placement
        by_place = differences(
            lambda x, k=k, place=place: of_body(k, placement=place @ ts.SE3.exp(x)), np.zeros(6), 3e-4
        )
        close(found.placement[k], by_place, 1e-8)
    gravity = np.array(model.gravity)
    close(found.gravity, differences(lambda g: changed(model.with_gravity(g), c.constraints), gravity, 3e-4), 1e-8)
    more, k = testing.random_inertia(np.random.default_rng(1)).parameters, model.nbodies - 1
    own = model.bodies[k].inertia.parameters
    along = differences(lambda s: of_body(k, inertia=ts.Inertia.from_parameters(own + (s + 0.01) * more)), 0.0, 3e-4)
    base = testing.replace(model.bodies[k], inertia=ts.Inertia.from_parameters(own + 0.01 * more))
    heavier = testing.replace(model, bodies=(*model.bodies[:k], base))
    at_base = ts.constrained_forward_dynamics_vjp(
        heavier, c.constraints, *c.state, w_a=c.w_a, w_multipliers=c.w_l, f_ext=c.f_ext, t=T
    )
    close(at_base.inertia[k] @ more, along, 1e-8)


def test_weights_that_are_left_out_are_zero():
    c = Case(models(5)[0].values[0])
    args = (c.model, c.constraints, *c.state)
    only_a = ts.constrained_forward_dynamics_vjp(*args, w_a=c.w_a, t=T)
    only_l = ts.constrained_forward_dynamics_vjp(*args, w_multipliers=c.w_l, t=T)
    both = ts.constrained_forward_dynamics_vjp(*args, w_a=c.w_a, w_multipliers=c.w_l, t=T)
    zeros = ts.constrained_forward_dynamics_vjp(*args, w_a=c.w_a, w_multipliers=0 * c.w_l, t=T)
    close(only_a.q + only_l.q, both.q)
    close(only_a.q, zeros.q)
    assert not any(x.any() for x in ts.constrained_forward_dynamics_vjp(*args, t=T)[:7])


# ---- along directions


@every_frame
@every_gain
@every_tree
def test_derivatives_along_directions(model, gains, frame):
    c, options = Case(model), {**gains, "f_ext_frame": frame}
    rng = np.random.default_rng(2)
    dq, dv, dtau = rng.standard_normal((3, model.nv))
    df = rng.standard_normal((model.nbodies, 6))

    def along(s):
        q, v, tau = model.plus(c.q, s[0] * dq), c.v + s[0] * dv, c.tau + s[0] * dtau
        return c.value(q, v, tau, c.f_ext + s[0] * df, **options)

    found = ts.constrained_forward_dynamics_jvp(
        model, c.constraints, *c.state, dq=dq, dv=dv, dtau=dtau, f_ext=c.f_ext, df_ext=df, t=T, **options
    )
    close(np.concatenate([found.a, found.multipliers]), c.value(*c.state, **options), EXACT)
    close(np.concatenate([found.da, found.dmultipliers]), complex_step(along, np.zeros(1))[:, 0], EXACT)


# ---- second derivatives


@every_frame
@every_gain
@every_tree
def test_second_derivatives(model, gains, frame):
    c, options = Case(model), {**gains, "f_ext_frame": frame}

    def gradient(*state):
        g = c.gradient(*state, **options)
        return np.stack([g.q, g.v, g.tau])

    found = ts.constrained_forward_dynamics_hessians(
        model, c.constraints, *c.state, f_ext=c.f_ext, contract=(c.w_a, c.w_l), t=T, **options
    )
    by_q = along_q(lambda q: gradient(q, c.v, c.tau), model, c.q)
    by_v = complex_step(lambda v: gradient(c.q, v, c.tau), c.v)
    by_tau = complex_step(lambda tau: gradient(c.q, c.v, tau), c.tau)
    close(found.dqdq, by_q[0], EXACT)
    close(found.dqdv, by_v[0], EXACT)
    close(found.dvdv, by_v[1], EXACT)
    close(found.dtaudq, by_q[2], EXACT)
    close(found.dqdv.T, by_q[1], EXACT)
    close(found.dtaudq.T, by_tau[0], EXACT)
    close(by_tau[1:], np.zeros_like(by_tau[1:]), EXACT)
    close(np.stack([found.dq, found.dv, found.dtau]), gradient(*c.state), EXACT)


def test_second_derivatives_refuse_user_defined_rows_and_wrong_weights():
    c = Case(models(5)[0].values[0])
    (custom, *_) = (x for x in testing.example_constraints(c.model, 0) if isinstance(x, ts.CustomConstraint))
    with pytest.raises(ts.ConstraintError, match="is computed in Python: its rows have no third derivatives"):
        ts.constrained_forward_dynamics_hessians(c.model, [custom], *c.state, contract=(c.w_a, None))
    with pytest.raises(TypeError, match=r"expected \(w_a, w_multipliers\)"):
        ts.constrained_forward_dynamics_hessians(c.model, c.constraints, *c.state, contract=c.w_a)


# ---- rows that depend on each other


def four_bar(joint):
    """A planar chain of three bars, closed by a joint: by a hinge three of its five rows depend on the others, which
    hold in all directions, because nothing leaves the plane."""
    builder, rng = ts.ModelBuilder(gravity=(0.0, 0.0, -9.81)), np.random.default_rng(0)
    for name, parent, length in (("crank", "world", 0.0), ("coupler", "crank", 1.0), ("rocker", "coupler", 2.2)):
        inertia = testing.random_inertia(rng)
        builder.add_body(name, parent, ts.Revolute((0, 1, 0)), ts.SE3.translation(length, 0, 0), inertia)
    model = builder.build()
    loop = ts.Loop("world", "rocker", joint, ts.SE3.translation(2.0, 0, 0), ts.SE3.translation(1.8, 0, 0))
    return model, [loop]


REDUNDANT = [ts.Revolute((0, 1, 0)), ts.Spherical(), ts.Universal([(0, 1, 0), (1, 0, 0)])]


@pytest.mark.parametrize("joint", REDUNDANT, ids=["hinge", "ball", "universal"])
def test_redundant_rows(joint):
    model, constraints = four_bar(joint)
    rng = np.random.default_rng(3)
    rows = compile_constraints(model, constraints).rows
    q, (v, tau, w_a, dq, dv, dtau) = model.random(rng), rng.standard_normal((6, 3))
    w_l = rng.standard_normal(rows)

    def value(q, v, tau):
        a, multipliers, rank = constrained_forward_dynamics(model, constraints, q, v, tau)
        assert rank.real == 2 < rows
        return np.concatenate([a, multipliers])

    def gradient(q, v, tau):
        g = ts.constrained_forward_dynamics_vjp(model, constraints, q, v, tau, w_a=w_a, w_multipliers=w_l)
        return np.stack([g.q, g.v, g.tau])

    weights = np.concatenate([w_a, w_l])
    found = gradient(q, v, tau)
    close(found[0], along_q(lambda q: weights @ value(q, v, tau), model, q), EXACT)
    close(found[1], complex_step(lambda v: weights @ value(q, v, tau), v), EXACT)
    close(found[2], complex_step(lambda tau: weights @ value(q, v, tau), tau), EXACT)
    along = ts.constrained_forward_dynamics_jvp(model, constraints, q, v, tau, dq=dq, dv=dv, dtau=dtau)
    step = complex_step(lambda s: value(model.plus(q, s[0] * dq), v + s[0] * dv, tau + s[0] * dtau), np.zeros(1))[:, 0]
    close(np.concatenate([along.da, along.dmultipliers]), step, EXACT)
    h = ts.constrained_forward_dynamics_hessians(model, constraints, q, v, tau, contract=(w_a, w_l))
    by_q = along_q(lambda q: gradient(q, v, tau), model, q)
    by_v = complex_step(lambda v: gradient(q, v, tau), v)
    close(h.dqdq, by_q[0], EXACT)
    close(h.dqdv, by_v[0], EXACT)
    close(h.dvdv, by_v[1], EXACT)
    close(h.dtaudq, by_q[2], EXACT)


def test_redundant_rows_change_no_acceleration():
    """Closed by a hinge, the derivatives of accelerations are those of the loop that is closed in the plane."""
    rng = np.random.default_rng(4)
    model, hinge = four_bar(ts.Revolute((0, 1, 0)))
    line = ts.PointOnLine("world", "rocker", ts.SE3.exp([np.pi / 2, 0, 0, 0, 0, 0]), (1.8, 0, 0))
    line = testing.replace(line, placement_a=ts.SE3.translation(2.0, 0, 0) @ line.placement_a)
    q, (v, tau, w) = model.random(rng), rng.standard_normal((3, 3))
    one, other = (
        ts.constrained_forward_dynamics_hessians(model, cs, q, v, tau, contract=(w, None)) for cs in (hinge, [line])
    )
    for x, y in zip(one, other, strict=True):
        close(x, y, EXACT)


def test_states_with_redundant_rows_beside_others():
    """In lanes beside each other, to the last bit: an arm that is stretched loses a row."""
    builder, rng = ts.ModelBuilder(), np.random.default_rng(5)
    for k in range(3):
        parent = f"b{k - 1}" if k else "world"
        builder.add_body(f"b{k}", parent, ts.Revolute((0, 1, 0)), ts.SE3.translation(float(k > 0), 0, 0),
                         testing.random_inertia(rng))  # fmt: skip
    model = builder.build()
    tip = [ts.Loop("world", "b2", ts.Spherical(), ts.SE3(), ts.SE3.translation(1, 0, 0))]
    flat = [ts.PointOnPlane("world", "b2", ts.SE3(), (1, 0, 0)), ts.Distance("world", (0, 0, 0), "b2", (1, 0, 0), 3.0)]
    q = rng.standard_normal((20, 3))
    q[::3, 1:] = 0.0
    v, tau, w = np.zeros((20, 3)), *rng.standard_normal((2, 20, 3))
    for constraints in (tip, flat):
        w_l = rng.standard_normal((20, compile_constraints(model, constraints).rows))
        together = ts.constrained_forward_dynamics_vjp(model, constraints, q, v, tau, w_a=w, w_multipliers=w_l)
        second = ts.constrained_forward_dynamics_hessians(model, constraints, q, v, tau, contract=(w, w_l))
        along = ts.constrained_forward_dynamics_jvp(model, constraints, q, v, tau, dq=w, dv=tau, dtau=w)
        for k in range(20):
            one = model, constraints, q[k], v[k], tau[k]
            alone = ts.constrained_forward_dynamics_vjp(*one, w_a=w[k], w_multipliers=w_l[k])
            assert same_bits([x[k] for x in together[:7]], alone[:7])
            alone = ts.constrained_forward_dynamics_hessians(*one, contract=(w[k], w_l[k]))
            assert same_bits([x[k] for x in second], list(alone))
            alone = ts.constrained_forward_dynamics_jvp(*one, dq=w[k], dv=tau[k], dtau=w[k])
            assert same_bits([x[k] for x in along], list(alone))
