// Derivatives for models with couplings, from those of the tree: derivatives/coupled_derivatives.hpp.
#include "bind/coupled.hpp"
#include "derivatives/dual_states.hpp"

namespace torsor {
namespace {

template <class S>
S* get_if(Arena& arena, bool wanted, int n) {
  return wanted ? arena.get<S>(n) : nullptr;
}

// dtau_R/dq_R, dtau_R/dv_R and M_R at a state; any may be null.
template <class S>
void reduced_inverse_derivatives(const Model& m, Arena& arena, const Options& options, const ChainedState<S>& s,
                                 const S* f_ext, S* dq, S* dv, S* da) {
  static const TreeKernel derivatives("inverse_dynamics_derivatives");
  const int size = m.nv * m.nv;
  const bool bent = !m.coupling->is_linear();
  S *A_q = get_if<S>(arena, dq, size), *A_v = get_if<S>(arena, dv || (dq && bent), size),
    *M = get_if<S>(arena, da || (bent && (dq || dv)), size);
  derivatives.operator()<S>(m, arena, options, {s.tree.q, s.tree.v, s.tree.a, f_ext}, {A_q, A_v, M});
  const S* tau = dq != nullptr && bent ? tree_forces(m, arena, options, s.tree, f_ext) : nullptr;
  chain_forces<S>(s, arena, A_q, A_v, M, tau, dq, dv, da);
}

struct ReducedInverseDerivatives {
  static constexpr const char* name = "inverse_dynamics_derivatives";
  static constexpr int inputs = 4, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedInverseDerivatives>(m, options, in, out);
    reduce_slots(m, "qva-", "mmm", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    reduced_inverse_derivatives(m, arena, options, chained_state(m, arena, in[0], in[1], in[2]), in[3], out[0], out[1],
                                out[2]);
  }
};

// Derivatives of hybrid dynamics, with f the free velocities and p the prescribed ones,
//   da_f/dx = -M_ff^-1 D_f    da_f/da_p = -M_ff^-1 M_fp    da_f/dtau_f = M_ff^-1    tau_p = D_p + M_pf da_f
// in the order of the kernel's outputs, of which any may be null.
template <class S>
void reduced_hybrid_derivatives(const Model& m, Arena& arena, const Options& options, const S* z, const S* v,
                                const S* f_ext, const unsigned char* prescribed, S* a, S* tau, S* const* out) {
  const int nr = m.coupling->nv(), size = nr * nr;
  reduced_hybrid_dynamics(m, arena, options, z, v, f_ext, prescribed, a, tau);
  const ChainedState<S> s = chained_state<S>(m, arena, z, v, a);
  S *D_q = get_if<S>(arena, out[0] || out[4], size), *D_v = get_if<S>(arena, out[1] || out[5], size);
  if (D_q != nullptr || D_v != nullptr) reduced_inverse_derivatives<S>(m, arena, options, s, f_ext, D_q, D_v, nullptr);
  const ReducedMass<S> f = factor_reduced_mass<S>(m, arena, s.P, s.tree.q, prescribed);
  const auto held = [&](int k) { return prescribed != nullptr && prescribed[k] != 0; };
  // D: right-hand sides of all velocities; X: derivatives of a, whose rows p are given
  const auto solve = [&](const S* D, S* of_a, S* of_tau, auto&& given_a, auto&& given_tau) {
    S* X = arena.get<S>(size);
    for (int i = 0; i < nr; ++i)
      for (int k = 0; k < nr; ++k) X[i * nr + k] = held(i) ? given_a(i, k) : given_tau(i, k) - D[i * nr + k];
    f.solve(arena, nr, X);
    if (of_tau != nullptr)
      for (int i = 0; i < nr; ++i)
        for (int k = 0; k < nr; ++k) {
          S sum = held(i) ? D[i * nr + k] : given_tau(i, k);
          for (int j = 0; held(i) && j < f.n; ++j) sum = mul_add(f.M[i * nr + f.which[j]], X[f.which[j] * nr + k], sum);
          of_tau[i * nr + k] = sum;
        }
    if (of_a != nullptr) std::copy_n(X, size, of_a);
  };
  const auto none = [](int, int) { return S(0.0); };
  const auto unit = [](int i, int k) { return S(i == k ? 1.0 : 0.0); };
  if (D_q != nullptr) solve(D_q, out[0], out[4], none, none);
  if (D_v != nullptr) solve(D_v, out[1], out[5], none, none);
  if (out[2] != nullptr || out[6] != nullptr) {
    S* D = zeros<S>(arena, size);
    for (int i = 0; i < nr; ++i)
      for (int k = 0; k < nr; ++k)
        if (held(k)) D[i * nr + k] = f.M[i * nr + k];
    solve(D, out[2], out[6], unit, none);
  }
  if (out[3] != nullptr || out[7] != nullptr) solve(zeros<S>(arena, size), out[3], out[7], none, unit);
}

struct ReducedForwardDerivatives {
  static constexpr const char* name = "forward_dynamics_derivatives";
  static constexpr int inputs = 4, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedForwardDerivatives>(m, options, in, out);
    reduce_slots(m, "qvx-", "mmm", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    S* const all[8] = {out[0], out[1], nullptr, out[2], nullptr, nullptr, nullptr, nullptr};
    reduced_hybrid_derivatives<S>(m, arena, options, in[0], in[1], in[3], nullptr, arena.get<S>(m.coupling->nv()),
                                  const_cast<S*>(in[2]), all);
  }
};

struct ReducedHybridDerivatives {
  static constexpr const char* name = "hybrid_dynamics_derivatives";
  static constexpr int inputs = 5, outputs = 8;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedHybridDerivatives>(m, options, in, out);
    reduce_slots(m, "qvxx-", "mmmmmmmm", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const int nr = m.coupling->nv();
    S *a = arena.get<S>(nr), *tau = arena.get<S>(nr);
    std::copy_n(in[2], nr, a);
    std::copy_n(in[3], nr, tau);
    reduced_hybrid_derivatives(m, arena, options, in[0], in[1], in[4], options.prescribed, a, tau, out);
  }
};

// ---- directional derivatives

// A reduced state with tangents, lifted over dual numbers; and as values and tangents of the tree.
template <class S>
struct MovingState {
  Lifted<Dual<S>> tree;
  const Dual<S>*z, *v, *a;
  const S *q, *dq, *tree_v, *dv, *tree_a, *da;  // dq in the tangent space of the tree
};
template <class S>
MovingState<S> moving_state(const Model& m, Arena& arena, const S* q, const S* v, const S* a, const S* dq, const S* dv,
                            const S* da, int level) {
  const Coupling& c = *m.coupling;
  auto* z = with_tangent<S>(arena, q, nullptr, c.nq());
  for (int k = 0; dq != nullptr && k < c.nv(); ++k)
    if (c.position[k] >= 0) z[c.position[k]].d = dq[k];
  const Dual<S>*xv = with_tangent(arena, v, dv, c.nv()), *xa = with_tangent(arena, a, da, c.nv());
  const Lifted<Dual<S>> tree = lift_state<Dual<S>>(m, arena, z, xv, xa, level);
  S* parts[6];
  for (int k = 0; k < 6; ++k) parts[k] = arena.get<S>(k == 0 ? m.nq : m.nv);
  split<S>(tree.q, m.nq, parts[0], nullptr);
  split(tree.v, m.nv, parts[2], parts[3]);
  split(tree.a, m.nv, parts[4], parts[5]);
  for (const Coupling::Run& run : c.runs_v)
    for (int k = 0; k < run.count; ++k) parts[1][run.tree + k] = dq != nullptr ? dq[run.reduced + k] : S(0.0);
  for (const Coupling::Row& row : c.rows) parts[1][row.iv] = tree.q[row.iq].d;
  return {tree, z, xv, xa, parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]};
}

// tau_R = P^T tau and its tangent.
template <class S>
void pull_moving(const MovingState<S>& s, Arena& arena, int nv, const S* tau, const S* dtau, S* out, S* dout) {
  const int nr = s.tree.terms.coupling.nv();
  auto* reduced = arena.get<Dual<S>>(nr);
  pull<Dual<S>>(s.tree.terms, with_tangent(arena, tau, dtau, nv), reduced);
  split(reduced, nr, out, dout);
}

template <class S>
void reduced_inverse_jvp(const Model& m, Arena& arena, const Options& options, const S* q, const S* v, const S* a,
                         const S* f_ext, const S* dq, const S* dv, const S* da, const S* df_ext, S* tau, S* dtau) {
  static const TreeKernel jvp("inverse_dynamics_jvp");
  const MovingState<S> s = moving_state(m, arena, q, v, a, dq, dv, da, 2);
  S *value = arena.get<S>(m.nv), *tangent = arena.get<S>(m.nv);
  jvp.operator()<S>(m, arena, options, {s.q, s.tree_v, s.tree_a, f_ext, s.dq, s.dv, s.da, df_ext}, {value, tangent});
  pull_moving(s, arena, m.nv, value, tangent, tau, dtau);
}

struct ReducedInverseJVP {
  static constexpr const char* name = "inverse_dynamics_jvp";
  static constexpr int inputs = 8, outputs = 2;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedInverseJVP>(m, options, in, out);
    reduce_slots(m, "qva-xxx-", "ff", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    reduced_inverse_jvp(m, arena, options, in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], out[0], out[1]);
  }
};

