// Laws on one body: a wrench, or damping of its twist. Sueda 2021, 1.9.1.
#pragma once
#include "forces/law.hpp"
#include "forces/table.hpp"

namespace torsor {

struct BodyLaw : Law {
  enum Kind { carried, world, aligned, damper };  // carried: given in the body's frame; aligned: in the world's axes
  Kind kind;
  int body;
  Table values;
  int frame;  // the user's body

  Work work() const { return kind == damper ? Work::dissipates : Work::given; }
  bool acts_on_bodies() const { return true; }
  bool holds() const { return kind == aligned; }
  bool depends_on_place() const { return kind == aligned || kind == world; }
  bool depends_on_time() const { return values.depends_on_time(); }

  // The frame in which the wrench is given, relative to the point of the tree.
  template <class S>
  SE3<S> wrench_frame(const Motions<S>& all) const {
    const auto& b = all.bodies[body];
    if (kind == world) return {identity3<S>(), -b.origin};
    const auto pose = all.pose(frame);
    const Vec3<S> p = mul_add(b.R, lift<S>(pose.p), b.p);
    if (kind == aligned) return {identity3<S>(), p};
    return {b.R * pose.R, p};
  }
  // The wrench in that frame X, for a body that moves with V.
  template <class S>
  Force<S> given_wrench(const SE3<S>& X, const Motion<S>& V, const S* p, double t) const {
    const auto now = values.place(t);
    S x[6], twist[6];
    for (int k = 0; k < 6; ++k) x[k] = Table::value(now, p, k);
    if (kind == damper) {
      write(X.act_inverse(V), twist);
      for (int k = 0; k < 6; ++k) x[k] = -x[k] * twist[k];
    }
    return read_force(x);
  }

  template <class S>
  void add_forces(const ForceState<S>& at, const ForceSums<S>& sums) const {
    const auto& b = at.all.bodies[body];
    const SE3<S> X = wrench_frame(at.all);
    const Force<S> F = given_wrench(X, b.v, at.p, at.t);
    if (kind == aligned)
      sums.held[body] += world_wrench(F.n, F.f, X.p);
    else
      sums.carried[body] += X.act(F);
  }

  template <class S>
  void linearise(const ForceState<S>& at, const ForceMatrices<S>& A) const {
    const auto* columns = at.all.columns;
    const auto& b = at.all.bodies[body];
    const SE3<S> X = wrench_frame(at.all);
    if (kind == damper) {
      const auto drag = [&](const Motion<S>& V) { return X.act(given_wrench(X, V, at.p, at.t)); };
      for_each_velocity(at.m, body, [&](int k) {
        const Force<S> by_q = drag(columns[k].Psidot), by_v = drag(columns[k].S_);
        for_each_velocity(at.m, body, [&](int j) {
          A.Aq[j * A.stride + k] -= dot(columns[j].S_, by_q);
          A.Av[j * A.stride + k] -= dot(columns[j].S_, by_v);
        });
      });
    } else if (kind == world) {  // pair_columns treats it as moving with the body
      const Force<S> F = X.act(given_wrench(X, b.v, at.p, at.t));
      for_each_velocity(at.m, body, [&](int k) {
        const Force<S> moved = cross(columns[k].S_, F);
        for_each_velocity(at.m, body, [&](int j) { A.Aq[j * A.stride + k] += dot(columns[j].S_, moved); });
      });
    }
  }

  template <class S, class F>
  void on_body(const BodyState<S>& at, F&& each) const {
    if (kind == carried) return;
    const auto& b = at.all.bodies[body];
    const SE3<S> X = wrench_frame(at.all);
    const Force<S> given = given_wrench(X, b.v, at.p, at.t);
    each(body, WrenchChange<S>([&](const Motion<S>& unit) -> typename WrenchChange<S>::Column {
           if (kind == damper) return {zero_force<S>(), X.act(given_wrench(X, unit, at.p, at.t))};
           if (kind == world) return {negative(cross(unit, X.act(given))), zero_force<S>()};
           return {negative(world_wrench(given.n, given.f, X.p).lag(2, unit)), zero_force<S>()};
         }));
  }

  template <class S>
  void add_parameter_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion, S* gradient) const {
    const auto now = values.place(at.t);
    const auto& b = at.all.bodies[body];
    const SE3<S> X = wrench_frame(at.all);
    S moved[6], twist[6];
    write(X.act_inverse(motion.W[body]), moved);
    write(X.act_inverse(b.v), twist);
    for (int k = 0; k < 6; ++k) Table::add_gradient(now, kind == damper ? -moved[k] * twist[k] : moved[k], k, gradient);
  }
  // Gradient by the twist: the matrix of a damper is symmetric.
  template <class S>
  Force<S> by_twist(const BodyState<S>& at, const SE3<S>& X, const VirtualMotion<S>& motion) const {
    return X.act(given_wrench(X, motion.W[body], at.p, at.t));
  }
  template <class S>
  void add_velocity_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion,
                             const VelocityGradient<S>& out) const {
    if (kind == damper) out.by_twist[body] += by_twist(at, wrench_frame(at.all), motion);
  }
  template <class S>
  void add_placement_sums(const BodyState<S>& at, const VirtualMotion<S>& motion, PlacementSums<S>* sums) const {
    const auto& b = at.all.bodies[body];
    const Motion<S>& V = motion.W[body];
    auto& sum = sums[frame];
    const SE3<S> X = wrench_frame(at.all);
    const Force<S> given = given_wrench(X, b.v, at.p, at.t), F = X.act(given);
    sum.P += F;
    if (kind == world) {
      sum.A += cross(V, F);
    } else if (kind == aligned) {
      const Vec3<S> u = cross_add(V.w, X.p, V.v);
      sum.A.n += cross_add(u, given.f, cross(V.w, given.n));
    } else if (kind == damper) {
      sum.H += by_twist(at, X, motion);
    }
  }
};

}  // namespace torsor
