// Springs, dampers and limits in the coordinates of joints. A displacement x from rest has the energy x.k x / 2:
//   coordinates in R^n   x = q - rest
//   quaternions          x = log(rest^-1 q), whose rate is J_r^-1(x) times the angular velocity
//   positions of a free  x = p - rest, in the joint's axes; the velocity is in the body's
#pragma once
#include "forces/force_set.hpp"
#include "model/joints.hpp"

namespace torsor {

// Torque -J_r^-T(x) k x of a spring on a rotation, with J_r^-1(x) = 1 + [x]/2 + e [x]^2.
template <class S>
struct RotationSpring {
  Vec3<S> k, x, y;  // y = k x
  S e, de;          // de: twice the derivative of e by x.x
  RotationSpring(const Vec3<S>& k, const Quaternion<S>& rest, const Quaternion<S>& q)
      : k(k),
        x(quaternion_logarithm(normalized(Quaternion<S>{-rest.v, rest.w} * q))),
        y(k.x * x.x, k.y * x.y, k.z * x.z) {
    // e = (c3 - 2 c4) / (2 c2) and c_m' = (m c_{m+2} - c_{m+1}) / 2
    S c[8];
    stumpff<8>(dot(x, x), c);
    const S top = c[3] - S(2.0) * c[4], d2 = c[4] - S(0.5) * c[3], d3 = S(1.5) * c[5] - S(0.5) * c[4],
            d4 = S(2.0) * c[6] - S(0.5) * c[5];
    e = top / (S(2.0) * c[2]);
    de = (d3 - S(2.0) * d4 - top * d2 / c[2]) / c[2];
  }
  Vec3<S> rate(const Vec3<S>& w) const {  // J_r^-1 w
    const Vec3<S> xw = cross(x, w);
    return mul_add(e, cross(x, xw), mul_add(S(0.5), xw, w));
  }
  Vec3<S> transposed_rate(const Vec3<S>& w) const {  // J_r^-T w
    const Vec3<S> xw = cross(x, w);
    return mul_add(e, cross(x, xw), mul_add(S(-0.5), xw, w));
  }
  Vec3<S> torque() const { return -transposed_rate(y); }
  // Change of the torque with x.
  Vec3<S> torque_along(const Vec3<S>& dx) const {
    const Vec3<S> dy{k.x * dx.x, k.y * dx.y, k.z * dx.z}, xy = cross(x, y), dxy = cross(dx, y);
    const Vec3<S> turned = cross(dx, xy) + cross(x, dxy);
    return -(transposed_rate(dy) + mul_add(e, turned, S(-0.5) * dxy) + (de * dot(x, dx)) * cross(x, xy));
  }
};

inline int rotation_velocities(Kind kind) { return kind == Kind::spherical || kind == Kind::free ? 3 : 0; }

// What a law needs of its joint.
template <class S>
struct JointForce {
  const JointLaw& law;
  const Model::Body& body;
  const S *q, *v, *p;  // q and v of the joint
  JointForce(const Model& m, const JointLaw& law, const S* q, const S* v, const S* p)
      : law(law), body(m.bodies[law.body]), q(q + body.iq), v(v + body.iv), p(p) {}

