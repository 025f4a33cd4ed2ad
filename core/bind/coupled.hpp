// What kernels of models with couplings share (model/coupling.hpp): kernels of the tree, and the reduced mass matrix.
#pragma once
#include <initializer_list>

#include "bind/kernel.hpp"
#include "derivatives/coupled_derivatives.hpp"
#include "dynamics/mass_solve.hpp"
#include "linear/ldl.hpp"

namespace torsor {

// A kernel of the tree, by name, which runs along a direction of the model if there is one.
class TreeKernel {
 public:
  explicit TreeKernel(const char* name) : kernel_(kernel_named(name)) {}
  template <class S>
  void operator()(const Model& m, Arena& arena, const Options& options, std::initializer_list<const S*> in,
                  std::initializer_list<S*> out) const {
    run<S>(m, arena, options, in.begin(), out.begin());
  }
  template <class S>
  void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) const {
    if constexpr (std::is_same_v<S, double>)
      (options.direction != nullptr && kernel_.run_direction != nullptr ? kernel_.run_direction : kernel_.run)(
          m, arena, options, in, out);
    else if constexpr (std::is_same_v<S, Complex>)
      kernel_.run_complex(m, arena, options, in, out);
    else
      kernel_.run_lanes(m, arena, options, in, out);
  }
  const Kernel* operator->() const { return &kernel_; }

 private:
  const Kernel& kernel_;
};

// What the axes of arrays are, one letter for each array of a kernel. Inputs: q coordinates, v a velocity, a an
// acceleration (its velocity is the last v before it), x another vector of velocities. Outputs: f a generalized force,
// c a matrix whose last axis are velocities, m and t those of which the last two are, h the last three, r a matrix
// whose first axis are forces. A dash: as it is.
inline void reduce_slots(const Model& m, const char* in_kinds, const char* out_kinds, Slot* in, Slot* out) {
  const Coupling& c = *m.coupling;
  for (int i = 0; in_kinds[i] != 0; ++i)
    if (in_kinds[i] != '-') in[i].shape[in[i].ndim - 1] = in_kinds[i] == 'q' ? c.nq() : c.nv();
  for (int i = 0; out_kinds[i] != 0; ++i) {
    const char kind = out_kinds[i];
    const int axes = kind == 'f' || kind == 'c' ? 1 : kind == 'm' || kind == 't' ? 2 : kind == 'h' ? 3 : 0;
    for (int k = 1; k <= axes; ++k) out[i].shape[out[i].ndim - k] = c.nv();
    if (kind == 'r') out[i].shape[0] = c.nv();
  }
}

// Slots of the tree's kernel that K stands for.
template <class K>
void tree_slots(const Model& m, const Options& options, Slot* in, Slot* out) {
  static const TreeKernel kernel(K::name);
  kernel->slots(m, options, in, out);
}

// Inverse dynamics of the tree at a lifted state.
template <class S>
S* tree_forces(const Model& m, Arena& arena, const Options& options, const Lifted<S>& at, const S* f_ext) {
  static const TreeKernel inverse_dynamics("inverse_dynamics");
  S* tau = arena.get<S>(m.nv);
  inverse_dynamics.operator()<S>(m, arena, options, {at.q, at.v, at.a, f_ext}, {tau});
  return tau;
}

// M_R = P^T M P: from the mass matrix of the tree or, where that is far larger, column by column from momenta.
template <class S>
void reduced_mass_matrix(const Model& m, Arena& arena, const TangentMatrix<S>& P, const S* q, S* M) {
  static const TreeKernel mass_matrix("mass_matrix"), generalized_momenta("generalized_momenta");
  const int nv = m.nv, nr = P.coupling.nv();
  if (P.coupling.solver != Coupling::Solver::columns) {
    S* full = arena.get<S>(nv * nv);
    mass_matrix.operator()<S>(m, arena, {}, {q}, {full});
    project_symmetric(arena, P, full, M);
    return;
  }
  S *x = arena.get<S>(nr), *y = arena.get<S>(nv), *p = arena.get<S>(nv);
  Lease scratch;  // of one column at a time
  for (int j = 0; j < nr; ++j) {
    (*scratch).reset();
    for (int k = 0; k < nr; ++k) x[k] = S(k == j ? 1.0 : 0.0);
    for (int k = 0; k < nv; ++k) y[k] = S(0.0);
    add_applied(P, x, y);
    generalized_momenta.operator()<S>(m, *scratch, {}, {q, y}, {p});
    for (int k = 0; k < nr; ++k) x[k] = S(0.0);
    add_pulled(P, p, x);
    for (int k = 0; k <= j; ++k) M[j * nr + k] = M[k * nr + j] = x[k];
  }
}

