"""It does not break: every algorithm with every kind of argument gives the right numbers or a clear error."""

import inspect
import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import torsor as ts
from torsor import dynamics, kinematics, testing

# A floating tree; "camera" and "lens" are fixed to another body, "world0" to the world.
rng = np.random.default_rng(0)
builder = ts.ModelBuilder("tree", gravity=(1, 2, -9))
for name, parent, joint in (
    ("base", "world", ts.Free()),
    ("arm", "base", ts.Revolute((1, 2, 3))),
    ("camera", "arm", ts.Fixed()),
    ("ball", "arm", ts.Spherical()),
    ("lens", "camera", ts.Fixed()),
    ("wrist", "ball", ts.SphericalExp()),
    ("slider", "base", ts.Composite(ts.Prismatic((0, 1, 0)), ts.Universal())),
    ("world0", "world", ts.Fixed()),
):
    builder.add_body(name, parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
MODEL = builder.build()
NAMES = [b.name for b in MODEL.bodies]
MASK = np.arange(MODEL.nv) % 3 == 1
POINTS = rng.standard_normal((3, 3))


def wrenches(f, frame="body"):
    return lambda m, *x, **o: f(m, *x[:-1], f_ext=x[-1], f_ext_frame=frame, **o)


FORCES = testing.example_forces(MODEL, 0)


def forces_on(model):
    same = isinstance(model, ts.Model) and model == MODEL
    nq = model.nq if isinstance(model, ts.Model) else 0
    limits = ts.JointLimits(None, 1.0, 0.0, -np.ones(nq), np.ones(nq))
    return FORCES if same else [ts.JointSpring(None, 2.0, damping=0.3), limits]


# name: (function, names of its array arguments); a dot and a letter mark further ways of calling one function
ALGORITHMS = {
    "inverse_dynamics": (ts.inverse_dynamics, "q v a"),
    "inverse_dynamics.f": (wrenches(ts.inverse_dynamics), "q v a f_ext"),
    "forward_dynamics": (ts.forward_dynamics, "q v tau"),
    "forward_dynamics.f": (wrenches(ts.forward_dynamics), "q v tau f_ext"),
    "forward_dynamics.w": (wrenches(ts.forward_dynamics, "world"), "q v tau f_ext"),
    "hybrid_dynamics": (
        lambda m, q, v, a, tau, f, **o: ts.hybrid_dynamics(
            m, q, v, a=a, tau=tau, f_ext=f, prescribed=MASK if m is MODEL else [], **o
        ),
        "q v a tau f_ext",
    ),
    "joint_reactions": (wrenches(ts.joint_reactions), "q v a f_ext"),
    "bias_forces": (wrenches(ts.bias_forces), "q v f_ext"),
    "gravity_forces": (ts.gravity_forces, "q"),
    "mass_matrix": (ts.mass_matrix, "q"),
    "mass_matrix_inverse": (ts.mass_matrix_inverse, "q"),
    "mass_matrix_solve": (ts.mass_matrix_solve, "q x"),
    "mass_matrix_solve.t": (
        lambda m, q, x, d, P, **o: ts.mass_matrix_solve(m, q, x, joint_terms=d, body_terms=P, **o),
        "q x joint_terms body_terms",
    ),
    "coriolis_matrix": (ts.coriolis_matrix, "q v"),
    "kinetic_energy": (ts.kinetic_energy, "q v"),
    "generalized_forces": (lambda m, q, v, **o: ts.generalized_forces(m, forces_on(m), q, v, **o), "q v"),
    "force_energies": (lambda m, q, **o: ts.force_energies(m, forces_on(m), q, **o), "q"),
    "potential_energy": (ts.potential_energy, "q"),
    "generalized_momenta": (ts.generalized_momenta, "q v"),
    "momentum": (ts.momentum, "q v"),
    "momentum_matrix": (ts.momentum_matrix, "q"),
    "center_of_mass": (ts.center_of_mass, "q"),
    "center_of_mass_jacobian": (ts.center_of_mass_jacobian, "q"),
    "body_poses": (ts.body_poses, "q"),
    "body_velocities": (ts.body_velocities, "q v"),
    "body_accelerations": (ts.body_accelerations, "q v a"),
    "jacobian": (lambda m, q, **o: ts.jacobian(m, q, last(m), **o), "q"),
    "point_positions": (lambda m, q, x, **o: ts.point_positions(m, q, [last(m)] * 3, x, **o), "q points"),
    "point_positions.1": (lambda m, q, **o: ts.point_positions(m, q, last(m), (1, 2, 3), **o), "q"),
    "point_jacobian": (lambda m, q, x, **o: ts.point_jacobian(m, q, [last(m)] * 3, x, **o), "q points"),
    "point_jacobian.1": (lambda m, q, **o: ts.point_jacobian(m, q, last(m), (1, 2, 3), **o), "q"),
    "maximal_jacobian": (ts.maximal_jacobian, "q"),
    "maximal_jacobian_dot": (ts.maximal_jacobian_dot, "q v"),
    "jacobian_product": (ts.jacobian_product, "q v"),
    "jacobian_dot_product": (ts.jacobian_dot_product, "q v x"),
    "jacobian_transpose_product": (ts.jacobian_transpose_product, "q y"),
    "plus": (lambda m, *x, **o: m.plus(*x, **o), "q dv"),
    "minus": (lambda m, *x, **o: m.minus(*x, **o), "q1 q0"),
    "normalize": (lambda m, *x, **o: m.normalize(*x, **o), "q"),
}
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def last(model):
    """The last body that moves."""
    return "slider" if model is MODEL else model.bodies[-1].name


def argument(name, model, batch, rng):
    shape = {"f_ext": (model.nbodies, 6), "y": (model.nbodies, 6), "points": (3, 3)}.get(name, (model.nv,))
    if name in ("q", "q0", "q1"):
        return model.random(rng, batch)
    if name == "body_terms":
        P = rng.standard_normal((*batch, model.nbodies, 6, 6))
        return P @ np.swapaxes(P, -1, -2)
    x = rng.standard_normal((*batch, *shape))
    return np.abs(x) if name == "joint_terms" else x


def case(name, batch=(), seed=0, model=MODEL):
    """The function and its arguments."""
    f, names = ALGORITHMS[name]
    rng = np.random.default_rng(seed)
    return f, [argument(n, model, batch, rng) for n in names.split()]


def parts(result):
    return result if isinstance(result, tuple) else (result,)


def same(x, y):
    """Equal in every bit that matters, NaN included."""
    return all(
        a.shape == b.shape and np.array_equal(a, b, equal_nan=True) for a, b in zip(parts(x), parts(y), strict=True)
    )


def test_the_table_is_complete():
    public = {
        name
        for module in (dynamics, kinematics)
        for name, f in vars(module).items()
        if inspect.isroutine(f) and name in ts.__all__ and f.__module__ == module.__name__
    }
    assert public | {"plus", "minus", "normalize", "generalized_forces", "force_energies"} == {
        name.split(".")[0] for name in ALGORITHMS
    }


# ---- shapes


@every_algorithm
def test_wrong_shapes(name):
    f, arrays = case(name)
    labels = ALGORITHMS[name][1].split()
    for k, (x, label) in enumerate(zip(arrays, labels, strict=True)):
        if name == "jacobian_product" and label == "v":
            label = "v|x"
        for wrong in (x[..., :-1], np.concatenate([x, x], -1), x.sum(), x[None].swapaxes(0, -1)):
            with pytest.raises(ValueError, match=rf"^({label}) has shape .*, expected \(\.\.\., "):
                f(MODEL, *arrays[:k], wrong, *arrays[k + 1 :])
        with pytest.raises(ValueError, match=f"^({label}) has 30 batch dimensions, expected 28 at most"):
            f(MODEL, *arrays[:k], x.reshape((1,) * 30 + x.shape), *arrays[k + 1 :])
        if k:
            three, four = np.stack([arrays[0]] * 3), np.stack([x] * 4)
            with pytest.raises(ValueError, match=r"batch shapes do not fit together: .*q"):
                f(MODEL, three, *arrays[1:k], four, *arrays[k + 1 :])
    with pytest.raises((ValueError, TypeError)):
        f(MODEL, [arrays[0].tolist(), arrays[0].tolist()[:-1]], *arrays[1:])  # ragged


def test_messages_say_why():
    q, v, _ = case("inverse_dynamics")[1]
    with pytest.raises(
        ValueError, match=r"v has shape \(18,\), expected \(..., 16\): model.nv is 16; nq is 18 and nv is 16"
    ):
        ts.inverse_dynamics(MODEL, q, q, v)
    with pytest.raises(ValueError, match=r"because 'base' is a Free joint"):
        ts.inverse_dynamics(MODEL, v, v, v)
    with pytest.raises(ValueError, match=r"f_ext has shape \(8, 5\), expected \(..., 8, 6\): model.nbodies is 8"):
        ts.inverse_dynamics(MODEL, q, v, v, f_ext=np.zeros((8, 5)))


@every_algorithm
def test_empty_batches(name):
    f, arrays = case(name)
    shapes = [x.shape for x in parts(f(MODEL, *arrays))]
    for batch in ((0,), (3, 0), (0, 4), (2, 0, 3)):
        empty = [np.zeros((*batch, *x.shape)) for x in arrays]
        for threads in (1, 2):
            assert [x.shape for x in parts(f(MODEL, *empty, threads=threads))] == [(*batch, *s) for s in shapes]
        assert [x.shape for x in parts(f(MODEL, empty[0], *arrays[1:]))] == [(*batch, *s) for s in shapes]


@every_algorithm
def test_broadcasting(name):
    f, arrays = case(name, (4,))
    for k in range(1, len(arrays) + 1):  # the first k along one dimension, the others along another
        shaped = [x[:, None] if i < k else x[None, :3] for i, x in enumerate(arrays)]
        result = parts(f(MODEL, *shaped))
        second = 3 if k < len(arrays) else 1
        for i in range(4):
            for j in range(second):
                one = f(MODEL, *(x[i] if n < k else x[j] for n, x in enumerate(arrays)))
                assert same(tuple(x[i, j] for x in result), one)
        one = f(MODEL, *(x if i < k else x[0] for i, x in enumerate(arrays)))  # no batch dimension at all
        assert same(one, tuple(x[:, 0] for x in result))


# ---- kinds of numbers and of arrays


@every_algorithm
def test_numbers_of_other_types(name):
    f, arrays = case(name, (5,))
    whole = [np.round(3 * x) for x in arrays]
    expected = f(MODEL, *whole)
    for dtype in (
        np.int64,
        np.int32,
        np.int8,
        np.float32,
        np.float16,
        np.longdouble,
        ">f8",
        ">i4",
        object,
        "U8",
        complex,
    ):
        converted = [x.astype(dtype) for x in whole]
        if dtype in (object, "U8", complex):
            for k, x in enumerate(converted):
                with pytest.raises(TypeError, match="is complex, expected real" if dtype is complex else "has dtype"):
                    f(MODEL, *whole[:k], x, *whole[k + 1 :])
        else:
            assert same(f(MODEL, *converted), expected)
    for nothing in ("abc", {}, object()):
        with pytest.raises((TypeError, ValueError)):
            f(MODEL, nothing, *whole[1:])


def unaligned(x):
    raw = np.zeros(x.nbytes + 1, np.uint8)
    y = raw[1:].view(np.float64).reshape(x.shape)
    y[...] = x
    return y


def spread(x):
    """Every other row and number of a larger array."""
    big = np.full([2 * n for n in x.shape], np.nan)
    y = big[tuple(slice(1, None, 2) for _ in x.shape)]
    y[...] = x
    return y


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "backwards": lambda x: np.ascontiguousarray(x[::-1, ..., ::-1])[::-1, ..., ::-1],
    "spread": spread,
    "read-only": read_only,
    "unaligned": unaligned,
    "transposed": lambda x: np.ascontiguousarray(np.moveaxis(x, 0, -1)).transpose(-1, *range(x.ndim - 1)),
    "list": lambda x: x.tolist(),
    "subclass": lambda x: x.view(type("Sub", (np.ndarray,), {})),
    "structured": lambda x: np.rec.fromarrays([x, x], names="a, b").a,
}


