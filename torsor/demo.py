"""What the library does, on the models that ship with it: ``python -m torsor.demo``."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

import torsor as ts
from torsor.interop import to_pinocchio

Array = npt.NDArray[np.float64]
BATCH = 4096


def main() -> None:
    """Print a model, compute with it, and compare speed with Pinocchio where that is installed."""
    rng = np.random.default_rng(0)
    model = ts.models.quadruped()
    print(f"torsor {ts.__version__}\n\n{model}\n")
    compute(model, rng)
    try:
        pin = importlib.import_module("pinocchio")
    except ImportError:
        print("\nPinocchio is not installed; `pip install pin` adds the comparison of speed.")
        return
    compare([ts.models.arm7(), model, ts.models.humanoid()], pin, rng)


def compute(model: ts.Model, rng: np.random.Generator) -> None:
    """Print what the main functions give for one state and for a batch of states."""
    q, v, a = states(model, rng)
    tau = ts.inverse_dynamics(model, q, v, a)
    again = ts.forward_dynamics(model, q, v, tau)
    M = ts.mass_matrix(model, q)
    moments = np.linalg.eigvalsh(M)
    com = ts.center_of_mass(model, q)
    print(f"inverse dynamics    tau of shape {tau.shape}, largest {np.abs(tau).max():.1f}")
    print(f"forward dynamics    gives the accelerations back to {np.abs(again - a).max():.0e}")
    print(f"mass matrix         {M.shape[0]} x {M.shape[1]}, eigenvalues {moments[0]:.2g} to {moments[-1]:.2g}")
    print(f"centre of mass      {np.array2string(com, precision=3, suppress_small=True)}")

    q, v, a = states(model, rng, BATCH)
    tau = ts.inverse_dynamics(model, q, v, a)
    seconds = fastest(lambda: ts.inverse_dynamics(model, q, v, a, out=tau))
    print(f"a batch             tau of shape {tau.shape} in {1e3 * seconds:.2f} ms")
    print(f"                    {1e6 * seconds / BATCH:.2f} us per state on one thread")


def compare(models: list[ts.Model], pin: ModuleType, rng: np.random.Generator) -> None:
    """Print microseconds per state here and in Pinocchio, both called from Python on one thread."""
    columns = [measure(model, pin, rng) for model in models]
    print(f"\nMicroseconds per state, one thread: torsor / Pinocchio {pin.__version__}")
    print(f"{'':24}" + "".join(f"{f'{model.name}, {model.nv} dofs':>24}" for model in models))
    for name in columns[0]:
        pairs = [column[name] for column in columns]
        cells = [f"{ours:.2f} / {theirs:.2f} {f'({theirs / ours:.1f}x)':>7}" for ours, theirs in pairs]
        print(f"{name:24}" + "".join(f"{cell:>24}" for cell in cells))
    difference = max(disagreement(model, pin, rng) for model in models)
    print(f"The efforts of the two agree to {difference:.0e} of the largest.")


def measure(model: ts.Model, pin: ModuleType, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Return the microseconds per state that each function takes here and in Pinocchio."""
    other = pinocchio_model(model, pin)
    data = other.createData()

    q, v, a = states(model, rng)
    tau = ts.inverse_dynamics(model, q, v, a)
    pq, pv, pa, ptau = to_pinocchio(model, q, v, a, tau)
    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any], int]] = {
        "inverse dynamics": (
            lambda: ts.inverse_dynamics(model, q, v, a),
            lambda: pin.rnea(other, data, pq, pv, pa),
            1,
        ),
        "forward dynamics": (
            lambda: ts.forward_dynamics(model, q, v, tau),
            lambda: pin.aba(other, data, pq, pv, ptau),
            1,
        ),
        "mass matrix": (lambda: ts.mass_matrix(model, q), lambda: pin.crba(other, data, pq), 1),
    }
    if hasattr(pin, "rneaInParallel"):
        Q, V, A = states(model, rng, BATCH)
        pQ, pV, pA = (np.asfortranarray(x.T) for x in to_pinocchio(model, Q, V, A))
        pool = pin.ModelPool(other, 1)
        out, pout = np.empty_like(V), np.empty_like(pV)
        calls[f"inverse, batch of {BATCH}"] = (
            lambda: ts.inverse_dynamics(model, Q, V, A, out=out),
            lambda: pin.rneaInParallel(1, pool, pQ, pV, pA, pout),
            BATCH,
        )
        calls[f"forward, batch of {BATCH}"] = (
            lambda: ts.forward_dynamics(model, Q, V, A, out=out),
            lambda: pin.abaInParallel(1, pool, pQ, pV, pA, pout),
            BATCH,
        )
    return {
        name: (1e6 * fastest(ours) / size, 1e6 * fastest(theirs) / size) for name, (ours, theirs, size) in calls.items()
    }


def disagreement(model: ts.Model, pin: ModuleType, rng: np.random.Generator) -> float:
    """Return the largest difference of inverse dynamics from Pinocchio's, relative to the largest effort."""
    q, v, a = states(model, rng)
    pq, pv, pa, tau = to_pinocchio(model, q, v, a, ts.inverse_dynamics(model, q, v, a))
    other = pinocchio_model(model, pin)
    ptau = pin.rnea(other, other.createData(), pq, pv, pa)
    return float(np.abs(tau - ptau).max() / np.abs(ptau).max())


def states(model: ts.Model, rng: np.random.Generator, size: int | None = None) -> tuple[Array, Array, Array]:
    """Draw configurations, velocities and accelerations."""
    shape = (model.nv,) if size is None else (size, model.nv)
    return model.random(rng, size), rng.standard_normal(shape), rng.standard_normal(shape)


def pinocchio_model(model: ts.Model, pin: ModuleType) -> Any:
    """Build the same model in Pinocchio: free joints, fixed ones, and revolutes about x, y or z."""
    revolute: dict[ts.Joint, Any] = {
        ts.Revolute((1, 0, 0)): pin.JointModelRX(),
        ts.Revolute((0, 1, 0)): pin.JointModelRY(),
        ts.Revolute((0, 0, 1)): pin.JointModelRZ(),
    }
    other = pin.Model()
    other.gravity.linear = np.asarray(model.gravity)
    # Each body's joint in Pinocchio, and its pose in that joint's frame.
    carriers = {"world": (0, pin.SE3.Identity())}
    for body in model.bodies:
        parent, pose = carriers[body.parent]
        placement = pose * pin.SE3(body.placement.R, body.placement.p)
        if isinstance(body.joint, ts.Fixed):
            joint = parent
        else:
            motion = pin.JointModelFreeFlyer() if isinstance(body.joint, ts.Free) else revolute[body.joint]
            joint = other.addJoint(parent, motion, placement, body.name)
            placement = pin.SE3.Identity()
        carriers[body.name] = joint, placement
        inertia = body.inertia
        other.appendBodyToJoint(joint, pin.Inertia(inertia.mass, inertia.com, inertia.I_com), placement)
    return other


def fastest(call: Callable[[], Any], budget: float = 0.15) -> float:
    """Return the least time of one call, in seconds, among runs of about a millisecond within the budget."""
    call()
    start = time.perf_counter()
    call()
    repeats = max(1, int(1e-3 / max(time.perf_counter() - start, 1e-9)))
    best = float("inf")
    end = time.perf_counter() + budget
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        best = min(best, (time.perf_counter() - start) / repeats)
    return best


if __name__ == "__main__":
    main()
