"""Budgets: what is accepted, that they hold, that bits stay the same, and what happens where none fits."""

from __future__ import annotations

import json
import re

import pytest
import torch
from conftest import Transformer, baseline_step, same_bits, session_for, tokens, train
from torch import nn

import spillway

VALID = "give bytes (8589934592 or \"8 GiB\"), a share of what a step has allocated with everything kept"


@pytest.mark.parametrize("budget", [1 << 33, "8 GiB", "8589934592", "1.5GB", 0.33, 1, "33 %", "33%", "auto"])
def test_budgets_are_bytes_shares_or_automatic(budget):
    spillway.Session(Transformer(), budget=budget)


@pytest.mark.parametrize(
    "budget", [0, -1, -0.5, 1.5, float("nan"), True, "", "much", "0", "0.33", "0 %", "100 %", 1.0, "120 %", "x %", "8 Gibi", [1]]
)
def test_others_are_refused_with_what_is_valid(budget):
    with pytest.raises(spillway.InvalidArgument, match=re.escape(VALID)) as raised:
        spillway.Session(Transformer(), budget=budget)
    assert f"[session] budget = {budget!r} is no budget" in str(raised.value)


def test_numbers_of_steps_and_shares_are_checked():
    with pytest.raises(spillway.InvalidArgument, match="time_waits_every = -1 cannot be"):
        spillway.Session(Transformer(), time_waits_every=-1)
    with pytest.raises(spillway.InvalidArgument, match="planning_time = 0 cannot be; give seconds above 0"):
        spillway.Session(Transformer(), budget=0.5, planning_time=0)
    for drift in (0, -0.1, float("nan")):
        with pytest.raises(spillway.InvalidArgument, match="drift = .* cannot be; give a share above 0"):
            spillway.Session(Transformer(), budget=0.5, drift=drift)


def planned(session: spillway.Session) -> dict[str, int]:
    plan = json.loads(session.plan_json() or "{}")
    names = ("budget", "predicted_peak", "predicted_step_ns", "base_step_ns", "bound_step_ns")
    return {name: plan[name] for name in names}


def within(make_model, forward=baseline_step, **options) -> spillway.Session:
    """Trains within a budget: the same bits, and never more memory than that."""
    settings = {"rules": None, "offload_window": None, "prefetch_window": None, "plan_in_background": False, **options}
    return same_bits(make_model, forward, 16, **settings)


@pytest.mark.parametrize("share", [0.8, 0.6])
def test_a_budget_holds_and_bits_are_the_same(share):
    session = within(lambda: Transformer(width=64, layers=4), budget=share)
    plan, values = planned(session), session.report().to_dict()
    assert plan["predicted_peak"] <= plan["budget"]
    assert plan["bound_step_ns"] <= plan["predicted_step_ns"]
    budget = values["budget"]
    assert {name: budget[name] for name in plan} == plan
    assert 0 < budget["measured_peak"] <= plan["budget"], str(session.report())
    assert budget["measured_step_ns"] > 0 and 1 <= budget["plans"] <= 4 and not budget["problem"]
    assert not values["fallbacks"], str(session.report())
    assert "budget" in session.explain() and "bound" in session.explain()
    assert "budget" in str(session.report())


def test_the_planner_works_beside_the_training():
    session = within(lambda: Transformer(width=64, layers=4), budget=0.7, plan_in_background=True)
    values = session.report().to_dict()
    assert not values["fallbacks"] and not values["budget"]["problem"]


def test_a_budget_for_everything_keeps_everything():
    session = within(Transformer, budget="1 GiB")
    plan = json.loads(session.plan_json() or "{}")
    assert {decision["action"]["kind"] for decision in plan["chunks"][0]["decisions"]} == {"keep"}


def test_rules_pin_what_they_match():
    rules = '[[rule]]\nscope = "layers.0"\naction = "keep"\n'
    session = within(lambda: Transformer(width=64, layers=4), budget=0.8, rules=rules)
    plan = json.loads(session.plan_json() or "{}")
    pinned = [each for each in plan["chunks"][0]["decisions"] if each["position"]["scope"].startswith("layers.0")]
    assert pinned and {each["action"]["kind"] for each in pinned} == {"keep"}


def test_no_plan_is_an_error_of_its_own():
    model = Transformer()
    session = session_for(model, rules=None, budget="2 KiB", plan_in_background=False)
    with pytest.raises(spillway.PlanInfeasible, match=r"\[plan\] no plan fits 2\.0 KiB: the smallest peak is "):
        train(model, session, baseline_step, 4)
    # Said once; then training may go on with everything offloaded.
    train(model, session, baseline_step, 2)
    values = session.report().to_dict()
    assert values["bytes_out"] > 0 and values["budget"]["problem"].startswith("[plan] no plan fits")


@pytest.mark.parametrize("background", [False, True])
def test_no_plan_is_raised_by_the_step_after_the_recorded_ones(background):
    model = Transformer(layers=12)
    session = session_for(model, rules=None, budget="2 KiB", plan_in_background=background)
    raised = []
    for i in range(6):
        try:
            with session.step():
                baseline_step(model, i)
        except spillway.PlanInfeasible:
            raised.append(i)
    # The second step records as well: the first one left gradients.
    assert raised == [2] and session.report().to_dict()["recorded_steps"] == 2


@pytest.mark.parametrize("budget", ["2 KiB", 0.8])
def test_a_training_that_ends_early_can_wait_for_the_plan(budget):
    model = Transformer(width=64, layers=4)
    session = session_for(model, rules=None, budget=budget)
    train(model, session, baseline_step, 1)
    if budget == "2 KiB":
        with pytest.raises(spillway.PlanInfeasible, match=r"no plan fits 2\.0 KiB"):
            session.wait_for_plan()
    else:
        session.wait_for_plan()
        assert session.report().to_dict()["budget"]["planned"]


