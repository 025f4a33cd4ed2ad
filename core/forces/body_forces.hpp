// Forces on single bodies as blocks: how the wrench on a body changes with its own displacement and velocity. What acts on one
// joint or on one body fits into the systems over trees (linear/tree_system.hpp); what couples bodies does not.
#pragma once
#include "forces/forces.hpp"

namespace torsor {

// The one body that a law moves with, -1 if none does, -2 if several do.
inline int body_of(const PointLaw& law) {
  int body = -1;
  for (const Attachment& point : law.points) {
    if (point.body < 0 || point.body == body) continue;
    if (body >= 0) return -2;
    body = point.body;
  }
  return body;
}
inline bool on_single_bodies(const ForceSet& set) {
  if (!set.customs.empty()) return false;
  return std::all_of(set.points.begin(), set.points.end(), [](const PointLaw& law) { return body_of(law) != -2; });
}

// Change of a wrench, 6 x 12: by the displacement eta of the body, then by the change of its velocity, both seen by the body.
template <class S>
struct WrenchChange {
  S x[6][12];
};
// Calls each(body, change) for each law on a body, where the change is seen by the body too: of a wrench that moves with it, zero.
template <class S, class Each>
void for_each_body_force(const ForceSet& set, Arena& arena, const Motions<S>& all, double t, const S* p, Each&& each) {
  WrenchChange<S> change;
  const auto each_unit = [&](auto&& column) {  // column(k, unit twist k)
    for (int k = 0; k < 6; ++k) {
      S unit[6] = {S(0.0), S(0.0), S(0.0), S(0.0), S(0.0), S(0.0)};
      unit[k] = S(1.0);
      column(k, read_motion(unit));
    }
  };
  const auto put = [&](const Force<S>& x, int k) {
    S column[6];
    write(x, column);
    for (int r = 0; r < 6; ++r) change.x[r][k] = column[r];
  };
  const auto negative = [](const Force<S>& x) { return Force<S>{-x.n, -x.f}; };
  for (const BodyLaw& law : set.bodies) {
    const auto& b = all.bodies[law.body];
    const SE3<S> X = wrench_frame(law, b);
    const Force<S> F = given_wrench(law, X, b.v, p, t);
    if (law.kind == BodyLaw::carried) continue;
    each_unit([&](int k, const Motion<S>& unit) {
      Force<S> by_q = zero_force<S>(), by_v = zero_force<S>();
      if (law.kind == BodyLaw::damper)
        by_v = X.act(given_wrench(law, X, unit, p, t));
      else if (law.kind == BodyLaw::world)
        by_q = negative(cross(unit, X.act(F)));
      else
        by_q = negative(world_wrench(F.n, F.f, X.p).lag(2, unit));
      put(by_q, k);
      put(by_v, 6 + k);
    });
    each(law.body, change);
  }
  for (const PointLaw& law : set.points) {
    const int n = static_cast<int>(law.points.size()), body = body_of(law);
    if (body < 0) continue;
    const auto* points = force_points(law, arena, all, p);
    auto* F = arena.get<Vec3<S>>(n);
    auto *Fx = arena.get<Mat3<S>>(n * n), *Fv = arena.get<Mat3<S>>(n * n);
    const bool changes = point_forces(law, arena, points, p, t, F, Fx, Fv);
    each_unit([&](int k, const Motion<S>& unit) {
      Force<S> by_q = zero_force<S>(), by_v = zero_force<S>();
      for (int i = 0; i < n; ++i) {
        if (points[i].body < 0) continue;
        by_q += negative(world_wrench(zero3<S>(), F[i], points[i].x).lag(2, unit));
        Vec3<S> moved = zero3<S>(), faster = zero3<S>();
        for (int j = 0; changes && j < n; ++j) {
          if (points[j].body < 0) continue;
          const Vec3<S> step = cross_add(unit.w, points[j].x, unit.v);
          moved = mul_add(Fx[n * i + j], step, mul_add(Fv[n * i + j], cross(unit.w, points[j].xdot), moved));
          faster = mul_add(Fv[n * i + j], step, faster);
        }
        by_q += Force<S>{cross(points[i].x, moved), moved};
        by_v += Force<S>{cross(points[i].x, faster), faster};
      }
      put(by_q, k);
      put(by_v, 6 + k);
    });
    each(body, change);
  }
}

}  // namespace torsor
