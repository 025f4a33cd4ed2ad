#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.hpp"
#include "forces/energy_balance.hpp"

namespace torsor {
namespace {

template <class T>
constexpr int numpy_type = std::is_same_v<T, double> ? NPY_DOUBLE : NPY_CDOUBLE;

template <class T>
nb::object new_array(const T* x, int n) {
  npy_intp size = n;
  nb::object array = nb::steal(PyArray_SimpleNew(1, &size, numpy_type<T>));
  if (!array.is_valid()) throw nb::python_error();
  std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())), x, sizeof(T) * n);
  return array;
}
template <class T>
void read_array(nb::handle result, int n, T* out) {
  auto* array = reinterpret_cast<PyArrayObject*>(result.ptr());
  if (!PyArray_Check(result.ptr()) || PyArray_TYPE(array) != numpy_type<T> || !PyArray_ISCARRAY_RO(array) ||
      PyArray_SIZE(array) != n)
    throw std::logic_error("torsor: a force written in Python must return one array");
  std::memcpy(static_cast<void*>(out), PyArray_DATA(array), sizeof(T) * n);
}

// A spring whose tension a Python object's _tension(l, ldot, p) computes.
class PythonSpringLaw final : public SpringLaw {
 public:
  explicit PythonSpringLaw(nb::object spring)
      : spring_(std::move(spring)), has_energy_(nb::cast<bool>(spring_.attr("has_energy"))) {}
  void evaluate(double l, double ldot, const double* p, int n, double* out) const override { call(l, ldot, p, n, out); }
  void evaluate(const Complex& l, const Complex& ldot, const Complex* p, int n, Complex* out) const override {
    call(l, ldot, p, n, out);
  }
  bool has_energy() const override { return has_energy_; }
  double energy(double l, const double* p, int n) const override { return call(l, p, n); }
  Complex energy(const Complex& l, const Complex* p, int n) const override { return call(l, p, n); }
  nb::object spring_;

 private:
  const bool has_energy_;
  template <class T>
  void call(const T& l, const T& ldot, const T* p, int n, T* out) const {
    nb::gil_scoped_acquire acquire;
    const T x[2] = {l, ldot};
    read_array(spring_.attr("_tension")(new_array(x, 2), new_array(p, n)), 3 + n, out);
  }
  template <class T>
  T call(const T& l, const T* p, int n) const {
    nb::gil_scoped_acquire acquire;
    T energy;
    read_array(spring_.attr("_energy")(new_array(&l, 1), new_array(p, n)), 1, &energy);
    return energy;
  }
};

// A force that a Python object computes in reduced coordinates.
class PythonForce final : public CustomForce {
 public:
  PythonForce(nb::object force, const Model& m, int count)
      : force_(std::move(force)), nq_(m.nq), nv_(m.nv), n_(count) {}
  void value(const double* q, const double* v, double t, const double* p, double* tau) const override {
    call(q, v, t, p, tau);
  }
  void value(const Complex* q, const Complex* v, double t, const Complex* p, Complex* tau) const override {
    call(q, v, t, p, tau);
  }
  void derivatives(const double* q, const double* v, double t, const double* p, double* K, double* D) const override {
    call(q, v, t, p, K, D);
  }
  void derivatives(const Complex* q, const Complex* v, double t, const Complex* p, Complex* K,
                   Complex* D) const override {
    call(q, v, t, p, K, D);
  }
  double energy(const double* q, double t, const double* p) const override { return call(q, t, p); }
  Complex energy(const Complex* q, double t, const Complex* p) const override { return call(q, t, p); }
  void gradient(const double* q, const double* v, double t, const double* p, const double* w,
                double* g) const override {
    call_gradient(q, v, t, p, w, g);
  }
  void gradient(const Complex* q, const Complex* v, double t, const Complex* p, const Complex* w,
                Complex* g) const override {
    call_gradient(q, v, t, p, w, g);
  }
  nb::object force_;

