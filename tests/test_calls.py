"""Functions whose plain calls go straight to the core behave as the Python functions that they stand for."""

import copy
import functools
import gc
import inspect
import pickle
import pkgutil
import typing
import weakref
from importlib import import_module

import numpy as np
import pytest

import torsor as ts
from torsor import _core
from torsor._check import direct

MODEL = ts.testing.random_tree(3, [ts.Free(), ts.Revolute((0, 0, 1)), ts.Spherical(), ts.Universal(), ts.Fixed()])


def direct_functions():
    """All of them, methods too, by name."""
    modules = [import_module(m.name) for m in pkgutil.walk_packages(ts.__path__, "torsor.") if "demo" not in m.name]
    return {
        value.__qualname__: value
        for owner in (*modules, ts.Model)
        for value in vars(owner).values()
        if isinstance(value, _core.Function)
    }


FUNCTIONS = direct_functions()
each_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
each_batch = pytest.mark.parametrize("batch", [(), (3,), (40,), (2, 5)], ids=str)


CONSTRAINTS = [  # between the last body that moves and the world, and between two bodies
    ts.Distance("world", (1, 2, 3), MODEL.bodies[3].name, (0.1, 0.2, 0.3), 1.0),
    ts.PointOnLine(MODEL.bodies[1].name, MODEL.bodies[3].name, ts.SE3.translation(0.3, 0, 0), (0.5, 0.1, 0)),
]


def arguments(function, batch=()):
    """Its positional arguments: the model, and random states and vectors of the shapes that their names say."""
    rng = np.random.default_rng(0)
    out = []
    for p in inspect.signature(function).parameters.values():
        if p.kind is not p.POSITIONAL_OR_KEYWORD:
            continue
        assert p.default is p.empty
        if p.name in ("model", "self"):
            out.append(MODEL)
        elif p.name == "constraints":
            out.append(CONSTRAINTS)
        elif p.name.startswith("q"):
            out.append(MODEL.random(rng, batch))
        else:
            wrenches = p.name == "y" or (function.__name__, p.name) == ("joint_reactions_vjp", "w")
            out.append(rng.standard_normal((*batch, *((MODEL.nbodies, 6) if wrenches else (MODEL.nv,)))))
    return out


def same(a, b):
    """Whether results have the same type and bits."""
    if isinstance(a, tuple):
        return type(a) is type(b) and all(map(same, a, b))
    return type(a) is type(b) is np.ndarray and a.shape == b.shape and a.tobytes() == b.tobytes()


def raised(function, *args, **kwargs):
    """The type and text of the exception of a call."""
    with pytest.raises(Exception) as info:
        function(*args, **kwargs)
    return type(info.value), str(info.value)


def test_the_functions_that_only_pass_their_arguments_on_are_direct():
    assert {"inverse_dynamics", "forward_dynamics", "mass_matrix", "inverse_dynamics_derivatives"} <= {*FUNCTIONS}
    assert {"Model.plus", "gravity_forces", "inverse_dynamics_vjp", "body_poses"} <= {*FUNCTIONS}
    assert len(FUNCTIONS) > 30


@each_batch
@each_function
def test_a_plain_call_is_a_call_of_the_python_function(function, batch):
    args = arguments(function, batch)
    assert same(function(*args), function.__wrapped__(*args))


@each_batch
@each_function
def test_keywords_are_those_of_the_python_function(function, batch):
    args = arguments(function, batch)
    names = inspect.signature(function).parameters
    expected = function.__wrapped__(*args)
    assert same(function(*args, threads=2), expected)
    out = function(*args)
    for x in out if isinstance(out, tuple) else [out]:
        x.fill(np.nan)
    result = function(*args, out=out)
    assert (result is out or result == out) and same(result, expected)
    if "f_ext" in names:
        f_ext = np.random.default_rng(1).standard_normal((*batch, MODEL.nbodies, 6))
        moved = function.__wrapped__(*args, f_ext=f_ext)
        assert not same(moved, expected)
        assert same(function(*args, f_ext=f_ext), moved)
        assert same(function(*args, f_ext=f_ext, threads=1, out=None), moved)
        in_world = function(*args, f_ext=f_ext, f_ext_frame="world")
        assert same(in_world, function.__wrapped__(*args, f_ext=f_ext, f_ext_frame="world"))
        assert not same(in_world, moved)
    named = dict(zip(names, args, strict=False))
    assert same(function(**named), expected)
    assert same(function(args[0], **dict(list(named.items())[1:])), expected)


