// Constraints of models with couplings, and dynamics under them: rows of the tree in reduced coordinates, and the
// reduced mass matrix (docs/derivations/constraints.md, 3, and hyper_reduced.md).
#include "bind/coupled.hpp"
#include "bind/timed.hpp"
#include "constraints/constrained_dynamics.hpp"
#include "constraints/constrained_inverse_dynamics.hpp"
#include "derivatives/dual_states.hpp"

namespace torsor {
namespace {

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

// Rows at a reduced state, whose derivatives are those by it.
template <class S>
struct ReducedState {
  ChainedState<S> chain;
  Motions<S> all;
  ConstraintState<S> state;
  ReducedState(const Model& m, Arena& arena, const Options& options, double t, const S* q, const S* v, const S* a,
               bool still = false)
      : chain(chained_state<S>(m, arena, q, v, a)),
        all(motions<S>(m, arena, chain.tree.q, chain.tree.v, chain.tree.a, false)),
        state{m,
              *options.constraints,
              arena,
              all,
              chain.tree.q,
              chain.tree.v,
              chain.tree.a,
              t,
              times_at(*options.constraints, arena, t),
              still,
              &chain} {}
  ReducedState(const ReducedState&) = delete;
};

// G_R, Y = M_R^-1 G_R^T and D = G_R Y at a state.
template <class S>
struct ReducedRows {
  int rows;
  S *G, *Y;  // rows x nR, nR x rows
  ReducedMass<S> mass;
  Delassus<S> D;
  // x += s Y multipliers.
  void add_response(const S& s, const S* multipliers, S* x) const {
    for (int k = 0; k < mass.n; ++k)
      for (int r = 0; r < rows; ++r) x[k] = mul_add(s * Y[k * rows + r], multipliers[r], x[k]);
  }
  // y with G y = lambda, for multipliers of least norm.
  S* least_norm_velocity(Arena& arena, const S* lambda) const {
    S *x = arena.get<S>(rows), *y = zeros<S>(arena, mass.n);
    D.solve(lambda, x);
    add_response(S(1.0), x, y);
    return y;
  }
};

// Accelerations and multipliers: D lambda = -(gamma + 2 alpha gdot + beta^2 g) at the accelerations a0 without rows,
// and a = a0 + Y lambda.
template <class S>
ReducedRows<S> solve_reduced_constrained(const Model& m, Arena& arena, const Options& options, double t, const S* q,
                                         const S* v, const S* tau, const S* f_ext, S* a, S* lambda) {
  const int nr = m.coupling->nv(), rows = options.constraints->rows;
  reduced_hybrid_dynamics<S>(m, arena, options, q, v, f_ext, nullptr, a, const_cast<S*>(tau));
  const ReducedState<S> at(m, arena, options, t, q, v, a);
  S *G = arena.get<S>(rows * nr), *Y = arena.get<S>(nr * rows);
  constraint_jacobian<S>(at.state, G, nr);
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < nr; ++k) Y[k * rows + r] = G[r * nr + k];
  const ReducedMass<S> mass = factor_reduced_mass<S>(m, arena, at.chain.P, at.chain.tree.q, nullptr);
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
  S *g = arena.get<S>(rows), *gdot = arena.get<S>(rows), *b = arena.get<S>(rows), *squares = arena.get<S>(rows);
  constraint_values<S>(at.state, g, gdot, b);
  S* X = arena.get<S>(rows * m.nv);  // of the tree, whose terms may cancel
  tree_jacobian<S>(at.state, X, m.nv);
  const S first(2.0 * options.alpha), zeroth(options.beta * options.beta);
  for (int r = 0; r < rows; ++r) {
    const S along_v = first * gdot[r], along_q = zeroth * g[r];
    squares[r] = b[r] * b[r] + along_v * along_v + along_q * along_q;
    for (int k = 0; k < m.nv; ++k) {
      const S part = X[r * m.nv + k] * at.chain.tree.a[k];
      squares[r] = mul_add(part, part, squares[r]);
    }
    b[r] = -(b[r] + along_v + along_q);
  }
  D.solve(b, lambda);
  if (any(D.any_skipped())) D.note_contradictions(b, squares, lambda);
  const ReducedRows<S> found{rows, G, Y, mass, D};
  found.add_response(S(1.0), lambda, a);
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
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const ReducedRows<S> found =
        solve_reduced_constrained<S>(m, arena, options, t, in[0], in[1], in[3], in[4], out[0], out[1]);
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
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    static const TreeKernel first("inverse_dynamics_derivatives");
    const int nr = m.coupling->nv(), rows = options.constraints->rows, nv = m.nv;
    S *a = arena.get<S>(nr), *lambda = arena.get<S>(rows);
    const ReducedRows<S> at = solve_reduced_constrained<S>(m, arena, options, t, in[0], in[1], in[3], in[4], a, lambda);
    const ReducedState<S> s(m, arena, options, t, in[0], in[1], a);
    const Lifted<S>& tree = s.chain.tree;
    S *A[3], *X[3];
    for (S*& one : A) one = arena.get<S>(nv * nv);
    for (S*& one : X) one = arena.get<S>(nr * nr);
    first.operator()<S>(m, arena, options, {tree.q, tree.v, tree.a, in[4]}, {A[0], A[1], A[2]});
    chain_forces<S>(s.chain, arena, A[0], A[1], A[2], tree_forces(m, arena, options, tree, in[4]), X[0], X[1], nullptr);
    add_constraint_stiffness<S>(s.state, lambda, S(-1.0), X[0], nr);
    S *gq = arena.get<S>(rows * nr), *cq = arena.get<S>(rows * nr), *cv = arena.get<S>(rows * nr);
    constraint_derivatives<S>(s.state, gq, cq, cv, nr);
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
      if (k == 0 && any(at.D.any_skipped())) add_null_space(m, arena, options, t, in[0], at, lambda, wide, L);
      for (int r = 0; r < rows; ++r) std::copy_n(L + r * wide, nr, out[3 + k] + r * nr);
    }
  }

 private:
  template <class S>
  static void add_null_space(const Model& m, Arena& arena, const Options& options, double t, const S* q,
                             const ReducedRows<S>& at, const S* lambda, int wide, S* L) {
    const int nr = m.coupling->nv(), rows = at.rows;
    S *columns = arena.get<S>(rows * nr), *B = zeros<S>(arena, rows * wide);
    const ReducedState<S> along(m, arena, options, t, q, at.least_norm_velocity(arena, lambda), zeros<S>(arena, nr),
                                true);
    constraint_derivatives<S>(along.state, columns, nullptr, nullptr, nr);
    for (int r = 0; r < rows; ++r) std::copy_n(columns + r * nr, nr, B + r * wide);
    at.D.project_on_null_space(B, wide, wide);
    add_scaled(rows * wide, S(1.0), B, L);
  }
};

