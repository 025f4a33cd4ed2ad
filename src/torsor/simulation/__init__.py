"""Simulation and its derivatives: `simulate`, `adjoint` and losses, steps of variational integrators."""
