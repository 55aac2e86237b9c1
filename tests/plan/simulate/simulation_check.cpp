#include "simulation_check.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "plan/simulate/planned_chunk.hpp"
#include "spillway/core/index.hpp"

namespace spillway {
namespace {

/// Times are rounded to nanoseconds.
constexpr std::int64_t kRounding = 2;

/// Behind `after`, up to and with `until`, in moments of the whole step.
struct Interval {
  int after = 0;
  int until = 0;
};

/// A pass, and where its moments are in the step.
struct CheckedPass {
  PassStep key;
  const PlannedChunk* chunk = nullptr;
  // What to add to a moment of its forward, and of its backward.
  int forward = 0;
  int backward = 0;

  [[nodiscard]] int position(int moment) const {
    return moment + (moment < chunk->model->backward_begins ? forward : backward);
  }
};

class Check {
 public:
  Check(const Simulation& simulation, const Profile& profile, const Plan& plan,
        PassSchedule schedule)
      : simulation_(simulation),
        profile_(profile),
        schedule_(schedule.empty() ? one_pass(profile) : std::move(schedule)) {
    for (const ChunkProfile& chunk : profile.chunks) {
      models_.push_back(model_of(chunk, profile.granularity));
    }
    for (std::size_t i = 0; i < models_.size(); ++i) {
      chunks_.push_back(planned(models_[i], plan.chunks[i], plan.limits));
    }
    lay_out();
    for (const SimulatedTransfer& transfer : simulation.transfers) {
      transfers_[{pass_of(transfer.pass), transfer.buffer}] = &transfer;
    }
  }

  [[nodiscard]] std::vector<std::string> run() && {
    check_lane(false);
    check_lane(true);
    for (const SimulatedTransfer& transfer : simulation_.transfers) check_transfer(transfer);
    find_bytes();
    check_memory();
    check_lists();
    check_sums();
    return std::move(problems_);
  }

 private:
  void lay_out() {
    int position = 0;
    for (const PassStep& step : schedule_) {
      const auto chunk = std::find_if(chunks_.begin(), chunks_.end(), [&](const auto& each) {
        return each.model->chunk->chunk == step.chunk;
      });
      const int begins = chunk->model->backward_begins;
      if (step.backward) {
        passes_[to_index(pass_of(step))].backward = position - begins;
        position += chunk->model->end + 1 - begins;
      } else {
        passes_.push_back({step, &*chunk, position, 0});
        position += begins;
      }
    }
    positions_ = position;
  }

  [[nodiscard]] int pass_of(const PassStep& step) const {
    const auto found = std::find_if(passes_.begin(), passes_.end(), [&](const CheckedPass& pass) {
      return pass.key.chunk == step.chunk && pass.key.micro_batch == step.micro_batch;
    });
    return static_cast<int>(found - passes_.begin());
  }

  [[nodiscard]] int position(const PassStep& step, int moment) const {
    return passes_[to_index(pass_of(step))].position(moment);
  }

  void report(const std::string& problem) { problems_.push_back(problem); }

  [[nodiscard]] static std::string name(const SimulatedTransfer& transfer) {
    return "buffer " + std::to_string(transfer.buffer) + " of chunk " +
           std::to_string(transfer.pass.chunk) + ", micro-batch " +
           std::to_string(transfer.pass.micro_batch);
  }

  // Streams.

  void check_lane(bool back) {
    std::vector<const SimulatedTransfer*> copies;
    for (const SimulatedTransfer& transfer : simulation_.transfers) {
      if (!back || transfer.reloaded >= 0) copies.push_back(&transfer);
    }
    const auto begin = [back](const SimulatedTransfer* copy) {
      return back ? copy->back_begin_ns : copy->out_begin_ns;
    };
    const auto end = [back](const SimulatedTransfer* copy) {
      return back ? copy->back_end_ns : copy->out_end_ns;
    };
    std::stable_sort(copies.begin(), copies.end(), [&](const auto* a, const auto* b) {
      return std::pair(begin(a), end(a)) < std::pair(begin(b), end(b));
    });
    const double speed = back ? profile_.link.back : profile_.link.out;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      const std::string what = name(*copies[i]) + (back ? " back" : " out");
      if (i > 0 && begin(copies[i]) < end(copies[i - 1]) - kRounding) {
        report("the copy of " + what + " begins before the one before it has ended");
      }
      const double least =
          speed > 0 ? static_cast<double>(copies[i]->bytes.count()) / speed * 1e9 : 0;
      if (static_cast<double>(end(copies[i]) - begin(copies[i]) + kRounding) < least) {
        report("the copy of " + what + " is faster than the link");
      }
    }
  }