@each_function
def test_wrong_calls_raise_the_errors_of_the_python_function(function):
    args = arguments(function)
    plain = function.__wrapped__
    assert raised(function, *args[:-1])[0] is TypeError
    for wrong in (args[:-1], [*args, 1], [], [3, *args[1:]], [*args[:-1], "text"], [args[0], np.zeros(1), *args[2:]]):
        assert raised(function, *wrong) == raised(plain, *wrong)
    for keywords in ({"unknown": 1}, {"threads": -1}, {"threads": 1.5}, {"out": 3}, {"out": args[1], "outs": 1}):
        assert raised(function, *args, **keywords) == raised(plain, *args, **keywords)
    first = next(iter(inspect.signature(function).parameters))
    assert raised(function, *args, **{first: args[0]}) == raised(plain, *args, **{first: args[0]})


@each_function
def test_what_is_known_of_the_python_function_is_known_of_it(function):
    plain = function.__wrapped__
    assert inspect.isfunction(plain)
    for name in ("__doc__", "__name__", "__qualname__", "__module__", "__annotations__"):
        assert getattr(function, name) == getattr(plain, name)
    assert inspect.signature(function) == inspect.signature(plain)
    assert inspect.getdoc(function) == inspect.getdoc(plain)
    assert inspect.getsource(function) == inspect.getsource(plain)
    assert inspect.isroutine(function) and callable(function)
    assert repr(function) == repr(plain)
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.copy(function) is function is copy.deepcopy(function)
    assert weakref.ref(function)() is function
    assert hash(function) == hash(function) and function == function


def test_with_the_tools_of_the_standard_library():
    q, v, a = arguments(ts.inverse_dynamics)[1:]
    tau = ts.inverse_dynamics(MODEL, q, v, a)
    assert same(functools.partial(ts.inverse_dynamics, MODEL)(q, v, a), tau)
    assert same(functools.partial(ts.inverse_dynamics, MODEL, threads=1)(q, v, a=a), tau)
    assert same(next(map(ts.inverse_dynamics, [MODEL], [q], [v], [a])), tau)
    assert typing.get_type_hints(direct("mass_matrix")(typed))["return"] is np.ndarray


def typed(model, q, *, out=None, threads=1) -> np.ndarray:
    return _core.mass_matrix(model, q, out, threads)


def test_as_an_attribute_of_a_class_it_is_a_method():
    class Arm(ts.Model):
        mass = ts.mass_matrix

    arm = Arm("arm", MODEL.gravity, MODEL.bodies)
    q = MODEL.random(0)
    assert same(arm.mass(q), ts.mass_matrix(MODEL, q))
    assert same(Arm.mass(arm, q, threads=1), ts.mass_matrix(MODEL, q))
    assert inspect.ismethod(arm.mass) and Arm.mass is ts.mass_matrix


def test_cycles_through_it_are_collected():
    function = direct("mass_matrix")(lambda model, q, *, out=None, threads=1: _core.mass_matrix(model, q, out, threads))
    function.itself = function
    gone = weakref.ref(function)
    del function
    gc.collect()
    assert gone() is None


def test_it_refuses_kernels_and_counts_that_do_not_exist():
    for wrong in (
        ("no_such_kernel", typed, 2, False, False),
        ("mass_matrix", typed, 3, False, False),
        ("mass_matrix", typed, 0, False, False),
    ):
        with pytest.raises(RuntimeError, match="torsor: "):
            _core.Function(*wrong)
    with pytest.raises(TypeError):
        _core.Function("mass_matrix")
