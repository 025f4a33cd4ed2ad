// Gradients of weighted sums of accelerations and multipliers, and their derivatives along one direction
// (docs/derivations/constraints.md, 3).
//
// The results (a, lambda) of constrained forward dynamics fulfil
//   ID(q, v, a) - tau - G^T lambda = 0,   gamma + 2 alpha gdot + beta^2 g + e lambda = 0,
// e being the compliance. For weights w and w_l on them the gradient is that of
//   mu.ID - lambda.(G mu) + nu.(gamma + 2 alpha gdot + beta^2 g),   M mu + G^T nu = -w,   G mu - e nu = w_l.
// Where rows depend on each other, lambda is the one of least norm, lambda = G x, and the part n of w_l that lies in
// the null space of G^T gives n.(G x) besides.
#pragma once
#include "constraints/constrained_solution.hpp"
#include "derivatives/dual_states.hpp"
#include "derivatives/inverse_dynamics_vjp.hpp"

namespace torsor {

// y += s A x, of `rows` rows of nv numbers, which are added in the order of the tree.
template <class S>
void add_product(const Model& m, int rows, const S& s, const S* A, const S* x, S* y) {
  for (const Model::Link& link : m.links)
    for (int k = link.iv; k < link.iv + link.nv; ++k) {
      const S factor = s * x[k];
      for (int r = 0; r < rows; ++r) y[r] = mul_add(A[r * m.nv + k], factor, y[r]);
    }
}

// x with G x = lambda, for multipliers of least norm.
template <class S>
const S* least_norm_velocity(const Model& m, Arena& arena, const ConstrainedSolution<S>& s) {
  S *kappa = arena.get<S>(s.D.rows()), *x = arena.get<S>(m.nv);
  s.D.solve(s.lambda, kappa);
  solve_rows(m, s.mass, s.rows, kappa, x);
  return x;
}

// The state of rows with a virtual velocity u, without velocities of moving markers: its gdot is G u.
template <class S>
struct VirtualRows {
  Motions<S> all;
  ConstraintState<S> state;
  VirtualRows(const Model& m, Arena& arena, const ConstraintSet& set, double t, const double* times, const S* q,
              const S* u)
      : all(motions(m, arena, q, u, at_rest(m, arena), false)),
        state{m, set, arena, all, q, u, at_rest(m, arena), t, times, true} {}

