// Steps of variational integrators by Newton's method, in a time that is linear in the number of bodies where forces
// allow it. Fan 2018; docs/derivations/variational.md.
#pragma once
#include "integrators/action_system.hpp"
#include "integrators/control_rows.hpp"
#include "integrators/newton.hpp"
#include "integrators/scene_mass.hpp"
#include "linear/tree_solver.hpp"

namespace torsor {

// Working memory of one thread, and its current step. The equations are a system for Newton's method
// (integrators/newton.hpp), the unknowns being the control coordinates.
template <class S>
class VariationalStep {
 public:
  VariationalStep(const Scene& what, const VariationalScheme& scheme)
      : scheme(scheme),
        scene(what, scheme.rule, scheme.h),
        solver_(scene.m, memory, ActionBlocks<S>::copies(scheme.rule, false)),
        blocks(scene, false,
               solver_.tree(ActionBlocks<S>::length(scheme.rule),
                            ActionBlocks<S>::length(scheme.rule) + ControlRows<S>::sums(scene))) {
    if (scene.constraints != nullptr) rows_.emplace(scene, memory);
    const int nv = scene.m.nv, size = this->size();
    r.resize(blocks.size());
    for (auto* vector : {&xi, &marked_}) vector->resize(size);
    for (S** vector : {&delta, &correction, &guess, &last, &older}) *vector = memory.get<S>(size);
    for (auto* vector : {&p0, &v0, &a0, &p1, &v1, &a1}) vector->resize(nv);
    for (auto* vector : {&q0, &q1}) vector->resize(scene.m.nq);
  }
  VariationalStep(const VariationalStep&) = delete;
  using Scalar = S;
  const VariationalScheme& scheme;
  VariationalScene scene;
  Lease lease, scratch;
  Arena &memory = fresh(*lease), &arena = fresh(*scratch);  // arena: until the next evaluation
  const S* p = nullptr;                                     // parameters of the forces
  std::vector<S> q0, p0, v0, a0, q1, p1, v1, a1;
  std::vector<S> xi;    // control coordinates, then multipliers at the control points before the last
  Shortfall shortfall;  // of the last attempt that failed

  // Whether systems are solved densely: always if forces couple joints, and where it is faster.
  bool dense() const { return !scene.local || scene.m.nv < (scene.rule.s == 1 ? kTree : kTreeOfSeveral); }

  // v = M(q)^-1 p, and a of forward dynamics under forces and controls u (null: none). False if the mass matrix is
  // singular, in all lanes if it is in one.
  Mask<S> velocities(const S* q, const S* momentum, double t, const S* u, S* v, S* a) {
    arena.reset();
    arena.singular_joint = -1;
    const SceneMass<S> mass(scene, arena, q);
    mass.solve(momentum, v);
    if (arena.singular_joint >= 0) return no_lane<S>();
    S* tau = arena.get<S>(scene.m.nv);
    driving_torques<S>(scene, arena, q, v, zeros<S>(arena, scene.m.nv), t, p, tau);
    for (int k = 0; u != nullptr && k < scene.m.nv; ++k) tau[k] += u[k];
    mass.solve(tau, a);
    if (rows_) rows_->constrain(arena, mass, q, v, t, a);
    return every_lane<S>();
  }

  // From q0, p0 with the guess of v0, a0 to q1, p1; t: at the beginning. By Newton's method from the guess or, for a
  // single state, if that fails, by continuation from short steps to the whole one.
  Mask<S> take(double t, const StepControls<S>& controls) {
    t_ = t;
    controls_ = controls;
    if (rows_) {
      arena.reset();
      const Mask<S> good = rows_->begin(arena, q0.data(), v0.data(), a0.data(), controls.at(0, scene.m.nv), p, t);
      if (!any(good)) return good;
    }
    begin_path();
    const Mask<S> good = find(*this, scheme.tolerance, begin(1.0, last), every_lane<S>(), scheme.iterations, shortfall);
    scene.h = scheme.h;
    return good;
  }

  const Action<S>& action() const { return action_; }
  const StepEnd<S>& end() const { return end_; }
  double start() const { return t_; }
  const StepControls<S>& controls() const { return controls_; }
  ControlRows<S>* rows() { return rows_ ? &*rows_ : nullptr; }  // null without constraints
  const S* multipliers() const { return xi.data() + blocks.size(); }

