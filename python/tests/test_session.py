"""Errors, steps that go wrong, plans, reports."""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import OFFLOAD, Transformer, baseline_step, session_for, tokens, train

import spillway
from spillway import _build_info, _compatible, _native, _trainer


def test_every_error_has_its_class():
    for name in ["InvalidArgument", "OutOfMemory", "DeviceError", "IoError", "PlanInfeasible", "ConfigError"]:
        kind = getattr(spillway, name)
        assert issubclass(kind, spillway.Error) and issubclass(kind, RuntimeError)
        assert str(pickle.loads(pickle.dumps(kind("[x] y")))) == "[x] y"


def test_wrong_rules_name_location_and_key():
    with pytest.raises(spillway.ConfigError, match=r"\[rules\] rules:3:1: .*produser.*producer"):
        spillway.Session(Transformer(), rules='[[rule]]\naction = "offload"\nproduser = "aten::add"\n')


def test_a_missing_rules_file_is_an_io_error(tmp_path):
    with pytest.raises(spillway.IoError, match="memory.toml"):
        spillway.Session(Transformer(), rules=tmp_path / "memory.toml")


def test_rules_come_from_a_file_or_from_text(tmp_path):
    (tmp_path / "memory.toml").write_text(OFFLOAD)
    for rules in [tmp_path / "memory.toml", str(tmp_path / "memory.toml"), OFFLOAD]:
        model = Transformer()
        session = session_for(model, rules=rules)
        train(model, session, baseline_step, 2)
        assert session.report().to_dict()["bytes_out"] > 0


def test_a_device_that_is_not_there_is_an_invalid_argument():
    with pytest.raises(spillway.InvalidArgument, match=re.escape("[session] buffers on device meta cannot be managed")):
        spillway.Session(Transformer(), device="meta")
    with pytest.raises(spillway.InvalidArgument, match='"nonsense" is no device'):
        spillway.Session(Transformer(), device="nonsense")


def test_sizes_are_checked():
    with pytest.raises(spillway.InvalidArgument, match="64 KiBi"):
        spillway.Session(Transformer(), small="64 KiBi")
    with pytest.raises(spillway.InvalidArgument, match="-1 bytes"):
        spillway.Session(Transformer(), small=-1)


def test_nested_steps_are_refused():
    first, second = session_for(Transformer()), session_for(Transformer())
    with first.step():
        with pytest.raises(spillway.InvalidArgument, match="this session's step has not ended"):
            first.step().__enter__()
        with pytest.raises(spillway.InvalidArgument, match="another session is within a step"):
            second.step().__enter__()
    with second.step():
        pass


def test_a_pass_is_named_within_its_step():
    step = session_for(Transformer()).step()
    with pytest.raises(spillway.InvalidArgument, match="within it"):
        step.pass_(0, 0)


