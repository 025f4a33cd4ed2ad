"""Speed of torsor against Pinocchio, MuJoCo and itself: what `make bench` runs.

What a line compares was measured in the same run, taking turns; each time is the least of many repeats.
A whole run writes benchmarks/results.json and docs/images/benchmark.png; one with --quick or --only only
prints.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import contact_peer as contacts
import mechanisms
import mujoco
import numpy as np
import pinocchio as pin
from calls import (
    Call,
    Disagreement,
    agree,
    check_derivatives,
    check_inverse,
    check_pair,
    our_calls,
    our_derivatives,
    peer_calls,
    peer_derivatives,
    random_states,
    result,
)
from constraint_peer import check, standing
from constraint_peer import our_calls as our_standing_calls
from constraint_peer import peer_calls as peer_standing_calls
from measure import QUICK, Effort, available_memory, cores, import_times, machine, measure
from mujoco_peer import check_accelerations, check_rollouts, mujoco_pair, rollout_call, transition_call
from robots import (
    GENERAL,
    Pair,
    chain,
    chain_file,
    joint_tree,
    load,
    mimicking,
    peer_memory,
    robot_directory,
    robots,
    ur5,
)

import torsor as ts
from torsor import _core
from torsor.interop import to_mujoco

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results.json"
PICTURE = ROOT / "docs/images/benchmark.png"


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    effort: Effort = field(default_factory=Effort)
    batch: int = 4096
    lengths: tuple[int, ...] = (10, 30, 100, 300, 1000)
    links: int = 15  # of the trees of general joints
    h: float = 0.01  # of simulations
    steps: int = 100  # of the rollout whose gradient is taken
    rollouts: int = 1024
    rollout_steps: int = 10
    simulated: tuple[int, ...] = (10, 20, 50, 100)  # links of chains
    reversed: tuple[int, ...] = (64, 128, 256)  # and of those whose steps are taken back
    motions: int = 256  # of a variational integrator
    links_of_file: int = 20_000
    imports: int = 10
    copied: int = 256 << 20  # bytes


@dataclass(frozen=True)
class Line:
    """A line of the table: two times in seconds, what is made of them, and the target of that."""

    model: str
    what: str
    ours: float | None
    other: float
    value: float
    target: float | None = None
    at_least: bool = True
    unit: str = "x"
    detail: Mapping[str, float] = field(default_factory=dict)  # seconds
    alone: float | None = None  # share of the steps in lanes that had to be taken alone

    @property
    def met(self) -> bool:
        """Whether the target, if there is one, is met."""
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target


def faster(model: str, what: str, ours: float, other: float, target: float | None = None) -> Line:
    """A line of what should be at least `target` times as fast as the other."""
    return Line(model, what, ours, other, other / ours, target)


def within(model: str, what: str, ours: float, other: float, target: float | None = None) -> Line:
    """A line of what should take at most `target` times as long as the other."""
    return Line(model, what, ours, other, ours / other, target, at_least=False)


def progress(text: str) -> None:
    """Tell what is being done."""
    print(f"  {text}", file=sys.stderr, flush=True)


# ---- sections ----------------------------------------------------------------------------------------------


def pairs(plan: Plan) -> Iterator[Pair]:
    """The robots, and those chains that Pinocchio has the memory for."""
    yield from robots()
    for n in plan.lengths:
        if 4 * peer_memory(n) < available_memory():
            yield chain(n)
        else:
            progress(f"chain {n} left out: Pinocchio takes {peer_memory(n) / 1e9:.0f} GB for it")


def models(plan: Plan) -> dict[str, ts.Model]:
    """The robots and the chains."""
    chains = (ts.models.chain(n) for n in plan.lengths)
    return {pair.name: pair.model for pair in robots()} | {f"chain {model.nv}": model for model in chains}


def one_state(plan: Plan) -> Iterator[Line]:
    """Lines of single calls, against Pinocchio's: the faster one of its conventions."""
    for pair in pairs(plan):
        progress(f"one state: {pair.name}")
        states = random_states(pair.model)
        ours, theirs = our_calls(pair.model, states), peer_calls(pair, states)
        check_pair(pair, states, ours, theirs)
        del ours["hybrid"]
        t = measure(_joined(ours=ours, theirs=theirs), plan.effort)
        for name, label, target in (
            ("inverse", "inverse dynamics", 2.5),
            ("forward", "forward dynamics", 2.8),
            ("mass", "mass matrix", 1.5),
        ):
            best = min(seconds for key, seconds in t.items() if key.startswith(f"theirs {name}"))
            yield faster(pair.name, label, t[f"ours {name}"], best, target)


def batch(plan: Plan) -> Iterator[Line]:
    """Lines of batches on one thread, row-major, against Pinocchio's."""
    for pair in pairs(plan):
        progress(f"batch: {pair.name}")
        states = random_states(pair.model, plan.batch)
        ours, theirs = our_calls(pair.model, states), peer_calls(pair, states)
        check_pair(pair, states, ours, theirs)
        del ours["hybrid"]
        t = measure(_joined(ours=ours, theirs=theirs), plan.effort, plan.batch)
        for name in ("inverse", "forward"):
            yield faster(pair.name, f"{name} dynamics", t[f"ours {name}"], t[f"theirs {name}"], 12)


def hybrid(plan: Plan) -> Iterator[Line]:
    """Lines of batches of hybrid dynamics, half of the joints prescribed, against forward dynamics."""
    for name, model in models(plan).items():
        progress(f"hybrid: {name}")
        calls = our_calls(model, random_states(model, plan.batch))
        t = measure({key: calls[key] for key in ("hybrid", "forward")}, plan.effort, plan.batch)
        yield within(name, "hybrid dynamics", t["hybrid"], t["forward"], 1.5)


