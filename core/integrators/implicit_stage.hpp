// An implicit stage as a system for Newton's method (integrators/newton.hpp): r(q1) = ID(q1, v1, a1) - tau_f - u = 0
// for the node q1 = q0 (+) xi, v1 and a1 being the integrator's formulas; docs/derivations/implicit_steps.md.
// Corrections are tangents of q1.
//
// With constraints, r = ID - tau_f - u - G^T lambda and g(q1) = 0, corrections of lambda follow those of q1, and the
// velocities of the formulas, v^, are projected onto the constraints when the node is found:
//   M (v1 - v^) + G^T kappa = 0,   G v1 + g_t = 0    (docs/derivations/constraints.md, 5).
#pragma once
#include "dynamics/forward_dynamics.hpp"
#include "dynamics/inverse_dynamics.hpp"
#include "integrators/loaded_accelerations.hpp"
#include "integrators/newton.hpp"
#include "integrators/stage_matrix.hpp"
#include "integrators/stage_rows.hpp"
#include "integrators/stage_terms.hpp"

namespace torsor {

// Accelerations (nv) with ID(q, v, a) = tau_f + u at a node. False if the mass matrix is singular.
template <class S>
Mask<S> accelerate_node(StepContext<S>& at, int node, double t, S* a) {
  const Model& m = at.scene.m;
  const S *q = at.nodes.q(node), *v = at.nodes.v(node);
  if (at.scene.loads != nullptr) return accelerate_loaded(at, q, v, t, a);
  if (at.scene.on_joints && !at.scene.coupled) {
    at.arena.singular_joint = -1;
    at.arena.reset();
    S* tau = at.u;
    if (at.scene.forces != nullptr) {
      std::copy_n(at.u, m.nv, tau = at.arena.template get<S>(m.nv));
      add_joint_torques(m, *at.scene.forces, at.arena, q, v, t, at.p, tau);
    }
    with_model<S>(at.scene,
                  [&](const auto& numbers) { hybrid_dynamics<S>(numbers, at.arena, q, v, nullptr, nullptr, a, tau); });
    return at.is_regular();
  }
  evaluate_residual<S>(at, q, v, at.zero, t, a);
  for (int k = 0; k < m.nv; ++k) a[k] = -a[k];
  return solve_mass_at(at, q, a);
}

// The same under constraints: ID(q, v, a) = tau_f + u + G^T lambda with gamma = 0 at the node.
template <class S>
Mask<S> accelerate_node(StepContext<S>& at, StageRows<S>& rows, int node, double t, S* a) {
  const int nv = at.scene.m.nv;
  const S *q = at.nodes.q(node), *v = at.nodes.v(node);
  std::fill_n(rows.lambda, rows.count(), S(0.0));
  const Evaluation<S> e = rows.evaluate(q, v, at.zero, t, a);
  Mask<S> good = rows.measure(e.all, q, t);
  if (!any(good)) return good;
  for (int k = 0; k < nv; ++k) a[k] = -a[k];
  good = good & solve_mass_at(at, q, a);
  S* rate = at.arena.template get<S>(rows.count());
  constraint_values<S>(rows.state(e.all, q, v, at.zero, t), nullptr, nullptr, rate);
  rows.metric.add_rates(a, rate);
  rows.metric.solve(rate);
  rows.metric.add_response(S(-1.0), rate, a);
  return good;
}

template <class S>
class ImplicitStage {
 public:
  using Scalar = S;
  explicit ImplicitStage(StepContext<S>& at) : at_(at), m_(at.scene.m), H_(at.scene, at.memory) {
    if (at.scene.constraints != nullptr) rows_.emplace(at, true);
    for (S** vector : {&delta, &correction, &guess, &last, &older})
      std::fill_n(*vector = at.memory.template get<S>(size()), size(), S(0.0));
    for (S** vector : {&xi_, &marked_xi_, &s_, &r_, &marked_r_, &work_, &v_, &a_})
      std::fill_n(*vector = at.memory.template get<S>(m_.nv), m_.nv, S(0.0));
    marked_q_ = at.memory.template get<S>(m_.nq);
    if (rows_) marked_lambda_.resize(rows_->count());
  }
  ImplicitStage(const ImplicitStage&) = delete;

