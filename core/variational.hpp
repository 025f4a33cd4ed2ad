// Steps of variational integrators by Newton's method, in a time that is linear in the number of bodies where forces allow it. Fan
// 2018; docs/derivations/variational.md.
#pragma once
#include <limits>

#include "action_blocks.hpp"
#include "inverse_dynamics.hpp"
#include "mass_solve.hpp"

namespace torsor {

// Memory of one thread, and the step that it is at.
class VariationalStep {
 public:
  VariationalStep(const Model& m, const ForceSet* forces, const VariationalScheme& scheme)
      : scheme(scheme), scene{m, forces, scheme.rule, scheme.h}, blocks(scene, false) {
    const int nv = scene.m.nv, size = blocks.size();
    for (auto* vector : {&xi, &r, &delta, &correction, &trial, &guess, &last, &older}) vector->resize(size);
    for (auto* vector : {&p0, &v0, &a0, &p1, &v1, &a1}) vector->resize(nv);
    for (auto* vector : {&q0, &q1}) vector->resize(scene.m.nq);
  }
  VariationalStep(const VariationalStep&) = delete;
  const VariationalScheme& scheme;
  VariationalScene scene;
  Arena arena;
  const double* p = nullptr;  // parameters of the forces
  std::vector<double> q0, p0, v0, a0, q1, p1, v1, a1;
  std::vector<double> xi;             // control coordinates
  double error = 0.0, allowed = 0.0;  // of Newton's method, where it stopped

  // Whether systems are solved densely: always where forces couple joints, and where that is faster.
  bool dense() const { return !scene.local || scene.m.nv < (scene.rule.s == 1 ? kTree : kTreeOfSeveral); }

  // v = M(q)^-1 p, and a of forward dynamics under forces and controls u (null: none). False if the mass matrix is singular.
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

