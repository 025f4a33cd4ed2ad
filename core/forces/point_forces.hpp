// Forces between points of bodies, in the world's axes. Sueda 2021, 1.9.2 and 1.9.5-1.9.10, in terms of the points' places x
// and velocities: forces F_i with dF_i/dx_j and dF_i/dxdot_j. What the points' own motion adds is in forces/forces.hpp.
#pragma once
#include "derivatives/inverse_dynamics_derivatives.hpp"
#include "forces/force_set.hpp"

namespace torsor {

template <class S>
struct ForcePoint {
  int body;
  Vec3<S> origin;  // the point of its tree, about which spatial quantities are
  Vec3<S> x;       // seen from there
  Vec3<S> xdot;
};
template <class S>
ForcePoint<S> force_point(const Attachment& at, const Motions<S>& all, const S* p) {
  const Vec3<S> local = mul_add(at.pose.R, read3(p + at.offset), lift<S>(at.pose.p));
  if (at.body < 0) return {-1, zero3<S>(), local, zero3<S>()};
  const auto& b = all.bodies[at.body];
  const Vec3<S> x = mul_add(b.R, local, b.p);
  return {at.body, b.origin, x, cross_add(b.v.w, x, b.v.v)};
}
// From a to b.
template <class S>
Vec3<S> distance(const ForcePoint<S>& a, const ForcePoint<S>& b) {
  return (b.x - a.x) + (b.origin - a.origin);
}

template <class S>
Mat3<S> outer(const Vec3<S>& a, const Vec3<S>& b) {
  return {b.x * a, b.y * a, b.z * a};
}
template <class S>
void add(Mat3<S>& to, const S& s, const Mat3<S>& m) {
  to.x = mul_add(s, m.x, to.x);
  to.y = mul_add(s, m.y, to.y);
  to.z = mul_add(s, m.z, to.z);
}

// A path through points: its length l, and for each segment k the unit vector u_k along it, its rate and 1/length, eqs. (1.62),
// (1.63), (1.73), (1.74). A segment whose length is lost in the rounding of its ends has no direction and pulls at nothing.
template <class S>
struct PointPath {
  int n;  // segments
  S l, ldot;
  Vec3<S>*u, *udot;
  S* inverse;
  PointPath(Arena& arena, const ForcePoint<S>* points, int count)
      : n(count - 1),
        l(0.0),
        ldot(0.0),
        u(arena.get<Vec3<S>>(n)),
        udot(arena.get<Vec3<S>>(n)),
        inverse(arena.get<S>(n)) {
    for (int k = 0; k < n; ++k) {
      const ForcePoint<S>&a = points[k], &b = points[k + 1];
      const Vec3<S> d = distance(a, b), rate = b.xdot - a.xdot, o = b.origin - a.origin;
      const S square = dot(d, d), lost = S(1e-29) * (dot(a.x, a.x) + dot(b.x, b.x) + dot(o, o));
      if (!less(lost, square) && !is_nan(square)) {
        u[k] = udot[k] = zero3<S>();
        inverse[k] = S(0.0);
        continue;
      }
      const S length = square_root(square);
      inverse[k] = S(1.0) / length;
      u[k] = inverse[k] * d;
      const S along = dot(u[k], rate);
      udot[k] = inverse[k] * mul_add(-along, u[k], rate);
      l += length;
      ldot += along;
    }
  }
  // Sum over the segments that end at point i, less those that begin there.
  Vec3<S> at(const Vec3<S>* x, int i) const {
    if (i == 0) return -x[0];
    return i == n ? Vec3<S>(x[n - 1]) : x[i - 1] - x[i];
  }
};

template <class S>
bool slack(const PointLaw& law, const S& l, const S* p) {
  return law.kind == PointLaw::cable && !less(p[law.offset + 2], l) && !is_nan(l);
}

// The tension of a path and its derivatives; those by parameters into `by_parameter`. Eqs. (1.81)-(1.83).
template <class S>
struct Tension {
  S f, by_length, by_rate;
};
template <class S>
Tension<S> tension(const PointLaw& law, const S& l, const S& ldot, Arena& arena, const S* p, S*& by_parameter) {
  const bool loose = slack(law, l, p);
  p += law.offset;
  if (law.kind == PointLaw::tension) {
    S* out = arena.get<S>(3 + law.count);
    law.law->evaluate(l, ldot, p, law.count, out);
    by_parameter = out + 3;
    return {out[0], out[1], out[2]};
  }
  by_parameter = arena.get<S>(3);
  const S k = p[0], d = p[1], L = p[2];
  if (loose) {
    for (int i = 0; i < 3; ++i) by_parameter[i] = S(0.0);
    return {S(0.0), S(0.0), S(0.0)};
  }
  by_parameter[0] = (l - L) / L;
  by_parameter[1] = ldot / L;
  by_parameter[2] = -(k * l + d * ldot) / (L * L);
  return {(k * (l - L) + d * ldot) / L, k / L, d / L};
}

// A point on the ground: normal force -(k d + b n.xdot) n while d = n.(x - ground) < 0 (eqs. (1.49), sign corrected, and (1.53)),
// and friction against the slip a = (1 - n n^T) xdot: k_t a, or mu k |d| a / |a| where that is smaller (eqs. (1.56) and (1.59),
// sign corrected).
template <class S>
struct GroundContact {
  S k, b, kt, mu;
  Vec3<S> ground, n;
  S scale;  // 1 / |normal|
  bool touches, slips = false;
  Vec3<S> r, a, t;  // t = a / |a|
  S d, vn, speed{1.0};
  GroundContact(const ForcePoint<S>& point, const S* p)
      : k(p[0]), b(p[1]), kt(p[2]), mu(p[3]), ground(read3(p + 4)), n(read3(p + 7)) {
    scale = S(1.0) / square_root(dot(n, n));
    n = scale * n;
    r = point.x + (point.origin - ground);
    d = dot(n, r);
    vn = dot(n, point.xdot);
    touches = less(d, S(0.0)) || is_nan(d);
    a = mul_add(-vn, n, point.xdot);
    t = zero3<S>();
    const S square = dot(a, a), limit = mu * k * d;
    slips = less(limit * limit, kt * kt * square);
    if (!slips) return;
    speed = square_root(square);
    t = (S(1.0) / speed) * a;
  }
  Vec3<S> force() const {
    if (!touches) return zero3<S>();
    return mul_add(-(k * d + b * vn), n, slips ? (mu * k * d) * t : (-kt) * a);
  }
  void derivatives(Mat3<S>& Fx, Mat3<S>& Fv) const {
    Fx = Fv = outer(zero3<S>(), zero3<S>());
    if (!touches) return;
    const Mat3<S> N = outer(n, n);
    add(Fx, -k, N);
    add(Fv, -b, N);
    const S across = slips ? mu * k * d / speed : -kt;
    add(Fv, across, identity3<S>());
    add(Fv, -across, N);
    if (!slips) return;
    add(Fv, -across, outer(t, t));
    add(Fx, mu * k, outer(t, n));
  }
  // Adds the gradient of u.force() by the parameters, xdot being the point's velocity.
  void add_gradient(const Vec3<S>& u, const Vec3<S>& xdot, S* g) const {
    if (!touches) return;
    const S nu = dot(n, u), tu = dot(t, u);
    g[0] += -d * nu + mu * d * tu;
    g[1] += -vn * nu;
    g[2] -= slips ? S(0.0) : dot(a, u);
    g[3] += k * d * tu;
    // by d, and by the normal where d stays
    const S by_d = -k * nu + mu * k * tu;
    write3(mul_add(-by_d, n, read3(g + 4)), g + 4);
    const Vec3<S> z = slips ? (mu * k * d / speed) * mul_add(-tu, t, u) : (-kt) * u;  // by the slip
    Vec3<S> by_n = mul_add(by_d, r, mul_add(-(k * d + b * vn), u, (-b * nu) * xdot));
    by_n = mul_add(-vn, z, mul_add(-dot(n, z), xdot, by_n));
    write3(mul_add(scale, mul_add(-dot(n, by_n), n, by_n), read3(g + 7)), g + 7);
  }
};

// Forces F on the points of a law and, unless Fx is null, their derivatives: Fx[n i + j] = dF_i/dx_j and Fv likewise. False if
// they are all zero.
template <class S>
bool point_forces(const PointLaw& law, Arena& arena, const ForcePoint<S>* points, const S* p, double t, Vec3<S>* F,
                  Mat3<S>* Fx, Mat3<S>* Fv) {
  const int n = static_cast<int>(law.points.size());
  const Mat3<S> none = outer(zero3<S>(), zero3<S>());
  for (int i = 0; Fx != nullptr && i < n * n; ++i) Fx[i] = Fv[i] = none;
  switch (law.kind) {
    case PointLaw::push: {  // (1.30)
      const auto at = law.values.place(t);
      F[0] = {Table::value(at, p, 0), Table::value(at, p, 1), Table::value(at, p, 2)};
      return false;
    }
    case PointLaw::pull: {  // (1.40), (1.45)
      const S k = p[law.offset], d = p[law.offset + 1];
      F[0] = mul_add(k, distance(points[0], points[1]), d * (points[1].xdot - points[0].xdot));
      F[1] = -F[0];
      for (int i = 0; Fx != nullptr && i < 4; ++i) {
        const bool same = i == 0 || i == 3;
        add(Fx[i], same ? -k : k, identity3<S>());
        add(Fv[i], same ? -d : d, identity3<S>());
      }
      return true;
    }
    case PointLaw::contact: {
      const GroundContact<S> contact(points[0], p + law.offset);
      F[0] = contact.force();
      if (Fx != nullptr) contact.derivatives(Fx[0], Fv[0]);
      return contact.touches;
    }
    default:
      break;
  }
  // (1.64), (1.72): F_i = -f dl/dx_i
  const PointPath<S> path(arena, points, n);
  S* by_parameter;
  const Tension<S> pull = tension(law, path.l, path.ldot, arena, p, by_parameter);
  for (int i = 0; i < n; ++i) F[i] = (-pull.f) * path.at(path.u, i);
  const bool loose = slack(law, path.l, p);
  if (Fx == nullptr || loose) return !loose;
  for (int i = 0; i < n; ++i) {  // by the length and its rate, (1.67), (1.79)
    const Vec3<S> g = path.at(path.u, i);
    for (int j = 0; j < n; ++j) {
      const Vec3<S> h = path.at(path.u, j);
      add(Fx[n * i + j], S(-1.0), outer(g, mul_add(pull.by_length, h, pull.by_rate * path.at(path.udot, j))));
      add(Fv[n * i + j], -pull.by_rate, outer(g, h));
    }
  }
  for (int k = 0; k < path.n; ++k) {  // by the directions, (1.78)
    Mat3<S> across = identity3<S>();
    add(across, S(-1.0), outer(path.u[k], path.u[k]));
    const S s = pull.f * path.inverse[k];
    add(Fx[n * k + k], -s, across);
    add(Fx[n * (k + 1) + k + 1], -s, across);
    add(Fx[n * k + k + 1], s, across);
    add(Fx[n * (k + 1) + k], s, across);
  }
  return true;
}

// Adds the gradient of sum u_i.F_i by the parameters other than the points.
template <class S>
void point_parameter_gradient(const PointLaw& law, Arena& arena, const ForcePoint<S>* points, const S* p, double t,
                              const Vec3<S>* u, S* gradient) {
  const int n = static_cast<int>(law.points.size());
  S* g = gradient + law.offset;
  switch (law.kind) {
    case PointLaw::push: {
      const auto at = law.values.place(t);
      const S parts[3] = {u[0].x, u[0].y, u[0].z};
      for (int k = 0; k < 3; ++k) Table::add_gradient(at, parts[k], k, gradient);
      return;
    }
    case PointLaw::pull: {
      const Vec3<S> apart = u[0] - u[1];
      g[0] += dot(apart, distance(points[0], points[1]));
      g[1] += dot(apart, points[1].xdot - points[0].xdot);
      return;
    }
    case PointLaw::contact:
      GroundContact<S>(points[0], p + law.offset).add_gradient(u[0], points[0].xdot, g);
      return;
    default:
      break;
  }
  const PointPath<S> path(arena, points, n);
  S* by_parameter;
  tension(law, path.l, path.ldot, arena, p, by_parameter);
  S rate = 0.0;  // of the length, when the points move with u
  for (int i = 0; i < n; ++i) rate = dot_add(path.at(path.u, i), u[i], rate);
  for (int k = 0; k < law.count; ++k) g[k] -= by_parameter[k] * rate;
}

template <class S>
S point_energy(const PointLaw& law, Arena& arena, const ForcePoint<S>* points, const S* p, double t) {
  const S *x = p + law.offset, half(0.5);
  switch (law.kind) {
    case PointLaw::push: {  // (1.31)
      Vec3<S> F;
      point_forces<S>(law, arena, points, p, t, &F, nullptr, nullptr);
      return -dot(F, points[0].x + points[0].origin);
    }
    case PointLaw::pull: {  // (1.41)
      const Vec3<S> d = distance(points[0], points[1]);
      return half * x[0] * dot(d, d);
    }
    case PointLaw::contact: {
      const GroundContact<S> contact(points[0], x);
      return contact.touches ? half * contact.k * contact.d * contact.d : S(0.0);
    }
    default:
      break;
  }
  const PointPath<S> path(arena, points, static_cast<int>(law.points.size()));
  if (law.kind == PointLaw::tension) return law.law->energy(path.l, x, law.count);
  const S stretch = path.l - x[2];
  return slack(law, path.l, p) ? S(0.0) : half * x[0] * stretch * stretch / x[2];
}

}  // namespace torsor