  // Finds the node `stage.to` at time t in some lanes: starting from what `accelerations` predict, from the beginning
  // of the stage, or by continuation.
  Mask<S> solve(const IntegratorTable& table, const Stage& stage, double t, const S* accelerations,
                const Mask<S>& lanes, Shortfall& shortfall) {
    unfactored_ = no_lane<S>();
    set(stage, t);
    // With stiff forces, accelerations may be those of an impact.
    const Mask<S> sudden = at_.scene.stiff ? are_large(accelerations, 1.0) : no_lane<S>();
    S norm = begin(1.0, accelerations, sudden);
    const Mask<S> doubtful = at_.scene.stiff ? no_lane<S>() : lanes & is_doubtful(accelerations, norm);
    if (any(doubtful)) {  // dropped where the beginning is much nearer to a solution
      const S moved = measure(xi_), other = begin(1.0, accelerations, doubtful);
      const Mask<S> nearer = doubtful & less(other, S(0.25) * larger(norm, moved));
      norm = any(doubtful & !nearer) ? begin(1.0, accelerations, nearer) : other;
    }
    // A lane that has no factors in the form of the others would have them alone, and start elsewhere.
    const Mask<S> comparable = Lanes<S>::value > 1 ? lanes & !unfactored_ : lanes;
    const Mask<S> found = find(*this, table.tolerance, norm, comparable, table.iterations, shortfall);
    if constexpr (Lanes<S>::value == 1)
      if (!found && at_.scene.loads != nullptr) {
        Shortfall unused;
        return find(*this, table.tolerance, begin_stuck(accelerations), lanes, table.iterations, unused);
      }
    return found;
  }
  // Whether a guess by accelerations, where the first correction has size `norm`, may lead to a distant solution: with
  // stiff forces there are many, and the nearest one is wanted. It is doubtful if it changes the velocities a lot, or
  // if the first correction leads half the way back.
  Mask<S> is_doubtful(const S* accelerations, const S& norm) {
    const S moved = measure(xi_);
    return less(S(0.0), moved) & (are_large(accelerations, 4.0) | less(S(0.5) * moved, norm));
  }
  // Whether accelerations would change the velocities by more than `part` of them.
  Mask<S> are_large(const S* accelerations, double part) {
    S speed(0.0), added(0.0);
    for (int k = 0; k < m_.nv; ++k) {
      added = larger(added, absolute(accelerations[k] / S(stage_.c)));
      speed = larger(speed, absolute(at_.nodes.v(stage_.from)[k]));
      for (const S* v : others_v_) speed = larger(speed, absolute(v[k]));
    }
    return less(S(part) * speed, added);
  }
  const S* displacement() const { return xi_; }  // from the node where the stage begins
  StageRows<S>* rows() { return rows_ ? &*rows_ : nullptr; }
  // Before the stages of a step from node 1 at time t, under constraints: which rows are kept, and a guess of the
  // multipliers from the accelerations there. `continues`: the stage found last is node 1 now, so that the metric is
  // known.
  Mask<S> begin_step(double t, bool settled, bool continues) {
    if (!rows_) return every_lane<S>();
    const S *q = at_.nodes.q(1), *a = settled ? at_.nodes.a(1) : at_.zero;
    std::fill_n(rows_->lambda, rows_->count(), S(0.0));
    const Evaluation<S> e = rows_->evaluate(q, at_.nodes.v(1), a, t, work_);
    const Mask<S> good = continues ? every_lane<S>() : rows_->measure(e.all, q, t);
    measured_ = false;
    if (!any(good)) return good;
    rows_->keep_rows();
    if (settled) rows_->fit_multipliers(work_);
    return good;
  }

