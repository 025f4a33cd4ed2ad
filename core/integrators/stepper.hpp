// Steps of an integrator that is a table of stages. If Newton's method fails, the step of a single state is divided.
#pragma once
#include <cstdlib>

#include "integrators/energy_guard.hpp"
#include "integrators/explicit_stage.hpp"
#include "integrators/undetermined.hpp"

namespace torsor {

template <class S>
class Stepper {
 public:
  Stepper(const Scene& scene, const IntegratorTable& table) : at(scene), table(table) {
    if (table.is_implicit())
      implicit_.emplace(at);
    else
      explicit_.emplace(at, table);
  }
  Stepper(const Stepper&) = delete;
  StepContext<S> at;
  const IntegratorTable& table;
  Shortfall shortfall;  // of the last attempt that failed
  bool gained = false;  // whether it failed because solutions gain energy
  // Whether node 1 is the last node of the step before, found just now in all lanes; until the next step.
  bool continues = false;
  // Where the step before this one was divided, so that a two-step method starts anew if there are stiff forces.
  Mask<S> interrupted = no_lane<S>();

  ImplicitStage<S>& implicit() { return *implicit_; }
  ExplicitStage<S>& explicit_stage() { return *explicit_; }
  // The accelerations of a node under forces, controls and constraints.
  Mask<S> accelerate(int node, double t, S* a) {
    StageRows<S>* rows = implicit_ ? implicit_->rows() : explicit_->rows();
    return rows != nullptr ? accelerate_node(at, *rows, node, t, a) : accelerate_node(at, node, t, a);
  }

  // The stages of the step that was taken last, or chosen.
  const std::vector<Stage>& stages() const { return *stages_; }
  int last_node() const { return stages_->back().to; }
  // How many parts there are; negative for a step of a two-step method that starts anew, 0 for one with an impact.
  int parts() const { return anew_ ? -parts_ : parts_; }
  void choose(int parts, bool previous) {
    previous = previous && parts > 0;
    parts_ = std::abs(parts);
    if (parts_ > 1) divided_ = list_stages(table, parts_, previous);
    stages_ = parts_ > 1 ? &divided_ : parts_ == 0 ? &table.impact : previous ? &table.later : &table.first;
    at.nodes.resize(last_node() + 1);
  }

