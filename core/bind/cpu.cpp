// The module torsor._cpu: the levels that torsor._core is compiled for, and what this CPU has. It is a separate module,
// compiled for the baseline of the architecture, because any code of _core may use instructions that the CPU lacks,
// even while it is being loaded.
#include <Python.h>

#include <cstdint>
#include <cstring>

#include "bind/cpu.hpp"
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

// bind/levels.inc is written by CMakeLists.txt: LEVEL(name, flags, list of its instruction sets), from the lowest up.
#define LEVEL(name, flags, target) extern const InstructionSet target[];
#include "bind/levels.inc"
#undef LEVEL

namespace {

struct Level {
  const char *name, *flags;
  const InstructionSet* sets;
};
#define LEVEL(name, flags, target) {name, flags, target},
const Level levels[] = {
#include "bind/levels.inc"
};
#undef LEVEL

#if defined(__x86_64__)
enum Word { leaf_1_ecx, leaf_7_ebx, leaf_7_ecx, leaf_7_edx, leaf_7_1_eax, extended_ecx, kWords };
struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  Registers(unsigned leaf, unsigned subleaf) { __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx); }
};
#elif defined(__aarch64__) && defined(__linux__)
enum Word { hwcap, hwcap2, kWords };
#else
enum Word { kWords };
#endif

// What the CPU says, and which registers the operating system saves. Read once: a virtual machine asks its host.
struct Cpu {
  uint32_t words[kWords + 1] = {}, saved = 0;
  Cpu() {
#if defined(__x86_64__)
    const Registers one(1, 0), seven(7, 0);
    words[leaf_1_ecx] = one.ecx;
    words[leaf_7_ebx] = seven.ebx;
    words[leaf_7_ecx] = seven.ecx;
    words[leaf_7_edx] = seven.edx;
    words[leaf_7_1_eax] = seven.eax < 1 ? 0 : Registers(7, 1).eax;
    words[extended_ecx] = Registers(0x80000001u, 0).ecx;
    if (one.ecx >> 27 & 1) {  // XCR0 can be read
      uint32_t high;
      __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    }
#elif defined(__aarch64__) && defined(__linux__)
    words[hwcap] = static_cast<uint32_t>(getauxval(AT_HWCAP));
    words[hwcap2] = static_cast<uint32_t>(getauxval(AT_HWCAP2));
#endif
  }
};
const Cpu cpu;

// Whether this CPU supports an instruction set, given by name.
PyObject* supports(PyObject*, PyObject* name) {
  const char* given = PyUnicode_AsUTF8(name);
  if (given == nullptr) return nullptr;
#define X(known, macro, word, bit, state) \
  if (std::strcmp(given, known) == 0)     \
    return PyBool_FromLong((cpu.words[word] >> bit & 1) && (cpu.saved & state) == state);
  TORSOR_INSTRUCTION_SETS(X)
#undef X
  return PyErr_Format(PyExc_ValueError, "torsor: no instruction set is called %R", name);
}
PyMethodDef methods[] = {{"supports", supports, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};

// The names of all instruction sets, or of those that a level is compiled for.
PyObject* names_of(const InstructionSet* sets) {
  const char* names[] = {
#define X(name, ...) name,
      TORSOR_INSTRUCTION_SETS(X)
#undef X
          nullptr};
  PyObject* list = PyList_New(0);
  for (int k = 0; list != nullptr && names[k] != nullptr; ++k) {
    if (sets != nullptr && sets[k].value[0] == '_') continue;  // the macro is not defined
    PyObject* name = PyUnicode_FromString(names[k]);
    if (name == nullptr || PyList_Append(list, name) != 0) Py_CLEAR(list);
    Py_XDECREF(name);
  }
  PyObject* tuple = list == nullptr ? nullptr : PyList_AsTuple(list);
  Py_XDECREF(list);
  return tuple;
}

int put(PyObject* dict, const char* key, PyObject* value) {  // takes the value
  const int status = value == nullptr ? -1 : PyDict_SetItemString(dict, key, value);
  Py_XDECREF(value);
  return status;
}

// Adds `known`, `levels` and `flags`.
int fill(PyObject* module) {
  PyObject *sets = PyDict_New(), *flags = PyDict_New();
  int status = sets == nullptr || flags == nullptr ? -1 : 0;
  for (const Level& level : levels)
    if (status == 0 && (status = put(sets, level.name, names_of(level.sets))) == 0)
      status = put(flags, level.name, PyUnicode_FromString(level.flags));
  PyObject* dict = PyModule_GetDict(module);
  if (status == 0) status = put(dict, "known", names_of(nullptr));
  if (status == 0) status = PyDict_SetItemString(dict, "levels", sets);
  if (status == 0) status = PyDict_SetItemString(dict, "flags", flags);
  Py_XDECREF(sets);
  Py_XDECREF(flags);
  return status;
}
PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(fill)}, {0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_cpu", nullptr, 0, methods, slots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__cpu() { return PyModuleDef_Init(&definition); }