  // Linearises the stage at a node that solves it: factors H, for one right-hand side or for `columns`, and evaluates
  // what derivatives of the stage need. False if H is singular.
  Mask<S> linearise(const Stage& stage, double t, bool columns) {
    set(stage, t);
    chart<S>(m_, at_.nodes.q(stage.from), q(), xi_);
    for (int k = 0; k < m_.nv; ++k) {
      S sum = xi_[k];
      for (std::size_t j = 0; j < stage.others.size(); ++j) sum = sum - S(stage.others[j].z) * x_[j][k];
      s_[k] = S(stage.c) * sum;
    }
    if (rows_) {
      const Mask<S> good = linearise_rows();
      return any(good) ? good & factor_at(true, columns) : good;
    }
    return factor_at(true, columns);
  }
  // Those of the formulas, before the projection.
  const S* free_velocities() const { return v(); }
  const S* free_accelerations() const { return a(); }
  const StageTerms<S>& terms() const { return terms_; }
  StageMatrix<S>& matrix() { return H_; }
  const TreeSolver<S>& solver() const { return H_.solver(); }
  // Places the node at xi, for tests of single evaluations.
  const Evaluation<S>& evaluate_at(const Stage& stage, double t, const S* xi) {
    set(stage, t);
    std::copy_n(xi, m_.nv, xi_);
    place_here();
    evaluate_here();
    terms_.evaluate(m_, at_.scene.quaternions, stage_, xi_, s_, x_.data(), false);
    add_rates(at_.scene.tree, evaluation_);
    return evaluation_;
  }