// The sum of_g.g + of_gdot.gdot + of_gamma.gamma + of_x.(G x) + of_y.(G y) over rows; of_y may be null.
template <class S>
struct RowSumWeights {
  const S *of_g, *of_gdot, *of_gamma, *of_x, *x, *of_y, *y;
};
// Adds its gradients at fixed x and y.
template <class S>
void add_row_sum_gradients(const Model& m, Arena& arena, const Options& options, double t, const S* q, const S* v,
                           const S* a, const RowSumWeights<S>& w, const ConstraintGradients<S>& out) {
  const S *none = nullptr, *rest = zeros<S>(arena, m.coupling->nv());
  const ReducedState<S> at(m, arena, options, t, q, v, a);
  add_constraint_gradients<S>(m, at.state, w.of_g, w.of_gdot, w.of_gamma, out);
  const auto add_product = [&](const S* weights, const S* x) {
    const ReducedState<S> along(m, arena, options, t, q, x, rest, true);
    add_constraint_gradients<S>(m, along.state, none, weights, none,
                                {out.q, nullptr, nullptr, out.placement, out.parameters});
  };
  add_product(w.of_x, w.x);
  if (w.of_y != nullptr) add_product(w.of_y, w.y);
}
// s x, of n numbers.
template <class S>
S* multiple(Arena& arena, int n, double s, const S* x) {
  S* y = zeros<S>(arena, n);
  add_scaled(n, S(s), x, y);
  return y;
}

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
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    static const CoupledKernel inverse_vjp("inverse_dynamics_vjp");
    const int nr = m.coupling->nv(), rows = options.constraints->rows;
    S *a = arena.get<S>(nr), *lambda = arena.get<S>(rows), *mu = zeros<S>(arena, nr), *nu = zeros<S>(arena, rows);
    const ReducedRows<S> at = solve_reduced_constrained<S>(m, arena, options, t, in[0], in[1], in[3], in[6], a, lambda);
    if (in[4] != nullptr) std::copy_n(in[4], nr, mu);
    if (in[5] != nullptr) std::copy_n(in[5], rows, nu);
    at.mass.solve(arena, 1, mu);
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < nr; ++k) nu[r] = mul_add(at.G[r * nr + k], mu[k], nu[r]);
    at.D.solve(nu, nu);
    at.add_response(S(-1.0), nu, mu);
    S *of_a = arena.get<S>(nr), *e = nullptr, *y = nullptr;
    inverse_vjp.operator()<S>(m, arena, options, {in[0], in[1], a, multiple(arena, nr, -1.0, mu), in[6]},
                              {out[0], out[1], of_a, out[3], out[4], out[5], out[6], out[7]});
    if (out[2] != nullptr) std::copy_n(mu, nr, out[2]);
    if (out[8] != nullptr) std::fill_n(out[8], options.constraints->parameters, S(0.0));
    if (in[5] != nullptr && any(at.D.any_skipped())) {
      y = at.least_norm_velocity(arena, lambda);
      at.D.project_on_null_space(e = multiple(arena, rows, 1.0, in[5]), 1, 1);
    }
    const RowSumWeights<S> w{multiple(arena, rows, -options.beta * options.beta, nu),
                             multiple(arena, rows, -2.0 * options.alpha, nu),
                             multiple(arena, rows, -1.0, nu),
                             lambda,
                             mu,
                             e,
                             y};
    add_row_sum_gradients<S>(m, arena, options, t, in[0], in[1], a, w, {out[0], out[1], nullptr, out[5], out[8]});
  }
};

