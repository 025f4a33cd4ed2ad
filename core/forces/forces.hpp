// All forces of a scene at a state whose motions are known: their sums for the recursions, their derivatives by q and v
// beyond those of the wrenches' own motion, their energies, and gradients of their power. p: parameters of all forces.
#pragma once
#include "derivatives/inverse_dynamics_derivatives.hpp"
#include "forces/force_set.hpp"

namespace torsor {

template <class S>
ForceSums<S> force_sums(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q,
                        const S* v, double t, const S* p) {
  const ForceSums<S> sums{arena.get<S>(m.nv), arena.get<Force<S>>(m.n()), arena.get<WorldWrench<S>>(m.n())};
  for (int k = 0; k < m.nv; ++k) sums.tau[k] = S(0.0);
  for (int i = 0; i < m.n(); ++i) {
    sums.carried[i] = zero_force<S>();
    sums.held[i] = world_wrench(zero3<S>(), zero3<S>(), zero3<S>());
  }
  const ForceState<S> at(m, arena, all, q, v, t, p);
  set.for_each([&](const auto& law) { law.add_forces(at, sums); });
  return sums;
}

// tau += the torques of forces none of which acts on bodies: these need no motions. Not inlined, so that steps without
// forces are as short as they can be.
template <class S>
__attribute__((noinline)) void add_joint_torques(const Model& m, const ForceSet& set, Arena& arena, const S* q,
                                                 const S* v, double t, const S* p, S* tau) {
  const Motions<S> none{};
  const ForceState<S> at(m, arena, none, q, v, t, p);
  set.for_each([&](const auto& law) { law.add_forces(at, ForceSums<S>{tau, nullptr, nullptr}); });
}

// Subtracts the wrenches from the bodies' f. After add_to_parents(m, bodies, sums.held), pair_columns(..., sums.held,
// 2, ...) then differentiates their motion; linearise_forces adds the rest.
template <class S>
void subtract_wrenches(const Model& m, DerivativeBody<S>* bodies, const ForceSums<S>& sums) {
  for (int i = 0; i < m.n(); ++i) {
    const Force<S> F = sums.carried[i] + sums.held[i].F;
    bodies[i].f.n -= F.n;
    bodies[i].f.f -= F.f;
  }
}

// Aq -= dtau/dq and Av -= dtau/dv: joint torques completely, wrenches without the motion that pair_columns
// differentiates. Rows `stride` apart.
template <class S>
void linearise_forces(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q, const S* v,
                      double t, const S* p, S* Aq, S* Av, int stride) {
  const ForceState<S> at(m, arena, all, q, v, t, p);
  set.for_each([&](const auto& law) { law.linearise(at, ForceMatrices<S>{Aq, Av, stride}); });
}

// Motions without accelerations and gravity, as the functions below take them.
template <class S, class C>
Motions<S> force_motions(const ModelT<C>& m, Arena& arena, const S* q, const S* v) {
  S* rest = arena.get<S>(m.nv);
  for (int k = 0; k < m.nv; ++k) rest[k] = S(0.0);
  return motions(m, arena, q, v, rest, false);
}

// tau = the torques of all forces.
template <class S>
void generalized_forces(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q,
                        const S* v, double t, const S* p, S* tau) {
  const ForceSums<S> sums = force_sums(m, set, arena, all, q, v, t, p);
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    sums.carried[i] += sums.held[i].F;
    for (int k = link.iv; k < link.iv + link.nv; ++k) tau[k] = sums.tau[k] + dot(all.columns[k].S_, sums.carried[i]);
    if (link.parent >= 0) sums.carried[link.parent] += sums.carried[i];
  }
}

template <class S>
void generalized_forces(const Model& m, const ForceSet& set, Arena& arena, const S* q, const S* v, double t, const S* p,
                        S* tau) {
  generalized_forces(m, set, arena, force_motions(m, arena, q, v), q, v, t, p, tau);
}

