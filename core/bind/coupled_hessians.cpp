// Second derivatives, and derivatives of kinematics, for models with couplings: derivatives/coupled_derivatives.hpp.
#include "bind/coupled.hpp"

namespace torsor {
namespace {

// What second derivatives of w . tau_R need of a state beside those of the tree: nothing if P is constant.
template <class S>
struct FirstOrder {
  S *A_q = nullptr, *A_v = nullptr, *M = nullptr;
  const S* tau = nullptr;
};
template <class S>
FirstOrder<S> first_order(const Model& m, Arena& arena, const Options& options, const ChainedState<S>& s,
                          const S* f_ext) {
  static const TreeKernel derivatives("inverse_dynamics_derivatives");
  FirstOrder<S> d;
  if (m.coupling->is_linear()) return d;
  for (S** matrix : {&d.A_q, &d.A_v, &d.M}) *matrix = arena.get<S>(m.nv * m.nv);
  derivatives.operator()<S>(m, arena, options, {s.tree.q, s.tree.v, s.tree.a, f_ext}, {d.A_q, d.A_v, d.M});
  d.tau = tree_forces(m, arena, options, s.tree, f_ext);
  return d;
}

// Second derivatives of w . tau_R, H[4] (any may be null), and its gradients with respect to q_R, v_R and a_R.
template <class S>
void reduced_contracted_hessians(const Model& m, Arena& arena, const Options& options, const ChainedState<S>& s,
                                 const FirstOrder<S>& d, const S* w, const S* f_ext, S* const* H, S* dq, S* dv, S* da) {
  static const TreeKernel contracted("inverse_dynamics_hessians_contracted");
  const bool bent = !m.coupling->is_linear();
  const int size = m.nv * m.nv;
  S *weights = arena.get<S>(m.nv), *h[7];
  lift_velocities(s.terms(), arena, w, weights);
  for (int k = 0; k < 4; ++k) h[k] = bent || H[k] != nullptr ? arena.get<S>(size) : nullptr;
  for (int k = 4; k < 7; ++k) h[k] = arena.get<S>(m.nv);
  const S* in[] = {s.tree.q, s.tree.v, s.tree.a, weights, f_ext};
  contracted.run<S>(m, arena, options, in, h);
  chain_hessians<S>(s, arena, {h[0], h[1], h[2], h[3], d.A_q, d.A_v, d.M, h[4], h[5], h[6], d.tau}, w, H[0], H[1], H[2],
                    H[3]);
  chain_gradients<S>(s, arena, h[4], h[5], h[6], d.tau, bent ? w : nullptr, dq, dv, da);
}

struct ReducedInverseHessiansContracted {
  static constexpr const char* name = "inverse_dynamics_hessians_contracted";
  static constexpr int inputs = 5, outputs = 7;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedInverseHessiansContracted>(m, options, in, out);
    reduce_slots(m, "qvax-", "mmmmfff", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const ChainedState<S> s = chained_state(m, arena, in[0], in[1], in[2]);
    const FirstOrder<S> d = first_order(m, arena, options, s, in[4]);
    reduced_contracted_hessians<S>(m, arena, options, s, d, in[3], in[4], out, out[4], out[5], out[6]);
  }
};

// Row by row of the generalized forces, each contracted with a unit vector.
struct ReducedInverseHessians {
  static constexpr const char* name = "inverse_dynamics_hessians";
  static constexpr int inputs = 4, outputs = 4;
  static constexpr bool has_options = true, has_complex = false;
  static int slabs(const Model& m) { return m.coupling->nv(); }
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedInverseHessians>(m, options, in, out);
    reduce_slots(m, "qva-", "hhhh", in, out);
  }
  template <class S, class Next>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out,
                  Next&& next) {
    const int nr = m.coupling->nv();
    const ChainedState<S> s = chained_state(m, arena, in[0], in[1], in[2]);
    const FirstOrder<S> d = first_order(m, arena, options, s, in[3]);
    S* w = zeros<S>(arena, nr);
    Lease lease;
    for (int i = 0; i < nr; ++i) {
      (*lease).reset();
      w[i] = S(1.0);
      reduced_contracted_hessians<S>(m, *lease, options, s, d, w, in[3], out, nullptr, nullptr, nullptr);
      w[i] = S(0.0);
      next();
    }
  }
};

