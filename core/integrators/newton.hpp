// Newton's method, and continuation where it fails, for every kind of step. What they return solves the equations: the
// remaining correction of velocities, computed from the residual at the returned point, is within the tolerance or,
// where no correction helps, within the effect of rounding of the residual.
//
// A System is a set of equations r(x) = 0 over a scalar S, one or several lanes of them, with a current point x and
//   using Scalar = S;
//   S *delta, *correction;                             memory for corrections
//   S *guess, *last, *older;                           and, for `follow`, for accelerations
//   int size();
//   void mark();                                       remembers x, from which moves start
//   Mask place(double length, const S* along);         x = marked x + length along; false if there is no such point
//   Mask finish(const S* along);                       the same with length 1, for the last time
//   Mask evaluate();                                   r at x; false if there is none
//   Mask factor();                                     H = dr/dx at x; false if it is singular
//   void solve(S* out);                                out = -H^-1 r
//   S measure(const S* correction);                    its size as a change of velocities; infinite if it is not finite
//   S allowance(double tolerance);                     the size that is allowed at x
//   Mask bounded(S allowed, S moved);                  whether r is small enough, by a test that is sufficient if x
//                                                      has not moved far since H was factored
//   bool extrapolates();                               whether the last correction may be taken without evaluating r
//                                                      after it
//   S curvature(S correction);                         then: a lower bound to assume for its relative error
//   Mask accept();                                     final work at a solution; false if it is rejected
// and where corrections do not shrink
//   S rounding(S allowed);                             the size of a correction due to rounding of r, where that
//                                                      exceeds what is allowed
//   Mask improves(double factor);                      whether |r| is below factor times that at the marked x, in a
//                                                      norm without H
// and for `follow`
//   void begin_path();                                 last = accelerations at the beginning of the step
//   S begin(double part, const S* guess);              moves to the guess for a part of the step, returns the size of
//                                                      the correction there
//   void accelerations(double part, S* out);           those of the point
// Mask is Mask<S>, which is bool for one state.
//
// The operations at a point (correct, go) and the tests are for any scalar, lane by lane. The control flow (iterate,
// follow, find) is for a single state: halved corrections, confirmation by new factors and continuation are the scalar
// reference for lanes whose whole corrections do not simply shrink.
#pragma once
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "base/threads.hpp"
#include "scalar/scalar.hpp"

