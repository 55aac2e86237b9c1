#!/usr/bin/env python3
"""`spillway train` of models with experts, as a user runs it: on one rank, and spread over ranks under mpirun."""

import json
import unittest

from program import some
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


def tensors_of(checkpoint):
    """Type, shape and bytes of every tensor of a checkpoint, whichever file it is in."""
    found = {}
    for path in checkpoint.glob("*.safetensors"):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8 : 8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = (entry["dtype"], entry["shape"], data[8 + size + begin : 8 + size + end])
    return found


class Experts(RanksTest):
    def train(self, ranks, *words):
        return super().train(ranks, *SMALL, *words)

    def test_keep_their_bits_under_rules_on_data_expert_and_pipeline_ranks(self):
        rules = self.folder / "rules.toml"
        rules.write_text(RULES, encoding="utf-8")
        layout = settings("parallel", data=2, expert=2, pipeline=2)
        self.equal_bits(3, 8, *EXPERTS, *layout, "--set", f"memory.rules={rules}")

    def test_keep_their_bits_under_rules_on_tensor_expert_and_pipeline_ranks(self):
        rules = self.folder / "rules.toml"
        rules.write_text(RULES, encoding="utf-8")
        layout = settings("parallel", tensor=2, expert=2, sequence_parallel="true")
        self.equal_bits(3, 4, *EXPERTS, *layout, "--set", f"memory.rules={rules}")
        for words in some([[*EXPERTS, *layout]], 0):  # The stages do not change the bits either.
            wanted = self.digest(4, *words, "--baseline")
            split = [*words, *settings("parallel", pipeline=2), "--set", f"memory.rules={rules}"]
            self.assertEqual(self.digest(8, *split), wanted)

    def test_give_the_same_digest_on_every_layout_of_stages(self):
        for model in (["--set", "model.kind=gpt"], ["--set", "model.capacity_factor=1.25"]):
            wanted = self.digest(1, *EXPERTS, *model, "--baseline")
            self.assertEqual(self.digest(2, *EXPERTS, *model, *settings("parallel", pipeline=2)), wanted)

    def test_write_the_losses_of_the_routers(self):
        out = self.folder / "run"
        self.ok(2, *EXPERTS, *settings("parallel", expert=2), "--out", out)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        self.assertEqual(len(lines), 3)
        for line in lines:
            self.assertGreaterEqual(line["balance_loss"], 0.99)
            self.assertGreater(line["z_loss"], 0)
        # Those of all tokens, also where each tensor rank routes a part of them.
        split = self.folder / "split"
        self.ok(4, *EXPERTS, *settings("parallel", expert=2, tensor=2, sequence_parallel="true"), "--out", split)
        for line, other in zip(lines, (split / "metrics.jsonl").read_text(encoding="utf-8").splitlines(), strict=True):
            for name in ("balance_loss", "z_loss"):
                self.assertAlmostEqual(json.loads(other)[name], line[name], places=4)

    def test_have_the_same_bits_after_any_number_of_layouts(self):
        """A checkpoint that other layouts read and wrote again, without a step between, is the same, and they go on from
        it."""
        words = [*EXPERTS, "--set", "optimizer.schedule=constant"]
        two = settings("parallel", expert=2)
        wanted = self.digest(2, *words, *two, "--set", "train.steps=4")
        last = self.folder / "0" / "step-000002"
        saved = self.digest(2, *words, *two, *settings("train", steps=2, checkpoint=last.parent))
        tensors = tensors_of(last)
        self.assertIn("layers.3.mlp.experts.2.fc1.gate.exp_avg_sq", tensors)
        files = json.loads((last / "index.json").read_text(encoding="utf-8"))["files"]
        names = {name for file in files.values() for name in file["tensors"]}
        for expert in range(4):
            self.assertIn(f"layers.1.mlp.experts.{expert}.fc2", names)
        # Each step has the tokens of four micro-batches.
        layouts = [
            (4, 2, {"pipeline": 2, "expert": 2}),
            (1, 4, {}),
            (4, 2, {"tensor": 2, "expert": 2}),
            (4, 1, {"expert": 4}),
            (2, 2, {"data": 2}),
            (4, 1, {"data": 2, "expert": 2}),
            (2, 4, {"tensor": 2, "sequence_parallel": "true"}),
        ]
        for number, (ranks, micro_batches, layout) in enumerate(some(layouts, 3), start=1):
            folder = self.folder / str(number)
            with self.subTest(**layout):
                found = self.digest(ranks, *words, *settings("parallel", **layout),
                                    *settings("train", micro_batches=micro_batches, steps=2, checkpoint=folder, resume=last))  # fmt: skip
                self.assertEqual(found, saved)
                last = folder / "step-000002"
                self.assertEqual(tensors_of(last), tensors)
        latest = settings("train", checkpoint=last.parent, resume="latest")
        self.assertEqual(self.digest(2, *words, *two, *latest, *settings("train", steps=4)), wanted)
        # The same micro-batches of a step on two that have all experts, and on one rank.
        for step, ranks, other in some([(5, 2, settings("parallel", data=2)), (6, 1, settings("train", micro_batches=4))], 1):
            self.ok(ranks, *words, *latest, *other, *settings("train", steps=step))
            self.assertTrue((last.parent / f"step-{step:06}").exists())

    def test_keep_their_bits_with_every_overlap(self):
        rules = self.folder / "rules.toml"
        rules.write_text(RULES, encoding="utf-8")
        layout = settings("parallel", expert=2)
        found = {}
        for overlap in ("none", "shared", "halves"):
            words = [*EXPERTS, *layout, *settings("model", moe_overlap=overlap)]
            if overlap in some(["halves", "shared", "none"], 1):
                found[overlap] = self.digest_of_equal_bits(3, 2, *words, "--set", f"memory.rules={rules}")
            else:
                found[overlap] = self.digest(2, *words, "--baseline")
        self.assertEqual(found["none"], found["shared"])
        self.assertNotEqual(found["halves"], found["shared"])

    def test_say_what_cannot_be(self):
        result = self.train(1, *settings("model", experts=3), *settings("parallel", expert=2))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("every rank has equally many experts: 3 / 2 leaves 1", result.stderr)


if __name__ == "__main__":
    unittest.main()