def threads(plan: Plan) -> Iterator[Line]:
    """Lines of batches on two threads, against one."""
    if cores() < 2:
        progress("threads: left out, there is one core")
        return
    for name, model in models(plan).items():
        progress(f"threads: {name}")
        states = random_states(model, plan.batch)
        one, two = our_calls(model, states), our_calls(model, states, threads=2)
        del one["hybrid"], two["hybrid"]
        t = measure(_joined(one=one, two=two), plan.effort, plan.batch, threads=True)
        for key in ("inverse", "forward"):
            yield faster(name, f"{key} dynamics", t[f"two {key}"], t[f"one {key}"], 1.7)
    # What two threads bring Pinocchio on this machine; apart from ours, as its threads spin for a while.
    *_, pair = robots()
    states = random_states(pair.model, plan.batch)
    calls = {f"{count}": peer_calls(pair, states, count)["forward"] for count in (1, 2)}
    t = measure(calls, plan.effort, plan.batch, threads=True)
    yield faster(pair.name, "forward dynamics of Pinocchio", t["2"], t["1"])


def length(plan: Plan) -> Iterator[Line]:
    """Lines of the time per link: the longest against the shortest, over chains of many lengths."""
    chains = {n: ts.models.chain(n) for n in plan.lengths}
    for size in (None, plan.batch):
        states = {n: random_states(model, size) for n, model in chains.items()}
        for n, model in chains.items():
            check_inverse(model, states[n])
        calls = {n: our_calls(model, states[n]) for n, model in chains.items()}
        for name in ("inverse", "forward", "hybrid"):
            where = "one state" if size is None else "batch"
            progress(f"length: {name} dynamics, {where}")
            t = measure({str(n): calls[n][name] for n in chains}, plan.effort, size or 1)
            per_link = {str(n): t[str(n)] / n for n in chains}
            most, least = max(per_link.values()), min(per_link.values())
            yield Line(where, f"{name} dynamics", most, least, most / least, 1.5, False, detail=per_link)


def joints(plan: Plan) -> Iterator[Line]:
    """Lines of general joints: against the same freedoms made of revolutes and prismatics."""
    for name, (general, parts) in GENERAL.items():
        progress(f"joints: {name}")
        trees = {"general": joint_tree([general], plan.links), "parts": joint_tree(parts, plan.links)}
        for size in (None, plan.batch):
            states = random_states(trees["general"], size, spread=1.0)  # charts are singular beyond
            calls = {key: our_calls(model, states) for key, model in trees.items()}
            for function in ("inverse", "forward"):
                pair = {key: calls[key][function] for key in trees}
                what = f"{function} dynamics, {'one state' if size is None else 'batch'}"
                agree(f"{name}, {what}", result(pair["general"]), result(pair["parts"]))
                t = measure(pair, plan.effort, size or 1)
                yield within(name, what, t["general"], t["parts"], 2.0)


def derivatives(plan: Plan) -> Iterator[Line]:
    """Lines of first derivatives: one state and batches, against Pinocchio's calls for one state after the other."""
    for pair in robots():
        progress(f"derivatives: {pair.name}")
        states, many = random_states(pair.model), random_states(pair.model, plan.batch)
        ours, theirs = our_derivatives(pair.model, states), peer_derivatives(pair, states)
        check_derivatives(pair, states, ours, theirs)
        matrices = {key: ours[key] for key in ("inverse", "forward")}
        t = measure(_joined(ours=matrices, theirs=theirs), plan.effort)
        for key, target in (("inverse", 2.4), ("forward", 2.5)):
            what = f"derivatives of {key} dynamics, one state"
            yield faster(pair.name, what, t[f"ours {key}"], t[f"theirs {key}"], target)
        batch = our_derivatives(pair.model, many)
        calls = {key: batch[key] for key in ("inverse", "forward")}
        size = 3 * plan.batch * pair.model.nv**2
        calls["write"] = Call("target.fill(1.0)", {"target": np.ones(size)})
        b = measure(calls, plan.effort, plan.batch)
        target = 10.0 if pair.name == "panda" else 3.3
        yield faster(pair.name, "derivatives of inverse dynamics, batch", b["inverse"], t["theirs inverse"], target)
        yield faster(pair.name, "derivatives of forward dynamics, batch", b["forward"], t["theirs forward"])
        yield within(pair.name, "inverse, batch : writing as many bytes", b["inverse"], b["write"])


def constraints(plan: Plan) -> Iterator[Line]:
    """Lines of robots on their feet: one state and a batch against Pinocchio, which is looped in Python, and against
    forward dynamics without constraints."""
    for robot in standing():
        name = robot.pair.name
        progress(f"constraints: {name}")
        check(robot)
        states = random_states(robot.pair.model, plan.batch, spread=0.5)
        one = _joined(ours=our_standing_calls(robot, robot.states), theirs=peer_standing_calls(robot))
        t = measure(one, plan.effort)
        batch = measure(our_standing_calls(robot, states), plan.effort, plan.batch)
        both, alone = t["theirs derivatives"], t["theirs derivatives alone"]
        yield faster(name, "constrained dynamics", t["ours value"], t["theirs value"], 3)
        yield faster(name, "derivatives, its call alone", t["ours derivatives"], alone, 2.5)
        yield faster(name, "derivatives, with dynamics", t["ours derivatives"], both)
        yield faster(name, "batch, dynamics", batch["value"], t["theirs value"], 12)
        yield faster(name, "batch, derivatives, alone", batch["derivatives"], alone, 5)
        yield faster(name, "batch, derivatives, both", batch["derivatives"], both)
        most = 1.8 if name == "Talos" else None
        yield within(name, "against no constraints", t["ours value"], t["ours free"], most)
        yield within(name, "batch, against none", batch["value"], batch["free"], most)


