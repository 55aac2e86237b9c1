#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "comm/nccl/nccl_group.hpp"
#include "comm/partition.hpp"
#include "comm/process_end.hpp"
#include "spillway/comm/world.hpp"

namespace spillway {

c10::intrusive_ptr<c10d::ProcessGroup> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const std::string& name, int rank, int size,
                                                       int device,
                                                       std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  // NCCL's own watchdog ends the process when an operation takes longer.
  if (timeout.count() > 0) options->timeout = timeout;
  options->group_name = name;
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>(name, store);
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(prefixed, rank, size, options);
  const c10::Device bound(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
  backend->setBoundDeviceId(bound);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(prefixed, rank, size);
  constexpr auto kKind = c10d::ProcessGroup::BackendType::NCCL;
  group->setBackend(c10::DeviceType::CUDA, kKind, c10::intrusive_ptr<c10d::Backend>(backend));
  group->setDefaultBackend(kKind);
  group->setBoundDeviceId(bound);
  group->setGroupName(name);
  c10d::register_process_group(name, group);
  return group;
}

namespace {

c10::intrusive_ptr<c10d::TCPStore> make_store(const std::string& host, int port, bool server,
                                              int size, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = server;
  options.numWorkers = static_cast<std::size_t>(size);
  options.waitWorkers = false;
  if (timeout.count() > 0) options.timeout = timeout;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

class NcclWorld final : public World {
 public:
  NcclWorld(NcclAddress address, c10::intrusive_ptr<c10d::Store> store,
            std::unique_ptr<World> start, const WorldOptions& options)
      : address_(std::move(address)),
        timeout_(options.timeout),
        start_(std::move(start)),
        store_(std::move(store)) {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(address_.local_rank));
  }

  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;
  ~NcclWorld() override {
    // Other ranks would wait for ever for one that an exception ended.
    if (std::uncaught_exceptions() > exceptions_ && size() > 1) {
      abort("an exception ends this rank");
    }
    for (const auto& group : groups_) {
      c10d::unregister_process_group(group->getGroupName());
      group->shutdown();
    }
  }

  [[nodiscard]] int rank() const override { return address_.rank; }
  [[nodiscard]] int size() const override { return address_.size; }

  [[nodiscard]] Group group(const std::string& name,
                            const std::vector<std::vector<int>>& partition) override {
    const std::vector<int>& mine = list_of(rank(), size(), name, partition);
    // Counted on all ranks, so that two groups of one name do not meet in the store.
    const int number = made_++;
    if (mine.size() == 1) return Group(rank());
    const auto list = &mine - partition.data();
    const std::string unique =
        "spillway/" + name + '/' + std::to_string(number) + '/' + std::to_string(list);
    auto made = make_nccl_group(store_, unique, position_of(rank(), mine),
                                static_cast<int>(mine.size()), address_.local_rank, timeout_);
    groups_.push_back(made);
    return Group(std::move(made), mine, name, timeout_);
  }

  [[noreturn]] void abort(const std::string& why) noexcept override {
    if (start_ != nullptr) start_->abort(why);
    // torchrun sees that this rank failed and ends the others.
    end_process(rank(), size(), why);
  }

 private:
  NcclAddress address_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<World> start_;  // Ends after the groups.
  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups_;
  int made_ = 0;
  int exceptions_ = std::uncaught_exceptions();
};

void check_address(const NcclAddress& address) {
  const int devices = c10::cuda::device_count();
  if (address.local_rank < 0 || address.local_rank >= devices) {
    throw InvalidArgument("nccl", "there is no CUDA device " + std::to_string(address.local_rank) +
                                      ", this machine has " + std::to_string(devices) +
                                      "; start as many ranks on a machine as it has devices");
  }
  if (address.size < 1 || address.rank < 0 || address.rank >= address.size) {
    throw InvalidArgument("nccl", "rank " + std::to_string(address.rank) + " of " +
                                      std::to_string(address.size) +
                                      " cannot be; check RANK and WORLD_SIZE");
  }
}

/// A machine's name and a port, as every rank sends it.
struct HostPort {
  std::array<char, 252> host{};
  std::int32_t port = 0;
};

/// The machines and ports of all ranks of `world`, by rank.
std::vector<HostPort> exchange(const Group& everyone, const HostPort& mine) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(sizeof(HostPort))}, at::kByte);
  std::memcpy(bytes.data_ptr(), &mine, sizeof mine);
  const at::Tensor all = everyone.all_gather(bytes);
  std::vector<HostPort> found(static_cast<std::size_t>(everyone.size()));
  std::memcpy(static_cast<void*>(found.data()), all.data_ptr(), all.nbytes());
  return found;
}

/// Finds the address by the groups of `start` and opens the store there.
void meet(World& start, const WorldOptions& options, NcclAddress& address,
          c10::intrusive_ptr<c10d::TCPStore>& store) {
  const Group everyone = start.everyone();
  address.rank = start.rank();
  address.size = start.size();
  HostPort here;
  ::gethostname(here.host.data(), here.host.size() - 1);
  std::vector<HostPort> found = exchange(everyone, here);
  for (int rank = 0; rank < address.rank; ++rank) {
    if (found[static_cast<std::size_t>(rank)].host == here.host) ++address.local_rank;
  }
  check_address(address);
  // A machine does not always find itself by its name.
  const bool one_machine = std::all_of(
      found.begin(), found.end(), [&](const HostPort& each) { return each.host == here.host; });
  address.host = one_machine ? "localhost" : found[0].host.data();
  if (address.rank == 0) {
    // Port 0: the system chooses one that is free.
    store = make_store(address.host, 0, true, address.size, options.timeout);
    here.port = store->getPort();
  }
  found = exchange(everyone, here);
  address.port = found[0].port;
  if (store == nullptr) {
    store = make_store(address.host, address.port, false, address.size, options.timeout);
  }
}

}  // namespace

bool has_nccl() noexcept { return true; }

std::unique_ptr<World> make_nccl_world(const NcclAddress& address, const WorldOptions& options) {
  check_address(address);
  // torchrun serves a store at that address itself, and says so.
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");  // NOLINT(concurrency-mt-unsafe)
  const bool served = agent != nullptr && std::string_view(agent) == "True";
  auto store = make_store(address.host, address.port, address.rank == 0 && !served, address.size,
                          options.timeout);
  return std::make_unique<NcclWorld>(address, std::move(store), nullptr, options);
}

std::unique_ptr<World> make_nccl_world(std::unique_ptr<World> start, const WorldOptions& options) {
  NcclAddress address;
  c10::intrusive_ptr<c10d::TCPStore> store;
  // One rank may have no device while the others wait for it.
  run_guarded(*start, [&] { meet(*start, options, address, store); });
  return std::make_unique<NcclWorld>(address, std::move(store), std::move(start), options);
}

}  // namespace spillway
