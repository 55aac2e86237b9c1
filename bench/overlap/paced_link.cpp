#include "paced_link.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "support/paced_stream.hpp"
#include "torch/device/torch_device.hpp"

namespace spillway::bench {
namespace {

using WorkRef = c10::intrusive_ptr<c10d::Work>;

constexpr const char* kGroupName = "spillway/paced";

enum class Part { kForward, kBackward };

const char* name_of(Part part) { return part == Part::kForward ? "forward" : "backward"; }

struct Exchange {
  Part part;
  Bytes bytes;
  EventRef begin, end;
};

/// From this point of its stream on the computing thread computes, or waits.
struct Moment {
  Part part;
  bool waits;
  TimeMark mark;
};

}  // namespace

struct PacedLink::State {
  State(c10::Device wanted, int members, double bytes_per_second)
      : device(make_torch_device(wanted)), stream(*device, bytes_per_second), ranks(members) {}

  void mark(bool waits) {
    if (collecting) moments.push_back({part, waits, device->now()});
  }

  EventRef start(const at::Tensor& output, const at::Tensor& input) {
    const std::lock_guard lock(mutex);
    // What this rank sends to itself does not use the link.
    const std::size_t all = std::max(output.nbytes(), input.nbytes());
    const Bytes bytes(all * static_cast<std::size_t>(ranks - 1) / static_cast<std::size_t>(ranks));
    const PacedStream::Transfer transfer = stream.start(output, input, bytes);
    Exchange exchange{part, bytes, transfer.begin, transfer.end};
    EventRef end = exchange.end;
    if (collecting) exchanges.push_back(std::move(exchange));
    return end;
  }

  void wait_for(const Event& end) {
    const std::lock_guard lock(mutex);
    mark(true);
    stream.wait_for(end);
    mark(false);
  }

  std::mutex mutex;
  std::unique_ptr<TorchDevice> device;
  PacedStream stream;
  int ranks;

  bool collecting = false;
  Part part = Part::kForward;
  TimeMark epoch;
  std::vector<Moment> moments;
  std::vector<Exchange> exchanges;
};

class PacedLink::Work final : public c10d::Work {
 public:
  Work(std::shared_ptr<State> state, EventRef end, std::vector<at::Tensor> tensors)
      : c10d::Work(0, c10d::OpType::ALLTOALL_BASE),
        state_(std::move(state)),
        end_(std::move(end)),
        tensors_(std::move(tensors)) {}

  bool isCompleted() override { return end_ == nullptr || end_->query(); }
  [[nodiscard]] bool isSuccess() const override { return end_ == nullptr || end_->query(); }
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds /*timeout*/ = kNoTimeout) override {
    if (end_ != nullptr) state_->wait_for(*end_);
    end_ = nullptr;
    tensors_.clear();  // The stream that frees them has waited.
    return true;
  }

 private:
  std::shared_ptr<State> state_;
  EventRef end_;  // Null: nothing to wait for.
  std::vector<at::Tensor> tensors_;
};

class PacedLink::Backend final : public c10d::Backend {
 public:
  explicit Backend(std::shared_ptr<State> state)
      : c10d::Backend(0, state->ranks), state_(std::move(state)) {}

  [[nodiscard]] const std::string getBackendName() const override { return "paced"; }  // NOLINT

  WorkRef alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& /*output_splits*/,
                        std::vector<std::int64_t>& /*input_splits*/,
                        const c10d::AllToAllOptions& /*options*/) override {
    return c10::make_intrusive<Work>(state_, state_->start(output, input),
                                     std::vector<at::Tensor>{output, input});
  }

  /// Functional collectives use this also for a single tensor.
  WorkRef allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::AllgatherOptions& /*options*/) override {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      outputs[i].view({getSize(), -1}).copy_(inputs[i].view({1, -1}));
    }
    return c10::make_intrusive<Work>(state_, nullptr, std::vector<at::Tensor>{});
  }

 private:
  std::shared_ptr<State> state_;
};

PacedLink::PacedLink(c10::Device device, int ranks, double bytes_per_second)
    : state_(std::make_shared<State>(device, ranks, bytes_per_second)) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(0, ranks);
  constexpr auto kKind = c10d::ProcessGroup::BackendType::CUSTOM;
  group->setBackend(device.type(), kKind, c10::make_intrusive<Backend>(state_));
  group->setDefaultBackend(kKind);
  group->setGroupName(kGroupName);
  c10d::register_process_group(kGroupName, group);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  group_ = Group(std::move(group), members, "paced");
}

PacedLink::~PacedLink() { c10d::unregister_process_group(kGroupName); }

void PacedLink::begin_step() {
  const std::lock_guard lock(state_->mutex);
  state_->moments.clear();
  state_->exchanges.clear();
  state_->part = Part::kForward;
  state_->collecting = true;
  state_->epoch = state_->device->epoch();
  state_->mark(false);
}

void PacedLink::begin_backward() {
  const std::lock_guard lock(state_->mutex);
  state_->part = Part::kBackward;
  state_->mark(false);
}

LinkedStep PacedLink::end_step() {
  const std::lock_guard lock(state_->mutex);
  State& state = *state_;
  state.mark(false);
  state.collecting = false;
  const auto since_begin = [&](const TimeMark& mark) {
    return state.device->elapsed(state.epoch, mark);
  };
  LinkedStep step;
  step.step = since_begin(state.moments.back().mark);
  for (std::size_t i = 0; i + 1 < state.moments.size(); ++i) {
    const Moment& moment = state.moments[i];
    const Nanoseconds begin = since_begin(moment.mark);
    const Nanoseconds end = since_begin(state.moments[i + 1].mark);
    const std::string part = name_of(moment.part);
    step.compute.push_back({moment.waits ? "wait for tokens" : part,
                            moment.waits ? "wait" : part,
                            begin.count(),
                            end.count(),
                            {}});
    if (moment.waits) step.exposed += end - begin;
  }
  for (const Exchange& exchange : state.exchanges) {
    exchange.end->synchronize();
    const Nanoseconds begin = exchange.begin->elapsed_since(*state.epoch.event);
    const Nanoseconds end = exchange.end->elapsed_since(*state.epoch.event);
    step.link.push_back({"exchange",
                         name_of(exchange.part),
                         begin.count(),
                         end.count(),
                         {{"bytes", to_string(exchange.bytes)}}});
    step.exchanges += end - begin;
    step.exchanged = step.exchanged + exchange.bytes;
  }
  return step;
}

}  // namespace spillway::bench
