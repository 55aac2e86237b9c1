/// The lists of all ranks seen from their messages: whether both ends agree, and who waits for
/// whom.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "spillway/schedule/schedule.hpp"

namespace spillway {

class Channels {
 public:
  /// `ranks` must not change. Each list is right by itself: its peers exist.
  explicit Channels(const std::vector<std::vector<PipelineAction>>& ranks);

  /// Errors: InvalidArgument naming the first message that is not received as it was sent.
  void require_matching_ends() const;

  /// Errors: InvalidArgument naming the first stage that waits for ever, though sends do not block.
  void require_progress() const;

  /// See ScheduleFacts. The ends match, and there is progress with sends that do not block.
  [[nodiscard]] int receives_ahead() const;

 private:
  /// From one stage to another, activations or gradients.
  struct Channel {
    std::vector<PipelineAction> sent;
    std::vector<PipelineAction> received;
  };

  [[nodiscard]] std::size_t index(int from, int to, bool gradient) const;
  /// Where each rank stands when none can go on; nothing if all came to their end. A send may pass
  /// when fewer than `ahead` + 1 receives of its channel are between it and where the receiver
  /// stands; without a number, always.
  [[nodiscard]] std::optional<std::vector<std::size_t>> stuck(std::optional<int> ahead) const;

  const std::vector<std::vector<PipelineAction>>& ranks_;
  std::vector<Channel> channels_;
};

}  // namespace spillway
