#!/usr/bin/env python3
"""Megatron-LM's pull request #1752 as a run: dp4 tp1 cp1 ep4 pp2 vpp2, layers with a dense MLP and layers with experts
mixed, the activations of each module on the host, alone and all together."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import seeds  # noqa: E402

MODULES = ["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"]
# What Megatron calls a data-parallel size of 4 with experts spread over 4 ranks.
LAYOUT = ["--set", "parallel.expert=4", "--set", "parallel.pipeline=2", "--set", "parallel.virtual=2"]
RANKS = 8


def rules(out, name, modules, slowdown):
    path = out / f"{name}.toml"
    names = ", ".join(f'"{module}"' for module in modules)
    path.write_text("[megatron]\nfine_grained_activation_offloading = true\n"
                    f"offload_modules = [{names}]\nmin_offloaded_bytes = 1\n"
                    # Offloaded buffers must be released, as there: a step may wait for the copies a little.
                    f"[limits]\nslowdown = {slowdown}\n", encoding="utf-8")
    return ["--rules", str(path)]


def rows(out, slowdown):
    out.mkdir(parents=True, exist_ok=True)
    made = [seeds.Row("baseline", ["--baseline", *LAYOUT], RANKS)]
    for module in MODULES:
        made.append(seeds.Row(module, [*rules(out, module, [module], slowdown), *LAYOUT], RANKS))
    made.append(seeds.Row("all", [*rules(out, "all", MODULES, slowdown), *LAYOUT], RANKS))
    return made


def ranks_of_stages(result):
    stages = {}
    for part in result.ranks[0]["ranks"]:
        stages.setdefault(part["stage"], []).append(part["rank"])
    return stages


def stage_share(result, base, ranks):
    """R of all ranks of a stage together, step by step: rows that the experts of one rank do not get go to another's."""
    begin = max(result.ranks[rank]["warm_up"] for rank in ranks)
    falls = [sum(before - after for before, after in zip(step[: len(ranks)], step[len(ranks):]))
             for step in zip(*(run.ranks[rank]["with"]["peaks"][begin:] for run in (base, result) for rank in ranks))]
    wanted = sum(result.theoretical_reduction(rank) for rank in ranks)
    return sum(falls) / len(falls) / wanted if falls and wanted else 1.0


def lines(results, base, stage, ranks):
    """A line for each row: by the rank of the stage on which R is worst, and R of the whole stage."""
    made = []
    for result in results:
        def share(rank):
            less = base.step_peak_beside(rank, result) - result.step_peak(rank)
            wanted = result.theoretical_reduction(rank)
            return (less / wanted if wanted else 1.0, rank, less, wanted)

        ratio, rank, less, wanted = min(share(rank) for rank in ranks)
        numbers = [base.step_peak_beside(rank, result), result.step_peak(rank), less, wanted]
        made.append([result.row.name, stage, *(f"{number / seeds.MIB:.2f}" for number in numbers), f"{ratio:.2%}",
                     f"{stage_share(result, base, ranks):.2%}", f"{result.step_ms():.1f}", f"{result.step_ms() / base.step_ms():.3f}"])
    return made


def main():
    parser = seeds.parser(__doc__, steps=8)
    parser.add_argument("--slowdown", type=float, default=0.02, metavar="SHARE",
                        help="by what share of a step it may wait for what leaves, so that it is gone sooner (default: 0.02)")
    options = parser.parse_args()
    options.out = options.out or seeds.ROOT / "build/seeds/megatron"
    _, results = seeds.run_rows(options, "megatron", HERE / f"{options.size}.toml", seeds.chosen(rows(options.out, options.slowdown), options))
    base = results["baseline"]
    offloaded = [result for result in results.values() if result is not base]
    stages = ranks_of_stages(offloaded[0]) if offloaded else {}
    seeds.print_table(["offloaded", "stage", "base MiB", "peak MiB", "less", "theoretical", "R", "stage's R", "step ms", "ratio"],
                      [line for stage, ranks in sorted(stages.items()) for line in lines(offloaded, base, stage, ranks)])
    print("peaks of a step, of the rank with the worst R in each stage; stage's R: of all its ranks, the mean of the steps\n"
          f"the baseline's step takes {base.step_ms():.1f} ms")
    return 0 if seeds.equal_bits(results) else 1


if __name__ == "__main__":
    sys.exit(main())
