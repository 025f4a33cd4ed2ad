"""What holds for every public function of a model and a state, whatever it computes: `functions.py` lists them.

How one asks makes no difference, to the last bit: alone or in a batch, by threads, in whichever order bodies were
added. Arrays of all kinds give the right numbers or a clear error. A state that is not a number spoils no other.
"""

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
from compare import arrays_of, close, conditioned, same_bits
from functions import FUNCTIONS, SINGULAR, VARIANTS, axes_of
from population import JOINTS, deep_tree, longer, mixed_tree, models, reordered, shuffled

import torsor as ts
from torsor import testing
from torsor.testing import complex_inputs


def fixed_to_one_body():
    """A free body with others fixed to it, and to these."""
    rng = np.random.default_rng(3)
    builder = ts.ModelBuilder().add_body("a", "world", ts.Free(), inertia=testing.random_inertia(rng))
    for k, parent in enumerate("aaa012"):
        joint = ts.Fixed() if k < 5 else ts.Revolute()
        builder.add_body(f"{k}", parent, joint, testing.random_pose(rng), testing.random_inertia(rng))
    return builder.build()


MODEL = mixed_tree()
# Every joint there is, in two trees, which are small enough for tensors. Of joints in Python, steps would show little
# else: they call them a thousand times.
TREES = [testing.random_tree(7, [*JOINTS[k::2], ts.Fixed()]) for k in range(2)]
BUILT_IN = [testing.random_tree(7, [*testing.example_joints()[k::2], ts.Fixed()]) for k in range(2)]
ORDERED = [*(parameter.values[0] for parameter in models(3)), *[fixed_to_one_body()] * 3]
SMALL = testing.random_tree(3, [ts.Free(), ts.Revolute((1, 2, 3)), ts.SphericalExp(), ts.Fixed()])


def every(functions, slow=lambda name, f: False):
    """All of them; `make test-fast` leaves out those that are slow, and takes every fourth of the others."""
    fast = [name for name, f in functions.items() if not slow(name, f)][::4]
    marks = {name: [] if name in fast else pytest.mark.slow for name in functions}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks[name]) for name in functions])


every_function = every(FUNCTIONS, lambda name, f: f.slow or f.simulates)


def variants(keep=lambda f: True):
    """Every variant of every function; those that take steps, and all but one of each function, are slow."""
    found = {name: f for name, f in VARIANTS.items() if keep(f)}
    return every(found, lambda name, f: name not in FUNCTIONS or f.finite)


def having(parameter):
    """Every function with that parameter."""
    return every({name: f for name, f in FUNCTIONS.items() if parameter in f.parameters})


def case(name, batch=(), seed=0, model=MODEL):
    """The function and its arguments."""
    f = FUNCTIONS[name]
    return f, f.arguments(model, batch, seed)


def nans(arrays):
    """Arrays into which results can be written."""
    return [np.full_like(x, np.nan) for x in arrays]


def replaced(arrays, k, x):
    return [*arrays[:k], x, *arrays[k + 1 :]]


def test_the_table_is_complete():
    """A function that takes a model, or shares work among threads, has a line in the table; but for conversions between
    models and files, functions of constraints that a state must satisfy, of couplings, contacts and targets, which have
    tests of their own (`test_maximal.py`, `test_urdf_writer.py`, `test_mjcf_dynamics.py`, `test_projection.py`,
    `test_mobility.py`, `test_coupled_derivatives.py`, `test_contacts.py`, `test_frames.py`, `test_ik.py`)."""
    found = set()
    for place in (ts, ts.Model, *(getattr(ts, name) for name in ts.__all__ if inspect.ismodule(getattr(ts, name)))):
        for name in getattr(place, "__all__", vars(place)):
            function = getattr(place, name)
            if callable(function) and not inspect.isclass(function) and not name.startswith("_"):
                parameters = inspect.signature(function).parameters
                if "threads" in parameters or (place is ts and "model" in parameters):
                    found.add(name)
    apart = {"to_maximal", "from_maximal", "project", "project_derivatives", "project_vjp", "mobility", "contacts"}
    apart |= {"contact_states", "inverse_kinematics", "to_urdf", "to_mjcf", "forces_from", "actuation"}
    apart |= {"coupling_vjp", "expand_velocity", "expand_acceleration", "coupling_jacobian", "body_pose"}
    assert found - apart == {name.partition(".")[0] for name in FUNCTIONS}


