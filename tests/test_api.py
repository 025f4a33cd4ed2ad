"""The public surface: names, order and kinds of arguments, docstrings, and types of options."""

import ast
import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

import torsor as ts
from torsor import _typing

ROOT = Path(__file__).resolve().parents[1]
TAIL = ["f_ext", "f_ext_frame", "contract", "outputs", "out", "threads"]  # in this order, after all natural inputs
KEYWORD_ONLY = {*TAIL, "about", "frame", "joint_terms", "body_terms"}


def is_function(value):
    """Whether it is called as one: a function, or a callable that stands for one."""
    return inspect.isroutine(value) or (callable(value) and not inspect.isclass(value))


def functions():
    """All public functions, by name."""
    found = {name: getattr(ts, name) for name in ts.__all__ if is_function(getattr(ts, name))}
    for module in (ts.variational, ts.models, ts.testing, ts.interop, ts.spatial):
        for name, value in vars(module).items():
            public = name in getattr(module, "__all__", [name]) and not name.startswith("_")
            if public and inspect.isfunction(inspect.unwrap(value)) and value.__module__ == module.__name__:
                found[f"{module.__name__.split('.')[-1]}.{name}"] = value
    return found


def methods():
    """All public methods of public classes, by name; those of exceptions and records are Python's."""
    found = {}
    for name in ts.__all__:
        value = getattr(ts, name)
        if inspect.isclass(value) and not issubclass(value, (BaseException, tuple)):
            for base in value.__mro__:
                if base.__module__.split(".")[0] == "torsor":
                    for key, member in vars(base).items():
                        member = getattr(member, "__func__", member)
                        if inspect.isfunction(inspect.unwrap(member)) and not key.startswith("_"):
                            found[member.__qualname__] = member
    return found


FUNCTIONS, METHODS = functions(), methods()


def parameters(function):
    """Those of the signature, without self."""
    return [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]


def documented(docstring, section):
    """Names of the entries in a section of a NumPy docstring; None without the section."""
    match = re.search(rf"^{section}\n-+\n(.*?)(?=^\w[^\n]*\n-{{3,}}\n|\Z)", inspect.cleandoc(docstring), re.M | re.S)
    if match is None:
        return None
    entries = [line.split(" : ")[0] for line in match[1].split("\n") if line and not line.startswith(" ")]
    return [name.strip().lstrip("*") for entry in entries for name in entry.split(",")]


# ---- names


def test_every_public_name_is_in_the_reference_and_every_reference_is_public():
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "api").glob("*.rst")))
    listed = re.findall(r"^   torsor\.([\w.]+)(?:: [\w, ]+)?$", text, re.M)  # and members, where not all are shown
    assert len(set(listed)) == len(listed)
    top = {name for name in listed if "." not in name}
    assert top == {name for name in ts.__all__ if not inspect.ismodule(getattr(ts, name))}
    for name in listed:
        module, _, last = name.rpartition(".")
        assert last in (getattr(ts, module) if module else ts).__all__, name


def test_results_are_in_their_modules():
    """Records of results are for annotations and for `out=`: they would crowd the top level."""
    for name in ts.__all__:
        assert not (inspect.isclass(getattr(ts, name)) and issubclass(getattr(ts, name), tuple)), name
    for function in FUNCTIONS.values():
        returned = str(inspect.signature(function).return_annotation).replace(" ", "").split("|")
        for record in returned:
            if re.fullmatch(r"\w*(Derivatives|VJP|JVP|Hessians?|Gradient|Step|DiscreteEulerLagrange)", record):
                package = function.__module__.split(".")[1]
                assert record in getattr(ts, package).__all__, record