@every_algorithm
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(name, layout):
    f, arrays = case(name, (11,))
    expected = f(MODEL, *arrays)
    keep = [x.copy() for x in arrays]
    changed = [LAYOUTS[layout](x) for x in arrays]
    result = f(MODEL, *changed)
    assert same(result, expected)
    assert all(type(x) is np.ndarray for x in parts(result))
    assert same(f(MODEL, *(LAYOUTS[layout](x)[3] for x in arrays)), tuple(x[3] for x in parts(expected)))
    assert all(np.array_equal(x, y) for x, y in zip(arrays, keep, strict=True))  # inputs are not written to


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_matrices_and_memory_maps(tmp_path):
    f, arrays = case("inverse_dynamics", (11,))
    expected = f(MODEL, *arrays)
    assert same(f(MODEL, *map(np.matrix, arrays)), expected)
    maps = []
    for k, x in enumerate(arrays):
        maps.append(np.memmap(tmp_path / f"{k}.bin", dtype=float, mode="w+", shape=x.shape))
        maps[-1][...] = x
    assert same(f(MODEL, *maps), expected)
    out = np.memmap(tmp_path / "out.bin", dtype=float, mode="w+", shape=expected.shape)
    assert f(MODEL, *maps, out=out) is out
    assert same(np.array(out), expected)


