#include "forces/forces.hpp"
#include "bind/kernel.hpp"
#include "forces/energy_balance.hpp"
#include "forces/force_placements.hpp"

namespace torsor {
namespace {

// A kernel of forces, whose laws take one time: the run of K has the time as an argument. States of different times in
// the lanes of a pack are computed one by one, if the forces depend on time.
template <class K>
struct Timed : K {
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    if constexpr (std::is_same_v<S, Complex>) {
      K::run(m, arena, options, in[2]->real(), in, out);
    } else if constexpr (Lanes<S>::value == 1) {
      K::run(m, arena, options, *in[2], in, out);
    } else {
      const double t = in[2]->lane(0);
      if (any(!equal(*in[2], S(t))) && depends_on_time(*options.forces))
        run_apart(m, options, in, out);
      else
        K::run(m, arena, options, t, in, out);
    }
  }

 private:
  template <class S>
  static void run_apart(const Model& m, const Options& options, const S* const* in, S* const* out) {
    Slot from[K::inputs], to[K::outputs];
    K::slots(m, options, from, to);
    Lease lease;
    Arena& arena = *lease;
    for (int l = 0; l < Lanes<S>::value; ++l) {
      arena.reset();
      double *one_in[K::inputs], *one_out[K::outputs];
      for (int i = 0; i < K::inputs; ++i) {
        one_in[i] = arena.get<double>(from[i].size());
        for (int64_t k = 0; k < from[i].size(); ++k) one_in[i][k] = in[i][k].lane(l);
      }
      for (int i = 0; i < K::outputs; ++i) one_out[i] = arena.get<double>(to[i].size());
      K::template run<double>(m, arena, options, *one_in[2], one_in, one_out);
      for (int i = 0; i < K::outputs; ++i)
        for (int64_t k = 0; k < to[i].size(); ++k) out[i][k].lane(l) = one_out[i][k];
    }
  }
};

void state_slots(const Model& m, const Options& options, Slot* in) {
  in[0] = {"q", 1, {m.nq}};
  in[1] = {"v", 1, {m.nv}};
  in[2] = {"t", 0, {}};
  in[3] = {"parameters", 1, {options.forces->parameters}};
}

struct GeneralizedForces {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    state_slots(m, options, in);
    out[0] = {"tau", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    generalized_forces(m, *options.forces, arena, in[0], in[1], t, in[3], out[0]);
  }
};

struct GeneralizedForcesDerivatives {
  static constexpr int inputs = 4, outputs = 2;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    state_slots(m, options, in);
    out[0] = {"dtau_dq", 2, {m.nv, m.nv}};
    out[1] = {"dtau_dv", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    generalized_forces_derivatives(m, *options.forces, arena, in[0], in[1], t, in[3], out[0], out[1]);
  }
};

struct ForceEnergies {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    state_slots(m, options, in);
    out[0] = {"energies", 1, {options.forces->forces}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const auto all = force_motions(m, arena, in[0], in[1]);
    force_energies(m, *options.forces, arena, all, in[0], in[1], t, in[3], out[0]);
  }
};

struct GeneralizedForcesVJP {
  static constexpr int inputs = 5, outputs = 3;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    state_slots(m, options, in);
    in[4] = {"w", 1, {m.nv}};
    out[0] = {"q", 1, {m.nv}};
    out[1] = {"v", 1, {m.nv}};
    out[2] = {"parameters", 1, {options.forces->parameters}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    S *K = arena.get<S>(m.nv * m.nv), *D = arena.get<S>(m.nv * m.nv);
    const auto all = generalized_forces_derivatives(m, *options.forces, arena, in[0], in[1], t, in[3], K, D);
    for (int k = 0; k < m.nv; ++k) out[0][k] = out[1][k] = S(0.0);
    for (int j = 0; j < m.nv; ++j)
      for (int k = 0; k < m.nv; ++k) {
        out[0][k] = mul_add(in[4][j], K[j * m.nv + k], out[0][k]);
        out[1][k] = mul_add(in[4][j], D[j * m.nv + k], out[1][k]);
      }
    for (int k = 0; k < options.forces->parameters; ++k) out[2][k] = S(0.0);
    force_parameter_gradient(m, *options.forces, arena, all, in[0], in[1], t, in[3], in[4], out[2]);
  }
};

// For tests: w.dtau/dv, computed without dtau/dv, and the gradient of w.tau with respect to the placements of bodies.
struct ForceGradients {
  static constexpr int inputs = 5, outputs = 2;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    state_slots(m, options, in);
    in[4] = {"w", 1, {m.nv}};
    out[0] = {"v", 1, {m.nv}};
    out[1] = {"placement", 2, {m.nframes(), 6}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const ForceSet& set = *options.forces;
    for (int k = 0; k < m.nv; ++k) out[0][k] = S(0.0);
    for (int k = 0; k < 6 * m.nframes(); ++k) out[1][k] = S(0.0);
    const auto all = force_motions(m, arena, in[0], in[1]);
    add_transposed_damping(m, set, arena, all, in[0], in[1], t, in[3], in[4], out[0]);
    for (int k = 0; k < m.nv; ++k) out[0][k] = -out[0][k];
    force_placement_gradient(m, set, arena, all, t, in[3], in[4], out[1]);
  }
};

}  // namespace

void bind_forces(Kernels& kernels) {
  kernels.add<Timed<GeneralizedForces>>("generalized_forces");
  kernels.add<Timed<GeneralizedForcesDerivatives>>("generalized_forces_derivatives");
  kernels.add<Timed<ForceEnergies>>("force_energies");
  kernels.add<Timed<GeneralizedForcesVJP>>("generalized_forces_vjp");
  kernels.add<Timed<ForceGradients>>("force_gradients");
}

}  // namespace torsor
