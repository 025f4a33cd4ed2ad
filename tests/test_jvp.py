"""Derivatives along one direction: complex steps of the functions, and differences of models that are built."""

from dataclasses import replace

import numpy as np
import pytest
from compare import close, conditioned
from population import CURVE, FRAMES, JOINTS, SURFACE, Own, models, sweep

import torsor as ts
from torsor import spatial, testing
from torsor.testing import STEP, complex_inputs

over_models = pytest.mark.parametrize("model", sweep(models(seed=5), 5))
over_frames = pytest.mark.parametrize("frame", FRAMES)


class State:
    """A state, a direction in it, and a mask of prescribed velocities."""

    def __init__(self, model, seed=0, batch=()):
        rng = np.random.default_rng(seed)
        self.q = model.random(rng, batch or None)
        self.v, self.a, self.tau, self.dq, self.dv, self.da, self.dtau = (
            rng.standard_normal((*batch, model.nv)) for _ in range(7)
        )
        self.f, self.df = (rng.standard_normal((*batch, model.nbodies, 6)) for _ in range(2))
        self.mask = rng.uniform(size=model.nv) < 0.4


def along(f, model, s, *more):
    """d/dt f(plus(q, t dq), v + t dv, x + t dx, ...) at t = 0, by a complex step; `more` are pairs (x, dx)."""
    with complex_inputs():
        moved = [x + 1j * STEP * dx for x, dx in ((s.v, s.dv), *more)]
        return np.imag(f(model.plus(s.q, 1j * STEP * s.dq), *moved)) / STEP


# ---- directions in the state


@over_models
@over_frames
def test_directions_in_the_state(model, frame):
    s = State(model)
    kind = {"f_ext_frame": frame}
    tol = conditioned(model, s.q)
    t = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, dq=s.dq, dv=s.dv, da=s.da, f_ext=s.f, df_ext=s.df, **kind)
    assert type(t) is ts.derivatives.InverseDynamicsJVP
    close(t.tau, ts.inverse_dynamics(model, s.q, s.v, s.a, f_ext=s.f, **kind))
    close(
        t.dtau,
        along(
            lambda q, v, a, f: ts.inverse_dynamics(model, q, v, a, f_ext=f, **kind), model, s, (s.a, s.da), (s.f, s.df)
        ),
    )
    t = ts.forward_dynamics_jvp(model, s.q, s.v, s.tau, dq=s.dq, dv=s.dv, dtau=s.dtau, f_ext=s.f, df_ext=s.df, **kind)
    assert type(t) is ts.derivatives.ForwardDynamicsJVP
    close(t.a, ts.forward_dynamics(model, s.q, s.v, s.tau, f_ext=s.f, **kind), tol)
    forward = lambda q, v, tau, f: ts.forward_dynamics(model, q, v, tau, f_ext=f, **kind)  # noqa: E731
    close(t.da, along(forward, model, s, (s.tau, s.dtau), (s.f, s.df)), tol)

    def hybrid(q, v, a, tau, f):
        return np.stack(ts.hybrid_dynamics(model, q, v, a=a, tau=tau, prescribed=s.mask, f_ext=f, **kind))

    t = ts.hybrid_dynamics_jvp(
        model, s.q, s.v, a=s.a, tau=s.tau, prescribed=s.mask, f_ext=s.f,
        dq=s.dq, dv=s.dv, da=s.da, dtau=s.dtau, df_ext=s.df, **kind,
    )  # fmt: skip
    assert type(t) is ts.derivatives.HybridDynamicsJVP
    close(np.stack([t.a, t.tau]), hybrid(s.q, s.v, s.a, s.tau, s.f), tol)
    close(np.stack([t.da, t.dtau]), along(hybrid, model, s, (s.a, s.da), (s.tau, s.dtau), (s.f, s.df)), tol)
    assert np.array_equal(t.da[s.mask], s.da[s.mask]) and np.array_equal(t.dtau[~s.mask], s.dtau[~s.mask])