def on_another_thread(work: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and not failures, failures


def steps_end_elsewhere(end: Callable[[list[Any]], object]) -> None:
    """Begins steps here, has `end` end each of them on another thread, and requires the bits of autograd without a session."""
    torch.manual_seed(0)
    model = Transformer(dropout=0.0)

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        baseline_step(model, 0)
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = gradients()
    session = session_for(model)
    for _ in range(3):
        holder = [session.step()]
        holder[0].__enter__()
        loss = model(tokens(0))
        on_another_thread(lambda: end(holder))
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        assert all(map(torch.equal, expected, gradients()))  # In no step any more.
        model.zero_grad()
        loss.backward()
        assert all(torch.equal(a, p.grad) for a, p in zip(expected, model.parameters()))
        with session.step():
            assert all(map(torch.equal, expected, gradients()))
    assert session.report().to_dict()["steps"] == 6


def test_a_step_may_end_on_another_thread():
    steps_end_elsewhere(lambda holder: holder[0].end())
    steps_end_elsewhere(lambda holder: holder[0].__exit__(None, None, None))


def test_a_step_may_be_dropped_on_another_thread():
    def collect(holder: list[Any]) -> None:
        cycle: list[Any] = [holder.pop()]
        cycle.append(cycle)
        del cycle
        gc.collect()

    steps_end_elsewhere(lambda holder: holder.clear())
    steps_end_elsewhere(collect)


def test_a_generator_within_a_step_may_be_closed_on_another_thread():
    model = Transformer(dropout=0.0)
    session = session_for(model)

    def batches() -> Iterator[torch.Tensor]:
        with session.step():
            for i in range(10):
                yield model(tokens(i))

    for _ in range(3):
        generator = batches()
        loss = next(generator)
        on_another_thread(generator.close)
        loss.backward()
        model(tokens(1)).backward()
        with session.step():
            baseline_step(model, 1)


def test_a_coroutine_may_be_within_a_step():
    model = Transformer(dropout=0.0)
    session = session_for(model)

    async def train(i: int) -> None:
        with session.step():
            loss = model(tokens(i))
            await asyncio.get_running_loop().run_in_executor(None, loss.backward)
            await asyncio.sleep(0)

    for i in range(3):
        asyncio.run(train(i))
    on_another_thread(lambda: asyncio.run(train(3)))

    class Never:
        def __await__(self):
            yield

    async def given_up() -> None:
        with session.step():
            model(tokens(4))
            await Never()

    coroutine = given_up()
    coroutine.send(None)
    on_another_thread(coroutine.close)
    with session.step():
        baseline_step(model, 5)


def test_a_thread_may_end_within_a_step():
    torch.manual_seed(0)
    model = Transformer(dropout=0.0)
    model(tokens(0)).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    session = session_for(model)
    held = []
    for _ in range(3):
        on_another_thread(lambda: held.append(session.step().__enter__()))
        with session.step():
            model.zero_grad()
            baseline_step(model, 0)
            held.clear()  # Ends its own step only, which is over.
            assert session.report().to_dict()["steps"] % 2 == 1
        assert all(torch.equal(a, p.grad) for a, p in zip(expected, model.parameters()))


def test_an_exception_inside_a_step_leaves_everything_clean():
    torch.manual_seed(0)
    expected = train(Transformer(), None, baseline_step, 3)
    torch.manual_seed(0)
    model = Transformer()
    session = session_for(model)
    for failing in range(3):
        with pytest.raises(ZeroDivisionError), session.step():
            model(tokens(failing))
            raise ZeroDivisionError
    found = train(model, session, baseline_step, 3)
    assert all(map(torch.equal, expected, found))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_session_may_go_in_the_middle_of_a_step():
    model = Transformer()
    session = session_for(model)
    step = session.step().__enter__()
    loss = model(tokens(0))
    del session, step
    gc.collect()
    loss.backward()
    other = session_for(model)
    with other.step():
        baseline_step(model, 1)


def test_a_graph_may_outlive_its_session():
    torch.manual_seed(0)
    model = Transformer(dropout=0.0)
    model(tokens(0)).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    session = session_for(model)
    with session.step():
        loss = model(tokens(0))
    del session
    gc.collect()
    loss.backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(expected, model.parameters()))


def test_changing_a_saved_tensor_in_place_is_autograds_own_error():
    model = Transformer()
    session = session_for(model)
    for _ in range(2):
        with session.step():
            x = torch.randn(64, 64, requires_grad=True)
            y = x * 2
            z = (y * y).sum()
            y += 1
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.backward()


