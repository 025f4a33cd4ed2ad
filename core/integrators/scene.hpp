// The model and the forces of a step, with properties that do not change during a simulation; and the states within a
// step.
#pragma once
#include <optional>

#include "constraints/constraint_set.hpp"
#include "derivatives/coupled_derivatives.hpp"
#include "forces/energy_balance.hpp"
#include "forces/joint_loads.hpp"
#include "forces/local_forces.hpp"
#include "model/lane_models.hpp"
#include "model/retraction.hpp"

namespace torsor {

struct Scene {
  const Model& tree;
  const ForceSet* forces = nullptr;
  const ConstraintSet* constraints = nullptr;  // null if there are none
  const Model& m = manifold(tree);             // of the states: the tree itself, if there are no couplings
  // Whether states are in reduced coordinates (model/coupling.hpp): derivatives are dense.
  bool coupled = tree.coupling != nullptr;
  std::vector<int> quaternions = quaternion_bodies(m);
  // Where the loads of bearings are, if there are any. Their derivatives are dense.
  std::shared_ptr<const LoadedTree> loads =
      forces != nullptr && !forces->bearings.empty() ? std::make_shared<LoadedTree>(tree, forces->bearings) : nullptr;
  bool held = forces != nullptr && holds(*forces);  // whether some forces are held in the world's axes
  bool custom_rows = constraints != nullptr && !constraints->custom.empty();
  // Whether derivatives are zero between branches, but for the border of constraints.
  bool branched = (forces == nullptr || keeps_branches(tree, *forces)) && !custom_rows && loads == nullptr && !coupled;
  bool places = forces != nullptr && depends_on_place(*forces);
  // Whether derivatives are a system over the tree, likewise.
  bool local = (forces == nullptr || on_single_bodies(*forces)) && !custom_rows && loads == nullptr && !coupled;
  bool on_joints = forces == nullptr || !acts_on_bodies(*forces);  // whether forces are torques at joints alone
  // Whether these are affine in q and v. Newton's method then meets no curvature but that of inverse dynamics, and no
  // spurious solutions.
  bool affine =
      constraints == nullptr && loads == nullptr && !coupled && (forces == nullptr || is_affine(tree, *forces));
  // Whether gains of energy are detected.
  bool balanced = forces != nullptr && forces->given != nullptr && !affine &&
                  (constraints == nullptr || !constraints->depends_on_time());
  bool stiff = forces != nullptr && forces->smooth != nullptr;  // whether some forces are stiff
  const LaneModels* varied = nullptr;  // if lanes have models of their own: the tree is then the first of them

  // Whether systems over the tree are faster than along branches, for one right-hand side or for several from each
  // velocity. Measured: chains cross between 20 and 28 links and between 55 and 75, balanced trees nowhere.
  bool is_tall(bool columns) const { return local && m.depth >= (columns ? 64 : 24); }
};

// f with the numbers of the tree, for the scalar S: a model of doubles, or of packs if lanes have models of their own.
// What depends on the structure of the tree alone takes scene.tree.
template <class S, class F>
decltype(auto) with_model(const Scene& scene, F&& f) {
  if constexpr (Lanes<S>::value == kLanes)
    if (scene.varied != nullptr) return f(scene.varied->all);
  return f(scene.tree);
}
// The tree of one lane.
inline const Model& model_of_lane(const Scene& scene, int l) {
  return scene.varied != nullptr ? *scene.varied->of[l] : scene.tree;
}

// States within a step. Node 0 is the row before, 1 the one that the step starts from.
template <class S>
class Nodes {
 public:
  Nodes(const Model& m, Arena& memory) : nq_(m.nq), nv_(m.nv), memory_(memory) { resize(4); }
  void resize(int count) {
    if (count <= count_) return;
    S* data = memory_.get<S>(count * size());
    std::copy_n(data_, count_ * size(), data);
    std::fill_n(data + count_ * size(), (count - count_) * size(), S(0.0));
    data_ = data;
    count_ = count;
    energies.resize(count);
  }
  S* q(int node) { return data_ + node * size(); }
  S* v(int node) { return q(node) + nq_; }
  S* a(int node) { return v(node) + nv_; }
  void copy(int from, int to) { std::copy_n(q(from), size(), q(to)); }
  std::vector<std::optional<Energies<S>>> energies;  // if known

 private:
  std::size_t size() const { return nq_ + 2 * nv_; }
  int nq_, nv_;
  Arena& memory_;
  int count_ = 0;
  S* data_ = nullptr;
};

// Data shared by all stages of a step, one per thread: the nodes, and the current controls and parameters. Lanes share
// the scene.
template <class S>
struct StepContext {
  explicit StepContext(const Scene& scene) : scene(scene), nodes(scene.m, fresh(*lease)) {
    for (S** vector : {&u, &zero}) std::fill_n(*vector = memory.get<S>(scene.m.nv), scene.m.nv, S(0.0));
  }
  const Scene& scene;
  Lease lease, scratch;
  Arena &memory = *lease, &arena = *scratch;  // arena: until the next evaluation
  Nodes<S> nodes;
  // A matrix (nv x nv) of zeros, allocated at first use.
  S* zeros(S*& matrix) {
    const std::size_t size = std::size_t(scene.m.nv) * scene.m.nv;
    if (matrix == nullptr) matrix = memory.get<S>(size);
    std::fill_n(matrix, size, S(0.0));
    return matrix;
  }
  const S* p = nullptr;  // parameters of the forces
  S* u;                  // controls of the stage
  S* zero;
  bool singular = false;  // whether the mass matrix is, at the beginning of the step
  // Where a recursion has met no singular mass matrix.
  Mask<S> is_regular() const {
    Mask<S> regular = every_lane<S>();
    for (int l = 0; arena.singular_joint >= 0 && l < Lanes<S>::value; ++l)
      set_lane(regular, l, (arena.singular_lanes >> l & 1u) == 0);
    return regular;
  }

 private:
  static Arena& fresh(Arena& memory) {
    memory.reset();
    return memory;
  }
};

}  // namespace torsor
