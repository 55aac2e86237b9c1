"""Old names of options and report keys: they work for one release, with one DeprecationWarning each."""

from __future__ import annotations

import json
import sys
import warnings

import pytest
import torch
from torch import nn
from trainer import SMALL, alone, digest_in, run

import spillway
from spillway import _renamed
from spillway.__main__ import main
from spillway.launch import has_trainer
from spillway.report import Report

# Each an old name.
OLD_OPTIONS = {"in_flight": "16 KiB", "ahead": "64 KiB", "remade": "1 MiB"}  # old name
REPORT = {
    "bytes_recomputed": 7,
    "actions": {"keep": {"buffers": 1}},
    "budget": {"verification_peak": 5, "over_budget_steps": 2},
    "shard": {"part_bytes": 3},
}


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_renamed, "_warned", set())


def report() -> dict:
    return Report("", json.dumps(REPORT)).to_dict()


def test_a_session_takes_options_by_their_old_names():
    with pytest.warns(DeprecationWarning) as found:
        session = spillway.Session(nn.Linear(4, 4), **OLD_OPTIONS)
    assert [str(each.message) for each in found] == [
        f'option "{old}" is now called "{_renamed.OPTIONS[old]}"; the old name works for one more release'
        for old in OLD_OPTIONS
    ]
    assert {each.filename for each in found} == {__file__}
    with session.step():
        nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
    assert session.report().to_dict()["steps"] == 1


def test_each_warns_once_a_process():
    with pytest.warns(DeprecationWarning):
        spillway.Session(nn.Linear(4, 4), ahead=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spillway.Session(nn.Linear(4, 4), ahead=0)


def test_both_names_are_refused():
    for old, value in OLD_OPTIONS.items():
        new = _renamed.OPTIONS[old]
        with pytest.raises(spillway.InvalidArgument, match=f"{old} is the old name of {new}; give one of the two"):
            spillway.Session(nn.Linear(4, 4), **{old: value, new: value})
    with pytest.raises(spillway.InvalidArgument, match="the old name of offload_window"):
        spillway.Session(nn.Linear(4, 4), None, None, None, None, None, 0, in_flight=0)  # old name


def test_an_unknown_option_names_the_nearest():
    with pytest.raises(TypeError, match=r"Session\(\) got an unexpected keyword argument 'budgit'; did you mean 'budget'\?"):
        spillway.Session(nn.Linear(4, 4), budgit="1 GiB")
    with pytest.raises(TypeError, match="unexpected keyword argument 'xyzzyplugh'$"):
        spillway.Session(nn.Linear(4, 4), xyzzyplugh=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'model'"):
        spillway.Session()


def test_the_callback_takes_them_too():
    pytest.importorskip("transformers", reason="skipped: transformers is not installed")
    with pytest.warns(DeprecationWarning, match='"offload_window"') as found:
        callback = spillway.SessionCallback(in_flight="16 KiB")  # old name
    assert found[0].filename == __file__
    callback.on_train_begin(None, None, None, model=nn.Linear(4, 4))
    assert callback.session is not None
    with pytest.raises(TypeError, match=r"SessionCallback\(\) got an unexpected keyword argument 'budgit'; did you mean 'budget'\?"):
        spillway.SessionCallback(budgit="1 GiB")
    with pytest.raises(TypeError, match="'model'"):
        spillway.SessionCallback(model=nn.Linear(4, 4))


def test_a_report_has_its_values_by_their_old_keys():
    values = report()
    with pytest.warns(DeprecationWarning) as found:
        assert values["bytes_remade"] == values.get("bytes_remade") == 7  # old name
        assert values["budget"]["proving_peak"] == 5  # old name
        assert values["budget"]["above"] == 2
        assert values["shard"]["held"] == 3
    assert str(found[0].message) == (
        'report key "bytes_remade" is now called "bytes_recomputed"; the old name works for one more release'  # old name
    )
    assert len(found) == 4
    assert {each.filename for each in found} == {__file__}
    assert "bytes_remade" in values  # old name
    assert values == REPORT and list(values) == list(REPORT)


def test_a_report_has_no_other_keys():
    values = report()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "above" not in values and values.get("above", 1) == 1 and values.get("waiting") is None
        for key in ("above", "stayed", "nonsense"):
            with pytest.raises(KeyError, match=key):
                values[key]
        assert values.get("bytes_recomputed") == 7 and values["actions"]["keep"] == {"buffers": 1}


def test_the_old_keys_name_keys_that_a_report_has():
    session = spillway.Session(nn.Linear(4, 4), budget="1 GiB")
    values = session.report().to_dict()
    assert values["budget"].keys() >= {"verification_peak", "over_budget_steps", "unplanned_steps"}
    assert values.keys() >= {"bytes_recomputed", "offloads_skipped"}
    # The JSON has both, and lists the same names as these aliases.
    assert not values.keys() & _renamed.REPORT_KEYS.keys() and not values["budget"].keys() & _renamed.REPORT_KEYS.keys()
    assert values["renamed"] == _renamed.REPORT_KEYS
    assert json.loads(session.report().to_json())["budget"]["above"] == 0
    with pytest.warns(DeprecationWarning):
        assert values["budget"]["above"] == 0


@pytest.mark.skipif(not has_trainer(), reason="skipped: this installation has no trainer")
def test_the_trainer_takes_the_old_name_of_an_option(capfd):
    text = 'option "--plain" is now called "--baseline"; the old name works for one more release'  # old name
    old = run([sys.executable, "-m", "spillway", "train", *SMALL, "--digest", "--plain"])  # old name
    assert old.returncode == 0 and old.stderr.count(text) == 1, old.stderr
    assert digest_in(old.stdout) == digest_in(alone(capfd, "train", *SMALL, "--digest", "--baseline"))
    for words, code in ((["--help"], 0), (["--plain", "--compare"], 2)):  # old name
        with pytest.raises(SystemExit) as ended:
            main(["train", *words])
        assert ended.value.code == code
    found = capfd.readouterr()
    assert "--baseline" in found.out and "--plain" not in found.out  # old name
    assert "--baseline excludes --compare" in found.err
