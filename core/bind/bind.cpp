// The module torsor._core, and conversions that all bindings share: models, options, numbers of threads, signals.
#define TORSOR_IMPORT_ARRAY
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string_view>
#include <tuple>

#include "bind/call.hpp"
#include "scalar/complex_step.hpp"

namespace torsor {

PyTypeObject* bind_model(nb::module_& module);  // returns the type of models
void bind_force_set(nb::module_& module);
void bind_constraint_set(nb::module_& module);
void bind_function(nb::module_& module);
void bind_shapes(nb::module_& module);
void bind_simulation(nb::module_& module);
void bind_hard(nb::module_& module);
void bind_configuration(Kernels& kernels);
void bind_constrained_vjp(Kernels& kernels);
void bind_constrained_dynamics(Kernels& kernels);
void bind_constraints(Kernels& kernels);
void bind_coupled(Kernels& kernels);
void bind_coupled_constraints(Kernels& kernels);
void bind_coupled_derivatives(Kernels& kernels);
void bind_coupled_hessians(Kernels& kernels);
void bind_derivatives(Kernels& kernels);
void bind_dynamics(Kernels& kernels);
void bind_forces(Kernels& kernels);
void bind_hessians(Kernels& kernels);
void bind_inertia(Kernels& kernels);
void bind_kinematics(Kernels& kernels);
void bind_kinematics_derivatives(Kernels& kernels);
void bind_momentum(Kernels& kernels);
void bind_vjp(Kernels& kernels);
void bind_steps(Kernels& kernels);
void bind_hard_steps(Kernels& kernels);
void bind_jvp(Kernels& kernels);
void bind_variational(Kernels& kernels);
void bind_rare(RareKernels& kernels);  // of the same files, in cold.cpp

namespace {

PyObject* core_name = nullptr;  // "_core", interned
PyTypeObject* core_type = nullptr;
PyObject* body_name = nullptr;  // "body", interned

}  // namespace

nb::object core_model(nb::handle model) {
  // After its first use the core's model is in the dictionary of the model; a lookup through the type takes three times
  // as long.
  nb::object core;
  if (PyObject** dict = _PyObject_GetDictPtr(model.ptr()); dict != nullptr && *dict != nullptr)
    core = nb::borrow(PyDict_GetItemWithError(*dict, core_name));
  if (!core.is_valid()) core = nb::steal(PyObject_GetAttr(model.ptr(), core_name));
  if (!core.is_valid() || Py_TYPE(core.ptr()) != core_type) {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_AttributeError)) throw nb::python_error();
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "model must be a torsor.Model, got %s; ModelBuilder.build() makes one",
                 Py_TYPE(model.ptr())->tp_name);
    throw nb::python_error();
  }
  return core;
}

nb::object tree_model(nb::handle model, const char* function) {
  nb::object core = core_model(model);
  if (nb::inst_ptr<Model>(core)->coupling) {
    nb::module_::import_("torsor._check").attr("raise_uncoupled")(function);
    throw std::logic_error("torsor: raise_uncoupled returned");
  }
  return core;
}

int thread_count(nb::handle threads) {
  if (PyUnicode_Check(threads.ptr()) && PyUnicode_CompareWithASCIIString(threads.ptr(), "auto") == 0) return 0;
  long n = -1;
  if (PyIndex_Check(threads.ptr()) && !PyBool_Check(threads.ptr())) {
    n = PyLong_AsLong(threads.ptr());
    if (PyErr_Occurred()) PyErr_Clear();
  }
  if (n < 0) {
    PyErr_Format(PyExc_ValueError, "threads is %R, expected an integer, 1 or more, or 'auto' for at most one per core",
                 threads.ptr());
    throw nb::python_error();
  }
  return static_cast<int>(std::min<long>(n, 1 << 16));
}

Options read_options(nb::handle value) {
  Options options;
  if (value.is(body_name)) return options;
  if (!PyDict_Check(value.ptr())) {
    options.axes = nb::cast<int>(nb::module_::import_("torsor._check").attr("axes")(value, "f_ext_frame"));
    return options;
  }
  for (auto [key, item] : nb::cast<nb::dict>(value)) {
    const char* given = PyUnicode_AsUTF8(key.ptr());
    if (given == nullptr) throw nb::python_error();
    const std::string_view name(given);
    if (name == "axes")
      options.axes = nb::cast<int>(item);
    else if (name == "frames")
      options.frames = nb::cast<std::vector<int>>(item);
    else if (name == "prescribed")
      options.prescribed = reinterpret_cast<const unsigned char*>(PyBytes_AsString(item.ptr()));
    else if (name == "direction")
      options.direction = item.is_none() ? nullptr : nb::cast<const ModelT<Dual<double>>*>(item);
    else if (name == "forces")
      options.forces = force_set(item);
    else if (name == "constraints")
      options.constraints = constraint_set(item);
    else if (name == "baumgarte")
      std::tie(options.alpha, options.beta) = nb::cast<std::pair<double, double>>(item);
    else if (name == "compliance")
      options.compliance = nb::cast<double>(item);
    else if (name == "integrator")
      read_integrator(item, options);
    else if (name == "wanted")
      options.wanted = nb::cast<unsigned>(item);
    else
      throw std::invalid_argument("torsor: no such option: " + std::string(name));
  }
  return options;
}

void check_signals() {
  nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace torsor

static int import_numpy() {
  import_array1(-1);
  return 0;
}

NB_MODULE(_core, module) {
  using namespace torsor;
  if (import_numpy() < 0) throw nb::python_error();
  core_name = PyUnicode_InternFromString("_core");
  body_name = PyUnicode_InternFromString("body");
  module.attr("lanes") = kLanes;
  module.attr("cores") = core_count();
#ifdef __clang__
  module.attr("compiler") = "Clang " __clang_version__;
#else
  module.attr("compiler") = "GCC " __VERSION__;
#endif
  module.attr("complex_step") = kStep;
  nb::set_leak_warnings(false);  // models may live until the interpreter ends
  core_type = bind_model(module);
  bind_force_set(module);
  bind_constraint_set(module);
  bind_simulation(module);
  bind_hard(module);
  bind_shapes(module);
  Kernels kernels;
  bind_configuration(kernels);
  bind_constrained_vjp(kernels);
  bind_constrained_dynamics(kernels);
  bind_constraints(kernels);
  bind_derivatives(kernels);
  bind_dynamics(kernels);
  bind_forces(kernels);
  bind_hessians(kernels);
  bind_inertia(kernels);
  bind_kinematics(kernels);
  bind_kinematics_derivatives(kernels);
  bind_momentum(kernels);
  bind_vjp(kernels);
  bind_steps(kernels);
  bind_hard_steps(kernels);
  bind_jvp(kernels);
  bind_variational(kernels);
  bind_coupled(kernels);
  bind_coupled_constraints(kernels);
  bind_coupled_derivatives(kernels);
  bind_coupled_hessians(kernels);
  RareKernels rare;
  bind_rare(rare);
  bind_kernels(module);
  bind_function(module);
}
