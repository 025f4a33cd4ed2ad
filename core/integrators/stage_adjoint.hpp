// Gradients of losses over trajectories of tables of stages: the adjoint method (docs/derivations/implicit_steps.md;
// Sueda 2021, 3.5). Each stage needs one solve with the transposed Newton matrix, in the form in which that was
// factored.
#pragma once
#include "derivatives/inverse_dynamics_vjp.hpp"
#include "forces/force_placements.hpp"
#include "integrators/projection_derivatives.hpp"
#include "integrators/stage_rollout.hpp"

namespace torsor {

// Cotangents of the nodes of a step, propagated backwards over its stages.
template <class S>
class StageCotangents {
 public:
  explicit StageCotangents(Stepper<S>& stepper)
      : stepper_(stepper), m_(stepper.at.scene.m), nv_(m_.nv), lambda_(nv_), mu_(nv_), force_(nv_), al_(nv_) {
    if (const ConstraintSet* set = stepper.at.scene.constraints; set != nullptr) {
      nu_.resize(set->rows);
      be_.resize(set->rows);
    }
  }

  // Sets all to zero, for the step that the stepper has chosen.
  void reset() { nodes_.assign(std::size_t(2) * nv_ * (stepper_.last_node() + 1), S(0.0)); }
  S* q(int node) { return nodes_.data() + 2 * nv_ * node; }
  S* v(int node) { return q(node) + nv_; }
  // Over one stage at time t: from the node that it finds to those in its formulas. False if its matrix is singular.
  Mask<S> over(const Stage& stage, double t, const ParameterGradients<S>& out) {
    const Mask<S> good = stepper_.table.is_implicit() ? over_implicit(stage, t) : over_explicit(stage, t);
    if (any(good) && out.inertia != nullptr) add_parameters(stage, t, out);
    return good;
  }
  const S* lambda() const { return lambda_.data(); }  // cotangent of the controls of that stage

 private:
  // H^T lambda = gq1 + V1^T gv1;  mu = gv1 - G^T lambda;  gq0 += V0^T mu;  gv0 += w c M lambda; likewise for the
  // others.
  Mask<S> over_implicit(const Stage& stage, double t) {
    ImplicitStage<S>& found = stepper_.implicit();
    const Mask<S> good = found.linearise(stage, t, false);
    if (!any(good)) return good;
    const StageTerms<S>& terms = found.terms();
    const std::vector<int>& quaternions = stepper_.at.scene.quaternions;
    StageRows<S>* rows = found.rows();
    if (rows != nullptr) over_projection(found, stage, t);
    std::copy_n(q(stage.to), nv_, lambda_.data());
    apply<S>(m_, quaternions, terms.V1, true, v(stage.to), lambda_.data(), true);
    if (rows != nullptr)
      rows->solve_transposed(found.solver(), lambda_.data(), nu_.data());
    else
      found.solver().solve_transposed(lambda_.data());
    found.matrix().multiply_transposed(stepper_.at, lambda_.data(), mu_.data(), force_.data());
    for (int k = 0; k < nv_; ++k) {
      mu_[k] = v(stage.to)[k] - mu_[k];
      force_[k] *= S(stage.c);
    }
    apply<S>(m_, quaternions, terms.V0, true, mu_.data(), q(stage.from), true);
    add_scaled(nv_, S(stage.w), force_.data(), v(stage.from));
    for (std::size_t j = 0; j < terms.V.size(); ++j) {
      apply<S>(m_, quaternions, terms.V[j], true, mu_.data(), q(stage.others[j].node), true);
      add_scaled(nv_, S(stage.others[j].z), force_.data(), v(stage.others[j].node));
    }
    return good;
  }
  // With post-stabilisation from q1 to q^ first; then
  // gv1 += V1^T gq1;  M lambda = h gv1;  gq0 += V0^T gq1 - A_q^T lambda;  gv0 += gv1 - A_v^T lambda
  Mask<S> over_explicit(const Stage& stage, double t) {
    ExplicitStage<S>& found = stepper_.explicit_stage();
    const Mask<S> good = found.linearise(stage, t);
    if (!any(good)) return good;
    const std::vector<int>& quaternions = stepper_.at.scene.quaternions;
    S *q1 = q(stage.to), *v1 = v(stage.to), *q0 = q(stage.from), *v0 = v(stage.from);
    if (found.rows_after() != nullptr) over_displacement(found, stage, t);
    apply<S>(m_, quaternions, found.V1, true, q1, v1, true);
    for (int k = 0; k < nv_; ++k) lambda_[k] = v1[k] / S(stage.c);
    if (StageRows<S>* rows = found.rows(); rows != nullptr) {
      // G a0 = -(G v0 + g_t + beta g) / h
      rows->solve_transposed(found.solver(), lambda_.data(), nu_.data());
      for (int r = 0; r < rows->count(); ++r) {
        nu_[r] *= S(stage.c);
        add_scaled(nv_, -nu_[r], found.by_q(r), q0);
        add_scaled(nv_, -nu_[r], rows->metric.G(r), v0);
      }
    } else {
      found.solver().solve_transposed(lambda_.data());
    }
    apply<S>(m_, quaternions, found.V0, true, q1, q0, true);
    add_scaled(nv_, S(1.0), v1, v0);
    for (int i = 0; i < nv_; ++i) {
      add_scaled(nv_, -lambda_[i], found.Aq + std::size_t(i) * nv_, q0);
      add_scaled(nv_, -lambda_[i], found.Av + std::size_t(i) * nv_, v0);
    }
    return good;
  }

