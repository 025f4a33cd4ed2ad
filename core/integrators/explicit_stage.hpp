// Stages that evaluate the equations of motion at their beginning: v1 = v0 + h a0, q1 = q0 (+) h v1. Symplectic Euler
// has the accelerations of forward dynamics, linearly implicit Euler those with the forces linearised about the
// beginning; derivatives of the latter use complex steps, lane by lane.
//
// Constraints hold for velocities, Sueda 2021, (2.106): ID(q0, v0, a0) = tau_f + u + G^T lambda with G v1 + g_t +
// beta g = 0 at q0. Post-stabilisation (Cline and Pai 2003; Sueda 2021, 1.12) then moves the end of the step onto the
// constraints, to first order by the shortest way in the metric of M: M d + G^T mu = 0, G d = -g at q^ = q0 (+) h v1,
// and q1 = q^ (+) d.
#pragma once
#include "integrators/implicit_stage.hpp"
#include "integrators/projection_derivatives.hpp"
#include "scalar/complex_step.hpp"

namespace torsor {

// K = dtau/dq and D = dtau/dv (nv x nv) of forces in the coordinates of a scene, at (q, v) or `point` of the tree.
template <class S>
void reduce_force_derivatives(const Model& tree, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q,
                              const S* v, const TreePoint<S>& point, double t, const S* p, S* K, S* D) {
  if (tree.coupling == nullptr) return generalized_forces_derivatives<S>(tree, set, arena, all, q, v, t, p, K, D);
  const std::size_t size = std::size_t(tree.nv) * tree.nv;
  S *own_K = arena.get<S>(size), *own_D = arena.get<S>(size), *tau = arena.get<S>(tree.nv);
  generalized_forces_derivatives<S>(tree, set, arena, all, point.q, point.v, t, p, own_K, own_D);
  generalized_forces<S>(tree, set, arena, all, point.q, point.v, t, p, tau);
  chain_forces<S>(chained_state<S>(tree, arena, q, v, zeros<S>(arena, tree.coupling->nv())), arena, own_K, own_D,
                  nullptr, tau, K, D, nullptr);
}

template <class S>
class ExplicitStage {
 public:
  ExplicitStage(StepContext<S>& at, const IntegratorTable& table)
      : at_(at),
        m_(at.scene.m),
        linearised_(table.kind == StageKind::linearised && at.scene.forces != nullptr),
        beta(table.baumgarte),
        solver_(m_, at.memory) {
    if (at.scene.constraints != nullptr) rows_.emplace(at, false);
    if (rows_ && table.post) after_.emplace(at, false);
    for (S** vector : {&xi_, &r_, &d_}) std::fill_n(*vector = at.memory.template get<S>(m_.nv), m_.nv, S(0.0));
    if (after_) end_ = at.memory.template get<S>(m_.nq);
  }
  ExplicitStage(const ExplicitStage&) = delete;

  Mask<S> take(const Stage& stage, double t) {
    Nodes<S>& nodes = at_.nodes;
    S* a = nodes.a(stage.from);
    const Mask<S> good = rows_         ? accelerate_with_rows(stage, t, a)
                         : linearised_ ? accelerate_implicitly(stage, t, a)
                                       : accelerate_node(at_, stage.from, t, a);
    if (!any(good)) return good;
    for (int k = 0; k < m_.nv; ++k) {
      const S v = nodes.v(stage.from)[k] + a[k] / S(stage.c);
      nodes.v(stage.to)[k] = v;
      xi_[k] = v / S(stage.c);
    }
    S *q0 = nodes.q(stage.from), *q1 = nodes.q(stage.to);
    if (!after_) return good & retract<S>(m_, q0, xi_, q1) & is_finite(largest(m_.nv, xi_));
    const Mask<S> moved = stabilise(stage, t);
    return good & moved & retract<S>(m_, end_, d_, q1) & is_finite(largest(m_.nv, d_));
  }

