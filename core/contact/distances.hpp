// Signed distances of a point from shapes at the origin, negative inside, and their gradients, the normals. Inside,
// they are distances from the nearest point of the surface too, so that what is deep is pushed out by the shortest way.
#pragma once
#include "contact/shapes.hpp"
#include "contact/value.hpp"

namespace torsor {

template <class T>
struct Distance {
  T value;
  Vec3<T> normal;
};

template <class T>
TORSOR_INLINE T sign_of(const T& x) {
  return select(less(x, T(0.0)), T(-1.0), T(1.0));
}
template <class T>
TORSOR_INLINE T magnitude(const T& x) {
  return select(less(x, T(0.0)), -x, x);
}
template <class T>
TORSOR_INLINE T positive_part(const T& x) {
  return larger(x, T(0.0));
}
// x within -limit and limit.
template <class T>
TORSOR_INLINE T clamped(const T& x, const T& limit) {
  return smaller(larger(x, -limit), limit);
}
template <class Mask, class T>
TORSOR_INLINE Vec3<T> select(const Mask& mask, const Vec3<T>& a, const Vec3<T>& b) {
  return {select(mask, a.x, b.x), select(mask, a.y, b.y), select(mask, a.z, b.z)};
}

// Below this a square is taken for that of 0, whose root has no derivative.
constexpr double kNoSquare = 1e-300;

// From the origin; along the given unit vector where the point is the origin.
template <class T>
inline Distance<T> distance_from_point(const Vec3<T>& x, const Vec3<T>& otherwise) {
  const T square = dot(x, x);
  const auto none = less(square, T(kNoSquare));
  const T distance = square_root(select(none, T(1.0), square));
  const Vec3<T> normal = select(none, otherwise, (T(1.0) / distance) * x);
  return {select(none, dot(otherwise, x), distance), normal};
}
template <class T>
inline Distance<T> distance_from_point(const Vec3<T>& x) {
  return distance_from_point(x, Vec3<T>{T(1.0), T(0.0), T(0.0)});
}

// From a segment along z.
template <class T>
inline Distance<T> distance_from_segment(const Vec3<T>& x, const T& half_length) {
  return distance_from_point(Vec3<T>{x.x, x.y, x.z - clamped(x.z, half_length)});
}

// From a box. Inside, from the nearest face.
template <class T>
inline Distance<T> distance_from_box(const Vec3<T>& x, const Vec3<T>& half) {
  const Vec3<T> side{sign_of(x.x), sign_of(x.y), sign_of(x.z)};
  const Vec3<T> q{mul_add(side.x, x.x, -half.x), mul_add(side.y, x.y, -half.y), mul_add(side.z, x.z, -half.z)};
  const T one(1.0), zero(0.0);
  const Mask<T> along_y = less(larger(q.x, q.z), q.y), along_z = less(larger(q.x, q.y), q.z);
  const Mask<T> beside_x = along_y | along_z;
  const T nearest = select(along_y, q.y, select(along_z, q.z, q.x));
  const Vec3<T> out{positive_part(q.x), positive_part(q.y), positive_part(q.z)};
  const T square = dot(out, out);
  const auto inside = !less(T(kNoSquare), square);
  const T distance = square_root(select(inside, one, square)), scale = one / distance;
  const Vec3<T> face{select(beside_x, zero, one), select(along_y, one, zero), select(along_z, one, zero)};
  const Vec3<T> n = select(inside, face, scale * out);
  return {select(inside, nearest, distance), {side.x * n.x, side.y * n.y, side.z * n.z}};
}

// From a cylinder along z.
template <class T>
inline Distance<T> distance_from_cylinder(const Vec3<T>& x, const T& radius, const T& half_length) {
  const Distance<T> radial = distance_from_point(Vec3<T>{x.x, x.y, T(0.0)});
  const T side = sign_of(x.z), q = radial.value - radius, h = mul_add(side, x.z, -half_length);
  const T one(1.0), zero(0.0), out_q = positive_part(q), out_h = positive_part(h);
  const T square = mul_add(out_q, out_q, out_h * out_h);
  const auto inside = !less(T(kNoSquare), square), by_end = less(q, h);
  const T distance = square_root(select(inside, one, square)), scale = one / distance;
  const T a = select(inside, select(by_end, zero, one), scale * out_q);
  const T b = select(inside, select(by_end, one, zero), scale * out_h);
  return {select(inside, larger(q, h), distance), mul_add(a, radial.normal, Vec3<T>{zero, zero, b * side})};
}

// The point of an ellipsoid with semi-axes a_i that is nearest to y is x_i = a_i^2 y_i / (a_i^2 + t). With m the least
// a_i^2 and t = u - m, u is the root of |p(u)| = 1, p_i = a_i y_i / (a_i^2 - m + u), right of all poles. 1/|p| is
// concave and rises: Newton's method for 1/|p| = 1 stays on the left of the root from where one p_i is 1.
namespace detail {

// |p(u)|, and the factor of |p| - 1 in the next step.
template <class T>
struct EllipsoidStep {
  T length, factor;
};
template <class T>
TORSOR_INLINE EllipsoidStep<T> ellipsoid_step(const Vec3<T>& y, const Vec3<T>& a, const Vec3<T>& more, const T& u) {
  const Vec3<T> w{T(1.0) / (more.x + u), T(1.0) / (more.y + u), T(1.0) / (more.z + u)};
  const Vec3<T> p{a.x * y.x * w.x, a.y * y.y * w.y, a.z * y.z * w.z};
  const Vec3<T> squares{p.x * p.x, p.y * p.y, p.z * p.z};
  const T square = squares.x + squares.y + squares.z;
  return {square_root(square), square / dot(squares, w)};
}
template <class T>
inline T ellipsoid_root(const Vec3<T>& y, const Vec3<T>& a, const Vec3<T>& more) {
  if constexpr (is_plain<T>) {
    const Vec3<T> first{mul_add(a.x, magnitude(y.x), -more.x), mul_add(a.y, magnitude(y.y), -more.y),
                        mul_add(a.z, magnitude(y.z), -more.z)};
    T u = larger(first.x, larger(first.y, first.z));
    Mask<T> open = every_lane<T>();
    for (int iteration = 0; iteration < 50 && any(open); ++iteration) {
      const EllipsoidStep<T> next = ellipsoid_step(y, a, more, u);
      const T step = (next.length - T(1.0)) * next.factor;
      u += select(open, positive_part(step), T(0.0));
      open = open & less(T(4e-16) * u, step);
    }
    return u;
  } else {
    const T u = raised<T>(ellipsoid_root(value(y), value(a), value(more)));
    const EllipsoidStep<T> next = ellipsoid_step(y, a, more, u);
    return mul_add(derivatives_of(next.length), raised<T>(value(next.factor)), u);
  }
}

}  // namespace detail

// From an ellipsoid.
template <class T>
inline Distance<T> distance_from_ellipsoid(const Vec3<T>& x, const Vec3<T>& a) {
  // Off the planes of symmetry, where the nearest point of what is inside is not unique, by less than rounding.
  const auto apart = [](const T& c, const T& axis) {
    const T least = T(1e-15) * axis;
    return c + select(less(magnitude(c), least), sign_of(c) * least, T(0.0));
  };
  const Vec3<T> y{apart(x.x, a.x), apart(x.y, a.y), apart(x.z, a.z)};
  const Vec3<T> squares{a.x * a.x, a.y * a.y, a.z * a.z};
  const T least = smaller(squares.x, smaller(squares.y, squares.z));
  const Vec3<T> more{squares.x - least, squares.y - least, squares.z - least};
  const T u = detail::ellipsoid_root(y, a, more);
  const Vec3<T> n{y.x / (more.x + u), y.y / (more.y + u), y.z / (more.z + u)};
  // n.y less the support of the ellipsoid along n is stationary in n, so that rounding of n does not count.
  const Vec3<T> normal = (T(1.0) / square_root(dot(n, n))) * n;
  const Vec3<T> extent{a.x * normal.x, a.y * normal.y, a.z * normal.z};
  return {dot(normal, y) - square_root(dot(extent, extent)), normal};
}

}  // namespace torsor
