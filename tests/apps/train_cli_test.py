#!/usr/bin/env python3
"""`spillway train` and `spillway profile` with a tiny model, as a user runs them: never their times."""

import json
import os
import tempfile
import unittest
from pathlib import Path

from program import run, run_on_a_terminal, some

SHAPE = {"layers": 3, "hidden": 64, "heads": 4, "kv-heads": 2, "ffn": 192, "tokens": 96, "vocabulary": 64, "device": "host"}


def tiny(**changes):
    """The options of a tiny model."""
    values = {**SHAPE, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


TINY = tiny()
RULES = '[[rule]]\nlayers = "0..1"\naction = "offload"\n[limits]\noffload_window = "64 KiB"\nprefetch_window = "64 KiB"\nmin_size = "4 KiB"\n'

os.environ.setdefault("OMP_NUM_THREADS", "1")


def built_with_torch():
    report = json.loads(run("spillway", "doctor", "--quick", "--size", "2 MiB", "--json").stdout)
    return report["checks"]["torch"]["values"]["built_in"]


WITH_TORCH = built_with_torch()


class InAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.rules = self.folder / "r.toml"
        self.rules.write_text(RULES, encoding="utf-8")

    def ok(self, *words):
        result = run("spillway", *map(str, words))
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def assert_equal_bits(self, found, steps):
        """Of train.json: all losses and gradients of all steps were compared."""
        self.assertIs(found["bits_equal"], True)
        self.assertEqual(found["different"], 0)
        self.assertEqual(found["losses_compared"], steps)
        self.assertGreater(found["gradients_compared"], 0)
        self.assertEqual(found["gradients_compared"] % steps, 0)

    def refused(self, code, *words):
        result = run("spillway", *map(str, words))
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)
        return result.stderr