  // Linearises a stage that was taken: A_q and A_v of the residual that the accelerations solve; the factors of their
  // matrix; and with xi = h v1 the derivatives of q1, V1 = h J(xi) by v1 and V0 = J B by q0. False if singular.
  Mask<S> linearise(const Stage& stage, double t) {
    Nodes<S>& nodes = at_.nodes;
    const Evaluation<S> e = evaluate(stage, nodes.a(stage.from), t);
    add_residual_derivatives(at_, e, at_.zeros(Aq), at_.zeros(Av), at_.zeros(M_));
    if (linearised_) linearise_along(stage, t);
    for (int k = 0; k < m_.nv; ++k) xi_[k] = nodes.v(stage.to)[k] / S(stage.c);
    set_chart(xi_, 1.0 / stage.c, V1, V0);
    if (!rows_) return solver_.factor_matrix(M_, at_.scene.branched);
    const Mask<S> good = linearise_rows(stage, t);
    if (!after_ || !any(good)) return good;
    const Mask<S> moved = stabilise(stage, t);
    set_chart(d_, 1.0, D1, D0);
    return good & moved;
  }
  S *Aq = nullptr, *Av = nullptr;
  BlockDiagonal<S> V1, V0;
  BlockDiagonal<S> D1, D0;  // with post-stabilisation: of q1 by d and by q^, which has the derivatives V1 and V0
  const TreeSolver<S>& solver() const { return solver_; }
  StageRows<S>* rows() { return rows_ ? &*rows_ : nullptr; }
  StageRows<S>* rows_after() { return after_ ? &*after_ : nullptr; }  // at q^, with post-stabilisation
  Projection<S> displacement(const Stage& stage, double t) const { return {end_, d_, d_, t + 1.0 / stage.c, true}; }
  // Of constraints: d(G v1 + g_t)/dq + beta G (rows x nv) after `linearise`, of which Aq has -d(G^T lambda)/dq.
  const S* by_q(int row) const { return by_q_.data() + std::size_t(row) * m_.nv; }

