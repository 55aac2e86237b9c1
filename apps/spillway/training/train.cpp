#include "training/train.hpp"

#include <memory>

#include "training/training.hpp"

namespace spillway::app {
namespace {

constexpr const char* kTrainExamples =
    "\nExamples:\n"
    "  spillway train                                  a small model, in seconds on a CPU\n"
    "  spillway config --defaults > run.toml           all settings with what they mean; then\n"
    "  spillway train run.toml --set train.steps=500\n"
    "  spillway train --set data.path=book.txt --set train.checkpoint=saved --set "
    "train.resume=latest\n"
    "  spillway train --compare --budget 33%           without and within a third of the memory,\n"
    "                                                  bit for bit\n"
    "  spillway train --compare --rules memory.toml    by your own rules\n"
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
  add_config_options(*command, options->config);
  for (const CommandOption& option : train_options()) {
    add_option(*command, option, [&options = *options, &option](const std::string& value) {
      apply(options, option, value);
    });
  }
  command->footer(kTrainExamples);
  command->callback([options, &action] {
    // CLI11's excludes() would not name a hidden option, which the old name of --baseline is.
    if (options->baseline && options->compare) throw CLI::ExcludesError("--baseline", "--compare");
    action = [options] { return run_train(*options); };
  });
}

}  // namespace spillway::app