@over_models
@over_frames
def test_unit_directions_are_columns_of_the_matrices(model, frame):
    s = State(model)
    one = np.eye(model.nv)  # as many directions at one state: a batch
    more = {"f_ext": s.f, "f_ext_frame": frame}
    tol = conditioned(model, s.q)
    d = ts.inverse_dynamics_derivatives(model, s.q, s.v, s.a, **more)
    for x, key in zip(d, ("dq", "dv", "da"), strict=True):
        close(ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, **{key: one}, **more).dtau.T, x)
    d = ts.forward_dynamics_derivatives(model, s.q, s.v, s.tau, **more)
    for x, key in zip(d, ("dq", "dv", "dtau"), strict=True):
        close(ts.forward_dynamics_jvp(model, s.q, s.v, s.tau, **{key: one}, **more).da.T, x, tol)
    given = {"a": s.a, "tau": s.tau, "prescribed": s.mask, **more}
    d = ts.hybrid_dynamics_derivatives(model, s.q, s.v, **given)
    for x, y, key in zip(d[:4], d[4:], ("dq", "dv", "da", "dtau"), strict=True):
        t = ts.hybrid_dynamics_jvp(model, s.q, s.v, **given, **{key: one})
        close(t.da.T, x, tol)
        close(t.dtau.T, y, tol)


@pytest.mark.parametrize(
    ("joint", "place"),
    [
        *((ts.SphericalExp(), x * np.array([0.6, -0.64, 0.48])) for x in (0, 1e-160, 1e-12, 1e-5, np.pi)),
        *((ts.SphericalExp(), (2 * np.pi + x) * np.array([0.6, -0.64, 0.48])) for x in (-1e-6, 0, 1e-9)),
        *((ts.SphericalEuler("ZYX"), [0.3, np.pi / 2 + x, -0.7]) for x in (0, 1e-12, 1e-6)),
        *((ts.SphericalEuler("ZXZ"), [0.3, x, -0.7]) for x in (0, 1e-12, 1e-6)),
        *((CURVE, [x]) for x in (-2.5, 0, 1, 2, 3, 4.5)),
        *((SURFACE, [x, y]) for x, y in ((0, 0), (1, 1), (0.5, 2), (-1, 3))),
    ],
)
def test_near_the_singular_places(joint, place):
    model = testing.random_tree(4, [ts.Free(), joint, ts.Revolute((1, 2, 3))], branching=0.0)
    s = State(model)
    s.q[model.joints[1].q_slice] = place
    for frame in FRAMES:
        kind = {"f_ext": s.f, "f_ext_frame": frame}
        d = ts.inverse_dynamics_derivatives(model, s.q, s.v, s.a, **kind)
        close(ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, dq=s.dq, **kind).dtau, d.dtau_dq @ s.dq)
        close(
            ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, dq=s.dq, **kind).dtau,
            along(lambda q, v, kind=kind: ts.inverse_dynamics(model, q, s.v, s.a, **kind), model, s),
        )


def test_what_is_left_out_is_zero():
    model = testing.random_tree(2, [ts.Free(), *(JOINTS[k] for k in (1, 12, 13, 16, 19))])
    s = State(model)
    none, still = np.zeros(model.nv), np.zeros((model.nbodies, 6))
    nothing = ts.ModelDirection()
    x = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, f_ext=s.f)
    assert not x.dtau.any()
    y = ts.inverse_dynamics_jvp(
        model, s.q, s.v, s.a, dq=none, dv=none, da=none, f_ext=s.f, df_ext=still, model_direction=nothing
    )
    assert np.array_equal(x.tau, y.tau) and not y.dtau.any()
    x = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, df_ext=s.df)  # about no wrench
    y = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, f_ext=still, df_ext=s.df)
    assert np.array_equal(x.tau, y.tau) and np.array_equal(x.dtau, y.dtau) and x.dtau.any()
    # of hybrid dynamics, what is not read has no effect, its direction neither
    junk = np.full(model.nv, 1e3)
    given = {"a": s.a, "tau": s.tau, "prescribed": s.mask}
    x = ts.hybrid_dynamics_jvp(model, s.q, s.v, **given, dq=s.dq, da=s.da, dtau=s.dtau)
    y = ts.hybrid_dynamics_jvp(
        model, s.q, s.v, prescribed=s.mask, a=np.where(s.mask, s.a, junk), tau=np.where(s.mask, junk, s.tau),
        dq=s.dq, da=np.where(s.mask, s.da, junk), dtau=np.where(s.mask, junk, s.dtau),
    )  # fmt: skip
    assert all(np.array_equal(left, right) for left, right in zip(x, y, strict=True))