// With a and tau the solution, and r the tangent of inverse dynamics at given da_p, da_f = M_ff^-1 (dtau_f - r_f).
template <class S>
void reduced_hybrid_jvp(const Model& m, Arena& arena, const Options& options, const S* q, const S* v, const S* f_ext,
                        const S* dq, const S* dv, const S* df_ext, const unsigned char* prescribed, S* a, S* tau, S* da,
                        S* dtau) {
  const int nr = m.coupling->nv();
  reduced_hybrid_dynamics(m, arena, options, q, v, f_ext, prescribed, a, tau);
  const auto held = [&](int k) { return prescribed != nullptr && prescribed[k] != 0; };
  for (int k = 0; k < nr; ++k)
    if (!held(k)) da[k] = S(0.0);
  S *value = arena.get<S>(nr), *r = arena.get<S>(nr);
  reduced_inverse_jvp<S>(m, arena, options, q, v, a, f_ext, dq, dv, da, df_ext, value, r);
  const Lifted<S> at = lift_state<S>(m, arena, q, nullptr, nullptr, 1);
  const ReducedMass<S> f = factor_reduced_mass<S>(m, arena, tangent_map(at.terms, arena), at.q, prescribed);
  S* x = zeros<S>(arena, nr);
  for (int i = 0; i < f.n; ++i) x[f.which[i]] = dtau[f.which[i]] - r[f.which[i]];
  f.solve(arena, 1, x);
  for (int i = 0; i < f.n; ++i) da[f.which[i]] = x[f.which[i]];
  for (int k = 0; k < nr; ++k) {
    if (!held(k)) continue;
    dtau[k] = r[k];
    for (int i = 0; i < f.n; ++i) dtau[k] = mul_add(f.M[k * nr + f.which[i]], x[f.which[i]], dtau[k]);
  }
}
template <class S>
S* copy_or_zeros(Arena& arena, const S* x, int n) {
  S* y = zeros<S>(arena, n);
  if (x != nullptr) std::copy_n(x, n, y);
  return y;
}

