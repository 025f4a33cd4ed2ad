// What a scalar is without its outermost derivatives: Jet<S, N> and Dual<S> have the value S, Complex has double.
// Iterations run on values; one Newton step in T then gives the derivatives of what was found.
#pragma once
#include "scalar/dual.hpp"
#include "scalar/jet.hpp"
#include "spatial/vector.hpp"

namespace torsor {

template <class T>
struct Lower {
  using Value = T;
  static TORSOR_INLINE const T& value(const T& x) { return x; }
  static TORSOR_INLINE const T& raise(const T& x) { return x; }
};
template <>
struct Lower<Complex> {
  using Value = double;
  static TORSOR_INLINE double value(const Complex& x) { return x.real(); }
  static TORSOR_INLINE Complex raise(double x) { return {x, 0.0}; }
};
template <class S>
struct Lower<Dual<S>> {
  using Value = S;
  static TORSOR_INLINE const S& value(const Dual<S>& x) { return x.v; }
  static TORSOR_INLINE Dual<S> raise(const S& x) { return {x, S(0.0)}; }
};
template <class S, int N>
struct Lower<Jet<S, N>> {
  using Value = S;
  static TORSOR_INLINE const S& value(const Jet<S, N>& x) { return x.v; }
  static TORSOR_INLINE Jet<S, N> raise(const S& x) { return x; }
};

template <class T>
using Value = typename Lower<T>::Value;
template <class T>
constexpr bool is_plain = std::is_same_v<Value<T>, T>;
template <class T>
TORSOR_INLINE Value<T> value(const T& x) {
  return Lower<T>::value(x);
}
template <class T>
TORSOR_INLINE Vec3<Value<T>> value(const Vec3<T>& x) {
  return {value(x.x), value(x.y), value(x.z)};
}
template <class T>
TORSOR_INLINE T raised(const Value<T>& x) {
  return Lower<T>::raise(x);
}
template <class T>
TORSOR_INLINE Vec3<T> raised(const Vec3<Value<T>>& x) {
  return {raised<T>(x.x), raised<T>(x.y), raised<T>(x.z)};
}
// x with the value 0. A residual that is 0 but for rounding must not be multiplied by derivatives.
template <class T>
TORSOR_INLINE T derivatives_of(const T& x) {
  return x - raised<T>(value(x));
}
// The same of all orders: x less a constant.
template <class T>
TORSOR_INLINE T without_constant(const T& x) {
  if constexpr (is_plain<T>)
    return T(0.0);
  else if constexpr (is_plain<Value<T>>)
    return derivatives_of(x);
  else
    return derivatives_of(x) + raised<T>(without_constant(value(x)));
}

}  // namespace torsor
