// CMakeLists.txt compiles this file without vectorisation: GCC's fuses complex products in spite of -ffp-contract=off.
#define TORSOR_INSTANTIATE template
#include "bind/complex.hpp"