  void check_transfer(const SimulatedTransfer& transfer) {
    const auto require = [&](bool holds, const char* what) {
      if (!holds) report(name(transfer) + " " + what);
    };
    const CheckedPass& pass = passes_[to_index(pass_of(transfer.pass))];
    const PlannedItem& item = pass.chunk->items[to_index(transfer.buffer)];
    require(transfer.saved >= item.entered, "is copied out before it was saved");
    require(transfer.out_begin_ns >= transfer.saved_ns, "is copied out before it was asked for");
    if (transfer.released >= 0) {
      require(transfer.released_ns + kRounding >= transfer.out_end_ns,
              "is given back before its copy out has ended");
    }
    if (transfer.reloaded < 0) return;
    require(transfer.released >= 0 && position(transfer.reloaded_in, transfer.reloaded) >
                                          position(transfer.released_in, transfer.released),
            "is reloaded but was not released");
    require(transfer.back_begin_ns >= transfer.reloaded_ns, "comes back before it was asked for");
    require(transfer.back_begin_ns + kRounding >= transfer.out_end_ns,
            "comes back before it has left");
    if (item.needed < 0) return;
    require(pass.position(item.needed) >= position(transfer.reloaded_in, transfer.reloaded),
            "is asked for after its use");
    require(transfer.ready_ns + kRounding >= transfer.back_end_ns,
            "is used before its copy back has ended");
    require(transfer.ready_ns <= point_after(pass.position(item.needed)).ns,
            "is used before compute waited for it");
  }

  // Memory.

  /// What compute did next after a moment.
  [[nodiscard]] const MemoryPoint& point_after(int position) {
    if (points_.empty()) find_points();
    return simulation_.memory[to_index(points_[to_index(position)]) + 1];
  }

  /// By moment of the step: its index in the simulation's memory.
  void find_points() {
    points_.resize(to_index(positions_) + 1);
    int point = 0;
    for_each_moment([&](const CheckedPass& pass, int moment) {
      points_[to_index(pass.position(moment))] = point++;
      if (job_at(pass, moment) != nullptr) ++point;
    });
    points_[to_index(positions_)] = point;
  }

  [[nodiscard]] static const ReplayJob* job_at(const CheckedPass& pass, int moment) {
    const Moment& now = pass.chunk->moment(moment);
    if (now.kind != MomentKind::kUnpack) return nullptr;
    for (const ReplayJob& job : pass.chunk->replays.jobs) {
      if (job.unpack == now.index) return &job;
    }
    return nullptr;
  }

  template <typename Look>
  void for_each_moment(Look&& look) const {
    for (const PassStep& step : schedule_) {
      const CheckedPass& pass = passes_[to_index(pass_of(step))];
      const int begins = pass.chunk->model->backward_begins;
      const int last = step.backward ? pass.chunk->model->end : begins - 1;
      for (int moment = step.backward ? begins : 0; moment <= last; ++moment) look(pass, moment);
    }
  }

  /// When the session had it on the device.
  [[nodiscard]] std::vector<Interval> held(const CheckedPass& pass, int id) const {
    const PlannedItem& item = pass.chunk->items[to_index(id)];
    if (!item.managed || item.entered < 0) return {};
    const int entered = pass.position(item.entered);
    const int freed = pass.position(item.freed);
    if (item.action == ActionKind::kRecompute) {
      std::vector<Interval> intervals = {{entered, pass.position(item.given_up)}};
      const int recomputed = recomputed_at(pass, id);
      if (recomputed >= 0) intervals.push_back({pass.position(recomputed), freed});
      return intervals;
    }
    const auto found = transfers_.find({pass_of(pass.key), id});
    if (found == transfers_.end() || found->second->released < 0) return {{entered, freed}};
    const SimulatedTransfer& transfer = *found->second;
    std::vector<Interval> intervals = {
        {entered, position(transfer.released_in, transfer.released)}};
    if (transfer.reloaded >= 0) {
      intervals.push_back({position(transfer.reloaded_in, transfer.reloaded), freed});
    } else if (item.needed >= 0) {
      intervals.push_back({pass.position(item.needed), freed});  // The model still had it.
    }
    return intervals;
  }

  /// The moment at which a recomputed buffer was there again; -1: never.
  [[nodiscard]] static int recomputed_at(const CheckedPass& pass, int id) {
    for (const ReplayJob& job : pass.chunk->replays.jobs) {
      if (std::find(job.makes.begin(), job.makes.end(), id) != job.makes.end()) {
        return pass.chunk->model->unpack_moment[to_index(job.unpack)];
      }
    }
    return pass.chunk->items[to_index(id)].needed;
  }

