// The instruction sets that a level of the core is compiled for, as data: this file is compiled with the flags of the
// level and contains no code. TORSOR_TARGET is the name of the list.
#include "bind/cpu.hpp"

#define TEXT_OF(x) #x
#define X(name, macro, ...) {name, TEXT_OF(macro)},
extern const InstructionSet TORSOR_TARGET[];
const InstructionSet TORSOR_TARGET[] = {TORSOR_INSTRUCTION_SETS(X){nullptr, nullptr}};