// The derivative along a direction, from the matrices. A direction of f_ext is one of tau, by P^T J^T df_ext.
struct ReducedConstrainedJVP {
  static constexpr const char* name = "constrained_forward_dynamics_jvp";
  static constexpr int inputs = 9, outputs = 4;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstrainedJVP>(m, options, in, out);
    reduce_slots(m, "qv-x-xxx-", "f-f-", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const CoupledKernel dynamics("constrained_forward_dynamics"),
        derivatives("constrained_forward_dynamics_derivatives");
    const int nr = m.coupling->nv(), rows = options.constraints->rows;
    S *rank = arena.get<S>(1), *d[6], *dtau = zeros<S>(arena, nr);
    for (int k = 0; k < 6; ++k) d[k] = arena.get<S>((k < 3 ? nr : rows) * nr);
    dynamics.operator()<S>(m, arena, options, {in[0], in[1], in[2], in[3], in[4]}, {out[0], out[1], rank});
    derivatives.operator()<S>(m, arena, options, {in[0], in[1], in[2], in[3], in[4]},
                              {d[0], d[1], d[2], d[3], d[4], d[5]});
    if (in[8] != nullptr) {
      const S* rest = zeros<S>(arena, nr);
      const Lifted<S> at = lift_state<S>(m, arena, in[0], rest, rest, 2);
      S *with = tree_forces<S>(m, arena, options, at, in[8]), *without = tree_forces<S>(m, arena, options, at, nullptr);
      for (int k = 0; k < m.nv; ++k) without[k] -= with[k];
      pull(at.terms, without, dtau);
    }
    if (in[7] != nullptr) add_scaled(nr, S(1.0), in[7], dtau);
    const S* along[3] = {in[5], in[6], dtau};
    const auto put = [&](int count, S* const* matrices, S* to) {
      for (int i = 0; i < count; ++i) {
        to[i] = S(0.0);
        for (int x = 0; x < 3; ++x)
          for (int k = 0; along[x] != nullptr && k < nr; ++k)
            to[i] = mul_add(matrices[x][i * nr + k], along[x][k], to[i]);
      }
    };
    put(nr, d, out[2]);
    put(rows, d + 3, out[3]);
  }
};