# ---- shapes


@every_function
def test_shapes_of_results(name):
    f = FUNCTIONS[name]
    for batch in ((), (5,), (2, 3)):
        got = arrays_of(f(MODEL, *f.arguments(MODEL, batch)))
        expected = [(*batch, *shape) for shape in f.shapes(MODEL)]
        assert [x.shape for x in got][: len(expected)] == expected
        assert "..." in f.gives or len(got) == len(expected)
        assert all(x.dtype == np.float64 and x.shape[: len(batch)] == batch for x in got)


@every_function
def test_empty_batches(name):
    f, arrays = case(name)
    shapes = [x.shape for x in arrays_of(f(MODEL, *arrays))]
    for batch in ((0,), (3, 0), (0, 4), (2, 0, 3)):
        empty = [np.zeros((*batch, *x.shape)) for x in arrays]
        for threads in (1, 2):
            got = f(MODEL, *empty, threads=threads)
            assert [x.shape for x in arrays_of(got)] == [(*batch, *shape) for shape in shapes]
        got = f(MODEL, empty[0], *arrays[1:])
        assert [x.shape for x in arrays_of(got)] == [(*batch, *shape) for shape in shapes]


@every_function
def test_broadcasting(name):
    f, arrays = case(name, (3,))
    for k in range(1, len(arrays) + 1):  # the first k along one dimension, the others along another
        shaped = [x[:, None] if i < k else x[None, :2] for i, x in enumerate(arrays)]
        result = arrays_of(f(MODEL, *shaped))
        for i, j in np.ndindex(3, 2 if k < len(arrays) else 1):
            one = f(MODEL, *(x[i] if n < k else x[j] for n, x in enumerate(arrays)))
            assert same_bits([x[i, j] for x in result], one)
        one = f(MODEL, *(x if i < k else x[0] for i, x in enumerate(arrays)))  # no batch dimension at all
        assert same_bits(one, [x[:, 0] for x in result])


@every_function
def test_wrong_shapes(name):
    f, arrays = case(name)
    for k, (x, label) in enumerate(zip(arrays, f.names, strict=True)):
        if x.ndim == 0:  # a number: any shape is that of a batch
            continue
        for wrong in (x[..., :-1], np.concatenate([x, x], -1), x.sum(), x[None].swapaxes(0, -1)):
            with pytest.raises(ValueError, match=rf"^{label} ha(s|ve) shape .*, expected \(\.\.\., "):
                f(MODEL, *replaced(arrays, k, wrong))
        with pytest.raises(ValueError, match=f"^({label}|q0) has 30 batch dimensions, expected 28 at most"):
            f(MODEL, *replaced(arrays, k, x.reshape((1,) * 30 + x.shape)))
        if k:
            with pytest.raises(ValueError, match=r"^batch shapes do not fit together: .*q"):
                f(MODEL, np.stack([arrays[0]] * 3), *arrays[1:k], np.stack([x] * 4), *arrays[k + 1 :])
    with pytest.raises((ValueError, TypeError)):
        f(MODEL, [arrays[0].tolist(), arrays[0].tolist()[:-1]], *arrays[1:])  # ragged


# ---- bits


@variants()
def test_lanes_change_no_bit(name):
    f = VARIANTS[name]
    for model in BUILT_IN if f.finite else TREES:
        check_lanes(f, model)


@variants(lambda f: f.error is SINGULAR and "v v v" not in f.gives)
def test_lanes_change_no_bit_in_deep_trees(name):
    check_lanes(VARIANTS[name], deep_tree())


