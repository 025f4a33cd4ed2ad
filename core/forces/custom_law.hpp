// A user-defined force, in reduced coordinates.
#pragma once
#include <memory>

#include "forces/law.hpp"

namespace torsor {

// Arrays have a row for each of `lanes` states, which have one time t. p: its own parameters.
struct CustomForce : UserCode {
  virtual void value(int lanes, const double* q, const double* v, double t, const double* p, double* tau) const = 0;
  virtual void value(int lanes, const Complex* q, const Complex* v, double t, const Complex* p, Complex* tau) const = 0;
  virtual void derivatives(int lanes, const double* q, const double* v, double t, const double* p, double* K,
                           double* D) const = 0;
  virtual void derivatives(int lanes, const Complex* q, const Complex* v, double t, const Complex* p, Complex* K,
                           Complex* D) const = 0;
  virtual void energy(int lanes, const double* q, double t, const double* p, double* E) const = 0;
  virtual void energy(int lanes, const Complex* q, double t, const Complex* p, Complex* E) const = 0;
  virtual void gradient(int lanes, const double* q, const double* v, double t, const double* p, const double* w,
                        double* g) const = 0;
  virtual void gradient(int lanes, const Complex* q, const Complex* v, double t, const Complex* p, const Complex* w,
                        Complex* g) const = 0;
};

struct CustomLaw : Law {
  int offset, count;  // of its parameters
  std::shared_ptr<CustomForce> custom;

  Work work() const { return Work::unknown; }
  bool keeps_branches(const Model&) const { return false; }
  bool depends_on_place() const { return true; }
  bool on_single_body() const { return false; }
  bool depends_on_time() const { return true; }
  UserCode* user_code() const { return custom.get(); }

  template <class S>
  void add_forces(const ForceState<S>& at, const ForceSums<S>& sums) const {
    const State<S> x(*this, at);
    const UserRows<S> rows(at.arena, at.m.nv);
    custom->value(x.lanes, x.q, x.v, at.t, x.p, rows);
    const S* tau = rows.read(at.arena);
    for (int k = 0; k < at.m.nv; ++k) sums.tau[k] += tau[k];
  }
  template <class S>
  void linearise(const ForceState<S>& at, const ForceMatrices<S>& A) const {
    const int nv = at.m.nv;
    const auto [K, D] = derivatives(at);
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) {
        A.Aq[j * A.stride + k] -= K[j * nv + k];
        A.Av[j * A.stride + k] -= D[j * nv + k];
      }
  }
  template <class S>
  S energy(const ForceState<S>& at) const {
    const State<S> x(*this, at);
    const UserRows<S> rows(at.arena, 1);
    custom->energy(x.lanes, x.q, at.t, x.p, rows);
    return *rows.read(at.arena);
  }
  template <class S>
  void add_parameter_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion, S* gradient) const {
    if (count == 0) return;
    const State<S> x(*this, at);
    const UserRows<S> w(at.arena, at.m.nv, motion.w), rows(at.arena, count);
    custom->gradient(x.lanes, x.q, x.v, at.t, x.p, w, rows);
    const S* g = rows.read(at.arena);
    for (int k = 0; k < count; ++k) gradient[offset + k] += g[k];
  }
  template <class S>
  void add_velocity_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion,
                             const VelocityGradient<S>& out) const {
    const int nv = at.m.nv;
    const S* D = derivatives(at).second;
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) out.by_v[k] = mul_add(motion.w[j], D[j * nv + k], out.by_v[k]);
  }

 private:
  template <class S>
  struct State {
    static constexpr int lanes = UserRows<S>::lanes;
    UserRows<S> q, v, p;
    State(const CustomLaw& law, const ForceState<S>& at)
        : q(at.arena, at.m.nq, at.q), v(at.arena, at.m.nv, at.v), p(at.arena, law.count, at.p + law.offset) {}
  };
  // K and D.
  template <class S>
  std::pair<const S*, const S*> derivatives(const ForceState<S>& at) const {
    const State<S> x(*this, at);
    const UserRows<S> K(at.arena, at.m.nv * at.m.nv), D(at.arena, at.m.nv * at.m.nv);
    custom->derivatives(x.lanes, x.q, x.v, at.t, x.p, K, D);
    return {K.read(at.arena), D.read(at.arena)};
  }
};

}  // namespace torsor
