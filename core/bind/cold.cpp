// Rare instantiations of the kernels: over complex numbers, which only verification uses, and along directions of the
// model. Fully optimised, they would take half of the build time. So the files of kernels are compiled a second time
// here, at -O1 (CMakeLists.txt), where TORSOR_COLD selects the rare instantiations (Kernels in kernel.hpp) and turns
// off forced inlining (scalar.hpp).
#define TORSOR_COLD
#include "bind/complex.hpp"
#include "bind/configuration.cpp"
#include "bind/constrained_dynamics.cpp"
#include "bind/constrained_vjp.cpp"
#include "bind/constraints.cpp"
#include "bind/coupled.cpp"
#include "bind/coupled_constraints.cpp"
#include "bind/coupled_derivatives.cpp"
#include "bind/coupled_hessians.cpp"
#include "bind/derivatives.cpp"
#include "bind/dynamics.cpp"
#include "bind/forces.cpp"
#include "bind/inertia.cpp"
#include "bind/jvp.cpp"
#include "bind/kinematics.cpp"
#include "bind/kinematics_derivatives.cpp"
#include "bind/momentum.cpp"
#include "bind/vjp.cpp"

namespace torsor {

void bind_rare(RareKernels& kernels) {
  bind_configuration(kernels);
  bind_constrained_vjp(kernels);
  bind_constrained_dynamics(kernels);
  bind_constraints(kernels);
  bind_coupled(kernels);
  bind_coupled_constraints(kernels);
  bind_coupled_derivatives(kernels);
  bind_coupled_hessians(kernels);
  bind_derivatives(kernels);
  bind_dynamics(kernels);
  bind_forces(kernels);
  bind_inertia(kernels);
  bind_jvp(kernels);
  bind_kinematics(kernels);
  bind_kinematics_derivatives(kernels);
  bind_momentum(kernels);
  bind_vjp(kernels);
}

}  // namespace torsor
