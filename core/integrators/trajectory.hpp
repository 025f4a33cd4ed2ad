// Trajectories in memory, and the loops over their steps, forward and back, for every integrator.
//
// A Step has
//   double h();
//   void load(track, row, first);                    takes up a row; `first`: of this call
//   Outcome advance(track, row, t, last);            takes the step from it, writes the next row; `last`: of this call
//   Shortfall shortfall;                             of a step that failed; of a singular one, `error` is the user's joint
// and what goes back over the steps
//   void begin(row);                                 takes up the gradients of the last row
//   bool step_back(row, t);                          from row + 1 to row; false if the step cannot be repeated or is singular
//   void end(row);                                   gives those of the first row away
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/threads.hpp"

namespace torsor {

// A joint whose coordinates must be changed in time. Sueda 2021, 2.5.5, 2.5.8.
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

// One trajectory: rows of q, v, a for steps + 1 times, of controls for steps (null: none), of divisions for steps.
struct Track {
  double *q, *v, *a;
  const double* u;
  int u_rows;
  int* divisions;
  const double *previous_q, *previous_v;  // instead of the row before the first step, if not null
  int64_t start = 0;                      // number of the first row within the whole trajectory
  const double* controls(int64_t row, int nv) const { return u == nullptr ? nullptr : u + row * u_rows * nv; }
};

enum class Outcome : int { finished, chart, failed, singular, gained };

struct Progress {
  Outcome outcome;
  int64_t row;
};

// Steps from row `first` to row `last`, or to the first at which a chart is to be changed, or to the last good one.
template <class Step>
Progress run(Step& step, int nq, double t0, int64_t first, int64_t last, const Track& track,
             const std::vector<ChartLimit>& limits) {
  for (int64_t row = first; row < last; ++row) {
    if (row % 64 == 0) poll();  // and each iteration of Newton's method does
    step.load(track, row, row == first);
    const Outcome outcome = step.advance(track, row, t0 + (track.start + row) * step.h(), row + 1 == last);
    if (outcome != Outcome::finished) return {outcome, row};
    for (const ChartLimit& limit : limits)
      if (limit.reached(track.q + (row + 1) * nq)) return {Outcome::chart, row + 1};
  }
  return {Outcome::finished, last};
}

// Where gradients go; those of parameters are added up and may be null.
struct Sensitivities {
  double *q, *v;  // steps + 1 rows of nv: of the loss on each row; then of all that follows
  double* u;      // as the controls; may be null
  double *inertia, *placement, *gravity, *forces;
  double *previous_q, *previous_v;  // of what stood for the row before the first step, if anything did
};

// From row `last` back to row `first` of a track as it was run. False if a step fails; `row` then says which.
template <class Reverse>
bool run_back(Reverse& reverse, double h, double t0, int64_t first, int64_t last, const Track& track, int64_t& row) {
  if (last == first) return true;
  reverse.begin(last);
  for (row = last - 1; row >= first; --row) {
    poll();
    if (!reverse.step_back(row, t0 + (track.start + row) * h)) return false;
  }
  reverse.end(first);
  return true;
}

}  // namespace torsor
