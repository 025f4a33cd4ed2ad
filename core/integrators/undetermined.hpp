// Motions that move no mass, and whether forces determine them (for a single state). With n in the null space of the
// mass matrix, the equations of motion along n are n.(tau_f + u) = 0 and nothing else: an implicit step finds its part
// along n if
//   d(n.tau_f) along n' = n.(K n' + c D n') + tau_f.(dn along n')
// is regular between all n and n'. The last term cancels the apparent contribution of forces on bodies that n does not
// move, as n changes. docs/derivations/singular.md.
#pragma once
#include <vector>

#include "dynamics/mass_solve.hpp"
#include "forces/forces.hpp"
#include "model/configuration.hpp"
#include "scalar/complex_step.hpp"

namespace torsor {

// Velocities that must be held for the mass matrix of the others to be regular, tips first; `held` (nv) is set there.
inline std::vector<int> redundant_velocities(const Model& m, Arena& arena, const double* q,
                                             std::vector<unsigned char>& held) {
  std::vector<int> found;
  held.assign(m.nv, 0);
  while (true) {
    arena.reset();
    arena.singular_joint = -1;
    factor_mass<double>(m, arena, q, nullptr, nullptr, held.data());
    if (arena.singular_joint < 0) return found;
    arena.singular_joint = -1;
    found.push_back(arena.singular_velocity);
    held[arena.singular_velocity] = 1;
  }
}

// For each of them, the motion that moves no mass: 1 for itself, 0 for the others, and the response of all velocities
// that are not held.
template <class S>
std::vector<std::vector<S>> motions_without_mass(const Model& m, Arena& arena, const S* q,
                                                 const std::vector<unsigned char>& held,
                                                 const std::vector<int>& redundant) {
  arena.reset();
  const MassFactor<S> mass = factor_mass<S>(m, arena, q, nullptr, nullptr, held.data());
  std::vector<std::vector<S>> all(redundant.size(), std::vector<S>(m.nv, S(0.0)));
  for (std::size_t k = 0; k < all.size(); ++k) {
    all[k][redundant[k]] = S(1.0);
    solve_mass(m, mass, all[k].data(), all[k].data());
  }
  return all;
}

// The user's joint that is moved by an undetermined motion without mass, in a step with 1 / h = c; -1 if there is none.
inline int undetermined_joint(const Model& m, const ForceSet* forces, Arena& arena, const double* q, const double* v,
                              double t, const double* p, double c) {
  if (!m.has_weak) return -1;
  std::vector<unsigned char> held;
  const std::vector<int> redundant = redundant_velocities(m, arena, q, held);
  const int count = static_cast<int>(redundant.size()), nv = m.nv;
  if (count == 0) return -1;
  std::vector<int> joint(nv);
  for (const Model::Body& body : m.bodies) std::fill_n(joint.begin() + body.iv, body.nv, body.joint);
  if (forces == nullptr) return joint[redundant[0]];
  const auto n = motions_without_mass<double>(m, arena, q, held, redundant);

  // Diagonal of M, tau_f, K and D
  std::vector<double> M(nv), tau(nv, 0.0), K(std::size_t(nv) * nv), D(K.size());
  arena.reset();
  auto* general = arena.get<GeneralState<double>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  const auto* columns = world_columns(m, arena, general, bodies);
  const auto* inertias = composite_inertias(m, arena, bodies);
  for (int i = 0; i < m.n(); ++i)
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k)
      M[k] = dot(columns[k], inertias[i] * columns[k]) + (m.armature.empty() ? 0.0 : m.armature[k]);
  generalized_forces<double>(m, *forces, arena, q, v, t, p, tau.data());
  arena.reset();
  generalized_forces_derivatives<double>(m, *forces, arena, q, v, t, p, K.data(), D.data());

  // G, and the size of its terms: including inertias, whose rounding hides smaller forces. dn by complex step.
  std::vector<double> G(std::size_t(count) * count), size(count, 1e-300);
  const std::vector<Complex> from(q, q + m.nq);
  std::vector<Complex> along(nv), turned(m.nq);
  for (int l = 0; l < count; ++l) {
    for (int k = 0; k < nv; ++k) along[k] = Complex(0.0, kStep * n[l][k]);
    plus(m, from.data(), along.data(), turned.data());
    const auto other = motions_without_mass<Complex>(m, arena, turned.data(), held, redundant);
    for (int k = 0; k < count; ++k) {
      double sum = 0.0, terms = 0.0;
      const auto add = [&](double x) {
        sum += x;
        terms += std::fabs(x);
      };
      for (int i = 0; i < nv; ++i) {
        add(tau[i] * other[k][i].imag() / kStep);
        if (n[k][i] == 0.0) continue;
        for (int j = 0; j < nv; ++j) {
          add(n[k][i] * K[std::size_t(i) * nv + j] * n[l][j]);
          add(n[k][i] * c * D[std::size_t(i) * nv + j] * n[l][j]);
        }
      }
      G[k * count + l] = sum;
      size[k] = std::max(size[k], 1e-10 * terms);
      size[l] = std::max(size[l], 1e-10 * terms);
    }
  }
  for (int k = 0; k < count; ++k) {
    for (int i = 0; i < nv; ++i) size[k] += kNothing * c * c * M[i] * n[k][i] * n[k][i];
    size[k] = std::sqrt(size[k]);
  }
  for (int k = 0; k < count; ++k)
    for (int l = 0; l < count; ++l) G[k * count + l] /= size[k] * size[l];

  // Elimination, largest entry first: entries below 1 are rounding.
  std::vector<int> left(redundant);
  for (int k = 0; k < count; ++k) {
    int row = k, column = k;
    for (int i = k; i < count; ++i)
      for (int j = k; j < count; ++j)
        if (std::fabs(G[i * count + j]) > std::fabs(G[row * count + column])) row = i, column = j;
    for (int j = 0; j < count; ++j) std::swap(G[k * count + j], G[row * count + j]);
    for (int i = 0; i < count; ++i) std::swap(G[i * count + k], G[i * count + column]);
    std::swap(left[k], left[column]);
    if (!(std::fabs(G[k * count + k]) > 1.0)) return joint[left[k]];
    for (int i = k + 1; i < count; ++i)
      add_scaled(count - k, -G[i * count + k] / G[k * count + k], &G[k * count + k], &G[i * count + k]);
  }
  return -1;
}

}  // namespace torsor