MASKED = "is a masked array, expected a plain one, because masks are ignored"


@every_algorithm
def test_masked_arrays(name):
    f, arrays = case(name, (11,))
    labels = ALGORITHMS[name][1].split()
    for k, (x, label) in enumerate(zip(arrays, labels, strict=True)):
        if name == "jacobian_product" and label == "v":
            label = "v|x"
        masked = np.ma.masked_array(x, x > 0)
        for wrong in (masked, masked[3], list(masked), np.ma.masked_array(x), np.ma.masked_array(x.astype(int))):
            with pytest.raises(TypeError, match=f"^({label}) {MASKED}"):
                f(MODEL, *arrays[:k], wrong, *arrays[k + 1 :])
    outs = tuple(map(np.ma.masked_array, parts(f(MODEL, *arrays))))
    with pytest.raises(TypeError, match=rf"^out( \(\w+\))? {MASKED}"):
        f(MODEL, *arrays, out=outs[0] if len(outs) == 1 else outs)


def test_masked_arrays_elsewhere():
    three, number, six = np.ma.ones(3), np.ma.ones(()), np.ma.ones(6)
    model = ts.models.acrobot()
    q = np.zeros(model.nq)
    run = ts.simulate(model, q, steps=1, integrator=ts.BDF1(0.1), controls=q)
    step = {"steps": 1, "integrator": ts.BDF1(0.1)}
    builder = ts.ModelBuilder()
    for call in (
        lambda: ts.SE3(p=three),
        lambda: ts.Inertia(1.0, three, np.eye(3)),
        lambda: ts.Revolute(three),
        lambda: ts.ModelBuilder(gravity=three),
        lambda: builder.add_body("a", joint=ts.Translational(), position_limits=(three, three + 1)),
        lambda: builder.add_body("a", joint=ts.Translational(), effort_limits=three),
        lambda: model.lock({"elbow": number}),
        lambda: ts.spatial.hat(three),
        lambda: ts.JointSpring(None, three),
        lambda: ts.JointSpring(None, 1.0, three),
        lambda: ts.JointLimits(None, 1.0, lower=three),
        lambda: ts.JointTorque(None, three),
        lambda: ts.BodyWrench("a", six),
        lambda: ts.GroundContact("a", three, 1.0),
        lambda: ts.GroundContact("a", (0, 0, 0), number),
        lambda: ts.GroundContact("a", (0, 0, 0), 1.0, normal=three),
        lambda: ts.simulate(model, np.ma.array(q), **step),
        lambda: ts.simulate(model, q, np.ma.array(q), **step),
        lambda: ts.simulate(model, q, controls=np.ma.array(q), **step),
        lambda: ts.simulate(model, q, controls=lambda t: np.ma.array(q), **step),
        lambda: ts.simulate(model, q, steps=1, integrator=ts.Adaptive(0.1), controls=lambda t: np.ma.array(q)),
        lambda: ts.simulate(
            model, q, forces=[ts.JointDamping(None, 1.0)], parameters=[{"damping": np.ma.ones(2)}], **step
        ),
        lambda: ts.adjoint(run, dloss_dq=np.ma.array(q)),
        lambda: ts.adjoint(run, dloss_du=np.ma.array(q[None])),
        lambda: ts.PointTarget("lower", three, (0, 0, 0)),
        lambda: ts.PointTarget("lower", (0, 0, 0), three),
        lambda: ts.VelocityTarget(np.ma.array(q)),
        lambda: ts.PositionTarget(np.ma.array(q)),
        lambda: ts.ControlEffort(np.ma.array(q)),
        lambda: ts.VelocityTarget().evaluate(model, q, np.ma.array(q)),
        lambda: ts.step_derivatives(model, ts.BDF1(0.1), q, np.ma.array(q)),
        lambda: ts.generalized_forces(model, [], q, q, t=number),
        lambda: ts.hybrid_dynamics(model, q, q, a=q, tau=q, prescribed=np.ma.array([True, False])),
        lambda: ts.point_positions(model, q, "lower", three),
        lambda: ts.point_hessian(model, q, "lower", three),
        lambda: ts.Revolute().Sdot([0.0], np.ma.ones(1)),
        lambda: ts.SphericalEuler().det_S(three),
        lambda: ts.SphericalEuler().from_rotation(np.ma.array(np.eye(3))),
        lambda: ts.SphericalEuler().switch("XYX", (0.1, 0.2, 0.3), three),
    ):
        with pytest.raises(TypeError, match=MASKED):
            call()


# ---- out


