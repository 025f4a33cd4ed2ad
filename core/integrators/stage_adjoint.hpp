// Gradients of losses over trajectories of tables of stages: the adjoint method (docs/derivations/implicit_steps.md; Sueda 2021, 3.5).
// Each stage takes one solution with the transposed matrix of its Newton's method, in the form in which that was solved.
#pragma once
#include "derivatives/inverse_dynamics_vjp.hpp"
#include "forces/force_placements.hpp"
#include "integrators/stage_rollout.hpp"

namespace torsor {

class StageAdjoint {
 public:
  StageAdjoint(StageRollout& rollout, const Track& track, const Sensitivities& out, int64_t first)
      : rollout_(rollout),
        stepper_(rollout.stepper),
        m_(stepper_.at.scene.m),
        nv_(m_.nv),
        track_(track),
        out_(out),
        first_(first),
        lambda_(nv_),
        mu_(nv_),
        force_(nv_) {}

  void take_up(int64_t) {}  // gradients stand in the rows
  bool step_back(int64_t row, double t) {
    const bool later = track_.start + row > 0;
    const bool replaced = later && row == first_ && track_.previous_q != nullptr;
    if (!repeat(row, t, later)) return false;
    const int end = stepper_.last_node();
    cotangents_.assign(std::size_t(2) * nv_ * (end + 1), 0.0);
    std::copy_n(out_.q + (row + 1) * nv_, nv_, q_of(end));
    std::copy_n(out_.v + (row + 1) * nv_, nv_, v_of(end));
    const StageControls controls = rollout_.controls_of(track_, row);
    const std::vector<Stage>& stages = stepper_.stages();
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      const double time = t + stage->fraction * stepper_.table.h;
      stepper_.read_control(controls, stage->fraction);
      if (!(stepper_.table.is_implicit() ? over_implicit(*stage, time) : over_explicit(*stage, time))) return false;
      add_parameters(*stage, time);
      if (out_.u != nullptr) {
        double* u = out_.u + row * track_.u_rows * nv_;
        const StageControls::Place place = controls.place(stage->fraction);
        add_scaled(nv_, 1.0 - place.s, lambda_.data(), u + place.row * nv_);
        if (place.next != place.row) add_scaled(nv_, place.s, lambda_.data(), u + place.next * nv_);
      }
    }
    add_scaled(nv_, 1.0, q_of(1), out_.q + row * nv_);
    add_scaled(nv_, 1.0, v_of(1), out_.v + row * nv_);
    if (row > 0 || replaced) {
      add_scaled(nv_, 1.0, q_of(0), replaced ? out_.previous_q : out_.q + (row - 1) * nv_);
      add_scaled(nv_, 1.0, v_of(0), replaced ? out_.previous_v : out_.v + (row - 1) * nv_);
    }
    return true;
  }
  void end(int64_t) {}

 private:
  double* q_of(int node) { return cotangents_.data() + 2 * nv_ * node; }
  double* v_of(int node) { return q_of(node) + nv_; }

  // Puts the nodes of the step from a row in place: a step of several stages is taken once more.
  bool repeat(int64_t row, double t, bool later) {
    rollout_.load(track_, row, row == first_);
    const int parts = track_.divisions[row];
    stepper_.choose(parts, later);
    if (stepper_.stages().size() > 1 &&
        !stepper_.take_divided(parts, later, later, t, rollout_.controls_of(track_, row), kInfinity))
      return false;
    rollout_.load_node(track_, row + 1, stepper_.last_node());
    return true;
  }
  // H^T lambda = gq1 + V1^T gv1;  mu = gv1 - G^T lambda;  gq0 += V0^T mu;  gv0 += w c M lambda; and of the others likewise.
  bool over_implicit(const Stage& stage, double t) {
    ImplicitStage& found = stepper_.implicit();
    if (!found.linearise(stage, t, false)) return false;
    const StageTerms<double>& terms = found.terms();
    const std::vector<int>& quaternions = stepper_.at.scene.quaternions;
    std::copy_n(q_of(stage.to), nv_, lambda_.data());
    apply(m_, quaternions, terms.V1, true, v_of(stage.to), lambda_.data(), true);
    found.solver().solve_transposed(lambda_.data());
    found.matrix().multiply_transposed(stepper_.at, lambda_.data(), mu_.data(), force_.data());
    for (int k = 0; k < nv_; ++k) {
      mu_[k] = v_of(stage.to)[k] - mu_[k];
      force_[k] *= stage.c;
    }
    apply(m_, quaternions, terms.V0, true, mu_.data(), q_of(stage.from), true);
    add_scaled(nv_, stage.w, force_.data(), v_of(stage.from));
    for (std::size_t j = 0; j < terms.V.size(); ++j) {
      apply(m_, quaternions, terms.V[j], true, mu_.data(), q_of(stage.others[j].node), true);
      add_scaled(nv_, stage.others[j].z, force_.data(), v_of(stage.others[j].node));
    }
    return true;
  }
  // gv1 += V1^T gq1;  M lambda = h gv1;  gq0 += V0^T gq1 - A_q^T lambda;  gv0 += gv1 - A_v^T lambda
  bool over_explicit(const Stage& stage, double t) {
    ExplicitStage& found = stepper_.explicit_stage();
    if (!found.linearise(stage, t)) return false;
    const std::vector<int>& quaternions = stepper_.at.scene.quaternions;
    double *q1 = q_of(stage.to), *v1 = v_of(stage.to), *q0 = q_of(stage.from), *v0 = v_of(stage.from);
    apply(m_, quaternions, found.V1, true, q1, v1, true);
    for (int k = 0; k < nv_; ++k) lambda_[k] = v1[k] / stage.c;
    found.solver().solve_transposed(lambda_.data());
    apply(m_, quaternions, found.V0, true, q1, q0, true);
    add_scaled(nv_, 1.0, v1, v0);
    for (int i = 0; i < nv_; ++i) {
      add_scaled(nv_, -lambda_[i], found.Aq + std::size_t(i) * nv_, q0);
      add_scaled(nv_, -lambda_[i], found.Av + std::size_t(i) * nv_, v0);
    }
    return true;
  }

