"""The calls that are timed, here and in Pinocchio, and the check that both compute the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray
from robots import Pair

import torsor as ts
from torsor.interop import to_pinocchio

Array = NDArray[np.float64]


class Disagreement(RuntimeError):
    """The two sides of a comparison compute different numbers."""


class Call(NamedTuple):
    """A statement as a user writes it, and the names in it."""

    statement: str
    names: Mapping[str, Any]


@dataclass(frozen=True)
class States:
    """One state, q (nq,) and the others (nv,); or a batch of them."""

    q: Array
    v: Array
    a: Array
    tau: Array


def random_states(model: ts.Model, size: int | None = None, *, spread: float = 3.0) -> States:
    """Random states, by rows; every coordinate is up to `spread` away from neutral."""
    rng = np.random.default_rng(0)
    shape = (model.nv,) if size is None else (size, model.nv)
    q = model.plus(model.neutral, rng.uniform(-spread, spread, shape))
    return States(q, *rng.standard_normal((3, *shape)))


def peer_states(pair: Pair, states: States) -> States:
    """The same states for Pinocchio: a batch has them in columns, in Fortran order."""
    rows = to_pinocchio(pair.model, states.q, states.v, states.a, states.tau, order=pair.peer)
    return States(*(x if x.ndim == 1 else np.asfortranarray(x.T) for x in rows))


def our_calls(model: ts.Model, states: States, threads: int = 1) -> dict[str, Call]:
    """Our functions for these states; those of a batch write to arrays made here."""
    out, result = np.empty_like(states.v), (np.empty_like(states.v), np.empty_like(states.v))
    options = hybrid_options = ""
    if states.q.ndim > 1:
        options, hybrid_options = f", out=out, threads={threads}", f", out=result, threads={threads}"
    names = {
        "ts": ts,
        "model": model,
        "half": half_of_joints(model),
        "out": out,
        "result": result,
        **vars(states),
    }
    hybrid = f"ts.hybrid_dynamics(model, q, v, a=a, tau=tau, prescribed=half{hybrid_options})"
    calls = {
        "inverse": Call(f"ts.inverse_dynamics(model, q, v, a{options})", names),
        "forward": Call(f"ts.forward_dynamics(model, q, v, tau{options})", names),
        "hybrid": Call(hybrid, names),
    }
    if states.q.ndim == 1:
        calls["mass"] = Call("ts.mass_matrix(model, q)", names)
    return calls


def peer_calls(pair: Pair, states: States, threads: int = 1) -> dict[str, Call]:
    """Pinocchio's functions for the same states; aba and crba in both of their conventions."""
    names = {"pin": pin, "model": pair.peer, **vars(peer_states(pair, states))}
    if states.q.ndim == 1:
        names |= {"data": pair.peer.createData(), "world": pin.Convention.WORLD}
        return {
            "inverse": Call("pin.rnea(model, data, q, v, a)", names),
            "forward": Call("pin.aba(model, data, q, v, tau)", names),
            "forward world": Call("pin.aba(model, data, q, v, tau, world)", names),
            "mass": Call("pin.crba(model, data, q)", names),
            "mass world": Call("pin.crba(model, data, q, world)", names),
        }
    names |= {"pool": pin.ModelPool(pair.peer, threads), "threads": threads, "out": np.empty_like(names["v"])}
    return {
        "inverse": Call("pin.rneaInParallel(threads, pool, q, v, a, out)", names),
        "forward": Call("pin.abaInParallel(threads, pool, q, v, tau, out)", names),
    }


