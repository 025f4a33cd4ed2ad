// Laws in the coordinates of joints: springs, dampers, limits, dry friction, and given torques. A displacement x from
// rest has the energy x.k x / 2:
//   coordinates in R^n   x = q - rest
//   quaternions          x = log(rest^-1 q), whose rate is J_r^-1(x) times the angular velocity
//   position of a free   x = p - rest, in the joint's axes; the velocity is in the body's
#pragma once
#include "contact/law_functions.hpp"
#include "forces/law.hpp"
#include "forces/table.hpp"

namespace torsor {

// A parameter for each velocity, or one for all of them (stride 0); offset -1: none.
struct PerVelocity {
  int offset = -1, stride = 0;
  int at(int k) const { return offset + stride * k; }
};

template <class S>
struct JointForce;

// Springs, limits and dampers of one joint of the recursions.
struct JointLaw : Law {
  enum Kind { spring, limits, damper };
  Kind kind;
  int body;
  PerVelocity stiffness, damping;
  int rest = 0;              // first parameter of the coordinates at rest
  int lower = 0, upper = 0;  // or of the limits
  PerVelocity dissipation, onset;

  Work work() const { return kind == damper ? Work::dissipates : Work::stores; }
  bool is_affine(const Model& m) const;
  bool is_stiff() const { return kind == limits; }
  // Each limit is a place with one direction: the gap is the distance from it.
  template <class S>
  void add_stiff_places(const ForceState<S>& at, double c, StiffPlaces<S>& out) const {
    if (kind != limits) return;
    const Model::Body& joint = at.m.bodies[body];
    const S none(0.0);
    for (int k = 0; k < joint.nv; ++k) {
      const S q = at.q[joint.iq + k], v = at.v[joint.iv + k];
      const S margin = S(3.0 / c) * (square_root(v * v) + S(100.0 / c));
      const ContactNumbers<S> law{at.p[stiffness.at(k)], at.p[dissipation.at(k)], none, S(1.0), at.p[onset.at(k)]};
      for (const double side : {-1.0, 1.0}) {  // lower, upper
        const S gap = side > 0.0 ? at.p[upper + k] - q : q - at.p[lower + k];
        if (out.add(less(gap, margin), law, S(-1.0), gap, {S(1.0), none, none}, {S(-side) * v, none, none}))
          out.add_column(joint.iv + k, {S(-side), none, none});
      }
    }
  }
  template <class S, class F>
  void for_each_phase(const ForceState<S>& at, double, F&& each) const {
    for (int k = 0; kind == limits && k < at.m.bodies[body].nv; ++k)
      each(Phase<S>{JointForce<S>(at.m, *this, at.q, at.v, at.p).violation(k).any, at.v[at.m.bodies[body].iv + k],
                    S(0.0)});
  }
  template <class S>
  void add_forces(const ForceState<S>& at, const ForceSums<S>& sums) const {
    JointForce<S>(at.m, *this, at.q, at.v, at.p).add_torque(sums.tau);
  }
  template <class S>
  void linearise(const ForceState<S>& at, const ForceMatrices<S>& A) const {
    const int own = at.m.bodies[body].iv * (A.stride + 1);
    JointForce<S>(at.m, *this, at.q, at.v, at.p).linearise(A.Aq + own, A.Av + own, A.stride);
  }
  template <class S, class F>
  void on_joint(const Model& m, const S* q, const S* v, const S* p, F&& each) const {
    const int n = m.bodies[body].nv;
    S Aq[36], Av[36];
    for (int k = 0; k < n * n; ++k) Aq[k] = Av[k] = S(0.0);
    JointForce<S>(m, *this, q, v, p).linearise(Aq, Av, n);
    each(body, Aq, Av);
  }
  template <class S>
  S energy(const ForceState<S>& at) const {
    return JointForce<S>(at.m, *this, at.q, at.v, at.p).energy();
  }
  template <class S>
  void add_parameter_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion, S* gradient) const {
    JointForce<S>(at.m, *this, at.q, at.v, at.p).add_gradient(motion.w, gradient);
  }
  template <class S>
  void add_velocity_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion,
                             const VelocityGradient<S>& out) const {
    JointForce<S>(at.m, *this, at.q, at.v, at.p).add_velocity_gradient(motion.w, out.by_v);
  }
};

