// Mass matrix by composite rigid bodies, in the world's axes, each body about its own origin.
#pragma once
#include "world.hpp"

namespace torsor {

// Inertias of all subtrees, in the world's axes about the origin of the subtree's body.
template <class S>
RigidInertia<S>* composite_inertias(const Model& m, Arena& arena, const WorldBody<S>* bodies) {
  auto* I = arena.get<RigidInertia<S>>(m.n());
  for (int i = 0; i < m.n(); ++i)
    I[i] = m.bodies[i].massless ? zero_inertia<S>() : rotate(bodies[i].X.R, m.bodies[i].I);
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Body& body = m.bodies[i];
    if (body.parent >= 0) I[body.parent] += body.offset ? shift_back(I[i], bodies[i].r) : I[i];
  }
  return I;
}

// Columns of S of the velocities from the root to a body, component by component, so that one state too runs over them in
// vectors. Bodies come depth first: each overwrites what the path had from its level on.
template <class S>
struct Path {
  int* velocity;
  S *wx, *wy, *wz, *vx, *vy, *vz, *px, *py, *pz;  // columns and the origins at which they stand
  Path(const Model& m, Arena& arena) : velocity(arena.get<int>(m.nv)) {
    for (S** x : {&wx, &wy, &wz, &vx, &vy, &vz, &px, &py, &pz}) *x = arena.get<S>(m.nv);
  }
  void put(int t, int k, const Motion<S>& c, const Vec3<S>& p) {
    velocity[t] = k;
    wx[t] = c.w.x, wy[t] = c.w.y, wz[t] = c.w.z;
    vx[t] = c.v.x, vy[t] = c.v.y, vz[t] = c.v.z;
    px[t] = p.x, py[t] = p.y, pz[t] = p.z;
  }
  // The products of the first `count` columns with a wrench F at p, several at a time in V (which, over numbers just written
  // one by one, waits for them: worth it on long paths only).
  template <class V>
  TORSOR_INLINE void pair(int count, const Vec3<S>& p, const Force<S>& F, S* products) const {
    if constexpr (std::is_constructible_v<V, S>) {
      const Vec3<V> pv = lift<V>(p), nv = lift<V>(F.n), fv = lift<V>(F.f);
      for (int t = 0; t < count; t += sizeof(V) / sizeof(S)) {
        const auto at = [&](const S* x, const S* y, const S* z) TORSOR_INLINE_LAMBDA -> Vec3<V> {
          return {load<V>(x + t), load<V>(y + t), load<V>(z + t)};
        };
        const Vec3<V> n = cross_add(pv - at(px, py, pz), fv, nv);  // about the origin of the column
        store(dot_add(at(vx, vy, vz), fv, dot(at(wx, wy, wz), n)), products + t);
      }
    }
  }
};

// M, nv x nv, row-major.
template <class S>
void mass_matrix(const Model& m, Arena& arena, const S* q, S* M) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  const auto* columns = world_columns(m, arena, general, bodies);
  const auto* I = composite_inertias(m, arena, bodies);
  const int nv = m.nv;
  Path<S> path(m, arena);
  int* depth = arena.get<int>(m.n());  // velocities from the root to each body, its own included
  S* entries = arena.get<S>(nv);
  for (int k = 0; k < nv * nv; ++k) M[k] = S(0.0);
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    const Vec3<S> p = bodies[i].X.p;
    const int above = body.parent >= 0 ? depth[body.parent] : 0;
    depth[i] = above + body.nv;
    for (int k = 0; k < body.nv; ++k) path.put(above + k, body.iv + k, columns[body.iv + k], p);
    for (int k = 0; k < body.nv; ++k) {
      const Force<S> F = I[i] * columns[body.iv + k];
      const int row = body.iv + k, count = above + k + 1;
      if (std::is_same_v<S, double> && count > 16)
        path.template pair<Pack<kLanes>>(count, p, F, entries);
      else
        path.template pair<S>(count, p, F, entries);
      for (int t = 0; t < count; ++t) M[row * nv + path.velocity[t]] = M[path.velocity[t] * nv + row] = entries[t];
    }
  }
}

}  // namespace torsor
