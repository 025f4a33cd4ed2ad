"""A demonstration on the models that ship with the package: ``python -m torsor.demo [picture]``."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

import torsor as ts
from torsor.interop import to_pinocchio

Array = npt.NDArray[np.float64]
BATCH = 4096
ITERATIONS = 40  # at most


def main(picture: Path = Path("pendulum.png")) -> None:
    """Print a model, compute with it, optimise a motion, and compare speed with Pinocchio where that is installed."""
    rng = np.random.default_rng(0)
    model = ts.models.quadruped()
    print(f"torsor {ts.__version__}\n\n{model}\n")
    compute(model, rng)
    reach(picture)
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


class Reach:
    """A two-link pendulum whose tip should be at a target after a second, under a constant torque at each joint.

    Sueda 2021, (3.82), with the numbers of scene 100 of redmax: centimetres, grams and seconds. The objective is
    wreg |p|^2 / 2 + wpos |tip - target|^2 / 2, with torques of `scale` times p.
    """

    target = (10.0, 0.0, -10.0)
    tip = (10.0, 0.0, 0.0)  # in the frame of the second link
    scale, wpos, wreg = 1e5, 100.0, 0.01
    q0, v0 = np.array([np.pi / 2, np.pi / 4]), np.array([1.0, 1.0])
    steps = 100

    def __init__(self) -> None:
        link = ts.Inertia.box(mass=10.0, size=(10, 1, 1), com=(5, 0, 0))
        builder = ts.ModelBuilder("pendulum", gravity=(0, 0, -980))
        builder.add_body("upper", "world", ts.Revolute((0, 1, 0)), inertia=link)
        builder.add_body("lower", "upper", ts.Revolute((0, 1, 0)), ts.SE3.translation(10, 0, 0), link)
        self.model = builder.build()
        self.forces = [ts.JointSpring(None, stiffness=1e4, rest=self.q0, damping=1e4)]

    def simulate(self, p: Array) -> ts.Trajectory:
        """The motion under torques of scale p at the two joints."""
        return ts.simulate(
            self.model,
            self.q0,
            self.v0,
            steps=self.steps,
            integrator=ts.BDF1(h=1.0 / self.steps),
            forces=self.forces,
            controls=np.broadcast_to(self.scale * p, (self.steps, 2)),
        )

    def objective(self, p: Array) -> tuple[float, Array]:
        """The objective and its gradient, by one simulation forward and one sweep backward."""
        motion = self.simulate(p)
        loss = ts.loss(motion, ts.PointTarget("lower", self.tip, self.target, self.wpos))
        controls = ts.adjoint(motion, loss, parameters=False).controls
        value = float(loss.value) + 0.5 * self.wreg * float(p @ p)
        return value, self.scale * controls.sum(axis=0) + self.wreg * p

    def differences(self, p: Array, eps: float = 1e-6) -> Array:
        """The gradient by central differences."""
        sides = [[self.objective(p + sign * eps * e)[0] for sign in (1, -1)] for e in np.eye(2)]
        return np.array([(up - down) / (2 * eps) for up, down in sides])


def reach(picture: Path) -> None:
    """Find the torques that bring the pendulum's tip to its target, with SciPy, and draw the motion."""
    print("\nA two-link pendulum looks for the torques that bring its tip to a target (Sueda 2021, eq. (3.82)).")
    try:
        optimize = importlib.import_module("scipy.optimize")
    except ImportError:
        print("SciPy is not installed; `pip install scipy` lets it find them.")
        return
    print("The last column is how far the gradient is from one by central differences, which are good to about 1e-6.")
    print(f"{'iteration':>9}{'objective':>14}{'|gradient|':>14}{'check':>14}")
    try:
        bar = importlib.import_module("tqdm").tqdm(total=ITERATIONS, unit="iteration", leave=False, disable=None)
    except ImportError:
        bar = None  # the lines come all the same
    task, lines = Reach(), 0

    def report(p: Array) -> None:
        nonlocal lines
        value, gradient = task.objective(p)
        off = np.abs(gradient - task.differences(p)).max()
        line = f"{lines:9d}{value:14.6g}{np.linalg.norm(gradient):14.2e}{off:14.1e}"
        if bar is None:
            print(line)
        else:
            bar.write(line)
            bar.update(1 if lines else 0)
        lines += 1

    start = time.perf_counter()
    report(np.zeros(2))
    options = {"maxiter": ITERATIONS, "gtol": 1e-6}
    result = optimize.minimize(task.objective, np.zeros(2), jac=True, method="BFGS", callback=report, options=options)
    if bar is not None:
        bar.close()
    before, after = task.simulate(np.zeros(2)), task.simulate(result.x)
    tip = ts.point_positions(task.model, after.q[-1], "lower", task.tip)
    print(
        f"Torques of {task.scale * result.x[0]:.0f} and {task.scale * result.x[1]:.0f} bring the tip within "
        f"{np.linalg.norm(tip - task.target):.0e} cm of the target, found in {time.perf_counter() - start:.1f} s."
    )
    weights = np.ones(2)
    rollout = fastest(lambda: task.simulate(result.x))
    gradient = fastest(lambda: ts.adjoint(after, dloss_dq=weights, parameters=False))
    print(
        f"The gradient with respect to the torques of all {task.steps} steps takes {gradient / rollout:.1f} times as "
        f"long as the simulation ({1e3 * rollout:.2f} ms)."
    )
    try:
        draw(task, before, after, picture)
        print(f"The motion before and after: {picture.resolve()}")
    except ImportError:
        print("Matplotlib is not installed; `pip install matplotlib` adds a picture of the motion.")