@every_algorithm
@pytest.mark.parametrize("batch", [(), (11,), (2, 3)])
def test_out(name, batch):
    f, arrays = case(name, batch)
    expected = parts(f(MODEL, *arrays))
    single = len(expected) == 1

    def call(outs):
        result = f(MODEL, *arrays, out=outs[0] if single else tuple(outs))
        assert all(x is y for x, y in zip(parts(result), outs, strict=True))
        assert same(tuple(outs), expected)

    fresh = lambda: [np.full_like(x, np.nan) for x in expected]  # noqa: E731
    call(fresh())
    if expected[0].ndim:
        call([spread(x) for x in fresh()])
        call([np.asfortranarray(x) for x in fresh()])
        call([x[::-1] for x in fresh()])
        call([unaligned(x) for x in fresh()])
    for wrong, error, message in (
        ([x[..., None] for x in fresh()], ValueError, "has shape .*, expected"),
        ([np.zeros((2, *x.shape)) for x in expected], ValueError, "has shape .*, expected"),
        ([x.astype(np.float32) for x in fresh()], TypeError, "has dtype float32, expected float64"),
        ([x.astype(complex) for x in fresh()], TypeError, "has dtype complex128, expected float64"),
        ([x.astype(">f8") for x in fresh()], TypeError, "has dtype >f8, expected float64"),
        ([x.tolist() for x in fresh()], TypeError, "must be a NumPy array, got"),
        ([read_only(x) for x in expected], ValueError, "read-only"),
    ):
        with pytest.raises(error, match=rf"^out( \(\w+\))? .*{message}"):
            f(MODEL, *arrays, out=wrong[0] if single else tuple(wrong))


@every_algorithm
def test_out_that_overlaps_the_inputs(name):
    f, arrays = case(name, (11,))
    expected = parts(f(MODEL, *arrays))
    for k, x in enumerate(arrays):
        for y in range(len(expected)):
            for offset in (0, 1, x.size // 2):
                buffer = np.zeros(max(x.size, offset + expected[y].size))
                inside = buffer[: x.size].reshape(x.shape)
                inside[...] = x
                outs = [np.empty_like(e) for e in expected]
                outs[y] = buffer[offset : offset + expected[y].size].reshape(expected[y].shape)
                f(
                    MODEL,
                    *arrays[:k],
                    inside,
                    *arrays[k + 1 :],
                    out=outs[0] if len(outs) == 1 else tuple(outs),
                )
                assert same(tuple(outs), expected)


def test_out_of_hybrid_dynamics():
    f, arrays = case("hybrid_dynamics", (7,))
    a, tau = f(MODEL, *arrays)
    x = np.empty((7, MODEL.nv))
    for wrong in (x, (x,), (x, x, x), 3, {"a": x, "tau": x}):
        with pytest.raises(TypeError, match="out must be a tuple of 2 arrays"):
            f(MODEL, *arrays, out=wrong)
    for wrong in ((x, x), (x, x[::-1])):
        with pytest.raises(ValueError, match="two arrays of out share memory"):
            f(MODEL, *arrays, out=wrong)
    both = np.empty((2, 7, MODEL.nv))
    assert same(tuple(f(MODEL, *arrays, out=[both[0], both[1]])), (a, tau))
    swapped = f(MODEL, *arrays, out=(arrays[3], arrays[2]))  # tau's memory takes a, and the other way round
    assert same(swapped, (a, tau))


# ---- quaternions of length 0


@every_algorithm
def test_zero_quaternions(name):
    f, arrays = case(name, (19,))
    labels = ALGORITHMS[name][1].split()
    for k, label in enumerate(labels):
        if label not in ("q", "q0", "q1"):
            continue
        for joint in MODEL.joints:
            if joint.nq == joint.nv:
                continue
            spoilt = [x.copy() for x in arrays]
            spoilt[k][6, joint.q_slice.stop - 4 : joint.q_slice.stop] = 0.0
            message = f"^{label} has a quaternion of length 0 at joint {joint.name!r}"
            for threads in (1, 2):
                with pytest.raises(ValueError, match=message + r" in state 6 of the batch \(counted flat\), expected"):
                    f(MODEL, *spoilt, threads=threads)
            with pytest.raises(ValueError, match=message + ", expected a positive length"):
                f(MODEL, *(x[6] for x in spoilt))
            with pytest.raises(ValueError, match=message + ", expected"):  # one for all states
                f(MODEL, *(x[6] if n == k else x for n, x in enumerate(spoilt)))
            spoilt[k][6, joint.q_slice.stop - 1] = 1e-200  # of any other length
            f(MODEL, *spoilt)


def test_zero_quaternions_elsewhere():
    model = ts.ModelBuilder().add_body("a", joint=ts.Free(), inertia=ts.Inertia.sphere(mass=1.0, radius=0.1)).build()
    q, zero, v = model.neutral, np.zeros(7), np.zeros(6)
    steps = ts.Variational(0.01)
    message = "has a quaternion of length 0 at joint 'a'"
    for call in (
        lambda: ts.simulate(model, zero, steps=1, integrator=ts.BDF1(0.1)),
        lambda: ts.simulate(model, [q, zero], steps=1, integrator=ts.BDF1(0.1)),
        lambda: ts.step_derivatives(model, ts.BDF2(0.01), zero, v),
        lambda: ts.step_derivatives(model, ts.BDF2(0.01), q, v, previous=(zero, v)),
        lambda: ts.step_derivatives(model, steps, zero, v),
        lambda: ts.step_derivatives(model, steps, zero, p=v),
        lambda: ts.variational.discrete_euler_lagrange(model, steps, np.stack([q, zero])),
        lambda: ts.inverse_dynamics_derivatives(model, zero, v, v),
        lambda: ts.inverse_dynamics_hessians(model, zero, v, v),
        lambda: ts.forward_dynamics_jvp(model, zero, v, v, dq=v),
        lambda: ts.inverse_dynamics_vjp(model, zero, v, v, v),
        lambda: ts.generalized_forces(model, [ts.JointDamping(None, 1.0)], zero, v),
        lambda: ts.point_hessian(model, zero, "a", (0, 0, 0)),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match=r"q0 has a quaternion of length 0 at joint 'a' in state 1 of the batch"):
        ts.simulate(model, [q, zero], steps=1, integrator=ts.BDF1(0.1))
    with pytest.raises(ValueError, match="q has a quaternion of length 0, expected"):
        ts.Spherical().T(np.zeros(4))
    with testing.complex_inputs(), pytest.raises(ValueError, match=message):
        ts.forward_dynamics(model, zero + 0j, v, v)


# ---- NaN, infinity, enormous numbers: in their own state and in no other


@every_algorithm
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, 1e7])
def test_bad_numbers_stay_in_their_state(name, value):
    f, arrays = case(name, (19,))
    expected = parts(f(MODEL, *arrays))
    others = np.arange(19) != 6
    for k, label in enumerate(ALGORITHMS[name][1].split()):
        if label in ("joint_terms", "body_terms") and value == -np.inf:
            continue  # no sum with which the matrix could be solved
        spoilt = [x.copy() for x in arrays]
        spoilt[k][6] = value
        result = parts(f(MODEL, *spoilt))
        assert same(tuple(x[others] for x in result), tuple(x[others] for x in expected))
        if np.isnan(value):
            assert any(np.isnan(x[6]).any() for x in result)
        assert same(tuple(x[6] for x in result), f(MODEL, *(x[6] for x in spoilt)))  # and alone it is the same


