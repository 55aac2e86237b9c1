#include <string>

#include "spillway/core/error.hpp"
#include "training/config.hpp"
#include "training/profile.hpp"
#include "training/train.hpp"

namespace spillway::app {
namespace {

/// A command that takes any options and says why it is not there.
void add_absent(CLI::App& app, Action& action, const std::string& name) {
  CLI::App* command =
      app.add_subcommand(name, "Not in this program, which was built without the trainer");
  command->allow_extras();
  command->callback([name, &action] {
    action = [name]() -> int {
      throw InvalidArgument(name,
                            "this program was built without the trainer; to build with it, "
                            "configure with SPILLWAY_FRAMEWORK=ON");
    };
  });
}

}  // namespace

void add_profile(CLI::App& app, Action& action) { add_absent(app, action, "profile"); }

void add_train(CLI::App& app, Action& action) { add_absent(app, action, "train"); }

void add_config(CLI::App& app, Action& action) { add_absent(app, action, "config"); }

}  // namespace spillway::app
