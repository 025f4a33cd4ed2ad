// Corners, flat faces and edges of a convex hull: triangles that lie in one plane are one face.
#pragma once
#include "contact/surfaces.hpp"

namespace torsor {

struct Polytope {
  struct Face {
    Point normal;
    int vertex;  // one of it
  };
  struct Edge {
    int vertex[2], face[2];
    Point along;  // of length 1
  };
  std::vector<Point> vertices;
  std::vector<Face> faces;
  std::vector<Edge> edges;
  double thickness;      // half of the least extent across a face
  Point middle, extent;  // of the box around it, along the axes

  explicit Polytope(const Triangles& triangles);
};

// The box with half sizes 1. Vertices are numbered by bits: 0, 1, 2 set on the positive side of x, y, z.
const Polytope& unit_box();

}  // namespace torsor