# ---- singular mass matrices


def on(joint, inertia=None):
    """A heavy arm with a body on `joint` at its end, itself carried by nothing or something."""
    b = ts.ModelBuilder().add_body("arm", "world", ts.Revolute((1, 0, 0)), inertia=testing.random_inertia(rng))
    return b.add_body("hand", "arm", joint, testing.random_pose(rng), inertia, joint_name="finger").build()


SOLVERS = {
    "forward": lambda m, q, **o: ts.forward_dynamics(m, q, np.ones(m.nv), np.ones(m.nv), **o),
    "hybrid": lambda m, q, **o: ts.hybrid_dynamics(m, q, np.ones(m.nv), prescribed=["arm"], **o),
    "inverse": lambda m, q, **o: ts.mass_matrix_inverse(m, q, **o),
    "solve": lambda m, q, **o: ts.mass_matrix_solve(m, q, np.ones(m.nv), **o),
}
solvers = pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)


@solvers
@pytest.mark.parametrize(
    ("joint", "inertia"),
    [
        *((j, None) for j in (ts.Revolute(), ts.Prismatic(), ts.Screw((0, 0, 1), 0.1), ts.Spherical(), ts.Free())),
        *((j, None) for j in (ts.Free2D(), ts.Universal(), ts.SphericalExp(), ts.Composite(ts.Free(), ts.Revolute()))),
        (ts.Revolute((0, 0, 1)), ts.Inertia.point(1.0, (0, 0, 2))),
        (ts.Spherical(), ts.Inertia.point(1.0, (1, 2, 3))),
        (ts.SphericalExp(), ts.Inertia.point(1.0, (1, 2, 3))),
        (ts.Free(), ts.Inertia.point(1.0, (1, 2, 3))),
        (ts.Prismatic(), ts.Inertia(0.0, I_com=(1, 2, 3))),
        (ts.SphericalEuler("XYX"), ts.Inertia.sphere(1.0, mass=1.0)),
    ],
)
def test_massless_motions(solve, joint, inertia):
    model = on(joint, inertia)
    q = np.tile(model.neutral, (5, 1))
    with pytest.raises(ts.SingularMassMatrixError, match="singular at joint 'finger': some motion") as error:
        solve(model, q[0])
    assert "prescribe it in hybrid_dynamics" in str(error.value)
    with pytest.raises(ts.SingularMassMatrixError, match="singular at joint 'finger' in state 0 of the batch"):
        solve(model, q)
    # inverse dynamics has no trouble, nor hybrid dynamics that prescribes it, nor a solve with more on it
    ones = np.ones(model.nv)
    assert np.isfinite(ts.inverse_dynamics(model, q, ones, ones)).all()
    a, tau = ts.hybrid_dynamics(model, q[0], ones, a=2 * ones, prescribed=["finger"])
    np.testing.assert_allclose(ts.inverse_dynamics(model, q[0], ones, a), tau, atol=1e-12)  # a few roundings
    added = ts.mass_matrix_solve(model, q[0], ones, joint_terms=ones)
    np.testing.assert_allclose((ts.mass_matrix(model, q[0]) + np.eye(model.nv)) @ added, ones, atol=1e-12)


@solvers
@pytest.mark.parametrize("threads", [1, 2])
def test_the_singular_state_is_named(solve, threads):
    model = on(ts.SphericalEuler("ZYX"), ts.Inertia.box((0.1, 0.2, 0.3), mass=1.0, com=(0.1, 0.2, 0.3)))
    q = model.random(np.random.default_rng(1), 500)
    assert np.isfinite(parts(solve(model, q, threads=threads))[0]).all()
    for bad in (0, 3, 250, 499):
        spoilt = q.copy()
        spoilt[bad, 2] = np.pi / 2
        with pytest.raises(ts.SingularMassMatrixError, match=f"at joint 'finger' in state {bad} of the batch"):
            solve(model, spoilt, threads=threads)
        with pytest.raises(ts.SingularMassMatrixError, match=f"in state {bad} of the batch"):
            solve(model, spoilt.reshape(5, 100, 4), threads=threads)  # counted as if the batch were flat
    assert np.isfinite(parts(solve(model, q, threads=threads))[0]).all()  # nothing is left behind


@pytest.mark.parametrize("mass", [1e-12, 1e-6, 1e6])
def test_small_and_large_masses_are_not_singular(mass):
    for joint in (ts.Revolute((1, 2, 3)), ts.Spherical(), ts.Free(), ts.Free2D(), ts.SphericalEuler()):
        inertia = testing.random_inertia(np.random.default_rng(2)).parameters * mass
        model = on(joint, ts.Inertia.from_parameters(inertia))
        q, v, a = model.random(3), *np.random.default_rng(3).standard_normal((2, model.nv))
        tau = ts.inverse_dynamics(model, q, v, a)
        # the torque on the arm carries the rounding of the heavy hand's weight
        np.testing.assert_allclose(ts.forward_dynamics(model, q, v, tau), a, atol=1e-13 * max(1.0, mass))


# ---- arguments that are not arrays


@every_algorithm
@pytest.mark.parametrize("model", [None, "arm", ts.ModelBuilder(), ts.Model, ts.models, np.zeros(3), 3])
def test_things_that_are_not_models(name, model):
    f, arrays = case(name)
    if name in ("plus", "minus", "normalize"):
        arrays, f = [model, *arrays], lambda m, model, *x: getattr(ts.Model, name)(model, *x)
        model = MODEL
    with pytest.raises(TypeError, match=r"model must be a torsor.Model, got .*; ModelBuilder.build\(\) makes one"):
        direct(name, f)(model, *arrays)