 private:
  template <class T>
  void call(const T* q, const T* v, double t, const T* p, T* K, T* D) const {
    nb::gil_scoped_acquire acquire;
    nb::tuple both =
        nb::cast<nb::tuple>(force_.attr("_derivatives")(new_array(q, nq_), new_array(v, nv_), t, new_array(p, n_)));
    read_array(both[0], nv_ * nv_, K);
    read_array(both[1], nv_ * nv_, D);
  }
  template <class T>
  void call_gradient(const T* q, const T* v, double t, const T* p, const T* w, T* g) const {
    if (n_ == 0) return;
    nb::gil_scoped_acquire acquire;
    read_array(force_.attr("_gradient")(new_array(q, nq_), new_array(v, nv_), t, new_array(p, n_), new_array(w, nv_)),
               n_, g);
  }
  template <class T>
  void call(const T* q, const T* v, double t, const T* p, T* tau) const {
    nb::gil_scoped_acquire acquire;
    read_array(force_.attr("_value")(new_array(q, nq_), new_array(v, nv_), t, new_array(p, n_)), nv_, tau);
  }
  template <class T>
  T call(const T* q, double t, const T* p) const {
    nb::gil_scoped_acquire acquire;
    T energy;
    read_array(force_.attr("_energy")(new_array(q, nq_), t, new_array(p, n_)), 1, &energy);
    return energy;
  }
  int nq_, nv_, n_;
};

// A table is (times, offset, size), a parameter for each velocity is (offset, stride).
Table read_table(nb::handle item) {
  nb::tuple t = nb::cast<nb::tuple>(item);
  return {nb::cast<int>(t[1]), nb::cast<int>(t[2]), nb::cast<std::vector<double>>(t[0])};
}
PerVelocity read_per_velocity(nb::handle item) {
  const auto [offset, stride] = nb::cast<std::pair<int, int>>(item);
  return {offset, stride};
}

// ("joint", kind, joint or -1 for all, stiffness, damping, rest or lower, upper); the joint's, or the model's, first numbers lie
// where these offsets say.
void read_joint(const Model& m, int force, nb::tuple t, ForceSet& set) {
  const auto kind = static_cast<JointLaw::Kind>(nb::cast<int>(t[1]));
  const int joint = nb::cast<int>(t[2]), q0 = nb::cast<int>(t[3]), v0 = nb::cast<int>(t[4]);
  const auto from = [&](PerVelocity p, int iv) -> PerVelocity {
    return {p.offset < 0 ? -1 : p.offset + p.stride * (iv - v0), p.stride};
  };
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    if (joint >= 0 && body.joint != joint) continue;
    JointLaw law{force, kind, i, from(read_per_velocity(t[5]), body.iv), from(read_per_velocity(t[6]), body.iv)};
    law.rest = law.lower = nb::cast<int>(t[7]) + body.iq - q0;
    law.upper = nb::cast<int>(t[8]) + body.iq - q0;
    if (kind == JointLaw::limits && rotation_velocities(body.kind) > 0) continue;
    set.joints.push_back(law);
  }
}
Attachment read_attachment(const Model& m, nb::handle item) {  // (index of the user's body or -1, offset)
  const auto [frame, offset] = nb::cast<std::pair<int, int>>(item);
  if (frame < 0) return {-1, {identity3<double>(), zero3<double>()}, offset, -1};
  return {m.frames[frame].body, m.frames[frame].pose, offset, frame};
}

// parts: tuples (force, part), each part as the readers above and below have it.
void build_forces(ForceSet* set, const Model& m, int forces, int parameters, nb::list parts) {
  new (set) ForceSet();
  set->forces = forces;
  set->parameters = parameters;
  for (nb::handle item : parts) {
    const int force = nb::cast<int>(nb::cast<nb::tuple>(item)[0]);
    nb::tuple t = nb::cast<nb::tuple>(nb::cast<nb::tuple>(item)[1]);
    const auto name = nb::cast<std::string>(t[0]);
    if (name == "joint") {
      read_joint(m, force, t, *set);
    } else if (name == "torque") {  // (first velocity, table)
      set->torques.push_back({force, nb::cast<int>(t[1]), read_table(t[2])});
    } else if (name == "body") {  // (kind, body, table)
      const int body = nb::cast<int>(t[2]);
      const Model::Frame& frame = m.frames[body];
      if (frame.body < 0) continue;  // fixed to the world
      set->bodies.push_back(
          {force, static_cast<BodyLaw::Kind>(nb::cast<int>(t[1])), frame.body, frame.pose, read_table(t[3]), body});
    } else if (name == "points") {  // (kind, attachments, table or None, offset, count, spring or None)
      PointLaw law{force, static_cast<PointLaw::Kind>(nb::cast<int>(t[1])), {}, 0, 0, {}, nullptr};
      for (nb::handle point : t[2]) law.points.push_back(read_attachment(m, point));
      if (!t[3].is_none()) law.values = read_table(t[3]);
      law.offset = nb::cast<int>(t[4]);
      law.count = nb::cast<int>(t[5]);
      if (!t[6].is_none()) law.law = std::make_shared<PythonSpringLaw>(nb::object(t[6]));
      set->points.push_back(std::move(law));
    } else {  // "custom", (force, offset, count)
      const int count = nb::cast<int>(t[3]);
      set->customs.push_back(
          {force, nb::cast<int>(t[2]), count, std::make_shared<PythonForce>(nb::object(t[1]), m, count)});
    }
  }
  if (has_balance(*set)) set->given = std::make_shared<const ForceSet>(given_forces(*set));
}

