#!/usr/bin/env python3
"""`spillway train` of models with experts, as a user runs it: on one rank, and spread over ranks under mpirun."""

import json
import unittest

from ranks import RanksTest

SMALL = ["--layers", "4", "--hidden", "32", "--tokens", "64", "--steps", "3"]
RULES = """
[[rule]]
made_in_module = "moe_act"
action = "recompute"
[[rule]]
module = ["expert_fc1", "expert_fc2", "mlp_norm", "shared_experts"]
action = "offload"
"""


def settings(table, **values):
    return [word for name, value in values.items() for word in ("--set", f"{table}.{name}={value}")]


EXPERTS = settings("model", experts=4, expert_ffn=48, shared_expert_ffn=32, z_loss=0.001) + settings("train", micro_batches=2)


class Experts(RanksTest):
    def train(self, ranks, *words):
        return super().train(ranks, *SMALL, *words)

    def test_keep_their_bits_under_rules_on_data_expert_and_pipeline_ranks(self):
        rules = self.folder / "rules.toml"
        rules.write_text(RULES, encoding="utf-8")
        layout = settings("parallel", data=2, expert=2, pipeline=2)
        wanted = self.digest(8, *EXPERTS, *layout, "--plain")
        self.assertEqual(self.digest(8, *EXPERTS, *layout, "--set", f"memory.rules={rules}"), wanted)

    def test_give_the_same_digest_on_every_layout_of_stages(self):
        for model in (["--set", "model.kind=gpt"], ["--set", "model.capacity_factor=1.25"]):
            wanted = self.digest(1, *EXPERTS, *model, "--plain")
            self.assertEqual(self.digest(2, *EXPERTS, *model, *settings("parallel", pipeline=2)), wanted)

    def test_write_the_losses_of_the_routers(self):
        out = self.folder / "run"
        self.ok(2, *EXPERTS, *settings("parallel", expert=2), "--out", out)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        self.assertEqual(len(lines), 3)
        for line in lines:
            self.assertGreaterEqual(line["balance_loss"], 0.99)
            self.assertGreater(line["z_loss"], 0)

    def test_go_on_from_a_checkpoint_on_another_layout(self):
        constant = ["--set", "optimizer.schedule=constant"]
        saved = ["--set", f"train.checkpoint={self.folder / 'saved'}", "--set", "train.resume=latest"]
        layout = settings("parallel", expert=2)
        wanted = self.digest(2, *EXPERTS, *constant, *layout, "--set", "train.steps=4")
        # Two ranks along expert read what two along data read, so a step is of the same tokens.
        self.ok(2, *EXPERTS, *constant, *saved, *layout, "--set", "train.steps=2")
        self.assertEqual(self.digest(2, *EXPERTS, *constant, *saved, *layout, "--set", "train.steps=4"), wanted)
        names = {name for each in (self.folder / "saved").glob("*/index.json")
                 for file in json.loads(each.read_text(encoding="utf-8"))["files"].values() for name in file["tensors"]}  # fmt: skip
        for expert in range(4):
            self.assertIn(f"layers.1.mlp.experts.{expert}.fc2", names)
        # The same micro-batches of a step on one rank, and on two that have all experts.
        self.ok(1, *EXPERTS, *constant, *saved, *settings("train", steps=5, micro_batches=4))
        self.ok(2, *EXPERTS, *constant, *saved, *settings("parallel", data=2), "--set", "train.steps=6")
        self.assertTrue((self.folder / "saved" / "step-000006").exists())

    def test_say_what_cannot_be(self):
        result = self.train(1, *settings("model", experts=3), *settings("parallel", expert=2))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("every rank has equally many experts: 3 / 2 leaves 1", result.stderr)


if __name__ == "__main__":
    unittest.main()
