// Trajectories of variational steps, and gradients of losses on them. A step maps (q, p) to (q, p); rows of a
// trajectory have v = M(q)^-1 p, so that all integrators have the same state.
#pragma once
#include "dynamics/momentum.hpp"
#include "forces/force_placements.hpp"
#include "integrators/trajectory.hpp"
#include "integrators/variational_derivatives.hpp"

namespace torsor {

// The loops are in integrators/trajectory.hpp. Accelerations are those of forward dynamics.
template <class S>
class VariationalRollout {
 public:
  VariationalRollout(const Scene& scene, const VariationalScheme& scheme) : step(scene, scheme), m_(scene.m) {}
  VariationalStep<S> step;
  Outcome outcome = Outcome::finished;
  Shortfall shortfall;
  double h() const { return step.scheme.h; }
  void set_parameters(const S* p) { step.p = p; }
  const ForceSet* forces() const { return step.scene.forces; }
  bool& singular() { return singular_; }

  // Sets a row as the beginning of a step.
  void load(const LaneJobs<S>& jobs, int64_t row, bool, bool) {
    jobs.read(m_.nq, step.q0.data(), [&](const Job& job) { return job.track.q + row * m_.nq; });
    jobs.read(m_.nv, step.v0.data(), [&](const Job& job) { return job.track.v + row * m_.nv; });
    jobs.read(m_.nv, step.a0.data(), [&](const Job& job) { return job.track.a + row * m_.nv; });
    step.arena.reset();
    scene_momenta<S>(step.scene, step.arena, step.q0.data(), step.v0.data(), step.p0.data());
  }
  Mask<S> advance(LaneJobs<S>& jobs, int64_t row, double t, bool) {
    const StepControls<S> controls = controls_of(jobs, row);
    if (jobs.first().start + row == 0) {
      const S* u = controls.at(0, m_.nv);
      if (!any(step.velocities(step.q0.data(), step.p0.data(), t, u, step.v1.data(), step.a0.data())))
        return fail_singular();
      jobs.write(m_.nv, step.a0.data(), every_lane<S>(), [](const Job& job) { return job.track.a; });
    }
    const Mask<S> taken = step.take(t, controls);
    if (!any(taken)) {
      shortfall = step.shortfall;
      outcome = Outcome::failed;
      return taken;
    }
    const S* u = controls.at(step.scene.rule.m - 1, m_.nv);
    if (!any(step.velocities(step.q1.data(), step.p1.data(), t + h(), u, step.v1.data(), step.a1.data())))
      return fail_singular();
    jobs.write(m_.nq, step.q1.data(), taken, [&](const Job& job) { return job.track.q + (row + 1) * m_.nq; });
    jobs.write(m_.nv, step.v1.data(), taken, [&](const Job& job) { return job.track.v + (row + 1) * m_.nv; });
    jobs.write(m_.nv, step.a1.data(), taken, [&](const Job& job) { return job.track.a + (row + 1) * m_.nv; });
    return taken;
  }
  StepControls<S> controls_of(const LaneJobs<S>& jobs, int64_t row) {
    const Track& first = jobs.first();
    if constexpr (Lanes<S>::value == 1) {
      return {first.controls(row, m_.nv), first.u_rows};
    } else {
      if (first.u == nullptr) return {nullptr, first.u_rows};
      const int size = first.u_rows * m_.nv;
      controls_.resize(size);
      jobs.read(size, controls_.data(), [&](const Job& job) { return job.track.controls(row, m_.nv); });
      return {controls_.data(), first.u_rows};
    }
  }

 private:
  Mask<S> fail_singular() {
    shortfall.error = step.arena.singular_joint;
    outcome = Outcome::singular;
    return no_lane<S>();
  }
  const Model& m_;
  std::vector<S> controls_;
  bool singular_ = false;
};

// The adjoint: its state is the gradient by (q, p).
template <class S>
class VariationalAdjoint {
 public:
  VariationalAdjoint(VariationalRollout<S>& rollout, LaneJobs<S>& jobs, int64_t first)
      : sums(jobs, rollout.step.scene),
        rollout_(rollout),
        step_(rollout.step),
        m_(step_.scene.m),
        jobs_(jobs),
        first_(first) {
    for (auto* vector : {&gq_, &gp_, &q0_, &p0_, &v_, &by_q_, &by_v_}) vector->assign(m_.nv, S(0.0));
    q_.resize(m_.nq);
    if (step_.rows() != nullptr) of_rows_.emplace(step_.scene, *step_.rows());
  }
  ParameterSums<S> sums;

