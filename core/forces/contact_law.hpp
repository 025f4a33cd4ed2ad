// Contact of a point with the ground. Sueda 2021, 1.9.6.
#pragma once
#include <algorithm>

#include "forces/force_points.hpp"

namespace torsor {

// A point on the ground: normal force -(k d + b n.xdot) n while d = n.(x - ground) < 0 (eqs. (1.49), sign corrected,
// and (1.53)), and friction against the slip a = (1 - n n^T) xdot: k_t a, or mu k |d| a / |a| where that is smaller
// (eqs. (1.56) and (1.59), sign corrected).
template <class S>
struct GroundContact {
  S k, b, kt, mu;
  Vec3<S> ground, n;
  S scale;  // 1 / |normal|
  Mask<S> touches, slips;
  Vec3<S> r, a, t;  // t = a / |a|
  S d, vn, speed{1.0};
  GroundContact(const ForcePoint<S>& point, const S* p)
      : k(p[0]), b(p[1]), kt(p[2]), mu(p[3]), ground(read3(p + 4)), n(read3(p + 7)) {
    scale = S(1.0) / square_root(dot(n, n));
    n = scale * n;
    r = point.x + (point.origin - ground);
    d = dot(n, r);
    vn = dot(n, point.xdot);
    touches = less(d, S(0.0)) | is_nan(d);
    a = mul_add(-vn, n, point.xdot);
    t = zero3<S>();
    const S square = dot(a, a), limit = mu * k * d;
    slips = less(limit * limit, kt * kt * square);
    if (!any(slips)) return;
    speed = select(slips, square_root(square), S(1.0));
    t = select(slips, (S(1.0) / speed) * a, t);
  }
  Vec3<S> force() const {
    if (!any(touches)) return zero3<S>();
    const Vec3<S> F = mul_add(-(k * d + b * vn), n, select<S>(slips, (mu * k * d) * t, (-kt) * a));
    return select<S>(touches, F, zero3<S>());
  }
  void derivatives(Mat3<S>& Fx, Mat3<S>& Fv) const {
    const S none(0.0);
    Fx = Fv = outer(zero3<S>(), zero3<S>());
    if (!any(touches)) return;
    const Mat3<S> N = outer(n, n);
    add(Fx, select(touches, -k, none), N);
    add(Fv, select(touches, -b, none), N);
    const S across = select(touches, select(slips, mu * k * d / speed, -kt), none);
    add(Fv, across, identity3<S>());
    add(Fv, -across, N);
    if (!any(slips)) return;
    const Mat3<S> before_x = Fx, before_v = Fv;
    add(Fv, -across, outer(t, t));
    add(Fx, mu * k, outer(t, n));
    Fx = select<S>(touches & slips, Fx, before_x);
    Fv = select<S>(touches & slips, Fv, before_v);
  }
  // Adds the gradient of y.force() by the parameters, xdot being the point's velocity.
  void add_gradient(const Vec3<S>& y, const Vec3<S>& xdot, S* g) const {
    if (!any(touches)) return;
    S before[10];
    std::copy_n(g, 10, before);
    const Vec3<S> u = select<S>(touches, y, zero3<S>());
    const S nu = dot(n, u), tu = dot(t, u);
    g[0] += -d * nu + mu * d * tu;
    g[1] += -vn * nu;
    g[2] -= select(slips, S(0.0), dot(a, u));
    g[3] += k * d * tu;
    // by d, and by the normal where d stays
    const S by_d = -k * nu + mu * k * tu;
    write3(mul_add(-by_d, n, read3(g + 4)), g + 4);
    // by the slip
    const Vec3<S> z = select<S>(slips, (mu * k * d / speed) * mul_add(-tu, t, u), (-kt) * u);
    Vec3<S> by_n = mul_add(by_d, r, mul_add(-(k * d + b * vn), u, (-b * nu) * xdot));
    by_n = mul_add(-vn, z, mul_add(-dot(n, z), xdot, by_n));
    write3(mul_add(scale, mul_add(-dot(n, by_n), n, by_n), read3(g + 7)), g + 7);
    for (int k = 0; k < 10; ++k) g[k] = select(touches, g[k], before[k]);
  }
};

struct ContactLaw {
  int offset;  // of its ten parameters: stiffness, damping, stiffness and coefficient of friction, ground, normal

  Work work() const { return Work::stores; }
  UserCode* user_code() const { return nullptr; }
  template <class S>
  Mask<S> evaluate(const BodyState<S>& at, const PointForces<S>& f) const {
    const GroundContact<S> contact(f.points[0], at.p + offset);
    f.F[0] = contact.force();
    if (f.Fx != nullptr) contact.derivatives(f.Fx[0], f.Fv[0]);
    return contact.touches;
  }
  template <class S>
  void add_gradient(const BodyState<S>& at, const PointForces<S>& f, const Vec3<S>* u, S* gradient) const {
    GroundContact<S>(f.points[0], at.p + offset).add_gradient(u[0], f.points[0].xdot, gradient + offset);
  }
  template <class S>
  S energy(const BodyState<S>& at, const ForcePoint<S>* points, int) const {
    const GroundContact<S> contact(points[0], at.p + offset);
    return select(contact.touches, S(0.5) * contact.k * contact.d * contact.d, S(0.0));
  }
};

}  // namespace torsor
