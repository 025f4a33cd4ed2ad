// The formulas of an implicit stage: a node from its coordinates in the chart, and its derivatives by all nodes.
#pragma once
#include "integrators/table.hpp"
#include "model/retraction.hpp"

namespace torsor {

// s = c (xi - sum_j z_j x_j), then v = J(xi) s and q, and a = c (v - w v_0 - sum_j z_j v_j), xi and x_j being
// coordinates in the chart at q0. False in lanes where the node turns too far.
template <class S>
Mask<S> place_node(const Model& m, const std::vector<int>& quaternions, const Stage& stage, const S* q0, const S* v0,
                   const S* const* x, const S* const* others_v, const S* xi, S* s, S* q, S* v, S* a) {
  const Mask<S> good = retract(m, q0, xi, q);
  for (int k = 0; k < m.nv; ++k) {
    S sum = xi[k];
    for (std::size_t j = 0; j < stage.others.size(); ++j) sum = sum - S(stage.others[j].z) * x[j][k];
    v[k] = s[k] = S(stage.c) * sum;
  }
  for (int i : quaternions) {
    const Model::Body& body = m.bodies[i];
    const int n = body.nv;
    const ChartTerms<S> at = chart_terms<S>(body.kind, &xi[body.iv], nullptr);
    for (int r = 0; r < n; ++r) {
      S sum(0.0);
      for (int k = 0; k < n; ++k) sum = mul_add(at.J.x[n * r + k], s[body.iv + k], sum);
      v[body.iv + r] = sum;
    }
  }
  for (int k = 0; k < m.nv; ++k) {
    S sum = v[k] - S(stage.w) * v0[k];
    for (std::size_t j = 0; j < stage.others.size(); ++j) sum = sum - S(stage.others[j].z) * others_v[j][k];
    a[k] = S(stage.c) * sum;
  }
  return good;
}

// Derivatives of v by the tangents of the new node, of the first one and of the others: V1, V0 and V_j; and J^-1. With
// dxi = J^-1 delta1 - B delta0 and the same for x_j,
//   V1 = (c J + T) J^-1,   V0 = -(c J + T) B + sum_j c z_j J B(x_j),   V_j = -c z_j J J^-1(x_j).
template <class S>
struct StageTerms {
  BlockDiagonal<S> V1, inverse, V0;
  std::vector<BlockDiagonal<S>> V;

  // `history`: whether V0 and V_j are asked for.
  void evaluate(const Model& m, const std::vector<int>& quaternions, const Stage& stage, const S* xi, const S* s,
                const S* const* x, bool history) {
    const double c = stage.c;
    V1.scalar = S(c);
    inverse.scalar = S(1.0);
    V1.blocks.resize(quaternions.size());
    inverse.blocks.resize(quaternions.size());
    if (history) {
      double sum = 0.0;
      V.resize(stage.others.size());
      V0.blocks.resize(quaternions.size());
      for (std::size_t j = 0; j < V.size(); ++j) {
        sum += stage.others[j].z;
        V[j].scalar = S(-c * stage.others[j].z);
        V[j].blocks.resize(quaternions.size());
      }
      V0.scalar = S(c * (sum - 1.0));
    }
    for (std::size_t b = 0; b < quaternions.size(); ++b) {
      const Model::Body& body = m.bodies[quaternions[b]];
      const int n = body.nv;
      const ChartTerms<S> at = chart_terms(body.kind, &xi[body.iv], &s[body.iv]);
      Block<S> cJT;
      for (int k = 0; k < n * n; ++k) cJT.x[k] = mul_add(S(c), at.J.x[k], at.T.x[k]);
      multiply(n, S(1.0), cJT, at.inverse, V1.blocks[b], false);
      inverse.blocks[b] = at.inverse;
      if (!history) continue;
      multiply(n, S(-1.0), cJT, at.B, V0.blocks[b], false);
      for (std::size_t j = 0; j < V.size(); ++j) {
        const S cz(c * stage.others[j].z);
        const ChartTerms<S> other = chart_terms<S>(body.kind, &x[j][body.iv], nullptr);
        multiply(n, cz, at.J, other.B, V0.blocks[b], true);
        multiply(n, -cz, at.J, other.inverse, V[j].blocks[b], false);
      }
    }
  }
};

}  // namespace torsor
