#include "bind/timed.hpp"
#include "constraints/constrained_dynamics_vjp.hpp"

namespace torsor {
namespace {

template <class S>
ConstrainedProblem<S> problem(const Model& m, Arena& arena, const Options& o, double t, const S* q, const S* v,
                              const S* tau, const S* f_ext) {
  const ConstraintSet& set = *o.constraints;
  return {m, arena, set, q, v, tau, f_ext, o.axes, t, times_at(set, arena, t), o.alpha, o.beta, o.compliance};
}

struct ConstrainedForwardDynamicsVJP {
  static constexpr int inputs = 7, outputs = 8;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"t", 0, {}};
    in[3] = {"tau", 1, {m.nv}};
    in[4] = {"w_a", 1, {m.nv}, true};
    in[5] = {"w_multipliers", 1, {options.constraints->rows}, true};
    in[6] = {"f_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"q", 1, {m.nv}};
    out[1] = {"v", 1, {m.nv}};
    out[2] = {"tau", 1, {m.nv}};
    out[3] = {"f_ext", 2, {m.nframes(), 6}};
    out[4] = {"inertia", 2, {m.nframes(), 10}};
    out[5] = {"placement", 2, {m.nframes(), 6}};
    out[6] = {"gravity", 1, {3}};
    out[7] = {"parameters", 1, {options.constraints->parameters}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const auto p = problem(m, arena, options, t, in[0], in[1], in[3], in[6]);
    constrained_forward_dynamics_vjp(p, in[4], in[5],
                                     Gradients<S>{out[0], out[1], nullptr, out[3], out[4], out[5], out[6]}, out[2],
                                     out[7]);
  }
};

struct ConstrainedForwardDynamicsJVP {
  static constexpr int inputs = 9, outputs = 4;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"t", 0, {}};
    in[3] = {"tau", 1, {m.nv}};
    in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
    in[5] = {"dq", 1, {m.nv}, true};
    in[6] = {"dv", 1, {m.nv}, true};
    in[7] = {"dtau", 1, {m.nv}, true};
    in[8] = {"df_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"a", 1, {m.nv}};
    out[1] = {"multipliers", 1, {options.constraints->rows}};
    out[2] = {"da", 1, {m.nv}};
    out[3] = {"dmultipliers", 1, {options.constraints->rows}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const auto p = problem(m, arena, options, t, in[0], in[1], in[3], in[4]);
    constrained_forward_dynamics_jvp(p, ConstrainedDirection<S>{in[5], in[6], in[7], in[8]}, out[0], out[1], out[2],
                                     out[3]);
  }
};

}  // namespace

void bind_constrained_vjp(Kernels& kernels) {
  kernels.add<Timed<ConstrainedForwardDynamicsVJP>>("constrained_forward_dynamics_vjp");
  kernels.add<Timed<ConstrainedForwardDynamicsJVP>>("constrained_forward_dynamics_jvp");
}

}  // namespace torsor