struct ReducedForwardJVP {
  static constexpr const char* name = "forward_dynamics_jvp";
  static constexpr int inputs = 8, outputs = 2;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedForwardJVP>(m, options, in, out);
    reduce_slots(m, "qvx-xxx-", "ff", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const int nr = m.coupling->nv();
    S *a = arena.get<S>(nr), *da = arena.get<S>(nr), *dtau = copy_or_zeros(arena, in[6], nr);
    reduced_hybrid_jvp<S>(m, arena, options, in[0], in[1], in[3], in[4], in[5], in[7], nullptr, a,
                          const_cast<S*>(in[2]), da, dtau);
    if (out[0] != nullptr) std::copy_n(a, nr, out[0]);
    if (out[1] != nullptr) std::copy_n(da, nr, out[1]);
  }
};

struct ReducedHybridJVP {
  static constexpr const char* name = "hybrid_dynamics_jvp";
  static constexpr int inputs = 10, outputs = 4;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedHybridJVP>(m, options, in, out);
    reduce_slots(m, "qvxx-xxxx-", "ffff", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const int nr = m.coupling->nv();
    S* all[] = {copy_or_zeros(arena, in[2], nr), copy_or_zeros(arena, in[3], nr), copy_or_zeros(arena, in[7], nr),
                copy_or_zeros(arena, in[8], nr)};
    reduced_hybrid_jvp<S>(m, arena, options, in[0], in[1], in[4], in[5], in[6], in[9], options.prescribed, all[0],
                          all[1], all[2], all[3]);
    for (int k = 0; k < 4; ++k)
      if (out[k] != nullptr) std::copy_n(all[k], nr, out[k]);
  }
};

