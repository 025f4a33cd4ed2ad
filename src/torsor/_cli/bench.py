"""``torsor bench``: times of this machine."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from torsor._cli.output import add_command, show, table
from torsor._cli.sources import load

if TYPE_CHECKING:
    from torsor.model import Model

_EXAMPLES = """\
Times are the shortest of several repetitions, in microseconds for one state:
alone, in a batch on one thread, and in that batch on all cores. Those of steps
are for one step of one motion. Other work on the machine makes them longer.

examples:
  torsor bench
  torsor bench robot.urdf --batch 10000
  torsor bench example:chain:50"""


def add(commands: Any) -> None:
    """The arguments of the command."""
    parser = add_command(
        commands,
        "bench",
        "times of this machine, in one table",
        "Measures how long dynamics, their derivatives and steps of simulations take for a model.",
        _EXAMPLES,
    )
    parser.add_argument(
        "file", nargs="?", metavar="FILE", default="example:quadruped", help="the model (default: %(default)s)"
    )
    parser.add_argument(
        "--root", choices=("fixed", "free"), default="fixed", help="root joint of a URDF file (default: %(default)s)"
    )
    parser.add_argument(
        "--batch", type=int, default=1024, metavar="N", help="states in the batch (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="time to take, about (default: %(default)g)")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


class _Row(NamedTuple):
    """A function to time: its name, and what to call for one state, for a batch, and for it on all cores."""

    name: str
    calls: tuple[Callable[[], Any] | None, ...]
    states: tuple[int, ...]


def run(arguments: argparse.Namespace) -> int:
    """Prints the table."""
    import torsor
    from torsor import _core

    if not 1 <= arguments.batch <= 1_000_000:
        from torsor._cli.output import CommandError

        raise CommandError(f"--batch is {arguments.batch}, expected 1 to 1000000")
    model = load(arguments.file, arguments.root, lenient=True).model
    show(f"torsor {torsor.__version__}, Python {platform.python_version()}, {_core.lanes} lanes, {_core.cores} cores")
    show(f"{model.name}: {model.nbodies} bodies, nq {model.nq}, nv {model.nv}; us per state\n")
    rows = [*_functions(model, arguments.batch)]
    calls = sum(call is not None for row in rows for call in row.calls)
    budget = max(arguments.seconds, 0.01) / max(calls, 1)
    lines = []
    for row in rows:
        _tell(arguments.quiet, f"{row.name} ...")
        cells = [
            "-" if call is None else f"{1e6 * _fastest(call, budget) / count:.3g}"
            for call, count in zip(row.calls, row.states, strict=True)
        ]
        lines.append([row.name, *cells])
    _tell(arguments.quiet, "")
    head = ["", "one state", f"batch of {arguments.batch}", f"on {_core.cores} cores"]
    show(table(head, lines, right=(1, 2, 3)))
    return 0


def _tell(quiet: bool, text: str) -> None:
    """Shows on a terminal what is being timed, over what was shown before."""
    if not quiet and sys.stderr.isatty():
        print(f"\r{text:<50}\r", end="", file=sys.stderr, flush=True)


def _fastest(call: Callable[[], Any], budget: float) -> float:
    """Seconds of the fastest of several calls, in about the time that is given."""
    begin = time.perf_counter()
    call()
    first = time.perf_counter() - begin
    inner = max(1, int(1e-4 / max(first, 1e-9)))
    best, end = first, begin + budget
    for _ in range(3):  # at least, if a call is not long
        best = min(best, _mean(call, inner))
        if first > budget:
            break
    while time.perf_counter() < end:
        best = min(best, _mean(call, inner))
    return best


def _mean(call: Callable[[], Any], inner: int) -> float:
    begin = time.perf_counter()
    for _ in range(inner):
        call()
    return (time.perf_counter() - begin) / inner


def _functions(model: Model, batch: int) -> Iterator[_Row]:
    """What is timed."""
    import numpy as np

    import torsor as ts

    rng = np.random.default_rng(0)
    q = model.random(0, batch)
    v, a = rng.standard_normal((2, batch, model.nv))
    tau = ts.inverse_dynamics(model, q, v, a)
    named: list[tuple[str, Any, tuple[Any, ...]]] = [
        ("inverse dynamics", ts.inverse_dynamics, (q, v, a)),
        ("forward dynamics", ts.forward_dynamics, (q, v, tau)),
        ("mass matrix", ts.mass_matrix, (q,)),
        ("derivatives of inverse dynamics", ts.inverse_dynamics_derivatives, (q, v, a)),
        ("derivatives of forward dynamics", ts.forward_dynamics_derivatives, (q, v, tau)),
        ("gradient of inverse dynamics (vjp)", ts.inverse_dynamics_vjp, (q, v, a, a)),
    ]
    for name, function, given in named:
        yield _row(name, function, model, given, batch)
    few = max(1, min(batch, 500_000 // max(1, model.nv**3)))  # whose tensors fit into a cache
    states = tuple(x[:few] for x in (q, v, a))
    yield _row("second derivatives, contracted", _contracted(a[0]), model, states, few)
    yield _row("second derivatives, tensors", ts.inverse_dynamics_hessians, model, states, few)
    steps = 20

    def motion(integrator: Any, count: int, threads: Any) -> Callable[[], Any]:
        starts = model.neutral if count == 1 else np.broadcast_to(model.neutral, (count, model.nq))
        options: dict[str, Any] = {} if count == 1 else {"threads": threads}
        return lambda: ts.simulate(
            model, starts, steps=steps, integrator=integrator, constraints=(), on_failure="keep", **options
        )

    lanes = min(batch, 64)
    for kind in (ts.BDF1, ts.BDF2, ts.SymplecticEuler):
        integrator = kind(h=1e-3)
        yield _Row(
            f"step of {kind.__name__}",
            (motion(integrator, 1, 1), motion(integrator, lanes, 1), motion(integrator, lanes, "auto")),
            (steps, steps * lanes, steps * lanes),
        )


def _contracted(weights: Any) -> Callable[..., Any]:
    import torsor as ts

    return lambda *given, **options: ts.inverse_dynamics_hessians(*given, contract=weights, **options)


def _row(name: str, function: Any, model: Model, given: tuple[Any, ...], batch: int) -> _Row:
    one = tuple(x[0] for x in given)
    return _Row(
        name,
        (
            lambda: function(model, *one),
            lambda: function(model, *given),
            lambda: function(model, *given, threads="auto"),
        ),
        (1, batch, batch),
    )
