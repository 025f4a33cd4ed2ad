"""The lengths of axes and quaternions do not matter, to any public function.

An axis counts as its direction, a quaternion of any length but zero as its rotation, and derivatives are those at the
normalised state. Every function that takes q is called by the names of its parameters, so new ones are in it too.
"""

import functools
import inspect

import numpy as np
import pytest
from population import FRAMES

import torsor as ts
from torsor import interop, testing

AXIS, OTHER = np.array([0.48, -0.6, 0.64]), np.array([0.36, 0.48, -0.8])  # of unit length to rounding
LENGTHS = (1e-100, 1e-3, -1.0, 2.5, 1e100)  # -1: the same rotation by the opposite quaternion
INTEGRATORS = (
    ts.SymplecticEuler(1e-2),
    ts.LinearlyImplicitEuler(1e-2),
    ts.BDF1(1e-2),
    ts.BDF2(1e-2),
    ts.SDIRK2(1e-2),
    ts.Variational(1e-2),
    ts.Variational(1e-2, 4),
)
FUNCTIONS = {
    name: f
    for module in (ts, ts.variational)
    for name in module.__all__
    if inspect.isroutine(f := getattr(module, name)) and {"q", "q0"} & inspect.signature(f).parameters.keys()
}
# A result is a few hundred roundings from its arguments, and the mass matrix has a condition number of 1e3.
TOLERANCE = 1e-11


def joints(length):
    return (
        ts.Free(),
        ts.Revolute(length * AXIS),
        ts.Spherical(),
        ts.Prismatic(length * AXIS),
        ts.Screw(length * OTHER, 0.3),
        ts.Cylindrical(length * AXIS),
        ts.Planar((length * AXIS, length * OTHER)),
        ts.Universal((length * AXIS, length * OTHER)),
        ts.Composite(ts.Prismatic(length * OTHER), ts.Spherical(), ts.Prismatic(length * AXIS)),
    )


def longer(model, q, length):
    """q with its quaternions made longer, every second one by the inverse length."""
    out, count = q.copy(), 0
    for j in model.joints:
        if j.nq == j.nv:
            continue
        at = j.q_slice.start + {ts.Free: 3, ts.Spherical: 0, ts.Composite: 1}[type(j.joint)]
        out[..., at : at + 4] *= length if count % 2 == 0 else 1 / length
        count += 1
    assert count == 3
    return out


MODEL = testing.random_tree(5, joints(1.0), branching=0.4)
rng = np.random.default_rng(1)
V, A, TAU, W, P, DQ, DV, DA = rng.standard_normal((8, MODEL.nv))
Q = MODEL.random(rng)
BEFORE, AFTER = (MODEL.plus(Q, x) for x in (-0.01 * V, 0.3 * DQ))
F, DF = rng.standard_normal((2, MODEL.nbodies, 6))
FORCES = testing.example_forces(MODEL, 2)
BODY = MODEL.bodies[-1].name
DIRECTION = ts.ModelDirection(
    placement={BODY: rng.standard_normal(6)},
    joint={"body1": {"axis": rng.standard_normal(3)}, "body6": {"directions": rng.standard_normal((2, 3))}},
)
GIVEN = {
    "v": V, "a": A, "tau": TAU, "w": W, "w_a": W, "w_tau": P, "x": A, "y": F, "u": TAU, "p": P, "f_ext": F,
    "dq": DQ, "dv": DV, "da": DA, "dtau": DA, "df_ext": DF, "model_direction": DIRECTION, "body": BODY,
    "points": rng.standard_normal((2, 3)), "prescribed": np.arange(MODEL.nv) % 3 == 1, "forces": FORCES, "t": 0.3,
    "joint_terms": np.ones(MODEL.nv), "integrator": ts.Variational(1e-2), "actuation": np.eye(MODEL.nv),
}  # fmt: skip
OPTIONS = {"out", "threads", "outputs", "frame", "f_ext_frame", "about", "body_terms", "previous", "contract"}


def call(name, model, q, **more):
    """A public function with all that it takes; its results, configurations as poses."""
    function = FUNCTIONS[name]
    parameters = inspect.signature(function).parameters.keys() - {"model", "q", *OPTIONS, *more}
    if name == "step_derivatives":
        parameters -= {"v"} if "p" in more else {"p"}
    result = function(model=model, q=q, **{key: GIVEN[key] for key in parameters}, **more)
    if hasattr(result, "q1"):
        result = result._replace(q1=ts.body_poses(model, result.q1))
    return result


