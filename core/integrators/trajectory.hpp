// Trajectories in memory, and the loops over their steps, forward and back, for every integrator: of one trajectory, or
// of as many as there are lanes, side by side.
//
// A Step<S> has
//   double h();
//   const ForceSet* forces();                        null if there are none
//   void set_parameters(const S* p);                 of the forces, for this step
//   void load(lanes, row, first, kept);              starts from a row; `first`: of this call; `kept`: the step before
//                                                    it was the last one taken, in all lanes
//   Mask advance(lanes, row, t, last);               takes the step from it, writes the next row where that succeeds;
//                                                    `last`: of the trajectory
// and for a single state
//   bool& singular();                                whether the mass matrix is, at the first row of the call
//   Outcome outcome; Shortfall shortfall;            of a failed step; if it is singular, `error` is the user's joint
// and its adjoint Reverse<S>
//   void take_up(row);                               adds the gradients of the loss at a row
//   Mask step_back(row, t);                          from row + 1 to row; false if the step fails or is singular: such
//                                                    lanes are as they were before
//   void end(row);                                   writes the gradients of the first row
//   ParameterSums<S> sums;
//   void pass(int lane, Reverse<double>& to);        passes the cotangents of a lane to a single state,
//   void take_back(int lane, Reverse<double>& from); and takes them back
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/threads.hpp"
#include "integrators/newton.hpp"
#include "integrators/scene.hpp"

namespace torsor {

// A joint whose chart must be changed before its coordinates become singular. Sueda 2021, 2.5.5, 2.5.8.
struct ChartLimit {
  enum Kind : int { euler_cosine, euler_sine, exponential };
  int iq;
  Kind kind;
  bool reached(const double* q) const {
    const double* x = q + iq;
    if (kind == exponential) return x[0] * x[0] + x[1] * x[1] + x[2] * x[2] > kPi * kPi;
    return std::fabs(kind == euler_cosine ? std::cos(x[1]) : std::sin(x[1])) < 0.5;
  }
};

inline bool reaches(const std::vector<ChartLimit>& limits, const double* q) {
  for (const ChartLimit& limit : limits)
    if (limit.reached(q)) return true;
  return false;
}

// Parameters of the forces that change with every step: `count` columns of all parameters, and a row of values per
// step.
struct Signals {
  const double* rows = nullptr;
  const int64_t* columns = nullptr;
  int64_t count = 0;
};

// One trajectory: rows of q, v, a for steps + 1 times, of controls for steps (null: none), of divisions for steps:
// of hard steps, 1 and the number of kinks.
struct Track {
  double *q, *v, *a;
  const double* u;
  int u_rows;
  int* divisions;
  const double *previous_q, *previous_v;  // in place of the row before the first step, if not null
  int64_t start = 0;                      // number of the first row within the whole trajectory
  int64_t steps = 0;                      // number of the last row, from the first
  Signals signals{};
  // Of controls from a policy, du/dq and du/dv at the beginning of each step (nv x nv); otherwise null.
  const double *feedback_q = nullptr, *feedback_v = nullptr;
  const double* controls(int64_t row, int nv) const { return u == nullptr ? nullptr : u + row * u_rows * nv; }
};

// Arrays for gradients; those of parameters are accumulated and may be null.
struct Sensitivities {
  double *q, *v;  // steps + 1 rows of nv: on input of the loss at each row, on output the total
  double* u;      // as the controls; may be null
  double *inertia, *placement, *gravity, *armature, *forces, *constraints, *couplings;
  double* signals;                  // a row for each step, as Signals has them; their columns of `forces` stay zero
  double *previous_q, *previous_v;  // of Track::previous_q and previous_v
};

enum class Outcome : int { finished, chart, failed, singular, gained };

// A trajectory to run or to go back over, with the parameters of its forces; and the results.
struct Job {
  Track track;
  const double* p;
  Sensitivities out{};
  Outcome outcome = Outcome::finished;
  int64_t row = 0;  // that was reached; if not finished, where it ended
  Shortfall shortfall{};
};

// The trajectories in the lanes of S. Spare lanes, and those whose trajectory has ended, read the rows of another one
// and write nowhere.
template <class S>
class LaneJobs {
 public:
  static constexpr int lanes = Lanes<S>::value;
  LaneJobs(Job* jobs, int count) : jobs_(jobs), count_(count) {
    for (int l = 0; l < lanes; ++l) from_[l] = l < count ? l : count - 1;
    for (int l = 0; l < count; ++l) goes_on_[l] = true;
  }
  int count() const { return count_; }
  Job& own(int l) const { return jobs_[l]; }
  bool goes_on(int l) const { return l < count_ && goes_on_[l]; }
  // The trajectory that a lane reads.
  const Job& operator[](int l) const { return jobs_[from_[l]]; }
  const Track& first() const { return jobs_[from_[0]].track; }
  // Ends the trajectory of a lane; false if it was the last.
  bool end(int l) {
    goes_on_[l] = false;
    int other = 0;
    while (other < count_ && !goes_on_[other]) ++other;
    if (other == count_) return false;
    for (int k = 0; k < lanes; ++k)
      if (!goes_on(k)) from_[k] = other;
    return true;
  }