// Second derivatives of forward dynamics, by the identities of derivatives/forward_dynamics_hessians.hpp.
template <class S>
class ReducedForwardSecondOrder {
 public:
  ReducedForwardSecondOrder(const Model& m, Arena& arena, const Options& options, const S* q, const S* v, const S* tau,
                            const S* f_ext)
      : m_(m),
        options_(options),
        f_ext_(f_ext),
        nr_(m.coupling->nv()),
        s_(chained_state<S>(m, arena, q, v, solved(m, arena, options, q, v, tau, f_ext))),
        d_(first_order(m, arena, options, s_, f_ext)),
        mass_(factor_reduced_mass<S>(m, arena, s_.P, s_.tree.q, nullptr)),
        aq_(arena.get<S>(nr_ * nr_)),
        av_(arena.get<S>(nr_ * nr_)) {
    static const TreeKernel derivatives("inverse_dynamics_derivatives");
    S *A_q = arena.get<S>(m.nv * m.nv), *A_v = arena.get<S>(m.nv * m.nv), *M = arena.get<S>(m.nv * m.nv);
    derivatives.operator()<S>(m, arena, options, {s_.tree.q, s_.tree.v, s_.tree.a, f_ext}, {A_q, A_v, M});
    chain_forces<S>(s_, arena, A_q, A_v, M, d_.tau, aq_, av_, nullptr);
    for (S* X : {aq_, av_}) {
      for (int k = 0; k < nr_ * nr_; ++k) X[k] = -X[k];
      mass_.solve(arena, nr_, X);
    }
  }
  // Second derivatives of lambda . a, and its gradients.
  void contracted(Arena& arena, const S* lambda, S* const* H, S* dq, S* dv, S* dtau) const {
    const int nr = nr_, size = nr * nr;
    S *w = arena.get<S>(nr), *h[4];
    std::copy_n(lambda, nr, w);
    mass_.solve(arena, 1, w);
    for (int k = 0; k < 4; ++k) h[k] = H[k] != nullptr ? H[k] : k == 3 ? arena.get<S>(size) : nullptr;
    reduced_contracted_hessians<S>(m_, arena, options_, s_, d_, w, f_ext_, h, dq, dv, nullptr);
    S* Y = arena.get<S>(size);
    if (H[0] != nullptr) {
      for (int k = 0; k < size; ++k) Y[k] = S(0.0);
      add_product_of_transpose(nr, nr, nr, h[3], aq_, Y);
      for (int i = 0; i < nr; ++i)
        for (int j = 0; j < nr; ++j) H[0][i * nr + j] += Y[i * nr + j] + Y[j * nr + i];
    }
    if (H[1] != nullptr) add_product_of_transpose(nr, nr, nr, h[3], av_, H[1]);
    if (H[3] != nullptr) mass_.solve(arena, nr, H[3]);
    for (int k = 0; k < 4; ++k)
      for (int i = 0; H[k] != nullptr && i < size; ++i) H[k][i] = -H[k][i];
    for (S* g : {dq, dv})
      for (int k = 0; g != nullptr && k < nr; ++k) g[k] = -g[k];
    if (dtau != nullptr) std::copy_n(w, nr, dtau);
  }

 private:
  static S* solved(const Model& m, Arena& arena, const Options& options, const S* q, const S* v, const S* tau,
                   const S* f_ext) {
    S* a = arena.get<S>(m.coupling->nv());
    reduced_hybrid_dynamics<S>(m, arena, options, q, v, f_ext, nullptr, a, const_cast<S*>(tau));
    return a;
  }
  const Model& m_;
  const Options& options_;
  const S* f_ext_;
  int nr_;
  ChainedState<S> s_;
  FirstOrder<S> d_;
  ReducedMass<S> mass_;
  S *aq_, *av_;
};

struct ReducedForwardHessiansContracted {
  static constexpr const char* name = "forward_dynamics_hessians_contracted";
  static constexpr int inputs = 5, outputs = 7;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedForwardHessiansContracted>(m, options, in, out);
    reduce_slots(m, "qvxx-", "mmmmfff", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const ReducedForwardSecondOrder<S> d(m, arena, options, in[0], in[1], in[2], in[4]);
    d.contracted(arena, in[3], out, out[4], out[5], out[6]);
  }
};