  // The interface that newton.hpp requires.
  S *delta, *correction, *guess, *last, *older;
  int size() const { return m_.nv + (rows_ ? rows_->count() : 0); }
  void mark() {
    std::copy_n(xi_, m_.nv, marked_xi_);
    if (rows_) std::copy_n(rows_->lambda, rows_->count(), marked_lambda_.data());
    if (Lanes<S>::value > 1 && !at_.scene.stiff) return;  // the rest is for `improves`
    std::copy_n(r_, m_.nv, marked_r_);
    std::copy_n(q(), m_.nq, marked_q_);
    marked_merit_ = rows_ && at_.scene.stiff ? merit() : merit_;
  }
  Mask<S> place(double length, const S* along, const Mask<S>& where) {
    apply(m_, at_.scene.quaternions, terms_.inverse, false, along, work_);
    for (int k = 0; k < m_.nv; ++k) {
      const S moved = mul_add(S(length), work_[k], marked_xi_[k]);
      xi_[k] = Lanes<S>::value > 1 ? select(where, moved, xi_[k]) : moved;
    }
    for (int r = 0; rows_ && r < rows_->count(); ++r) {
      const S moved = mul_add(S(length), along[m_.nv + r], marked_lambda_[r]);
      rows_->lambda[r] = select(where, moved, rows_->lambda[r]);
    }
    merit_ = -1.0;
    return place_here();
  }
  Mask<S> finish(const S* along, const Mask<S>& where) { return place(1.0, along, where); }
  // Without forces but affine ones, the residual alone comes from a faster recursion than that of derivatives.
  Mask<S> evaluate() {
    linearisable_ = !at_.scene.affine;
    if (linearisable_) {
      evaluate_here();
      return every_lane<S>();
    }
    at_.arena.reset();
    with_model<S>(at_.scene, [&](const auto& m) { inverse_dynamics<S>(m, at_.arena, q(), v(), a(), nullptr, r_); });
    for (int k = 0; k < m_.nv; ++k) r_[k] -= at_.u[k];
    if (at_.scene.forces == nullptr) return every_lane<S>();
    S* tau = at_.arena.template get<S>(m_.nv);
    std::fill_n(tau, m_.nv, S(0.0));
    add_joint_torques(m_, *at_.scene.forces, at_.arena, q(), v(), t_, at_.p, tau);
    for (int k = 0; k < m_.nv; ++k) r_[k] -= tau[k];
    return every_lane<S>();
  }
  Mask<S> factor(const Mask<S>& keep) {
    if (!any(keep)) return factor_at(false, false);
    H_.save();
    if (rows_) rows_->border.save();
    saved_ = terms_.inverse;
    const Mask<S> good = factor_at(false, false);
    H_.restore(keep);
    if (rows_) rows_->border.restore(keep);
    restore(keep, saved_, terms_.inverse);
    return good;
  }
  void solve(S* out) {
    if (rows_) return rows_->solve(H_.solver(), r_, out);
    for (int k = 0; k < m_.nv; ++k) out[k] = -r_[k];
    H_.solver().solve(out);
  }
  S measure(const S* x) const { return S(stage_.c) * largest(m_.nv, x); }
  // The tolerance, plus the error of v due to rounding of q.
  S allowance(double tolerance) const {
    const S reach = larger(S(1.0), largest(m_.nq, q()));
    return S(tolerance) * (S(1.0) + largest(m_.nv, v())) + S(4e-16 * stage_.c) * reach;
  }
  S rounding(const S& allowed);
  // H is c^2 M plus the stiffness and damping of forces, so that c^-2 M^-1 r bounds H^-1 r.
  Mask<S> bounded(const S& allowed, const S& moved) {
    const Mask<S> near = !less(S(0.1) * (S(1.0) + largest(m_.nv, v())), moved);
    if (!any(near)) return near;
    Mask<S> known = near & missing_accelerations(q(), r_);
    if (rows_) {
      known = known & measure_rows();
      rows_->project_residual(stage_.c, work_);
    }
    return known & less_equal(largest(m_.nv, work_), S(stage_.c) * allowed);
  }
  Mask<S> improves(double factor) {
    if (rows_) return no_lane<S>();
    if (marked_merit_ < 0.0) marked_merit_ = merit_of(marked_q_, marked_r_);
    merit_ = merit_of(q(), r_);
    return merit_ < factor * factor * marked_merit_;
  }
  bool extrapolates() const { return at_.scene.affine; }
  bool relocates() const { return at_.scene.stiff; }
  // Merits within a search are in one metric, of the first point at which one is asked for.
  S marked_merit() {
    if (rows_) return marked_merit_;
    if (!metric_ && !at_.scene.coupled) {
      Arena& arena = *metric_lease_;
      arena.reset();
      arena.singular_joint = -1;
      metric_ = with_model<S>(at_.scene, [&](const auto& m) {
        return factor_mass<S>(m, arena, static_cast<const S*>(marked_q_), nullptr, nullptr);
      });
      if (arena.singular_joint >= 0) metric_.reset();
    }
    return in_metric(marked_q_, marked_r_);
  }
  S merit() {
    if (!rows_) return in_metric(q(), r_);
    if (!any(missing_accelerations(q(), r_) & measure_rows())) return S(kInfinity);
    rows_->project_residual(stage_.c, work_);
    const S most = largest(m_.nv, work_);
    return most * most;
  }
  Mask<S> relocate(S* along, const Mask<S>& where) { return solve_contacts(along, where); }
  S curvature(const S& size) const { return size * size / S(stage_.c * stage_.c); }
  // Products may have overflowed.
  Mask<S> accept() {
    Mask<S> good = is_finite(largest(m_.nv, a())) & !turns_too_far<S>(m_, at_.nodes.q(stage_.from), q());
    if (rows_ && any(good)) good = good & project_velocities();
    if (any(good) && at_.scene.balanced) at_.nodes.energies[stage_.to] = energies_of(at_, evaluation_);
    return good;
  }