# ---- directions in the model, exactly


def all_parts(model, rng):
    """A direction in every inertia, every placement, gravity and the armature of every joint."""
    return ts.ModelDirection(
        inertia={b.name: rng.standard_normal(10) for b in model.bodies},
        placement={b.name: rng.standard_normal(6) for b in model.bodies},
        gravity=rng.standard_normal(3),
        armature={b.name: testing.random_armature(rng, b.joint) for b in model.bodies},
    )


@over_models
def test_inertia_enters_linearly(model):
    s = State(model)
    rates = all_parts(model, np.random.default_rng(1)).inertia
    t = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, model_direction=ts.ModelDirection(inertia=rates))
    close(t.dtau, ts.inertial_regressor(model, s.q, s.v, s.a) @ np.concatenate(list(rates.values())))
    # ID of the rates themselves as inertias
    other = model
    for name, rate in rates.items():
        other = other.with_inertia(name, ts.Inertia.from_parameters(rate, allow_unphysical=True))
    close(t.dtau, ts.inverse_dynamics(other, s.q, s.v, s.a) - model.armature * s.a)


@over_models
def test_gravity_enters_linearly(model):
    s = State(model)
    d = np.array([0.3, -0.7, 1.1])
    t = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, model_direction=ts.ModelDirection(gravity=d))
    close(t.dtau, ts.gravity_forces(model.with_gravity(d), s.q))


def loosened(model):
    """The model with every joint on a free joint of its own; the names of these, which rows are old, a place for q."""
    builder, first = ts.ModelBuilder(model.name, model.gravity), []
    for b in model.bodies:
        builder.add_body(f"{b.name}'", b.parent, ts.Free(), b.placement)
        builder.add_body(b.name, f"{b.name}'", b.joint, inertia=b.inertia, armature=b.armature)
        first += [f"{b.name}'"]
    loose = builder.build()
    rows = np.zeros(loose.nv, bool)
    q = loose.neutral.copy()
    for b in model.bodies:
        rows[loose.joint(b.name).v_slice] = True
    return loose, first, rows, q


@over_models
@over_frames
def test_placements_move_as_free_joints_before_the_joints_do(model, frame):
    s = State(model)
    rates = all_parts(model, np.random.default_rng(1)).placement
    direction = ts.ModelDirection(placement=rates)
    loose, first, rows, q = loosened(model)
    v, a, tau, dq = np.zeros((4, loose.nv))
    for b in model.bodies:
        ours, theirs = model.joint(b.name), loose.joint(b.name)
        q[theirs.q_slice] = s.q[ours.q_slice]
        dq[loose.joint(f"{b.name}'").v_slice] = rates[b.name]
        for x, y in ((s.v, v), (s.a, a), (s.tau, tau)):
            y[theirs.v_slice] = x[ours.v_slice]
    f = np.zeros((loose.nbodies, 6))
    f[1::2] = s.f
    kind = {"f_ext_frame": frame}
    with complex_inputs():
        moved = loose.plus(q, 1j * STEP * dq)
        dtau = np.imag(ts.inverse_dynamics(loose, moved, v, a, f_ext=f, **kind))[rows] / STEP
        da = np.imag(ts.hybrid_dynamics(loose, moved, v, tau=tau, prescribed=first, f_ext=f, **kind)[0])[rows] / STEP
    t = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, f_ext=s.f, model_direction=direction, **kind)
    close(t.dtau, dtau)
    t = ts.forward_dynamics_jvp(model, s.q, s.v, s.tau, f_ext=s.f, model_direction=direction, **kind)
    close(t.da, da, conditioned(model, s.q))


