"""Every cost: one contract over all, what each one is, and when it counts along a trajectory."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

import torsor as ts
from torsor import testing

MODELS = {f"random{seed}": testing.random_tree(seed, 7) for seed in range(4)} | {
    "all": testing.random_tree(9, testing.example_joints())
}
COUNT = len(testing.example_costs(MODELS["random0"], 0))


# ---- the contract


@pytest.mark.parametrize("k", range(COUNT))
@pytest.mark.parametrize("name", MODELS)
def test_contract(name, k):
    model = MODELS[name]
    for seed in range(1 if name == "all" else 2):
        forces = testing.example_forces(model, seed)
        testing.check_cost(testing.example_costs(model, seed)[k], model, seed, forces=forces)


def test_check_cost_finds_errors():
    model = MODELS["random0"]

    def wrong(q, v, u, t):
        return None, 2.1 * v, None

    cost = ts.CustomCost(lambda q, v, u, t: (v * v).sum(-1), wrong)
    with pytest.raises(AssertionError, match="dv is off by"):
        testing.check_cost(cost, model, 0)
    right = ts.CustomCost(lambda q, v, u, t: (v * v).sum(-1), lambda q, v, u, t: (None, 2 * v, None))
    testing.check_cost(right, model, 0)
    bad = ts.CustomCost(right.function, right.gradient, lambda q, v, u, t: (None,) * 6)
    with pytest.raises(AssertionError, match="dvdv is off by"):
        testing.check_cost(bad, model, 0)


@pytest.mark.parametrize("k", range(COUNT))
def test_costs_are_frozen_values(k):
    model = MODELS["random1"]
    cost, again = (testing.example_costs(model, 1)[k] for _ in range(2))
    name = fields(cost)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(cost, name, 1)
    states = testing.example_costs(model, 1)[k]
    n = max(term._rows() or 1 for _, term in cost.terms)
    q, v, u = model.random(0, n), np.ones((n, model.nv)), np.ones((n, model.nv))
    expected = cost.evaluate(model, q, v, u, 0.3).value
    for other in (copy.copy(cost), copy.deepcopy(cost), pickle.loads(pickle.dumps(cost)), states):
        np.testing.assert_array_equal(other.evaluate(model, q, v, u, 0.3).value, expected)
        assert repr(other) == repr(cost) or "CustomCost" in repr(cost)
        if not isinstance(cost, ts.CustomCost):  # whose functions are compared by identity
            assert other == cost == again
            assert hash(other) == hash(cost)
    assert cost != ts.EnergyCost(weight=7.0)
    assert isinstance(ts.costs.Cost, type)
    assert isinstance(cost, ts.Cost)
