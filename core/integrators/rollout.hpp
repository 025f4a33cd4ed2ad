// Trajectories of any integrator, behind one interface, so that each kind is compiled in one file.
#pragma once
#include <memory>

#include "integrators/newton.hpp"
#include "integrators/scene.hpp"
#include "integrators/table.hpp"
#include "integrators/trajectory.hpp"

namespace torsor {

struct VariationalScheme;

class Rollout {
 public:
  virtual ~Rollout() = default;
  // As torsor::run and torsor::run_back, with parameters of the forces `p` for all steps.
  virtual Progress run(const double* p, double t0, int64_t first, int64_t last, const Track& track,
                       const std::vector<ChartLimit>& limits) = 0;
  virtual bool run_back(const double* p, double t0, int64_t first, int64_t last, const Track& track,
                        const Sensitivities& out, int64_t& row) = 0;
  virtual const Shortfall& shortfall() const = 0;  // of a run that failed
};

// Steps are those of Forward, and Adjoint goes back over them.
template <class Forward, class Adjoint>
class RolloutOf final : public Rollout {
 public:
  template <class Numbers>
  RolloutOf(const Scene& scene, const Numbers& integrator) : m_(scene.m), forward_(scene, integrator) {}
  Progress run(const double* p, double t0, int64_t first, int64_t last, const Track& track,
               const std::vector<ChartLimit>& limits) override {
    forward_.parameters = p;
    return torsor::run(forward_, m_.nq, t0, first, last, track, limits);
  }
  bool run_back(const double* p, double t0, int64_t first, int64_t last, const Track& track, const Sensitivities& out,
                int64_t& row) override {
    forward_.parameters = p;
    Adjoint reverse(forward_, track, out, first);
    return torsor::run_back(reverse, forward_, m_.nv, t0, first, last, track, out, row);
  }
  const Shortfall& shortfall() const override { return forward_.shortfall; }

 private:
  const Model& m_;
  Forward forward_;
};

std::unique_ptr<Rollout> make_rollout(const Scene& scene, const IntegratorTable& table);
std::unique_ptr<Rollout> make_rollout(const Scene& scene, const VariationalScheme& scheme);

}  // namespace torsor
