// spillway._trainer: the trainer, for `python -m spillway train`.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "binding.hpp"
#include "spillway/core/error.hpp"
#include "train/config/config.hpp"
#include "train/config/train_options.hpp"
#include "train/run/train_run.hpp"
#include "train/run/train_setup.hpp"
#include "util/renamed.hpp"

namespace py = pybind11;

namespace spillway::python {
namespace {

using app::CommandOption;
using app::TrainOptions;

const char* word(CommandOption::Accepts accepts) {
  switch (accepts) {
    case CommandOption::Accepts::kNothing:
      return "nothing";
    case CommandOption::Accepts::kText:
      return "text";
    case CommandOption::Accepts::kPositive:
      return "positive";
    case CommandOption::Accepts::kNotNegative:
      return "not negative";
    case CommandOption::Accepts::kShare:
      return "share";
    case CommandOption::Accepts::kWord:
      return "word";
  }
  return "";
}

std::vector<CommandOption> all_options() {
  std::vector<CommandOption> all = app::config_options();
  const auto& own = app::train_options();
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

void set(TrainOptions& options, const std::string& name, const std::string& value) {
  const auto all = all_options();
  const auto found = std::ranges::find(all, name, &CommandOption::name);
  if (found == all.end()) throw InvalidArgument("train", "there is no option " + name);
  app::apply(options, *found, value);
}

/// A run whose config was read. Python makes the groups of its ranks and says how the job ends.
class Trainer {
 public:
  explicit Trainer(TrainOptions options)
      : options_(std::move(options)),
        config_(app::load_config(options_.config.file, options_.config.all())) {}

  [[nodiscard]] double timeout() const {
    return std::chrono::duration<double>(app::world_options(config_).timeout).count();
  }

  /// The backends that torch.distributed makes groups of so many ranks with.
  [[nodiscard]] std::string backend(int ranks) const {
    const bool nccl = app::placement_of(config_, ranks) == app::Placement::kOwnGpu;
    return nccl ? "cpu:gloo,cuda:nccl" : "gloo";
  }

  int run_alone() {
    const py::gil_scoped_release released;
    const auto world = app::open_world(config_);
    return run(*world);
  }

  /// The functions are called by the thread that runs; their texts are Python's errors.
  int run_as_rank(int rank, int size, const py::function& new_group, const py::function& abort) {
    const py::gil_scoped_release released;
    const auto world = make_torch_world(
        rank, size,
        [&new_group](const std::vector<int>& ranks) -> std::string {
          const py::gil_scoped_acquire acquired;
          try {
            return new_group(ranks).cast<std::string>();
          } catch (const py::error_already_set& error) {
            throw CommunicationError("group", error.what());
          }
        },
        [&abort](const std::string& why) {
          const py::gil_scoped_acquire acquired;
          abort(why);
        },
        app::world_options(config_));
    return run(*world);
  }

 private:
  int run(World& world) {
    const int code = app::run_train(options_, config_, world);
    std::cout << std::flush;
    return code;
  }

  TrainOptions options_;
  app::TrainConfig config_;
};

}  // namespace

PYBIND11_MODULE(_trainer, module) {
  module.doc() = "The trainer, compiled; use `python -m spillway train`.";
  prepare_module();
  py::class_<CommandOption>(module, "CommandOption")
      .def_readonly("name", &CommandOption::name)
      .def_readonly("value", &CommandOption::value)
      .def_readonly("words", &CommandOption::words)
      .def_readonly("keys", &CommandOption::keys)
      .def_readonly("old_name", &CommandOption::old_name)
      .def_property_readonly("help", &CommandOption::full_help)
      .def_property_readonly("accepts",
                             [](const CommandOption& option) { return word(option.accepts); });
  module.def("train_options", &all_options);
  module.def("warn_renamed", &warn_renamed, py::arg("kind"), py::arg("old"), py::arg("name"));
  module.attr("config_help") = app::kConfigHelp;
  module.attr("set_help") = app::kSetHelp;
  module.attr("short_forms") = app::kShortForms;
  module.def(
      "config_text",
      [](const std::string& file, const std::vector<std::string>& overrides) {
        return app::to_toml(app::load_config(file, overrides));
      },
      py::arg("file"), py::arg("overrides"));

  py::class_<TrainOptions>(module, "TrainOptions")
      .def(py::init([](const std::string& file, const std::vector<std::string>& overrides) {
             TrainOptions options;
             options.config.file = file;
             options.config.overrides = overrides;
             return options;
           }),
           py::arg("file"), py::arg("overrides"))
      .def("set", &set, py::arg("name"), py::arg("value"));
  py::class_<Trainer>(module, "Trainer")
      .def(py::init<TrainOptions>(), py::arg("options"))
      .def_property_readonly("timeout", &Trainer::timeout)
      .def("backend", &Trainer::backend, py::arg("ranks"))
      .def("run_alone", &Trainer::run_alone)
      .def("run_as_rank", &Trainer::run_as_rank, py::arg("rank"), py::arg("size"),
           py::arg("new_group"), py::arg("abort"));
}

}  // namespace spillway::python
