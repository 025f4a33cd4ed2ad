// Second derivatives of a weighted sum w.a + w_l.lambda of the results of constrained forward dynamics
// (docs/derivations/constraints.md, 3).
//
// With z = (a, lambda) and ell the scalar of constrained_dynamics_vjp.hpp, which is linear in z,
//   d2/dx_j dx_k = ell_xx[j][k] + ell_xz[j].z_x[k] + z_x[j].ell_zx[k],
//   ell_aq = d(M mu)/dq + K(nu),   ell_lambda q = -d(G mu)/dq,   ell_zv = ell_z tau = 0.
// ell_xx has the second derivatives of mu.ID and those of rows: gradients over dual numbers, one direction at a time.
// Where rows depend on each other, x with G x = lambda belongs to z: ell_xq = K(n), and G dx = dlambda - dG x.
#pragma once
#include "constraints/constrained_dynamics_vjp.hpp"
#include "derivatives/inverse_dynamics_hessians.hpp"

namespace torsor {

// nv x nv each, and gradients; any may be null. qv[j][k] = d/dv_k d/dq_j, tauq[j][k] = d/dq_k d/dtau_j.
template <class S>
struct ConstrainedHessians {
  S *qq, *qv, *vv, *tauq;
  S *q, *v, *tau;
};

// Adds the second derivatives of the part of ell that is due to rows.
template <class S>
void add_row_hessians(const ConstrainedProblem<S>& p, const S* a, const RowWeights<S>& w, S* qq, S* qv, S* vv) {
  const Model& m = p.m;
  const int nv = m.nv, rows = p.set.rows;
  Lease lease;  // memory of one direction
  Arena& arena = *lease;
  const std::vector<int>& bodies = row_plan<S>(p.set).bodies;  // no other velocities move rows
  const auto by_q = [&](int k) {
    arena.reset();
    const auto fixed = [&](const S* x, int n) -> const Dual<S>* {
      return x != nullptr ? with_tangent<S>(arena, x, nullptr, n) : nullptr;
    };
    S* direction = arena.get<S>(nv);
    for (int j = 0; j < nv; ++j) direction[j] = S(j == k ? 1.0 : 0.0);
    const RowWeights<Dual<S>> weights{
        fixed(w.of_g, rows), fixed(w.of_gdot, rows), fixed(w.nu, rows), fixed(w.minus_lambda, rows),
        fixed(w.mu, nv),     fixed(w.n, rows),       fixed(w.x, nv)};
    auto *dq = arena.get<Dual<S>>(nv), *dv = arena.get<Dual<S>>(nv);
    std::fill_n(dq, nv, Dual<S>(0.0));
    std::fill_n(dv, nv, Dual<S>(0.0));
    add_row_gradients<Dual<S>>(m, arena, p.set, p.t, p.times, moving<S>(m, arena, p.q, direction), fixed(p.v, nv),
                               fixed(a, nv), weights, {dq, dv, nullptr, nullptr, nullptr});
    for (int j = 0; j < nv; ++j) {
      if (qq != nullptr) qq[j * nv + k] += dq[j].d;
      if (qv != nullptr) qv[k * nv + j] += dv[j].d;
    }
  };
  const auto by_v = [&](int k) {  // the gradient by v is linear in v
    arena.reset();
    S *direction = arena.get<S>(nv), *dv = arena.get<S>(nv);
    for (int j = 0; j < nv; ++j) {
      direction[j] = S(j == k ? 1.0 : 0.0);
      dv[j] = S(0.0);
    }
    const S* none = nullptr;
    const VirtualRows<S> along(m, arena, p.set, p.t, p.times, p.q, direction);
    add_constraint_gradients<S>(m, along.state, none, none, w.nu, {nullptr, dv, nullptr, nullptr, nullptr});
    for (int j = 0; j < nv; ++j) vv[j * nv + k] += dv[j];
  };
  if (qq != nullptr || qv != nullptr) for_each_velocity(m, bodies, by_q);
  if (vv != nullptr) for_each_velocity(m, bodies, by_v);
}

// First derivatives of a, lambda and x, one direction after the other: a[k * nv + i] = da_i/dx_k. x is null if rows are
// independent.
template <class S>
struct ConstrainedTangents {
  S *a, *lambda, *x;
};

template <class S>
class ConstrainedSecondOrder {
 public:
  ConstrainedSecondOrder(const ConstrainedProblem<S>& p, const ConstrainedSolution<S>& s)
      : p_(p), s_(s), nv_(p.m.nv), rows_(p.set.rows), redundant_(any(s.D.any_skipped())) {
    Arena& arena = p.arena;
    const Motions<S> all = motions(p.m, arena, p.q, p.v, s.a, false);
    const ConstraintState<S> at{p.m, p.set, arena, all, p.q, p.v, s.a, p.t, p.times};
    K_ = zeros(nv_ * nv_);
    add_constraint_stiffness(at, s.lambda, S(1.0), K_, nv_);
    r_q_ = zeros(rows_ * nv_);
    r_v_ = zeros(rows_ * nv_);
    S* rate = zeros(rows_ * nv_);
    constraint_derivatives(at, rate, r_q_, r_v_, nv_);
    for (int e = 0; e < rows_ * nv_; ++e) {
      r_q_[e] = mul_add(S(2.0 * p.gains.alpha), rate[e], r_q_[e]);
      r_v_[e] = mul_add(S(2.0 * p.gains.alpha), s.G[e], r_v_[e]);
    }
    const auto add_g = [&](int row) {
      for (int e = row * nv_; e < (row + 1) * nv_; ++e)
        r_q_[e] = mul_add(S(p.gains.beta * p.gains.beta), s.G[e], r_q_[e]);
    };
    for (const auto& part : p.set.pairs)
      for (int r = 0; r < part.rows; ++r) add_g(part.row + r);
    for (const auto& part : p.set.couplings) add_g(part.row);
    if (redundant_) {
      const VirtualRows<S> along(p.m, arena, p.set, p.t, p.times, p.q, least_norm_velocity(p.m, arena, s));
      Gx_q_ = zeros(rows_ * nv_);
      constraint_derivatives<S>(along.state, Gx_q_, nullptr, nullptr, nv_);
    }
  }
  // With the derivative of ID by q or v (nv x nv).
  ConstrainedTangents<S> by_q(const S* ID_q) const {
    return solved([&](int i, int k) { return K_[i * nv_ + k] - ID_q[i * nv_ + k]; }, r_q_, Gx_q_);
  }
  ConstrainedTangents<S> by_v(const S* ID_v) const {
    return solved([&](int i, int k) { return -ID_v[i * nv_ + k]; }, r_v_, nullptr);
  }
  ConstrainedTangents<S> by_tau() const {
    return solved([&](int i, int k) { return S(i == k ? 1.0 : 0.0); }, nullptr, nullptr);
  }

