// First derivatives of forward and hybrid dynamics, from those of inverse dynamics at the accelerations found.
//
// With f the velocities of given torque and p those of prescribed acceleration, tau = ID(q, v, a) differentiated gives
//   da_f = M_ff^-1 (dtau_f - M_fp da_p - ID_q,f dq - ID_v,f dv),   dtau_p = M_pf da_f + M_pp da_p + ID_q,p dq + ID_v,p dv,
// of which forward dynamics is the case without p (Kim 2012, Table 7, in matrices). M_ff is inverted
// by sparse factors (dynamics/mass_inverse.hpp), or, for deep trees, by articulated bodies (dynamics/mass_solve.hpp): O(n) for each column.
#pragma once
#include <optional>

#include "derivatives/inverse_dynamics_derivatives.hpp"
#include "dynamics/mass_inverse.hpp"
#include "dynamics/mass_solve.hpp"

namespace torsor {

constexpr int kDeep = 48;  // velocities on one path above which articulated bodies solve faster

// The blocks of hybrid dynamics' derivatives, each nv x nv, row-major; any may be null.
template <class S>
struct HybridBlocks {
  S *da_dq, *da_dv, *da_da, *da_dtau, *dtau_dq, *dtau_dv, *dtau_da, *dtau_dtau;
};

// a, tau: as for hybrid_dynamics. Rows of da_* are those of free velocities, rows of dtau_* those of prescribed ones; columns of
// *_da are those of prescribed ones, columns of *_dtau those of free ones; all else is zero, but for the ones that say that
// what is given is itself: da_da on prescribed velocities and dtau_dtau on free ones.
template <class S>
void hybrid_dynamics_derivatives(const Model& m, Arena& arena, const S* q, const S* v, const S* f_ext, int axes,
                                 const unsigned char* prescribed, S* a, S* tau, const HybridBlocks<S>& d) {
  const int nv = m.nv;
  if (nv == 0) return;
  const bool deep = m.depth > kDeep;
  const auto given = [&](int k) { return prescribed != nullptr && prescribed[k] != 0; };
  bool some_given = false;
  for (int k = 0; k < nv; ++k) some_given = some_given || given(k);

  // Motions at the accelerations that are given, and found.
  if (deep) {
    hybrid_dynamics(m, arena, q, v, body_wrenches(m, arena, q, axes, f_ext), prescribed, a, tau);
  } else {
    for (int k = 0; k < nv; ++k)
      if (!given(k)) a[k] = S(0.0);
  }
  const Motions<S> all = motions(m, arena, q, v, a);
  const auto* wrenches = sum_subtrees(m, arena, all.bodies, f_ext, axes);
  std::optional<TreeInverse<S>> inverse;
  if (!deep) {
    inverse.emplace(m, arena, all, prescribed);
    S* x = arena.get<S>(nv);
    for (int i = 0; i < m.n(); ++i)
      for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k)
        x[k] = given(k) ? S(0.0) : tau[k] - dot(all.columns[k].S_, all.bodies[i].f);
    inverse->multiply(x, x);
    accelerate(m, arena, all, x);
  }

  // What is solved for: derivatives of inverse dynamics with respect to q, v and prescribed a, and given tau; side by side.
  S* const das[] = {d.da_dq, d.da_dv, d.da_da, d.da_dtau};
  S* const dtaus[] = {d.dtau_dq, d.dtau_dv, d.dtau_da, d.dtau_dtau};
  const int each = padded<S>(nv);
  int stride = 0, start[4];
  S* outs[4];
  for (int i = 0; i < 4; ++i)
    if (das[i] != nullptr || dtaus[i] != nullptr) {
      start[i] = stride;
      outs[stride / each] = das[i] != nullptr ? das[i] : arena.get<S>(nv * nv);
      stride += each;
    } else {
      start[i] = -1;
    }
  if (stride == 0) return;
  S* X = arena.get<S>(nv * stride);
  S* M = some_given ? arena.get<S>(nv * stride) : nullptr;
  for (int k = 0; k < nv * stride; ++k) X[k] = S(0.0);
  for (int k = 0; M != nullptr && k < nv * stride; ++k) M[k] = S(0.0);
  const auto part = [&](int i) { return start[i] >= 0 ? X + start[i] : nullptr; };
  pair_columns(m, arena, all, wrenches, axes, part(0), part(1), M, stride);
  for (int k = 0; some_given && start[2] >= 0 && k < nv; ++k)
    for (int c = 0; c < nv; ++c)
      if (given(c)) part(2)[k * stride + c] = M[k * stride + c];
  S* torques =
      some_given ? arena.get<S>(nv * stride) : nullptr;  // of the prescribed velocities, if nothing else accelerates
  for (int k = 0; some_given && k < nv * stride; ++k) torques[k] = X[k];

  // Free accelerations, those of prescribed velocities being zero.
  for (int k = 0; start[3] >= 0 && k < nv; ++k) part(3)[k * stride + k] = S(-1.0);
  if (!deep) {
    inverse->multiply_negated(arena, X, stride, outs);
  } else {
    const auto articulated = factor_mass<S>(m, arena, q, nullptr, nullptr, prescribed);
    for (int at = 0; at < stride; at += each)
      for (int c = 0; c < nv; ++c) {
        S* out = outs[at / each] + c;
        for (int k = 0; k < nv; ++k) out[k * nv] = given(k) ? S(0.0) : -X[k * stride + at + c];
        solve_mass(m, articulated, out, out, nv);
      }
  }
  for (int i = 0; i < 4; ++i) {
    if (start[i] < 0) continue;
    S* da = outs[start[i] / each];
    if (dtaus[i] !=
        nullptr)  // torques of prescribed velocities, with the free ones accelerating; given torques are themselves
      for (int k = 0; k < nv; ++k)
        for (int c = 0; c < nv; ++c) {
          S sum(i == 3 && k == c && !given(k) ? 1.0 : 0.0);
          if (given(k)) {
            sum = torques[k * stride + start[i] + c];
            for (const Model::Link& link : m.links)
              for (int l = link.iv; l < link.iv + link.nv; ++l)
                if (!given(l)) sum = mul_add(M[k * stride + l], da[l * nv + c], sum);
          }
          dtaus[i][k * nv + c] = sum;
        }
    for (int k = 0; i == 2 && k < nv; ++k)
      if (given(k)) da[k * nv + k] = S(1.0);
  }
}

}  // namespace torsor
