// Constrained forward dynamics with everything that its derivatives need (docs/derivations/constraints.md, 3).
#pragma once
#include "constraints/constrained_dynamics.hpp"
#include "dynamics/inverse_dynamics.hpp"

namespace torsor {

// The inputs of constrained forward dynamics; f_ext may be null. `times`: of times_at.
template <class S>
struct ConstrainedProblem {
  const Model& m;
  Arena& arena;
  const ConstraintSet& set;
  const S *q, *v, *tau, *f_ext;
  int axes;
  double t;
  const double* times;
  ConstraintGains gains;
};

template <class S>
struct ConstrainedSolution {
  S *a, *lambda;
  S* G;  // rows x nv
  MassFactor<S> mass;
  CarriedRows<S> rows;
  Delassus<S> D;
};

// a0 = M^-1 (tau - bias), D lambda = -(gamma + 2 alpha gdot + beta^2 g) at a0, a = a0 + M^-1 G^T lambda.
template <class S>
ConstrainedSolution<S> solve_constrained(const ConstrainedProblem<S>& p) {
  const Model& m = p.m;
  Arena& arena = p.arena;
  const int nv = m.nv, rows = p.set.rows;
  S *a = arena.get<S>(nv), *lambda = arena.get<S>(rows), *G = arena.get<S>(rows * nv);
  const MassFactor<S> mass = factor_mass<S>(m, arena, p.q, nullptr, nullptr);
  std::fill_n(a, nv, S(0.0));
  S* bias = arena.get<S>(nv);
  inverse_dynamics(m, arena, p.q, p.v, a, body_wrenches(m, arena, p.q, p.axes, p.f_ext), bias);
  for (int k = 0; k < nv; ++k) a[k] = p.tau[k] - bias[k];
  solve_mass(m, mass, a, a);

  const Motions<S> motion = motions(m, arena, p.q, p.v, a, false, false);
  const ConstraintState<S> at{m, p.set, arena, motion, p.q, p.v, a, p.t, p.times};
  constraint_jacobian(at, G, nv);
  S *g = arena.get<S>(rows), *gdot = arena.get<S>(rows), *b = arena.get<S>(rows);
  constraint_values(at, g, gdot, b);
  for (int r = 0; r < rows; ++r) b[r] = -stabilised(p.gains, g[r], gdot[r], b[r]);
  const CarriedRows<S> carried = carry_rows(m, arena, p.set, mass, G, nv);
  Delassus<S> D(arena, rows);
  D.pair_rows(m, carried);
  D.factor(p.gains.compliance);
  D.solve(b, lambda);
  if (any(D.any_skipped()))  // notes rows that contradict each other
    constrained_forward_dynamics(m, arena, p.set, p.t, p.q, p.v, p.tau, body_wrenches(m, arena, p.q, p.axes, p.f_ext),
                                 p.gains, arena.get<S>(nv), arena.get<S>(rows), arena.get<S>(1));
  S* y = arena.get<S>(nv);
  solve_rows(m, mass, carried, lambda, y);
  for (int k = 0; k < nv; ++k) a[k] += y[k];
  return {a, lambda, G, mass, carried, D};
}

}  // namespace torsor
