// An implicit stage as a system for Newton's method (integrators/newton.hpp): r(q1) = ID(q1, v1, a1) - tau_f - u = 0 for the node
// q1 = q0 (+) xi, v1 and a1 being the integrator's formulas; docs/derivations/implicit_steps.md. Corrections are tangents of q1.
#pragma once
#include "dynamics/forward_dynamics.hpp"
#include "dynamics/inverse_dynamics.hpp"
#include "integrators/newton.hpp"
#include "integrators/stage_matrix.hpp"
#include "integrators/stage_terms.hpp"

namespace torsor {

// Accelerations (nv) with ID(q, v, a) = tau_f + u at a node. False if the mass matrix is singular.
inline bool accelerate_node(StepContext& at, int node, double t, double* a) {
  const Model& m = at.scene.m;
  const double *q = at.nodes.q(node), *v = at.nodes.v(node);
  if (at.scene.forces == nullptr) {
    at.arena.singular_joint = -1;
    at.arena.reset();
    hybrid_dynamics<double>(m, at.arena, q, v, nullptr, nullptr, a, at.u);
    return at.arena.singular_joint < 0;
  }
  evaluate_residual(at, q, v, at.zero, t, a);
  for (int k = 0; k < m.nv; ++k) a[k] = -a[k];
  return solve_mass_at(at, q, a);
}

class ImplicitStage {
 public:
  explicit ImplicitStage(StepContext& at) : at_(at), m_(at.scene.m), H_(at.scene, at.memory) {
    for (double** vector :
         {&delta, &correction, &guess, &last, &older, &xi_, &marked_xi_, &s_, &r_, &marked_r_, &work_})
      std::fill_n(*vector = at.memory.get<double>(m_.nv), m_.nv, 0.0);
    marked_q_ = at.memory.get<double>(m_.nq);
  }
  ImplicitStage(const ImplicitStage&) = delete;

  // Finds the node `stage.to` at time t from the accelerations `guess`, from where the stage begins, or by following the solution.
  bool solve(const IntegratorTable& table, const Stage& stage, double t, const double* accelerations,
             Shortfall& shortfall) {
    start(stage, t);
    double norm = begin(1.0, accelerations), speed = 0.0, added = 0.0;
    const double moved = stage.c * largest(m_.nv, xi_);
    for (int k = 0; k < m_.nv; ++k) {
      added = std::max(added, std::fabs(accelerations[k] / stage.c));
      speed = std::max(speed, std::fabs(at_.nodes.v(stage.from)[k]));
      for (const Stage::Other& other : stage.others) speed = std::max(speed, std::fabs(at_.nodes.v(other.node)[k]));
    }
    // Stiff forces have solutions everywhere, and that one is meant which is near. A guess is doubtful if it adds much to the
    // velocities, or if the first correction leads half the way back; it is dropped if the step begins much nearer to a solution.
    if (moved > 0.0 && (added > 4.0 * speed || norm > 0.5 * moved)) {
      const double other = begin(1.0, nullptr);
      norm = other < 0.25 * std::max(norm, moved) ? other : begin(1.0, accelerations);
    }
    int left = table.iterations;
    const bool good =
        iterate(*this, table.tolerance, norm, left, shortfall) || follow(*this, table.tolerance, left, shortfall);
    // Products may have overflowed on the way.
    if (!good || !std::isfinite(largest(m_.nv, a())) ||
        turns_too_far(m_, at_.nodes.q(stage.from), at_.nodes.q(stage.to)))
      return false;
    if (at_.scene.balanced) at_.nodes.energies[stage.to] = energies_of(at_, evaluation_);
    return true;
  }
  const double* displacement() const { return xi_; }  // from the node where the stage begins

  // At a node that solves the stage: H factored, for one right-hand side or for `columns`, and all that derivatives of the stage need.
  // False if H is singular.
  bool linearise(const Stage& stage, double t, bool columns) {
    start(stage, t);
    chart(m_, at_.nodes.q(stage.from), q(), xi_);
    for (int k = 0; k < m_.nv; ++k) {
      double sum = xi_[k];
      for (std::size_t j = 0; j < stage.others.size(); ++j) sum = sum - stage.others[j].z * x_[j][k];
      s_[k] = stage.c * sum;
    }
    return factor_at(true, columns);
  }
  const StageTerms<double>& terms() const { return terms_; }
  const StageMatrix& matrix() const { return H_; }
  StageMatrix& matrix() { return H_; }
  const TreeSolver& solver() const { return H_.solver(); }
  // Puts the node at xi, for tests of single evaluations.
  const Evaluation<double>& evaluate_at(const Stage& stage, double t, const double* xi) {
    start(stage, t);
    std::copy_n(xi, m_.nv, xi_);
    place_here();
    evaluation_ = evaluate_residual(at_, q(), v(), a(), t_, r_);
    terms_.evaluate(m_, at_.scene.quaternions, stage_, xi_, s_, x_.data(), false);
    add_rates(m_, evaluation_);
    return evaluation_;
  }
  const double* residual() const { return r_; }

