// The contract of every law of force. A law is a struct derived from Law, whose members are the contract: properties,
// value, linearisation, energy, and gradients of its power. Each has a default, and a law defines those that differ.
// One list has all kinds of laws, and every function of forces is a loop over it (forces/force_set.hpp).
//
// Wrenches are about the point of their tree, in the world's axes, as everything in tree/motions.hpp. With the column
// S_k of a velocity, a point x of a body has dx/dq_k = [S_k]_x = S_k.v + S_k.w x x and dxdot/dq_k = S_k.w x xdot +
// [Psidot_k]_x; a body's twist in its own frame has the derivatives Psidot_k and S_k. Numbers of a law are parameters
// in the flat array p of its set.
//
// Member templates are for any scalar, lane by lane: conditions on the state are masks. A lane whose mask is false is
// left as it was, to the last bit: x - select(mask, y, 0) is x there, which x + 0 is not if x is -0. NaN is on neither
// side of a limit, and must propagate all the same.
#pragma once
#include <cmath>

#include "forces/contact_problem.hpp"
#include "tree/motions.hpp"

namespace torsor {

// Where forces on bodies are evaluated. Of motions, accelerations are not read.
template <class S>
struct BodyState {
  Arena& arena;
  const Motions<S>& all;
  double t;
  const S* p;  // parameters of all forces
};
template <class S>
struct ForceState : BodyState<S> {
  ForceState(const Model& m, Arena& arena, const Motions<S>& all, const S* q, const S* v, double t, const S* p)
      : BodyState<S>{arena, all, t, p}, m(m), q(q), v(v) {}
  const Model& m;
  const S *q, *v;
};

template <class S>
struct ForceSums {
  S* tau;                // by velocity: torques at the joints
  Force<S>* carried;     // by body: wrenches that move with it
  WorldWrench<S>* held;  // by body: forces at its points, held in the world's axes
};
// Aq = -dtau/dq and Av = -dtau/dv, rows `stride` apart.
template <class S>
struct ForceMatrices {
  S *Aq, *Av;
  int stride;
};
// Joints that move with w. w.tau is then the power of forces. Bodies may move by further twists relative to the bodies
// that carry them.
template <class S>
struct VirtualMotion {
  const S* w;
  const Motion<S>* W;  // twists of the bodies; W[-1] is the world's
};
template <class S, class C>
VirtualMotion<S> virtual_motion(const ModelT<C>& m, Arena& arena, const Motions<S>& all, const S* w,
                                const Motion<S>* twists = nullptr) {
  auto* W = arena.get<Motion<S>>(m.n() + 1) + 1;
  W[-1] = zero_motion<S>();
  for (int i = 0; i < m.n(); ++i) {
    const auto& link = m.links[i];
    W[i] = W[link.parent];
    for (int k = link.iv; k < link.iv + link.nv; ++k) W[i] = mul_add(w[k], all.columns[k].S_, W[i]);
    if (twists != nullptr) W[i] += twists[i];
  }
  return {w, W};
}
// Gradient of w.tau by the velocities: by those of joints, and by the twists of bodies.
template <class S>
struct VelocityGradient {
  S* by_v;
  Force<S>* by_twist;
};
// What a law adds to the gradient of w.tau by placements (forces/force_placements.hpp).
template <class S>
struct PlacementSums {
  Force<S> A, H, P;
  PlacementSums& operator+=(const PlacementSums& b) {
    A += b.A;
    H += b.H;
    P += b.P;
    return *this;
  }
};

// Change of the wrench on a body, 6 x 12: by the displacement eta of the body, then by the change of its velocity, all
// relative to the body: zero for a wrench that moves with it.
template <class S>
struct WrenchChange {
  S x[6][12];
  struct Column {
    Force<S> by_q, by_v;
  };
  template <class F>
  explicit WrenchChange(F&& column) {  // column(unit twist)
    for (int k = 0; k < 6; ++k) {
      S unit[6] = {S(0.0), S(0.0), S(0.0), S(0.0), S(0.0), S(0.0)}, by_q[6], by_v[6];
      unit[k] = S(1.0);
      const Column c = column(read_motion(unit));
      write(c.by_q, by_q);
      write(c.by_v, by_v);
      for (int r = 0; r < 6; ++r) {
        x[r][k] = by_q[r];
        x[r][6 + k] = by_v[r];
      }
    }
  }
};

// Where the work of a law comes from: from an energy that it stores, from outside (it is given), or nowhere, if it only
// dissipates. Unknown: its work cannot be distinguished from a spurious gain of energy.
enum class Work { stores, given, dissipates, unknown };

// User-defined code that a law calls, once for all lanes: its arrays have a row for each.
struct UserCode {
  virtual ~UserCode() = default;
};
// An array (lanes x n) of user-defined code: made of n numbers of the state, or to be filled and read.
template <class S>
class UserRows {
 public:
  using Number = std::conditional_t<std::is_same_v<S, Complex>, Complex, double>;
  static constexpr int lanes = Lanes<S>::value;
  UserRows(Arena& arena, int n) : n_(n), data_(arena.get<Number>(std::size_t(lanes) * n)) {}
  UserRows(Arena& arena, int n, const S* x) : UserRows(arena, n) {
    Number* rows[lanes];
    for (int l = 0; l < lanes; ++l) rows[l] = data_ + l * n;
    store_rows(x, n, rows, lanes);
  }
  const S* read(Arena& arena) const {
    const Number* rows[lanes];
    for (int l = 0; l < lanes; ++l) rows[l] = data_ + l * n_;
    S* out = arena.get<S>(n_);
    load_rows(rows, n_, out);
    return out;
  }
  operator Number*() const { return data_; }

