// Conversions of Python objects that the bindings share.
#pragma once
#include <nanobind/nanobind.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL torsor_array_api
#ifndef TORSOR_IMPORT_ARRAY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include <string>
#include <vector>

#include "bind/kernel.hpp"
#include "contact/shapes.hpp"

namespace torsor {

namespace nb = nanobind;

nb::object core_model(nb::handle model);  // the core's model of a torsor.Model
// The same for a function of the core that does not know couplings: raises an error for a model that has some.
nb::object tree_model(nb::handle model, const char* function);
const ForceSet* force_set(nb::handle set);
const ConstraintSet* constraint_set(nb::handle set);
std::vector<std::string> row_names(const ConstraintSet* set);
void read_integrator(nb::handle integrator, Options& options);  // sets the table or the variational rule
Options read_options(nb::handle value);  // a dict of options that differ from the defaults, or the frame of f_ext
int thread_count(nb::handle threads);    // 0 for "auto": at most one per core
// The data of a shape that has any: (heights, size) or (vertices, faces).
std::shared_ptr<const struct Surface> read_surface(ShapeKind kind, nb::handle given);
void check_signals();  // throws the exception of a Python signal handler

}  // namespace torsor
