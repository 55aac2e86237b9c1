"""A session: two lines around an unmodified training step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Union

import torch
from torch import nn

from . import _native
from ._renamed import accepts_old_options
from .budget import Budget, read_budget
from .errors import InvalidArgument
from .pipeline import Pass, pass_list
from .report import Report
from .scopes import layer_list, module_names
from .shard import ShardGroup, read_shard_group
from .unmanaged import keep_saved_weights

Size = Union[int, str]
PathOrText = Union[str, "os.PathLike[str]"]


class Session:
    """Manages the tensors that autograd saves within its steps: profiles them, plans for a budget or by rules, and keeps,
    offloads or recomputes each buffer.

    The first step is the recording step, with everything above `small` offloaded; later steps execute the plan that is
    made of its profile. Results have the same bits as without.

        spillway.Session(model, budget="8 GiB")

    model      its parameters and buffers are never moved, and its modules' names are the scopes
    budget     the most device memory a step may have above what is there before it (weights, gradients, the
               optimizer's): bytes as a number or a text ("8 GiB"), a share of what a step has with everything kept
               (0.33 or "33 %"), or "auto" for what is free, less a margin. The planner then decides what rules leave
               open. If no plan fits the first profile, the next step raises PlanInfeasible, with the smallest budget
               that has one; for later profiles see `strict`
    rules      the path of a TOML file, or its text; without budget, rules and plan everything is kept
    plan       the path of a plan's JSON file, or its text; wins over rules, and is executed from the first step on
    device     buffers on this device are managed; by default the one that holds most of the model
    small      smaller buffers are always kept; sizes are numbers of bytes or texts such as "64 KiB"
    host       the most host memory for offloaded buffers, where rules and plan say nothing
    offload_window
               the most bytes that were copied out and not yet released, where rules and plan say nothing
    prefetch_window
               the most bytes that were prefetched for backward, where rules and plan say nothing
    prepare    how much of that memory to pin in the background before the first step: the more is pinned, the faster the
               recording step
    recompute_cache
               limit on intermediate results that recomputation keeps on the device for reuse
    replan     with a budget: record and plan again when time or peak differ from the prediction by more than the share
               `drift`; the report names drift in any case
    strict     with a budget: raise whenever no plan fits. Otherwise only before the first plan is executed: from then on
               training continues under the plan with the smallest peak, even if that is over the budget, with one
               warning, and the report counts it in its fallbacks
    plan_in_background
               with a budget: train on while the planner works, with everything offloaded; else the recording step
               waits for the plan
    planning_time
               the most seconds that the planner may take
    verify_every
               verify every N steps, as verify_next_step() does; 0: only the step after a new plan
    time_waits_every
               the first two steps of a plan, and then every N-th, have their waits for copies timed for the report;
               0: none
    fuse_replays
               repeat elementwise operators that follow each other as one kernel, on CUDA, where that is verified to give
               the same bits; False: each by its own kernel
    regions    experimental: where host memory does not hold what a step without a plan saves, it recomputes, compares
               and discards the rest as forward runs
    layers     the qualified name of the list of repeated layers; by default the longest list of like modules
    shard_group
               the ranks that have the same buffers as this one, for rules with `shard` and for [limits] shard: a group of
               torch.distributed, or its name, that nothing else uses. Every rank of it makes its session at the same
               time, and from then on runs the same steps and passes

    A session belongs to the thread that makes its steps. Raises the classes of spillway.errors.
    """

    @accepts_old_options
    def __init__(
        self,
        model: nn.Module,
        rules: PathOrText | None = None,
        plan: PathOrText | None = None,
        device: str | torch.device | None = None,
        small: Size | None = None,
        host: Size | None = None,
        offload_window: Size | None = None,
        prefetch_window: Size | None = None,
        layers: str | None = None,
        prepare: Size | None = None,
        recompute_cache: Size | None = None,
        verify_every: int = 0,
        budget: Budget | None = None,
        replan: bool = False,
        drift: float | None = None,
        plan_in_background: bool = True,
        planning_time: float | None = None,
        time_waits_every: int = 32,
        shard_group: ShardGroup | None = None,
        fuse_replays: bool = True,
        regions: bool = False,
        strict: bool = False,
    ) -> None:
        for name, steps in (("verify_every", verify_every), ("time_waits_every", time_waits_every)):
            if steps < 0:
                raise InvalidArgument(f"[session] {name} = {steps} cannot be; give a number of steps, or 0 for none")
        if drift is not None and not drift > 0:
            raise InvalidArgument(f"[session] drift = {drift} cannot be; give a share above 0, such as 0.1")
        if planning_time is not None and not planning_time > 0:
            raise InvalidArgument(f"[session] planning_time = {planning_time} cannot be; give seconds above 0")
        if layers is not None:
            _require_module(model, layers)
        group = None if shard_group is None else read_shard_group(shard_group)
        if device is None:
            device = _device_of(model)
        self._model = model
        options = _native.SessionOptions()
        if rules is not None:
            options.rules = _read_rules(rules)
        if plan is not None:
            options.plan = _read_plan(plan)
        if budget is not None:
            options.budget = read_budget(budget)
        if drift is not None:
            options.drift = drift
        if planning_time is not None:
            options.planning_seconds = planning_time
        if device is not None:
            options.device = str(device)
        sizes = {
            "small": small,
            "host": host,
            "prepare": prepare,
            "offload_window": offload_window,
            "prefetch_window": prefetch_window,
            "recompute_cache": recompute_cache,
        }
        for name, size in sizes.items():
            if size is not None:
                setattr(options, name, _bytes(size))
        options.replan = replan
        options.strict = strict
        options.plan_in_background = plan_in_background
        options.verify_every = verify_every
        options.fuse_replays = fuse_replays
        options.regions = regions
        options.time_waits_every = time_waits_every
        options.layers = layer_list(model) if layers is None else layers
        self._module_scopes = _native.ModuleScopes()
        options.module_scopes = self._module_scopes
        self._native = _native.Session(options)
        keep_saved_weights()
        self.register_model(model)
        if group is not None:
            on_host = device is None or torch.device(device).type == "cpu"
            self._native.set_shard_group(*group, host_tensors=on_host)

    def register_model(self, model: nn.Module) -> None:
        """Registers the storages of parameters and buffers. Call again when they were replaced, as by model.to()."""
        for parameter in model.parameters():
            self._native.register_parameter(parameter)
        for buffer in model.buffers():
            self._native.register_buffer(buffer)

    def step(self, schedule: Sequence[Pass] | None = None) -> Step:
        """One optimizer step's forward and backward passes, for a `with` statement.

        schedule   the order in which the passes will run, as a pipeline does: ("forward" or "backward", chunk,
                   micro-batch) of each; spillway.pipeline makes such lists. Buffers are then prefetched for the
                   backward that comes next, passes whose backward follows at once keep what it needs, and a budget is
                   planned for all passes in flight. Call pass_() before each forward. A step whose passes come in
                   another order goes on as if no schedule had been given, and the report counts it
        """
        return Step(self, None if schedule is None else pass_list(schedule))

    def record_next_step(self) -> None:
        """The next step becomes a recording step."""
        self._native.record_next_step()

    def next_step_records(self) -> bool:
        """Whether the step that begins next is known to record; with `replan` that may turn out only when it begins."""
        return self._native.next_step_records()

    def wait_for_plan(self) -> None:
        """Waits for the planner, if it works in the background. The plan is executed from the next step on.

        Raises PlanInfeasible, and the planner's other errors, where the next step would raise or record again because
        of them: for a training that ends before the planner does.
        """
        self._native.wait_for_plan()

    def verify_next_step(self) -> None:
        """In the next step everything that the plan recomputes is saved as well and compared bit by bit, and what it
        offloads is compared by digests, as in recording steps.

        A buffer that differs is demoted: it is not recomputed or not offloaded any more, and the report names it. An
        offloaded one that differs makes the step's gradients wrong: its end raises VerificationError. The step after a new
        plan verifies by itself.
        """
        self._native.verify_next_step()

    def trace_next_step(self) -> None:
        """The next step marks what its streams do, and when, for trace(). Nothing waits for that within the step."""
        self._native.trace_next_step()

    def trace(self) -> str:
        """The last traced step as JSON for https://ui.perfetto.dev, beside what was predicted of it.

        Waits until the device is done with that step. InvalidArgument if no step was traced.
        """
        return self._native.trace_json()

    def use_plan(self, plan: PathOrText) -> None:
        """Executes a plan, given as the path of a JSON file or as its text, from the next step on."""
        self._native.use_plan(_read_plan(plan))

    def profile_json(self) -> str | None:
        """The profile of the last recording step; None before."""
        return self._native.profile_json()

    def plan_json(self) -> str | None:
        """The plan that is executed; None before the first one."""
        return self._native.plan_json()

    def save_profile(self, path: str | os.PathLike[str]) -> None:
        """Writes the profile of the last recording step, for `spillway plan`. InvalidArgument before the first step."""
        self._native.save_profile(os.fspath(path))

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan that is executed, for `plan=` and `spillway explain`. InvalidArgument if there is none."""
        self._native.save_plan(os.fspath(path))

    def explain(self) -> str:
        """The plan as tables for people: buffers and bytes by scope, operator, action and reason."""
        return self._native.explain()

    def report(self) -> Report:
        """What happened so far."""
        return Report(*self._native.report())


class Step:
    """Made by Session.step(); begins with the `with` statement and ends with it, also when it raises."""

    def __init__(self, session: Session, schedule: list[tuple[bool, int, int]] | None = None) -> None:
        self._session = session
        self._schedule = schedule
        self._native: _native.Step | None = None

    def __enter__(self) -> Step:
        if self._native is not None:
            raise InvalidArgument("[step] this step has begun already; ask the session for another one")
        session = self._session
        if session._native.next_step_records():
            session.register_model(session._model)  # Buffers may have been added or replaced.
        self._native = session._native.step(self._schedule)
        try:
            if _native.scope_wanted():  # Not known before: the step itself may decide to record.
                session._module_scopes.name(module_names(session._model))
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.end()
        else:  # The program's own error must arrive. If gradients are wrong as well, the next Session.step() says so.
            self._drop()

    def pass_(self, chunk: int, micro_batch: int) -> None:
        """Names the pass that runs until the next call: the forward of one model chunk on one micro-batch.

        Without it every forward that follows a backward is the next micro-batch of chunk 0.
        """
        if self._native is None:
            raise InvalidArgument("[pass] the step has not begun or has ended; name passes within it")
        self._native.pass_(chunk, micro_batch)

    def backward(self) -> None:
        """Says that a backward comes next, before its gradient is received or made: what is computed until the next
        pass_() belongs to no forward. With several passes in flight a recording step then knows exactly which pass owns
        which memory; nothing else depends on it.
        """
        if self._native is None:
            raise InvalidArgument("[backward] the step has not begun or has ended; say it within the step")
        self._native.backward()

    def end(self) -> None:
        """Ends the step early; a second call does nothing. From any thread: the one that began it goes on without.

        Raises VerificationError if the step's gradients are wrong; so does the end of the `with` statement.
        """
        native, self._native = self._native, None
        if native is not None:
            native.end()

    def __del__(self) -> None:
        # Dropped without __exit__, perhaps by the garbage collector on another thread. Python ignores errors here: if
        # this step's gradients are wrong, the next Session.step() raises it.
        self._drop()

    def _drop(self) -> None:
        native, self._native = getattr(self, "_native", None), None
        if native is not None:
            native.drop()


def _read_rules(rules: PathOrText) -> _native.Rules:
    # A path has neither; TOML that says anything has one of them.
    if isinstance(rules, str) and ("=" in rules or "\n" in rules):
        return _native.Rules.parse(rules, "rules")
    return _native.Rules.load(os.fspath(rules))


def _read_plan(plan: PathOrText) -> _native.Plan:
    if isinstance(plan, str) and plan.lstrip().startswith("{"):
        return _native.Plan.parse(plan, "plan")
    return _native.Plan.load(os.fspath(plan))


def _bytes(size: Size) -> int:
    if isinstance(size, str):
        return _native.parse_bytes(size)
    if size < 0:
        raise InvalidArgument(f"[session] a size of {size} bytes cannot be; give a number from 0 on")
    return size


def _device_of(model: nn.Module) -> torch.device | None:
    """The device that holds most of the model; None, which leaves the choice to the library, if there is none."""
    sizes: dict[torch.device, int] = {}
    for parameter in model.parameters():
        sizes[parameter.device] = sizes.get(parameter.device, 0) + parameter.numel() * parameter.element_size()
    usable = {device: size for device, size in sizes.items() if device.type in ("cpu", "cuda")}
    return max(usable, key=usable.__getitem__) if usable else None


def _require_module(model: nn.Module, name: str) -> None:
    modules = module_names(model)
    if all(each != name for each, _ in modules):
        lists = [each for each, module in modules if isinstance(module, nn.ModuleList)]
        raise InvalidArgument(
            f'[session] layers = "{name}": the model has no module of that name; its lists of modules are: '
            f"{', '.join(lists) or 'none'}"
        )
