#include "forces/forces.hpp"
#include "bind/timed.hpp"
#include "forces/energy_balance.hpp"
#include "forces/force_placements.hpp"

namespace torsor {
namespace {

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

// All places of contacts, in the order of the forces.
struct ContactStates {
  static constexpr int inputs = 4, outputs = 5;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    state_slots(m, options, in);
    const int64_t count = static_cast<int64_t>(contact_forces(*options.forces).size());
    out[0] = {"gap", 1, {count}};
    out[1] = {"point", 2, {count, 3}};
    out[2] = {"normal", 2, {count, 3}};
    out[3] = {"force", 2, {count, 3}};
    out[4] = {"slip", 2, {count, 3}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const auto all = force_motions(m, arena, in[0], in[1]);
    const ForceState<S> at(m, arena, all, in[0], in[1], t, in[3]);
    int k = 0;
    for (const PairLaw& law : std::get<std::vector<PairLaw>>(options.forces->laws)) {
      const ShapePair<S> x = law.state<S>(at);
      const ContactNumbers<S> numbers = law.law(in[3]);
      law.for_each_place(at, x, S(std::numeric_limits<double>::infinity()), [&](const Place<S>& place) {
        const Mask<S> open = !less(place.gap, S(0.0)) & !is_nan(place.gap);
        const Vec3<S> f = contact_force(numbers, place.gap, place.normal, place.u);
        out[0][k] = place.gap;
        write3(place.point + x.common, out[1] + 3 * k);
        write3(place.normal, out[2] + 3 * k);
        write3(select<S>(open, zero3<S>(), f), out[3] + 3 * k);
        write3(mul_add(-dot(place.normal, place.u), place.normal, place.u), out[4] + 3 * k);
        ++k;
      });
    }
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
  kernels.add<Timed<ContactStates>>("contact_states");
}

}  // namespace torsor