  void begin_path() {
    const Mask<S> good =
        rows_ ? accelerate_node(at_, *rows_, stage_.from, t_, last) : accelerate_node(at_, stage_.from, t_, last);
    if (!any(good)) std::fill_n(last, m_.nv, S(0.0));
  }
  // Starts from what accelerations predict or, in some lanes, from the beginning of the stage. A part of the step has
  // c / part in place of c.
  S begin(double part, const S* accelerations) { return begin(part, accelerations, no_lane<S>()); }
  S begin(double part, const S* accelerations, const Mask<S>& from_start) {
    stage_.c = c_ / part;
    for (int k = 0; k < m_.nv; ++k)
      xi_[k] = select(from_start, at_.scene.stiff ? led_to(at_.zero, k) : S(0.0), led_to(accelerations, k));
    if (rows_) std::copy_n(first_lambda_.data(), rows_->count(), rows_->lambda);
    merit_ = -1.0;
    linearisable_ = false;
    const Mask<S> good = place_here();
    return any(good) ? select(good, correct(*this), S(kInfinity)) : S(kInfinity);
  }
  // The same with all bearings at rest. The load of a bearing may grow with its deceleration until nothing but a stop
  // solves the equations, and corrections from a motion may not lead there.
  S begin_stuck(const S* accelerations) {
    begin(1.0, accelerations);
    const Model& tree = at_.scene.tree;
    for (const BearingLaw& law : at_.scene.forces->bearings)
      for (int of_tree = tree.bodies[law.body].iv; of_tree < tree.bodies[law.body].iv + tree.bodies[law.body].nv;
           ++of_tree) {
        const int k = at_.scene.coupled ? tree.coupling->reduced_of(of_tree) : of_tree;
        if (k < 0) continue;
        xi_[k] = S(0.0);
        for (std::size_t j = 0; j < stage_.others.size(); ++j) xi_[k] += S(stage_.others[j].z) * x_[j][k];
      }
    linearisable_ = false;
    const Mask<S> good = place_here();
    return any(good) ? select(good, correct(*this), S(kInfinity)) : S(kInfinity);
  }
  void accelerations(double, S* out) const { std::copy_n(a(), m_.nv, out); }

