#include "bind.hpp"
#include "tangents.hpp"

namespace torsor {
namespace {

// External wrenches over dual numbers, or null.
template <class S>
Dual<S>* dual_wrenches(const Model& m, Arena& arena, const S* f_ext, const S* df_ext) {
  if (f_ext == nullptr && df_ext == nullptr) return nullptr;
  const int size = 6 * m.nframes();
  if (f_ext != nullptr) return with_tangent(arena, f_ext, df_ext, size);
  S* zeros = arena.get<S>(size);
  for (int k = 0; k < size; ++k) zeros[k] = S(0.0);
  return with_tangent(arena, zeros, df_ext, size);
}

// Calls f with the model that the direction asks for.
template <class F>
void on_model(const Model& m, const Options& options, F&& f) {
  if (options.direction != nullptr)
    f(*options.direction);
  else
    f(m);
}

struct InverseDynamicsTangent {
  static constexpr int inputs = 8, outputs = 2;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    in[4] = {"dq", 1, {m.nv}, true};
    in[5] = {"dv", 1, {m.nv}, true};
    in[6] = {"da", 1, {m.nv}, true};
    in[7] = {"df_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"tau", 1, {m.nv}};
    out[1] = {"dtau", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const Dual<S>* q = moving(m, arena, in[0], in[4]);
    const Dual<S>*v = with_tangent(arena, in[1], in[5], m.nv), *a = with_tangent(arena, in[2], in[6], m.nv);
    const Dual<S>* f_ext = dual_wrenches(m, arena, in[3], in[7]);
    auto* tau = arena.get<Dual<S>>(m.nv);
    on_model(m, options, [&](const auto& model) {
      inverse_dynamics(model, arena, q, v, a, body_wrenches(model, arena, q, options.axes, f_ext), tau);
    });
    split(tau, m.nv, out[0], out[1]);
  }
};

// Hybrid dynamics; forward dynamics is the case without prescribed velocities.
template <class S>
void hybrid_tangent(const Model& m, Arena& arena, const Options& options, const S* q, const S* v, const S* a,
                    const S* tau, const S* f_ext, const S* dq, const S* dv, const S* da, const S* dtau, const S* df_ext,
                    S* out_a, S* out_tau, S* out_da, S* out_dtau) {
  const Dual<S>*x = moving(m, arena, q, dq), *xv = with_tangent(arena, v, dv, m.nv);
  const Dual<S>* wrenches = dual_wrenches(m, arena, f_ext, df_ext);
  Dual<S>*xa = with_tangent(arena, a, da, m.nv), *xtau = with_tangent(arena, tau, dtau, m.nv);
  on_model(m, options, [&](const auto& model) {
    hybrid_dynamics(model, arena, x, xv, body_wrenches(model, arena, x, options.axes, wrenches), options.prescribed, xa,
                    xtau);
  });
  split(xa, m.nv, out_a, out_da);
  split(xtau, m.nv, out_tau, out_dtau);
}

struct ForwardDynamicsTangent {
  static constexpr int inputs = 8, outputs = 2;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"tau", 1, {m.nv}};
    in[3] = {"f_ext", 2, {m.nframes(), 6}, true};
    in[4] = {"dq", 1, {m.nv}, true};
    in[5] = {"dv", 1, {m.nv}, true};
    in[6] = {"dtau", 1, {m.nv}, true};
    in[7] = {"df_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"a", 1, {m.nv}};
    out[1] = {"da", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const S* unread = in[2];  // accelerations: all are found
    hybrid_tangent<S>(m, arena, options, in[0], in[1], unread, in[2], in[3], in[4], in[5], nullptr, in[6], in[7],
                      out[0], nullptr, out[1], nullptr);
  }
};

struct HybridDynamicsTangent {
  static constexpr int inputs = 10, outputs = 4;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    in[2] = {"a", 1, {m.nv}};
    in[3] = {"tau", 1, {m.nv}};
    in[4] = {"f_ext", 2, {m.nframes(), 6}, true};
    in[5] = {"dq", 1, {m.nv}, true};
    in[6] = {"dv", 1, {m.nv}, true};
    in[7] = {"da", 1, {m.nv}, true};
    in[8] = {"dtau", 1, {m.nv}, true};
    in[9] = {"df_ext", 2, {m.nframes(), 6}, true};
    out[0] = {"a", 1, {m.nv}};
    out[1] = {"tau", 1, {m.nv}};
    out[2] = {"da", 1, {m.nv}};
    out[3] = {"dtau", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    hybrid_tangent<S>(m, arena, options, in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8], in[9], out[0],
                      out[1], out[2], out[3]);
  }
};

}  // namespace

void bind_tangents(nb::module_& module) {
  def_kernel<InverseDynamicsTangent>(module, "inverse_dynamics_tangent");
  def_kernel<ForwardDynamicsTangent>(module, "forward_dynamics_tangent");
  def_kernel<HybridDynamicsTangent>(module, "hybrid_dynamics_tangent");
}

}  // namespace torsor