struct ReducedForwardHessians {
  static constexpr const char* name = "forward_dynamics_hessians";
  static constexpr int inputs = 4, outputs = 4;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedForwardHessians>(m, options, in, out);
    reduce_slots(m, "qvx-", "hhhh", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const int nr = m.coupling->nv();
    const ReducedForwardSecondOrder<S> d(m, arena, options, in[0], in[1], in[2], in[3]);
    S *lambda = zeros<S>(arena, nr), *H[4];
    Lease lease;
    for (int i = 0; i < nr; ++i) {
      (*lease).reset();
      lambda[i] = S(1.0);
      for (int k = 0; k < 4; ++k) H[k] = out[k] != nullptr ? out[k] + std::size_t(i) * nr * nr : nullptr;
      d.contracted(*lease, lambda, H, nullptr, nullptr, nullptr);
      lambda[i] = S(0.0);
    }
  }
};

// ---- kinematics

// Derivatives of numbers of the tree with respect to q, v and a, all outputs of one kernel in this order.
template <class Rule>
struct ChainedColumns {
  static constexpr int inputs = Rule::inputs, outputs = Rule::outputs;
  static constexpr bool has_options = true;
  static constexpr const char* name = Rule::name;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ChainedColumns>(m, options, in, out);
    reduce_slots(m, outputs == 2 ? "qv" : inputs == 4 ? "qva-" : "qva", outputs == 2 ? "cc" : "ccc", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const TreeKernel kernel(name);
    const int rows = 6 * m.nframes();
    const ChainedState<S> s = chained_state<S>(m, arena, in[0], in[1], outputs == 2 ? nullptr : in[2]);
    S* X[3] = {};
    for (int k = 0; k < outputs; ++k) X[k] = arena.get<S>(rows * m.nv);
    const S* from[] = {s.tree.q, s.tree.v, s.tree.a, inputs == 4 ? in[inputs - 1] : nullptr};
    kernel.run<S>(m, arena, options, from, X);
    chain_columns<S>(s, rows, X[0], X[1], X[2], out[0], out[1], outputs == 2 ? nullptr : out[outputs - 1]);
  }
};
struct VelocitiesRule {
  static constexpr const char* name = "body_velocities_derivatives";
  static constexpr int inputs = 2, outputs = 2;
};
struct AccelerationsRule {
  static constexpr const char* name = "body_accelerations_derivatives";
  static constexpr int inputs = 3, outputs = 3;
};
struct ReactionsRule {
  static constexpr const char* name = "joint_reactions_derivatives";
  static constexpr int inputs = 4, outputs = 3;
};

struct ReducedMomentumDerivatives {
  static constexpr const char* name = "momentum_derivatives";
  static constexpr int inputs = 3, outputs = 4;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedMomentumDerivatives>(m, options, in, out);
    reduce_slots(m, "qva", "cccc", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const TreeKernel kernel(name);
    const bool rates = out[2] != nullptr || out[3] != nullptr;
    const ChainedState<S> s = chained_state<S>(m, arena, in[0], in[1], in[2]);
    S* X[4] = {};
    for (int k = 0; k < (rates ? 4 : 2); ++k) X[k] = arena.get<S>(6 * m.nv);
    const S* from[] = {s.tree.q, s.tree.v, s.tree.a};
    kernel.run<S>(m, arena, options, from, X);
    chain_columns<S>(s, 6, X[0], X[1], nullptr, out[0], out[1], nullptr);
    if (rates) chain_columns<S>(s, 6, X[2], X[3], X[1], out[2], out[3], nullptr);
  }
};

// Y[r] += s T^T X[r] U for n matrices X[r], nv x nv, and Y[r], nR x nR.
template <class S>
void add_between(Arena& arena, int n, const TangentMatrix<S>& T, const S* X, const TangentMatrix<S>& U, S* Y) {
  const int nv = static_cast<int>(T.coupling.start.size()) - 1, nr = T.coupling.nv();
  S* half = arena.get<S>(nv * nr);
  for (int r = 0; r < n; ++r) {
    for (int k = 0; k < nv * nr; ++k) half[k] = S(0.0);
    add_times(nv, X + std::size_t(r) * nv * nv, U, half);
    add_transposed_times(nr, T, half, Y + std::size_t(r) * nr * nr);
  }
}

