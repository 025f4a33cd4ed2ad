// Derivatives of functions of a coupled model from those of its tree, by the chain rule. With Pdot = phi''[v_R] and
// Pddot = phi''[a_R] + phi'''[v_R, v_R],
//   dv/dq_R = Pdot    da/dq_R = Pddot    da/dv_R = 2 Pdot
// docs/derivations/hyper_reduced.md.
#pragma once
#include "model/coupling.hpp"

namespace torsor {

// A state of the tree, the reduced one that it comes from, and the derivatives of the one with respect to the other.
template <class S>
struct ChainedState {
  Lifted<S> tree;
  const S *z, *v, *a;
  TangentMatrix<S> P, Pdot, Pddot;
  const BlockTerms<S>& terms() const { return tree.terms; }
  const Coupling& coupling() const { return tree.terms.coupling; }
};
template <class S>
ChainedState<S> chained_state(const Model& m, Arena& arena, const S* z, const S* v, const S* a) {
  const Lifted<S> tree = lift_state(m, arena, z, v, a, 3);
  return {tree,
          z,
          v,
          a,
          tangent_map(tree.terms, arena),
          tangent_rate<S>(tree.terms, arena, v),
          tangent_rate(tree.terms, arena, a, v)};
}

// Derivatives of n numbers: Y_q = X_q P + X_v Pdot + X_a Pddot, Y_v = X_v P + 2 X_a Pdot, Y_a = X_a P. Inputs that are
// null are zero, and outputs that are null are not computed.
template <class S>
void chain_columns(const ChainedState<S>& s, int n, const S* Xq, const S* Xv, const S* Xa, S* Yq, S* Yv, S* Ya) {
  const int size = n * s.coupling().nv();
  for (S* Y : {Yq, Yv, Ya})
    for (int k = 0; Y != nullptr && k < size; ++k) Y[k] = S(0.0);
  if (Yq != nullptr) {
    add_times(n, Xq, s.P, Yq);
    if (Xv != nullptr) add_times(n, Xv, s.Pdot, Yq);
    if (Xa != nullptr) add_times(n, Xa, s.Pddot, Yq);
  }
  if (Yv != nullptr) {
    add_times(n, Xv, s.P, Yv);
    if (Xa != nullptr) add_times(n, Xa, s.Pdot, Yv, 2.0);
  }
  if (Ya != nullptr) add_times(n, Xa, s.P, Ya);
}

// The same of generalized forces tau of the tree, which are pulled back: nv x nv matrices give nR x nR ones, and the
// one with respect to q has phi''.tau in addition.
template <class S>
void chain_forces(const ChainedState<S>& s, Arena& arena, const S* Xq, const S* Xv, const S* Xa, const S* tau, S* Yq,
                  S* Yv, S* Ya) {
  const Coupling& c = s.coupling();
  const int nv = static_cast<int>(c.start.size()) - 1, nr = c.nv();
  S* half[3];
  S* out[3] = {Yq, Yv, Ya};
  for (int k = 0; k < 3; ++k) half[k] = out[k] != nullptr ? arena.get<S>(nv * nr) : nullptr;
  chain_columns(s, nv, Xq, Xv, Xa, half[0], half[1], half[2]);
  for (int k = 0; k < 3; ++k) {
    if (out[k] == nullptr) continue;
    for (int i = 0; i < nr * nr; ++i) out[k][i] = S(0.0);
    add_transposed_times(nr, s.P, half[k], out[k]);
  }
  if (Yq != nullptr) add_curvature(s.terms(), arena, tau, Yq);
}

// Gradients with respect to a reduced state from those with respect to the tree's, g_q, g_v and g_a (null: zero). For
// w. (P^T tau), whose weights on the tree are P w, `tau` and `w` give the rest of the gradient with respect to q.
template <class S>
void chain_gradients(const ChainedState<S>& s, Arena& arena, const S* g_q, const S* g_v, const S* g_a, const S* tau,
                     const S* w, S* q, S* v, S* a) {
  const int nr = s.coupling().nv();
  for (S* out : {q, v, a})
    for (int k = 0; out != nullptr && k < nr; ++k) out[k] = S(0.0);
  if (q != nullptr) {
    add_pulled(s.P, g_q, q);
    if (g_v != nullptr) add_pulled(s.Pdot, g_v, q);
    if (g_a != nullptr) add_pulled(s.Pddot, g_a, q);
    if (w != nullptr) add_pulled(tangent_rate<S>(s.terms(), arena, w), tau, q);
  }
  if (v != nullptr) {
    add_pulled(s.P, g_v, v);
    if (g_a != nullptr) add_pulled(s.Pdot, g_a, v, 2.0);
  }
  if (a != nullptr) add_pulled(s.P, g_a, a);
}

// C += s A^T B, A n x m and B n x k.
template <class S>
void add_product_of_transpose(int n, int m, int k, const S* A, const S* B, S* C, double s = 1.0) {
  for (int r = 0; r < n; ++r)
    for (int i = 0; i < m; ++i) add_scaled(k, S(s) * A[r * m + i], B + r * k, C + i * k);
}

// Second derivatives of w_R . tau_R from those of the tree contracted with P w_R: hqq, hqv, hvv, hvq (nv x nv; h.aq has
// accelerations first), first derivatives A_q, A_v, M of tau, gradients g_q, g_v, g_a of w . tau, and tau itself. Any
// of the outputs qq, qv, vv, aq (nR x nR) may be null.
template <class S>
struct TreeSecondOrder {
  const S *qq, *qv, *vv, *aq;  // contracted
  const S *A_q, *A_v, *M;      // first derivatives
  const S *g_q, *g_v, *g_a;    // of w . tau
  const S* tau;
};
template <class S>
void chain_hessians(const ChainedState<S>& s, Arena& arena, const TreeSecondOrder<S>& h, const S* w, S* qq, S* qv,
                    S* vv, S* aq) {
  const Coupling& c = s.coupling();
  const int nv = static_cast<int>(c.start.size()) - 1, nr = c.nv(), size = nr * nr;
  const bool bent = !c.is_linear();
  for (S* out : {qq, qv, vv, aq})
    for (int k = 0; out != nullptr && k < size; ++k) out[k] = S(0.0);
  const auto times = [&](const S* X, const TangentMatrix<S>& T) {  // X T, nv x nr
    S* Y = zeros<S>(arena, nv * nr);
    add_times(nv, X, T, Y);
    return Y;
  };
  const auto transposed = [&](const S* X) {
    S* Y = arena.get<S>(nv * nv);
    for (int i = 0; i < nv; ++i)
      for (int j = 0; j < nv; ++j) Y[j * nv + i] = X[i * nv + j];
    return Y;
  };
  if (!bent) {
    const auto both = [&](const S* X, S* out) {
      if (out != nullptr) add_transposed_times(nr, s.P, times(X, s.P), out);
    };
    both(h.qq, qq);
    both(h.qv, qv);
    both(h.vv, vv);
    both(h.aq, aq);
    return;
  }
  const TangentMatrix<S> W = tangent_rate<S>(s.terms(), arena, w);
  const S* aqP = qq != nullptr || qv != nullptr || aq != nullptr ? times(h.aq, s.P) : nullptr;
  // Y_a = Mq P + M W, nv x nr: the rate of M w along q_R
  S* Ya = nullptr;
  if (qv != nullptr || aq != nullptr) {
    Ya = times(h.M, W);
    for (int k = 0; k < nv * nr; ++k) Ya[k] += aqP[k];
  }
  if (qq != nullptr) {
    // X P + P^T X^T of what is not symmetric by itself
    S* half = times(h.qq, s.P);
    add_transposed_times(nr, s.P, half, qq);
    S* mixed = zeros<S>(arena, size);
    add_transposed_times(nr, s.P, times(h.qv, s.Pdot), mixed);
    add_transposed_times(nr, s.Pddot, aqP, mixed);
    S* X = zeros<S>(arena, nv * nr);
    add_times(nv, h.A_q, s.P, X);
    add_times(nv, h.A_v, s.Pdot, X);
    add_times(nv, h.M, s.Pddot, X);
    add_transposed_times(nr, W, X, mixed);
    for (int i = 0; i < nr; ++i)
      for (int j = 0; j < nr; ++j) qq[i * nr + j] += mixed[i * nr + j] + mixed[j * nr + i];
    add_transposed_times(nr, s.Pdot, times(h.vv, s.Pdot), qq);
    add_curvature(s.terms(), arena, h.g_q, qq);
    add_curvature<S>(s.terms(), arena, 3, h.g_v, s.v, nullptr, qq);
    add_curvature<S>(s.terms(), arena, 3, h.g_a, s.a, nullptr, qq);
    add_curvature<S>(s.terms(), arena, 3, h.tau, w, nullptr, qq);
    add_curvature<S>(s.terms(), arena, 4, h.g_a, nullptr, fourth_terms(s.terms(), arena, s.z, s.v), qq);
  }
  if (qv != nullptr) {
    S* Yv = times(transposed(h.qv), s.P);  // Hqv^T P + Hvv Pdot + A_v^T W
    add_times(nv, h.vv, s.Pdot, Yv);
    add_times(nv, transposed(h.A_v), W, Yv);
    S* vq = zeros<S>(arena, size);
    add_transposed_times(nr, s.P, Yv, vq);
    add_transposed_times(nr, s.Pdot, Ya, vq, 2.0);
    add_curvature(s.terms(), arena, h.g_v, vq);
    add_curvature<S>(s.terms(), arena, 3, h.g_a, s.v, nullptr, vq, 2.0);
    for (int i = 0; i < nr; ++i)
      for (int j = 0; j < nr; ++j) qv[i * nr + j] = vq[j * nr + i];
  }
  if (vv != nullptr) {
    add_transposed_times(nr, s.P, times(h.vv, s.P), vv);
    add_curvature(s.terms(), arena, h.g_a, vv, 2.0);
  }
  if (aq != nullptr) {
    add_transposed_times(nr, s.P, Ya, aq);
    add_curvature(s.terms(), arena, h.g_a, aq);
  }
}

// A reduced state and weights on its generalized forces; and what they are multiplied with in a gradient: the gradients
// of w . tau with respect to the tree's q, v and a, and tau.
template <class S>
struct WeightedState {
  const S *z, *v, *a, *w;
};
template <class S>
struct TreeGradients {
  const S *q, *v, *a, *tau;
};

// The derivatives of a user-defined block with respect to one of its parameters, to the second order. In complex
// numbers the imaginary parts, those of a complex step, follow from the next derivatives.
template <class S>
void vary_custom(const Coupling::Block& block, const S* s, int parameter, S* out) {
  constexpr int lanes = Lanes<S>::value;
  constexpr bool complex = std::is_same_v<S, Complex>;
  const int m = block.inputs, size = block.size();
  std::vector<double> in(lanes * m), result(std::size_t(lanes) * size);
  if constexpr (complex) {
    for (int j = 0; j < m; ++j) in[j] = s[j].real();
    block.custom->vary(in.data(), lanes, 3, parameter, result.data());
    const double* next = result.data() + block.outputs;
    for (int k = 0; k < block.at(3) - block.begin; ++k) {
      double rate = 0.0;
      for (int j = 0; j < m; ++j) rate += next[k * m + j] * s[j].imag();
      out[k] = {result[k], rate};
    }
  } else {
    for (int l = 0; l < lanes; ++l)
      for (int j = 0; j < m; ++j) in[l * m + j] = lane_of(s[j], l);
    block.custom->vary(in.data(), lanes, 2, parameter, result.data());
    for (int k = 0; k < size; ++k) out[k] = per_lane<S>([&](int l) { return result[l * size + k]; });
  }
}

// Adds the gradient of g_q . q + g_v . v + g_a . a + tau . (P w), at fixed reduced z, v, a and w, with respect to the
// numbers of the map: for each row its offset and its values, or its scale; then for each block B, constants,
// coefficients and parameters. Terms are to the third order.
template <class S>
void add_number_gradient(const BlockTerms<S>& t, Arena& arena, const WeightedState<S>& at, const TreeGradients<S>& g,
                         S* out) {
  const Coupling& c = t.coupling;
  const auto dot4 = [](const S& a, const S& x, const S& b, const S& y, const S& d, const S& z, const S& e, const S& w) {
    return mul_add(a, x, mul_add(b, y, mul_add(d, z, e * w)));
  };
  // For a block, the four sums over outputs weighted with gradients: what they multiply is f, D1 sdot, D1 sddot +
  // D2[sdot, sdot] and D1 B w.
  struct Rates {
    S *s, *v, *a, *w;
  };
  const auto rates = [&](const Coupling::Block& block) {
    Rates r{arena.get<S>(block.inputs), arena.get<S>(block.inputs), arena.get<S>(block.inputs),
            arena.get<S>(block.inputs)};
    block_inputs(c, block, at.z, r.s);
    block_rates(block, at.v, r.v);
    block_rates(block, at.a, r.a);
    block_rates(block, at.w, r.w);
    return r;
  };
  // The value of output i with these gradients and terms D0, D1, D2.
  const auto value = [&](int m, int i, const Rates& r, const S& q, const S& v, const S& a, const S& tau, const S* D0,
                         const S* D1, const S* D2) {
    S sum = q * D0[i];
    for (int j = 0; j < m; ++j) {
      const S& d = D1[i * m + j];
      sum = mul_add(d, mul_add(v, r.v[j], mul_add(a, r.a[j], tau * r.w[j])), sum);
      for (int k = 0; k < m; ++k) sum = mul_add(a * D2[(i * m + j) * m + k] * r.v[j], r.v[k], sum);
    }
    return sum;
  };
  for (const Coupling::Row& row : c.rows) {
    const S &q = g.q[row.iv], &v = g.v[row.iv], &a = g.a[row.iv], &tau = g.tau[row.iv];
    *out++ += q;
    for (const Coupling::Term& term : row.terms)
      *out++ +=
          dot4(q, at.z[c.position[term.column]], v, at.v[term.column], a, at.a[term.column], tau, at.w[term.column]);
    if (row.block < 0) continue;
    const Coupling::Block& block = c.blocks[row.block];
    *out++ +=
        value(block.inputs, row.output, rates(block), q, v, a, tau, t.of(block, 0), t.of(block, 1), t.of(block, 2));
  }
  for (const Coupling::Block& block : c.blocks) {
    const int m = block.inputs, k = block.outputs, n = static_cast<int>(block.columns.size());
    const Rates r = rates(block);
    S *q = zeros<S>(arena, k), *v = zeros<S>(arena, k), *a = zeros<S>(arena, k), *tau = zeros<S>(arena, k);
    for (int i : block.rows) {
      const Coupling::Row& row = c.rows[i];
      const S scale(row.scale);
      q[row.output] = mul_add(scale, g.q[row.iv], q[row.output]);
      v[row.output] = mul_add(scale, g.v[row.iv], v[row.output]);
      a[row.output] = mul_add(scale, g.a[row.iv], a[row.output]);
      tau[row.output] = mul_add(scale, g.tau[row.iv], tau[row.output]);
    }
    // with respect to s, sdot, sddot and B w
    S *E = zeros<S>(arena, m), *Fv = zeros<S>(arena, m), *Fa = zeros<S>(arena, m), *Fw = zeros<S>(arena, m);
    const S *D1 = t.of(block, 1), *D2 = t.of(block, 2), *D3 = t.of(block, 3);
    for (int i = 0; i < k; ++i)
      for (int j = 0; j < m; ++j) {
        const int at1 = i * m + j;
        E[j] = mul_add(q[i], D1[at1], E[j]);
        Fv[j] = mul_add(v[i], D1[at1], Fv[j]);
        Fa[j] = mul_add(a[i], D1[at1], Fa[j]);
        Fw[j] = mul_add(tau[i], D1[at1], Fw[j]);
        for (int l = 0; l < m; ++l) {
          const S& d = D2[at1 * m + l];
          E[j] = mul_add(d, mul_add(v[i], r.v[l], mul_add(a[i], r.a[l], tau[i] * r.w[l])), E[j]);
          Fv[j] = mul_add(S(2.0) * a[i] * d, r.v[l], Fv[j]);
          for (int p = 0; p < m; ++p) E[j] = mul_add(a[i] * D3[(at1 * m + l) * m + p] * r.v[l], r.v[p], E[j]);
        }
      }
    for (int j = 0; j < m; ++j)
      for (int l = 0; l < n; ++l) {
        const int column = block.columns[l];
        *out++ += dot4(E[j], at.z[c.position[column]], Fv[j], at.v[column], Fa[j], at.a[column], Fw[j], at.w[column]);
      }
    for (int j = 0; j < m; ++j) *out++ += E[j];
    S power[3] = {S(1.0), S(0.0), S(0.0)};  // s^n and its derivatives
    for (std::size_t e = 0; e < block.coefficients.size(); ++e) {
      *out++ += value(1, 0, r, q[0], v[0], a[0], tau[0], power, power + 1, power + 2);
      power[2] = mul_add(power[2], r.s[0], S(2.0) * power[1]);
      power[1] = mul_add(power[1], r.s[0], power[0]);
      power[0] = power[0] * r.s[0];
    }
    S* varied = block.parameters > 0 ? arena.get<S>(block.size()) : nullptr;
    for (int p = 0; p < block.parameters; ++p) {
      vary_custom(block, r.s, p, varied);
      S sum(0.0);
      const int first = block.begin;
      for (int i = 0; i < k; ++i)
        sum += value(m, i, r, q[i], v[i], a[i], tau[i], varied, varied + (block.at(1) - first),
                     varied + (block.at(2) - first));
      *out++ += sum;
    }
  }
}

}  // namespace torsor
