// Inverse dynamics under constraints: torques on some of the velocities, and multipliers, of least norm together
// (docs/derivations/constraints.md, 3).
//
// ID(q, v, a) = B tau + G^T lambda, B having a column of the identity for each velocity with a torque. With
// A = [B, G^T] and S = A A^T, the solution of least norm is y = A^T x with S x = ID. Its derivative is
//   dy = A^T Z + (0, E),   S Z = dID - K dq - G^T E,   E = dG x,
// where the last terms are due to the turning of the null space of A. S is factorised as D of delassus.hpp is,
// and each solution is refined, which restores what is lost by forming S.
#pragma once
#include "constraints/constraints.hpp"
#include "constraints/delassus.hpp"
#include "derivatives/inverse_dynamics_derivatives.hpp"
#include "dynamics/inverse_dynamics.hpp"

namespace torsor {

// Solutions of S x = b.
template <class S>
class ActuationFactor {
 public:
  // G (rows x nv); actuated by velocity.
  ActuationFactor(Arena& arena, int nv, int rows, const S* G, const unsigned char* actuated)
      : arena_(arena), nv_(nv), rows_(rows), G_(G), actuated_(actuated), D_(arena, nv) {
    for (int i = 0; i < nv; ++i)
      for (int k = i; k < nv; ++k) {
        S sum(i == k && actuated[i] != 0 ? 1.0 : 0.0);
        for (int r = 0; r < rows; ++r) sum = mul_add(G[r * nv + i], G[r * nv + k], sum);
        D_.matrix()[i * D_.stride() + k] = sum;
      }
    D_.factor();
  }
  // x, y = (tau, lambda) = A^T x, and what is left of b (nv each but lambda); b is kept.
  void solve(const S* b, S* x, S* tau, S* lambda, S* rest) const {
    S* more = arena_.get<S>(nv_);
    D_.solve(b, x);
    residual(b, x, tau, lambda, rest);
    for (int turn = 0; turn < 2; ++turn) {
      D_.solve(rest, more);
      for (int k = 0; k < nv_; ++k) x[k] += more[k];
      residual(b, x, tau, lambda, rest);
    }
  }

