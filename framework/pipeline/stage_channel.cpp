#include "pipeline/stage_channel.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

constexpr int kTagsAMessage = 16;  // One for each tensor, the last one for their shapes.
constexpr std::size_t kMostTensors = kTagsAMessage - 1;
constexpr std::int64_t kMostDimensions = 12;
constexpr std::int64_t kNumbersATensor = 3 + kMostDimensions;
constexpr std::int64_t kNumbers = 1 + static_cast<std::int64_t>(kMostTensors) * kNumbersATensor;

bool speaks_nccl(const Group& group) {
  return group.process_group() != nullptr &&
         group.process_group()->getBackendName().find("nccl") != std::string::npos;
}

}  // namespace

void refuse_pipeline(const std::string& what) { throw InvalidArgument("pipeline", what); }

TensorShapes shapes_of(const Tensors& tensors) {
  TensorShapes shapes;
  for (const at::Tensor& tensor : tensors) {
    shapes.push_back({tensor.scalar_type(), tensor.sizes().vec(), tensor.requires_grad()});
  }
  return shapes;
}

Tensors Incoming::take(at::Device device) {
  for (Pending& pending : pending_) pending.wait();
  Tensors tensors;
  for (at::Tensor& tensor : tensors_) tensors.push_back(tensor.to(device));
  return tensors;
}

StageChannel::StageChannel(Group group, at::Device device)
    : group_(std::move(group)),
      device_(device),
      wire_(speaks_nccl(group_) ? device : at::Device(at::kCPU)) {}

void StageChannel::send(const Tensors& tensors, int peer, int tag) {
  if (tensors.size() > kMostTensors) {
    refuse_pipeline("a layer hands over " + std::to_string(tensors.size()) + " tensors; at most " +
                    std::to_string(kMostTensors) + " go from one stage to the next");
  }
  Outgoing message;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor sent = tensors[i].detach().to(wire_).contiguous();
    message.pending.push_back(group_.send(sent, peer, tag * kTagsAMessage + static_cast<int>(i)));
  }
  outgoing_.push_back(std::move(message));
}

Incoming StageChannel::receive(const TensorShapes& shapes, int peer, int tag) const {
  Incoming incoming;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    incoming.tensors_.push_back(
        at::empty(shapes[i].sizes, at::TensorOptions().dtype(shapes[i].dtype).device(wire_)));
    incoming.pending_.push_back(
        group_.receive(incoming.tensors_.back(), peer, tag * kTagsAMessage + static_cast<int>(i)));
  }
  return incoming;
}

void StageChannel::send_shapes(const TensorShapes& shapes, int peer, int tag) {
  at::Tensor numbers = at::zeros({kNumbers}, at::kLong);
  auto* next = numbers.mutable_data_ptr<std::int64_t>();
  *next++ = static_cast<std::int64_t>(shapes.size());
  for (const TensorShape& shape : shapes) {
    const auto dimensions = static_cast<std::int64_t>(shape.sizes.size());
    if (dimensions > kMostDimensions) {
      refuse_pipeline("a layer hands over a tensor of " + std::to_string(dimensions) +
                      " dimensions; at most " + std::to_string(kMostDimensions) +
                      " go to the next stage");
    }
    auto* out = next;
    *out++ = static_cast<std::int64_t>(shape.dtype);
    *out++ = shape.differentiable ? 1 : 0;
    *out++ = dimensions;
    for (const std::int64_t size : shape.sizes) *out++ = size;
    next += kNumbersATensor;
  }
  Outgoing message;
  message.pending.push_back(
      group_.send(numbers.to(wire_), peer, tag * kTagsAMessage + kTagsAMessage - 1));
  outgoing_.push_back(std::move(message));
}

TensorShapes StageChannel::receive_shapes(int peer, int tag) const {
  const at::Tensor received = at::empty({kNumbers}, at::TensorOptions(wire_).dtype(at::kLong));
  group_.receive(received, peer, tag * kTagsAMessage + kTagsAMessage - 1).wait();
  const at::Tensor numbers = received.cpu();
  const auto* next = numbers.const_data_ptr<std::int64_t>();
  TensorShapes shapes(static_cast<std::size_t>(*next++));
  for (TensorShape& shape : shapes) {
    shape.dtype = static_cast<at::ScalarType>(next[0]);
    shape.differentiable = next[1] != 0;
    shape.sizes.assign(next + 3, next + 3 + next[2]);
    next += kNumbersATensor;
  }
  return shapes;
}

void StageChannel::settle(std::size_t but) {
  while (outgoing_.size() > but) {
    for (Pending& pending : outgoing_.front().pending) pending.wait();
    outgoing_.erase(outgoing_.begin());
  }
}

void StageChannel::drop_what_left(std::size_t but) {
  const auto left = [](const Outgoing& message) {
    return std::all_of(message.pending.begin(), message.pending.end(),
                       [](const Pending& pending) { return pending.done(); });
  };
  while (outgoing_.size() > but && left(outgoing_.front())) settle(outgoing_.size() - 1);
}

}  // namespace spillway