 private:
  S* q() const { return at_.nodes.q(stage_.to); }
  // Those of the formulas, which are the node's own without constraints.
  S* v() const { return rows_ ? v_ : at_.nodes.v(stage_.to); }
  S* a() const { return rows_ ? a_ : at_.nodes.a(stage_.to); }
  // Sets the stage, and the coordinates of its other nodes.
  void set(const Stage& stage, double t) {
    stage_ = stage;
    metric_.reset();
    c_ = stage.c;
    t_ = t;
    if (rows_) first_lambda_.assign(rows_->lambda, rows_->lambda + rows_->count());
    while (x_.size() < stage.others.size()) x_.push_back(at_.memory.template get<S>(m_.nv));
    others_v_.resize(stage.others.size());
    for (std::size_t j = 0; j < stage.others.size(); ++j) {
      chart<S>(m_, at_.nodes.q(stage.from), at_.nodes.q(stage.others[j].node), x_[j]);
      others_v_[j] = at_.nodes.v(stage.others[j].node);
    }
  }
  void evaluate_here() {
    measured_ = false;
    evaluation_ = rows_ ? rows_->evaluate(q(), v(), a(), t_, r_) : evaluate_residual<S>(at_, q(), v(), a(), t_, r_);
  }
  // G, Y and D at the node that was evaluated.
  Mask<S> measure_rows() {
    if (measured_) return every_lane<S>();
    measured_ = true;
    return rows_->measure(evaluation_.all, q(), t_);
  }
  // v1, and whether rows that were skipped hold.
  Mask<S> project_velocities() {
    Mask<S> good = measure_rows();
    if (!any(good)) return good;
    const S reach = larger(S(1.0), largest(m_.nq, q()));
    good = good & rows_->holds(stage_.c, S(1e-9) * (S(1.0) + largest(m_.nv, v())), reach);
    rows_->fit_velocities(evaluation_.all, q(), v(), t_);
    S* projected = at_.nodes.v(stage_.to);
    std::copy_n(v(), m_.nv, projected);
    rows_->metric.add_response(S(-1.0), rows_->kappa, projected);
    S* accelerations = at_.nodes.a(stage_.to);  // of the formula with the projected velocities
    for (int k = 0; k < m_.nv; ++k) accelerations[k] = mul_add(S(stage_.c), projected[k] - v()[k], a()[k]);
    return good & is_finite(largest(m_.nv, projected));
  }
  // At a node that solves the stage: v^ and a of the formulas, and the multipliers, from the residual without them.
  Mask<S> linearise_rows() {
    place_node<S>(m_, at_.scene.quaternions, stage_, at_.nodes.q(stage_.from), at_.nodes.v(stage_.from), x_.data(),
                  others_v_.data(), xi_, s_, node_.data(), v_, a_);
    std::fill_n(rows_->lambda, rows_->count(), S(0.0));
    evaluate_here();
    const Mask<S> good = measure_rows();
    if (!any(good)) return good;
    rows_->keep_rows();
    rows_->fit_multipliers(r_);
    rows_->fit_velocities(evaluation_.all, q(), v(), t_);
    return good;
  }
  Mask<S> place_here() {
    return place_node<S>(m_, at_.scene.quaternions, stage_, at_.nodes.q(stage_.from), at_.nodes.v(stage_.from),
                         x_.data(), others_v_.data(), xi_, s_, q(), v(), a());
  }
  Mask<S> factor_at(bool derivatives, bool columns) {
    if (!linearisable_ || derivatives) evaluate_here();
    linearisable_ = false;  // the sums below overwrite it
    terms_.evaluate(m_, at_.scene.quaternions, stage_, xi_, s_, x_.data(), derivatives);
    add_rates(at_.scene.tree, evaluation_);
    Mask<S> good = H_.factor(at_, evaluation_, terms_.V1, stage_.c, at_.scene.is_tall(columns) && !at_.singular,
                             derivatives, rows());
    if (rows_ && any(good)) {
      rows_->fill_border(evaluation_, stage_.c);
      good = good & rows_->border.factor(H_.solver());
    }
    unfactored_ = unfactored_ | !good;
    return good;
  }
  // Solves the convex problems of stiff forces in some lanes, at the point: `along` is a move near to a solution of the
  // stage.
  Mask<S> solve_contacts(S* along, Mask<S> where) {
    const int n = m_.nv, rows = rows_ ? rows_->count() : 0;
    const double c = stage_.c;
    linearisable_ = false;  // the sums below overwrite it
    const Model& tree = at_.scene.tree;
    const S *tree_q = evaluation_.q, *tree_v = evaluation_.v;
    add_rates(tree, evaluation_);
    const ForceState<S> state(tree, at_.arena, evaluation_.all, tree_q, tree_v, t_, at_.p);
    places_.clear(n, where);
    at_.scene.forces->for_each([&](const auto& law) { law.add_stiff_places(state, c, places_); });
    if (rows_) where = where & measure_rows();
    sum_inertias(tree, evaluation_);
    add_bearing_places(tree, *at_.scene.forces, at_.arena, evaluation_.all, tree_v, at_.p, c, places_);
    S *A = at_.zeros(A_), *D = at_.zeros(D_), *M = at_.zeros(M_);
    const auto put = [&](int size, S* A, S* D, S* M) {
      pair_columns<S>(tree, at_.arena, evaluation_.all, nullptr, 2, nullptr, nullptr, M, size);
      linearise_forces(tree, *at_.scene.forces->smooth, at_.arena, evaluation_.all, tree_q, tree_v, t_, at_.p, A, D,
                       size);
    };
    if (at_.scene.coupled) {  // without the curvature of the couplings
      const int size = tree.nv * tree.nv;
      S* own[3] = {zeros<S>(at_.arena, size), zeros<S>(at_.arena, size), zeros<S>(at_.arena, size)};
      put(tree.nv, own[0], own[1], own[2]);
      const TangentMatrix<S> P = tangent_map(block_terms<S>(*tree.coupling, at_.arena, q(), 1), at_.arena);
      S* to[3] = {A, D, M};
      for (int k = 0; k < 3; ++k) project(at_.arena, P, own[k], to[k]);
      places_.reduce(P);
    } else {
      put(n, A, D, M);
    }
    for (int i = 0; i < n; ++i)
      for (int j = 0; j <= i; ++j) {
        const int k = i * n + j, l = j * n + i;
        M[k] = M[l] = S(c) * M[k];
        A[k] = A[l] = M[k] + S(0.5) * (D[k] + D[l] + S(1.0 / c) * (A[k] + A[l]));
      }
    // Constraints as springs.
    S stiffness(0.0);
    std::copy_n(r_, n, work_);
    for (int k = 0; rows_ && k < n; ++k) stiffness = larger(stiffness, S(1e4) * A[k * (n + 1)]);
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < n; ++i) {
        const S pull = stiffness * rows_->metric.G(r)[i];
        add_scaled(n, pull, rows_->metric.G(r), A + i * n);
        add_scaled(n, pull, rows_->metric.G(r), M + i * n);
        work_[i] += pull * S(c) * rows_->g[r];
      }
    solve_each(where, A, M, along);
    for (int r = 0; r < rows; ++r) {
      S sum = S(c) * rows_->g[r];
      for (int k = 0; k < n; ++k) sum = mul_add(rows_->metric.G(r)[k], along[k], sum);
      along[n + r] = -stiffness * sum;
    }
    for (int k = 0; k < n; ++k) along[k] = along[k] / S(c);
    return where;
  }
  // The change of the velocities in each of these lanes; lanes without places or a solution are taken out.
  void solve_each(Mask<S>& where, const S* A, const S* M, S* along) {
    const int n = m_.nv;
    std::fill_n(along, n, S(0.0));
    lane_.resize(2 * n * n + 3 * n);
    double *own_A = lane_.data(), *own_M = own_A + n * n, *own_r = own_M + n * n, *own_v = own_r + n, *w = own_v + n;
    for (int l = 0; l < Lanes<S>::value; ++l) {
      if (!in_lane(where, l)) continue;
      const auto copy = [&](int count, const S* from, double* to) {
        for (int k = 0; k < count; ++k) to[k] = StiffPlaces<S>::lane_of(from[k], l);
      };
      copy(n * n, A, own_A);
      copy(n * n, M, own_M);
      copy(n, work_, own_r);
      copy(n, v(), own_v);
      const bool good = !places_[l].empty() && places_[l].solve(stage_.c, own_A, own_M, own_r, own_v, w);
      set_lane(where, l, good);
      for (int k = 0; good && k < n; ++k) set_lane(along[k], l, w[k]);
    }
  }
  // Entry k of the xi that accelerations predict.
  S led_to(const S* accelerations, int k) const {
    const S c(stage_.c);
    S v = S(stage_.w) * at_.nodes.v(stage_.from)[k] + accelerations[k] / c, x(0.0);
    for (std::size_t j = 0; j < stage_.others.size(); ++j) {
      v += S(stage_.others[j].z) * others_v_[j][k];
      x += S(stage_.others[j].z) * x_[j][k];
    }
    return stage_.others.empty() ? v / c : v / c + x;
  }
  // M^-1 r (in work_): the residual as accelerations. False if the mass matrix is singular.
  Mask<S> missing_accelerations(const S* q, const S* r) {
    std::copy_n(r, m_.nv, work_);
    const Mask<S> good = solve_mass_at(at_, q, work_);
    at_.arena.singular_joint = -1;
    return good;
  }
  // The merit in the metric of the search or, if the mass matrix was singular there, in that of q.
  S in_metric(const S* q, const S* r) {
    if (!metric_) return merit_of(q, r);
    solve_mass(m_, *metric_, r, work_);
    S sum(0.0);
    for (int k = 0; k < m_.nv; ++k) sum = mul_add(r[k], work_[k], sum);
    return sum;
  }
  // r . M^-1 r: the squared acceleration residual in the kinetic-energy metric.
  S merit_of(const S* q, const S* r) {
    if (!any(missing_accelerations(q, r))) return S(kInfinity);
    S sum(0.0);
    for (int k = 0; k < m_.nv; ++k) sum = mul_add(r[k], work_[k], sum);
    return sum;
  }

