// Laws of forces on points of bodies that depend on where the points are and how they move. Sueda 2021, 1.9.2 and
// 1.9.5-1.9.10, in terms of the points' places x and velocities. Each kind has evaluate (forces F_i with dF_i/dx_j and
// dF_i/dxdot_j; false in lanes where all are zero), add_gradient (of sum u_i.F_i, by the parameters other than the
// points) and energy; the terms due to the motion of the points are common to all.
#pragma once
#include <variant>

#include "forces/contact_law.hpp"
#include "forces/path_law.hpp"
#include "forces/table.hpp"

namespace torsor {

// A given force at a point, (1.30).
struct PushLaw {
  Table values;

  Work work() const { return Work::given; }
  UserCode* user_code() const { return nullptr; }
  template <class S>
  Mask<S> evaluate(const BodyState<S>& at, const PointForces<S>& f) const {
    const auto now = values.place(at.t);
    f.F[0] = {Table::value(now, at.p, 0), Table::value(now, at.p, 1), Table::value(now, at.p, 2)};
    return no_lane<S>();
  }
  template <class S>
  void add_gradient(const BodyState<S>& at, const PointForces<S>&, const Vec3<S>* u, S* gradient) const {
    const auto now = values.place(at.t);
    const S parts[3] = {u[0].x, u[0].y, u[0].z};
    for (int k = 0; k < 3; ++k) Table::add_gradient(now, parts[k], k, gradient);
  }
  template <class S>
  S energy(const BodyState<S>& at, const ForcePoint<S>* points, int n) const {  // (1.31)
    Vec3<S> F;
    evaluate(at, PointForces<S>{n, points, &F});
    return -dot(F, points[0].x + points[0].origin);
  }
};

// Pulls two points together, (1.40), (1.45).
struct PullLaw {
  int offset;  // of its parameters: stiffness, damping

  Work work() const { return Work::stores; }
  UserCode* user_code() const { return nullptr; }
  template <class S>
  Mask<S> evaluate(const BodyState<S>& at, const PointForces<S>& f) const {
    const S k = at.p[offset], d = at.p[offset + 1];
    f.F[0] = mul_add(k, distance(f.points[0], f.points[1]), d * (f.points[1].xdot - f.points[0].xdot));
    f.F[1] = -f.F[0];
    for (int i = 0; f.Fx != nullptr && i < 4; ++i) {
      const bool same = i == 0 || i == 3;
      add(f.Fx[i], same ? -k : k, identity3<S>());
      add(f.Fv[i], same ? -d : d, identity3<S>());
    }
    return every_lane<S>();
  }
  template <class S>
  void add_gradient(const BodyState<S>&, const PointForces<S>& f, const Vec3<S>* u, S* gradient) const {
    const Vec3<S> apart = u[0] - u[1];
    gradient[offset] += dot(apart, distance(f.points[0], f.points[1]));
    gradient[offset + 1] += dot(apart, f.points[1].xdot - f.points[0].xdot);
  }
  template <class S>
  S energy(const BodyState<S>& at, const ForcePoint<S>* points, int) const {  // (1.41)
    const Vec3<S> d = distance(points[0], points[1]);
    return S(0.5) * at.p[offset] * dot(d, d);
  }
};

struct PointLaw : Law {
  std::vector<Attachment> points;
  std::variant<PushLaw, PullLaw, PathLaw, ContactLaw> kind;

  template <class F>
  decltype(auto) visit(F&& f) const {
    return std::visit(std::forward<F>(f), kind);
  }
  int n() const { return static_cast<int>(points.size()); }
  // The one body that carries points; -1 if there is none, -2 if there are several.
  int body() const {
    int body = -1;
    for (const Attachment& point : points) {
      if (point.body < 0 || point.body == body) continue;
      if (body >= 0) return -2;
      body = point.body;
    }
    return body;
  }

  Work work() const {
    return visit([](const auto& k) { return k.work(); });
  }
  bool acts_on_bodies() const { return true; }
  bool holds() const { return true; }
  bool keeps_branches(const Model& m) const {  // if all bodies lie on one path
    int tip = -1;
    for (const Attachment& point : points) tip = std::max(tip, point.body);
    for (const Attachment& point : points) {
      int i = tip;
      while (i > point.body) i = m.links[i].parent;
      if (i != point.body && point.body >= 0) return false;
    }
    return true;
  }
  bool depends_on_place() const { return true; }
  bool on_single_body() const { return body() != -2; }
  bool depends_on_time() const {
    const auto* push = std::get_if<PushLaw>(&kind);
    return push != nullptr && push->values.depends_on_time();
  }
  UserCode* user_code() const {
    return visit([](const auto& k) { return k.user_code(); });
  }

