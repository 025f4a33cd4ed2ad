// First derivatives of inverse dynamics. Singh 2022, eqs. (7)-(10) and the forward pass of Alg. 1, for every joint.
// Columns and motions: tree/motions.hpp.
#pragma once
#include "tree/motions.hpp"

namespace torsor {

// dq, dv, M: nv x nv, rows `stride` apart; any may be null. Entries between branches are not written.
template <class S>
void pair_columns(const Model& m, Arena& arena, const Motions<S>& all, const WorldWrench<S>* wrenches, int axes, S* dq,
                  S* dv, S* M, int stride) {
  using V = Wide<S>;
  Path<DerivativeColumn, S> path(m, arena, all.columns);
  for (int i = m.n() - 1; i >= 0; --i) {
    path.enter(i);
    const Model::Link& link = m.links[i];
    const auto& b = all.bodies[i];
    const int count = link.above + link.nv;
    for (int k = 0; k < link.nv; ++k) {
      const int r = link.iv + k;
      const auto& d = all.columns[r];
      const auto IS = lift<V>(b.I * d.S_);
      const auto BS = lift<V>(transposed(b.B, d.S_));
      Force<S> lag = zero_force<S>(), back = lag;
      if (wrenches != nullptr) {
        lag = wrenches[i].lag(axes, d.S_);
        back = wrenches[i].transposed_lag(axes, d.S_);
      }
      const auto Fq = lift<V>(b.B * d.Psidot + b.I * d.Psiddot + cross(d.S_, b.f) + lag);
      const auto Fv = lift<V>(b.B * d.S_ + b.I * d.Vdot);
      // This row against the columns of the body and of those above it; and the other way round.
      for (int t = 0; t < count; t += path.width) {
        const auto& e = path.at(t);
        if (dq != nullptr) {
          V row = dot_add(BS, e.Psidot.w, dot(e.Psiddot, IS));
          if (wrenches != nullptr) row += dot(e.S_, lift<V>(back));
          path.put_row(row, t, count, dq + r * stride);
          path.put_column(dot(e.S_, Fq), t, link.above, dq + r, stride);
        }
        if (dv != nullptr) {
          path.put_row(dot_add(BS, e.S_.w, dot(e.Vdot, IS)), t, count, dv + r * stride);
          path.put_column(dot(e.S_, Fv), t, link.above, dv + r, stride);
        }
        if (M != nullptr) {
          const V both = dot(e.S_, IS);
          path.put_row(both, t, count, M + r * stride);
          path.put_column(both, t, link.above + k, M + r, stride);
        }
      }
    }
    const Model::Body& body = m.bodies[i];
    if (body.general >= 0 && dq != nullptr) {  // R_jk . f
      const auto& g = all.general[body.general];
      const Force<S> f{transposed(b.R, cross_add(b.f.f, b.p, b.f.n)), transposed(b.R, b.f.f)};
      for (int j = 0; j < body.nv; ++j)
        for (int k = 0; k < body.nv; ++k) dq[(body.iv + j) * stride + body.iv + k] += dot(g.ds[body.nv * j + k], f);
    }
  }
  for (int k = 0; M != nullptr && all.armature != nullptr && k < m.nv; ++k) M[k * (stride + 1)] += all.armature[k];
}

// dq, dv, M: nv x nv, row-major; any may be null.
template <class S>
void inverse_dynamics_derivatives(const Model& m, Arena& arena, const S* q, const S* v, const S* a, const S* f_ext,
                                  int axes, S* dq, S* dv, S* M) {
  const Motions<S> all = motions(m, arena, q, v, a);
  const auto* wrenches = sum_subtrees(m, arena, all.bodies, f_ext, axes);
  for (S* matrix : {dq, dv, M})
    for (int k = 0; matrix != nullptr && k < m.nv * m.nv; ++k) matrix[k] = S(0.0);
  pair_columns(m, arena, all, wrenches, axes, dq, dv, M, m.nv);
}

}  // namespace torsor