// As constraints/constrained_dynamics_hessians.hpp. With z = (a, lambda) and ell = mu.ID - lambda.(G mu) + nu.c, linear
// in z,
//   d2/dx_j dx_k = ell_xx[j][k] + ell_xz[j].z_x[k] + z_x[j].ell_zx[k]
// and for rows that depend on others z has y, with G y = lambda, and ell the term n.(G y). Second derivatives of rows
// are gradients over dual numbers.
struct ReducedConstrainedHessians {
  static constexpr const char* name = "constrained_forward_dynamics_hessians";
  static constexpr int inputs = 7, outputs = 7;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstrainedHessians>(m, options, in, out);
    reduce_slots(m, "qv-xx--", "mmmmfff", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    static const CoupledKernel contracted("inverse_dynamics_hessians_contracted"),
        derivatives("constrained_forward_dynamics_derivatives");
    const int nr = m.coupling->nv(), rows = options.constraints->rows;
    if (nr == 0) return;
    S *a = arena.get<S>(nr), *lambda = arena.get<S>(rows), *mu = zeros<S>(arena, nr), *nu = zeros<S>(arena, rows);
    const ReducedRows<S> at = solve_reduced_constrained<S>(m, arena, options, t, in[0], in[1], in[3], in[6], a, lambda);
    // M mu + G^T nu = -w_a,   G mu - e nu = w_lambda
    if (in[4] != nullptr) add_scaled(nr, S(-1.0), in[4], mu);
    at.mass.solve(arena, 1, mu);
    if (in[5] != nullptr) add_scaled(rows, S(-1.0), in[5], nu);
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < nr; ++k) nu[r] = mul_add(at.G[r * nr + k], mu[k], nu[r]);
    at.D.solve(nu, nu);
    at.add_response(S(-1.0), nu, mu);
    S *n = nullptr, *y = nullptr;
    if (in[5] != nullptr && any(at.D.any_skipped())) {
      y = at.least_norm_velocity(arena, lambda);
      at.D.project_on_null_space(n = multiple(arena, rows, 1.0, in[5]), 1, 1);
    }
    const RowSumWeights<S> w{multiple(arena, rows, options.beta * options.beta, nu),
                             multiple(arena, rows, 2.0 * options.alpha, nu),
                             nu,
                             multiple(arena, rows, -1.0, lambda),
                             mu,
                             n,
                             y};

    // ell_xx, ell_zq and gradients
    S *of_a = arena.get<S>(nr * nr), *of_lambda = arena.get<S>(rows * nr), *of_y = zeros<S>(arena, nr * nr);
    contracted.operator()<S>(m, arena, options, {in[0], in[1], a, mu, in[6]},
                             {out[0], out[1], out[2], of_a, out[4], out[5], nullptr});
    const S* rest = zeros<S>(arena, nr);
    const ReducedState<S> along(m, arena, options, t, in[0], mu, rest, true);
    add_constraint_stiffness<S>(along.state, nu, S(1.0), of_a, nr);
    constraint_derivatives<S>(along.state, of_lambda, nullptr, nullptr, nr);
    for (int k = 0; k < rows * nr; ++k) of_lambda[k] = -of_lambda[k];
    if (n != nullptr) add_constraint_stiffness<S>(along.state, n, S(1.0), of_y, nr);
    add_row_sum_gradients<S>(m, arena, options, t, in[0], in[1], a, w, {out[4], out[5], nullptr, nullptr, nullptr});
    for (int k = 0; out[6] != nullptr && k < nr; ++k) out[6][k] = -mu[k];
    add_row_hessians<S>(m, options, t, in[0], in[1], a, w, out);

