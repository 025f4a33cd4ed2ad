#include "bind/timed.hpp"
#include "constraints/constrained_dynamics_hessians.hpp"
#include "constraints/constrained_inverse_dynamics.hpp"

namespace torsor {
namespace {

template <class S>
ConstrainedProblem<S> problem(const Model& m, Arena& arena, const Options& o, double t, const S* q, const S* v,
                              const S* tau, const S* f_ext) {
  const ConstraintSet& set = *o.constraints;
  return {m, arena, set, q, v, tau, f_ext, o.axes, t, times_at(set, arena, t), {o.alpha, o.beta, o.compliance}};
}

struct ConstrainedForwardDynamicsVJP {
  static constexpr int inputs = 7, outputs = 9;
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
    out[7] = {"armature", 1, {m.nv}};
    out[8] = {"parameters", 1, {options.constraints->parameters}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const auto p = problem(m, arena, options, t, in[0], in[1], in[3], in[6]);
    constrained_forward_dynamics_vjp(
        p, in[4], in[5], Gradients<S>{out[0], out[1], nullptr, out[3], out[4], out[5], out[6], out[7]}, out[2], out[8]);
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

// Second derivatives, and gradients.
struct ConstrainedForwardDynamicsHessians {
  static constexpr int inputs = 7, outputs = 7;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    Slot gradients[9];
    ConstrainedForwardDynamicsVJP::slots(m, options, in, gradients);
    const char* names[] = {"dqdq", "dqdv", "dvdv", "dtaudq", "dq", "dv", "dtau"};
    for (int k = 0; k < 7; ++k) out[k] = {names[k], k < 4 ? 2 : 1, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const auto p = problem(m, arena, options, t, in[0], in[1], in[3], in[6]);
    constrained_forward_dynamics_hessians(
        p, in[4], in[5], ConstrainedHessians<S>{out[0], out[1], out[2], out[3], out[4], out[5], out[6]});
  }
};

// Torques on the velocities that options.prescribed marks.
void actuated_slots(const Model& m, Slot* in) {
  in[0] = {"q", 1, {m.nq}};
  in[1] = {"v", 1, {m.nv}};
  in[2] = {"t", 0, {}};
  in[3] = {"a", 1, {m.nv}};
  in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
}
template <class S>
ActuatedMotion<S> actuated_motion(const Model& m, Arena& arena, const Options& o, double t, const S* const* in) {
  const ConstraintSet& set = *o.constraints;
  return {m, arena, set, in[0], in[1], in[3], in[4], o.axes, t, times_at(set, arena, t), o.prescribed};
}

struct ConstrainedInverseDynamics {
  static constexpr int inputs = 5, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    actuated_slots(m, in);
    out[0] = {"tau", 1, {m.nv}};
    out[1] = {"multipliers", 1, {options.constraints->rows}};
    out[2] = {"rest", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    constrained_inverse_dynamics(actuated_motion(m, arena, options, t, in), out[0], out[1], out[2]);
  }
};

struct ConstrainedInverseDynamicsDerivatives {
  static constexpr int inputs = 5, outputs = 6;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    actuated_slots(m, in);
    const char* names[] = {"dtau_dq", "dtau_dv", "dtau_da", "dmultipliers_dq", "dmultipliers_dv", "dmultipliers_da"};
    for (int k = 0; k < 6; ++k) out[k] = {names[k], 2, {k < 3 ? m.nv : options.constraints->rows, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    constrained_inverse_dynamics_derivatives(actuated_motion(m, arena, options, t, in), out, out + 3);
  }
};

}  // namespace

void bind_constrained_vjp(Kernels& kernels) {
  kernels.add<Timed<ConstrainedForwardDynamicsVJP>>("constrained_forward_dynamics_vjp");
  kernels.add<Timed<ConstrainedForwardDynamicsJVP>>("constrained_forward_dynamics_jvp");
  kernels.add<Timed<ConstrainedForwardDynamicsHessians>>("constrained_forward_dynamics_hessians");
  kernels.add<Timed<ConstrainedInverseDynamics>>("constrained_inverse_dynamics");
  kernels.add<Timed<ConstrainedInverseDynamicsDerivatives>>("constrained_inverse_dynamics_derivatives");
}

}  // namespace torsor