def direct(name, f):
    """`f` without the look-up of a body's name in the model."""
    q_and = {"jacobian": (), "point_positions": (POINTS,), "point_jacobian": (POINTS,)}
    base = name.split(".")[0]
    if base not in q_and:
        return f
    body = "arm" if base == "jacobian" or name.endswith("1") else ["arm"] * 3
    points = (POINTS[0],) if name.endswith("1") else q_and[base]
    return lambda m, q, *_: getattr(ts, base)(m, q, body, *points)


@every_algorithm
def test_threads(name):
    f, arrays = case(name, (300,))
    expected = f(MODEL, *arrays)
    for threads in (0, 1, 2, 3, 1000):
        assert same(f(MODEL, *arrays, threads=threads), expected)
    for threads in (-1, -(10**30), 10**30, 1.0, 2.5, "2", None, True, [2], np.float64(2), np.nan):
        with pytest.raises(ValueError, match=r"^threads is .*, expected an integer: 1 or more, or 0"):
            f(MODEL, *arrays, threads=threads)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_threads_may_be_integers_of_numpy(kind):
    f, arrays = case("forward_dynamics", (300,))
    assert same(f(MODEL, *arrays, threads=kind(2)), f(MODEL, *arrays))
    with pytest.raises(ValueError, match=r"^threads is .*, expected an integer"):
        f(MODEL, *arrays, threads=np.int64(-1))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q: ts.jacobian(MODEL, q, "hand"), KeyError, "no body named 'hand'; bodies are 'base', 'arm'"),
        (
            lambda q: ts.jacobian(MODEL, q, "arm", frame="World"),
            ValueError,
            "frame is 'World', expected 'body', 'world'",
        ),
        (lambda q: ts.jacobian(MODEL, q, "arm", frame=None), ValueError, "frame is None"),
        (
            lambda q: ts.bias_forces(MODEL, q, q[:-2], f_ext_frame="World"),
            ValueError,
            "f_ext_frame is 'World', expected",
        ),
        (lambda q: ts.body_velocities(MODEL, q, q[:-2], frame=0), ValueError, "frame is 0"),
        (
            lambda q: ts.momentum(MODEL, q, q[:-2], about="base"),
            ValueError,
            "about is 'base', expected 'com' or 'world'",
        ),
        (lambda q: ts.point_positions(MODEL, q, "arm", [1, 2]), ValueError, r"points has shape \(2,\)"),
        (lambda q: ts.point_positions(MODEL, q, "arm", 3), ValueError, r"points has shape \(\)"),
        (
            lambda q: ts.point_positions(MODEL, q, ["arm"], [1, 2, 3]),
            ValueError,
            r"points has shape \(3,\), expected \(..., 1, 3\)",
        ),
        (
            lambda q: ts.point_positions(MODEL, q, ["arm", "base"], [[1, 2, 3]]),
            ValueError,
            r"expected \(..., 2, 3\)",
        ),
        (lambda q: ts.point_positions(MODEL, q, ["arm", "leg"], POINTS[:2]), KeyError, "no body named 'leg'"),
        (
            lambda q: ts.hybrid_dynamics(MODEL, q, q[:-2], prescribed="arm"),
            TypeError,
            r"prescribed is 'arm', .* \['arm'\]",
        ),
        (
            lambda q: ts.hybrid_dynamics(MODEL, q, q[:-2], prescribed=["leg"]),
            KeyError,
            "no joint named 'leg'",
        ),
        (
            lambda q: ts.hybrid_dynamics(MODEL, q, q[:-2], prescribed=[True]),
            TypeError,
            r"shape \(1,\), expected names",
        ),
        (lambda q: ts.hybrid_dynamics(MODEL, q, q[:-2], prescribed=np.ones(14)), TypeError, "dtype float64"),
        (lambda q: ts.hybrid_dynamics(MODEL, q, q[:-2], prescribed=None), TypeError, "dtype object"),
        (lambda q: ts.forward_dynamics(MODEL, q, None, q[:-2]), TypeError, "v is missing"),
        (
            lambda q: ts.mass_matrix_solve(MODEL, q, q[:-2], body_terms=np.arange(8 * 36.0).reshape(8, 6, 6)),
            ValueError,
            "body_terms are not symmetric",
        ),
        (
            lambda q: ts.mass_matrix_solve(MODEL, q, q[:-2], body_terms=np.zeros((7, 6, 6))),
            ValueError,
            r"body_terms has shape \(7, 6, 6\), expected \(..., 8, 6, 6\)",
        ),
    ],
)
def test_other_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(MODEL.neutral)


def test_asymmetric_body_terms_beside_nan():
    q, x, _, P = case("mass_matrix_solve.t", (3,))[1]
    P[0] = np.nan
    P[1, 0, 0, 1] += 1
    with pytest.raises(ValueError, match="body_terms are not symmetric"):
        ts.mass_matrix_solve(MODEL, q, x, body_terms=P)


# ---- models without freedoms


@every_algorithm
@pytest.mark.parametrize("bodies", [0, 3])
def test_models_that_do_not_move(name, bodies):
    b = ts.ModelBuilder()
    for k in range(bodies):
        b.add_body(
            f"b{k}",
            f"b{k - 1}" if k else "world",
            None,
            testing.random_pose(rng),
            testing.random_inertia(rng),
        )
    model = b.build()
    if bodies == 0 and name.split(".")[0] in ("jacobian", "point_positions", "point_jacobian"):
        return
    for batch in ((), (5,), (2, 0)):
        f, arrays = case(name, batch, model=model)
        result = parts(f(model, *arrays, threads=2))
        assert all(x.shape[: len(batch)] == batch for x in result)
        for x in result:
            if name.startswith("center_of_mass"):
                assert np.isnan(x).all()  # nothing that moves has mass
            elif "pose" not in name and "point_positions" not in name and "reactions" not in name:
                assert x.size == 0 or not x.any()
    if bodies and name == "joint_reactions":  # the weight of what stands on it, less the wrenches
        f, (q, v, a, wrench) = case(name, model=model)
        total = sum(body.inertia.mass for body in model.bodies)
        assert np.isclose(np.linalg.norm(f(model, q, v, a, 0 * wrench)[0, 3:]), 9.81 * total)


# ---- many threads, many processes, many states


