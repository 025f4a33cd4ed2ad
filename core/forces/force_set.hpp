// The forces of a scene, compiled for one model: what acts where, and where its numbers lie in one flat array of parameters,
// the same for all forces, so that a call can be made with other values of them.
#pragma once
#include <algorithm>
#include <cmath>

#include "model/model.hpp"

namespace torsor {

// What is not a number is on no side of a limit, and must come out all the same.
template <class S>
bool is_nan(const S& x) {
  return x != x;
}

// Values over time: linear between rows, constant beyond the first and the last.
struct Table {
  int offset = 0, size = 0;   // number k of row r is parameter offset + size r + k
  std::vector<double> times;  // of the rows; empty for a row that holds at all times
  struct Place {
    int row, next;  // parameters where the two rows begin
    double s;       // the part of the second
  };
  Place place(double t) const {
    if (times.empty()) return {offset, offset, 0.0};
    const int rows = static_cast<int>(times.size());
    const int after = static_cast<int>(std::upper_bound(times.begin(), times.end(), t) - times.begin());
    const int r = std::max(after - 1, 0), next = std::min(after, rows - 1);
    const double s = std::isnan(t) ? t : r < next ? (t - times[r]) / (times[next] - times[r]) : 0.0;
    return {offset + size * r, offset + size * next, s};
  }
  template <class S>
  static S value(const Place& at, const S* p, int k) {
    return mul_add(S(at.s), p[at.next + k] - p[at.row + k], p[at.row + k]);
  }
  template <class S>
  static void add_gradient(const Place& at, const S& g, int k, S* gradient) {
    gradient[at.row + k] += (1.0 - at.s) * g;
    gradient[at.next + k] += at.s * g;
  }
};

// A parameter for each velocity, or one for all of them (stride 0); offset -1: none.
struct PerVelocity {
  int offset = -1, stride = 0;
  int at(int k) const { return offset + stride * k; }
};

// Springs, limits and dampers of one joint of the recursions.
struct JointLaw {
  enum Kind { spring, limits, damper };
  int force;
  Kind kind;
  int body;
  PerVelocity stiffness, damping;
  int rest = 0;              // first parameter of the coordinates at rest
  int lower = 0, upper = 0;  // or of the limits
};
struct TorqueLaw {
  int force;
  int iv;  // first velocity
  Table torque;
};

// A wrench on one body, or damping of its twist.
struct BodyLaw {
  enum Kind { carried, world, aligned, damper };  // carried: given in the body's frame; aligned: in the world's axes
  int force;
  Kind kind;
  int body;
  SE3<double> pose;  // of the user's body in this one
  Table values;
  int frame;  // the user's body
};

// A point of a body of the user's, its coordinates being three parameters.
struct Attachment {
  int body;          // that carries it, or -1
  SE3<double> pose;  // of the user's body in that one, or in the world
  int offset;
  int frame;  // the user's body, or -1
};
// Tension f(l, ldot) of a spring, written by the user. p: its n parameters; out: f, df/dl, df/dldot, df/dp.
struct SpringLaw {
  virtual ~SpringLaw() = default;
  virtual void evaluate(double l, double ldot, const double* p, int n, double* out) const = 0;
  virtual void evaluate(const Complex& l, const Complex& ldot, const Complex* p, int n, Complex* out) const = 0;
  virtual bool has_energy() const = 0;
  virtual double energy(double l, const double* p, int n) const = 0;
  virtual Complex energy(const Complex& l, const Complex* p, int n) const = 0;
};
// Forces on points of bodies that depend on where the points are and how they move.
struct PointLaw {
  enum Kind { push, pull, strain, cable, tension, contact };
  int force;
  Kind kind;
  std::vector<Attachment> points;
  int offset = 0, count = 0;  // of the further parameters
  Table values;               // push
  std::shared_ptr<SpringLaw> law;
};

// A force written by the user, in reduced coordinates. p: its n parameters.
struct CustomForce {
  virtual ~CustomForce() = default;
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
struct CustomLaw {
  int force;
  int offset, count;
  std::shared_ptr<CustomForce> custom;
};

struct ForceSet {
  int forces = 0, parameters = 0;
  std::vector<JointLaw> joints;
  std::vector<TorqueLaw> torques;
  std::vector<BodyLaw> bodies;
  std::vector<PointLaw> points;
  std::vector<CustomLaw> customs;
  std::shared_ptr<const ForceSet>
      given;  // those that are given, not laws of motion; if all energies are known (forces/energy_balance.hpp)
};

}  // namespace torsor