  // From the velocities of the node to those before their projection, v^: with be = D^+ Y^T gv1 and al = M^-1 gv1 -
  // Y be, gq1 -= (d(M x)/dq + K(kappa))^T al + d(G v1)/dq^T be and gv^ = gv1 - G^T be, x = v1 - v^.
  void over_projection(ImplicitStage<S>& found, const Stage& stage, double t) {
    StageRows<S>& rows = *found.rows();
    const Projection<S> of = velocity_projection(stepper_.at, found.free_velocities(), stage.to, t);
    project(rows, of, v(stage.to), q(stage.to));
    rows.metric.add_torques(S(-1.0), be_.data(), v(stage.to));
  }
  // From q1 to q^: gd = D1^T gq1,   gq^ = D0^T gq1 - (d(M d)/dq + K(mu))^T al - d(G d + g)/dq^T be.
  void over_displacement(ExplicitStage<S>& found, const Stage& stage, double t) {
    const std::vector<int>& quaternions = stepper_.at.scene.quaternions;
    std::vector<S> gq(q(stage.to), q(stage.to) + nv_), gd(nv_);
    apply<S>(m_, quaternions, found.D1, true, gq.data(), gd.data());
    apply<S>(m_, quaternions, found.D0, true, gq.data(), q(stage.to));
    project(*found.rows_after(), found.displacement(stage, t), gd.data(), q(stage.to));
  }
  // al and be from the cotangents gy of y, and what they add to those of q.
  void project(StageRows<S>& rows, const Projection<S>& of, const S* gy, S* gq) {
    StepContext<S>& at = stepper_.at;
    std::copy_n(gy, nv_, al_.data());
    SceneMass<S>(at.scene, at.arena, of.q).solve(al_.data(), al_.data());
    std::fill(be_.begin(), be_.end(), S(0.0));
    rows.metric.add_rates(al_.data(), be_.data());
    rows.metric.solve(be_.data());
    rows.metric.add_response(S(-1.0), be_.data(), al_.data());
    std::vector<S> sum(nv_, S(0.0));
    add_projection_gradient<S>(at, rows, of, al_.data(), be_.data(), {sum.data(), nullptr, nullptr, nullptr, nullptr});
    add_scaled(nv_, S(-1.0), sum.data(), gq);
  }

