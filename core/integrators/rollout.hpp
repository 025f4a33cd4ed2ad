// Trajectories of any integrator, behind one interface, so that each kind is compiled in one file.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "integrators/scene.hpp"
#include "integrators/table.hpp"
#include "integrators/trajectory.hpp"

namespace torsor {

struct VariationalScheme;

class Rollout {
 public:
  virtual ~Rollout() = default;
  // Runs `count` trajectories, at most one per lane, from row `first` to row `last`; and back over them.
  virtual LaneCounts run(Job* jobs, int count, double t0, int64_t first, int64_t last,
                         const std::vector<ChartLimit>& limits) = 0;
  virtual LaneCounts run_back(Job* jobs, int count, double t0, int64_t first, int64_t last) = 0;
};

// Steps are those of Forward, and Reverse goes back over them.
template <template <class> class Forward, template <class> class Reverse>
class RolloutOf final : public Rollout {
  using P = Pack<kLanes>;

 public:
  template <class Numbers>
  RolloutOf(const Scene& scene, const Numbers& integrator)
      : m_(scene.m),
        single_(scene, integrator),
        make_lanes_([a = &scene, b = &integrator](auto& lanes) { lanes.emplace(*a, *b); }) {}
  LaneCounts run(Job* jobs, int count, double t0, int64_t first, int64_t last,
                 const std::vector<ChartLimit>& limits) override {
    if (count > 1) return run_lanes(lanes(), single_, LaneJobs<P>(jobs, count), m_.nq, t0, first, last, limits);
    torsor::run(single_, m_.nq, t0, first, last, *jobs, limits);
    return {};
  }
  LaneCounts run_back(Job* jobs, int count, double t0, int64_t first, int64_t last) override {
    if (count > 1) return run_back_lanes<Reverse>(lanes(), single_, LaneJobs<P>(jobs, count), m_.nv, t0, first, last);
    torsor::run_back<Reverse>(single_, m_.nv, t0, first, last, *jobs);
    return {};
  }

 private:
  Forward<P>& lanes() {
    if (!lanes_) make_lanes_(lanes_);
    return *lanes_;
  }
  const Model& m_;
  Forward<double> single_;
  std::optional<Forward<P>> lanes_;  // made at first use
  std::function<void(std::optional<Forward<P>>&)> make_lanes_;
};

std::unique_ptr<Rollout> make_rollout(const Scene& scene, const IntegratorTable& table);
std::unique_ptr<Rollout> make_rollout(const Scene& scene, const VariationalScheme& scheme);

}  // namespace torsor
