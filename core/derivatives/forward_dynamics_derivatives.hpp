// First derivatives of forward and hybrid dynamics, from those of inverse dynamics at the accelerations found.
//
// With f the velocities of given torque and p those of prescribed acceleration, tau = ID(q, v, a) differentiated gives
//   da_f = M_ff^-1 (dtau_f - M_fp da_p - ID_q,f dq - ID_v,f dv),
//   dtau_p = M_pf da_f + M_pp da_p + ID_q,p dq + ID_v,p dv,
// of which forward dynamics is the case without p (Kim 2012, Table 7, in matrices). M_ff is inverted by sparse factors
// (dynamics/mass_inverse.hpp), or, for deep trees, by articulated bodies (dynamics/mass_solve.hpp): O(n) for each
// column.
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

// Motions at the accelerations found, and the inverse of the mass matrix between free velocities.
template <class S>
struct SolvedMotion {
  Motions<S> all;
  const WorldWrench<S>* wrenches;         // of subtrees, those that do not rotate with them; or null
  std::optional<TreeInverse<S>> inverse;  // none if the accelerations were found by articulated bodies
};
// By sparse factors: motions with free accelerations of zero first, to which the accelerations due to the remaining
// torques are added. x (nv): these accelerations, zero for prescribed velocities; may be `a`, whose free elements are
// overwritten.
template <class S>
SolvedMotion<S> solve_motion(const Model& m, Arena& arena, const S* q, const S* v, const S* f_ext, int axes,
                             const unsigned char* prescribed, const S* tau, S* a, S* x) {
  const auto given = [&](int k) { return prescribed != nullptr && prescribed[k] != 0; };
  for (int k = 0; k < m.nv; ++k)
    if (!given(k)) a[k] = S(0.0);
  const Motions<S> all = motions(m, arena, q, v, a);
  const auto* wrenches = sum_subtrees(m, arena, all.bodies, f_ext, axes);
  const TreeInverse<S> inverse(m, arena, all, prescribed);
  for (int i = 0; i < m.n(); ++i)
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k)
      x[k] = given(k) ? S(0.0) : tau[k] - dot(all.columns[k].S_, all.bodies[i].f);
  inverse.multiply(x, x);
  accelerate(m, arena, all, x);
  return {all, wrenches, inverse};
}
// By articulated bodies. a, tau: as for hybrid_dynamics.
template <class S>
SolvedMotion<S> articulated_motion(const Model& m, Arena& arena, const S* q, const S* v, const S* f_ext, int axes,
                                   const unsigned char* prescribed, S* a, S* tau) {
  hybrid_dynamics(m, arena, q, v, body_wrenches(m, arena, q, axes, f_ext), prescribed, a, tau);
  const Motions<S> all = motions(m, arena, q, v, a);
  return {all, sum_subtrees(m, arena, all.bodies, f_ext, axes), std::nullopt};
}

// Right-hand sides of M_ff da_f = -X: derivatives of inverse dynamics by q, v and prescribed a, and those by tau, which
// are -1. Those that are asked for lie side by side in rows of `stride` numbers, each padded to `each`.
template <class S>
struct RightHandSides {
  int each, stride;
  int start[4];  // of q, v, a and tau in a row; -1: not asked for
  S *X, *M;      // M: the mass matrix, rows `stride` apart; null without prescribed velocities
  S* torques;    // of prescribed velocities if nothing else accelerates: X without tau; null likewise
  S* part(int i) const { return start[i] >= 0 ? X + start[i] : nullptr; }
};
template <class S>
RightHandSides<S> right_hand_sides(const Model& m, Arena& arena, const SolvedMotion<S>& s, int axes,
                                   const unsigned char* prescribed, const bool* wanted) {
  const int nv = m.nv;
  const auto given = [&](int k) { return prescribed != nullptr && prescribed[k] != 0; };
  bool some_given = false;
  for (int k = 0; k < nv; ++k) some_given = some_given || given(k);
  RightHandSides<S> r{padded<S>(nv), 0, {}, nullptr, nullptr, nullptr};
  for (int i = 0; i < 4; ++i) {
    r.start[i] = wanted[i] ? r.stride : -1;
    if (wanted[i]) r.stride += r.each;
  }
  const int size = nv * r.stride, stride = r.stride;
  r.X = arena.get<S>(size);
  if (some_given) r.M = arena.get<S>(size);
  for (S* matrix : {r.X, r.M})
    for (int k = 0; matrix != nullptr && k < size; ++k) matrix[k] = S(0.0);
  pair_columns(m, arena, s.all, s.wrenches, axes, r.part(0), r.part(1), r.M, stride);
  if (some_given) {
    for (int k = 0; wanted[2] && k < nv; ++k)
      for (int c = 0; c < nv; ++c)
        if (given(c)) r.part(2)[k * stride + c] = r.M[k * stride + c];
    r.torques = arena.get<S>(size);
    for (int k = 0; k < size; ++k) r.torques[k] = r.X[k];
  }
  for (int k = 0; wanted[3] && k < nv; ++k) r.part(3)[k * stride + k] = S(-1.0);
  return r;
}

