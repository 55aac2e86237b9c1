#include "doctor/machine_checks.hpp"

#include <cstdlib>

#include "doctor/torch_check.hpp"
#include "spillway/memory/host_system.hpp"

namespace spillway::app {
namespace {

const Gpu* gpu_of(const Device& device, const GpuSystem& gpus) {
  for (const Gpu& gpu : gpus.gpus) {
    if (device.name() == "cuda:" + std::to_string(gpu.index)) return &gpu;
  }
  return nullptr;
}

Json values_of(const GpuSystem& gpus) {
  Json list = Json::array();
  for (const Gpu& gpu : gpus.gpus) {
    list.push_back({{"index", gpu.index},
                    {"name", gpu.name},
                    {"memory_bytes", gpu.memory.count()},
                    {"compute", gpu.compute},
                    {"pci_bus", gpu.pci_bus},
                    {"copy_engines", gpu.copy_engines}});
  }
  return {{"built_in", gpus.built_in}, {"gpus", list}, {"problem", gpus.problem}};
}

void check_gpu(const Device& device, const GpuSystem& gpus, Check& check) {
  check.values = values_of(gpus);
  if (const Gpu* gpu = gpu_of(device, gpus)) {
    check.found = gpu->name + ", " + to_string(gpu->memory) + ", compute " + gpu->compute +
                  ", PCI " + gpu->pci_bus + ", " + std::to_string(gpu->copy_engines) +
                  " copy engines" +
                  (gpus.gpus.size() > 1
                       ? " (" + device.name() + " of " + std::to_string(gpus.gpus.size()) + " GPUs)"
                       : "");
    check.works = gpu->copy_engines > 1
                      ? "Buffers leave the GPU and come back at the same time, beside compute."
                      : "Buffers leave the GPU and come back beside compute, one way at a time.";
    return;
  }
  check.state = CheckState::kNote;
  check.works =
      "Everything runs on the host device: worker threads and memcpy stand in for the GPU, with "
      "the "
      "same engine and the same bytes; it says nothing about a GPU's speed.";
  if (!gpus.gpus.empty() && gpus.problem.empty()) {
    check.found = "not used; there are " + std::to_string(gpus.gpus.size());
    check.change = "To measure a GPU, leave out --device or give --device cuda.";
    return;
  }
  check.found = "none: " + gpus.problem;
  check.change =
      gpus.built_in
          ? "To use a GPU, run where `nvidia-smi` lists one; found here: " + gpus.problem + "."
          : "To use a GPU, build with a CUDA build of torch (scripts/setup.sh installs "
            "one).";
}

void check_driver(const GpuSystem& gpus, Check& check) {
  check.values = {{"driver", gpus.driver}, {"cuda", gpus.cuda}, {"runtime", gpus.runtime}};
  if (gpus.cuda.empty()) {
    check.state = CheckState::kNote;
    check.found = "none" + (gpus.runtime.empty() ? "" : ", CUDA runtime " + gpus.runtime);
    return;
  }
  check.found = (gpus.driver.empty() ? "" : gpus.driver + ", ") + "knows CUDA " + gpus.cuda +
                "; this program uses runtime " + gpus.runtime;
  if (std::atoi(gpus.cuda.c_str()) < std::atoi(gpus.runtime.c_str())) {
    check.state = CheckState::kProblem;
    check.change = "Update the NVIDIA driver to one that knows CUDA " + gpus.runtime +
                   ", or install a torch built for CUDA " + gpus.cuda + ".";
  }
}

void check_host_memory(Check& check) {
  constexpr Bytes kLittle{4ULL << 30U};
  const Bytes available = available_host_memory();
  const Bytes total = total_host_memory();
  const Bytes safe(available.count() / 10 * 8);
  check.found = to_string(available) + " free of " + to_string(total);
  check.works = "A host limit of up to about " + to_string(safe) + " leaves room for others.";
  check.values = {{"available_bytes", available.count()},
                  {"total_bytes", total.count()},
                  {"safe_limit_bytes", safe.count()}};
  if (available < kLittle) {
    check.state = CheckState::kNote;
    check.change = "Free host memory or raise the container's limit: " + to_string(available) +
                   " holds little of what a model saves.";
  }
}

void check_lock_limit(const Device& device, Check& check) {
  const std::optional<Bytes> limit = lock_limit();
  check.values = {{"limit_bytes", limit ? Json(limit->count()) : Json()}};
  check.found = limit ? to_string(*limit) : "none";
  if (!limit) {
    check.works = "Any amount of memory may be pinned (page-locked) for fast copies.";
  } else if (device.name() == "host") {
    check.works = "The host device pins no memory, so this limit does not matter to it.";
  } else {
    check.state = CheckState::kNote;
    check.works =
        "The driver pins memory for Spillway; the line \"pinning\" shows whether this limit "
        "prevents it.";
    check.change =
        "If \"pinning\" fails, raise the lock limit: `ulimit -l unlimited`, LimitMEMLOCK=infinity "
        "for a service, --ulimit memlock=-1 for a container.";
  }
}

void check_huge_pages(Check& check) {
  const std::string mode = huge_page_mode();
  check.values = {{"mode", mode}};
  check.found = mode;
  if (mode == "always" || mode == "madvise") {
    check.works = "Host memory comes in 2 MiB pages, so it is touched and pinned fast.";
    return;
  }
  check.state = CheckState::kNote;
  check.works = "Host memory comes in small pages: it works, but takes longer to pin.";
  check.change =
      "As root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (on the host, for a "
      "container).";
}

void check_numa(const Device& device, Check& check) {
  const int nodes = numa_nodes();
  const std::optional<int> node = device.numa_node();
  check.values = {{"nodes", nodes}, {"device_node", node ? Json(*node) : nullptr}};
  check.found = std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
  if (node) check.found += ", " + device.name() + " is next to node " + std::to_string(*node);
  if (nodes == 1) {
    check.works = "All host memory is equally near.";
  } else if (node) {
    check.works = "Host memory is taken from node " + std::to_string(*node) + ", next to the GPU.";
  } else if (device.name() != "host") {
    check.state = CheckState::kNote;
    check.change =
        "The system does not say which node the GPU is next to: start under `numactl "
        "--cpunodebind=N --membind=N` and compare the link's speed for each N.";
  }
}

}  // namespace

std::vector<Check> check_machine(const Device& device, const GpuSystem& gpus) {
  std::vector<Check> checks;
  checks.push_back(guarded("gpu", "GPU", [&](Check& c) { check_gpu(device, gpus, c); }));
  checks.push_back(guarded("driver", "driver", [&](Check& c) { check_driver(gpus, c); }));
  checks.push_back(check_torch(gpus));
  checks.push_back(guarded("host_memory", "host memory", check_host_memory));
  checks.push_back(
      guarded("lock_limit", "memory lock limit", [&](Check& c) { check_lock_limit(device, c); }));
  checks.push_back(guarded("huge_pages", "huge pages", check_huge_pages));
  checks.push_back(guarded("numa", "NUMA", [&](Check& c) { check_numa(device, c); }));
  return checks;
}

}  // namespace spillway::app
