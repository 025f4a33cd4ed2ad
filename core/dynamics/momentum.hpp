// Energies, momentum, centre of mass, and their Jacobians. Bodies fixed to the world are left out.
#pragma once
#include "dynamics/jacobians.hpp"
#include "dynamics/mass_matrix.hpp"
#include "tree/motions.hpp"

namespace torsor {

template <class S>
void kinetic_energy(const Model& m, Arena& arena, const S* q, const S* v, S* energy) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  auto* V = arena.get<Motion<S>>(m.n());
  const auto x = coordinates(m, arena, q);
  S sum(0.0);
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    visit<S>(m, body, general, [&](auto joint) {
      const SE3<S> T = joint.transform(body.M, x + body.iq);
      V[i] = joint.apply(v + body.iv);
      if (body.parent >= 0) V[i] += T.act_inverse(V[body.parent]);
    });
    if (!body.massless) sum += dot(V[i], body.I * V[i]);
    for (int k = body.iv; !m.armature.empty() && k < body.iv + body.nv; ++k)
      sum = mul_add(S(m.armature[k]) * v[k], v[k], sum);
  }
  *energy = S(0.5) * sum;
}

// Total mass, and the first moment h about the world's origin.
template <class S>
S first_moment(const Model& m, const WorldBody<S>* bodies, Vec3<S>& h) {
  double mass = 0.0;
  h = zero3<S>();
  for (int i = 0; i < m.n(); ++i) {
    const RigidInertia<double>& I = m.bodies[i].I;
    mass += I.m;
    h += mul_add(S(I.m), bodies[i].X.p, bodies[i].X.R * I.h);
  }
  return S(mass);
}

template <class S>
void potential_energy(const Model& m, Arena& arena, const S* q, S* energy) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  Vec3<S> h;
  first_moment(m, world_bodies(m, arena, general, q), h);
  *energy = -dot(m.gravity, h);
}

template <class S>
void center_of_mass(const Model& m, Arena& arena, const S* q, S* com) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  Vec3<S> h;
  const S mass = first_moment(m, world_bodies(m, arena, general, q), h);
  write3((S(1.0) / mass) * h, com);
}

// A (6 x nv) with A v the momentum about the centre of mass (axes 0) or about the world's origin (axes 1), in the
// world's axes, moment first; and the Jacobian (3 x nv) of the centre of mass. Either may be null.
template <class S>
void momentum_matrix(const Model& m, Arena& arena, const S* q, int axes, S* A, S* Jcom) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  const auto* columns = world_columns(m, arena, general, bodies);
  const auto* I = composite_inertias(m, arena, bodies);
  Vec3<S> h;
  const S inverse_mass = S(1.0) / first_moment(m, bodies, h);
  const Vec3<S> center = axes == 0 ? inverse_mass * h : zero3<S>();
  const int nv = m.nv;
  for (int i = 0; i < m.n(); ++i)
    for (int k = m.bodies[i].iv; k < m.bodies[i].iv + m.bodies[i].nv; ++k) {
      const Force<S> F = I[i] * columns[k];
      if (A != nullptr) {
        S column[6];
        write(shift_back(F, bodies[i].X.p - center), column);
        for (int r = 0; r < 6; ++r) A[r * nv + k] = column[r];
      }
      if (Jcom != nullptr) {
        S column[3];
        write3(inverse_mass * F.f, column);
        for (int r = 0; r < 3; ++r) Jcom[r * nv + k] = column[r];
      }
    }
}

// Momentum (6), as A v above, in O(n).
template <class S>
void momentum(const Model& m, Arena& arena, const S* q, const S* v, int axes, S* L) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  auto* V = arena.get<Motion<S>>(m.n());
  Vec3<S> h;
  const S mass = first_moment(m, bodies, h);
  const Vec3<S> center = axes == 0 ? (S(1.0) / mass) * h : zero3<S>();
  Force<S> sum = zero_force<S>();
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    const Mat3<S>& R = bodies[i].X.R;
    visit<S>(m, body, general, [&](auto joint) {
      const Motion<S> own = joint.apply(v + body.iv);
      V[i] = {R * own.w, R * own.v};
    });
    if (body.parent >= 0) V[i] += shift(V[body.parent], bodies[i].r);
    sum += shift_back(rotate(R, body.I) * V[i], bodies[i].X.p - center);
  }
  write(sum, L);
}

// p = M(q) v, without M.
template <class S, class C>
void generalized_momenta(const ModelT<C>& m, Arena& arena, const S* q, const S* v, S* p) {
  S* rest = arena.get<S>(m.nv);
  for (int k = 0; k < m.nv; ++k) rest[k] = S(0.0);
  const Motions<S> all = motions(m, arena, q, v, rest, false);
  auto* mu = arena.get<Force<S>>(m.n());
  for (int i = 0; i < m.n(); ++i) {
    const auto& b = all.bodies[i];
    mu[i] = m.bodies[i].massless ? zero_force<S>() : shift_back(rotate(b.R, m.bodies[i].I), b.p) * b.v;
  }
  for (int i = m.n() - 1; i >= 0; --i) {
    const auto& link = m.links[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) p[k] = dot(all.columns[k].S_, mu[i]);
    if (link.parent >= 0) mu[link.parent] += mu[i];
  }
  for (std::size_t k = 0; k < m.armature.size(); ++k) p[k] = mul_add(S(m.armature[k]), v[k], p[k]);
}

}  // namespace torsor
