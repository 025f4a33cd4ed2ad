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
//   Mask place(double length, const S* along, Mask where);   x = marked x + length along in some lanes, the others keep
//                                                      theirs; false if there is no such point
//   Mask finish(const S* along, Mask where);           the same with length 1, for the last time
//   Mask evaluate();                                   r at x; false if there is none
//   Mask factor(Mask keep);                            H = dr/dx at x, but in the lanes `keep` the factors that they
//                                                      have; false if it is singular
//   void solve(S* out);                                out = -H^-1 r
//   S measure(const S* correction);                    its size as a change of velocities; infinite if it is not finite
//   S allowance(double tolerance);                     the size that is allowed at x
//   Mask bounded(S allowed, S moved);                  whether r is small enough, by a test that is sufficient if x
//                                                      has not moved far since H was factored
//   bool extrapolates();                               whether the last correction may be taken without evaluating r
//                                                      after it
//   S curvature(S correction);                         then: a lower bound to assume for its relative error
//   bool relocates();                                  whether there is another method where corrections do not help,
//                                                      which `search` uses
//   S merit(), marked_merit();                         then: the square of |r| at x and at the marked x, in a norm
//                                                      without H
//   Mask relocate(S* along, Mask where);               and a move from x, which was evaluated, near to a solution;
//                                                      false where it finds none
//   Mask accept();                                     final work at a solution; false if it is rejected
// and for a single state, where corrections do not shrink
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
// Lanes run through the same code, each with the decisions that it would make alone. A lane that has ended keeps its x:
// evaluations repeat there with the same result. What only some lanes need, and rarely (halved corrections, solutions
// at the limit of rounding, continuation), is for a single state: such a lane ends without a solution, and whoever runs
// the lanes takes its step alone.
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
  static constexpr bool value =
      std::is_same_v<decltype(T::delta), S*> && std::is_same_v<decltype(T::correction), S*> &&
      std::is_same_v<decltype(T::guess), S*> && std::is_same_v<decltype(T::last), S*> &&
      std::is_same_v<decltype(T::older), S*> && has<int, decltype(&T::size)> && has<void, decltype(&T::mark)> &&
      has<Mask<S>, decltype(&T::place), double, const S*, Mask<S>> &&
      has<Mask<S>, decltype(&T::finish), const S*, Mask<S>> && has<Mask<S>, decltype(&T::evaluate)> &&
      has<S, decltype(&T::measure), const S*> && has<S, decltype(&T::allowance), double> &&
      has<Mask<S>, decltype(&T::bounded), S, S> && has<bool, decltype(&T::extrapolates)> &&
      has<S, decltype(&T::curvature), S> && has<Mask<S>, decltype(&T::accept)> && has<S, decltype(&T::rounding), S> &&
      has<Mask<S>, decltype(&T::improves), double> && has<bool, decltype(&T::relocates)> &&
      has<S, decltype(&T::merit)> && has<S, decltype(&T::marked_merit)> &&
      has<Mask<S>, decltype(&T::relocate), S*, Mask<S>> && has<void, decltype(&T::begin_path)> &&
      std::is_same_v<decltype(std::declval<T&>().begin(1.0, std::declval<const S*>())), S> &&
      has<void, decltype(&T::accelerations), double, S*> &&
      std::is_same_v<decltype(std::declval<T&>().factor(std::declval<Mask<S>>())), Mask<S>> &&
      std::is_void_v<decltype(std::declval<T&>().solve(std::declval<S*>()))>;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The correction of velocities at which an attempt failed, and the one allowed. Infinite if it failed for another
// reason.
struct Shortfall {
  double error = kInfinity, allowed = 0.0;
};

// At a point ----------------------------------------------------------------------------------------------------------

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

