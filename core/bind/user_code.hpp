// User-defined code in Python that the core calls: arrays in and out, and the objects that it keeps alive.
#pragma once
#include <cstring>

#include "bind/bind.hpp"

namespace torsor {

template <class T>
constexpr int numpy_type = std::is_same_v<T, double> ? NPY_DOUBLE : NPY_CDOUBLE;

// An array (lanes, n).
template <class T>
nb::object new_rows(int lanes, const T* x, int n) {
  npy_intp shape[2] = {lanes, n};
  nb::object array = nb::steal(PyArray_SimpleNew(2, shape, numpy_type<T>));
  if (!array.is_valid()) throw nb::python_error();
  std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())), x, sizeof(T) * lanes * n);
  return array;
}
template <class T>
void read_rows(nb::handle result, int lanes, int n, T* out) {
  auto* array = reinterpret_cast<PyArrayObject*>(result.ptr());
  if (!PyArray_Check(result.ptr()) || PyArray_TYPE(array) != numpy_type<T> || !PyArray_ISCARRAY_RO(array) ||
      PyArray_SIZE(array) != npy_intp(lanes) * n)
    throw std::logic_error("torsor: user-defined code must return one array of the right size");
  std::memcpy(static_cast<void*>(out), PyArray_DATA(array), sizeof(T) * lanes * n);
}

// The Python object whose methods a law or a constraint calls.
struct PythonCode {
  explicit PythonCode(nb::object object) : object(std::move(object)) {}
  virtual ~PythonCode() = default;
  nb::object object;
};

}  // namespace torsor