def draw(task: Reach, before: ts.Trajectory, after: ts.Trajectory, path: Path) -> None:
    """Draw both motions side by side, early positions faint and late ones strong, with the path of the tip."""
    mpl = importlib.import_module("matplotlib")
    Figure = importlib.import_module("matplotlib.figure").Figure
    link, tip, mark = "#24415f", "#c8374b", "#2a9d5c"
    with mpl.rc_context({"font.size": 10, "axes.titlesize": 11}):
        figure = Figure(figsize=(9.6, 5.4), dpi=150, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1, wspace=0.03)
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        for axis, motion, title in zip(axes, (before, after), ("Without torques", "With torques"), strict=True):
            elbow = ts.point_positions(task.model, motion.q, "upper", task.tip)
            end = ts.point_positions(task.model, motion.q, "lower", task.tip)
            axis.plot(*end[:, ::2].T, color=tip, lw=1.2, zorder=3, label="path of the tip")
            for row in np.linspace(0, motion.steps, 11).astype(int):
                last, late = row == motion.steps, row / motion.steps
                xs, zs = ([0.0, elbow[row, i], end[row, i]] for i in (0, 2))
                axis.plot(
                    xs, zs, "-o", color=link, alpha=1.0 if last else 0.12 + 0.3 * late, lw=4.5 if last else 2.0,
                    ms=5 if last else 3, zorder=2, solid_capstyle="round", label="links after 1 s" if last else None,
                )  # fmt: skip
            axis.plot(*end[0, ::2], "o", mfc="white", mec=tip, ms=7, zorder=4, label="tip at the start")
            axis.plot(*end[-1, ::2], "o", color=tip, ms=7, zorder=4, label="tip after 1 s")
            axis.plot(task.target[0], task.target[2], "+", color=mark, ms=18, mew=2.5, zorder=5, label="target")
            distance = np.linalg.norm(end[-1] - task.target)
            axis.set_title(f"{title}: {distance:.2g} cm off", loc="left", weight="bold", pad=10)
            axis.set_aspect("equal")
            axis.grid(color="#e8ebee")
            axis.set_axisbelow(True)
            axis.spines[["top", "right", "left", "bottom"]].set_visible(False)
            axis.tick_params(length=0)
            axis.set_xlabel("x [cm]")
            axis.set_xticks(range(-10, 16, 5))
            axis.set_yticks(range(-20, 1, 5))
            axis.set(xlim=(-10.5, 15.5), ylim=(-21.5, 1.5))
        axes[0].set_ylabel("z [cm]")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        figure.savefig(path)


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
    main(*map(Path, sys.argv[1:2]))
