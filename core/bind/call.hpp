// Kernels as Python functions.
#pragma once
#include "bind/results.hpp"

namespace torsor {

// A kernel and its Python function.
struct BoundKernel : Kernel {
  PyMethodDef method{};
  PyTypeObject* record = &PyTuple_Type;  // type of several results: tuple or a subclass
  mutable KeptResults kept;
};
BoundKernel& bound_kernel(const char* name);  // throws std::invalid_argument if there is none

// Calls a kernel: `inputs` are arrays, or None where they are optional; `out` is None, an array, or for several outputs
// a sequence of arrays; `threads` is null for one thread. Returns an array, or a record of arrays with None for outputs
// that were not requested.
nb::object call_kernel(const BoundKernel& kernel, PyObject* model, PyObject* const* inputs, PyObject* out,
                       PyObject* threads, const Options& options);

// Calls f, which returns an nb::object, and translates C++ exceptions.
template <class F>
PyObject* guarded(F&& f) noexcept {
  try {
    return f().release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

void bind_kernels(nb::module_& module);  // adds all kernels to the module

}  // namespace torsor
