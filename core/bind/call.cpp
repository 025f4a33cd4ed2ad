// Calls of kernels from Python. The common arguments, float64 arrays in C order with the right shapes, are recognised
// here in a few nanoseconds each; torsor/_check.py converts or rejects all others.
#include "bind/call.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <string>

#include "base/blocks.hpp"

namespace torsor {
namespace {

// The batch of a call.
struct Call {
  static constexpr int kMaxBatch = 28;
  int batch_ndim = 0;
  npy_intp batch_shape[kMaxBatch];
  int64_t states = 1;
  bool complex;
  explicit Call(bool complex) : complex(complex) {}
  int type() const { return complex ? NPY_CDOUBLE : NPY_DOUBLE; }
  std::size_t item() const { return complex ? 16 : 8; }
};

bool fits(PyObject* object, const Slot& slot, int type) {
  if (!PyArray_CheckExact(object)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  if (PyArray_TYPE(array) != type || !PyArray_ISCARRAY_RO(array) || PyArray_NDIM(array) < slot.ndim) return false;
  const npy_intp* trailing = PyArray_DIMS(array) + PyArray_NDIM(array) - slot.ndim;
  for (int d = 0; d < slot.ndim; ++d)
    if (trailing[d] != slot.shape[d]) return false;
  return PyArray_NDIM(array) - slot.ndim <= Call::kMaxBatch;
}

// Reads an input; false if it must be converted. A Python float is a number that all states share: `number` holds it.
bool take_input(PyObject* object, const Slot& slot, Call& call, bool& have_batch, double& number, Row& row) {
  row = {};
  if (object == Py_None) return slot.optional;
  if (slot.ndim == 0 && !call.complex && PyFloat_CheckExact(object)) {
    number = PyFloat_AS_DOUBLE(object);
    row = {&number, 1, 0, 0};
    return true;
  }
  if (!fits(object, slot, call.type())) return false;
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
    for (int d = 0; d < lead; ++d) call.states *= call.batch_shape[d] = dims[d];
    return true;
  }
  return lead == call.batch_ndim && std::equal(dims, dims + lead, call.batch_shape);
}

bool overlap(const Row& a, const Row& b, const Call& call) {
  if (a.data == nullptr || b.data == nullptr) return false;
  const auto lo = [](const Row& r) { return reinterpret_cast<uintptr_t>(r.data); };
  const auto hi = [&](const Row& r) { return lo(r) + call.item() * r.size * (r.stride == 0 ? 1 : call.states); };
  return lo(a) < hi(b) && lo(b) < hi(a);
}

// The arrays that a call of a kernel reads and writes.
class Arguments {
 public:
  Arguments(const BoundKernel& kernel, const Kernel& used, const Model& m, const Options& options, bool complex)
      : call(complex), kernel_(kernel), points_(manifold(m)), wanted_(options.wanted) {
    used.slots(m, options, in_slots, out_slots);
    for (int i = 0; i < kernel.outputs; ++i) out[i] = {};
  }

  Call call;
  Slot in_slots[Kernel::kMaxInputs], out_slots[Kernel::kMaxOutputs];
  Row in[Kernel::kMaxInputs], out[Kernel::kMaxOutputs];
  bool wanted(int output) const { return wanted_ >> output & 1; }

  // Reads the inputs; false if some must be converted.
  bool take_inputs(PyObject* const* inputs) {
    bool have_batch = false;
    for (int i = 0; i < kernel_.inputs; ++i)
      if (!take_input(inputs[i], in_slots[i], call, have_batch, numbers_[i], in[i])) return false;
    if (points_.quaternions.empty()) return true;
    for (int i = 0; i < kernel_.inputs; ++i)
      if (in[i].data != nullptr && in_slots[i].is_configuration())
        in[i].configurations = static_cast<int>(in[i].size / points_.nq);
    return true;
  }
  // Takes `given` as outputs: an array, or a tuple of arrays that do not overlap; false if some must be converted.
  bool take_outputs(PyObject* given) {
    if (kernel_.outputs == 1) {
      if (!take_output(0, given)) return false;
      result_ = nb::borrow(given);
      return true;
    }
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != kernel_.outputs) return false;
    PyObject* arrays[Kernel::kMaxOutputs];
    for (int i = 0; i < kernel_.outputs; ++i) {
      arrays[i] = nullptr;
      if (!wanted(i)) continue;
      arrays[i] = PyTuple_GET_ITEM(given, i);
      if (!take_output(i, arrays[i])) return false;
      for (int j = 0; j < i; ++j)
        if (overlap(out[i], out[j], call)) return false;
    }
    for (int i = 0; i < kernel_.outputs; ++i) Py_XINCREF(arrays[i]);
    set_result(arrays);
    return true;
  }
  // Makes the outputs, or takes kept ones that nobody holds.
  void make_outputs() {
    KeptResults& kept = kernel_.kept;
    const ResultShapes shapes{call.batch_ndim, call.batch_shape, out_slots, kernel_.outputs, wanted_};
    result_ = nb::steal(call.complex ? nullptr : kept.take(shapes));
    if (!result_.is_valid()) {
      PyObject* arrays[Kernel::kMaxOutputs] = {};
      for (int i = 0; i < kernel_.outputs; ++i)
        if (wanted(i) && (arrays[i] = make_output(out_slots[i])) == nullptr) {
          while (--i >= 0) Py_XDECREF(arrays[i]);
          throw nb::python_error();
        }
      set_result(arrays);
      if (!call.complex) kept.keep(result_.ptr());
    }
    for (int i = 0; i < kernel_.outputs; ++i)
      if (wanted(i)) write_to(i, kernel_.outputs == 1 ? result_.ptr() : PyTuple_GET_ITEM(result_.ptr(), i));
  }
  // The result: an array, or a record of arrays with None for outputs that were not requested.
  nb::object result() { return std::move(result_); }