  bool rotates() const { return rotation_velocities(body.kind) > 0; }
  S stiffness(int k) const { return p[law.stiffness.at(k)]; }
  S damping(int k) const { return law.damping.offset < 0 ? S(0.0) : p[law.damping.at(k)]; }
  RotationSpring<S> rotation() const {
    const int at = body.kind == Kind::free ? 3 : 0;
    return {{stiffness(0), stiffness(1), stiffness(2)},
            normalized(read_quaternion(p + law.rest + at)),
            normalized(read_quaternion(q + at))};
  }
  Mat3<S> axes() const { return matrix(read_quaternion(q + 3)); }
  Vec3<S> shift() const {  // k (p - rest) of a free joint
    return {stiffness(3) * (q[0] - p[law.rest]), stiffness(4) * (q[1] - p[law.rest + 1]),
            stiffness(5) * (q[2] - p[law.rest + 2])};
  }
  // The limit that is violated: -1 lower, 1 upper, 0 none.
  int violated(int k) const {
    if (less(p[law.upper + k], q[k])) return 1;
    return less(q[k], p[law.lower + k]) || is_nan(q[k]) ? -1 : 0;
  }
  S beyond(int k, int side) const { return q[k] - p[(side < 0 ? law.lower : law.upper) + k]; }
};

// Adds the torque.
template <class S>
void joint_torque(const JointForce<S>& f, S* tau) {
  tau += f.body.iv;
  for (int k = 0; k < f.body.nv; ++k) {
    if (f.law.kind == JointLaw::limits) {
      if (const int side = f.violated(k)) tau[k] -= f.stiffness(k) * f.beyond(k, side) + f.damping(k) * f.v[k];
      continue;
    }
    tau[k] -= f.damping(k) * f.v[k];
    if (f.law.kind == JointLaw::spring && !f.rotates()) tau[k] -= f.stiffness(k) * (f.q[k] - f.p[f.law.rest + k]);
  }
  if (f.law.kind != JointLaw::spring || !f.rotates()) return;
  const Vec3<S> n = f.rotation().torque();
  write3(read3(tau) + n, tau);
  if (f.body.kind == Kind::free) write3(read3(tau + 3) - transposed(f.axes(), f.shift()), tau + 3);
}

// Adds what the torque changes by to the joint's own blocks of K = dtau/dq and D = dtau/dv, times -1: Aq -= K, Av -= D.
template <class S>
void linearise_joint(const JointForce<S>& f, S* Aq, S* Av, int stride) {
  for (int k = 0; k < f.body.nv; ++k) {
    if (f.law.kind == JointLaw::limits) {
      if (f.violated(k) == 0) continue;
      Aq[k * (stride + 1)] += f.stiffness(k);
    } else if (f.law.kind == JointLaw::spring && !f.rotates()) {
      Aq[k * (stride + 1)] += f.stiffness(k);
    }
    Av[k * (stride + 1)] += f.damping(k);
  }
  if (f.law.kind != JointLaw::spring || !f.rotates()) return;
  const auto subtract_column = [&](int row, int column, const Vec3<S>& x) {
    Aq[row * stride + column] -= x.x;
    Aq[(row + 1) * stride + column] -= x.y;
    Aq[(row + 2) * stride + column] -= x.z;
  };
  const RotationSpring<S> spring = f.rotation();
  const Mat3<S> unit = identity3<S>();
  for (int k = 0; k < 3; ++k) subtract_column(0, k, spring.torque_along(spring.rate(unit.column(k))));
  if (f.body.kind != Kind::free) return;
  const Mat3<S> R = f.axes();
  const Vec3<S> pull = transposed(R, f.shift());
  for (int k = 0; k < 3; ++k) {
    const Vec3<S> d = R.column(k);
    const Vec3<S> stretched{f.stiffness(3) * d.x, f.stiffness(4) * d.y, f.stiffness(5) * d.z};
    subtract_column(3, k, cross(unit.column(k), pull));
    subtract_column(3, 3 + k, -transposed(R, stretched));
  }
}

template <class S>
S joint_energy(const JointForce<S>& f) {
  S twice(0.0);
  const bool spring = f.law.kind == JointLaw::spring;
  for (int k = 0; k < f.body.nv && !f.rotates(); ++k) {
    const int side = f.law.kind == JointLaw::limits ? f.violated(k) : 0;
    if (!spring && side == 0) continue;
    const S x = spring ? f.q[k] - f.p[f.law.rest + k] : f.beyond(k, side);
    twice += f.stiffness(k) * x * x;
  }
  if (spring && f.rotates()) {
    const RotationSpring<S> rotation = f.rotation();
    twice = dot(rotation.x, rotation.y);
    if (f.body.kind == Kind::free) twice += dot(f.shift(), read3(f.q) - read3(f.p + f.law.rest));
  }
  return S(0.5) * twice;
}

// Adds the gradient of w.tau.
template <class S>
void joint_gradient(const JointForce<S>& f, const S* w, S* gradient) {
  w += f.body.iv;
  const bool spring = f.law.kind == JointLaw::spring;
  for (int k = 0; k < f.body.nv; ++k) {
    const int side = f.law.kind == JointLaw::limits ? f.violated(k) : 0;
    if (f.law.kind == JointLaw::limits && side == 0) continue;
    if (f.law.damping.offset >= 0) gradient[f.law.damping.at(k)] -= w[k] * f.v[k];
    if (side != 0) {
      gradient[f.law.stiffness.at(k)] -= w[k] * f.beyond(k, side);
      gradient[(side < 0 ? f.law.lower : f.law.upper) + k] += w[k] * f.stiffness(k);
    } else if (spring && !f.rotates()) {
      gradient[f.law.stiffness.at(k)] -= w[k] * (f.q[k] - f.p[f.law.rest + k]);
      gradient[f.law.rest + k] += w[k] * f.stiffness(k);
    }
  }
  if (!spring || !f.rotates()) return;
  const RotationSpring<S> rotation = f.rotation();
  const Vec3<S> wr = read3(w), x = rotation.x, r = rotation.rate(wr);
  const S along[3] = {r.x * x.x, r.y * x.y, r.z * x.z};
  for (int k = 0; k < 3; ++k) gradient[f.law.stiffness.at(k)] -= along[k];
  // The rest turned by d in its own axes moves x by -J_l^-1(x) d, and its quaternion by rest (d, 0) / 2.
  const Mat3<S> unit = identity3<S>();
  const auto turn = [&](int k) { return dot(wr, rotation.torque_along(-rotation.transposed_rate(unit.column(k)))); };
  const Vec3<S> g{turn(0), turn(1), turn(2)};
  S* at = gradient + f.law.rest + (f.body.kind == Kind::free ? 3 : 0);
  const Quaternion<S> given = read_quaternion(f.p + f.law.rest + (f.body.kind == Kind::free ? 3 : 0));
  const S length = square_root(dot_add(given.v, given.v, given.w * given.w));
  const Quaternion<S> change = normalized(given) * Quaternion<S>{g, 0.0};
  write3(read3(at) + (2.0 / length) * change.v, at);
  at[3] += 2.0 / length * change.w;
  if (f.body.kind != Kind::free) return;
  const Vec3<S> u = f.axes() * read3(w + 3);
  const S parts[3] = {u.x, u.y, u.z};
  for (int k = 0; k < 3; ++k) {
    gradient[f.law.stiffness.at(3 + k)] -= parts[k] * (f.q[k] - f.p[f.law.rest + k]);
    gradient[f.law.rest + k] += parts[k] * f.stiffness(3 + k);
  }
}

}  // namespace torsor
