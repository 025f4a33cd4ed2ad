// A Coriolis matrix C(q, v) with C v the velocity-dependent torque and Mdot - 2 C skew: C = sum over bodies of J^T (I
// Jdot + B J), with B of Singh 2022, eq. (6), for which B + B^T is the rate of I. It holds for joints with S(q) too,
// Jdot then including their own rate.
#pragma once
#include "dynamics/jacobians.hpp"
#include "dynamics/mass_matrix.hpp"

namespace torsor {

// C, nv x nv, row-major.
template <class S>
void coriolis_matrix(const Model& m, Arena& arena, const S* q, const S* v, S* C) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  const auto* columns = world_columns(m, arena, general, bodies);
  const Rates<S> rates = world_rates(m, arena, general, bodies, columns, v);
  const int n = m.n(), nv = m.nv;
  auto* I = arena.get<RigidInertia<S>>(n);
  auto* B = arena.get<CoriolisInertia<S>>(n);
  for (int i = 0; i < n; ++i) {
    I[i] = rotate(bodies[i].X.R, m.bodies[i].I);
    B[i] = coriolis_inertia(I[i], rates.V[i]);
  }
  for (int k = 0; k < nv * nv; ++k) C[k] = S(0.0);
  for (int i = n - 1; i >= 0; --i) {
    const Model::Body& body = m.bodies[i];
    const S half(0.5);
    // For k in this body's joint and l in it or above: the column I Sdot + B S of each against the other's S.
    Force<S> own[6];
    for (int k = 0; k < body.nv; ++k)
      own[k] = mul_add(half, B[i] * columns[body.iv + k], I[i] * rates.Sdot[body.iv + k]);
    for_each_velocity_above(m, i, [&](int l, int j) {
      const Vec3<S> r = bodies[i].X.p - bodies[j].X.p;
      const Motion<S> Sl = shift(columns[l], r), Sdotl = shift(rates.Sdot[l], r);
      const Force<S> Fl = mul_add(half, B[i] * Sl, I[i] * Sdotl);
      for (int k = 0; k < body.nv; ++k) {
        C[(body.iv + k) * nv + l] = dot(columns[body.iv + k], Fl);
        if (j != i) C[l * nv + body.iv + k] = dot(Sl, own[k]);
      }
    });
    if (body.parent >= 0) {
      I[body.parent] += shift_back(I[i], bodies[i].r);
      B[body.parent] += shift_back(B[i], bodies[i].r);
    }
  }
}

}  // namespace torsor
