#include "doctor/torch_check.hpp"
#include "spillway/torch/torch_info.hpp"

namespace spillway::app {
namespace {

std::string describe(const TorchInfo& info) {
  std::string text = info.version;
  text += info.cuda_version.empty() ? ", a CPU build" : " for CUDA " + info.cuda_version;
  if (!info.cudnn_version.empty()) text += ", cuDNN " + info.cudnn_version;
  text += info.sees_cuda ? ", sees the GPU" : ", sees no GPU";
  return text + ", " + std::to_string(info.threads) + " CPU threads";
}

void judge(const TorchInfo& info, const GpuSystem& gpus, Check& check) {
  check.works = info.sees_cuda ? "torch runs here, on the GPU and on the CPU."
                               : "torch runs here, on the CPU.";
  if (!info.computes) {
    check.state = CheckState::kProblem;
    check.works.clear();
    check.change = "torch computed a wrong sum: install it again (remove .venv, scripts/setup.sh).";
  } else if (!gpus.gpus.empty() && !info.sees_cuda) {
    check.state = CheckState::kProblem;
    check.change =
        info.cuda_version.empty()
            ? "torch is a CPU build: install the CUDA build of the same version to use the GPU."
            : "torch sees no GPU although the driver lists one: check that its CUDA version is not "
              "newer than the driver's.";
  }
}

}  // namespace

Check check_torch(const GpuSystem& gpus) {
  return guarded("torch", "torch", [&gpus](Check& check) {
    const TorchInfo info = torch_info();
    check.found = describe(info);
    check.values = {{"built_in", true},
                    {"version", info.version},
                    {"cuda_version", info.cuda_version},
                    {"cudnn_version", info.cudnn_version},
                    {"sees_cuda", info.sees_cuda},
                    {"computes", info.computes},
                    {"threads", info.threads}};
    judge(info, gpus, check);
  });
}

}  // namespace spillway::app
