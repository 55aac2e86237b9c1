#!/usr/bin/env python3
"""`spillway plan` for a budget, for a slowdown and as a curve, as a user runs it."""

import functools
import json
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

from plan_files import MIB, OnFiles, profile, timed
from program import cells, run, run_on_a_terminal

INFEASIBLE = 3
BASE = 36 * MIB  # Buffers of 1 to 8 MiB, all kept.


@functools.cache
def has_solver(text):
    """Whether a plan can be made for a budget of this profile."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "timed.json"
        file.write_text(text, encoding="utf-8")
        return "the planner needs the HiGHS solver" not in run("spillway", "plan", "--profile", str(file), "--budget", "20 MiB").stderr


class Planned(OnFiles):
    def setUp(self):
        super().setUp()
        text = json.dumps(timed(profile(4)))
        self.profile = self.write("timed.json", text)
        self.out = self.folder / "plan.json"
        if not has_solver(text):
            self.skipTest("built without HiGHS")


class ForABudget(Planned):
    def plan(self, *words):
        """What was printed, what was said of the work, and the plan."""
        result = run("spillway", "plan", "--profile", self.profile, "--out", str(self.out), *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout, result.stderr, json.loads(self.out.read_text(encoding="utf-8"))

    def test_writes_a_plan_that_stays_within_it_and_says_how_good_it_is(self):
        text, said, plan = self.plan("--budget", "20 MiB")
        self.assertEqual(plan["budget"], 20 * MIB)
        self.assertLessEqual(plan["predicted_peak"], 20 * MIB)
        self.assertEqual(plan["base_step_ns"], 8 * 3_000_000)
        self.assertLessEqual(plan["bound_step_ns"], plan["predicted_step_ns"])
        self.assertGreater(plan["bound_step_ns"], 0)
        for words in ("budget", "predicted peak", "predicted step", "bound", "everything kept needs 36.0 MiB"):
            self.assertIn(words, text)
        self.assertIn("planning: ", said)
        self.assertIn(["budget", "20.0 MiB"], cells(self.ok("explain", str(self.out))))

    def test_takes_a_share_of_what_everything_kept_needs(self):
        self.assertEqual(self.plan("--budget", "50%")[2]["budget"], BASE // 2)

    def test_keeps_everything_where_that_fits(self):
        plan = self.plan("--budget", "1 GiB")[2]
        self.assertEqual({each["action"]["kind"] for each in plan["chunks"][0]["decisions"]}, {"keep"})
        self.assertEqual(plan["predicted_step_ns"], plan["base_step_ns"])
        self.assertEqual(plan["predicted_peak"], BASE)

    def test_keeps_what_rules_pin(self):
        rules = self.write("pins.toml", '[[rule]]\nscope = "*.attention"\naction = "keep"\n')
        plan = self.plan("--budget", "30 MiB", "--rules", rules)[2]
        for each in plan["chunks"][0]["decisions"]:
            if "attention" in each["position"]["scope"]:
                self.assertEqual(each["action"]["kind"], "keep")
        self.assertLessEqual(plan["predicted_peak"], 30 * MIB)

    def test_offloads_no_more_than_the_host_may_hold(self):
        plan = self.plan("--budget", "24 MiB", "--host", "4 MiB")[2]
        self.assertEqual(plan["limits"]["host"], 4 * MIB)
        offloaded = sum(each["bytes"] for each in plan["chunks"][0]["decisions"] if each["action"]["kind"] == "offload")
        self.assertLessEqual(offloaded, 4 * MIB)

    def test_finds_the_least_memory_for_a_slowdown(self):
        plan = self.plan("--max-slowdown", "1.5")[2]
        self.assertLessEqual(plan["predicted_step_ns"], 1.5 * plan["base_step_ns"])
        self.assertLess(plan["predicted_peak"], BASE)

    def test_makes_the_same_plan_again(self):
        first = self.plan("--budget", "18 MiB")[2]
        self.assertEqual(self.plan("--budget", "18 MiB")[2], first)

    def test_says_what_the_smallest_budget_is_if_none_fits(self):
        result = run("spillway", "plan", "--profile", self.profile, "--budget", "1 MiB", "--out", str(self.out))
        self.assertEqual(result.returncode, INFEASIBLE, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertIn("\nerror: [plan] no plan fits 1.0 MiB: the smallest peak is ", result.stderr)
        self.assertFalse(self.out.exists())

    def test_draws_what_it_does_over_itself_on_a_terminal(self):
        code, text = run_on_a_terminal("spillway", "plan", "--profile", self.profile, "--budget", "20 MiB")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"^(\rplanning: [^\r\n]+)+\r +\r$")

    def test_wants_a_profile_with_times(self):
        untimed = self.write("untimed.json", json.dumps(profile(4)))
        self.assertIn("timeline", self.refused(1, "plan", "--profile", untimed, "--budget", "20 MiB"))


class Curve(Planned):
    def test_is_a_table_json_and_a_picture(self):
        out, svg = self.folder / "curve.json", self.folder / "curve.svg"
        result = run("spillway", "plan", "--profile", self.profile, "--curve", "--budgets", "1MiB,50%,30 MiB,100%",
                     "--out", str(out), "--svg", str(svg))  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("base: everything kept, 24.0 ms a step, peak 36.0 MiB\n", result.stdout)
        self.assertIn(["1.0 MiB", "3 %", "no plan"], cells(result.stdout))
        curve = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual(curve["schema"], "spillway.curve/1")
        self.assertEqual(curve["base_peak"], BASE)
        self.assertEqual([each["budget"] for each in curve["points"]], [MIB, BASE // 2, 30 * MIB, BASE])
        self.assertEqual([each["feasible"] for each in curve["points"]], [False, True, True, True])
        for each in curve["points"][1:]:
            self.assertLessEqual(each["peak"], each["budget"])
            self.assertLessEqual(each["bound_ns"], each["step_ns"])
            self.assertEqual(each["kept"] + each["offloaded"] + each["recomputed"], BASE)
        picture = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
        self.assertEqual(len(picture.findall("{*}circle")), sum(each["feasible"] for each in curve["points"]))
        everything = curve["points"][-1]
        self.assertEqual((everything["kept"], everything["peak"], everything["step_ns"]), (BASE, BASE, everything["bound_ns"]))

    def test_chooses_budgets_by_itself_and_gets_slower_with_less(self):
        out = self.folder / "curve.json"
        result = run("spillway", "plan", "--profile", self.profile, "--curve", "--out", str(out))
        self.assertEqual(result.returncode, 0, result.stderr)
        points = json.loads(out.read_text(encoding="utf-8"))["points"]
        self.assertGreater(len(points), 5)
        feasible = sorted((each["budget"], each["step_ns"]) for each in points if each["feasible"])
        self.assertGreater(len(feasible), 5)
        times = [step for _, step in feasible]
        self.assertEqual(times, sorted(times, reverse=True))

    def test_fails_if_no_budget_has_a_plan(self):
        out = self.folder / "curve.json"
        result = run("spillway", "plan", "--profile", self.profile, "--curve", "--budgets", "1kB,2kB", "--out", str(out))
        self.assertEqual(result.returncode, INFEASIBLE, result.stderr)
        points = json.loads(out.read_text(encoding="utf-8"))["points"]
        self.assertEqual([(each["budget"], each["feasible"]) for each in points], [(1000, False), (2000, False)])


class WrongLines(OnFiles):
    def test_are_refused_with_what_to_do(self):
        for words, text in (
            (["--budget", "1 GiB", "--curve"], "are different aims; give one of them"),
            (["--budget", "1 GiB", "--max-slowdown", "1.1"], "are different aims; give one of them"),
            (["--budget", "0.33"], '"0.33" is no budget; give bytes, such as 8GiB, or a share'),
            (["--budget", "120%"], '"120%" is no budget'),
            (["--budget", "much"], '"much" is no budget'),
            (["--max-slowdown", "0.9"], "--max-slowdown"),
            (["--rules", self.rules, "--gap", "0.1"], "--time-limit and --gap are for the planner"),
            (["--budget", "1 GiB", "--svg", "a.svg"], "have a meaning only with --curve"),
        ):
            self.assertIn(text, self.refused(2, "plan", "--profile", self.profile, *words), words)


if __name__ == "__main__":
    unittest.main()