    // z_x, and the products
    S *d[6], *product = arena.get<S>(nr * nr), *Gy = arena.get<S>(rows * nr);
    for (int k = 0; k < 6; ++k) d[k] = arena.get<S>((k < 3 ? nr : rows) * nr);
    derivatives.operator()<S>(m, arena, options, {in[0], in[1], in[2], in[3], in[6]},
                              {d[0], d[1], d[2], d[3], d[4], d[5]});
    if (n != nullptr) {
      const ReducedState<S> moved(m, arena, options, t, in[0], y, rest, true);
      constraint_derivatives<S>(moved.state, Gy, nullptr, nullptr, nr);
    }
    const auto multiply = [&](int x) {  // product[j][k] = ell_qz[j].z_x[k]
      std::fill_n(product, nr * nr, S(0.0));
      add_product_of_transpose(nr, nr, nr, of_a, d[x], product);
      add_product_of_transpose(rows, nr, nr, of_lambda, d[3 + x], product);
      if (n == nullptr) return;
      S *change = arena.get<S>(rows), *dy = zeros<S>(arena, nr * nr), *column = arena.get<S>(nr);
      for (int k = 0; k < nr; ++k) {  // G dy = dlambda - dG y
        for (int r = 0; r < rows; ++r) change[r] = x == 0 ? d[3][r * nr + k] - Gy[r * nr + k] : d[3 + x][r * nr + k];
        at.D.solve(change, change);
        std::fill_n(column, nr, S(0.0));
        at.add_response(S(1.0), change, column);
        for (int i = 0; i < nr; ++i) dy[i * nr + k] = column[i];
      }
      add_product_of_transpose(nr, nr, nr, of_y, dy, product);
    };
    if (out[0] != nullptr) {
      multiply(0);
      for (int j = 0; j < nr; ++j)
        for (int k = 0; k < nr; ++k) out[0][j * nr + k] += product[j * nr + k] + product[k * nr + j];
    }
    if (out[1] != nullptr) {
      multiply(1);
      add_scaled(nr * nr, S(1.0), product, out[1]);
    }
    if (out[3] == nullptr) return;
    multiply(2);
    for (int j = 0; j < nr; ++j)
      for (int k = 0; k < nr; ++k) out[3][j * nr + k] = product[k * nr + j];
  }

 private:
  template <class S>
  static void add_row_hessians(const Model& m, const Options& options, double t, const S* q, const S* v, const S* a,
                               const RowSumWeights<S>& w, S* const* out) {
    const int nr = m.coupling->nv(), rows = options.constraints->rows;
    Lease lease;  // memory of one direction
    Arena& arena = *lease;
    for (int k = 0; k < nr; ++k)
      for (const bool turns : {true, false}) {
        arena.reset();
        const auto fixed = [&](const S* x, int size) -> const Dual<S>* {
          return x != nullptr ? with_tangent<S>(arena, x, nullptr, size) : nullptr;
        };
        S* direction = zeros<S>(arena, nr);
        direction[k] = S(1.0);
        auto *by_q = zeros<Dual<S>>(arena, nr), *by_v = zeros<Dual<S>>(arena, nr);
        const RowSumWeights<Dual<S>> weights{fixed(w.of_g, rows), fixed(w.of_gdot, rows), fixed(w.of_gamma, rows),
                                             fixed(w.of_x, rows), fixed(w.x, nr),         fixed(w.of_y, rows),
                                             fixed(w.y, nr)};
        const Dual<S>* at = moving<S>(manifold(m), arena, q, turns ? direction : nullptr);
        add_row_sum_gradients<Dual<S>>(m, arena, options, t, at,
                                       with_tangent<S>(arena, v, turns ? nullptr : direction, nr), fixed(a, nr),
                                       weights, {by_q, by_v, nullptr, nullptr, nullptr});
        for (int j = 0; j < nr; ++j) {
          if (turns && out[0] != nullptr) out[0][j * nr + k] += by_q[j].d;
          if (turns && out[1] != nullptr) out[1][k * nr + j] += by_v[j].d;
          if (!turns && out[2] != nullptr) out[2][j * nr + k] += by_v[j].d;
        }
      }
  }
};

// Torques on the velocities that options.prescribed marks.
struct ReducedConstrainedInverse {
  static constexpr const char* name = "constrained_inverse_dynamics";
  static constexpr int inputs = 5, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstrainedInverse>(m, options, in, out);
    reduce_slots(m, "qv-a-", "f-f", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const ReducedState<S> at(m, arena, options, t, in[0], in[1], in[3]);
    S* b = arena.get<S>(m.coupling->nv());
    pull(at.chain.terms(), tree_forces<S>(m, arena, options, at.chain.tree, in[4]), b);
    share_torques<S>(at.state, m.coupling->nv(), options.prescribed, b, out[0], out[1], out[2]);
  }
};

struct ReducedConstrainedInverseDerivatives {
  static constexpr const char* name = "constrained_inverse_dynamics_derivatives";
  static constexpr int inputs = 5, outputs = 6;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstrainedInverseDerivatives>(m, options, in, out);
    reduce_slots(m, "qv-a-", "mmmccc", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    static const TreeKernel first("inverse_dynamics_derivatives");
    const int nr = m.coupling->nv();
    const ReducedState<S> at(m, arena, options, t, in[0], in[1], in[3]);
    const Lifted<S>& tree = at.chain.tree;
    S *A[3], *ID[3], *b = arena.get<S>(nr), *force = tree_forces<S>(m, arena, options, tree, in[4]);
    for (S*& x : A) x = arena.get<S>(m.nv * m.nv);
    for (S*& x : ID) x = arena.get<S>(nr * nr);
    first.operator()<S>(m, arena, options, {tree.q, tree.v, tree.a, in[4]}, {A[0], A[1], A[2]});
    chain_forces<S>(at.chain, arena, A[0], A[1], A[2], force, ID[0], ID[1], ID[2]);
    pull(at.chain.terms(), force, b);
    const auto rates = [&](const S* x, S* E) {
      const ReducedState<S> along(m, arena, options, t, in[0], x, zeros<S>(arena, nr), true);
      constraint_derivatives<S>(along.state, E, nullptr, nullptr, nr);
    };
    share_torque_derivatives<S>(at.state, nr, options.prescribed, b, ID, rates, out, out + 3);
  }
};