def loops(plan: Plan) -> Iterator[Line]:
    """Lines of closed mechanisms: motions beside MuJoCo's that are as exact, gradients, a ring beside an open chain."""
    for mechanism, steps in ((mechanisms.four_bar(), 125), (mechanisms.stewart(), 50)):
        progress(f"loops: {mechanism.name}")
        m, ours = mechanism, mechanisms.our_motion(mechanism, steps)
        peer, theirs = mechanisms.as_exact(m, ours.error)
        given = {"integrator": ts.BDF2(m.T / steps), "steps": steps, "constraints": m.constraints}
        names = {"ts": ts, "m": m, "given": given, "peer": peer}
        motion = ts.simulate(m.model, m.q, m.v, **given)
        names |= {"motion": motion, "w": np.ones(motion.v.shape)}
        calls = {
            "motion": Call("ts.simulate(m.model, m.q, m.v, **given)", names),
            "peer": Call("peer.run()", names),
            "adjoint": Call("ts.adjoint(motion, dloss_dq=w, dloss_dv=w)", names),
        }
        t = measure(calls, plan.effort)
        progress(
            f"  errors {ours.error:.1e} and {theirs.error:.1e}, gaps {ours.gap:.1e} and {theirs.gap:.1e} m, "
            f"h {ours.h:g} and {theirs.h:.2g}"
        )
        what = f"BDF2 : MuJoCo as exact, gaps {ours.gap:.0e}, {theirs.gap:.0e}"
        yield faster(m.name, what, t["motion"], t["peer"], 5)
        yield within(m.name, "gradient of a motion : motion", t["adjoint"], t["motion"], 3)
    progress("loops: ring of 100")
    n, steps = 100, 20
    length = 2 * np.pi / n
    builder = ts.ModelBuilder("ring", gravity=(0, 0, -9.81))
    link = ts.Inertia.box(mass=length, size=(length, 0.02, 0.02), com=(length / 2, 0, 0))
    for i in range(n):
        place = ts.SE3.translation(length if i else 0.0, 0, 0)
        builder.add_body(f"link{i}", f"link{i - 1}" if i else "world", ts.Revolute((0, 1, 0)), place, link)
    model, q = builder.build(), np.full(n, length)
    q[0] = 0.0
    closing = ts.Loop("world", f"link{n - 1}", ts.Revolute((0, 1, 0)), None, ts.SE3.translation(length, 0, 0))
    names = {"ts": ts, "model": model, "q": q, "closing": [closing.at(model, q)], "bdf1": ts.BDF1(1e-2), "steps": steps}
    calls = {
        "ring": Call("ts.simulate(model, q, steps=steps, integrator=bdf1, constraints=closing)", names),
        "chain": Call("ts.simulate(model, q, steps=steps, integrator=bdf1)", names),
    }
    t = measure(calls, plan.effort, steps)
    yield within("100 links", "BDF1 step of the ring : of the open chain", t["ring"], t["chain"], 2.5)


def contact(plan: Plan) -> Iterator[Line]:
    """Lines of robots on four spherical feet and of boxes on each other, beside MuJoCo with the same geometry.

    Robots stand with steps of 2 ms, MuJoCo's own, as with longer ones it does not come to rest. Joints are turned by
    1e-4 at first, 0.05 mm at the feet, and move by 1e-3 a second. Lines without a target show what larger motions cost:
    by 1e-3, with all feet down, and by 1e-2, where feet lift. They land with the steps of the other simulations.
    """
    h, land, steps, count = 2e-3, plan.h, plan.steps, plan.rollout_steps
    fall = round(0.3 / land)
    sizes = {1e-4: "stands", 1e-3: "sways by 0.5 mm", 1e-2: "lifts its feet"}
    for robot in contacts.standing(h):
        name, model = robot.name, robot.model
        progress(f"contact: {name}")
        contacts.check(robot, h)
        names: dict[str, Any] = {"ts": ts, "model": model, "forces": robot.forces, "steps": steps, "count": count}
        names |= {"bdf1": ts.BDF1(h), "u": np.zeros(model.nv), "controls": np.zeros((steps, model.nv))}
        names["w"] = np.ones((steps + 1, model.nv))
        one = "ts.simulate(model, q, v, steps=steps, integrator=bdf1, forces=forces, controls=controls)"
        batch = "ts.simulate(model, Q, V, steps=count, integrator=bdf1, forces=forces)"
        for size, what in sizes.items():
            target = size == 1e-4
            here, (qpos, qvel) = contacts.swaying(robot, plan.rollouts, size)
            names |= {"Q": here.q, "V": here.v, "q": here.q[0], "v": here.v[0]}
            calls = {"ours": Call(one, names.copy()), "theirs": contacts.rollout(robot.peer, qpos[0], qvel[0], steps)}
            if target:
                calls["gradient"] = Call(f"ts.adjoint({one}, dloss_dq=w, parameters=False)", names.copy())
            t = measure(calls, plan.effort, steps)
            yield within(name, f"{what}, BDF1 step : mj_step", t["ours"], t["theirs"], 2.0 if target else None)
            if target:
                yield within(name, f"{steps} steps and gradient of controls : steps", t["gradient"], t["ours"], 3.0)
                last = calls["theirs"].names["state"][0, -1, 1:]  # where that motion ends
            calls = {"ours": Call(batch, names.copy()), "theirs": contacts.rollout(robot.peer, qpos, qvel, count)}
            t = measure(calls, plan.effort, plan.rollouts * count)
            line = faster(name, f"{what}, batch : mujoco.rollout", t["ours"], t["theirs"], 1.0 if target else None)
            yield replace(line, alone=share_alone(calls["ours"]))

        here, _ = contacts.swaying(robot, 1, 1e-4)
        motion = ts.simulate(model, here.q[0], here.v[0], steps=steps, integrator=ts.BDF1(h), forces=robot.forces)
        for what, q, v, theirs in (
            ("in a motion", motion.q[-1], motion.v[-1], np.split(last, [robot.peer.nq])),
            ("let go at rest", robot.q, np.zeros(model.nv), (robot.qpos, np.zeros(model.nv))),
        ):
            calls = {
                "ours": Call("ts.step_derivatives(model, bdf1, q, v, u, forces=forces)", names | {"q": q, "v": v}),
                "theirs": contacts.transitions(robot, *theirs),
            }
            t = measure(calls, plan.effort)
            yield faster(name, f"step with Jacobian, {what} : mjd_transitionFD", t["ours"], t["theirs"], 8.0)

        q, v = contacts.falling(robot)
        peer = copy(robot.peer)
        peer.opt.timestep = land
        names |= {"long": ts.BDF1(land), "q": q, "v": v, "fall": fall}
        calls = {
            "ours": Call("ts.simulate(model, q, v, steps=fall, integrator=long, forces=forces)", names),
            "theirs": contacts.rollout(peer, *to_mujoco(model, q, v), fall),
        }
        t = measure(calls, plan.effort, fall)
        what, most = f"landing, mean step of {1e3 * land:g} ms, beside mj_step", 60.0 if name == "HyQ" else None
        yield Line(name, what, t["ours"], t["theirs"], 1e6 * t["ours"], most, at_least=False, unit="us")

    progress("contact: stack")
    boxes = contacts.stack(10, h)
    names = {"ts": ts, "m": boxes, "bdf1": ts.BDF1(h), "steps": steps}
    calls = {
        "ours": Call("ts.simulate(m.model, m.q, steps=steps, integrator=bdf1, forces=m.forces)", names),
        "theirs": contacts.rollout(boxes.peer, boxes.qpos, np.zeros(boxes.peer.nv), steps),
    }
    t = measure(calls, plan.effort, steps)
    yield within("10 boxes", "stack, BDF1 step : mj_step", t["ours"], t["theirs"])


