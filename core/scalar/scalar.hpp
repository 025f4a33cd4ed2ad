// What every scalar type S offers beyond + - * /, for double and std::complex<double>.
//
//   mul_add(a, b, c)   a b + c, rounded once where the machine can. The core is compiled without automatic
//                      contraction, so that one state and a lane of a batch are computed by the same roundings.
//   less(a, b)         mask of a < b, comparing real parts; is_nan(x), and for all but complex numbers
//                      less_equal(a, b), equal(a, b), is_finite(x), larger(a, b), smaller(a, b) and absolute(x)
//   Mask<S>            the type of a mask: bool, or one for each lane. & | ! of masks, select(mask, a, b), any(mask),
//                      first_lane(mask), in_lane(mask, l), lane_count(mask), every_lane<S>(), no_lane<S>(), and
//                      set_lane(x, l, value) of a mask or a number
//   sincos, sqrt, atan2
//   Lanes<S>           how many states an S holds
#pragma once
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

// Inlining throughout is for kernels that are called often (TORSOR_COLD: see core/bind/cold.cpp); instrumented by a
// sanitizer, it would take half an hour to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(TORSOR_COLD)
#define TORSOR_INLINE inline
#define TORSOR_INLINE_LAMBDA
#else
#define TORSOR_INLINE inline __attribute__((always_inline))
#define TORSOR_INLINE_LAMBDA __attribute__((always_inline))
#endif

#if defined(__FMA__) || defined(__aarch64__)
#define TORSOR_FMA 1
#else
#define TORSOR_FMA 0
#endif

