"""What holds for every constraint, whatever it is about: `testing.example_constraints` lists them."""

from dataclasses import replace

import numpy as np
import pytest
from compare import along_q, close, differences, same_bits
from population import models, reordered, shuffled, sweep

import torsor as ts
from torsor import _core, testing
from torsor.constraints.constraint import compile_constraints
from torsor.testing import complex_step

TREES = sweep(models(4), 2)
every_tree = pytest.mark.parametrize("model", TREES)
T = 0.7  # a time at which prescribed motions go on

# Complex steps agree with closed forms to some hundred roundings of numbers up to 100. Those through user-defined rows
# run the same differences as their derivatives do: they show that both agree, another test that they are right.
EXACT = 1e-11


def state(model, seed=0):
    rng = np.random.default_rng(seed)
    return model.random(rng), *rng.standard_normal((2, model.nv))


def in_motion(model, constraint):
    """Whether rows depend on time."""
    return any(part[0] == "custom" or part[-1] is not None for part in constraint._parts(model))


def cases(model, seed=0):
    """Every constraint alone, off it, and loops again where they are closed, with velocities that keep them so."""
    q, v, a = state(model, seed)
    for constraint in testing.example_constraints(model, seed):
        yield constraint, q, v, a
        if isinstance(constraint, ts.Loop) and not callable(constraint.placement_a):
            closed = constraint.at(model, q)
            G = ts.constraint_jacobian(model, [closed], q)
            yield closed, q, v - np.linalg.pinv(G) @ G @ v, a


def for_every_case(check):
    """A test over all trees, in which all cases of a tree are checked."""

    def test(model):
        for case in cases(model):
            check(model, *case)

    test.__doc__, test.__name__ = check.__doc__, check.__name__
    return every_tree(test)


# ---- values and derivatives with respect to states


@for_every_case
def test_rates_are_derivatives_along_the_motion(model, constraint, q, v, a):
    if in_motion(model, constraint):
        return

    def along(s):
        g, gdot, _ = ts.constraint_errors(model, [constraint], model.plus(q, s[0] * v), v + s[0] * a)
        return np.stack([g, gdot])

    _, gdot, gamma = ts.constraint_errors(model, [constraint], q, v, a)
    rate, second = complex_step(along, np.zeros(1))[..., 0]
    if not isinstance(constraint, ts.TwistConstraint):  # which has no g
        close(gdot, rate, EXACT)
    close(gamma, second, EXACT)


@for_every_case
def test_derivatives(model, constraint, q, v, a):
    """G three ways, and the derivatives of both rates."""
    cs, tol = [constraint], EXACT

    def errors(q, v, a):
        return ts.constraint_errors(model, cs, q, v, a, t=T)

    G = ts.constraint_jacobian(model, cs, q, t=T)
    if not isinstance(constraint, ts.TwistConstraint):
        close(G, along_q(lambda q: errors(q, v, a).g, model, q), tol)
    close(G, complex_step(lambda v: errors(q, v, a).gdot, v), tol)
    close(G, complex_step(lambda a: errors(q, v, a).gamma, a), tol)
    found = ts.constraint_derivatives(model, cs, q, v, a, t=T)
    close(found.dgdot_dq, along_q(lambda q: errors(q, v, a).gdot, model, q), tol)
    close(found.dgamma_dq, along_q(lambda q: errors(q, v, a).gamma, model, q), tol)
    close(found.dgamma_dv, complex_step(lambda v: errors(q, v, a).gamma, v), tol)


@for_every_case
def test_stiffness_of_reactions(model, constraint, q, v, a):
    """K = d(G^T lambda)/dq."""
    compiled = compile_constraints(model, [constraint])
    multipliers = np.random.default_rng(1).standard_normal(compiled.rows)
    K = _core.constraint_stiffness(model, q, multipliers, T, None, compiled.options, None, 1)
    expected = along_q(lambda q: multipliers @ ts.constraint_jacobian(model, [constraint], q, t=T), model, q)
    close(K, expected, EXACT)


def test_rows_of_a_list_are_those_of_each_one():
    model = models(4)[0].values[0]
    q, v, a = state(model)
    constraints = testing.example_constraints(model, 0)
    together = ts.constraint_errors(model, constraints, q, v, a, t=T)
    alone = [ts.constraint_errors(model, [c], q, v, a, t=T) for c in constraints]
    for field in ("g", "gdot", "gamma"):
        assert np.array_equal(getattr(together, field), np.concatenate([getattr(x, field) for x in alone]))
    names = [name for c in constraints for name in c.row_names(model)]
    assert len(names) == len(together.g)