def check_lanes(f, model):
    n, picked = (5, (4,)) if f.slow or f.simulates else (19, (0, 7, 8, 18))  # no multiple of any machine's lanes
    arrays = f.arguments(model, (n,))
    whole = arrays_of(f(model, *arrays))
    for k in picked:
        assert same_bits(f(model, *(x[k] for x in arrays)), [x[k] for x in whole]), k
    assert same_bits(f(model, *(x[1:-1] for x in arrays)), [x[1:-1] for x in whole])  # other lanes


@variants()
def test_threads_and_shapes_of_batches_change_no_bit(name):
    f = VARIANTS[name]
    shape = (2, 3, 1, 3) if f.simulates or f.slow else (2, 3, 1, 25)  # more than threads take at a time: 128 states
    n = np.prod(shape)
    arrays = f.arguments(SMALL, (n,))
    whole = arrays_of(f(SMALL, *arrays))
    for threads in (0, 5):
        assert same_bits(f(SMALL, *arrays, threads=threads), whole)
    shaped = f(SMALL, *(x.reshape(*shape, *x.shape[1:]) for x in arrays), threads=2)
    assert same_bits(shaped, [x.reshape(*shape, *x.shape[1:]) for x in whole])
    assert same_bits(f(SMALL, *(x[[3, n - 1]] for x in arrays)), [x[[3, n - 1]] for x in whole])


@variants()
def test_the_order_of_bodies_changes_no_bit(name):
    """But for roundings where all velocities are solved for at once, and for what Newton's method leaves."""
    f = VARIANTS[name]
    for seed, model in enumerate(ORDERED[::4] if f.finite else ORDERED):
        other, order = shuffled(model, np.random.default_rng(seed))
        arrays = f.arguments(model)
        moved = [reordered(x, axes_of(label), order) for x, label in zip(arrays, f.takes, strict=True)]
        result, expected = arrays_of(f(other, *moved)), arrays_of(f(model, *arrays))
        for x, y, axes in zip(result, expected, f.gives, strict=False):
            if axes == "...":
                break
            if f.dense:
                close(x, reordered(y, axes, order), 1e-9 if f.finite else 1e-12)
            else:
                assert same_bits(x, reordered(y, axes, order))


def test_eight_python_threads_at_once():
    names = [name for name, f in FUNCTIONS.items() if not f.simulates and not f.slow]
    cases = {name: case(name, (20,), model=SMALL) for name in names}
    serial = {name: f(SMALL, *arrays) for name, (f, arrays) in cases.items()}
    fresh = ts.Model(SMALL.name, SMALL.gravity, SMALL.bodies)  # not yet compiled: all threads want that first
    barrier = threading.Barrier(8)

    def differing(k):
        barrier.wait()
        results = {name: cases[name][0](fresh, *cases[name][1], threads=1 + k % 3) for name in names[k:] + names[:k]}
        return [name for name, result in results.items() if not same_bits(result, serial[name])]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(differing, range(8))) == [[]] * 8


# ---- kinds of numbers and of arrays


@every_function
def test_numbers_of_other_types(name):
    f, arrays = case(name, (5,))
    whole = [np.round(x if f.finite else 3 * x) for x in arrays]
    expected = f(MODEL, *whole)
    for dtype in (np.int64, np.int32, np.int8, np.float32, np.float16, np.longdouble, ">f8", ">i4"):
        assert same_bits(f(MODEL, *(x.astype(dtype) for x in whole)), expected)
    for dtype, message in ((object, "has dtype"), ("U8", "has dtype"), (complex, "is complex, expected real numbers")):
        for k, (x, label) in enumerate(zip(whole, f.names, strict=True)):
            with pytest.raises(TypeError, match=f"^{label} {message}"):
                f(MODEL, *replaced(whole, k, x.astype(dtype)))
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
    "backwards": lambda x: np.flip(np.flip(x).copy()),
    "spread": spread,
    "read-only": read_only,
    "unaligned": unaligned,
    "transposed": lambda x: np.ascontiguousarray(np.moveaxis(x, 0, -1)).transpose(-1, *range(x.ndim - 1)),
    "list": lambda x: x.tolist(),
    "subclass": lambda x: x.view(type("Sub", (np.ndarray,), {})),
    "structured": lambda x: np.rec.fromarrays([x, x], names="a, b").a,
    "one for all": lambda x: np.broadcast_to(x[1], x.shape),
}


