// Spots of pairs of shapes for Python: shape_spots and shape_spots_derivatives.
// Only tests call these.
#define TORSOR_COLD
#include "contact/spots.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "bind/bind.hpp"

namespace torsor {
namespace {

ShapeKind read_kind(const std::string& name) {
  const auto found = std::find(kShapeNames.begin(), kShapeNames.end(), name);
  if (found != kShapeNames.end()) return static_cast<ShapeKind>(found - kShapeNames.begin());
  std::string all;
  for (const char* known : kShapeNames) all += (all.empty() ? "" : ", ") + std::string(known);
  throw std::invalid_argument("kind is '" + name + "', expected one of " + all);
}

// An array of doubles or complex numbers in C order, of a number of entries.
nb::object read_array(nb::handle given, int type, npy_intp entries, const char* name) {
  nb::object array = nb::steal(PyArray_FROM_OTF(given.ptr(), type, NPY_ARRAY_IN_ARRAY));
  if (!array.is_valid()) throw nb::python_error();
  const npy_intp size = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(array.ptr()));
  if (size != entries)
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(size) + " entries, expected " +
                                std::to_string(entries));
  return array;
}
template <class S>
S* data(const nb::object& array) {
  return static_cast<S*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
}
template <class S>
nb::object new_result(std::initializer_list<npy_intp> shape) {
  const int type = std::is_same_v<S, double> ? NPY_DOUBLE : NPY_CDOUBLE;
  nb::object array = nb::steal(PyArray_SimpleNew(static_cast<int>(shape.size()), shape.begin(), type));
  if (!array.is_valid()) throw nb::python_error();
  return array;
}
template <class S>
SE3<S> read_pose(const S* T) {
  return {{{T[0], T[4], T[8]}, {T[1], T[5], T[9]}, {T[2], T[6], T[10]}}, {T[3], T[7], T[11]}};
}

struct Placement {
  std::string kind;
  nb::object numbers, pose, surface;
};

Shape shape_of(const Placement& given) {
  const ShapeKind kind = read_kind(given.kind);
  return {kind, 0, read_surface(kind, given.surface)};
}

// Numbers and poses of a pair in one type.
template <class S>
struct Pair {
  Shape a, b;
  nb::object arrays[4];
  Pair(const Placement& first, const Placement& second) : a(shape_of(first)), b(shape_of(second)) {
    const int type = std::is_same_v<S, double> ? NPY_DOUBLE : NPY_CDOUBLE;
    arrays[0] = read_array(first.numbers, type, number_count(a.kind), "numbers_a");
    arrays[1] = read_array(first.pose, type, 16, "pose_a");
    arrays[2] = read_array(second.numbers, type, number_count(b.kind), "numbers_b");
    arrays[3] = read_array(second.pose, type, 16, "pose_b");
  }
  // use(k, spot) of all places; A displaced by what `displace` makes of its pose.
  template <class T, class F, class Use>
  void evaluate(const F& displace, const Use& use) const {
    T numbers[2][kMostNumbers];
    for (int i = 0; i < number_count(a.kind); ++i) numbers[0][i] = T(data<S>(arrays[0])[i]);
    for (int i = 0; i < number_count(b.kind); ++i) numbers[1][i] = T(data<S>(arrays[2])[i]);
    const SE3<T> Xa = displace(lift<T>(read_pose(data<S>(arrays[1]))));
    const SE3<T> Xb = lift<T>(read_pose(data<S>(arrays[3])));
    torsor::spots(a, b, numbers[0], numbers[1], Xa, Xb, [](int) { return true; }, use);
  }
};

template <class S>
nb::object spots(const Placement& first, const Placement& second) {
  const Pair<S> pair(first, second);
  const int n = spot_count(pair.a, pair.b);
  nb::object gap = new_result<S>({n}), normal = new_result<S>({n, 3}), point = new_result<S>({n, 3});
  pair.template evaluate<S>([](const SE3<S>& X) { return X; },
                            [&](int k, const Spot<S>& s) {
                              data<S>(gap)[k] = s.gap;
                              write3(s.normal, data<S>(normal) + 3 * k);
                              write3(s.point, data<S>(point) + 3 * k);
                            });
  return nb::make_tuple(gap, normal, point);
}

// exp(xi) X, to first order: displaced by a twist xi at the origin of the common frame.
template <class S>
SE3<Jet<S, 6>> displaced(SE3<Jet<S, 6>> X) {
  const auto turn = [](Vec3<Jet<S, 6>>& x) {
    const S v[3] = {x.x.v, x.y.v, x.z.v};
    x.x.d[1] = v[2], x.x.d[2] = -v[1];
    x.y.d[0] = -v[2], x.y.d[2] = v[0];
    x.z.d[0] = v[1], x.z.d[1] = -v[0];
  };
  turn(X.R.x);
  turn(X.R.y);
  turn(X.R.z);
  turn(X.p);
  X.p.x.d[3] = X.p.y.d[4] = X.p.z.d[5] = S(1.0);
  return X;
}

