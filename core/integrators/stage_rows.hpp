// The constraints of a stage: rows g = 0 with multipliers, as wrenches in the residual and as a border of its matrix,
// and the projection of velocities onto them (docs/derivations/constraints.md, 5).
//
// The wrenches W of pairs act on bodies like forces that move with them, which makes them part of the matrix H of the
// stage. What is missing of the derivative of G^T lambda has rank six for each pair,
//   P Q^T,   Q = J_B - J_A,   P = J_B^T (N - . x* W) - J_A^T N,
// all in the axes of marker A, and is a border with the unknowns Q^T delta. Translations have no effect on N - . x* W
// of linear rows, so that there are three of these unknowns if A does not move and no row is a distance.
//
// With couplings the matrix is dense, and has the whole derivative of P^T G^T lambda; the border has rows alone.
#pragma once
#include "constraints/row_metric.hpp"
#include "integrators/residual.hpp"
#include "integrators/scene_rows.hpp"
#include "linear/border.hpp"

namespace torsor {

template <class S>
class StageRows {
 public:
  StageRows(StepContext<S>& at, bool second_order)
      : at_(at),
        m_(at.scene.m),
        set_(*at.scene.constraints),
        rows_(set_.rows),
        nv_(m_.nv),
        metric(m_, rows_, at.memory),
        border(nv_, rows_ + (second_order && !at.scene.coupled ? border_of_pairs(set_) : 0), at.memory) {
    for (S** vector : {&lambda, &g, &kappa, &work_}) zero(vector, rows_);
    zero(&kept_, rows_);
    zero(&y_, border.width());
    pairs_.resize(set_.pairs.size());
  }
  StageRows(const StageRows&) = delete;

 private:
  StepContext<S>& at_;
  const Model& m_;
  const ConstraintSet& set_;
  const int rows_, nv_;

 public:
  S *lambda, *g, *kappa;  // multipliers, values, and multipliers of the projection of velocities
  RowMetric<S> metric;    // at the configuration of the last `measure`
  Border<S> border;
  int count() const { return rows_; }

  ConstraintState<S> state(const Motions<S>& all, const S* q, const S* v, const S* a, double t,
                           bool still = false) const {
    return row_state(at_.scene, at_.arena, all, q, v, a, t, times_at(set_, at_.arena, t), still);
  }

  // The residual ID - tau_f - u - G^T lambda, and g.
  Evaluation<S> evaluate(const S* q, const S* v, const S* a, double t, S* r) {
    if (at_.scene.coupled) return evaluate_coupled(q, v, a, t, r);
    const Evaluation<S> e =
        evaluate_residual<S>(at_.scene, at_.arena, q, v, a, t, at_.p, at_.u, r, [&](const Motions<S>& all) {
          const ConstraintState<S> rows = state(all, q, v, a, t);
          for (std::size_t k = 0; k < pairs_.size(); ++k) add_wrenches(rows, set_.pairs[k], pairs_[k]);
          for (const CouplingPart& part : set_.couplings)
            for (const auto& term : part.terms) r[term.iv] -= S(term.coefficient) * lambda[part.row];
          for (const CustomPart& part : set_.custom) {
            const CustomRows<S> x = custom_rows(rows, part);
            for (int i = 0; i < part.rows; ++i) add_scaled(nv_, -lambda[part.row + i], x.G + i * nv_, r);
          }
          constraint_values<S>(rows, g, nullptr, nullptr);
        });
    return e;
  }