@every_function
def test_layouts(name):
    f, arrays = case(name, (3,))
    keep = [x.copy() for x in arrays]
    for layout, change in LAYOUTS.items():
        changed = [change(x) for x in arrays]
        expected = f(MODEL, *(np.array(x) for x in changed))
        result = f(MODEL, *changed)
        assert same_bits(result, expected), layout
        assert all(type(x) is np.ndarray for x in arrays_of(result)), layout
        assert same_bits(f(MODEL, *(x[1] for x in changed)), [x[1] for x in arrays_of(expected)]), layout
        assert all(np.array_equal(x, y) for x, y in zip(arrays, keep, strict=True)), layout  # inputs are not written to


MASKED = "is a masked array, expected a plain one, because masks are ignored"


@every_function
def test_masked_arrays(name):
    f, arrays = case(name, (5,))
    for k, (x, label) in enumerate(zip(arrays, f.names, strict=True)):
        masked = np.ma.masked_array(x, x > 0)
        for wrong in (masked, masked[3], list(masked), np.ma.masked_array(x), np.ma.masked_array(x.astype(int))):
            with pytest.raises(TypeError, match=f"^{label} {MASKED}"):
                f(MODEL, *replaced(arrays, k, wrong))


@every_function
def test_what_is_missing(name):
    f, arrays = case(name)
    parameters = inspect.signature(f.function).parameters
    for k, label in enumerate(f.labels):
        if label not in f.optional and label in parameters and parameters[label].default is inspect.Parameter.empty:
            message = f"^{f.names[k]} (is missing, expected an array of shape|has dtype object, expected numbers)"
            with pytest.raises(TypeError, match=message):
                f(MODEL, *replaced(arrays, k, None))


# ---- out


def put(f, arrays, given, **options):
    """Calls the function with `given` for its results."""
    return f(MODEL, *arrays, out=given[0] if len(f.gives) == 1 else tuple(given), **options)


@having("out")
def test_out(name):
    for batch in ((), (11,), (2, 3)):
        check_out(name, batch)


def check_out(name, batch):
    f, arrays = case(name, batch)
    single = len(f.gives) == 1
    result = f(MODEL, *arrays)
    expected = arrays_of(result)

    def check(given, result):
        assert all(x is y for x, y in zip([result] if single else result, given, strict=True))
        assert same_bits(given, expected)

    check(given := nans(expected), put(f, arrays, given))
    if all(x.ndim for x in expected):
        for change in (spread, np.asfortranarray, lambda x: x[::-1], unaligned):
            given = [change(x) for x in nans(expected)]
            check(given, put(f, arrays, given))
    for wrong, error, message in (
        ([x[..., None] for x in expected], ValueError, "has shape .*, expected"),
        ([np.zeros((2, *x.shape)) for x in expected], ValueError, "has shape .*, expected"),
        ([x.astype(np.float32) for x in expected], TypeError, "has dtype float32, expected float64"),
        ([x.astype(complex) for x in expected], TypeError, "has dtype complex128, expected float64"),
        ([x.astype(">f8") for x in expected], TypeError, "has dtype >f8, expected float64"),
        ([x.tolist() for x in expected], TypeError, "must be a NumPy array, got"),
        ([read_only(x) for x in expected], ValueError, "is read-only"),
        ([np.ma.masked_array(x) for x in expected], TypeError, MASKED),
    ):
        for k, x in enumerate(wrong):  # one of them at a time
            field = getattr(result, "_fields", ("a", "tau"))[k] if len(wrong) > 1 else ""
            label = rf"out \({field}\)" if field else f.told.get("out", "out")
            with pytest.raises(error, match=rf"^{label} {message}"):
                put(f, arrays, replaced(nans(expected), k, x))


