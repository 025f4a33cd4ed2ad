// Models of the motions in the lanes of a pack: of one structure, with numbers of their own.
#pragma once
#include <algorithm>

#include "model/model.hpp"
#include "scalar/pack.hpp"

namespace torsor {

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
  if (!same_tree(a, b) || a.has_weak != b.has_weak) return false;
  for (int i = 0; i < a.n(); ++i) {
    const Model::Body &x = a.bodies[i], &y = b.bodies[i];
    if (x.massless != y.massless || x.offset != y.offset) return false;
  }
  for (int i = 0; i < a.nframes(); ++i) {
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
    std::copy_n(models, kLanes, of);
    pack_numbers();
  }
  const Model* of[kLanes];
  ModelT<P> all;

 private:
  // A number, or a struct of numbers, of all lanes.
  template <class F>
  auto pack(F&& get) const {
    return gather(get, get(*of[0]));
  }
  template <class F>
  P gather(F& get, double) const {
    P x;
    for (int l = 0; l < kLanes; ++l) x.lane(l) = get(*of[l]);
    return x;
  }
  template <class F, template <class> class T>
  T<P> gather(F& get, const T<double>&) const {
    T<P> x;
    for (int l = 0; l < kLanes; ++l) {
      const auto* from = reinterpret_cast<const double*>(&get(*of[l]));
      auto* to = reinterpret_cast<P*>(&x);
      for (std::size_t k = 0; k < sizeof(T<double>) / sizeof(double); ++k) to[k].lane(l) = from[k];
    }
    return x;
  }
  ModelT<P>::Body body(int i) const {
    const Model::Body& x = of[0]->bodies[i];
    return {x.parent,
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
            pack([i](const Model& m) -> auto& { return m.bodies[i].pitch; }),
            pack([i](const Model& m) -> auto& { return m.bodies[i].M; }),
            pack([i](const Model& m) -> auto& { return m.bodies[i].I; }),
            pack([i](const Model& m) -> auto& { return m.bodies[i].subtree_mass; }),
            pack([i](const Model& m) -> auto& { return m.bodies[i].Sigma; })};
  }
  ModelT<P>::Frame frame(int i) const {
    const Model::Frame& x = of[0]->frames[i];
    return {x.body,
            x.parent,
            pack([i](const Model& m) -> auto& { return m.frames[i].pose; }),
            x.same,
            pack([i](const Model& m) -> auto& { return m.frames[i].placement; }),
            pack([i](const Model& m) -> auto& { return m.frames[i].I; }),
            x.massless};
  }
  GeneralJointT<P> general(std::size_t i) const {
    const GeneralJointT<double>& x = of[0]->general[i];
    GeneralJointT<P> joint{x.kind, x.nv, x.nu, x.nw, {}, {}, {}, x.custom};
    for (std::size_t k = 0; k < x.frames.size(); ++k)
      joint.frames.push_back(pack([=](const Model& m) -> auto& { return m.general[i].frames[k]; }));
    for (std::size_t k = 0; k < x.steps.size(); ++k)
      joint.steps.push_back(pack([=](const Model& m) -> auto& { return m.general[i].steps[k]; }));
    for (std::size_t k = 0; k < x.values.size(); ++k)
      joint.values.push_back(pack([=](const Model& m) -> auto& { return m.general[i].values[k]; }));
    return joint;
  }
  void pack_numbers() {
    const Model& m = *of[0];
    all.nq = m.nq;
    all.nv = m.nv;
    all.gravity = pack([](const Model& m) -> auto& { return m.gravity; });
    for (int i = 0; i < m.n(); ++i) all.bodies.push_back(body(i));
    for (const Model::Link& x : m.links) all.links.push_back({x.parent, x.iv, x.nv, x.above, x.below});
    for (int i = 0; i < m.nframes(); ++i) all.frames.push_back(frame(i));
    for (std::size_t i = 0; i < m.general.size(); ++i) all.general.push_back(general(i));
    all.depth = m.depth;
    all.has_weak = m.has_weak;
    all.order = m.order;
    all.angles = m.angles;
    for (const Model::Rotation& x : m.quaternions) all.quaternions.push_back({x.iq, x.joint});
  }
};

}  // namespace torsor
