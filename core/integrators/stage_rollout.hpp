// Trajectories of integrators that are tables of stages; the loops are in integrators/trajectory.hpp.
#pragma once
#include "integrators/stepper.hpp"
#include "integrators/trajectory.hpp"

namespace torsor {

template <class S>
class StageRollout {
 public:
  StageRollout(const Scene& scene, const IntegratorTable& table) : stepper(scene, table), m_(scene.m), table_(table) {}
  Stepper<S> stepper;
  Outcome outcome = Outcome::finished;
  Shortfall shortfall;
  double h() const { return table_.h; }
  void set_parameters(const S* p) { stepper.at.p = p; }
  const ForceSet* forces() const { return stepper.at.scene.forces; }
  bool& singular() { return stepper.at.singular; }

  void load(const LaneJobs<S>& jobs, int64_t row, bool first, bool kept) {
    Nodes<S>& nodes = stepper.at.nodes;
    const bool replaced = first && jobs.first().start + row > 0 && jobs.first().previous_q != nullptr;
    stepper.continues = kept;
    if (kept) {
      if (table_.multistep) nodes.copy(1, 0);
      nodes.copy(stepper.last_node(), 1);
    } else {
      load_node(jobs, row, 1);
      if (table_.multistep && row > 0 && !replaced) load_node(jobs, row - 1, 0);
    }
    if (replaced) {
      jobs.read(m_.nq, nodes.q(0), [](const Job& job) { return job.track.previous_q; });
      jobs.read(m_.nv, nodes.v(0), [](const Job& job) { return job.track.previous_v; });
    }
    if (table_.multistep && stepper.at.scene.stiff)
      for (int l = 0; l < Lanes<S>::value; ++l)
        set_lane(stepper.interrupted, l, row > 0 && !replaced && std::abs(jobs[l].track.divisions[row - 1]) != 1);
    if (stepper.at.scene.balanced) {
      const bool known = kept && jobs.first().signals.count == 0;  // with the parameters of this step
      nodes.energies[0] = known ? nodes.energies[1] : std::nullopt;
      nodes.energies[1] = known ? reached_ : std::nullopt;
    }
    stepper.look_for_singularity(first);
  }
  Mask<S> advance(LaneJobs<S>& jobs, int64_t row, double t, bool last) {
    if constexpr (Lanes<S>::value > 1)
      if (stepper.at.singular) return no_lane<S>();
    Nodes<S>& nodes = stepper.at.nodes;
    const StageControls<S> controls = controls_of(jobs, row);
    const bool later = jobs.first().start + row > 0, explicitly = !table_.is_implicit();
    Mask<S> known = every_lane<S>();  // the accelerations at the beginning
    if (!later && !explicitly) {
      stepper.read_control(controls, 0.0);
      known = stepper.accelerate(1, t, nodes.a(1));
      known = known & is_finite(largest(m_.nv, nodes.a(1)));
      if (Lanes<S>::value > 1 && !any(known)) return known;
      jobs.write(m_.nv, nodes.a(1), known, [](const Job& job) { return job.track.a; });
    }
    Mask<S> taken = take(later, known, t, controls);
    if (!any(taken)) return taken;
    const int end = stepper.last_node();
    if (stepper.at.scene.balanced) reached_ = nodes.energies[end];
    if (explicitly && last) {
      const Mask<S> known = stepper.accelerate(end, t + table_.h, nodes.a(end));
      if constexpr (Lanes<S>::value > 1)
        taken = taken & known;
      else
        last = known;
    }
    for (int l = 0; l < Lanes<S>::value; ++l)
      if (jobs.goes_on(l) && in_lane(taken, l)) jobs.own(l).track.divisions[row] = stepper.parts();
    jobs.write(m_.nq, nodes.q(end), taken, [&](const Job& job) { return job.track.q + (row + 1) * m_.nq; });
    jobs.write(m_.nv, nodes.v(end), taken, [&](const Job& job) { return job.track.v + (row + 1) * m_.nv; });
    if (explicitly) jobs.write(m_.nv, nodes.a(1), taken, [&](const Job& job) { return job.track.a + row * m_.nv; });
    if (!explicitly || last)
      jobs.write(m_.nv, nodes.a(end), taken, [&](const Job& job) { return job.track.a + (row + 1) * m_.nv; });
    return taken;
  }
  void load_node(const LaneJobs<S>& jobs, int64_t row, int node) {
    Nodes<S>& nodes = stepper.at.nodes;
    jobs.read(m_.nq, nodes.q(node), [&](const Job& job) { return job.track.q + row * m_.nq; });
    jobs.read(m_.nv, nodes.v(node), [&](const Job& job) { return job.track.v + row * m_.nv; });
    jobs.read(m_.nv, nodes.a(node), [&](const Job& job) { return job.track.a + row * m_.nv; });
  }
  StageControls<S> controls_of(const LaneJobs<S>& jobs, int64_t row) {
    const Track& first = jobs.first();
    if constexpr (Lanes<S>::value == 1) {
      return {first.controls(row, m_.nv), first.u_rows, table_.fractions};
    } else {
      if (first.u == nullptr) return {nullptr, first.u_rows, table_.fractions};
      controls_.resize(std::size_t(first.u_rows) * m_.nv);
      jobs.read(first.u_rows * m_.nv, controls_.data(), [&](const Job& job) { return job.track.controls(row, m_.nv); });
      return {controls_.data(), first.u_rows, table_.fractions};
    }
  }

 private:
  // One step, from `known` accelerations.
  Mask<S> take(bool later, const Mask<S>& known, double t, const StageControls<S>& controls) {
    if constexpr (Lanes<S>::value > 1) {
      return known & stepper.take(later, true, t, controls);
    } else {
      Arena& arena = stepper.at.arena;
      const int joint = stepper.undetermined_joint(t);
      arena.singular_joint = -1;
      if (joint < 0 && stepper.take(later, known, t, controls)) return true;
      shortfall = stepper.shortfall;
      outcome = stepper.gained ? Outcome::gained : Outcome::failed;
      if (joint < 0 && (table_.is_implicit() || arena.singular_joint < 0)) return false;
      shortfall.error = joint >= 0 ? joint : arena.singular_joint;
      outcome = Outcome::singular;
      return false;
    }
  }
  const Model& m_;
  const IntegratorTable& table_;
  std::vector<S> controls_;
  std::optional<Energies<S>> reached_;  // of the row before
};

}  // namespace torsor
