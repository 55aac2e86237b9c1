#include "torch/record/pass_moments.hpp"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// Follows the log from moment to moment.
class MomentsReader {
 public:
  MomentsReader(const StepLog& log, std::size_t passes) : log_(log) {
    moments_.passes.resize(passes);
    moments_.places.resize(log.intervals.size());
    tails_.resize(passes);
  }

  [[nodiscard]] StepMoments run() && {
    for (const StepLog::PassMoment& each : log_.moments) {
      measure(each.intervals);
      add(each);
    }
    measure(log_.intervals.size());
    if (last_ >= 0 && of(last_).backward && assign_to(last_)) {
      note_tail(last_, bytes_.value_or(bytes_now_));
    }
    for (std::size_t i = 0; i < tails_.size(); ++i) {
      std::vector<Moment>& list = moments_.passes[i].list;
      const std::int64_t before = list.empty() ? 0 : list.back().untracked_bytes;
      list.push_back({MomentKind::kEnd, -1, 0, tails_[i].value_or(before)});
    }
    return std::move(moments_);
  }

 private:
  [[nodiscard]] PassMoments& of(int pass) {
    return moments_.passes[static_cast<std::size_t>(pass)];
  }

  void measure(std::size_t intervals) {
    for (; measured_ < intervals && log_.counts_saved; ++measured_) {
      const StepLog::Interval& each = log_.intervals[measured_];
      const std::int64_t peak = each.peak - each.saved;
      bytes_ = std::max(bytes_.value_or(peak), peak);
      bytes_now_ = each.allocated - each.saved;
      lowest_ = std::min(lowest_, bytes_now_);
    }
    measured_ = intervals;
  }

  /// What was measured since the last moment belongs to the pass; whether anything was.
  bool assign_to(int pass) {
    const bool any = assigned_ < measured_;
    for (; assigned_ < measured_; ++assigned_) {
      moments_.places[assigned_] = {pass, of(pass).list.size()};
    }
    return any;
  }

  void note_tail(int pass, std::int64_t bytes) {
    std::optional<std::int64_t>& tail = tails_[static_cast<std::size_t>(pass)];
    tail = std::max(tail.value_or(bytes), bytes);
  }

  void add(const StepLog::PassMoment& moment) {
    PassMoments& pass = of(moment.pass);
    find_bases(moment);
    // The pass before may be over.
    if (last_ >= 0 && last_ != moment.pass && of(last_).backward && assign_to(last_) && bytes_) {
      note_tail(last_, *std::exchange(bytes_, std::nullopt));
    }
    std::int64_t bytes = bytes_now_;
    if (assign_to(moment.pass)) bytes = std::exchange(bytes_, std::nullopt).value_or(bytes);
    auto& tail = tails_[static_cast<std::size_t>(moment.pass)];
    if (tail) bytes = std::max(bytes, *std::exchange(tail, std::nullopt));
    if (moment.kind == MomentKind::kBackwardBegins) pass.backward = true;
    if (moment.kind == MomentKind::kSave && pass.backward) pass.in_order = false;
    pass.list.push_back({moment.kind, moment.index, 0, bytes});
    last_ = moment.pass;
    lowest_ = bytes_now_;
  }

  // Allocations between two passes belong to neither: their minimum is the base of both.
  void find_bases(const StepLog::PassMoment& moment) {
    if (last_ >= 0 && last_ != moment.pass) {
      PassMoments& last = of(last_);
      if (last.backward) {
        last.after = lowest_ - last.before_backward;
      } else if (!last.left) {
        last.left = lowest_ - last.before_forward.value_or(0);
      }
    }
    PassMoments& pass = of(moment.pass);
    if (!pass.before_forward) pass.before_forward = lowest_;
    if (moment.kind != MomentKind::kBackwardBegins) return;
    pass.before_backward = pass.left ? lowest_ - *pass.left : *pass.before_forward;
  }

  const StepLog& log_;
  StepMoments moments_;
  // By pass: untracked bytes since its last moment, before another pass's.
  std::vector<std::optional<std::int64_t>> tails_;
  int last_ = -1;             // The pass of the last moment.
  std::size_t measured_ = 0;  // Intervals before the next moment.
  std::size_t assigned_ = 0;  // Those that have a place.
  // Untracked bytes: the peak since the last moment, at the end of the last interval, and the least
  // at any such end since the last moment.
  std::optional<std::int64_t> bytes_;
  std::int64_t bytes_now_ = 0;
  std::int64_t lowest_ = 0;
};

}  // namespace

StepMoments moments_of(const StepLog& log, std::size_t passes) {
  return MomentsReader(log, passes).run();
}

bool times_known(const StepLog& log, const TorchDevice& device) {
  return log.intervals.empty() || log.has_happened(log.intervals.back().end, device);
}

void add_times(const StepLog& log, TorchDevice& device, StepMoments& moments) {
  for (std::size_t i = 0; i < log.intervals.size(); ++i) {
    const StepMoments::Place& place = moments.places[i];
    if (place.pass < 0) continue;
    const Nanoseconds time = log.between(log.intervals[i].begin, log.intervals[i].end, device);
    // Marks of two streams may come in any order.
    moments.passes[static_cast<std::size_t>(place.pass)].list[place.moment].compute_ns +=
        std::max(time, Nanoseconds(0)).count();
  }
}

std::vector<Moment> recorded_moments(const PassMoments& pass) {
  std::vector<Moment> list = pass.list;
  if (!pass.after || list.size() < 2 || list.back().kind != MomentKind::kEnd) return list;
  Moment& end = list.back();
  Moment& last = list[list.size() - 2];
  const std::int64_t left = pass.before_backward + *pass.after;
  const bool backward = last.kind == MomentKind::kUnpack || last.kind == MomentKind::kDrop;
  if (!backward || end.untracked_bytes <= left) return list;
  last.untracked_bytes = std::max(last.untracked_bytes, end.untracked_bytes);
  end.untracked_bytes = left;
  return list;
}

std::vector<Moment> own_moments(const PassMoments& pass) {
  std::vector<Moment> own = recorded_moments(pass);
  std::int64_t base = pass.before_forward.value_or(0);
  for (Moment& moment : own) {
    if (moment.kind == MomentKind::kBackwardBegins) base = pass.before_backward;
    moment.untracked_bytes -= base;
    // While other passes run, and at the end, it has what was allocated when those began.
    if (moment.kind == MomentKind::kBackwardBegins && pass.left)
      moment.untracked_bytes = *pass.left;
    if (moment.kind == MomentKind::kEnd && pass.after) {
      moment.untracked_bytes = std::min(moment.untracked_bytes, *pass.after);
    }
  }
  return own;
}

}  // namespace spillway
