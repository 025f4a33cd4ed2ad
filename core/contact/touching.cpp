#include "contact/touching.hpp"

#include <algorithm>

#include "contact/spots.hpp"

namespace torsor {
namespace {

template <class S>
Force<S> wrench_of(const Vec3<S>& f, const Vec3<S>& x) {
  return {cross(x, f), f};
}
// e_k x r
template <class S>
Vec3<S> turned(int k, const Vec3<S>& r) {
  const S o(0.0);
  return k == 0 ? Vec3<S>{o, -r.z, r.y} : k == 1 ? Vec3<S>{r.z, o, -r.x} : Vec3<S>{-r.y, r.x, o};
}
// A pose with derivatives along displacements: rotations about the common point, then translations.
template <class T, class S>
SE3<T> displaced(const SE3<S>& X) {
  SE3<T> out = lift<T>(X);
  const auto turn = [](Vec3<T>& to, const Vec3<S>& r) {
    for (int k = 0; k < 3; ++k) {
      const Vec3<S> d = turned(k, r);
      to.x.d[k] = d.x;
      to.y.d[k] = d.y;
      to.z.d[k] = d.z;
    }
  };
  turn(out.R.x, X.R.x);
  turn(out.R.y, X.R.y);
  turn(out.R.z, X.R.z);
  turn(out.p, X.p);
  out.p.x.d[3] = out.p.y.d[4] = out.p.z.d[5] = S(1.0);
  return out;
}
template <class T, class S>
Vec3<T> velocity_at(const Motion<S>& V, const Vec3<T>& x) {
  return cross_add(lift<T>(V.w), x, lift<T>(V.v));
}
// to += x in some lanes; the others stay as they are, to the last bit.
template <class S>
void add_where(const Mask<S>& lanes, const Force<S>& x, Force<S>& to) {
  const auto part = [&](const S& y) { return select(lanes, -y, S(0.0)); };
  to.n -= Vec3<S>{part(x.n.x), part(x.n.y), part(x.n.z)};
  to.f -= Vec3<S>{part(x.f.x), part(x.f.y), part(x.f.z)};
}

// Whether shapes may be closer than `margin`, by balls around them.
template <class S>
Mask<S> are_near(const Touching<S>& x, const S& margin) {
  const bool first = x.a.kind == ShapeKind::half_space;
  if (first || x.b.kind == ShapeKind::half_space) {
    if (x.a.kind == x.b.kind) return no_lane<S>();
    const Ball<S> ball = first ? bounds(x.b, x.p_b) : bounds(x.a, x.p_a);
    const SE3<S>&X = first ? x.B : x.A, &plane = first ? x.A : x.B;
    const S* p = first ? x.p_a : x.p_b;
    const Vec3<S> n = read3(p), c = transposed(plane.R, mul_add(X.R, ball.centre, X.p) - plane.p);
    const S height = dot(n, c), length = square_root(dot(n, n));
    return !less((p[3] + ball.radius + margin) * length, height);
  }
  const Ball<S> a = bounds(x.a, x.p_a), b = bounds(x.b, x.p_b);
  const Vec3<S> apart = mul_add(x.A.R, a.centre, x.A.p) - mul_add(x.B.R, b.centre, x.B.p);
  const S reach = a.radius + b.radius + margin;
  return !less(reach * reach, dot(apart, apart));
}

// f(k, spot, lanes) for each place that touches in some lane.
template <class S, class F>
void for_each_touching(const Touching<S>& x, F&& f) {
  if (!any(are_near(x, S(0.0)))) return;
  const auto use = [&](int k, const Spot<S>& at) {
    const Mask<S> touches = less(at.gap, S(0.0)) | is_nan(at.gap);
    if (any(touches)) f(k, at, touches);
  };
  spots(x.a, x.b, x.p_a, x.p_b, x.A, x.B, [](int) { return true; }, use);
}

// Which places touch, in which lanes.
template <class S>
struct TouchingPlaces {
  Mask<S> lanes[kMostSpots];
  bool in_any[kMostSpots];
  bool none = true;
  explicit TouchingPlaces(const Touching<S>& x) {
    std::fill_n(in_any, kMostSpots, false);
    for_each_touching(x, [&](int k, const Spot<S>&, const Mask<S>& touches) {
      lanes[k] = touches;
      in_any[k] = true;
      none = false;
    });
  }
};

// A weighted sum, with derivatives: its force and the point of that, and its part due to the gap.
template <class T>
struct WeighedPlace {
  Vec3<T> force, point;
  T gap;
};
template <class T>
WeighedPlace<T> weighed_place(const Touching<double>& x, int k, const PlaceWeights& weights, const T* p_a, const T* p_b,
                              const SE3<T>& A, const SE3<T>& B) {
  const Spot<T> at = spot<T>(x.a, x.b, k, p_a, p_b, A, B);
  Vec3<T> axes[3];
  put_axes(at.normal, weights.axis, axes);
  Vec3<T> force = T(weights.along[0]) * axes[0];
  for (int j = 1; j < 3; ++j) force = mul_add(T(weights.along[j]), axes[j], force);
  return {force, at.point, T(weights.gap) * at.gap};
}

}  // namespace

#ifndef TORSOR_COLD
PlaceSum weigh_place(const Touching<double>& x, int k, const PlaceWeights& weights) {
  using T = Jet<double, 6>;
  T p_a[kMostNumbers], p_b[kMostNumbers];
  for (int i = 0; i < number_count(x.a.kind); ++i) p_a[i] = T(x.p_a[i]);
  for (int i = 0; i < number_count(x.b.kind); ++i) p_b[i] = T(x.p_b[i]);
  const WeighedPlace<T> sum = weighed_place<T>(x, k, weights, p_a, p_b, displaced<T>(x.A), lift<T>(x.B));
  const T result = sum.gap + dot(sum.force, velocity_at<T>(x.V, sum.point));
  const Force<T> W = wrench_of(sum.force, sum.point);
  return {{value(W.n), value(W.f)}, read_force(result.d)};
}

void add_place_gradient(const Touching<double>& x, int k, const PlaceWeights& weights, double* by_a, double* by_b) {
  constexpr int width = 6;
  using T = Jet<double, width>;
  const int n_a = number_count(x.a.kind), count = n_a + number_count(x.b.kind);
  T numbers[2 * kMostNumbers];
  for (int i = 0; i < count; ++i) numbers[i] = T(i < n_a ? x.p_a[i] : x.p_b[i - n_a]);
  const SE3<T> A = lift<T>(x.A), B = lift<T>(x.B);
  for (int from = 0; from < count; from += width) {
    const int until = std::min(from + width, count);
    for (int i = from; i < until; ++i) numbers[i].d[i - from] = 1.0;
    const WeighedPlace<T> sum = weighed_place<T>(x, k, weights, numbers, numbers + n_a, A, B);
    const T result = sum.gap + dot(sum.force, velocity_at<T>(x.V, sum.point));
    for (int i = from; i < until; ++i) {
      (i < n_a ? by_a[i] : by_b[i - n_a]) += result.d[i - from];
      numbers[i].d[i - from] = 0.0;
    }
  }
}

int place_count(const Shape& a, const Shape& b) { return spot_count(a, b); }
bool has_potential(ShapeKind a, ShapeKind b) {
  if (a == ShapeKind::terrain || b == ShapeKind::terrain) return false;
  if (a == ShapeKind::sphere || b == ShapeKind::sphere) return true;
  const bool plane = a == ShapeKind::half_space || b == ShapeKind::half_space;
  return plane && a != ShapeKind::cylinder && b != ShapeKind::cylinder;
}
#endif

template <class S>
Force<S> contact_wrench(const Touching<S>& x, const ContactNumbers<S>& law) {
  Force<S> W = zero_force<S>();
  for_each_touching(x, [&](int, const Spot<S>& at, const Mask<S>& touches) {
    const Vec3<S> f = contact_force(law, at.gap, at.normal, velocity_at(x.V, at.point));
    add_where(touches, wrench_of(f, at.point), W);
  });
  return W;
}

// By numbers that carry derivatives along displacements of the first body (6) and along u (3).
template <class S>
ContactWrench<S> contact_wrench_changes(const Touching<S>& x, const ContactNumbers<S>& given) {
  using T = Jet<S, 9>;
  ContactWrench<S> out{zero_force<S>(), {}, {}, no_lane<S>()};
  for (int k = 0; k < 6; ++k) out.Wq[k] = out.Wv[k] = zero_force<S>();
  const TouchingPlaces<S> places(x);
  if (places.none) return out;
  const SE3<T> A = displaced<T>(x.A), B = lift<T>(x.B);
  const ContactNumbers<T> law = lift<T>(given);
  T p_a[kMostNumbers], p_b[kMostNumbers];
  for (int i = 0; i < number_count(x.a.kind); ++i) p_a[i] = T(x.p_a[i]);
  for (int i = 0; i < number_count(x.b.kind); ++i) p_b[i] = T(x.p_b[i]);
  const auto add = [&](int k, const Spot<T>& at) {
    const Mask<S>& touches = places.lanes[k];
    Vec3<T> u = velocity_at<T>(x.V, at.point);
    u.x.d[6] += S(1.0);
    u.y.d[7] += S(1.0);
    u.z.d[8] += S(1.0);
    const Force<T> W = wrench_of(contact_force(law, at.gap, at.normal, u), at.point);
    const auto along = [&](int d) -> Force<S> {
      return {{W.n.x.d[d], W.n.y.d[d], W.n.z.d[d]}, {W.f.x.d[d], W.f.y.d[d], W.f.z.d[d]}};
    };
    add_where(touches, {{W.n.x.v, W.n.y.v, W.n.z.v}, {W.f.x.v, W.f.y.v, W.f.z.v}}, out.W);
    const Vec3<S> r{at.point.x.v, at.point.y.v, at.point.z.v};
    for (int d = 0; d < 6; ++d) {
      add_where(touches, along(d), out.Wq[d]);
      if (d < 3) {  // a unit twist changes u by e x r, or by e
        const Vec3<S> e = turned(d, r);
        add_where(touches, mul_add(e.z, along(8), mul_add(e.y, along(7), mul_add(e.x, along(6), zero_force<S>()))),
                  out.Wv[d]);
      } else {
        add_where(touches, along(3 + d), out.Wv[d]);
      }
    }
    out.touches = out.touches | touches;
  };
  spots(x.a, x.b, p_a, p_b, A, B, [&](int k) { return places.in_any[k]; }, add);
  return out;
}

template <class S>
S contact_energy(const Touching<S>& x, const ContactNumbers<S>& law) {
  S sum(0.0);
  for_each_touching(x, [&](int, const Spot<S>& at, const Mask<S>& touches) {
    sum += select(touches, contact_energy(law, at.gap), S(0.0));
  });
  return sum;
}

template <class S>
void add_power_gradient(const Touching<S>& x, const ContactNumbers<S>& given, const Motion<S>& U, S* by_law, S* by_a,
                        S* by_b) {
  constexpr int width = 4;
  using T = Jet<S, width>;
  const int n_a = number_count(x.a.kind), n_b = number_count(x.b.kind), count = 5 + n_a + n_b;
  S values[5 + 2 * kMostNumbers] = {given.stiffness, given.dissipation, given.friction, given.slip, given.onset};
  std::copy_n(x.p_a, n_a, values + 5);
  std::copy_n(x.p_b, n_b, values + 5 + n_a);
  const SE3<T> A = lift<T>(x.A), B = lift<T>(x.B);
  const TouchingPlaces<S> places(x);
  if (places.none) return;
  for (int from = 0; from < count; from += width) {
    T numbers[5 + 2 * kMostNumbers];
    for (int i = 0; i < count; ++i) {
      numbers[i] = T(values[i]);
      if (i >= from && i < from + width) numbers[i].d[i - from] = S(1.0);
    }
    const auto add = [&](int k, const Spot<T>& at) {
      const Vec3<T> f = contact_force(read_law(numbers), at.gap, at.normal, velocity_at<T>(x.V, at.point));
      const T power = dot(f, velocity_at<T>(U, at.point));
      for (int i = from; i < std::min(from + width, count); ++i) {
        S& to = i < 5 ? by_law[i] : i < 5 + n_a ? by_a[i - 5] : by_b[i - 5 - n_a];
        to -= select(places.lanes[k], -power.d[i - from], S(0.0));
      }
    };
    const auto touches = [&](int k) { return places.in_any[k]; };
    spots(x.a, x.b, numbers + 5, numbers + 5 + n_a, A, B, touches, add);
  }
}

template <class S>
int contact_places(const Touching<S>& x, const S& margin, Place<S>* out) {
  const int count = spot_count(x.a, x.b);
  const bool near = any(are_near(x, margin));
  const auto put = [&](int k, const Spot<S>& at) { out[k] = {at, velocity_at(x.V, at.point)}; };
  if (near) {
    spots(x.a, x.b, x.p_a, x.p_b, x.A, x.B, [](int) { return true; }, put);
  } else {
    const Spot<S> far{S(std::numeric_limits<double>::infinity()), zero3<S>(), zero3<S>()};
    for (int k = 0; k < count; ++k) out[k] = {far, zero3<S>()};
  }
  return count;
}

#define TORSOR_CONTACT(S)                                                                                       \
  template Force<S> contact_wrench(const Touching<S>&, const ContactNumbers<S>&);                               \
  template ContactWrench<S> contact_wrench_changes(const Touching<S>&, const ContactNumbers<S>&);               \
  template S contact_energy(const Touching<S>&, const ContactNumbers<S>&);                                      \
  template void add_power_gradient(const Touching<S>&, const ContactNumbers<S>&, const Motion<S>&, S*, S*, S*); \
  template int contact_places(const Touching<S>&, const S&, Place<S>*);
#ifdef TORSOR_COLD
TORSOR_CONTACT(Complex)
#else
TORSOR_CONTACT(double)
TORSOR_CONTACT(Pack<kLanes>)
#endif
#undef TORSOR_CONTACT

}  // namespace torsor
