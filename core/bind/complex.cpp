// CMakeLists.txt turns off vectorisation for this file: GCC's vectoriser fuses complex products in spite of
// -ffp-contract=off.
#define TORSOR_INSTANTIATE template
#include "bind/complex.hpp"