  // Adds the gradients of the loss at a row; that by v = M^-1 p becomes one by q and p, where it is not zero.
  void take_up(int64_t row) {
    const int nv = m_.nv;
    read_row(row);
    add_scaled(nv, S(1.0), by_q_.data(), gq_.data());
    Mask<S> moves = no_lane<S>();
    for (const S& x : by_v_) moves = moves | !equal(x, S(0.0));
    if (!any(moves)) return;
    step_.arena.reset();
    std::vector<S> x(nv);
    SceneMass<S>(step_.scene, step_.arena, q_.data()).solve(by_v_.data(), x.data());
    add_scaled_where(moves, nv, S(1.0), x.data(), gp_.data());
    add_kinetic(moves, -1.0, x.data(), gq_.data(), nullptr);
  }
  Mask<S> step_back(int64_t row, double t) {
    const int nv = m_.nv, size = jobs_.first().u_rows * nv;
    rollout_.load(jobs_, row, row == first_, false);
    Mask<S> good = step_.take(t, rollout_.controls_of(jobs_, row));
    if (!any(good)) return good;
    std::fill(q0_.begin(), q0_.end(), S(0.0));
    std::fill(p0_.begin(), p0_.end(), S(0.0));
    const auto u_row = [&](const Job& job) { return job.out.u + row * size; };
    const bool by_controls = jobs_[0].out.u != nullptr;
    if (by_controls) {
      u_.resize(size);
      jobs_.read(size, u_.data(), u_row);
    }
    good = good & reverse_step<S>(step_, gq_.data(), gp_.data(), q0_.data(), p0_.data(),
                                  by_controls ? u_.data() : nullptr, multiplier_, of_rows_ ? &*of_rows_ : nullptr);
    if (!any(good)) return good;
    if (by_controls) jobs_.write(size, u_.data(), good, u_row);
    if (sums.all().inertia != nullptr) {
      sums.save();
      add_parameters(good);
      sums.restore(!good);
    }
    for (int k = 0; k < nv; ++k) {
      gq_[k] = select(good, q0_[k], gq_[k]);
      gp_[k] = select(good, p0_[k], gp_[k]);
    }
    return good;
  }
  // p = M v of the first row, whose own losses are added already.
  void end(int64_t row) {
    const Mask<S> all = every_lane<S>();
    read_row(row);
    add_scaled(m_.nv, S(1.0), gq_.data(), by_q_.data());
    add_kinetic(all, 1.0, gp_.data(), by_q_.data(), by_v_.data());
    jobs_.write(m_.nv, by_q_.data(), all, [&](const Job& job) { return job.out.q + row * m_.nv; });
    jobs_.write(m_.nv, by_v_.data(), all, [&](const Job& job) { return job.out.v + row * m_.nv; });
  }

  void pass(int l, VariationalAdjoint<double>& to) {
    for (int k = 0; k < m_.nv; ++k) {
      to.gq_[k] = lane_of(gq_[k], l);
      to.gp_[k] = lane_of(gp_[k], l);
    }
  }
  void take_back(int l, VariationalAdjoint<double>& from) {
    for (int k = 0; k < m_.nv; ++k) {
      set_lane(gq_[k], l, from.gq_[k]);
      set_lane(gp_[k], l, from.gp_[k]);
    }
  }

 private:
  template <class T>
  friend class VariationalAdjoint;

