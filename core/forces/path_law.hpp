// Tension along a path through points: springs, cables and user-defined springs. Sueda 2021, 1.9.5 and 1.9.7-1.9.10.
#pragma once
#include <memory>

#include "forces/force_points.hpp"

namespace torsor {

// Tension f(l, ldot) of a user-defined spring, for `lanes` states. Rows of x: l, ldot; of p: its n parameters; of out:
// f, df/dl, df/dldot, df/dp.
struct SpringLaw : UserCode {
  virtual void evaluate(int lanes, const double* x, const double* p, int n, double* out) const = 0;
  virtual void evaluate(int lanes, const Complex* x, const Complex* p, int n, Complex* out) const = 0;
  virtual bool has_energy() const = 0;
  virtual void energy(int lanes, const double* l, const double* p, int n, double* E) const = 0;
  virtual void energy(int lanes, const Complex* l, const Complex* p, int n, Complex* E) const = 0;
};

// A path through points: its length l, and for each segment k the unit vector u_k along it, its rate and 1/length, eqs.
// (1.62), (1.63), (1.73), (1.74). A segment whose length is lost in the rounding of its ends has no direction and
// exerts no force.
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
      const S square = dot(d, d), least = S(1e-29) * (dot(a.x, a.x) + dot(b.x, b.x) + dot(o, o));
      const Mask<S> known = less(least, square) | is_nan(square);
      if (!any(known)) {
        u[k] = udot[k] = zero3<S>();
        inverse[k] = S(0.0);
        continue;
      }
      const S length = select(known, square_root(square), S(0.0));
      inverse[k] = select(known, S(1.0) / length, S(0.0));
      u[k] = select<S>(known, inverse[k] * d, zero3<S>());
      const S along = select(known, dot(u[k], rate), S(0.0));
      udot[k] = select<S>(known, inverse[k] * mul_add(-along, u[k], rate), zero3<S>());
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
struct Tension {
  S f, by_length, by_rate;
  const S* by_parameter;
};

struct PathLaw {
  enum Kind { strain, cable, custom };
  Kind kind;
  int offset, count;  // of its parameters: stiffness, damping and rest length, or the user's
  std::shared_ptr<SpringLaw> law;

  Work work() const { return kind != custom || law->has_energy() ? Work::stores : Work::unknown; }
  UserCode* user_code() const { return law.get(); }

  template <class S>
  Mask<S> taut(const S& l, const S* p) const {
    return kind == cable ? less(p[offset + 2], l) | is_nan(l) : every_lane<S>();
  }
  // The tension and its derivatives. Eqs. (1.81)-(1.83).
  template <class S>
  Tension<S> tension(const BodyState<S>& at, const S& l, const S& ldot) const {
    const S* p = at.p + offset;
    if (kind == custom) {
      const S x[2] = {l, ldot};
      const UserRows<S> rows(at.arena, 3 + count);
      law->evaluate(rows.lanes, UserRows<S>(at.arena, 2, x), UserRows<S>(at.arena, count, p), count, rows);
      const S* out = rows.read(at.arena);
      return {out[0], out[1], out[2], out + 3};
    }
    S* by_parameter = at.arena.template get<S>(3);
    const S k = p[0], d = p[1], L = p[2];
    const Mask<S> pulls = taut(l, at.p);
    const auto if_taut = [&](const S& x) { return select(pulls, x, S(0.0)); };
    by_parameter[0] = if_taut((l - L) / L);
    by_parameter[1] = if_taut(ldot / L);
    by_parameter[2] = if_taut(-(k * l + d * ldot) / (L * L));
    return {if_taut((k * (l - L) + d * ldot) / L), if_taut(k / L), if_taut(d / L), by_parameter};
  }

  // (1.64), (1.72): F_i = -f dl/dx_i
  template <class S>
  Mask<S> evaluate(const BodyState<S>& at, const PointForces<S>& f) const {
    const int n = f.n;
    const PointPath<S> path(at.arena, f.points, n);
    const Tension<S> pull = tension(at, path.l, path.ldot);
    for (int i = 0; i < n; ++i) f.F[i] = (-pull.f) * path.at(path.u, i);
    const Mask<S> pulls = taut(path.l, at.p);
    if (f.Fx == nullptr || !any(pulls)) return pulls;
    for (int i = 0; i < n; ++i) {  // by the length and its rate, (1.67), (1.79)
      const Vec3<S> g = path.at(path.u, i);
      for (int j = 0; j < n; ++j) {
        const Vec3<S> h = path.at(path.u, j);
        add(f.Fx[n * i + j], S(-1.0), outer(g, mul_add(pull.by_length, h, pull.by_rate * path.at(path.udot, j))));
        add(f.Fv[n * i + j], -pull.by_rate, outer(g, h));
      }
    }
    for (int k = 0; k < path.n; ++k) {  // by the directions, (1.78)
      Mat3<S> across = identity3<S>();
      add(across, S(-1.0), outer(path.u[k], path.u[k]));
      const S s = pull.f * path.inverse[k];
      add(f.Fx[n * k + k], -s, across);
      add(f.Fx[n * (k + 1) + k + 1], -s, across);
      add(f.Fx[n * k + k + 1], s, across);
      add(f.Fx[n * (k + 1) + k], s, across);
    }
    return pulls;
  }
  template <class S>
  void add_gradient(const BodyState<S>& at, const PointForces<S>& f, const Vec3<S>* u, S* gradient) const {
    const PointPath<S> path(at.arena, f.points, f.n);
    const Tension<S> pull = tension(at, path.l, path.ldot);
    S rate = 0.0;  // of the length, when the points move with u
    for (int i = 0; i < f.n; ++i) rate = dot_add(path.at(path.u, i), u[i], rate);
    for (int k = 0; k < count; ++k) gradient[offset + k] -= pull.by_parameter[k] * rate;
  }
  template <class S>
  S energy(const BodyState<S>& at, const ForcePoint<S>* points, int n) const {
    const S* p = at.p + offset;
    const PointPath<S> path(at.arena, points, n);
    if (kind == custom) {
      const UserRows<S> rows(at.arena, 1);
      law->energy(rows.lanes, UserRows<S>(at.arena, 1, &path.l), UserRows<S>(at.arena, count, p), count, rows);
      return *rows.read(at.arena);
    }
    const S stretch = path.l - p[2];
    return select(taut(path.l, at.p), S(0.5) * p[0] * stretch * stretch / p[2], S(0.0));
  }
};

}  // namespace torsor