// d2x/dq2 of points, from H and J of the tree: P^T H P + phi''.J.
struct ReducedPointHessians {
  static constexpr const char* name = "point_hessians";
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedPointHessians>(m, options, in, out);
    reduce_slots(m, "q-", "t", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const TreeKernel hessians(name), jacobians("point_jacobians");
    const int rows = 3 * static_cast<int>(options.frames.size()), nr = m.coupling->nv();
    const ChainedState<S> s = chained_state<S>(m, arena, in[0], nullptr, nullptr);
    S *H = arena.get<S>(std::size_t(rows) * m.nv * m.nv), *J = arena.get<S>(rows * m.nv);
    hessians.operator()<S>(m, arena, options, {s.tree.q, in[1]}, {H});
    std::fill_n(out[0], rows * nr * nr, S(0.0));
    add_between(arena, rows, s.P, H, s.P, out[0]);
    if (m.coupling->is_linear()) return;
    jacobians.operator()<S>(m, arena, options, {s.tree.q, in[1]}, {J});
    for (int r = 0; r < rows; ++r) add_curvature(s.terms(), arena, J + r * m.nv, out[0] + r * nr * nr);
  }
};

// J_R = J P and Jdot_R = Jdot P + J Pdot, with dJdot/dv = dJ/dq.
struct ReducedMaximalJacobianDerivatives {
  static constexpr const char* name = "maximal_jacobian_derivatives";
  static constexpr int inputs = 2, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedMaximalJacobianDerivatives>(m, options, in, out);
    reduce_slots(m, "qv", "tct", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const TreeKernel derivatives(name), jacobian("maximal_jacobian");
    const int rows = 6 * m.nframes(), nv = m.nv, nr = m.coupling->nv();
    const std::size_t size = std::size_t(rows) * nv * nv;
    const ChainedState<S> s = chained_state<S>(m, arena, in[0], in[1], nullptr);
    const bool moves = out[1] != nullptr || out[2] != nullptr;
    S *dJ = arena.get<S>(size), *Jdot = moves ? arena.get<S>(rows * nv) : nullptr,
      *dJdot = out[2] != nullptr ? arena.get<S>(size) : nullptr, *J = arena.get<S>(rows * nv);
    derivatives.operator()<S>(m, arena, options, {s.tree.q, s.tree.v}, {dJ, Jdot, dJdot});
    jacobian.operator()<S>(m, arena, {}, {s.tree.q}, {J});
    if (out[0] != nullptr) {
      std::fill_n(out[0], std::size_t(rows) * nr * nr, S(0.0));
      add_between(arena, rows, s.P, dJ, s.P, out[0]);
      for (int r = 0; r < rows; ++r) add_curvature(s.terms(), arena, J + r * nv, out[0] + r * nr * nr);
    }
    if (out[1] != nullptr) {
      std::fill_n(out[1], rows * nr, S(0.0));
      add_times(rows, Jdot, s.P, out[1]);
      add_times(rows, J, s.Pdot, out[1]);
    }
    if (out[2] == nullptr) return;
    std::fill_n(out[2], std::size_t(rows) * nr * nr, S(0.0));
    add_between(arena, rows, s.P, dJdot, s.P, out[2]);
    if (m.coupling->is_linear()) return;
    add_between(arena, rows, s.P, dJ, s.Pdot, out[2]);
    add_between(arena, rows, s.Pdot, dJ, s.P, out[2]);
    for (int r = 0; r < rows; ++r) {
      add_curvature(s.terms(), arena, Jdot + r * nv, out[2] + r * nr * nr);
      add_curvature<S>(s.terms(), arena, 3, J + r * nv, s.v, nullptr, out[2] + r * nr * nr);
    }
  }
};

// ---- the map itself, for costs

// Pdot = d(P v)/dq, tree's velocities x reduced ones.
struct CouplingRate {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {manifold(m).nq}};
    in[1] = {"v", 1, {manifold(m).nv}};
    out[0] = {"Pdot", 2, {m.nv, manifold(m).nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    const int nr = manifold(m).nv;
    std::fill_n(out[0], m.nv * nr, S(0.0));
    if (!m.coupling) return;
    const TangentMatrix<S> T = tangent_rate(block_terms(*m.coupling, arena, in[0], 2), arena, in[1]);
    each_row(T, [&](int i, int begin, int end) {
      for (int k = begin; k < end; ++k) out[0][i * nr + m.coupling->column[k]] += T.x[k];
    });
  }
};
// phi''.y and, with v and x, phi'''[v].x in addition.
struct CouplingCurvature {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = false, has_complex = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    const int nr = manifold(m).nv;
    in[0] = {"q", 1, {manifold(m).nq}};
    in[1] = {"y", 1, {m.nv}};
    in[2] = {"v", 1, {nr}, true};
    in[3] = {"x", 1, {m.nv}, true};
    out[0] = {"curvature", 2, {nr, nr}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    std::fill_n(out[0], manifold(m).nv * manifold(m).nv, S(0.0));
    if (!m.coupling) return;
    const BlockTerms<S> t = block_terms(*m.coupling, arena, in[0], 3);
    add_curvature(t, arena, in[1], out[0]);
    if (in[2] != nullptr && in[3] != nullptr) add_curvature<S>(t, arena, 3, in[3], in[2], nullptr, out[0]);
  }
};