def between(joint, armature=False):
    """A model with the joint between a revolute and a prismatic one."""
    joints = [ts.Revolute((1, 1, 0)), joint, ts.Prismatic((1, 2, 3))]
    return testing.random_tree(8, joints, branching=0.0, armature=armature)


@pytest.mark.parametrize("kind", [ts.Revolute, ts.Prismatic, ts.Cylindrical, lambda axis: ts.Screw(axis, 0.3)])
@pytest.mark.parametrize("axis", [(0, 0, 1), (1, 0, 0), (0.3, -0.5, 0.8), (1, 1, 1)])
def test_axes_turn_as_spherical_joints_before_and_behind_do(kind, axis):
    """With the axis turned by w, the joint's motion is exp(w) T(q) exp(-w)."""
    joint = kind(axis)
    model, other = between(joint), between(ts.Composite(ts.Spherical(), joint, ts.Spherical()))
    s = State(model)
    n, w = joint.nv, np.array([0.4, -0.8, 0.5])
    rows = np.r_[0, 4 : 4 + n, 7 + n]
    q = other.neutral.copy()
    q[0], q[5 : 5 + n], q[-1] = s.q[0], s.q[1:-1], s.q[-1]
    v, a, dq = np.zeros((3, other.nv))
    v[rows], a[rows], dq[1:4], dq[4 + n : 7 + n] = s.v, s.a, w, -w
    with complex_inputs():
        expected = np.imag(ts.inverse_dynamics(other, other.plus(q, 1j * STEP * dq), v, a))[rows] / STEP
    across = np.cross(w, joint.axis)
    for along_it in (0.0, 7.0):  # axes stay of unit length: what is along them does not count
        rate = across + along_it * np.array(joint.axis)
        direction = ts.ModelDirection(joint={"body1": {"axis": rate}})
        close(ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, model_direction=direction).dtau, expected)


def test_pitch_is_a_translation_in_proportion():
    """Screw(axis, p + t) is Screw(axis, p) and a translation by t q along the axis."""
    axis = (1, -1, 0.5)
    joint = ts.Screw(axis, -0.4)
    model, other = between(joint), between(ts.Composite(joint, ts.Prismatic(axis)))
    s = State(model)
    wide = lambda x, y: np.array([x[0], x[1], y, x[2]])  # noqa: E731
    q, v, a = wide(s.q, 0), wide(s.v, 0), wide(s.a, 0)
    d = ts.inverse_dynamics_derivatives(other, q, v, a)
    e = np.array([0, 0, 1.0, 0])
    expected = d.dtau_dq @ e * s.q[1] + d.dtau_dv @ e * s.v[1] + d.dtau_da @ e * s.a[1]
    expected[1] += ts.inverse_dynamics(other, q, v, a)[2]  # the column of the screw itself gains the translation's
    direction = ts.ModelDirection(joint={"body1": {"pitch": 1.0}})
    t = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, model_direction=direction)
    close(t.dtau, expected[[0, 1, 3]])


def test_splines_moved_as_a_whole_are_placements_moved():
    x = np.array([0.3, -0.5, 0.2, 0.7, 0.1, -0.9])
    twists = [spatial.Ad(frame.inverse().matrix) @ x for frame in CURVE.frames]  # exp(t x) F = F exp(t Ad(F^-1) x)
    values = np.zeros(np.shape(SURFACE.values))
    values[1] = 1.0  # the translation along y comes after that along x, and before any rotation
    for joint, rates, twist in (
        (CURVE, {"frames": twists}, x),
        (SURFACE, {"values": values}, [0, 0, 0, 0, 1, 0]),
    ):
        model = between(joint)
        s = State(model)
        one, other = (
            ts.forward_dynamics_jvp(model, s.q, s.v, s.tau, model_direction=direction).da
            for direction in (ts.ModelDirection(joint={"body1": rates}), ts.ModelDirection(placement={"body1": twist}))
        )
        close(one, other, conditioned(model, s.q))
        assert np.abs(one).max() > 1e-3


