// Spots of pairs of shapes for Python: shape_spots and shape_spots_derivatives.
#include "contact/spots.hpp"

#include <nanobind/stl/string.h>

#include "bind/bind.hpp"

namespace torsor {
namespace {

ShapeKind read_kind(const std::string& name) {
  const char* names[] = {"half_space", "sphere", "capsule", "box", "cylinder", "ellipsoid"};
  for (int k = 0; k < 6; ++k)
    if (name == names[k]) return static_cast<ShapeKind>(k);
  throw std::invalid_argument("kind is '" + name +
                              "', expected half_space, sphere, capsule, box, cylinder or ellipsoid");
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
  nb::object numbers, pose;
};

// Numbers and poses of a pair in one type.
template <class S>
struct Pair {
  Shape a, b;
  nb::object arrays[4];
  Pair(const Placement& first, const Placement& second) : a{read_kind(first.kind), 0}, b{read_kind(second.kind), 0} {
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

}  // namespace

// Batches of lanes are tested by the forces that use them.
void bind_shapes(nb::module_& module) {
  module.def("shape_spots", [](const std::string& kind_a, nb::object numbers_a, nb::object pose_a,
                               const std::string& kind_b, nb::object numbers_b, nb::object pose_b) {
    const Placement a{kind_a, numbers_a, pose_a}, b{kind_b, numbers_b, pose_b};
    return any_complex(a, b) ? spots<Complex>(a, b) : spots<double>(a, b);
  });
  module.def("shape_spots_derivatives", [](const std::string& kind_a, nb::object numbers_a, nb::object pose_a,
                                           const std::string& kind_b, nb::object numbers_b, nb::object pose_b) {
    const Placement a{kind_a, numbers_a, pose_a}, b{kind_b, numbers_b, pose_b};
    return any_complex(a, b) ? spots_derivatives<Complex>(a, b) : spots_derivatives<double>(a, b);
  });
}

}  // namespace torsor