  template <class S>
  ForcePoint<S>* force_points(const BodyState<S>& at) const {
    auto* out = at.arena.template get<ForcePoint<S>>(points.size());
    for (int i = 0; i < n(); ++i) out[i] = force_point(points[i], at.all, at.p);
    return out;
  }
  template <class S>
  PointForces<S> forces(const BodyState<S>& at) const {
    const PointForces<S> f{n(), force_points(at), at.arena.template get<Vec3<S>>(n())};
    visit([&](const auto& k) { k.evaluate(at, f); });
    return f;
  }
  // With derivatives; `changes` tells where some of them are not zero.
  template <class S>
  PointForces<S> forces_and_derivatives(const BodyState<S>& at, Mask<S>& changes) const {
    const int size = n() * n();
    const PointForces<S> f{n(), force_points(at), at.arena.template get<Vec3<S>>(n()),
                           at.arena.template get<Mat3<S>>(size), at.arena.template get<Mat3<S>>(size)};
    const Mat3<S> none = outer(zero3<S>(), zero3<S>());
    for (int i = 0; i < size; ++i) f.Fx[i] = f.Fv[i] = none;
    changes = visit([&](const auto& k) { return k.evaluate(at, f); });
    if (Lanes<S>::value > 1 && any(!changes))
      for (int i = 0; i < size; ++i) {
        f.Fx[i] = select<S>(changes, f.Fx[i], none);
        f.Fv[i] = select<S>(changes, f.Fv[i], none);
      }
    return f;
  }

  template <class S>
  void add_forces(const ForceState<S>& at, const ForceSums<S>& sums) const {
    const PointForces<S> f = forces(at);
    for (int i = 0; i < f.n; ++i)
      if (points[i].body >= 0) sums.held[points[i].body] += world_wrench(zero3<S>(), f.F[i], f.points[i].x);
  }

  template <class S>
  void linearise(const ForceState<S>& at, const ForceMatrices<S>& A) const {
    Mask<S> changes;
    const PointForces<S> f = forces_and_derivatives(at, changes);
    if (!any(changes)) return;
    const Model& m = at.m;
    const int n = f.n;
    int* column = at.arena.template get<int>(m.nv);  // of a velocity among those that move the points, or -1
    int *velocity = at.arena.template get<int>(m.nv), count = 0;
    for (int k = 0; k < m.nv; ++k) column[k] = -1;
    for (int i = 0; i < n; ++i)
      for_each_velocity(m, points[i].body, [&](int k) {
        if (column[k] >= 0) return;
        column[k] = count;
        velocity[count++] = k;
      });
    // dx/dq and dxdot/dq of all points by all of these velocities
    auto *J = at.arena.template get<Vec3<S>>(n * count), *G = at.arena.template get<Vec3<S>>(n * count);
    for (int i = 0; i < n * count; ++i) J[i] = G[i] = zero3<S>();
    for (int i = 0; i < n; ++i)
      for_each_velocity(m, points[i].body, [&](int k) {
        const auto& c = at.all.columns[k];
        const auto& [body, origin, x, xdot] = f.points[i];
        J[i * count + column[k]] = cross_add(c.S_.w, x, c.S_.v);
        G[i * count + column[k]] = cross_add(c.S_.w, xdot, cross_add(c.Psidot.w, x, c.Psidot.v));
      });
    for (int c = 0; c < count; ++c)
      for (int i = 0; i < n; ++i) {
        if (points[i].body < 0) continue;
        Vec3<S> by_q = zero3<S>(), by_v = zero3<S>();
        for (int j = 0; j < n; ++j) {
          by_q = mul_add(f.Fx[n * i + j], J[j * count + c], mul_add(f.Fv[n * i + j], G[j * count + c], by_q));
          by_v = mul_add(f.Fv[n * i + j], J[j * count + c], by_v);
        }
        for_each_velocity(m, points[i].body, [&](int k) {
          const Vec3<S>& x = J[i * count + column[k]];
          A.Aq[k * A.stride + velocity[c]] -= select(changes, dot(x, by_q), S(0.0));
          A.Av[k * A.stride + velocity[c]] -= select(changes, dot(x, by_v), S(0.0));
        });
      }
  }