  // What newton.hpp asks for.
  double *delta, *correction, *guess, *last, *older;
  int size() const { return m_.nv; }
  void mark() {
    std::copy_n(xi_, m_.nv, marked_xi_);
    std::copy_n(r_, m_.nv, marked_r_);
    std::copy_n(q(), m_.nq, marked_q_);
    marked_merit_ = merit_;
  }
  bool place(double length, const double* along) {
    apply(m_, at_.scene.quaternions, terms_.inverse, false, along, work_);
    for (int k = 0; k < m_.nv; ++k) xi_[k] = mul_add(length, work_[k], marked_xi_[k]);
    merit_ = -1.0;
    return place_here();
  }
  bool finish(const double* along) { return place(1.0, along); }
  // Without forces, the residual alone is found by a recursion that is faster than that of derivatives.
  bool evaluate() {
    linearisable_ = at_.scene.forces != nullptr;
    if (linearisable_) {
      evaluation_ = evaluate_residual(at_, q(), v(), a(), t_, r_);
      return true;
    }
    at_.arena.reset();
    inverse_dynamics<double>(m_, at_.arena, q(), v(), a(), nullptr, r_);
    for (int k = 0; k < m_.nv; ++k) r_[k] -= at_.u[k];
    return true;
  }
  bool factor() { return factor_at(false, false); }
  void solve(double* out) const {
    for (int k = 0; k < m_.nv; ++k) out[k] = -r_[k];
    H_.solver().solve(out);
  }
  double measure(const double* x) const { return stage_.c * largest(m_.nv, x); }
  // The tolerance, and what rounding of q makes of v anyway.
  double allowance(double tolerance) const {
    return tolerance * (1.0 + largest(m_.nv, v())) + 4e-16 * stage_.c * std::max(1.0, largest(m_.nq, q()));
  }
  double rounding(double allowed);
  // H is about c^2 M and what forces add to it, which make it stiffer.
  bool bounded(double allowed, double moved) {
    if (moved > 0.1 * (1.0 + largest(m_.nv, v()))) return false;
    return missing_accelerations(q(), r_) && largest(m_.nv, work_) <= stage_.c * allowed;
  }
  bool improves(double factor) {
    if (marked_merit_ < 0.0) marked_merit_ = merit(marked_q_, marked_r_);
    merit_ = merit(q(), r_);
    return merit_ < factor * factor * marked_merit_;
  }
  bool extrapolates() const { return at_.scene.forces == nullptr; }
  double curvature(double size) const { return size * size / (stage_.c * stage_.c); }

  void begin_path() {
    if (!accelerate_node(at_, stage_.from, t_, last)) std::fill_n(last, m_.nv, 0.0);
  }
  // To where accelerations lead or, if these are null, where the step begins. A part of the step has c / part in place of c.
  double begin(double part, const double* accelerations) {
    stage_.c = c_ / part;
    for (int k = 0; k < m_.nv; ++k) xi_[k] = accelerations == nullptr ? 0.0 : led_to(accelerations, k);
    merit_ = -1.0;
    linearisable_ = false;
    return place_here() ? correct(*this) : kInfinity;
  }
  void accelerations(double, double* out) const { std::copy_n(a(), m_.nv, out); }

