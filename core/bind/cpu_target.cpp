// The instruction sets that the core is compiled for, as data: this file is compiled with the core's flags and contains
// no code.
#include "bind/cpu.hpp"

#define TEXT_OF(x) #x
#define X(name, macro) {name, TEXT_OF(macro)},
const InstructionSet torsor_target[] = {TORSOR_INSTRUCTION_SETS(X){nullptr, nullptr}};
