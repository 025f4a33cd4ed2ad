// Tells whether a step gains energy from nowhere: the equations of a step with stiff springs have many solutions, and those that are
// not meant have more energy than there was (docs/derivations/implicit_steps.md).
#pragma once
#include "integrators/residual.hpp"
#include "integrators/table.hpp"

namespace torsor {

// More than the part `gain` of the energy that there is, work of given forces apart, or in one of its stages ten times that.
class EnergyGuard {
 public:
  EnergyGuard(StepContext& at, double h, double gain) : at_(at), h_(h), gain_(gain) {}
  // After a stage was solved for the time t, by a displacement of its node. `ends`: whether a part of the step ends with it.
  bool objects(const Stage& stage, const double* displacement, bool ends, double t) {
    if (!std::isfinite(gain_)) return false;
    const double h = h_ * (stage.fraction - stage.begin);
    Energies before = energies(stage.from, t - h);
    const Energies after = energies(stage.to, t);
    const bool stored = before.stored != 0.0 || after.stored != 0.0;  // else no spring was there to gain from
    for (const Stage::Other& other : stage.others)
      if (other.node == 0) {  // a step from two rows has the energy of both to go by
        const Energies older = energies(0, t - 2.0 * h);
        if (older.total() > before.total()) before = older;
      }
    if (stage.from == 1) start_ = before;
    const double work = most_work(stage, displacement, h, t);
    if (ends) work_ += work;
    return stored && (exceeds(before, after, work, 10.0 * gain_) || (ends && exceeds(start_, after, work_, gain_)));
  }

 private:
  const Energies& energies(int node, double t) {
    std::optional<Energies>& known = at_.nodes.energies[node];
    if (!known) {
      std::vector<double> r(at_.scene.m.nv);
      known = energies_of(at_, evaluate_residual(at_, at_.nodes.q(node), at_.nodes.v(node), at_.zero, t, r.data()));
    }
    return *known;
  }
  // At most the work that given forces and controls do in a stage: power times time, and force times displacement.
  double most_work(const Stage& stage, const double* displacement, double h, double t) {
    const Model& m = at_.scene.m;
    const ForceSet& given = *at_.scene.forces->given;
    const bool any = !given.empty();
    double work = 0.0;
    for (const int node : {stage.from, stage.to}) {
      const double* torques = at_.u;
      if (any) {
        at_.arena.reset();
        double* tau = at_.arena.get<double>(m.nv);
        generalized_forces(m, given, at_.arena, at_.nodes.q(node), at_.nodes.v(node), node == stage.to ? t : t - h,
                           at_.p, tau);
        add_scaled(m.nv, 1.0, at_.u, tau);
        torques = tau;
      }
      double power = 0.0, along = 0.0;
      for (int k = 0; k < m.nv; ++k) {
        power += torques[k] * at_.nodes.v(node)[k];
        along += torques[k] * displacement[k];
      }
      work += h * std::max(power, 0.0) + std::fabs(along);
    }
    return work;
  }
  static bool exceeds(const Energies& before, const Energies& after, double work, double gain) {
    return !(after.total() - before.total() <= work + gain * (before.size() + after.size()));
  }

  StepContext& at_;
  const double h_, gain_;
  Energies start_{};
  double work_ = 0.0;
};

}  // namespace torsor
