// Dry friction in the bearing of a joint. Its limit follows from the wrench W = (n, f) that the joint transmits, in the
// body's frame: -friction R(W) F(|v| / slip) v / |v|, docs/derivations/joint_friction.md. W depends on accelerations,
// so that this is no law of forces/law.hpp; forces/joint_loads.hpp has its derivatives.
#pragma once
#include "contact/law_functions.hpp"
#include "forces/law.hpp"
#include "scalar/jet.hpp"

namespace torsor {

struct BearingLaw {
  // Of one joint of the recursions: about z (a pin in a sleeve), along z (a slider in a guide), or about a centre.
  enum Kind { journal, slider, ball };
  int force;
  Kind kind;
  int body;
  int offset;  // of its parameters: friction, radius, length, slip, smoothing
};

// R, the sum of the loads on the surfaces of the bearing, times the radius where these turn. The ends of a pin or a
// slider of length l take half of the force across it each, plus and minus a couple against tilting. The pin's faces
// take the force along it and the rest of the tilting moment, the slider's sides what turns it about its axis.
template <class T>
T bearing_load(BearingLaw::Kind kind, const T* W, const T& radius, const T& length, const T& smoothing) {
  // The length of a vector, smooth at 0.
  const auto size = [&](const T& square) { return square / (square_root(square + smoothing * smoothing) + smoothing); };
  const T &nx = W[0], &ny = W[1], &nz = W[2], &fx = W[3], &fy = W[4], &fz = W[5];
  if (kind == BearingLaw::ball) return radius * size(fx * fx + fy * fy + fz * fz);
  const T half = 0.5 * length;
  const T square = kind == BearingLaw::slider ? half * half : half * half + radius * radius;
  const T couple = half / (2.0 * square);
  const auto end = [&](const T& lever) {
    const T x = 0.5 * fx + lever * ny, y = 0.5 * fy - lever * nx;
    return size(x * x + y * y);
  };
  const T ends = end(couple) + end(-couple);
  if (kind == BearingLaw::slider) return ends + size(nz * nz / (radius * radius));
  const T tilt = radius / square;
  return radius * (ends + size(fz * fz + tilt * tilt * (nx * nx + ny * ny)));
}

// The same, and its derivatives by W and by radius, length and smoothing.
template <class S>
S bearing_load(BearingLaw::Kind kind, const S* W, const S& radius, const S& length, const S& smoothing, S* by_W,
               S* by_shape) {
  using T = Jet<S, 9>;
  const S shape[3] = {radius, length, smoothing};
  T x[9];
  for (int k = 0; k < 9; ++k) {
    x[k] = T(k < 6 ? W[k] : shape[k - 6]);
    x[k].d[k] = S(1.0);
  }
  const T R = bearing_load(kind, x, x[6], x[7], x[8]);
  for (int k = 0; k < 6; ++k) by_W[k] = R.d[k];
  for (int k = 0; k < 3; ++k) by_shape[k] = R.d[6 + k];
  return R.v;
}

// The torques friction load share (nv of the joint), load = R(W), and their derivatives.
template <class S>
struct BearingTorque {
  int nv;
  S friction, load, by_wrench[6], by_shape[3];  // of the load: by_shape by radius, length and smoothing
  S share[3], by_v[9], by_slip[3];
  BearingTorque(const BearingLaw& law, const Force<S>& W, const S* v, const S* p) {
    p += law.offset;
    S wrench[6];
    write(W, wrench);
    friction = p[0];
    load = bearing_load(law.kind, wrench, p[1], p[2], p[4], by_wrench, by_shape);
    const S& slip = p[3];
    if (law.kind != BearingLaw::ball) {
      const DryFriction<S> dry(v[0], slip);
      nv = 1;
      share[0] = dry.ratio;
      by_v[0] = dry.by_v;
      by_slip[0] = dry.by_slip;
      return;
    }
    nv = 3;
    const S speed = speed_of(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    const SlipRatio<S> slips(speed / slip);
    const S along = (slips.dF - slips.F_over_s) / slip, moving = select(less(S(0.0), speed), speed, S(1.0));
    for (int j = 0; j < 3; ++j) {
      share[j] = slips.F_over_s * (v[j] / slip);
      by_slip[j] = -slips.dF / slip * (v[j] / slip);
      for (int k = 0; k < 3; ++k)
        by_v[3 * j + k] = along * (v[j] / moving) * (v[k] / moving) + (j == k ? slips.F_over_s / slip : S(0.0));
    }
  }
};

// The speed over the slip velocity; v: of the joint.
template <class S>
S slip_ratio(const BearingLaw& law, const S* v, const S* p) {
  S square = v[0] * v[0];
  if (law.kind == BearingLaw::ball) square += v[1] * v[1] + v[2] * v[2];
  return square_root(square) / p[law.offset + 3];
}

}  // namespace torsor
