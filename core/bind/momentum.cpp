#include "dynamics/momentum.hpp"
#include "bind/kernel.hpp"

namespace torsor {
namespace {

struct KineticEnergy {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    out[0] = {"energy", 0, {}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    kinetic_energy(m, arena, in[0], in[1], out[0]);
  }
};

struct GeneralizedMomenta {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    out[0] = {"p", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    generalized_momenta(m, arena, in[0], in[1], out[0]);
  }
};

struct PotentialEnergy {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"energy", 0, {}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    potential_energy(m, arena, in[0], out[0]);
  }
};

struct CenterOfMass {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"com", 1, {3}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    center_of_mass(m, arena, in[0], out[0]);
  }
};

struct CenterOfMassJacobian {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"J", 2, {3, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    momentum_matrix<S>(m, arena, in[0], 0, nullptr, out[0]);
  }
};

struct MomentumMatrix {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"A", 2, {6, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    momentum_matrix<S>(m, arena, in[0], options.axes, out[0], nullptr);
  }
};

struct Momentum {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    out[0] = {"momentum", 1, {6}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    momentum(m, arena, in[0], in[1], options.axes, out[0]);
  }
};

}  // namespace

void bind_momentum(Kernels& kernels) {
  kernels.add<KineticEnergy>("kinetic_energy");
  kernels.add<GeneralizedMomenta>("generalized_momenta");
  kernels.add<PotentialEnergy>("potential_energy");
  kernels.add<CenterOfMass>("center_of_mass");
  kernels.add<CenterOfMassJacobian>("center_of_mass_jacobian");
  kernels.add<MomentumMatrix>("momentum_matrix");
  kernels.add<Momentum>("momentum");
}

}  // namespace torsor
