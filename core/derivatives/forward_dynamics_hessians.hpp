// Second derivatives of forward dynamics, contracted with weights on the accelerations and dense, from first and second
// derivatives of inverse dynamics at the accelerations found. With a_q = -M^-1 ID_q and a_v = -M^-1 ID_v, ID(q, v, a(q,
// v, tau)) = tau differentiated twice gives, for each i and summed over m,
//   M a_qq[j][k] = -(ID_qq[j][k] + dM_m/dq_j a_q[m][k] + dM_m/dq_k a_q[m][j])    M a_vv = -ID_vv
//   M a_qv[j][k] = -(ID_qv[j][k] + dM_m/dq_j a_v[m][k])                          M a_tauq[j][k] = -dM_m/dq_k M^-1[m][j]
// Contracted with lambda, the left sides are lambda . a_qq and so on if inverse dynamics is contracted with M^-1 lambda
// (docs/derivations/second_order.md).
#pragma once
#include <optional>

#include "base/threads.hpp"
#include "derivatives/forward_dynamics_derivatives.hpp"
#include "derivatives/inverse_dynamics_hessians.hpp"

namespace torsor {

// Second derivatives of inverse dynamics at the accelerations due to tau, and the first derivatives of these
// accelerations. Matrices are nv x nv, row-major.
template <class S>
class ForwardSecondOrder {
 public:
  // The derivatives aq and av of accelerations may be null: not wanted.
  ForwardSecondOrder(const Model& m, Arena& arena, const S* q, const S* v, const S* tau, const S* f_ext, int axes,
                     bool wants_qq, S* aq, S* av)
      : m_(m), arena_(arena), in_(arena.get<S>(m.nv * padded<S>(m.nv))), out_(arena.get<S>(m.nv * m.nv)) {
    const int nv = m.nv;
    S* a = arena.get<S>(nv);
    const SolvedMotion<S> s = solve_motion<S>(m, arena, q, v, f_ext, axes, nullptr, tau, a, a);
    inverse_.emplace(*s.inverse);
    for (S* matrix : {aq, av})
      for (int k = 0; matrix != nullptr && k < nv * nv; ++k) matrix[k] = S(0.0);
    pair_columns<S>(m, arena, s.all, s.wrenches, axes, aq, av, nullptr, nv);
    if (aq != nullptr) solve_negated(aq, nv);
    if (av != nullptr) solve_negated(av, nv);
    inverse_dynamics = second_order(m, arena, s.all, s.wrenches, axes, q, v, a, wants_qq);
  }
  // y = M^-1 x
  void solve(const S* x, S* y) const { inverse_->multiply(x, y); }
  // X = -M^-1 X, rows `stride` apart
  void solve_negated(S* X, std::size_t stride) const {
    const int nv = m_.nv, each = padded<S>(nv);
    for (int k = 0; k < nv; ++k)
      for (int c = 0; c < each; ++c) in_[k * each + c] = c < nv ? X[k * stride + c] : S(0.0);

    inverse_->multiply_negated(arena_, in_, each, &out_);
    for (int k = 0; k < nv; ++k)
      for (int c = 0; c < nv; ++c) X[k * stride + c] = out_[k * nv + c];
  }

  SecondOrder<S> inverse_dynamics;

 private:
  const Model& m_;
  Arena& arena_;
  S *in_, *out_;  // working memory
  std::optional<TreeInverse<S>> inverse_;
};

// For each velocity, those that are not on another branch: `begin` to `end` of `list`, in the order of bodies.
struct Related {
  int *list, *begin, *end;  // the last two by velocity
  int* order;               // all velocities
};
inline Related related_velocities(const Model& m, Arena& arena) {
  const int n = m.n();
  auto* related = arena.get<unsigned char>(std::size_t(n) * n);
  for (int k = 0; k < n * n; ++k) related[k] = 0;
  for (int i = 0; i < n; ++i)
    for (int j = i; j >= 0; j = m.links[j].parent) related[i * n + j] = related[j * n + i] = 1;
  Related r{arena.get<int>(std::size_t(m.nv) * m.nv), arena.get<int>(m.nv), arena.get<int>(m.nv), arena.get<int>(m.nv)};
  int count = 0, all = 0;
  for (int i = 0; i < n; ++i) {
    const int begin = count;
    for (int j = 0; j < n; ++j)
      for (int k = 0; related[i * n + j] && k < m.links[j].nv; ++k) r.list[count++] = m.links[j].iv + k;
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) {
      r.order[all++] = k;
      r.begin[k] = begin;
      r.end[k] = count;
    }
  }
  return r;
}

