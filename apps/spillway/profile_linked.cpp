#include <iostream>

#include "common/text_table.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/profile.hpp"
#include "training.hpp"
#include "training/trainer.hpp"
#include "training_shape.hpp"

namespace spillway::app {

int run_profile(const ProfileOptions& options) {
  const LlamaShape shape = shape_of(options.model);
  Trainer trainer(shape);
  std::cerr << "recording one step: " << describe(trainer.model()) << " ..." << std::endl;
  (void)trainer.step(nullptr);  // Libraries that load themselves at first use do so here.
  Session session(session_options(shape));
  session.register_model(trainer.model());
  (void)trainer.step(&session);
  if (session.profile() == nullptr) {
    throw Error("profile", "autograd saved no buffer of " + to_string(SessionOptions().small) +
                               " or more in this step, so that there is nothing to plan; give the "
                               "model more --tokens or a larger --ffn");
  }
  const Profile& profile = *session.profile();
  save_profile(profile, options.out);

  const ChunkProfile& chunk = profile.chunks.front();
  const auto milliseconds = [](std::int64_t ns) {
    return fixed(static_cast<double>(ns) / 1e6, 1) + " ms";
  };
  std::cout << options.out << " is written: " << chunk.buffers.size() << " buffers in "
            << chunk.sites.size() << " saved tensors, " << to_string(chunk.theoretical_peak)
            << " if all were kept; forward " << milliseconds(chunk.forward_ns) << ", backward "
            << milliseconds(chunk.backward_ns) << "\n"
            << "next: spillway plan --profile " << options.out << " --budget 33% --out plan.json\n";
  return 0;
}

}  // namespace spillway::app