def directions(plan: Plan) -> Iterator[Line]:
    """Lines of derivatives along a direction and in reverse, in batches, against the function itself."""
    for pair in robots():
        progress(f"directions: {pair.name}")
        states = random_states(pair.model, plan.batch)
        functions, calls = our_calls(pair.model, states), our_derivatives(pair.model, states)
        for key in ("inverse", "forward"):
            group = {"function": functions[key], "jvp": calls[f"{key} jvp"], "vjp": calls[f"{key} vjp"]}
            t = measure(group, plan.effort, plan.batch)
            yield within(pair.name, f"{key} dynamics, along a direction", t["jvp"], t["function"], 3.0)
            yield within(pair.name, f"{key} dynamics, in reverse", t["vjp"], t["function"], 5.0)


def growth(plan: Plan) -> Iterator[Line]:
    """Lines of how the time of derivatives grows with n d, velocities times depth: the exponent between two sizes."""
    sizes = {
        "chains": [ts.models.chain(n) for n in (20, 40, 80)],
        "balanced trees": [ts.models.tree(d, 2) for d in (4, 5, 6)],
    }
    for name, group in sizes.items():
        progress(f"growth: {name}")
        calls = {m.name + str(m.nv): our_derivatives(m, random_states(m, 64))["inverse"] for m in group}
        t = list(measure(calls, plan.effort, 64).values())
        depth = [m.nv if name == "chains" else np.log2(m.nv + 1) for m in group]
        product = [m.nv * d for m, d in zip(group, depth, strict=True)]
        exponent = np.log(t[-1] / t[0]) / np.log(product[-1] / product[0])
        what = f"derivatives of inverse dynamics, {group[0].nv} to {group[-1].nv}"
        yield Line(name, what, t[-1], t[0], float(exponent), unit="")


def simulation(plan: Plan) -> Iterator[Line]:
    """Lines of simulations of one motion: steps with Jacobians beside MuJoCo's, gradients, and how steps grow."""
    yield from overheads(plan)
    h = plan.h
    names: dict[str, Any] = {"ts": ts, "bdf1": ts.BDF1(h), "steps": plan.steps}
    floating = (pair for pair in robots() if pair.name != "panda")
    for robot in (ur5(), *floating):
        progress(f"simulation: {robot.name}")
        model, pair = robot.model, mujoco_pair(robot.name, robot.model, h)
        one = random_states(model)
        check_accelerations(pair, one)
        names |= {"model": model, "q": one.q, "v": one.v, "u": np.zeros(model.nv)}

        calls = {
            "ours": Call("ts.step_derivatives(model, bdf1, q, v, u)", names.copy()),
            "theirs": transition_call(pair, one),
        }
        t = measure(calls, plan.effort)
        yield faster(robot.name, "BDF1 step with Jacobian : mjd_transitionFD", t["ours"], t["theirs"], 4.0)

        names |= {"controls": np.zeros((plan.steps, model.nv)), "w": np.ones((plan.steps + 1, model.nv))}
        rollout = "ts.simulate(model, q, v, steps=steps, integrator=bdf1, controls=controls)"
        calls = {
            "gradient": Call(f"ts.adjoint({rollout}, dloss_dq=w, parameters=False)", names.copy()),
            "rollout": Call(rollout, names.copy()),
        }
        t = measure(calls, plan.effort)
        what = f"{plan.steps} steps and gradient of controls : steps"
        yield within(robot.name, what, t["gradient"], t["rollout"], 3.0)

    # Chains bent to the same S whatever their length, which give Newton's method the same work; and by random angles,
    # which long ones come out of with more corrections a step.
    progress("simulation: chains")
    rng = np.random.default_rng(0)
    random = 0.1 * rng.standard_normal(max(plan.simulated))
    for shape, step, target in (("an S", h, 2.0), ("random angles", h / 10, None), ("random angles", h, None)):
        calls = {}
        for n in plan.simulated:
            q = s_shape(n) if shape == "an S" else random[:n]
            names |= {"model": ts.models.chain(n), "q": q, "v": np.zeros(n), "integrator": ts.BDF1(step)}
            calls[str(n)] = Call("ts.simulate(model, q, v, steps=steps, integrator=integrator)", names.copy())
        t = measure(calls, plan.effort, plan.steps)
        per_link = {str(n): t[str(n)] / n for n in plan.simulated}
        most, least = max(per_link.values()), min(per_link.values())
        what = f"step of BDF1 per link, {shape}, h = {step:g}, {plan.simulated[0]} to {plan.simulated[-1]} links"
        yield Line("chains", what, most, least, most / least, target, False, detail=per_link)
        for n in plan.simulated if target is not None else ():
            names |= {"matrix": n * np.eye(n) + rng.standard_normal((n, n)), "vector": rng.standard_normal(n), "np": np}
            dense = measure({"dense": Call("np.linalg.solve(matrix, vector)", names.copy())}, plan.effort)["dense"]
            yield within(f"chain {n}", f"step, h = {step:g} : one dense LU of its size (NumPy)", t[str(n)], dense)
    yield from adjoints(plan)


