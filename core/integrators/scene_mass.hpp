// The mass matrix in the coordinates of a scene: factored over the tree or, with couplings, M_R = P^T M P densely.
#pragma once
#include "derivatives/inverse_dynamics_derivatives.hpp"
#include "derivatives/inverse_dynamics_vjp.hpp"
#include "dynamics/inverse_dynamics.hpp"
#include "dynamics/mass_solve.hpp"
#include "dynamics/momentum.hpp"
#include "integrators/scene.hpp"
#include "linear/ldl.hpp"

namespace torsor {

// M of the tree and d(M v)/dq, nv x nv; either may be null.
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
  if (M != nullptr) std::fill_n(M, tree.nv * tree.nv, S(0.0));
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

 private:
  const Scene& scene_;
  Arena& arena_;
  MassFactor<S> tree_{};
  S* L_ = nullptr;
};

// tau_f - ID(q, v, a): what of accelerations a is driven by controls or constraints, with a minus.
template <class S>
void driving_torques(const Scene& scene, Arena& arena, const S* q, const S* v, const S* a, double t, const S* p,
                     S* out) {
  const Model& tree = scene.tree;
  std::optional<Lifted<S>> lifted;
  if (scene.coupled) {
    lifted.emplace(lift_state<S>(tree, arena, q, v, a, 2));
    q = lifted->q;
    v = lifted->v;
    a = lifted->a;
  }
  S *tau = zeros<S>(arena, tree.nv), *bias = arena.get<S>(tree.nv);
  with_model<S>(scene, [&](const auto& m) {
    if (scene.forces != nullptr)
      generalized_forces(tree, *scene.forces, arena, force_motions(m, arena, q, v), q, v, t, p, tau);
    inverse_dynamics<S>(m, arena, q, v, a, nullptr, bias);
  });
  for (int k = 0; k < tree.nv; ++k) tau[k] -= bias[k];
  if (scene.coupled)
    pull(lifted->terms, tau, out);
  else
    std::copy_n(tau, tree.nv, out);
}

// Momenta M v.
template <class S>
void scene_momenta(const Scene& scene, Arena& arena, const S* q, const S* v, S* p) {
  if (!scene.coupled) return with_model<S>(scene, [&](const auto& m) { generalized_momenta(m, arena, q, v, p); });
  const Lifted<S> at = lift_state<S>(scene.tree, arena, q, v, nullptr, 1);
  S* own = arena.get<S>(scene.tree.nv);
  with_model<S>(scene, [&](const auto& m) { generalized_momenta(m, arena, at.q, at.v, own); });
  pull(at.terms, own, p);
}

// M, which may be null, and d(M v)/dq, nv x nv. With couplings the latter is P^T (d(M y)/dq P + M Pdot) + phi''.(M y),
// y = P v.
template <class S>
void momentum_derivatives(const Scene& scene, Arena& arena, const S* q, const S* v, S* M, S* Mq) {
  if (!scene.coupled) return tree_momentum_derivatives(scene, arena, q, v, M, Mq);
  const int nv = scene.tree.nv;
  const ChainedState<S> at = chained_state<S>(scene.tree, arena, q, v, zeros<S>(arena, scene.m.nv));
  S *own = arena.get<S>(std::size_t(nv) * nv), *own_q = arena.get<S>(std::size_t(nv) * nv), *p = arena.get<S>(nv);
  tree_momentum_derivatives<S>(scene, arena, at.tree.q, at.tree.v, own, own_q);
  with_model<S>(scene, [&](const auto& m) { generalized_momenta(m, arena, at.tree.q, at.tree.v, p); });
  if (M != nullptr) project_symmetric(arena, at.P, own, M);
  // as forces whose derivatives by q and v are those of M y
  chain_forces<S>(at, arena, own_q, own, nullptr, p, Mq, nullptr, nullptr);
}

// Gradients of x.(M v), any of which may be null: by q and v, by inertias, placements and armature of the tree, and by
// numbers of couplings, to which those are added.
template <class S>
struct MomentumGradients {
  S *q, *v, *inertia, *placement, *armature, *couplings;
};
template <class S>
void momentum_gradients(const Scene& scene, Arena& arena, const S* q, const S* v, const S* x,
                        const MomentumGradients<S>& out) {
  const Model& tree = scene.tree;
  const S* rest = zeros<S>(arena, tree.nv);
  const auto of_tree = [&](const S* at, const S* rate, const S* weight, S* by_q, S* by_v) {
    const Gradients<S> to{by_q, nullptr, by_v, nullptr, out.inertia, out.placement, nullptr, out.armature};
    with_model<S>(scene, [&](const auto& m) {
      inverse_dynamics_vjp<S>(m, arena, at, rest, rate, weight, nullptr, 0, to, false);
    });
  };
  if (!scene.coupled) return of_tree(q, v, x, out.q, out.v);
  const int nr = scene.m.nv;
  const Lifted<S> at = lift_state<S>(tree, arena, q, v, nullptr, 3);
  S *weight = arena.get<S>(tree.nv), *by_q = arena.get<S>(tree.nv), *by_v = arena.get<S>(tree.nv),
    *p = arena.get<S>(tree.nv);
  lift_velocities<S>(at.terms, arena, x, weight);
  of_tree(at.q, at.v, weight, by_q, by_v);  // of x.(P^T M P v): by_v is M P x
  with_model<S>(scene, [&](const auto& m) { generalized_momenta(m, arena, at.q, at.v, p); });
  if (out.couplings != nullptr)
    add_number_gradient<S>(at.terms, arena, {q, zeros<S>(arena, nr), v, x}, {by_q, rest, by_v, p}, out.couplings);
  if (out.q != nullptr) {
    pull(at.terms, by_q, out.q);
    add_pulled<S>(tangent_rate<S>(at.terms, arena, x), p, out.q);
    add_pulled<S>(tangent_rate<S>(at.terms, arena, v), by_v, out.q);
  }
  if (out.v != nullptr) pull(at.terms, by_v, out.v);
}

}  // namespace torsor
