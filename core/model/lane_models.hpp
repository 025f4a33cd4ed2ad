// Models of the motions in the lanes of a pack: of one structure, with numbers of their own.
#pragma once
#include <algorithm>

#include "model/coupling.hpp"
#include "scalar/pack.hpp"

namespace torsor {

// Whether states of both models are in the same coordinates: neither has couplings, or both have the same ones.
inline bool same_coupling(const Model& a, const Model& b) {
  return a.coupling == b.coupling || (a.coupling && b.coupling && a.coupling->equals(*b.coupling));
}

// Whether two models have the same bodies, joints, coordinates and frames, whatever their numbers are: forces that are
// compiled for one of them are valid for the other.
inline bool same_tree(const Model& a, const Model& b) {
  const auto equal = [](const auto& x, const auto& y, auto&& same) {
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), same);
  };
  const auto body = [](const Model::Body& x, const Model::Body& y) {
    return x.parent == y.parent && x.kind == y.kind && x.iq == y.iq && x.iv == y.iv && x.nv == y.nv &&
           x.joint == y.joint && x.general == y.general;
  };
  const auto frame = [](const Model::Frame& x, const Model::Frame& y) {
    return x.body == y.body && x.parent == y.parent;
  };
  return a.nq == b.nq && a.nv == b.nv && equal(a.bodies, b.bodies, body) && equal(a.frames, b.frames, frame) &&
         a.order == b.order;
}

// Whether recursions take the same path through both models, so that these may stand side by side: they also agree in
// what is zero, in the sizes of splines, and in user-defined joints, which are called once for all lanes.
inline bool same_structure(const Model& a, const Model& b) {
  if (!same_tree(a, b) || !same_coupling(a, b) || a.has_weak != b.has_weak || a.armature.empty() != b.armature.empty())
    return false;
  for (int i = 0; i < a.n(); ++i) {
    const Model::Body &x = a.bodies[i], &y = b.bodies[i];
    if (x.massless != y.massless || x.offset != y.offset) return false;
  }
  for (int i = 0; i < a.nplaces(); ++i) {
    const Model::Frame &x = a.frames[i], &y = b.frames[i];
    if (x.same != y.same || x.massless != y.massless) return false;
  }
  for (std::size_t i = 0; i < a.general.size(); ++i) {
    const GeneralJointT<double>&x = a.general[i], &y = b.general[i];
    if (x.nu != y.nu || x.nw != y.nw || x.frames.size() != y.frames.size() || x.values.size() != y.values.size())
      return false;
    if (x.custom != nullptr && !x.custom->equals(*y.custom)) return false;
  }
  return true;
}

// The models of the lanes, and all their numbers as those of one model. They have the same structure.
class LaneModels {
  using P = Pack<kLanes>;

 public:
  explicit LaneModels(const Model* const* models) {
    copy_structure(*models[0]);
    set(models);
  }
  // Takes other models, of the same structure as those before.
  void set(const Model* const* models) {
    std::copy_n(models, kLanes, of);
    pack_numbers();
  }
  const Model* of[kLanes];
  ModelT<P> all;

 private:
  void copy_structure(const Model& m) {
    all.nq = m.nq;
    all.nv = m.nv;
    for (const Model::Body& x : m.bodies)
      all.bodies.push_back({x.parent,
                            x.kind,
                            x.iq,
                            x.iv,
                            x.nv,
                            x.massless,
                            x.offset,
                            x.leaf,
                            x.last_child,
                            x.joint,
                            x.general,
                            {},
                            {},
                            {},
                            {},
                            {}});
    for (const Model::Link& x : m.links) all.links.push_back({x.parent, x.iv, x.nv, x.above, x.below});
    for (const Model::Frame& x : m.frames) all.frames.push_back({x.body, x.parent, {}, x.same, {}, {}, x.massless});
    for (const GeneralJointT<double>& x : m.general) {
      all.general.push_back({x.kind, x.nv, x.nu, x.nw, {}, {}, {}, x.custom});
      all.general.back().frames.resize(x.frames.size());
      all.general.back().steps.resize(x.steps.size());
      all.general.back().values.resize(x.values.size());
    }
    all.coupling = m.coupling;
    all.armature.resize(m.armature.size());
    all.depth = m.depth;
    all.has_weak = m.has_weak;
    all.order = m.order;
    all.angles = m.angles;
    for (const Model::Rotation& x : m.quaternions) all.quaternions.push_back({x.iq, x.joint});
  }
  void pack_numbers() {
    pack(all.gravity, [](const Model& m) -> auto& { return m.gravity; });
    for (std::size_t k = 0; k < all.armature.size(); ++k)
      pack(all.armature[k], [k](const Model& m) -> auto& { return m.armature[k]; });
    for (std::size_t i = 0; i < all.bodies.size(); ++i) {
      auto& body = all.bodies[i];
      pack(body.pitch, [i](const Model& m) -> auto& { return m.bodies[i].pitch; });
      pack(body.M, [i](const Model& m) -> auto& { return m.bodies[i].M; });
      pack(body.I, [i](const Model& m) -> auto& { return m.bodies[i].I; });
      pack(body.subtree_mass, [i](const Model& m) -> auto& { return m.bodies[i].subtree_mass; });
      pack(body.Sigma, [i](const Model& m) -> auto& { return m.bodies[i].Sigma; });
    }
    for (std::size_t i = 0; i < all.frames.size(); ++i) {
      auto& frame = all.frames[i];
      pack(frame.pose, [i](const Model& m) -> auto& { return m.frames[i].pose; });
      pack(frame.placement, [i](const Model& m) -> auto& { return m.frames[i].placement; });
      pack(frame.I, [i](const Model& m) -> auto& { return m.frames[i].I; });
    }
    for (std::size_t i = 0; i < all.general.size(); ++i) {
      auto& joint = all.general[i];
      for (std::size_t k = 0; k < joint.frames.size(); ++k)
        pack(joint.frames[k], [i, k](const Model& m) -> auto& { return m.general[i].frames[k]; });
      for (std::size_t k = 0; k < joint.steps.size(); ++k)
        pack(joint.steps[k], [i, k](const Model& m) -> auto& { return m.general[i].steps[k]; });
      for (std::size_t k = 0; k < joint.values.size(); ++k)
        pack(joint.values[k], [i, k](const Model& m) -> auto& { return m.general[i].values[k]; });
    }
  }
  // A number, or a struct of numbers, of all lanes.
  template <class T, class F>
  void pack(T& to, F&& get) const {
    static_assert(sizeof(T) == kLanes * sizeof(get(*of[0])));
    const double* rows[kLanes];
    for (int l = 0; l < kLanes; ++l) rows[l] = reinterpret_cast<const double*>(&get(*of[l]));
    load_rows(rows, sizeof(T) / sizeof(P), reinterpret_cast<P*>(&to));
  }
};

}  // namespace torsor
