// Forward dynamics under constraints for models with couplings: rows of the tree in reduced coordinates, G_R = G P, and
// the reduced mass matrix (docs/derivations/constraints.md, 3, and hyper_reduced.md).
#include "bind/coupled.hpp"
#include "constraints/constrained_dynamics.hpp"

namespace torsor {
namespace {

// G_R, Y = M_R^-1 G_R^T and D = G_R Y at a state.
template <class S>
struct ReducedRows {
  int rows;
  S *G, *Y;  // rows x nR, nR x rows
  ReducedMass<S> mass;
  Delassus<S> D;
};

template <class S>
ReducedRows<S> reduced_rows(const Model& m, Arena& arena, const Options& options, const Lifted<S>& at,
                            const TangentMatrix<S>& P, const S* t) {
  static const TreeKernel jacobian("constraint_jacobian");
  const int rows = options.constraints->rows, nr = m.coupling->nv();
  S *full = arena.get<S>(rows * m.nv), *G = zeros<S>(arena, rows * nr), *Y = arena.get<S>(nr * rows);
  jacobian.operator()<S>(m, arena, options, {at.q, nullptr, t, nullptr}, {full});
  add_times(rows, full, P, G);
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < nr; ++k) Y[k * rows + r] = G[r * nr + k];
  const ReducedMass<S> mass = factor_reduced_mass<S>(m, arena, P, at.q, nullptr);
  mass.solve(arena, rows, Y);
  Delassus<S> D(arena, rows);
  std::fill_n(D.matrix(), std::size_t(rows) * D.stride(), S(0.0));
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < nr; ++k)
      for (int s = r; s < rows; ++s) {
        S& to = D.matrix()[r * D.stride() + s];
        to = mul_add(G[r * nr + k], Y[k * rows + s], to);
      }
  D.factor(options.compliance);
  return {rows, G, Y, mass, D};
}

// Accelerations and multipliers: D lambda = -(gamma + 2 alpha gdot + beta^2 g) at the accelerations a0 without rows,
// and a = a0 + Y lambda.
template <class S>
ReducedRows<S> solve_reduced_constrained(const Model& m, Arena& arena, const Options& options, const S* q, const S* v,
                                         const S* t, const S* tau, const S* f_ext, S* a, S* lambda) {
  static const TreeKernel errors("constraint_errors");
  const int nr = m.coupling->nv(), rows = options.constraints->rows;
  reduced_hybrid_dynamics<S>(m, arena, options, q, v, f_ext, nullptr, a, const_cast<S*>(tau));
  const Lifted<S> at = lift_state<S>(m, arena, q, v, a, 2);
  const TangentMatrix<S> P = tangent_map(at.terms, arena);
  ReducedRows<S> found = reduced_rows<S>(m, arena, options, at, P, t);
  S *g = arena.get<S>(rows), *gdot = arena.get<S>(rows), *b = arena.get<S>(rows), *squares = arena.get<S>(rows);
  errors.operator()<S>(m, arena, options, {at.q, at.v, t, at.a}, {g, gdot, b});
  const S first(2.0 * options.alpha), zeroth(options.beta * options.beta);
  for (int r = 0; r < rows; ++r) {
    const S along_v = first * gdot[r], along_q = zeroth * g[r];
    squares[r] = b[r] * b[r] + along_v * along_v + along_q * along_q;
    for (int k = 0; k < nr; ++k) {
      const S part = found.G[r * nr + k] * a[k];
      squares[r] = mul_add(part, part, squares[r]);
    }
    b[r] = -(b[r] + along_v + along_q);
  }
  found.D.solve(b, lambda);
  if (any(found.D.any_skipped())) found.D.note_contradictions(b, squares, lambda);
  for (int k = 0; k < nr; ++k)
    for (int r = 0; r < rows; ++r) a[k] = mul_add(found.Y[k * rows + r], lambda[r], a[k]);
  return found;
}

struct ReducedConstrainedDynamics {
  static constexpr const char* name = "constrained_forward_dynamics";
  static constexpr int inputs = 5, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstrainedDynamics>(m, options, in, out);
    reduce_slots(m, "qv-x-", "f--", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const ReducedRows<S> found =
        solve_reduced_constrained<S>(m, arena, options, in[0], in[1], in[2], in[3], in[4], out[0], out[1]);
    *out[2] = found.D.rank();
  }
};