 private:
  S* zeros(int n) const {
    S* x = p_.arena.template get<S>(n);
    std::fill_n(x, n, S(0.0));
    return x;
  }
  // torque(i, k): what dx_k adds to torque i; r, Gx: derivatives of rows and of G x (rows x nv), or null.
  template <class F>
  ConstrainedTangents<S> solved(const F& torque, const S* r, const S* Gx) const {
    const Model& m = p_.m;
    const ConstrainedTangents<S> out{zeros(nv_ * nv_), zeros(nv_ * rows_), redundant_ ? zeros(nv_ * nv_) : nullptr};
    S *y = zeros(nv_), *kappa = zeros(rows_);
    for (int k = 0; k < nv_; ++k) {
      S *a = out.a + k * nv_, *lambda = out.lambda + k * rows_;
      for (int i = 0; i < nv_; ++i) a[i] = torque(i, k);
      solve_mass(m, s_.mass, a, a);
      add_product(m, rows_, S(-1.0), s_.G, a, lambda);
      for (int i = 0; r != nullptr && i < rows_; ++i) lambda[i] -= r[i * nv_ + k];
      s_.D.solve(lambda, lambda);
      solve_rows(m, s_.mass, s_.rows, lambda, y);
      for (int i = 0; i < nv_; ++i) a[i] += y[i];
      if (!redundant_) continue;
      for (int i = 0; i < rows_; ++i) kappa[i] = Gx != nullptr ? Gx[i * nv_ + k] : S(0.0);
      s_.D.project_on_null_space(kappa, 1, 1);
      for (int i = 0; i < rows_; ++i) {
        lambda[i] += kappa[i];
        kappa[i] = Gx != nullptr ? lambda[i] - Gx[i * nv_ + k] : lambda[i];
      }
      s_.D.solve(kappa, kappa);
      solve_rows(m, s_.mass, s_.rows, kappa, out.x + k * nv_);
    }
    return out;
  }

