#include "schedule/channels.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

struct Message {
  bool send = false;
  bool gradient = false;
};

std::optional<Message> message_of(PipelineActionKind kind) {
  switch (kind) {
    case PipelineActionKind::kForward:
    case PipelineActionKind::kBackward:
      return std::nullopt;
    case PipelineActionKind::kSendActivation:
      return Message{true, false};
    case PipelineActionKind::kReceiveActivation:
      return Message{false, false};
    case PipelineActionKind::kSendGradient:
      return Message{true, true};
    case PipelineActionKind::kReceiveGradient:
      return Message{false, true};
  }
  return std::nullopt;
}

[[noreturn]] void refuse(int stage, const PipelineAction& action, const std::string& problem) {
  throw InvalidArgument("pipeline schedule check", "on stage " + std::to_string(stage) + ", \"" +
                                                       to_string(action) + "\" " + problem);
}

}  // namespace

std::size_t Channels::index(int from, int to, bool gradient) const {
  return (static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to)) * 2 +
         (gradient ? 1 : 0);
}

Channels::Channels(const std::vector<std::vector<PipelineAction>>& ranks)
    : ranks_(ranks), channels_(ranks.size() * ranks.size() * 2) {
  for (int stage = 0; stage < static_cast<int>(ranks.size()); ++stage) {
    for (const PipelineAction& action : ranks[static_cast<std::size_t>(stage)]) {
      const std::optional<Message> message = message_of(action.kind);
      if (!message) continue;
      if (message->send) {
        channels_[index(stage, action.peer, message->gradient)].sent.push_back(action);
      } else {
        channels_[index(action.peer, stage, message->gradient)].received.push_back(action);
      }
    }
  }
}

void Channels::require_matching_ends() const {
  const int stages = static_cast<int>(ranks_.size());
  for (int from = 0; from < stages; ++from) {
    for (int to = 0; to < stages; ++to) {
      std::set<int> tags;  // Both kinds together: a transport with tags has one channel for them.
      for (const bool gradient : {false, true}) {
        const Channel& channel = channels_[index(from, to, gradient)];
        for (std::size_t i = 0; i < channel.sent.size(); ++i) {
          const PipelineAction& sent = channel.sent[i];
          if (!tags.insert(sent.tag).second) {
            refuse(from, sent, "has the tag of another message to that stage");
          }
          if (i == channel.received.size()) refuse(from, sent, "is never received");
          if (channel.received[i].tag != sent.tag) {
            refuse(to, channel.received[i],
                   "comes when stage " + std::to_string(from) + " sends tag " +
                       std::to_string(sent.tag) + "; receive in the order of the sends");
          }
        }
        if (channel.received.size() > channel.sent.size()) {
          refuse(to, channel.received[channel.sent.size()], "is never sent");
        }
      }
    }
  }
}

std::optional<std::vector<std::size_t>> Channels::stuck(std::optional<int> ahead) const {
  std::vector<std::size_t> at(ranks_.size(), 0);
  std::vector<std::size_t> sent(channels_.size(), 0);
  std::vector<std::size_t> received(channels_.size(), 0);
  // The receive that a rank stands at counts as posted.
  const auto posted = [&](std::size_t channel, int receiver) {
    const auto stage = static_cast<std::size_t>(receiver);
    std::size_t count = received[channel] + static_cast<std::size_t>(*ahead);
    if (at[stage] < ranks_[stage].size()) {
      const PipelineAction& standing = ranks_[stage][at[stage]];
      const std::optional<Message> message = message_of(standing.kind);
      if (message && !message->send &&
          index(standing.peer, receiver, message->gradient) == channel) {
        ++count;
      }
    }
    return count;
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (int stage = 0; stage < static_cast<int>(ranks_.size()); ++stage) {
      const auto& actions = ranks_[static_cast<std::size_t>(stage)];
      for (std::size_t& i = at[static_cast<std::size_t>(stage)]; i < actions.size(); ++i) {
        const PipelineAction& action = actions[i];
        if (const std::optional<Message> message = message_of(action.kind)) {
          if (message->send) {
            const std::size_t channel = index(stage, action.peer, message->gradient);
            if (ahead && sent[channel] >= posted(channel, action.peer)) break;
            ++sent[channel];
          } else {
            const std::size_t channel = index(action.peer, stage, message->gradient);
            if (received[channel] >= sent[channel]) break;
            ++received[channel];
          }
        }
        moved = true;
      }
    }
  }
  for (std::size_t stage = 0; stage < at.size(); ++stage) {
    if (at[stage] < ranks_[stage].size()) return at;
  }
  return std::nullopt;
}

void Channels::require_progress() const {
  const auto at = stuck(std::nullopt);
  if (!at) return;
  for (std::size_t stage = 0; stage < at->size(); ++stage) {
    if ((*at)[stage] == ranks_[stage].size()) continue;
    refuse(static_cast<int>(stage), ranks_[stage][(*at)[stage]],
           "waits for ever: the stages wait for one another, also if sends do not block");
  }
}

int Channels::receives_ahead() const {
  int ahead = 0;
  while (stuck(ahead)) ++ahead;
  return ahead;
}

}  // namespace spillway
