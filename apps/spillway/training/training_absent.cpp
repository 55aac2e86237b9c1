#include "spillway/core/error.hpp"
#include "training/training.hpp"

namespace spillway::app {
namespace {

[[noreturn]] void refuse(const char* command) {
  throw InvalidArgument(command,
                        "this program was built without torch, which trains the model; to build "
                        "with it: scripts/setup.sh, then configure with SPILLWAY_TORCH=ON");
}

}  // namespace

int run_train(const TrainOptions& /*options*/) { refuse("train"); }

int run_profile(const ProfileOptions& /*options*/) { refuse("profile"); }

}  // namespace spillway::app