@every_tree
def test_user_defined_rows_against_real_differences(model):
    """Of values alone, with steps of 1e-3 and to fourth order, exact to 1e-9; rates have errors of their own, 1e-12, in
    units of that step."""
    q, v, a = state(model)
    for constraint in testing.example_constraints(model, 0):
        if not isinstance(constraint, ts.CustomConstraint):
            continue

        def errors(q, v, a, t=T, constraint=constraint):
            return np.stack(ts.constraint_errors(model, [constraint], q, v, a, t=t))

        rest = np.zeros(model.nv)
        along = differences(lambda s, f=errors: f(model.plus(q, s * v), v + s * a, a, T + s)[:2], 0.0)
        by_q = differences(lambda d, f=errors: f(model.plus(q, d), v, a), rest)
        by_v = differences(lambda d, f=errors: f(q, v + d, a), rest)
        found = ts.constraint_derivatives(model, [constraint], q, v, a, t=T)
        close(errors(q, v, a)[1:], along, 1e-8)
        close(ts.constraint_jacobian(model, [constraint], q, t=T), by_q[0], 1e-8)
        close(found.dgdot_dq, by_q[1], 1e-8)
        close(found.dgamma_dq, by_q[2], 1e-8)
        close(found.dgamma_dv, by_v[2], 1e-8)


# ---- motions that are prescribed


def carried(model, motion, t):
    """The model with a body on a free joint, "carrier", that moves as a marker of the world does; and how a state of
    the model is extended."""
    wide = with_bodies(model, carrier=("world", ts.SE3()))
    pose, twist, rate = motion(t)
    q0 = ts.Free().plus(ts.Free().neutral, pose.log())
    return wide, lambda q, v, a: tuple(np.concatenate(pair) for pair in ((q, q0), (v, twist), (a, rate)))


@every_tree
def test_moving_markers_move_as_bodies_do(model):
    """A marker of the world that moves is one on a body with that motion."""
    found = 0
    q, v, a = state(model)
    for constraint in testing.example_constraints(model, 0):
        motion = getattr(constraint, "placement_a", getattr(constraint, "motion", None))
        if isinstance(constraint, ts.PrescribedJoint) or not callable(motion):
            continue
        joint, on_b = (
            (constraint.joint, constraint.placement_b)
            if isinstance(constraint, ts.Loop)
            else (ts.Fixed(), constraint.placement)
        )
        wide, extended = carried(model, motion, T)
        loop = ts.Loop("carrier", constraint.b, joint, ts.SE3(), on_b)
        x = extended(q, v, a)
        for mine, same in zip(
            ts.constraint_errors(model, [constraint], q, v, a, t=T), ts.constraint_errors(wide, [loop], *x), strict=True
        ):
            close(mine, same, EXACT)
        for mine, same in zip(
            ts.constraint_derivatives(model, [constraint], q, v, a, t=T),
            ts.constraint_derivatives(wide, [loop], *x),
            strict=True,
        ):
            close(mine, same[:, : model.nv], EXACT)
        found += 1
    assert found


def test_prescribed_joints_and_rates():
    model = ts.models.pendulum()
    motion = ts.PrescribedJoint(model.joints[0].name, lambda t: (t**3, 3 * t**2, 6 * t))
    rate = ts.TwistConstraint(joints={model.joints[0].name: 2.0}, rate=lambda t: (t**2, 2 * t))
    g, gdot, gamma = ts.constraint_errors(model, [motion, rate], [0.4], [0.5], [0.6], t=2.0)
    close(g, [0.4 - 8, 0.0])
    close(gdot, [0.5 - 12, 1.0 - 4])
    close(gamma, [0.6 - 12, 1.2 - 4])


# ---- gradients


def weights(model, constraint):
    return np.random.default_rng(3).standard_normal((3, compile_constraints(model, [constraint]).rows))


def weighted(model, constraint, q, v, a, w):
    """The sum of which `constraint_vjp` gives the gradients."""
    return sum(x @ e for x, e in zip(w, ts.constraint_errors(model, [constraint], q, v, a, t=T), strict=True))


def gradient(model, constraint, q, v, a, w):
    return ts.constraint_vjp(model, [constraint], q, v, a, w_g=w[0], w_gdot=w[1], w_gamma=w[2], t=T)


@for_every_case
def test_gradients_by_states(model, constraint, q, v, a):
    w, tol = weights(model, constraint), EXACT
    found = gradient(model, constraint, q, v, a, w)
    G = ts.constraint_jacobian(model, [constraint], q, t=T)
    d = ts.constraint_derivatives(model, [constraint], q, v, a, t=T)
    by_g = 0.0 if isinstance(constraint, ts.TwistConstraint) else w[0] @ G
    close(found.q, by_g + w[1] @ d.dgdot_dq + w[2] @ d.dgamma_dq, tol)
    close(found.v, w[1] @ G + w[2] @ d.dgamma_dv, tol)
    close(found.a, w[2] @ G, tol)
    for k, given in enumerate(("w_g", "w_gdot", "w_gamma")):  # what is left out is zero
        alone = ts.constraint_vjp(model, [constraint], q, v, a, **{given: w[k]}, t=T)
        whole = gradient(model, constraint, q, v, a, np.eye(3)[:, k, None] * w)
        close(alone.q, whole.q)


