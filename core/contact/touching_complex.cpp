// Contacts over complex numbers, which only verification and derivatives of linearly implicit and variational steps
// use. Fully optimised and inlined, they would be a third of the module: see bind/cold.cpp and CMakeLists.txt.
#define TORSOR_COLD
#include "contact/touching.cpp"