@having("out")
def test_out_of_several_results(name):
    f, arrays = case(name, (7,))
    result = f(MODEL, *arrays)
    if len(f.gives) == 1:
        assert type(result) is np.ndarray
        return
    fresh = nans(result)
    record = type(result)(*fresh) if hasattr(result, "_fields") else tuple(fresh)
    for out in (record, tuple(fresh), fresh):  # the record, or any sequence
        again = f(MODEL, *arrays, out=out)
        assert type(again) is type(result)
        assert all(x is y for x, y in zip(again, out, strict=True))
        assert same_bits(out, result)
    for wrong in (fresh[0], fresh[:1], (*fresh, fresh[0]), 3, dict(enumerate(fresh))):
        with pytest.raises(TypeError, match=f"^out must be a tuple of {len(fresh)} arrays, got"):
            f(MODEL, *arrays, out=wrong)
    shapes = [x.shape for x in fresh]
    one, two = next((i, j) for j in range(len(shapes)) for i in range(j) if shapes[i][0] == shapes[j][0])
    for shared in (fresh[one].ravel()[: fresh[two].size], fresh[one].ravel()[::-1][: fresh[two].size]):
        if shared.size == fresh[two].size:
            with pytest.raises(ValueError, match=r"^two arrays of out share memory"):
                f(MODEL, *arrays, out=replaced(fresh, two, shared.reshape(shapes[two])))


