"""Spillway for the Trainer of Hugging Face transformers."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ._renamed import option_names, with_new_names
from .errors import Error, VerificationError
from .session import Session, Step


class SessionCallback(TrainerCallback):
    """Makes a session when training begins and one step of it for each optimizer step.

        Trainer(model, args, callbacks=[spillway.SessionCallback(budget="8 GiB")])

    Options are those of spillway.Session. With gradient accumulation one step spans all micro-batches. Evaluation
    runs outside of steps, without Spillway. If no plan fits the budget, training ends with PlanInfeasible; where it was
    over before the planner was done, a RuntimeWarning says so at its end, or with `strict` the error. If a step's
    gradients are wrong, training ends with VerificationError before the optimizer uses them.
    """

    def __init__(self, rules: Any = None, **options: Any) -> None:
        known = option_names(Session.__init__)[1:]  # The model is known when training begins.
        self._strict = bool(options.get("strict", False))
        self._options = {"rules": rules, **with_new_names("SessionCallback", options, known)}
        self._step: Step | None = None
        self.session: Session | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # Of a training that was interrupted; nobody uses its gradients.
        with contextlib.suppress(VerificationError):
            self._end()
        # Only now is the model on its device.
        self.session = Session(kwargs["model"], **self._options)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._end()
        if self.session is not None:
            self._step = self.session.step().__enter__()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._end()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._end()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._end()
        if self.session is None:
            return
        try:
            self.session.wait_for_plan()
        except Error as error:
            if self._strict:
                raise
            warnings.warn(f"training ended before it could use a plan: {error}", RuntimeWarning, stacklevel=2)

    def _end(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.end()