  StepContext<S>& at_;
  const Model& m_;
  Lease metric_lease_;
  std::optional<MassFactor<S>> metric_;  // of merits, if known
  Stage stage_{};
  double c_ = 0.0, t_ = 0.0;  // c_: of the whole stage
  StageMatrix<S> H_;
  StageTerms<S> terms_;
  std::optional<StageRows<S>> rows_;  // if there are constraints
  bool measured_ = false;             // whether their metric is that of the node
  std::vector<S> first_lambda_, marked_lambda_, node_ = std::vector<S>(at_.scene.m.nq);
  S *xi_, *marked_xi_, *s_, *r_, *marked_r_, *work_, *marked_q_, *v_, *a_;
  std::vector<S*> x_;  // coordinates of the other nodes
  StiffPlaces<S> places_;
  std::vector<double> lane_;                      // numbers of one lane
  S *A_ = nullptr, *D_ = nullptr, *M_ = nullptr;  // its matrices
  std::vector<const S*> others_v_;
  BlockDiagonal<S> saved_;
  Mask<S> unfactored_ = no_lane<S>();  // lanes whose matrix could not be factored since the stage began
  Evaluation<S> evaluation_{};
  bool linearisable_ = false;                   // whether evaluation_ is at the current point and not overwritten
  S merit_ = S(-1.0), marked_merit_ = S(-1.0);  // where known
};

