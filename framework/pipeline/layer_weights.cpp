#include "pipeline/layer_weights.hpp"

#include <string_view>
#include <unordered_map>

namespace spillway {
namespace {

/// Which layer a scope lies in.
class LayersByScope {
 public:
  explicit LayersByScope(const std::vector<std::string>& names) : last_(names.size() - 1) {
    for (std::size_t i = 0; i < names.size(); ++i) layers_.emplace(names[i], i);
  }

  [[nodiscard]] std::size_t operator()(std::string_view scope) const {
    while (!scope.empty()) {
      if (const auto found = layers_.find(std::string(scope)); found != layers_.end()) {
        return found->second;
      }
      const auto dot = scope.rfind('.');
      scope = dot == std::string_view::npos ? std::string_view() : scope.substr(0, dot);
    }
    return last_;
  }

 private:
  std::unordered_map<std::string, std::size_t> layers_;
  std::size_t last_;
};

/// The layer that runs from a moment on; `present` if the moment does not say.
std::size_t layer_at(const ChunkProfile& chunk, const Moment& moment, const LayersByScope& layers,
                     std::size_t present) {
  const auto index = static_cast<std::size_t>(moment.index);
  const auto layer_of_buffer = [&](int buffer) {
    return layers(chunk.buffers.at(static_cast<std::size_t>(buffer)).position.scope);
  };
  switch (moment.kind) {
    case MomentKind::kCallBegins:
    case MomentKind::kCallEnds:
      return layers(chunk.operators.at(index).scope);
    case MomentKind::kUnpack:
      return layer_of_buffer(chunk.unpack_order.at(index));
    case MomentKind::kSave:
      return layer_of_buffer(chunk.sites.at(index).buffer);
    case MomentKind::kBackwardBegins:
    case MomentKind::kDrop:
    case MomentKind::kEnd:
      break;
  }
  return present;
}

}  // namespace

LayerWeights layer_weights(const Profile& profile, const std::vector<std::string>& names) {
  const LayersByScope layers(names);
  LayerWeights weights{std::vector<std::int64_t>(names.size()),
                       std::vector<std::int64_t>(names.size())};
  for (const ChunkProfile& chunk : profile.chunks) {
    for (const BufferProfile& buffer : chunk.buffers) {
      if (!is_step_memory(buffer.fixed)) continue;
      weights.memory[layers(buffer.position.scope)] +=
          static_cast<std::int64_t>(buffer.size.count());
    }
    // A moment holds the time before it: in forward it belongs to the layer of the moment, in
    // backward to that of the one before, which asked for what the time was spent on.
    std::size_t present = 0;
    bool backward = false;
    for (const Moment& moment : chunk.timeline) {
      const std::size_t next = layer_at(chunk, moment, layers, present);
      weights.time[backward ? present : next] += moment.compute_ns;
      present = next;
      if (moment.kind == MomentKind::kBackwardBegins) backward = true;
    }
  }
  return weights;
}

}  // namespace spillway
