// Steps of variational integrators by Newton's method, in a time that is linear in the number of bodies where forces
// allow it. Fan 2018; docs/derivations/variational.md. For a single state, as systems over trees are
// (linear/tree_system.hpp).
#pragma once
#include "dynamics/inverse_dynamics.hpp"
#include "dynamics/mass_solve.hpp"
#include "integrators/action_system.hpp"
#include "integrators/newton.hpp"
#include "linear/tree_solver.hpp"

namespace torsor {

// Working memory of one thread, and its current step. The equations are a system for Newton's method
// (integrators/newton.hpp), the unknowns being the control coordinates.
class VariationalStep {
 public:
  VariationalStep(const Scene& what, const VariationalScheme& scheme)
      : scheme(scheme),
        scene(what, scheme.rule, scheme.h),
        solver_(scene.m, ActionBlocks::copies(scheme.rule, false)),
        blocks(scene, false, solver_.tree(ActionBlocks::length(scheme.rule), ActionBlocks::length(scheme.rule))) {
    const int nv = scene.m.nv, size = blocks.size();
    for (auto* vector : {&xi, &r, &marked_}) vector->resize(size);
    memory_.resize(5 * size);
    double* at = memory_.data();
    for (double** vector : {&delta, &correction, &guess, &last, &older}) {
      *vector = at;
      at += size;
    }
    for (auto* vector : {&p0, &v0, &a0, &p1, &v1, &a1}) vector->resize(nv);
    for (auto* vector : {&q0, &q1}) vector->resize(scene.m.nq);
  }
  VariationalStep(const VariationalStep&) = delete;
  using Scalar = double;
  const VariationalScheme& scheme;
  VariationalScene scene;
  Arena arena;
  const double* p = nullptr;  // parameters of the forces
  std::vector<double> q0, p0, v0, a0, q1, p1, v1, a1;
  std::vector<double> xi;  // control coordinates
  Shortfall shortfall;     // of the last attempt that failed

  // Whether systems are solved densely: always if forces couple joints, and where it is faster.
  bool dense() const { return !scene.local || scene.m.nv < (scene.rule.s == 1 ? kTree : kTreeOfSeveral); }

  // v = M(q)^-1 p, and a of forward dynamics under forces and controls u (null: none). False if the mass matrix is
  // singular.
  bool velocities(const double* q, const double* momentum, double t, const double* u, double* v, double* a) {
    const Model& m = scene.m;
    arena.reset();
    arena.singular_joint = -1;
    const MassFactor<double> mass = factor_mass<double>(m, arena, q, nullptr, nullptr);
    solve_mass(m, mass, momentum, v);
    if (arena.singular_joint >= 0) return false;
    double *rest = arena.get<double>(m.nv), *tau = arena.get<double>(m.nv), *bias = arena.get<double>(m.nv);
    std::fill_n(rest, m.nv, 0.0);
    std::fill_n(tau, m.nv, 0.0);
    if (scene.forces != nullptr) generalized_forces(m, *scene.forces, arena, q, v, t, p, tau);
    inverse_dynamics<double>(m, arena, q, v, rest, nullptr, bias);
    for (int k = 0; k < m.nv; ++k) tau[k] += (u == nullptr ? 0.0 : u[k]) - bias[k];
    solve_mass(m, mass, tau, a);
    return true;
  }

  // From q0, p0 with the guess of v0, a0 to q1, p1; t: at the beginning. By Newton's method from the guess or, if that
  // fails, by continuation from short steps to the whole one.
  bool take(double t, const StepControls<double>& controls) {
    t_ = t;
    controls_ = controls;
    begin_path();
    const bool good = find(*this, scheme.tolerance, begin(1.0, last), true, scheme.iterations, shortfall);
    scene.h = scheme.h;
    return good;
  }

  const Action<double>& action() const { return action_; }
  const StepEnd<double>& end() const { return end_; }
  double start() const { return t_; }
  const StepControls<double>& controls() const { return controls_; }

  // r at xi. False if a joint turns too far.
  bool evaluate() {
    const int nv = scene.m.nv;
    arena.reset();
    action_ = evaluate_action<double>(scene, arena, q0.data(), xi.data(), t_, controls_, p);
    end_ = end_of(scene, arena, xi.data(), action_);
    std::copy_n(action_.D, blocks.size(), r.begin());
    double* pulled = arena.get<double>(nv);
    pull_to_start(scene, end_, end_.p1, pulled);
    for (int k = 0; k < nv; ++k) r[k] += p0[k] - pulled[k];
    return action_.good;
  }
  // Factors the derivative of r, for one right-hand side, or for one per velocity.
  bool factor(bool) { return factor_system(dense()); }
  bool factor_for_columns() { return factor_system(dense() || scene.m.nv < kTreeOfColumns); }
  // The direction of Newton's method, found densely or over the tree, if there is one.
  const double* direction(bool dense) { return factor_system(dense) ? (solve(delta), delta) : nullptr; }
  bool solved_densely() const { return solver_.form() == TreeSolver<double>::Form::dense; }
  const TreeSolver<double>& solver() const { return solver_; }