  void find_bytes() {
    managed_bytes_.assign(to_index(positions_) + 2, 0);
    bytes_.assign(to_index(positions_) + 2, 0);
    for (const CheckedPass& pass : passes_) {
      for (std::size_t id = 0; id < pass.chunk->items.size(); ++id) {
        add_item(pass, static_cast<int>(id));
      }
      add_cached(pass);
      add_others(pass);
    }
    add_persistent();
    for (std::size_t i = 1; i < bytes_.size(); ++i) {
      managed_bytes_[i] += managed_bytes_[i - 1];
      bytes_[i] += bytes_[i - 1];
    }
  }

  static void add(std::vector<std::int64_t>& changes, Interval interval, std::int64_t bytes) {
    if (interval.until <= interval.after) return;
    changes[to_index(interval.after) + 1] += bytes;
    changes[to_index(interval.until) + 1] -= bytes;
  }

  void add_item(const CheckedPass& pass, int id) {
    const PlannedItem& item = pass.chunk->items[to_index(id)];
    std::vector<Interval> there = held(pass, id);
    for (const Interval& each : there) add(managed_bytes_, each, item.bytes);
    const int model_until = item.model_until < 0 ? -1 : pass.position(item.model_until);
    if (item.anchor) {
      for (Interval& each : there) each.after = std::max(each.after, model_until);
    } else if (item.counted) {
      const int until = item.managed ? model_until : pass.position(item.freed);
      there.push_back({pass.position(item.allocated), until});
    }
    // Each moment counts once, however many hold it.
    std::sort(there.begin(), there.end(),
              [](const Interval& a, const Interval& b) { return a.after < b.after; });
    int covered = -1;
    for (Interval each : there) {
      each.after = std::max(each.after, covered);
      add(bytes_, each, item.bytes);
      covered = std::max(covered, each.until);
    }
  }

  void add_cached(const CheckedPass& pass) {
    const std::vector<CachedBytes>& list = pass.chunk->replays.cached;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const int until = i + 1 < list.size() ? pass.position(list[i + 1].moment) : positions_;
      add(bytes_, {pass.position(list[i].moment), until}, list[i].bytes);
    }
  }

  /// Untracked bytes: by moment while the pass runs, and the rest between its parts.
  void add_others(const CheckedPass& pass) {
    const PassModel& model = *pass.chunk->model;
    const bool again = std::any_of(passes_.begin(), passes_.end(), [&](const CheckedPass& other) {
      return other.chunk == pass.chunk &&
             other.position(model.end) < pass.position(model.backward_begins);
    });
    for (int moment = 0; moment <= model.end; ++moment) {
      std::int64_t bytes = pass.chunk->moment(moment).untracked_bytes;
      if (again && moment >= model.backward_begins)
        bytes -= pass.chunk->grown_bytes[to_index(moment)];
      const int here = pass.position(moment);
      add(bytes_, {here - 1, here}, bytes);
    }
    const int forward_ends = pass.position(model.backward_begins - 1);
    add(bytes_, {forward_ends, pass.position(model.backward_begins) - 1},
        pass.chunk->between_bytes);
  }

  void add_persistent() {
    for (const PlannedChunk& chunk : chunks_) {
      int first = positions_;
      for (const CheckedPass& pass : passes_) {
        if (pass.chunk == &chunk) first = std::min(first, pass.position(chunk.model->end));
      }
      add(bytes_, {first, positions_}, chunk.persistent_bytes);
    }
  }

  void check_memory() {
    if (points_.empty()) find_points();
    std::int64_t most = 0;
    for (const MemoryPoint& point : simulation_.memory) most = std::max(most, point.bytes);
    if (to_index(points_[to_index(positions_)]) != simulation_.memory.size()) {
      return report("there are " + std::to_string(simulation_.memory.size()) +
                    " points of memory instead of " +
                    std::to_string(points_[to_index(positions_)]));
    }
    for (int i = 0; i < positions_; ++i) {
      const std::int64_t found = simulation_.memory[to_index(points_[to_index(i)])].bytes;
      if (found == bytes_[to_index(i)]) continue;
      report("at moment " + std::to_string(i) + " of the step " +
             std::to_string(bytes_[to_index(i)]) + " bytes are there, not " +
             std::to_string(found));
    }
    if (static_cast<std::int64_t>(simulation_.peak.count()) != most) {
      report("the peak is not the most that is there");
    }
  }