  // From q0, p0 with the guess of v0, a0 to q1, p1; t: at the beginning. By Newton's method from the guess or, if that fails,
  // following the solution from short steps to the whole one, each time from the line through the two before.
  bool take(double t, const StepControls<double>& controls) {
    const int nv = scene.m.nv, s = scene.rule.s;
    t_ = t;
    controls_ = controls;
    int left = scheme.iterations;
    for (int c = 0; c < s; ++c) std::copy_n(a0.begin(), nv, last.begin() + c * nv);
    begin(last);
    if (iterate(scheme.tolerance, left)) return finish();
    double at = 0.0, before = 0.0;
    bool good = false;
    for (double further = 1.0; further > 0.01 && left > 0 && !(good && at == 1.0);) {
      const double part = std::min(1.0, at + further), ratio = at > 0.0 ? (part - at) / (at - before) : 0.0;
      scene.h = part * scheme.h;
      for (std::size_t k = 0; k < last.size(); ++k) guess[k] = mul_add(ratio, last[k] - older[k], last[k]);
      begin(guess);
      int few = std::min(left, 12);
      left -= few;
      good = iterate(part < 1.0 ? std::max(scheme.tolerance, 1e-5) : scheme.tolerance, few);
      left += few;
      further *= good ? 1.5 : 0.5;
      if (!good) continue;
      older = last;
      for (int c = 1; c <= s; ++c)
        for (int k = 0; k < nv; ++k) {
          const double time = scene.rule.nodes[c] * scene.h;
          last[(c - 1) * nv + k] = 2.0 * (xi[(c - 1) * nv + k] / time - v0[k]) / time;
        }
      before = at;
      at = part;
    }
    scene.h = scheme.h;
    return good && at == 1.0 && finish();
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
  // Factors the derivative of r, for one right-hand side or, in `columns`, for one from each velocity.
  bool factor(bool columns = false) { return factor_system(dense() || (columns && scene.m.nv < kTreeOfColumns)); }
  // The direction of Newton's method, found densely or over the tree.
  const std::vector<double>& direction(bool dense) {
    if (factor_system(dense)) solve(delta);
    return delta;
  }
  bool solved_densely() const { return dense_; }
  void solve_columns(double* X, int columns) {  // X <- J^-1 X, columns a multiple of the lanes
    if (dense_)
      torsor::solve(blocks.size(), H_.data(), pivots_.data(), X, columns);
    else
      blocks.system.solve_columns(X, columns);
  }
  void solve_transposed(double* y) {  // y <- J^-T y
    if (dense_)
      torsor::solve_transposed(blocks.size(), H_.data(), pivots_.data(), y);
    else
      blocks.system.solve_transposed(y);
  }

 private:
  // Control coordinates that accelerations (s x nv) lead to.
  void begin(const std::vector<double>& accelerations) {
    const int nv = scene.m.nv;
    for (int c = 1; c <= scene.rule.s; ++c)
      for (int k = 0; k < nv; ++k) {
        const double time = scene.rule.nodes[c] * scene.h;
        xi[(c - 1) * nv + k] = time * (v0[k] + 0.5 * time * accelerations[(c - 1) * nv + k]);
      }
  }
  // Newton's method from the control coordinates that are there, with at most `left` corrections: each is halved until the
  // simplified correction after it is smaller (Deuflhard's natural monotonicity test); the factors are kept while these shrink
  // fast.
  bool iterate(double tolerance, int& left) {
    error = std::numeric_limits<double>::infinity();
    allowed = tolerance;
    if (!evaluate()) return false;
    double norm = 0.0;
    bool fresh = true, close = false;
    while (true) {
      if (fresh) {
        if (!factor()) return false;
        solve(delta);
        norm = largest(delta);
      }
      error = norm;
      allowed = allowance(tolerance);
      if (!std::isfinite(norm)) return false;
      trial = xi;
      const auto move = [&](double length, const std::vector<double>& along) {
        for (std::size_t k = 0; k < xi.size(); ++k) xi[k] = mul_add(length, along[k], trial[k]);
        return evaluate();
      };
      if (norm <= 1e-3 * allowed) return move(1.0, delta);
      double after = 0.0, length = 1.0;
      for (;; length *= 0.5) {
        if (length < 0.1 || left-- <= 0) return false;
        if (!move(length, delta)) continue;
        solve(correction);
        after = largest(correction);
        if (after <= (1.0 - 0.25 * length) * norm) break;
        if (length == 1.0 && (close || norm <= allowed)) return true;  // rounding is all that is left
      }
      const double rate = after / norm;
      error = after;
      if (length == 1.0 && rate * after <= allowed) {
        trial = xi;
        if (!move(1.0, correction)) return false;
        // The rate may have been small by chance: whether that was enough, the next correction tells.
        solve(delta);
        error = norm = largest(delta);
        if (norm <= allowed) return true;
        close = true;
        fresh = norm > 0.02 * after;
        continue;
      }
      fresh = length < 1.0 || rate > 0.02;
      if (!fresh) {
        delta = correction;
        norm = after;
      }
    }
  }
  bool factor_system(bool dense) {
    blocks.fill(action_, end_, arena, p);
    dense_ = dense || !blocks.system.factor();
    if (!dense_) return true;
    const int size = blocks.size();
    H_.resize(std::size_t(size) * size);
    pivots_.resize(size);
    blocks.assemble(action_, end_, arena, p, H_.data());
    return torsor::factor(size, H_.data(), pivots_.data());
  }
  void solve(std::vector<double>& out) {  // -J^-1 r
    for (std::size_t k = 0; k < r.size(); ++k) out[k] = -r[k];
    if (dense_)
      torsor::solve(blocks.size(), H_.data(), pivots_.data(), out.data());
    else
      blocks.system.solve(out.data());
  }
  // Of a correction, as an error of velocities.
  double largest(const std::vector<double>& x) const {
    double most = 0.0;
    for (double value : x) {
      if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
      most = std::max(most, std::fabs(value));
    }
    return most / scene.h;
  }
  double allowance(double tolerance) const {
    double speed = 0.0, reach = 1.0;
    for (int k = 0; k < scene.m.nv; ++k) speed = std::max(speed, std::fabs(xi[k]) / scene.h);
    for (double value : q0) reach = std::max(reach, std::fabs(value));
    return tolerance * (1.0 + speed) + 4e-16 * reach / scene.h;
  }
  bool finish() {
    const int nv = scene.m.nv;
    std::copy_n(end_.p1, nv, p1.begin());
    return retract(scene.m, q0.data(), xi.data() + (scene.rule.s - 1) * nv, q1.data());
  }

  // Velocities from which on systems over the tree are faster: with one unknown each, with several, and with many right-hand sides.
  static constexpr int kTree = 4, kTreeOfSeveral = 10, kTreeOfColumns = 128;
  ActionBlocks blocks;
  std::vector<double> r, delta, correction, trial, guess, last, older, H_;
  std::vector<int> pivots_;
  bool dense_ = true;
  double t_ = 0.0;
  StepControls<double> controls_{nullptr, 1};
  Action<double> action_;
  StepEnd<double> end_{};
};

}  // namespace torsor
