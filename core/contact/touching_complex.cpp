// Contacts over complex numbers, which only verification and derivatives of linearly implicit and variational steps
// use. Fully optimised and inlined, they would be a third of the module: see bind/cold.cpp and CMakeLists.txt.
#define TORSOR_COLD
#ifndef __clang__  // GCC warns of the unnamed namespace of a file that is included
#pragma GCC diagnostic ignored "-Wsubobject-linkage"
#endif
#include "contact/touching.cpp"
