// Newton's method, and continuation where it fails, for every kind of step. What they return as solved is so: the correction of
// velocities that is missing at the returned point, found from the residual there, is within the tolerance, or where no correction
// helps within what rounding of the residual alone may have.
//
// A System is a set of equations r(x) = 0 with a current point x and
//   double *delta, *correction;                        memory for corrections
//   double *guess, *last, *older;                      and, for `follow`, for accelerations
//   int size();
//   void mark();                                       remembers x, where moves start from
//   bool place(double length, const double* along);    x = marked x + length along; false if there is no such point
//   bool finish(const double* along);                  the same with length 1, for the last time
//   bool evaluate();                                   r at x; false if there is none
//   bool factor();                                     H = dr/dx at x; false if it is singular
//   void solve(double* out);                           out = -H^-1 r
//   double measure(const double* correction);          its size as a change of velocities; infinite if it is not finite
//   double allowance(double tolerance);                the size that is allowed at x
//   double rounding(double allowed);                   the size that rounding of r alone may have, where more than is allowed
//   bool bounded(double allowed, double moved);        whether r is small enough, by a test that is sufficient if the point has not
//                                                      moved far since H was found
//   bool improves(double factor);                      whether |r| is below factor times that at the marked x, in a norm without H
//   bool extrapolates();                               whether the last correction may be taken without evaluating r after it
//   double curvature(double correction);               then: at least by how much its relative error is to be taken
// and for `follow`
//   void begin_path();                                 last = accelerations at the beginning of the step
//   double begin(double part, const double* guess);    goes to the start for a part of the step, returns the correction there
//   void accelerations(double part, double* out);      those of the point
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/threads.hpp"

