// Mass matrix by composite rigid bodies, in the world's axes, each body about its own origin.
#pragma once
#include "tree/column_path.hpp"
#include "tree/poses.hpp"

namespace torsor {

// Inertias of all subtrees, in the world's axes about the origin of the subtree's body.
template <class S, class C>
RigidInertia<S>* composite_inertias(const ModelT<C>& m, Arena& arena, const WorldBody<S>* bodies) {
  auto* I = arena.get<RigidInertia<S>>(m.n());
  for (int i = 0; i < m.n(); ++i)
    I[i] = m.bodies[i].massless ? zero_inertia<S>() : rotate(bodies[i].X.R, m.bodies[i].I);
  for (int i = m.n() - 1; i >= 0; --i) {
    const auto& body = m.bodies[i];
    if (body.parent >= 0) I[body.parent] += body.offset ? shift_back(I[i], bodies[i].r) : I[i];
  }
  return I;
}

// A column of S and the origin of its body.
template <class S>
struct MassColumn {
  Motion<S> S_;
  Vec3<S> p;
};

// The entries of M on and between the paths from the root to each body, several at a time.
template <class S>
void pair_along_paths(const Model& m, Arena& arena, const WorldBody<S>* bodies, const Motion<S>* S_,
                      const RigidInertia<S>* I, S* M) {
  using V = Wide<S>;
  const int nv = m.nv;
  auto* columns = arena.get<MassColumn<S>>(nv);
  for (int i = 0; i < m.n(); ++i)
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) columns[k] = {S_[k], bodies[i].X.p};
  Path<MassColumn, S> path(m, arena, columns);
  for (int i = m.n() - 1; i >= 0; --i) {
    path.enter(i);
    const Model::Link& link = m.links[i];
    const Vec3<V> p = lift<V>(bodies[i].X.p);
    for (int k = 0; k < link.nv; ++k) {
      const int r = link.iv + k, count = link.above + k + 1;
      const Force<V> F = lift<V>(I[i] * S_[r]);
      for (int t = 0; t < count; t += path.width) {
        const auto& e = path.at(t);
        const Vec3<V> n = cross_add(p - e.p, F.f, F.n);  // about the origin of the column
        const V both = dot_add(e.S_.v, F.f, dot(e.S_.w, n));
        path.put_row(both, t, count, M + r * nv);
        path.put_column(both, t, count - 1, M + r, nv);
      }
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
  // One state on long paths: several columns at a time. Otherwise one by one.
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
  for (std::size_t k = 0; k < m.armature.size(); ++k) M[k * (nv + 1)] += S(m.armature[k]);
}

}  // namespace torsor
