// What is known of forces beforehand.
#pragma once
#include "forces/body_forces.hpp"

namespace torsor {

inline bool holds(const ForceSet& set) {
  for (const BodyLaw& law : set.bodies)
    if (law.kind == BodyLaw::aligned) return true;
  return !set.points.empty();
}
// Whether forces leave the entries between branches zero: those between points do if all bodies lie on one path.
inline bool keeps_branches(const Model& m, const ForceSet& set) {
  if (!set.customs.empty()) return false;
  for (const PointLaw& law : set.points) {
    int tip = -1;
    for (const Attachment& point : law.points) tip = std::max(tip, point.body);
    for (const Attachment& point : law.points) {
      int i = tip;
      while (i > point.body) i = m.links[i].parent;
      if (i != point.body && point.body >= 0) return false;
    }
  }
  return true;
}
// Whether what forces do depends on where bodies are.
inline bool depends_on_place(const ForceSet& set) {
  if (!set.points.empty()) return true;
  for (const BodyLaw& law : set.bodies)
    if (law.kind == BodyLaw::aligned || law.kind == BodyLaw::world) return true;
  return false;
}

// out -= D^T x, D = dtau/dv of forces that are local.
template <class S>
void add_transposed_damping(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q,
                            const S* v, double t, const S* p, const S* x, S* out) {
  for (const JointLaw& law : set.joints) {
    const Model::Body& body = m.bodies[law.body];
    const int n = body.nv;
    S K[36] = {}, D[36] = {};
    linearise_joint(JointForce<S>(m, law, q, v, p), K, D, n);
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) out[body.iv + k] = mul_add(D[n * j + k], x[body.iv + j], out[body.iv + k]);
  }
  if (set.bodies.empty() && set.points.empty()) return;
  auto* W = arena.get<Motion<S>>(m.n() + 1) + 1;
  auto* y = arena.get<Force<S>>(m.n());
  W[-1] = zero_motion<S>();
  for (int i = 0; i < m.n(); ++i) {
    const Model::Link& link = m.links[i];
    y[i] = zero_force<S>();
    W[i] = W[link.parent];
    for (int k = link.iv; k < link.iv + link.nv; ++k) W[i] = mul_add(x[k], all.columns[k].S_, W[i]);
  }
  for_each_body_force<S>(set, arena, all, t, p, [&](int i, const WrenchChange<S>& change) {
    S along[6], sum[6];
    write(W[i], along);
    for (int k = 0; k < 6; ++k) {
      sum[k] = S(0.0);
      for (int r = 0; r < 6; ++r) sum[k] = mul_add(change.x[r][6 + k], along[r], sum[k]);
    }
    y[i] += read_force(sum);
  });
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) out[k] -= dot(all.columns[k].S_, y[i]);
    if (link.parent >= 0) y[link.parent] += y[i];
  }
}

}  // namespace torsor
