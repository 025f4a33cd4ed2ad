#include "bind/kernel.hpp"
#include "derivatives/joint_reactions_vjp.hpp"

namespace torsor {
namespace {

struct InverseDynamicsVJP {
  static constexpr int inputs = 5, outputs = 8;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"w", 1, {m.nv}};
    in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"q", 1, {m.nv}};
    out[1] = {"v", 1, {m.nv}};
    out[2] = {"a", 1, {m.nv}};
    out[3] = {"f_ext", 2, {m.nframes(), 6}};
    out[4] = {"inertia", 2, {m.nframes(), 10}};
    out[5] = {"placement", 2, {m.nframes(), 6}};
    out[6] = {"gravity", 1, {3}};
    out[7] = {"armature", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    inverse_dynamics_vjp(m, arena, in[0], in[1], in[2], in[3], in[4], options.axes,
                         Gradients<S>{out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7]});
  }
};

struct ForwardDynamicsVJP {
  static constexpr int inputs = 5, outputs = 8;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    InverseDynamicsVJP::slots(m, options, in, out);
    in[2].name = out[2].name = "tau";
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const Gradients<S> gradients{out[0], out[1], nullptr, out[3], out[4], out[5], out[6], out[7]};
    hybrid_dynamics_vjp(m, arena, in[0], in[1], in[4], options.axes, nullptr, arena.get<S>(m.nv), const_cast<S*>(in[2]),
                        in[3], static_cast<const S*>(nullptr), gradients, out[2]);
  }
};

struct HybridDynamicsVJP {
  static constexpr int inputs = 7, outputs = 9;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"tau", 1, {m.nv}};
    in[4] = {"w_a", 1, {m.nv}};
    in[5] = {"w_tau", 1, {m.nv}};
    in[6] = {"f_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"q", 1, {m.nv}};
    out[1] = {"v", 1, {m.nv}};
    out[2] = {"a", 1, {m.nv}};
    out[3] = {"tau", 1, {m.nv}};
    out[4] = {"f_ext", 2, {m.nframes(), 6}};
    out[5] = {"inertia", 2, {m.nframes(), 10}};
    out[6] = {"placement", 2, {m.nframes(), 6}};
    out[7] = {"gravity", 1, {3}};
    out[8] = {"armature", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    S *a = arena.get<S>(m.nv), *tau = arena.get<S>(m.nv);
    for (int k = 0; k < m.nv; ++k) {
      a[k] = in[2][k];
      tau[k] = in[3][k];
    }
    hybrid_dynamics_vjp(m, arena, in[0], in[1], in[6], options.axes, options.prescribed, a, tau, in[4], in[5],
                        Gradients<S>{out[0], out[1], out[2], out[4], out[5], out[6], out[7], out[8]}, out[3]);
  }
};

struct JointReactionsVJP {
  static constexpr int inputs = 5, outputs = 8;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    InverseDynamicsVJP::slots(m, options, in, out);
    in[3] = {"w", 2, {m.nframes(), 6}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    joint_reactions_vjp(m, arena, in[0], in[1], in[2], in[3], in[4], options.axes,
                        Gradients<S>{out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7]});
  }
};

struct InertialRegressor {
  static constexpr int inputs = 3, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    out[0] = {"Y", 2, {m.nv, 10 * m.nframes()}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    inertial_regressor(m, arena, in[0], in[1], in[2], out[0]);
  }
};

}  // namespace

void bind_vjp(Kernels& kernels) {
  kernels.add<InverseDynamicsVJP>("inverse_dynamics_vjp");
  kernels.add<ForwardDynamicsVJP>("forward_dynamics_vjp");
  kernels.add<HybridDynamicsVJP>("hybrid_dynamics_vjp");
  kernels.add<JointReactionsVJP>("joint_reactions_vjp");
  kernels.add<InertialRegressor>("inertial_regressor");
}

}  // namespace torsor
