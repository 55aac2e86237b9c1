"""Children made by fork() while a session exists: each script runs in a process of its own, within a time limit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

START = """
import gc, multiprocessing, os, signal, sys, threading, time
import torch
from conftest import *
import spillway

torch.set_num_threads(1)
signal.alarm(100)  # A process that hangs fails the test.


def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        work()
        sys.exit(0)  # With all that Python does at its end.
    status = os.waitpid(pid, 0)[1]
    assert status == 0, f"the child ended with {status}"


def trained(steps=3, **options):
    model = Transformer(dropout=0.0)
    session = session_for(model, **options)
    for i in range(steps):
        with session.step():
            baseline_step(model, i)
    return model, session
"""


def run(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(script)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("rules", ["OFFLOAD", "'[[rule]]\\naction = \"recompute\"\\n'"])
def test_a_child_may_exit_or_drop_the_session(rules):
    run(f"""
        model, session = trained(rules={rules})
        child(lambda: None)
        with session.step() as step:
            loss = model(tokens(9))
            child(lambda: None)
            child(lambda: step.end())

            def drop():
                global session, step, loss
                del loss, session, step
                gc.collect()

            child(drop)
            loss.backward()
        child(lambda: os.abort() if session is None else None)
    """)


def test_a_step_in_a_child_says_why_there_is_none():
    run("""
        model, session = trained()

        def begin():
            try:
                session.step().__enter__()
            except spillway.InvalidArgument as error:
                assert "belongs to the process that called fork()" in str(error), error
            else:
                raise AssertionError("a step began")

        child(begin)
        with session.step():
            pass
    """)


def test_a_child_of_a_step_trains_as_without_a_session():
    # No backward before: torch refuses it in a child of a process that has run one.
    run("""
        model = Transformer(dropout=0.0)
        session = session_for(model)
        with session.step():
            def train():
                loss = baseline_step(model, 0)
                torch.save([loss.detach(), *(p.grad for p in model.parameters())], "/dev/null")
                own = session_for(model)  # And may have a session of its own.
                for i in range(3):
                    with own.step():
                        baseline_step(model, i)
                assert moved(own)[0] > 0

            child(train)
            baseline_step(model, 0)
        assert session.report().to_dict()["steps"] == 1
    """)


def test_workers_of_a_data_loader_fork_within_a_step():
    run("""
        class Batches(torch.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, i):
                x = torch.ones(64, 64, requires_grad=True)
                (x.exp() * x).sum()  # Saves tensors in the worker.
                return tokens(i)[0]

        def losses(session, model):
            values = []
            for epoch in range(2):
                loader = torch.utils.data.DataLoader(
                    Batches(), batch_size=2, num_workers=2, multiprocessing_context="fork", persistent_workers=epoch == 1
                )
                with session.step() if session is not None else contextlib.nullcontext():
                    for batch in loader:  # The workers start here.
                        loss = model(batch)
                        loss.backward()
                        values.append(loss.detach())
                del loader
            return values + [p.grad for p in model.parameters()]

        torch.manual_seed(0)
        without = losses(None, Transformer(dropout=0.0))
        torch.manual_seed(0)
        model = Transformer(dropout=0.0)
        session = session_for(model)
        found = losses(session, model)
        assert all(map(torch.equal, without, found))
    """.replace("contextlib.", "__import__('contextlib')."))


def test_multiprocessing_may_fork_and_exit():
    run("""
        model, session = trained()
        context = multiprocessing.get_context("fork")
        with session.step():
            loss = model(tokens(5))
            for work in (lambda: None, lambda: sys.exit(0), lambda: session.__init__ and gc.collect()):
                process = context.Process(target=work)
                process.start()
                process.join(40)
                assert process.exitcode == 0, process.exitcode
            with context.Pool(2) as pool:
                assert pool.map(abs, [-1, -2]) == [1, 2]
            loss.backward()
    """)


def test_a_child_may_exit_while_the_planner_works():
    run("""
        model = Transformer(dropout=0.0)
        session = session_for(model, rules=None, budget=0.7, planning_time=5)
        for i in range(4):
            with session.step():
                baseline_step(model, i)
            child(lambda: None)
        foreground = session_for(model, rules=None, budget=0.7, plan_in_background=False)
        for i in range(3):
            with foreground.step():
                baseline_step(model, i)
            child(lambda: None)
    """)


def test_a_process_ends_with_a_daemon_thread_within_a_step():
    run("""
        model, session = trained()
        within, forked, again = threading.Event(), threading.Event(), threading.Event()

        def work():
            with session.step():
                loss = model(tokens(1))
                within.set()
                forked.wait()
                loss = model(tokens(2))
                again.set()
                while True:
                    time.sleep(1e-3)  # Within an operator of torch, Python's end would terminate the process.

        threading.Thread(target=work, daemon=True).start()
        within.wait()
        child(lambda: gc.collect())
        forked.set()
        again.wait()
    """)