// Dry friction at one joint of the recursions: -torque F(|v| / slip) v / |v| for each velocity by itself.
struct FrictionLaw : Law {
  int body;
  PerVelocity torque, slip;

  Work work() const { return Work::dissipates; }
  bool is_stiff() const { return true; }
  template <class S>
  void add_stiff_places(const ForceState<S>& at, double, StiffPlaces<S>& out) const {
    const S none(0.0), one(1.0);
    for_each(at.m, at.v, at.p, [&](int k, int iv, const DryFriction<S>&) {
      const ContactNumbers<S> law{none, none, none, at.p[slip.at(k)], none};
      out.add(every_lane<S>(), law, limit(at.p, k), one, {none, none, one}, {at.v[iv], none, none});
      out.add_column(iv, {one, none, none});
    });
  }
  template <class S, class F>
  void for_each_phase(const ForceState<S>& at, double, F&& each) const {
    for_each(at.m, at.v, at.p, [&](int k, int iv, const DryFriction<S>&) {
      each(Phase<S>{every_lane<S>(), S(0.0), absolute(at.v[iv]) / at.p[slip.at(k)]});
    });
  }
  template <class S>
  void add_forces(const ForceState<S>& at, const ForceSums<S>& sums) const {
    for_each(at.m, at.v, at.p,
             [&](int k, int iv, const DryFriction<S>& x) { sums.tau[iv] -= limit(at.p, k) * x.ratio; });
  }
  template <class S>
  void linearise(const ForceState<S>& at, const ForceMatrices<S>& A) const {
    for_each(at.m, at.v, at.p,
             [&](int k, int iv, const DryFriction<S>& x) { A.Av[iv * (A.stride + 1)] += limit(at.p, k) * x.by_v; });
  }
  template <class S, class F>
  void on_joint(const Model& m, const S*, const S* v, const S* p, F&& each) const {
    const int n = m.bodies[body].nv;
    S Aq[36], Av[36];
    for (int k = 0; k < n * n; ++k) Aq[k] = Av[k] = S(0.0);
    for_each(m, v, p, [&](int k, int, const DryFriction<S>& x) { Av[k * (n + 1)] = limit(p, k) * x.by_v; });
    each(body, Aq, Av);
  }
  template <class S>
  void add_parameter_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion, S* gradient) const {
    for_each(at.m, at.v, at.p, [&](int k, int iv, const DryFriction<S>& x) {
      gradient[torque.at(k)] -= motion.w[iv] * x.ratio;
      gradient[slip.at(k)] -= motion.w[iv] * limit(at.p, k) * x.by_slip;
    });
  }
  template <class S>
  void add_velocity_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion,
                             const VelocityGradient<S>& out) const {
    for_each(at.m, at.v, at.p,
             [&](int k, int iv, const DryFriction<S>& x) { out.by_v[iv] -= motion.w[iv] * limit(at.p, k) * x.by_v; });
  }

 private:
  template <class S>
  S limit(const S* p, int k) const {
    return p[torque.at(k)];
  }
  // f(velocity of the joint, velocity of the model, friction)
  template <class S, class F>
  void for_each(const Model& m, const S* v, const S* p, F&& f) const {
    const int iv = m.bodies[body].iv;
    for (int k = 0; k < m.bodies[body].nv; ++k) f(k, iv + k, DryFriction<S>(v[iv + k], p[slip.at(k)]));
  }
};

// Torques at consecutive velocities.
struct TorqueLaw : Law {
  int iv;  // the first
  Table torque;

  bool depends_on_time() const { return torque.depends_on_time(); }
  bool is_affine(const Model&) const { return true; }
  template <class S>
  void add_forces(const ForceState<S>& at, const ForceSums<S>& sums) const {
    const auto now = torque.place(at.t);
    for (int k = 0; k < torque.size; ++k) sums.tau[iv + k] += Table::value(now, at.p, k);
  }
  template <class S>
  void add_parameter_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion, S* gradient) const {
    const auto now = torque.place(at.t);
    for (int k = 0; k < torque.size; ++k) Table::add_gradient(now, motion.w[iv + k], k, gradient);
  }
};

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
inline bool JointLaw::is_affine(const Model& m) const {
  return kind == damper || (kind == spring && rotation_velocities(m.bodies[body].kind) == 0);
}

