// torsor._core.Function: a Python function whose common calls go directly to a kernel.
//
// Function(kernel, function, positional, f_ext) takes the arguments of `function`. A call with exactly `positional`
// positional arguments (the model and the first inputs of the kernel) and no keywords other than out, threads and, if
// `f_ext` is true, f_ext (the last input) calls the kernel with default options. All other calls, including invalid
// ones, are passed to `function`. The decorator `direct` in torsor/_check.py makes these objects.
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
  bool takes_f_ext;
  PyObject *wrapped, *dict, *weak_references;
};
Function* from(PyObject* self) { return reinterpret_cast<Function*>(self); }

PyObject *out_name = nullptr, *threads_name = nullptr, *f_ext_name = nullptr;  // interned

PyObject* call(PyObject* self, PyObject* const* arguments, std::size_t flags, PyObject* keywords) noexcept {
  const Function& function = *from(self);
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  const int inputs = function.kernel->inputs;
  PyObject *in[Kernel::kMaxInputs], *out = Py_None, *threads = nullptr;
  bool plain = count == function.positional;
  if (plain) {
    for (int i = 0; i < inputs; ++i) in[i] = i + 1 < count ? arguments[i + 1] : Py_None;
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
  return guarded([&] { return call_kernel(*function.kernel, arguments[0], in, out, threads, defaults); });
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) noexcept {
  const char* kernel = nullptr;
  PyObject* wrapped = nullptr;
  Py_ssize_t positional = 0;
  int f_ext = 0;
  if (!PyArg_ParseTuple(arguments, "sOnp", &kernel, &wrapped, &positional, &f_ext)) return nullptr;
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
  const nb::object type = nb::steal(PyType_FromSpec(&specification));
  if (!type.is_valid()) throw nb::python_error();
  module.attr("Function") = type;
}

}  // namespace torsor
