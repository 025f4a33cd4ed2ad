"""Records of the derivatives of dynamics and kinematics, and the modules that compute them.

`matrices` has first derivatives of dynamics as matrices, `jvp` along one direction, `vjp` of one weighted sum of the
outputs, `hessians` second derivatives, `kinematics` derivatives of velocities, accelerations, points and momentum. All
functions are in `torsor` itself.
"""

from typing import TYPE_CHECKING

from torsor import _lazy

if TYPE_CHECKING:
    from torsor.derivatives.hessians import ContractedForwardDynamicsHessians as ContractedForwardDynamicsHessians
    from torsor.derivatives.hessians import ContractedInverseDynamicsHessians as ContractedInverseDynamicsHessians
    from torsor.derivatives.hessians import ForwardDynamicsHessians as ForwardDynamicsHessians
    from torsor.derivatives.hessians import InverseDynamicsHessians as InverseDynamicsHessians
    from torsor.derivatives.jvp import ForwardDynamicsDerivativesJVP as ForwardDynamicsDerivativesJVP
    from torsor.derivatives.jvp import ForwardDynamicsJVP as ForwardDynamicsJVP
    from torsor.derivatives.jvp import HybridDynamicsJVP as HybridDynamicsJVP
    from torsor.derivatives.jvp import InverseDynamicsDerivativesJVP as InverseDynamicsDerivativesJVP
    from torsor.derivatives.jvp import InverseDynamicsJVP as InverseDynamicsJVP
    from torsor.derivatives.jvp import JointReactionsJVP as JointReactionsJVP
    from torsor.derivatives.kinematics import BodyAccelerationsDerivatives as BodyAccelerationsDerivatives
    from torsor.derivatives.kinematics import BodyVelocitiesDerivatives as BodyVelocitiesDerivatives
    from torsor.derivatives.kinematics import MaximalJacobianDerivatives as MaximalJacobianDerivatives
    from torsor.derivatives.kinematics import MomentumDerivatives as MomentumDerivatives
    from torsor.derivatives.matrices import ForwardDynamicsDerivatives as ForwardDynamicsDerivatives
    from torsor.derivatives.matrices import HybridDynamicsDerivatives as HybridDynamicsDerivatives
    from torsor.derivatives.matrices import InverseDynamicsDerivatives as InverseDynamicsDerivatives
    from torsor.derivatives.matrices import JointReactionsDerivatives as JointReactionsDerivatives
    from torsor.derivatives.vjp import ForwardDynamicsVJP as ForwardDynamicsVJP
    from torsor.derivatives.vjp import HybridDynamicsVJP as HybridDynamicsVJP
    from torsor.derivatives.vjp import InverseDynamicsVJP as InverseDynamicsVJP
    from torsor.derivatives.vjp import JointReactionsVJP as JointReactionsVJP
else:
    __getattr__, __all__ = _lazy.attach(
        __name__,
        {
            "hessians": """ContractedForwardDynamicsHessians ContractedInverseDynamicsHessians ForwardDynamicsHessians
                InverseDynamicsHessians""",
            "jvp": """ForwardDynamicsDerivativesJVP ForwardDynamicsJVP HybridDynamicsJVP InverseDynamicsDerivativesJVP
                InverseDynamicsJVP JointReactionsJVP""",
            "kinematics": """BodyAccelerationsDerivatives BodyVelocitiesDerivatives MaximalJacobianDerivatives
                MomentumDerivatives""",
            "matrices": """ForwardDynamicsDerivatives HybridDynamicsDerivatives InverseDynamicsDerivatives
                JointReactionsDerivatives""",
            "vjp": "ForwardDynamicsVJP HybridDynamicsVJP InverseDynamicsVJP JointReactionsVJP",
        },
    )