struct ReducedReactionsJVP {
  static constexpr const char* name = "joint_reactions_jvp";
  static constexpr int inputs = 8, outputs = 2;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedReactionsJVP>(m, options, in, out);
    reduce_slots(m, "qva-xxx-", "--", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const TreeKernel jvp(name);
    const MovingState<S> s = moving_state(m, arena, in[0], in[1], in[2], in[4], in[5], in[6], 2);
    jvp.operator()<S>(m, arena, options, {s.q, s.tree_v, s.tree_a, in[3], s.dq, s.dv, s.da, in[7]}, {out[0], out[1]});
  }
};

// dtau/dq, dtau/dv and M with tangents: the chain rule over dual numbers.
template <class S>
void reduced_derivatives_jvp(const Model& m, Arena& arena, const Options& options, const S* q, const S* v, const S* a,
                             const S* f_ext, const S* dq, const S* dv, const S* da, const S* df_ext,
                             Dual<S>* const* out) {
  static const TreeKernel derivatives("inverse_dynamics_derivatives_jvp"), jvp("inverse_dynamics_jvp");
  const int size = m.nv * m.nv;
  const MovingState<S> s = moving_state(m, arena, q, v, a, dq, dv, da, 3);
  S* parts[6];
  for (S*& part : parts) part = arena.get<S>(size);
  const std::initializer_list<const S*> in = {s.q, s.tree_v, s.tree_a, f_ext, s.dq, s.dv, s.da, df_ext};
  derivatives.run<S>(m, arena, options, in.begin(), parts);
  S *tau = arena.get<S>(m.nv), *dtau = arena.get<S>(m.nv);
  jvp.operator()<S>(m, arena, options, in, {tau, dtau});
  const Dual<S>* A[3];
  for (int k = 0; k < 3; ++k) A[k] = with_tangent<S>(arena, parts[k], parts[3 + k], size);
  const BlockTerms<Dual<S>>& t = s.tree.terms;
  const ChainedState<Dual<S>> chained{s.tree,
                                      s.z,
                                      s.v,
                                      s.a,
                                      tangent_map(t, arena),
                                      tangent_rate<Dual<S>>(t, arena, s.v),
                                      tangent_rate<Dual<S>>(t, arena, s.a, s.v)};
  chain_forces<Dual<S>>(chained, arena, A[0], A[1], A[2], with_tangent<S>(arena, tau, dtau, m.nv), out[0], out[1],
                        out[2]);
}

struct ReducedInverseDerivativesJVP {
  static constexpr const char* name = "inverse_dynamics_derivatives_jvp";
  static constexpr int inputs = 8, outputs = 6;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedInverseDerivativesJVP>(m, options, in, out);
    reduce_slots(m, "qva-xxx-", "mmmmmm", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const int size = m.coupling->nv() * m.coupling->nv();
    Dual<S>* D[3];
    for (int k = 0; k < 3; ++k) D[k] = get_if<Dual<S>>(arena, out[k] || out[3 + k], size);
    reduced_derivatives_jvp<S>(m, arena, options, in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], D);
    for (int k = 0; k < 3; ++k)
      if (D[k] != nullptr) split(D[k], size, out[k], out[3 + k]);
  }
};