# Of rollouts by symplectic Euler and by BDF1 beside MuJoCo's Euler, and of a step of BDF1 with its Jacobian beside
# mjd_transitionFD, all on one thread.
MOTION_TARGETS = {"UR5": (14.0, 4.5, 12.0), "HyQ": (10.0, 1.8, 15.0), "Talos": (9.0, 1.2, 20.0)}


def share_alone(call: Call) -> float:
    """The share of the steps in lanes that had to be taken alone."""
    before = _core.lane_counts()
    eval(call.statement, dict(call.names))
    steps, alone = (after - x for after, x in zip(_core.lane_counts(), before, strict=True))
    return alone / max(steps, 1)


def motions(plan: Plan) -> Iterator[Line]:
    """Lines of batches of motions in lanes, beside MuJoCo's and beside single ones."""
    h, count = plan.h, plan.rollout_steps
    names: dict[str, Any] = {"ts": ts, "bdf1": ts.BDF1(h), "euler": ts.SymplecticEuler(h), "count": count}
    floating = (pair for pair in robots() if pair.name != "panda")
    for robot in (ur5(), *floating):
        progress(f"motions: {robot.name}")
        model, pair = robot.model, mujoco_pair(robot.name, robot.model, h)
        one, many = random_states(model), random_states(model, plan.rollouts)
        # Loads that leave motions as lively as they are: accelerations of about 1.
        inertia = 1 / ts.mass_matrix_inverse(model, model.neutral).diagonal()
        hinges = [joint for joint in model.joints if isinstance(joint.joint, ts.Revolute)]
        forces = [
            ts.JointDamping(None, inertia),
            *(ts.JointSpring(joint.name, inertia[joint.v_slice]) for joint in hinges),
        ]
        names |= {"model": model, "Q": many.q, "V": many.v, "forces": forces}
        noise = np.random.default_rng(0).standard_normal((2, plan.rollouts, count, model.nv))
        names |= {"steady": inertia * np.repeat(noise[0, :, :1], count, axis=1), "jumping": inertia * noise[1]}
        by_euler, by_bdf1, by_steps = MOTION_TARGETS[robot.name]

        def rollouts(integrator: str, more: str = "", threads: int = 1, names: Mapping[str, Any] = names) -> Call:
            text = f"ts.simulate(model, Q, V, steps=count, integrator={integrator}{more}, threads={threads})"
            return Call(text, dict(names))

        check_rollouts(pair, many, h, count)
        calls = {"theirs": rollout_call(pair, many, count)}
        loads = {"steady": 1.25, "jumping": None}  # the limit; jumps cost Newton's method a correction
        for key in ("euler", "bdf1"):
            calls[key] = rollouts(key)
            calls |= {f"{key} {u}": rollouts(key, f", forces=forces, controls={u}") for u in loads}
        t = measure(calls, plan.effort, plan.rollouts * count)
        alone = {key: share_alone(call) for key, call in calls.items() if key != "theirs"}
        for key, label, target in (("euler", "Euler", by_euler), ("bdf1", "BDF1", by_bdf1)):
            line = faster(robot.name, f"step of rollouts, {label} : MuJoCo's Euler", t[key], t["theirs"], target)
            yield replace(line, alone=alone[key])
            for u, most in loads.items():
                what = f"{label}, springs, damping, {u} controls : without"
                yield replace(within(robot.name, what, t[f"{key} {u}"], t[key], most), alone=alone[f"{key} {u}"])
        if cores() > 1:
            calls = {"two": rollouts("bdf1", threads=2), "one": rollouts("bdf1")}
            t = measure(calls, plan.effort, plan.rollouts * count, threads=True)
            yield faster(robot.name, f"{plan.rollouts} rollouts, BDF1, two threads : one", t["two"], t["one"], 1.7)

        calls = {
            "ours": Call("ts.step_derivatives(model, bdf1, Q, V)", names.copy()),
            "theirs": transition_call(pair, one),
        }
        t = measure(calls, plan.effort)
        what = "BDF1 steps with Jacobian : mjd_transitionFD"
        yield faster(robot.name, what, t["ours"] / plan.rollouts, t["theirs"], by_steps)

        Q, V = many.q[: plan.motions], many.v[: plan.motions]
        names |= {"Q": Q, "V": V, "steps": plan.steps, "w": np.ones((plan.motions, plan.steps + 1, model.nv))}
        names["controls"] = np.zeros((plan.motions, plan.steps, model.nv))
        gradient = (
            "ts.adjoint(ts.simulate(model, {q}, {v}, steps=steps, integrator=bdf1, controls={u}), dloss_dq={w}, "
            "parameters=False)"
        )
        batch = gradient.format(q="Q", v="V", u="controls", w="w")
        single = gradient.format(q="Q[i]", v="V[i]", u="controls[i]", w="w[i]")
        calls = {"batch": Call(batch, names.copy()), "single": Call(f"for i in range(len(Q)): {single}", names.copy())}
        t = measure(calls, plan.effort, plan.motions * plan.steps)
        what = f"gradient of {plan.steps} controls, {plan.motions} motions : one by one"
        line = faster(robot.name, what, t["batch"], t["single"], 2.7)
        yield replace(line, alone=share_alone(calls["batch"]))

    progress("motions: variational")
    noise = np.random.default_rng(0).standard_normal((plan.motions, 20))
    names |= {"model": ts.models.chain(20), "Q": s_shape(20) + 0.01 * noise, "order2": ts.Variational(1e-3)}
    calls = {
        "batch": Call("ts.simulate(model, Q, steps=count, integrator=order2)", names.copy()),
        "single": Call("for q in Q: ts.simulate(model, q, steps=count, integrator=order2)", names.copy()),
    }
    t = measure(calls, plan.effort, plan.motions * count)
    line = faster("chain 20", f"variational, {plan.motions} motions : one by one", t["batch"], t["single"], 2.5)
    yield replace(line, alone=share_alone(calls["batch"]))