def numbers(result):
    """All arrays in a result, one after the other."""
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in numbers(part)]
    return [] if result is None else [np.asarray(result)]


def close(result, expected):
    left, right = numbers(result), numbers(expected)
    assert len(left) == len(right) > 0
    for x, y in zip(left, right, strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_allclose(x, y, rtol=0, atol=TOLERANCE * max(1.0, np.abs(y).max(initial=0.0)))


def simulated(model, q, integrator):
    """A short motion, its energies, and the gradient of a cost of it."""
    t = ts.simulate(model, q, V, steps=3, integrator=integrator, forces=FORCES, controls=TAU)
    cost = ts.PointTarget(BODY, (0.1, 0.2, 0.3), (1.0, 0.0, 0.0)) + ts.EnergyCost(("kinetic", "forces"))
    return ts.body_poses(model, t.q), t.v, t.a, t.energies, ts.adjoint(t, cost)


def cases(name, model, of):
    """Results of a function with all its options, at the configurations of(q)."""
    q, parameters = of(Q), inspect.signature(FUNCTIONS[name]).parameters
    if name == "simulate":
        return [simulated(model, q, integrator) for integrator in INTEGRATORS]
    if name in ("step", "step_derivatives"):
        results = [call(name, model, q, integrator=integrator) for integrator in INTEGRATORS]
        if name == "step_derivatives":
            results.append(call(name, model, q, p=P))
        return [*results, call(name, model, q, integrator=ts.BDF2(1e-2), previous=(of(BEFORE), V))]
    if name == "step_hessian":
        return [call(name, model, q, contract=(W, P))]
    if name == "discrete_euler_lagrange":
        return [call(name, model, np.stack([q, of(AFTER)], axis=-2))]
    results = [call(name, model, q)]
    for option, values in (("frame", FRAMES), ("f_ext_frame", FRAMES), ("about", ("world",)), ("contract", (W,))):
        results += [call(name, model, q, **{option: value}) for value in values if option in parameters]
    return results


@functools.cache
def expected(name):
    return cases(name, MODEL, lambda q: q)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_quaternions(name):
    for length in LENGTHS:
        close(cases(name, MODEL, lambda q, length=length: longer(MODEL, q, length)), expected(name))
    together = numbers(cases(name, MODEL, lambda q: np.stack([longer(MODEL, q, length) for length in LENGTHS])))
    for k in range(len(LENGTHS)):
        close([x[k] for x in together], expected(name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_axes(name):
    for length in (1e-3, 7.0):
        close(cases(name, testing.random_tree(5, joints(length), branching=0.4), lambda q: q), expected(name))


@pytest.mark.parametrize("length", LENGTHS)
def test_methods_of_models_and_joints(length):
    q, after = longer(MODEL, Q, length), longer(MODEL, AFTER, length)
    close(MODEL.minus(after, q), MODEL.minus(AFTER, Q))
    for result in (MODEL.normalize(q), MODEL.plus(q, np.zeros(MODEL.nv))):
        close(MODEL.minus(result, Q), np.zeros(MODEL.nv))
    close(ts.body_poses(MODEL, MODEL.plus(q, DQ)), ts.body_poses(MODEL, MODEL.plus(Q, DQ)))
    names = ("body0", "body2", "body8")
    locked = [MODEL.lock({n: x[MODEL.joint(n).q_slice] for n in names}) for x in (q, Q)]
    rest = [j for j in locked[0].joints if j.nv]
    assert all(j.nq == j.nv for j in rest)
    close(*(ts.mass_matrix(m, np.full(m.nq, 0.3)) for m in locked))
    for j in MODEL.joints:
        x, y, v = q[j.q_slice], Q[j.q_slice], V[j.v_slice]
        for method in (j.joint.T, j.joint.S, j.joint.dS, j.joint.d2S):
            close(method(x), method(y))
        close(j.joint.Sdot(x, v), j.joint.Sdot(y, v))
        close(j.joint.dSdot(x, v), j.joint.dSdot(y, v))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("to", [interop.to_pinocchio, interop.to_mujoco])
def test_velocities_of_other_libraries(to, length):
    close(to(MODEL, longer(MODEL, Q, length), V, A, TAU)[1:], to(MODEL, Q, V, A, TAU)[1:])