 private:
  void residual(const S* b, const S* x, S* tau, S* lambda, S* rest) const {
    for (int k = 0; k < nv_; ++k) {
      tau[k] = actuated_[k] != 0 ? x[k] : S(0.0);
      rest[k] = b[k] - tau[k];
    }
    for (int r = 0; r < rows_; ++r) {
      const S* row = G_ + r * nv_;
      lambda[r] = S(0.0);
      for (int k = 0; k < nv_; ++k) lambda[r] = mul_add(row[k], x[k], lambda[r]);
      for (int k = 0; k < nv_; ++k) rest[k] = mul_add(-lambda[r], row[k], rest[k]);
    }
  }
  Arena& arena_;
  int nv_, rows_;
  const S* G_;
  const unsigned char* actuated_;
  Delassus<S> D_;
};

// Torques b (nv) that a motion takes, in the coordinates of a state of the rows: tau (nv, zero where nothing acts),
// lambda, and what is left of b, relative to it (nv).
template <class S>
void share_torques(const ConstraintState<S>& at, int nv, const unsigned char* actuated, const S* b, S* tau, S* lambda,
                   S* rest) {
  S *G = at.arena.template get<S>(at.set.rows * nv), *x = at.arena.template get<S>(nv);
  constraint_jacobian(at, G, nv);
  const ActuationFactor<S> factor(at.arena, nv, at.set.rows, G, actuated);
  factor.solve(b, x, tau, lambda, rest);
  S size(1e-300);
  for (int k = 0; k < nv; ++k) size = mul_add(b[k], b[k], size);
  size = square_root(size);
  for (int k = 0; k < nv; ++k) rest[k] = rest[k] / size;
}

// Derivatives by q, v and a, of which ID has those of b: dtau (nv x nv) and dlambda (rows x nv); any may be null.
// rates(x, E) sets E (rows x nv) to d(G x)/dq.
template <class S, class Rates>
void share_torque_derivatives(const ConstraintState<S>& at, int nv, const unsigned char* actuated, S* b,
                              const S* const* ID, const Rates& rates, S* const* dtau, S* const* dlambda) {
  Arena& arena = at.arena;
  const int rows = at.set.rows;
  S *G = arena.template get<S>(rows * nv), *K = zeros<S>(arena, nv * nv), *E = arena.template get<S>(rows * nv);
  S *x = arena.template get<S>(nv), *tau = arena.template get<S>(nv), *lambda = arena.template get<S>(rows),
    *rest = arena.template get<S>(nv);
  constraint_jacobian(at, G, nv);
  const ActuationFactor<S> factor(arena, nv, rows, G, actuated);
  factor.solve(b, x, tau, lambda, rest);
  add_constraint_stiffness(at, lambda, S(1.0), K, nv);
  rates(x, E);
  S *Z = arena.template get<S>(nv), *of_tau = arena.template get<S>(nv), *of_lambda = arena.template get<S>(rows);
  for (int part = 0; part < 3; ++part)
    for (int k = 0; (dtau[part] != nullptr || dlambda[part] != nullptr) && k < nv; ++k) {
      for (int i = 0; i < nv; ++i) {
        b[i] = ID[part][i * nv + k];
        if (part > 0) continue;
        b[i] -= K[i * nv + k];
        for (int r = 0; r < rows; ++r) b[i] = mul_add(-G[r * nv + i], E[r * nv + k], b[i]);
      }
      factor.solve(b, Z, of_tau, of_lambda, rest);
      for (int i = 0; dtau[part] != nullptr && i < nv; ++i) dtau[part][i * nv + k] = of_tau[i];
      for (int r = 0; dlambda[part] != nullptr && r < rows; ++r)
        dlambda[part][r * nv + k] = part == 0 ? of_lambda[r] + E[r * nv + k] : of_lambda[r];
    }
}

// The inputs; f_ext may be null. `times`: of times_at.
template <class S>
struct ActuatedMotion {
  const Model& m;
  Arena& arena;
  const ConstraintSet& set;
  const S *q, *v, *a, *f_ext;
  int axes;
  double t;
  const double* times;
  const unsigned char* actuated;
};

// As share_torques.
template <class S>
void constrained_inverse_dynamics(const ActuatedMotion<S>& p, S* tau, S* lambda, S* rest) {
  Arena& arena = p.arena;
  S* b = arena.get<S>(p.m.nv);
  inverse_dynamics(p.m, arena, p.q, p.v, p.a, body_wrenches(p.m, arena, p.q, p.axes, p.f_ext), b);
  const Motions<S> all = motions(p.m, arena, p.q, p.v, p.a, false, false);
  const ConstraintState<S> at{p.m, p.set, arena, all, p.q, p.v, p.a, p.t, p.times};
  share_torques(at, p.m.nv, p.actuated, b, tau, lambda, rest);
}

// As share_torque_derivatives.
template <class S>
void constrained_inverse_dynamics_derivatives(const ActuatedMotion<S>& p, S* const* dtau, S* const* dlambda) {
  Arena& arena = p.arena;
  const Model& m = p.m;
  const int nv = m.nv;
  const Motions<S> all = motions(m, arena, p.q, p.v, p.a);
  const auto* wrenches = sum_subtrees(m, arena, all.bodies, p.f_ext, p.axes);
  S* ID[] = {zeros<S>(arena, nv * nv), zeros<S>(arena, nv * nv), zeros<S>(arena, nv * nv)};
  pair_columns(m, arena, all, wrenches, p.axes, ID[0], ID[1], ID[2], nv);
  S *b = arena.get<S>(nv), *still = zeros<S>(arena, nv);
  for (int i = 0; i < m.n(); ++i)
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) b[k] = dot(all.columns[k].S_, all.bodies[i].f);
  for (int k = 0; all.armature != nullptr && k < nv; ++k) b[k] = mul_add(all.armature[k], p.a[k], b[k]);

  const ConstraintState<S> at{m, p.set, arena, all, p.q, p.v, p.a, p.t, p.times};
  const auto rates = [&](const S* x, S* E) {
    const Motions<S> along = motions(m, arena, p.q, x, still, false);
    constraint_derivatives<S>({m, p.set, arena, along, p.q, x, still, p.t, p.times, true}, E, nullptr, nullptr, nv);
  };
  share_torque_derivatives<S>(at, nv, p.actuated, b, ID, rates, dtau, dlambda);
}

}  // namespace torsor