  // Adds -lambda . dr/dp of a stage, t being the time there.
  void add_parameters(const Stage& stage, double t) {
    if (out_.inertia == nullptr) return;
    StepContext& at = stepper_.at;
    const int bodies = m_.nframes(), node = stepper_.table.is_implicit() ? stage.to : stage.from;
    const double *q = at.nodes.q(node), *v = at.nodes.v(node), *a = at.nodes.a(node);
    at.arena.reset();
    double *inertia = at.arena.get<double>(10 * bodies), *placement = at.arena.get<double>(6 * bodies),
           *gravity = at.arena.get<double>(3);
    inverse_dynamics_vjp<double>(m_, at.arena, q, v, a, lambda_.data(), nullptr, 0,
                                 {nullptr, nullptr, nullptr, nullptr, inertia, placement, gravity});
    add_scaled(10 * bodies, -1.0, inertia, out_.inertia);
    add_scaled(6 * bodies, -1.0, placement, out_.placement);
    add_scaled(3, -1.0, gravity, out_.gravity);
    if (at.scene.forces == nullptr) return;
    if (stepper_.table.kind == StageKind::linearised) return add_force_parameters_along(stage, t);
    const Motions<double> all = motions(m_, at.arena, q, v, a);
    force_parameter_gradient(m_, *at.scene.forces, at.arena, all, q, v, t, at.p, lambda_.data(), out_.forces);
    force_placement_gradient(m_, *at.scene.forces, at.arena, all, t, at.p, lambda_.data(), out_.placement);
  }
  // Those of the forces in a step of linearly implicit Euler, of tau + h (K v1 + D a0).
  void add_force_parameters_along(const Stage& stage, double t) {
    StepContext& at = stepper_.at;
    const ForceSet& set = *at.scene.forces;
    const ComplexNode node = ComplexNode::of(at, stage);
    const std::vector<Complex> power(lambda_.begin(), lambda_.end()), rest(nv_, 0.0);
    std::vector<Complex> parameters(set.parameters, 0.0), placements(6 * m_.nframes(), 0.0);
    const Motions<Complex> all = motions(m_, at.arena, node.q.data(), node.v.data(), rest.data());
    force_parameter_gradient<Complex>(m_, set, at.arena, all, node.q.data(), node.v.data(), t, node.p.data(),
                                      power.data(), parameters.data());
    force_placement_gradient<Complex>(m_, set, at.arena, all, t, node.p.data(), power.data(), placements.data());
    const double h = 1.0 / stage.c;
    for (std::size_t k = 0; k < parameters.size(); ++k)
      out_.forces[k] += parameters[k].real() + h * parameters[k].imag() / kStep;
    for (std::size_t k = 0; k < placements.size(); ++k)
      out_.placement[k] += placements[k].real() + h * placements[k].imag() / kStep;
  }

  StageRollout& rollout_;
  Stepper& stepper_;
  const Model& m_;
  const int nv_;
  const Track& track_;
  const Sensitivities& out_;
  const int64_t first_;
  std::vector<double> cotangents_, lambda_, mu_, force_;
};

}  // namespace torsor
