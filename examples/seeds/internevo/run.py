#!/usr/bin/env python3
"""InternEvo's pull request #391: the activations of the first layers offloaded, alone and with selective checkpointing,
in one process (num_chunks = 1) and in an interleaved pipeline of two stages (num_chunks = 2)."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import seeds  # noqa: E402

# The four curves of the pull request, then further combinations.
CURVES = ["baseline", "selective", "selective + offload", "selective + 3 layers"]
OTHERS = ["10 layers", "selective + offload + 3 layers"]
RULES = {
    "selective": "selective",
    "selective + offload": "selective-offload",
    "selective + 3 layers": "selective-3-layers",
    "selective + offload + 3 layers": "selective-offload-3-layers",
    "10 layers": "10-layers",
}
TWO_CHUNKS = ["--set", "parallel.pipeline=2", "--set", "parallel.virtual=2"]


def rows():
    def words(name):
        return ["--baseline"] if name == "baseline" else ["--rules", str(HERE / "rules" / f"{RULES[name]}.toml")]

    one = [seeds.Row(name, words(name)) for name in CURVES + OTHERS]
    # A chunk of the interleaved pipeline has 8 layers, fewer than 10.
    two = [seeds.Row(f"2 chunks: {name}", [*words(name), *TWO_CHUNKS], ranks=2)
           for name in CURVES + OTHERS if name != "10 layers"]
    return one + two


def line(result, base):
    report = result.report(0)
    actions = report.get("actions", {})
    mib = lambda action: f"{actions.get(action, {}).get('bytes', 0) / seeds.MIB:.1f}" if actions else "-"
    return [result.row.name, f"{result.highest_peak() / seeds.MIB:.1f}", mib("keep"), mib("offload"), mib("recompute"),
            f"{result.step_ms():.1f}", f"{result.step_ms() / base.step_ms():.3f}", f"{result.losses[-1]:.6f}"]


def main():
    options = seeds.parser(__doc__, steps=200).parse_args()
    out, results = seeds.run_rows(options, "internevo", HERE / f"{options.size}.toml", seeds.chosen(rows(), options))
    base = results["baseline"]
    seeds.print_table(["run", "peak MiB", "kept MiB", "offloaded", "recomputed", "step ms", "ratio", "last loss"],
                      [line(result, results.get("2 chunks: baseline", base) if result.row.ranks > 1 else base)
                       for result in results.values()])
    print("kept, offloaded, recomputed: MiB of saved tensors of one micro-batch on rank 0\n"
          "ratio: step time to that of the baseline with as many chunks")
    seeds.write_curves(out / "loss.svg", "Training loss, InternEvo #391",
                       {name: results[name].losses for name in CURVES if name in results})
    return 0 if seeds.equal_bits(results) else 1


if __name__ == "__main__":
    sys.exit(main())