# ---- directions in the model, against differences of models that are built
#
# Complex steps cannot reach into a model. A difference of sixth order over steps of h = 5e-4 is off by h^6 of the
# seventh derivative, and by a rounding of the values over h, which is 1e-12 of them and more where a solution with an
# ill-conditioned mass matrix loses digits first.


def difference(f, h=5e-4):
    return sum(c * (f(k * h) - f(-k * h)) for k, c in ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60))) / h


def moved_joint(joint, rates, t):
    """The joint with its constants moved, through its own constructor."""
    if not rates:
        return joint
    if isinstance(joint, ts.Composite):
        return ts.Composite(*(moved_joint(j, r or {}, t) for j, r in zip(joint.joints, rates["joints"], strict=True)))
    if isinstance(joint, ts.SplineCurve):
        return ts.SplineCurve([f @ ts.SE3.exp(t * x) for f, x in zip(joint.frames, rates["frames"], strict=True)])
    if isinstance(joint, ts.SplineSurface):
        return ts.SplineSurface(np.array(joint.values) + t * rates["values"])
    return replace(joint, **{key: (np.array(getattr(joint, key)) + t * rate).tolist() for key, rate in rates.items()})


def built(model, direction, t):
    """The model moved by t along the direction."""
    gravity = np.array(model.gravity) + t * np.array(0.0 if direction.gravity is None else direction.gravity)
    builder = ts.ModelBuilder(model.name, gravity)
    for b in model.bodies:
        placement, inertia, joint = b.placement, b.inertia, b.joint
        if b.name in direction.placement:
            placement = placement @ ts.SE3.exp(t * direction.placement[b.name])
        if b.name in direction.inertia:
            inertia = ts.Inertia.from_parameters(
                inertia.parameters + t * direction.inertia[b.name], allow_unphysical=True
            )
        if b.name in direction.joint:
            joint = moved_joint(joint, direction.joint[b.name], t)
        armature = np.array(b.armature) + t * np.array(direction.armature.get(b.name, 0.0))
        builder.add_body(b.name, b.parent, joint, placement, inertia, armature=armature)
    return builder.build()


def constants(joint, rng):
    """Random rates of all constants that a joint has."""
    if isinstance(joint, ts.Composite):
        parts = [constants(j, rng) or None for j in joint.joints]
        return {"joints": parts} if any(parts) else {}
    if isinstance(joint, ts.SplineCurve):
        return {"frames": rng.standard_normal((len(joint.frames), 6))}
    names = [name for name in ("axis", "directions", "axes", "pitch", "values") if hasattr(joint, name)]
    return {name: rng.standard_normal(np.shape(getattr(joint, name))) for name in names}


def check_model_direction(model, direction, s, forward=True, **more):
    t = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, model_direction=direction, **more)
    close(t.tau, ts.inverse_dynamics(model, s.q, s.v, s.a, **more))
    close(t.dtau, difference(lambda t: ts.inverse_dynamics(built(model, direction, t), s.q, s.v, s.a, **more)), 1e-9)
    if not forward:
        return
    t = ts.forward_dynamics_jvp(model, s.q, s.v, s.tau, model_direction=direction, **more)
    tol = max(1e-9, 1e3 * conditioned(model, s.q))
    close(t.da, difference(lambda t: ts.forward_dynamics(built(model, direction, t), s.q, s.v, s.tau, **more)), tol)

    def hybrid(model):
        return np.stack(ts.hybrid_dynamics(model, s.q, s.v, a=s.a, tau=s.tau, prescribed=s.mask, **more))

    t = ts.hybrid_dynamics_jvp(model, s.q, s.v, a=s.a, tau=s.tau, prescribed=s.mask, model_direction=direction, **more)
    close(np.stack([t.da, t.dtau]), difference(lambda t: hybrid(built(model, direction, t))), tol)


