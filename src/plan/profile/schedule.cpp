#include "spillway/plan/schedule.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

std::string name_of(const PassStep& step) {
  return std::string(step.backward ? "the backward" : "the forward") + " of chunk " +
         std::to_string(step.chunk) + " on micro-batch " + std::to_string(step.micro_batch);
}

[[noreturn]] void refuse(const PassStep& step, const std::string& problem) {
  throw InvalidArgument("schedule", name_of(step) + " " + problem);
}

bool has_chunk(const Profile& profile, int number) {
  return std::any_of(profile.chunks.begin(), profile.chunks.end(),
                     [&](const ChunkProfile& chunk) { return chunk.chunk == number; });
}

}  // namespace

PassSchedule one_pass(const Profile& profile) { return accumulate(profile, 1); }

PassSchedule accumulate(const Profile& profile, int micro_batches) {
  PassSchedule schedule;
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    for (const ChunkProfile& chunk : profile.chunks) {
      schedule.push_back({chunk.chunk, micro_batch, false});
    }
    std::for_each(profile.chunks.rbegin(), profile.chunks.rend(), [&](const ChunkProfile& chunk) {
      schedule.push_back({chunk.chunk, micro_batch, true});
    });
  }
  return schedule;
}

void require_valid(const PassSchedule& schedule, const Profile& profile) {
  for (const PassStep& step : schedule) {
    if (has_chunk(profile, step.chunk)) continue;
    std::string known;
    for (const ChunkProfile& chunk : profile.chunks) {
      known += (known.empty() ? "" : ", ") + std::to_string(chunk.chunk);
    }
    refuse(step, "is of a chunk that the profile does not have, which has " +
                     (known.empty() ? "none" : known) + "; record it first");
  }
  require_valid(schedule);
}

PassSchedule known_part(const PassSchedule& schedule, const Profile& profile) {
  PassSchedule known;
  std::copy_if(schedule.begin(), schedule.end(), std::back_inserter(known),
               [&](const PassStep& step) { return has_chunk(profile, step.chunk); });
  return known;
}

void require_valid(const PassSchedule& schedule) {
  std::map<std::pair<int, int>, int> passes;  // How many of its two steps were seen.
  for (const PassStep& step : schedule) {
    int& seen = passes[{step.chunk, step.micro_batch}];
    if (seen == (step.backward ? 2 : 1)) refuse(step, "comes twice; name each pass once");
    if (seen == 2) refuse(step, "comes after its backward; name each pass once");
    if (step.backward && seen == 0) refuse(step, "comes before its forward; put it behind");
    ++seen;
  }
  for (const auto& [pass, seen] : passes) {
    if (seen == 1) {
      refuse({pass.first, pass.second, false}, "has no backward; every pass of a step needs one");
    }
  }
}

}  // namespace spillway
