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
  // B += s d(gdot)/dq at the velocity y.
  template <class S>
  static void add_rate_derivatives(const Model& m, Arena& arena, const Options& options, const S* q, const S* t,
                                   const S* y, double s, S* columns, int wide, S* B) {
    const int nr = m.coupling->nv(), rows = options.constraints->rows;
    const ChainedState<S> at = chained_state<S>(m, arena, q, y, nullptr);
    const TreeRows<S> moved = tree_rows(m, arena, options, at.tree, t);
    chain_columns<S>(at, rows, moved.dgdot_dq, moved.G, nullptr, columns, nullptr, nullptr);
    for (int r = 0; r < rows; ++r) add_scaled(nr, S(s), columns + r * nr, B + r * wide);
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
    add_rate_derivatives<S>(m, arena, options, q, t, y, 1.0, columns, wide, B);
    if (options.constraints->depends_on_time())  // without what gdot has at rest
      add_rate_derivatives<S>(m, arena, options, q, t, zeros<S>(arena, nr), -1.0, columns, wide, B);
    at.D.project_on_null_space(B, wide, wide);
    add_scaled(rows * wide, S(1.0), B, L);
  }
};

// A kernel of models with couplings, by the name of the tree's.
class CoupledKernel {
 public:
  explicit CoupledKernel(const char* name) : kernel_(coupled_kernel(name)) {}
  template <class S>
  void operator()(const Model& m, Arena& arena, const Options& options, std::initializer_list<const S*> in,
                  std::initializer_list<S*> out) const {
    if constexpr (std::is_same_v<S, double>)
      kernel_.run(m, arena, options, in.begin(), out.begin());
    else
      kernel_.run_lanes(m, arena, options, in.begin(), out.begin());
  }

 private:
  const Kernel& kernel_;
};

// Gradients of w_a . a + w_lambda . lambda. With nu = D^+ (w_lambda + G M^-1 w_a) and mu = M^-1 (w_a - G^T nu), they
// are those of mu . (tau - ID + G^T lambda) - nu . c and, for rows that depend on others, of (N N^T w_lambda) . (G y).
struct ReducedConstrainedVJP {
  static constexpr const char* name = "constrained_forward_dynamics_vjp";
  static constexpr int inputs = 7, outputs = 9;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstrainedVJP>(m, options, in, out);
    reduce_slots(m, "qv-xx--", "fff------", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const CoupledKernel inverse_vjp("inverse_dynamics_vjp");
    const int nr = m.coupling->nv(), rows = options.constraints->rows;
    S *a = arena.get<S>(nr), *lambda = arena.get<S>(rows), *mu = zeros<S>(arena, nr), *nu = zeros<S>(arena, rows);
    const ReducedRows<S> at =
        solve_reduced_constrained<S>(m, arena, options, in[0], in[1], in[2], in[3], in[6], a, lambda);
    if (in[4] != nullptr) std::copy_n(in[4], nr, mu);
    if (in[5] != nullptr) std::copy_n(in[5], rows, nu);
    at.mass.solve(arena, 1, mu);
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < nr; ++k) nu[r] = mul_add(at.G[r * nr + k], mu[k], nu[r]);
    at.D.solve(nu, nu);
    S *minus_mu = arena.get<S>(nr), *of_a = arena.get<S>(nr);
    for (int k = 0; k < nr; ++k) {
      for (int r = 0; r < rows; ++r) mu[k] = mul_add(-at.Y[k * rows + r], nu[r], mu[k]);
      minus_mu[k] = -mu[k];
    }
    inverse_vjp.operator()<S>(m, arena, options, {in[0], in[1], a, minus_mu, in[6]},
                              {out[0], out[1], of_a, out[3], out[4], out[5], out[6], out[7]});
    if (out[2] != nullptr) std::copy_n(mu, nr, out[2]);
    if (out[8] != nullptr) std::fill_n(out[8], options.constraints->parameters, S(0.0));
    S *of_g = arena.get<S>(rows), *of_gdot = arena.get<S>(rows), *of_gamma = arena.get<S>(rows);
    for (int r = 0; r < rows; ++r) {
      of_g[r] = S(-options.beta * options.beta) * nu[r];
      of_gdot[r] = S(-2.0 * options.alpha) * nu[r];
      of_gamma[r] = -nu[r];
    }
    add_rows<S>(m, arena, options, in[0], in[1], in[2], a, of_g, of_gdot, of_gamma, out, true);
    add_products(m, arena, options, in[0], in[2], mu, lambda, out);
    if (in[5] == nullptr || !any(at.D.any_skipped())) return;
    S *x = arena.get<S>(rows), *y = zeros<S>(arena, nr), *e = arena.get<S>(rows);
    at.D.solve(lambda, x);
    for (int k = 0; k < nr; ++k)
      for (int r = 0; r < rows; ++r) y[k] = mul_add(at.Y[k * rows + r], x[r], y[k]);
    std::copy_n(in[5], rows, e);
    at.D.project_on_null_space(e, 1, 1);
    add_products(m, arena, options, in[0], in[2], y, e, out);
  }

 private:
  // Adds the gradients of weighted g, gdot and gamma, that with respect to v only if `moves`.
  template <class S>
  static void add_rows(const Model& m, Arena& arena, const Options& options, const S* q, const S* v, const S* t,
                       const S* a, const S* of_g, const S* of_gdot, const S* of_gamma, S* const* out, bool moves) {
    static const CoupledKernel vjp("constraint_vjp");
    const int nr = m.coupling->nv(), places = 6 * m.nframes(), numbers = options.constraints->parameters;
    S *g_q = arena.get<S>(nr), *g_v = arena.get<S>(nr), *g_a = arena.get<S>(nr), *place = arena.get<S>(places),
      *parameters = arena.get<S>(numbers);
    vjp.operator()<S>(m, arena, options, {q, v, t, a, of_g, of_gdot, of_gamma}, {g_q, g_v, g_a, place, parameters});
    const auto add = [](int n, const S* x, S* y) {
      if (y != nullptr) add_scaled(n, S(1.0), x, y);
    };
    add(nr, g_q, out[0]);
    if (moves) add(nr, g_v, out[1]);
    add(places, place, out[5]);
    add(numbers, parameters, out[8]);
  }
  // The gradient of w . (G x) with respect to q and parameters.
  template <class S>
  static void add_products(const Model& m, Arena& arena, const Options& options, const S* q, const S* t, const S* x,
                           const S* w, S* const* out) {
    add_rows<S>(m, arena, options, q, x, t, nullptr, nullptr, w, nullptr, out, false);
    if (!options.constraints->depends_on_time()) return;  // without what gdot has at rest
    const int rows = options.constraints->rows;
    S* minus = arena.get<S>(rows);
    for (int r = 0; r < rows; ++r) minus[r] = -w[r];
    const S* rest = zeros<S>(arena, m.coupling->nv());
    add_rows<S>(m, arena, options, q, rest, t, nullptr, nullptr, minus, nullptr, out, false);
  }
};

}  // namespace

void bind_coupled_constraints(Kernels& kernels) {
  kernels.add_coupled<ReducedConstrainedDynamics>("constrained_forward_dynamics");
  kernels.add_coupled<ReducedConstrainedDerivatives>("constrained_forward_dynamics_derivatives");
  kernels.add_coupled<ReducedConstrainedVJP>("constrained_forward_dynamics_vjp");
}

}  // namespace torsor