// For the garbage collector: a force written in Python may refer back to what it is part of.
template <class F>
int for_each_object(PyObject* self, F&& f) {
  auto& set = *nb::inst_ptr<ForceSet>(self);
  for (auto& law : set.points)
    if (law.law)
      if (const int result = f(static_cast<PythonSpringLaw*>(law.law.get())->spring_)) return result;
  for (auto& law : set.customs)
    if (const int result = f(static_cast<PythonForce*>(law.custom.get())->force_)) return result;
  return 0;
}
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  return for_each_object(self, [&](nb::object& object) { return visit(object.ptr(), arg); });
}
int clear(PyObject* self) {
  return for_each_object(self, [](nb::object& object) {
    object = nb::none();
    return 0;
  });
}
PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

double real_part(double x) { return x; }
double real_part(const Complex& x) { return x.real(); }

void state_slots(const Model& m, const Options& options, Slot* in) {
  in[0] = {"q", 1, {m.nq}};
  in[1] = {"v", 1, {m.nv}};
  in[2] = {"t", 0, {}};
  in[3] = {"parameters", 1, {options.forces->parameters}};
}

struct GeneralizedForces {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true, has_lanes = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    state_slots(m, options, in);
    out[0] = {"tau", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    generalized_forces(m, *options.forces, arena, in[0], in[1], real_part(*in[2]), in[3], out[0]);
  }
};

struct GeneralizedForcesDerivatives {
  static constexpr int inputs = 4, outputs = 2;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    state_slots(m, options, in);
    out[0] = {"dtau_dq", 2, {m.nv, m.nv}};
    out[1] = {"dtau_dv", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    generalized_forces_derivatives(m, *options.forces, arena, in[0], in[1], *in[2], in[3], out[0], out[1]);
  }
};

struct ForceEnergies {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true, has_lanes = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    state_slots(m, options, in);
    out[0] = {"energies", 1, {options.forces->forces}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    S* rest = arena.get<S>(m.nv);
    for (int k = 0; k < m.nv; ++k) rest[k] = S(0.0);
    const auto all = motions(m, arena, in[0], in[1], rest, false);
    force_energies(m, *options.forces, arena, all, in[0], in[1], real_part(*in[2]), in[3], out[0]);
  }
};

struct GeneralizedForcesVjp {
  static constexpr int inputs = 5, outputs = 3;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    state_slots(m, options, in);
    in[4] = {"w", 1, {m.nv}};
    out[0] = {"q", 1, {m.nv}};
    out[1] = {"v", 1, {m.nv}};
    out[2] = {"parameters", 1, {options.forces->parameters}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    S *K = arena.get<S>(m.nv * m.nv), *D = arena.get<S>(m.nv * m.nv);
    const auto all = generalized_forces_derivatives(m, *options.forces, arena, in[0], in[1], *in[2], in[3], K, D);
    for (int k = 0; k < m.nv; ++k) out[0][k] = out[1][k] = 0.0;
    for (int j = 0; j < m.nv; ++j)
      for (int k = 0; k < m.nv; ++k) {
        out[0][k] = mul_add(in[4][j], K[j * m.nv + k], out[0][k]);
        out[1][k] = mul_add(in[4][j], D[j * m.nv + k], out[1][k]);
      }
    for (int k = 0; k < options.forces->parameters; ++k) out[2][k] = 0.0;
    force_parameter_gradient(m, *options.forces, arena, all, in[0], in[1], *in[2], in[3], in[4], out[2]);
  }
};

}  // namespace

const ForceSet* force_set(nb::handle set) { return nb::cast<const ForceSet*>(set); }

void bind_forces(nb::module_& module) {
  nb::class_<ForceSet>(module, "ForceSet", nb::type_slots(slots)).def("__init__", build_forces);
  def_kernel<GeneralizedForces>(module, "generalized_forces");
  def_kernel<GeneralizedForcesDerivatives>(module, "generalized_forces_derivatives");
  def_kernel<ForceEnergies>(module, "force_energies");
  def_kernel<GeneralizedForcesVjp>(module, "generalized_forces_vjp");
}

}  // namespace torsor
