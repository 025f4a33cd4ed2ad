// Exponentials, logarithms and quaternions.
#pragma once
#include "spatial/motion.hpp"

namespace torsor {

// Stumpff functions c_m(x) = sum_i (-x)^i / (m + 2i)!, m = 0..N-1 (N >= 4, even): c_0 = cos, c_1 = sin(t)/t, ... of
// t = sqrt(x). Below x = 4 by the series of the last two and c_m = 1/m! - x c_{m+2}; above from sine and cosine.
template <int N, class S>
inline void stumpff(const S& x, S* c) {
  constexpr double limit = 4.0;
  double inverse_factorial[N + 34];
  inverse_factorial[0] = 1.0;
  for (int m = 1; m < N + 34; ++m) inverse_factorial[m] = inverse_factorial[m - 1] / m;
  const auto large = less(S(limit), x);
  S a = S(0.0), b = S(0.0);
  for (int i = 15; i >= 0; --i) {
    a = mul_add(-x, a, S(inverse_factorial[N - 2 + 2 * i]));
    b = mul_add(-x, b, S(inverse_factorial[N - 1 + 2 * i]));
  }
  c[N - 2] = a;
  c[N - 1] = b;
  for (int m = N - 3; m >= 0; --m) c[m] = mul_add(-x, c[m + 2], S(inverse_factorial[m]));
  if (any(large)) {
    const S y = select(large, x, S(limit)), t = square_root(y);
    S s, k;
    sincos(t, s, k);
    S up[N];
    up[0] = k;
    up[1] = s / t;
    for (int m = 2; m < N; ++m) up[m] = (S(inverse_factorial[m - 2]) - up[m - 2]) / y;
    for (int m = 0; m < N; ++m) c[m] = select(large, up[m], c[m]);
  }
}

// 1 + c1 [w] + c2 [w]^2
template <class S>
inline Mat3<S> rotation_from(const Vec3<S>& w, const S& c1, const S& c2) {
  const Vec3<S> u = c1 * w, t = c2 * w;
  const S xx = t.x * w.x, yy = t.y * w.y, zz = t.z * w.z, xy = t.x * w.y, xz = t.x * w.z, yz = t.y * w.z;
  const S one(1.0);
  return {{one - (yy + zz), xy + u.z, xz - u.y},
          {xy - u.z, one - (xx + zz), yz + u.x},
          {xz + u.y, yz - u.x, one - (xx + yy)}};
}
template <class S>
inline SE3<S> exponential(const Motion<S>& m) {
  S c[4];
  stumpff<4>(dot(m.w, m.w), c);
  const Vec3<S> wv = cross(m.w, m.v);
  return {rotation_from(m.w, c[1], c[2]), mul_add(c[3], cross(m.w, wv), mul_add(c[2], wv, m.v))};
}

// Unit quaternions, xyzw.
template <class S>
struct Quaternion {
  Vec3<S> v;
  S w;
};
template <class S>
TORSOR_INLINE Quaternion<S> read_quaternion(const S* q) {
  return {read3(q), q[3]};
}
// q scaled so that its square neither overflows nor underflows.
template <class S>
TORSOR_INLINE Quaternion<S> tamed(const Quaternion<S>& q) {
  const S square = dot_add(q.v, q.v, q.w * q.w), least(1e-200), most(1e200);
  const auto tiny = less(square, least), huge = less(most, square);
  if (__builtin_expect(any(tiny) || any(huge), 0)) {
    const S k = select(tiny, S(1e150), select(huge, S(1e-150), S(1.0)));
    const Quaternion<S> once{k * q.v, k * q.w};
    const S again = dot_add(once.v, once.v, once.w * once.w);  // a second scaling covers the whole range of doubles
    const S l = select(less(again, least), S(1e150), select(less(most, again), S(1e-150), S(1.0)));
    return {l * once.v, l * once.w};
  }
  return q;
}
template <class S>
TORSOR_INLINE Quaternion<S> normalized(const Quaternion<S>& given) {
  const Quaternion<S> q = tamed(given);
  const S s = S(1.0) / square_root(dot_add(q.v, q.v, q.w * q.w));
  return {s * q.v, s * q.w};
}
template <class S>
TORSOR_INLINE Quaternion<S> operator*(const Quaternion<S>& a, const Quaternion<S>& b) {
  return {cross_add(a.v, b.v, mul_add(a.w, b.v, b.w * a.v)), mul_add(a.w, b.w, -dot(a.v, b.v))};
}
// The rotation matrix of a quaternion of any length but 0.
template <class S>
TORSOR_INLINE Mat3<S> matrix(const Quaternion<S>& given) {
  const Quaternion<S> q = tamed(given);
  const S s = S(2.0) / dot_add(q.v, q.v, q.w * q.w);
  const Vec3<S> d = s * q.v;
  const S xx = q.v.x * d.x, yy = q.v.y * d.y, zz = q.v.z * d.z, xy = q.v.x * d.y, xz = q.v.x * d.z, yz = q.v.y * d.z;
  const S wx = q.w * d.x, wy = q.w * d.y, wz = q.w * d.z, one(1.0);
  return {
      {one - (yy + zz), xy + wz, xz - wy}, {xy - wz, one - (xx + zz), yz + wx}, {xz + wy, yz - wx, one - (xx + yy)}};
}
template <class S>
inline Quaternion<S> quaternion_exponential(const Vec3<S>& w) {
  const Vec3<S> half = S(0.5) * w;
  S c[4];
  stumpff<4>(dot(half, half), c);
  return {c[1] * half, c[0]};
}
// The shorter rotation vector of a unit quaternion: angle at most pi.
template <class S>
inline Vec3<S> quaternion_logarithm(const Quaternion<S>& q) {
  const auto flip = less(q.w, S(0.0));
  const Vec3<S> v{select(flip, -q.v.x, q.v.x), select(flip, -q.v.y, q.v.y), select(flip, -q.v.z, q.v.z)};
  const S w = select(flip, -q.w, q.w), x = dot(v, v);
  // asin(s)/s by its series where the square root would lose the derivative; 2 atan2(s, w)/s elsewhere.
  const auto tiny = less(x, S(1e-6));
  const S series = S(2.0) * mul_add(x, mul_add(x, mul_add(x, S(15.0 / 336.0), S(3.0 / 40.0)), S(1.0 / 6.0)), S(1.0));
  const S y = select(tiny, S(1.0), x), s = square_root(y);
  const S factor = select(tiny, series, S(2.0) * arc_tangent(s, w) / s);
  return factor * v;
}
// v with exponential((w, v)) = (exp w, p).
template <class S>
inline Vec3<S> translation_logarithm(const Vec3<S>& w, const Vec3<S>& p) {
  // V^-1 = 1 - [w]/2 + e [w]^2 with e = (2 c2 - c1) / (2 x c2), where 2 c2 - c1 = x (c3 - 2 c4) without cancellation,
  // because c1 = 1 - x c3 and 2 c2 = 1 - 2 x c4.
  S c[6];
  stumpff<6>(dot(w, w), c);
  const S e = (c[3] - S(2.0) * c[4]) / (S(2.0) * c[2]);
  const Vec3<S> wp = cross(w, p);
  return mul_add(e, cross(w, wp), mul_add(S(-0.5), wp, p));
}

}  // namespace torsor
