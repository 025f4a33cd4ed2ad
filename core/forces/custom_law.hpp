// A user-defined force, in reduced coordinates.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "forces/law.hpp"

namespace torsor {

// p: its own parameters.
struct CustomForce : UserCode {
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
    call(at, at.v, at.m.nv, {tau},
         [&](auto* q, auto* v, auto* p, auto*, auto** out) { custom->value(q, v, at.t, p, out[0]); });
    for (int k = 0; k < at.m.nv; ++k) sums.tau[k] += tau[k];
  }
  template <class S>
  void linearise(const ForceState<S>& at, const ForceMatrices<S>& A) const {
    const int nv = at.m.nv;
    S *K = at.arena.template get<S>(nv * nv), *D = at.arena.template get<S>(nv * nv);
    derivatives(at, K, D);
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) {
        A.Aq[j * A.stride + k] -= K[j * nv + k];
        A.Av[j * A.stride + k] -= D[j * nv + k];
      }
  }
  template <class S>
  S energy(const ForceState<S>& at) const {
    S sum;
    call(at, at.v, 1, {&sum},
         [&](auto* q, auto*, auto* p, auto*, auto** out) { *out[0] = custom->energy(q, at.t, p); });
    return sum;
  }
  template <class S>
  void add_parameter_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion, S* gradient) const {
    S* g = at.arena.template get<S>(count);
    call(at, motion.w, count, {g},
         [&](auto* q, auto* v, auto* p, auto* w, auto** out) { custom->gradient(q, v, at.t, p, w, out[0]); });
    for (int k = 0; k < count; ++k) gradient[offset + k] += g[k];
  }
  template <class S>
  void add_velocity_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion,
                             const VelocityGradient<S>& out) const {
    const int nv = at.m.nv;
    S *K = at.arena.template get<S>(nv * nv), *D = at.arena.template get<S>(nv * nv);
    derivatives(at, K, D);
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) out.by_v[k] = mul_add(motion.w[j], D[j * nv + k], out.by_v[k]);
  }

 private:
  template <class S>
  void derivatives(const ForceState<S>& at, S* K, S* D) const {
    call(at, at.v, at.m.nv * at.m.nv, {K, D},
         [&](auto* q, auto* v, auto* p, auto*, auto** out) { custom->derivatives(q, v, at.t, p, out[0], out[1]); });
  }
  // Calls f(q, v, p, w, out), which writes `size` numbers to each of `out`: lane by lane, with the numbers of a lane. w
  // is by velocity.
  template <class S, class F>
  void call(const ForceState<S>& at, const S* w, int size, std::array<S*, 2> out, F&& f) const {
    if constexpr (Lanes<S>::value == 1) {
      f(at.q, at.v, at.p + offset, w, out.data());
    } else {
      for (int l = 0; l < Lanes<S>::value; ++l) {
        const auto lane = [&](const S* x, int n) {
          std::vector<double> values(n);
          for (int k = 0; k < n; ++k) values[k] = x[k].lane(l);
          return values;
        };
        const auto q = lane(at.q, at.m.nq), v = lane(at.v, at.m.nv), p = lane(at.p + offset, count);
        const auto motion = lane(w, at.m.nv);
        std::vector<double> results(2 * size);
        double* to[2] = {results.data(), results.data() + size};
        f(q.data(), v.data(), p.data(), motion.data(), to);
        for (int j = 0; j < 2 && out[j] != nullptr; ++j)
          for (int k = 0; k < size; ++k) out[j][k].lane(l) = to[j][k];
      }
    }
  }
};

}  // namespace torsor
