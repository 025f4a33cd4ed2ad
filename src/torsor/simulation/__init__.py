"""Records of simulation and its derivatives, and the modules behind `simulate`, `adjoint`, `loss` and `step`."""

from typing import TYPE_CHECKING

from torsor import _lazy

if TYPE_CHECKING:
    from torsor.simulation.adjoint import AdjointGradient as AdjointGradient
    from torsor.simulation.adjoint import StateGradient as StateGradient
    from torsor.simulation.failures import Failure as Failure
    from torsor.simulation.losses import Loss as Loss
    from torsor.simulation.steps import MomentumStepDerivatives as MomentumStepDerivatives
    from torsor.simulation.steps import Step as Step
    from torsor.simulation.steps import StepDerivatives as StepDerivatives
    from torsor.simulation.steps import TwoStepDerivatives as TwoStepDerivatives
    from torsor.simulation.trajectory import Energies as Energies
else:
    __getattr__, __all__ = _lazy.attach(
        __name__,
        {
            "adjoint": "AdjointGradient StateGradient",
            "failures": "Failure",
            "losses": "Loss",
            "steps": "MomentumStepDerivatives Step StepDerivatives TwoStepDerivatives",
            "trajectory": "Energies",
        },
    )
