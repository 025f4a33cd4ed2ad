// Trajectories of hard steps and their gradients, one state at a time; the loops are in integrators/trajectory.hpp.
#pragma once
#include "integrators/hard_step.hpp"
#include "integrators/rollout.hpp"

namespace torsor {

class HardRollout {
 public:
  HardRollout(const Scene& scene, const HardScheme& scheme) : step(scene, scheme), m_(scene.m) {}
  HardStep step;
  Outcome outcome = Outcome::finished;
  Shortfall shortfall;
  double h() const { return step.scheme.h; }
  void set_parameters(const double* p) { step.at.p = p; }
  const ForceSet* forces() const { return step.forces(); }

  void load(const LaneJobs<double>& jobs, int64_t row, bool, bool) {
    const Track& track = jobs.first();
    std::copy_n(track.q + row * m_.nq, m_.nq, step.at.nodes.q(1));
    std::copy_n(track.v + row * m_.nv, m_.nv, step.at.nodes.v(1));
    if (const double* u = track.controls(row, m_.nv); u != nullptr)
      std::copy_n(u, m_.nv, step.at.u);
    else
      std::fill_n(step.at.u, m_.nv, 0.0);
  }
  // The accelerations of a row are those of the step from it; of the last row, those of a step that is not taken.
  bool advance(LaneJobs<double>& jobs, int64_t row, double t, bool last) {
    const Track& track = jobs.first();
    if (!step.take(t)) {
      shortfall = step.shortfall;
      outcome = Outcome::failed;
      if (step.is_singular()) {
        shortfall.error = step.at.arena.singular_joint;
        outcome = Outcome::singular;
      }
      return false;
    }
    Nodes<double>& nodes = step.at.nodes;
    std::copy_n(nodes.q(2), m_.nq, track.q + (row + 1) * m_.nq);
    std::copy_n(nodes.v(2), m_.nv, track.v + (row + 1) * m_.nv);
    std::copy_n(nodes.a(1), m_.nv, track.a + row * m_.nv);
    track.divisions[row] = 1 + step.kinks;
    if (!last) return true;
    nodes.copy(2, 1);
    if (step.take(t + h())) std::copy_n(nodes.a(1), m_.nv, track.a + (row + 1) * m_.nv);
    return true;
  }

 private:
  const Model& m_;
};

template <class S>
class HardAdjoint {
 public:
  HardAdjoint(HardRollout& rollout, LaneJobs<S>& jobs, int64_t)
      : sums(jobs, Scene{rollout.step.at.scene.tree, rollout.forces(), rollout.step.constraints()}),
        rollout_(rollout),
        nv_(rollout.step.at.scene.m.nv),
        jobs_(jobs),
        u_(nv_) {}
  ParameterSums<S> sums;
  void take_up(int64_t) {}  // gradients are in the rows
  void end(int64_t) {}
  bool step_back(int64_t row, double t) {
    HardStep& step = rollout_.step;
    rollout_.load(jobs_, row, false, false);
    if (!step.take(t) || !step.linearise(t)) return false;
    const Sensitivities& out = jobs_[0].out;
    double* u = out.u == nullptr ? u_.data() : out.u + row * nv_;
    step.pull_back(t, out.q + (row + 1) * nv_, out.v + (row + 1) * nv_, out.q + row * nv_, out.v + row * nv_, u,
                   sums.all());
    return true;
  }

 private:
  HardRollout& rollout_;
  const int nv_;
  LaneJobs<S>& jobs_;
  std::vector<double> u_;
};

class HardRollouts final : public Rollout {
 public:
  HardRollouts(const Scene& scene, const HardScheme& scheme) : scene_(scene), scheme_(scheme) {}
  LaneCounts run(Job* jobs, int count, double t0, int64_t first, int64_t last,
                 const std::vector<ChartLimit>& limits) override {
    for (int l = 0; l < count; ++l) torsor::run(of(l), scene_.m.nq, t0, first, last, jobs[l], limits);
    return {};
  }
  LaneCounts run_back(Job* jobs, int count, double t0, int64_t first, int64_t last) override {
    for (int l = 0; l < count; ++l) torsor::run_back<HardAdjoint>(of(l), scene_.m.nv, t0, first, last, jobs[l]);
    return {};
  }

 private:
  // With the model of lane l.
  HardRollout& of(int l) {
    const Model& m = model_of_lane(scene_, l);
    if (!made_ || model_ != &m) {
      made_.reset();
      own_.emplace(Scene{m, scene_.forces, scene_.constraints});
      made_.emplace(*own_, scheme_);
      model_ = &m;
    }
    return *made_;
  }
  const Scene& scene_;
  const HardScheme& scheme_;
  std::optional<Scene> own_;
  std::optional<HardRollout> made_;
  const Model* model_ = nullptr;
};

}  // namespace torsor
