// Trajectories of any integrator, behind one interface, so that each kind is compiled in one file.
#pragma once
#include <memory>
#include <optional>

#include "integrators/scene.hpp"
#include "integrators/table.hpp"
#include "integrators/trajectory.hpp"

namespace torsor {

struct VariationalScheme;
struct HardScheme;

class Rollout {
 public:
  virtual ~Rollout() = default;
  // Runs `count` trajectories, at most one per lane, from row `first` to row `last`; and back over them.
  virtual LaneCounts run(Job* jobs, int count, double t0, int64_t first, int64_t last,
                         const std::vector<ChartLimit>& limits) = 0;
  virtual LaneCounts run_back(Job* jobs, int count, double t0, int64_t first, int64_t last) = 0;
};

// Steps are those of Forward, and Reverse goes back over them.
template <template <class> class Forward, template <class> class Reverse, class Integrator>
class RolloutOf final : public Rollout {
  using P = Pack<kLanes>;

 public:
  RolloutOf(const Scene& scene, const Integrator& integrator) : scene_(scene), integrator_(integrator) {}
  LaneCounts run(Job* jobs, int count, double t0, int64_t first, int64_t last,
                 const std::vector<ChartLimit>& limits) override {
    const int nq = scene_.m.nq;
    if (count > 1) return run_lanes(lanes(), single_of(), LaneJobs<P>(jobs, count), nq, t0, first, last, limits);
    torsor::run(single(0), nq, t0, first, last, *jobs, limits);
    return {};
  }
  LaneCounts run_back(Job* jobs, int count, double t0, int64_t first, int64_t last) override {
    const int nv = scene_.m.nv;
    if (count > 1) return run_back_lanes<Reverse>(lanes(), single_of(), LaneJobs<P>(jobs, count), nv, t0, first, last);
    torsor::run_back<Reverse>(single(0), nv, t0, first, last, *jobs);
    return {};
  }

 private:
  // Both are made at first use, and lanes first: memory of a thread is a stack, on which a single state lies above.
  Forward<P>& lanes() {
    if (!lanes_) {
      single_.reset();
      lanes_.emplace(scene_, integrator_);
    }
    return *lanes_;
  }
  // With the model of lane l.
  Forward<double>& single(int l) {
    const Model& m = model_of_lane(scene_, l);
    if (!single_ || model_ != &m) {
      single_.reset();
      if (scene_.varied != nullptr) own_.emplace(Scene{m, scene_.forces, scene_.constraints});
      single_.emplace(own_ ? *own_ : scene_, integrator_);
      model_ = &m;
    }
    return *single_;
  }
  auto single_of() {
    return [this](int l) -> Forward<double>& { return single(l); };
  }
  const Scene& scene_;
  const Integrator& integrator_;
  std::optional<Forward<P>> lanes_;
  std::optional<Scene> own_;  // of `single_`, if lanes have models of their own
  std::optional<Forward<double>> single_;
  const Model* model_ = nullptr;  // that of `single_`
};

std::unique_ptr<Rollout> make_rollout(const Scene& scene, const IntegratorTable& table);
std::unique_ptr<Rollout> make_rollout(const Scene& scene, const VariationalScheme& scheme);
std::unique_ptr<Rollout> make_rollout(const Scene& scene, const HardScheme& scheme);

}  // namespace torsor
