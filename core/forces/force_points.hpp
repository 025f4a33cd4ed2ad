// Points of bodies at which forces act, in the world's axes: where they are and how they move.
#pragma once
#include "forces/law.hpp"

namespace torsor {

// A point of a user's body; its coordinates are three parameters.
struct Attachment {
  int body;  // that carries it, or -1
  int offset;
  int frame;  // the user's body, or -1
};
template <class S>
struct ForcePoint {
  int body;
  Vec3<S> origin;  // the reference point of its tree
  Vec3<S> x;       // relative to origin
  Vec3<S> xdot;
};
template <class S>
ForcePoint<S> force_point(const Attachment& at, const Motions<S>& all, const S* p) {
  const auto pose = all.pose(at.frame);
  const Vec3<S> local = mul_add(pose.R, read3(p + at.offset), lift<S>(pose.p));
  if (at.body < 0) return {-1, zero3<S>(), local, zero3<S>()};
  const auto& b = all.bodies[at.body];
  const Vec3<S> x = mul_add(b.R, local, b.p);
  return {at.body, b.origin, x, cross_add(b.v.w, x, b.v.v)};
}
// From a to b.
template <class S>
Vec3<S> distance(const ForcePoint<S>& a, const ForcePoint<S>& b) {
  return (b.x - a.x) + (b.origin - a.origin);
}

// A law between points at a state: its n points, the forces F_i on them and, unless Fx is null, their derivatives
// Fx[n i + j] = dF_i/dx_j, Fv[n i + j] = dF_i/dxdot_j.
template <class S>
struct PointForces {
  int n;
  const ForcePoint<S>* points;
  Vec3<S>* F;
  Mat3<S>*Fx = nullptr, *Fv = nullptr;
};

template <class S>
Mat3<S> outer(const Vec3<S>& a, const Vec3<S>& b) {
  return {b.x * a, b.y * a, b.z * a};
}
template <class S>
void add(Mat3<S>& to, const S& s, const Mat3<S>& m) {
  to.x = mul_add(s, m.x, to.x);
  to.y = mul_add(s, m.y, to.y);
  to.z = mul_add(s, m.z, to.z);
}

}  // namespace torsor
