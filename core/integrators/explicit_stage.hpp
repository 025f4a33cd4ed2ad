// Stages that evaluate the equations of motion at their beginning: v1 = v0 + h a0, q1 = q0 (+) h v1. Symplectic Euler
// has the accelerations of forward dynamics, linearly implicit Euler those with the forces linearised about the
// beginning; derivatives of the latter use complex steps, lane by lane.
#pragma once
#include "integrators/implicit_stage.hpp"
#include "scalar/complex_step.hpp"

namespace torsor {

template <class S>
class ExplicitStage {
 public:
  ExplicitStage(StepContext<S>& at, StageKind kind)
      : at_(at),
        m_(at.scene.m),
        linearised_(kind == StageKind::linearised && at.scene.forces != nullptr),
        solver_(m_, at.memory) {
    for (S** vector : {&xi_, &r_}) std::fill_n(*vector = at.memory.template get<S>(m_.nv), m_.nv, S(0.0));
  }
  ExplicitStage(const ExplicitStage&) = delete;

  Mask<S> take(const Stage& stage, double t) {
    Nodes<S>& nodes = at_.nodes;
    S* a = nodes.a(stage.from);
    const Mask<S> good = linearised_ ? accelerate_implicitly(stage, t, a) : accelerate_node(at_, stage.from, t, a);
    if (!any(good)) return good;
    for (int k = 0; k < m_.nv; ++k) {
      const S v = nodes.v(stage.from)[k] + a[k] / S(stage.c);
      nodes.v(stage.to)[k] = v;
      xi_[k] = v / S(stage.c);
    }
    return good & retract<S>(m_, nodes.q(stage.from), xi_, nodes.q(stage.to)) & is_finite(largest(m_.nv, xi_));
  }

  // Linearises a stage that was taken: A_q and A_v of the residual that the accelerations solve; the factors of their
  // matrix; and with xi = h v1 the derivatives of q1, V1 = h J(xi) by v1 and V0 = J B by q0. False if singular.
  Mask<S> linearise(const Stage& stage, double t) {
    Nodes<S>& nodes = at_.nodes;
    const Evaluation<S> e = evaluate(stage, nodes.a(stage.from), t);
    add_residual_derivatives(at_, e, at_.zeros(Aq), at_.zeros(Av), at_.zeros(M_));
    if (linearised_) linearise_along(stage, t);
    for (int k = 0; k < m_.nv; ++k) xi_[k] = nodes.v(stage.to)[k] / S(stage.c);
    V1.scalar = S(1.0 / stage.c);
    V0.scalar = S(1.0);
    V1.blocks.resize(at_.scene.quaternions.size());
    V0.blocks.resize(at_.scene.quaternions.size());
    for (std::size_t b = 0; b < at_.scene.quaternions.size(); ++b) {
      const Model::Body& body = m_.bodies[at_.scene.quaternions[b]];
      const ChartTerms<S> at = chart_terms<S>(body.kind, &xi_[body.iv], nullptr);
      for (int k = 0; k < body.nv * body.nv; ++k) V1.blocks[b].x[k] = at.J.x[k] / S(stage.c);
      multiply(body.nv, S(1.0), at.J, at.B, V0.blocks[b], false);
    }
    return solver_.factor_matrix(M_, at_.scene.branched);
  }
  S *Aq = nullptr, *Av = nullptr;
  BlockDiagonal<S> V1, V0;
  const TreeSolver<S>& solver() const { return solver_; }

 private:
  // The residual at the beginning, with sums over subtrees.
  Evaluation<S> evaluate(const Stage& stage, const S* a, double t) {
    const Evaluation<S> e = evaluate_residual<S>(at_, at_.nodes.q(stage.from), at_.nodes.v(stage.from), a, t, r_);
    add_rates(m_, e);
    sum_inertias(m_, e);
    return e;
  }
  // (M - h D - h^2 K) a = f + h K v. Sueda 2021, (2.86), solved for the change of v; K includes the change of lever
  // arms.
  Mask<S> accelerate_implicitly(const Stage& stage, double t, S* a) {
    const int nv = m_.nv;
    const S* v = at_.nodes.v(stage.from);
    const S h(1.0 / stage.c);
    const Evaluation<S> e = evaluate(stage, at_.zero, t);
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
    const Motions<S> all = force_motions_at(at_, q, v);
    generalized_forces_derivatives<S>(m_, *at_.scene.forces, at_.arena, all, q, v, t, at_.p, at_.zeros(K_),
                                      at_.zeros(D_));
    add_scaled(size, S(-h), D_, M_);
    add_scaled(size, S(-h * h), K_, M_);
  }
  void linearise_along(const Stage& stage, double t);

  StepContext<S>& at_;
  const Model& m_;
  bool linearised_;
  TreeSolver<S> solver_;
  S *xi_, *r_;
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
    generalized_forces_derivatives<Complex>(model_of_lane(at_.scene, l), *at_.scene.forces, at_.arena, at.q.data(),
                                            at.v.data(), t, at.p.data(), K.data(), D.data());
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