  // r at xi. False if a joint turns too far.
  Mask<S> evaluate() {
    const int nv = scene.m.nv;
    arena.reset();
    action_ = evaluate_action<S>(scene, arena, q0.data(), xi.data(), t_, controls_, p);
    if (rows_) action_.good = action_.good & rows_->evaluate(arena, q0.data(), xi.data(), multipliers(), t_, action_.D);
    end_ = end_of(scene, arena, xi.data(), action_);
    std::copy_n(action_.D, blocks.size(), r.begin());
    S* pulled = arena.get<S>(nv);
    pull_to_start(scene, end_, end_.p1, pulled);
    for (int k = 0; k < nv; ++k) r[k] += p0[k] - pulled[k];
    return action_.good;
  }
  // Factors the derivative of r, for one right-hand side, or for one per velocity.
  Mask<S> factor(const Mask<S>& keep) {
    if (!any(keep)) return factor_system(dense());
    solver_.save();
    if (rows_) rows_->border().save();
    const Mask<S> good = factor_system(dense());
    solver_.restore(keep);
    if (rows_) rows_->border().restore(keep);
    return good;
  }
  Mask<S> factor_for_columns() { return factor_system(dense() || scene.m.nv < kTreeOfColumns); }
  // The direction of Newton's method, found densely or over the tree, if there is one.
  const S* direction(bool dense) { return any(factor_system(dense)) ? (solve(delta), delta) : nullptr; }
  bool solved_densely() const { return solver_.form() == TreeSolver<S>::Form::dense; }
  const TreeSolver<S>& solver() const { return solver_; }

  // The rest of the interface that integrators/newton.hpp requires.
  S *delta, *correction, *guess, *last, *older;
  int size() const { return blocks.size() + (rows_ ? rows_->unknowns() : 0); }
  void mark() { marked_ = xi; }
  Mask<S> place(double length, const S* along, const Mask<S>& where) {
    for (int k = 0; k < size(); ++k) xi[k] = select(where, mul_add(S(length), along[k], marked_[k]), xi[k]);
    return every_lane<S>();
  }
  Mask<S> finish(const S* along, const Mask<S>& where) {
    place(1.0, along, where);
    return evaluate();
  }
  void solve(S* out) {
    for (int k = 0; k < blocks.size(); ++k) out[k] = -r[k];
    if (rows_) return rows_->solve(solver_, out, rows_->g);
    solver_.solve(out);
  }
  // The size of a correction, as an error of velocities.
  S measure(const S* x) const { return largest(blocks.size(), x) / S(scene.h); }
  // With constraints, also the error due to rounding of g.
  S allowance(double tolerance) const {
    const S reach = larger(S(1.0), largest(scene.m.nq, q0.data()));
    const S allowed = (S(tolerance) + S(4e-16) * reach) * (S(1.0) + largest(scene.m.nv, xi.data()) / S(scene.h));
    return rows_ ? allowed + S(4e-16 / scene.h) * reach : allowed;
  }
  S rounding(const S& allowed);
  // Kept factors are trusted where no forces act.
  Mask<S> bounded(const S&, const S&) const { return scene.forces == nullptr ? every_lane<S>() : no_lane<S>(); }
  Mask<S> improves(double) const { return no_lane<S>(); }
  // The momenta at the end come from the last evaluation.
  bool extrapolates() const { return false; }
  bool relocates() const { return false; }
  Mask<S> relocate(S*, const Mask<S>&) { return no_lane<S>(); }
  S merit() { return S(0.0); }
  S marked_merit() { return S(0.0); }
  S curvature(const S&) const { return S(0.0); }
  Mask<S> accept() {
    const int nv = scene.m.nv;
    std::copy_n(end_.p1, nv, p1.begin());
    Mask<S> good = retract(scene.m, q0.data(), xi.data() + (scene.rule.s - 1) * nv, q1.data());
    good = good & !turns_too_far(scene.m, q0.data(), q1.data());
    if (!rows_ || !any(good)) return good;
    return good & rows_->project(arena, p1.data(), largest(nv, xi.data()) / S(scene.h));
  }
  void begin_path() {
    for (int c = 0; c < scene.rule.s; ++c) std::copy_n(a0.begin(), scene.m.nv, last + c * scene.m.nv);
    std::fill_n(older, size(), S(0.0));
  }
  // Starts from the control coordinates that accelerations (s x nv) predict.
  S begin(double part, const S* accelerations) {
    scene.h = part * scheme.h;
    for_each_control(
        [&](int k, int at, double time) { xi[at] = S(time) * (v0[k] + S(0.5 * time) * accelerations[at]); });
    for (int k = 0; rows_ && k < rows_->unknowns(); ++k)
      xi[blocks.size() + k] = rows_->lambda_start[k % rows_->count()];
    const Mask<S> good = evaluate();
    return any(good) ? select(good, correct(*this), S(kInfinity)) : S(kInfinity);
  }
  void accelerations(double, S* out) const {
    for_each_control([&](int k, int at, double time) { out[at] = S(2.0) * (xi[at] / S(time) - v0[k]) / S(time); });
  }