def adjoints(plan: Plan) -> Iterator[Line]:
    """Gradients by controls and states of the steps of long chains, beside the steps themselves."""
    for n in plan.reversed:
        progress(f"simulation: adjoints, {n} links")
        model, q, u = ts.models.chain(n), s_shape(n), np.zeros((plan.steps, n))
        for kind, target in ((ts.BDF1, 2.5), (ts.BDF2, 2.5), (ts.SDIRK2, 2.5), (ts.SDIRK3, None)):
            given = {"steps": plan.steps, "integrator": kind(plan.h), "controls": u}
            motion = ts.simulate(model, q, **given)
            names = {"ts": ts, "model": model, "q": q, "given": given, "motion": motion, "w": np.ones(motion.v.shape)}
            calls = {
                "adjoint": Call("ts.adjoint(motion, dloss_dq=w, dloss_dv=w, parameters=False)", names),
                "rollout": Call("ts.simulate(model, q, **given)", names),
            }
            t = measure(calls, plan.effort, plan.steps)
            what = f"{kind.__name__}, adjoint of a step : step"
            yield within(f"chain {n}", what, t["adjoint"], t["rollout"], target)


def overheads(plan: Plan) -> Iterator[Line]:
    """What a call costs beyond the step that it takes: that of `step`, and of `simulate` for one step.

    The step itself is one of a motion of many steps, in which the call does not count.
    """
    progress("simulation: calls")
    model = ur5().model
    one, many = random_states(model), 300
    spring = ts.SpringDamper("world", (1, 0, 0), model.bodies[-1].name, (0, 0, 0.1), 5.0, 0.1, 0.5)
    names: dict[str, Any] = {"ts": ts, "model": model, "bdf1": ts.BDF1(plan.h), "q": one.q, "v": one.v}
    names |= {"u": np.ones(model.nv), "many": many}
    for label, forces in (("", []), (", with forces", [ts.JointSpring(None, 1.0, model.neutral, 0.1), spring])):
        given = {**names, "forces": forces}
        text = "ts.simulate(model, q, v, steps=1, integrator=bdf1, forces=forces, controls=u)"
        calls = {"step": Call("ts.step(model, bdf1, q, v, u, forces=forces)", given), "simulate": Call(text, given)}
        motion = {"motion": Call(text.replace("steps=1", "steps=many"), given)}
        t, kernel = measure(calls, plan.effort), measure(motion, plan.effort, many)["motion"]
        for name, target in (("step", 3.0), ("simulate", 60.0)):
            what = f"call of {name}{label}, beyond its step"
            yield Line("UR5", what, t[name], kernel, 1e6 * (t[name] - kernel), target, at_least=False, unit="us")


def s_shape(n: int) -> np.ndarray:
    """Angles that bend a hanging chain of n links to the same S whatever n."""
    return 6 / n * np.sin(2 * np.pi * np.arange(n) / n)


def variational(plan: Plan) -> Iterator[Line]:
    """Lines of variational integrators on chains: steps, how they grow, derivatives, two ways to Newton's direction.

    A chain hangs, bent to the same S whatever its length, and is let go. Newton's method goes to 1e-10, as the targets
    ask and the other implicit integrators do. Beside a step stands one of BDF2, which has order 2 too.
    """
    h = 1e-3
    names: dict[str, Any] = {"ts": ts, "bdf2": ts.BDF2(h), "steps": plan.steps}
    names |= {f"order{k}": ts.Variational(h, k, tolerance=1e-10) for k in (2, 4, 6)}

    def bent(n: int) -> dict[str, Any]:
        return {**names, "model": ts.models.chain(n), "q": s_shape(n)}

    def rollout(n: int, integrator: str) -> Call:
        return Call(f"ts.simulate(model, q, steps=steps, integrator={integrator})", bent(n))

    def limit(model: str, what: str, ours: float, other: float, most: float) -> Line:
        return Line(model, what, ours, other, 1e3 * ours, most, at_least=False, unit="ms")

    progress("variational: steps")
    calls = {f"{key} {n}": rollout(n, key) for n in (20, 128, 200) for key in ("order2", "bdf2")}
    calls |= {f"{key} 20": rollout(20, key) for key in ("order4", "order6")}
    t = measure(calls, plan.effort, plan.steps)
    yield limit("chain 20", "step of order 2, beside BDF2", t["order2 20"], t["bdf2 20"], 0.08)
    yield limit("chain 128", "step of order 2, beside BDF2", t["order2 128"], t["bdf2 128"], 0.4)
    yield within("chains", "step of order 2, 200 links : 20", t["order2 200"], t["order2 20"], 12.0)
    for order in (4, 6):
        yield within("chain 20", f"step of order {order} : order 2", t[f"order{order} 20"], t["order2 20"])

    progress("variational: derivatives")
    one = bent(20) | {"p": np.zeros(20), "w": np.ones(20)}
    calls = {
        "step": Call("ts.step(model, order2, q, p)", one),  # p is zero, and so is v
        "first": Call("ts.step_derivatives(model, order2, q, p=p)", one),
        "second": Call("ts.variational.step_hessian(model, order2, q, p, contract=(w, w))", one),
    }
    t = measure(calls, plan.effort)
    yield limit("chain 20", "step with derivatives, beside step", t["first"], t["step"], 0.15)
    yield within("chain 20", "second derivatives : first", t["second"], t["first"])

    if cores() > 1:
        progress("variational: threads")
        many = bent(20)
        noise = np.random.default_rng(0).standard_normal((plan.motions, 20))
        many["q"] = many["q"] + 0.01 * noise
        text = "ts.simulate(model, q, steps=steps, integrator=order2, threads={})"
        calls = {f"{count}": Call(text.format(count), many) for count in (1, 2)}
        t = measure(calls, plan.effort, plan.motions * plan.steps, threads=True)
        yield faster("chain 20", f"{plan.motions} motions, two threads : one", t["2"], t["1"], 1.7)

    progress("variational: directions of Newton's method")
    lengths = (4, 8, 12, 16, 32, 64, 128)
    seconds: dict[str, list[float]] = {"tree": [], "dense": []}
    for n in lengths:
        model, q, scheme = ts.models.chain(n), bent(n)["q"], names["order2"]._numbers
        xi = ts.simulate(model, q, steps=1, integrator=names["order2"]).q[1] - q
        best = dict.fromkeys(seconds, float("inf"))
        for _ in range(plan.effort.fewest):  # taking turns
            for key in best:
                best[key] = min(best[key], _core.variational_newton(model, scheme, q, xi, 100, key == "dense"))
        for key, least in best.items():
            seconds[key].append(least)
        yield within(f"chain {n}", "direction, recursion : dense matrix", best["tree"], best["dense"])
    # Where the ratio, which grows with the length, is 1; between lengths all is taken to go by powers.
    tree, dense = np.log(seconds["tree"]), np.log(seconds["dense"])
    cross = np.interp(0.0, np.maximum.accumulate(dense - tree), np.log(lengths))
    both = float(np.exp(np.interp(cross, np.log(lengths), tree)))
    yield Line("chains", "links where both take the same time", None, both, float(np.exp(cross)), unit="")