 private:
  static const S* at_rest(const Model& m, Arena& arena) {
    S* zeros = arena.get<S>(m.nv);
    std::fill_n(zeros, m.nv, S(0.0));
    return zeros;
  }
};

// mu and nu, for weights that may be null.
template <class S>
struct ConstrainedCotangents {
  S *mu, *nu;
  S* n;  // N N^T w_l; null if rows are independent
};
template <class S>
ConstrainedCotangents<S> constrained_cotangents(const Model& m, Arena& arena, const ConstrainedSolution<S>& s,
                                                const S* w, const S* w_l) {
  const int nv = m.nv, rows = s.D.rows();
  ConstrainedCotangents<S> c{arena.get<S>(nv), arena.get<S>(rows), nullptr};
  for (int k = 0; k < nv; ++k) c.mu[k] = w != nullptr ? -w[k] : S(0.0);
  if (w != nullptr) solve_mass(m, s.mass, c.mu, c.mu);
  for (int r = 0; r < rows; ++r) c.nu[r] = w_l != nullptr ? -w_l[r] : S(0.0);
  if (w != nullptr) add_product(m, rows, S(1.0), s.G, c.mu, c.nu);
  s.D.solve(c.nu, c.nu);
  S* y = arena.get<S>(nv);
  solve_rows(m, s.mass, s.rows, c.nu, y);
  for (int k = 0; k < nv; ++k) c.mu[k] -= y[k];
  if (w_l != nullptr && any(s.D.any_skipped())) {
    c.n = arena.get<S>(rows);
    std::copy_n(w_l, rows, c.n);
    s.D.project_on_null_space(c.n, 1, 1);
  }
  return c;
}

// The part of the gradient that is due to rows: of nu.(gamma + 2 alpha gdot + beta^2 g) - lambda.(G mu) + n.(G x).
template <class S>
struct RowWeights {
  const S *of_g, *of_gdot, *nu;  // beta^2 nu and 2 alpha nu, or null
  const S *minus_lambda, *mu;
  const S *n, *x;  // or null
};
template <class S>
RowWeights<S> row_weights(const ConstrainedProblem<S>& p, const ConstrainedSolution<S>& s,
                          const ConstrainedCotangents<S>& c) {
  const auto times = [&](double factor, const S* x) {
    S* out = p.arena.template get<S>(p.set.rows);
    for (int r = 0; r < p.set.rows; ++r) out[r] = S(factor) * x[r];
    return out;
  };
  return {p.gains.beta != 0.0 ? times(p.gains.beta * p.gains.beta, c.nu) : nullptr,
          p.gains.alpha != 0.0 ? times(2.0 * p.gains.alpha, c.nu) : nullptr,
          c.nu,
          times(-1.0, s.lambda),
          c.mu,
          c.n,
          c.n != nullptr ? least_norm_velocity(p.m, p.arena, s) : nullptr};
}
template <class S>
void add_row_gradients(const Model& m, Arena& arena, const ConstraintSet& set, double t, const double* times,
                       const S* q, const S* v, const S* a, const RowWeights<S>& w, const ConstraintGradients<S>& out) {
  const ConstraintGradients<S> by_q{out.q, nullptr, nullptr, out.placement, out.parameters};
  const Motions<S> all = motions(m, arena, q, v, a, false);
  const ConstraintState<S> at{m, set, arena, all, q, v, a, t, times};
  add_constraint_gradients(m, at, w.of_g, w.of_gdot, w.nu, out);
  const S* none = nullptr;
  const VirtualRows<S> along_mu(m, arena, set, t, times, q, w.mu);
  add_constraint_gradients(m, along_mu.state, none, w.minus_lambda, none, by_q);
  if (w.n == nullptr) return;
  const VirtualRows<S> along_x(m, arena, set, t, times, q, w.x);
  add_constraint_gradients(m, along_x.state, none, w.n, none, by_q);
}

// Gradients of w.a + w_l.lambda; those by tau and by the parameters of constraints may be null as well.
template <class S>
void constrained_forward_dynamics_vjp(const ConstrainedProblem<S>& p, const S* w, const S* w_l, const Gradients<S>& out,
                                      S* out_tau, S* out_parameters) {
  const Model& m = p.m;
  const ConstrainedSolution<S> s = solve_constrained(p);
  const ConstrainedCotangents<S> c = constrained_cotangents(m, p.arena, s, w, w_l);
  inverse_dynamics_vjp(m, p.arena, p.q, p.v, s.a, c.mu, p.f_ext, p.axes, out);
  for (int k = 0; out_tau != nullptr && k < m.nv; ++k) out_tau[k] = -c.mu[k];
  if (out_parameters != nullptr) std::fill_n(out_parameters, p.set.parameters, S(0.0));
  add_row_gradients(m, p.arena, p.set, p.t, p.times, p.q, p.v, s.a, row_weights(p, s, c),
                    {out.q, out.v, nullptr, out.placement, out_parameters});
}

// A direction of the inputs; any may be null.
template <class S>
struct ConstrainedDirection {
  const S *q, *v, *tau, *f_ext;
};
// a, lambda and their derivatives da, dlambda along a direction:
//   [[M, -G^T], [G, e]] (da, dlambda) = -(dID - dtau - K dq, dgamma + 2 alpha dgdot + beta^2 dg),
// and N N^T dG x is added to dlambda where rows depend on each other.
template <class S>
void constrained_forward_dynamics_jvp(const ConstrainedProblem<S>& p, const ConstrainedDirection<S>& d, S* a, S* lambda,
                                      S* da, S* dlambda) {
  const Model& m = p.m;
  Arena& arena = p.arena;
  const int nv = m.nv, rows = p.set.rows;
  const ConstrainedSolution<S> s = solve_constrained(p);
  if (a != nullptr) std::copy_n(s.a, nv, a);
  if (lambda != nullptr) std::copy_n(s.lambda, rows, lambda);

  const Dual<S>* q = moving(m, arena, p.q, d.q);
  const Dual<S>*v = with_tangent(arena, p.v, d.v, nv), *still = with_tangent<S>(arena, s.a, nullptr, nv);
  auto* tau = arena.get<Dual<S>>(nv);
  const Dual<S>* f_ext = dual_wrenches(m, arena, p.f_ext, d.f_ext);
  inverse_dynamics(m, arena, q, v, still, body_wrenches(m, arena, q, p.axes, f_ext), tau);
  S *x = arena.get<S>(nv), *y = arena.get<S>(rows), *extra = nullptr;
  for (int k = 0; k < nv; ++k) x[k] = (d.tau != nullptr ? d.tau[k] : S(0.0)) - tau[k].d;
  std::fill_n(y, rows, S(0.0));

  const Motions<S> motion = motions(m, arena, p.q, p.v, s.a, false);
  const ConstraintState<S> at{m, p.set, arena, motion, p.q, p.v, s.a, p.t, p.times};
  S *gdot_q = arena.get<S>(rows * nv), *gamma_q = arena.get<S>(rows * nv), *gamma_v = arena.get<S>(rows * nv);
  constraint_derivatives(at, gdot_q, gamma_q, gamma_v, nv);
  if (d.q != nullptr) {
    S* K = arena.get<S>(nv * nv);
    std::fill_n(K, nv * nv, S(0.0));
    add_constraint_stiffness(at, s.lambda, S(1.0), K, nv);
    add_product(m, nv, S(1.0), K, d.q, x);
    add_product(m, rows, S(1.0), gamma_q, d.q, y);
    add_product(m, rows, S(2.0 * p.gains.alpha), gdot_q, d.q, y);
    S* g = arena.get<S>(rows);
    std::fill_n(g, rows, S(0.0));
    add_product(m, rows, S(p.gains.beta * p.gains.beta), s.G, d.q, g);
    for (const TwistPart& part : p.set.twists) g[part.row] = S(0.0);  // which have no g
    for (int r = 0; r < rows; ++r) y[r] += g[r];
    if (any(s.D.any_skipped())) {
      const VirtualRows<S> along_x(m, arena, p.set, p.t, p.times, p.q, least_norm_velocity(m, arena, s));
      constraint_derivatives<S>(along_x.state, gdot_q, nullptr, nullptr, nv);
      extra = arena.get<S>(rows);
      std::fill_n(extra, rows, S(0.0));
      add_product(m, rows, S(1.0), gdot_q, d.q, extra);
      s.D.project_on_null_space(extra, 1, 1);
    }
  }
  if (d.v != nullptr) {
    add_product(m, rows, S(1.0), gamma_v, d.v, y);
    add_product(m, rows, S(2.0 * p.gains.alpha), s.G, d.v, y);
  }
  solve_mass(m, s.mass, x, x);
  add_product(m, rows, S(1.0), s.G, x, y);
  for (int r = 0; r < rows; ++r) y[r] = -y[r];
  s.D.solve(y, y);
  if (da != nullptr) {
    solve_rows(m, s.mass, s.rows, y, da);
    for (int k = 0; k < nv; ++k) da[k] += x[k];
  }
  for (int r = 0; dlambda != nullptr && r < rows; ++r) dlambda[r] = extra != nullptr ? y[r] + extra[r] : y[r];
}

}  // namespace torsor
