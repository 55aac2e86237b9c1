#include <iostream>

#include "spillway/core/error.hpp"
#include "spillway/core/numbers.hpp"
#include "spillway/plan/profile.hpp"
#include "train/run/job.hpp"
#include "train/run/train_setup.hpp"
#include "training/training.hpp"
#include "util/text/text_table.hpp"

namespace spillway::app {

int run_profile(const ProfileOptions& options) {
  TrainConfig config = load_config(options.config.file, options.config.all());
  config.memory = {};
  const auto world = make_single_world();
  const at::Device device = device_of(config, *world);
  TrainingJob job(config, *world, device);
  std::cerr << "recording one step: " << job.describe() << " ..." << std::endl;
  (void)job.step(nullptr);  // Libraries that load themselves at first use do so here.
  SessionOptions session_options = app::session_options(config, device, 0);
  session_options.rules = {};
  Session session(std::move(session_options));
  session.register_model(job.model());
  (void)job.step(&session);
  if (session.profile() == nullptr) {
    throw Error("profile", "autograd saved no buffer of " + to_string(SessionOptions().small) +
                               " or more in this step, so that there is nothing to plan; give the "
                               "model more --tokens or a larger --ffn");
  }
  const Profile& profile = *session.profile();
  save_profile(profile, options.out);

  const ChunkProfile& chunk = profile.chunks.front();
  std::cout << options.out << " is written: " << chunk.buffers.size() << " buffers in "
            << chunk.sites.size() << " saved tensors, " << to_string(chunk.theoretical_peak)
            << " if all were kept; forward " << milliseconds_text(chunk.forward_ns) << ", backward "
            << milliseconds_text(chunk.backward_ns) << "\n"
            << "next: spillway plan --profile " << options.out << " --budget 33% --out plan.json\n";
  return 0;
}

}  // namespace spillway::app