 private:
  bool take_output(int i, PyObject* object) {
    if (!fits(object, out_slots[i], call.type())) return false;
    auto* array = reinterpret_cast<PyArrayObject*>(object);
    if (!PyArray_ISWRITEABLE(array) || PyArray_NDIM(array) - out_slots[i].ndim != call.batch_ndim ||
        !std::equal(call.batch_shape, call.batch_shape + call.batch_ndim, PyArray_DIMS(array)))
      return false;
    write_to(i, object);
    for (int j = 0; j < kernel_.inputs; ++j)
      if (overlap(out[i], in[j], call)) return false;
    return true;
  }
  PyObject* make_output(const Slot& slot) const {
    npy_intp dims[Call::kMaxBatch + kMaxTrailing];
    std::copy_n(call.batch_shape, call.batch_ndim, dims);
    std::copy_n(slot.shape, slot.ndim, dims + call.batch_ndim);
    return new_array(call.batch_ndim + slot.ndim, dims, call.type());
  }
  void write_to(int i, PyObject* array) {
    const int64_t size = out_slots[i].size();
    out[i] = {PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)), size, size, 0};
  }
  // Makes the arrays, references to which it takes over, the result.
  void set_result(PyObject** arrays) {
    result_ = nb::steal(kernel_.outputs == 1 ? arrays[0] : new_record(kernel_.record, arrays, kernel_.outputs));
    if (result_.is_valid()) return;
    for (int i = 0; i < kernel_.outputs; ++i) Py_XDECREF(arrays[i]);
    throw nb::python_error();
  }

  const BoundKernel& kernel_;
  const Model& points_;
  const unsigned wanted_;
  double numbers_[Kernel::kMaxInputs];
  nb::object result_;
};

// Number of bodies times states above which the interpreter lock is released.
constexpr int64_t kReleaseAbove = 64;

void execute(const Kernel& kernel, const Model& m, const Options& options, const Call& call, const Row* in,
             const Row* out, int threads) {
  const auto work = [&] {
    const bool direction = options.direction != nullptr && kernel.along_direction != nullptr;
    const Kernel::RunOne one = call.complex ? kernel.over_complex : direction ? kernel.along_direction : kernel.one;
    const Kernel::RunLanes lanes = call.complex || direction ? nullptr : kernel.lanes;
    std::optional<Watch> watch;  // if one state may take long, or states are computed one by one
    if (lanes == nullptr || m.n() > kReleaseAbove) watch.emplace(check_signals, nullptr);
    if (call.batch_ndim == 0)
      one(m, options, in, out, 0);
    else
      run_batch(kernel, one, lanes, m, options, in, out, call.states, threads, check_signals);
  };
  if (call.states * m.n() > kReleaseAbove) {
    nb::gil_scoped_release release;
    work();
  } else {
    work();
  }
}

nb::object check_module() { return nb::module_::import_("torsor._check"); }