  // Residency lists.

  void check_lists() {
    std::map<const PlannedChunk*, std::size_t> passes;
    std::vector<const Residency*> lists;
    for (const CheckedPass& pass : passes_) {
      lists.push_back(pass.chunk->plan->residency.of(passes[pass.chunk]++));
    }
    for_each_moment([&](const CheckedPass& pass, int moment) {
      const Residency* const list = lists[to_index(pass_of(pass.key))];
      if (list == nullptr) return;
      const Moment& now = pass.chunk->moment(moment);
      const int here = pass.position(moment);
      if (now.kind == MomentKind::kSave &&
          released_after(here) > list->pending[to_index(now.index)]) {
        report("more is kept at moment " + std::to_string(here) + " than its list says");
      }
      if (now.kind == MomentKind::kUnpack) {
        check_reloads(pass, here, list->reloads[to_index(now.index)], list->own_reloads);
      }
    });
  }

  /// How many items that are copied out by then are released later.
  [[nodiscard]] int released_after(int here) const {
    return static_cast<int>(std::count_if(
        simulation_.transfers.begin(), simulation_.transfers.end(), [&](const auto& transfer) {
          return position(transfer.pass, transfer.saved) <= here && transfer.released >= 0 &&
                 position(transfer.released_in, transfer.released) > here;
        }));
  }

  void check_reloads(const CheckedPass& pass, int here, int until, int own) {
    for (const SimulatedTransfer& transfer : simulation_.transfers) {
      if (transfer.reloaded < 0) continue;
      if (position(transfer.reloaded_in, transfer.reloaded) != here) continue;
      const CheckedPass& of = passes_[to_index(pass_of(transfer.pass))];
      const int needed = of.chunk->items[to_index(transfer.buffer)].needed;
      if (needed >= 0 && of.position(needed) == here) continue;
      const std::vector<int>& order = of.chunk->reload_order;
      const auto rank = std::find(order.begin(), order.end(), transfer.buffer) - order.begin();
      if (rank >= (&of == &pass ? until : until - own)) {
        report("more is reloaded at moment " + std::to_string(here) + " than its list says");
      }
    }
  }

  void check_sums() {
    std::int64_t sum = simulation_.replay_ns + simulation_.slowed_ns +
                       simulation_.waits.release_ns + simulation_.waits.reload_ns +
                       simulation_.waits.in_place_ns;
    for (const CheckedPass& pass : passes_) {
      sum += pass.chunk->model->forward_ns + pass.chunk->model->backward_ns;
    }
    // Each wait is rounded, and slowed operators do not end at whole nanoseconds.
    const auto waits =
        std::count_if(simulation_.spans.begin(), simulation_.spans.end(),
                      [](const auto& span) { return span.work == SimulatedWork::kWait; });
    const std::int64_t rounding = kRounding + (simulation_.slowed_ns > 0 ? waits : 0);
    if (std::abs(sum - simulation_.step_ns) > rounding) {
      report("the step takes " + std::to_string(simulation_.step_ns) + " ns, its parts " +
             std::to_string(sum));
    }
    const auto most = static_cast<double>(copied_ns(false)) * profile_.link.slows_out.value_or(0) +
                      static_cast<double>(copied_ns(true)) * profile_.link.slows_back.value_or(0);
    if (simulation_.slowed_ns < 0 ||
        static_cast<double>(simulation_.slowed_ns) > most + kRounding) {
      report("copies slow operators down by " + std::to_string(simulation_.slowed_ns) + " ns");
    }
  }

  [[nodiscard]] std::int64_t copied_ns(bool back) const {
    std::int64_t sum = 0;
    for (const SimulatedTransfer& each : simulation_.transfers) {
      sum += back ? each.back_end_ns - each.back_begin_ns : each.out_end_ns - each.out_begin_ns;
    }
    return sum;
  }

  const Simulation& simulation_;
  const Profile& profile_;
  PassSchedule schedule_;
  std::vector<PassModel> models_;
  std::vector<PlannedChunk> chunks_;
  std::vector<CheckedPass> passes_;
  int positions_ = 0;
  std::map<std::pair<int, int>, const SimulatedTransfer*> transfers_;  // By pass and item.
  std::vector<int> points_;
  std::vector<std::int64_t> managed_bytes_;  // By moment of the step: up to it.
  std::vector<std::int64_t> bytes_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> problems_of(const Simulation& simulation, const Profile& profile,
                                     const Plan& plan, PassSchedule schedule) {
  return Check(simulation, profile, plan, std::move(schedule)).run();
}

}  // namespace spillway
