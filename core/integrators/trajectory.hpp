// Trajectories in memory, and the loops over their steps, forward and back, for every integrator.
//
// A Step has
//   double h();
//   const ForceSet* forces();                        null if there are none
//   const double* parameters;                        of the forces, for all steps
//   void set_parameters(p);                          of the forces, for this step
//   void load(track, row, first);                    starts from a row; `first`: of this call
//   Outcome advance(track, row, t, last);            takes the step from it, writes the next row; `last`: of this call
//   Shortfall shortfall;                             of a failed step; if it is singular, `error` is the user's joint
// and its adjoint
//   void take_up(row);                               adds the gradients of the loss at a row
//   bool step_back(row, t);                          from row + 1 to row; false if the step fails or is singular
//   void end(row);                                   writes the gradients of the first row
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/threads.hpp"
#include "forces/force_set.hpp"

namespace torsor {

// A joint whose chart must be changed before its coordinates become singular. Sueda 2021, 2.5.5, 2.5.8.
struct ChartLimit {
  enum Kind : int { euler_cosine, euler_sine, exponential };
  int iq;
  Kind kind;
  bool reached(const double* q) const {
    const double* x = q + iq;
    if (kind == exponential) return x[0] * x[0] + x[1] * x[1] + x[2] * x[2] > M_PI * M_PI;
    return std::fabs(kind == euler_cosine ? std::cos(x[1]) : std::sin(x[1])) < 0.5;
  }
};

// Parameters of the forces that change with every step: `count` columns of all parameters, and a row of values per
// step.
struct Signals {
  const double* rows = nullptr;
  const int64_t* columns = nullptr;
  int64_t count = 0;
};
// The parameters of the forces at each step.
class StepParameters {
 public:
  StepParameters(const double* p, const ForceSet* forces, const Signals& signals) : p_(p), signals_(signals) {
    if (signals.count > 0) step_.assign(p, p + forces->parameters);
  }
  const double* at(int64_t step) {
    if (signals_.count == 0) return p_;
    for (int64_t k = 0; k < signals_.count; ++k) step_[signals_.columns[k]] = signals_.rows[step * signals_.count + k];
    return step_.data();
  }

 private:
  const double* p_;
  Signals signals_;
  std::vector<double> step_;
};

// One trajectory: rows of q, v, a for steps + 1 times, of controls for steps (null: none), of divisions for steps.
struct Track {
  double *q, *v, *a;
  const double* u;
  int u_rows;
  int* divisions;
  const double *previous_q, *previous_v;  // in place of the row before the first step, if not null
  int64_t start = 0;                      // number of the first row within the whole trajectory
  Signals signals{};
  // Of controls from a policy, du/dq and du/dv at the beginning of each step (nv x nv); otherwise null.
  const double *feedback_q = nullptr, *feedback_v = nullptr;
  const double* controls(int64_t row, int nv) const { return u == nullptr ? nullptr : u + row * u_rows * nv; }
};

enum class Outcome : int { finished, chart, failed, singular, gained };

struct Progress {
  Outcome outcome;
  int64_t row;
};

// Steps from row `first` to row `last`, or to the first one at which a chart must be changed, or to the last one before
// a failure.
template <class Step>
Progress run(Step& step, int nq, double t0, int64_t first, int64_t last, const Track& track,
             const std::vector<ChartLimit>& limits) {
  StepParameters parameters(step.parameters, step.forces(), track.signals);
  for (int64_t row = first; row < last; ++row) {
    if (row % 64 == 0) poll();  // and each iteration of Newton's method does
    step.set_parameters(parameters.at(row));
    step.load(track, row, row == first);
    const Outcome outcome = step.advance(track, row, t0 + (track.start + row) * step.h(), row + 1 == last);
    if (outcome != Outcome::finished) return {outcome, row};
    for (const ChartLimit& limit : limits)
      if (limit.reached(track.q + (row + 1) * nq)) return {Outcome::chart, row + 1};
  }
  return {Outcome::finished, last};
}

// Arrays for gradients; those of parameters are accumulated and may be null.
struct Sensitivities {
  double *q, *v;  // steps + 1 rows of nv: on input of the loss at each row, on output the total
  double* u;      // as the controls; may be null
  double *inertia, *placement, *gravity, *forces;
  double* signals;                  // a row for each step, as Signals has them; their columns of `forces` stay zero
  double *previous_q, *previous_v;  // of Track::previous_q and previous_v
};

// Final work for a step: moves the gradients of signals to their row, and adds the cotangent of controls, times the
// feedback, to the row that the policy was given.
inline void finish_step(int nv, const Track& track, int64_t row, const Sensitivities& out) {
  for (int64_t k = 0; k < track.signals.count && out.signals != nullptr; ++k) {
    double& sum = out.forces[track.signals.columns[k]];
    out.signals[row * track.signals.count + k] += sum;
    sum = 0.0;
  }
  if (track.feedback_q == nullptr) return;
  const double *by_q = track.feedback_q + row * nv * nv, *by_v = track.feedback_v + row * nv * nv;
  for (int k = 0; k < nv; ++k) {
    add_scaled(nv, out.u[row * nv + k], by_q + k * nv, out.q + row * nv);
    add_scaled(nv, out.u[row * nv + k], by_v + k * nv, out.v + row * nv);
  }
}

// Backwards from row `last` to row `first` of a track that was run with `step`. False if a step fails; `row` is then
// its number.
template <class Reverse, class Step>
bool run_back(Reverse& reverse, Step& step, int nv, double t0, int64_t first, int64_t last, const Track& track,
              const Sensitivities& out, int64_t& row) {
  if (last == first) return true;
  StepParameters parameters(step.parameters, step.forces(), track.signals);
  reverse.take_up(last);
  for (row = last - 1; row >= first; --row) {
    poll();
    step.set_parameters(parameters.at(row));
    if (!reverse.step_back(row, t0 + (track.start + row) * step.h())) return false;
    finish_step(nv, track, row, out);
    if (row > first) reverse.take_up(row);
  }
  reverse.end(first);
  return true;
}

}  // namespace torsor
