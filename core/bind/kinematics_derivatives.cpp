#include "derivatives/kinematics_derivatives.hpp"
#include "bind/kernel.hpp"

namespace torsor {
namespace {

struct BodyVelocitiesDerivatives {
  static constexpr int inputs = 2, outputs = 2;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    out[0] = {"dV_dq", 3, {m.nframes(), 6, m.nv}};
    out[1] = {"dV_dv", 3, {m.nframes(), 6, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    body_motion_derivatives<S>(m, arena, in[0], in[1], nullptr, options.axes, out[1], out[0], nullptr, nullptr);
  }
};

struct BodyAccelerationsDerivatives {
  static constexpr int inputs = 3, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    out[0] = {"dA_dq", 3, {m.nframes(), 6, m.nv}};
    out[1] = {"dA_dv", 3, {m.nframes(), 6, m.nv}};
    out[2] = {"dA_da", 3, {m.nframes(), 6, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    body_motion_derivatives<S>(m, arena, in[0], in[1], in[2], options.axes, out[2], nullptr, out[0], out[1]);
  }
};

struct MaximalJacobianDerivatives {
  static constexpr int inputs = 2, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}, options.wanted == 1};
    out[0] = {"dJ_dq", 3, {6 * m.nframes(), m.nv, m.nv}};
    out[1] = {"Jdot", 2, {6 * m.nframes(), m.nv}};
    out[2] = {"dJdot_dq", 3, {6 * m.nframes(), m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    maximal_jacobian_derivatives(m, arena, in[0], in[1], out[0], out[1], out[2]);
  }
};

struct PointHessians {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"points", 2, {int64_t(options.frames.size()), 3}};
    out[0] = {"H", 4, {int64_t(options.frames.size()), 3, m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    point_hessians(m, arena, in[0], options.frames, in[1], out[0]);
  }
};

struct MomentumDerivatives {
  static constexpr int inputs = 3, outputs = 4;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}, (options.wanted & 12) == 0};
    const char* names[] = {"dh_dq", "dh_dv", "dhdot_dq", "dhdot_dv"};
    for (int k = 0; k < 4; ++k) out[k] = {names[k], 2, {6, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    momentum_derivatives(m, arena, in[0], in[1], in[2], options.axes, out[0], out[1], out[2], out[3]);
  }
};

}  // namespace

void bind_kinematics_derivatives(Kernels& kernels) {
  kernels.add<BodyVelocitiesDerivatives>("body_velocities_derivatives");
  kernels.add<BodyAccelerationsDerivatives>("body_accelerations_derivatives");
  kernels.add<MaximalJacobianDerivatives>("maximal_jacobian_derivatives");
  kernels.add<PointHessians>("point_hessians");
  kernels.add<MomentumDerivatives>("momentum_derivatives");
}

}  // namespace torsor
