#include "bind/kernel.hpp"
#include "derivatives/dual_states.hpp"
#include "derivatives/inverse_dynamics_derivatives.hpp"
#include "dynamics/joint_reactions.hpp"
#include "dynamics/mass_solve.hpp"

namespace torsor {
namespace {

// The model of the recursions: the given one or, along a direction of the model (compiled in cold.cpp), the one with
// tangents.
#ifdef TORSOR_COLD
const ModelT<Dual<double>>& varied(const Model&, const Options& options) { return *options.direction; }
#else
const Model& varied(const Model& m, const Options&) { return m; }
#endif

struct InverseDynamicsJVP {
  static constexpr int inputs = 8, outputs = 2;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    in[4] = {"dq", 1, {m.nv}, true};
    in[5] = {"dv", 1, {m.nv}, true};
    in[6] = {"da", 1, {m.nv}, true};
    in[7] = {"df_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"tau", 1, {m.nv}};
    out[1] = {"dtau", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const Dual<S>* q = moving(m, arena, in[0], in[4]);
    const Dual<S>*v = with_tangent(arena, in[1], in[5], m.nv), *a = with_tangent(arena, in[2], in[6], m.nv);
    const Dual<S>* f_ext = dual_wrenches(m, arena, in[3], in[7]);
    auto* tau = arena.get<Dual<S>>(m.nv);
    const auto& model = varied(m, options);
    inverse_dynamics(model, arena, q, v, a, body_wrenches(model, arena, q, options.axes, f_ext), tau);
    split(tau, m.nv, out[0], out[1]);
  }
};

// Hybrid dynamics; forward dynamics is the case without prescribed velocities.
template <class S>
void hybrid_jvp(const Model& m, Arena& arena, const Options& options, const S* q, const S* v, const S* a, const S* tau,
                const S* f_ext, const S* dq, const S* dv, const S* da, const S* dtau, const S* df_ext, S* out_a,
                S* out_tau, S* out_da, S* out_dtau) {
  const Dual<S>*x = moving(m, arena, q, dq), *xv = with_tangent(arena, v, dv, m.nv);
  const Dual<S>* wrenches = dual_wrenches(m, arena, f_ext, df_ext);
  Dual<S>*xa = with_tangent(arena, a, da, m.nv), *xtau = with_tangent(arena, tau, dtau, m.nv);
  const auto& model = varied(m, options);
  hybrid_dynamics(model, arena, x, xv, body_wrenches(model, arena, x, options.axes, wrenches), options.prescribed, xa,
                  xtau);
  split(xa, m.nv, out_a, out_da);
  split(xtau, m.nv, out_tau, out_dtau);
}

struct ForwardDynamicsJVP {
  static constexpr int inputs = 8, outputs = 2;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"tau", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    in[4] = {"dq", 1, {m.nv}, true};
    in[5] = {"dv", 1, {m.nv}, true};
    in[6] = {"dtau", 1, {m.nv}, true};
    in[7] = {"df_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"a", 1, {m.nv}};
    out[1] = {"da", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const S* unread = in[2];  // accelerations are outputs only
    hybrid_jvp<S>(m, arena, options, in[0], in[1], unread, in[2], in[3], in[4], in[5], nullptr, in[6], in[7], out[0],
                  nullptr, out[1], nullptr);
  }
};

struct HybridDynamicsJVP {
  static constexpr int inputs = 10, outputs = 4;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"tau", 1, {m.nv}};
    in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
    in[5] = {"dq", 1, {m.nv}, true};
    in[6] = {"dv", 1, {m.nv}, true};
    in[7] = {"da", 1, {m.nv}, true};
    in[8] = {"dtau", 1, {m.nv}, true};
    in[9] = {"df_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"a", 1, {m.nv}};
    out[1] = {"tau", 1, {m.nv}};
    out[2] = {"da", 1, {m.nv}};
    out[3] = {"dtau", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    hybrid_jvp<S>(m, arena, options, in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8], in[9], out[0],
                  out[1], out[2], out[3]);
  }
};

struct JointReactionsJVP {
  static constexpr int inputs = 8, outputs = 2;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    InverseDynamicsJVP::slots(m, options, in, out);
    out[0] = {"F", 2, {m.nframes(), 6}};
    out[1] = {"dF", 2, {m.nframes(), 6}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const Dual<S>* q = moving(m, arena, in[0], in[4]);
    const Dual<S>*v = with_tangent(arena, in[1], in[5], m.nv), *a = with_tangent(arena, in[2], in[6], m.nv);
    const Dual<S>* f_ext = dual_wrenches(m, arena, in[3], in[7]);
    auto* F = arena.get<Dual<S>>(6 * m.nframes());
    const auto& model = varied(m, options);
    joint_reactions(model, arena, q, v, a, body_wrenches(model, arena, q, options.axes, f_ext), F);
    split(F, 6 * m.nframes(), out[0], out[1]);
  }
};

// dtau/dq, dtau/dv and the mass matrix over dual numbers; any may be null.
template <class S>
void derivatives_jvp(const Model& m, Arena& arena, const Options& options, const Dual<S>* q, const Dual<S>* v,
                     const Dual<S>* a, const Dual<S>* f_ext, Dual<S>* dq, Dual<S>* dv, Dual<S>* M) {
  const auto& model = varied(m, options);
  const Motions<Dual<S>> all = motions(model, arena, q, v, a);
  const WorldWrench<Dual<S>>* wrenches = sum_subtrees(model, arena, all.bodies, f_ext, options.axes);
  for (Dual<S>* matrix : {dq, dv, M})
    for (int k = 0; matrix != nullptr && k < m.nv * m.nv; ++k) matrix[k] = Dual<S>(0.0);
  pair_columns(m, arena, all, wrenches, options.axes, dq, dv, M, m.nv);
}

struct InverseDynamicsDerivativesJVP {
  static constexpr int inputs = 8, outputs = 6;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    Slot vectors[2];
    InverseDynamicsJVP::slots(m, options, in, vectors);
    const char* names[] = {"dtau_dq", "dtau_dv", "dtau_da", "ddtau_dq", "ddtau_dv", "ddtau_da"};
    for (int k = 0; k < 6; ++k) out[k] = {names[k], 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const Dual<S>* q = moving(m, arena, in[0], in[4]);
    const Dual<S>*v = with_tangent(arena, in[1], in[5], m.nv), *a = with_tangent(arena, in[2], in[6], m.nv);
    const Dual<S>* f_ext = dual_wrenches(m, arena, in[3], in[7]);
    Dual<S>* D[3];
    for (int k = 0; k < 3; ++k) D[k] = out[k] || out[3 + k] ? arena.get<Dual<S>>(m.nv * m.nv) : nullptr;
    derivatives_jvp(m, arena, options, q, v, a, f_ext, D[0], D[1], D[2]);
    for (int k = 0; k < 3; ++k)
      if (D[k] != nullptr) split(D[k], m.nv * m.nv, out[k], out[3 + k]);
  }
};

// Each derivative of the accelerations is X = -M^-1 D, with D one of ID_q, ID_v and -1. Its tangent is
// -M^-1 (dD + dM X).
struct ForwardDynamicsDerivativesJVP {
  static constexpr int inputs = 8, outputs = 6;
  static constexpr bool has_options = true, has_complex = false, has_direction = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    Slot vectors[2];
    ForwardDynamicsJVP::slots(m, options, in, vectors);
    const char* names[] = {"da_dq", "da_dv", "da_dtau", "dda_dq", "dda_dv", "dda_dtau"};
    for (int k = 0; k < 6; ++k) out[k] = {names[k], 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const int nv = m.nv, size = nv * nv;
    S *a = arena.get<S>(nv), *da = arena.get<S>(nv);
    hybrid_jvp<S>(m, arena, options, in[0], in[1], in[2], in[2], in[3], in[4], in[5], nullptr, in[6], in[7], a, nullptr,
                  da, nullptr);
    Dual<S>* D[3];
    for (int k = 0; k < 3; ++k) D[k] = k == 2 || out[k] || out[3 + k] ? arena.get<Dual<S>>(size) : nullptr;
    derivatives_jvp<S>(m, arena, options, moving(m, arena, in[0], in[4]), with_tangent(arena, in[1], in[5], nv),
                       with_tangent(arena, a, da, nv), dual_wrenches(m, arena, in[3], in[7]), D[0], D[1], D[2]);
    S* dM = arena.get<S>(size);
    split<S>(D[2], size, nullptr, dM);
    const auto factors = factor_mass<S>(m, arena, in[0], nullptr, nullptr);
    const auto solve = [&](S* X) {
      for (int c = 0; c < nv; ++c) solve_mass(m, factors, X + c, X + c, nv);
    };
    for (int k = 0; k < 3; ++k) {
      if (!out[k] && !out[3 + k]) continue;
      S *X = out[k] ? out[k] : arena.get<S>(size), *dX = out[3 + k];
      for (int c = 0; c < size; ++c) X[c] = k < 2 ? -D[k][c].v : S(c % (nv + 1) == 0 ? 1.0 : 0.0);
      solve(X);
      if (dX == nullptr) continue;
      for (int i = 0; i < nv; ++i)
        for (int c = 0; c < nv; ++c) {
          S sum = k < 2 ? -D[k][i * nv + c].d : S(0.0);
          for (const Model::Link& link : m.links)
            for (int l = link.iv; l < link.iv + link.nv; ++l) sum = mul_add(-dM[i * nv + l], X[l * nv + c], sum);
          dX[i * nv + c] = sum;
        }
      solve(dX);
    }
  }
};

}  // namespace

void bind_jvp(Kernels& kernels) {
  kernels.add<InverseDynamicsJVP>("inverse_dynamics_jvp");
  kernels.add<ForwardDynamicsJVP>("forward_dynamics_jvp");
  kernels.add<HybridDynamicsJVP>("hybrid_dynamics_jvp");
  kernels.add<JointReactionsJVP>("joint_reactions_jvp");
  kernels.add<InverseDynamicsDerivativesJVP>("inverse_dynamics_derivatives_jvp");
  kernels.add<ForwardDynamicsDerivativesJVP>("forward_dynamics_derivatives_jvp");
}

}  // namespace torsor