  // G, Y and D at a configuration. False if the mass matrix is singular.
  Mask<S> measure(const Motions<S>& all, const S* q, double t) {
    at_.arena.singular_joint = -1;
    const SceneMass<S> mass(at_.scene, at_.arena, q);
    const Mask<S> good = at_.is_regular();
    if (any(good)) metric.evaluate(state(all, q, at_.zero, at_.zero, t), mass);
    return good;
  }
  // The rows that are kept from now on: those of the metric.
  void keep_rows() {
    for (int r = 0; r < rows_; ++r) kept_[r] = metric.kept(r);
  }
  // lambda such that G^T lambda is nearest to r, in the metric of M^-1.
  void fit_multipliers(const S* r) {
    for (int i = 0; i < rows_; ++i) {
      lambda[i] = S(0.0);
      for (int k = 0; k < nv_; ++k) lambda[i] = mul_add(metric.Y(i)[k], r[k], lambda[i]);
    }
    metric.solve(lambda);
  }
  // out (rows x nv) += s dg/dq, which is s G but for rows on velocities, where g = 0.
  void add_position_jacobian(const S& s, S* out) const {
    for (int r = 0; r < rows_; ++r) add_scaled(nv_, s, metric.G(r), out + std::size_t(r) * nv_);
    for (const TwistPart& part : set_.twists)
      add_scaled(nv_, -s, metric.G(part.row), out + std::size_t(part.row) * nv_);
  }
  // kappa = D^+ (G v + g_t), so that v - Y kappa satisfies the constraints. `all`: motions at v.
  void fit_velocities(const Motions<S>& all, const S* q, const S* v, double t) {
    constraint_values<S>(state(all, q, v, at_.zero, t), nullptr, kappa, nullptr);
    metric.solve(kappa);
  }

  // The border of H, at an evaluation. H is about c^2 M; so unknowns of rows are multipliers over c^2.
  void fill_border(const Evaluation<S>& e, double c) {
    border.clear();
    scale_ = c * c;
    fill_rows(state_at(e));
    if (at_.scene.coupled) return;
    int column = rows_;
    for (std::size_t k = 0; k < pairs_.size(); ++k) {
      fill_pair(e.all, set_.pairs[k], pairs_[k], column);
      column += border_of_pair(set_.pairs[k]);
    }
  }
  // The border of a mass matrix: rows alone.
  void fill_mass_border(const ConstraintState<S>& rows) {
    border.clear();
    scale_ = 1.0;
    fill_rows(rows);
  }
  // Custom rows have their stiffness in the matrix itself, and so have all rows with couplings: K -= d(G^T lambda)/dq,
  // dense.
  void subtract_stiffness(const Evaluation<S>& e, S* K) {
    const ConstraintState<S> rows = state_at(e);
    if (at_.scene.coupled) return add_constraint_stiffness<S>(rows, lambda, S(-1.0), K, nv_);
    for (const CustomPart& part : set_.custom) add_scaled(nv_ * nv_, S(-1.0), custom_stiffness(rows, part, lambda), K);
  }
  // out (nv, then rows) = the correction of the node and of the multipliers.
  void solve(const TreeSolver<S>& solver, const S* r, S* out) {
    for (int k = 0; k < nv_; ++k) out[k] = -r[k];
    solve_given(solver, g, out);
  }
  // The same for H delta - G^T dlambda = out, G delta = -miss.
  void solve_given(const TreeSolver<S>& solver, const S* miss, S* out) {
    for (int r = 0; r < border.width(); ++r) y_[r] = r < rows_ ? -(kept_[r] * miss[r]) : S(0.0);
    border.solve(solver, out, y_);
    for (int r = 0; r < rows_; ++r) out[nv_ + r] = S(scale_) * y_[r];
  }
  // (x, nu) with the transposed bordered matrix times (x, nu) = (x, 0).
  void solve_transposed(const TreeSolver<S>& solver, S* x, S* nu) {
    border.solve_transposed(solver, x, y_);
    for (int r = 0; r < rows_; ++r) nu[r] = kept_[r] * y_[r];
  }
  // M^-1 r without the part that multipliers could balance (in x, which is M^-1 r), and with what g asks for: bounds
  // the correction of accelerations. c: of the stage.
  void project_residual(double c, S* x) {
    for (int r = 0; r < rows_; ++r) work_[r] = S(-c * c) * g[r];
    metric.add_rates(x, work_);
    metric.solve(work_);
    metric.add_response(S(-1.0), work_, x);
  }
  // Whether rows that were not kept hold all the same, to a tolerance of velocities.
  Mask<S> holds(double c, const S& allowed, const S& reach) const {
    Mask<S> good = every_lane<S>();
    for (int r = 0; r < rows_; ++r) {
      S size(0.0);
      for (int k = 0; k < nv_; ++k) size = larger(size, absolute(metric.G(r)[k]));
      const S limit = S(100.0 / c) * allowed * (S(1.0) + size) + S(1e-12) * reach;
      good = good & (less(S(0.5), kept_[r]) | less_equal(absolute(g[r]), limit));
    }
    return good;
  }

