#include "dynamics/kinematics.hpp"
#include "bind/kernel.hpp"
#include "dynamics/jacobians.hpp"

namespace torsor {
namespace {

struct BodyPoses {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"poses", 3, {m.nframes(), 4, 4}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    body_poses(m, arena, in[0], out[0]);
  }
};

struct PointPositions {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"points", 2, {int64_t(options.frames.size()), 3}};
    out[0] = {"positions", 2, {int64_t(options.frames.size()), 3}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    point_positions(m, arena, in[0], options.frames, in[1], out[0]);
  }
};

struct BodyVelocities {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    out[0] = {"velocities", 2, {m.nframes(), 6}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    jacobian_products<S>(m, arena, in[0], nullptr, in[1], nullptr, out[0], nullptr);
    change_axes<S>(m, arena, in[0], options.axes, out[0], nullptr);
  }
};

struct BodyAccelerations {
  static constexpr int inputs = 3, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    out[0] = {"accelerations", 2, {m.nframes(), 6}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    S* velocities = arena.get<S>(6 * m.nframes());
    jacobian_products(m, arena, in[0], in[1], in[1], in[2], velocities, out[0]);
    change_axes(m, arena, in[0], options.axes, velocities, out[0]);
  }
};

struct JacobianDotProduct {
  static constexpr int inputs = 3, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"x", 1, {m.nv}};
    out[0] = {"z", 2, {m.nframes(), 6}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    S* y = arena.get<S>(6 * m.nframes());
    jacobian_products<S>(m, arena, in[0], in[1], in[2], nullptr, y, out[0]);
  }
};

struct JacobianTransposeProduct {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"y", 2, {m.nframes(), 6}};
    out[0] = {"x", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    jacobian_transpose_product(m, arena, in[0], in[1], out[0]);
  }
};

struct BodyJacobian {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"J", 2, {6, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    body_jacobian(m, arena, in[0], options.frames[0], options.axes, out[0]);
  }
};

struct PointJacobians {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"points", 2, {int64_t(options.frames.size()), 3}};
    out[0] = {"J", 3, {int64_t(options.frames.size()), 3, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    point_jacobians(m, arena, in[0], options.frames, in[1], out[0]);
  }
};

struct MaximalJacobian {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"J", 2, {6 * m.nframes(), m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    maximal_jacobian<S>(m, arena, in[0], nullptr, out[0], nullptr);
  }
};

struct MaximalJacobianDot {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    out[0] = {"Jdot", 2, {6 * m.nframes(), m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    maximal_jacobian<S>(m, arena, in[0], in[1], nullptr, out[0]);
  }
};

}  // namespace

void bind_kinematics(Kernels& kernels) {
  kernels.add<BodyPoses>("body_poses");
  kernels.add<PointPositions>("point_positions");
  kernels.add<BodyVelocities>("body_velocities");
  kernels.add<BodyAccelerations>("body_accelerations");
  kernels.add<JacobianDotProduct>("jacobian_dot_product");
  kernels.add<JacobianTransposeProduct>("jacobian_transpose_product");
  kernels.add<BodyJacobian>("body_jacobian");
  kernels.add<PointJacobians>("point_jacobians");
  kernels.add<MaximalJacobian>("maximal_jacobian");
  kernels.add<MaximalJacobianDot>("maximal_jacobian_dot");
}

}  // namespace torsor
