#!/usr/bin/env python3
"""Paddle's pull request #34607 as a run: GPT with MP=4, PP=2 and micro-batches of 2 sequences; layers recomputed,
their inputs offloaded to the host, or sharded over the tensor-parallel ranks, or both; and a budget of the third row's memory, planned."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import seeds  # noqa: E402

RANKS = 8
LAYOUT = ["--set", "parallel.tensor=4", "--set", "parallel.pipeline=2"]
RECOMPUTE = ["--set", "parallel.recompute_interval=1"]
OFFLOAD = ["--set", "parallel.recompute_offload=true"]
PARTITION = ["--set", "parallel.recompute_partition=true"]
ROWS = {
    "none": ["--baseline"],
    "recompute": RECOMPUTE,
    "recompute + offload": RECOMPUTE + OFFLOAD,
    "recompute + partition": RECOMPUTE + PARTITION,
    "all three": RECOMPUTE + OFFLOAD + PARTITION,
}
BUDGET = "budget of row 3"
# V100, fp32: memory of a middle card in MB as nvidia-smi shows it, tokens/s.
THEIRS = {
    "none": (4999, 54584),
    "recompute": (3531, 43251),
    "recompute + offload": (3489, 22529),
    "recompute + partition": (3473, 35842),
    "all three": (3495, 28078),
}


def line(result, results):
    speed = result.tokens_per_second()
    base = results.get("recompute")
    share = f"{speed / base.tokens_per_second():.2f}" if base else "-"
    memory, their_speed = THEIRS.get(result.row.name, (None, None))
    theirs = ["-"] * 3 if memory is None else [memory, their_speed, f"{their_speed / THEIRS['recompute'][1]:.2f}"]
    return [result.row.name, f"{result.highest_peak() / seeds.MIB:.1f}", f"{speed:.0f}", share, *theirs]


def main():
    options = seeds.parser(__doc__, steps=8).parse_args()
    config = HERE / f"{options.size}.toml"
    rows = [seeds.Row(name, [*words, *LAYOUT], RANKS) for name, words in ROWS.items()]
    rows.append(seeds.Row(BUDGET, LAYOUT, RANKS))
    wanted = seeds.chosen(rows, options)
    out, results = seeds.run_rows(options, "paddle", config, [row for row in wanted if row.name != BUDGET])
    if rows[-1] in wanted and "recompute + offload" in results:
        budget = results["recompute + offload"].highest_peak()
        rows[-1].words += ["--budget", f"{budget}B"]
        results[BUDGET] = seeds.run_row(options, config, rows[-1], out)
    seeds.print_table(["run", "peak MiB", "tokens/s", "share of recompute's", "Paddle MB", "Paddle tokens/s", "share"],
                      [line(result, results) for result in results.values()])
    print("ours: the highest peak of a step among the ranks, without weights, gradients and optimizer; theirs: a whole card")
    return 0 if seeds.equal_bits(results) else 1


if __name__ == "__main__":
    sys.exit(main())
