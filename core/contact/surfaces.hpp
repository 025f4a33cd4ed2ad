// Constant data of shapes that are not given by a few numbers: heights over a grid, triangles. Searches run on doubles,
// state by state; what they find is a feature (a face, an edge, a vertex), of which distances follow in any scalar.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "spatial/vector.hpp"

namespace torsor {

using Point = Vec3<double>;

// Where a surface is nearest: the plane of a face, the line of an edge, or a vertex.
struct Feature {
  enum Kind : int { face, edge, vertex } kind = face;
  Point at{0.0, 0.0, 0.0};     // on it
  Point along{0.0, 0.0, 1.0};  // the normal of a face, the direction of an edge, of length 1
  double side = 1.0;           // -1 where the point is within
  double distance = 1e300;     // signed
  // The nearest concave edge of a face: a point of it, and the direction away from it, within the face. 0: none.
  Point border{0.0, 0.0, 0.0}, from_border{0.0, 0.0, 0.0};
};

// Triangles, counter-clockwise seen from outside, with what is known of their edges and a tree of boxes around them.
class Triangles {
 public:
  Triangles(std::vector<Point> vertices, std::vector<std::array<int, 3>> faces);
  const std::vector<Point>& vertices() const { return vertices_; }
  const std::vector<std::array<int, 3>>& faces() const { return faces_; }
  const Point& normal(int face) const { return normals_[face]; }
  const Point& centre() const { return centre_; }
  double radius() const { return radius_; }  // of a ball around the centre that contains all

  // The nearest feature of a convex hull; within it, the nearest face.
  Feature nearest_of_hull(const Point& x) const;
  // The features of a terrain within `reach` that are nearest among their neighbours, the nearest first; the first is
  // the nearest of all, at any distance. Returns how many.
  int nearest(const Point& x, double reach, Feature* out, int most) const;
  // Vertices and edges between the ends of the segment c + s e, |s| < 1, within `reach` of it. Likewise.
  int nearest_to_segment(const Point& c, const Point& e, double reach, Feature* out, int most) const;

 private:
  struct Node {
    Point low, high;
    int left, right;   // nodes, or
    int first, count;  // the faces of a leaf, in order_
  };
  // Of one triangle: the feature that is nearest to x, where, and which edge (k to k + 1) or vertex k it is.
  struct Foot {
    Feature::Kind kind;
    int k;
    Point at;
    double square;
  };
  Foot foot_on(int face, const Point& x) const;
  int build(int first, int count);
  double square_from(const Node& node, const Point& x) const;
  template <class F>
  void for_each_near(const Point& low, const Point& high, F&& f) const;
  template <class F>
  void for_each_within(const Point& x, double reach, F&& f) const;
  const Point& vertex(int face, int k) const { return vertices_[faces_[face][k % 3]]; }
  Point inward(int face, int k) const;  // across edge k, within the face
  bool is_local(int face, const Foot& foot, const Point& x) const;
  Feature feature_at(int face, const Foot& foot, const Point& x) const;

  std::vector<Point> vertices_, normals_, vertex_normals_;
  std::vector<std::array<int, 3>> faces_, across_;  // the face across each edge, or -1
  std::vector<std::array<bool, 3>> concave_;        // of each edge
  std::vector<std::vector<int>> neighbours_;        // vertices that share an edge with a vertex
  std::vector<int> order_;
  std::vector<Node> nodes_;
  Point centre_{0.0, 0.0, 0.0};
  double radius_ = 0.0;
};

// Heights over a grid, as a surface of quadratic B-splines: smooth, with continuous normals, within the range of the
// heights around. It goes on beyond the grid, level across its border.
class Heights {
 public:
  Heights(std::vector<double> heights, int rows, int columns, double size_x, double size_y);
  // The nine heights that act at (x, y), row by row, and where the middle one is.
  struct Patch {
    double c[9], x, y;
  };
  Patch patch(double x, double y) const;
  double spacing_x() const { return dx_; }
  double spacing_y() const { return dy_; }

 private:
  std::vector<double> heights_;
  int rows_, columns_;
  double x0_, y0_, dx_, dy_;
};

struct Surface {
  std::shared_ptr<const Triangles> triangles;
  std::shared_ptr<const struct Polytope> polytope;  // of a convex hull
  std::shared_ptr<const Heights> heights;
};

}  // namespace torsor
