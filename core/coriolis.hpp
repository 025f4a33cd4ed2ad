// A Coriolis matrix C(q, v) with C v the velocity-dependent torque and Mdot - 2 C skew: C = sum over bodies of
// J^T (I Jdot + B J), with B of Singh 2022, eq. (6), for which B + B^T is the rate of I. It holds for joints with S(q) too,
// Jdot then including their own rate.
#pragma once
#include "jacobians.hpp"
#include "mass_matrix.hpp"

namespace torsor {

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

// C, nv x nv, row-major.
template <class S>
void coriolis_matrix(const Model& m, Arena& arena, const S* q, const S* v, S* C) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  const auto* columns = world_columns(m, arena, general, bodies);
  const Rates<S> rates = world_rates(m, arena, general, bodies, columns, v);
  const int n = m.n(), nv = m.nv;
  auto* I = arena.get<RigidInertia<S>>(n);
  auto* B = arena.get<CoriolisInertia<S>>(n);
  for (int i = 0; i < n; ++i) {
    I[i] = rotate(bodies[i].X.R, m.bodies[i].I);
    B[i] = coriolis_inertia(I[i], rates.V[i]);
  }
  for (int k = 0; k < nv * nv; ++k) C[k] = S(0.0);
  for (int i = n - 1; i >= 0; --i) {
    const Model::Body& body = m.bodies[i];
    const S half(0.5);
    // For k in this body's joint and l in it or above: the column I Sdot + B S of each against the other's S.
    Force<S> own[6];
    for (int k = 0; k < body.nv; ++k)
      own[k] = mul_add(half, B[i] * columns[body.iv + k], I[i] * rates.Sdot[body.iv + k]);
    for_each_velocity_above(m, i, [&](int l, int j) {
      const Vec3<S> r = bodies[i].X.p - bodies[j].X.p;
      const Motion<S> Sl = shift(columns[l], r), Sdotl = shift(rates.Sdot[l], r);
      const Force<S> Fl = mul_add(half, B[i] * Sl, I[i] * Sdotl);
      for (int k = 0; k < body.nv; ++k) {
        C[(body.iv + k) * nv + l] = dot(columns[body.iv + k], Fl);
        if (j != i) C[l * nv + body.iv + k] = dot(Sl, own[k]);
      }
    });
    if (body.parent >= 0) {
      I[body.parent] += shift_back(I[i], bodies[i].r);
      B[body.parent] += shift_back(B[i], bodies[i].r);
    }
  }
}

}  // namespace torsor