// Raise a Python exception that names the joint and, in a batch, the state.
[[noreturn]] void raise_singular(nb::handle model, const Singular& singular, bool batch) {
  check_module().attr("raise_singular")(model, singular.joint,
                                        batch ? nb::object(nb::int_(singular.state)) : nb::none());
  throw std::logic_error("torsor: raise_singular returned");
}
[[noreturn]] void raise_contradiction(const Options& options, const Contradiction& found, bool batch) {
  check_module().attr("raise_contradiction")(row_names(options.constraints), found.row, found.others,
                                             batch ? nb::object(nb::int_(found.state)) : nb::none());
  throw std::logic_error("torsor: raise_contradiction returned");
}
[[noreturn]] void raise_step_failed(nb::dict given, const StepFailed& failed, bool batch) {
  check_module().attr("raise_step_failed")(given, batch ? nb::object(nb::int_(failed.state)) : nb::none(),
                                           nb::make_tuple(failed.outcome, failed.error, failed.allowed));
  throw std::logic_error("torsor: raise_step_failed returned");
}
[[noreturn]] void raise_zero_quaternion(nb::handle model, const char* input, const ZeroQuaternion& zero, bool batch) {
  check_module().attr("raise_zero_quaternion")(
      model, input, zero.joint, batch && zero.state >= 0 ? nb::object(nb::int_(zero.state)) : nb::none());
  throw std::logic_error("torsor: raise_zero_quaternion returned");
}

nb::object call_prepared(const BoundKernel& kernel, const Kernel& used, PyObject* model, PyObject* const* inputs,
                         PyObject* out, PyObject* threads, const Options& options, const Arguments& arguments);

// The kernel for a model with couplings.
const Kernel& coupled_of(const BoundKernel& kernel) {
  if (kernel.on_coordinates) return kernel;
  if (!kernel.coupled) {
    check_module().attr("raise_uncoupled")(kernel.method.ml_name);
    throw std::logic_error("torsor: raise_uncoupled returned");
  }
  return *kernel.coupled;
}

// `prepared`: torsor/_check.py has converted the arguments.
nb::object call_kernel(const BoundKernel& kernel, PyObject* model, PyObject* const* inputs, PyObject* out,
                       PyObject* threads_arg, const Options& options, bool prepared, bool complex) {
  const nb::object core = core_model(model);  // a reference: another thread may replace it at the first use
  const Model& given = *nb::inst_ptr<Model>(core);
  const Kernel& used = given.coupling == nullptr ? kernel : coupled_of(kernel);
  const Model& m = kernel.on_coordinates ? manifold(given) : given;
  const int threads = threads_arg == nullptr ? 1 : thread_count(threads_arg);
  Arguments a(kernel, used, m, options, complex);
  if (!a.take_inputs(inputs) || (out != Py_None && !a.take_outputs(out))) {
    if (prepared) throw std::logic_error("torsor: arguments do not fit after they were prepared");
    return call_prepared(kernel, used, model, inputs, out, threads_arg, options, a);
  }
  if (out == Py_None) a.make_outputs();
  const bool batch = a.call.batch_ndim > 0;
  try {
    execute(used, m, options, a.call, a.in, a.out, threads);
  } catch (const Singular& singular) {
    raise_singular(model, singular, batch);
  } catch (const Contradiction& found) {
    raise_contradiction(options, found, batch);
  } catch (const StepFailed& failed) {
    nb::dict given;
    for (int i = 0; i < kernel.inputs; ++i) given[a.in_slots[i].name] = nb::handle(inputs[i]);
    raise_step_failed(given, failed, batch);
  } catch (const ZeroQuaternion& zero) {
    raise_zero_quaternion(model, a.in_slots[zero.input].name, zero, batch);
  }
  return a.result();
}

// A slot in the form of torsor/_check.py: name, shape, whether it is optional.
nb::tuple describe(const Slot& slot) {
  nb::list shape;
  for (int d = 0; d < slot.ndim; ++d) shape.append(slot.shape[d]);
  return nb::make_tuple(slot.name, nb::tuple(shape), slot.optional);
}

