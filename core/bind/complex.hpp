// Instantiations over complex numbers that the integrators use, compiled once, in complex.cpp.
#pragma once
#include "derivatives/inverse_dynamics_vjp.hpp"
#include "forces/force_placements.hpp"
#include "integrators/variational_derivatives.hpp"

#ifndef TORSOR_INSTANTIATE
#define TORSOR_INSTANTIATE extern template
#endif

namespace torsor {

TORSOR_INSTANTIATE Motions<Complex> motions(const Model&, Arena&, const Complex*, const Complex*, const Complex*, bool,
                                            bool);
TORSOR_INSTANTIATE void inverse_dynamics_vjp(const Model&, Arena&, const Complex*, const Complex*, const Complex*,
                                             const Complex*, const Complex*, int, const Gradients<Complex>&, bool,
                                             const Motion<Complex>*);
TORSOR_INSTANTIATE Motions<Complex> generalized_forces_derivatives(const Model&, const ForceSet&, Arena&,
                                                                   const Complex*, const Complex*, double,
                                                                   const Complex*, Complex*, Complex*);
TORSOR_INSTANTIATE void force_parameter_gradient(const Model&, const ForceSet&, Arena&, const Motions<Complex>&,
                                                 const Complex*, const Complex*, double, const Complex*, const Complex*,
                                                 Complex*, const Motion<Complex>*);
TORSOR_INSTANTIATE void force_placement_gradient(const Model&, const ForceSet&, Arena&, const Motions<Complex>&, double,
                                                 const Complex*, const Complex*, Complex*, const Motion<Complex>*);
TORSOR_INSTANTIATE Action<Complex> evaluate_action(const VariationalScene&, Arena&, const Complex*, const Complex*,
                                                   double, const StepControls<Complex>&, const Complex*);
TORSOR_INSTANTIATE StepEnd<Complex> end_of(const VariationalScene&, Arena&, const Complex*, const Action<Complex>&);
TORSOR_INSTANTIATE void step_vjp(const VariationalScene&, Arena&, const Action<Complex>&, const StepEnd<Complex>&, int,
                                 const Complex*, const StepWeights<Complex>&, const StepGradients<Complex>&);

}  // namespace torsor