def files(plan: Plan) -> Iterator[Line]:
    """Lines of files of robots: how long they take to load and compile, and what their mimic joints cost."""
    directory = robot_directory()
    names: dict[str, Any] = {"load": load, "pin": pin}
    for robot, path, limit in (
        ("PR2", "pr2_description/urdf/pr2.urdf", 60.0),
        ("Talos", "talos_data/robots/talos_reduced.urdf", None),
    ):
        progress(f"files: {robot}")
        own = names | {"path": directory / path, "text": str(directory / path)}
        calls = {"ours": Call("load(path)._core", own), "theirs": Call("pin.buildModelFromUrdf(text)", own)}
        t = measure(calls, plan.effort)
        yield Line(robot, "load, beside Pinocchio", t["ours"], t["theirs"], 1e3 * t["ours"], limit, False, "ms")
    progress(f"files: chain of {plan.links_of_file}")
    text = chain_file(plan.links_of_file)
    seconds = min(_timed(lambda: load(text)._core) for _ in range(plan.effort.fewest))
    yield Line(f"{plan.links_of_file} links", "load", seconds, seconds, seconds, 2.0, False, "s")
    for pair in mimicking():
        progress(f"files: {pair.name}")
        model, tree = pair.model, pair.model.tree
        for size in (None, plan.batch):
            states = random_states(model, size)
            q, v, a, tau = states.q, states.v, states.a, states.tau
            whole = {"q": model.expand(q), "v": model.expand_velocity(q, v), "a": model.expand_velocity(q, a)}
            ours = {"ts": ts, "model": model, "q": q, "v": v, "a": a, "tau": tau, "out": np.empty_like(v)}
            calls = {
                f"{key} {which}": Call(f"ts.{key}_dynamics(model, q, v, {last}, out=out)", given)
                for key, last in (("inverse", "a"), ("forward", "tau"))
                for which, given in (
                    ("ours", ours),
                    ("tree", ours | {"model": tree, **whole, "tau": whole["a"], "out": np.empty_like(whole["v"])}),
                )
            }
            if size is None:
                peer = {"pin": pin, "peer": pair.peer, "data": pair.peer.createData(), "q": pin.neutral(pair.peer)}
                calls["theirs"] = Call("pin.rnea(peer, data, q, v, v)", peer | {"v": np.zeros(pair.peer.nv)})
            t = measure(calls, plan.effort, size or 1)
            label = "" if size is None else "batch, "
            least = None if size is None else 1.1
            inverse, forward = f"{label}coupled inverse dynamics : tree", f"{label}coupled forward dynamics : tree"
            yield within(pair.name, inverse, t["inverse ours"], t["inverse tree"], least)
            yield within(pair.name, forward, t["forward ours"], t["forward tree"])
            if size is None:
                yield faster(pair.name, "coupled inverse dynamics : rnea with mimic", t["inverse ours"], t["theirs"])


def _timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def importing(plan: Plan) -> Iterator[Line]:
    """The line of the import: how much longer it takes than that of NumPy."""
    progress("import")
    numpy, extra = import_times(plan.imports)
    yield Line("", "import torsor after NumPy", extra, numpy, 1e3 * extra, 30.0, at_least=False, unit="ms")