  // Adds -lambda . dr/dp of a stage at time t.
  void add_parameters(const Stage& stage, double t, const ParameterGradients<S>& out) {
    StepContext<S>& at = stepper_.at;
    const Model& tree = at.scene.tree;
    const int bodies = tree.nframes(), node = stepper_.table.is_implicit() ? stage.to : stage.from;
    const S *q = at.nodes.q(node), *v = at.nodes.v(node), *a = at.nodes.a(node), *lambda = lambda_.data();
    if (at.scene.constraints != nullptr && stepper_.table.is_implicit()) {
      v = stepper_.implicit().free_velocities();
      a = stepper_.implicit().free_accelerations();
    }
    if (at.scene.coupled) add_coupling_gradient<S>(at, q, v, a, lambda, t, -1.0, out.couplings);
    const TreeState<S> state(at, q, v, a, lambda);
    q = state.q;
    v = state.v;
    a = state.a;
    lambda = state.lambda;
    // Friction in bearings depends on wrenches, which gives bodies twists of their own in the virtual motion.
    std::vector<Motion<S>> twists;
    if (at.scene.loads != nullptr) {
      std::vector<S> r(tree.nv), none(tree.nv, S(0.0)), gradient(at.scene.forces->parameters, S(0.0));
      at.arena.reset();
      const Evaluation<S> e = evaluate_tree<S>(at.scene, at.arena, q, v, a, t, at.p, none.data(), r.data());
      twists.assign(tree.n(), zero_motion<S>());
      add_bearing_gradient(tree, *at.scene.forces, e.all, v, at.p, lambda, twists.data(), gradient.data());
      add_scaled(at.scene.forces->parameters, S(-1.0), gradient.data(), out.forces);
    }
    const Motion<S>* moved = twists.empty() ? nullptr : twists.data();
    at.arena.reset();
    S *inertia = at.arena.template get<S>(10 * bodies), *placement = at.arena.template get<S>(6 * bodies),
      *gravity = at.arena.template get<S>(3), *armature = at.arena.template get<S>(tree.nv);
    with_model<S>(at.scene, [&](const auto& m) {
      inverse_dynamics_vjp<S>(m, at.arena, q, v, a, lambda, nullptr, 0,
                              {nullptr, nullptr, nullptr, nullptr, inertia, placement, gravity, armature}, true, moved);
    });
    add_scaled(10 * bodies, S(-1.0), inertia, out.inertia);
    add_scaled(6 * bodies, S(-1.0), placement, out.placement);
    add_scaled(3, S(-1.0), gravity, out.gravity);
    add_scaled(tree.nv, S(-1.0), armature, out.armature);
    if (at.scene.constraints != nullptr) add_constraint_parameters(stage, t, out);
    if (at.scene.forces == nullptr) return;
    if (stepper_.table.kind == StageKind::linearised) return add_force_parameters_along(stage, t, out);
    const ForceSet& set = *at.scene.forces;
    with_model<S>(at.scene, [&](const auto& m) {
      const Motions<S> all = motions(m, at.arena, q, v, a);
      force_parameter_gradient<S>(tree, set, at.arena, all, q, v, t, at.p, lambda, out.forces, moved);
      force_placement_gradient<S>(m, set, at.arena, all, t, at.p, lambda, out.placement, moved);
    });
  }
  // Of the rows: lambda.(G l) - nu.g, l and nu being the cotangents of the residual and of the rows, and of an implicit
  // stage minus the gradient of the projection of velocities; of an explicit one -nu.(G v1 + g_t + beta g).
  void add_constraint_parameters(const Stage& stage, double t, const ParameterGradients<S>& out) {
    StepContext<S>& at = stepper_.at;
    const bool implicitly = stepper_.table.is_implicit();
    StageRows<S>& rows = implicitly ? *stepper_.implicit().rows() : *stepper_.explicit_stage().rows();
    const Model& tree = at.scene.tree;
    const int bodies = tree.nframes(), parameters = at.scene.constraints->parameters;
    std::vector<S> inertia(10 * bodies, S(0.0)), armature(tree.nv, S(0.0));
    std::vector<S> placement(6 * bodies, S(0.0)), own(parameters, S(0.0));
    std::vector<S> couplings(at.scene.coupled ? tree.coupling->numbers : 0, S(0.0));
    const InertialGradients<S> inertial{inertia.data(), armature.data()};
    std::vector<S> weights(rows.count());
    const S* q = at.nodes.q(implicitly ? stage.to : stage.from);
    const ConstraintGradients<S> to{nullptr,          nullptr,    nullptr,
                                    placement.data(), own.data(), at.scene.coupled ? couplings.data() : nullptr};
    for (int r = 0; r < rows.count(); ++r) weights[r] = -rows.lambda[r];
    add_row_gradient<S>(at, rows, q, lambda_.data(), t, true, nullptr, weights.data(), to);
    if (implicitly) {
      add_row_gradient<S>(at, rows, q, at.nodes.v(stage.to), t, false, nu_.data(), nullptr, to);
      add_projection_gradient<S>(at, rows, velocity_projection(at, stepper_.implicit().free_velocities(), stage.to, t),
                                 al_.data(), be_.data(), to, inertial);
    } else {
      for (int r = 0; r < rows.count(); ++r) weights[r] = S(stepper_.explicit_stage().beta) * nu_[r];
      add_row_gradient<S>(at, rows, q, at.nodes.v(stage.to), t, false, weights.data(), nu_.data(), to);
      ExplicitStage<S>& found = stepper_.explicit_stage();
      if (StageRows<S>* after = found.rows_after(); after != nullptr)
        add_projection_gradient<S>(at, *after, found.displacement(stage, t), al_.data(), be_.data(), to, inertial);
    }
    add_scaled(10 * bodies, S(-1.0), inertia.data(), out.inertia);
    add_scaled(tree.nv, S(-1.0), armature.data(), out.armature);
    add_scaled(6 * bodies, S(-1.0), placement.data(), out.placement);
    add_scaled(parameters, S(-1.0), own.data(), out.constraints);
    if (at.scene.coupled) add_scaled(tree.coupling->numbers, S(-1.0), couplings.data(), out.couplings);
  }
  // Gradients by the forces' parameters in linearly implicit Euler, of tau + h (K v1 + D a0), and by the numbers of
  // couplings of its second term, by a complex step in each lane.
  void add_force_parameters_along(const Stage& stage, double t, const ParameterGradients<S>& out) {
    StepContext<S>& at = stepper_.at;
    const ForceSet& set = *at.scene.forces;
    const double h = 1.0 / stage.c;
    const std::vector<Complex> rest(at.scene.tree.nv, 0.0);
    std::vector<Complex> power(at.scene.tree.nv);
    const auto add = [&](S& sum, int l, const Complex& x) {
      set_lane(sum, l, lane_of(sum, l) + (x.real() + h * x.imag() / kStep));
    };
    for (int l = 0; l < Lanes<S>::value; ++l) {
      const ComplexNode node(at, stage, l);
      const Model& m = model_of_lane(at.scene, l);
      const TreePoint<Complex> point = tree_point<Complex>(at.scene, at.arena, node.q.data(), node.v.data());
      for (int k = 0; k < nv_; ++k) power[k] = lane_of(lambda_[k], l);
      if (at.scene.coupled) {
        const std::vector<Complex> reduced(power.begin(), power.begin() + nv_);
        const BlockTerms<Complex> terms = block_terms<Complex>(*m.coupling, at.arena, node.q.data(), 3);
        lift_velocities<Complex>(terms, at.arena, reduced.data(), power.data());
        const std::vector<Complex> numbers =
            coupling_power_gradient(m, terms, node, point, t, reduced.data(), power.data());
        for (std::size_t k = 0; k < numbers.size(); ++k) add(out.couplings[k], l, {0.0, numbers[k].imag()});
      }
      std::vector<Complex> parameters(set.parameters, 0.0), placements(6 * m.nframes(), 0.0);
      const Motions<Complex> all = motions(m, at.arena, point.q, point.v, rest.data());
      force_parameter_gradient<Complex>(m, set, at.arena, all, point.q, point.v, t, node.p.data(), power.data(),
                                        parameters.data());
      force_placement_gradient<Complex>(m, set, at.arena, all, t, node.p.data(), power.data(), placements.data());
      for (std::size_t k = 0; k < parameters.size(); ++k) add(out.forces[k], l, parameters[k]);
      for (std::size_t k = 0; k < placements.size(); ++k) add(out.placement[k], l, placements[k]);
    }
  }