// X = -M^-1 D, with D one of ID_q, ID_v and -1; its tangent is -M^-1 (dD + dM X).
struct ReducedForwardDerivativesJVP {
  static constexpr const char* name = "forward_dynamics_derivatives_jvp";
  static constexpr int inputs = 8, outputs = 6;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedForwardDerivativesJVP>(m, options, in, out);
    reduce_slots(m, "qvx-xxx-", "mmmmmm", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const int nr = m.coupling->nv(), size = nr * nr;
    S *a = arena.get<S>(nr), *da = arena.get<S>(nr), *dtau = copy_or_zeros(arena, in[6], nr);
    reduced_hybrid_jvp<S>(m, arena, options, in[0], in[1], in[3], in[4], in[5], in[7], nullptr, a,
                          const_cast<S*>(in[2]), da, dtau);
    Dual<S>* D[3];
    for (Dual<S>*& part : D) part = arena.get<Dual<S>>(size);
    reduced_derivatives_jvp<S>(m, arena, options, in[0], in[1], a, in[3], in[4], in[5], da, in[7], D);
    const Lifted<S> at = lift_state<S>(m, arena, in[0], nullptr, nullptr, 1);
    const ReducedMass<S> f = factor_reduced_mass<S>(m, arena, tangent_map(at.terms, arena), at.q, nullptr);
    for (int k = 0; k < 3; ++k) {
      if (!out[k] && !out[3 + k]) continue;
      S *X = out[k] ? out[k] : arena.get<S>(size), *dX = out[3 + k];
      for (int c = 0; c < size; ++c) X[c] = k < 2 ? -D[k][c].v : S(c % (nr + 1) == 0 ? 1.0 : 0.0);
      f.solve(arena, nr, X);
      if (dX == nullptr) continue;
      for (int i = 0; i < nr; ++i) {
        for (int c = 0; c < nr; ++c) dX[i * nr + c] = k < 2 ? -D[k][i * nr + c].d : S(0.0);
        for (int l = 0; l < nr; ++l) add_scaled(nr, -D[2][i * nr + l].d, X + l * nr, dX + i * nr);
      }
      f.solve(arena, nr, dX);
    }
  }
};

// ---- gradients

// Gradients of w . tau_R: those of the tree with respect to its parameters, out[3] to out[7], and those with respect to
// the reduced state.
template <class S>
void reduced_inverse_vjp(const Model& m, Arena& arena, const Options& options, const ChainedState<S>& s, const S* w,
                         const S* f_ext, S* q, S* v, S* a, S* const* others) {
  static const TreeKernel vjp("inverse_dynamics_vjp");
  const bool bent = !m.coupling->is_linear();
  S *weights = arena.get<S>(m.nv), *g_q = get_if<S>(arena, q, m.nv), *g_v = get_if<S>(arena, v || (q && bent), m.nv),
    *g_a = get_if<S>(arena, a || (bent && (q || v)), m.nv);
  lift_velocities(s.terms(), arena, w, weights);
  vjp.operator()<S>(m, arena, options, {s.tree.q, s.tree.v, s.tree.a, weights, f_ext},
                    {g_q, g_v, g_a, others[0], others[1], others[2], others[3], others[4]});
  const S* tau = q != nullptr && bent ? tree_forces(m, arena, options, s.tree, f_ext) : nullptr;
  chain_gradients<S>(s, arena, g_q, g_v, g_a, tau, bent ? w : nullptr, q, v, a);
}

struct ReducedInverseVJP {
  static constexpr const char* name = "inverse_dynamics_vjp";
  static constexpr int inputs = 5, outputs = 8;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedInverseVJP>(m, options, in, out);
    reduce_slots(m, "qvax-", "fff-----", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    reduced_inverse_vjp(m, arena, options, chained_state(m, arena, in[0], in[1], in[2]), in[3], in[4], out[0], out[1],
                        out[2], out + 3);
  }
};