 private:
  // Calls f(velocity, place among the unknowns, time of the control point).
  template <class F>
  void for_each_control(F&& f) const {
    for (int c = 1; c <= scene.rule.s; ++c)
      for (int k = 0; k < scene.m.nv; ++k) f(k, (c - 1) * scene.m.nv + k, scene.rule.nodes[c] * scene.h);
  }
  static Arena& fresh(Arena& memory) {
    memory.reset();
    return memory;
  }
  // A single state for which there are no factors over the tree has dense ones.
  Mask<S> factor_system(bool dense) {
    const bool riding = ControlRows<S>::sums(scene) > 0;  // wrenches in sums over the tree
    const int first = ActionBlocks<S>::length(scene.rule);
    blocks.fill(action_, end_, arena, p);
    if (!dense) {
      if (riding) rows_->add_to_tree(multipliers(), blocks.system, first);
      const Mask<S> good = solver_.factor_tree();
      if (any(good) || Lanes<S>::value > 1) return any(good) ? good & factor_border() : good;
      if (riding) blocks.fill(action_, end_, arena, p);
    }
    if (riding) rows_->leave_tree(blocks.system, first);
    blocks.assemble(action_, end_, arena, p, solver_.dense());
    if (rows_) rows_->add_to_matrix(arena, multipliers(), solver_.dense());
    const Mask<S> good = solver_.factor_dense();
    return any(good) ? good & factor_border() : good;
  }
  Mask<S> factor_border() { return rows_ ? rows_->factor(arena, solver_, multipliers()) : every_lane<S>(); }

  // Numbers of velocities from which systems over the tree are faster: with one unknown each, with several, and with
  // many right-hand sides.
  static constexpr int kTree = 4, kTreeOfSeveral = 10, kTreeOfColumns = 128;
  TreeSolver<S> solver_;
  ActionBlocks<S> blocks;
  std::optional<ControlRows<S>> rows_;  // if there are constraints
  std::vector<S> r, marked_;
  double t_ = 0.0;
  StepControls<S> controls_{nullptr, 1};
  Action<S> action_;
  StepEnd<S> end_{};
};

// The correction due to rounding of the momenta, and of constraints: J^-1 times their rounding errors, with signs that
// alternate along chains, the direction in which J is weakest.
template <class S>
S VariationalStep<S>::rounding(const S&) {
  const Model& tree = scene.tree;
  const int nv = scene.m.nv, s = scene.rule.s;
  std::vector<S> sizes(tree.nv);
  std::fill_n(correction, s * nv, S(0.0));
  for (int a = 0; a < scene.rule.m; ++a) {
    const ActionPoint<S>&point = action_.points[a], &at = scene.coupled ? *point.tree : point;
    for (int i = 0; i < tree.n(); ++i)
      for (int k = tree.links[i].iv; k < tree.links[i].iv + tree.links[i].nv; ++k) {
        const Motion<S>& column = at.all.columns[k].S_;
        const Force<S>& mu = at.mu[i];
        sizes[k] = square_root(dot(column.w, column.w) * dot(mu.n, mu.n)) +
                   square_root(dot(column.v, column.v) * dot(mu.f, mu.f));
      }
    S* own = scene.coupled ? zeros<S>(arena, nv) : sizes.data();
    if (scene.coupled) add_pulled_sizes(point.state->P, sizes.data(), own);
    for (int c = 0; c < s; ++c)
      add_scaled(nv, S(at.weight * std::fabs(scene.rate(a, c == 0 ? s : c))), own, correction + c * nv);
  }
  for (int c = 0; c < s; ++c)
    for (int k = 0; k < nv; ++k)
      correction[c * nv + k] *= S((k % 2 == 0 ? 1.0 : -1.0) * std::numeric_limits<double>::epsilon());
  if (rows_)
    rows_->solve(solver_, correction, rows_->roundings(arena, multipliers(), correction));
  else
    solver_.solve(correction);
  return measure(correction);
}

static_assert(IsNewtonSystem<VariationalStep<double>>::value);
static_assert(IsNewtonSystem<VariationalStep<Pack<kLanes>>>::value);

}  // namespace torsor
