// First derivatives of forward and hybrid dynamics, from those of inverse dynamics at the accelerations found.
//
// With f the velocities of given torque and p those of prescribed acceleration, tau = ID(q, v, a) differentiated gives
//   da_f = M_ff^-1 (dtau_f - M_fp da_p - ID_q,f dq - ID_v,f dv),   dtau_p = M_pf da_f + M_pp da_p + ID_q,p dq + ID_v,p dv,
// of which forward dynamics is the case without p (Kim 2012, Table 7, in matrices). M_ff is factored as L^T D L, which keeps the
// zeros between branches (Featherstone 2008), or, for deep trees, by articulated bodies (mass_solve.hpp): O(n) for each column.
#pragma once
#include <cstddef>

#include "inverse_dynamics_derivatives.hpp"
#include "mass_solve.hpp"

namespace torsor {

constexpr int kDeep = 48;  // velocities on one path above which articulated bodies solve faster

// The tree of the free velocities: order parents first, and each one's nearest free one above it (-1: none).
struct FreeVelocities {
  int* order;
  int* above;
  int count, depth;
};
inline FreeVelocities free_velocities(const Model& m, Arena& arena, const unsigned char* prescribed) {
  FreeVelocities t{arena.get<int>(m.nv), arena.get<int>(m.nv), 0, 0};
  int* last = arena.get<int>(m.n());  // free velocity nearest to each body
  int* level = arena.get<int>(m.nv);
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    int up = body.parent >= 0 ? last[body.parent] : -1;
    for (int k = body.iv; k < body.iv + body.nv; ++k) {
      if (prescribed != nullptr && prescribed[k] != 0) continue;
      level[k] = up >= 0 ? level[up] + 1 : 1;
      if (level[k] > t.depth) t.depth = level[k];
      t.order[t.count++] = k;
      t.above[k] = up;
      up = k;
    }
    last[i] = up;
  }
  return t;
}

// H = L^T D L in place: D on the diagonal, L below it.
template <class S>
void factor_tree(const FreeVelocities& t, int nv, S* H) {
  for (int o = t.count - 1; o >= 0; --o) {
    const int k = t.order[o];
    const S inverse = S(1.0) / H[k * nv + k];
    for (int i = t.above[k]; i >= 0; i = t.above[i]) {
      const S l = H[k * nv + i] * inverse;
      for (int j = i; j >= 0; j = t.above[j]) H[i * nv + j] = mul_add(-l, H[k * nv + j], H[i * nv + j]);
      H[k * nv + i] = l;
    }
  }
}
// X = H^-1 X for `columns` columns; rows of free velocities only, `stride` apart.
template <class S>
void solve_tree(const FreeVelocities& t, int nv, const S* H, S* X, std::ptrdiff_t columns, std::ptrdiff_t stride) {
  const auto subtract = [&](const S& l, const S* from, S* to) {
    const S minus = -l;
    for (std::ptrdiff_t c = 0; c < columns; ++c) to[c] = mul_add(minus, from[c], to[c]);
  };
  for (int o = t.count - 1; o >= 0; --o) {
    const int k = t.order[o];
    for (int i = t.above[k]; i >= 0; i = t.above[i]) subtract(H[k * nv + i], X + k * stride, X + i * stride);
  }
  for (int o = 0; o < t.count; ++o) {
    const int k = t.order[o];
    const S inverse = S(1.0) / H[k * nv + k];
    for (std::ptrdiff_t c = 0; c < columns; ++c) X[k * stride + c] = X[k * stride + c] * inverse;
    for (int i = t.above[k]; i >= 0; i = t.above[i]) subtract(H[k * nv + i], X + i * stride, X + k * stride);
  }
}

