// Mechanical energy at the two ends of a stage. The equations of a step with stiff springs have many solutions, and those that are
// not meant have more energy than there was: a step that gains energy from nowhere is divided.
#pragma once
#include "forces.hpp"
#include "momentum.hpp"

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

struct EnergyBalance {
  double kinetic, gravity, stored;  // energies; stored: in springs
  double* tau;                      // torques of the forces that are given, and of the controls u
  double total() const { return kinetic + gravity + stored; }
  double size() const { return kinetic + std::fabs(stored) + 1e-6 * std::fabs(gravity); }
};
inline EnergyBalance energy_balance(const Model& m, const ForceSet& set, Arena& arena, const double* q, const double* v,
                                    double t, const double* p, const double* u) {
  EnergyBalance out{0.0, 0.0, 0.0, arena.get<double>(m.nv)};
  const Motions<double> all = motions(m, arena, q, v, v, true, false);  // accelerations are not read
  for (int i = 0; i < m.n(); ++i) {
    const auto& b = all.bodies[i];
    if (!m.bodies[i].massless) out.kinetic += 0.5 * dot(b.v, shift_back(rotate(b.R, m.bodies[i].I), b.p) * b.v);
  }
  potential_energy(m, arena, q, &out.gravity);
  for (const JointLaw& law : set.joints) out.stored += joint_energy(JointForce<double>(m, law, q, v, p));
  for (const PointLaw& law : set.points)
    if (law.kind != PointLaw::push) out.stored += point_energy(law, arena, force_points(law, arena, all, p), p, t);
  std::fill_n(out.tau, m.nv, 0.0);
  const ForceSet& given = *set.given;
  if (!given.torques.empty() || !given.bodies.empty() || !given.points.empty())
    generalized_forces(m, given, arena, q, v, t, p, out.tau);
  for (int k = 0; k < m.nv; ++k) out.tau[k] += u[k];
  return out;
}

// At most the work that is done in the time h, from velocities v0 to v1 and along the displacement xi.
inline double most_work(int nv, const EnergyBalance& before, const EnergyBalance& after, double h, const double* v0,
                        const double* v1, const double* xi) {
  double power0 = 0.0, power1 = 0.0, along0 = 0.0, along1 = 0.0;
  for (int k = 0; k < nv; ++k) {
    power0 += before.tau[k] * v0[k];
    power1 += after.tau[k] * v1[k];
    along0 += before.tau[k] * xi[k];
    along1 += after.tau[k] * xi[k];
  }
  return h * (std::max(power0, 0.0) + std::max(power1, 0.0)) + std::fabs(along0) + std::fabs(along1);
}

}  // namespace torsor