  // n numbers of each trajectory, row(job) being where they are.
  template <class F>
  TORSOR_INLINE void read(int n, S* to, F&& row) const {
    const double* rows[lanes];
    for (int l = 0; l < lanes; ++l) rows[l] = row((*this)[l]);
    load_rows(rows, n, to);
  }
  template <class F>
  TORSOR_INLINE void write(int n, const S* from, const Mask<S>& where, F&& row) {
    double* rows[lanes];
    if constexpr (lanes > 1)
      if (nowhere_.size() < std::size_t(n)) nowhere_.resize(n);
    for (int l = 0; l < lanes; ++l) rows[l] = goes_on(l) && in_lane(where, l) ? row(own(l)) : nowhere_.data();
    if (lanes == 1 && rows[0] == nullptr) return;
    store_rows(from, n, rows, lanes);
  }

 private:
  Job* jobs_;
  int count_;
  int from_[lanes];
  bool goes_on_[lanes] = {};
  std::vector<double> nowhere_;
};

// The parameters of the forces at each step.
template <class S>
class StepParameters {
 public:
  StepParameters(const LaneJobs<S>& jobs, const ForceSet* forces)
      : jobs_(jobs), count_(forces == nullptr ? 0 : forces->parameters) {}
  const S* at(int64_t step) {
    const Signals& signals = jobs_.first().signals;
    if (signals.count == 0 && Lanes<S>::value == 1) return as_scalars(jobs_[0].p);
    if (values_.empty()) {
      values_.resize(count_ + 1);
      jobs_.read(count_, values_.data(), [](const Job& job) { return job.p; });
    }
    for (int64_t k = 0; k < signals.count; ++k)
      jobs_.read(1, &values_[signals.columns[k]],
                 [&](const Job& job) { return job.track.signals.rows + step * signals.count + k; });
    return values_.data();
  }
  void forget() { values_.clear(); }  // after a lane has changed its trajectory