// The mass matrix of the free velocities, factored.
template <class S>
struct FreeMass {
  FreeVelocities t;
  bool deep;
  S* H;                       // L^T D L
  MassFactor<S> articulated;  // of deep trees, instead
  // X = M_ff^-1 X for `columns` columns; rows of free velocities only, `stride` apart.
  void solve(const Model& m, S* X, std::ptrdiff_t columns, std::ptrdiff_t stride) const {
    if (!deep)
      solve_tree(t, m.nv, H, X, columns, stride);
    else
      for (std::ptrdiff_t c = 0; c < columns; ++c) solve_mass(m, articulated, X + c, X + c, stride);
  }
};
template <class S>
FreeMass<S> factor_free_mass(const Model& m, Arena& arena, const S* q, const S* M, const unsigned char* prescribed) {
  FreeMass<S> f{free_velocities(m, arena, prescribed), false, nullptr, {}};
  f.deep = f.t.depth > kDeep;
  if (f.deep) {
    f.articulated = factor_mass<S>(m, arena, q, nullptr, nullptr, prescribed);
  } else {
    const int size = m.nv * m.nv;
    f.H = arena.get<S>(size);
    for (int k = 0; k < size; ++k) f.H[k] = M[k];
    factor_tree(f.t, m.nv, f.H);
  }
  return f;
}

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
  const int nv = m.nv, size = nv * nv;
  hybrid_dynamics(m, arena, q, v, body_wrenches(m, arena, q, axes, f_ext), prescribed, a, tau);
  const bool wants_q = d.da_dq || d.dtau_dq, wants_v = d.da_dv || d.dtau_dv;
  S* Dq = wants_q ? (d.da_dq ? d.da_dq : arena.get<S>(size)) : nullptr;
  S* Dv = wants_v ? (d.da_dv ? d.da_dv : arena.get<S>(size)) : nullptr;
  S* M = arena.get<S>(size);
  inverse_dynamics_derivatives(m, arena, q, v, a, f_ext, axes, Dq, Dv, M);
  const auto given = [&](int k) { return prescribed != nullptr && prescribed[k] != 0; };
  const FreeMass<S> mass = factor_free_mass(m, arena, q, M, prescribed);
  const FreeVelocities& t = mass.t;
  bool some_given = false;
  for (int k = 0; k < nv; ++k) some_given = some_given || given(k);
  // X <- -M_ff^-1 X_f, rows of prescribed velocities cleared
  const auto solve_negated = [&](S* X) {
    for (int k = 0; k < nv; ++k)
      for (int c = 0; c < nv; ++c) X[k * nv + c] = given(k) ? S(0.0) : -X[k * nv + c];
    mass.solve(m, X, nv, nv);
  };
  // Y_p = X0_p + M_pf Z_f: torques of prescribed velocities from a derivative Z of the free accelerations
  const auto torques = [&](const S* X0, const S* Z, S* Y) {
    for (int k = 0; k < nv; ++k)
      for (int c = 0; c < nv; ++c) {
        S sum(0.0);
        if (given(k)) {
          if (X0 != nullptr) sum = X0[k * nv + c];
          for (int o = 0; o < t.count; ++o) sum = mul_add(M[k * nv + t.order[o]], Z[t.order[o] * nv + c], sum);
        }
        Y[k * nv + c] = sum;
      }
  };
  S* copy = some_given ? arena.get<S>(size) : nullptr;
  const auto by_state = [&](S* D, S* dtau) {
    if (dtau != nullptr && some_given)
      for (int k = 0; k < size; ++k) copy[k] = D[k];
    solve_negated(D);
    if (dtau != nullptr) torques(copy, D, dtau);
  };
  if (wants_q) by_state(Dq, d.dtau_dq);
  if (wants_v) by_state(Dv, d.dtau_dv);
  if (d.da_da || d.dtau_da) {
    S* Z = d.da_da ? d.da_da : arena.get<S>(size);
    for (int k = 0; k < nv; ++k)
      for (int c = 0; c < nv; ++c) Z[k * nv + c] = given(c) ? M[k * nv + c] : S(0.0);
    by_state(Z, d.dtau_da);
    for (int k = 0; k < nv; ++k)
      if (given(k)) Z[k * nv + k] = S(1.0);
  }
  if (d.da_dtau || d.dtau_dtau) {
    S* Z = d.da_dtau ? d.da_dtau : arena.get<S>(size);
    for (int k = 0; k < nv; ++k)
      for (int c = 0; c < nv; ++c) Z[k * nv + c] = S(k == c && !given(k) ? -1.0 : 0.0);
    solve_negated(Z);
    if (d.dtau_dtau != nullptr) {
      torques(nullptr, Z, d.dtau_dtau);
      for (int k = 0; k < nv; ++k)
        if (!given(k)) d.dtau_dtau[k * nv + k] = S(1.0);
    }
  }
}

}  // namespace torsor
