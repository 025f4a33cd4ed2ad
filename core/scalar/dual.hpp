// Dual<S>: a value and its derivative along one direction. A recursion evaluated in dual numbers is its own directional
// derivative, line by line: Kim 2012, Tables 5-7, are Tables 2-4 in dual numbers.
#pragma once
#include "scalar/pack.hpp"

namespace torsor {

template <class S>
struct Dual {
  S v, d;
  Dual() = default;
  TORSOR_INLINE Dual(double value) : v(value), d(0.0) {}
  TORSOR_INLINE Dual(const S& value, const S& tangent) : v(value), d(tangent) {}
  // A model's constant, the same in all lanes.
  template <class T, class = std::enable_if_t<!std::is_same_v<S, T> && std::is_constructible_v<S, T>>>
  TORSOR_INLINE Dual(const Dual<T>& c) : v(c.v), d(c.d) {}

  TORSOR_INLINE friend Dual operator+(const Dual& a, const Dual& b) { return {a.v + b.v, a.d + b.d}; }
  TORSOR_INLINE friend Dual operator-(const Dual& a, const Dual& b) { return {a.v - b.v, a.d - b.d}; }
  TORSOR_INLINE friend Dual operator*(const Dual& a, const Dual& b) {
    return {a.v * b.v, mul_add(a.v, b.d, a.d * b.v)};
  }
  TORSOR_INLINE friend Dual operator*(double a, const Dual& b) { return {S(a) * b.v, S(a) * b.d}; }
  TORSOR_INLINE friend Dual operator*(const Dual& a, double b) { return b * a; }
  TORSOR_INLINE friend Dual operator/(const Dual& a, const Dual& b) {
    const S r = S(1.0) / b.v, q = a.v * r;
    return {q, mul_add(-q, b.d, a.d) * r};
  }
  TORSOR_INLINE Dual operator-() const { return {-v, -d}; }
  TORSOR_INLINE Dual& operator+=(const Dual& b) {
    v += b.v;
    d += b.d;
    return *this;
  }
  TORSOR_INLINE Dual& operator-=(const Dual& b) {
    v -= b.v;
    d -= b.d;
    return *this;
  }
  TORSOR_INLINE friend Dual mul_add(const Dual& a, const Dual& b, const Dual& c) {
    return {mul_add(a.v, b.v, c.v), mul_add(a.v, b.d, mul_add(a.d, b.v, c.d))};
  }
  TORSOR_INLINE friend Dual mul_add(double a, const Dual& b, const Dual& c) {
    return {mul_add(S(a), b.v, c.v), mul_add(S(a), b.d, c.d)};
  }
  TORSOR_INLINE friend Dual mul_add(const Dual& a, double b, const Dual& c) { return mul_add(b, a, c); }
  TORSOR_INLINE friend auto less(const Dual& a, const Dual& b) { return less(a.v, b.v); }
  template <class Mask>
  TORSOR_INLINE friend Dual select(const Mask& mask, const Dual& a, const Dual& b) {
    return {select(mask, a.v, b.v), select(mask, a.d, b.d)};
  }
  TORSOR_INLINE friend Dual square_root(const Dual& a) {
    const S r = square_root(a.v);
    return {r, a.d / (r + r)};
  }
  TORSOR_INLINE friend Dual arc_tangent(const Dual& y, const Dual& x) {
    return {arc_tangent(y.v, x.v), mul_add(x.v, y.d, -(y.v * x.d)) / mul_add(x.v, x.v, y.v * y.v)};
  }
  TORSOR_INLINE friend void sincos(const Dual& x, Dual& s, Dual& c) {
    sincos(x.v, s.v, c.v);
    s.d = c.v * x.d;
    c.d = -(s.v * x.d);
  }
};

template <class S>
struct Lanes<Dual<S>> {
  static constexpr int value = Lanes<S>::value;
};
template <class T>
struct IsDual : std::false_type {};
template <class S>
struct IsDual<Dual<S>> : std::true_type {};

}  // namespace torsor
