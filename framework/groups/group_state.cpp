#include "groups/group_state.hpp"

#include <utility>

#include "groups/mpi_backend_name.hpp"
#include "groups/pending_state.hpp"

namespace spillway {
namespace {

constexpr int kLargestTag = 1 << 20;

}  // namespace

std::string Group::State::text() const {
  std::string text = "group " + name + " (ranks";
  for (const int member : ranks) text += ' ' + std::to_string(member);
  return text + ')';
}

std::string Group::State::member_text(int member) const {
  return "rank " + std::to_string(ranks[static_cast<std::size_t>(member)]);
}

void Group::State::refuse(const char* operation, const std::string& detail) const {
  throw InvalidArgument(operation, text() + ": " + detail);
}

void Group::State::check_member(const char* operation, int member) const {
  if (member >= 0 && member < size()) return;
  refuse(operation, "there is no group rank " + std::to_string(member) + "; they are 0 to " +
                        std::to_string(size() - 1));
}

void Group::State::check_peer(const char* operation, int peer, int tag) const {
  check_member(operation, peer);
  if (peer == rank) refuse(operation, "a rank cannot send to itself, nor receive from itself");
  if (tag < 0 || tag > kLargestTag) {
    refuse(operation, "the tag is " + std::to_string(tag) + "; it must be 0 to " +
                          std::to_string(kLargestTag));
  }
}

void Group::State::check_written(const char* operation, const at::Tensor& tensor) const {
  if (!tensor.defined()) refuse(operation, "there is no tensor");
  if (!tensor.is_contiguous()) {
    refuse(operation, "the tensor that is written to is not contiguous; pass a contiguous one");
  }
}

void Group::State::check_parts(const char* operation, const char* which, const at::Tensor& whole,
                               const at::Tensor& part) const {
  if (whole.numel() == part.numel() * size() && whole.dtype() == part.dtype()) return;
  refuse(operation, std::string("the ") + which + " has " + std::to_string(whole.numel()) +
                        " elements of " + std::string(whole.dtype().name()) + "; it must have " +
                        std::to_string(part.numel()) + " x " + std::to_string(size()) + " of " +
                        std::string(part.dtype().name()));
}

std::int64_t Group::State::checked_rows(const std::vector<std::int64_t>& splits,
                                        const char* which) const {
  if (splits.size() != ranks.size()) {
    refuse("all_to_all", std::string("there are ") + std::to_string(splits.size()) + ' ' + which +
                             " splits; one is wanted for each member");
  }
  std::int64_t rows = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) refuse("all_to_all", std::string("an ") + which + " split is negative");
    rows += split;
  }
  return rows;
}

const Group::State::Backend& Group::State::backend_for(const char* operation,
                                                       const at::Tensor& tensor) const {
  if (tensor.is_cuda() && cuda != nullptr) return cuda;
  if (cpu != nullptr) return cpu;
  refuse(operation, "the tensor is on " + tensor.device().str() +
                        ", but the group is for CUDA tensors; move it, or make the group with a "
                        "backend for the CPU as well");
}

at::Tensor Group::State::staged(const at::Tensor& tensor, const Backend& backend) const {
  return tensor.is_cpu() || backend == cuda ? tensor : tensor.cpu();
}

std::mutex& Group::State::starting() {
  static auto* mutex = new std::mutex;  // Threads may outlive the statics.
  return *mutex;
}

Pending Group::State::pending(c10::intrusive_ptr<c10d::Work> work, const char* operation,
                              std::vector<at::Tensor> tensors, const std::string& with,
                              const at::Tensor& target, const at::Tensor& host) const {
  auto state = std::make_unique<Pending::State>();
  state->work = std::move(work);
  state->tensors = std::move(tensors);
  state->operation = operation;
  state->where = text() + with;
  const bool on_stream = host.defined() && host.is_cuda();
  // NCCL would block the host to keep a limit; its own watchdog has one.
  state->timeout = on_stream ? std::chrono::milliseconds(0) : timeout;
  state->goes_on_alone = goes_on_alone || on_stream;
  if (target.defined() && target.device() != host.device()) {
    state->after = [target, host] { target.copy_(host); };
  }
  return Pending(std::move(state));
}

Group::Group(int world_rank) noexcept
    : state_([&] {
        auto state = std::make_shared<State>();
        state->ranks = {world_rank};
        state->name = "of one";
        return state;
      }()) {}

Group::Group(c10::intrusive_ptr<c10d::ProcessGroup> process_group, std::vector<int> world_ranks,
             std::string name, std::chrono::milliseconds timeout) {
  auto state = std::make_shared<State>();
  state->process_group = std::move(process_group);
  state->ranks = std::move(world_ranks);
  state->name = std::move(name);
  state->timeout = timeout;
  if (state->process_group == nullptr) state->refuse("group", "there is no process group");
  c10d::ProcessGroup& group = *state->process_group;
  if (group.getSize() != state->size()) {
    state->refuse("group", "the process group has " + std::to_string(group.getSize()) +
                               " members; the ranks must be those of its members");
  }
  state->rank = group.getRank();
  for (const c10::Device device : group.getDeviceTypes()) {
    const State::Backend backend = group.getBackend(device.type());
    if (device.is_cpu()) state->cpu = backend;
    if (device.is_cuda() && backend->getBackendName() == "nccl") state->cuda = backend;
  }
  state->goes_on_alone = state->cpu != nullptr && state->cpu->getBackendName() == kMpiBackendName;
  state_ = std::move(state);
}

}  // namespace spillway
