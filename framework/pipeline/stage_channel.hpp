/// Tensors from one stage of a pipeline to another, in one direction: activations or gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "spillway/groups/group.hpp"
#include "spillway/pipeline/layer_desc.hpp"

namespace spillway {

/// Throws InvalidArgument of the operation "pipeline".
[[noreturn]] void refuse_pipeline(const std::string& what);

/// What the receiving end must know before a tensor comes.
struct TensorShape {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;
  bool differentiable = false;  ///< Its gradient goes back.

  bool operator==(const TensorShape&) const = default;
};
using TensorShapes = std::vector<TensorShape>;

[[nodiscard]] TensorShapes shapes_of(const Tensors& tensors);

/// Tensors that are on their way here.
class Incoming {
 public:
  Incoming() = default;

  /// Waits for them; on `device` then.
  [[nodiscard]] Tensors take(at::Device device);

 private:
  friend class StageChannel;

  Tensors tensors_;
  std::vector<Pending> pending_;
};

/// Sends do not wait. What was sent is kept alive until it has left.
/// Order: messages between two stages are received in the order they are sent; shapes, where they
///        are wanted, before the tensors.
class StageChannel {
 public:
  /// `device`: of the tensors. Where the group cannot carry it, they go by the CPU.
  StageChannel(Group group, at::Device device);

  void send(const Tensors& tensors, int peer, int tag);
  [[nodiscard]] Incoming receive(const TensorShapes& shapes, int peer, int tag) const;

  void send_shapes(const TensorShapes& shapes, int peer, int tag);
  /// Waits for them.
  [[nodiscard]] TensorShapes receive_shapes(int peer, int tag) const;

  /// Returns when all but the last `but` messages have left.
  void settle(std::size_t but);
  /// Frees the tensors of messages that have left, from the oldest on, but of the last `but`.
  /// Does not wait; if the backend does not report completion, they stay until settle().
  void drop_what_left(std::size_t but);

 private:
  struct Outgoing {
    std::vector<Pending> pending;
  };

  Group group_;
  at::Device device_;
  at::Device wire_;  // What the group carries.
  std::vector<Outgoing> outgoing_;
};

}  // namespace spillway
