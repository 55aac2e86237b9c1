#include "synthetic_timeline.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "spillway/core/index.hpp"
#include "synthetic_profile.hpp"

namespace spillway::testing {
namespace {

std::int64_t signed_bytes(Bytes bytes) { return static_cast<std::int64_t>(bytes.count()); }

/// What backward does for one call.
struct Node {
  int call = -1;
  int first = 0;  // Its indices in the order of unpacks.
  int last = -1;
  std::int64_t ns = 0;
  // Bytes while it runs, and of those from earlier nodes.
  std::int64_t gradients = 0;
  std::int64_t gradients_before = 0;
};

class Timeline {
 public:
  explicit Timeline(ChunkProfile& chunk)
      : chunk_(chunk),
        call_of_site_(chunk.sites.size(), -1),
        node_of_call_(chunk.operators.size(), 0),
        last_reader_(chunk.values.size(), -1) {}

  void add(const PassTimes& times) {
    for (std::size_t call = 0; call < chunk_.operators.size(); ++call) {
      for (const int value : chunk_.operators[call].reads) {
        last_reader_[to_index(value)] = static_cast<int>(call);
      }
      const auto end = call + 1 < chunk_.operators.size()
                           ? to_index(chunk_.operators[call + 1].saves)
                           : chunk_.sites.size();
      for (auto site = to_index(chunk_.operators[call].saves); site < end; ++site) {
        call_of_site_[site] = static_cast<int>(call);
      }
    }
    scale_forward(times.forward_ns);
    forward();
    find_nodes();
    share_out(times.backward_ns > 0 ? times.backward_ns : 2 * chunk_.forward_ns);
    backward();
  }

 private:
  [[nodiscard]] BufferProfile& buffer_of(int site) {
    return chunk_.buffers[to_index(chunk_.sites[to_index(site)].buffer)];
  }

  /// Whether its bytes are a saved buffer's, not among the others.
  [[nodiscard]] bool is_apart(int value) const {
    const int buffer = chunk_.values[to_index(value)].buffer;
    return buffer >= 0 && is_step_memory(chunk_.buffers[to_index(buffer)].fixed);
  }

  void scale_forward(std::int64_t wanted) {
    std::int64_t total = 0;
    for (const OperatorProfile& call : chunk_.operators) total += call.device_ns;
    const double factor =
        wanted > 0 && total > 0 ? static_cast<double>(wanted) / static_cast<double>(total) : 1.0;
    chunk_.forward_ns = 0;
    for (OperatorProfile& call : chunk_.operators) {
      call.device_ns = std::llround(static_cast<double>(call.device_ns) * factor);
      chunk_.forward_ns += call.device_ns;
    }
  }

  int add_moment(MomentKind kind, int index, std::int64_t ns, std::int64_t bytes) {
    chunk_.timeline.push_back({kind, index, ns, bytes});
    return static_cast<int>(chunk_.timeline.size()) - 1;
  }

  void forward() {
    std::vector<char> saved(chunk_.buffers.size());
    int site = 0;
    for (int number = 0; number < static_cast<int>(chunk_.operators.size()); ++number) {
      const OperatorProfile& call = chunk_.operators[to_index(number)];
      add_moment(MomentKind::kCallBegins, number, 0, live_);
      std::int64_t running = live_ + signed_bytes(call.workspace);
      for (const int value : call.makes)
        running += signed_bytes(chunk_.values[to_index(value)].size);
      std::int64_t ns = call.device_ns;
      for (; to_index(site) < chunk_.sites.size() && call_of_site_[to_index(site)] == number;
           ++site) {
        add_moment(MomentKind::kSave, site, ns, running);
        ns = 0;
        const BufferProfile& buffer = buffer_of(site);
        const bool made_here =
            std::find(call.makes.begin(), call.makes.end(), buffer.value) != call.makes.end();
        const bool first = !std::exchange(saved[to_index(buffer.id)], true);
        if (made_here && first && is_apart(buffer.value)) running -= signed_bytes(buffer.size);
      }
      const int end = add_moment(MomentKind::kCallEnds, number, ns, running);
      for (const int value : call.makes) {
        if (!is_apart(value)) live_ += signed_bytes(chunk_.values[to_index(value)].size);
        if (last_reader_[to_index(value)] < 0) last_forward_use(value, end);
      }
      for (const int value : call.reads) {
        if (last_reader_[to_index(value)] == number) last_forward_use(value, end);
      }
    }
  }

  void last_forward_use(int value, int moment) {
    const ValueProfile& held = chunk_.values[to_index(value)];
    if (held.call < 0 || std::exchange(gone_[to_index(value)], true)) return;
    if (is_apart(value)) {
      chunk_.buffers[to_index(held.buffer)].last_forward_use = moment;
    } else {
      live_ -= signed_bytes(held.size);
    }
  }

