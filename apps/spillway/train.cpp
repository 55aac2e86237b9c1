#include "train.hpp"

#include <memory>

#include "training.hpp"

namespace spillway::app {
namespace {

constexpr const char* kExamples =
    "\nExamples:\n"
    "  spillway train                                  a small model, in seconds on a CPU\n"
    "  spillway config --defaults > run.toml           all settings with what they mean; then\n"
    "  spillway train run.toml --set train.steps=500\n"
    "  spillway train --set data.path=book.txt --set train.checkpoint=saved --set "
    "train.resume=latest\n"
    "  spillway train --compare --budget 33%           without and within a third of the memory,\n"
    "                                                  bit for bit\n"
    "  spillway train --compare --rules memory.toml    by rules of yours\n"
    "  spillway train --plan plan.json                 by a plan made earlier, from the first "
    "step\n"
    "  spillway train --digest                         one line that tells whether two runs are "
    "the\n"
    "                                                  same to the bit, on whatever layout\n"
    "  mpirun -n 4 spillway train --set parallel.pipeline=2 --set parallel.data=2\n"
    "  mpirun -n 4 spillway train --set parallel.pipeline=4 --set parallel.virtual=2 --budget 50%\n"
    "  spillway train --out run                        also writes run/metrics.jsonl, train.json,\n"
    "                                                  report.txt, report.json, plan.json,\n"
    "                                                  profile.json\n"
    "  spillway train --budget 50% --trace trace.json  the last step, predicted and measured\n"
    "\nWithout rules, plan or budget all layers but the last are offloaded. SIGTERM saves a\n"
    "checkpoint, if there is a folder for it, and ends the run. Exit code 1 if bits differ, 3 if "
    "no\n"
    "plan fits the budget. docs/train.md says more.\n";

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("train", "Train a language model whose activations Spillway manages");
  auto options = std::make_shared<TrainOptions>();
  ConfigChoice& config = options->config;
  const auto short_form = [&](const char* name, const std::string& key, const char* text) {
    return command
        ->add_option_function<std::string>(
            name,
            [&config, key](const std::string& value) {
              config.shorthands.push_back(key + "=" + value);
            },
            std::string(text) + " (" + key + ")")
        ->group("Short forms of --set");
  };
  add_config_options(*command, config);
  short_form("--steps", "train.steps", "Training steps")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  short_form("--budget", "memory.budget",
             "The most device memory of a step, above what is there before it: 8GiB, 33% of what "
             "it has with everything kept, or auto for what is free")
      ->type_name("SIZE");
  short_form("--rules", "memory.rules", "The rules (TOML); with --budget they pin what they match")
      ->type_name("FILE");
  short_form("--plan", "memory.plan", "A plan made earlier (JSON); wins over rules")
      ->type_name("FILE");
  short_form("--out", "train.out", "Where metrics, reports, profile and plan go")
      ->type_name("FOLDER");
  command->add_flag("--compare", options->compare,
                    "Train without Spillway first, and compare losses and gradients bit for bit");
  command->add_flag("--plain", options->plain, "Train without Spillway")->excludes("--compare");
  command->add_flag("--digest", options->digest,
                    "Print a hash of the final parameters and one of all losses");
  command
      ->add_option("--verify-every", options->verify_every,
                   "Every N-th step compares all that is recomputed with what was saved, bit for "
                   "bit; the step after a record always does")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  command
      ->add_option("--trace", options->trace,
                   "Where the last step goes as a trace for Perfetto (JSON): what its streams did "
                   "and, if there is a record, what was predicted; {rank} stands for the rank")
      ->type_name("FILE");
  command->footer(kExamples);
  command->callback([options, &action] { action = [options] { return run_train(*options); }; });
}

}  // namespace spillway::app
