#!/usr/bin/env python3
"""`spillway plan` and `spillway explain` on files, as a user runs them."""

import json
import unittest

from plan_files import MIB, OnFiles, profile
from program import cells, run


class Plan(OnFiles):
    def test_writes_the_plan_and_says_what_is_in_it(self):
        out = self.folder / "plan.json"
        text = self.ok("plan", "--profile", self.profile, "--rules", self.rules, "--out", str(out))
        self.assertIn(f"{out} is written", text)
        self.assertTrue(any(row[:3] == ["offload", "3", "9.0 MiB"] for row in cells(text)), text)
        plan = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual(plan["schema"], "spillway.plan/6")
        decisions = plan["chunks"][0]["decisions"]
        self.assertEqual([each["action"]["kind"] for each in decisions], ["offload", "keep"] * 3 + ["keep", "keep"])
        self.assertEqual(decisions[0]["reason"], f"rule 1 ({self.rules}:1)")
        self.assertEqual(plan["chunks"][0]["sites"]["kinds"], [{"dtype": "bfloat16", "dimensions": 1}])
        self.assertEqual(plan["chunks"][0]["sites"]["buffer"], list(range(8)))
        self.assertEqual(plan["chunks"][0]["need_order"], [7, 6, 5, 4, 3, 2, 1, 0])
        self.assertEqual([each.name for each in self.folder.glob("plan*")], ["plan.json"])

    def test_plans_what_replays_repeat_and_need(self):
        rules = self.write("recompute.toml", '[[rule]]\nproducer = "aten::silu"\naction = "recompute"\n')
        chunk = json.loads(self.ok("plan", "--profile", self.profile, "--rules", rules))["chunks"][0]
        self.assertEqual([each["call"] for each in chunk["operators"]], [1, 3, 5, 7])
        self.assertEqual(chunk["anchors"], [])
        self.assertEqual(chunk["need_order"], [6, 7, 4, 5, 2, 3, 0, 1])

    def test_prints_json_without_a_file(self):
        text = self.ok("plan", "--profile", self.profile, "--rules", self.rules)
        self.assertEqual(len(json.loads(text)["chunks"][0]["decisions"]), 8)

    def test_wrong_rules_start_nothing(self):
        out = self.folder / "plan.json"
        rules = self.write("bad.toml", '[[rule]]\naction = "offlod"\n')
        text = self.refused(1, "plan", "--profile", self.profile, "--rules", rules, "--out", str(out))
        self.assertEqual(
            text, f'error: [rules] {rules}:2:10: action: unknown word "offlod"; did you mean "offload"?\n'
        )
        self.assertFalse(out.exists())

    def test_a_wrong_profile_is_named_with_its_location(self):
        broken = profile(2)
        broken["chunks"][0]["buffers"][1]["size"] = "big"
        path = self.write("broken.json", json.dumps(broken))
        text = self.refused(1, "plan", "--profile", path, "--rules", self.rules)
        self.assertIn(f'{path}: chunks[0].buffers[1].size: a number of bytes wanted, found the text "big"', text)

    def test_files_that_are_not_there_are_named(self):
        text = self.refused(1, "plan", "--profile", "/nowhere/p.json", "--rules", self.rules)
        self.assertIn("cannot read /nowhere/p.json: No such file or directory", text)
        text = self.refused(1, "plan", "--profile", self.profile, "--rules", self.rules, "--out", "/nowhere/plan.json")
        self.assertIn("cannot write /nowhere/plan.json: No such file or directory", text)

    def test_a_missing_option_is_named(self):
        self.assertIn("--budget, --max-slowdown, --curve or --rules is required", self.refused(2, "plan", "--profile", self.profile))
        self.assertIn("--profile is required", self.refused(2, "plan", "--budget", "1 GiB"))