 private:
  // Of q1 = q0 (+) xi: scale J(xi) by xi / scale, and J B by q0.
  void set_chart(const S* xi, double scale, BlockDiagonal<S>& by_xi, BlockDiagonal<S>& by_q0) const {
    by_xi.scalar = S(scale);
    by_q0.scalar = S(1.0);
    by_xi.blocks.resize(at_.scene.quaternions.size());
    by_q0.blocks.resize(at_.scene.quaternions.size());
    for (std::size_t b = 0; b < at_.scene.quaternions.size(); ++b) {
      const Model::Body& body = m_.bodies[at_.scene.quaternions[b]];
      const ChartTerms<S> at = chart_terms<S>(body.kind, &xi[body.iv], nullptr);
      for (int k = 0; k < body.nv * body.nv; ++k) by_xi.blocks[b].x[k] = S(scale) * at.J.x[k];
      multiply(body.nv, S(1.0), at.J, at.B, by_q0.blocks[b], false);
    }
  }
  // q^, the rows there at the end of the step, and the displacement d with its multipliers.
  Mask<S> stabilise(const Stage& stage, double t) {
    const double end = t + 1.0 / stage.c;
    Mask<S> good = retract<S>(m_, at_.nodes.q(stage.from), xi_, end_) & is_finite(largest(m_.nv, xi_));
    if (!any(good)) return good;
    at_.arena.reset();
    const Motions<S> all = row_motions<S>(at_.scene, at_.arena, end_, at_.zero, at_.zero);
    good = good & after_->measure(all, end_, end);
    if (!any(good)) return good;
    constraint_values<S>(after_->state(all, end_, at_.zero, at_.zero, end), after_->kappa, nullptr, nullptr);
    after_->metric.solve(after_->kappa);
    std::fill_n(d_, m_.nv, S(0.0));
    after_->metric.add_response(S(-1.0), after_->kappa, d_);
    return good;
  }
  // Of the motions at (q, v), of the node where the stage begins, with its rows measured.
  Motions<S> measure_rows(const S* q, const S* v, double t, Mask<S>& good) {
    at_.arena.reset();
    const Motions<S> all = row_motions<S>(at_.scene, at_.arena, q, v, at_.zero);
    good = rows_->measure(all, q, t);
    if (any(good)) rows_->keep_rows();
    return all;
  }
  // M a - G^T lambda = -r,   G a = -(G v0 + g_t + beta g) / h, M being that of the stage.
  Mask<S> accelerate_with_rows(const Stage& stage, double t, S* a) {
    const int nv = m_.nv, rows = rows_->count();
    const S *q = at_.nodes.q(stage.from), *v = at_.nodes.v(stage.from);
    Mask<S> good = linearised_ ? accelerate_implicitly(stage, t, a) : accelerate_node(at_, stage.from, t, a);
    if (!any(good)) return good;
    Mask<S> measured = good;
    const Motions<S> all = measure_rows(q, v, t, measured);
    good = good & measured;
    if (!any(good)) return good;
    std::vector<S> miss(rows), rate(rows);
    constraint_values<S>(rows_->state(all, q, v, at_.zero, t), miss.data(), rate.data(), nullptr);
    for (int r = 0; r < rows; ++r) miss[r] = S(stage.c) * (rate[r] + S(beta) * miss[r]);
    const std::vector<S> asked = miss;
    if (!linearised_) {
      rows_->metric.add_rates(a, miss.data());
      rows_->metric.solve(miss.data());
      rows_->metric.add_response(S(-1.0), miss.data(), a);
      for (int r = 0; r < rows; ++r) rows_->lambda[r] = -miss[r];
      return good & skipped_rows_hold(asked, a);
    }
    // With the matrix of linearly implicit Euler, whose factors are there: the correction of a.
    rows_->fill_mass_border(rows_->state(all, q, v, at_.zero, t));
    good = good & rows_->border.factor(solver_);
    if (!any(good)) return good;
    rows_->metric.add_rates(a, miss.data());
    std::vector<S> out(nv + rows, S(0.0));
    rows_->solve_given(solver_, miss.data(), out.data());
    for (int k = 0; k < nv; ++k) a[k] += out[k];
    std::copy_n(out.data() + nv, rows, rows_->lambda);
    return good & skipped_rows_hold(asked, a);
  }
  // Whether rows that depend on others agree with them: G a = -asked in the rows that were not kept.
  Mask<S> skipped_rows_hold(const std::vector<S>& asked, const S* a) const {
    Mask<S> good = every_lane<S>();
    for (int r = 0; r < rows_->count(); ++r) {
      const Mask<S> kept = less(S(0.5), rows_->metric.kept(r));
      if (!any(!kept)) continue;
      S sum = asked[r], size = absolute(asked[r]);
      for (int k = 0; k < m_.nv; ++k) {
        const S term = rows_->metric.G(r)[k] * a[k];
        sum += term;
        size += absolute(term);
      }
      good = good & (kept | less_equal(absolute(sum), S(1e-6) * (S(1.0) + size)));
    }
    return good;
  }
  // What derivatives of the rows need, and the bordered factors. The multipliers are those that balance the residual of
  // the stage at its accelerations.
  Mask<S> linearise_rows(const Stage& stage, double t) {
    const int nv = m_.nv, rows = rows_->count();
    const S *q = at_.nodes.q(stage.from), *v0 = at_.nodes.v(stage.from), *v1 = at_.nodes.v(stage.to);
    std::vector<S> r(r_, r_ + nv);
    if (linearised_) {  // r = M a - f - h K v0 with the stage's own M; r_ is ID - tau
      const S h(1.0 / stage.c);
      const S* a = at_.nodes.a(stage.from);
      for (int k = 0; k < nv; ++k)
        for (int j = 0; j < nv; ++j) r[k] -= h * (K_[k * nv + j] * (v0[j] + h * a[j]) + D_[k * nv + j] * a[j]);
    }
    Mask<S> good = every_lane<S>();
    const Motions<S> all = measure_rows(q, v1, t, good);
    if (!any(good)) return good;
    const ConstraintState<S> state = rows_->state(all, q, v1, at_.zero, t);
    rows_->fit_multipliers(r.data());
    add_constraint_stiffness<S>(state, rows_->lambda, S(-1.0), Aq, nv);
    by_q_.assign(std::size_t(rows) * nv, S(0.0));
    constraint_derivatives<S>(state, by_q_.data(), nullptr, nullptr, nv);
    rows_->add_position_jacobian(S(beta), by_q_.data());
    good = good & solver_.factor_matrix(M_, at_.scene.branched);
    if (!any(good)) return good;
    rows_->fill_mass_border(state);
    return good & rows_->border.factor(solver_);
  }
  // The residual at the beginning, with sums over subtrees.
  Evaluation<S> evaluate(const Stage& stage, const S* a, double t) {
    const Evaluation<S> e = evaluate_residual<S>(at_, at_.nodes.q(stage.from), at_.nodes.v(stage.from), a, t, r_);
    add_rates(at_.scene.tree, e);
    sum_inertias(at_.scene.tree, e);
    return e;
  }
  // (M - h D - h^2 K) a = f + h K v. Sueda 2021, (2.86), solved for the change of v; K includes the change of lever
  // arms.
  Mask<S> accelerate_implicitly(const Stage& stage, double t, S* a) {
    const int nv = m_.nv;
    const S* v = at_.nodes.v(stage.from);
    const S h(1.0 / stage.c);
    const Evaluation<S> e = evaluate(stage, at_.zero, t);
    if (at_.scene.coupled)
      add_residual_derivatives(at_, e, at_.zeros(Aq), at_.zeros(Av), at_.zeros(M_));
    else
      pair_columns<S>(m_, at_.arena, e.all, nullptr, 2, nullptr, nullptr, at_.zeros(M_), nv);
    stiffen(stage, t);
    for (int k = 0; k < nv; ++k) {
      S sum(0.0);
      for (int j = 0; j < nv; ++j) sum = mul_add(K_[k * nv + j], v[j], sum);
      a[k] = h * sum - r_[k];
    }
    const Mask<S> good = solver_.factor_matrix(M_, at_.scene.branched);
    if (any(good)) solver_.solve(a);
    return good;
  }
  // K = dtau/dq and D = dtau/dv of the forces at the beginning, and M becomes M - h D - h^2 K.
  void stiffen(const Stage& stage, double t) {
    const int size = m_.nv * m_.nv;
    const double h = 1.0 / stage.c;
    const S *q = at_.nodes.q(stage.from), *v = at_.nodes.v(stage.from);
    const TreePoint<S> point = tree_point(at_.scene, at_.arena, q, v);
    const Motions<S> all = force_motions_at(at_, point);
    reduce_force_derivatives<S>(at_.scene.tree, *at_.scene.forces, at_.arena, all, q, v, point, t, at_.p, at_.zeros(K_),
                                at_.zeros(D_));
    add_scaled(size, S(-h), D_, M_);
    add_scaled(size, S(-h * h), K_, M_);
  }
  void linearise_along(const Stage& stage, double t);

