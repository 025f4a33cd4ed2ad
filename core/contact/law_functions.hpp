// The scalar functions that laws of contact, of joint limits and of dry friction are made of. All are C^1 (an onset of
// 0 excepted, which has a kink at touching), for any scalar, lane by lane, and NaN remains NaN.
#pragma once
#include "scalar/pack.hpp"

namespace torsor {

// How a contact becomes stiff with the depth x: p = 0 (x <= 0), x^2 / (2 e) (x < e), x - e/2, with the onset e >= 0.
template <class S>
struct Onset {
  S p;
  S dp;        // by x
  S by_onset;  // dp/de
  S P;         // the integral of p: energy
  Onset(const S& x, const S& e) {
    const S none(0.0), half(0.5);
    const Mask<S> apart = less(x, none), early = less(x, e);
    const S ratio = x / select(early & !apart, e, S(1.0));
    p = select(apart, none, select(early, half * x * ratio, x - half * e));
    dp = select(apart, none, select(early, ratio, S(1.0)));
    by_onset = select(apart, none, select(early, -half * ratio * ratio, -half));
    P = select(apart, none, select(early, (1.0 / 6.0) * x * x * ratio, half * x * (x - e) + (1.0 / 6.0) * e * e));
  }
};

// How the force of a contact falls with s, the velocity of separation times the dissipation (Hunt and Crossley,
// rounded so that it never pulls): D = 1 - s (s <= 1/2), (3/2 - s)^2 / 2 (s < 3/2), 0.
template <class S>
struct Dissipation {
  S D;
  S dD;  // by s
  explicit Dissipation(const S& s) {
    const S none(0.0), rest = S(1.5) - s;
    const Mask<S> linear = less(s, S(0.5)), gone = less(rest, none);
    D = select(linear, S(1.0) - s, select(gone, none, S(0.5) * rest * rest));
    dD = select(linear, S(-1.0), select(gone, none, -rest));
  }
};

// How much of dry friction acts at s >= 0, the speed over the slip velocity: F = s (2 - s) (s < 1), 1.
template <class S>
struct SlipRatio {
  S F;
  S dF;        // by s
  S F_over_s;  // 2 at rest
  explicit SlipRatio(const S& s) {
    const S one(1.0), rest = S(2.0) - s;
    const Mask<S> slips = less(one, s);
    F = select(slips, one, s * rest);
    dF = select(slips, S(0.0), S(2.0) - S(2.0) * s);
    F_over_s = select(slips, one / select(slips, s, one), rest);
  }
};

// Dry friction along one velocity v, as a share of its limit: F(|v| / slip) v / |v|.
template <class S>
struct DryFriction {
  S ratio, by_v, by_slip;
  DryFriction(const S& v, const S& slip) {
    const S s = v / slip;
    const SlipRatio<S> slips(select(less(s, S(0.0)), -s, s));
    ratio = slips.F_over_s * s;
    by_v = slips.dF / slip;
    by_slip = -by_v * s;
  }
};

// The square root, 0 with derivative 0 at 0: the speed |u| from u.u in laws that are smooth at rest.
template <class S>
S speed_of(const S& square) {
  const Mask<S> moves = less(S(0.0), square);
  return select(moves, square_root(select(moves, square, S(1.0))), square);
}

}  // namespace torsor
