// The module torsor._cpu, which checks whether this CPU can run torsor._core. It is a separate module, compiled for the
// baseline of the architecture, because any code of _core may use instructions that the CPU lacks, even while it is
// being loaded.
#include <Python.h>

#include <cstring>

#include "bind/cpu.hpp"

namespace {

// Whether this CPU supports an instruction set, given by name.
PyObject* supports(PyObject*, PyObject* name) {
  const char* given = PyUnicode_AsUTF8(name);
  if (given == nullptr) return nullptr;
#define X(known, macro) \
  if (std::strcmp(given, known) == 0) return PyBool_FromLong(__builtin_cpu_supports(known));
  TORSOR_INSTRUCTION_SETS(X)
  return PyErr_Format(PyExc_ValueError, "torsor: no instruction set is called %R", name);
}
PyMethodDef methods[] = {{"supports", supports, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};

// Adds `compiled_for`, the names of the instruction sets that torsor._core requires.
int fill(PyObject* module) {
  PyObject* names = PyList_New(0);
  if (names == nullptr) return -1;
  for (const InstructionSet* set = torsor_target; set->name != nullptr; ++set) {
    if (std::strcmp(set->value, "1") != 0) continue;
    PyObject* name = PyUnicode_FromString(set->name);
    if (name == nullptr || PyList_Append(names, name) != 0) return -1;
    Py_DECREF(name);
  }
  PyObject* all = PyList_AsTuple(names);
  Py_DECREF(names);
  return all == nullptr ? -1 : PyModule_AddObject(module, "compiled_for", all);
}
PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(fill)}, {0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_cpu", nullptr, 0, methods, slots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__cpu() { return PyModuleDef_Init(&definition); }