  // One step from node 1 (and node 0, if `previous`) at time t: of a single state divided into as few parts as
  // necessary. `settled`: whether the accelerations of node 1 are known. False if all attempts failed. Solutions that
  // gain energy are spurious: a gain of a hundredth may be the error of a step, and a tenth is accepted if no division
  // helps.
  Mask<S> take(bool previous, bool settled, double t, const StageControls<S>& controls) {
    const int most = table.is_implicit() ? table.substeps : 1;
    const bool guarded = at.scene.balanced && most > 1;
    const double least = guarded ? 0.01 : kInfinity;
    // A formula over two steps must not span an impact, nor the end of a slip. A step in which a slip ends is halved:
    // its error is of first order. In one with an impact, formulas of order two gain energy.
    const bool watches = at.scene.stiff && table.has_impacts(), spans = watches && previous && table.multistep;
    const Mask<S> before = watches ? begin_phases(t, spans) : no_lane<S>();
    anew_ = false;
    if constexpr (Lanes<S>::value > 1) {
      const Mask<S> good = take_divided(1, previous, settled, t, controls, least) & !before;
      if (!watches || !any(good)) return good;
      const Events events = end_phases(t);
      return good & !(spans ? events.impact | events.sticks : events.impact);
    }
    if (spans) previous = !any(before);
    anew_ = spans && !previous;
    for (const double gain : {least, 0.1}) {
      bool any_gained = false;
      for (int parts = 1; parts <= most; parts *= 2) {
        bool found = any(take_divided(parts, previous, settled, t, controls, gain));
        if (!found && spans && previous) {  // without the row before
          previous = false;
          anew_ = true;
          found = any(take_divided(parts, false, settled, t, controls, gain));
        }
        any_gained = any_gained || gained;
        if (!found) {
          const Shortfall missed = shortfall;
          if (!watches || parts > 1 || !any(take_divided(0, false, settled, t, controls, gain))) continue;
          shortfall = missed;
          anew_ = false;
          const Events events = end_phases(t);
          // A bearing that jams stops at once, which is an impact too.
          if (any(events.impact) || (at.scene.loads != nullptr && any(events.sticks))) {
            phases_known_ = false;
            return every_lane<S>();
          }
          anew_ = spans;
          continue;
        }
        if (!watches || parts > 1) return every_lane<S>();
        const Events events = end_phases(t);
        if (!any(events.impact) && !(spans && most > 1 && any(events.sticks))) return every_lane<S>();
        phases_known_ = previous = anew_ = false;
        if (any(events.impact) && any(take_divided(0, false, settled, t, controls, gain))) return every_lane<S>();
        anew_ = spans;
      }
      if (!any_gained) break;
    }
    return no_lane<S>();
  }
  // The same divided into `parts`; `gain`: of EnergyGuard.
  Mask<S> take_divided(int parts, bool previous, bool settled, double t, const StageControls<S>& controls,
                       double gain) {
    choose(parts, previous);
    EnergyGuard<S> guard(at, table.h, gain);
    Mask<S> good = every_lane<S>();
    if (implicit_) {
      read_control(controls, 0.0);
      good = implicit_->begin_step(t, settled, continues);
      gained = continues = false;
    }
    for (std::size_t k = 0; k < stages_->size() && any(good); ++k) {
      const Stage& stage = (*stages_)[k];
      const double time = t + stage.fraction * table.h;
      read_control(controls, stage.fraction);
      gained = false;
      if (!table.is_implicit()) {
        good = good & explicit_->take(stage, time);
        continue;
      }
      const int earlier =
          stage.others.empty() || stage.others.back().node < stage.from ? stage.from : stage.others.back().node;
      const S* guess = earlier > 1 || settled ? at.nodes.a(earlier) : at.zero;
      good = implicit_->solve(table, stage, time, guess, good, shortfall);
      if (!any(good)) break;
      const bool ends = k + 1 == stages_->size() || (*stages_)[k + 1].from == stage.to;
      const Mask<S> gains = good & guard.objects(stage, implicit_->displacement(), ends, time);
      gained = any(gains);
      good = good & !gains;
    }
    return good;
  }
  // Controls at a fraction of the step.
  void read_control(const StageControls<S>& controls, double fraction) {
    const int nv = at.scene.m.nv;
    if (controls.rows == nullptr) {
      std::fill_n(at.u, nv, S(0.0));
      return;
    }
    const auto place = controls.place(fraction);
    const S *row = controls.rows + place.row * nv, *next = controls.rows + place.next * nv;
    for (int k = 0; k < nv; ++k)
      at.u[k] = controls.count == 1 ? row[k] : mul_add(S(place.s), next[k], S(1.0 - place.s) * row[k]);
  }

  // Checks whether the mass matrix at node 1 is singular, in one of the lanes. This matters for undetermined motions,
  // which are checked at the first step of a call only, and for how systems of deep trees are solved, which must be the
  // same whenever a step is repeated.
  void look_for_singularity(bool first) {
    if constexpr (Lanes<S>::value > 1) at.singular = false;
    if (at.scene.coupled || !at.scene.tree.has_weak ||
        !(first || (at.scene.forces != nullptr && at.scene.is_tall(false))))
      return;
    at.arena.reset();
    at.arena.singular_joint = -1;
    factor_mass_at<S>(at, at.nodes.q(1));
    at.singular = at.arena.singular_joint >= 0;
    at.arena.singular_joint = -1;
  }
  // The user's joint whose motion from node 1 is determined by neither masses nor forces; -1 if there is none, or if
  // the integrator solves for accelerations only.
  int undetermined_joint(double t) {
    if (!at.singular || table.kind == StageKind::explicit_) return -1;
    return torsor::undetermined_joint(at.scene.m, at.scene.forces, at.arena, at.nodes.q(1), at.nodes.v(1), t, at.p,
                                      1.0 / table.h);
  }