@over_models
@pytest.mark.parametrize("frame", sweep(FRAMES, 3))
@pytest.mark.parametrize("part", ["inertia", "placement", "gravity", "armature", "joint"])
def test_models_that_are_built(model, frame, part):
    rng = np.random.default_rng(2)
    s = State(model)
    if part == "joint":
        rates = {b.name: constants(b.joint, rng) for b in model.bodies}
        direction = ts.ModelDirection(joint={name: rate for name, rate in rates.items() if rate})
        assert direction.joint
    else:
        direction = ts.ModelDirection(**{part: getattr(all_parts(model, rng), part)})
    check_model_direction(model, direction, s, f_ext=s.f, f_ext_frame=frame)


WITH_CONSTANTS = [
    *(joint for joint in testing.example_joints() if constants(joint, np.random.default_rng(0))),
    ts.Screw(),
    ts.SplineCurve([ts.SE3.translation(0.3 * k, 0.1 * k * k, 0) for k in range(5)]),
    ts.SplineCurve([ts.SE3.rotation((1, 2, 0), 3.0 * k) for k in range(5)]),
    ts.Composite(ts.Composite(ts.Screw((1, 2, 3), 0.3), ts.Spherical()), ts.Fixed(), CURVE),
    ts.Composite(ts.Prismatic((1, 2, 0)), Own(ts.SphericalExp(), True), ts.Prismatic((0, 1, 1))),
]
# Forward dynamics is singular with these, that do not move, or in more ways than a body can.
SINGULAR = [
    ts.SplineCurve([ts.SE3()] * 4),
    ts.SplineSurface(np.zeros((6, 4, 4))),
    ts.Composite(ts.Composite(ts.Screw((1, 2, 3), 0.3), ts.Spherical()), ts.Fixed(), ts.Universal(), CURVE),
]


@pytest.mark.parametrize("joint", sweep([*WITH_CONSTANTS, *SINGULAR], 3), ids=lambda j: type(j).__name__)
def test_constants_of_joints(joint):
    model, forward = between(joint, armature=True), joint not in SINGULAR
    s = State(model)
    rates = constants(joint, np.random.default_rng(3))
    for key, rate in rates.items():  # one by one, and together with the rest of the model
        check_model_direction(model, ts.ModelDirection(joint={"body1": {key: rate}}), s, forward)
    other = all_parts(model, np.random.default_rng(4))
    check_model_direction(model, replace(other, joint={"body1": rates}), s, forward)


@pytest.mark.parametrize("place", [-0.5, 0.0, 1.0, 2.0, 3.0, 3.5])
def test_control_frames_at_knots_and_beyond_the_ends(place):
    model = between(CURVE)
    s = State(model)
    s.q[1] = place
    check_model_direction(model, ts.ModelDirection(joint={"body1": constants(CURVE, np.random.default_rng(3))}), s)