// Calls a kernel with arguments that torsor/_check.py converts or rejects.
nb::object call_prepared(const BoundKernel& kernel, const Kernel& used, PyObject* model, PyObject* const* inputs,
                         PyObject* out, PyObject* threads, const Options& options, const Arguments& arguments) {
  nb::list in_list, in_shapes, out_shapes;
  for (int i = 0; i < kernel.inputs; ++i) {
    in_list.append(nb::handle(inputs[i]));
    in_shapes.append(describe(arguments.in_slots[i]));
  }
  for (int i = 0; i < kernel.outputs; ++i)
    out_shapes.append(arguments.wanted(i) ? nb::object(describe(arguments.out_slots[i])) : nb::none());
  // (inputs, outputs or None, function of the result or None, whether complex)
  const auto ready = nb::cast<nb::tuple>(
      check_module().attr("prepare")(nb::handle(model), in_shapes, in_list, out_shapes, nb::handle(out), options.axes));
  const bool complex = nb::cast<bool>(ready[3]);
  if (complex && used.over_complex == nullptr) {
    PyErr_SetString(PyExc_TypeError, "this function takes real numbers only: it differentiates already");
    throw nb::python_error();
  }
  const auto arrays = nb::cast<nb::tuple>(ready[0]);
  PyObject* again[Kernel::kMaxInputs];
  for (int i = 0; i < kernel.inputs; ++i) again[i] = PyTuple_GET_ITEM(arrays.ptr(), i);
  nb::object result =
      call_kernel(kernel, model, again, PyTuple_GET_ITEM(ready.ptr(), 1), threads, options, true, complex);
  if (ready[2].is_none()) return result;
  nb::object finished = ready[2](result);
  if (kernel.outputs == 1) return finished;
  PyObject* given[Kernel::kMaxOutputs];
  for (int i = 0; i < kernel.outputs; ++i) given[i] = Py_NewRef(PyTuple_GET_ITEM(finished.ptr(), i));
  PyObject* record = new_record(kernel.record, given, kernel.outputs);
  if (record == nullptr) {
    for (int i = 0; i < kernel.outputs; ++i) Py_DECREF(given[i]);
    throw nb::python_error();
  }
  return nb::steal(record);
}

std::map<std::string, BoundKernel>& all_kernels() {
  static auto* kernels = new std::map<std::string, BoundKernel>;
  return *kernels;
}

// The Python function name(model, *inputs, [options,] out, threads) of a kernel.
PyObject* kernel_function(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept {
  return guarded([&] {
    const auto& kernel = *static_cast<const BoundKernel*>(PyCapsule_GetPointer(self, nullptr));
    if (count != kernel.inputs + kernel.has_options + 3)
      throw std::invalid_argument("torsor: wrong number of arguments for a function of the core");
    PyObject *out = arguments[count - 2], *threads = arguments[count - 1];
    if (!kernel.has_options) return call_kernel(kernel, arguments[0], arguments + 1, out, threads, Options{});
    return call_kernel(kernel, arguments[0], arguments + 1, out, threads, read_options(arguments[1 + kernel.inputs]));
  });
}

// Makes `type`, a subclass of tuple, the type of the results of a function.
void set_record_type(const std::string& name, nb::type_object type) {
  BoundKernel& kernel = bound_kernel(name.c_str());
  if (kernel.outputs == 1 || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.ptr()), &PyTuple_Type))
    throw std::invalid_argument("torsor: not a kind of tuple, or a function of one result: " + name);
  kernel.kept.release();
  kernel.record = reinterpret_cast<PyTypeObject*>(type.release().ptr());
}

std::size_t release_memory() {
  std::size_t bytes = 0;
  for (auto& [name, kernel] : all_kernels()) bytes += kernel.kept.release();
  return bytes + release_blocks();
}

}  // namespace

Kernel& kernel_named(const char* name) {
  const auto at = all_kernels().try_emplace(name).first;
  at->second.method.ml_name = at->first.c_str();
  return at->second;
}

BoundKernel& bound_kernel(const char* name) {
  const auto at = all_kernels().find(name);
  if (at == all_kernels().end())
    throw std::invalid_argument("torsor: no function of the core is called " + std::string(name));
  return at->second;
}

nb::object call_kernel(const BoundKernel& kernel, PyObject* model, PyObject* const* inputs, PyObject* out,
                       PyObject* threads, const Options& options) {
  return call_kernel(kernel, model, inputs, out, threads, options, false, false);
}

void bind_kernels(nb::module_& module) {
  for (auto& [name, kernel] : all_kernels()) {
    kernel.method.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kernel_function));
    kernel.method.ml_flags = METH_FASTCALL;
    const nb::object self = nb::steal(PyCapsule_New(&kernel, nullptr, nullptr));
    const nb::object module_name = nb::steal(PyObject_GetAttrString(module.ptr(), "__name__"));
    if (!self.is_valid() || !module_name.is_valid()) throw nb::python_error();
    const nb::object function = nb::steal(PyCFunction_NewEx(&kernel.method, self.ptr(), module_name.ptr()));
    if (!function.is_valid()) throw nb::python_error();
    module.attr(name.c_str()) = function;
  }
  // A new array of float64, in memory that is kept for later arrays of the same size if it is large.
  module.def("empty", [](const std::vector<npy_intp>& shape) {
    std::vector<npy_intp> dims(shape);
    PyObject* array = new_array(static_cast<int>(dims.size()), dims.data(), NPY_DOUBLE);
    if (array == nullptr) throw nb::python_error();
    return nb::steal(array);
  });
  module.def("set_record_type", set_record_type);
  module.def("release_memory", release_memory);
}

}  // namespace torsor