// With s_f = w_a,f + M_fp w_tau,p and mu = M_ff^-1 s_f, gradients are those of inverse dynamics weighted with w_tau on
// p and -mu on f, and mu + w_tau of tau_f.
template <class S>
void reduced_hybrid_vjp(const Model& m, Arena& arena, const Options& options, const S* q, const S* v, const S* f_ext,
                        const unsigned char* prescribed, S* a, S* tau, const S* w_a, const S* w_tau, S* g_q, S* g_v,
                        S* g_a, S* g_tau, S* const* others) {
  const int nr = m.coupling->nv();
  const auto held = [&](int k) { return prescribed != nullptr && prescribed[k] != 0; };
  reduced_hybrid_dynamics(m, arena, options, q, v, f_ext, prescribed, a, tau);
  const ChainedState<S> s = chained_state<S>(m, arena, q, v, a);
  const ReducedMass<S> f = factor_reduced_mass<S>(m, arena, s.P, s.tree.q, prescribed);
  S* x = arena.get<S>(nr);
  for (int k = 0; k < nr; ++k) {
    x[k] = held(k) ? w_tau[k] : w_a[k];
    for (int p = 0; !held(k) && p < nr; ++p)
      if (held(p)) x[k] = mul_add(f.M[k * nr + p], w_tau[p], x[k]);
  }
  f.solve(arena, 1, x);
  S* weights = arena.get<S>(nr);
  for (int k = 0; k < nr; ++k) {
    weights[k] = held(k) ? x[k] : -x[k];
    if (g_tau == nullptr) continue;
    g_tau[k] = held(k) ? S(0.0) : x[k];
    if (!held(k) && w_tau != nullptr) g_tau[k] += w_tau[k];
  }
  reduced_inverse_vjp<S>(m, arena, options, s, weights, f_ext, g_q, g_v, g_a, others);
  for (int k = 0; g_a != nullptr && k < nr; ++k) g_a[k] = held(k) ? g_a[k] + w_a[k] : S(0.0);
}

struct ReducedForwardVJP {
  static constexpr const char* name = "forward_dynamics_vjp";
  static constexpr int inputs = 5, outputs = 8;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedForwardVJP>(m, options, in, out);
    reduce_slots(m, "qvxx-", "fff-----", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    reduced_hybrid_vjp<S>(m, arena, options, in[0], in[1], in[4], nullptr, arena.get<S>(m.coupling->nv()),
                          const_cast<S*>(in[2]), in[3], nullptr, out[0], out[1], nullptr, out[2], out + 3);
  }
};

struct ReducedHybridVJP {
  static constexpr const char* name = "hybrid_dynamics_vjp";
  static constexpr int inputs = 7, outputs = 9;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedHybridVJP>(m, options, in, out);
    reduce_slots(m, "qvxxxx-", "ffff-----", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const int nr = m.coupling->nv();
    reduced_hybrid_vjp<S>(m, arena, options, in[0], in[1], in[6], options.prescribed, copy_or_zeros(arena, in[2], nr),
                          copy_or_zeros(arena, in[3], nr), in[4], in[5], out[0], out[1], out[2], out[3], out + 4);
  }
};

struct ReducedReactionsVJP {
  static constexpr const char* name = "joint_reactions_vjp";
  static constexpr int inputs = 5, outputs = 8;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedReactionsVJP>(m, options, in, out);
    reduce_slots(m, "qva--", "fff-----", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const TreeKernel vjp(name);
    const ChainedState<S> s = chained_state(m, arena, in[0], in[1], in[2]);
    S *g_q = arena.get<S>(m.nv), *g_v = arena.get<S>(m.nv), *g_a = arena.get<S>(m.nv);
    vjp.operator()<S>(m, arena, options, {s.tree.q, s.tree.v, s.tree.a, in[3], in[4]},
                      {g_q, g_v, g_a, out[3], out[4], out[5], out[6], out[7]});
    chain_gradients<S>(s, arena, g_q, g_v, g_a, nullptr, nullptr, out[0], out[1], out[2]);
  }
};