// outs = -M_ff^-1 X, rows of prescribed velocities zero, by articulated bodies; compare TreeInverse::multiply_negated.
template <class S>
void solve_articulated(const Model& m, Arena& arena, const S* q, const unsigned char* prescribed,
                       const RightHandSides<S>& r, S* const* outs) {
  const int nv = m.nv;
  const auto articulated = factor_mass<S>(m, arena, q, nullptr, nullptr, prescribed);
  for (int at = 0; at < r.stride; at += r.each)
    for (int c = 0; c < nv; ++c) {
      S* out = outs[at / r.each] + c;
      for (int k = 0; k < nv; ++k) out[k * nv] = articulated.held(k) ? S(0.0) : -r.X[k * r.stride + at + c];
      solve_mass(m, articulated, out, out, nv);
    }
}

// dtau of part i: torques of prescribed velocities, with the free ones accelerating by da; given torques are kept.
template <class S>
void prescribed_torques(const Model& m, const RightHandSides<S>& r, const unsigned char* prescribed, int i, const S* da,
                        S* dtau) {
  const int nv = m.nv;
  const auto given = [&](int k) { return prescribed != nullptr && prescribed[k] != 0; };
  for (int k = 0; k < nv; ++k)
    for (int c = 0; c < nv; ++c) {
      S sum(i == 3 && k == c && !given(k) ? 1.0 : 0.0);
      if (given(k)) {
        sum = r.torques[k * r.stride + r.start[i] + c];
        for (const Model::Link& link : m.links)
          for (int l = link.iv; l < link.iv + link.nv; ++l)
            if (!given(l)) sum = mul_add(r.M[k * r.stride + l], da[l * nv + c], sum);
      }
      dtau[k * nv + c] = sum;
    }
}

// a, tau: as for hybrid_dynamics. Rows of da_* are those of free velocities, rows of dtau_* those of prescribed ones;
// columns of *_da are those of prescribed ones, columns of *_dtau those of free ones; all else is zero, except for the
// ones of quantities that pass through: da_da on prescribed velocities and dtau_dtau on free ones.
template <class S>
void hybrid_dynamics_derivatives(const Model& m, Arena& arena, const S* q, const S* v, const S* f_ext, int axes,
                                 const unsigned char* prescribed, S* a, S* tau, const HybridBlocks<S>& d) {
  const int nv = m.nv;
  if (nv == 0) return;
  S* const das[] = {d.da_dq, d.da_dv, d.da_da, d.da_dtau};
  S* const dtaus[] = {d.dtau_dq, d.dtau_dv, d.dtau_da, d.dtau_dtau};
  S* solutions[4];  // of the right-hand sides, in their order
  bool wanted[4];
  int count = 0;
  for (int i = 0; i < 4; ++i) {
    wanted[i] = das[i] != nullptr || dtaus[i] != nullptr;
    if (wanted[i]) solutions[count++] = das[i] != nullptr ? das[i] : arena.get<S>(nv * nv);
  }
  const SolvedMotion<S> s = m.depth > kDeep
                                ? articulated_motion(m, arena, q, v, f_ext, axes, prescribed, a, tau)
                                : solve_motion(m, arena, q, v, f_ext, axes, prescribed, tau, a, arena.get<S>(nv));
  if (count == 0) return;
  const RightHandSides<S> r = right_hand_sides(m, arena, s, axes, prescribed, wanted);
  if (s.inverse)
    s.inverse->multiply_negated(arena, r.X, r.stride, solutions);
  else
    solve_articulated(m, arena, q, prescribed, r, solutions);
  for (int i = 0; i < 4; ++i) {
    if (!wanted[i]) continue;
    S* da = solutions[r.start[i] / r.each];
    if (dtaus[i] != nullptr) prescribed_torques(m, r, prescribed, i, da, dtaus[i]);
    for (int k = 0; i == 2 && prescribed != nullptr && k < nv; ++k)
      if (prescribed[k] != 0) da[k * nv + k] = S(1.0);
  }
}

}  // namespace torsor