class LayerDrop(Transformer):
    """Each layer is dropped with this probability, or all after the first `first` are."""

    def __init__(self, probability: float = 0.25, first: int | None = None, layers: int = 4) -> None:
        super().__init__(width=64, layers=layers)
        self.probability = probability
        self.first = first

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for i, layer in enumerate(self.layers):
            if torch.rand(()).item() >= self.probability if self.first is None else i < self.first:
                x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("replan", [False, True])
def test_layers_dropped_at_random_never_end_a_training(replan, background):
    def step(model: nn.Module, i: int) -> torch.Tensor:
        loss: torch.Tensor = model(tokens(i, batch=4, length=64))
        loss.backward()
        return loss

    session = same_bits(
        LayerDrop,
        step,
        60,
        rules=None,
        budget=0.6,
        replan=replan,
        plan_in_background=background,
        planning_time=0.3,
    )
    values = session.report().to_dict()
    assert values["steps"] == 60 and values["recorded_steps"] > 1, str(session.report())
    assert values["fallbacks"]["the pass saved other tensors than profiled"] > 0, str(session.report())


def first_then_all(session_options: dict[str, object]) -> tuple[spillway.Session, list[int]]:
    """Steps with one layer, for which a budget is enough that is not for those with all; and steps that raised."""
    model = LayerDrop(first=1, layers=6)
    measured = session_for(model, rules=None, budget="1 GiB", plan_in_background=False)
    train(model, measured, baseline_step, 6)
    budget = measured.report().to_dict()["budget"]["steps"]["planned"]["peak"]
    session = session_for(model, rules=None, budget=budget, plan_in_background=False, **session_options)
    raised = []
    for i in range(12):
        model.first = 1 if i < 6 else 6
        model.zero_grad()
        try:
            with session.step():
                baseline_step(model, i)
        except spillway.PlanInfeasible:
            raised.append(i)
    return session, raised


def test_later_profiles_without_a_plan_get_the_smallest_one(capfd):
    session, raised = first_then_all({})
    values = session.report().to_dict()
    assert not raised
    assert values["fallbacks"]["no plan fits the budget: the one with the smallest peak is executed"] == 1
    assert values["budget"]["predicted_peak"] > values["budget"]["budget"] and values["budget"]["planned"]
    assert values["budget"]["problem"].startswith("[plan] no plan fits")
    assert capfd.readouterr().err.count("[plan] no plan fits") == 1


def test_later_profiles_without_a_plan_raise_where_it_is_strict():
    session, raised = first_then_all({"strict": True})
    assert raised == [8], str(session.report())  # Step 6 diverges, step 7 records.


def test_a_step_that_records_again_by_itself_has_scopes():
    model = Transformer(width=64, layers=4)
    session = session_for(model, rules=None, budget="64 MiB", replan=True, drift=0.5, plan_in_background=False)
    for i in range(16):
        model.zero_grad()
        with session.step():
            model(tokens(i, batch=1 if i < 8 else 4)).backward()
    assert session.report().to_dict()["recorded_steps"] >= 2
    profile = json.loads(session.profile_json() or "")
    scopes = {save["scope"] for buffer in profile["chunks"][0]["buffers"] for save in buffer["saves"]}
    assert profile["layers"] == 4 and any(scope.startswith("layers.3.mlp") for scope in scopes)


def test_the_report_has_the_peaks_of_all_kinds_of_steps():
    model = Transformer(width=64, layers=4)
    session = session_for(model, rules=None, budget=0.7, plan_in_background=False)
    assert session.report().to_dict()["budget"]["steps"] == {} and "last_step" not in session.report().to_dict()
    train(model, session, baseline_step, 1)
    values = session.report().to_dict()
    assert values["last_step"]["kind"] == "recording" and values["last_step"]["number"] == 1
    assert values["budget"]["steps"] == {"recording": {"steps": 1, "peak": values["last_step"]["peak"]}}
    assert values["budget"]["measured_steps"] == 0 and values["budget"]["measured_peak"] == 0
    train(model, session, baseline_step, 12)
    before = session.report().to_dict()["budget"]
    session.trace_next_step()
    train(model, session, baseline_step, 1)
    values = session.report().to_dict()
    assert values["last_step"]["kind"] == "traced"
    assert values["budget"]["measured_steps"] == before["measured_steps"] > 0
    assert values["budget"]["steps"]["planned"]["peak"] >= before["measured_peak"] > 0


def test_a_plan_for_a_budget_is_a_file_like_others(tmp_path):
    session = within(lambda: Transformer(width=64, layers=4), budget=0.7)
    session.save_plan(tmp_path / "plan.json")
    again = same_bits(lambda: Transformer(width=64, layers=4), plan=tmp_path / "plan.json", rules=None)
    values = again.report().to_dict()
    assert values["recorded_steps"] == 0 and not values["fallbacks"]
    assert planned(again) == planned(session)


def test_waits_are_timed_as_often_as_asked():
    for every, timed in ((0, 0), (1, 4)):
        model = Transformer()
        session = session_for(model, time_waits_every=every)
        train(model, session, baseline_step, 4)
        assert session.report().to_dict()["waits"]["step"] == timed


def test_an_unmodified_llama_stays_within_its_budget():
    pytest.importorskip("transformers", reason="skipped: transformers is not installed")
    from hugging_face import llama, step

    torch.manual_seed(0)
    session = within(lambda: llama(num_hidden_layers=4, hidden_size=64, intermediate_size=128), step, budget=0.7)
    plan, values = planned(session), session.report().to_dict()
    assert 0 < values["budget"]["measured_peak"] <= plan["budget"], str(session.report())
    assert not values["fallbacks"], str(session.report())