def memory(plan: Plan) -> Iterator[Line]:
    """Lines of batches against copying as many bytes as they read and write, the limit of any code."""
    for pair in robots():
        progress(f"memory: {pair.name}")
        states = random_states(pair.model, plan.batch)
        size = sum(x.size for x in vars(states).values()) // 2
        names = {"np": np, "source": np.ones(size), "target": np.ones(size)}
        ours = our_calls(pair.model, states)
        calls = {"ours": ours["inverse"], "copy": Call("np.copyto(target, source)", names)}
        t = measure(calls, plan.effort, plan.batch)
        yield within(pair.name, "inverse dynamics : copying its bytes", t["ours"], t["copy"])
    names = {"np": np, "source": np.ones(plan.copied // 8), "target": np.ones(plan.copied // 8)}
    seconds = measure({"copy": Call("np.copyto(target, source)", names)}, plan.effort)["copy"]
    rate = 2e-9 * plan.copied / seconds  # read and written
    yield Line("", f"copying {plan.copied >> 20} MiB", None, seconds, rate, unit="GB/s")


def _joined(**groups: Mapping[str, Call]) -> dict[str, Call]:
    """The calls of several groups, under the group's name and their own."""
    return {f"{group} {name}": call for group, calls in groups.items() for name, call in calls.items()}


@dataclass(frozen=True)
class Section:
    """A part of the table."""

    title: str
    columns: tuple[str, str, str]
    lines: Callable[[Plan], Iterator[Line]]


SECTIONS = {
    "state": Section("One state, called from Python", ("torsor", "Pinocchio", "speed-up"), one_state),
    "batch": Section("Batch of {batch}, per state, one thread", ("torsor", "Pinocchio", "speed-up"), batch),
    "hybrid": Section("Batch of {batch}, hybrid against forward", ("hybrid", "forward", "ratio"), hybrid),
    "threads": Section("Batch of {batch}, two threads against one", ("two", "one", "speed-up"), threads),
    "length": Section("Time per link, chains of {lengths}", ("most", "least", "ratio"), length),
    "joints": Section("General joints, per state, trees of {links} links", ("general", "in parts", "ratio"), joints),
    "derivatives": Section("First derivatives, per state", ("torsor", "Pinocchio", "speed-up"), derivatives),
    "constraints": Section(
        "Robots on their feet: one state, and batch of {batch}", ("torsor", "other", "ratio"), constraints
    ),
    "loops": Section("Closed mechanisms, one motion", ("torsor", "other", "ratio"), loops),
    "contact": Section("Contact, MuJoCo with the same geometry", ("torsor", "other", "ratio"), contact),
    "directions": Section(
        "Batch of {batch}, derivative against function", ("derivative", "function", "ratio"), directions
    ),
    "growth": Section("Growth with velocities times depth", ("largest", "smallest", "exponent"), growth),
    "simulation": Section("Simulation with h = {h}, MuJoCo without contacts", ("torsor", "other", "ratio"), simulation),
    "motions": Section("Batches of motions, h = {h}, one thread", ("torsor", "other", "ratio"), motions),
    "variational": Section(
        "Variational integrators, chains of revolutes, h = 1 ms", ("torsor", "other", "value"), variational
    ),
    "files": Section("Files of robots, and joints that mimic others", ("torsor", "other", "value"), files),
    "import": Section("Import", ("torsor", "NumPy", "extra"), importing),
    "memory": Section("Memory, for comparison", ("torsor", "copy", "ratio"), memory),
}


# ---- results -----------------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """The versions of what is measured."""
    return {
        "torsor": ts.__version__,
        "Pinocchio": pin.__version__,
        "MuJoCo": mujoco.__version__,
        "NumPy": np.__version__,
        "Python": platform.python_version(),
    }


def header(here: Mapping[str, Any]) -> str:
    """What is measured, and where."""
    v, compiler = versions(), here["compiler"] or "an unknown compiler"
    text = (
        f"{here['cpu']}, {here['cores']} cores, {here['system']}\n"
        f"torsor {v['torsor']} (built by {compiler}, {here['lanes']} lanes), "
        f"Pinocchio {v['Pinocchio']} ({here['Pinocchio']}), MuJoCo {v['MuJoCo']}, "
        f"NumPy {v['NumPy']}, Python {v['Python']}\n"
    )
    if here["load"] and here["load"] > 0.5:
        text += f"The machine is busy (load {here['load']}): do not trust comparisons of two threads with one.\n"
    return text


def duration(seconds: float) -> str:
    """A time with a unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 0.9995:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def row(line: Line) -> str:
    """A line of the table."""
    target = verdict = ""
    if line.target is not None:
        target = f"{'>=' if line.at_least else '<='} {line.target:g}"
        verdict = "ok" if line.met else "BELOW"
    value = f"{line.value:#.3g}".rstrip(".") + f" {line.unit}"
    ours = "" if line.ours is None else duration(line.ours)
    what = line.what
    if line.alone is not None:
        what += f" ({100 * line.alone:.2g} % alone)"
    if line.detail:
        what += f": {' '.join(f'{1e9 * seconds:.3g}' for seconds in line.detail.values())} ns"
    return (
        f"  {line.model:<15}{what:<46}{ours:>9}{duration(line.other):>11}{value:>10}  {target:<7} {verdict}"
    ).rstrip()


def title_row(section: Section, plan: Plan) -> str:
    """The heading of a part of the table."""
    lengths = ", ".join(map(str, plan.lengths))
    title = section.title.format(batch=plan.batch, links=plan.links, lengths=lengths, h=plan.h)
    first, second, value = section.columns
    return f"{title:<63}{first:>9}{second:>11}{value:>10}  target"


def run(plan: Plan, names: Sequence[str], sections: Mapping[str, Section] | None = None) -> dict[str, list[Line]]:
    """Measure sections, those of this file unless others are given, printing each when it is done."""
    sections = SECTIONS if sections is None else sections
    results = {}
    for name in names:
        lines = list(sections[name].lines(plan))
        print("\n".join([title_row(sections[name], plan), *map(row, lines), ""]), flush=True)
        results[name] = lines
    return results


def as_json(results: Mapping[str, Sequence[Line]], plan: Plan, here: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was measured, to be written as JSON."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": here,
        "versions": versions(),
        "plan": asdict(plan),
        "sections": {name: [{**asdict(line), "met": line.met} for line in lines] for name, lines in results.items()},
    }


def main(
    arguments: Sequence[str] | None = None,
    *,
    about: str | None = __doc__,
    sections: Mapping[str, Section] | None = None,
    whole: Plan | None = None,
    path: Path = RESULTS,
    picture: Path | None = PICTURE,
    built: str = "as installed",
) -> int:
    """Run what the arguments ask for of these sections; the exit code.

    `whole` is the plan of a run that is not quick and `built` says where Pinocchio comes from.
    """
    sections = SECTIONS if sections is None else sections
    whole = Plan() if whole is None else whole
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="fewer repeats: rough numbers in half a minute")
    parser.add_argument("--only", nargs="+", choices=sections, metavar="SECTION", help=", ".join(sections))
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(arguments)

    plan = replace(whole, effort=QUICK, imports=3) if options.quick else whole
    start = time.perf_counter()
    here = {**machine(), "Pinocchio": built}
    print(header(here))
    try:
        results = run(plan, options.only or list(sections), sections)
    except Disagreement as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    lines = [line for section in results.values() for line in section if line.target is not None]
    missed = sum(not line.met for line in lines)
    print(f"{len(lines) - missed} of {len(lines)} targets met, in {time.perf_counter() - start:.0f} s")
    if not options.quick and not options.only:
        report = as_json(results, plan, here)
        path.write_text(json.dumps(report, indent=1) + "\n")
        print(path.relative_to(ROOT))
        if picture:
            from plot import draw

            draw(report, picture)
            print(picture.relative_to(ROOT))
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main())
