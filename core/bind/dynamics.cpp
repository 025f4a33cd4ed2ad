#include "bind/kernel.hpp"
#include "dynamics/forward_dynamics.hpp"
#include "dynamics/inverse_dynamics.hpp"
#include "dynamics/joint_reactions.hpp"

namespace torsor {
namespace {

// Zeros for an absent velocity or acceleration.
template <class S>
const S* or_zeros(Arena& arena, const S* x, int n) {
  if (x != nullptr) return x;
  S* zeros = arena.get<S>(n);
  for (int k = 0; k < n; ++k) zeros[k] = S(0.0);
  return zeros;
}

struct InverseDynamics {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}, true};
    in[2] = {"a", 1, {m.nv}, true};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"tau", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    inverse_dynamics(m, arena, in[0], or_zeros(arena, in[1], m.nv), or_zeros(arena, in[2], m.nv),
                     body_wrenches(m, arena, in[0], options.axes, in[3]), out[0]);
  }
};

struct ForwardDynamics {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"tau", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"a", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    hybrid_dynamics(m, arena, in[0], in[1], body_wrenches(m, arena, in[0], options.axes, in[3]), nullptr, out[0],
                    const_cast<S*>(in[2]));  // tau is only read
  }
};

struct HybridDynamics {
  static constexpr int inputs = 5, outputs = 2;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"tau", 1, {m.nv}};
    in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"a", 1, {m.nv}};
    out[1] = {"tau", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    for (int k = 0; k < m.nv; ++k) {
      out[0][k] = in[2][k];
      out[1][k] = in[3][k];
    }
    hybrid_dynamics(m, arena, in[0], in[1], body_wrenches(m, arena, in[0], options.axes, in[4]), options.prescribed,
                    out[0], out[1]);
  }
};

struct JointReactions {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"reactions", 2, {m.nframes(), 6}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    joint_reactions(m, arena, in[0], in[1], in[2], body_wrenches(m, arena, in[0], options.axes, in[3]), out[0]);
  }
};

}  // namespace

void bind_dynamics(Kernels& kernels) {
  kernels.add<InverseDynamics>("inverse_dynamics");
  kernels.add<ForwardDynamics>("forward_dynamics");
  kernels.add<HybridDynamics>("hybrid_dynamics");
  kernels.add<JointReactions>("joint_reactions");
}

}  // namespace torsor