// A law at the state of its joint.
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
  // The limit that is violated, if any, and by how much.
  struct Violation {
    Mask<S> lower, upper, any;
    S x;
  };
  Violation violation(int k) const {
    const Mask<S> upper = less(p[law.upper + k], q[k]);
    const Mask<S> lower = (less(q[k], p[law.lower + k]) | is_nan(q[k])) & !upper, any = lower | upper;
    return {lower, upper, any, q[k] - select(lower, p[law.lower + k], p[law.upper + k])};
  }
  // The spring beyond a limit, with its dissipation: k p(x) D(d u), x the depth and u the velocity out of it.
  struct Press {
    S side, out;  // side: 1 beyond the upper limit, -1 beyond the lower one
    Onset<S> onset;
    Dissipation<S> dissipation;
    S force, by_x, by_out;
  };
  Press press(int k, const Violation& at) const {
    const S side = select(at.lower, S(-1.0), S(1.0)), out = -side * v[k], d = p[law.dissipation.at(k)];
    const Onset<S> onset(side * at.x, p[law.onset.at(k)]);
    const Dissipation<S> dissipation(d * out);
    const S pressed = stiffness(k) * onset.p;
    return {side,
            out,
            onset,
            dissipation,
            pressed * dissipation.D,
            stiffness(k) * onset.dp * dissipation.D,
            pressed * dissipation.dD * d};
  }

  // Adds the torque.
  void add_torque(S* tau) const {
    tau += body.iv;
    for (int k = 0; k < body.nv; ++k) {
      if (law.kind == JointLaw::limits) {
        const Violation at = violation(k);
        if (!any(at.any)) continue;
        const Press pressed = press(k, at);
        tau[k] -= select(at.any, pressed.side * pressed.force + damping(k) * v[k], S(0.0));
        continue;
      }
      tau[k] -= damping(k) * v[k];
      if (law.kind == JointLaw::spring && !rotates()) tau[k] -= stiffness(k) * (q[k] - p[law.rest + k]);
    }
    if (law.kind != JointLaw::spring || !rotates()) return;
    const Vec3<S> n = rotation().torque();
    write3(read3(tau) + n, tau);
    if (body.kind == Kind::free) write3(read3(tau + 3) - transposed(axes(), shift()), tau + 3);
  }

  // Aq -= dtau/dq and Av -= dtau/dv, the joint's own blocks.
  void linearise(S* Aq, S* Av, int stride) const {
    for (int k = 0; k < body.nv; ++k) {
      if (law.kind == JointLaw::limits) {
        const Violation at = violation(k);
        if (!any(at.any)) continue;
        const Press pressed = press(k, at);
        Aq[k * (stride + 1)] -= select(at.any, -pressed.by_x, S(0.0));
        Av[k * (stride + 1)] -= select(at.any, pressed.by_out - damping(k), S(0.0));
        continue;
      }
      if (law.kind == JointLaw::spring && !rotates()) Aq[k * (stride + 1)] += stiffness(k);
      Av[k * (stride + 1)] += damping(k);
    }
    if (law.kind != JointLaw::spring || !rotates()) return;
    const auto subtract_column = [&](int row, int column, const Vec3<S>& x) {
      Aq[row * stride + column] -= x.x;
      Aq[(row + 1) * stride + column] -= x.y;
      Aq[(row + 2) * stride + column] -= x.z;
    };
    const RotationSpring<S> spring = rotation();
    const Mat3<S> unit = identity3<S>();
    for (int k = 0; k < 3; ++k) subtract_column(0, k, spring.torque_along(spring.rate(unit.column(k))));
    if (body.kind != Kind::free) return;
    const Mat3<S> R = axes();
    const Vec3<S> pull = transposed(R, shift());
    for (int k = 0; k < 3; ++k) {
      const Vec3<S> d = R.column(k);
      const Vec3<S> stretched{stiffness(3) * d.x, stiffness(4) * d.y, stiffness(5) * d.z};
      subtract_column(3, k, cross(unit.column(k), pull));
      subtract_column(3, 3 + k, -transposed(R, stretched));
    }
  }

  S energy() const {
    S twice(0.0);
    const bool spring = law.kind == JointLaw::spring;
    for (int k = 0; k < body.nv && !rotates() && law.kind != JointLaw::damper; ++k) {
      if (spring) {
        const S x = q[k] - p[law.rest + k];
        twice += stiffness(k) * x * x;
        continue;
      }
      const Violation at = violation(k);
      if (any(at.any)) twice += select(at.any, S(2.0) * stiffness(k) * press(k, at).onset.P, S(0.0));
    }
    if (spring && rotates()) {
      const RotationSpring<S> spun = rotation();
      twice = dot(spun.x, spun.y);
      if (body.kind == Kind::free) twice += dot(shift(), read3(q) - read3(p + law.rest));
    }
    return S(0.5) * twice;
  }

  // Adds the gradient of w.tau by the parameters.
  void add_gradient(const S* w, S* gradient) const {
    w += body.iv;
    const bool spring = law.kind == JointLaw::spring;
    for (int k = 0; k < body.nv; ++k) {
      if (law.kind == JointLaw::limits) {
        add_limit_gradient(k, w[k], gradient);
        continue;
      }
      if (law.damping.offset >= 0) gradient[law.damping.at(k)] -= w[k] * v[k];
      if (spring && !rotates()) {
        gradient[law.stiffness.at(k)] -= w[k] * (q[k] - p[law.rest + k]);
        gradient[law.rest + k] += w[k] * stiffness(k);
      }
    }
    if (!spring || !rotates()) return;
    const RotationSpring<S> spun = rotation();
    const Vec3<S> wr = read3(w), x = spun.x, r = spun.rate(wr);
    const S along[3] = {r.x * x.x, r.y * x.y, r.z * x.z};
    for (int k = 0; k < 3; ++k) gradient[law.stiffness.at(k)] -= along[k];
    // The rest turned by d in its own axes moves x by -J_l^-1(x) d, and its quaternion by rest (d, 0) / 2.
    const Mat3<S> unit = identity3<S>();
    const auto turn = [&](int k) { return dot(wr, spun.torque_along(-spun.transposed_rate(unit.column(k)))); };
    const Vec3<S> g{turn(0), turn(1), turn(2)};
    S* at = gradient + law.rest + (body.kind == Kind::free ? 3 : 0);
    const Quaternion<S> given = read_quaternion(p + law.rest + (body.kind == Kind::free ? 3 : 0));
    const S length = square_root(dot_add(given.v, given.v, given.w * given.w));
    const Quaternion<S> change = normalized(given) * Quaternion<S>{g, 0.0};
    write3(read3(at) + (2.0 / length) * change.v, at);
    at[3] += 2.0 / length * change.w;
    if (body.kind != Kind::free) return;
    const Vec3<S> u = axes() * read3(w + 3);
    const S parts[3] = {u.x, u.y, u.z};
    for (int k = 0; k < 3; ++k) {
      gradient[law.stiffness.at(3 + k)] -= parts[k] * (q[k] - p[law.rest + k]);
      gradient[law.rest + k] += parts[k] * stiffness(3 + k);
    }
  }
  void add_limit_gradient(int k, const S& w, S* gradient) const {
    const Violation at = violation(k);
    if (!any(at.any)) return;
    const Press pressed = press(k, at);
    const S none(0.0), force = pressed.side * w * stiffness(k);
    gradient[law.damping.at(k)] -= select(at.any, w * v[k], none);
    gradient[law.stiffness.at(k)] -= select(at.any, pressed.side * w * pressed.onset.p * pressed.dissipation.D, none);
    gradient[law.lower + k] -= select(at.lower, -w * pressed.by_x, none);
    gradient[law.upper + k] -= select(at.upper, -w * pressed.by_x, none);
    gradient[law.dissipation.at(k)] -=
        select(at.any, force * pressed.onset.p * pressed.dissipation.dD * pressed.out, none);
    gradient[law.onset.at(k)] -= select(at.any, force * pressed.onset.by_onset * pressed.dissipation.D, none);
  }
  // Adds the gradient of w.tau by the joint's velocities.
  void add_velocity_gradient(const S* w, S* by_v) const {
    for (int k = 0; k < body.nv; ++k) {
      S by = damping(k);
      Mask<S> there = every_lane<S>();
      if (law.kind == JointLaw::limits) {
        const Violation at = violation(k);
        if (!any(there = at.any)) continue;
        by -= press(k, at).by_out;
      }
      by_v[body.iv + k] -= select(there, by * w[body.iv + k], S(0.0));
    }
  }
};

}  // namespace torsor
