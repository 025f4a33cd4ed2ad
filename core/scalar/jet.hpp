// Jet<S, N>: a value and its derivatives along N directions, for short functions whose derivatives are asked for at
// once, such as gaps between shapes. S may be any scalar, so that these derivatives can be differentiated again.
#pragma once
#include "scalar/pack.hpp"

namespace torsor {

template <class S, int N>
struct Jet {
  S v, d[N];
  Jet() = default;
  TORSOR_INLINE Jet(double value) : v(value) {
    for (int k = 0; k < N; ++k) d[k] = S(0.0);
  }
  template <class T, class = std::enable_if_t<std::is_same_v<S, T> && !std::is_same_v<T, double>>>
  TORSOR_INLINE Jet(const T& value) : v(value) {
    for (int k = 0; k < N; ++k) d[k] = S(0.0);
  }

  TORSOR_INLINE friend Jet operator+(const Jet& a, const Jet& b) {
    return along(a.v + b.v, [&](int k) { return a.d[k] + b.d[k]; });
  }
  TORSOR_INLINE friend Jet operator-(const Jet& a, const Jet& b) {
    return along(a.v - b.v, [&](int k) { return a.d[k] - b.d[k]; });
  }
  TORSOR_INLINE friend Jet operator*(const Jet& a, const Jet& b) {
    return along(a.v * b.v, [&](int k) { return mul_add(a.v, b.d[k], a.d[k] * b.v); });
  }
  TORSOR_INLINE friend Jet operator*(double a, const Jet& b) {
    return along(S(a) * b.v, [&](int k) { return S(a) * b.d[k]; });
  }
  TORSOR_INLINE friend Jet operator*(const Jet& a, double b) { return b * a; }
  TORSOR_INLINE friend Jet operator/(const Jet& a, const Jet& b) {
    const S r = S(1.0) / b.v, q = a.v * r;
    return along(q, [&](int k) { return mul_add(-q, b.d[k], a.d[k]) * r; });
  }
  TORSOR_INLINE Jet operator-() const {
    return along(-v, [&](int k) { return -d[k]; });
  }
  TORSOR_INLINE Jet& operator+=(const Jet& b) { return *this = *this + b; }
  TORSOR_INLINE Jet& operator-=(const Jet& b) { return *this = *this - b; }
  TORSOR_INLINE friend Jet mul_add(const Jet& a, const Jet& b, const Jet& c) {
    return along(mul_add(a.v, b.v, c.v), [&](int k) { return mul_add(a.v, b.d[k], mul_add(a.d[k], b.v, c.d[k])); });
  }
  TORSOR_INLINE friend Jet mul_add(double a, const Jet& b, const Jet& c) {
    return along(mul_add(S(a), b.v, c.v), [&](int k) { return mul_add(S(a), b.d[k], c.d[k]); });
  }
  TORSOR_INLINE friend Jet mul_add(const Jet& a, double b, const Jet& c) { return mul_add(b, a, c); }
  TORSOR_INLINE friend auto less(const Jet& a, const Jet& b) { return less(a.v, b.v); }
  TORSOR_INLINE friend auto is_nan(const Jet& a) { return is_nan(a.v); }
  template <class Mask>
  TORSOR_INLINE friend Jet select(const Mask& mask, const Jet& a, const Jet& b) {
    return along(select(mask, a.v, b.v), [&](int k) { return select(mask, a.d[k], b.d[k]); });
  }
  TORSOR_INLINE friend Jet square_root(const Jet& a) {
    const S r = square_root(a.v), half = S(0.5) / r;
    return along(r, [&](int k) { return half * a.d[k]; });
  }

 private:
  template <class F>
  static TORSOR_INLINE Jet along(const S& value, F&& derivative) {
    Jet out;
    out.v = value;
    for (int k = 0; k < N; ++k) out.d[k] = derivative(k);
    return out;
  }
};

template <class S, int N>
struct Lanes<Jet<S, N>> {
  static constexpr int value = Lanes<S>::value;
};

}  // namespace torsor
