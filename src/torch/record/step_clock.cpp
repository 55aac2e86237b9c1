#include "torch/record/step_clock.hpp"

#include <algorithm>
#include <utility>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

std::int64_t signed_count(Bytes bytes) { return static_cast<std::int64_t>(bytes.count()); }

}  // namespace

void StepClock::start(StorageWatch* watch, bool traces) {
  ++starts_;
  watch_ = watch;
  traces_ = traces;
  failed_ = false;
  pauses_ = 1;
  since_.reset();
  paused_.reset();
  intervals_.clear();
  memory_.clear();
  assigned_ = 0;
  last_.reset();
  bytes_.reset();
  bytes_now_ = 0;
  lowest_ = 0;
  at_start_ = device_->allocated();
  peak_ = at_start_;
  running_ = true;
  resume();
}

void StepClock::pause() noexcept {
  if (!running_ || pauses_++ > 0) return;
  try {
    uses_stream_ = false;
    paused_.reset();
    if (since_) {
      paused_ = device_->mark();
      intervals_.push_back({std::move(*since_), *paused_, nullptr, 0});
    }
    since_.reset();
    if (watch_ == nullptr && !traces_) return;
    const Bytes most = device_->take_peak();
    const Bytes now = device_->allocated();
    peak_ = std::max(peak_, most);
    if (traces_ && paused_) {
      memory_.push_back({intervals_.back().begin, above_start(most)});
      memory_.push_back({*paused_, above_start(now)});
    }
    if (watch_ == nullptr) return;
    measure(above_start(most) - watch_->bytes());
    bytes_now_ = above_start(now) - watch_->bytes();
    lowest_ = std::min(lowest_, bytes_now_);
  } catch (const std::exception&) {
    failed_ = true;  // The next use of the device throws.
  }
}

std::int64_t StepClock::above_start(Bytes bytes) const {
  return signed_count(bytes) - signed_count(at_start_);
}

void StepClock::measure(std::int64_t bytes) { bytes_ = std::max(bytes_.value_or(bytes), bytes); }

void StepClock::resume() noexcept {
  if (!running_ || --pauses_ > 0) return;
  try {
    if (watch_ != nullptr || traces_) {
      const Bytes most = device_->take_peak();
      peak_ = std::max(peak_, most);
      if (!memory_.empty())
        memory_.back().bytes = std::max(memory_.back().bytes, above_start(most));
    }
    if (watch_ != nullptr) watch_->refresh();
    since_ = paused_ && device_->computes_beside() && !uses_stream_ ? *paused_ : device_->mark();
  } catch (const std::exception&) {
    failed_ = true;
  }
}

bool StepClock::assign_to(const std::shared_ptr<PassMoments>& pass) {
  const bool any = assigned_ < intervals_.size();
  for (; assigned_ < intervals_.size(); ++assigned_) {
    intervals_[assigned_].pass = pass;
    intervals_[assigned_].moment = pass->list.size();
  }
  return any;
}

// Allocations between two passes belong to neither: their minimum is the base of both.
void StepClock::find_bases(const std::shared_ptr<PassMoments>& pass, MomentKind kind) {
  if (last_ != nullptr && last_ != pass) {
    if (last_->backward) {
      last_->after = lowest_ - last_->before_backward;
    } else if (!last_->left) {
      last_->left = lowest_ - last_->before_forward.value_or(0);
    }
  }
  if (!pass->before_forward) pass->before_forward = lowest_;
  if (kind != MomentKind::kBackwardBegins) return;
  pass->before_backward = pass->left ? lowest_ - *pass->left : *pass->before_forward;
}

void StepClock::moment(const std::shared_ptr<PassMoments>& pass, MomentKind kind, int index) {
  if (!running_) return;
  find_bases(pass, kind);
  // The pass before may be over.
  if (last_ != nullptr && last_ != pass && last_->backward && assign_to(last_) && bytes_) {
    last_->tail_bytes = std::max(last_->tail_bytes.value_or(*bytes_), *bytes_);
    bytes_.reset();
  }
  std::int64_t bytes = bytes_now_;
  if (assign_to(pass)) bytes = std::exchange(bytes_, std::nullopt).value_or(bytes);
  if (pass->tail_bytes) bytes = std::max(bytes, *std::exchange(pass->tail_bytes, std::nullopt));
  if (kind == MomentKind::kBackwardBegins) pass->backward = true;
  pass->list.push_back({kind, index, 0, watch_ == nullptr ? 0 : bytes});
  last_ = pass;
  lowest_ = bytes_now_;
}

void StepClock::stop() noexcept {
  pause();
  running_ = false;
  if (last_ == nullptr || !last_->backward || !assign_to(last_)) return;
  const std::int64_t bytes = bytes_.value_or(bytes_now_);
  last_->tail_bytes = std::max(last_->tail_bytes.value_or(bytes), bytes);
}

void StepClock::end_of(PassMoments& pass) {
  const std::int64_t before = pass.list.empty() ? 0 : pass.list.back().untracked_bytes;
  pass.list.push_back({MomentKind::kEnd, -1, 0, pass.tail_bytes.value_or(before)});
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

void StepClock::resolve() {
  for (const Interval& interval : intervals_) {
    if (interval.pass == nullptr || interval.moment >= interval.pass->list.size()) continue;
    const Nanoseconds time = device_->elapsed(interval.begin, interval.end);
    // Marks of two streams may come in any order.
    interval.pass->list[interval.moment].compute_ns += std::max(time, Nanoseconds(0)).count();
  }
  intervals_.clear();
  assigned_ = 0;
  last_.reset();
}

}  // namespace spillway
