#include "bind/kernel.hpp"
#include "derivatives/forward_dynamics_hessians.hpp"

namespace torsor {
namespace {

// The four second derivatives, dense or contracted.
void hessian_slots(const Model& m, const char* const* names, int ndim, Slot* out) {
  for (int k = 0; k < 4; ++k) out[k] = {names[k], ndim, {m.nv, m.nv, m.nv}};
}

struct InverseDynamicsHessians {
  static constexpr int inputs = 4, outputs = 4;
  static constexpr bool has_options = true, has_complex = false;
  static int slabs(const Model& m) { return m.nv; }
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    static constexpr const char* names[] = {"d2tau_dqdq", "d2tau_dqdv", "d2tau_dvdv", "d2tau_dadq"};
    hessian_slots(m, names, 3, out);
  }
  template <class S, class Next>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out,
                  Next&& next) {
    Hessians<S> H{out[0], out[1], out[2], out[3]};
    const auto s = second_order(m, arena, in[0], in[1], in[2], in[3], options.axes, H.qq != nullptr);
    dense_hessians(m, arena, s, H, [&](Hessians<S>& H) {
      next();
      H = {out[0], out[1], out[2], out[3]};
    });
  }
};

struct InverseDynamicsHessiansContracted {
  static constexpr int inputs = 5, outputs = 7;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"contract", 1, {m.nv}};
    in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
    static constexpr const char* names[] = {"d2tau_dqdq", "d2tau_dqdv", "d2tau_dvdv", "d2tau_dadq"};
    hessian_slots(m, names, 2, out);
    out[4] = {"dtau_dq", 1, {m.nv}};
    out[5] = {"dtau_dv", 1, {m.nv}};
    out[6] = {"dtau_da", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const Hessians<S> H{out[0], out[1], out[2], out[3]};
    const auto s = second_order(m, arena, in[0], in[1], in[2], in[4], options.axes, H.qq != nullptr);
    contracted_hessians(m, arena, s, in[3], H, out[4], out[5], out[6]);
  }
};

struct ForwardDynamicsHessians {
  static constexpr int inputs = 4, outputs = 4;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"tau", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    static constexpr const char* names[] = {"d2a_dqdq", "d2a_dqdv", "d2a_dvdv", "d2a_dtaudq"};
    hessian_slots(m, names, 3, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    forward_dynamics_hessians(m, arena, in[0], in[1], in[2], in[3], options.axes,
                              Hessians<S>{out[0], out[1], out[2], out[3]});
  }
};

struct ForwardDynamicsHessiansContracted {
  static constexpr int inputs = 5, outputs = 7;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"tau", 1, {m.nv}};
    in[3] = {"contract", 1, {m.nv}};
    in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
    static constexpr const char* names[] = {"d2a_dqdq", "d2a_dqdv", "d2a_dvdv", "d2a_dtaudq"};
    hessian_slots(m, names, 2, out);
    out[4] = {"da_dq", 1, {m.nv}};
    out[5] = {"da_dv", 1, {m.nv}};
    out[6] = {"da_dtau", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    contracted_forward_hessians(m, arena, in[0], in[1], in[2], in[3], in[4], options.axes,
                                Hessians<S>{out[0], out[1], out[2], out[3]}, out[4], out[5], out[6]);
  }
};

}  // namespace

void bind_hessians(Kernels& kernels) {
  kernels.add<InverseDynamicsHessians>("inverse_dynamics_hessians");
  kernels.add<InverseDynamicsHessiansContracted>("inverse_dynamics_hessians_contracted");
  kernels.add<ForwardDynamicsHessians>("forward_dynamics_hessians");
  kernels.add<ForwardDynamicsHessiansContracted>("forward_dynamics_hessians_contracted");
}

}  // namespace torsor