namespace torsor {

// Whether T has this interface, each member with its type.
template <class T, class = void>
struct IsNewtonSystem : std::false_type {};
template <class T>
struct IsNewtonSystem<T, std::void_t<typename T::Scalar>> {
  using S = typename T::Scalar;
  template <class Result, class Member, class... Arguments>
  static constexpr bool has = std::is_invocable_r_v<Result, Member, T&, Arguments...>;
  static constexpr bool value = std::is_same_v<decltype(T::delta), S*> && std::is_same_v<decltype(T::correction), S*> &&
                                std::is_same_v<decltype(T::guess), S*> && std::is_same_v<decltype(T::last), S*> &&
                                std::is_same_v<decltype(T::older), S*> && has<int, decltype(&T::size)> &&
                                has<void, decltype(&T::mark)> && has<Mask<S>, decltype(&T::place), double, const S*> &&
                                has<Mask<S>, decltype(&T::finish), const S*> && has<Mask<S>, decltype(&T::evaluate)> &&
                                has<S, decltype(&T::measure), const S*> && has<S, decltype(&T::allowance), double> &&
                                has<Mask<S>, decltype(&T::bounded), S, S> && has<bool, decltype(&T::extrapolates)> &&
                                has<S, decltype(&T::curvature), S> && has<Mask<S>, decltype(&T::accept)> &&
                                has<S, decltype(&T::rounding), S> && has<Mask<S>, decltype(&T::improves), double> &&
                                has<void, decltype(&T::begin_path)> && has<S, decltype(&T::begin), double, const S*> &&
                                has<void, decltype(&T::accelerations), double, S*> &&
                                std::is_same_v<decltype(std::declval<T&>().factor()), Mask<S>> &&
                                std::is_void_v<decltype(std::declval<T&>().solve(std::declval<S*>()))>;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The correction of velocities at which an attempt failed, and the one allowed. Infinite if it failed for another
// reason.
struct Shortfall {
  double error = kInfinity, allowed = 0.0;
};

// At a point, lane by lane --------------------------------------------------------------------------------------------

// The largest of n numbers by size; infinite if one is not finite.
template <class S>
S largest(int n, const S* x) {
  S most(0.0), sum(0.0);
  for (int k = 0; k < n; ++k) {
    const S size = absolute(x[k]);
    most = larger(most, size);
    sum += size;
  }
  return select(is_finite(sum), most, S(kInfinity));
}

// The correction at x with new factors, in s.delta. Returns its size.
template <class System, class S = typename System::Scalar>
S correct(System& s) {
  const Mask<S> good = s.factor();
  if (!any(good)) return S(kInfinity);
  s.solve(s.delta);
  return select(good, s.measure(s.delta), S(kInfinity));
}

// Moves from the marked x by `length` times s.delta, and computes the simplified correction there, with the present
// factors, in s.correction; `size` is its size. False if there is no such point.
template <class System, class S = typename System::Scalar>
Mask<S> go(System& s, double length, S& size) {
  Mask<S> good = s.place(length, s.delta);
  if (any(good)) good = good & s.evaluate();
  if (!any(good)) return good;
  s.solve(s.correction);
  size = s.measure(s.correction);
  return good;
}

// The tests, `norm` being the size of a correction and `after` that of the simplified correction after it. Whether a
// correction is so small that it need not be improved:
template <class S>
Mask<S> is_negligible(const S& norm, const S& allowed) {
  return less_equal(norm, S(1e-3) * allowed);
}
// Whether it was good: Deuflhard's natural monotonicity test, which is invariant under scaling of the equations.
template <class S>
Mask<S> shrinks(const S& norm, const S& after, double factor) {
  return less_equal(after, S(factor) * norm);
}
// Whether the simplified correction after a whole one is the last: the error that remains after it is estimated by its
// product with the rate, or ten times that if r is not evaluated again, as a rate can be small by chance.
template <class System, class S = typename System::Scalar>
Mask<S> is_last(const System& s, const S& norm, const S& after, const S& allowed) {
  const S rate = after / norm;
  if (s.extrapolates()) return less_equal(S(10.0) * larger(rate, s.curvature(norm)) * after, allowed);
  return less_equal(rate * after, allowed);
}
// Whether corrections shrink so slowly that new factors pay off.
template <class S>
Mask<S> is_slow(const S& norm, const S& after) {
  return less(S(0.02), after / norm);
}

// A single state ------------------------------------------------------------------------------------------------------

// Whether x is a solution, `norm` being the size of the correction there with factors since which x has `moved`. Old
// factors may be far too stiff and make it too small, so that it is confirmed, with new factors if necessary.
template <class System>
bool confirm(System& s, double allowed, double& norm, double& moved) {
  if (norm > allowed) return false;
  if (moved == 0.0 || s.bounded(allowed, moved)) return true;
  norm = correct(s);
  moved = 0.0;
  return norm <= allowed;
}

// Newton's method from x, where s.delta is the correction and `norm` its size; with at most `left` evaluations, from
// which it subtracts those used. A correction is good if the simplified correction after it is smaller or if the
// residual is; others are halved. The factors are kept while corrections shrink fast.
template <class System>
bool iterate(System& s, double tolerance, double norm, int& left, Shortfall& shortfall) {
  constexpr double shortest = 0.5;
  double moved = 0.0;  // since the factors were made
  while (true) {
    poll();
    double allowed = s.allowance(tolerance);
    shortfall = {norm, allowed};
    if (!std::isfinite(norm) || !std::isfinite(allowed)) return false;
    if (is_negligible(norm, allowed)) {
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
      if (!go(s, length, after)) continue;
      const double factor = 1.0 - 0.25 * length;
      good = shrinks(norm, after, factor);
      if (good || (length == 1.0 && norm <= allowed)) break;
      good = s.improves(factor);
      if (good) break;
    }
    if (!good) {  // no better point: the marked one is accepted if its correction is rounding
      if (!s.place(0.0, s.delta) || !s.evaluate()) return false;
      if (norm > allowed && norm > s.rounding(allowed)) return false;
      if (confirm(s, std::max(norm, allowed), norm, moved)) return true;
      continue;
    }
    moved += length * norm;
    allowed = s.allowance(tolerance);
    shortfall = {after, allowed};
    if (length == 1.0 && is_last(s, norm, after, allowed)) {
      s.mark();
      if (s.extrapolates()) return s.finish(s.correction);
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
    if (length < 1.0 || is_slow(norm, after)) {
      norm = correct(s);
      moved = 0.0;
    } else {
      std::swap(s.delta, s.correction);
      norm = after;
    }
  }
}

// Continuation: follows the solution from short steps to the whole one, for parts of the step from 0, where the
// accelerations are those of forward dynamics, to 1, extrapolating linearly from the previous two.
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

// The solution: by Newton's method from x, where s.delta is the correction and `norm` its size, or by continuation. If
// a solution is rejected or numbers overflow, there is no correction to report.
template <class System>
bool find(System& s, double tolerance, double norm, int iterations, Shortfall& shortfall) {
  int left = iterations;
  const bool found = iterate(s, tolerance, norm, left, shortfall) || follow(s, tolerance, left, shortfall);
  if (found && s.accept()) return true;
  if (!(shortfall.error > shortfall.allowed)) shortfall = {};
  return false;
}

}  // namespace torsor
