#include "plan/solve/milp_columns.hpp"

#include <algorithm>
#include <map>

#include "spillway/core/index.hpp"

namespace spillway {
namespace {

class ColumnsBuilder {
 public:
  ColumnsBuilder(const ChunkSpace& space, const std::vector<int>& slot_of_moment,
                 LinearModel& linear)
      : space_(space), slot_of_moment_(slot_of_moment), linear_(linear) {
    const std::size_t buffers = space.buffers.size();
    const std::size_t values = space.values.size();
    columns_ = {std::vector<int>(buffers, -1),
                std::vector<int>(buffers, -1),
                std::vector<int>(space.windows.size(), -1),
                std::vector<int>(values, -1),
                std::vector<int>(values, -1),
                std::vector<CallWindow>(values),
                std::vector<std::vector<Pull>>(buffers),
                std::vector<std::vector<Pull>>(buffers),
                std::vector<std::vector<Pull>>(values)};
  }

  [[nodiscard]] ChunkColumns run() && {
    for (std::size_t id = 0; id < space_.buffers.size(); ++id) add_buffer(id);
    for (std::size_t id = 0; id < space_.values.size(); ++id) add_value(id);
    for (std::size_t call = 0; call < space_.windows.size(); ++call) {
      if (space_.windows[call].latest >= 0) columns_.replay[call] = linear_.add_column(0, 1);
    }
    for (std::size_t call = 0; call < space_.windows.size(); ++call) add_call_rows(call);
    for (std::size_t id = 0; id < space_.buffers.size(); ++id) add_buffer_rows(id);
    for (std::size_t id = 0; id < space_.values.size(); ++id) {
      if (columns_.offload_anchor[id] >= 0) pull_anchor(id);
    }
    return std::move(columns_);
  }

 private:
  void add_buffer(std::size_t id) {
    const BufferOptions& options = space_.buffers[id];
    const double least = options.count() == 1 ? 1 : 0;
    if (options.offload) columns_.offload[id] = add_choice(least);
    if (options.recompute) columns_.recompute[id] = add_choice(least);
    if (options.offload && options.recompute) {
      linear_.add_row(options.keep ? 0 : 1, 1,
                      {{columns_.offload[id], 1}, {columns_.recompute[id], 1}});
    }
  }

  int add_choice(double least) {
    const int column = linear_.add_binary();
    linear_.set_bounds(column, least, 1);
    return column;
  }

  void add_value(std::size_t id) {
    const ValueOptions& options = space_.values[id];
    if (!options.hold) return;
    columns_.hold[id] = options.replay ? linear_.add_binary() : linear_.add_column(0, 1);
    if (!options.offload) return;
    columns_.offload_anchor[id] = linear_.add_binary();
    linear_.add_row(-LinearModel::kUnbounded, 0,
                    {{columns_.offload_anchor[id], 1}, {columns_.hold[id], -1}});
  }

  void add_call_rows(std::size_t call) {
    const int repeated = columns_.replay[call];
    if (repeated < 0) return;
    for (const CallRead& read : space_.reads[call]) {
      const ValueProfile& value = space_.chunk->values[to_index(read.value)];
      columns_.readers[to_index(read.value)].widen(space_.windows[call]);
      if (value.buffer >= 0) {
        readers_[read.value].push_back(static_cast<int>(call));
        continue;
      }
      std::vector<LinearModel::Term> terms = {{repeated, 1}};
      if (columns_.hold[to_index(read.value)] >= 0) {
        terms.push_back({columns_.hold[to_index(read.value)], -1});
        readers_[read.value].push_back(static_cast<int>(call));
      }
      const bool replayed = space_.values[to_index(read.value)].replay && !read.crosses;
      if (replayed) terms.push_back({columns_.replay[to_index(value.call)], -1});
      linear_.add_row(-LinearModel::kUnbounded, 0, terms);
    }
  }

  void add_buffer_rows(std::size_t id) {
    const BufferLife& life = space_.model.buffers[id];
    const int value = space_.chunk->buffers[id].value;
    const int recompute = columns_.recompute[id];
    if (life.first_need < 0 || life.last_forward_use >= life.first_need || value < 0) return;
    if (recompute >= 0) {
      const int call = space_.chunk->values[to_index(value)].call;
      linear_.add_row(-LinearModel::kUnbounded, 0,
                      {{recompute, 1}, {columns_.replay[to_index(call)], -1}});
    }
    if (!holds(id, value) || readers_.count(value) == 0) return;
    columns_.recompute_pulls[id] = pulls(recompute, value, life.first_need);
    columns_.offload_pulls[id] = pulls(columns_.offload[id], value, life.first_need);
  }

  /// Two buffers may claim the same value; replays take it from one of them.
  [[nodiscard]] bool holds(std::size_t id, int value) const {
    return space_.chunk->values[to_index(value)].buffer == static_cast<int>(id);
  }

  void pull_anchor(std::size_t id) {
    std::vector<Pull>& needed = columns_.anchor_pulls[id];
    int last = -1;
    for (const int call : readers_[static_cast<int>(id)]) {
      last = std::max(last, space_.windows[to_index(call)].latest);
    }
    if (last < 0) return;
    needed = pulls(columns_.offload_anchor[id], static_cast<int>(id), last);
    needed.push_back({last, columns_.offload_anchor[id]});
  }

  /// The share of `decided` that is needed before the moment `need`.
  [[nodiscard]] std::vector<Pull> pulls(int decided, int value, int need) {
    if (decided < 0) return {};
    std::map<int, std::vector<int>> calls_by_slot;
    for (const int call : readers_[value]) {
      const int moment = space_.windows[to_index(call)].latest;
      const int slot = slot_of_moment_[to_index(moment)];
      if (slot < slot_of_moment_[to_index(need)]) calls_by_slot[slot].push_back(call);
    }
    std::vector<Pull> pulls;
    for (const auto& [slot, calls] : calls_by_slot) {
      const int column = linear_.add_column(0, 1);
      linear_.add_row(-LinearModel::kUnbounded, 0, {{column, 1}, {decided, -1}});
      if (!pulls.empty())
        linear_.add_row(0, LinearModel::kUnbounded, {{column, 1}, {pulls.back().column, -1}});
      int moment = 0;
      for (const int call : calls) {
        moment = std::max(moment, space_.windows[to_index(call)].latest);
        linear_.add_row(-1, LinearModel::kUnbounded,
                        {{column, 1}, {decided, -1}, {columns_.replay[to_index(call)], -1}});
      }
      pulls.push_back({moment, column});
    }
    return pulls;
  }

  const ChunkSpace& space_;
  const std::vector<int>& slot_of_moment_;
  LinearModel& linear_;
  ChunkColumns columns_;
  std::map<int, std::vector<int>> readers_;  // By value: calls that may be repeated.
};

}  // namespace

ChunkColumns add_columns(const ChunkSpace& space, const std::vector<int>& slot_of_moment,
                         LinearModel& linear) {
  return ColumnsBuilder(space, slot_of_moment, linear).run();
}

}  // namespace spillway
