// The contact of two shapes: the sum of the forces at all places where they touch, as one wrench W on the first body,
// with its derivatives. Compiled once for all (contact/touching.cpp), because the formulas of all pairs of shapes are
// long.
#pragma once
#include "contact/contact_law.hpp"
#include "contact/shapes.hpp"
#include "spatial/motion.hpp"

namespace torsor {

// Two shapes with their numbers, and the bodies that carry them, seen from a common point in the world's axes.
template <class S>
struct Touching {
  const Shape &a, &b;
  const S *p_a, *p_b;  // numbers of the shapes
  SE3<S> A, B;         // poses of the bodies
  Motion<S> V;         // velocity of the first, relative to the second
};

// W about the common point and, displaced by eta relative to the second body and with a change nu of V, its change
// Wq eta + Wv nu.
template <class S>
struct ContactWrench {
  Force<S> W;
  Force<S> Wq[6], Wv[6];  // columns
  Mask<S> touches;
};

// One place, with the velocity u of the first body relative to the second.
template <class S>
struct Place : Spot<S> {
  Vec3<S> u;
};

template <class S>
Force<S> contact_wrench(const Touching<S>& x, const ContactNumbers<S>& law);
template <class S>
ContactWrench<S> contact_wrench_changes(const Touching<S>& x, const ContactNumbers<S>& law);
template <class S>
S contact_energy(const Touching<S>& x, const ContactNumbers<S>& law);
// Adds the gradient of the power U.W by the numbers of the law (5) and of both shapes.
template <class S>
void add_power_gradient(const Touching<S>& x, const ContactNumbers<S>& law, const Motion<S>& U, S* by_law, S* by_a,
                        S* by_b);
// All places of the pair; returns how many. Places far apart may have any gap above `margin`.
template <class S>
int contact_places(const Touching<S>& x, const S& margin, Place<S>* out);
// The tangents of a normal: the first is normal to a coordinate axis, too.
template <class T>
void put_axes(const Vec3<T>& n, int axis, Vec3<T>* axes) {
  const T none(0.0), one(1.0);
  const Vec3<T> e{axis == 0 ? one : none, axis == 1 ? one : none, axis == 2 ? one : none}, t = cross(e, n);
  axes[0] = n;
  axes[1] = (one / square_root(dot(t, t))) * t;
  axes[2] = cross(n, axes[1]);
}
// A sum of the gap and of the velocities along these axes, weighted, at one place.
struct PlaceWeights {
  int axis;
  double gap, along[3];
};
// W of its velocities, W.V, and the change of the sum with a displacement of the first body relative to the second.
struct PlaceSum {
  Force<double> W, by_pose;
};
PlaceSum weigh_place(const Touching<double>& x, int k, const PlaceWeights& weights);
// Adds the gradient of the sum by the numbers of the shapes.
void add_place_gradient(const Touching<double>& x, int k, const PlaceWeights& weights, double* by_a, double* by_b);
// Whether forces are minus the gradient of the energy at rest, exactly: whether the gap of each place changes with the
// relative velocity of the bodies there, along the normal. Gaps that pass from one feature of a shape to another change
// in other directions too, in a region as wide as they are deep.
bool has_potential(ShapeKind a, ShapeKind b);
// How many places a pair has.
int place_count(const Shape& a, const Shape& b);

}  // namespace torsor
