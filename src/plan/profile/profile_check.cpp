#include "plan/profile/profile_check.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "plan/profile/common_fields.hpp"
#include "spillway/core/numbers.hpp"

namespace spillway {
namespace {

/// Counts of layers and ranks.
void check_count(int count, const JsonPath& path, const JsonSource& source) {
  constexpr int kMost = 1'000'000;
  if (count >= 0 && count <= kMost) return;
  refuse(source, path, "a number from 0 to 1000000 wanted, found " + std::to_string(count));
}

bool contains(const std::vector<int>& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

class ChunkCheck {
 public:
  ChunkCheck(const ChunkProfile& chunk, const JsonPath& path, const JsonSource& source)
      : chunk_(chunk), path_(path), source_(source) {}

  void run() const {
    check_count(chunk_.first_layer, JsonPath(path_, "first_layer"), source_);
    check_count(chunk_.layers, JsonPath(path_, "layers"), source_);
    each("values", chunk_.values, &ChunkCheck::check_value);
    each("operators", chunk_.operators, &ChunkCheck::check_operator);
    each("buffers", chunk_.buffers, &ChunkCheck::check_buffer);
    each("sites", chunk_.sites, &ChunkCheck::check_site);
    check_sums();
    check_list(chunk_.unpack_order, chunk_.buffers.size(), JsonPath(path_, "unpack_order"),
               "buffer");
    if (!chunk_.timeline.empty()) check_timeline();
    if (chunk_.later_untracked_bytes &&
        chunk_.later_untracked_bytes->size() != chunk_.timeline.size()) {
      refuse(
          source_, JsonPath(path_, "later_untracked_bytes"),
          "as many as moments in the timeline wanted: " + std::to_string(chunk_.timeline.size()) +
              ", found " + std::to_string(chunk_.later_untracked_bytes->size()));
    }
  }

 private:
  template <typename T>
  void each(const char* name, const std::vector<T>& list,
            void (ChunkCheck::*check)(const T&, std::size_t, const JsonPath&) const) const {
    const JsonPath path(path_, name);
    for (std::size_t i = 0; i < list.size(); ++i) (this->*check)(list[i], i, JsonPath(path, i));
  }

  void check_value(const ValueProfile& value, std::size_t index, const JsonPath& path) const {
    const int id = static_cast<int>(index);
    if (value.call != -1) {
      const JsonPath call(path, "call");
      check_index(value.call, chunk_.operators.size(), call, "operator");
      if (!contains(chunk_.operators[static_cast<std::size_t>(value.call)].makes, id)) {
        refuse(source_, call, "operator " + std::to_string(value.call) + " does not make it");
      }
      if (value.persistent) {
        refuse(source_, JsonPath(path, "persistent"),
               "only what came from outside of the pass is persistent, and an operator made this");
      }
    }
    if (value.buffer != -1) {
      const JsonPath buffer(path, "buffer");
      check_index(value.buffer, chunk_.buffers.size(), buffer, "buffer");
      if (chunk_.buffers[static_cast<std::size_t>(value.buffer)].value != id) {
        refuse(source_, buffer,
               "buffer " + std::to_string(value.buffer) + " does not say that it holds it");
      }
    }
  }

  void check_operator(const OperatorProfile& call, std::size_t index, const JsonPath& path) const {
    const int number = static_cast<int>(index);
    const JsonPath reads(path, "reads");
    check_list(call.reads, chunk_.values.size(), reads, "value");
    for (std::size_t i = 0; i < call.reads.size(); ++i) {
      const int maker = chunk_.values[static_cast<std::size_t>(call.reads[i])].call;
      if (maker < number) continue;
      refuse(source_, JsonPath(reads, i),
             "value " + std::to_string(call.reads[i]) + " is made by operator " +
                 std::to_string(maker) + ", which does not come before");
    }
    const JsonPath makes(path, "makes");
    check_list(call.makes, chunk_.values.size(), makes, "value");
    for (std::size_t i = 0; i < call.makes.size(); ++i) {
      if (chunk_.values[static_cast<std::size_t>(call.makes[i])].call == number) continue;
      refuse(
          source_, JsonPath(makes, i),
          "value " + std::to_string(call.makes[i]) + " does not say that this operator makes it");
    }
  }

  void check_buffer(const BufferProfile& buffer, std::size_t index, const JsonPath& path) const {
    if (buffer.id != static_cast<int>(index)) {
      refuse(source_, JsonPath(path, "id"),
             std::to_string(index) + ", its index in the list, wanted, found " +
                 std::to_string(buffer.id));
    }
    const Position& position = buffer.position;
    if (buffer.saves.empty() || buffer.saves.front() != Save{position.saver, position.scope}) {
      refuse(source_, JsonPath(path, "saves"), "must begin with the saver and scope of position");
    }
    const JsonPath producer(path, "producer");
    check_optional(buffer.producer.call, chunk_.operators.size(), JsonPath(producer, "call"),
                   "operator");
    check_optional(buffer.first_unpack, chunk_.unpack_order.size(), JsonPath(path, "first_unpack"),
                   "unpack");
    check_optional(buffer.last_unpack, chunk_.unpack_order.size(), JsonPath(path, "last_unpack"),
                   "unpack");
    check_optional(buffer.value, chunk_.values.size(), JsonPath(path, "value"), "value");
    check_optional(buffer.last_forward_use, chunk_.timeline.size(),
                   JsonPath(path, "last_forward_use"), "moment");
  }

  void check_sums() const {
    const auto count = [](Bytes bytes) { return static_cast<std::int64_t>(bytes.count()); };
    const auto sum = [this](const char* name, const auto& list, auto&& number_of, std::int64_t most,
                            const char* unit) {
      check_sum(list, number_of, most, unit, JsonPath(path_, name), source_);
    };
    sum(
        "values", chunk_.values, [&](const ValueProfile& each) { return count(each.size); },
        kMostBytesOfList, " bytes");
    sum(
        "buffers", chunk_.buffers, [&](const BufferProfile& each) { return count(each.size); },
        kMostBytesOfList, " bytes");
    sum(
        "operators", chunk_.operators,
        [&](const OperatorProfile& each) { return count(each.workspace); }, kMostBytesOfList,
        " bytes of workspace");
    sum(
        "operators", chunk_.operators, [](const OperatorProfile& each) { return each.device_ns; },
        kMostWhole, " ns");
    sum(
        "timeline", chunk_.timeline, [](const Moment& each) { return each.compute_ns; }, kMostWhole,
        " ns");
    const JsonPath timeline(path_, "timeline");
    const JsonPath untracked(timeline, "untracked_bytes");
    for (std::size_t i = 0; i < chunk_.timeline.size(); ++i) {
      check_level(chunk_.timeline[i].untracked_bytes, JsonPath(untracked, i));
    }
    const JsonPath later(path_, "later_untracked_bytes");
    for (std::size_t i = 0;
         chunk_.later_untracked_bytes && i < chunk_.later_untracked_bytes->size(); ++i) {
      check_level((*chunk_.later_untracked_bytes)[i], JsonPath(later, i));
    }
  }

  /// Bytes that are allocated at a moment, or how many fewer.
  void check_level(std::int64_t bytes, const JsonPath& path) const {
    constexpr auto kMost = static_cast<std::int64_t>(kMostBytes.count());
    if (bytes >= -kMost && bytes <= kMost) return;
    refuse(source_, path,
           "bytes from -" + std::to_string(kMost) + " to " + std::to_string(kMost) +
               " wanted, found " + std::to_string(bytes));
  }

  void check_site(const SiteProfile& site, std::size_t /*index*/, const JsonPath& path) const {
    check_index(site.buffer, chunk_.buffers.size(), JsonPath(path, "buffer"), "buffer");
    if (site.sizes.size() != site.strides.size()) {
      refuse(source_, JsonPath(path, "strides"), "as many as sizes wanted");
    }
    std::int64_t elements = 1;
    const JsonPath sizes(path, "sizes");
    for (std::size_t i = 0; i < site.sizes.size(); ++i) {
      const std::int64_t size = site.sizes[i];
      const std::int64_t most = elements > 0 ? kMostWhole / elements : kMostWhole;
      if (size < 0 || size > most) {
        refuse(source_, JsonPath(sizes, i),
               "from 0 to " + std::to_string(most) + " wanted, so that a tensor has at most " +
                   std::to_string(kMostWhole) + " elements; found " + std::to_string(size));
      }
      elements *= size;
    }
  }

  void check_timeline() const {
    const JsonPath timeline(path_, "timeline");
    const std::vector<Moment>& moments = chunk_.timeline;
    const auto is = [](MomentKind kind) {
      return [kind](const Moment& moment) { return moment.kind == kind; };
    };
    const auto backward =
        std::find_if(moments.begin(), moments.end(), is(MomentKind::kBackwardBegins));
    if (std::count_if(moments.begin(), moments.end(), is(MomentKind::kBackwardBegins)) != 1) {
      refuse(source_, timeline, "backward must begin once");
    }
    if (std::find_if(moments.begin(), moments.end(), is(MomentKind::kEnd)) != moments.end() - 1) {
      refuse(source_, timeline, "the end must come once, as the last moment");
    }
    const JsonPath indices(timeline, "index");
    for (auto moment = moments.begin(); moment != moments.end(); ++moment) {
      const JsonPath path(indices, static_cast<std::size_t>(moment - moments.begin()));
      check_moment(*moment, moment < backward, path);
    }
  }

  void check_moment(const Moment& moment, bool forward, const JsonPath& path) const {
    bool right_half = true;
    switch (moment.kind) {
      case MomentKind::kCallBegins:
      case MomentKind::kCallEnds:
        check_index(moment.index, chunk_.operators.size(), path, "operator");
        right_half = forward;
        break;
      case MomentKind::kSave:
        check_index(moment.index, chunk_.sites.size(), path, "site");
        right_half = forward;
        break;
      case MomentKind::kUnpack:
        check_index(moment.index, chunk_.unpack_order.size(), path, "unpack");
        right_half = !forward;
        break;
      case MomentKind::kDrop:
        check_index(moment.index, chunk_.buffers.size(), path, "buffer");
        break;
      case MomentKind::kBackwardBegins:
      case MomentKind::kEnd:
        break;
    }
    if (right_half) return;
    refuse(source_, path,
           "\"" + std::string(to_string(moment.kind)) + "\" cannot come " +
               (forward ? "before" : "after") + " backward begins");
  }

  void check_list(const std::vector<int>& numbers, std::size_t count, const JsonPath& path,
                  const char* what) const {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      check_index(numbers[i], count, JsonPath(path, i), what);
    }
  }

  void check_optional(int number, std::size_t count, const JsonPath& path, const char* what) const {
    if (number != -1) check_index(number, count, path, what);
  }

  void check_index(int number, std::size_t count, const JsonPath& path, const char* what) const {
    if (number >= 0 && static_cast<std::size_t>(number) < count) return;
    refuse(source_, path,
           "there is no " + std::string(what) + " " + std::to_string(number) + "; this chunk has " +
               std::to_string(count));
  }

  const ChunkProfile& chunk_;
  const JsonPath& path_;
  const JsonSource& source_;
};

/// Bytes per second.
void check_speed(double speed, const JsonPath& path, const JsonSource& source) {
  constexpr double kMost = 1e15;
  if (speed >= 0 && speed <= kMost) return;
  refuse(source, path,
         "bytes per second from 0 to 1e15 wanted, found " + shortest(speed) +
             "; measure the link again");
}

/// More is no slowing by copies, whatever it is. As sessions measure it.
void check_slowing(const std::optional<double>& share, const JsonPath& path,
                   const JsonSource& source) {
  if (!share || (*share >= 0 && *share <= 0.5)) return;
  refuse(source, path, "a share from 0 to 0.5 wanted, found " + with_decimals(*share, 2));
}

}  // namespace

void check_profile(const Profile& profile, const JsonSource& source) {
  const JsonPath root;
  check_count(profile.layers, JsonPath(root, "layers"), source);
  check_count(profile.pipeline_rank, JsonPath(root, "pipeline_rank"), source);
  // All sizes are rounded up to it.
  if (constexpr Bytes kMost(1ULL << 30U); profile.granularity > kMost) {
    refuse(source, JsonPath(root, "granularity"),
           "at most " + std::to_string(kMost.count()) + " bytes wanted, found " +
               std::to_string(profile.granularity.count()));
  }
  const JsonPath link(root, "link");
  check_speed(profile.link.out, JsonPath(link, "out"), source);
  check_speed(profile.link.back, JsonPath(link, "back"), source);
  check_speed(profile.link.out_with_back, JsonPath(link, "out_with_back"), source);
  check_speed(profile.link.back_with_out, JsonPath(link, "back_with_out"), source);
  check_slowing(profile.link.slows_out, JsonPath(link, "slows_out"), source);
  check_slowing(profile.link.slows_back, JsonPath(link, "slows_back"), source);
  const JsonPath chunks(root, "chunks");
  std::set<int> numbers;
  for (std::size_t i = 0; i < profile.chunks.size(); ++i) {
    const JsonPath path(chunks, i);
    ChunkCheck(profile.chunks[i], path, source).run();
    if (!numbers.insert(profile.chunks[i].chunk).second) {
      refuse(source, JsonPath(path, "chunk"),
             "chunk " + std::to_string(profile.chunks[i].chunk) + " is there twice");
    }
  }
}

}  // namespace spillway