def test_eight_python_threads_at_once():
    cases = {name: case(name, (70,)) for name in ALGORITHMS}
    serial = {name: f(MODEL, *arrays) for name, (f, arrays) in cases.items()}
    special = [
        name for name in ALGORITHMS if "hybrid" in name or "jacobian" in name or "point" in name
    ]  # use MODEL's names
    for _ in range(3):
        fresh = ts.Model(MODEL.name, MODEL.gravity, MODEL.bodies)  # not yet compiled: all threads want that first
        barrier = threading.Barrier(8)

        def work(k, fresh=fresh, barrier=barrier):
            names = list(ALGORITHMS)[k:] + list(ALGORITHMS)[:k]
            barrier.wait()
            results = {}
            for name in names:
                f, arrays = cases[name]
                results[name] = f(MODEL if name in special else fresh, *arrays, threads=1 + k % 3)
            return results

        with ThreadPoolExecutor(8) as pool:
            for results in pool.map(work, range(8)):
                assert all(same(results[name], serial[name]) for name in ALGORITHMS)


def answer(queue, arrays):
    queue.put(ts.forward_dynamics(MODEL, *arrays, threads=2))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_forks_while_threads_work():
    f, arrays = case("forward_dynamics", (500,))
    expected = f(MODEL, *arrays, threads=2)
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            f(MODEL, *arrays, threads=2)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(5):
            queue = context.SimpleQueue()
            child = context.Process(target=answer, args=(queue, arrays))
            child.start()
            reader = ThreadPoolExecutor(1)
            result = reader.submit(queue.get)
            assert same(result.result(timeout=60), expected)
            reader.shutdown()
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        busy.join()


