// Dynamics under constraints for models with couplings: rows of the tree in reduced coordinates, G_R = G P, and the
// reduced mass matrix (docs/derivations/constraints.md, 3, and hyper_reduced.md).
#include "bind/coupled.hpp"
#include "bind/timed.hpp"
#include "constraints/constrained_dynamics.hpp"
#include "constraints/constrained_inverse_dynamics.hpp"
#include "derivatives/dual_states.hpp"

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
    const ReducedRows<S> at =
        solve_reduced_constrained<S>(m, arena, options, in[0], in[1], in[2], in[3], in[6], a, lambda);
    const bool redundant = any(at.D.any_skipped());
    // M mu + G^T nu = -w_a,   G mu - e nu = w_lambda
    if (in[4] != nullptr) add_scaled(nr, S(-1.0), in[4], mu);
    at.mass.solve(arena, 1, mu);
    if (in[5] != nullptr) add_scaled(rows, S(-1.0), in[5], nu);
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < nr; ++k) nu[r] = mul_add(at.G[r * nr + k], mu[k], nu[r]);
    at.D.solve(nu, nu);
    add_response(at, S(-1.0), nu, mu);
    const auto times = [&](double s, const S* x) {
      S* y = zeros<S>(arena, rows);
      add_scaled(rows, S(s), x, y);
      return y;
    };
    S *n = nullptr, *y = zeros<S>(arena, nr);
    if (redundant) {
      S* x = arena.get<S>(rows);
      at.D.solve(lambda, x);
      add_response(at, S(1.0), x, y);
      if (in[5] != nullptr) at.D.project_on_null_space(n = times(1.0, in[5]), 1, 1);
    }
    const Weights<S> w{
        times(options.beta * options.beta, nu), times(2.0 * options.alpha, nu), nu, times(-1.0, lambda), mu, n, y};

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
    add_gradients<S>(m, arena, options, t, in[0], in[1], a, w, out[4], out[5]);
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
        add_response(at, S(1.0), change, column);
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
  // Of rows: of_g.g + of_gdot.gdot + nu.gamma + minus_lambda.(G mu) + n.(G y), n null if rows are independent.
  template <class S>
  struct Weights {
    const S *of_g, *of_gdot, *nu, *minus_lambda, *mu, *n, *y;
  };
  // x += s M^-1 G^T multipliers.
  template <class S>
  static void add_response(const ReducedRows<S>& at, const S& s, const S* multipliers, S* x) {
    const int nr = at.mass.n;
    for (int k = 0; k < nr; ++k)
      for (int r = 0; r < at.rows; ++r) x[k] = mul_add(s * at.Y[k * at.rows + r], multipliers[r], x[k]);
  }
  template <class S>
  static void add_gradients(const Model& m, Arena& arena, const Options& options, double t, const S* q, const S* v,
                            const S* a, const Weights<S>& w, S* by_q, S* by_v) {
    const S *none = nullptr, *rest = zeros<S>(arena, m.coupling->nv());
    const ReducedState<S> at(m, arena, options, t, q, v, a);
    add_constraint_gradients<S>(m, at.state, w.of_g, w.of_gdot, w.nu, {by_q, by_v, nullptr, nullptr, nullptr});
    const auto add_product = [&](const S* weights, const S* x) {
      const ReducedState<S> along(m, arena, options, t, q, x, rest, true);
      add_constraint_gradients<S>(m, along.state, none, weights, none, {by_q, nullptr, nullptr, nullptr, nullptr});
    };
    add_product(w.minus_lambda, w.mu);
    if (w.n != nullptr) add_product(w.n, w.y);
  }
  template <class S>
  static void add_row_hessians(const Model& m, const Options& options, double t, const S* q, const S* v, const S* a,
                               const Weights<S>& w, S* const* out) {
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
        const Weights<Dual<S>> weights{
            fixed(w.of_g, rows), fixed(w.of_gdot, rows), fixed(w.nu, rows), fixed(w.minus_lambda, rows),
            fixed(w.mu, nr),     fixed(w.n, rows),       fixed(w.y, nr)};
        add_gradients<Dual<S>>(m, arena, options, t, moving<S>(manifold(m), arena, q, turns ? direction : nullptr),
                               with_tangent<S>(arena, v, turns ? nullptr : direction, nr), fixed(a, nr), weights, by_q,
                               by_v);
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

}  // namespace

void bind_coupled_constraints(Kernels& kernels) {
  kernels.add_coupled<ReducedConstrainedJVP>("constrained_forward_dynamics_jvp");
  kernels.add_coupled<Timed<ReducedConstrainedHessians>>("constrained_forward_dynamics_hessians");
  kernels.add_coupled<Timed<ReducedConstrainedInverse>>("constrained_inverse_dynamics");
  kernels.add_coupled<Timed<ReducedConstrainedInverseDerivatives>>("constrained_inverse_dynamics_derivatives");
  kernels.add_coupled<ReducedConstrainedDynamics>("constrained_forward_dynamics");
  kernels.add_coupled<ReducedConstrainedDerivatives>("constrained_forward_dynamics_derivatives");
  kernels.add_coupled<ReducedConstrainedVJP>("constrained_forward_dynamics_vjp");
}

}  // namespace torsor