  // The gradient of lambda.(P^T tau_f) by the numbers of couplings at a complex node; w = P lambda.
  std::vector<Complex> coupling_power_gradient(const Model& tree, const BlockTerms<Complex>& terms,
                                               const ComplexNode& node, const TreePoint<Complex>& point, double t,
                                               const Complex* lambda, const Complex* w) {
    Arena& arena = stepper_.at.arena;
    const ForceSet& set = *stepper_.at.scene.forces;
    const int nv = tree.nv;
    const Motions<Complex> all = force_motions(tree, arena, point.q, point.v);
    Complex *K = arena.get<Complex>(nv * nv), *D = arena.get<Complex>(nv * nv), *tau = arena.get<Complex>(nv);
    Complex *by_q = zeros<Complex>(arena, nv), *by_v = zeros<Complex>(arena, nv), *none = zeros<Complex>(arena, nv);
    generalized_forces_derivatives<Complex>(tree, set, arena, all, point.q, point.v, t, node.p.data(), K, D);
    generalized_forces<Complex>(tree, set, arena, all, point.q, point.v, t, node.p.data(), tau);
    for (int i = 0; i < nv; ++i) {
      add_scaled(nv, w[i], K + i * nv, by_q);
      add_scaled(nv, w[i], D + i * nv, by_v);
    }
    std::vector<Complex> gradient(tree.coupling->numbers, 0.0);
    add_number_gradient<Complex>(terms, arena, {node.q.data(), node.v.data(), none, lambda}, {by_q, by_v, none, tau},
                                 gradient.data());
    return gradient;
  }