  StepContext<S>& at_;
  const Model& m_;
  bool linearised_;

 public:
  const double beta;  // of constraints

 private:
  TreeSolver<S> solver_;
  std::optional<StageRows<S>> rows_;   // if there are constraints
  std::optional<StageRows<S>> after_;  // and with post-stabilisation
  std::vector<S> by_q_;
  S *xi_, *r_, *d_, *end_ = nullptr;
  S *M_ = nullptr, *K_ = nullptr, *D_ = nullptr;
};

// The node in lane l displaced by an imaginary amount along (v1, a0), the direction of a step: derivatives along it are
// imaginary parts divided by kStep.
struct ComplexNode {
  std::vector<Complex> q, v, p;
  template <class S>
  ComplexNode(StepContext<S>& at, const Stage& stage, int l)
      : q(at.scene.m.nq), v(at.scene.m.nv), p(at.scene.forces->parameters) {
    const Model& m = at.scene.m;
    Nodes<S>& nodes = at.nodes;
    const S *q0 = nodes.q(stage.from), *v0 = nodes.v(stage.from), *v1 = nodes.v(stage.to), *a0 = nodes.a(stage.from);
    std::vector<Complex> from(m.nq), along(m.nv);
    for (int k = 0; k < m.nq; ++k) from[k] = lane_of(q0[k], l);
    for (std::size_t k = 0; k < p.size(); ++k) p[k] = lane_of(at.p[k], l);
    for (int k = 0; k < m.nv; ++k) {
      along[k] = Complex(0.0, kStep * lane_of(v1[k], l));
      v[k] = Complex(lane_of(v0[k], l), kStep * lane_of(a0[k], l));
    }
    plus(m, from.data(), along.data(), q.data());
  }
};

// The residual of linearly implicit Euler has the further term h (K v1 + D a0). Its derivatives are those of K and D
// along the step; q exp(delta) exp(s v1) = q exp(s v1) exp(delta - s [v1, delta]) for joints on groups.
template <class S>
void ExplicitStage<S>::linearise_along(const Stage& stage, double t) {
  const int nv = m_.nv;
  const double h = 1.0 / stage.c;
  stiffen(stage, t);
  std::vector<Complex> K(nv * nv), D(nv * nv);
  for (int l = 0; l < Lanes<S>::value; ++l) {
    const ComplexNode at(at_, stage, l);
    const Model& tree = model_of_lane(at_.scene, l);
    const TreePoint<Complex> point = tree_point<Complex>(at_.scene, at_.arena, at.q.data(), at.v.data());
    const Motions<Complex> all = force_motions(tree, at_.arena, point.q, point.v);
    reduce_force_derivatives<Complex>(tree, *at_.scene.forces, at_.arena, all, at.q.data(), at.v.data(), point, t,
                                      at.p.data(), K.data(), D.data());
    for (int k = 0; k < nv * nv; ++k) {
      set_lane(Aq[k], l, lane_of(Aq[k], l) - h * K[k].imag() / kStep);
      set_lane(Av[k], l, lane_of(Av[k], l) - h * (lane_of(K_[k], l) + D[k].imag() / kStep));
    }
  }
  for (int i : at_.scene.quaternions) {
    const Model::Body& body = m_.bodies[i];
    const S* x = at_.nodes.v(stage.to) + body.iv;
    for (int c = 0; c < body.nv; ++c) {
      S unit[6], bracket[6];
      for (int k = 0; k < 6; ++k) unit[k] = bracket[k] = S(0.0);
      unit[c] = S(1.0);
      visit_group(body.kind, [&](auto group) { group.bracket(x, unit, bracket); });
      for (int r = 0; r < nv; ++r)
        for (int k = 0; k < body.nv; ++k) Aq[r * nv + body.iv + c] += S(h) * K_[r * nv + body.iv + k] * bracket[k];
    }
  }
}

}  // namespace torsor
