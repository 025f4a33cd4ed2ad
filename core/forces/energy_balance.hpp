// Mechanical energy at the two ends of a stage. The equations of a step with stiff springs have many solutions, and those that are
// not meant have more energy than there was: a step that gains energy from nowhere is divided.
#pragma once
#include "forces/forces.hpp"

namespace torsor {

// Whether the energies of these forces are known, so that a gain can be told from their work. A force written by the user in reduced
// coordinates may do any.
inline bool has_balance(const ForceSet& set) {
  if (!set.customs.empty()) return false;
  bool stores = false;
  for (const JointLaw& law : set.joints) stores = stores || law.kind != JointLaw::damper;
  for (const PointLaw& law : set.points) {
    if (law.kind == PointLaw::tension && !law.law->has_energy()) return false;
    stores = stores || law.kind != PointLaw::push;
  }
  return stores;
}
// The forces of a set that are given: torques, wrenches and forces at points, which may do work.
inline ForceSet given_forces(const ForceSet& set) {
  ForceSet given;
  given.forces = set.forces;
  given.parameters = set.parameters;
  given.torques = set.torques;
  for (const BodyLaw& law : set.bodies)
    if (law.kind != BodyLaw::damper) given.bodies.push_back(law);
  for (const PointLaw& law : set.points)
    if (law.kind == PointLaw::push) given.points.push_back(law);
  return given;
}

struct Energies {
  double kinetic, gravity, stored;
  double total() const { return kinetic + gravity + stored; }
  double size() const { return kinetic + std::fabs(stored) + 1e-6 * std::fabs(gravity); }
};

// What springs, limits and contacts store.
inline double stored_energy(const Model& m, const ForceSet& set, Arena& arena, const Motions<double>& all,
                            const double* q, const double* v, double t, const double* p) {
  double sum = 0.0;
  for (const JointLaw& law : set.joints) sum += joint_energy(JointForce<double>(m, law, q, v, p));
  for (const PointLaw& law : set.points)
    if (law.kind != PointLaw::push) sum += point_energy(law, arena, force_points(law, arena, all, p), p, t);
  return sum;
}

}  // namespace torsor