  Stepper<S>& stepper_;
  const Model& m_;
  const int nv_;
  std::vector<S> nodes_, lambda_, mu_, force_;
  std::vector<S> al_, nu_, be_;  // with constraints: cotangents of the projection, of rows, and of their rates
};

// The adjoint over the rows of trajectories; the loops are in integrators/trajectory.hpp.
template <class S>
class StageAdjoint {
 public:
  StageAdjoint(StageRollout<S>& rollout, LaneJobs<S>& jobs, int64_t first)
      : sums(jobs, rollout.stepper.at.scene),
        rollout_(rollout),
        stepper_(rollout.stepper),
        nv_(stepper_.at.scene.m.nv),
        jobs_(jobs),
        first_(first),
        at_(stepper_),
        row_(nv_) {}
  ParameterSums<S> sums;

  void take_up(int64_t) {}  // gradients are in the rows
  Mask<S> step_back(int64_t row, double t) {
    const Track& track = jobs_.first();
    const bool later = track.start + row > 0;
    const bool replaced = later && row == first_ && track.previous_q != nullptr;
    Mask<S> good = repeat(row, t, later);
    if (!any(good)) return good;
    const int end = stepper_.last_node(), controls_size = track.u_rows * nv_;
    at_.reset();
    jobs_.read(nv_, at_.q(end), [&](const Job& job) { return job.out.q + (row + 1) * nv_; });
    jobs_.read(nv_, at_.v(end), [&](const Job& job) { return job.out.v + (row + 1) * nv_; });
    const auto u_row = [&](const Job& job) { return job.out.u + row * controls_size; };
    const bool by_controls = jobs_[0].out.u != nullptr;
    S* u = nullptr;
    if (by_controls) {
      if constexpr (alone) {
        u = u_row(jobs_[0]);
      } else {
        u_.resize(controls_size);
        jobs_.read(controls_size, u = u_.data(), u_row);
      }
    }
    sums.save();
    const StageControls<S> controls = rollout_.controls_of(jobs_, row);
    const std::vector<Stage>& stages = stepper_.stages();
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      stepper_.read_control(controls, stage->fraction);
      good = good & at_.over(*stage, t + stage->fraction * stepper_.table.h, sums.all());
      if (!any(good)) break;
      if (!by_controls) continue;
      const auto place = controls.place(stage->fraction);
      add_scaled(nv_, S(1.0 - place.s), at_.lambda(), u + place.row * nv_);
      if (place.next != place.row) add_scaled(nv_, S(place.s), at_.lambda(), u + place.next * nv_);
    }
    sums.restore(!good);
    if (!any(good)) return good;
    if (by_controls && !alone) jobs_.write(controls_size, u, good, u_row);
    add(at_.q(1), good, [&](const Job& job) { return job.out.q + row * nv_; });
    add(at_.v(1), good, [&](const Job& job) { return job.out.v + row * nv_; });
    if (row > 0 || replaced) {
      add(at_.q(0), good, [&](const Job& job) { return replaced ? job.out.previous_q : job.out.q + (row - 1) * nv_; });
      add(at_.v(0), good, [&](const Job& job) { return replaced ? job.out.previous_v : job.out.v + (row - 1) * nv_; });
    }
    return good;
  }
  void end(int64_t) {}
  void pass(int, StageAdjoint<double>&) {}  // likewise
  void take_back(int, StageAdjoint<double>&) {}