 private:
  int n_;
  Number* data_;
};

// A place of a contact at a state: where it touches, its velocity of separation, and that of slip over the one from
// which on friction is complete.
template <class S>
struct Phase {
  Mask<S> closed;
  S away, slip;
};

struct Law {
  int force;  // the user's force that the law is part of

  Work work() const { return Work::given; }
  bool acts_on_bodies() const { return false; }             // whether it has wrenches on bodies
  bool holds() const { return false; }                      // whether wrenches are held in the world's axes
  bool keeps_branches(const Model&) const { return true; }  // whether dtau/dq, dtau/dv are zero between branches
  bool depends_on_place() const { return false; }           // whether it depends on where bodies are
  bool on_single_body() const { return true; }              // whether it depends on one joint or on one body
  bool depends_on_time() const { return false; }
  bool is_affine(const Model&) const { return false; }  // whether it is a torque that is affine in q and v
  UserCode* user_code() const { return nullptr; }       // or null

  // Adds torques and wrenches.
  template <class S>
  void add_forces(const ForceState<S>&, const ForceSums<S>&) const {}
  // Aq -= dtau/dq, Av -= dtau/dv: of torques completely, of wrenches without their motion (pair_columns).
  template <class S>
  void linearise(const ForceState<S>&, const ForceMatrices<S>&) const {}
  // The same where the law is on a single joint or body: each(body, Aq, Av) with the joint's own blocks, n x n.
  template <class S, class F>
  void on_joint(const Model&, const S* /*q*/, const S* /*v*/, const S* /*p*/, F&& /*each*/) const {}
  // each(body, change) with how the wrench changes.
  template <class S, class F>
  void on_body(const BodyState<S>&, F&& /*each*/) const {}
  // Stiff forces change within a step from nothing to all, as contacts do. They have an own part in the search for a
  // solution (forces/contact_problem.hpp), to which they add their places; c: of the stage.
  bool is_stiff() const { return false; }
  template <class S>
  void add_stiff_places(const ForceState<S>&, double /*c*/, StiffPlaces<S>&) const {}
  // each(phase) for each place that may touch, in an order that does not change; of those that could not do so within a
  // step of h, the velocities may be 0.
  template <class S, class F>
  void for_each_phase(const ForceState<S>&, double /*h*/, F&& /*each*/) const {}
  // Minus its gradient is tau at v = 0.
  template <class S>
  S energy(const ForceState<S>&) const {
    return S(0.0);
  }
  // Add gradients of w.tau: by the parameters, by the velocities, and by placements, for the user's bodies.
  template <class S>
  void add_parameter_gradient(const ForceState<S>&, const VirtualMotion<S>&, S* /*gradient*/) const {}
  template <class S>
  void add_velocity_gradient(const ForceState<S>&, const VirtualMotion<S>&, const VelocityGradient<S>&) const {}
  template <class S>
  void add_placement_sums(const BodyState<S>&, const VirtualMotion<S>&, PlacementSums<S>*) const {}
};

template <class S>
Vec3<S> select(const Mask<S>& mask, const Vec3<S>& a, const Vec3<S>& b) {
  return {select(mask, a.x, b.x), select(mask, a.y, b.y), select(mask, a.z, b.z)};
}
template <class S>
Mat3<S> select(const Mask<S>& mask, const Mat3<S>& a, const Mat3<S>& b) {
  return {select<S>(mask, a.x, b.x), select<S>(mask, a.y, b.y), select<S>(mask, a.z, b.z)};
}
template <class S>
Force<S> negative(const Force<S>& x) {
  return {-x.n, -x.f};
}
// f at x.
template <class S>
Force<S> wrench_at(const Vec3<S>& f, const Vec3<S>& x) {
  return {cross(x, f), f};
}
// Over the velocities that move body i, tips first.
template <class F>
void for_each_velocity(const Model& m, int i, F&& f) {
  for (; i >= 0; i = m.links[i].parent)
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) f(k);
}

}  // namespace torsor