  const ConstrainedProblem<S>& p_;
  const ConstrainedSolution<S>& s_;
  int nv_, rows_;
  bool redundant_;
  S *K_, *r_q_, *r_v_, *Gx_q_ = nullptr;
};

// ell_zq: of a, of lambda, and of x (null if rows are independent), each x nv.
template <class S>
struct MixedDerivatives {
  S *a, *lambda, *x;
  // Y[j][k] = ell_q_j z . z_k, summed in the order of the tree. `along`: working memory of nv numbers.
  void multiply(const Model& m, int rows, const ConstrainedTangents<S>& z, S* along, S* Y) const {
    const int nv = m.nv;
    std::fill_n(Y, nv * nv, S(0.0));
    const auto add = [&](const S* row, const S* tangents, int n, int i) {
      for (int k = 0; k < nv; ++k) along[k] = tangents[k * n + i];
      for (int j = 0; j < nv; ++j) add_scaled(nv, row[j], along, Y + j * nv);
    };
    for (const Model::Link& link : m.links)
      for (int i = link.iv; i < link.iv + link.nv; ++i) add(a + i * nv, z.a, nv, i);
    for (int i = 0; i < rows; ++i) add(lambda + i * nv, z.lambda, rows, i);
    for (const Model::Link& link : m.links)
      for (int i = link.iv; x != nullptr && i < link.iv + link.nv; ++i) add(x + i * nv, z.x, nv, i);
  }
};

template <class S>
void constrained_forward_dynamics_hessians(const ConstrainedProblem<S>& p, const S* w, const S* w_l,
                                           const ConstrainedHessians<S>& out) {
  const Model& m = p.m;
  Arena& arena = p.arena;
  const int nv = m.nv, rows = p.set.rows, size = nv * nv;
  if (nv == 0) return;
  const ConstrainedSolution<S> s = solve_constrained(p);
  const ConstrainedCotangents<S> c = constrained_cotangents(m, arena, s, w, w_l);
  const RowWeights<S> weights = row_weights(p, s, c);

  // ell_xx, and ell_zq
  MixedDerivatives<S> mixed{arena.get<S>(size), arena.get<S>(rows * nv), nullptr};
  const SecondOrder<S> second = second_order(m, arena, p.q, p.v, s.a, p.f_ext, p.axes, out.qq != nullptr);
  contracted_hessians<S>(m, arena, second, c.mu, {out.qq, out.qv, out.vv, mixed.a}, out.q, out.v, nullptr);
  add_row_hessians(p, s.a, weights, out.qq, out.qv, out.vv);
  const VirtualRows<S> along_mu(m, arena, p.set, p.t, p.times, p.q, c.mu);
  add_constraint_stiffness(along_mu.state, c.nu, S(1.0), mixed.a, nv);
  constraint_derivatives<S>(along_mu.state, mixed.lambda, nullptr, nullptr, nv);
  for (int e = 0; e < rows * nv; ++e) mixed.lambda[e] = -mixed.lambda[e];
  if (c.n != nullptr) {
    mixed.x = arena.get<S>(size);
    std::fill_n(mixed.x, size, S(0.0));
    add_constraint_stiffness(along_mu.state, c.n, S(1.0), mixed.x, nv);
  }

  // z_x, and the products
  S *ID_q = arena.get<S>(size), *ID_v = arena.get<S>(size), *Y = arena.get<S>(size), *along = arena.get<S>(nv);
  std::fill_n(ID_q, size, S(0.0));
  std::fill_n(ID_v, size, S(0.0));
  pair_columns<S>(m, arena, second.all, second.wrenches, p.axes, ID_q, ID_v, nullptr, nv);
  const ConstrainedSecondOrder<S> first(p, s);
  if (out.qq != nullptr) {
    mixed.multiply(m, rows, first.by_q(ID_q), along, Y);
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) out.qq[j * nv + k] += Y[j * nv + k] + Y[k * nv + j];
  }
  if (out.qv != nullptr) {
    mixed.multiply(m, rows, first.by_v(ID_v), along, Y);
    for (int e = 0; e < size; ++e) out.qv[e] += Y[e];
  }
  if (out.tauq != nullptr) {
    mixed.multiply(m, rows, first.by_tau(), along, Y);
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) out.tauq[j * nv + k] = Y[k * nv + j];
  }

  // gradients
  if (out.q != nullptr || out.v != nullptr)
    add_row_gradients(m, arena, p.set, p.t, p.times, p.q, p.v, s.a, weights,
                      ConstraintGradients<S>{out.q, out.v, nullptr, nullptr, nullptr});
  for (int k = 0; out.tau != nullptr && k < nv; ++k) out.tau[k] = -c.mu[k];
}

}  // namespace torsor