MEMORY = """
import resource, numpy as np, torsor as ts
n = 1_000_000
model = ts.models.pendulum()
q = v = tau = np.ones((n, 1))
ts.forward_dynamics(model, q[:1000], v[:1000], tau[:1000], threads=2)  # threads and their memory exist now
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
a = ts.forward_dynamics(model, q, v, tau, threads=2)
assert peak() - before < a.nbytes + 4e6, peak() - before
out, before = np.zeros_like(a), peak()
ts.inverse_dynamics(model, q, v, a, out=out)
assert peak() - before < 4e6, peak() - before
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
def test_memory_of_a_million_states_is_that_of_the_results(tmp_path):
    # 8 MB of results and no more than half of that beside them. A process of its own has a peak of its own; it starts
    # elsewhere, so that it finds the package where this process did.
    command = [sys.executable, "-c", MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


# ---- singular mass matrices whose parts are all regular ----------------------------------------------------

REDUNDANT = {
    "rotations": (ts.Revolute((1, 2, 3)), ts.Spherical()),
    "rotations in a chart": (ts.Revolute((1, 2, 3)), ts.SphericalEuler("XYZ")),
    "exponential coordinates": (ts.Revolute((1, 2, 3)), ts.SphericalExp()),
    "translations": (ts.Prismatic((1, 2, 3)), ts.Translational()),
    "two balls": (ts.Spherical(), ts.Spherical()),
    "free": (ts.Spherical(), ts.Free()),
    "composites": (ts.Composite(ts.Translational(), ts.SphericalEuler("XYZ")), ts.Free()),
}


@pytest.mark.parametrize("joints", REDUNDANT.values(), ids=REDUNDANT)
def test_freedoms_that_repeat_each_other_through_a_massless_body_are_singular(joints):
    builder = ts.ModelBuilder().add_body("frame", joint=joints[0])
    builder.add_body("ball", "frame", joints[1], inertia=ts.Inertia.box((1, 2, 3), mass=1, com=(0.1, 0.2, 0.3)))
    builder.add_body("tail", "ball", ts.Revolute(), ts.SE3.translation(0, 1, 0), ts.Inertia.sphere(0.3, mass=2))
    model = builder.build()
    q = model.random(np.random.default_rng(0))
    v = np.ones(model.nv)
    for call in (
        lambda: ts.forward_dynamics(model, q, v, v),
        lambda: ts.forward_dynamics(model, np.stack([q] * 5), v, v),
        lambda: ts.mass_matrix_inverse(model, q),
        lambda: ts.mass_matrix_solve(model, q, v),
    ):
        with pytest.raises(ts.SingularMassMatrixError):
            call()
    # Held, the first joint repeats nothing: the others are as regular as ever.
    a, _ = ts.hybrid_dynamics(model, q, v, prescribed=["frame"], tau=v)
    assert np.isfinite(a).all()


def near_axis(rng):
    """A unit vector, a third of them close to an axis, where the answers of other joints are large."""
    u = rng.standard_normal(3)
    if rng.random() < 0.3:
        u = np.eye(3)[rng.integers(3)] + 10.0 ** rng.uniform(-8, -1) * u
    return u / np.linalg.norm(u)


def redundant_joint(rng):
    u, euler = near_axis(rng), ts.SphericalEuler(("XYZ", "ZYX", "ZXZ")[rng.integers(3)])
    parts = (
        (ts.Translational(), ts.Prismatic(u)),
        (ts.Prismatic(u), ts.Translational()),
        (euler, ts.Revolute(u)),
        (ts.Revolute(u), euler),
        (ts.Free(), ts.Revolute(u)),
        (ts.Free(), ts.Prismatic(u)),
        (ts.Cylindrical(u), ts.Free()),
        (ts.Spherical(), ts.Spherical()),
        (ts.Revolute(u), ts.SphericalExp()),
        (ts.SphericalExp(), ts.Revolute(u)),
        (ts.Revolute(u), ts.Revolute(u)),
        (ts.Universal(), euler),
        (ts.Free2D(), ts.Translational()),
        (ts.Translational(), euler, ts.Screw(u, 0.3)),
    )
    return ts.Composite(*parts[rng.integers(len(parts))])


def any_mass(rng):
    return ts.Inertia.from_parameters(testing.random_inertia(rng).parameters * 10.0 ** rng.uniform(-6, 6))


def with_redundant_joint(rng):
    """A redundant joint "x" at a root or deep in a tree, with bodies from 1e-6 to 1e6 kg before and beyond it."""
    builder, parent = ts.ModelBuilder(), "world"
    for k in range(rng.integers(4)):
        joint = (ts.Revolute(near_axis(rng)), ts.Prismatic(near_axis(rng)), ts.Spherical(), ts.Free())[rng.integers(4)]
        builder.add_body(f"a{k}", parent, joint, testing.random_pose(rng), any_mass(rng))
        parent = f"a{k}"
    builder.add_body("x", parent, redundant_joint(rng), testing.random_pose(rng), any_mass(rng))
    for k in range(rng.integers(3)):
        joint = (ts.Revolute(near_axis(rng)), ts.Universal(), ts.Spherical())[rng.integers(3)]
        builder.add_body(f"b{k}", "x", joint, testing.random_pose(rng), any_mass(rng))
    return builder.build()


REFUSING = {
    "forward dynamics": lambda m, q, x: ts.forward_dynamics(m, q, x, x),
    "a batch": lambda m, q, x: ts.forward_dynamics(m, np.stack([q] * 5), x, x),
    "wrenches": lambda m, q, x: ts.forward_dynamics(m, q, x, x, f_ext=np.ones((m.nbodies, 6))),
    "hybrid dynamics": lambda m, q, x: ts.hybrid_dynamics(m, q, x, tau=x, prescribed=[]),
    "inverse": lambda m, q, x: ts.mass_matrix_inverse(m, q),
    "solve": lambda m, q, x: ts.mass_matrix_solve(m, q, x),
    "derivatives": lambda m, q, x: ts.forward_dynamics_derivatives(m, q, x, x),
    "hessians": lambda m, q, x: ts.forward_dynamics_hessians(m, q, x, x, contract=x),
    "tangent": lambda m, q, x: ts.forward_dynamics_jvp(m, q, x, x, dq=x),
    "vjp": lambda m, q, x: ts.forward_dynamics_vjp(m, q, x, x, x),
}


@pytest.mark.parametrize("call", REFUSING.values(), ids=REFUSING)
def test_joints_that_repeat_themselves_are_singular_at_all_states(call):
    """1,000 of them; 2.7 % slipped through while pivots were compared with rigid ones alone."""
    rng = np.random.default_rng(1)
    for _ in range(1000):
        model = with_redundant_joint(rng)
        with pytest.raises(ts.SingularMassMatrixError, match="at joint 'x'"):
            call(model, model.random(rng), rng.standard_normal(model.nv))


def poor_joint(rng):
    """A joint with massless frames that is regular, by little more than 1e-6 or so."""
    close = np.array([10.0 ** rng.uniform(-5, 0), 0.0, 1.0])
    return (
        ts.Revolute(near_axis(rng)),
        ts.Screw(near_axis(rng), 10.0 ** rng.uniform(-3, 1)),
        ts.Universal(),
        ts.SphericalExp(),
        ts.Free2D(),
        ts.Free(),
        ts.Composite(ts.Revolute((0, 0, 1)), ts.Revolute(close)),
        ts.Composite(ts.Prismatic((0, 0, 1)), ts.Prismatic(close)),
        ts.Composite(ts.Translational(), ts.SphericalEuler("XYZ")),
    )[rng.integers(9)]


def poor_inertia(rng):
    """From 1e-5 to 1e5 kg and 0.003 to 2 m: solids, and rods 1e-4 as thick as long."""
    mass, size = 10.0 ** rng.uniform(-5, 5), 10.0 ** rng.uniform(-2.5, 0.3)
    thick = 1e-4 if rng.random() < 0.3 else 0.5
    return ts.Inertia.box((thick * size, thick * size, size), mass=mass, com=size * rng.standard_normal(3))


def test_poor_mass_matrices_are_not_singular():
    """What can be solved to two digits is solved. Derivatives are found about one point, which costs more of them."""
    rng = np.random.default_rng(2)
    poor, least = 0, 0
    for _ in range(1500):
        builder = ts.ModelBuilder(gravity=(0, 0, 0))
        for k in range(rng.integers(1, 7)):
            parent = f"b{rng.integers(max(0, k - 2), k)}" if k else "world"
            builder.add_body(f"b{k}", parent, poor_joint(rng), testing.random_pose(rng), poor_inertia(rng))
        model = builder.build()
        q, a = model.random(rng), rng.standard_normal(model.nv)
        M = ts.mass_matrix(model, q)
        scale = 1 / np.sqrt(np.diag(M))
        condition = np.linalg.cond(scale[:, None] * M * scale)
        poor += condition > 1e6
        least += condition > 1e10
        if condition > 1e12:  # at which two digits are left
            continue
        tau = ts.inverse_dynamics(model, q, 0 * a, a)
        np.testing.assert_allclose(ts.forward_dynamics(model, q, 0 * a, tau), a, atol=0.1)
        np.testing.assert_allclose(ts.mass_matrix_solve(model, q, tau), a, atol=0.1)
        if condition < 1e8:
            ts.forward_dynamics_derivatives(model, q, 0 * a, tau)
    assert poor > 100 and least > 10  # or this has no point


def test_light_bodies_beside_heavy_ones_are_not_singular():
    builder = ts.ModelBuilder().add_body("heavy", joint=ts.Revolute(), inertia=ts.Inertia.box((1, 1, 1), mass=1e3))
    light = ts.Inertia.sphere(1e-6, mass=1e-3)  # 4e-16 kg m^2
    builder.add_body("light", "heavy", ts.Revolute((0, 1, 0)), ts.SE3.translation(0, 0, 1), light)
    model = builder.build()
    a = np.array([0.3, -0.7])
    tau = ts.inverse_dynamics(model, [0.1, 0.2], [0.0, 0.0], a)
    # 1e-10: torques of 1e-16 stand beside gravity's moment of 1e-9 on the light ball's axis
    np.testing.assert_allclose(ts.forward_dynamics(model, [0.1, 0.2], [0.0, 0.0], tau), a, rtol=1e-10)


def test_one_row_for_all_states_is_not_repeated_in_memory():
    model = ts.models.pendulum()
    q = np.zeros((1000, 1))
    f_ext = np.ones((1, 1, model.nbodies, 6))
    expected = ts.inverse_dynamics(model, q, [0.0], [0.0], f_ext=f_ext[0, 0])
    assert np.array_equal(ts.inverse_dynamics(model, q, [[0.0]], [[0.0]], f_ext=f_ext[0]), expected)
    assert ts.inverse_dynamics(model, q, [[0.0]], [[0.0]], f_ext=f_ext).shape == (1, 1000, 1)
    assert ts.inverse_dynamics(model, [[0.0]], [[0.0]], [[0.0]]).shape == (1, 1)
