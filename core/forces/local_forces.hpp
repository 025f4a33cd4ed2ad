// Forces on single joints and bodies as blocks, which fit into systems over trees (linear/tree_system.hpp). Forces that
// couple bodies do not (on_single_bodies).
#pragma once
#include "forces/forces.hpp"

namespace torsor {

// Calls each(body, Aq, Av) for each law at a joint, with Aq = -dtau/dq and Av = -dtau/dv of that joint alone, nv x nv.
// Both may be changed.
template <class S, class Each>
void for_each_joint_force(const Model& m, const ForceSet& set, const S* q, const S* v, const S* p, Each&& each) {
  set.for_each([&](const auto& law) { law.on_joint(m, q, v, p, each); });
}
// Calls each(body, change) for each law on a body whose wrench changes.
template <class S, class Each>
void for_each_body_force(const ForceSet& set, Arena& arena, const Motions<S>& all, double t, const S* p, Each&& each) {
  const BodyState<S> at{arena, all, t, p};
  set.for_each([&](const auto& law) { law.on_body(at, each); });
}

}  // namespace torsor
