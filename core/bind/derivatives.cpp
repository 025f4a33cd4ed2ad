#include "bind/kernel.hpp"
#include "derivatives/forward_dynamics_derivatives.hpp"
#include "derivatives/joint_reactions_derivatives.hpp"

namespace torsor {
namespace {

struct InverseDynamicsDerivatives {
  static constexpr int inputs = 4, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"dtau_dq", 2, {m.nv, m.nv}};
    out[1] = {"dtau_dv", 2, {m.nv, m.nv}};
    out[2] = {"dtau_da", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    inverse_dynamics_derivatives(m, arena, in[0], in[1], in[2], in[3], options.axes, out[0], out[1], out[2]);
  }
};

struct ForwardDynamicsDerivatives {
  static constexpr int inputs = 4, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"tau", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"da_dq", 2, {m.nv, m.nv}};
    out[1] = {"da_dv", 2, {m.nv, m.nv}};
    out[2] = {"da_dtau", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    HybridBlocks<S> d{};
    d.da_dq = out[0];
    d.da_dv = out[1];
    d.da_dtau = out[2];
    hybrid_dynamics_derivatives(m, arena, in[0], in[1], in[3], options.axes, nullptr, arena.get<S>(m.nv),
                                const_cast<S*>(in[2]), d);
  }
};

struct HybridDynamicsDerivatives {
  static constexpr int inputs = 5, outputs = 8;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"tau", 1, {m.nv}};
    in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
    const char* names[] = {"da_dq", "da_dv", "da_da", "da_dtau", "dtau_dq", "dtau_dv", "dtau_da", "dtau_dtau"};
    for (int k = 0; k < 8; ++k) out[k] = {names[k], 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    S *a = arena.get<S>(m.nv), *tau = arena.get<S>(m.nv);
    for (int k = 0; k < m.nv; ++k) {
      a[k] = in[2][k];
      tau[k] = in[3][k];
    }
    const HybridBlocks<S> d{out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7]};
    hybrid_dynamics_derivatives(m, arena, in[0], in[1], in[4], options.axes, options.prescribed, a, tau, d);
  }
};

struct JointReactionsDerivatives {
  static constexpr int inputs = 4, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    const char* names[] = {"dF_dq", "dF_dv", "dF_da"};
    for (int k = 0; k < 3; ++k) out[k] = {names[k], 3, {m.nframes(), 6, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    joint_reactions_derivatives(m, arena, in[0], in[1], in[2], in[3], options.axes, out[0], out[1], out[2]);
  }
};

}  // namespace

void bind_derivatives(Kernels& kernels) {
  kernels.add<InverseDynamicsDerivatives>("inverse_dynamics_derivatives");
  kernels.add<ForwardDynamicsDerivatives>("forward_dynamics_derivatives");
  kernels.add<HybridDynamicsDerivatives>("hybrid_dynamics_derivatives");
  kernels.add<JointReactionsDerivatives>("joint_reactions_derivatives");
}

}  // namespace torsor
