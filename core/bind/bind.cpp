// What all bindings share: models, options, threads, signals and records as Python passes them; and the module itself.
#define TORSOR_IMPORT_ARRAY
#include <string_view>

#include "bind/bind.hpp"
#include "scalar/complex_step.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>

namespace torsor {

PyTypeObject* bind_model(nb::module_& module);  // and the type of models
void bind_configuration(nb::module_& module);
void bind_derivatives(nb::module_& module);
void bind_dynamics(nb::module_& module);
void bind_hessians(nb::module_& module);
void bind_forces(nb::module_& module);
void bind_inertia(nb::module_& module);
void bind_kinematics(nb::module_& module);
void bind_kinematics_derivatives(nb::module_& module);
void bind_momentum(nb::module_& module);
void bind_vjp(nb::module_& module);
void bind_simulation(nb::module_& module);
void bind_steps(nb::module_& module);
void bind_variational(nb::module_& module);
void bind_jvp(nb::module_& module);

namespace {

PyObject* core_name = nullptr;  // "_core", interned
PyTypeObject* core_type = nullptr;
PyObject* body_name = nullptr;  // "body", interned

}  // namespace

nb::object core_model(nb::handle model) {
  // A model keeps it in its dictionary once it was used; the look-up through the type takes three times as long.
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

int thread_count(nb::handle threads) {
  long n = -1;
  if (PyIndex_Check(threads.ptr()) && !PyBool_Check(threads.ptr())) {
    n = PyLong_AsLong(threads.ptr());
    if (PyErr_Occurred()) PyErr_Clear();
  }
  if (n < 0) {
    PyErr_Format(PyExc_ValueError, "threads is %R, expected an integer: 1 or more, or 0 for one thread per core",
                 threads.ptr());
    throw nb::python_error();
  }
  return static_cast<int>(std::min<long>(n, 1 << 16));
}

Options read_options(nb::handle value) {
  Options options;
  if (value.is(body_name)) return options;
  if (!PyDict_Check(value.ptr())) {
    options.axes = nb::cast<int>(check_module().attr("axes")(value, "f_ext_frame"));
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

std::map<std::string, PyTypeObject**>& record_types() {
  static std::map<std::string, PyTypeObject**> types;
  return types;
}
void list_record_type(const char* name, PyTypeObject*& type) { record_types()[name] = &type; }

// Results of the core's function `name` come as a `type`, a kind of tuple.
void set_record_type(const std::string& name, nb::type_object type) {
  auto* kind = reinterpret_cast<PyTypeObject*>(type.ptr());
  if (record_types().count(name) == 0 || !PyType_IsSubtype(kind, &PyTuple_Type))
    throw std::invalid_argument("torsor: not a kind of tuple, or no function of several results: " + name);
  *record_types()[name] = reinterpret_cast<PyTypeObject*>(type.release().ptr());
}

nb::object check_module() { return nb::module_::import_("torsor._check"); }

nb::tuple describe(const Slot& slot) {
  nb::list shape;
  for (int d = 0; d < slot.ndim; ++d) shape.append(slot.shape[d]);
  return nb::make_tuple(slot.name, nb::tuple(shape), slot.optional);
}

void raise_singular(nb::handle model, const Singular& singular, bool batch) {
  check_module().attr("raise_singular")(model, singular.joint,
                                        batch ? nb::object(nb::int_(singular.state)) : nb::none());
  throw std::logic_error("torsor: raise_singular returned");
}
void raise_step_failed(nb::dict given, const StepFailed& failed, bool batch) {
  check_module().attr("raise_step_failed")(given, batch ? nb::object(nb::int_(failed.state)) : nb::none(),
                                           nb::make_tuple(failed.outcome, failed.error, failed.allowed));
  throw std::logic_error("torsor: raise_step_failed returned");
}
void raise_zero_quaternion(nb::handle model, const char* input, const ZeroQuaternion& zero, bool batch) {
  check_module().attr("raise_zero_quaternion")(
      model, input, zero.joint, batch && zero.state >= 0 ? nb::object(nb::int_(zero.state)) : nb::none());
  throw std::logic_error("torsor: raise_zero_quaternion returned");
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
  module.attr("complex_step") = kStep;
  nb::set_leak_warnings(false);  // models that live to the end of the interpreter are not worth a report
  core_type = bind_model(module);
  module.def("set_record_type", set_record_type);
  bind_configuration(module);
  bind_derivatives(module);
  bind_dynamics(module);
  bind_hessians(module);
  bind_forces(module);
  bind_inertia(module);
  bind_kinematics(module);
  bind_kinematics_derivatives(module);
  bind_momentum(module);
  bind_vjp(module);
  bind_simulation(module);
  bind_steps(module);
  bind_variational(module);
  bind_jvp(module);
}
