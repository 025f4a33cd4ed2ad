#include "model/configuration.hpp"
#include "bind/kernel.hpp"
#include "model/joint_kinematics.hpp"

namespace torsor {
namespace {

struct Plus {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"dv", 1, {m.nv}};
    out[0] = {"q", 1, {m.nq}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options&, const S* const* in, S* const* out) {
    plus(m, in[0], in[1], out[0]);
  }
};

struct Minus {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q1", 1, {m.nq}};
    in[1] = {"q0", 1, {m.nq}};
    out[0] = {"dv", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options&, const S* const* in, S* const* out) {
    minus(m, in[0], in[1], out[0]);
  }
};

struct Normalize {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"q", 1, {m.nq}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options&, const S* const* in, S* const* out) {
    normalize(m, in[0], out[0]);
  }
};

struct JointPose {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"T", 2, {4, 4}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    joint_terms<S>(m, arena, in[0], out[0], nullptr, nullptr, nullptr);
  }
};

struct JointJacobians {
  static constexpr int inputs = 1, outputs = 3;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"S", 2, {6, m.nv}};
    out[1] = {"dS", 3, {6, m.nv, m.nv}};
    out[2] = {"d2S", 4, {6, m.nv, m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    joint_terms<S>(m, arena, in[0], nullptr, out[0], out[1], out[2]);
  }
};

}  // namespace

void bind_configuration(Kernels& kernels) {
  kernels.add<Plus>("plus");
  kernels.add<Minus>("minus");
  kernels.add<Normalize>("normalize");
  for (const char* name : {"plus", "minus", "normalize"}) kernel_named(name).on_coordinates = true;
  kernels.add<JointPose>("joint_pose");
  kernels.add<JointJacobians>("joint_jacobians");
}

}  // namespace torsor