 private:
  std::optional<ImplicitStage<S>> implicit_;
  std::optional<ExplicitStage<S>> explicit_;
  std::vector<Stage> divided_;
  void list_phases(int node, double t, std::vector<Phase<S>>& out) {
    at.arena.reset();
    const auto [q, v] = tree_point<S>(at.scene, at.arena, at.nodes.q(node), at.nodes.v(node));
    const Motions<S> all = force_motions_at<S>(at, {q, v});
    const ForceState<S> state(at.scene.tree, at.arena, all, q, v, t, at.p);
    out.clear();
    at.scene.forces->for_each([&](const auto& law) {
      law.for_each_phase(state, table.h, [&](const Phase<S>& phase) { out.push_back(phase); });
    });
    for (const BearingLaw& law : at.scene.forces->bearings)
      out.push_back({every_lane<S>(), S(0.0), slip_ratio(law, v + at.scene.tree.bodies[law.body].iv, at.p)});
  }
  // Where velocities jump between two nodes, by more than the steps resolve: where a place touches and its velocity of
  // separation changes by more than half, and by more than by half of gravity; and where it slips no longer and changes
  // by more than the velocity from which on friction is complete. `before`: the node before them, from which a body may
  // have slowed down until just before it sticks.
  struct Events {
    Mask<S> impact = no_lane<S>(), sticks = no_lane<S>();
  };
  void add_events(const std::vector<Phase<S>>& before, const std::vector<Phase<S>>& from,
                  const std::vector<Phase<S>>& to, Events& out) const {
    for (std::size_t k = 0; k < to.size(); ++k) {
      const Phase<S>&a = from[k], &b = to[k];
      const S least = larger(S(0.5) * absolute(a.away), S(5.0 * table.h));
      out.impact = out.impact | ((a.closed | b.closed) & less(least, absolute(b.away - a.away)));
      out.sticks = out.sticks | (b.closed & less(S(1.0), a.slip) & less(b.slip, S(1.0)) &
                                 less(S(1.0), larger(a.slip - b.slip, before[k].slip - a.slip)));
    }
  }
  // Lists what is known at the beginning of a step; where a two-step method must start anew.
  Mask<S> begin_phases(double t, bool spans) {
    if (continues && phases_known_) {
      phases_[0].swap(phases_[1]);
      phases_[1].swap(phases_[2]);
    } else {
      if (spans) list_phases(0, t - table.h, phases_[0]);
      list_phases(1, t, phases_[1]);
    }
    phases_known_ = false;
    if (!spans) {
      phases_[0] = phases_[1];
      return no_lane<S>();
    }
    Events events;
    add_events(phases_[0], phases_[0], phases_[1], events);
    return interrupted | is_nan(at.nodes.q(0)[0]) | events.impact | events.sticks;
  }
  // What happens between the nodes of a step.
  Events end_phases(double t) {
    Events events;
    passed_ = phases_[1];
    for (const Stage& stage : *stages_) {
      list_phases(stage.to, t + stage.fraction * table.h, phases_[2]);
      add_events(stage.from == 1 && stages_->size() == 1 ? phases_[0] : passed_, passed_, phases_[2], events);
      passed_ = phases_[2];
    }
    phases_known_ = true;
    return events;
  }
  std::vector<Phase<S>> passed_;
  std::vector<Phase<S>> phases_[3];  // of the places of contacts at nodes 0 and 1, and at the end of the step if known
  bool phases_known_ = false;        // those of the end of the step that was taken last
  bool anew_ = false;                // whether that step started anew
  int parts_ = 1;
  const std::vector<Stage>* stages_ = &table.first;
};

}  // namespace torsor
