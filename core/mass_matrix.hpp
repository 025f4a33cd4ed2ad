// Mass matrix by composite rigid bodies, in the world's axes, each body about its own origin.
#pragma once
#include "world.hpp"

namespace torsor {

// Inertias of all subtrees, in the world's axes about the origin of the subtree's body.
template <class S>
RigidInertia<S>* composite_inertias(const Model& m, Arena& arena, const WorldBody<S>* bodies) {
  auto* I = arena.get<RigidInertia<S>>(m.n());
  for (int i = 0; i < m.n(); ++i) I[i] = m.bodies[i].massless ? zero_inertia<S>() : rotate(bodies[i].X.R, m.bodies[i].I);
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Body& body = m.bodies[i];
    if (body.parent >= 0) I[body.parent] += body.offset ? shift_back(I[i], bodies[i].r) : I[i];
  }
  return I;
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
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    for (int k = body.iv; k < body.iv + body.nv; ++k) {
      Force<S> F = I[i] * columns[k];
      for (int l = body.iv; l <= k; ++l) M[k * nv + l] = M[l * nv + k] = dot(columns[l], F);
      for (int j = i; m.bodies[j].parent >= 0;) {
        if (m.bodies[j].offset) F = shift_back(F, bodies[j].r);
        j = m.bodies[j].parent;
        for (int l = m.bodies[j].iv; l < m.bodies[j].iv + m.bodies[j].nv; ++l) M[k * nv + l] = M[l * nv + k] = dot(columns[l], F);
      }
    }
  }
}

}  // namespace torsor
