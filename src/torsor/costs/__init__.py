"""Costs as small frozen descriptions, with value, gradient and Hessian at states."""

from torsor.costs.cost import Cost, CostSum, CostValue
from torsor.costs.custom import CustomCost
from torsor.costs.effort import ControlEffort
from torsor.costs.energy import EnergyCost
from torsor.costs.point import PointTarget
from torsor.costs.position import PositionTarget
from torsor.costs.velocity import VelocityTarget

__all__ = [
    "ControlEffort",
    "Cost",
    "CostSum",
    "CostValue",
    "CustomCost",
    "EnergyCost",
    "PointTarget",
    "PositionTarget",
    "VelocityTarget",
]
