"""User-defined forces, written in Python."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from torsor import spatial
from torsor._check import complex_allowed, listed
from torsor.forces.force import Force, number, require_names
from torsor.model import Model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from torsor._typing import Array, FloatArray
    from torsor.forces.force import Part


class CustomForce(Force):
    """A user-defined force in reduced coordinates.

    Derive a class with the methods `value` and `derivatives`; `energy` if it has one; an attribute `p` (n,) and
    `gradient` if it has parameters. Each takes one state. For complex steps through them, `value` and `energy` must
    accept complex arrays and not use abs, conj or comparisons of complex numbers; `testing.check_force` tests them all.

    The methods run under the interpreter lock, so the force is far slower than a built-in one. Batches are computed
    several states at a time. Set `batched = True` if the methods take leading axes, which avoids a loop in Python: q
    (..., nq), v and w (..., nv), p (..., n), t a number; `value` then returns (..., nv), `derivatives` two arrays (...,
    nv, nv), `energy` (...) and `gradient` (..., n). They are called with leading axes for one state too. Results of a
    state do not depend on the others of its batch if each row is computed independently of the others, roundings
    included, as elementwise operations and `einsum` do; a product of matrices (`@`) may not.

    Gradients of a trajectory of `LinearlyImplicitEuler`, whose steps contain K and D, need second derivatives. They are
    complex steps through `value`, `derivatives` and `gradient`: set `complex_derivatives = True` in the class if all of
    these accept complex arrays.
    """

    p: ArrayLike = ()
    complex_derivatives: ClassVar[bool] = False
    batched: ClassVar[bool] = False
    _frozen: ClassVar[bool] = False

    @abstractmethod
    def value(self, q: Array, v: Array, t: float, p: Array) -> ArrayLike:
        """Generalized forces (nv,) at the state q (nq,), v (nv,), the time t and with the parameters p (n,)."""

    @abstractmethod
    def derivatives(self, q: Array, v: Array, t: float, p: Array) -> tuple[ArrayLike, ArrayLike]:
        """Derivatives (K, D), each (nv, nv), of `value(q, v, t, p)` with respect to q, in the tangent space, and v."""

    def energy(self, q: Array, t: float, p: Array) -> Any:
        """The potential energy at (q, t, p), whose gradient is minus `value` at v = 0; 0 if there is none."""
        return 0.0

    def gradient(self, q: Array, v: Array, t: float, p: Array, w: Array) -> ArrayLike:
        """The gradient (n,) of w . value(q, v, t, p) with respect to p."""
        raise NotImplementedError(f"{type(self).__name__} has parameters p and needs a method gradient")

    @property
    def has_energy(self) -> bool:  # type: ignore[override]
        """Whether the class defines `energy`."""
        return type(self).energy is not CustomForce.energy

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """{"p": p}, or an empty dict without parameters."""
        p = spatial.frozen_array(np.atleast_1d(self.p), (np.size(self.p),), f"p of {type(self).__name__}")
        return {"p": p.copy()} if p.size else {}

    def with_parameters(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with the given `values`, {"p": p}."""
        require_names(values)
        for name in values:
            if name != "p" or not self.parameters:
                known = listed([*self.parameters], name) or "none"
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {known}")
        out = copy(self)
        for value in values.values():
            object.__setattr__(out, "p", spatial.frozen_array(np.atleast_1d(value), (np.size(self.p),), "p"))
        return out

    def _joints(self, model: Model) -> tuple[str, ...]:
        return tuple(j.name for j in model.joints)

    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        return [("custom", self, at.get("p", 0), np.size(self.p))]

    def _checked(self, name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
        spatial.refuse_mask(f"{type(self).__name__}.{name}", value)
        a = np.asarray(value)
        if a.shape != shape or not np.can_cast(a.dtype, dtype, "same_kind"):
            states = f", for {shape[0]} states at once" if self.batched else ""
            raise ValueError(
                f"{type(self).__name__}.{name} gave shape {a.shape} and dtype {a.dtype}, expected {shape} and {dtype}"
                f"{states}"
            )
        return np.ascontiguousarray(a, dtype=dtype)

    # The methods at all rows of their arguments, as the core calls them.

    def _value(self, q: Array, v: Array, t: float, p: Array) -> Array:
        given = self._at_rows(self.value, q, v, t, p)
        return self._stacked("value", given, len(q), v.shape[1:], v.dtype)

    def _derivatives(self, q: Array, v: Array, t: float, p: Array) -> tuple[Array, Array]:
        given = self._at_rows(self.derivatives, q, v, t, p)
        K, D = [], []
        for pair in given:
            try:
                k, d = pair
            except (TypeError, ValueError):
                raise ValueError(f"{type(self).__name__}.derivatives gave {pair!r}, expected (K, D)") from None
            K.append(k)
            D.append(d)
        shape = (v.shape[1], v.shape[1])
        return (
            self._stacked("derivatives", K, len(q), shape, v.dtype),
            self._stacked("derivatives", D, len(q), shape, v.dtype),
        )

    def _energy(self, q: Array, t: float, p: Array) -> Array:
        if not self.has_energy:
            return np.zeros(len(q), q.dtype)
        given = self._at_rows(self.energy, q, t, p)
        if self.batched:
            return self._stacked("energy", given, len(q), (), q.dtype)
        return np.concatenate([number(energy, q.dtype, "energy", self) for energy in given])

    def _gradient(self, q: Array, v: Array, t: float, p: Array, w: Array) -> Array:
        given = self._at_rows(self.gradient, q, v, t, p, w)
        return self._stacked("gradient", given, len(q), p.shape[1:], v.dtype)

    def _at_rows(self, method: Any, q: Array, *others: Any) -> list[Any]:
        """What a method gives at all rows at once or, if it takes one state, at each of them.

        Within it, functions of this library accept complex arrays if q is complex.
        """
        token = complex_allowed.set(q.dtype.kind == "c" or complex_allowed.get())
        try:
            if self.batched:
                return [method(q, *others)]
            return [method(q[i], *[x if x.__class__ is float else x[i] for x in others]) for i in range(len(q))]
        finally:
            complex_allowed.reset(token)

    def _stacked(self, name: str, given: Sequence[Any], rows: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """Results of `_at_rows` in one array (rows, *shape)."""
        if self.batched:
            return self._checked(name, given[0], (rows, *shape), dtype)
        if rows == 1:
            return self._checked(name, given[0], shape, dtype)[None]
        return np.stack([self._checked(name, one, shape, dtype) for one in given])
