"""Speed of second derivatives against Pinocchio's C++ and CasADi's C code: what `make bench-cpp` runs.

The others are compiled for this machine first, then measured in one process with ours, taking turns. They have their
loops in C++, so Python's time is in ours alone; and they write all results to one place, ours to one for each state.
A whole run writes benchmarks/results_cpp.json; one with --quick or --only only prints.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from calls import Array, Call, States, agree, peer_states, random_states
from measure import Effort, calibrate, measure
from peers import FLAGS, Generated, Pinocchio, compiler_command
from robots import Pair, chain, robots, ur5
from run import ROOT, Line, Plan, Section, faster, main, progress

import torsor as ts
from torsor.interop import to_pinocchio

RESULTS = ROOT / "benchmarks/results_cpp.json"
TENSORS = ("d2tau_dqdq", "d2tau_dqdv", "d2tau_dvdv", "d2tau_dadq")
LARGEST = 64 << 20  # bytes of the tensors of a batch
PEER_STATES = 256  # of a batch, that the others compute
PLAN = Plan(lengths=(20, 50, 100))


class Job(NamedTuple):
    """A call, and at how many states it computes."""

    call: Call
    states: int


def our_job(model: ts.Model, states: States, *, contract: bool = False, out: bool = False) -> Job:
    """Our second derivatives, contracted with tau or not; with `out`, into arrays made here."""
    names = {"ts": ts, "model": model, **vars(states)}
    call = Call(f"ts.inverse_dynamics_hessians(model, q, v, a{', contract=tau' if contract else ''})", names)
    if out:
        call = Call(f"{call.statement[:-1]}, out=out)", names | {"out": record(call)})
    return Job(call, len(states.q) if states.q.ndim > 1 else 1)


def peer_job(peer: Pinocchio | Generated, states: States) -> Job:
    """The same by another, at states in its layout; at a single one so often that ctypes does not count."""
    if states.q.ndim > 1:
        return Job(peer.call(states), states.q.shape[1])
    repeats = calibrate(lambda count: _seconds(peer.call(states, count)), 1e-3)
    return Job(peer.call(states, repeats), repeats)


def record(call: Call) -> Any:
    """What a call of ours returns."""
    return eval(call.statement, dict(call.names))


def per_state(effort: Effort, **jobs: Job) -> dict[str, float]:
    """The least seconds of each job, per state."""
    t = measure({name: job.call for name, job in jobs.items()}, effort)
    return {name: t[name] / job.states for name, job in jobs.items()}


def check(pair: Pair, ours: Job, theirs: Array, state: int | None = None) -> None:
    """Check our results, or those at one state of a batch, against tensors (4, nv, nv, nv) in Pinocchio's order."""
    names = ours.call.names
    at = () if state is None else state
    order = to_pinocchio(pair.model, names["q"][at], None, None, np.arange(pair.model.nv), order=pair.peer)[-1].astype(
        int
    )
    result = record(ours.call)
    for name, tensor in zip(TENSORS, theirs, strict=True):
        mine = getattr(result, name)[at]
        mine = mine[np.ix_(*mine.ndim * [order])]
        expected = tensor if mine.ndim == 3 else np.tensordot(names["tau"][at][order], tensor, 1)
        agree(f"{pair.name}, {name}", mine.ravel(), expected.ravel())


def pairs(plan: Plan) -> Iterator[Pair]:
    """UR5, the robots and the chains."""
    yield ur5()
    yield from robots()
    yield from map(chain, plan.lengths)


# ---- sections ----------------------------------------------------------------------------------------------


def one_state(plan: Plan) -> Iterator[Line]:
    """Lines of single calls; those of contracted ones against Pinocchio's tensors, as it contracts nothing."""
    dense_targets = {"Talos": 2.0, "chain 100": 4.0}
    contracted_targets = {"panda": 5.0, "HyQ": 10.0, "Talos": 12.0}
    for pair in pairs(plan):
        progress(f"one state: {pair.name}")
        states, peer = random_states(pair.model), Pinocchio(pair.peer)
        theirs = peer_states(pair, states)
        jobs = {
            "dense": our_job(pair.model, states, out=True),
            "returned": our_job(pair.model, states),
            "contracted": our_job(pair.model, states, contract=True),
        }
        tensors = peer.tensors(theirs)
        for job in jobs.values():
            check(pair, job, tensors)
        t = per_state(plan.effort, **jobs, peer=peer_job(peer, theirs))
        yield faster(pair.name, "dense, with out=", t["dense"], t["peer"], dense_targets.get(pair.name, 2.5))
        yield faster(pair.name, "dense", t["returned"], t["peer"])
        yield faster(pair.name, "contracted", t["contracted"], t["peer"], contracted_targets.get(pair.name))