// K = dtau/dq and D = dtau/dv, nv x nv, both complete. Of the bodies, inertias and forces are overwritten.
template <class S>
void generalized_forces_derivatives(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all,
                                    const S* q, const S* v, double t, const S* p, S* K, S* D) {
  for (int k = 0; k < m.nv * m.nv; ++k) K[k] = D[k] = 0.0;
  const ForceSums<S> sums = force_sums(m, set, arena, all, q, v, t, p);
  for (int i = 0; i < m.n(); ++i) {  // a tree without inertia, so that the residual is -tau
    auto& b = all.bodies[i];
    b.I = zero_inertia<S>();
    b.B = {b.I.J, b.I.h, b.I.h};
    b.f = zero_force<S>();
  }
  subtract_wrenches(m, all.bodies, sums);
  add_to_parents(m, all.bodies, sums.held);
  pair_columns<S>(m, arena, all, sums.held, 2, K, nullptr, nullptr, m.nv);
  linearise_forces(m, set, arena, all, q, v, t, p, K, D, m.nv);
  for (int k = 0; k < m.nv * m.nv; ++k) {
    K[k] = -K[k];
    D[k] = -D[k];
  }
}
// The motions are returned.
template <class S>
Motions<S> generalized_forces_derivatives(const Model& m, const ForceSet& set, Arena& arena, const S* q, const S* v,
                                          double t, const S* p, S* K, S* D) {
  const Motions<S> all = force_motions(m, arena, q, v);
  generalized_forces_derivatives(m, set, arena, all, q, v, t, p, K, D);
  return all;
}

// The energy of each force; 0 for those without one.
template <class S>
void force_energies(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q, const S* v,
                    double t, const S* p, S* energies) {
  for (int i = 0; i < set.forces; ++i) energies[i] = S(0.0);
  const ForceState<S> at(m, arena, all, q, v, t, p);
  set.for_each([&](const auto& law) { energies[law.force] += law.energy(at); });
}
inline double force_energy(const Model& m, const ForceSet& set, Arena& arena, const Motions<double>& all,
                           const double* q, const double* v, double t, const double* p) {
  double* energies = arena.get<double>(set.forces);
  force_energies(m, set, arena, all, q, v, t, p, energies);
  double sum = 0.0;
  for (int i = 0; i < set.forces; ++i) sum += energies[i];
  return sum;
}

// gradient += the gradient of w.tau by all parameters. w.tau is the power of the forces when the joints move with w
// and, if given, the bodies by further twists.
template <class S>
void force_parameter_gradient(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q,
                              const S* v, double t, const S* p, const S* w, S* gradient,
                              const Motion<S>* twists = nullptr) {
  const ForceState<S> at(m, arena, all, q, v, t, p);
  const VirtualMotion<S> motion = virtual_motion(m, arena, all, w, twists);
  set.for_each([&](const auto& law) { law.add_parameter_gradient(at, motion, gradient); });
}

// out -= D^T lambda, D = dtau/dv, of forces none of which acts on bodies.
template <class S>
void add_transposed_joint_damping(const Model& m, const ForceSet& set, Arena& arena, const S* q, const S* v, double t,
                                  const S* p, const S* lambda, S* out) {
  const Motions<S> none{};
  const ForceState<S> at(m, arena, none, q, v, t, p);
  S* by_v = arena.get<S>(m.nv);
  for (int k = 0; k < m.nv; ++k) by_v[k] = S(0.0);
  set.for_each(
      [&](const auto& law) { law.add_velocity_gradient(at, VirtualMotion<S>{lambda, nullptr}, {by_v, nullptr}); });
  for (int k = 0; k < m.nv; ++k) out[k] -= by_v[k];
}
// out -= D^T lambda, D = dtau/dv, without D: the gradient of lambda.tau by the velocities, in O(n) except for
// user-defined forces.
template <class S>
void add_transposed_damping(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q,
                            const S* v, double t, const S* p, const S* lambda, S* out) {
  const ForceState<S> at(m, arena, all, q, v, t, p);
  const VirtualMotion<S> motion = virtual_motion(m, arena, all, lambda);
  const VelocityGradient<S> sums{arena.get<S>(m.nv), arena.get<Force<S>>(m.n())};
  for (int k = 0; k < m.nv; ++k) sums.by_v[k] = S(0.0);
  for (int i = 0; i < m.n(); ++i) sums.by_twist[i] = zero_force<S>();
  set.for_each([&](const auto& law) { law.add_velocity_gradient(at, motion, sums); });
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) out[k] -= sums.by_v[k] + dot(all.columns[k].S_, sums.by_twist[i]);
    if (link.parent >= 0) sums.by_twist[link.parent] += sums.by_twist[i];
  }
}

}  // namespace torsor
