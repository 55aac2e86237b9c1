#include <algorithm>

#include "synthetic_profile.hpp"

namespace spillway::testing {
namespace {

std::string random_text(std::mt19937_64& random) {
  static const std::vector<std::string> kPieces = {"layers.", "3",  ".mlp", "aten::mm", "",
                                                   " ",       "\"", "\\",   "\n",       "\t",
                                                   "\x01",    "ü",  "层",   "*",        "a"};
  std::string text;
  for (std::uint64_t i = random() % 6; i > 0; --i) text += kPieces[random() % kPieces.size()];
  return text;
}

int below(std::mt19937_64& random, std::size_t count) {
  return static_cast<int>(random() % std::max<std::size_t>(count, 1));
}

/// As large as the sums of a list allow.
Bytes any_size(std::mt19937_64& random) {
  const auto shift = 18 + random() % 46;
  return Bytes(random() >> shift);
}

/// `low` to a large number, small ones often.
std::int64_t random_number(std::mt19937_64& random, std::int64_t low) {
  const auto number = static_cast<std::int64_t>(random() >> (18 + random() % 46));
  return std::max(low, random() % 4 == 0 ? low : number);
}

std::vector<int> random_indices(std::mt19937_64& random, std::size_t count) {
  std::vector<int> indices;
  if (count == 0) return indices;
  for (std::uint64_t i = random() % 4; i > 0; --i) indices.push_back(below(random, count));
  return indices;
}

BufferProfile random_buffer(std::mt19937_64& random, int id, std::size_t operators,
                            std::size_t unpacks) {
  BufferProfile buffer;
  buffer.id = id;
  buffer.size = any_size(random);
  buffer.position = {random_text(random), random_text(random), below(random, 9)};
  buffer.layer = below(random, 5) - 1;
  buffer.producer = {random_text(random), random_text(random), below(random, 5) - 1, -1};
  if (operators > 0 && random() % 2 == 0) buffer.producer.call = below(random, operators);
  buffer.saves = {{buffer.position.saver, buffer.position.scope}};
  if (random() % 2 == 0) buffer.saves.push_back({random_text(random), random_text(random)});
  buffer.fixed = static_cast<FixedReason>(random() % 7);
  if (unpacks > 0 && random() % 2 == 0) buffer.first_unpack = below(random, unpacks);
  if (unpacks > 0 && random() % 2 == 0) buffer.last_unpack = below(random, unpacks);
  buffer.recipe = {random() % 3 != 0,
                   random() % 4 == 0 ? std::string(kCollective) : random_text(random)};
  return buffer;
}

void add_values(std::mt19937_64& random, ChunkProfile& chunk) {
  for (std::uint64_t i = random() % 3; i > 0; --i) {
    chunk.values.push_back({.size = any_size(random), .persistent = random() % 2 == 0});
  }
  for (std::size_t i = 0; i < chunk.operators.size(); ++i) {
    OperatorProfile& call = chunk.operators[i];
    call.reads = random_indices(random, chunk.values.size());
    for (std::uint64_t made = random() % 3; made > 0; --made) {
      call.makes.push_back(static_cast<int>(chunk.values.size()));
      chunk.values.push_back({.size = any_size(random), .call = static_cast<int>(i)});
    }
    if (random() % 4 == 0) call.no_replay = random() % 2 == 0 ? kCollective : random_text(random);
  }
}

/// Half of the buffers hold a value; two of them may hold the same one.
void hold_values(std::mt19937_64& random, ChunkProfile& chunk) {
  for (BufferProfile& buffer : chunk.buffers) {
    if (chunk.values.empty() || random() % 4 == 0) continue;
    buffer.value = below(random, chunk.values.size());
    int& holder = chunk.values[static_cast<std::size_t>(buffer.value)].buffer;
    if (holder < 0 || random() % 2 == 0) holder = buffer.id;
  }
}

/// Moments that point to something, in the right halves; in no other way like those of a step.
void add_timeline(std::mt19937_64& random, ChunkProfile& chunk) {
  if (random() % 4 == 0) return;
  const auto add = [&](MomentKind kind, int index) {
    chunk.timeline.push_back({kind, index, random_number(random, 0), random_number(random, -9)});
  };
  const auto some = [&](MomentKind kind, std::size_t count) {
    for (const int index : random_indices(random, count)) add(kind, index);
  };
  some(MomentKind::kCallBegins, chunk.operators.size());
  some(MomentKind::kSave, chunk.sites.size());
  some(MomentKind::kCallEnds, chunk.operators.size());
  some(MomentKind::kDrop, chunk.buffers.size());
  add(MomentKind::kBackwardBegins, -1);
  some(MomentKind::kUnpack, chunk.unpack_order.size());
  some(MomentKind::kDrop, chunk.buffers.size());
  add(MomentKind::kEnd, -1);
  if (random() % 2 == 0) {
    chunk.later_untracked_bytes.emplace();
    while (chunk.later_untracked_bytes->size() < chunk.timeline.size()) {
      chunk.later_untracked_bytes->push_back(random_number(random, -9));
    }
  }
  for (BufferProfile& buffer : chunk.buffers) {
    if (random() % 2 == 0) buffer.last_forward_use = below(random, chunk.timeline.size());
  }
}

ChunkProfile random_chunk(std::mt19937_64& random, int number) {
  ChunkProfile chunk;
  chunk.chunk = number;
  chunk.first_layer = below(random, 9);
  chunk.layers = below(random, 9);
  for (std::uint64_t i = random() % 5; i > 0; --i) {
    chunk.operators.push_back({random_text(random),
                               random_text(random),
                               below(random, 5) - 1,
                               random_number(random, 0),
                               any_size(random),
                               {},
                               {},
                               ""});
  }
  add_values(random, chunk);
  const std::size_t buffers = random() % 6;
  if (buffers > 0) {
    for (std::uint64_t i = random() % 9; i > 0; --i) {
      chunk.unpack_order.push_back(below(random, buffers));
    }
  }
  for (std::size_t i = 0; i < buffers; ++i) {
    chunk.buffers.push_back(random_buffer(random, static_cast<int>(i), chunk.operators.size(),
                                          chunk.unpack_order.size()));
    SiteProfile site{static_cast<int>(i), random_text(random), {}, {}, random_number(random, 0)};
    for (std::uint64_t d = random() % 4; d > 0; --d) {
      site.sizes.push_back(random_number(random, 0) % 40'000);
      site.strides.push_back(random_number(random, -5));
    }
    chunk.sites.push_back(std::move(site));
  }
  hold_values(random, chunk);
  add_timeline(random, chunk);
  chunk.forward_ns = random_number(random, 0);
  chunk.backward_ns = random_number(random, 0);
  chunk.theoretical_peak = any_size(random);
  chunk.measured_peak = any_size(random);
  return chunk;
}

}  // namespace

Profile random_profile(std::mt19937_64& random) {
  std::uniform_real_distribution<double> speed(0, 1e12);
  Profile profile;
  profile.device = random_text(random);
  profile.link = {speed(random), 0, 1.0 / 3, 1e-300 * speed(random)};
  if (below(random, 2) == 1) profile.link.slows_out = speed(random) / 2e12;
  if (below(random, 2) == 1) profile.link.slows_back = speed(random) / 2e12;
  profile.layers = below(random, 99);
  profile.layer_scope = random_text(random);
  profile.pipeline_rank = below(random, 9);
  profile.fixed = any_size(random);
  profile.granularity = Bytes(random() % 1024);
  const int chunks = below(random, 4);
  for (int i = 0; i < chunks; ++i) profile.chunks.push_back(random_chunk(random, i));
  return profile;
}

}  // namespace spillway::testing
