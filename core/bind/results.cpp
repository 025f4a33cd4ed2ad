#include "bind/results.hpp"

#include <utility>

#include "base/blocks.hpp"

namespace torsor {
namespace {

#ifdef Py_GIL_DISABLED
constexpr bool kKeeps = false;  // without the lock, a count of references says nothing about other threads
#else
constexpr bool kKeeps = true;
#endif

PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

// Whether one reference is all that holds an array, and whether it is as it was made: of doubles in C order, writeable,
// with memory of its own and this shape.
bool is_free(PyObject* object, const ResultShapes& shapes, const Slot& slot) {
  if (Py_REFCNT(object) != 1 || !PyArray_CheckExact(object)) return false;
  PyArrayObject* array = as_array(object);
  constexpr int flags = NPY_ARRAY_CARRAY | NPY_ARRAY_OWNDATA;
  if ((PyArray_FLAGS(array) & flags) != flags || PyArray_TYPE(array) != NPY_DOUBLE || PyArray_ISBYTESWAPPED(array) ||
      PyArray_BASE(array) != nullptr || PyArray_NDIM(array) != shapes.batch_ndim + slot.ndim ||
      *PyObject_GET_WEAKREFS_LISTPTR(object) != nullptr)
    return false;
  const npy_intp* dims = PyArray_DIMS(array);
  for (int d = 0; d < shapes.batch_ndim; ++d)
    if (dims[d] != shapes.batch_shape[d]) return false;
  for (int d = 0; d < slot.ndim; ++d)
    if (dims[shapes.batch_ndim + d] != slot.shape[d]) return false;
  return true;
}

std::size_t bytes_of(PyObject* result) {
  if (!PyTuple_Check(result)) return PyArray_NBYTES(as_array(result));
  std::size_t sum = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); ++i)
    if (PyObject* entry = PyTuple_GET_ITEM(result, i); entry != Py_None) sum += PyArray_NBYTES(as_array(entry));
  return sum;
}

}  // namespace

PyObject* KeptResults::take(const ResultShapes& shapes) {
  for (PyObject* result : kept_) {
    if (result == nullptr || Py_REFCNT(result) != 1) continue;
    bool found = true;
    if (shapes.outputs == 1)
      found = is_free(result, shapes, shapes.slots[0]);
    else
      for (int i = 0; found && i < shapes.outputs; ++i) {
        PyObject* entry = PyTuple_GET_ITEM(result, i);
        found = (shapes.wanted >> i & 1) != 0 ? is_free(entry, shapes, shapes.slots[i]) : entry == Py_None;
      }
    if (found) return Py_NewRef(result);
  }
  return nullptr;
}

void KeptResults::keep(PyObject* result) {
  if (!kKeeps || bytes_of(result) >= kLeastBlock) return;
  PyObject* dropped = std::exchange(kept_[older_], Py_NewRef(result));
  older_ = 1 - older_;
  Py_XDECREF(dropped);  // last: it may call back, from a weak reference
}

std::size_t KeptResults::release() {
  std::size_t bytes = 0;
  for (PyObject*& kept : kept_)
    if (PyObject* result = std::exchange(kept, nullptr); result != nullptr) {
      bool held = Py_REFCNT(result) > 1;
      for (Py_ssize_t i = 0; !held && PyTuple_Check(result) && i < PyTuple_GET_SIZE(result); ++i)
        if (PyObject* entry = PyTuple_GET_ITEM(result, i); entry != Py_None) held = Py_REFCNT(entry) > 1;
      if (!held) bytes += bytes_of(result);
      Py_DECREF(result);
    }
  return bytes;
}

PyObject* new_array(int ndim, npy_intp* shape, int type) {
  std::size_t bytes = type == NPY_DOUBLE ? 8 : 16;
  bool large = true;
  for (int d = 0; d < ndim; ++d) large = !__builtin_mul_overflow(bytes, std::size_t(shape[d]), &bytes) && large;
  void* block = large && bytes >= kLeastBlock ? take_block(bytes) : nullptr;
  if (block == nullptr)  // small, or NumPy raises MemoryError
    return PyArray_NewFromDescr(&PyArray_Type, PyArray_DescrFromType(type), ndim, shape, nullptr, nullptr, 0, nullptr);
  PyObject* owner = PyCapsule_New(block, "torsor.block", [](PyObject* capsule) {
    give_back_block(PyCapsule_GetPointer(capsule, "torsor.block"),
                    reinterpret_cast<std::size_t>(PyCapsule_GetContext(capsule)));
  });
  if (owner == nullptr) {
    give_back_block(block, bytes);
    return nullptr;
  }
  PyCapsule_SetContext(owner, reinterpret_cast<void*>(bytes));
  PyObject* array = PyArray_SimpleNewFromData(ndim, shape, type, block);
  if (array == nullptr) {
    Py_DECREF(owner);
    return nullptr;
  }
  if (PyArray_SetBaseObject(as_array(array), owner) != 0) Py_CLEAR(array);
  return array;
}

PyObject* new_record(PyTypeObject* type, PyObject** arrays, int outputs) {
  PyObject* record = type == &PyTuple_Type ? PyTuple_New(outputs) : type->tp_alloc(type, outputs);
  if (record == nullptr) return nullptr;
  for (int i = 0; i < outputs; ++i) {
    PyObject* array = std::exchange(arrays[i], nullptr);
    PyTuple_SET_ITEM(record, i, array != nullptr ? array : Py_NewRef(Py_None));
  }
  return record;
}

}  // namespace torsor