  /// Runs of unpacks that one call's backward asks for.
  void find_nodes() {
    const auto unpacks = static_cast<int>(chunk_.unpack_order.size());
    const auto sites = static_cast<int>(chunk_.sites.size());
    std::vector<int> call_of_buffer(chunk_.buffers.size(), -1);
    for (int site = 0; site < sites; ++site) {
      call_of_buffer[to_index(chunk_.sites[to_index(site)].buffer)] = call_of_site_[to_index(site)];
    }
    for (int at = 0; at < unpacks; ++at) {
      const int buffer = chunk_.unpack_order[to_index(at)];
      const int mirrored = sites - 1 - at;
      const bool by_site = unpacks == sites && chunk_.sites[to_index(mirrored)].buffer == buffer;
      const int call =
          by_site ? call_of_site_[to_index(mirrored)] : call_of_buffer[to_index(buffer)];
      if (nodes_.empty() || nodes_.back().call != call) nodes_.push_back({call, at, at});
      nodes_.back().last = at;
    }
    if (nodes_.empty()) nodes_.push_back({});
    std::vector<bool> has_node(chunk_.operators.size());
    for (int node = static_cast<int>(nodes_.size()) - 1; node >= 0; --node) {
      const int call = nodes_[to_index(node)].call;
      if (call < 0) continue;
      node_of_call_[to_index(call)] = node;
      has_node[to_index(call)] = true;
    }
    for (std::size_t call = chunk_.operators.size(); call-- > 0;) {
      if (!has_node[call]) {
        node_of_call_[call] = call + 1 < chunk_.operators.size() ? node_of_call_[call + 1] : 0;
      }
    }
  }

  void share_out(std::int64_t backward_ns) {
    for (std::size_t call = 0; call < chunk_.operators.size(); ++call) {
      nodes_[to_index(node_of_call_[call])].ns += chunk_.operators[call].device_ns;
    }
    const double factor = chunk_.forward_ns > 0 ? static_cast<double>(backward_ns) /
                                                      static_cast<double>(chunk_.forward_ns)
                                                : 0;
    for (Node& node : nodes_) node.ns = std::llround(static_cast<double>(node.ns) * factor);
    std::vector<int> first(chunk_.values.size(), static_cast<int>(nodes_.size()));
    for (std::size_t call = 0; call < chunk_.operators.size(); ++call) {
      for (const int value : chunk_.operators[call].reads) {
        first[to_index(value)] = std::min(first[to_index(value)], node_of_call_[call]);
      }
    }
    for (std::size_t value = 0; value < chunk_.values.size(); ++value) {
      const ValueProfile& made = chunk_.values[value];
      if (made.call < 0) continue;
      const int last = node_of_call_[to_index(made.call)];
      const int begin = to_index(first[value]) == nodes_.size() ? last : first[value];
      for (int node = begin; node <= last; ++node) {
        nodes_[to_index(node)].gradients += signed_bytes(made.size);
        if (node > begin) nodes_[to_index(node)].gradients_before += signed_bytes(made.size);
      }
    }
  }

  void backward() {
    add_moment(MomentKind::kBackwardBegins, -1, 0, live_);
    for (std::size_t at = 0; at < chunk_.unpack_order.size(); ++at) {
      BufferProfile& buffer = chunk_.buffers[to_index(chunk_.unpack_order[at])];
      if (buffer.first_unpack < 0) buffer.first_unpack = static_cast<int>(at);
      buffer.last_unpack = static_cast<int>(at);
    }
    std::int64_t ns = 0;
    std::int64_t bytes = live_;
    chunk_.backward_ns = 0;
    for (const Node& node : nodes_) {
      for (int at = node.first; at <= node.last; ++at) {
        add_moment(MomentKind::kUnpack, at, ns, std::max(bytes, live_ + node.gradients_before));
        ns = 0;
        bytes = live_ + node.gradients_before;
      }
      ns += node.ns;
      bytes = live_ + node.gradients;
      chunk_.backward_ns += node.ns;
      for (int at = node.first; at <= node.last; ++at) {
        const int buffer = chunk_.unpack_order[to_index(at)];
        if (at != chunk_.buffers[to_index(buffer)].last_unpack) continue;
        add_moment(MomentKind::kDrop, buffer, ns, bytes);
        ns = 0;
      }
    }
    add_moment(MomentKind::kEnd, -1, ns, bytes);
  }

  ChunkProfile& chunk_;
  std::vector<int> call_of_site_;
  std::vector<int> node_of_call_;
  std::vector<int> last_reader_;  // By value.
  std::vector<char> gone_ = std::vector<char>(chunk_.values.size());
  std::vector<Node> nodes_;
  std::int64_t live_ = 0;
};

void add_missing_sites(ChunkProfile& chunk) {
  if (!chunk.sites.empty()) return;
  for (const BufferProfile& buffer : chunk.buffers) {
    chunk.sites.push_back({buffer.id, "float32", {}, {}, 0});
  }
  int call = 0;
  for (OperatorProfile& each : chunk.operators) {
    each.saves = static_cast<int>(
        std::count_if(chunk.buffers.begin(), chunk.buffers.end(),
                      [&](const BufferProfile& buffer) { return buffer.producer.call < call; }));
    ++call;
  }
}

}  // namespace

void add_timelines(Profile& profile, const PassTimes& times) {
  for (ChunkProfile& chunk : profile.chunks) {
    add_missing_sites(chunk);
    chunk.timeline.clear();
    Timeline(chunk).add(times);
  }
}

Profile llama_profile(int layers) {
  Profile profile = transformer_profile({.layers = layers});
  add_timelines(profile,
                {.forward_ns = layers * 8'125'000LL, .backward_ns = layers * 15'500'000LL});
  profile.granularity = Bytes(512);
  return profile;
}

}  // namespace spillway::testing