// The gradient of w . tau_R with respect to the numbers of the couplings.
struct CouplingVJP {
  static constexpr int inputs = 5, outputs = 1;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    const Model& states = manifold(m);
    in[0] = {"q", 1, {states.nq}};
    in[1] = {"v", 1, {states.nv}};
    in[2] = {"a", 1, {states.nv}};
    in[3] = {"w", 1, {states.nv}};
    in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"numbers", 1, {m.coupling ? m.coupling->numbers : 0}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const TreeKernel vjp("inverse_dynamics_vjp");
    if (!m.coupling) return;
    const Lifted<S> at = lift_state(m, arena, in[0], in[1], in[2], 3);
    S* g[3];
    for (S*& one : g) one = arena.get<S>(m.nv);
    S* weights = arena.get<S>(m.nv);
    lift_velocities(at.terms, arena, in[3], weights);
    vjp.operator()<S>(m, arena, options, {at.q, at.v, at.a, weights, in[4]},
                      {g[0], g[1], g[2], nullptr, nullptr, nullptr, nullptr, nullptr});
    std::fill_n(out[0], m.coupling->numbers, S(0.0));
    add_number_gradient<S>(at.terms, arena, {in[0], in[1], in[2], in[3]},
                           {g[0], g[1], g[2], tree_forces(m, arena, options, at, in[4])}, out[0]);
  }
};

// The gradient of g_q . q + g_v . v of the tree with respect to the numbers of the couplings, at a reduced state.
struct ExpansionVJP {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = false, has_complex = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    const Model& states = manifold(m);
    in[0] = {"q", 1, {states.nq}};
    in[1] = {"v", 1, {states.nv}};
    in[2] = {"g_q", 1, {m.nv}};
    in[3] = {"g_v", 1, {m.nv}};
    out[0] = {"numbers", 1, {m.coupling ? m.coupling->numbers : 0}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    if (!m.coupling) return;
    const S *none = zeros<S>(arena, m.nv), *rest = zeros<S>(arena, m.coupling->nv());
    std::fill_n(out[0], m.coupling->numbers, S(0.0));
    add_number_gradient<S>(block_terms(*m.coupling, arena, in[0], 3), arena, {in[0], in[1], rest, rest},
                           {in[2], in[3], none, none}, out[0]);
  }
};

}  // namespace

void bind_coupled_derivatives(Kernels& kernels) {
  kernels.add_coupled<ReducedInverseDerivatives>("inverse_dynamics_derivatives");
  kernels.add_coupled<ReducedForwardDerivatives>("forward_dynamics_derivatives");
  kernels.add_coupled<ReducedHybridDerivatives>("hybrid_dynamics_derivatives");
  kernels.add_coupled<ReducedInverseJVP>("inverse_dynamics_jvp");
  kernels.add_coupled<ReducedForwardJVP>("forward_dynamics_jvp");
  kernels.add_coupled<ReducedHybridJVP>("hybrid_dynamics_jvp");
  kernels.add_coupled<ReducedReactionsJVP>("joint_reactions_jvp");
  kernels.add_coupled<ReducedInverseDerivativesJVP>("inverse_dynamics_derivatives_jvp");
  kernels.add_coupled<ReducedForwardDerivativesJVP>("forward_dynamics_derivatives_jvp");
  kernels.add_coupled<ReducedInverseVJP>("inverse_dynamics_vjp");
  kernels.add_coupled<ReducedForwardVJP>("forward_dynamics_vjp");
  kernels.add_coupled<ReducedHybridVJP>("hybrid_dynamics_vjp");
  kernels.add_coupled<ReducedReactionsVJP>("joint_reactions_vjp");
  kernels.add<CouplingVJP>("coupling_vjp");
  kernels.add_coupled<CouplingVJP>("coupling_vjp");
  kernels.add<ExpansionVJP>("expansion_vjp");
  kernels.add_coupled<ExpansionVJP>("expansion_vjp");
}

}  // namespace torsor
