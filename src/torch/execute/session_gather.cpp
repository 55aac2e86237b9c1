#include <utility>

#include "torch/execute/session_core.hpp"

namespace spillway {

void SessionCore::trace_gather(ShardedBuffer& shard) {
  std::optional<TimeMark> begun = std::exchange(shard.begun, std::nullopt);
  std::optional<TimeMark> end = begun ? mark_if_traced() : std::nullopt;
  if (!end || tracing_ == nullptr) return;
  tracing_->gathered(shard.pass->number, shard.item, shard.bytes, std::move(*begun),
                     std::move(*end));
}

void SessionCore::end_sharding() noexcept {
  try {
    close_forward();
    if (sharding_.verifying) finish_shard_verification();
    if (sharding_.comparing) finish_comparison();
  } catch (...) {
    lose_shard_group();
  }
  sharding_.active = false;
  sharding_.verifying = false;
  sharding_.comparing = false;
  sharding_.digests.clear();
  sharding_.signatures.clear();
  for (const auto& pass : passes_) {
    for (const auto& shard : pass->shards) {
      if (shard->state != ShardState::kInParts || !shard->buffer.expired()) continue;
      try {
        shards_.free_part(*shard);
      } catch (...) {
        note_failure("dropping a saved tensor");
      }
    }
  }
}

void SessionCore::lose_shard_group() noexcept {
  note_failure("the shard group");
  sharding_.open_pass = nullptr;
}

}  // namespace spillway
