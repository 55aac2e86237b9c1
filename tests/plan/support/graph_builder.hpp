/// Small graphs of operators and values, by hand.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "spillway/plan/profile.hpp"

namespace spillway::testing {

/// A profile of one chunk that grows call by call. Calls, values and buffers count from 0.
class GraphBuilder {
 public:
  struct Call {
    std::string name = "aten::make";
    std::string scope = {};
    int layer = -1;
    std::vector<int> reads = {};
    std::vector<std::uint64_t> makes = {100};  ///< Bytes.
    std::int64_t ns = 1;
    std::string no_replay = {};
  };

  /// `back`: bytes per second from the host.
  explicit GraphBuilder(int layers = 0, double back = 0) {
    profile_.link.back = back;
    profile_.layers = layers;
    profile_.chunks.emplace_back().layers = layers;
  }

  /// A value from outside; whether it is still there in backward.
  int outside(bool persistent) {
    chunk().values.push_back({.size = Bytes(100), .persistent = persistent});
    return last_value();
  }

  /// Returns the first value it makes; the others follow.
  int call(const Call& call) {
    const int number = static_cast<int>(chunk().operators.size());
    const int first = last_value() + 1;
    OperatorProfile added{call.name, call.scope, call.layer, call.ns,
                          Bytes(0),  call.reads, {},         call.no_replay};
    added.saves = static_cast<int>(chunk().sites.size());
    for (const std::uint64_t bytes : call.makes) {
      chunk().values.push_back({.size = Bytes(bytes), .call = number});
      added.makes.push_back(last_value());
    }
    chunk().operators.push_back(std::move(added));
    return first;
  }

  /// Autograd saves the value while the last call runs: a buffer, with a usable recipe. `scope` is
  /// for rules to find it.
  int save(int value, const std::string& scope, int layer = -1) {
    ValueProfile& saved = chunk().values[static_cast<std::size_t>(value)];
    BufferProfile buffer;
    buffer.id = static_cast<int>(chunk().buffers.size());
    buffer.size = saved.size;
    buffer.position = {scope, "aten::use", buffer.id};
    buffer.layer = layer;
    buffer.saves = {{"aten::use", scope}};
    buffer.value = value;
    buffer.recipe.usable = true;
    if (saved.call >= 0) {
      const OperatorProfile& made_by = chunk().operators[static_cast<std::size_t>(saved.call)];
      buffer.producer = {made_by.name, made_by.scope, made_by.layer, saved.call};
    }
    saved.buffer = buffer.id;
    chunk().buffers.push_back(buffer);
    chunk().sites.push_back({buffer.id, "float32", {}, {}, 0});
    return buffer.id;
  }

  /// ... once more.
  void save_again(int buffer) { chunk().sites.push_back({buffer, "float32", {}, {}, 0}); }

  [[nodiscard]] ChunkProfile& chunk() { return profile_.chunks.front(); }

  /// With the order in which backward asks for buffers; without one, the last comes first.
  [[nodiscard]] Profile profile(std::vector<int> unpack_order = {}) const {
    Profile profile = profile_;
    ChunkProfile& chunk = profile.chunks.front();
    for (std::size_t i = chunk.buffers.size(); unpack_order.empty() && i > 0; --i) {
      chunk.unpack_order.push_back(static_cast<int>(i) - 1);
    }
    if (!unpack_order.empty()) chunk.unpack_order = std::move(unpack_order);
    return profile;
  }

 private:
  [[nodiscard]] int last_value() { return static_cast<int>(chunk().values.size()) - 1; }

  Profile profile_;
};

}  // namespace spillway::testing