  // The rest of the interface that integrators/newton.hpp requires.
  double *delta, *correction, *guess, *last, *older;
  int size() const { return blocks.size(); }
  void mark() { marked_ = xi; }
  bool place(double length, const double* along, bool) {
    for (int k = 0; k < size(); ++k) xi[k] = mul_add(length, along[k], marked_[k]);
    return true;
  }
  bool finish(const double* along, bool where) { return place(1.0, along, where) && evaluate(); }
  void solve(double* out) {
    for (int k = 0; k < size(); ++k) out[k] = -r[k];
    solver_.solve(out);
  }
  // The size of a correction, as an error of velocities.
  double measure(const double* x) const { return largest(size(), x) / scene.h; }
  double allowance(double tolerance) const {
    const double reach = std::max(1.0, largest(scene.m.nq, q0.data()));
    return (tolerance + 4e-16 * reach) * (1.0 + largest(scene.m.nv, xi.data()) / scene.h);
  }
  // The correction due to rounding of the momenta: J^-1 times their rounding errors, with signs that alternate along
  // chains, the direction in which J is weakest.
  double rounding(double) {
    const int nv = scene.m.nv, s = scene.rule.s;
    for (int c = 0; c < s; ++c)
      for (int i = 0; i < scene.m.n(); ++i)
        for (int k = scene.m.links[i].iv; k < scene.m.links[i].iv + scene.m.links[i].nv; ++k) {
          double sum = 0.0;
          for (int a = 0; a < scene.rule.m; ++a) {
            const ActionPoint<double>& at = action_.points[a];
            const Motion<double>& S = at.all.columns[k].S_;
            const Force<double>& mu = at.mu[i];
            const double size = std::sqrt(dot(S.w, S.w) * dot(mu.n, mu.n)) + std::sqrt(dot(S.v, S.v) * dot(mu.f, mu.f));
            sum += at.weight * std::fabs(scene.rate(a, c == 0 ? s : c)) * size;
          }
          correction[c * nv + k] = (k % 2 == 0 ? 1.0 : -1.0) * std::numeric_limits<double>::epsilon() * sum;
        }
    solver_.solve(correction);
    return measure(correction);
  }
  // Kept factors are trusted where no forces act.
  bool bounded(double, double) const { return scene.forces == nullptr; }
  bool improves(double) const { return false; }
  // The momenta at the end come from the last evaluation.
  bool extrapolates() const { return false; }
  double curvature(double) const { return 0.0; }
  bool accept() {
    const int nv = scene.m.nv;
    std::copy_n(end_.p1, nv, p1.begin());
    return retract(scene.m, q0.data(), xi.data() + (scene.rule.s - 1) * nv, q1.data()) &&
           !turns_too_far(scene.m, q0.data(), q1.data());
  }
  void begin_path() {
    for (int c = 0; c < scene.rule.s; ++c) std::copy_n(a0.begin(), scene.m.nv, last + c * scene.m.nv);
  }
  // Starts from the control coordinates that accelerations (s x nv) predict.
  double begin(double part, const double* accelerations) {
    scene.h = part * scheme.h;
    for_each_control([&](int k, int at, double time) { xi[at] = time * (v0[k] + 0.5 * time * accelerations[at]); });
    return evaluate() ? correct(*this) : kInfinity;
  }
  void accelerations(double, double* out) const {
    for_each_control([&](int k, int at, double time) { out[at] = 2.0 * (xi[at] / time - v0[k]) / time; });
  }

 private:
  // Calls f(velocity, place among the unknowns, time of the control point).
  template <class F>
  void for_each_control(F&& f) const {
    for (int c = 1; c <= scene.rule.s; ++c)
      for (int k = 0; k < scene.m.nv; ++k) f(k, (c - 1) * scene.m.nv + k, scene.rule.nodes[c] * scene.h);
  }
  bool factor_system(bool dense) {
    blocks.fill(action_, end_, arena, p);
    if (!dense && solver_.factor_tree(false)) return true;
    blocks.assemble(action_, end_, arena, p, solver_.dense());
    return solver_.factor_dense();
  }

  // Numbers of velocities from which systems over the tree are faster: with one unknown each, with several, and with
  // many right-hand sides.
  static constexpr int kTree = 4, kTreeOfSeveral = 10, kTreeOfColumns = 128;
  TreeSolver<double> solver_;
  ActionBlocks blocks;
  std::vector<double> r, marked_, memory_;
  double t_ = 0.0;
  StepControls<double> controls_{nullptr, 1};
  Action<double> action_;
  StepEnd<double> end_{};
};

static_assert(IsNewtonSystem<VariationalStep>::value);

}  // namespace torsor
