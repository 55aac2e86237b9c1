#include "train.hpp"

#include <memory>

#include "training.hpp"

namespace spillway::app {
namespace {

constexpr const char* kExamples =
    "\nExamples:\n"
    "  spillway train --compare                        without and with Spillway, bit for bit\n"
    "  spillway train --compare --budget 33%           within a third of the memory\n"
    "  spillway train --compare --rules memory.toml    by rules of yours\n"
    "  spillway train --compare --rules examples/rules/full-recompute.toml --verify-every 4\n"
    "  spillway train --plan plan.json                 by a plan made earlier, from the first "
    "step\n"
    "  spillway train --layers 16 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 --tokens 8192\n"
    "  spillway train --out run                        also writes run/train.json, report.txt,\n"
    "                                                  report.json, plan.json, profile.json\n"
    "  spillway train --budget 50% --trace trace.json  predicted and measured, side by side\n"
    "\nThe model is a Llama-shaped one that learns a made-up text. Exit code 1 if bits differ.\n";

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "train", "Train a small model whose activations Spillway manages, and compare the bits");
  auto options = std::make_shared<TrainOptions>();
  command->add_option("--steps", options->steps, "Training steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--budget", options->budget,
                   "The most device memory of a step, above what is there before it: 8GiB, 33% of "
                   "what it has with everything kept, or auto for what is free")
      ->type_name("SIZE");
  command
      ->add_option(
          "--rules", options->rules,
          "The rules (TOML; default: all layers but the last are offloaded); with --budget "
          "they pin what they match")
      ->type_name("FILE");
  command->add_option("--plan", options->plan, "A plan made earlier (JSON); wins over rules")
      ->type_name("FILE");
  command->add_flag("--compare", options->compare,
                    "Train without Spillway first, and compare losses and gradients bit for bit");
  command
      ->add_option("--verify-every", options->verify_every,
                   "Every N-th step compares all that is recomputed with what was saved, bit for "
                   "bit; the step after a record always does")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  command->add_option("--out", options->out, "Where report, figures, profile and plan go")
      ->type_name("FOLDER");
  command
      ->add_option("--trace", options->trace,
                   "Where the last step goes as a trace for Perfetto (JSON): what its streams did "
                   "and, if there is a record, what was predicted")
      ->type_name("FILE");
  add_model_options(*command, options->model);
  command->footer(kExamples);
  command->callback([options, &action] { action = [options] { return run_train(*options); }; });
}

}  // namespace spillway::app