def test_joints_at_their_parents_origin_and_bodies_without_mass():
    """What the core leaves out for a zero, it must not leave out for a zero that moves."""
    joints = [ts.Free(), ts.Revolute(), ts.Fixed(), ts.Universal(), ts.SphericalExp(), ts.Spherical(), ts.Screw()]
    rng = np.random.default_rng(6)
    builder = ts.ModelBuilder(gravity=(0, 0, 0)).add_body("post")
    for k, joint in enumerate(joints):
        mass = testing.random_inertia(rng) if k % 3 == 0 else None
        builder.add_body(f"b{k}", f"b{k - 1}" if k else "post", joint, inertia=mass)
    builder.add_body("tip", "b2", ts.Revolute((0, 1, 0)), inertia=testing.random_inertia(rng))
    model = builder.build()
    s = State(model)
    for b in model.bodies:
        for direction in (
            ts.ModelDirection(placement={b.name: rng.standard_normal(6)}),
            ts.ModelDirection(joint={b.name: rates} if (rates := constants(b.joint, rng)) else {}),
            ts.ModelDirection(inertia={b.name: np.r_[1.0, 0.3, -0.2, 0.5, rng.standard_normal(6)]}),
        ):
            t = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, f_ext=s.f, model_direction=direction)
            expected = difference(
                lambda t, d=direction: ts.inverse_dynamics(built(model, d, t), s.q, s.v, s.a, f_ext=s.f)
            )
            close(t.dtau, expected, 1e-9)
    direction = ts.ModelDirection(gravity=(1, 2, 3))
    t = ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, model_direction=direction)
    close(t.dtau, ts.gravity_forces(model.with_gravity((1, 2, 3)), s.q))


@over_models
def test_directions_add_up(model):
    s = State(model)
    rng = np.random.default_rng(3)
    d = all_parts(model, rng)
    joint = {b.name: rates for b in model.bodies if (rates := constants(b.joint, rng))}
    call = lambda **more: ts.inverse_dynamics_jvp(model, s.q, s.v, s.a, f_ext=s.f, **more).dtau  # noqa: E731
    parts = [
        call(dq=s.dq),
        call(dv=s.dv),
        call(da=s.da),
        call(df_ext=s.df),
        call(model_direction=ts.ModelDirection(joint=joint)),
        call(model_direction=ts.ModelDirection(gravity=d.gravity)),
        *(call(model_direction=ts.ModelDirection(inertia={name: x})) for name, x in d.inertia.items()),
        *(call(model_direction=ts.ModelDirection(placement={name: x})) for name, x in d.placement.items()),
        *(call(model_direction=ts.ModelDirection(armature={name: x})) for name, x in d.armature.items()),
    ]
    assert all(part.any() for part in parts[:6])
    close(
        call(dq=s.dq, dv=s.dv, da=s.da, df_ext=s.df, model_direction=replace(d, joint=joint)) / np.abs(parts).sum(),
        sum(parts) / np.abs(parts).sum(),
    )


def test_a_direction_may_name_bodies_by_their_joints():
    box = ts.Inertia.box((1, 2, 3), mass=1.0, com=(1, 1, 2))
    builder = ts.ModelBuilder(gravity=(1, 2, 3)).add_body("hand", joint=ts.Revolute(), inertia=box, joint_name="wrist")
    model = builder.build()
    one = np.ones(1)
    for key, rate in (("inertia", np.arange(10.0)), ("placement", np.arange(6.0)), ("joint", {"axis": (1, 2, 3)})):
        x, y = (
            ts.inverse_dynamics_jvp(model, one, one, one, model_direction=ts.ModelDirection(**{key: {name: rate}}))
            for name in ("hand", "wrist")
        )
        assert np.array_equal(x.dtau, y.dtau) and x.dtau.any()