// v or a, zero if it is null.
template <class S>
const S* or_zeros(const Model& m, Arena& arena, const S* x) {
  return x != nullptr ? x : zeros<S>(arena, m.coupling->nv());
}

struct ReducedConstraintJacobian {
  static constexpr const char* name = "constraint_jacobian";
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstraintJacobian>(m, options, in, out);
    reduce_slots(m, "qv-a", "c", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const S* rest = zeros<S>(arena, m.coupling->nv());
    const ReducedState<S> at(m, arena, options, t, in[0], rest, rest);
    constraint_jacobian<S>(at.state, out[0], m.coupling->nv());
  }
};

struct ReducedConstraintDerivatives {
  static constexpr const char* name = "constraint_derivatives";
  static constexpr int inputs = 4, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstraintDerivatives>(m, options, in, out);
    reduce_slots(m, "qv-a", "ccc", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const ReducedState<S> at(m, arena, options, t, in[0], or_zeros(m, arena, in[1]), or_zeros(m, arena, in[3]));
    constraint_derivatives<S>(at.state, out[0], out[1], out[2], m.coupling->nv());
  }
};

struct ReducedConstraintStiffness {
  static constexpr const char* name = "constraint_stiffness";
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstraintStiffness>(m, options, in, out);
    reduce_slots(m, "q--x", "m", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const int nr = m.coupling->nv();
    const S* rest = zeros<S>(arena, nr);
    const ReducedState<S> at(m, arena, options, t, in[0], rest, rest);
    std::fill_n(out[0], nr * nr, S(0.0));
    add_constraint_stiffness<S>(at.state, in[1], S(1.0), out[0], nr);
  }
};

struct ReducedConstraintVJP {
  static constexpr const char* name = "constraint_vjp";
  static constexpr int inputs = 7, outputs = 5;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedConstraintVJP>(m, options, in, out);
    reduce_slots(m, "qv-a---", "fff--", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const int nr = m.coupling->nv();
    const ReducedState<S> at(m, arena, options, t, in[0], or_zeros(m, arena, in[1]), or_zeros(m, arena, in[3]));
    const int sizes[] = {nr, nr, nr, 6 * m.nframes(), options.constraints->parameters};
    for (int k = 0; k < outputs; ++k) std::fill_n(out[k], sizes[k], S(0.0));
    add_constraint_gradients<S>(m, at.state, in[4], in[5], in[6], {out[0], out[1], out[2], out[3], out[4]});
  }
};

}  // namespace

void bind_coupled_constraints(Kernels& kernels) {
  kernels.add_coupled<Timed<ReducedConstraintJacobian>>("constraint_jacobian");
  kernels.add_coupled<Timed<ReducedConstraintDerivatives>>("constraint_derivatives");
  kernels.add_coupled<Timed<ReducedConstraintStiffness>>("constraint_stiffness");
  kernels.add_coupled<Timed<ReducedConstraintVJP>>("constraint_vjp");
  kernels.add_coupled<ReducedConstrainedJVP>("constrained_forward_dynamics_jvp");
  kernels.add_coupled<Timed<ReducedConstrainedHessians>>("constrained_forward_dynamics_hessians");
  kernels.add_coupled<Timed<ReducedConstrainedInverse>>("constrained_inverse_dynamics");
  kernels.add_coupled<Timed<ReducedConstrainedInverseDerivatives>>("constrained_inverse_dynamics_derivatives");
  kernels.add_coupled<Timed<ReducedConstrainedDynamics>>("constrained_forward_dynamics");
  kernels.add_coupled<Timed<ReducedConstrainedDerivatives>>("constrained_forward_dynamics_derivatives");
  kernels.add_coupled<Timed<ReducedConstrainedVJP>>("constrained_forward_dynamics_vjp");
}

}  // namespace torsor
