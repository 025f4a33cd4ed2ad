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
  // How many parts there are; negative for a step of a two-step method that starts anew.
  int parts() const { return anew_ ? -parts_ : parts_; }
  void choose(int parts, bool previous) {
    previous = previous && parts > 0;
    parts = parts_ = std::abs(parts);
    if (parts > 1) divided_ = list_stages(table, parts, previous);
    stages_ = parts > 1 ? &divided_ : previous ? &table.later : &table.first;
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
    // A formula over two steps must not span an impact, nor the end of a slip. A step in which one of these happens is
    // also halved: its error is of first order.
    int least_parts = 1;
    const bool spans = previous && table.multistep && at.scene.stiff;
    const Mask<S> before = spans ? begin_phases(t) : no_lane<S>();
    if (!spans) phases_known_ = false;  // they may be those of another trajectory
    anew_ = false;
    if constexpr (Lanes<S>::value > 1) {
      const Mask<S> good = take_divided(1, previous, settled, t, controls, least) & !before;
      return spans && any(good) ? good & !end_phases(t) : good;
    }
    if (spans) {
      if (!any(before) && any(take_divided(1, true, settled, t, controls, least))) {
        if (!any(end_phases(t))) return every_lane<S>();
        least_parts = std::min(2, most);
      }
      anew_ = true;
      phases_known_ = previous = false;
    }
    for (const double gain : {least, 0.1}) {
      bool any_gained = false;
      for (int parts = least_parts; parts <= most; parts *= 2) {
        if (any(take_divided(parts, previous, settled, t, controls, gain)) &&
            !(anew_ && parts == 1 && most > 1 && any(passes_event(t))))
          return every_lane<S>();
        any_gained = any_gained || gained;
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
    if (!at.scene.m.has_weak || !(first || (at.scene.forces != nullptr && at.scene.is_tall(false)))) return;
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
  // Of the places of contacts at nodes 0 and 1, and at the end of the step if known: whether they touch, and slip.
  struct Phase {
    Mask<S> closed, slips;
  };
  void list_phases(int node, double t, std::vector<Phase>& out) {
    const S *q = at.nodes.q(node), *v = at.nodes.v(node);
    at.arena.reset();
    const Motions<S> all = force_motions_at(at, q, v);
    const ForceState<S> state(at.scene.m, at.arena, all, q, v, t, at.p);
    out.clear();
    at.scene.forces->for_each([&](const auto& law) {
      law.for_each_phase(state, [&](const Mask<S>& closed, const Mask<S>& slips) { out.push_back({closed, slips}); });
    });
    for (const BearingLaw& law : at.scene.forces->bearings)
      out.push_back({every_lane<S>(), slips(law, v + at.scene.m.bodies[law.body].iv, at.p)});
  }
  // Where a place closes or opens, or slips no longer, between two nodes.
  static Mask<S> has_event(const std::vector<Phase>& from, const std::vector<Phase>& to) {
    Mask<S> out = no_lane<S>();
    for (std::size_t k = 0; k < to.size(); ++k)
      out = out | (to[k].closed & !from[k].closed) | (from[k].closed & !to[k].closed) |
            (to[k].closed & from[k].slips & !to[k].slips);
    return out;
  }
  Mask<S> begin_phases(double t) {
    if (continues && phases_known_) {
      phases_[0].swap(phases_[1]);
      phases_[1].swap(phases_[2]);
    } else {
      list_phases(0, t - table.h, phases_[0]);
      list_phases(1, t, phases_[1]);
    }
    phases_known_ = false;
    return interrupted | is_nan(at.nodes.q(0)[0]) | has_event(phases_[0], phases_[1]);
  }
  // Whether something happens between two nodes of the step.
  Mask<S> passes_event(double t) {
    Mask<S> out = no_lane<S>();
    phases_[0] = phases_[1];
    for (const Stage& stage : *stages_) {
      list_phases(stage.to, t + stage.fraction * table.h, phases_[2]);
      out = out | has_event(phases_[0], phases_[2]);
      phases_[0].swap(phases_[2]);
    }
    return out;
  }
  Mask<S> end_phases(double t) {
    list_phases(last_node(), t + table.h, phases_[2]);
    phases_known_ = true;
    return has_event(phases_[1], phases_[2]);
  }
  std::vector<Phase> phases_[3];
  bool phases_known_ = false;  // those of the end of the step that was taken last
  bool anew_ = false;          // whether that step started anew
  int parts_ = 1;
  const std::vector<Stage>* stages_ = &table.first;
};

}  // namespace torsor