 private:
  double* q() const { return at_.nodes.q(stage_.to); }
  double* v() const { return at_.nodes.v(stage_.to); }
  double* a() const { return at_.nodes.a(stage_.to); }
  // Takes up a stage, with the coordinates of its other nodes.
  void start(const Stage& stage, double t) {
    stage_ = stage;
    c_ = stage.c;
    t_ = t;
    while (x_.size() < stage.others.size()) x_.push_back(at_.memory.get<double>(m_.nv));
    others_v_.resize(stage.others.size());
    for (std::size_t j = 0; j < stage.others.size(); ++j) {
      chart(m_, at_.nodes.q(stage.from), at_.nodes.q(stage.others[j].node), x_[j]);
      others_v_[j] = at_.nodes.v(stage.others[j].node);
    }
  }
  bool place_here() {
    return place_node<double>(m_, at_.scene.quaternions, stage_, at_.nodes.q(stage_.from), at_.nodes.v(stage_.from),
                              x_.data(), others_v_.data(), xi_, s_, q(), v(), a());
  }
  bool factor_at(bool derivatives, bool columns) {
    if (!linearisable_ || derivatives) evaluation_ = evaluate_residual(at_, q(), v(), a(), t_, r_);
    linearisable_ = false;  // the sums below overwrite it
    terms_.evaluate(m_, at_.scene.quaternions, stage_, xi_, s_, x_.data(), derivatives);
    add_rates(m_, evaluation_);
    return H_.factor(at_, evaluation_, terms_.V1, stage_.c, at_.scene.is_tall(columns) && !at_.singular, derivatives);
  }
  // xi of a velocity where accelerations lead.
  double led_to(const double* accelerations, int k) const {
    double v = stage_.w * at_.nodes.v(stage_.from)[k] + accelerations[k] / stage_.c, x = 0.0;
    for (std::size_t j = 0; j < stage_.others.size(); ++j) {
      v += stage_.others[j].z * others_v_[j][k];
      x += stage_.others[j].z * x_[j][k];
    }
    return stage_.others.empty() ? v / stage_.c : v / stage_.c + x;
  }
  // M^-1 r (in work_): the accelerations that are missing. False if the mass matrix is singular.
  bool missing_accelerations(const double* q, const double* r) {
    std::copy_n(r, m_.nv, work_);
    const bool good = solve_mass_at(at_, q, work_);
    at_.arena.singular_joint = -1;
    return good;
  }
  // r . M^-1 r: the square of the missing accelerations, in the measure of kinetic energy.
  double merit(const double* q, const double* r) {
    if (!missing_accelerations(q, r)) return kInfinity;
    double sum = 0.0;
    for (int k = 0; k < m_.nv; ++k) sum = mul_add(r[k], work_[k], sum);
    return sum;
  }

  StepContext& at_;
  const Model& m_;
  Stage stage_{};
  double c_ = 0.0, t_ = 0.0;  // c_: of the whole stage
  StageMatrix H_;
  StageTerms<double> terms_;
  double *xi_, *marked_xi_, *s_, *r_, *marked_r_, *work_, *marked_q_;
  std::vector<double*> x_;  // coordinates of the other nodes
  std::vector<const double*> others_v_;
  Evaluation<double> evaluation_{};
  bool linearisable_ = false;                  // whether the evaluation is that of the point, and has what factors need
  double merit_ = -1.0, marked_merit_ = -1.0;  // where known
};

// H^-1 times the last digits of what r is the sum of, with signs that alternate along chains, which is what these resist least; a few
// times what is allowed at most.
inline double ImplicitStage::rounding(double allowed) {
  constexpr double eps = std::numeric_limits<double>::epsilon();
  std::vector<double> size(m_.nv), moments(m_.n(), 0.0), forces(m_.n(), 0.0);
  const Motions<double> all = motions(m_, at_.arena, q(), v(), a(), true, false);
  for (int i = m_.n() - 1; i >= 0; --i) {
    if (!m_.bodies[i].massless) {
      const auto& b = all.bodies[i];
      const auto I = shift_back(rotate(b.R, m_.bodies[i].I), b.p);
      for (const Force<double>& f : {I * b.a, cross(b.v, I * b.v)}) {
        moments[i] += std::sqrt(dot(f.n, f.n));
        forces[i] += std::sqrt(dot(f.f, f.f));
      }
    }
    const Model::Link& link = m_.links[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) {
      const Motion<double>& S = all.columns[k].S_;
      size[k] =
          std::sqrt(dot(S.w, S.w)) * moments[i] + std::sqrt(dot(S.v, S.v)) * forces[i] + 2.0 * std::fabs(at_.u[k]);
    }
    if (link.parent < 0) continue;
    moments[link.parent] += moments[i];
    forces[link.parent] += forces[i];
  }
  for (int k = 0; k < m_.nv; ++k) work_[k] = (k % 2 == 0 ? eps : -eps) * size[k];
  H_.solver().solve(work_);
  return std::min(measure(work_), 5.0 * allowed);
}

static_assert(IsNewtonSystem<ImplicitStage>::value);

}  // namespace torsor