@unittest.skipUnless(WITH_TORCH, "built without torch")
class Train(InAFolder):
    def test_compares_bits_and_writes_everything(self):
        out = self.folder / "new" / "run"
        # Enough for windows that are fitted once more after the first timed step.
        result = self.ok("train", *TINY, "--steps", "6", "--compare", "--rules", self.rules, "--dropout", "0.1",
                         "--out", out)  # fmt: skip
        for text in ("bits equal: yes (", "3 layers of width 64", "peak of a step", "step time ratio", "fallbacks"):
            self.assertIn(text, result.stdout)
        names = sorted(each.name for each in out.iterdir())
        self.assertEqual(names, ["metrics.jsonl", "plan.json", "profile.json", "report.json", "report.txt", "train.json"])
        found = json.loads((out / "train.json").read_text(encoding="utf-8"))
        self.assertEqual(found["schema"], "spillway.train/1")
        self.assert_equal_bits(found, steps=6)
        self.assertEqual(found["without"]["losses"], found["with"]["losses"])
        self.assertEqual(found["report"]["fallbacks"], {})
        self.assertGreater(found["step_time_ratio"], 0)
        self.assertEqual(len(found["with"]["losses"]), 6)
        self.assertGreater(found["report"]["bytes_out"], 0)
        self.assertLess(found["report"]["saved_peak_with"], found["report"]["saved_peak_without"])
        self.assertEqual(found["report"]["recorded_steps"], 1)
        simulated = found["simulated"]
        self.assertLess(simulated["least_peak"], simulated["kept_peak"])
        for run in ("without", "with"):
            self.assertEqual(found[run]["step_peak"], max(found[run]["peaks"][found["warm_up"]:]))
        fall = found["without"]["step_peak"] - found["with"]["step_peak"]
        self.assertAlmostEqual(found["R"], fall / (simulated["kept_peak"] - simulated["least_peak"]))
        self.assertEqual(found["ranks"][0]["R"], found["R"])
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        self.assertEqual(report["schema"], "spillway.report/2")
        # Old names are there for one release, also where the report is part of train.json.
        self.assertEqual(report["bytes_remade"], report["bytes_recomputed"])  # old name
        self.assertEqual(found["report"], report)
        self.assertIn("spillway report, rank 0", (out / "report.txt").read_text(encoding="utf-8"))
        # What it wrote is what the other commands read.
        self.ok("explain", out / "plan.json", "--profile", out / "profile.json")
        again = self.folder / "plan.json"
        self.ok("plan", "--profile", out / "profile.json", "--rules", self.rules, "--out", again)
        self.ok("train", *TINY, "--steps", "2", "--compare", "--dropout", "0.1", "--plan", again, "--out", out)
        # Without a profile there is nothing to simulate.
        found = json.loads((out / "train.json").read_text(encoding="utf-8"))
        self.assert_equal_bits(found, steps=2)
        self.assertEqual(found["report"]["recorded_steps"], 0)
        self.assertNotIn("simulated", found)
        self.assertNotIn("R", found)
        self.assertEqual(found["ranks"][0]["R"], found["report"]["reduction_ratio"])

    def test_recomputes_with_the_same_bits(self):
        rules = Path(__file__).resolve().parents[2] / "examples" / "rules" / "full-recompute.toml"
        reports = []
        ways = some([["--verify-every", "4"], [], ["--verify-every", "3"]], 2)
        for verify in ways:
            out = self.folder / "run"
            result = self.ok("train", *tiny(tokens=512), "--steps", "4", "--compare", "--rules", rules, "--dropout", "0.1",
                             "--out", out, *verify)  # fmt: skip
            self.assertIn("recomputed in the last step", result.stdout)
            self.assert_equal_bits(json.loads((out / "train.json").read_text(encoding="utf-8")), steps=4)
            reports.append(json.loads((out / "report.json").read_text(encoding="utf-8")))
        for report in reports:
            self.assertGreater(report["repeated_calls"], 10)
            self.assertGreater(report["bytes_recomputed"], 0)
            self.assertEqual(report["fallbacks"], {})
            self.assertEqual(report["demoted"], [])
            self.assertGreater(report["actions"]["recompute"]["buffers"], 10)
        # To be compared, what is recomputed must be saved as well: it is offloaded meanwhile. The report is of the last step.
        self.assertEqual([report["bytes_out"] > 0 for report in reports], [True, False, False][: len(ways)])

    def test_stays_within_a_budget_and_shows_what_was_predicted(self):
        out = self.folder / "run"
        result = self.ok("train", *tiny(tokens=512), "--steps", "6", "--compare", "--budget", "60%", "--out", out)
        for text in ("without", "with", "predicted", "bound of any plan", "within the budget: yes ("):
            self.assertIn(text, result.stdout)
        found = json.loads((out / "train.json").read_text(encoding="utf-8"))
        self.assert_equal_bits(found, steps=6)
        self.assertGreater(found["with"]["step_peak"], 0)
        self.assertLessEqual(found["predicted"]["step_peak"], found["predicted"]["budget"])
        self.assertLessEqual(found["with"]["step_peak"], found["predicted"]["budget"])
        self.assertLess(found["with"]["step_peak"], found["without"]["step_peak"])
        self.assertLessEqual(found["predicted"]["bound_ms"], found["predicted"]["step_ms"])
        self.assertEqual(found["report"]["fallbacks"], {})
        self.assertEqual(json.loads((out / "plan.json").read_text(encoding="utf-8"))["budget"], found["predicted"]["budget"])
        self.assertIn("budget", self.ok("explain", out / "plan.json", "--profile", out / "profile.json").stdout)

    def test_counts_only_steps_that_show_what_the_plan_does(self):
        out = self.folder / "run"
        words = ["train", *tiny(tokens=512), "--budget", "60%", "--trace", self.folder / "trace.json", "--out", out]
        for steps in (1, 2, 3, 6):
            self.ok(*words, "--steps", steps)
            found = json.loads((out / "train.json").read_text(encoding="utf-8"))
            kinds, peaks = found["with"]["kinds"], found["with"]["peaks"]
            self.assertEqual(len(kinds), steps)
            self.assertEqual(kinds[0], "recording")
            self.assertNotIn("planned", kinds[-1:])  # It is traced, and may do something else besides.
            planned = [peak for kind, peak in zip(kinds, peaks, strict=True) if kind == "planned"]
            budget = found["budget"]
            self.assertEqual(budget["bytes"], found["predicted"]["budget"])
            for kind, of_kind in found["report"]["budget"]["steps"].items():
                self.assertEqual(of_kind["steps"], kinds.count(kind))
                self.assertEqual(of_kind["peak"], max(peak for each, peak in zip(kinds, peaks, strict=True) if each == kind))
            if not planned:
                self.assertEqual((budget["measured_steps"], budget["measured_peak"], budget["within"]), (0, None, None))
                self.assertIsNone(found["with"]["step_peak"])
                continue
            self.assertIs(budget["within"], True)
            self.assertEqual(budget["measured_peak"], found["with"]["step_peak"])
            self.assertIn(budget["measured_peak"], planned)
            # A step with a forward and a backward has more than the activations of one layer.
            self.assertGreater(budget["measured_peak"], budget["bytes"] / 4)
        self.assertTrue(planned)

    def test_writes_the_last_step_as_predicted_and_as_measured(self):
        file = self.folder / "trace.json"
        result = self.ok("train", *tiny(tokens=512), "--steps", "12", "--budget", "60%", "--trace", file)
        self.assertIn(f"{file} is written, with the last step as predicted and as measured", result.stdout)
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
        processes = {each["args"]["name"]: each["pid"] for each in events if each["name"] == "process_name"}
        self.assertEqual(list(processes), ["predicted", "measured"])
        copies = {}
        for name, number in processes.items():
            spans = [each for each in events if each["ph"] == "X" and each["pid"] == number and "copy" in each.get("cat", "")]
            copies[name] = sorted((each["cat"], each["name"], each["args"]["bytes"]) for each in spans)
            self.assertTrue(any(each["ph"] == "C" and each["pid"] == number for each in events), name)
        self.assertTrue(copies["measured"])
        self.assertEqual(copies["measured"], copies["predicted"])

    def test_traces_a_step_that_had_no_plan_as_measured_alone(self):
        file = self.folder / "trace.json"
        result = self.ok("train", *TINY, "--steps", "1", "--trace", file)
        self.assertIn("with the last step as measured;", result.stdout)

    def test_says_the_smallest_budget_if_none_fits(self):
        result = run("spillway", "train", *TINY, "--steps", "6", "--budget", "1kB")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("error: [plan] no plan fits", result.stderr)

    def test_learns(self):
        out = self.folder / "run"
        self.ok("train", *TINY, "--steps", "30", "--rules", self.rules, "--out", out)
        losses = json.loads((out / "train.json").read_text(encoding="utf-8"))["with"]["losses"]
        self.assertLess(losses[-1], 0.95 * losses[0])

    def test_seeds_give_other_runs(self):
        losses = []
        for seed in (1, 1, 2):
            out = self.folder / "run"
            self.ok("train", *TINY, "--steps", "1", "--seed", seed, "--out", out)
            losses.append(json.loads((out / "train.json").read_text(encoding="utf-8"))["with"]["losses"])
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])

    def test_says_that_a_plan_of_another_model_does_not_fit(self):
        profile, plan = self.folder / "p.json", self.folder / "plan.json"
        self.ok("profile", *TINY, "--out", profile)
        self.ok("plan", "--profile", profile, "--rules", self.rules, "--out", plan)
        out = self.folder / "run"
        # A layer less may have been left out; more layers are another model.
        for layers in (2, 4):
            self.ok("train", *tiny(layers=layers), "--steps", "4", "--compare", "--plan", plan, "--out", out)
            self.assert_equal_bits(json.loads((out / "train.json").read_text(encoding="utf-8")), steps=4)
        fallbacks = json.loads((out / "report.json").read_text(encoding="utf-8"))["fallbacks"]
        self.assertEqual(fallbacks["the plan given was made for another structure than the one recorded"], 1)
        self.assertEqual(sum(fallbacks.values()), 5)  # One for each pass, one for the plan.

    def test_prints_ordinary_lines_where_there_is_no_terminal(self):
        result = self.ok("train", *TINY, "--steps", "3")
        lines = [line for line in result.stderr.splitlines() if line.startswith("with Spillway")]
        self.assertEqual([f"step {number}/3" in line for number, line in enumerate(lines, start=1)], [True] * 3, result.stderr)
        for line in lines:
            for word in ("loss ", "tokens/s", "device ", "host "):
                self.assertIn(word, line)
        self.assertNotIn("\r", result.stderr)

    def test_draws_a_bar_on_a_terminal(self):
        code, text = run_on_a_terminal("spillway", "train", *TINY, "--steps", "2")
        self.assertEqual(code, 0, text)
        drawn = [each for each in text.split("\r") if each.startswith("with Spillway")]
        for step, each in zip(("1/2", "2/2"), drawn[:1] + drawn[-1:], strict=True):
            self.assertIn(step, each)
        self.assertEqual(2 * drawn[0].count("#"), drawn[-1].count("#"), text)

    def test_refuses_what_cannot_be_before_it_trains(self):
        self.assertIn("kv_heads divide heads: 4 / 3 leaves 1", self.refused(1, "train", *tiny(kv_heads=3)))
        self.assertIn("heads divide hidden: 30 / 4 leaves 2", self.refused(1, "train", *tiny(hidden=30)))
        self.assertIn("device 99 wanted", self.refused(1, "train", *tiny(device="cuda:99")))
        self.assertIn("cannot read /nowhere/r.toml", self.refused(1, "train", *TINY, "--rules", "/nowhere/r.toml"))
        self.assertIn("cannot read /nowhere/p.json", self.refused(1, "train", *TINY, "--plan", "/nowhere/p.json"))
        self.assertIn('"much" is no budget; give bytes', self.refused(1, "train", *TINY, "--budget", "much"))
        for changes in ({"dtype": "int8"}, {"steps": 0}, {"dropout": 1.5}, {"layers": "many"}, {"verify_every": 0}):
            self.refused(2, "train", *tiny(**changes))