// The reduced mass matrix of the velocities that are not prescribed, factored.
template <class S>
struct ReducedMass {
  int n;       // of these velocities
  int* which;  // their indices
  S *M, *L;    // all of M_R, and the factors of the part
  // X <- M_ff^-1 X for rows f of X, k columns.
  void solve(Arena& arena, int k, S* X) const {
    S* part = arena.get<S>(n * k);
    for (int i = 0; i < n; ++i) std::copy_n(X + which[i] * k, k, part + i * k);
    solve_ldl(n, L, k, part);
    for (int i = 0; i < n; ++i) std::copy_n(part + i * k, k, X + which[i] * k);
  }
};
template <class S>
ReducedMass<S> factor_reduced_mass(const Model& m, Arena& arena, const TangentMatrix<S>& P, const S* q,
                                   const unsigned char* prescribed, const S* added = nullptr) {
  const Coupling& c = P.coupling;
  const int nr = c.nv();
  ReducedMass<S> f{0, arena.get<int>(nr), arena.get<S>(nr * nr), nullptr};
  reduced_mass_matrix(m, arena, P, q, f.M);
  if (added != nullptr) add_scaled(nr * nr, S(1.0), added, f.M);
  for (int k = 0; k < nr; ++k)
    if (prescribed == nullptr || prescribed[k] == 0) f.which[f.n++] = k;
  f.L = arena.get<S>(f.n * f.n);
  for (int i = 0; i < f.n; ++i)
    for (int j = 0; j <= i; ++j) f.L[i * f.n + j] = f.M[f.which[i] * nr + f.which[j]];
  factor_ldl(f.n, f.L, arena.get<S>(f.n), [&](int k, const S& D, const S& size) {
    note_singular(arena, is_nothing(D, size), c.joint_of[f.which[k]], f.which[k]);
  });
  return f;
}

// Forward dynamics of a tree whose followers are held by multipliers, M y = r + G^T lambda with G y = 0, G = [-phi' 1]:
// O(n) for each follower. All reduced velocities belong to joints.
template <class S>
void solve_by_multipliers(const Model& m, Arena& arena, const TangentMatrix<S>& P, const S* q, const S* r, S* a) {
  const Coupling& c = P.coupling;
  const int nv = m.nv, rows = static_cast<int>(c.rows.size());
  const MassFactor<S> f = factor_mass<S>(m, arena, q, nullptr, nullptr);
  S *y = arena.get<S>(nv), *X = zeros<S>(arena, rows * nv), *A = arena.get<S>(rows * rows), *d = arena.get<S>(rows);
  solve_mass(m, f, r, y);
  const auto along = [&](int i, const S* x) {  // row i of G times x
    const int iv = c.rows[i].iv;
    S sum = x[iv];
    for (int k = c.start[iv]; k < c.start[iv + 1]; ++k) sum = mul_add(-P.x[k], x[c.tree_of[c.column[k]]], sum);
    return sum;
  };
  for (int i = 0; i < rows; ++i) {
    const int iv = c.rows[i].iv;
    S* x = X + i * nv;
    x[iv] = S(1.0);
    for (int k = c.start[iv]; k < c.start[iv + 1]; ++k) x[c.tree_of[c.column[k]]] -= P.x[k];
    solve_mass(m, f, x, x);
    for (int j = 0; j <= i; ++j) A[i * rows + j] = along(j, x);
    d[i] = -along(i, y);
  }
  factor_ldl(rows, A, arena.get<S>(rows),
             [&](int k, const S& D, const S& size) { note_singular(arena, is_nothing(D, size), c.rows[k].joint, -1); });
  solve_ldl(rows, A, 1, d);
  for (int i = 0; i < rows; ++i) add_scaled(nv, d[i], X + i * nv, y);
  for (int k = 0; k < c.nv(); ++k) a[k] = y[c.tree_of[k]];
}

// Hybrid dynamics in reduced coordinates: a and tau hold what is given, and what is found. Forward dynamics if
// `prescribed` is null; `tau` is then only read.
template <class S>
void reduced_hybrid_dynamics(const Model& m, Arena& arena, const Options& options, const S* z, const S* v,
                             const S* f_ext, const unsigned char* prescribed, S* a, S* tau) {
  const Coupling& c = *m.coupling;
  const int nr = c.nv();
  for (int k = 0; k < nr; ++k)
    if (prescribed == nullptr || prescribed[k] == 0) a[k] = S(0.0);
  const Lifted<S> at = lift_state(m, arena, z, v, prescribed == nullptr ? nullptr : a, 2);
  S* b = tree_forces(m, arena, options, at, f_ext);
  const TangentMatrix<S> P = tangent_map(at.terms, arena);
  if (prescribed == nullptr && c.solver == Coupling::Solver::multipliers) {
    for (int k = 0; k < m.nv; ++k) b[k] = -b[k];
    for (int k = 0; k < nr; ++k) b[c.tree_of[k]] += tau[k];
    return solve_by_multipliers(m, arena, P, at.q, b, a);
  }
  S* bias = arena.get<S>(nr);
  pull(at.terms, b, bias);
  const ReducedMass<S> f = factor_reduced_mass(m, arena, P, at.q, prescribed);
  S* x = zeros<S>(arena, nr);
  for (int i = 0; i < f.n; ++i) x[f.which[i]] = tau[f.which[i]] - bias[f.which[i]];
  f.solve(arena, 1, x);
  for (int i = 0; i < f.n; ++i) a[f.which[i]] = x[f.which[i]];
  if (prescribed == nullptr) return;
  for (int k = 0; k < nr; ++k) {
    if (prescribed[k] == 0) continue;
    tau[k] = bias[k];
    for (int i = 0; i < f.n; ++i) tau[k] = mul_add(f.M[k * nr + f.which[i]], x[f.which[i]], tau[k]);
  }
}

}  // namespace torsor
