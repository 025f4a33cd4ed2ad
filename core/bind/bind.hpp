// From Python's arguments to a kernel's rows. The common case, float64 arrays in C order whose shapes fit, is recognised here
// in a few nanoseconds per argument; anything else is put right, or refused with a message, by torsor/_check.py.
#pragma once
#include <nanobind/nanobind.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL torsor_array_api
#ifndef TORSOR_IMPORT_ARRAY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include <cstring>
#include <optional>

#include "bind/batch.hpp"

namespace torsor {

namespace nb = nanobind;

constexpr int kMaxTrailing = 4;

// What one array of a kernel looks like: the shape of one state's part, behind any batch shape. Inputs of coordinates are those
// named q, q0, q1 and previous q.
struct Slot {
  const char* name;
  int ndim;
  int64_t shape[kMaxTrailing];
  bool optional = false;
  int64_t size() const {
    int64_t s = 1;
    for (int d = 0; d < ndim; ++d) s *= shape[d];
    return s;
  }
  bool is_configuration() const { return name[0] == 'q' || std::strcmp(name, "previous q") == 0; }
};

// Arguments of one call, checked.
struct Call {
  static constexpr int kMaxBatch = 28;
  int batch_ndim = 0;  // -1: no batch seen yet
  npy_intp batch_shape[kMaxBatch];
  int64_t states = 1;
  bool complex = false;
};

inline bool fits(PyObject* object, const Slot& slot, int type) {
  if (!PyArray_CheckExact(object)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  if (PyArray_TYPE(array) != type || !PyArray_ISCARRAY_RO(array) || PyArray_NDIM(array) < slot.ndim) return false;
  const npy_intp* trailing = PyArray_DIMS(array) + PyArray_NDIM(array) - slot.ndim;
  for (int d = 0; d < slot.ndim; ++d)
    if (trailing[d] != slot.shape[d]) return false;
  return PyArray_NDIM(array) - slot.ndim <= Call::kMaxBatch;
}

// Reads input `object`; false if it needs help.
inline bool take_input(PyObject* object, const Slot& slot, Call& call, bool& have_batch, Row& row) {
  if (object == Py_None) return slot.optional;
  if (!fits(object, slot, call.complex ? NPY_CDOUBLE : NPY_DOUBLE)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  const int lead = PyArray_NDIM(array) - slot.ndim;
  row.data = PyArray_DATA(array);
  row.size = slot.size();
  row.stride = lead == 0 ? 0 : row.size;
  if (lead == 0) return true;
  const npy_intp* dims = PyArray_DIMS(array);
  if (!have_batch) {
    have_batch = true;
    call.batch_ndim = lead;
    call.states = 1;
    for (int d = 0; d < lead; ++d) call.states *= call.batch_shape[d] = dims[d];
    return true;
  }
  if (lead != call.batch_ndim) return false;
  for (int d = 0; d < lead; ++d)
    if (dims[d] != call.batch_shape[d]) return false;
  return true;
}

inline bool overlap(const Row& a, int64_t states_a, const Row& b, int64_t states_b, std::size_t item) {
  if (a.data == nullptr || b.data == nullptr) return false;
  const auto lo = [](const Row& r) { return reinterpret_cast<uintptr_t>(r.data); };
  const auto hi = [&](const Row& r, int64_t states) { return lo(r) + item * r.size * (r.stride == 0 ? 1 : states); };
  return lo(a) < hi(b, states_b) && lo(b) < hi(a, states_a);
}

// Checks output `object` against what the call will write; false if it needs help.
inline bool take_output(PyObject* object, const Slot& slot, const Call& call, const Row* in, int inputs, Row& row) {
  if (!fits(object, slot, call.complex ? NPY_CDOUBLE : NPY_DOUBLE)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  if (!PyArray_ISWRITEABLE(array) || PyArray_NDIM(array) - slot.ndim != call.batch_ndim) return false;
  for (int d = 0; d < call.batch_ndim; ++d)
    if (PyArray_DIM(array, d) != call.batch_shape[d]) return false;
  row = {PyArray_DATA(array), slot.size(), slot.size()};
  const std::size_t item = call.complex ? 16 : 8;
  for (int i = 0; i < inputs; ++i)
    if (overlap(row, call.states, in[i], call.states, item)) return false;
  return true;
}

inline nb::object new_output(const Slot& slot, const Call& call, Row& row) {
  npy_intp dims[Call::kMaxBatch + kMaxTrailing];
  int nd = 0;
  for (int d = 0; d < call.batch_ndim; ++d) dims[nd++] = call.batch_shape[d];
  for (int d = 0; d < slot.ndim; ++d) dims[nd++] = slot.shape[d];
  PyObject* array = PyArray_SimpleNew(nd, dims, call.complex ? NPY_CDOUBLE : NPY_DOUBLE);
  if (array == nullptr) throw nb::python_error();
  row = {PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)), slot.size(), slot.size()};
  return nb::steal(array);
}

// Work, in bodies times states, above which the interpreter lock is released.
constexpr int64_t kReleaseAbove = 64;

nb::object core_model(nb::handle model);  // of a torsor.Model
const ForceSet* force_set(nb::handle set);
const VariationalScheme* variational_scheme(nb::handle scheme);
void read_integrator(nb::handle integrator, Options& options);  // its table, or its rule
int thread_count(nb::handle threads);
nb::object check_module();
nb::tuple describe(const Slot& slot);  // as torsor/_check.py takes it: name, shape, whether optional
void check_signals();                  // throws what a signal's handler raises
// Raise a Python error that names the joint and, of a batch, the state.
[[noreturn]] void raise_singular(nb::handle model, const Singular& singular, bool batch);
[[noreturn]] void raise_step_failed(nb::dict given, const StepFailed& failed, bool batch);
[[noreturn]] void raise_zero_quaternion(nb::handle model, const char* input, const ZeroQuaternion& zero, bool batch);

// Whether a kernel takes complex numbers: all but those that run over dual ones (K::has_complex = false).
template <class K, class = void>
struct has_complex : std::true_type {};
template <class K>
struct has_complex<K, std::enable_if_t<!K::has_complex>> : std::false_type {};

template <class K>
void execute(const Model& m, const Options& options, const Call& call, const Row* in, const Row* out, int threads) {
  const auto work = [&] {
    std::optional<Watch> watch;  // where one state may take long, or states are taken one by one
    if (!has_lanes<K>::value || call.complex || m.n() > kReleaseAbove) watch.emplace(check_signals, nullptr);
    if (call.complex) {
      if constexpr (has_complex<K>::value)
        for (int64_t s = 0; s < call.states; ++s) {
          poll();
          run_one<K, Complex>(m, options, in, out, s);
        }
    } else if (call.batch_ndim == 0) {
      run_one<K, double>(m, options, in, out, 0);
    } else {
      run_batch<K>(m, options, in, out, call.states, threads, check_signals);
    }
  };
  if (call.states * m.n() > kReleaseAbove) {
    nb::gil_scoped_release release;
    work();
  } else {
    work();
  }
}

// The type that a kernel's results come in: tuple, or a kind of it that Python gave.
template <class K>
PyTypeObject*& record_type() {
  static PyTypeObject* type = &PyTuple_Type;
  return type;
}
inline nb::object new_record(PyTypeObject* type, Py_ssize_t size) {
  PyObject* record = type == &PyTuple_Type ? PyTuple_New(size) : type->tp_alloc(type, size);
  if (record == nullptr) throw nb::python_error();
  return nb::steal(record);
}
void list_record_type(const char* name, PyTypeObject*& type);  // as that of a function of the core

// A kernel's results as one object: the only one, or a record of them with None for those that were not asked for.
template <class K>
TORSOR_INLINE nb::object pack_results(nb::object* results) {
  if constexpr (K::outputs == 1) {
    return results[0];
  } else {
    nb::object record = new_record(record_type<K>(), K::outputs);
    for (int i = 0; i < K::outputs; ++i)
      PyTuple_SET_ITEM(record.ptr(), i, (results[i].is_valid() ? std::move(results[i]) : nb::none()).release().ptr());
    return record;
  }
}

// What one call of kernel K reads and writes, and the arrays that it returns.
template <class K>
struct Arguments {
  Slot in_slots[K::inputs + 1], out_slots[K::outputs];
  Call call;
  Row in[K::inputs + 1], out[K::outputs];
  nb::object results[K::outputs];

  // Reads the inputs; false if some need help.
  TORSOR_INLINE bool take_inputs(const Model& m, const nb::handle* inputs) {
    bool good = true, have_batch = false;
    for (int i = 0; good && i < K::inputs; ++i)
      good = take_input(inputs[i].ptr(), in_slots[i], call, have_batch, in[i]);
    for (int i = 0; good && !m.quaternions.empty() && i < K::inputs; ++i)
      if (in[i].data != nullptr && in_slots[i].is_configuration())
        in[i].configurations = static_cast<int>(in[i].size / m.nq);
    return good;
  }
  // Checks `given`: an array, or for several outputs a tuple of arrays that do not overlap; false if some need help.
  TORSOR_INLINE bool take_outputs(nb::handle given, unsigned wanted) {
    if constexpr (K::outputs == 1) {
      results[0] = nb::borrow(given);
      return take_output(given.ptr(), out_slots[0], call, in, K::inputs, out[0]);
    } else {
      if (!PyTuple_Check(given.ptr()) || PyTuple_GET_SIZE(given.ptr()) != K::outputs) return false;
      bool good = true;
      for (int i = 0; good && i < K::outputs; ++i) {
        if (!(wanted >> i & 1)) continue;
        results[i] = nb::borrow(PyTuple_GET_ITEM(given.ptr(), i));
        good = take_output(results[i].ptr(), out_slots[i], call, in, K::inputs, out[i]);
        for (int j = 0; good && j < i; ++j)
          good = !overlap(out[i], call.states, out[j], call.states, call.complex ? 16 : 8);
      }
      return good;
    }
  }
  TORSOR_INLINE void make_outputs(unsigned wanted) {
    for (int i = 0; i < K::outputs; ++i)
      if (wanted >> i & 1) results[i] = new_output(out_slots[i], call, out[i]);
  }
};

template <class K>
nb::object call_prepared(nb::handle model, const nb::handle* inputs, nb::handle out, nb::handle threads,
                         const Options& options, const Arguments<K>& arguments);

// Calls kernel K. `out` is None, an array, or for several outputs a sequence of arrays. `prepared`: the arguments come
// from torsor/_check.py, and fit.
template <class K>
nb::object call_kernel(nb::handle model, const nb::handle* inputs, nb::handle out, nb::handle threads_arg,
                       const Options& options, bool prepared = false, bool complex = false) {
  const nb::object core = core_model(model);  // held: another thread may be the first to use this model too
  const Model& m = *nb::inst_ptr<Model>(core);
  const int threads = thread_count(threads_arg);
  Arguments<K> a;
  K::slots(m, options, a.in_slots, a.out_slots);
  a.call.complex = complex;
  if (!a.take_inputs(m, inputs) || (!out.is_none() && !a.take_outputs(out, options.wanted))) {
    if (prepared) throw std::logic_error("torsor: arguments do not fit after they were prepared");
    return call_prepared<K>(model, inputs, out, threads_arg, options, a);
  }
  if (out.is_none()) a.make_outputs(options.wanted);
  try {
    execute<K>(m, options, a.call, a.in, a.out, threads);
  } catch (const Singular& singular) {
    raise_singular(model, singular, a.call.batch_ndim > 0);
  } catch (const StepFailed& failed) {
    nb::dict given;
    for (int i = 0; i < K::inputs; ++i) given[a.in_slots[i].name] = inputs[i];
    raise_step_failed(given, failed, a.call.batch_ndim > 0);
  } catch (const ZeroQuaternion& zero) {
    raise_zero_quaternion(model, a.in_slots[zero.input].name, zero, a.call.batch_ndim > 0);
  }
  return pack_results<K>(a.results);
}

// The same where arguments need help: torsor/_check.py converts or refuses them.
template <class K>
nb::object call_prepared(nb::handle model, const nb::handle* inputs, nb::handle out, nb::handle threads,
                         const Options& options, const Arguments<K>& arguments) {
  nb::list in_list, in_shapes, out_shapes;
  for (int i = 0; i < K::inputs; ++i) {
    in_list.append(inputs[i]);
    in_shapes.append(describe(arguments.in_slots[i]));
  }
  for (int i = 0; i < K::outputs; ++i)
    out_shapes.append(options.wanted >> i & 1 ? nb::object(describe(arguments.out_slots[i])) : nb::none());
  // (inputs, outputs or None, what to return or None, whether complex)
  nb::tuple ready = nb::cast<nb::tuple>(check_module().attr("prepare")(model, in_shapes, in_list, out_shapes, out));
  if (nb::cast<bool>(ready[3]) && !has_complex<K>::value) {
    PyErr_SetString(PyExc_TypeError, "this function takes real numbers only: it differentiates already");
    throw nb::python_error();
  }
  nb::tuple arrays = nb::cast<nb::tuple>(ready[0]);
  nb::object held[K::inputs + 1];
  nb::handle again[K::inputs + 1];
  for (int i = 0; i < K::inputs; ++i) again[i] = (held[i] = arrays[i]);
  nb::object result = call_kernel<K>(model, again, ready[1], threads, options, true, nb::cast<bool>(ready[3]));
  if (ready[2].is_none()) return result;
  nb::object finished = ready[2](result);
  if constexpr (K::outputs > 1) {
    nb::object results[K::outputs];
    for (int i = 0; i < K::outputs; ++i) results[i] = nb::borrow(PyTuple_GET_ITEM(finished.ptr(), i));
    return pack_results<K>(results);
  }
  return finished;
}

// Options from Python: a dict of what differs from the defaults, or just the frame of f_ext (str).
Options read_options(nb::handle value);

// The Python function of kernel K, in the interpreter's own calling convention: a call costs a third of a bound one's.
template <class K>
PyObject* kernel_function(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  constexpr Py_ssize_t expected = K::inputs + K::has_options + 3;
  try {
    if (count != expected) throw std::invalid_argument("torsor: wrong number of arguments for a function of the core");
    nb::handle in[K::inputs];
    for (int i = 0; i < K::inputs; ++i) in[i] = arguments[1 + i];
    const nb::handle out = arguments[expected - 2], threads = arguments[expected - 1];
    if constexpr (K::has_options)
      return call_kernel<K>(arguments[0], in, out, threads, read_options(arguments[1 + K::inputs])).release().ptr();
    else
      return call_kernel<K>(arguments[0], in, out, threads, Options{}).release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// Makes kernel K the Python function name(model, *inputs, [options,] out, threads).
template <class K>
void def_kernel(nb::module_& module, const char* name) {
  static PyMethodDef methods[] = {{nullptr, nullptr, METH_FASTCALL, nullptr}, {nullptr, nullptr, 0, nullptr}};
  methods[0].ml_name = name;
  methods[0].ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kernel_function<K>));
  if (PyModule_AddFunctions(module.ptr(), methods) != 0) throw nb::python_error();
  if constexpr (K::outputs > 1) list_record_type(name, record_type<K>());
}

}  // namespace torsor
