#include "bind/timed.hpp"
#include "constraints/constrained_dynamics_derivatives.hpp"

namespace torsor {
namespace {

ConstraintGains gains_of(const Options& options) { return {options.alpha, options.beta, options.compliance}; }

void dynamics_slots(const Model& m, Slot* in) {
  in[0] = {"q", 1, {m.nq}};
  in[1] = {"v", 1, {m.nv}};
  in[2] = {"t", 0, {}};
  in[3] = {"tau", 1, {m.nv}};
  in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
}

struct ConstrainedForwardDynamics {
  static constexpr int inputs = 5, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    dynamics_slots(m, in);
    out[0] = {"a", 1, {m.nv}};
    out[1] = {"multipliers", 1, {options.constraints->rows}};
    out[2] = {"rank", 0, {}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    constrained_forward_dynamics(m, arena, *options.constraints, t, in[0], in[1], in[3],
                                 body_wrenches(m, arena, in[0], options.axes, in[4]), gains_of(options), out[0], out[1],
                                 out[2]);
  }
};

struct ConstrainedForwardDynamicsDerivatives {
  static constexpr int inputs = 5, outputs = 6;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    const int rows = options.constraints->rows;
    dynamics_slots(m, in);
    out[0] = {"da_dq", 2, {m.nv, m.nv}};
    out[1] = {"da_dv", 2, {m.nv, m.nv}};
    out[2] = {"da_dtau", 2, {m.nv, m.nv}};
    out[3] = {"dmultipliers_dq", 2, {rows, m.nv}};
    out[4] = {"dmultipliers_dv", 2, {rows, m.nv}};
    out[5] = {"dmultipliers_dtau", 2, {rows, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    constrained_forward_dynamics_derivatives(m, arena, *options.constraints, t, in[0], in[1], in[3], in[4],
                                             options.axes, gains_of(options),
                                             {out[0], out[1], out[2], out[3], out[4], out[5]});
  }
};

}  // namespace

void bind_constrained_dynamics(Kernels& kernels) {
  kernels.add<Timed<ConstrainedForwardDynamics>>("constrained_forward_dynamics");
  kernels.add<Timed<ConstrainedForwardDynamicsDerivatives>>("constrained_forward_dynamics_derivatives");
}

}  // namespace torsor