def with_bodies(model, **added):
    """The model with more bodies on free joints: name=(parent, placement)."""
    builder = ts.ModelBuilder(gravity=model.gravity)
    for b in model.bodies:
        builder.add_body(
            b.name, b.parent, b.joint, b.placement, b.inertia, joint_name=b.joint_name, armature=b.armature
        )
    for name, (parent, placement) in added.items():
        builder.add_body(name, parent, ts.Free(), placement)
    return builder.build()


def with_free_placements(model):
    """The model with a free joint in front of every joint; where the added joints and the given ones are in it."""
    builder = ts.ModelBuilder(gravity=model.gravity)
    for b in model.bodies:
        builder.add_body(f"placement of {b.name}", b.parent, ts.Free(), b.placement)
        builder.add_body(
            b.name, f"placement of {b.name}", b.joint, ts.SE3(), b.inertia, joint_name=b.joint_name, armature=b.armature
        )
    wide = builder.build()
    added = [wide.joint(f"placement of {b.name}").v_slice for b in model.bodies]

    def spread(x, of):
        out = wide.neutral if of == "q_slice" else np.zeros(wide.nv)
        for j in model.joints:
            out[getattr(wide.joint(j.name), of)] = x[getattr(j, of)]
        return out

    return wide, added, spread


@for_every_case
def test_gradients_by_placements_of_bodies(model, constraint, q, v, a):
    """A placement that moves is a free joint in its place, of which derivatives with respect to q are known."""
    w = weights(model, constraint)
    found = gradient(model, constraint, q, v, a, w).placement
    if isinstance(constraint, ts.CustomConstraint):  # a function of coordinates
        assert not found.any()
        return
    wide, added, spread = with_free_placements(model)
    q, v, a = spread(q, "q_slice"), spread(v, "v_slice"), spread(a, "v_slice")
    by_q = gradient(wide, constraint, q, v, a, w).q
    close(found, np.array([by_q[at] for at in added]), EXACT)
    # and by complex step along all of them at once
    step, twists = np.zeros(wide.nv), np.random.default_rng(4).standard_normal((model.nbodies, 6))
    for at, twist in zip(added, twists, strict=True):
        step[at] = twist
    along = complex_step(
        lambda s: np.asarray(weighted(wide, constraint, wide.plus(q, s[0] * step), v, a, w)), np.zeros(1)
    )
    close((found * twists).sum(), along[0], EXACT)


def on_marker(constraint, parameter):
    """The pose of the marker that a parameter moves, its body, and the same constraint given on a body "marker"."""
    if isinstance(constraint, ts.PrescribedBody):
        if parameter == "placement":
            return constraint.placement, constraint.body, replace(constraint, body="marker", placement=ts.SE3())
        moved = ts.Loop("marker", constraint.body, ts.Fixed(), ts.SE3(), constraint.placement)
        return constraint.motion, "world", moved
    side = parameter[-1]
    pose, body = getattr(constraint, parameter), getattr(constraint, side)
    if parameter.startswith("point"):
        return ts.SE3(p=pose), body, replace(constraint, **{side: "marker", parameter: (0, 0, 0)})
    return pose, body, replace(constraint, **{side: "marker", parameter: ts.SE3()})


def by_parameter(model, constraint, name, q, v, a, w):
    """The gradient with respect to a parameter. A marker that moves is a body on a free joint. Rows are linear in all
    other numbers, but for user-defined rows and the centre of a polynomial."""

    def changed(value):
        return weighted(model, constraint.with_parameters({name: value}), q, v, a, w)

    value = constraint.parameters[name]
    if isinstance(constraint, ts.CustomConstraint) or name == "center":
        return differences(changed, value)
    if name.startswith(("placement", "point")) or isinstance(constraint, ts.PrescribedBody):
        pose, body, moved = on_marker(constraint, name)
        rest = np.zeros(6)
        x = np.concatenate([q, ts.Free().neutral]), np.concatenate([v, rest]), np.concatenate([a, rest])
        twist = gradient(with_bodies(model, marker=(body, pose)), moved, *x, w).q[-6:]
        return twist[3:] if name.startswith("point") else twist
    steps = 0.5 * np.eye(value.size).reshape(value.size, *value.shape)
    return np.array([2 * (changed(value + step) - changed(value)) for step in steps]).reshape(value.shape)


