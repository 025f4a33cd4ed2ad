"""Types of the compiled module. It checks arrays itself: inputs may be anything that `torsor._check` accepts."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torsor.constraints.derivatives import ConstrainedForwardDynamicsHessians, ConstrainedForwardDynamicsJVP
from torsor.constraints.dynamics import ConstrainedForwardDynamics, ConstrainedForwardDynamicsDerivatives
from torsor.constraints.evaluation import ConstraintDerivatives, ConstraintErrors
from torsor.constraints.inverse_dynamics import ConstrainedInverseDynamicsDerivatives
from torsor.derivatives.hessians import (
    ContractedForwardDynamicsHessians,
    ContractedInverseDynamicsHessians,
    ForwardDynamicsHessians,
    InverseDynamicsHessians,
)
from torsor.derivatives.jvp import (
    ForwardDynamicsDerivativesJVP,
    ForwardDynamicsJVP,
    HybridDynamicsJVP,
    InverseDynamicsDerivativesJVP,
    InverseDynamicsJVP,
    JointReactionsJVP,
)
from torsor.derivatives.kinematics import (
    BodyAccelerationsDerivatives,
    BodyVelocitiesDerivatives,
    MaximalJacobianDerivatives,
    MomentumDerivatives,
)
from torsor.derivatives.matrices import (
    ForwardDynamicsDerivatives,
    HybridDynamicsDerivatives,
    InverseDynamicsDerivatives,
    JointReactionsDerivatives,
)
from torsor.derivatives.vjp import ForwardDynamicsVJP, HybridDynamicsVJP, InverseDynamicsVJP, JointReactionsVJP
from torsor.forces.evaluation import GeneralizedForcesDerivatives
from torsor.simulation.steps import MomentumStepDerivatives, Step, StepDerivatives, TwoStepDerivatives
from torsor.variational import DiscreteEulerLagrange, StepHessian

FloatArray = NDArray[np.float64]
lanes: int
cores: int
compiler: str
complex_step: float

class Function:
    def __init__(
        self, kernel: str, function: Callable[..., Any], positional: int, f_ext: bool, constrained: bool, /
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def release_memory() -> int: ...
def set_record_type(name: str, type: type[tuple[Any, ...]]) -> None: ...
def shape_spots(
    kind_a: str,
    numbers_a: Any,
    pose_a: Any,
    kind_b: str,
    numbers_b: Any,
    pose_b: Any,
    surface_a: tuple[Any, Any] | None = None,
    surface_b: tuple[Any, Any] | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
def shape_spots_derivatives(
    kind_a: str,
    numbers_a: Any,
    pose_a: Any,
    kind_b: str,
    numbers_b: Any,
    pose_b: Any,
    surface_a: tuple[Any, Any] | None = None,
    surface_b: tuple[Any, Any] | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...

class JointKind(IntEnum):
    revolute = ...
    prismatic = ...
    screw = ...
    spherical = ...
    free = ...
    exponential = ...
    spline_curve = ...
    spline_surface = ...
    custom = ...

class StageKind(IntEnum):
    implicit = ...
    explicit = ...
    linearised = ...

class ProgramStatus(IntEnum):
    solved = ...
    infeasible = ...
    exhausted = ...
    not_convex = ...

class Outcome(IntEnum):
    finished = ...
    chart = ...
    failed = ...
    singular = ...
    gained = ...

class ChartLimit(IntEnum):
    euler_cosine = ...
    euler_sine = ...
    exponential = ...

class Model:
    def __init__(
        self,
        nq: int,
        nv: int,
        gravity: list[float],
        bodies: list[tuple[Any, ...]],
        frames: list[tuple[Any, ...]],
        order: list[int],
        general: list[tuple[Any, ...]],
        armature: list[float],
    ) -> None: ...
    def same_tree(self, other: Model) -> bool: ...
    @property
    def coupling_numbers(self) -> int: ...
    def couple(
        self,
        coordinates: tuple[Any, ...],
        runs_q: list[tuple[int, int, int]],
        runs_v: list[tuple[int, int, int]],
        position: list[int],
        rows: list[tuple[Any, ...]],
        blocks: list[tuple[Any, ...]],
        solver: int,
    ) -> None: ...

class DualModel:
    def __init__(
        self,
        step: float,
        nq: int,
        nv: int,
        gravity: list[complex],
        bodies: list[tuple[Any, ...]],
        frames: list[tuple[Any, ...]],
        order: list[int],
        general: list[tuple[Any, ...]],
        armature: list[complex],
    ) -> None: ...

class ForceSet:
    def __init__(
        self, model: Model, forces: int, parameters: int, parts: list[tuple[int, tuple[Any, ...]]]
    ) -> None: ...
    @property
    def depends_on_place(self) -> bool: ...
    @property
    def on_single_bodies(self) -> bool: ...
    @property
    def contact_forces(self) -> list[int]: ...
    @property
    def stiff(self) -> bool: ...
    def keeps_branches(self, model: Model) -> bool: ...

def contact_places(kind: str, other: str) -> int: ...
def has_potential(kind: str, other: str) -> bool: ...

class ConstraintSet:
    row_names: list[str]
    def __init__(self, model: Model, constraints: int, parts: list[tuple[int, tuple[Any, ...]]]) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def size(self) -> int: ...

def constrained_forward_dynamics(
    model: Any, q: Any, v: Any, t: Any, tau: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> ConstrainedForwardDynamics: ...
def constrained_forward_dynamics_derivatives(
    model: Any, q: Any, v: Any, t: Any, tau: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> ConstrainedForwardDynamicsDerivatives: ...
def generalized_forces(
    model: Any, q: Any, v: Any, t: Any, parameters: Any, options: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def generalized_forces_derivatives(
    model: Any, q: Any, v: Any, t: Any, parameters: Any, options: Any, out: Any, threads: Any, /
) -> GeneralizedForcesDerivatives: ...
def force_energies(
    model: Any, q: Any, v: Any, t: Any, parameters: Any, options: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def generalized_forces_vjp(
    model: Any, q: Any, v: Any, t: Any, parameters: Any, w: Any, options: Any, out: Any, threads: Any, /
) -> tuple[FloatArray, FloatArray, FloatArray]: ...
def contact_states(
    model: Any, q: Any, v: Any, t: Any, parameters: Any, options: Any, out: Any, threads: Any, /
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]: ...
def hard_contact_forces(
    model: Any, q: Any, v: Any, u: Any, t: Any, parameters: Any, options: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def force_gradients(
    model: Any, q: Any, v: Any, t: Any, parameters: Any, w: Any, options: Any, out: Any, threads: Any, /
) -> tuple[FloatArray, FloatArray]: ...
def constraint_errors(
    model: Any, q: Any, v: Any, t: Any, a: Any, options: Any, out: Any, threads: Any, /
) -> ConstraintErrors: ...
def constraint_jacobian(
    model: Any, q: Any, v: Any, t: Any, a: Any, options: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def constraint_derivatives(
    model: Any, q: Any, v: Any, t: Any, a: Any, options: Any, out: Any, threads: Any, /
) -> ConstraintDerivatives: ...
def constraint_stiffness(
    model: Any, q: Any, multipliers: Any, t: Any, v: Any, options: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def constraint_wrenches(
    model: Any, q: Any, multipliers: Any, t: Any, options: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def constraint_vjp(
    model: Any,
    q: Any,
    v: Any,
    t: Any,
    a: Any,
    w_g: Any,
    w_gdot: Any,
    w_gamma: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]: ...
def constrained_forward_dynamics_jvp(
    model: Any,
    q: Any,
    v: Any,
    t: Any,
    tau: Any,
    f_ext: Any,
    dq: Any,
    dv: Any,
    dtau: Any,
    df_ext: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> ConstrainedForwardDynamicsJVP: ...
def constrained_forward_dynamics_vjp(
    model: Any,
    q: Any,
    v: Any,
    t: Any,
    tau: Any,
    w_a: Any,
    w_multipliers: Any,
    f_ext: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> tuple[Any, ...]: ...
def constrained_forward_dynamics_hessians(
    model: Any,
    q: Any,
    v: Any,
    t: Any,
    tau: Any,
    w_a: Any,
    w_multipliers: Any,
    f_ext: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> ConstrainedForwardDynamicsHessians: ...
def constrained_inverse_dynamics(
    model: Any, q: Any, v: Any, t: Any, a: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> tuple[FloatArray, FloatArray, FloatArray]: ...
def constrained_inverse_dynamics_derivatives(
    model: Any, q: Any, v: Any, t: Any, a: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> ConstrainedInverseDynamicsDerivatives: ...
def plus(model: Any, q: Any, dv: Any, out: Any, threads: Any, /) -> FloatArray: ...
def minus(model: Any, q1: Any, q0: Any, out: Any, threads: Any, /) -> FloatArray: ...
def normalize(model: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def expand(model: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def expand_velocity(model: Any, q: Any, v: Any, out: Any, threads: Any, /) -> FloatArray: ...
def expand_acceleration(model: Any, q: Any, v: Any, a: Any, out: Any, threads: Any, /) -> FloatArray: ...
def coupling_rate(model: Any, q: Any, v: Any, out: Any, threads: Any, /) -> FloatArray: ...
def coupling_curvature(model: Any, q: Any, y: Any, v: Any, x: Any, out: Any, threads: Any, /) -> FloatArray: ...
def expansion_vjp(model: Any, q: Any, v: Any, g_q: Any, g_v: Any, out: Any, threads: Any, /) -> FloatArray: ...
def coupling_vjp(
    model: Any, q: Any, v: Any, a: Any, w: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def coupling_jacobian(model: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def joint_pose(joint: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def joint_jacobians(joint: Any, q: Any, out: Any, threads: Any, /) -> tuple[FloatArray, FloatArray, FloatArray]: ...
def inverse_dynamics(
    model: Any, q: Any, v: Any, a: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def forward_dynamics(
    model: Any, q: Any, v: Any, tau: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def hybrid_dynamics(
    model: Any, q: Any, v: Any, a: Any, tau: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> tuple[FloatArray, FloatArray]: ...
def joint_reactions(
    model: Any, q: Any, v: Any, a: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def mass_matrix(model: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def mass_matrix_inverse(model: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def mass_matrix_solve(
    model: Any, q: Any, x: Any, joint_terms: Any, body_terms: Any, out: Any, threads: Any, /
) -> FloatArray: ...
def coriolis_matrix(model: Any, q: Any, v: Any, out: Any, threads: Any, /) -> FloatArray: ...
def kinetic_energy(model: Any, q: Any, v: Any, out: Any, threads: Any, /) -> FloatArray: ...
def potential_energy(model: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def center_of_mass(model: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def center_of_mass_jacobian(model: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def momentum_matrix(model: Any, q: Any, options: Any, out: Any, threads: Any, /) -> FloatArray: ...
def generalized_momenta(model: Any, q: Any, v: Any, out: Any, threads: Any, /) -> FloatArray: ...
def momentum(model: Any, q: Any, v: Any, options: Any, out: Any, threads: Any, /) -> FloatArray: ...
def body_poses(model: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def point_positions(model: Any, q: Any, points: Any, options: Any, out: Any, threads: Any, /) -> FloatArray: ...
def body_velocities(model: Any, q: Any, v: Any, options: Any, out: Any, threads: Any, /) -> FloatArray: ...
def body_accelerations(model: Any, q: Any, v: Any, a: Any, options: Any, out: Any, threads: Any, /) -> FloatArray: ...
def jacobian_dot_product(model: Any, q: Any, v: Any, x: Any, out: Any, threads: Any, /) -> FloatArray: ...
def jacobian_transpose_product(model: Any, q: Any, y: Any, out: Any, threads: Any, /) -> FloatArray: ...
def body_jacobian(model: Any, q: Any, options: Any, out: Any, threads: Any, /) -> FloatArray: ...
def point_jacobians(model: Any, q: Any, points: Any, options: Any, out: Any, threads: Any, /) -> FloatArray: ...
def maximal_jacobian(model: Any, q: Any, out: Any, threads: Any, /) -> FloatArray: ...
def maximal_jacobian_dot(model: Any, q: Any, v: Any, out: Any, threads: Any, /) -> FloatArray: ...
def inverse_dynamics_derivatives(
    model: Any, q: Any, v: Any, a: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> InverseDynamicsDerivatives: ...
def forward_dynamics_derivatives(
    model: Any, q: Any, v: Any, tau: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> ForwardDynamicsDerivatives: ...
def hybrid_dynamics_derivatives(
    model: Any, q: Any, v: Any, a: Any, tau: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> HybridDynamicsDerivatives: ...
def joint_reactions_derivatives(
    model: Any, q: Any, v: Any, a: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> JointReactionsDerivatives: ...
def inverse_dynamics_vjp(
    model: Any, q: Any, v: Any, a: Any, w: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> InverseDynamicsVJP: ...
def forward_dynamics_vjp(
    model: Any, q: Any, v: Any, tau: Any, w: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> ForwardDynamicsVJP: ...
def hybrid_dynamics_vjp(
    model: Any,
    q: Any,
    v: Any,
    a: Any,
    tau: Any,
    w_a: Any,
    w_tau: Any,
    f_ext: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> HybridDynamicsVJP: ...
def joint_reactions_vjp(
    model: Any, q: Any, v: Any, a: Any, w: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> JointReactionsVJP: ...
def inertial_regressor(model: Any, q: Any, v: Any, a: Any, out: Any, threads: Any, /) -> FloatArray: ...
def inverse_dynamics_jvp(
    model: Any,
    q: Any,
    v: Any,
    a: Any,
    f_ext: Any,
    dq: Any,
    dv: Any,
    da: Any,
    df_ext: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> InverseDynamicsJVP: ...
def joint_reactions_jvp(
    model: Any,
    q: Any,
    v: Any,
    a: Any,
    f_ext: Any,
    dq: Any,
    dv: Any,
    da: Any,
    df_ext: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> JointReactionsJVP: ...
def forward_dynamics_jvp(
    model: Any,
    q: Any,
    v: Any,
    tau: Any,
    f_ext: Any,
    dq: Any,
    dv: Any,
    dtau: Any,
    df_ext: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> ForwardDynamicsJVP: ...
def hybrid_dynamics_jvp(
    model: Any,
    q: Any,
    v: Any,
    a: Any,
    tau: Any,
    f_ext: Any,
    dq: Any,
    dv: Any,
    da: Any,
    dtau: Any,
    df_ext: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> HybridDynamicsJVP: ...
def inverse_dynamics_derivatives_jvp(
    model: Any,
    q: Any,
    v: Any,
    a: Any,
    f_ext: Any,
    dq: Any,
    dv: Any,
    da: Any,
    df_ext: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> InverseDynamicsDerivativesJVP: ...
def forward_dynamics_derivatives_jvp(
    model: Any,
    q: Any,
    v: Any,
    tau: Any,
    f_ext: Any,
    dq: Any,
    dv: Any,
    dtau: Any,
    df_ext: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> ForwardDynamicsDerivativesJVP: ...
def body_velocities_derivatives(
    model: Any, q: Any, v: Any, options: Any, out: Any, threads: Any, /
) -> BodyVelocitiesDerivatives: ...
def body_accelerations_derivatives(
    model: Any, q: Any, v: Any, a: Any, options: Any, out: Any, threads: Any, /
) -> BodyAccelerationsDerivatives: ...
def maximal_jacobian_derivatives(
    model: Any, q: Any, v: Any, options: Any, out: Any, threads: Any, /
) -> MaximalJacobianDerivatives: ...
def point_hessians(model: Any, q: Any, points: Any, options: Any, out: Any, threads: Any, /) -> FloatArray: ...
def momentum_derivatives(
    model: Any, q: Any, v: Any, a: Any, options: Any, out: Any, threads: Any, /
) -> MomentumDerivatives: ...
def inverse_dynamics_hessians(
    model: Any, q: Any, v: Any, a: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> InverseDynamicsHessians: ...
def inverse_dynamics_hessians_contracted(
    model: Any, q: Any, v: Any, a: Any, contract: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> ContractedInverseDynamicsHessians: ...
def forward_dynamics_hessians(
    model: Any, q: Any, v: Any, tau: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> ForwardDynamicsHessians: ...
def forward_dynamics_hessians_contracted(
    model: Any, q: Any, v: Any, tau: Any, contract: Any, f_ext: Any, options: Any, out: Any, threads: Any, /
) -> ContractedForwardDynamicsHessians: ...

class IntegratorTable:
    def __init__(
        self,
        kind: int,
        rows: list[tuple[float, float, float, list[float]]],
        multistep: tuple[float, float, float, list[float]] | None,
        fractions: list[float],
        h: float,
        tolerance: float,
        iterations: int,
        substeps: int,
        baumgarte: float = 0.0,
        post: bool = False,
    ) -> None: ...

def simulate(
    scenes: tuple[list[Any], list[Any], NDArray[np.int64], FloatArray, list[Any]],
    integrator: IntegratorTable | VariationalScheme,
    t0: float,
    tracks: dict[str, Any],
    first: NDArray[np.int64],
    last: int,
    limits: list[tuple[int, int]],
    outcome: NDArray[np.int32],
    row: NDArray[np.int64],
    error: FloatArray,
    threads: Any,
) -> None: ...
def adjoint(
    scenes: tuple[list[Any], list[Any], NDArray[np.int64], FloatArray, list[Any]],
    integrator: IntegratorTable | VariationalScheme,
    t0: float,
    tracks: dict[str, Any],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    out: dict[str, Any],
    threads: Any,
) -> tuple[int, int]: ...
def lane_counts() -> tuple[int, int]: ...
def solve_program(
    H: Any, f: Any, A: Any, b: Any, equalities: int, iterations: int
) -> tuple[int, list[float], list[float]]: ...
def empty(shape: Sequence[int]) -> NDArray[np.float64]: ...
def newton_directions(model: Any, forces: Any, p: Any, q: Any, v: Any, xi: Any, c: float, out: Any) -> None: ...
def step(
    model: Any,
    q: Any,
    v: Any,
    u: Any,
    t: Any,
    parameters: Any,
    previous_q: Any,
    previous_v: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> Step: ...
def step_derivatives(
    model: Any,
    q: Any,
    v: Any,
    u: Any,
    t: Any,
    parameters: Any,
    previous_q: Any,
    previous_v: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> StepDerivatives: ...
def two_step_derivatives(
    model: Any,
    q: Any,
    v: Any,
    u: Any,
    t: Any,
    parameters: Any,
    previous_q: Any,
    previous_v: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> TwoStepDerivatives: ...

class HardScheme:
    def __init__(self, h: float, tolerance: float, iterations: int) -> None: ...

class VariationalScheme:
    def __init__(
        self,
        h: float,
        tolerance: float,
        iterations: int,
        nodes: list[float],
        c: list[float],
        w: list[float],
        phi: list[float],
        b: list[float],
    ) -> None: ...

def discrete_euler_lagrange(
    model: Any, q: Any, u: Any, t: Any, parameters: Any, options: Any, out: Any, threads: Any, /
) -> DiscreteEulerLagrange: ...
def momentum_step_derivatives(
    model: Any, q: Any, p: Any, u: Any, t: Any, parameters: Any, options: Any, out: Any, threads: Any, /
) -> MomentumStepDerivatives: ...
def step_hessian(
    model: Any,
    q: Any,
    p: Any,
    u: Any,
    t: Any,
    parameters: Any,
    wq: Any,
    wp: Any,
    options: Any,
    out: Any,
    threads: Any,
    /,
) -> StepHessian: ...
def variational_newton(model: Any, scheme: VariationalScheme, q0: Any, xi: Any, repeats: int, dense: bool) -> float: ...
def variational_newton_system(
    model: Any, q: Any, u: Any, t: Any, parameters: Any, right: Any, options: Any, out: Any, threads: Any, /
) -> tuple[FloatArray, ...]: ...