@having("out")
def test_out_that_overlaps_the_inputs(name):
    f, arrays = case(name, (11,))
    expected = arrays_of(f(MODEL, *arrays))
    for k, x in enumerate(arrays):
        for y in range(len(expected)):
            for offset in (0, 1, x.size // 2):
                buffer = np.zeros(max(x.size, offset + expected[y].size))
                inside = buffer[: x.size].reshape(x.shape)
                inside[...] = x
                given = [np.empty_like(e) for e in expected]
                given[y] = buffer[offset : offset + expected[y].size].reshape(expected[y].shape)
                put(f, replaced(arrays, k, inside), given)
                assert same_bits(given, expected)


@having("outputs")
def test_only_what_is_asked_for_is_computed(name):
    for batch in ((), (5,)):
        check_outputs(name, batch)


def check_outputs(name, batch):
    f, arrays = case(name, batch)
    full = f(MODEL, *arrays)
    record, fields = type(full), type(full)._fields

    for field in fields:
        others = [other for other in fields if other != field]
        for outputs in ([field], field, tuple(others), []):
            part = f(MODEL, *arrays, outputs=outputs)
            assert type(part) is record
            for key in fields:
                if key in ([outputs] if isinstance(outputs, str) else outputs):
                    assert same_bits(getattr(part, key), getattr(full, key))
                else:
                    assert getattr(part, key) is None
        for junk in (None, "junk", np.full((2, 2), 7.0)):  # in the other places: not looked at
            out = record(*[junk] * len(full))._replace(**{field: np.full_like(getattr(full, field), np.nan)})
            part = f(MODEL, *arrays, outputs=[field], out=out)
            assert getattr(part, field) is getattr(out, field)
            assert same_bits(getattr(part, field), getattr(full, field))
            assert all(getattr(part, other) is None for other in others)
        untouched = record(*nans(full))  # nor written to
        f(MODEL, *arrays, outputs=[field], out=untouched)
        assert all(np.isnan(x).all() == (key != field) for key, x in zip(fields, untouched, strict=True))
        with pytest.raises(ValueError, match=rf"^out \({field}\) has shape .*, expected"):
            f(MODEL, *arrays, outputs=[field], out=[np.zeros(99)] * len(full))
    assert same_bits(f(MODEL, *arrays, outputs=fields[::-1] + fields), full)  # in any order, any number
    for outputs in (["M"], "M", [fields[0], "M"]):
        with pytest.raises(ValueError, match=f"^no output 'M'; outputs are '{fields[0]}', '{fields[1]}'"):
            f(MODEL, *arrays, outputs=outputs)


# ---- bad numbers, in their own state and in no other


@every_function
def test_zero_quaternions(name):
    f, arrays = case(name, (9,))
    for k, label in enumerate(f.takes):
        if axes_of(label).split()[-1:] != ["q"]:
            continue
        for joint in MODEL.joints:
            if joint.nq == joint.nv:
                continue
            spoilt = replaced(arrays, k, arrays[k].copy())
            spoilt[k][6, ..., joint.q_slice.stop - 4 : joint.q_slice.stop] = 0.0
            message = f"^{f.names[k]} has a quaternion of length 0 at joint {joint.name!r}"
            for threads in (1, 2):
                with pytest.raises(ValueError, match=message + r" in state 6 of the batch \(counted flat\), expected"):
                    f(MODEL, *spoilt, threads=threads)
            message += r"( in state 0 of the batch \(counted flat\))?" if f.simulates else ""
            with pytest.raises(ValueError, match=message + ", expected a positive length"):
                f(MODEL, *(x[6] for x in spoilt))
            with pytest.raises(ValueError, match=message + ", expected"):  # one for all states
                f(MODEL, *(x[6] if n == k else x for n, x in enumerate(spoilt)))
            spoilt[k][6, ..., joint.q_slice.stop - 1] = 1e-200  # of any other length
            f(MODEL, *spoilt)


@every({name: f for name, f in FUNCTIONS.items() if not f.finite})
def test_bad_numbers_stay_in_their_state(name):
    f, arrays = case(name, (11,))
    expected = arrays_of(f(MODEL, *arrays))
    others = np.arange(11) != 6
    for value, (k, label) in product((np.nan, np.inf, -np.inf, 1e300, 1e4), enumerate(f.labels)):
        if label in ("joint_terms", "body_terms") and value == -np.inf:
            continue  # no sum with which the matrix could be solved
        spoilt = replaced(arrays, k, arrays[k].copy())
        spoilt[k][6] = value
        result = arrays_of(f(MODEL, *spoilt))
        assert same_bits([x[others] for x in result], [x[others] for x in expected]), (value, label)
        assert same_bits([x[6] for x in result], f(MODEL, *(x[6] for x in spoilt))), (value, label)  # as alone
        if np.isnan(value):
            assert any(np.isnan(x[6]).any() for x in result), label


@every({name: f for name, f in FUNCTIONS.items() if f.finite}, lambda name, f: f.slow)
def test_bad_numbers_are_told(name):
    f, arrays = case(name, (9,))
    for value, (k, label) in product((np.nan, np.inf, -np.inf), enumerate(f.labels)):
        if label in ("t", "wq", "wp"):  # a table of time goes on, and weights do not change the step
            continue
        spoilt = replaced(arrays, k, arrays[k].copy())
        spoilt[k][6] = value
        with pytest.raises(ValueError, match=rf"^{f.names[k]} (is|are) not finite"):
            f(MODEL, *spoilt)


def singular_arm():
    """A heavy arm, and a hand on Euler angles: singular where the second of them is a right angle."""
    rng = np.random.default_rng(1)
    builder = ts.ModelBuilder().add_body("arm", "world", ts.Revolute((1, 0, 0)), inertia=testing.random_inertia(rng))
    hand = ts.Inertia.box((0.1, 0.2, 0.3), mass=1.0, com=(0.1, 0.2, 0.3))
    builder.add_body("hand", "arm", ts.SphericalEuler("ZYX"), testing.random_pose(rng), hand, joint_name="finger")
    return builder.build()


@variants(lambda f: f.error)
def test_the_singular_state_is_named(name):
    f, model = VARIANTS[name], singular_arm()
    n = 9 if f.simulates or f.slow else 150  # more than threads take at a time: 128 states
    more = {"prescribed": ["arm"]} if "prescribed" in f.parameters else {}
    at = "singular at joint 'finger' in state {} of the batch"
    if f.finite:
        more, at = {"forces": ()}, r"(state|trajectory) {} of the batch.*singular at joint 'finger'"
    arrays = f.arguments(model, (n,))
    for threads in (1, 2):
        expected = f(model, *arrays, threads=threads, **more)
        assert all(np.isfinite(x).all() for x in arrays_of(expected))
        for bad in (3, n - 1):
            spoilt = replaced(arrays, 0, arrays[0].copy())
            spoilt[0][bad, 2] = np.pi / 2
            with pytest.raises(f.error, match=at.format(bad)):
                f(model, *spoilt, threads=threads, **more)
        with pytest.raises(f.error, match=at.format(bad)):  # counted as if the batch were flat
            f(model, *(x.reshape(3, n // 3, *x.shape[1:]) for x in spoilt), threads=threads, **more)
        with pytest.raises(f.error, match=r"singular at joint 'finger'[:,] "):
            f(model, *(x[bad] for x in spoilt), **more)
        assert same_bits(f(model, *arrays, threads=threads, **more), expected)  # nothing is left behind


# ---- other arguments


@every_function
def test_things_that_are_not_models(name):
    f, arrays = case(name)
    given = f.given(MODEL)
    packed = f.pack(**dict(zip(f.labels, arrays, strict=True)))
    for model in (None, "arm", ts.ModelBuilder(), ts.Model, ts.models, np.zeros(3), 3):
        with pytest.raises(TypeError, match=r"^model must be a torsor.Model, got .*; ModelBuilder.build\(\) makes one"):
            f.function(model, **packed, **given)


@every_function
def test_numbers_of_threads(name):
    f, arrays = case(name, (2,))
    expected = f(MODEL, *arrays)
    for threads in ("auto", 0, 1, 1000, np.int64(2), np.int32(2), np.uint8(2)):
        assert same_bits(f(MODEL, *arrays, threads=threads), expected)
    for threads in (
        -1,
        -(10**30),
        10**30,
        1.0,
        2.5,
        "2",
        "Auto",
        b"auto",
        None,
        True,
        [2],
        np.float64(2),
        np.nan,
        np.int64(-1),
    ):
        with pytest.raises(ValueError, match=r"^threads is .*, expected an integer, 1 or more, or 'auto'"):
            f(MODEL, *arrays, threads=threads)


@pytest.mark.parametrize("option", ["frame", "f_ext_frame", "about"])
def test_frames_and_points_that_there_are_not(option):
    for name, f in FUNCTIONS.items():
        if option in f.parameters:
            _, arrays = case(name)
            for value in ("tool", "World", None, 1):
                with pytest.raises(ValueError, match=rf"^{option} is {value!r}, expected '\w+'(, '\w+')? or '\w+'"):
                    f(MODEL, *arrays, **{option: value})


# ---- models without freedoms


@every_function
def test_models_that_do_not_move(name):
    for count in (0, 3):
        check_still(name, count)


def check_still(name, count):
    rng = np.random.default_rng(0)
    builder = ts.ModelBuilder()
    for k in range(count):
        pose, inertia = testing.random_pose(rng), testing.random_inertia(rng)
        builder.add_body(f"b{k}", f"b{k - 1}" if k else "world", None, pose, inertia)
    model, f = builder.build(), FUNCTIONS[name]
    if count == 0 and "body" in f.parameters:
        return
    for batch in ((), (5,), (2, 0)):
        result = arrays_of(f(model, *f.arguments(model, batch), threads=2))
        expected = [(*batch, *shape) for shape in f.shapes(model)]
        assert [x.shape for x in result][: len(expected)] == expected
        for x in result:
            if name.startswith("center_of_mass"):
                assert np.isnan(x).all()  # nothing that moves has mass
            elif not name.startswith(("body_poses", "joint_reactions", "adjoint", "point_positions")):
                assert not x.any()


# ---- numbers to some roundings


def tolerance(f, model, q):
    """Of numbers that are found in another way: what solutions with the mass matrix may lose, and what Newton's method
    leaves."""
    if f.finite:
        return 1e-8
    return 10 * conditioned(model, q, solutions=3) if f.error else 1e-11


@variants(lambda f: not f.simulates)
def test_complex_results_have_the_real_ones_as_real_part(name):
    f, model = VARIANTS[name], SMALL
    arrays = f.arguments(model, (3,))
    if f.real:
        for k, x in enumerate(arrays):
            with complex_inputs(), pytest.raises(TypeError, match="this function takes real numbers only"):
                f(model, *replaced(arrays, k, x + 0j))
        return
    real = arrays_of(f(model, *arrays))
    with complex_inputs():
        batch = arrays_of(f(model, *(x + 0j for x in arrays)))
        single = arrays_of(f(model, *(x[1] + 0j for x in arrays)))
        mixed = arrays_of(f(model, arrays[0] + 0j, *arrays[1:]))
    for x, y in zip(real, batch, strict=True):
        assert y.dtype == np.complex128
        assert not y.imag.any()
        close(y.real, x, tolerance(f, model, arrays[0]))
    assert same_bits(single, [y[1] for y in batch])
    assert same_bits(mixed, batch)


LENGTHS = (1e-100, 1e-3, -1.0, 2.5, 1e100)  # -1: the same rotation by the opposite quaternion


@variants()
def test_the_length_of_quaternions_does_not_matter(name):
    f = VARIANTS[name]
    composite = ts.Composite(ts.Prismatic((0, 1, 0)), ts.Spherical(), ts.Prismatic((1, 0, 1)))
    model = testing.random_tree(5, [ts.Free(), ts.Revolute((1, 2, 3)), ts.Spherical(), composite])
    arrays = f.arguments(model)
    expected = arrays_of(f(model, *arrays))
    changed = [
        np.stack([longer(model, x, length) if axes_of(label).split()[-1:] == ["q"] else x for length in LENGTHS])
        for x, label in zip(arrays, f.takes, strict=True)
    ]
    result = arrays_of(f(model, *changed))
    gives = [*(axes for axes in f.gives if axes != "..."), *[""] * len(expected)]
    for x, y, axes in zip(result, expected, gives, strict=False):
        for k in range(len(LENGTHS)):
            if axes.split()[-1:] == ["q"]:
                close(model.minus(x[k], y), np.zeros((*y.shape[:-1], model.nv)), tolerance(f, model, arrays[0]))
            else:
                close(x[k], y, tolerance(f, model, arrays[0]))


@variants(lambda f: not f.placed)
def test_digits_far_from_the_origin(name):
    """Nothing depends on where the origin of the world is, but what says so."""
    f, distance, models = VARIANTS[name], 1e8, []
    for far in (0.0, distance):
        rng, builder = np.random.default_rng(4), ts.ModelBuilder()
        for k, joint in enumerate((ts.Fixed(), *(JOINTS[i] for i in (14, 1, 13, 12, 5)))):
            place = testing.random_pose(rng)
            place = ts.SE3(place.R, far * np.array([1, -1, 1])) if k == 0 else place
            builder.add_body(f"b{k}", f"b{k - 1}" if k else "world", joint, place, testing.random_inertia(rng))
        models.append(builder.build())
    near, far = models
    arrays = f.arguments(near)
    allowed = 4e-15 * distance if f.from_origin else tolerance(f, near, arrays[0])
    for x, y in zip(arrays_of(f(far, *arrays)), arrays_of(f(near, *arrays)), strict=True):
        close(x, y, allowed)
