"""User-defined costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor._check import complex_allowed
from torsor.costs.cost import At, Cost, CostValue, States, symmetric, when
from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    FloatArray = NDArray[np.float64]

_STEP = 1e-30  # of complex steps: far below rounding, far above underflow


@final
@dataclass(frozen=True, init=False)
class CustomCost(Cost):
    """A cost that is a function of the user's.

    All functions are called with many states at a time: q (..., nq), v (..., nv), u (..., nu) or None, t (...).
    `testing.check_cost` checks them.

    Parameters
    ----------
    function : callable
        function(q, v, u, t) gives the cost (...).
    gradient : callable, optional
        gradient(q, v, u, t) gives (dq, dv, du), each (..., n), or None where it is zero; dq in the tangent space. Left
        out, it comes by complex steps of the function, which must be written for complex arrays, without abs, conj or
        comparisons of complex numbers: one call for each of nv + nv + nu directions.
    hessian : callable, optional
        hessian(q, v, u, t) gives (dqdq, dqdv, dqdu, dvdv, dvdu, dudu), each (..., n, m), or None where it is zero. Left
        out, it comes by complex steps of the gradient, which must be given then and be written for complex arrays.
    inputs : str
        Of "q", "v" and "u" those that the cost depends on; all may depend on t.
    at : int, slice, list of int or "time"
        When it counts: rows, over which it is summed, by default the last one; or "time" for the integral. A cost of
        controls is an integral.
    """

    function: Callable[..., Any]
    gradient: Callable[..., Any] | None
    hessian: Callable[..., Any] | None
    inputs: str  # type: ignore[misc]
    at: At = field(hash=False)

    timed: ClassVar[bool] = True

    def __init__(
        self,
        function: Callable[..., Any],
        gradient: Callable[..., Any] | None = None,
        hessian: Callable[..., Any] | None = None,
        inputs: str = "qv",
        at: Any = -1,
    ) -> None:
        for name, given in (("function", function), ("gradient", gradient), ("hessian", hessian)):
            if not callable(given) and (given is not None or name == "function"):
                raise TypeError(f"{name} is {given!r}, expected a function of (q, v, u, t)")
        if not isinstance(inputs, str) or not inputs or set(inputs) - set("qvu") or len(set(inputs)) < len(inputs):
            raise ValueError(f"inputs is {inputs!r}, expected those of 'q', 'v' and 'u' that the cost depends on: 'qv'")
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "gradient", gradient)
        object.__setattr__(self, "hessian", hessian)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "at", when(at, inputs))

    def _coordinates(self, model: Model) -> Sequence[int]:
        return range(model.nbodies) if self.inputs != "u" else ()

    def _evaluate(self, x: States, hessians: bool) -> CostValue:
        here = (x.q, x.v, x.u, np.broadcast_to(x.t, x.shape))

        def function(at: tuple[Any, ...]) -> Array:
            return _checked("function", _call(self.function, at), x.shape, _dtype(at))

        value = function(here)
        sizes = {"q": x.model.nv, "v": x.model.nv, "u": 0 if x.u is None else x.u.shape[-1]}
        if self.gradient is not None:
            first = self._given(self.gradient, "gradient", here, [sizes[a] for a in "qvu"], x.shape)
        else:
            first = [_complex_steps(function, x, a, sizes[a]) if a in self.inputs else None for a in "qvu"]
        if not hessians:
            return CostValue(value, *first)
        return CostValue(value, *first, *self._second(x, here, sizes))

    def _second(self, x: States, here: tuple[Any, ...], sizes: dict[str, int]) -> list[Any]:
        pairs = (("q", "q"), ("q", "v"), ("q", "u"), ("v", "v"), ("v", "u"), ("u", "u"))
        if self.hessian is not None:
            shapes = [(sizes[a], sizes[b]) for a, b in pairs]
            return self._given(self.hessian, "hessian", here, shapes, x.shape)
        if self.gradient is None:
            raise TypeError(
                "second derivatives of a CustomCost come by complex steps of its gradient, which was not given; give "
                "gradient=, written for complex arrays, or hessian="
            )
        gradient = self.gradient
        out: list[FloatArray | None] = []
        of = [sizes[a] for a in "qvu"]
        for a, b in pairs:
            if a not in self.inputs or b not in self.inputs:
                out.append(None)
                continue

            def part(at: tuple[Any, ...], k: int = "qvu".index(a), n: int = sizes[a]) -> Array:
                given = self._given(gradient, "gradient", at, of, x.shape)[k]
                return np.zeros((*x.shape, n)) if given is None else given

            block = _complex_steps(part, x, b, sizes[b])
            out.append(symmetric(block) if (a, b) == ("q", "q") else block)
        return out

    def _given(
        self, f: Callable[..., Any], name: str, at: tuple[Any, ...], sizes: Sequence[Any], shape: tuple[int, ...]
    ) -> list[Any]:
        """What a function of the user's gave for derivatives, one for each of the sizes."""
        given = _call(f, at)
        if not isinstance(given, (tuple, list)) or len(given) != len(sizes):
            raise ValueError(f"{name} of CustomCost gave {given!r}, expected a tuple of {len(sizes)} arrays or None")
        out = []
        for part, size in zip(given, sizes, strict=True):
            tail = size if isinstance(size, tuple) else (size,)
            out.append(None if part is None else _checked(name, part, (*shape, *tail), _dtype(at)))
        return out


def _dtype(arrays: tuple[Any, ...]) -> Any:
    return np.result_type(float, *(a.dtype for a in arrays if a is not None))


def _call(f: Callable[..., Any], at: tuple[Any, ...]) -> Any:
    """Calls a function of the user's, in which those of this library take complex arrays if it is called with some."""
    token = complex_allowed.set(_dtype(at).kind == "c" or complex_allowed.get())
    try:
        return f(*at)
    finally:
        complex_allowed.reset(token)


def _checked(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    a = np.asarray(value)
    if a.shape != shape or not np.can_cast(a.dtype, dtype, "same_kind"):
        raise ValueError(
            f"{name} of CustomCost gave shape {a.shape} and dtype {a.dtype}, expected {shape} and {np.dtype(dtype)}; "
            "it is called with all states at a time"
        )
    return a.astype(dtype, copy=False)


def _complex_steps(f: Callable[[tuple[Any, ...]], Array], x: States, along: str, n: int) -> FloatArray:
    """The derivative of f((q, v, u, t)) along q, in the tangent space, v or u: (..., n)."""
    columns = []
    for k in range(n):
        at = {"q": x.q, "v": x.v, "u": x.u}
        step = np.zeros(n, complex)
        step[k] = 1j * _STEP
        if along == "q":
            token = complex_allowed.set(True)
            try:
                at["q"] = x.model.plus(x.q, step)
            finally:
                complex_allowed.reset(token)
        else:
            at[along] = at[along] + step
        columns.append(f((*at.values(), np.broadcast_to(x.t, x.shape))).imag / _STEP)
    return np.stack(columns, axis=-1) if columns else np.zeros((*np.shape(f((x.q, x.v, x.u, x.t))), 0))
