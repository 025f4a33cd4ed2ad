"""User-defined costs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor._check import complex_allowed
from torsor._core import complex_step
from torsor.costs.cost import Cost, CostValue, States, symmetric, when
from torsor.model import Model

if TYPE_CHECKING:
    from torsor._typing import Array, At, AtLike, FloatArray, Inputs


_REAL_STEP = 1e-6  # of differences that detect whether a function depends on an input
_ROUNDING = 1e-14  # of a cost, relative
_CASTING = "Casting complex values"  # how NumPy's ComplexWarning begins
_PAIRS = (("q", "q"), ("q", "v"), ("q", "u"), ("v", "v"), ("v", "u"), ("u", "u"))


@final
@dataclass(frozen=True, init=False)
class CustomCost(Cost):
    """A user-defined cost.

    All functions are called with batches of states: q (..., nq), v (..., nv), u (..., nu), t (...), with None for those
    of q, v and u that are not in `inputs`. `testing.check_cost` tests them.

    Parameters
    ----------
    function : callable
        function(q, v, u, t) returns the cost (...).
    gradient : callable, optional
        gradient(q, v, u, t) returns (dq, dv, du), each (..., n), or None where it is zero; dq in the tangent space. By
        default complex steps through the function, which must accept complex arrays and not use abs, norm, conj or
        float: one call for each of nv + nv + nu directions.
    hessian : callable, optional
        hessian(q, v, u, t) returns (dqdq, dqdv, dqdu, dvdv, dvdu, dudu), each (..., n, m), or None where it is zero. By
        default complex steps through the gradient, which must then be given and accept complex arrays.
    inputs : str
        Those of "q", "v" and "u" on which the cost depends, as "qv"; it may always depend on t.
    at : int, slice, list of int or "time"
        Rows of a trajectory over which the cost is summed, by default the last one; or "time" for its integral. A cost
        of controls is an integral.

    Examples
    --------
    >>> cost = ts.CustomCost(lambda q, v, u, t: (v * v).sum(-1), at="time")
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
        inputs: Inputs = "qv",
        at: AtLike = -1,
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
        calls = _Calls(self, x)
        here = {"q": x.q, "v": x.v, "u": x.u}
        (value,) = calls("function", here)
        if self.gradient is not None:
            first = calls("gradient", here)
        else:
            first = [calls.complex_steps("function", 0, a) if a in self.inputs else None for a in "qvu"]
        if not hessians:
            return CostValue(value, *first)
        if self.hessian is not None:
            return CostValue(value, *first, *calls("hessian", here))
        if self.gradient is None:
            raise TypeError(
                "second derivatives of a CustomCost are complex steps through its gradient, which was not given; give "
                "gradient=, written for complex arrays, or hessian="
            )
        second: list[FloatArray | None] = []
        for a, b in _PAIRS:
            known = a in self.inputs and b in self.inputs
            block = calls.complex_steps("gradient", "qvu".index(a), b) if known else None
            second.append(symmetric(block) if block is not None and a + b == "qq" else block)
        return CostValue(value, *first, *second)