# ---- wrong directions


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder("tree", gravity=(1, 2, -9))
    for name, parent, joint in (
        ("base", "world", ts.Free()),
        ("arm", "base", ts.Revolute((1, 2, 3))),
        ("camera", "arm", ts.Fixed()),
        ("ball", "arm", ts.Spherical()),
        ("wrist", "ball", ts.SphericalExp()),
        ("slider", "base", ts.Composite(ts.Prismatic((0, 1, 0)), ts.Universal())),
        ("cam", "slider", Own(ts.Universal(), False)),
        ("rail", "world", CURVE),
    ):
        builder.add_body(name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
    return builder.build()


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"inertia": {"hand": np.zeros(10)}}, KeyError, "no body named 'hand'; bodies are 'base', 'arm'"),
        ({"placement": {"hand": np.zeros(6)}}, KeyError, "no body named 'hand'"),
        ({"joint": {"hand": {}}}, KeyError, "no joint named 'hand'"),
        ({"inertia": {"arm": np.zeros(9)}}, ValueError, r"direction of inertia of 'arm' has shape \(9,\), expected"),
        ({"inertia": {"arm": [1] * 9 + [np.nan]}}, ValueError, "direction of inertia of 'arm' is not finite"),
        ({"placement": {"arm": np.eye(4)}}, ValueError, r"of placement of 'arm' has shape \(4, 4\), expected \(6,\)"),
        ({"gravity": (1, 2)}, ValueError, r"direction of gravity has shape \(2,\), expected \(3,\)"),
        ({"gravity": (1, 2, 3j)}, ValueError, "direction of gravity has dtype complex128, expected real"),
        ({"gravity": "down"}, ValueError, "direction of gravity has dtype <U4, expected real"),
        ({"joint": {"arm": {"axis": (1, 2)}}}, ValueError, r"direction of axis of 'arm' has shape \(2,\)"),
        ({"joint": {"arm": {"pitch": 1.0}}}, ValueError, "joint 'arm' has no constant 'pitch'; it has 'axis'"),
        ({"joint": {"base": {"axis": (1, 2, 3)}}}, ValueError, "joint 'base' has no constant 'axis'; it has none"),
        ({"joint": {"cam": {"axes": np.eye(2, 3)}}}, ValueError, "joint 'cam' has no constant 'axes'; it has none"),
        ({"joint": {"rail": {"values": 1.0}}}, ValueError, "joint 'rail' has no constant 'values'; it has 'frames'"),
        ({"joint": {"rail": {"frames": np.zeros(6)}}}, ValueError, r"direction of frames of 'rail' has shape \(6,\)"),
        ({"joint": {"slider": {"axis": (1, 2, 3)}}}, ValueError, "'slider' has no constant 'axis'; it has 'joints'"),
        ({"joint": {"slider": {"joints": [None]}}}, ValueError, "of joints of 'slider' must be a sequence of 2"),
        ({"joint": {"slider": {"joints": 3}}}, ValueError, "of joints of 'slider' must be a sequence of 2"),
        ({"joint": {"slider": {"joints": [None, 3]}}}, TypeError, "joint 'slider' must be a mapping from constants"),
        ({"joint": {"arm": (1, 2, 3)}}, TypeError, "joint 'arm' must be a mapping from constants to rates, got tuple"),
        ({"inertia": np.zeros((8, 10))}, TypeError, "direction of inertia must be a mapping from names to rates"),
        ({"placement": None}, TypeError, "direction of placement must be a mapping from names to rates, got NoneType"),
        ({"joint": "arm"}, TypeError, "direction of joint must be a mapping from names to rates, got str"),
    ],
)
def test_wrong_directions(mixed, parts, error, message):
    s = State(mixed)
    with pytest.raises(error, match=message):
        ts.inverse_dynamics_jvp(mixed, s.q, s.v, s.a, model_direction=ts.ModelDirection(**parts))


@pytest.mark.parametrize("direction", [{"gravity": (1, 2, 3)}, (1, 2, 3), "gravity", ts.ModelDirection])
def test_things_that_are_not_directions(mixed, direction):
    s = State(mixed)
    for call in (
        lambda **d: ts.inverse_dynamics_jvp(mixed, s.q, s.v, s.a, **d),
        lambda **d: ts.forward_dynamics_jvp(mixed, s.q, s.v, s.tau, **d),
        lambda **d: ts.hybrid_dynamics_jvp(mixed, s.q, s.v, prescribed=["arm"], **d),
        lambda **d: ts.inverse_dynamics_derivatives_jvp(mixed, s.q, s.v, s.a, **d),
        lambda **d: ts.forward_dynamics_derivatives_jvp(mixed, s.q, s.v, s.tau, **d),
    ):
        with pytest.raises(TypeError, match="model_direction must be a ModelDirection, got"):
            call(model_direction=direction)