namespace torsor {

using Complex = std::complex<double>;
constexpr double kPi = 3.14159265358979323846;

template <class S>
struct Lanes {
  static constexpr int value = 1;
};

TORSOR_INLINE double mul_add(double a, double b, double c) {
#if TORSOR_FMA
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}
TORSOR_INLINE Complex mul_add(const Complex& a, const Complex& b, const Complex& c) { return a * b + c; }

TORSOR_INLINE bool less(double a, double b) { return a < b; }
TORSOR_INLINE bool less(const Complex& a, const Complex& b) { return a.real() < b.real(); }
TORSOR_INLINE bool less_equal(double a, double b) { return a <= b; }
TORSOR_INLINE bool equal(double a, double b) { return a == b; }
TORSOR_INLINE bool is_nan(double x) { return x != x; }
TORSOR_INLINE bool is_nan(const Complex& x) { return x != x; }
TORSOR_INLINE bool any(bool mask) { return mask; }
TORSOR_INLINE int first_lane(bool) { return 0; }
TORSOR_INLINE bool in_lane(bool mask, int) { return mask; }
TORSOR_INLINE void set_lane(bool& mask, int, bool value) { mask = value; }
TORSOR_INLINE int lane_count(bool) { return 1; }
TORSOR_INLINE void set_lane(double& x, int, double value) { x = value; }
TORSOR_INLINE double select(bool mask, double a, double b) { return mask ? a : b; }
TORSOR_INLINE Complex select(bool mask, const Complex& a, const Complex& b) { return mask ? a : b; }

template <class S>
using Mask = decltype(less(std::declval<S>(), std::declval<S>()));
template <class S>
TORSOR_INLINE Mask<S> every_lane() {
  return less(S(0.0), S(1.0));
}

template <class S>
TORSOR_INLINE Mask<S> no_lane() {
  return less(S(1.0), S(0.0));
}

TORSOR_INLINE double absolute(double x) { return std::fabs(x); }
// As std::max and std::min: a where the two cannot be compared.
template <class S>
TORSOR_INLINE S larger(const S& a, const S& b) {
  return select(less(a, b), b, a);
}
template <class S>
TORSOR_INLINE S smaller(const S& a, const S& b) {
  return select(less(b, a), b, a);
}
template <class S>
TORSOR_INLINE Mask<S> is_finite(const S& x) {
  return less(absolute(x), S(std::numeric_limits<double>::infinity()));
}

TORSOR_INLINE double square_root(double x) { return std::sqrt(x); }
TORSOR_INLINE Complex square_root(const Complex& x) { return std::sqrt(x); }
TORSOR_INLINE double arc_tangent(double y, double x) { return std::atan2(y, x); }
// To first order in the imaginary parts, which suffices for complex steps; the usual formula with a logarithm loses an
// imaginary part that is small compared with 1.
TORSOR_INLINE Complex arc_tangent(const Complex& y, const Complex& x) {
  const double n = y.real() * y.real() + x.real() * x.real();
  return {std::atan2(y.real(), x.real()), (y.imag() * x.real() - y.real() * x.imag()) / n};
}

namespace detail {
struct DoubleOps {
  using Value = double;
  static TORSOR_INLINE double fused(double a, double b, double c) { return mul_add(a, b, c); }
  static TORSOR_INLINE uint64_t to_bits(double x) {
    uint64_t i;
    std::memcpy(&i, &x, 8);
    return i;
  }
  static TORSOR_INLINE double from_bits(uint64_t i) {
    double x;
    std::memcpy(&x, &i, 8);
    return x;
  }
};

// Sine and cosine for |x| < 1e5: reduction by multiples of pi/2 held in three parts, then minimax polynomials on
// [-pi/4, pi/4]. One code for a double and for a vector of lanes, so that both round alike.
template <class Ops>
TORSOR_INLINE void sincos_reduced(const typename Ops::Value& x, typename Ops::Value& s, typename Ops::Value& c) {
  using V = typename Ops::Value;
  const auto fused = [](const V& p, const V& q, const V& r) TORSOR_INLINE_LAMBDA { return Ops::fused(p, q, r); };
  const auto constant = [](double value) { return value - V{}; };
  const V round_to_integer = constant(6755399441055744.0);  // 1.5 * 2^52
  const V t = fused(x, constant(0.63661977236758134308), round_to_integer);
  const V k = t - round_to_integer;
  const auto quadrant = Ops::to_bits(t);
  V r = fused(k, constant(-1.57079632673412561417e+00), x);
  r = fused(k, constant(-6.07710050630396597660e-11), r);
  r = fused(k, constant(-2.02226624879595063154e-21), r);
  const V z = r * r;
  V ps = fused(z, constant(1.58969099521155010221e-10), constant(-2.50507602534068634195e-08));
  ps = fused(ps, z, constant(2.75573137070700676789e-06));
  ps = fused(ps, z, constant(-1.98412698298579493134e-04));
  ps = fused(ps, z, constant(8.33333333332248946124e-03));
  ps = fused(ps, z, constant(-1.66666666666666324348e-01));
  ps = fused(ps, z * r, r);
  V pc = fused(z, constant(-1.13596475577881948265e-11), constant(2.08757232129817482790e-09));
  pc = fused(pc, z, constant(-2.75573143513906633035e-07));
  pc = fused(pc, z, constant(2.48015872894767294178e-05));
  pc = fused(pc, z, constant(-1.38888888888741095749e-03));
  pc = fused(pc, z, constant(4.16666666666666019037e-02));
  pc = fused(pc, z * z, fused(z, constant(-0.5), constant(1.0)));
  const auto odd = (quadrant & 1) != 0;
  s = Ops::from_bits(Ops::to_bits(odd ? pc : ps) ^ ((quadrant & 2) << 62));
  c = Ops::from_bits(Ops::to_bits(odd ? ps : pc) ^ (((quadrant + 1) & 2) << 62));
}
constexpr double sincos_range = 1e5;
}  // namespace detail

TORSOR_INLINE void sincos(double x, double& s, double& c) {
  if (__builtin_expect(!(std::fabs(x) < detail::sincos_range), 0)) {
    s = std::sin(x);
    c = std::cos(x);
  } else {
    detail::sincos_reduced<detail::DoubleOps>(x, s, c);
  }
}
TORSOR_INLINE void sincos(const Complex& x, Complex& s, Complex& c) {
  s = std::sin(x);
  c = std::cos(x);
}

// y += s x
template <class S>
TORSOR_INLINE void add_scaled(int n, const std::common_type_t<S>& s, const S* x, S* y) {
  for (int k = 0; k < n; ++k) y[k] = mul_add(s, x[k], y[k]);
}
// The same in some lanes.
template <class S>
TORSOR_INLINE void add_scaled_where(const Mask<S>& lanes, int n, const std::common_type_t<S>& s, const S* x, S* y) {
  if (!any(lanes)) return;
  if (!any(!lanes)) return add_scaled(n, s, x, y);
  for (int k = 0; k < n; ++k) y[k] = select(lanes, mul_add(s, x[k], y[k]), y[k]);
}

}  // namespace torsor
