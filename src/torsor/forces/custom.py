"""User-defined forces, written in Python."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
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

    The methods run under the interpreter lock, once for each evaluation, so the force is far slower than a built-in
    one.

    Gradients of a trajectory of `LinearlyImplicitEuler`, whose steps contain K and D, need second derivatives. They are
    complex steps through `value`, `derivatives` and `gradient`: set `complex_derivatives = True` in the class if all of
    these accept complex arrays.
    """

    p: ArrayLike = ()
    complex_derivatives: ClassVar[bool] = False
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
                known = listed([*self.parameters]) or "none"
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
            raise ValueError(
                f"{type(self).__name__}.{name} gave shape {a.shape} and dtype {a.dtype}, expected {shape} and {dtype}"
            )
        return np.ascontiguousarray(a, dtype=dtype)

    def _value(self, q: Array, v: Array, t: float, p: Array) -> Array:
        return self._checked("value", self._allowing(q, self.value, q, v, t, p), v.shape, v.dtype)

    def _derivatives(self, q: Array, v: Array, t: float, p: Array) -> tuple[Array, Array]:
        given = self._allowing(q, self.derivatives, q, v, t, p)
        try:
            K, D = given
        except (TypeError, ValueError):
            raise ValueError(f"{type(self).__name__}.derivatives gave {given!r}, expected (K, D)") from None
        shape = (v.size, v.size)
        return self._checked("derivatives", K, shape, v.dtype), self._checked("derivatives", D, shape, v.dtype)

    def _energy(self, q: Array, t: float, p: Array) -> Array:
        return number(self._allowing(q, self.energy, q, t, p), q.dtype, "energy", self)

    def _gradient(self, q: Array, v: Array, t: float, p: Array, w: Array) -> Array:
        return self._checked("gradient", self._allowing(q, self.gradient, q, v, t, p, w), p.shape, v.dtype)

    @staticmethod
    def _allowing(q: Array, method: Any, *arguments: Any) -> Any:
        """Calls a method, within which functions of this library accept complex arrays if q is complex."""
        token = complex_allowed.set(q.dtype.kind == "c" or complex_allowed.get())
        try:
            return method(*arguments)
        finally:
            complex_allowed.reset(token)