 private:
  static const S* as_scalars(const double* p) {
    if constexpr (Lanes<S>::value == 1)
      return p;
    else
      return nullptr;
  }
  const LaneJobs<S>& jobs_;
  int count_;
  std::vector<S> values_;
};

// Forward -------------------------------------------------------------------------------------------------------------

// Steps of one trajectory from row `first` to row `last`, or to the first one at which a chart must be changed, or to
// the last one before a failure.
template <class Step>
void run(Step& step, int nq, double t0, int64_t first, int64_t last, Job& job, const std::vector<ChartLimit>& limits) {
  LaneJobs<double> jobs(&job, 1);
  StepParameters<double> parameters(jobs, step.forces());
  job.outcome = Outcome::finished;
  for (int64_t row = first; row < last; ++row) {
    if (row % 64 == 0) poll();  // and each iteration of Newton's method does
    step.set_parameters(parameters.at(row));
    step.load(jobs, row, row == first, row > first);
    job.row = row;
    if (!step.advance(jobs, row, t0 + (job.track.start + row) * step.h(), row + 1 == job.track.steps)) {
      job.outcome = step.outcome;
      job.shortfall = step.shortfall;
      return;
    }
    job.row = row + 1;
    if (reaches(limits, job.track.q + (row + 1) * nq)) {
      job.outcome = Outcome::chart;
      return;
    }
  }
  job.row = last;
}

// How many steps were taken in lanes, and how many of those had to be taken alone.
struct LaneCounts {
  int64_t steps = 0, alone = 0;
};

// The same for `count` trajectories, one in each lane. A step that lane l cannot take is taken alone by single_of(l).
template <class Step, class F, class S>
LaneCounts run_lanes(Step& step, F&& single_of, LaneJobs<S> jobs, int nq, double t0, int64_t first, int64_t last,
                     const std::vector<ChartLimit>& limits) {
  LaneCounts counts;
  StepParameters<S> parameters(jobs, step.forces());
  bool singular[LaneJobs<S>::lanes] = {}, kept = false;
  for (int l = 0; l < jobs.count(); ++l) {
    jobs.own(l).outcome = Outcome::finished;
    jobs.own(l).row = last;
  }
  for (int64_t row = first; row < last; ++row) {
    poll();
    const double t = t0 + (jobs.first().start + row) * step.h();
    step.set_parameters(parameters.at(row));
    step.load(jobs, row, row == first, kept);
    const Mask<S> taken = step.advance(jobs, row, t, row + 1 == jobs.first().steps);
    kept = true;
    for (int l = 0; l < jobs.count(); ++l) {
      if (!jobs.goes_on(l)) continue;
      Job& job = jobs.own(l);
      ++counts.steps;
      if (singular[l] || !in_lane(taken, l)) {
        ++counts.alone;
        kept = false;
        LaneJobs<double> alone(&job, 1);
        StepParameters<double> its(alone, step.forces());
        auto& single = single_of(l);
        single.set_parameters(its.at(row));
        single.singular() = singular[l];
        single.load(alone, row, row == first, false);
        if (!single.advance(alone, row, t, row + 1 == job.track.steps)) {
          job.outcome = single.outcome;
          job.shortfall = single.shortfall;
          job.row = row;
        }
        singular[l] = single.singular();
      }
      if (job.outcome == Outcome::finished && reaches(limits, job.track.q + (row + 1) * nq)) {
        job.outcome = Outcome::chart;
        job.row = row + 1;
      }
      if (job.outcome == Outcome::finished) continue;
      kept = false;
      parameters.forget();
      if (!jobs.end(l)) return counts;
    }
  }
  return counts;
}

// Back ----------------------------------------------------------------------------------------------------------------

// Gradients by parameters, accumulated; null if not wanted.
template <class S>
struct ParameterGradients {
  S *inertia, *placement, *gravity, *armature, *forces, *constraints, *couplings;
};

// The same of all lanes: for one state the arrays of its job themselves.
template <class S>
class ParameterSums {
 public:
  ParameterSums(const LaneJobs<S>& jobs, const Scene& scene)
      : jobs_(jobs),
        sizes_{10 * scene.tree.nframes(),
               6 * scene.tree.nframes(),
               3,
               scene.tree.nv,
               scene.forces == nullptr ? 0 : scene.forces->parameters,
               scene.constraints == nullptr ? 0 : scene.constraints->parameters,
               scene.coupled ? scene.tree.coupling->numbers : 0} {
    if constexpr (Lanes<S>::value == 1) {
      const Sensitivities& out = jobs[0].out;
      all_ = {out.inertia, out.placement, out.gravity, out.armature, out.forces, out.constraints, out.couplings};
    } else if (jobs[0].out.inertia != nullptr) {
      std::size_t size = 0;
      for (const int part : sizes_) size += part;
      values_.resize(size);
      S* at = values_.data();
      const int* next = sizes_;
      for (S** part : {&all_.inertia, &all_.placement, &all_.gravity, &all_.armature, &all_.forces, &all_.constraints,
                       &all_.couplings}) {
        *part = at;
        at += *next++;
      }
      for (int l = 0; l < jobs.count(); ++l) load(l);
    }
  }
  const ParameterGradients<S>& all() const { return all_; }

  // Of a lane, from and to its job.
  void load(int l) {
    for_each(l, [](S& sum, double& x, int lane) { set_lane(sum, lane, x); });
  }
  void store(int l) {
    for_each(l, [](S& sum, double& x, int lane) { x = lane_of(sum, lane); });
  }
  // Before a step, and after it in lanes where it failed.
  void save() {
    if constexpr (Lanes<S>::value > 1) saved_ = values_;
  }
  void restore(const Mask<S>& lanes) {
    for (std::size_t k = 0; k < saved_.size(); ++k) values_[k] = select(lanes, saved_[k], values_[k]);
  }
  // Moves the gradients of signals of a lane to their row.
  void move_signals(int l, int64_t row) {
    const Job& job = jobs_.own(l);
    const Signals& signals = job.track.signals;
    for (int64_t k = 0; k < signals.count && job.out.signals != nullptr; ++k) {
      S& sum = all_.forces[signals.columns[k]];
      job.out.signals[row * signals.count + k] += lane_of(sum, l);
      set_lane(sum, l, 0.0);
    }
  }

