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

// The entries of M on and between the paths from the root to each body.
template <class S>
void pair_along_paths(const Model& m, Arena& arena, const WorldBody<S>* bodies, const Motion<S>* columns,
                      const RigidInertia<S>* I, S* M) {
  const int nv = m.nv;
  Path<S> path(m, arena);
  int* depth = arena.get<int>(m.n());  // velocities from the root to each body, its own included
  S* entries = arena.get<S>(nv);
  for (int i = 0; i < m.n(); ++i) {
    const Model::Link& own = m.links[i];
    const Vec3<S> p = bodies[i].X.p;
    const int above = own.parent >= 0 ? depth[own.parent] : 0;
    depth[i] = above + own.nv;
    for (int k = 0; k < own.nv; ++k) path.put(above + k, own.iv + k, columns[own.iv + k], p);
    for (int k = 0; k < own.nv; ++k) {
      const int row = own.iv + k, count = above + k + 1;
      path.template pair<Pack<kLanes>>(count, p, I[i] * columns[row], entries);
      for (int t = 0; t < count; ++t) M[row * nv + path.velocity[t]] = M[path.velocity[t] * nv + row] = entries[t];
    }
  }
}

// M, nv x nv, row-major.
template <class S>
void mass_matrix(const Model& m, Arena& arena, const S* q, S* M) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  const auto* columns = world_columns(m, arena, general, bodies);
  const auto* I = composite_inertias(m, arena, bodies);
  const int nv = m.nv;
  for (int k = 0; k < nv * nv; ++k) M[k] = S(0.0);
  // One state on long paths: several columns at a time. Otherwise one after the other.
  if (std::is_same_v<S, double> && m.depth > 24)
    pair_along_paths(m, arena, bodies, columns, I, M);
  else
    for (int i = 0; i < m.n(); ++i) {
      const Model::Link& own = m.links[i];
      for (int k = own.iv; k < own.iv + own.nv; ++k) {
        const Force<S> F = I[i] * columns[k];
        for (int l = own.iv; l <= k; ++l) M[k * nv + l] = M[l * nv + k] = dot(columns[l], F);
        for (int j = own.parent; j >= 0; j = m.links[j].parent) {
          const Model::Link& link = m.links[j];
          const Vec3<S> n = cross_add(bodies[i].X.p - bodies[j].X.p, F.f, F.n);  // about the origin of body j
          for (int l = link.iv; l < link.iv + link.nv; ++l)
            M[k * nv + l] = M[l * nv + k] = dot_add(columns[l].v, F.f, dot(columns[l].w, n));
        }
      }
    }
}

}  // namespace torsor