 private:
  static constexpr bool alone = Lanes<S>::value == 1;
  // Restores the nodes of the step from a row: a step of several stages is repeated. Divided steps are for a single
  // state.
  Mask<S> repeat(int64_t row, double t, bool later) {
    Mask<S> good = every_lane<S>();
    rollout_.load(jobs_, row, row == first_, false);
    int parts = jobs_.first().divisions[row];
    if constexpr (Lanes<S>::value > 1) {
      parts = 1;
      S divisions(1.0);
      for (int l = 0; l < Lanes<S>::value; ++l) set_lane(divisions, l, jobs_[l].track.divisions[row]);
      good = equal(divisions, S(1.0));
      if (stepper_.at.singular || !any(good)) return no_lane<S>();
    }
    stepper_.choose(parts, later);
    if (stepper_.stages().size() > 1) {
      // The first step started from accelerations, if they are known.
      const Mask<S> known = later ? good : is_finite(largest(nv_, stepper_.at.nodes.a(1)));
      if constexpr (Lanes<S>::value > 1) good = good & known;
      good = good & stepper_.take_divided(parts, later, any(known), t, rollout_.controls_of(jobs_, row), kInfinity);
    }
    if (any(good)) rollout_.load_node(jobs_, row + 1, stepper_.last_node());
    return good;
  }
  // Adds to a row of the lanes.
  template <class F>
  void add(const S* x, const Mask<S>& lanes, F&& row) {
    if constexpr (alone) return add_scaled(nv_, 1.0, x, row(jobs_[0]));
    jobs_.read(nv_, row_.data(), row);
    add_scaled(nv_, S(1.0), x, row_.data());
    jobs_.write(nv_, row_.data(), lanes, row);
  }

  StageRollout<S>& rollout_;
  Stepper<S>& stepper_;
  const int nv_;
  LaneJobs<S>& jobs_;
  const int64_t first_;
  StageCotangents<S> at_;
  std::vector<S> row_, u_;
};

}  // namespace torsor
