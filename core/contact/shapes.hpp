// Shapes of bodies for contact, and the places where two of them touch or will. Numbers of a shape are parameters, in
// the flat array of its force, in this order:
//   half_space  normal (3, any length), offset: the points x of its body with normal.x / |normal| <= offset
//   sphere      position (3), radius
//   capsule     position (3), orientation (4, a quaternion xyzw of any length), radius, half length; along z
//   box         position, orientation, half sizes (3), radius by which its edges are rounded, within the half sizes
//   cylinder    position, orientation, radius, half length; along z
//   ellipsoid   position, orientation, semi-axes (3); along x, y, z
//   convex      position, orientation, radius by which the convex hull of its vertices is thickened
//   height_field, terrain   position, orientation
// Vertices, triangles and heights are constants (contact/surfaces.hpp).
// A pair has a fixed number of places, each of which has a gap: the points of a box, the ends of a capsule. So there is
// no place that appears or vanishes as long as its gap is negative.
#pragma once
#include <initializer_list>
#include <memory>

#include "scalar/jet.hpp"
#include "spatial/rotation.hpp"

namespace torsor {

enum class ShapeKind : int { half_space, sphere, capsule, box, cylinder, ellipsoid, convex, height_field, terrain };
inline constexpr std::initializer_list<const char*> kShapeNames = {
    "half_space", "sphere", "capsule", "box", "cylinder", "ellipsoid", "convex", "height_field", "terrain"};

// How many numbers a shape has.
constexpr int kMostNumbers = 11;
constexpr int number_count(ShapeKind kind) {
  constexpr int counts[] = {4, 4, 9, 11, 9, 10, 8, 7, 7};
  return counts[static_cast<int>(kind)];
}

struct Shape {
  ShapeKind kind;
  int offset;                                       // of its numbers
  std::shared_ptr<const struct Surface> surface{};  // of the last three kinds
};

// Where two shapes are nearest or overlap most.
template <class T>
struct Spot {
  T gap;           // negative if they overlap
  Vec3<T> normal;  // of length 1, from the second shape to the first
  Vec3<T> point;   // at which forces act on both
};

// A ball around a shape, in the frame of its body.
template <class S>
struct Ball {
  Vec3<S> centre;
  S radius;
};

}  // namespace torsor