 private:
  template <class F>
  void for_each(int l, F&& f) {
    if (values_.empty()) return;
    const Sensitivities& out = jobs_.own(l).out;
    S* sum = values_.data();
    double* const arrays[] = {out.inertia, out.placement,   out.gravity,  out.armature,
                              out.forces,  out.constraints, out.couplings};
    for (int part = 0; part < 7; ++part)
      for (int k = 0; k < sizes_[part]; ++k) f(*sum++, arrays[part][k], l);
  }
  const LaneJobs<S>& jobs_;
  const int sizes_[7];
  ParameterGradients<S> all_{};
  std::vector<S> values_, saved_;
};

// Adds the cotangent of controls, times the feedback of a policy, to the row that the policy was given.
inline void add_feedback(int nv, const Job& job, int64_t row) {
  if (job.track.feedback_q == nullptr) return;
  const double *by_q = job.track.feedback_q + row * nv * nv, *by_v = job.track.feedback_v + row * nv * nv;
  const Sensitivities& out = job.out;
  for (int k = 0; k < nv; ++k) {
    add_scaled(nv, out.u[row * nv + k], by_q + k * nv, out.q + row * nv);
    add_scaled(nv, out.u[row * nv + k], by_v + k * nv, out.v + row * nv);
  }
}

// Backwards from row `last` to row `first` of a trajectory that was run with `step`. If a step fails, the job's outcome
// and row say so.
template <template <class> class Reverse, class Step>
void run_back(Step& step, int nv, double t0, int64_t first, int64_t last, Job& job) {
  job.outcome = Outcome::finished;
  if (last == first) return;
  LaneJobs<double> jobs(&job, 1);
  Reverse<double> reverse(step, jobs, first);
  StepParameters<double> parameters(jobs, step.forces());
  reverse.take_up(last);
  for (int64_t row = last - 1; row >= first; --row) {
    poll();
    step.set_parameters(parameters.at(row));
    if (!reverse.step_back(row, t0 + (job.track.start + row) * step.h())) {
      job.outcome = Outcome::failed;
      job.row = row;
      return;
    }
    reverse.sums.move_signals(0, row);
    add_feedback(nv, job, row);
    if (row > first) reverse.take_up(row);
  }
  reverse.end(first);
}

// The same for several trajectories, one in each lane.
template <template <class> class Reverse, class Step, class F, class S>
LaneCounts run_back_lanes(Step& step, F&& single_of, LaneJobs<S> jobs, int nv, double t0, int64_t first, int64_t last) {
  LaneCounts counts;
  for (int l = 0; l < jobs.count(); ++l) jobs.own(l).outcome = Outcome::finished;
  if (last == first) return counts;
  Reverse<S> reverse(step, jobs, first);
  StepParameters<S> parameters(jobs, step.forces());
  reverse.take_up(last);
  for (int64_t row = last - 1; row >= first; --row) {
    poll();
    const double t = t0 + (jobs.first().start + row) * step.h();
    step.set_parameters(parameters.at(row));
    const Mask<S> taken = reverse.step_back(row, t);
    for (int l = 0; l < jobs.count(); ++l) {
      if (!jobs.goes_on(l)) continue;
      Job& job = jobs.own(l);
      ++counts.steps;
      if (!in_lane(taken, l)) {
        ++counts.alone;
        LaneJobs<double> alone(&job, 1);
        StepParameters<double> its(alone, step.forces());
        auto& single = single_of(l);
        single.set_parameters(its.at(row));
        reverse.sums.store(l);
        Reverse<double> its_reverse(single, alone, first);
        reverse.pass(l, its_reverse);
        if (!its_reverse.step_back(row, t)) {
          job.outcome = Outcome::failed;
          job.row = row;
          parameters.forget();
          if (!jobs.end(l)) return counts;
          continue;
        }
        reverse.sums.load(l);
        reverse.take_back(l, its_reverse);
      }
      reverse.sums.move_signals(l, row);
      add_feedback(nv, job, row);
    }
    if (row > first) reverse.take_up(row);
  }
  reverse.end(first);
  for (int l = 0; l < jobs.count(); ++l)
    if (jobs.goes_on(l)) reverse.sums.store(l);
  return counts;
}

}  // namespace torsor
