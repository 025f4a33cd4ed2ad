// The forces of a scene, compiled for models of one tree (same_tree, model/lane_models.hpp): the list of all kinds of
// laws, and properties of a set as a whole. A new kind of law is a line in this list.
#pragma once
#include <memory>
#include <tuple>

#include "forces/bearing_law.hpp"
#include "forces/body_laws.hpp"
#include "forces/custom_law.hpp"
#include "forces/joint_laws.hpp"
#include "forces/pair_law.hpp"
#include "forces/point_laws.hpp"
#include "model/coupling.hpp"

namespace torsor {

template <class... L>
using LawLists = std::tuple<std::vector<L>...>;
using Laws = LawLists<JointLaw, FrictionLaw, TorqueLaw, BodyLaw, PointLaw, PairLaw, CustomLaw>;

struct ForceSet {
  int forces = 0, parameters = 0;
  Laws laws;
  // The given forces (Work::given), if all energies are known (forces/energy_balance.hpp).
  std::shared_ptr<const ForceSet> given;
  // All forces but the stiff ones, if there are any (Law::is_stiff).
  std::shared_ptr<const ForceSet> smooth;
  std::vector<BearingLaw> bearings;  // forces that depend on accelerations: forces/joint_loads.hpp

  template <class L>
  void add(L law) {
    std::get<std::vector<L>>(laws).push_back(std::move(law));
  }
  // f(law) for all laws, kind by kind.
  template <class F>
  void for_each(F&& f) const {
    const auto visit = [&](const auto& kind) {
      for (const auto& law : kind) f(law);
    };
    std::apply([&](const auto&... kind) { (visit(kind), ...); }, laws);
  }
  // Whether f(law) is true of some law.
  template <class F>
  bool any(F&& f) const {
    bool result = false;
    for_each([&](const auto& law) { result = result || f(law); });
    return result;
  }
  bool empty() const {
    return !any([](const auto&) { return true; });
  }
};

// The laws of which `keeps` is true.
template <class F>
ForceSet part_of(const ForceSet& set, F&& keeps) {
  ForceSet part;
  part.forces = set.forces;
  part.parameters = set.parameters;
  set.for_each([&](const auto& law) {
    if (keeps(law)) part.add(law);
  });
  return part;
}

// The force that each place of a contact belongs to, for all places.
inline std::vector<int> contact_forces(const ForceSet& set) {
  std::vector<int> out;
  for (const PairLaw& law : std::get<std::vector<PairLaw>>(set.laws))
    out.insert(out.end(), place_count(law.A.shape, law.B.shape), law.force);
  return out;
}

// Whether users' code runs for every state. It needs the interpreter lock, for which threads would wait.
inline bool runs_user_code(const Model& m, const ForceSet* forces) {
  for (const auto& joint : m.general)
    if (joint.custom) return true;
  if (m.coupling && m.coupling->runs_user_code()) return true;
  return forces != nullptr && forces->any([](const auto& law) { return law.user_code() != nullptr; });
}
// Whether some forces are wrenches on bodies.
inline bool acts_on_bodies(const ForceSet& set) {
  return set.any([](const auto& law) { return law.acts_on_bodies(); });
}
// Whether some wrenches are held in the world's axes.
inline bool holds(const ForceSet& set) {
  return set.any([](const auto& law) { return law.holds(); });
}
// Whether forces leave the entries of dtau/dq and dtau/dv between branches zero.
inline bool keeps_branches(const Model& m, const ForceSet& set) {
  return !set.any([&](const auto& law) { return !law.keeps_branches(m); });
}
// Whether forces depend on where bodies are.
inline bool depends_on_place(const ForceSet& set) {
  return set.any([](const auto& law) { return law.depends_on_place(); });
}
// Whether forces depend on time.
inline bool depends_on_time(const ForceSet& set) {
  return set.any([](const auto& law) { return law.depends_on_time(); });
}
// Whether all forces are torques that are affine in q and v, so that their derivatives are constant.
inline bool is_affine(const Model& m, const ForceSet& set) {
  return !set.any([&](const auto& law) { return !law.is_affine(m); });
}
// Whether each force depends on one joint or on one body, and so fits into the systems over trees
// (linear/tree_system.hpp).
inline bool on_single_bodies(const ForceSet& set) {
  return !set.any([](const auto& law) { return !law.on_single_body(); });
}

}  // namespace torsor
