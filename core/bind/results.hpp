// Results of kernels: an array, or a record of arrays. The last two of each kernel are kept, and used again when nobody
// else holds them: making the arrays of a record takes as long as some kernels.
//
// All functions need the interpreter lock. A running call holds the result that it writes to, so that no other call
// takes it while the lock is released, or when a user-defined joint calls back into the library.
#pragma once
#include "bind/bind.hpp"

namespace torsor {

// Shapes of results: those of the slots, after the batch shape.
struct ResultShapes {
  int batch_ndim;
  const npy_intp* batch_shape;
  const Slot* slots;
  int outputs;
  unsigned wanted;  // outputs that are requested, by bit; the others are None in a record
};

class KeptResults {
 public:
  // A result of these shapes, of doubles, that nobody holds: a new reference, or null if there is none.
  PyObject* take(const ResultShapes& shapes);
  // Keeps a result that was made, unless it is large; drops the older one.
  void keep(PyObject* result);
  // Drops what is kept; returns how many bytes of it nobody else held.
  std::size_t release();

 private:
  PyObject* kept_[2] = {nullptr, nullptr};  // owned
  int older_ = 0;
};

// A new array, or null with a Python exception. A large one gets a block of memory, which is given back when the array
// and all its views are gone.
PyObject* new_array(int ndim, npy_intp* shape, int type);
// A new record of arrays, which it takes over; null stands for None. Null with a Python exception.
PyObject* new_record(PyTypeObject* type, PyObject** arrays, int outputs);

}  // namespace torsor