def batch(plan: Plan) -> Iterator[Line]:
    """Lines of batches with out=; dense ones of fewer states where the tensors would be too large."""
    dense_targets = {"UR5": 6.0, "panda": 6.0, "HyQ": 2.5}
    for pair in (ur5(), *robots()):
        progress(f"batch: {pair.name}")
        peer = Pinocchio(pair.peer)
        for contract in (True, False):
            size = plan.batch if contract else dense_batch(pair.model, plan)
            states = random_states(pair.model, size)
            few = first(states, PEER_STATES)
            theirs = peer_states(pair, few)
            ours = our_job(pair.model, states, contract=contract, out=True)
            check(pair, ours, peer.tensors(theirs), len(few.q) - 1)
            t = per_state(plan.effort, ours=ours, peer=peer_job(peer, theirs))
            if contract:
                target = None if pair.name == "UR5" else 20.0
                yield faster(pair.name, f"contracted, batch of {size}", t["ours"], t["peer"], target)
            else:
                target = dense_targets.get(pair.name)
                yield faster(pair.name, f"dense, batch of {size}", t["ours"], t["peer"], target)


def generated(plan: Plan) -> Iterator[Line]:
    """The lines of UR5 against the code that CasADi generates for it."""
    if not find_spec("casadi"):
        progress("generated: left out, CasADi is not installed; pip install casadi")
        return
    progress("generated: UR5")
    pair = ur5()
    states, many = random_states(pair.model), random_states(pair.model, dense_batch(pair.model, plan))
    few = first(many, PEER_STATES)
    peer, theirs = Generated(pair.peer), peer_states(pair, few)
    one, ours = our_job(pair.model, states, out=True), our_job(pair.model, many, out=True)
    check(pair, ours, peer.tensors(theirs), len(few.q) - 1)
    check(pair, ours, Pinocchio(pair.peer).tensors(theirs), len(few.q) - 1)
    t = per_state(plan.effort, ours=ours, peer=peer_job(peer, theirs))
    yield faster(pair.name, f"dense, batch of {ours.states}", t["ours"], t["peer"], 1.0)
    t = per_state(plan.effort, ours=one, peer=peer_job(peer, peer_states(pair, states)))
    yield faster(pair.name, "dense, one state with out=", t["ours"], t["peer"])


def growth(plan: Plan) -> Iterator[Line]:
    """Lines of how the time grows from the smallest to the largest: the exponents in n, and in n d^2 or n d.

    d is the depth. Tensors have n^3 numbers, most of them zero in trees, and all of them are written.
    """
    sizes = {
        "chains": [(ts.models.chain(n), n) for n in (10, 20, 40, 80)],
        "balanced trees": [(ts.models.tree(d, 2), d) for d in (3, 4, 5, 6)],
    }
    states = 8
    for name, group in sizes.items():
        progress(f"growth: {name}")
        for contract, product, power in ((False, "n d^2", 2), (True, "n d", 1)):
            jobs = {str(m.nv): our_job(m, random_states(m, states), contract=contract, out=True) for m, _ in group}
            t = list(per_state(plan.effort, **jobs).values())
            (small, shallow), (large, deep) = group[0], group[-1]
            ratio = large.nv / small.nv
            what = f"{'contracted' if contract else 'dense'}, {small.nv} to {large.nv}"
            for variable, growing in (("n", ratio), (product, ratio * (deep / shallow) ** power)):
                exponent = float(np.log(t[-1] / t[0]) / np.log(growing))
                yield Line(name, f"{what}, in {variable}", t[-1], t[0], exponent, unit="")


def dense_batch(model: ts.Model, plan: Plan) -> int:
    """How many states' tensors fit in LARGEST bytes: a power of two, or plan.batch if all do."""
    fit = LARGEST // (32 * model.nv**3)
    return plan.batch if fit >= plan.batch else 1 << (fit.bit_length() - 1)


def first(states: States, count: int) -> States:
    """The first states of a batch."""
    return States(*(x[:count] for x in vars(states).values()))


def _seconds(call: Call) -> float:
    names, start = dict(call.names), time.thread_time()
    eval(call.statement, names)
    return time.thread_time() - start


PINOCCHIO = ("torsor", "Pinocchio", "speed-up")
SECTIONS = {
    "state": Section("Second derivatives, one state, called from Python", PINOCCHIO, one_state),
    "batch": Section("Second derivatives, per state, one thread, out=", PINOCCHIO, batch),
    "generated": Section("Second derivatives against generated code", ("torsor", "CasADi", "speed-up"), generated),
    "growth": Section("Growth of second derivatives, batch of 8", ("largest", "smallest", "exponent"), growth),
}

if __name__ == "__main__":
    built = " ".join(("C++ by", *compiler_command(), *FLAGS))
    sys.exit(main(about=__doc__, sections=SECTIONS, whole=PLAN, path=RESULTS, picture=None, built=built))
