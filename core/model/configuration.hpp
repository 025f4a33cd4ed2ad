// Coordinates as points of a manifold: q + dv, q1 - q0, and the tidy representative of q.
#pragma once
#include "model/joints.hpp"

namespace torsor {

template <class S>
void write_quaternion(const Quaternion<S>& q, S* out) {
  write3(q.v, out);
  out[3] = q.w;
}

template <class S>
void plus(const Model& m, const S* q, const S* dv, S* out) {
  for (const Model::Body& body : m.bodies) {
    const S *x = q + body.iq, *d = dv + body.iv;
    S* y = out + body.iq;
    if (body.kind == Kind::spherical) {
      write_quaternion(normalized(read_quaternion(x) * quaternion_exponential(read3(d))), y);
    } else if (body.kind == Kind::free) {
      const Quaternion<S> at = normalized(read_quaternion(x + 3));
      const SE3<S> step = exponential(read_motion(d));
      write3(mul_add(matrix(at), step.p, read3(x)), y);
      write_quaternion(normalized(at * quaternion_exponential(read3(d))), y + 3);
    } else {
      for (int k = 0; k < body.nv; ++k) y[k] = x[k] + d[k];
    }
  }
}

// dv with q1 = q0 + dv.
template <class S>
void minus(const Model& m, const S* q1, const S* q0, S* dv) {
  const auto relative = [](const S* a, const S* b) {
    const Quaternion<S> inverse{-read3(b), b[3]};
    return quaternion_logarithm(normalized(inverse * read_quaternion(a)));
  };
  for (const Model::Body& body : m.bodies) {
    const S *a = q1 + body.iq, *b = q0 + body.iq;
    S* d = dv + body.iv;
    if (body.kind == Kind::spherical) {
      write3(relative(a, b), d);
    } else if (body.kind == Kind::free) {
      const Vec3<S> w = relative(a + 3, b + 3);
      const Vec3<S> p = transposed(matrix(read_quaternion(b + 3)), read3(a) - read3(b));
      write3(w, d);
      write3(translation_logarithm(w, p), d + 3);
    } else {
      for (int k = 0; k < body.nv; ++k) d[k] = a[k] - b[k];
    }
  }
}

template <class S>
void normalize(const Model& m, const S* q, S* out) {
  for (const Model::Body& body : m.bodies) {
    const S* x = q + body.iq;
    S* y = out + body.iq;
    if (body.kind == Kind::spherical) {
      write_quaternion(normalized(read_quaternion(x)), y);
    } else if (body.kind == Kind::free) {
      write3(read3(x), y);
      write_quaternion(normalized(read_quaternion(x + 3)), y + 3);
    } else if (body.kind == Kind::exponential) {  // x (1 - 2 pi k / |x|), k whole turns
      const Vec3<S> w = read3(x);
      const S square = dot(w, w);
      const auto beyond = less(S(M_PI * M_PI), square);
      const S length = square_root(select(beyond, square, S(1.0)));
      const S turns = per_lane<S>([&](int l) { return std::round(lane_of(length, l) / (2 * M_PI)); });
      write3(select(beyond, S(1.0) - S(2 * M_PI) * turns / length, S(1.0)) * w, y);
    } else {
      for (int k = 0; k < body.nv; ++k) y[k] = x[k];
    }
  }
}

}  // namespace torsor
