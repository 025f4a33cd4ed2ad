// Second derivatives of forward dynamics, contracted with weights on the accelerations and dense, from first and second
// derivatives of inverse dynamics at the accelerations found. With a_q = -M^-1 ID_q and a_v = -M^-1 ID_v, ID(q, v, a(q, v, tau)) =
// tau differentiated twice gives, for each i and summed over m,
//   M a_qq[j][k] = -(ID_qq[j][k] + dM_m/dq_j a_q[m][k] + dM_m/dq_k a_q[m][j])      M a_vv = -ID_vv
//   M a_qv[j][k] = -(ID_qv[j][k] + dM_m/dq_j a_v[m][k])                            M a_tauq[j][k] = -dM_m/dq_k M^-1[m][j]
// Contracted with lambda, the left sides are lambda . a_qq and so on if inverse dynamics is contracted with M^-1 lambda
// (docs/derivations/second_order.md).
#pragma once
#include "forward_dynamics_derivatives.hpp"
#include "inverse_dynamics_hessians.hpp"

namespace torsor {

// Accelerations, the mass matrix factored, and derivatives of accelerations along q and v, if wanted.
template <class S>
struct ForwardDynamicsLinear {
  S *a, *aq, *av;
  FreeMass<S> mass;
};
template <class S>
ForwardDynamicsLinear<S> forward_dynamics_linear(const Model& m, Arena& arena, const S* q, const S* v, const S* tau,
                                                 const S* f_ext, int axes, bool wants_q, bool wants_v) {
  const int nv = m.nv, size = nv * nv;
  S *a = arena.get<S>(nv), *given = arena.get<S>(nv), *M = arena.get<S>(size);
  for (int k = 0; k < nv; ++k) given[k] = tau[k];
  hybrid_dynamics<S>(m, arena, q, v, body_wrenches(m, arena, q, axes, f_ext), nullptr, a, given);
  S *aq = wants_q ? arena.get<S>(size) : nullptr, *av = wants_v ? arena.get<S>(size) : nullptr;
  inverse_dynamics_derivatives(m, arena, q, v, a, f_ext, axes, aq, av, M);
  ForwardDynamicsLinear<S> d{a, aq, av, factor_free_mass<S>(m, arena, q, M, nullptr)};
  for (S* X : {aq, av}) {
    if (X == nullptr) continue;
    for (int k = 0; k < size; ++k) X[k] = -X[k];
    d.mass.solve(m, X, nv, nv);
  }
  return d;
}

// The velocities in whose joints a velocity's column is not on another branch: `begin` to `end` of `list`, in the order of bodies.
struct Related {
  int *list, *begin, *end;  // the last two by velocity
};
inline Related related_velocities(const Model& m, Arena& arena) {
  const int n = m.n();
  auto* related = arena.get<unsigned char>(std::size_t(n) * n);
  for (int k = 0; k < n * n; ++k) related[k] = 0;
  for (int i = 0; i < n; ++i)
    for (int j = i; j >= 0; j = m.links[j].parent) related[i * n + j] = related[j * n + i] = 1;
  Related r{arena.get<int>(std::size_t(m.nv) * m.nv), arena.get<int>(m.nv), arena.get<int>(m.nv)};
  int count = 0;
  for (int i = 0; i < n; ++i) {
    const int begin = count;
    for (int j = 0; j < n; ++j)
      for (int k = 0; related[i * n + j] && k < m.links[j].nv; ++k) r.list[count++] = m.links[j].iv + k;
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) {
      r.begin[k] = begin;
      r.end[k] = count;
    }
  }
  return r;
}

// Y[j][k] = sum over m of Mq[m][j] X[m][k], where Mq[m][j] is zero for velocities on different branches; m from `begin` to `end`.
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

// H of one weight on the torques or of one torque, to which the terms with M are added; all negated. Y: working memory.
template <class S>
void add_mass_terms(int nv, const Related& related, const int* begin, const int* end, const S* Mq, const S* aq,
                    const S* av, const Hessians<S>& H, S* Y) {
  if (H.qq != nullptr) {
    multiply_transposed(nv, related, begin, end, Mq, aq, Y);
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) H.qq[j * nv + k] = -(H.qq[j * nv + k] + (Y[j * nv + k] + Y[k * nv + j]));
  }
  if (H.qv != nullptr) {
    multiply_transposed(nv, related, begin, end, Mq, av, Y);
    for (int k = 0; k < nv * nv; ++k) H.qv[k] = -(H.qv[k] + Y[k]);
  }
  if (H.vv != nullptr)
    for (int k = 0; k < nv * nv; ++k) H.vv[k] = -H.vv[k];
}

// Second derivatives of lambda . a: H.aq has those along tau, then q. And its gradients dq, dv, dtau (nv each); any may be null.
template <class S>
void contracted_forward_hessians(const Model& m, Arena& arena, const S* q, const S* v, const S* tau, const S* lambda,
                                 const S* f_ext, int axes, const Hessians<S>& H, S* dq, S* dv, S* dtau) {
  const int nv = m.nv, size = nv * nv;
  const auto d = forward_dynamics_linear(m, arena, q, v, tau, f_ext, axes, H.qq != nullptr, H.qv != nullptr);
  S* w = arena.get<S>(nv);
  for (int k = 0; k < nv; ++k) w[k] = lambda[k];
  d.mass.solve(m, w, 1, 1);
  Hessians<S> inverse = H;
  if (inverse.aq == nullptr && (H.qq != nullptr || H.qv != nullptr)) inverse.aq = arena.get<S>(size);
  contracted_hessians<S>(m, arena, q, v, d.a, w, f_ext, axes, inverse, dq, dv, nullptr);
  const Related related = related_velocities(m, arena);
  add_mass_terms(nv, related, d.mass.t.order, d.mass.t.order + nv, inverse.aq, d.aq, d.av, H, arena.get<S>(size));
  if (H.aq != nullptr) {
    for (int k = 0; k < size; ++k) H.aq[k] = -H.aq[k];
    d.mass.solve(m, H.aq, nv, nv);
  }
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
  const auto d = forward_dynamics_linear(m, arena, q, v, tau, f_ext, axes, H.qq != nullptr, H.qv != nullptr);
  Hessians<S> inverse = H;
  if (inverse.aq == nullptr && (H.qq != nullptr || H.qv != nullptr)) inverse.aq = arena.get<S>(size * nv);
  const auto advance = [&](Hessians<S>& x) {
    for (S** p : {&x.qq, &x.qv, &x.vv, &x.aq})
      if (*p != nullptr) *p += size;
  };
  const Related related = related_velocities(m, arena);
  S* Y = arena.get<S>(size);
  Hessians<S> slab = inverse;
  int i = 0;
  inverse_dynamics_hessians(m, arena, q, v, d.a, f_ext, axes, slab, [&](Hessians<S>& x) {
    add_mass_terms(nv, related, related.list + related.begin[i], related.list + related.end[i], x.aq, d.aq, d.av, x, Y);
    if (H.aq != nullptr) {
      for (std::size_t k = 0; k < size; ++k) x.aq[k] = -x.aq[k];
      d.mass.solve(m, x.aq, nv, nv);
    }
    advance(x);
    ++i;
  });
  for (S* X : {H.qq, H.qv, H.vv, H.aq})
    for (int j = 0; X != nullptr && j < nv; ++j) d.mass.solve(m, X + std::size_t(j) * nv, nv, size);
}

}  // namespace torsor