class _Calls:
    """Calls of the user-defined functions in one evaluation, at its states and at complex steps from them."""

    def __init__(self, cost: CustomCost, x: States) -> None:
        self.cost, self.x = cost, x
        self.sizes = {"q": x.model.nv, "v": x.model.nv, "u": 0 if x.u is None else x.u.shape[-1]}
        self.shapes = {
            "function": [x.shape],
            "gradient": [(*x.shape, self.sizes[a]) for a in "qvu"],
            "hessian": [(*x.shape, self.sizes[a], self.sizes[b]) for a, b in _PAIRS],
        }
        self.independent: set[tuple[str, str, tuple[int, ...]]] = set()

    def __call__(self, name: str, at: dict[str, Any]) -> list[Any]:
        """The results of a function at q, v and u, of their dtype."""
        dtype = np.result_type(float, *(at[a].dtype for a in self.cost.inputs))
        found = self._checked(name, at, dtype)
        if dtype.kind == "c":
            real = tuple(k for k, part in enumerate(found) if part is not None and part.dtype.kind != "c")
            self._require_independent(name, at, real)
        return [None if part is None else part.astype(dtype, copy=False) for part in found]

    def complex_steps(self, name: str, part: int, along: str) -> FloatArray:
        """The derivative (..., n) of one result of a function along q, in the tangent space, v or u."""
        x, n = self.x, self.sizes[along]
        out = np.zeros((*self.shapes[name][part], n))
        for k in range(n):
            step = np.zeros(n, complex)
            step[k] = 1j * complex_step
            found = self(name, {"q": x.q, "v": x.v, "u": x.u, along: self._moved(along, getattr(x, along), step)})[part]
            if found is not None:
                out[..., k] = found.imag / complex_step
        return out

    def _moved(self, along: str, at: Array, step: Array) -> Array:
        if along != "q":
            return at + step
        token = complex_allowed.set(True)
        try:
            return np.asarray(self.x.model.plus(at, step))
        finally:
            complex_allowed.reset(token)

    def _checked(self, name: str, at: dict[str, Any], dtype: Any) -> list[Any]:
        """The results of a function, validated, one for each of its shapes."""
        given, shapes = self._given(name, at, dtype.kind == "c"), self.shapes[name]
        if name == "function":
            given = (given,)
        if not isinstance(given, (tuple, list)) or len(given) != len(shapes):
            raise ValueError(f"{name} of CustomCost gave {given!r}, expected a tuple of {len(shapes)} arrays or None")
        out: list[Any] = []
        for part, shape in zip(given, shapes, strict=True):
            if part is None and name != "function":
                out.append(None)
                continue
            a = np.asarray(part)
            if a.shape != shape or not np.can_cast(a.dtype, dtype, "same_kind"):
                raise ValueError(
                    f"{name} of CustomCost gave shape {a.shape} and dtype {a.dtype}, expected {shape} and {dtype}; "
                    f"it is called with all states at a time{self._left_out(', and with {}')}"
                )
            out.append(a)
        return out

    def _given(self, name: str, at: dict[str, Any], complex_steps: bool) -> Any:
        """Calls a function, within which functions of this library accept complex arrays if it gets complex ones."""
        inputs = self.cost.inputs
        token = complex_allowed.set(complex_steps or complex_allowed.get())
        try:
            with warnings.catch_warnings() if complex_steps else nullcontext():
                if complex_steps:  # float(x) and the like take the real part
                    warnings.filterwarnings("error", message=_CASTING)
                states = (at[a] if a in inputs else None for a in "qvu")
                return getattr(self.cost, name)(*states, np.broadcast_to(self.x.t, self.x.shape))
        except RuntimeWarning as warning:
            if _CASTING not in str(warning):
                raise
            raise self._not_analytic(name, f"takes no complex numbers: {warning}") from warning
        except (TypeError, AttributeError, IndexError) as error:
            if complex_steps:
                raise self._not_analytic(name, f"takes no complex numbers: {error}") from error
            if not (left_out := self._left_out(". It is called with {}")):
                raise
            raise TypeError(f"{name} of CustomCost failed: {error}{left_out}") from error
        finally:
            complex_allowed.reset(token)

    def _left_out(self, text: str) -> str:
        """A part of a message: the inputs with which the functions are not called."""
        inputs = self.cost.inputs
        names = " and ".join(a for a in "qvu" if a not in inputs)
        return text.format(f"None for {names}, as inputs is {inputs!r}; name all inputs that it reads") if names else ""

    def _require_independent(self, name: str, at: dict[str, Any], parts: tuple[int, ...]) -> None:
        """Real results for complex states are correct only if they do not depend on them, which real steps detect."""
        along = "".join(a for a in self.cost.inputs if at[a].dtype.kind == "c")
        if not parts or (name, along, parts) in self.independent:
            return
        here: dict[str, Any] = {a: None if at[a] is None else at[a].real for a in "qvu"}
        rng = np.random.default_rng(0)
        steps = {a: _REAL_STEP * rng.uniform(0.5, 1.0, self.sizes[a]) for a in along}
        before, *after = (
            self._checked(name, here | {a: self._moved(a, here[a], sign * steps[a]) for a in along}, np.dtype(float))
            for sign in (0.0, 1.0, -1.0)
        )
        for k in parts:
            for moved in after:
                a, b = (np.zeros(()) if found[k] is None else found[k] for found in (before, moved))
                if not np.allclose(a, b, rtol=_ROUNDING, atol=0.0, equal_nan=True):
                    of = " and ".join(along)
                    raise self._not_analytic(name, f"gave real numbers for complex {of}, but depends on {of}")
        self.independent.add((name, along, parts))

    def _not_analytic(self, name: str, what: str) -> TypeError:
        derivative = {"function": "gradient", "gradient": "hessian"}.get(name)
        instead = f", or give {derivative}=" if derivative and getattr(self.cost, derivative) is None else ""
        return TypeError(
            f"{name} of CustomCost {what}. It is differentiated by complex steps: write it for complex numbers, "
            f"without abs, norm, conj or float, such as (v * v).sum(-1) for a squared norm{instead}"
        )