def test_threads_have_a_session_each():
    failures = []

    def work(seed: int) -> None:
        try:
            model = Transformer(dropout=0.0)
            session = session_for(model)
            for i in range(5):
                with session.step():
                    baseline_step(model, seed + i)
            if session.report().to_dict()["fallbacks"]:
                failures.append(str(session.report()))
        except BaseException as error:  # noqa: BLE001
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(10 * i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("recorded", [True, False])
def test_freeing_a_storage_may_run_python_code_that_uses_the_session(recorded):
    # A daemon, so that a deadlock fails the test.
    model = torch.nn.Linear(2, 2)
    session = session_for(model, offload_window="8 KiB", small="1 KiB")
    freed, ended = [], threading.Event()

    def forward(graphs: list[torch.Tensor]) -> torch.Tensor:
        x = torch.randn(1024, requires_grad=True)
        y = x.exp()
        weakref.finalize(y.untyped_storage(), use_session, graphs)
        y = y.exp()
        for _ in range(8):
            y = y.sin()
        return y.sum()

    def use_session(graphs: list[torch.Tensor]) -> None:
        other = threading.Thread(target=graphs.clear)  # Frees a graph of the session, holding the interpreter.
        other.start()
        other.join()
        freed.append(session.report().to_dict()["steps"])

    def work() -> None:
        for _ in range(1 if recorded else 3):
            with session.step():
                graphs = [forward([])]
                forward(graphs).backward()
        ended.set()

    threading.Thread(target=work, daemon=True).start()
    assert ended.wait(30), "deadlock"
    assert freed


def test_a_plan_is_taken_from_one_session_to_another(tmp_path):
    model = Transformer()
    first = session_for(model)
    assert first.plan_json() is None and first.profile_json() is None
    train(model, first, baseline_step, 2)
    plan = first.plan_json()
    assert plan is not None and json.loads(plan)["schema"] == "spillway.plan/6"
    (tmp_path / "plan.json").write_text(plan)
    for given in [plan, tmp_path / "plan.json"]:
        second = session_for(model, rules=None, plan=given)
        train(model, second, baseline_step, 3)
        assert json.loads(second.plan_json() or "")["chunks"] == json.loads(plan)["chunks"]
        assert second.report().to_dict()["bytes_out"] > 0
        assert second.report().to_dict()["recorded_steps"] == 0
        assert second.report().to_dict()["fallbacks"] == {}
    third = session_for(model, rules=None)
    train(model, third, baseline_step, 2)
    assert third.report().to_dict()["bytes_out"] == 0
    third.use_plan(plan)
    train(model, third, baseline_step, 1)
    assert third.report().to_dict()["bytes_out"] > 0


def test_a_plan_of_another_model_falls_back_and_the_next_step_records_with_scopes():
    small, large = Transformer(layers=2), Transformer(layers=3)
    first = session_for(small)
    train(small, first, baseline_step, 2)
    second = session_for(large, plan=first.plan_json())
    train(large, second, baseline_step, 3)
    report = second.report().to_dict()
    assert report["recorded_steps"] == 1
    assert "the plan given was made for another structure than the one recorded" in report["fallbacks"]
    scopes = {each["position"]["scope"] for each in json.loads(second.plan_json() or "")["chunks"][0]["decisions"]}
    assert any(scope.startswith("layers.2.") for scope in scopes), scopes


def test_a_plan_for_another_model_is_refused():
    small, large = Transformer(layers=2), Transformer(layers=3)
    first, second = session_for(small), session_for(large)
    train(small, first, baseline_step, 1)
    train(large, second, baseline_step, 1)
    with pytest.raises(spillway.InvalidArgument, match="another structure"):
        second.use_plan(first.plan_json() or "")
    with pytest.raises(spillway.ConfigError):
        second.use_plan("{}")


def test_recording_is_asked_for():
    model = Transformer()
    session = session_for(model)
    train(model, session, baseline_step, 2)
    session.record_next_step()
    train(model, session, baseline_step, 2)
    assert session.report().to_dict()["recorded_steps"] == 2


def test_the_report_is_text_and_values():
    model = Transformer()
    session = session_for(model)
    train(model, session, baseline_step, 2)
    report = session.report()
    assert "fallbacks" in str(report) and repr(report) == "<spillway.Report of 2 steps on cpu>"
    assert report.to_dict()["actions"]["offload"]["buffers"] > 0


def test_saving_needs_no_interpreter_per_tensor():
    # Counted by the profiler of the interpreter: calls of Python or of built-in functions during backward.
    model = Transformer(dropout=0.0)
    session = session_for(model)
    train(model, session, baseline_step, 2)

    def calls(within: bool) -> int:
        count = 0

        def seen(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        step = session.step()
        if within:
            step.__enter__()
        sys.setprofile(seen)
        try:
            baseline_step(model, 0)
        finally:
            sys.setprofile(None)
        step.end()
        return count

    assert calls(True) == calls(False) > 0


def test_another_torch_is_refused_with_words():
    with pytest.raises(
        ImportError, match="built for torch 2.11.0, a build for CUDA 13.0, but the torch here is 2.12.0"
    ):
        _compatible.check_torch("2.12.0+cu130", "13.0", "2.11.0", "13.0")
    with pytest.raises(ImportError, match="is 2.11.0, a CPU-only build"):
        _compatible.check_torch("2.11.0+cpu", None, "2.11.0", "13.0")
    _compatible.check_torch("2.11.0+cu130", "13.0", "2.11.0", "13.0")


def test_scopes_are_empty_outside():
    assert _native.current_scope() == ""


def test_profile_and_plan_are_saved_and_explained(tmp_path):
    model = Transformer()
    session = session_for(model)
    with pytest.raises(spillway.InvalidArgument, match=re.escape("[save_profile] there is no profile yet; run a step")):
        session.save_profile(tmp_path / "profile.json")
    with pytest.raises(spillway.InvalidArgument, match=re.escape("[save_plan] there is no plan yet; run a step first")):
        session.save_plan(tmp_path / "plan.json")
    with pytest.raises(spillway.InvalidArgument, match=re.escape("[explain] there is no plan yet")):
        session.explain()
    assert session.next_step_records()
    train(model, session, baseline_step, 2)
    assert not session.next_step_records()
    session.save_profile(tmp_path / "profile.json")
    session.save_plan(str(tmp_path / "plan.json"))
    assert (tmp_path / "profile.json").read_text().strip() == (session.profile_json() or "").strip()
    assert (tmp_path / "plan.json").read_text().strip() == (session.plan_json() or "").strip()
    with pytest.raises(spillway.IoError, match="nowhere"):
        session.save_plan(tmp_path / "nowhere" / "plan.json")
    text = session.explain()
    assert "layers.0..2.mlp" in text and "offload" in text and "aten::gelu" in text
    second = session_for(model, rules=None, plan=tmp_path / "plan.json")
    train(model, second, baseline_step, 2)
    assert second.report().to_dict()["bytes_out"] > 0


def test_host_memory_is_prepared():
    model = Transformer()
    session = session_for(model, prepare="1 MiB")
    train(model, session, baseline_step, 2)
    assert session.report().to_dict()["bytes_out"] > 0
    with pytest.raises(spillway.InvalidArgument, match="1 MiBi"):
        session_for(model, prepare="1 MiBi")


def test_the_package_tells_what_it_is():
    found = subprocess.run([sys.executable, "-m", "spillway"], capture_output=True, text=True, check=True).stdout
    assert found.startswith(f"spillway  {spillway.__version__}\nbuilt for torch {_build_info.TORCH_VERSION}, ")
    assert f"torch     {torch.__version__}" in found


def test_a_package_built_for_another_torch_is_refused_when_imported(tmp_path):
    # The package as it is, with another record of what it was built for.
    copy = tmp_path / "spillway"
    shutil.copytree(Path(spillway.__file__).parent, copy)
    info = copy / "_build_info.py"
    info.write_text(re.sub(r"TORCH_VERSION = .*", 'TORCH_VERSION = "2.10.1"', info.read_text()))
    found = subprocess.run(
        [sys.executable, "-c", "import spillway"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    last = found.stderr.strip().splitlines()[-1]
    version = torch.__version__.split("+")[0]
    assert last.startswith("ImportError: [import] this spillway was built for torch 2.10.1, ")
    assert f"but the torch here is {version}, " in last and "pip install --no-build-isolation" in last


@pytest.mark.parametrize("module", [_native, _trainer])
def test_the_stubs_name_all_that_the_compiled_half_has(module):
    stub = f"{module.__name__.rpartition('.')[2]}.pyi"
    tree = ast.parse((Path(spillway.__file__).parent / stub).read_text())

    def names(body: list[ast.stmt]) -> set[str]:
        values = {ast.unparse(each.target) for each in body if isinstance(each, ast.AnnAssign)}
        return values | {each.name for each in body if isinstance(each, (ast.ClassDef, ast.FunctionDef))}

    def public(value: object) -> set[str]:
        return {name for name in dir(value) if not name.startswith("_")}

    assert names(tree.body) == public(module)
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            assert names(each.body) - {"__init__"} == public(getattr(module, each.name)), each.name
