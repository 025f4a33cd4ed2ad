// Detects steps that gain energy: the equations of a step with stiff springs have many solutions, and the spurious ones
// have more energy than the state before (docs/derivations/implicit_steps.md).
#pragma once
#include "integrators/residual.hpp"
#include "integrators/table.hpp"

namespace torsor {

// A step is rejected if it gains more than the fraction `gain` of the energy, beyond the work of given forces, or ten
// times that in one of its stages.
template <class S>
class EnergyGuard {
 public:
  EnergyGuard(StepContext<S>& at, double h, double gain) : at_(at), h_(h), gain_(gain) {}
  // To be called after each stage, t being its time and `displacement` that of its node. `ends`: whether a part of the
  // step ends with it.
  Mask<S> objects(const Stage& stage, const S* displacement, bool ends, double t) {
    if (!std::isfinite(gain_)) return !every_lane<S>();
    const double h = h_ * (stage.fraction - stage.begin);
    Energies<S> before = energies(stage.from, t - h);
    const Energies<S> after = energies(stage.to, t);
    const S none(0.0);
    const Mask<S> stored = !(equal(before.stored, none) & equal(after.stored, none));
    for (const Stage::Other& other : stage.others)
      if (other.node == 0) before = larger(before, energies(0, t - 2.0 * h));  // of a multistep method
    if (stage.from == 1) start_ = before;
    const S work = most_work(stage, displacement, h, t);
    if (ends) work_ += work;
    const Mask<S> gained = exceeds(before, after, work, 10.0 * gain_);
    // Without stored energy there is no spring to gain from.
    return stored & (ends ? gained | exceeds(start_, after, work_, gain_) : gained);
  }

 private:
  const Energies<S>& energies(int node, double t) {
    std::optional<Energies<S>>& known = at_.nodes.energies[node];
    if (!known) {
      std::vector<S> r(at_.scene.m.nv);
      known = energies_of(at_, evaluate_residual<S>(at_, at_.nodes.q(node), at_.nodes.v(node), at_.zero, t, r.data()));
    }
    return *known;
  }
  // The one with the larger total.
  static Energies<S> larger(const Energies<S>& a, const Energies<S>& b) {
    const Mask<S> more = less(a.total(), b.total());
    return {select(more, b.kinetic, a.kinetic), select(more, b.gravity, a.gravity), select(more, b.stored, a.stored)};
  }
  // An upper bound of the work of given forces and controls in a stage: power times time, plus force times
  // displacement.
  S most_work(const Stage& stage, const S* displacement, double h, double t) {
    const Model& m = at_.scene.tree;
    const int nv = at_.scene.m.nv;
    const ForceSet& given = *at_.scene.forces->given;
    const bool any = !given.empty();
    S work(0.0);
    for (const int node : {stage.from, stage.to}) {
      const S* torques = at_.u;
      if (any) {
        at_.arena.reset();
        S* tau = at_.arena.template get<S>(m.nv);
        const TreePoint<S> point = tree_point<S>(at_.scene, at_.arena, at_.nodes.q(node), at_.nodes.v(node));
        generalized_forces<S>(m, given, at_.arena, force_motions_at(at_, point), point.q, point.v,
                              node == stage.to ? t : t - h, at_.p, tau);
        torques = tau = pulled(node, tau);
        add_scaled(nv, S(1.0), at_.u, tau);
      }
      S power(0.0), along(0.0);
      for (int k = 0; k < nv; ++k) {
        power += torques[k] * at_.nodes.v(node)[k];
        along += torques[k] * displacement[k];
      }
      work += S(h) * torsor::larger(power, S(0.0)) + absolute(along);
    }
    return work;
  }
  // Generalized forces of the tree at a node, in the coordinates of the scene.
  S* pulled(int node, S* tau) {
    if (!at_.scene.coupled) return tau;
    S* out = at_.arena.template get<S>(at_.scene.m.nv);
    pull(block_terms<S>(*at_.scene.tree.coupling, at_.arena, at_.nodes.q(node), 1), tau, out);
    return out;
  }
  static Mask<S> exceeds(const Energies<S>& before, const Energies<S>& after, const S& work, double gain) {
    return !less_equal(after.total() - before.total(), work + S(gain) * (before.size() + after.size()));
  }

  StepContext<S>& at_;
  const double h_, gain_;
  Energies<S> start_{};
  S work_ = S(0.0);
};

}  // namespace torsor