template <class S>
nb::object spots_derivatives(const Placement& first, const Placement& second) {
  const Pair<S> pair(first, second);
  const int n = spot_count(pair.a, pair.b);
  nb::object gap = new_result<S>({n, 6}), normal = new_result<S>({n, 3, 6}), point = new_result<S>({n, 3, 6});
  pair.template evaluate<Jet<S, 6>>(displaced<S>, [&](int k, const Spot<Jet<S, 6>>& s) {
    const Jet<S, 6>* rows[2][3] = {{&s.normal.x, &s.normal.y, &s.normal.z}, {&s.point.x, &s.point.y, &s.point.z}};
    for (int j = 0; j < 6; ++j) {
      data<S>(gap)[6 * k + j] = s.gap.d[j];
      for (int i = 0; i < 3; ++i) {
        data<S>(normal)[18 * k + 6 * i + j] = rows[0][i]->d[j];
        data<S>(point)[18 * k + 6 * i + j] = rows[1][i]->d[j];
      }
    }
  });
  return nb::make_tuple(gap, normal, point);
}

bool any_complex(const Placement& first, const Placement& second) {
  for (const nb::object& given : {first.numbers, first.pose, second.numbers, second.pose})
    if (PyArray_Check(given.ptr()) && PyArray_ISCOMPLEX(reinterpret_cast<PyArrayObject*>(given.ptr()))) return true;
  return false;
}

nb::object read_rows(nb::handle given, int type, npy_intp columns, const char* name) {
  nb::object array = nb::steal(PyArray_FROM_OTF(given.ptr(), type, NPY_ARRAY_IN_ARRAY));
  if (!array.is_valid()) throw nb::python_error();
  auto* a = reinterpret_cast<PyArrayObject*>(array.ptr());
  if (PyArray_NDIM(a) != 2 || (columns > 0 && PyArray_DIM(a, 1) != columns) || PyArray_SIZE(a) == 0)
    throw std::invalid_argument(std::string(name) + " must have two dimensions" +
                                (columns > 0 ? ", and " + std::to_string(columns) + " columns" : ""));
  return array;
}
npy_intp rows(const nb::object& array) { return PyArray_DIM(reinterpret_cast<PyArrayObject*>(array.ptr()), 0); }
npy_intp columns(const nb::object& array) { return PyArray_DIM(reinterpret_cast<PyArrayObject*>(array.ptr()), 1); }

}  // namespace

std::shared_ptr<const Surface> read_surface(ShapeKind kind, nb::handle given) {
  if (kind < ShapeKind::convex) return nullptr;
  nb::tuple x = nb::cast<nb::tuple>(given);
  auto out = std::make_shared<Surface>();
  if (kind == ShapeKind::height_field) {
    const nb::object heights = read_rows(x[0], NPY_DOUBLE, 0, "heights");
    const nb::object size = read_array(x[1], NPY_DOUBLE, 2, "size");
    const double* z = data<double>(heights);
    const int n = static_cast<int>(rows(heights)), m = static_cast<int>(columns(heights));
    if (n < 2 || m < 2) throw std::invalid_argument("heights must have at least two rows and columns");
    out->heights = std::make_shared<Heights>(std::vector<double>(z, z + n * m), n, m, data<double>(size)[0],
                                             data<double>(size)[1]);
    return out;
  }
  const nb::object vertices = read_rows(x[0], NPY_DOUBLE, 3, "vertices");
  const nb::object faces = read_rows(x[1], NPY_INT64, 3, "faces");
  const npy_intp n = rows(vertices);
  if (kind == ShapeKind::convex && n > kMostVertices)
    throw std::invalid_argument("a convex shape has " + std::to_string(n) + " vertices, at most " +
                                std::to_string(kMostVertices) + " expected");
  std::vector<Point> points;
  for (npy_intp i = 0; i < n; ++i) points.push_back(read3(data<double>(vertices) + 3 * i));
  std::vector<std::array<int, 3>> triangles;
  for (npy_intp i = 0; i < rows(faces); ++i) {
    const int64_t* v = data<int64_t>(faces) + 3 * i;
    if (*std::min_element(v, v + 3) < 0 || *std::max_element(v, v + 3) >= n)
      throw std::invalid_argument("faces have indices of vertices that do not exist");
    triangles.push_back({static_cast<int>(v[0]), static_cast<int>(v[1]), static_cast<int>(v[2])});
  }
  out->triangles = std::make_shared<Triangles>(std::move(points), std::move(triangles));
  if (kind == ShapeKind::convex) out->polytope = std::make_shared<Polytope>(*out->triangles);
  return out;
}

void bind_shapes(nb::module_& module) {
  const auto pair = [](auto&& use) {
    return [use](const std::string& kind_a, nb::object numbers_a, nb::object pose_a, const std::string& kind_b,
                 nb::object numbers_b, nb::object pose_b, nb::object surface_a, nb::object surface_b) {
      return use(Placement{kind_a, numbers_a, pose_a, surface_a}, Placement{kind_b, numbers_b, pose_b, surface_b});
    };
  };
  const auto values = [](const Placement& a, const Placement& b) {
    return any_complex(a, b) ? spots<Complex>(a, b) : spots<double>(a, b);
  };
  const auto derivatives = [](const Placement& a, const Placement& b) {
    return any_complex(a, b) ? spots_derivatives<Complex>(a, b) : spots_derivatives<double>(a, b);
  };
  using namespace nb::literals;
  module.def("shape_spots", pair(values), "kind_a"_a, "numbers_a"_a, "pose_a"_a, "kind_b"_a, "numbers_b"_a, "pose_b"_a,
             "surface_a"_a = nb::none(), "surface_b"_a = nb::none());
  module.def("shape_spots_derivatives", pair(derivatives), "kind_a"_a, "numbers_a"_a, "pose_a"_a, "kind_b"_a,
             "numbers_b"_a, "pose_b"_a, "surface_a"_a = nb::none(), "surface_b"_a = nb::none());
}

}  // namespace torsor