@pytest.mark.parametrize("package", [ts, ts.derivatives, ts.simulation])
def test_lazy_names_are_those_that_type_checkers_see(package):
    tree = ast.parse(inspect.getsource(package))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    seen = {}
    for node in block.body:
        for alias in node.names:
            assert alias.asname == alias.name
            seen[alias.name] = f"{node.module}.{alias.name}" if node.module == "torsor" else node.module
    (call,) = [node for node in ast.walk(block) if isinstance(node, ast.Call) and "attach" in ast.unparse(node.func)]
    names = ast.literal_eval(call.args[1])
    lazy = {name: f"{package.__name__}.{module}" for module, listed in names.items() for name in listed.split()}
    for keyword in call.keywords:
        lazy |= {name: f"{package.__name__}.{name}" for name in ast.literal_eval(keyword.value).split()}
    assert lazy == seen
    assert set(package.__all__) >= set(lazy)
    for name, module in lazy.items():
        value = getattr(package, name)
        assert inspect.ismodule(value) or value is getattr(__import__(module, fromlist=[name]), name)


def test_one_word_for_each_thing():
    for name in [*ts.__all__, *FUNCTIONS, *dir(ts.Model)]:
        assert not re.search("tangent|gradient|centroidal|limit$|lower|upper", name.lower()), name


# ---- arguments


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_options_are_keyword_only_and_in_one_order(name):
    given = parameters((FUNCTIONS | METHODS)[name])
    for p in given:
        assert p.name not in KEYWORD_ONLY or p.kind is p.KEYWORD_ONLY, p.name
    tail = [p.name for p in given if p.name in TAIL]
    assert tail == [p for p in TAIL if p in tail]
    last = [p.name for p in given if p.name in ("out", "threads")]
    assert [p.name for p in given][len(given) - len(last) :] == last


def test_positional_options_are_refused():
    model = ts.models.pendulum()
    q = model.neutral
    with pytest.raises(TypeError, match="positional"):
        ts.inverse_dynamics(model, q, q, q, None)
    with pytest.raises(TypeError, match="positional"):
        ts.mass_matrix(model, q, None)


# ---- docstrings


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_name_all_parameters_and_results(name):
    function = FUNCTIONS[name]
    docstring = function.__doc__
    assert docstring
    names = [p.name for p in parameters(function)]
    assert documented(docstring, "Parameters") == (names or None)
    if inspect.signature(function).return_annotation not in ("None", "Iterator[None]"):
        assert documented(docstring, "Returns")


@pytest.mark.parametrize("name", METHODS)
def test_docstrings_of_methods_name_all_parameters(name):
    """In sections, or for short ones in a sentence."""
    docstring = METHODS[name].__doc__
    assert docstring
    names = [p.name for p in parameters(METHODS[name])]
    listed = documented(docstring, "Parameters")
    if listed is None:
        assert len(docstring) < 600
        assert all(re.search(rf"\b{parameter}\b", docstring) for parameter in names), names
    else:
        assert listed == names


@pytest.mark.parametrize("name", [n for n in ts.__all__ if inspect.isclass(getattr(ts, n))])
def test_classes_describe_their_parameters(name):
    kind = getattr(ts, name)
    assert kind.__doc__ and not kind.__doc__.startswith(f"{name}(")  # the signature is all that dataclasses write
    if issubclass(kind, BaseException) or inspect.isabstract(kind):
        return
    made_by_others = kind in (ts.Model, ts.Body, ts.ModelJoint, ts.Trajectory, ts.Integrator)  # these have attributes
    names = [p.name for p in parameters(kind)]
    if names and not made_by_others:
        assert documented(kind.__doc__, "Parameters") == names


# ---- types


def test_types_of_options_are_their_values():
    from torsor import _check, dynamics
    from torsor.costs import energy
    from torsor.integrators import adaptive
    from torsor.simulation import simulate

    assert get_args(_typing.Frame) == tuple(_check._AXES)
    assert get_args(_typing.ReferencePoint) == tuple(dynamics._ABOUT)
    assert get_args(_typing.EulerChart) == ts.SphericalEuler.CHARTS
    assert get_args(_typing.EnergyPart) == energy._PARTS
    assert get_args(_typing.ScipyMethod) == adaptive._SCIPY
    assert get_args(_typing.OnFailure) == simulate._ON_FAILURE
    for rule in get_args(_typing.QuadratureRule):
        ts.Variational(0.1, rule=rule)
    for inputs in get_args(_typing.Inputs):
        ts.CustomCost(abs, inputs=inputs, at="time")