// H^-1 times the rounding errors of the terms of r, with signs that alternate along chains, the direction in which H is
// weakest; at most a few times what is allowed.
template <class S>
S ImplicitStage<S>::rounding(const S& allowed) {
  constexpr double eps = std::numeric_limits<double>::epsilon();
  const auto length = [](const Vec3<S>& x) { return square_root(dot(x, x)); };
  const Model& tree = at_.scene.tree;
  std::vector<S> size(tree.nv), moments(tree.n(), S(0.0)), forces(tree.n(), S(0.0));
  S kinetic(0.0), gravity(0.0);
  const S *tree_q = q(), *tree_v = v(), *tree_a = a();
  std::optional<Lifted<S>> lifted;
  if (at_.scene.coupled) {
    lifted.emplace(lift_state<S>(tree, at_.arena, q(), v(), a(), 2));
    tree_q = lifted->q;
    tree_v = lifted->v;
    tree_a = lifted->a;
  }
  const Motions<S> all = with_model<S>(at_.scene, [&](const auto& m) {
    return inertial_motions<S>(m, at_.arena, tree_q, tree_v, tree_a, kinetic, gravity);
  });
  for (int i = tree.n() - 1; i >= 0; --i) {
    if (!tree.bodies[i].massless) {
      const auto& b = all.bodies[i];
      for (const Force<S>& f : {b.I * b.a, cross(b.v, b.I * b.v)}) {
        moments[i] += length(f.n);
        forces[i] += length(f.f);
      }
    }
    const Model::Link& link = tree.links[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) {
      const Motion<S>& column = all.columns[k].S_;
      size[k] = length(column.w) * moments[i] + length(column.v) * forces[i];
      if (all.armature != nullptr) size[k] += absolute(all.armature[k] * tree_a[k]);
    }
    if (link.parent < 0) continue;
    moments[link.parent] += moments[i];
    forces[link.parent] += forces[i];
  }
  if (lifted) {
    std::vector<S> own(m_.nv, S(0.0));
    add_pulled_sizes(tangent_map(lifted->terms, at_.arena), size.data(), own.data());
    size = own;
  }
  for (int k = 0; k < m_.nv; ++k) work_[k] = S(k % 2 == 0 ? eps : -eps) * (size[k] + S(2.0) * absolute(at_.u[k]));
  if (rows_) {
    std::vector<S> none(rows_->count(), S(0.0)), out(this->size());
    std::copy_n(work_, m_.nv, out.data());
    rows_->solve_given(H_.solver(), none.data(), out.data());
    return smaller(measure(out.data()), S(5.0) * allowed);
  }
  H_.solver().solve(work_);
  return smaller(measure(work_), S(5.0) * allowed);
}

static_assert(IsNewtonSystem<ImplicitStage<double>>::value);
static_assert(IsNewtonSystem<ImplicitStage<Pack<kLanes>>>::value);

}  // namespace torsor
