#include "torch/execute/shard_digest.hpp"

#include "spillway/plan/shard.hpp"

namespace spillway {
namespace {

class Mixer {
 public:
  void add(std::uint64_t value) {
    state_ = (state_ ^ value) + 0x9E3779B97F4A7C15ULL;
    state_ = (state_ ^ (state_ >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    state_ = (state_ ^ (state_ >> 27U)) * 0x94D049BB133111EBULL;
    state_ ^= state_ >> 31U;
  }
  void add(int value) { add(static_cast<std::uint64_t>(value)); }
  void add(const Action& action) {
    add(static_cast<int>(action.kind));
    add(action.shard ? 1 : 0);
    shards_ = shards_ || action.shard;
  }
  [[nodiscard]] bool shards() const { return shards_; }
  [[nodiscard]] std::uint64_t word() const { return state_ == 0 ? 1 : state_; }

 private:
  std::uint64_t state_ = 0;
  bool shards_ = false;
};

}  // namespace

std::uint64_t word_of(std::initializer_list<std::uint64_t> parts) {
  Mixer mixer;
  for (const std::uint64_t part : parts) mixer.add(part);
  return mixer.word();
}

std::uint64_t shard_digest(const Plan& plan) {
  Mixer mixer;
  for (const char letter : plan.structure) mixer.add(static_cast<int>(letter));
  for (const ChunkPlan& chunk : plan.chunks) {
    mixer.add(chunk.chunk);
    for (const Decision& decision : chunk.decisions) {
      mixer.add(decision.action);
      mixer.add(static_cast<int>(decision.fallback));
    }
    for (const Anchor& anchor : chunk.anchors) {
      mixer.add(anchor.call);
      mixer.add(anchor.output);
      mixer.add(anchor.action);
    }
    for (const int id : chunk.need_order) mixer.add(id);
    for (const int due : gather_order(chunk).due) mixer.add(due);
  }
  return mixer.shards() ? mixer.word() : 0;
}

}  // namespace spillway
