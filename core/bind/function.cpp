// torsor._core.Function: a Python function whose common calls go directly to a kernel.
//
// Function(kernel, function, positional, f_ext, constrained) takes the arguments of `function`. A call with exactly
// `positional` positional arguments (the model and the first inputs of the kernel) and no keywords other than out,
// threads and, if `f_ext` is true, f_ext (the last input) calls the kernel with default options. All other calls,
// including invalid ones, are passed to `function`. The decorator `direct` in torsor/_check.py makes these objects.
//
// If `constrained` is true, the second argument is a list or tuple of constraints, and the third input of the kernel is
// the time, 0. Such calls go to the kernel if these constraints were the last ones that were compiled for the model:
// _cache["last_constraints"] is then a tuple of the compiled set and of the constraints.
#include "bind/call.hpp"

#include <structmember.h>

#include <cstddef>
#include <utility>

namespace torsor {
namespace {

struct Function {
  PyObject_HEAD vectorcallfunc vectorcall;
  const BoundKernel* kernel;
  Py_ssize_t positional;
  bool takes_f_ext, constrained;
  PyObject *wrapped, *dict, *weak_references;
};
Function* from(PyObject* self) { return reinterpret_cast<Function*>(self); }

PyObject *out_name = nullptr, *threads_name = nullptr, *f_ext_name = nullptr;  // interned
PyObject *cache_name = nullptr, *last_name = nullptr, *zero = nullptr;

// The compiled constraints, if they are the last ones of the model; a new reference, or null without an exception.
PyObject* compiled_last(PyObject* model, PyObject* constraints) {
  PyObject** dict = _PyObject_GetDictPtr(model);
  PyObject* cache = dict != nullptr && *dict != nullptr ? PyDict_GetItemWithError(*dict, cache_name) : nullptr;
  PyObject* last = cache != nullptr && PyDict_CheckExact(cache) ? PyDict_GetItemWithError(cache, last_name) : nullptr;
  if (last == nullptr || !PyTuple_CheckExact(last) ||
      !(PyList_CheckExact(constraints) || PyTuple_CheckExact(constraints)) ||
      PySequence_Fast_GET_SIZE(constraints) + 1 != PyTuple_GET_SIZE(last)) {
    PyErr_Clear();
    return nullptr;
  }
  for (Py_ssize_t k = 1; k < PyTuple_GET_SIZE(last); ++k)
    if (PySequence_Fast_GET_ITEM(constraints, k - 1) != PyTuple_GET_ITEM(last, k)) return nullptr;
  return Py_NewRef(PyTuple_GET_ITEM(last, 0));
}

PyObject* call(PyObject* self, PyObject* const* arguments, std::size_t flags, PyObject* keywords) noexcept {
  const Function& function = *from(self);
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  const int inputs = function.kernel->inputs;
  PyObject *in[Kernel::kMaxInputs], *out = Py_None, *threads = nullptr;
  bool plain = count == function.positional;
  nb::object set;
  if (plain && function.constrained) {
    set = nb::steal(compiled_last(arguments[0], arguments[1]));
    plain = set.is_valid();
  }
  if (plain) {
    if (function.constrained) {  // q, v, t, tau, ...
      for (int i = 0; i < inputs; ++i) in[i] = Py_None;
      for (Py_ssize_t i = 2; i < count; ++i) in[i < 4 ? i - 2 : i - 1] = arguments[i];
      in[2] = zero;
    } else {
      for (int i = 0; i < inputs; ++i) in[i] = i + 1 < count ? arguments[i + 1] : Py_None;
    }
    const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t k = 0; plain && k < named; ++k) {
      PyObject *name = PyTuple_GET_ITEM(keywords, k), *value = arguments[count + k];
      if (name == out_name)
        out = value;
      else if (name == threads_name)
        threads = value;
      else if (name == f_ext_name && function.takes_f_ext)
        in[inputs - 1] = value;
      else
        plain = false;
    }
  }
  if (!plain) return PyObject_Vectorcall(function.wrapped, arguments, flags, keywords);
  static const Options defaults;
  if (!function.constrained)
    return guarded([&] { return call_kernel(*function.kernel, arguments[0], in, out, threads, defaults); });
  return guarded([&] {
    Options options;
    options.constraints = nb::inst_ptr<const ConstraintSet>(set);
    return call_kernel(*function.kernel, arguments[0], in, out, threads, options);
  });
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) noexcept {
  const char* kernel = nullptr;
  PyObject* wrapped = nullptr;
  Py_ssize_t positional = 0;
  int f_ext = 0, constrained = 0;
  if (!PyArg_ParseTuple(arguments, "sOnpp", &kernel, &wrapped, &positional, &f_ext, &constrained)) return nullptr;
  return guarded([&] {
    const BoundKernel& bound = bound_kernel(kernel);
    if (positional < 1 || positional > bound.inputs + 1) throw std::invalid_argument("torsor: wrong number of inputs");
    nb::object made = nb::steal(type->tp_alloc(type, 0));
    if (!made.is_valid()) throw nb::python_error();
    Function& function = *from(made.ptr());
    function.vectorcall = call;
    function.kernel = &bound;
    function.positional = positional;
    function.takes_f_ext = f_ext != 0;
    function.constrained = constrained != 0;
    function.wrapped = Py_NewRef(wrapped);
    return made;
  });
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(from(self)->wrapped);
  Py_VISIT(from(self)->dict);
  return 0;
}
int clear(PyObject* self) {
  Py_CLEAR(from(self)->dict);
  Py_XDECREF(std::exchange(from(self)->wrapped, Py_NewRef(Py_None)));  // finalizers may still call it
  return 0;
}
void destroy(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (from(self)->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  Py_CLEAR(from(self)->dict);
  Py_CLEAR(from(self)->wrapped);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* represent(PyObject* self) { return PyObject_Repr(from(self)->wrapped); }
// Like a function, it becomes a method when it is an attribute of a class.
PyObject* bind(PyObject* self, PyObject* object, PyObject*) {
  return object == nullptr ? Py_NewRef(self) : PyMethod_New(self, object);
}
// Like functions, it is pickled by name.
PyObject* reduce(PyObject* self, PyObject*) { return PyObject_GetAttrString(from(self)->wrapped, "__qualname__"); }

PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyGetSetDef properties[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Function, vectorcall), READONLY, nullptr},
                         {"__dictoffset__", T_PYSSIZET, offsetof(Function, dict), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(Function, weak_references), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
template <class T>
void* slot(T* value) {
  return reinterpret_cast<void*>(value);
}
PyType_Slot slots[] = {{Py_tp_new, slot(make)},
                       {Py_tp_call, slot(PyVectorcall_Call)},
                       {Py_tp_traverse, slot(traverse)},
                       {Py_tp_clear, slot(clear)},
                       {Py_tp_dealloc, slot(destroy)},
                       {Py_tp_repr, slot(represent)},
                       {Py_tp_descr_get, slot(bind)},
                       {Py_tp_methods, slot(methods)},
                       {Py_tp_getset, slot(properties)},
                       {Py_tp_members, slot(members)},
                       {0, nullptr}};
PyType_Spec specification = {"torsor._core.Function", sizeof(Function), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                 Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE,
                             slots};

}  // namespace

void bind_function(nb::module_& module) {
  out_name = PyUnicode_InternFromString("out");
  threads_name = PyUnicode_InternFromString("threads");
  f_ext_name = PyUnicode_InternFromString("f_ext");
  cache_name = PyUnicode_InternFromString("_cache");
  last_name = PyUnicode_InternFromString("last_constraints");
  zero = PyFloat_FromDouble(0.0);
  const nb::object type = nb::steal(PyType_FromSpec(&specification));
  if (!type.is_valid()) throw nb::python_error();
  module.attr("Function") = type;
}

}  // namespace torsor