@for_every_case
def test_gradients_by_parameters(model, constraint, q, v, a):
    w = weights(model, constraint)
    (found,) = gradient(model, constraint, q, v, a, w).parameters
    assert found.keys() == constraint.parameters.keys()
    # of user-defined rows by differences with steps of 1e-3, to fourth order
    for name in constraint.parameters:
        tol = 1e-8 if isinstance(constraint, ts.CustomConstraint) or name == "center" else EXACT
        close(found[name], by_parameter(model, constraint, name, q, v, a, w), tol)


# ---- wrenches


@for_every_case
def test_wrenches_make_the_torques_and_act_on_both_sides(model, constraint, q, v, a):
    """Off the constraint too: the torques are those of a wrench on b and of its opposite on a, at one place; their
    virtual power is that of the rows."""
    multipliers = np.random.default_rng(5).standard_normal(compile_constraints(model, [constraint]).rows)
    (wrench,) = ts.constraint_wrenches(model, [constraint], q, multipliers, t=T)
    if not hasattr(constraint, "b"):
        assert not wrench.any()
        return
    poses = {b.name: pose for b, pose in zip(model.bodies, ts.body_poses(model, q), strict=True)}
    poses["world"] = np.eye(4)
    b_in_a = ts.SE3.from_matrix(np.linalg.inv(poses[constraint.a]) @ poses[constraint.b])
    opposite = -np.linalg.inv(b_in_a.adjoint).T @ wrench
    torques, power = np.zeros(model.nv), 0.0
    for body, w in ((constraint.b, wrench), (constraint.a, opposite)):
        if body != "world":
            J = ts.jacobian(model, q, body)
            torques += J.T @ w
            power += w @ (J @ v)
    G = ts.constraint_jacobian(model, [constraint], q, t=T)
    close(torques, multipliers @ G)
    close(power, multipliers @ G @ v)


def test_which_side_is_a_changes_signs_alone():
    """Where a weld is closed, its two markers have the same axes, and its rows change their signs."""
    model = models(4)[0].values[0]
    q, _, _ = state(model)
    first, last = model.bodies[1].name, model.bodies[-1].name
    loop = ts.Loop(first, last, ts.Fixed(), placement_b=testing.random_pose(np.random.default_rng(2))).at(model, q)
    other = ts.Loop(last, first, ts.Fixed(), loop.placement_b, loop.placement_a)
    G, H = (ts.constraint_jacobian(model, [c], q) for c in (loop, other))
    close(G, -H)


# ---- batches


def test_batches_with_times_of_their_own():
    """States of different times in the lanes of a pack, with motions that are functions in Python."""
    model = models(4)[0].values[0]
    constraints = [c for c in testing.example_constraints(model, 0) if in_motion(model, c)]
    rng = np.random.default_rng(6)
    q, (v, a), t = model.random(rng, 11), rng.standard_normal((2, 11, model.nv)), rng.uniform(0, 2, 11)
    rows = compile_constraints(model, constraints).rows
    w = rng.standard_normal((11, rows))
    together = [
        *ts.constraint_errors(model, constraints, q, v, a, t=t),
        ts.constraint_jacobian(model, constraints, q, t=t),
        *ts.constraint_derivatives(model, constraints, q, v, a, t=t, threads=2),
        ts.constraint_wrenches(model, constraints, q, w, t=t),
        *ts.constraint_vjp(model, constraints, q, v, a, w_g=w, w_gdot=w, w_gamma=w, t=t)[:4],
    ]
    for k in range(11):
        alone = [
            *ts.constraint_errors(model, constraints, q[k], v[k], a[k], t=t[k]),
            ts.constraint_jacobian(model, constraints, q[k], t=t[k]),
            *ts.constraint_derivatives(model, constraints, q[k], v[k], a[k], t=t[k]),
            ts.constraint_wrenches(model, constraints, q[k], w[k], t=t[k]),
            *ts.constraint_vjp(model, constraints, q[k], v[k], a[k], w_g=w[k], w_gdot=w[k], w_gamma=w[k], t=t[k])[:4],
        ]
        assert same_bits([x[k] for x in together], alone)


@every_tree
def test_the_order_of_bodies_changes_no_bit(model):
    other, order = shuffled(model, np.random.default_rng(7))
    q, v, a = state(model)
    x = reordered(q, "q", order), reordered(v, "v", order), reordered(a, "v", order)
    constraints = [c for c in testing.example_constraints(model, 0) if not isinstance(c, ts.CustomConstraint)]
    assert same_bits(
        ts.constraint_errors(other, constraints, *x, t=T), ts.constraint_errors(model, constraints, q, v, a, t=T)
    )
    assert same_bits(
        ts.constraint_derivatives(other, constraints, *x, t=T),
        [reordered(y, "m v", order) for y in ts.constraint_derivatives(model, constraints, q, v, a, t=T)],
    )
