// A user-defined force, in reduced coordinates.
#pragma once
#include <memory>

#include "forces/law.hpp"

namespace torsor {

// p: its own parameters.
struct CustomForce : UserCode {
  template <int N>
  void value(const Pack<N>*, const Pack<N>*, double, const Pack<N>*, Pack<N>*) const {}
  template <int N>
  void derivatives(const Pack<N>*, const Pack<N>*, double, const Pack<N>*, Pack<N>*, Pack<N>*) const {}
  template <int N>
  Pack<N> energy(const Pack<N>*, double, const Pack<N>*) const {
    return 0.0;
  }
  template <int N>
  void gradient(const Pack<N>*, const Pack<N>*, double, const Pack<N>*, const Pack<N>*, Pack<N>*) const {}
  virtual void value(const double* q, const double* v, double t, const double* p, double* tau) const = 0;
  virtual void value(const Complex* q, const Complex* v, double t, const Complex* p, Complex* tau) const = 0;
  virtual void derivatives(const double* q, const double* v, double t, const double* p, double* K, double* D) const = 0;
  virtual void derivatives(const Complex* q, const Complex* v, double t, const Complex* p, Complex* K,
                           Complex* D) const = 0;
  virtual double energy(const double* q, double t, const double* p) const = 0;
  virtual Complex energy(const Complex* q, double t, const Complex* p) const = 0;
  virtual void gradient(const double* q, const double* v, double t, const double* p, const double* w,
                        double* g) const = 0;
  virtual void gradient(const Complex* q, const Complex* v, double t, const Complex* p, const Complex* w,
                        Complex* g) const = 0;
};

struct CustomLaw : Law {
  int offset, count;  // of its parameters
  std::shared_ptr<CustomForce> custom;

  Work work() const { return Work::unknown; }
  bool keeps_branches(const Model&) const { return false; }
  bool depends_on_place() const { return true; }
  bool on_single_body() const { return false; }
  UserCode* user_code() const { return custom.get(); }

  template <class S>
  void add_forces(const ForceState<S>& at, const ForceSums<S>& sums) const {
    S* tau = at.arena.template get<S>(at.m.nv);
    custom->value(at.q, at.v, at.t, at.p + offset, tau);
    for (int k = 0; k < at.m.nv; ++k) sums.tau[k] += tau[k];
  }
  template <class S>
  void linearise(const ForceState<S>& at, const ForceMatrices<S>& A) const {
    const int nv = at.m.nv;
    S *K = at.arena.template get<S>(nv * nv), *D = at.arena.template get<S>(nv * nv);
    custom->derivatives(at.q, at.v, at.t, at.p + offset, K, D);
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) {
        A.Aq[j * A.stride + k] -= K[j * nv + k];
        A.Av[j * A.stride + k] -= D[j * nv + k];
      }
  }
  template <class S>
  S energy(const ForceState<S>& at) const {
    return custom->energy(at.q, at.t, at.p + offset);
  }
  template <class S>
  void add_parameter_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion, S* gradient) const {
    S* g = at.arena.template get<S>(count);
    custom->gradient(at.q, at.v, at.t, at.p + offset, motion.w, g);
    for (int k = 0; k < count; ++k) gradient[offset + k] += g[k];
  }
  template <class S>
  void add_velocity_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion,
                             const VelocityGradient<S>& out) const {
    const int nv = at.m.nv;
    S *K = at.arena.template get<S>(nv * nv), *D = at.arena.template get<S>(nv * nv);
    custom->derivatives(at.q, at.v, at.t, at.p + offset, K, D);
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) out.by_v[k] = mul_add(motion.w[j], D[j * nv + k], out.by_v[k]);
  }
};

}  // namespace torsor
