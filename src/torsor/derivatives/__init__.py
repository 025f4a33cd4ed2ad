"""Derivatives of dynamics and kinematics: matrices and gradients, tangents, second derivatives.

`matrices` has the first derivatives of dynamics, also in reverse, `tangents` those along directions, `hessians` the
second ones, `kinematics` those of velocities, accelerations and points.
"""