// ---- forces

struct ReducedForcesDerivatives {
  static constexpr const char* name = "generalized_forces_derivatives";
  static constexpr int inputs = 4, outputs = 2;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedForcesDerivatives>(m, options, in, out);
    reduce_slots(m, "qv--", "mm", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const TreeKernel derivatives(name), forces("generalized_forces");
    const ChainedState<S> s = chained_state<S>(m, arena, in[0], in[1], nullptr);
    S *K = arena.get<S>(m.nv * m.nv), *D = arena.get<S>(m.nv * m.nv), *tau = arena.get<S>(m.nv);
    derivatives.operator()<S>(m, arena, options, {s.tree.q, s.tree.v, in[2], in[3]}, {K, D});
    forces.operator()<S>(m, arena, options, {s.tree.q, s.tree.v, in[2], in[3]}, {tau});
    chain_forces<S>(s, arena, K, D, nullptr, tau, out[0], out[1], nullptr);
  }
};

struct ReducedForcesVJP {
  static constexpr const char* name = "generalized_forces_vjp";
  static constexpr int inputs = 5, outputs = 3;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedForcesVJP>(m, options, in, out);
    reduce_slots(m, "qv--x", "ff-", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    static const TreeKernel vjp(name), forces("generalized_forces");
    const ChainedState<S> s = chained_state<S>(m, arena, in[0], in[1], nullptr);
    S *w = arena.get<S>(m.nv), *g_q = arena.get<S>(m.nv), *g_v = arena.get<S>(m.nv), *tau = arena.get<S>(m.nv);
    lift_velocities(s.terms(), arena, in[4], w);
    vjp.operator()<S>(m, arena, options, {s.tree.q, s.tree.v, in[2], in[3], w}, {g_q, g_v, out[2]});
    forces.operator()<S>(m, arena, options, {s.tree.q, s.tree.v, in[2], in[3]}, {tau});
    chain_gradients<S>(s, arena, g_q, g_v, nullptr, tau, in[4], out[0], out[1], nullptr);
  }
};

}  // namespace

void bind_coupled_hessians(Kernels& kernels) {
  kernels.add_coupled<ReducedInverseHessiansContracted>("inverse_dynamics_hessians_contracted");
  kernels.add_coupled<ReducedInverseHessians>("inverse_dynamics_hessians");
  kernels.add_coupled<ReducedForwardHessiansContracted>("forward_dynamics_hessians_contracted");
  kernels.add_coupled<ReducedForwardHessians>("forward_dynamics_hessians");
  kernels.add_coupled<ChainedColumns<VelocitiesRule>>("body_velocities_derivatives");
  kernels.add_coupled<ChainedColumns<AccelerationsRule>>("body_accelerations_derivatives");
  kernels.add_coupled<ChainedColumns<ReactionsRule>>("joint_reactions_derivatives");
  kernels.add_coupled<ReducedMomentumDerivatives>("momentum_derivatives");
  kernels.add_coupled<ReducedPointHessians>("point_hessians");
  kernels.add_coupled<ReducedMaximalJacobianDerivatives>("maximal_jacobian_derivatives");
  kernels.add<CouplingRate>("coupling_rate");
  kernels.add_coupled<CouplingRate>("coupling_rate");
  kernels.add<CouplingCurvature>("coupling_curvature");
  kernels.add_coupled<CouplingCurvature>("coupling_curvature");
  kernels.add_coupled<ReducedForcesDerivatives>("generalized_forces_derivatives");
  kernels.add_coupled<ReducedForcesVJP>("generalized_forces_vjp");
}

}  // namespace torsor