namespace torsor {

// Whether S has all of that, each with its type.
template <class S, class = void>
struct IsNewtonSystem : std::false_type {};
template <class S>
struct IsNewtonSystem<
    S, std::enable_if_t<
           std::is_same_v<decltype(S::delta), double*> && std::is_same_v<decltype(S::correction), double*> &&
           std::is_same_v<decltype(S::guess), double*> && std::is_same_v<decltype(S::last), double*> &&
           std::is_same_v<decltype(S::older), double*> && std::is_invocable_r_v<int, decltype(&S::size), S&> &&
           std::is_invocable_r_v<void, decltype(&S::mark), S&> &&
           std::is_invocable_r_v<bool, decltype(&S::place), S&, double, const double*> &&
           std::is_invocable_r_v<bool, decltype(&S::finish), S&, const double*> &&
           std::is_invocable_r_v<bool, decltype(&S::evaluate), S&> &&
           std::is_invocable_r_v<double, decltype(&S::measure), S&, const double*> &&
           std::is_invocable_r_v<double, decltype(&S::allowance), S&, double> &&
           std::is_invocable_r_v<double, decltype(&S::rounding), S&, double> &&
           std::is_invocable_r_v<bool, decltype(&S::bounded), S&, double, double> &&
           std::is_invocable_r_v<bool, decltype(&S::improves), S&, double> &&
           std::is_invocable_r_v<bool, decltype(&S::extrapolates), S&> &&
           std::is_invocable_r_v<double, decltype(&S::curvature), S&, double> &&
           std::is_invocable_r_v<void, decltype(&S::begin_path), S&> &&
           std::is_invocable_r_v<double, decltype(&S::begin), S&, double, const double*> &&
           std::is_invocable_r_v<void, decltype(&S::accelerations), S&, double, double*> &&
           std::is_same_v<decltype(std::declval<S&>().factor()), bool> &&
           std::is_void_v<decltype(std::declval<S&>().solve(std::declval<double*>()))>>> : std::true_type {};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What a failed attempt had reached, and should have: corrections of velocities. Infinite where there was none.
struct Shortfall {
  double error = kInfinity, allowed = 0.0;
};

// The largest of n numbers by size; infinite if one is not finite.
inline double largest(int n, const double* x) {
  double most = 0.0, sum = 0.0;
  for (int k = 0; k < n; ++k) {
    most = std::max(most, std::fabs(x[k]));
    sum += std::fabs(x[k]);
  }
  return std::isfinite(sum) ? most : kInfinity;
}

// The correction at x with new factors, in s.delta. Returns its size.
template <class System>
double correct(System& s) {
  if (!s.factor()) return kInfinity;
  s.solve(s.delta);
  return s.measure(s.delta);
}

// Whether x is a solution, `norm` being the size of the correction found there with factors from which x has `moved` since. These
// may be far too stiff and hide what is missing, so that kept ones are confirmed, by new ones if need be.
template <class System>
bool confirm(System& s, double allowed, double& norm, double& moved) {
  if (norm > allowed) return false;
  if (moved == 0.0 || s.bounded(allowed, moved)) return true;
  norm = correct(s);
  moved = 0.0;
  return norm <= allowed;
}

// Newton's method from x, where s.delta is the correction and `norm` its size; with at most `left` evaluations, of which it takes its
// own off. A correction is good if the simplified correction after it is smaller (Deuflhard's natural monotonicity test, which no
// scaling of equations changes) or if the residual is; others are halved. The factors are kept while corrections shrink fast.
template <class System>
bool iterate(System& s, double tolerance, double norm, int& left, Shortfall& shortfall) {
  constexpr double shortest = 0.5;
  double moved = 0.0;  // since the factors were made
  while (true) {
    poll();
    double allowed = s.allowance(tolerance);
    shortfall = {norm, allowed};
    if (!std::isfinite(norm) || !std::isfinite(allowed)) return false;
    if (norm <= 1e-3 * allowed) {
      s.mark();
      if (s.extrapolates()) return s.finish(s.delta);
      if (confirm(s, allowed, norm, moved)) return true;
      continue;
    }
    s.mark();
    double after = 0.0, length = 1.0;
    bool good = false;
    for (; length >= shortest && left > 0; length *= 0.5) {
      --left;
      if (!s.place(length, s.delta) || !s.evaluate()) continue;
      s.solve(s.correction);
      after = s.measure(s.correction);
      const double factor = 1.0 - 0.25 * length;
      good = after <= factor * norm;
      if (good || (length == 1.0 && norm <= allowed)) break;
      good = s.improves(factor);
      if (good) break;
    }
    if (!good) {  // no better point: the marked one may do, if what is missing there is a matter of rounding
      const bool fresh = moved == 0.0;
      if (!s.place(0.0, s.delta) || !s.evaluate()) return false;
      if (norm > allowed && norm > s.rounding(allowed)) return false;
      if (confirm(s, std::max(norm, allowed), norm, moved)) return true;
      if (fresh) return false;
      continue;
    }
    const double rate = after / norm;
    moved += length * norm;
    allowed = s.allowance(tolerance);
    shortfall = {after, allowed};
    // What remains after this correction too is its share of itself, or several times that: a share can be small by chance.
    if (length == 1.0 && s.extrapolates() && 10.0 * std::max(rate, s.curvature(norm)) * after <= allowed) {
      s.mark();
      return s.finish(s.correction);
    }
    if (length == 1.0 && !s.extrapolates() && rate * after <= allowed) {
      s.mark();
      if (s.place(1.0, s.correction) && s.evaluate()) {
        s.solve(s.delta);
        norm = s.measure(s.delta);
        moved += after;
        allowed = s.allowance(tolerance);
        shortfall = {norm, allowed};
        if (confirm(s, allowed, norm, moved)) return true;
        if (moved > 0.0 && norm > 0.02 * after) {
          norm = correct(s);
          moved = 0.0;
        }
        continue;
      }
      s.place(0.0, s.correction);
      s.evaluate();
    }
    if (length < 1.0 || rate > 0.02) {
      norm = correct(s);
      moved = 0.0;
    } else {
      std::swap(s.delta, s.correction);
      norm = after;
    }
  }
}

// Follows the solution from short steps to the whole one: for parts of the step from 0, where the accelerations are those of forward
// dynamics, to 1; each time from the line through the two before.
template <class System>
bool follow(System& s, double tolerance, int& left, Shortfall& shortfall) {
  s.begin_path();
  double at = 0.0, before = 0.0;
  Shortfall reached;
  for (double further = 1.0; further > 0.01 && left > 0;) {
    const double part = std::min(1.0, at + further), ratio = at > 0.0 ? (part - at) / (at - before) : 0.0;
    for (int k = 0; k < s.size(); ++k) s.guess[k] = mul_add(ratio, s.last[k] - s.older[k], s.last[k]);
    const double norm = s.begin(part, s.guess);
    int few = std::min(left, 12);
    left -= few;
    const bool good = iterate(s, part < 1.0 ? std::max(tolerance, 1e-5) : tolerance, norm, few, reached);
    left += few;
    if (good && part == 1.0) return true;
    further *= good ? 1.5 : 0.5;
    if (!good) {
      shortfall = reached;
      continue;
    }
    std::swap(s.older, s.last);
    s.accelerations(part, s.last);
    before = at;
    at = part;
  }
  return false;
}

}  // namespace torsor
