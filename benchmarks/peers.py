"""Second derivatives of Pinocchio's C++ and of C code that CasADi generates, compiled for this machine.

Compiled libraries stay in the environment of this Python until their source, flags, compiler or Pinocchio change.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from calls import Array, Call, States

HERE = Path(__file__).resolve().parent
CACHE = Path(sys.prefix) / "bench-cpp"
FLAGS = ("-O3", "-march=native", "-DNDEBUG")
KINDS = {"JointModelRX": "x", "JointModelRY": "y", "JointModelRZ": "z", "JointModelFreeFlyer": "f"}


class Pinocchio:
    """Pinocchio's `ComputeRNEASecondOrderDerivatives` on a pinocchio.Model.

    Its tensors have the order of indices that ours have: d2tau_dqdq[i, j, k] is d/dq_k (dtau_i/dq_j), with the first
    direction taken first where directions of a free joint do not commute; d2tau_dqdv[i, j, k] is d/dv_k (dtau_i/dq_j),
    whatever one reads of its columns and pages, and d2tau_dadq[i, j, k] is dM_ij/dq_k. Velocities of free joints have
    their linear part first.
    """

    def __init__(self, model: Any) -> None:
        self._library = _pinocchio()
        self._nv: int = model.nv
        joints = range(1, model.njoints)
        placements, inertias = model.jointPlacements, model.inertias
        numbers = [
            (*placements[i].rotation.flat, *placements[i].translation)
            + (inertias[i].mass, *inertias[i].lever, *inertias[i].inertia.flat)
            for i in joints
        ]
        self._peer = ctypes.c_void_p(
            self._library.peer_new(
                len(joints),
                "".join(KINDS[model.joints[i].shortname()] for i in joints).encode(),
                (ctypes.c_int * len(joints))(*(model.parents[i] for i in joints)),
                _pointer(np.array(numbers)),
                _pointer(np.array(model.gravity.linear)),
            )
        )
        weakref.finalize(self, self._library.peer_delete, self._peer)

    def call(self, states: States, repeats: int = 1) -> Call:
        """The call at these states, in Pinocchio's layout, with the loop in C++."""
        names = {"keep": self, "run": self._library.peer_run, "peer": self._peer}
        return Call(f"run(peer, {_count(states)}, {repeats}, q, v, a)", names | _arguments(states))

    def tensors(self, states: States) -> Array:
        """d2tau_dqdq, dqdv, dvdv, dadq at the last of these states, (4, nv, nv, nv)."""
        call, n = self.call(states), self._nv
        eval(call.statement, dict(call.names))
        out = np.empty((4, n, n, n))
        self._library.peer_tensors(self._peer, _pointer(out))
        return out.transpose(0, 3, 2, 1)


class Generated:
    """The code that CasADi generates for a pinocchio.Model of revolutes; same tensors, same interface."""

    def __init__(self, model: Any) -> None:
        from generated import code

        self._nv: int = model.nv
        source = code(model) + (HERE / "cpp/loop.c").read_text()
        self._library = compiled("CasADi's second derivatives", source, ("-x", "c", *FLAGS), ("-lm",))
        self._out = np.empty((4, self._nv**3))

    def call(self, states: States, repeats: int = 1) -> Call:
        """The call at these states, with the loop in C."""
        names = {"run": self._library.generated_run, "out": _pointer(self._out)}
        return Call(f"run({_count(states)}, {repeats}, q, v, a, out)", names | _arguments(states))

    def tensors(self, states: States) -> Array:
        """d2tau_dqdq, dqdv, dvdv, dadq at the last of these states, (4, nv, nv, nv)."""
        from generated import tensors

        call = self.call(states)
        eval(call.statement, dict(call.names))
        return tensors(self._out.copy(), self._nv)


def compiled(what: str, source: str, flags: Sequence[str], libraries: Sequence[str] = (), key: str = "") -> ctypes.CDLL:
    """The library of this source, compiled unless it was; `key` stands for what else it depends on."""
    compiler = compiler_command()
    version = subprocess.run([*compiler, "--version"], check=True, capture_output=True, text=True).stdout
    digest = hashlib.sha256("\0".join((source, *flags, *libraries, key, version)).encode()).hexdigest()
    library = CACHE / f"{digest[:16]}.so"
    if not library.exists():
        CACHE.mkdir(exist_ok=True)
        file, part = library.with_suffix(".source"), library.with_suffix(f".{os.getpid()}")
        file.write_text(source)
        # Nothing of it may be taken from another copy of Pinocchio in this process, or be taken there.
        private = ("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic,-z,defs")
        _show(what, [*compiler, *flags, *private, "-o", str(part), str(file), *libraries])
        part.replace(library)
    return ctypes.CDLL(str(library))


def compiler_command() -> list[str]:
    """The C++ compiler, $CXX or g++."""
    return shlex.split(os.environ.get("CXX", "")) or ["g++"]


def _show(what: str, command: Sequence[str]) -> None:
    """Run a compiler, telling now and then that it runs."""
    start = time.perf_counter()
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            print(f"  compiling {what}, once: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
    if process.returncode:
        raise RuntimeError(f"{what} could not be compiled: {shlex.join(command)}")


def headers() -> Path:
    """The directory of the headers that came with Pinocchio, with those of Eigen among them."""
    for path in Path(pin.__file__).parents:
        if (path / "include/pinocchio").is_dir() and (path / "include/eigen3/Eigen").is_dir():
            return path / "include"
    raise FileNotFoundError("no headers of Pinocchio and Eigen beside each other; pip install pin cmeel-eigen")


def _pinocchio() -> ctypes.CDLL:
    """The compiled face of Pinocchio."""
    flags = ("-x", "c++", "-std=c++17", *FLAGS, f"-I{headers()}", f"-I{headers() / 'eigen3'}")
    source = (HERE / "cpp/second_order.cpp").read_text()
    library = compiled("Pinocchio's second derivatives", source, flags, key=pin.__version__)
    library.peer_new.restype = ctypes.c_void_p
    return library


def _count(states: States) -> int:
    return 1 if states.q.ndim == 1 else states.q.shape[1]


def _arguments(states: States) -> dict[str, Any]:
    return {name: _pointer(getattr(states, name)) for name in "qva"}


def _pointer(x: Array) -> Any:
    """A pointer that keeps its array; states in columns have to be in Fortran order."""
    if not (x.flags.c_contiguous or x.flags.f_contiguous):
        raise ValueError("the array has gaps")
    return x.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