  // Reads a row of the trajectories, and of the gradients.
  void read_row(int64_t row) {
    const int nv = m_.nv;
    jobs_.read(m_.nq, q_.data(), [&](const Job& job) { return job.track.q + row * m_.nq; });
    jobs_.read(nv, v_.data(), [&](const Job& job) { return job.track.v + row * nv; });
    jobs_.read(nv, by_q_.data(), [&](const Job& job) { return job.out.q + row * nv; });
    jobs_.read(nv, by_v_.data(), [&](const Job& job) { return job.out.v + row * nv; });
  }
  // Adds s times the gradients of x.M(q) v by q, v and parameters, where wanted, at the row that was read.
  void add_kinetic(const Mask<S>& lanes, double s, const S* x, S* by_q, S* by_v) {
    Arena& arena = step_.arena;
    arena.reset();
    const VariationalScene& scene = step_.scene;
    const Model& tree = scene.tree;
    const int nv = m_.nv, bodies = tree.nframes(), numbers = scene.coupled ? tree.coupling->numbers : 0;
    S *gq = arena.get<S>(nv), *gv = arena.get<S>(nv), *couplings = zeros<S>(arena, numbers);
    S *inertia = arena.get<S>(10 * bodies), *placement = arena.get<S>(6 * bodies), *armature = arena.get<S>(tree.nv);
    const ParameterGradients<S>& out = sums.all();
    const bool parameters = out.inertia != nullptr;
    const auto wanted = [&](S* to) { return parameters ? to : nullptr; };
    momentum_gradients<S>(scene, arena, q_.data(), v_.data(), x,
                          {gq, gv, wanted(inertia), wanted(placement), wanted(armature), wanted(couplings)});
    add_scaled_where(lanes, nv, S(s), gq, by_q);
    if (by_v != nullptr) add_scaled_where(lanes, nv, S(s), gv, by_v);
    if (!parameters) return;
    add_scaled_where(lanes, 10 * bodies, S(s), inertia, out.inertia);
    add_scaled_where(lanes, 6 * bodies, S(s), placement, out.placement);
    add_scaled_where(lanes, tree.nv, S(s), armature, out.armature);
    if (scene.coupled) add_scaled_where(lanes, numbers, S(s), couplings, out.couplings);
  }
  // Gradients by parameters: with the displacements (dq, dv) of each point that correspond to the multipliers, those of
  // h w (dT(dq, dv) - dV(dq) + dq.tau). T by complex step, v.M(q) v / 2 along the displacement.
  void add_parameters(const Mask<S>& lanes) {
    const VariationalScene& scene = step_.scene;
    const Model& tree = scene.tree;
    const int nv = m_.nv, bodies = tree.nframes(), s = scene.rule.s;
    const ParameterGradients<S>& out = sums.all();
    Arena& arena = step_.arena;
    step_.evaluate();
    std::vector<S> by_q(nv), by_xi(std::size_t(s) * nv), inertia(10 * bodies), placement(6 * bodies);
    std::vector<S> still(tree.nv, S(0.0)), weight_inertia(10 * bodies), weight_placement(6 * bodies), weight_gravity(3),
        drives(tree.nv);
    step_vjp<S>(scene, arena, step_.action(), step_.end(), step_.controls().count, step_.p,
                {multiplier_.data(), of_rows_ ? of_rows_->on_q1.data() : gq_.data(),
                 of_rows_ ? of_rows_->on_p1.data() : gp_.data()},
                {by_q.data(), by_xi.data(), nullptr}, [&](int a, const Displacement<S>& given) {
                  const ActionPoint<S>& point = step_.action().points[a];
                  const ActionPoint<S>& at = scene.coupled ? *point.tree : point;
                  const Displacement<S> d = scene.coupled ? tree_displacement(scene, arena, point, given) : given;
                  if (scene.coupled) add_coupling_parameters(point, given, d);
                  const S weight(at.weight);
                  for (int l = 0; l < Lanes<S>::value; ++l)
                    if (jobs_.goes_on(l) && in_lane(lanes, l))
                      kinetic_along(at, d, l, inertia.data(), placement.data());
                  with_model<S>(scene, [&](const auto& m) {
                    inverse_dynamics_vjp<S>(m, arena, at.q, still.data(), still.data(), d.q, nullptr, 0,
                                            {nullptr, nullptr, nullptr, nullptr, weight_inertia.data(),
                                             weight_placement.data(), weight_gravity.data(), nullptr});
                  });
                  for (int k = 0; k < 10 * bodies; ++k)
                    out.inertia[k] += weight * (S(0.5) * inertia[k] / S(kStep) - weight_inertia[k]);
                  for (int k = 0; k < 6 * bodies; ++k)
                    out.placement[k] += weight * (S(0.5) * placement[k] / S(kStep) - weight_placement[k]);
                  for (int k = 0; k < 3; ++k) out.gravity[k] -= weight * weight_gravity[k];
                  for (int k = 0; k < tree.nv; ++k) drives[k] = weight * at.v[k] * d.v[k];
                  restrict_armature(tree, drives.data());
                  add_scaled(tree.nv, S(1.0), drives.data(), out.armature);
                  if (scene.forces == nullptr) return;
                  for (int k = 0; k < tree.nv; ++k) d.q[k] *= weight;
                  force_parameter_gradient<S>(tree, *scene.forces, arena, at.all, at.q, at.v, at.t, step_.p, d.q,
                                              out.forces);
                  with_model<S>(scene, [&](const auto& m) {
                    force_placement_gradient<S>(m, *scene.forces, arena, at.all, at.t, step_.p, d.q, out.placement);
                  });
                  for (int k = 0; k < tree.nv; ++k) d.q[k] = d.q[k] / weight;
                });
    if (of_rows_) of_rows_->add_parameters(arena, step_.multipliers(), multiplier_.data(), out);
  }
  // Of the numbers of couplings: the gradient of dq.f_R + dv.g_R at fixed (dq, dv) is that of
  //   G_q.q + G_v.(P v) + f.(P dq) + g.(P dv + phi''[v, dq]),
  // G being the gradients of the tree's f.(P dq) + g.(P dv + Pdot dq), and phi''[v, dq] a difference of squares.
  void add_coupling_parameters(const ActionPoint<S>& at, const Displacement<S>& d, const Displacement<S>& moved) {
    const VariationalScene& scene = step_.scene;
    Arena& arena = step_.arena;
    const int nr = m_.nv, nv = scene.tree.nv;
    const PointGradients<S> G = sweep_tree(scene, arena, *at.tree, step_.p, moved);
    add_force_terms<S>(scene, arena, *at.tree, step_.p, moved.q, G);
    S *sum = arena.get<S>(nr), *difference = arena.get<S>(nr), *four = arena.get<S>(nr);
    for (int k = 0; k < nr; ++k) {
      sum[k] = at.v[k] + d.q[k];
      difference[k] = at.v[k] - d.q[k];
      four[k] = S(4.0) * d.v[k];
    }
    S *quarter = arena.get<S>(nv), *minus = arena.get<S>(nv);
    for (int k = 0; k < nv; ++k) {
      quarter[k] = S(0.25) * at.tree->g[k];
      minus[k] = -quarter[k];
    }
    const S *none = zeros<S>(arena, nv), *rest = zeros<S>(arena, nr);
    const BlockTerms<S>& terms = at.state->terms();
    S* out = sums.all().couplings;
    add_number_gradient<S>(terms, arena, {at.q, sum, four, d.q}, {G.q, none, quarter, at.tree->f}, out);
    add_number_gradient<S>(terms, arena, {at.q, difference, rest, rest}, {none, none, minus, none}, out);
    add_number_gradient<S>(terms, arena, {at.q, at.v, rest, rest}, {none, G.v, none, none}, out);
  }
  // Imaginary parts of the gradients of v.M(q) v by parameters, along a displacement of a point, in lane l.
  void kinetic_along(const ActionPoint<S>& at, const Displacement<S>& d, int l, S* inertia, S* placement) {
    const Model& m = model_of_lane(step_.scene, l);
    const int nv = m.nv, bodies = m.nframes();
    std::vector<Complex> from(m.nq), q(m.nq), v(nv), rest(nv, 0.0), along(nv);
    std::vector<Complex> by_inertia(10 * bodies), by_placement(6 * bodies);
    for (int k = 0; k < m.nq; ++k) from[k] = lane_of(at.q[k], l);
    for (int k = 0; k < nv; ++k) {
      along[k] = Complex(0.0, kStep * lane_of(d.q[k], l));
      v[k] = Complex(lane_of(at.v[k], l), kStep * lane_of(d.v[k], l));
    }
    plus(m, from.data(), along.data(), q.data());
    inverse_dynamics_vjp<Complex>(
        m, step_.arena, q.data(), rest.data(), v.data(), v.data(), nullptr, 0,
        {nullptr, nullptr, nullptr, nullptr, by_inertia.data(), by_placement.data(), nullptr, nullptr}, false);
    for (int k = 0; k < 10 * bodies; ++k) set_lane(inertia[k], l, by_inertia[k].imag());
    for (int k = 0; k < 6 * bodies; ++k) set_lane(placement[k], l, by_placement[k].imag());
  }

  VariationalRollout<S>& rollout_;
  VariationalStep<S>& step_;
  const Model& m_;
  LaneJobs<S>& jobs_;
  const int64_t first_;
  std::vector<S> gq_, gp_, q0_, p0_, multiplier_, u_;
  std::vector<S> q_, v_, by_q_, by_v_;           // of a row
  std::optional<ControlRowWeights<S>> of_rows_;  // with constraints
};

}  // namespace torsor