// Y[j][k] = sum over m of Mq[m][j] X[m][k], where Mq[m][j] is zero for velocities on different branches; m from `begin`
// to `end`.
template <class S>
void multiply_transposed(int nv, const Related& related, const int* begin, const int* end, const S* Mq, const S* X,
                         S* Y) {
  for (int k = 0; k < nv * nv; ++k) Y[k] = S(0.0);
  for (const int* m = begin; m < end; ++m)
    for (int at = related.begin[*m]; at < related.end[*m]; ++at) {
      const int j = related.list[at];
      const S l = Mq[*m * nv + j];
      for (int k = 0; k < nv; ++k) Y[j * nv + k] = mul_add(l, X[*m * nv + k], Y[j * nv + k]);
    }
}

// To H of a weight on the torques, or of one torque, the terms with M are added. Y: working memory.
template <class S>
void add_mass_terms(int nv, const Related& related, const int* begin, const int* end, const S* Mq, const S* aq,
                    const S* av, const Hessians<S>& H, S* Y) {
  if (nv > 64) poll();
  if (H.qq != nullptr) {
    multiply_transposed(nv, related, begin, end, Mq, aq, Y);
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) H.qq[j * nv + k] += Y[j * nv + k] + Y[k * nv + j];
  }
  if (H.qv != nullptr) {
    multiply_transposed(nv, related, begin, end, Mq, av, Y);
    for (int k = 0; k < nv * nv; ++k) H.qv[k] += Y[k];
  }
}

// Second derivatives of lambda . a: H.aq has those along tau, then q. And its gradients dq, dv, dtau (nv each); any may
// be null.
template <class S>
void contracted_forward_hessians(const Model& m, Arena& arena, const S* q, const S* v, const S* tau, const S* lambda,
                                 const S* f_ext, int axes, const Hessians<S>& H, S* dq, S* dv, S* dtau) {
  const int nv = m.nv, size = nv * nv;
  if (nv == 0) return;
  S *aq = H.qq != nullptr ? arena.get<S>(size) : nullptr, *av = H.qv != nullptr ? arena.get<S>(size) : nullptr;
  const ForwardSecondOrder<S> d(m, arena, q, v, tau, f_ext, axes, H.qq != nullptr, aq, av);
  S* w = arena.get<S>(nv);
  d.solve(lambda, w);
  Hessians<S> inverse = H;
  if (inverse.aq == nullptr && (H.qq != nullptr || H.qv != nullptr)) inverse.aq = arena.get<S>(size);
  contracted_hessians<S>(m, arena, d.inverse_dynamics, w, inverse, dq, dv, nullptr);
  const Related related = related_velocities(m, arena);
  add_mass_terms(nv, related, related.order, related.order + nv, inverse.aq, aq, av, H, arena.get<S>(size));
  for (S* X : {H.qq, H.qv, H.vv})
    for (int k = 0; X != nullptr && k < size; ++k) X[k] = -X[k];
  if (H.aq != nullptr) d.solve_negated(H.aq, nv);
  for (int k = 0; k < nv; ++k) {
    if (dq != nullptr) dq[k] = -dq[k];
    if (dv != nullptr) dv[k] = -dv[k];
    if (dtau != nullptr) dtau[k] = w[k];
  }
}

// Second derivatives of a, nv x nv x nv each, accelerations first; any may be null.
template <class S>
void forward_dynamics_hessians(const Model& m, Arena& arena, const S* q, const S* v, const S* tau, const S* f_ext,
                               int axes, const Hessians<S>& H) {
  const int nv = m.nv;
  const std::size_t size = std::size_t(nv) * nv;
  if (nv == 0) return;
  S *aq = H.qq != nullptr ? arena.get<S>(size) : nullptr, *av = H.qv != nullptr ? arena.get<S>(size) : nullptr;
  const ForwardSecondOrder<S> d(m, arena, q, v, tau, f_ext, axes, H.qq != nullptr, aq, av);
  Hessians<S> slab = H;
  if (H.aq == nullptr && (H.qq != nullptr || H.qv != nullptr)) slab.aq = arena.get<S>(size * nv);
  const Related related = related_velocities(m, arena);
  S* Y = arena.get<S>(size);
  int i = 0;
  dense_hessians(m, arena, d.inverse_dynamics, slab, [&](Hessians<S>& x) {
    const int *begin = related.list + related.begin[i], *end = related.list + related.end[i];
    add_mass_terms(nv, related, begin, end, x.aq, aq, av, x, Y);
    if (H.aq != nullptr) {  // dM/dq M^-1, which the last solution negates again
      d.solve_negated(x.aq, nv);
      for (std::size_t k = 0; k < size; ++k) x.aq[k] = -x.aq[k];
    }
    for (S** p : {&x.qq, &x.qv, &x.vv, &x.aq})
      if (*p != nullptr) *p += size;
    ++i;
  });
  for (S* X : {H.qq, H.qv, H.vv, H.aq})
    for (int j = 0; X != nullptr && j < nv; ++j) {
      poll();
      d.solve_negated(X + std::size_t(j) * nv, size);
    }
}

}  // namespace torsor