// With x one of q, v and tau, and c = gamma + 2 alpha gdot + beta^2 g,
//   M da/dx = dtau/dx - ID_x + d(G^T lambda)/dx + G^T dlambda/dx    G da/dx = -c_x - compliance dlambda/dx
// Multipliers of rows that depend on others are those of least norm, N^T lambda = 0 with G^T N = 0, whose rate in the
// null space is N N^T dG y, y = M^-1 G^T D^+ lambda.
struct ReducedConstrainedDerivatives {
  static constexpr const char* name = "constrained_forward_dynamics_derivatives";
  static constexpr int inputs = 5, outputs = 6;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstrainedDerivatives>(m, options, in, out);
    reduce_slots(m, "qv-x-", "mmmccc", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const TreeKernel first("inverse_dynamics_derivatives"), stiffness("constraint_stiffness");
    const int nr = m.coupling->nv(), rows = options.constraints->rows, nv = m.nv;
    S *a = arena.get<S>(nr), *lambda = arena.get<S>(rows);
    const ReducedRows<S> at =
        solve_reduced_constrained<S>(m, arena, options, in[0], in[1], in[2], in[3], in[4], a, lambda);
    const ChainedState<S> s = chained_state<S>(m, arena, in[0], in[1], a);
    // ID - G^T lambda as one generalized force of the tree
    S *A_q = arena.get<S>(nv * nv), *A_v = arena.get<S>(nv * nv), *M = arena.get<S>(nv * nv),
      *K = arena.get<S>(nv * nv);
    first.operator()<S>(m, arena, options, {s.tree.q, s.tree.v, s.tree.a, in[4]}, {A_q, A_v, M});
    stiffness.operator()<S>(m, arena, options, {s.tree.q, lambda, in[2], nullptr}, {K});
    for (int k = 0; k < nv * nv; ++k) A_q[k] -= K[k];
    const TreeRows<S> rows_at = tree_rows(m, arena, options, s.tree, in[2]);
    S* force = tree_forces(m, arena, options, s.tree, in[4]);
    for (int r = 0; r < rows; ++r) add_scaled(nv, -lambda[r], rows_at.G + r * nv, force);
    S* X[3];
    for (S*& one : X) one = arena.get<S>(nr * nr);
    chain_forces<S>(s, arena, A_q, A_v, M, force, X[0], X[1], nullptr);
    // c_q and c_v in reduced coordinates
    S *gq = arena.get<S>(rows * nr), *cq = arena.get<S>(rows * nr), *cv = arena.get<S>(rows * nr);
    chain_columns<S>(s, rows, rows_at.dgdot_dq, rows_at.G, nullptr, gq, nullptr, nullptr);
    chain_columns<S>(s, rows, rows_at.dgamma_dq, rows_at.dgamma_dv, rows_at.G, cq, cv, nullptr);
    const S alpha(2.0 * options.alpha), beta(options.beta * options.beta);
    for (int k = 0; k < rows * nr; ++k) {
      cq[k] = mul_add(alpha, gq[k], mul_add(beta, at.G[k], cq[k]));
      cv[k] = mul_add(alpha, at.G[k], cv[k]);
    }
    for (int k = 0; k < nr * nr; ++k) X[2][k] = S(k % (nr + 1) == 0 ? -1.0 : 0.0);
    const S* c[3] = {cq, cv, nullptr};
    const int wide = padded<S>(nr);
    for (int k = 0; k < 3; ++k) {
      if (out[k] == nullptr && out[3 + k] == nullptr) continue;
      for (int i = 0; i < nr * nr; ++i) X[k][i] = -X[k][i];
      at.mass.solve(arena, nr, X[k]);
      S* L = zeros<S>(arena, rows * wide);  // D dlambda = -c_x - G X
      for (int r = 0; r < rows; ++r) {
        if (c[k] != nullptr) add_scaled(nr, S(-1.0), c[k] + r * nr, L + r * wide);
        for (int i = 0; i < nr; ++i) add_scaled(nr, -at.G[r * nr + i], X[k] + i * nr, L + r * wide);
      }
      at.D.solve_columns(L, wide, wide);
      if (out[k] != nullptr) {
        std::copy_n(X[k], nr * nr, out[k]);
        for (int i = 0; i < nr; ++i)
          for (int r = 0; r < rows; ++r) add_scaled(nr, at.Y[i * rows + r], L + r * wide, out[k] + i * nr);
      }
      if (out[3 + k] == nullptr) continue;
      if (k == 0 && any(at.D.any_skipped())) add_null_space(m, arena, options, in[0], in[2], at, lambda, wide, L);
      for (int r = 0; r < rows; ++r) std::copy_n(L + r * wide, nr, out[3 + k] + r * nr);
    }
  }

 private:
  template <class S>
  struct TreeRows {
    S *G, *dgdot_dq, *dgamma_dq, *dgamma_dv;
  };
  template <class S>
  static TreeRows<S> tree_rows(const Model& m, Arena& arena, const Options& options, const Lifted<S>& at, const S* t) {
    static const TreeKernel derivatives("constraint_derivatives"), jacobian("constraint_jacobian");
    const int size = options.constraints->rows * m.nv;
    const TreeRows<S> x{arena.get<S>(size), arena.get<S>(size), arena.get<S>(size), arena.get<S>(size)};
    jacobian.operator()<S>(m, arena, options, {at.q, nullptr, t, nullptr}, {x.G});
    derivatives.operator()<S>(m, arena, options, {at.q, at.v, t, at.a}, {x.dgdot_dq, x.dgamma_dq, x.dgamma_dv});
    return x;
  }
  template <class S>
  static void add_null_space(const Model& m, Arena& arena, const Options& options, const S* q, const S* t,
                             const ReducedRows<S>& at, const S* lambda, int wide, S* L) {
    const int nr = m.coupling->nv(), rows = at.rows;
    S *x = arena.get<S>(rows), *y = zeros<S>(arena, nr), *columns = arena.get<S>(rows * nr),
      *B = zeros<S>(arena, rows * wide);
    at.D.solve(lambda, x);
    for (int k = 0; k < nr; ++k)
      for (int r = 0; r < rows; ++r) y[k] = mul_add(at.Y[k * rows + r], x[r], y[k]);
    const ChainedState<S> s = chained_state<S>(m, arena, q, y, nullptr);
    const TreeRows<S> moved = tree_rows(m, arena, options, s.tree, t);
    chain_columns<S>(s, rows, moved.dgdot_dq, moved.G, nullptr, columns, nullptr, nullptr);
    for (int r = 0; r < rows; ++r) std::copy_n(columns + r * nr, nr, B + r * wide);
    at.D.project_on_null_space(B, wide, wide);
    add_scaled(rows * wide, S(1.0), B, L);
  }
};

}  // namespace

void bind_coupled_constraints(Kernels& kernels) {
  kernels.add_coupled<ReducedConstrainedDynamics>("constrained_forward_dynamics");
  kernels.add_coupled<ReducedConstrainedDerivatives>("constrained_forward_dynamics_derivatives");
}

}  // namespace torsor