// The correction at x, in s.delta, with new factors but in the lanes `keep`, which keep theirs. Returns its size.
template <class System, class S = typename System::Scalar>
S correct(System& s, const Mask<S>& keep) {
  const Mask<S> good = s.factor(keep) | keep;
  if (!any(good)) return S(kInfinity);
  if (any(keep)) {
    s.solve(s.correction);
    for (int k = 0; k < s.size(); ++k) s.delta[k] = select(keep, s.delta[k], s.correction[k]);
  } else {
    s.solve(s.delta);
  }
  return select(good, s.measure(s.delta), S(kInfinity));
}
template <class System, class S = typename System::Scalar>
S correct(System& s) {
  return correct(s, no_lane<S>());
}

// Moves some lanes from the marked x by `length` times s.delta, and computes the simplified correction at x, with the
// present factors, in s.correction; `size` is its size. False if there is no such point.
template <class System, class S = typename System::Scalar>
Mask<S> go(System& s, double length, const Mask<S>& where, S& size) {
  Mask<S> good = where & s.place(length, s.delta, where);
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

// Moves some lanes from the marked x by the system's own method, or by a part of that move. False where that finds no
// point.
template <class System, class S = typename System::Scalar>
Mask<S> relocate(System& s, const Mask<S>& lanes, double length) {
  Mask<S> there = lanes & s.place(0.0, s.delta, lanes);
  if (any(there)) there = there & s.evaluate();
  if (any(there)) there = there & s.relocate(s.correction, there);
  if (any(there)) there = there & s.place(length, s.correction, there);
  return there;
}

// The iteration -------------------------------------------------------------------------------------------------------

// Newton's method from x, where s.delta is the correction and `norm` its size, in the lanes `going`; with at most
// `left` evaluations, from which it subtracts those used. A correction is good if the simplified correction after it is
// smaller or, for a single state, if the residual is; others are halved. The factors are kept while corrections shrink
// fast. Old factors may be far too stiff and make a correction too small, so that a solution is confirmed, with new
// factors if necessary. Returns the lanes that have found a solution.
template <class System, class S = typename System::Scalar>
Mask<S> iterate(System& s, double tolerance, S norm, Mask<S> going, int& left, Shortfall& shortfall) {
  constexpr bool alone = Lanes<S>::value == 1;
  constexpr double shortest = alone ? 0.5 : 1.0;
  S moved(0.0);  // since the factors were made
  Mask<S> found = no_lane<S>();
  const auto note = [&](const S& error, const S& allowed) {
    if constexpr (alone) shortfall = {error, allowed};
  };
  while (true) {
    poll();
    S allowed = s.allowance(tolerance), limit = allowed;
    note(norm, allowed);
    going = going & is_finite(norm) & is_finite(allowed);
    if (!any(going)) return found;
    // Lanes that need new factors, and those of them that end if the correction is then within the limit.
    Mask<S> renew = no_lane<S>(), pending = renew;
    bool current = false;  // whether delta and norm are those of x
    const auto end = [&](const Mask<S>& lanes, const Mask<S>& good) {
      found = found | (lanes & good);
      going = going & !lanes;
    };
    const auto confirm = [&](Mask<S> lanes, const S& within) {
      lanes = lanes & less_equal(norm, within);
      Mask<S> sure = lanes & equal(moved, S(0.0));
      if (any(lanes & !sure)) sure = lanes & (sure | s.bounded(within, moved));
      end(sure, sure);
      const Mask<S> doubtful = lanes & !sure;
      renew = renew | doubtful;
      pending = pending | doubtful;
      limit = select(doubtful, within, limit);
    };

    const Mask<S> negligible = going & is_negligible(norm, allowed);
    if (any(negligible)) {
      s.mark();
      if (s.extrapolates())
        end(negligible, s.finish(s.delta, negligible));
      else
        confirm(negligible, allowed);
    }
    const Mask<S> moving = going & !negligible;
    if (any(moving)) {
      s.mark();
      S after(0.0);
      double length = 1.0;
      Mask<S> good = no_lane<S>(), reached = good;
      if (!alone && left == 0) return found;
      for (; length >= shortest && left > 0; length *= 0.5) {
        --left;
        reached = good = go(s, length, moving, after);
        if (!any(good)) continue;
        const double factor = 1.0 - 0.25 * length;
        good = good & shrinks(norm, after, factor);
        if constexpr (alone) {
          if (good || (length == 1.0 && norm <= allowed)) break;
          good = s.improves(factor);
          if (good) break;
        } else {
          break;
        }
      }
      Mask<S> stuck = moving & !good;
      if constexpr (!alone) {
        stuck = stuck & reached;
        going = going & !(moving & !reached);
      }
      if (__builtin_expect(any(stuck), 0)) {
        // No better point: the marked one is accepted if its correction is rounding.
        Mask<S> back = stuck & s.place(0.0, s.delta, stuck);
        if (any(back)) back = back & s.evaluate();
        if constexpr (alone)
          back = back && (norm <= allowed || norm <= s.rounding(allowed));
        else
          back = back & less_equal(norm, allowed);
        going = going & !(stuck & !back);
        if (any(back)) confirm(back, larger(norm, allowed));
      }
      if (any(good)) {
        moved = select(good, moved + S(length) * norm, moved);
        allowed = s.allowance(tolerance);
        note(after, allowed);
        const bool whole = length == 1.0;
        const Mask<S> last = whole ? good & is_last(s, norm, after, allowed) : no_lane<S>();
        Mask<S> slow = good & !last;
        if (whole) slow = slow & is_slow(norm, after);
        if (any(last)) {
          s.mark();
          if (s.extrapolates()) {
            end(last, s.finish(s.correction, last));
          } else {
            Mask<S> there = last & s.place(1.0, s.correction, last);
            if (any(there)) there = there & s.evaluate();
            const Mask<S> lost = last & !there;
            if constexpr (alone) {
              if (lost) {  // the correction is not the last, and not taken
                s.place(0.0, s.correction, lost);
                s.evaluate();
                slow = is_slow(norm, after);
              }
            } else {
              going = going & !lost;
            }
            if (any(there)) {
              s.solve(s.delta);
              norm = s.measure(s.delta);
              current = true;
              moved = select(there, moved + after, moved);
              allowed = s.allowance(tolerance);
              note(norm, allowed);
              confirm(there, allowed);
              slow = slow | (there & going & !renew & less(S(0.0), moved) & less(S(0.02) * after, norm));
            }
          }
        }
        renew = renew | slow;
        if (!current) {
          std::swap(s.delta, s.correction);
          norm = after;
        }
      }
    }
    if (!any(going)) return found;
    renew = renew & going;
    if (!any(renew)) continue;
    norm = correct(s, going & !renew);
    moved = select(renew, S(0.0), moved);
    const Mask<S> confirmed = pending & less_equal(norm, limit);
    end(confirmed, confirmed);
  }
}

// The same for systems with a method of their own (relocates): whole corrections as long as they halve |r|, with new
// factors unless they shrink fast, and that method where they do not. What it returns is confirmed likewise.
template <class System, class S = typename System::Scalar>
Mask<S> search(System& s, double tolerance, S norm, Mask<S> going, int& left, Shortfall& shortfall) {
  constexpr bool alone = Lanes<S>::value == 1;
  Mask<S> found = no_lane<S>();
  const auto note = [&](const S& error, const S& allowed) {
    if constexpr (alone) shortfall = {error, allowed};
  };
  S before(-1.0);               // the merit, where it is known
  S moved(0.0);                 // since the factors were made
  Mask<S> kept = no_lane<S>();  // where delta comes from factors of an earlier point
  int relocations = 0;
  while (true) {
    poll();
    const S allowed = s.allowance(tolerance);
    note(norm, allowed);
    going = going & is_finite(norm) & is_finite(allowed);
    const Mask<S> solved = going & !kept & less_equal(norm, allowed);
    found = found | solved;
    going = going & !solved;
    if (!any(going) || left == 0) return found;
    --left;
    s.mark();
    S after(kInfinity), limit = allowed;
    Mask<S> good = go(s, 1.0, going, after);
    if (any(good)) {
      limit = s.allowance(tolerance);
      moved += norm;
      Mask<S> last = good & less_equal(after, limit) & less_equal(after, S(0.1) * norm);
      if (any(last)) last = last & s.bounded(limit, moved);
      found = found | last;
      going = going & !last;
      if (!any(going)) return found;
      if (any(less(before, S(0.0)))) before = s.marked_merit();
      const S now = s.merit();
      good = good & going & less(now, S(0.25) * before);
      before = now;
    }
    // No better point, and the correction is about the tolerance: rounding of stiff forces. The marked one is accepted.
    const Mask<S> worse = going & !good, rounded = worse & !kept & less_equal(norm, S(5.0) * allowed);
    if (any(rounded)) {
      Mask<S> back = rounded & s.place(0.0, s.delta, rounded);
      if (any(back)) back = back & s.evaluate();
      found = found | back;
      going = going & !rounded;
      if (!any(going)) return found;
    }
    before = select(worse, S(-1.0), before);
    const Mask<S> fast = good & !is_slow(norm, after) & less(limit, after);
    if (any(fast)) {
      for (int k = 0; k < s.size(); ++k) s.delta[k] = s.correction[k];
      norm = after;
    }
    // Old factors lead nowhere: new ones at the marked point.
    Mask<S> back = worse & going & kept;
    if (any(back)) back = back & s.place(0.0, s.delta, back);
    if (any(back)) back = back & s.evaluate();
    const Mask<S> lost = worse & going & !kept;
    Mask<S> there = no_lane<S>();
    if (any(lost)) {
      // The move keeps the geometry: where that leads back to where it came from, part of the way leads on.
      const double length = relocations < 10 || relocations % 2 == 0 ? 1.0 : 0.5;
      if (++relocations > 40) return found;
      there = relocate(s, lost, length);
    }
    going = good | back | there;
    if (!any(going)) return found;
    kept = fast;
    if (!any(going & !kept)) continue;
    const S renewed = correct(s, kept);
    norm = select(kept, norm, renewed);
    moved = select(kept, moved, S(0.0));
  }
}

// Continuation, for a single state: follows the solution from short steps to the whole one, for parts of the step from
// 0, where the accelerations are those of forward dynamics, to 1, extrapolating linearly from the previous two.
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
    const bool good = iterate(s, part < 1.0 ? std::max(tolerance, 1e-5) : tolerance, norm, true, few, reached);
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

// The solution in some lanes: by Newton's method from x, where s.delta is the correction and `norm` its size, or for a
// single state by continuation. If a solution is rejected or numbers overflow, there is no correction to report.
template <class System, class S = typename System::Scalar>
Mask<S> find(System& s, double tolerance, const S& norm, const Mask<S>& lanes, int iterations, Shortfall& shortfall) {
  int left = iterations;
  if (s.relocates()) {
    Mask<S> found = search(s, tolerance, norm, lanes, left, shortfall);
    if (any(found)) found = found & s.accept();
    if constexpr (Lanes<S>::value == 1)
      if (!found && !(shortfall.error > shortfall.allowed)) shortfall = {};
    return found;
  }
  Mask<S> found = iterate(s, tolerance, norm, lanes, left, shortfall);
  if constexpr (Lanes<S>::value == 1) {
    found = (found || follow(s, tolerance, left, shortfall)) && s.accept();
    if (!found && !(shortfall.error > shortfall.allowed)) shortfall = {};
  } else if (any(found)) {
    found = found & s.accept();
  }
  return found;
}

}  // namespace torsor
