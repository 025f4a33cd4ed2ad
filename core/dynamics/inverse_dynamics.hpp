// Inverse dynamics. Kim 2012, Table 2, in body frames.
//
// The recursion carries angular velocity w, angular acceleration wdot and the acceleration acc of the frame's origin
// (Luh, Walker and Paul 1980) instead of the spatial V and Vdot: V = (w, v) and Vdot = (wdot, acc - w x v) for the
// velocity v of the origin, which is never needed. With Omega = [wdot] + [w]^2, a point at x in the body accelerates by
// acc + Omega x, so that the force and moment (31) of a body with first moment h and pseudo-inertia Sigma are
//   f = m acc + Omega h,   n = h x acc + (the axial vector of Omega Sigma - Sigma Omega^T).
#pragma once
#include "model/joints.hpp"

namespace torsor {

template <class S>
struct InverseDynamicsBody {
  SE3<S> T;  // pose in the parent's frame
  Vec3<S> w, wdot, acc;
  Mat3<S> Omega;
  Force<S> F;
};

// Integral of x x^T dm: tr(J)/2 1 - J, written so that equal parts of two moments cancel exactly.
template <class C>
inline Sym3<C> pseudo_inertia(const Sym3<C>& J) {
  return {
      0.5 * ((J.yy - J.xx) + J.zz), 0.5 * ((J.zz - J.yy) + J.xx), 0.5 * ((J.xx - J.zz) + J.yy), -J.xy, -J.xz, -J.yz};
}

// [wdot] + w w^T - (w.w) 1
template <class S>
TORSOR_INLINE Mat3<S> acceleration_matrix(const Vec3<S>& w, const Vec3<S>& wdot) {
  const S xx = w.x * w.x, yy = w.y * w.y, zz = w.z * w.z, xy = w.x * w.y, xz = w.x * w.z, yz = w.y * w.z;
  return {{-(yy + zz), xy + wdot.z, xz - wdot.y},
          {xy - wdot.z, -(xx + zz), yz + wdot.x},
          {xz + wdot.y, yz - wdot.x, -(xx + yy)}};
}

// Force and moment that accelerate a body.
template <class S, class C>
TORSOR_INLINE Force<S> inertial_force(const RigidInertia<C>& I, const Sym3<C>& P, const Mat3<S>& O,
                                      const Vec3<S>& acc) {
  const Vec3<S> f = mul_add(O, I.h, I.m * acc);
  // Rows of Omega against columns of Sigma: (Omega Sigma)_zy - (Omega Sigma)_yz, and so on.
  const auto entry = [](const S& a, const S& b, const S& c, const C& x, const C& y, const C& z) {
    return mul_add(c, z, mul_add(b, y, a * x));
  };
  const S zy = entry(O.x.z, O.y.z, O.z.z, P.xy, P.yy, P.yz), yz = entry(O.x.y, O.y.y, O.z.y, P.xz, P.yz, P.zz);
  const S xz = entry(O.x.x, O.y.x, O.z.x, P.xz, P.yz, P.zz), zx = entry(O.x.z, O.y.z, O.z.z, P.xx, P.xy, P.xz);
  const S yx = entry(O.x.y, O.y.y, O.z.y, P.xx, P.xy, P.xz), xy = entry(O.x.x, O.y.x, O.z.x, P.xy, P.yy, P.yz);
  return {cross_add(I.h, acc, Vec3<S>{zy - yz, xz - zx, yx - xy}), f};
}

template <class S, class C>
void inverse_dynamics(const ModelT<C>& m, Arena& arena, const S* q, const S* v, const S* a, const S* f_ext, S* tau) {
  const int n = m.n();
  auto* bodies = arena.get<InverseDynamicsBody<S>>(n);
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto x = coordinates(m, arena, q);
  const Vec3<S> lift_off{S(-m.gravity.x), S(-m.gravity.y), S(-m.gravity.z)};
  for (int i = 0; i < n; ++i) {
    const auto& body = m.bodies[i];
    auto& b = bodies[i];
    visit<S>(m, body, general, [&](auto joint) TORSOR_INLINE_LAMBDA {
      const S *vi = v + body.iv, *ai = a + body.iv;
      b.T = joint.transform(body.M, x + body.iq);
      Vec3<S> wp;
      if (body.parent >= 0) {
        const auto& p = bodies[body.parent];
        wp = transposed(b.T.R, p.w);
        b.wdot = transposed(b.T.R, p.wdot);
        b.acc = transposed(b.T.R, body.offset ? mul_add(p.Omega, b.T.p, p.acc) : p.acc);
      } else {
        wp = b.wdot = zero3<S>();
        b.acc = transposed(b.T.R, lift_off);
      }
      b.w = wp;
      joint.move(wp, vi, ai, b.w, b.wdot, b.acc);  // (36), (40)
      b.Omega = acceleration_matrix(b.w, b.wdot);
      b.F = body.massless ? zero_force<S>() : inertial_force(body.I, body.Sigma, b.Omega, b.acc);  // (31)
    });
  }
  if (f_ext != nullptr)
    for_each_wrench(m, f_ext, [&](int i, const Force<S>& F) {
      bodies[i].F.n -= F.n;
      bodies[i].F.f -= F.f;
    });
  for (int i = n - 1; i >= 0; --i) {
    const auto& body = m.bodies[i];
    const auto& b = bodies[i];
    visit<S>(m, body, general, [&](auto joint) TORSOR_INLINE_LAMBDA { joint.project(b.F, tau + body.iv); });
    if (body.parent >= 0) bodies[body.parent].F += b.T.act(b.F);  // (41)
  }
  for (std::size_t k = 0; k < m.armature.size(); ++k) tau[k] = mul_add(S(m.armature[k]), a[k], tau[k]);
}

}  // namespace torsor