@unittest.skipUnless(WITH_TORCH, "built without torch")
class Profile(InAFolder):
    def test_writes_what_one_step_showed(self):
        out = self.folder / "p.json"
        result = self.ok("profile", *TINY, "--out", out)
        self.assertIn(f"{out} is written: ", result.stdout)
        self.assertIn(f"spillway plan --profile {out}", result.stdout)
        profile = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual(profile["schema"], "spillway.profile/5")
        self.assertEqual((profile["layers"], profile["layer_scope"]), (3, "layers"))
        scopes = {each["position"]["scope"] for each in profile["chunks"][0]["buffers"]}
        self.assertIn("layers.2.attention.core", scopes)

    def test_names_the_file_it_cannot_write(self):
        result = run("spillway", "profile", *TINY, "--out", "/nowhere/p.json")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: [profile] cannot write /nowhere/p.json", result.stderr)

    def test_says_that_a_model_has_nothing_to_plan(self):
        smaller = ["8" if word == str(SHAPE["ffn"]) else word for word in TINY]
        result = run("spillway", "profile", *smaller, "--out", "/nowhere/p.json")
        self.assertEqual(result.returncode, 1)
        self.assertIn("error: [profile] autograd saved no buffer of 64.0 KiB or more", result.stderr)

    def test_help_says_how_programs_write_their_own(self):
        text = self.ok("profile", "--help").stdout
        self.assertIn("save_profile(*session.profile()", text)
        self.assertIn("session.profile_json()", text)


@unittest.skipIf(WITH_TORCH, "built with torch")
class WithoutTorch(InAFolder):
    def test_both_commands_say_what_is_missing(self):
        for command in ("train", "profile"):
            self.assertIn(f"[{command}] this program was built without torch", self.refused(1, command, *TINY))


class Help(unittest.TestCase):
    def test_names_options_with_their_defaults(self):
        text = run("spillway", "train", "--help").stdout
        for word in ("--compare", "--layers N:POSITIVE", "--set KEY=VALUE", "--digest", "--baseline", "--rules FILE", "--plan FILE", "--budget SIZE", "--out FOLDER", "--steps N:POSITIVE",
                     "--verify-every N:POSITIVE", "--trace FILE"):
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