 private:
  ConstraintState<S> state_at(const Evaluation<S>& e) const {
    const bool coupled = at_.scene.coupled;
    return state(e.all, coupled ? e.reduced.q : e.q, coupled ? e.reduced.v : e.v, at_.zero, e.t);
  }
  Evaluation<S> evaluate_coupled(const S* q, const S* v, const S* a, double t, S* r) {
    const Evaluation<S> e = evaluate_residual<S>(at_, q, v, a, t, r);
    const ConstraintState<S> rows = state(e.all, q, v, a, t);
    S* G = at_.arena.template get<S>(std::size_t(rows_) * nv_);
    constraint_jacobian(rows, G, nv_);
    for (int i = 0; i < rows_; ++i) add_scaled(nv_, -lambda[i], G + i * nv_, r);
    constraint_values<S>(rows, g, nullptr, nullptr);
    return e;
  }
  void zero(S** vector, int size) { std::fill_n(*vector = at_.memory.template get<S>(size), size, S(0.0)); }
  // Subtracts the wrench from the forces of the bodies.
  void add_wrenches(const ConstraintState<S>& rows, const PairPart& pair, PairState<S>& seen) {
    seen = pair_state(pair, rows.all, rows.times);
    const Force<S> W = wrench(pair, seen);
    if (pair.B.body >= 0) {
      auto& f = rows.all.bodies[pair.B.body].f;
      f = f - seen.to_B.act(W);
    }
    if (pair.A.body >= 0) rows.all.bodies[pair.A.body].f += seen.to_A.act(W);
  }
  Force<S> wrench(const PairPart& pair, const PairState<S>& seen) const {
    Force<S> W = zero_force<S>();
    for (int r = 0; r < pair.rows; ++r) W = mul_add(lambda[pair.row + r], row_wrench(seen, pair.each[r]), W);
    return W;
  }
  void fill_rows(const ConstraintState<S>& rows) {
    for (int r = 0; r < rows_; ++r) border.E(r) = kept_[r] - S(1.0);
    S* G = at_.arena.template get<S>(std::size_t(rows_) * nv_);
    constraint_jacobian(rows, G, nv_);
    for (int r = 0; r < rows_; ++r)
      for (int k = 0; k < nv_; ++k) {
        const S x = kept_[r] * G[r * nv_ + k];
        border.C(r)[k] = x;
        border.B(k, r) = S(scale_) * x;
      }
  }
  void fill_pair(const Motions<S>& all, const PairPart& pair, const PairState<S>& seen, int column) {
    const Force<S> W = wrench(pair, seen);
    const int count = border_of_pair(pair);
    for (int i = 0; i < count; ++i) {
      S unit[6] = {S(0.0), S(0.0), S(0.0), S(0.0), S(0.0), S(0.0)};
      unit[i] = S(1.0);
      const Motion<S> eta = read_motion(unit);
      Force<S> change = zero_force<S>();
      for (int r = 0; r < pair.rows; ++r) change += wrench_change(seen, pair.each[r], lambda[pair.row + r], eta);
      const Force<S> on_A = seen.to_A.act(change), on_B = seen.to_B.act(change - cross(eta, W));
      for_each_velocity(m_, pair.B.body, [&](int k) { border.B(k, column + i) += dot(all.columns[k].S_, on_B); });
      for_each_velocity(m_, pair.A.body, [&](int k) { border.B(k, column + i) -= dot(all.columns[k].S_, on_A); });
      border.E(column + i) = S(1.0);
    }
    const auto see = [&](const std::vector<int>& moves, double sign, const SE3<S>& X) {
      for_each_velocity_of(m_, moves, [&](int k) {
        S eta[6];
        write(X.act_inverse(all.columns[k].S_), eta);
        for (int i = 0; i < count; ++i) border.C(column + i)[k] = S(sign) * eta[i];
      });
    };
    see(pair.moves_B, 1.0, seen.to_B);
    see(pair.moves_A, -1.0, seen.to_A);
  }

  S *kept_, *work_, *y_;
  double scale_ = 1.0;
  std::vector<PairState<S>> pairs_;
};

}  // namespace torsor
