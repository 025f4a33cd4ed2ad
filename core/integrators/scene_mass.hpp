// The mass matrix in the coordinates of a scene: factored over the tree or, with couplings, M_R = P^T M P densely.
#pragma once
#include "derivatives/inverse_dynamics_derivatives.hpp"
#include "dynamics/mass_solve.hpp"
#include "dynamics/momentum.hpp"
#include "integrators/scene.hpp"
#include "linear/ldl.hpp"

namespace torsor {

// M of the tree and, if it is asked for, d(M v)/dq, nv x nv.
template <class S>
void tree_momentum_derivatives(const Scene& scene, Arena& arena, const S* q, const S* v, S* M, S* Mq) {
  const Model& tree = scene.tree;
  const S* rest = zeros<S>(arena, tree.nv);
  const Motions<S> all = with_model<S>(scene, [&](const auto& m) {
    const Motions<S> found = motions<S>(m, arena, q, rest, v, false);
    body_terms(m, found.bodies);
    return found;
  });
  add_to_parents<S>(tree, all.bodies, nullptr);
  std::fill_n(M, tree.nv * tree.nv, S(0.0));
  if (Mq != nullptr) std::fill_n(Mq, tree.nv * tree.nv, S(0.0));
  pair_columns<S>(tree, arena, all, nullptr, 0, Mq, nullptr, M, tree.nv);
}

// Products with the inverse. Where the mass matrix is singular, the arena says so.
template <class S>
class SceneMass {
 public:
  SceneMass(const Scene& scene, Arena& arena, const S* q) : scene_(scene), arena_(arena) {
    if (!scene.coupled) {
      tree_ = with_model<S>(scene, [&](const auto& m) { return factor_mass<S>(m, arena, q, nullptr, nullptr); });
      return;
    }
    const Coupling& coupling = *scene.tree.coupling;
    const int nv = scene.tree.nv, nr = coupling.nv();
    const Lifted<S> at = lift_state<S>(scene.tree, arena, q, nullptr, nullptr, 1);
    S *M = arena.get<S>(std::size_t(nv) * nv), *rest = zeros<S>(arena, nv);
    tree_momentum_derivatives<S>(scene, arena, at.q, rest, M, nullptr);
    L_ = arena.get<S>(std::size_t(nr) * nr);
    project_symmetric(arena, tangent_map(at.terms, arena), M, L_);
    factor_ldl(nr, L_, arena.get<S>(nr), [&](int k, const S& D, const S& size) {
      note_singular(arena, is_nothing(D, size), coupling.joint_of[k], k);
    });
  }
  // y = M^-1 x; both may be the same. Elements lie `stride` apart.
  void solve(const S* x, S* y, int stride = 1) const {
    if (!scene_.coupled) return solve_mass(scene_.tree, tree_, x, y, stride);
    const int n = scene_.m.nv;
    S* z = arena_.get<S>(n);
    for (int k = 0; k < n; ++k) z[k] = x[k * stride];
    solve_ldl(n, L_, 1, z);
    for (int k = 0; k < n; ++k) y[k * stride] = z[k];
  }
  const MassFactor<S>& tree() const { return tree_; }  // without couplings

 private:
  const Scene& scene_;
  Arena& arena_;
  MassFactor<S> tree_{};
  S* L_ = nullptr;
};

// Momenta M v.
template <class S>
void scene_momenta(const Scene& scene, Arena& arena, const S* q, const S* v, S* p) {
  if (!scene.coupled) return with_model<S>(scene, [&](const auto& m) { generalized_momenta(m, arena, q, v, p); });
  const Lifted<S> at = lift_state<S>(scene.tree, arena, q, v, nullptr, 1);
  S* own = arena.get<S>(scene.tree.nv);
  with_model<S>(scene, [&](const auto& m) { generalized_momenta(m, arena, at.q, at.v, own); });
  pull(at.terms, own, p);
}

// M and d(M v)/dq, nv x nv. With couplings the latter is P^T (d(M y)/dq P + M Pdot) + phi''.(M y), y = P v.
template <class S>
void momentum_derivatives(const Scene& scene, Arena& arena, const S* q, const S* v, S* M, S* Mq) {
  if (!scene.coupled) return tree_momentum_derivatives(scene, arena, q, v, M, Mq);
  const int nv = scene.tree.nv;
  const ChainedState<S> at = chained_state<S>(scene.tree, arena, q, v, zeros<S>(arena, scene.m.nv));
  S *own = arena.get<S>(std::size_t(nv) * nv), *own_q = arena.get<S>(std::size_t(nv) * nv), *p = arena.get<S>(nv);
  tree_momentum_derivatives<S>(scene, arena, at.tree.q, at.tree.v, own, own_q);
  with_model<S>(scene, [&](const auto& m) { generalized_momenta(m, arena, at.tree.q, at.tree.v, p); });
  project_symmetric(arena, at.P, own, M);
  // as forces whose derivatives by q and v are those of M y
  chain_forces<S>(at, arena, own_q, own, nullptr, p, Mq, nullptr, nullptr);
}

}  // namespace torsor