  template <class S, class F>
  void on_body(const BodyState<S>& at, F&& each) const {
    const int body = this->body();
    if (body < 0) return;
    Mask<S> changes;
    const PointForces<S> f = forces_and_derivatives(at, changes);
    const int n = f.n;
    each(body, WrenchChange<S>([&](const Motion<S>& unit) {
           typename WrenchChange<S>::Column out{zero_force<S>(), zero_force<S>()};
           for (int i = 0; i < n; ++i) {
             if (points[i].body < 0) continue;
             out.by_q += negative(world_wrench(zero3<S>(), f.F[i], f.points[i].x).lag(2, unit));
             Vec3<S> moved = zero3<S>(), faster = zero3<S>();
             for (int j = 0; any(changes) && j < n; ++j) {
               if (points[j].body < 0) continue;
               const Vec3<S> step = cross_add(unit.w, f.points[j].x, unit.v);
               const Vec3<S> turned = mul_add(f.Fv[n * i + j], cross(unit.w, f.points[j].xdot), moved);
               moved = mul_add(f.Fx[n * i + j], step, turned);
               faster = mul_add(f.Fv[n * i + j], step, faster);
             }
             out.by_q += wrench_at(select<S>(changes, moved, zero3<S>()), f.points[i].x);
             out.by_v += wrench_at(select<S>(changes, faster, zero3<S>()), f.points[i].x);
           }
           return out;
         }));
  }

  template <class S>
  S energy(const ForceState<S>& at) const {
    return visit([&](const auto& k) { return k.energy(at, force_points(at), n()); });
  }

  // Forces with their derivatives, the points' virtual velocities u, and the gradients g and h of sum u_i.F_i by x and
  // xdot.
  template <class S>
  struct Gradients {
    PointForces<S> f;
    Vec3<S>*u, *g, *h;
  };
  template <class S>
  Gradients<S> gradients(const BodyState<S>& at, const VirtualMotion<S>& motion) const {
    Mask<S> changes;
    const PointForces<S> f = forces_and_derivatives(at, changes);
    const int n = f.n;
    auto* u = at.arena.template get<Vec3<S>>(3 * n);
    const Gradients<S> out{f, u, u + n, u + 2 * n};
    for (int i = 0; i < n; ++i) {
      const Motion<S>& V = motion.W[points[i].body];
      u[i] = cross_add(V.w, f.points[i].x, V.v);
    }
    for (int i = 0; i < n; ++i) {
      out.g[i] = out.h[i] = zero3<S>();
      for (int j = 0; j < n; ++j) {
        out.g[i] += transposed(f.Fx[n * j + i], u[j]);
        out.h[i] += transposed(f.Fv[n * j + i], u[j]);
      }
    }
    return out;
  }
  template <class S>
  void add_parameter_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion, S* gradient) const {
    const Gradients<S> by = gradients(at, motion);
    visit([&](const auto& k) { k.add_gradient(at, by.f, by.u, gradient); });
    // A point displaced by d in its body moves x by d, xdot by w x d and u by W.w x d.
    for (int i = 0; i < by.f.n; ++i) {
      const Attachment& point = points[i];
      Vec3<S> by_x = by.g[i];
      if (point.body >= 0) {
        const auto& b = at.all.bodies[point.body];
        by_x = transposed(b.R, cross_add(by.h[i], b.v.w, cross_add(by.f.F[i], motion.W[point.body].w, by_x)));
      }
      const Vec3<S> d = transposed(at.all.pose(point.frame).R, by_x);
      write3(read3(gradient + point.offset) + d, gradient + point.offset);
    }
  }
  template <class S>
  void add_velocity_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion,
                             const VelocityGradient<S>& out) const {
    const auto [f, u, g, h] = gradients<S>(at, motion);
    for (int i = 0; i < f.n; ++i)
      if (points[i].body >= 0) out.by_twist[points[i].body] += wrench_at(h[i], f.points[i].x);
  }
  template <class S>
  void add_placement_sums(const BodyState<S>& at, const VirtualMotion<S>& motion, PlacementSums<S>* sums) const {
    const auto [f, u, g, h] = gradients(at, motion);
    for (int i = 0; i < f.n; ++i) {
      if (points[i].frame < 0) continue;
      const auto& [body, origin, x, xdot] = f.points[i];
      auto& sum = sums[points[i].frame];
      sum.A += wrench_at(g[i], x);
      sum.A.n += cross_add(xdot, h[i], cross(u[i], f.F[i]));
      sum.H += wrench_at(h[i], x);
      sum.P += wrench_at(f.F[i], x);
    }
  }
};

}  // namespace torsor