class Explain(OnFiles):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plan = cls.plan_shared("plan.json", cls.rules)

    def test_shows_scopes_operators_bytes_actions_and_reasons(self):
        text = self.ok("explain", self.plan)
        rows = {row[0]: row[1:] for row in cells(text)}
        operator, *found = rows["layers.0..2.attention.core"]
        self.assertTrue(operator.startswith("aten::_scaled"), operator)
        self.assertEqual(found, ["3", "9.0 MiB", "offload", f"rule 1 ({self.rules}:1)"])
        self.assertEqual(rows["layers.0..3.mlp.act"], ["aten::mul", "4", "20.0 MiB", "keep", "nothing matched: keep"])
        self.assertNotIn("made by", text)

    def test_shows_with_the_profile_who_made_the_buffers(self):
        text = self.ok("explain", self.plan, "--profile", self.profile)
        rows = {row[0]: row[1:4] for row in cells(text)}
        self.assertEqual(rows["layers.0..3.mlp.act"], ["aten::mul", "aten::silu", "4"])
        self.assertIn("recorded on a device, 4 layers", text)

    def test_refuses_the_profile_of_another_model(self):
        other = self.write("other.json", json.dumps(profile(5)))
        self.assertIn("give the profile that the plan was made from", self.refused(1, "explain", self.plan, "--profile", other))

    def test_shows_what_the_words_of_a_framework_mean(self):
        rules = self.write("m.toml", "[internevo]\ncheckpoint = 0.5\n")
        text = self.ok("explain", "--rules", rules, "--layers", "16")
        self.assertIn('layers = "0..7"', text)
        self.assertIn('layers = "0..1"', self.ok("explain", "--rules", rules, "--profile", self.profile))
        again = self.write("again.toml", text)
        self.assertEqual(self.ok("explain", "--rules", again), text)
        self.assertIn("give --layers or --profile", self.refused(1, "explain", "--rules", rules))

    def test_knows_the_rank_in_the_pipeline(self):
        rules = self.write(
            "m.toml",
            "[megatron]\nfine_grained_activation_offloading = true\noffload_modules = ['fc1']\n"
            "delta_offload_bytes_across_pp_ranks = 1048576\n",
        )
        text = self.ok("explain", "--rules", rules, "--layers", "4", "--pipeline-rank", "3")
        self.assertIn('skip = "3 MiB"', text)

    def test_refuses_lines_without_sense(self):
        for arguments, text in (
            ([], "give either a plan's file or --rules"),
            ([self.plan, "--rules", self.rules], "give either a plan's file or --rules"),
            ([self.plan, "--layers", "4"], "--layers has a meaning only with --rules"),
            (["--rules", self.rules, "--layers", "4", "--profile", self.profile], "give one of them"),
            (["--rules", self.rules, "--layers", "0"], "--layers"),
            ([self.plan, "other.json"], 'unexpected "other.json"'),
        ):
            self.assertIn(text, self.refused(2, "explain", *arguments))


class Diff(OnFiles):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        other = '[[rule]]\nscope = "*.attention"\nlayers = "0..1"\naction = "offload"\n[limits]\nhost = "1 GiB"\n'
        cls.one = cls.plan_shared("one.json", cls.rules)
        cls.two = cls.plan_shared("two.json", cls.write_shared("o.toml", other))

    def different(self, *arguments):
        result = run("spillway", "diff", *arguments)
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        return result.stdout

    def test_says_that_a_plan_equals_itself(self):
        self.assertEqual(self.ok("diff", self.one, self.one), "the plans are equal\n")
        self.assertTrue(json.loads(self.ok("diff", self.one, self.one, "--json"))["equal"])

    def test_shows_limits_and_buffers_with_another_action(self):
        text = self.different(self.one, self.two)
        self.assertIn(["host memory", "not said", f"1.0 GiB ({1 << 30})"], cells(text))
        row = next(row for row in cells(text) if "layers.2.attention.core" in row)
        self.assertEqual((row[0], row[3:]), ("0", ["1", "5.0 MiB", "offload", "keep"]))
        found = json.loads(self.different(self.one, self.two, "--json"))
        self.assertEqual(found["buffers"][0]["bytes"], 5 * MIB)
        self.assertIn("host memory", [each["name"] for each in found["bytes"]])

    def test_says_when_the_models_differ(self):
        longer = str(self.folder / "longer.json")
        self.ok("plan", "--profile", self.write("p5.json", json.dumps(profile(5))), "--rules", self.rules, "--out", longer)
        text = self.different(self.one, longer)
        self.assertIn("the plans are for different structures, ", text)
        row = next(row for row in cells(text) if "layers.4.mlp.act" in row)
        self.assertEqual(row[-5:], ["aten::mul", "1", "10.0 MiB", "not there", "keep"])

    def test_refuses_what_is_no_plan(self):
        self.assertIn("schema", self.refused(1, "diff", self.one, self.profile))
        self.assertIn("to is required", self.refused(2, "diff", self.one))


if __name__ == "__main__":
    unittest.main()
