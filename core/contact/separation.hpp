// The direction along which two convex cores are furthest apart, or, where they overlap, overlap least. A search on
// doubles, state by state; what it finds are the parts of both cores that are nearest there, of which gap and direction
// follow in any scalar (contact/convex_spots.hpp).
#pragma once
#include "contact/polytope.hpp"
#include "contact/shapes.hpp"

namespace torsor {

// The part of a core that is furthest along u, in its own frame. For directions near u its support function is
//   h(u) = u.(vertex + sign * size) + |round * size * u|      (* number by number)
// as long as u stays normal to an edge, or the normal of a face.
struct Part {
  enum Kind : int { point, edge, face } kind = point;
  Point vertex{0.0, 0.0, 0.0}, sign{0.0, 0.0, 0.0}, round{0.0, 0.0, 0.0};
  Point along{0.0, 0.0, 1.0};  // of an edge; the normal of a face
};

// A core in some frame.
struct Convex {
  ShapeKind kind;  // box, cylinder, ellipsoid, convex; capsule: a segment
  Point size;
  const Polytope* hull;  // of a box or a hull
  Mat3<double> R;
  Point p;

  Point vertex(int k) const;             // in its own frame, of a box or a hull
  Point furthest(const Point& u) const;  // in its own frame
  Point at(const Point& x) const { return mul_add(R, x, p); }
  double least_size() const;
};

struct Separation {
  Point normal;  // from the second to the first
  double gap;
  Part a, b;
  Point at_a, at_b;  // nearest points, in the frames of the cores; for parts that are flat on each other
};

Separation separation(const Convex& a, const Convex& b);

}  // namespace torsor
