// Mechanical energy at the two ends of a stage. The equations of a step with stiff springs have many solutions, and the
// spurious ones have more energy than the state before: a step that gains energy is divided
// (integrators/energy_guard.hpp).
#pragma once
#include "forces/forces.hpp"

namespace torsor {

// Whether the energies of these forces are known and some is stored, so that a gain can be distinguished from their
// work.
inline bool has_balance(const ForceSet& set) {
  const auto some = [&](Work work) { return set.any([&](const auto& law) { return law.work() == work; }); };
  return some(Work::stores) && !some(Work::unknown);
}
template <class S>
struct Energies {
  S kinetic, gravity, stored;
  S total() const { return kinetic + gravity + stored; }
  S size() const { return kinetic + absolute(stored) + S(1e-6) * absolute(gravity); }
};

// The energy stored by springs, limits and contacts.
template <class S>
S stored_energy(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q, const S* v,
                double t, const S* p) {
  S sum(0.0);
  const ForceState<S> at(m, arena, all, q, v, t, p);
  set.for_each([&](const auto& law) {
    if (law.work() != Work::stores) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(law)>, PairLaw>)
      sum += law.stored(at);
    else
      sum += law.energy(at);
  });
  return sum;
}

}  // namespace torsor
