// Rows of constraints at a state in the coordinates of a scene.
#pragma once
#include "constraints/constraints.hpp"
#include "integrators/scene.hpp"

namespace torsor {

// The motions without gravity at such a state.
template <class S>
Motions<S> row_motions(const Scene& scene, Arena& arena, const S* q, const S* v, const S* a, bool rates = true) {
  return with_model<S>(scene, [&](const auto& m) {
    if (!scene.coupled) return motions<S>(m, arena, q, v, a, false, rates);
    const Lifted<S> at = lift_state<S>(scene.tree, arena, q, v, a, 2);
    return motions<S>(m, arena, at.q, at.v, at.a, false, rates);
  });
}

// `all`: the motions there. `times`: of times_at.
template <class S>
ConstraintState<S> row_state(const Scene& scene, Arena& arena, const Motions<S>& all, const S* q, const S* v,
                             const S* a, double t, const double* times, bool still) {
  const ConstraintSet& set = *scene.constraints;
  if (!scene.coupled) return {scene.tree, set, arena, all, q, v, a, t, times, still};
  const auto* chain = new (arena.get<ChainedState<S>>(1)) ChainedState<S>(chained_state<S>(scene.tree, arena, q, v, a));
  const Lifted<S>& tree = chain->tree;
  return {scene.tree, set, arena, all, tree.q, tree.v, tree.a, t, times, still, chain};
}

}  // namespace torsor