def our_derivatives(model: ts.Model, states: States, threads: int = 1) -> dict[str, Call]:
    """Our derivatives for these states: matrices, along a direction, in reverse; those of a batch write to arrays."""
    q, v, a, tau = states.q, states.v, states.a, states.tau
    inverse, forward = (
        ts.inverse_dynamics_derivatives(model, q, v, a),
        ts.forward_dynamics_derivatives(model, q, v, tau),
    )
    names = {
        "ts": ts,
        "model": model,
        "inverse": inverse,
        "forward": forward,
        "inverse_jvp": ts.inverse_dynamics_jvp(model, q, v, a),
        "forward_jvp": ts.forward_dynamics_jvp(model, q, v, tau),
        "inverse_vjp": ts.inverse_dynamics_vjp(model, q, v, a, tau),
        "forward_vjp": ts.forward_dynamics_vjp(model, q, v, tau, a),
        **vars(states),
    }

    def call(name: str, arguments: str, out: str) -> Call:
        options = "" if q.ndim == 1 else f", out={out}, threads={threads}"
        return Call(f"ts.{name}(model, q, v, {arguments}{options})", names)

    return {
        "inverse": call("inverse_dynamics_derivatives", "a", "inverse"),
        "forward": call("forward_dynamics_derivatives", "tau", "forward"),
        "inverse jvp": call("inverse_dynamics_jvp", "a, dq=tau, dv=v, da=a", "inverse_jvp"),
        "forward jvp": call("forward_dynamics_jvp", "tau, dq=tau, dv=v, dtau=a", "forward_jvp"),
        "inverse vjp": call("inverse_dynamics_vjp", "a, tau", "inverse_vjp"),
        "forward vjp": call("forward_dynamics_vjp", "tau, a", "forward_vjp"),
    }


def peer_derivatives(pair: Pair, states: States) -> dict[str, Call]:
    """Pinocchio's derivatives for one state."""
    names = {"pin": pin, "model": pair.peer, "data": pair.peer.createData(), **vars(peer_states(pair, states))}
    return {
        "inverse": Call("pin.computeRNEADerivatives(model, data, q, v, a)", names),
        "forward": Call("pin.computeABADerivatives(model, data, q, v, tau)", names),
    }


def check_derivatives(pair: Pair, states: States, ours: Mapping[str, Call], theirs: Mapping[str, Call]) -> None:
    """Check that our matrices and Pinocchio's are the same."""
    order = to_pinocchio(pair.model, states.q, None, None, np.arange(pair.model.nv, dtype=float), order=pair.peer)[-1]
    square = np.ix_(order.astype(int), order.astype(int))  # velocities differ by their order alone
    for key, fields in (("inverse", ("dtau_dq", "dtau_dv")), ("forward", ("ddq_dq", "ddq_dv"))):
        record = eval(ours[key].statement, dict(ours[key].names))
        names = dict(theirs[key].names)
        eval(theirs[key].statement, names)
        for mine, field in zip(record, fields, strict=False):
            agree(f"{pair.name}, {field}", mine[square], getattr(names["data"], field))


def half_of_joints(model: ts.Model) -> NDArray[np.bool_]:
    """A mask (nv,) of every second joint that moves, beginning with the second."""
    mask = np.zeros(model.nv, np.bool_)
    for joint in [joint for joint in model.joints if joint.nv][1::2]:
        mask[joint.v_slice] = True
    return mask


def result(call: Call) -> Array:
    """What the call computes; of Pinocchio's batches, by rows."""
    names = dict(call.names)
    value = eval(call.statement, names)
    return np.array(names["out"].T if value is None else value)


def agree(what: str, ours: Array, theirs: Array, tolerance: float = 1e-9) -> None:
    """Check that two results are the same, up to a part of the largest number of their row."""
    scale = np.abs(theirs).max(axis=-1, keepdims=True)
    error = float((np.abs(ours - theirs) / scale).max())
    if not error <= tolerance:
        raise Disagreement(f"{what}: the results differ by {error:.1e} of the largest number")


def check_pair(pair: Pair, states: States, ours: Mapping[str, Call], theirs: Mapping[str, Call]) -> None:
    """Check that our calls and Pinocchio's give the same results."""

    def convert(name: str, x: Array) -> Array:
        v, a, tau = (states.v, x, None) if name == "forward" else (None, None, x)
        return to_pinocchio(pair.model, states.q, v, a, tau, order=pair.peer)[-1]

    for key, call in theirs.items():
        name = key.split()[0]
        x = convert(name, result(ours[name]))
        if name == "mass":  # X M X^T, where X takes our velocities to theirs
            x = convert(name, x.T)
        agree(f"{pair.name}, {call.statement}", x, result(call))


def check_inverse(model: ts.Model, states: States) -> None:
    """Check that inverse dynamics undoes forward dynamics.

    The tolerance is for roundings of accelerations, which random torques on light links make 1e4 and larger.
    """
    a = ts.forward_dynamics(model, states.q, states.v, states.tau)
    tau = ts.inverse_dynamics(model, states.q, states.v, a)
    agree(f"{model.name}, inverse of forward dynamics", tau, states.tau, 1e-7)
