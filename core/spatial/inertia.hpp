// Inertias: of rigid bodies, of articulated ones, and Singh's B of Coriolis forces.
#pragma once
#include "spatial/motion.hpp"

namespace torsor {

// Rigid-body inertia about the origin of its frame: mass m, first moment h = m c, second moment J.
template <class S>
struct RigidInertia {
  S m;
  Vec3<S> h;
  Sym3<S> J;
  TORSOR_INLINE RigidInertia& operator+=(const RigidInertia& b) {
    m += b.m;
    h += b.h;
    J += b.J;
    return *this;
  }
};
template <class A, class B>
TORSOR_INLINE Force<Mul<A, B>> operator*(const RigidInertia<A>& I, const Motion<B>& a) {
  return {cross_add(I.h, a.v, I.J * a.w), cross_add(a.w, I.h, I.m * a.v)};
}
template <class S>
TORSOR_INLINE RigidInertia<S> zero_inertia() {
  const S o(0.0);
  return {o, {o, o, o}, {o, o, o, o, o, o}};
}
template <class S, class C>
TORSOR_INLINE RigidInertia<S> lift(const RigidInertia<C>& I) {
  const Sym3<C>& J = I.J;
  return {S(I.m), lift<S>(I.h), {S(J.xx), S(J.yy), S(J.zz), S(J.xy), S(J.xz), S(J.yz)}};
}
template <class S, class C>
TORSOR_INLINE RigidInertia<S> rotate(const Mat3<S>& R, const RigidInertia<C>& I) {
  return {S(I.m), R * I.h, rotate(R, I.J)};
}
// With g = h + m r:  J' = J + (r.h + r.g) 1 - (r h^T + h r^T + m r r^T), the last bracket written as r h^T + g r^T.
template <class S>
TORSOR_INLINE RigidInertia<S> shift_back(const RigidInertia<S>& I, const Vec3<S>& r) {
  const Vec3<S> g = mul_add(I.m, r, I.h);
  const Vec3<S>& h = I.h;
  const S xx = mul_add(r.x, h.x, g.x * r.x), yy = mul_add(r.y, h.y, g.y * r.y), zz = mul_add(r.z, h.z, g.z * r.z);
  const Sym3<S>& J = I.J;
  return {I.m,
          g,
          {J.xx + (yy + zz), J.yy + (xx + zz), J.zz + (xx + yy), J.xy - mul_add(r.x, h.y, g.x * r.y),
           J.xz - mul_add(r.x, h.z, g.x * r.z), J.yz - mul_add(r.y, h.z, g.y * r.z)}};
}

// Articulated-body inertia: the symmetric 6 x 6 matrix [[A, H], [H^T, M]] on (w, v).
template <class S>
struct ArticulatedInertia {
  Sym3<S> A, M;
  Mat3<S> H;
  TORSOR_INLINE Force<S> operator*(const Motion<S>& a) const {
    return {mul_add(H, a.v, A * a.w),
            {dot_add(H.x, a.w, dot(M.column_x(), a.v)), dot_add(H.y, a.w, dot(M.column_y(), a.v)),
             dot_add(H.z, a.w, dot(M.column_z(), a.v))}};
  }
  TORSOR_INLINE Force<S> times_angular(const Vec3<S>& w) const { return {A * w, transposed(H, w)}; }
  TORSOR_INLINE Force<S> times_linear(const Vec3<S>& v) const { return {H * v, M * v}; }
  TORSOR_INLINE ArticulatedInertia& operator+=(const ArticulatedInertia& b) {
    A += b.A;
    M += b.M;
    H.x += b.H.x;
    H.y += b.H.y;
    H.z += b.H.z;
    return *this;
  }
  TORSOR_INLINE ArticulatedInertia& operator+=(const RigidInertia<S>& b) {
    A += b.J;
    M.xx += b.m;
    M.yy += b.m;
    M.zz += b.m;
    H.x.y += b.h.z;
    H.x.z -= b.h.y;
    H.y.x -= b.h.z;
    H.y.z += b.h.x;
    H.z.x += b.h.y;
    H.z.y -= b.h.x;
    return *this;
  }
  // this -= s U U^T
  TORSOR_INLINE void subtract(const S& s, const Force<S>& U) {
    const Vec3<S> n = (-s) * U.n, f = (-s) * U.f;
    A = {mul_add(n.x, U.n.x, A.xx), mul_add(n.y, U.n.y, A.yy), mul_add(n.z, U.n.z, A.zz),
         mul_add(n.x, U.n.y, A.xy), mul_add(n.x, U.n.z, A.xz), mul_add(n.y, U.n.z, A.yz)};
    M = {mul_add(f.x, U.f.x, M.xx), mul_add(f.y, U.f.y, M.yy), mul_add(f.z, U.f.z, M.zz),
         mul_add(f.x, U.f.y, M.xy), mul_add(f.x, U.f.z, M.xz), mul_add(f.y, U.f.z, M.yz)};
    H = {mul_add(f.x, U.n, H.x), mul_add(f.y, U.n, H.y), mul_add(f.z, U.n, H.z)};
  }
};
template <class S>
TORSOR_INLINE ArticulatedInertia<S> articulated(const RigidInertia<S>& I) {
  const S o(0.0);
  const Vec3<S>& h = I.h;
  return {I.J, {I.m, I.m, I.m, o, o, o}, {{o, h.z, -h.y}, {-h.z, o, h.x}, {h.y, -h.x, o}}};
}
template <class S>
TORSOR_INLINE ArticulatedInertia<S> zero_articulated() {
  const S o(0.0);
  return {{o, o, o, o, o, o}, {o, o, o, o, o, o}, {{o, o, o}, {o, o, o}, {o, o, o}}};
}
//   H' = H + [r] M,   A' = A - H [r] + [r] H'^T,   M' = M.
template <class S>
TORSOR_INLINE ArticulatedInertia<S> shift_back(const ArticulatedInertia<S>& I, const Vec3<S>& r) {
  const Mat3<S> H{cross_add(r, I.M.column_x(), I.H.x), cross_add(r, I.M.column_y(), I.H.y),
                  cross_add(r, I.M.column_z(), I.H.z)};
  // (-H [r])_ij = (r x row_i(H))_j,  ([r] H'^T)_ij = (r x row_j(H'))_i
  const Vec3<S> hx = I.H.row_x(), hy = I.H.row_y(), hz = I.H.row_z();
  const Vec3<S> gx = H.row_x(), gy = H.row_y(), gz = H.row_z();
  const auto cx = [&](const Vec3<S>& a, const S& c) { return mul_add(r.y, a.z, mul_add(-r.z, a.y, c)); };
  const auto cy = [&](const Vec3<S>& a, const S& c) { return mul_add(r.z, a.x, mul_add(-r.x, a.z, c)); };
  const auto cz = [&](const Vec3<S>& a, const S& c) { return mul_add(r.x, a.y, mul_add(-r.y, a.x, c)); };
  const Sym3<S> A{cx(hx, cx(gx, I.A.xx)), cy(hy, cy(gy, I.A.yy)), cz(hz, cz(gz, I.A.zz)),
                  cy(hx, cx(gy, I.A.xy)), cz(hx, cx(gz, I.A.xz)), cz(hy, cy(gz, I.A.yz))};
  return {A, I.M, H};
}

// 2 B = [[T - [n], 0], [-2 [f], 0]] with T symmetric and (n, f) = I v: twelve numbers.
template <class S>
struct CoriolisInertia {
  Sym3<S> T;
  Vec3<S> n, f;
  TORSOR_INLINE CoriolisInertia& operator+=(const CoriolisInertia& b) {
    T += b.T;
    n += b.n;
    f += b.f;
    return *this;
  }
  // 2 B a
  TORSOR_INLINE Force<S> operator*(const Motion<S>& a) const {
    return {T * a.w - cross(n, a.w), S(-2.0) * cross(f, a.w)};
  }
};
template <class S>
TORSOR_INLINE CoriolisInertia<S> coriolis_inertia(const RigidInertia<S>& I, const Motion<S>& V) {
  const Vec3<S>&w = V.w, &u = V.v, &h = I.h;
  // [w] J + ([w] J)^T + 2 (u.h) 1 - h u^T - u h^T
  const Vec3<S> a = cross(w, I.J.column_x()), b = cross(w, I.J.column_y()), c = cross(w, I.J.column_z());
  const S xx = h.x * u.x, yy = h.y * u.y, zz = h.z * u.z, two(2.0);
  const Force<S> Iv = I * V;
  return {
      {two * (a.x + yy + zz), two * (b.y + xx + zz), two * (c.z + xx + yy), a.y + b.x - mul_add(h.x, u.y, h.y * u.x),
       a.z + c.x - mul_add(h.x, u.z, h.z * u.x), b.z + c.y - mul_add(h.y, u.z, h.z * u.y)},
      Iv.n,
      Iv.f};
}
//   T' = T + 2 (r.f) 1 - f r^T - r f^T,   n' = n + r x f,   f' = f
template <class S>
TORSOR_INLINE CoriolisInertia<S> shift_back(const CoriolisInertia<S>& B, const Vec3<S>& r) {
  const Vec3<S>& f = B.f;
  const S xx = r.x * f.x, yy = r.y * f.y, zz = r.z * f.z, two(2.0);
  const Sym3<S>& T = B.T;
  return {
      {mul_add(two, yy + zz, T.xx), mul_add(two, xx + zz, T.yy), mul_add(two, xx + yy, T.zz),
       T.xy - mul_add(f.x, r.y, r.x * f.y), T.xz - mul_add(f.x, r.z, r.x * f.z), T.yz - mul_add(f.y, r.z, r.y * f.z)},
      cross_add(r, f, B.n),
      f};
}
// 2 B^T a: a moment alone.
template <class S>
TORSOR_INLINE Vec3<S> transposed(const CoriolisInertia<S>& B, const Motion<S>& a) {
  return mul_add(S(2.0), cross(B.f, a.v), cross_add(B.n, a.w, B.T * a.w));
}

}  // namespace torsor
