#include <algorithm>
#include <chrono>
#include <map>
#include <ranges>
#include <set>
#include <thread>
#include <utility>

#include "plan/profile/find_layers.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/planner.hpp"
#include "torch/device/link_speed.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/execute/shard_digest.hpp"
#include "torch/hooks/error_text.hpp"

namespace spillway {
namespace {

/// Undefined, which no tensor has, for an unknown name.
at::ScalarType dtype_named(const std::string& name) {
  for (int type = 0; type < static_cast<int>(at::ScalarType::NumOptions); ++type) {
    const auto dtype = static_cast<at::ScalarType>(type);
    if (name == c10::toString(dtype)) return dtype;
  }
  return at::ScalarType::Undefined;
}

/// Whether the original is kept because of what is done to it.
bool may_not_move(FixedReason reason) {
  return reason == FixedReason::kChangedLater || reason == FixedReason::kOwnedElsewhere;
}

std::vector<bool> compared_buffers(const ChunkLayout& layout, const ChunkPlan& plan) {
  std::vector<bool> compared;
  for (const ActionKind action : layout.action) {
    compared.push_back(action == ActionKind::kRecompute);
  }
  const auto buffer_of = [&](std::size_t site) {
    return static_cast<std::size_t>(layout.sites[site].buffer);
  };
  const auto may_compare = [&](std::size_t site) {
    const Decision& decision = plan.decisions[buffer_of(site)];
    return decision.fixed == FixedReason::kNone && !decision.action.shard;
  };
  std::vector<bool> also = compared;
  for (const auto& [signature, sites] : layout.sites_of) {
    const auto recomputed = [&](std::size_t site) { return compared[buffer_of(site)]; };
    if (std::ranges::none_of(sites, recomputed)) continue;
    for (const std::size_t site : sites) {
      if (may_compare(site)) also[buffer_of(site)] = true;
    }
  }
  return also;
}

/// By buffer: the scopes of the operators that saved it, each once.
std::vector<std::vector<std::string>> saving_scopes(const Profile& profile, int number) {
  std::vector<std::vector<std::string>> all;
  const auto chunk = std::ranges::find(profile.chunks, number, &ChunkProfile::chunk);
  if (chunk == profile.chunks.end()) return all;
  for (const BufferProfile& buffer : chunk->buffers) all.push_back(saving_scopes(buffer));
  return all;
}

std::size_t verification_bytes(const Profile& profile, const ChunkPlan& plan,
                               const std::vector<bool>& compared) {
  const auto chunk =
      std::find_if(profile.chunks.begin(), profile.chunks.end(),
                   [&](const ChunkProfile& each) { return each.chunk == plan.chunk; });
  if (chunk == profile.chunks.end()) return 0;
  std::map<int, std::size_t> by_layer;
  std::size_t most = 0;
  for (const Decision& decision : plan.decisions) {
    const auto id = static_cast<std::size_t>(decision.buffer);
    if (!compared[id] || id >= chunk->buffers.size()) continue;
    most = std::max(most, by_layer[chunk->buffers[id].layer] += decision.bytes.count());
  }
  return most;
}

}  // namespace

SessionCore::StepNumber SessionCore::begin_step(const PassSchedule& schedule) {
  throw_step_error();
  const bool captures = device_->is_capturing();
  const StepThread* const here = StepThread::current();
  await_end_of_thread();
  const std::lock_guard lock(mutex_);
  if (captures) {
    note_capture();
    return 0;
  }
  if (here != nullptr) {
    throw InvalidArgument("step", here == step_thread_.get()
                                      ? "this session's step has not ended; end it first"
                                      : "another session is within a step on this thread; end that "
                                        "one first, or use another thread");
  }
  // Its thread has ended within it, or it ended while a stream was being captured.
  if (in_step() && step_thread_->is_over()) end_step_locked();
  drop_deferred();
  if (in_step()) {
    throw InvalidArgument("step",
                          "this session is within a step on another thread; use one session a "
                          "thread");
  }
  if (options_.budget) {
    begin_budgeted_step(schedule);
    share_plan();
  } else {
    begin_fitted_step(schedule);
  }
  const Asked asked{record_next_, next_cause_, verify_next_, trace_next_, budgeting_.time_next};
  try {
    return start_step(schedule);
  } catch (...) {
    ask_again(asked);
    throw;
  }
}

void SessionCore::ask_again(const Asked& asked) noexcept {
  record_next_ = asked.record;
  next_cause_ = asked.cause;
  verify_next_ = asked.verify;
  trace_next_ = asked.trace;
  budgeting_.time_next = asked.time;
  recording_ = false;
  verifying_ = false;
  checks_copies_ = false;
  book_.reset();
  stop_measuring();
}

void SessionCore::stop_measuring() noexcept {
  waits_.end_step();
  if (clock_.running()) clock_.stop();
  if (tracing_ != nullptr) engine_->stop_timing();
  tracing_.reset();
  watch_.clear(mutex_);
}

SessionCore::StepNumber SessionCore::start_step(const PassSchedule& schedule) {
  bool recomputes = false;
  bool identifies = false;
  for (const auto& [chunk, layout] : layouts_) {
    recomputes = recomputes || layout->recomputes;
    identifies = identifies || layout->must_not_move;
  }
  const bool verifies = options_.verify_every > 0 &&
                        (steps_ + 1) % static_cast<std::uint64_t>(options_.verify_every) == 0;
  const bool verifies_now = (verify_next_ || verifies) && !record_next_;
  agree_on_collectives();
  agree_on_sharding(verifies_now);
  if (!record_next_) verify_next_ = false;
  verifying_ = (verifies_now && recomputes) || sharding_.verifying;
  follower_.begin(schedule);
  recording_ = std::exchange(record_next_, false);
  checks_copies_ = recording_ || verifies_now;
  cause_ = std::exchange(next_cause_, RecordingCause::kAsked);
  number_fixed();
  passes_.clear();
  order_.clear();
  explicit_passes_ = false;
  backward_announced_ = false;
  last_backward_order_ = std::exchange(backward_order_, {});
  last_tails_ = std::exchange(tails_, {});
  if (checks_copies_) copy_checks_.prepare(device_->torch_device());
  step_ = StepCounts{};
  machine_.reset_peak();
  step_.saved_peak = saved_;
  step_.kept_peak = kept_bytes_;
  weight_numbers_.begin_step(recording_);
  (void)device_->take_peak();
  step_start_ = device_->allocated();
  begin_measuring();
  begin_trace();
  const bool traces = tracing_ != nullptr;
  waits_.begin_step(steps_ + 1, recording_, budgeting_.timing || traces);
  // A plan that was not made here may be of another model: types alone do not tell.
  const bool unknown_plan = verifies_now && plan_ != nullptr && profile_ == nullptr;
  // Ranks compare what they save: sizes alone do not distinguish buffers. Nor do they where some
  // are kept because of what is done to them.
  signs_saves_ = recording_ || recomputes || identifies || sharding_.active ||
                 sharding_.verifying || unknown_plan || budgeting_.timing || traces;
  // A step that checks copies sees all writes it can.
  if (signs_saves_ || checks_copies_) {
    book_ = std::make_shared<RecipeBook>(
        [this](const c10::StorageImpl* storage) { return find_fixed(storage); },
        [this](const at::Tensor& weight) { return weight_numbers_.of(weight); },
        plan_ != nullptr && plan_->recompute_collectives && !collectives_.differ);
  }
  if (recording_ || budgeting_.timing || traces) {
    clock_.start(recording_ ? &watch_ : nullptr, traces);
  }
  CallListener* const listener = book_ != nullptr ? this : nullptr;
  step_thread_ =
      StepThread::begin({weak_from_this(), this, listener,
                         listener != nullptr && (recording_ || traces), options_.scope_source});
  return step_thread_->number();
}

void SessionCore::await_end_of_thread() {
  std::shared_ptr<StepThread> step;
  {
    const std::lock_guard lock(mutex_);
    step = step_thread_;
  }
  // A thread of Python that was joined may still have to say that its step is over. If it goes on,
  // that is an error, so waiting costs nothing.
  if (step == nullptr || step->is_here()) return;
  constexpr int kMostWaits = 200;
  for (int i = 0; i < kMostWaits && !step->is_over(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void SessionCore::end_step(StepNumber number) noexcept {
  if (!in_its_process()) return;
  const bool captures = device_->is_capturing();
  const std::lock_guard lock(mutex_);
  if (!is_step(number)) return;
  // What ends a step uses streams, so it must wait; the thread leaves the step now.
  if (captures) return step_thread_->end();
  end_step_locked();
}

void SessionCore::throw_error_of(StepNumber number) {
  if (!in_its_process()) return;
  {
    const std::lock_guard lock(mutex_);
    if (last_ended_ != number) return;
  }
  throw_step_error();
}

void SessionCore::end_any_step() noexcept {
  if (!in_its_process()) return;
  StepNumber number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (in_step()) number = step_thread_->number();
  }
  end_step(number);
}

void SessionCore::end_step_locked() noexcept {
  const RecordingPause pause;  // This thread may be in a step of another session.
  last_ended_ = step_thread_->number();
  std::exchange(step_thread_, nullptr)->end();
  const bool recorded = recording_;
  const bool verified = verifying_;
  try {
    drop_deferred();
    close_step();
  } catch (...) {
    // The gradients are there. Whatever a plan would need is recorded again.
    note_failure("the end of a step");
    record_next_ = true;
    stop_measuring();
  }
  recording_ = false;
  verifying_ = false;
  checks_copies_ = false;
  copy_sources_.clear(mutex_);
  for (const auto& pass : passes_) {
    // A backward may still run; it is not recorded.
    pass->profiler = nullptr;
    pass->moments = nullptr;
    pass->over = true;
  }
  passes_.clear();
  order_.clear();
  awaited_.clear();
  book_.reset();
  call_locations_.clear();
  running_calls_.clear();
  try {
    settle_host_memory(recorded, verified);
  } catch (...) {
    note_failure("giving host memory back");
  }
}

void SessionCore::note_failure(const char* where) noexcept {
  try {
    count_fallback(std::string(where) + " failed: " + text_of(std::current_exception()));
  } catch (...) {
    return;  // No memory for the message.
  }
}

void SessionCore::close_step() {
  ++steps_;
  end_sharding();
  const bool complete = follower_.complete();
  if (!complete) count_fallback("the step ended before its schedule was complete");
  waits_.end_step();
  step_.on_device_peak = static_cast<std::size_t>(machine_.peak());
  step_.device_peak = device_->peak();
  if (clock_.running()) {
    clock_.stop();
    step_.device_peak = std::max(step_.device_peak, clock_.peak());
  }
  end_trace();
  end_measuring(complete);
  watch_.clear(mutex_);
  settle_awaited();
  for (const auto& pass : passes_) look_for_freed_weights(*pass, FreedWeights::At::kStepEnds);
  const std::vector<CopyChecks::Failure> wrong_copies = read_copy_checks();
  // Recipes that were not known before are verified in any step.
  if (verifying_ || !compared_.empty()) finish_verification();
  const bool recorded = recording_;
  if (recording_) {
    recording_ = false;
    ++recorded_steps_;
    try {
      finish_recording();
    } catch (const std::exception& error) {
      record_next_ = true;
      count_fallback(std::string("the profile could not be used: ") + error.what());
    }
  } else {
    last_step_ = step_;
    note_order();
    check_matches();
  }
  report_copies(wrong_copies);
  demote_owned_elsewhere();
  for (const auto& pass : passes_) {
    for (const ValueId anchor : std::exchange(pass->anchors, {})) release_root(anchor, *pass->book);
  }
  keep_trace(recorded);
}

void SessionCore::finish_recording() {
  Profile profile;
  profile.device = device_->torch_device().str();
  profile.fixed = clock_.at_start();
  profile.granularity = device_->granularity();
  for (const auto& pass : passes_) StepClock::end_of(*pass->moments);
  clock_.resolve();
  std::set<int> chunks;
  for (const auto& pass : passes_) {
    // The profile of a chunk is that of its first pass that had a backward.
    if (pass->profiler == nullptr || !pass->profiler->had_backward() ||
        !chunks.insert(pass->key.chunk).second) {
      continue;
    }
    std::vector<Moment> moments;
    if (!clock_.failed() && pass->moments->in_order) moments = own_moments(*pass->moments);
    if (pass->moments->left) pass->profiler->released_with_forward(moments);
    profile.chunks.push_back(pass->profiler->finish(pass->key.chunk, pass->number, *book_,
                                                    call_locations_, std::move(moments),
                                                    profile.granularity, freed_weights_));
    profile.chunks.back().measured_peak = step_.device_peak;
  }
  idle_chunks_.clear();
  for (const auto& pass : passes_) {
    if (!chunks.contains(pass->key.chunk)) idle_chunks_.insert(pass->key.chunk);
  }
  if (profile.chunks.empty()) {
    record_next_ = true;  // Nothing was trained in this step.
    return;
  }
  if (cause_ == RecordingCause::kUnknownSaves && profile_ != nullptr && !covers_more(profile)) {
    sharding_.equal.clear();  // It counts the buffers of this profile.
    return;
  }
  for (const ChunkProfile& chunk : profile.chunks) {
    for (const SiteProfile& site : chunk.sites) {
      const FixedReason reason = chunk.buffers[static_cast<std::size_t>(site.buffer)].fixed;
      if (may_not_move(reason)) never_moved_.emplace(chunk.chunk, site.signature);
    }
  }
  for (ChunkProfile& chunk : profile.chunks) add_later_pass(chunk, profile.granularity);
  find_layers(profile, options_.layers);
  profile.link = measure_link(*device_, *limited_tier_);
  profile_ = std::make_shared<const Profile>(std::move(profile));
  if (options_.plan && !made_for(*options_.plan, *profile_)) {
    count_fallback("the plan given was made for another structure than the one recorded");
    options_.plan.reset();
  }
  if (options_.plan) return adopt_plan(with_signatures_of(*profile_, *options_.plan));
  if (options_.budget) return plan_for_budget(recorded_schedule(chunks));
  plan_by_rules(recorded_schedule(chunks));
}

void SessionCore::add_later_pass(ChunkProfile& chunk, Bytes granularity) const {
  if (chunk.timeline.empty()) return;
  const Pass* first = nullptr;  // The profiled pass, if it allocated the gradients.
  for (const auto& [pass, backward] : order_) {
    if (!backward || pass->key.chunk != chunk.chunk || !pass->moments->in_order) continue;
    if (first == nullptr) {
      if (!pass->profiler->empty()) return;
      first = pass.get();
    } else if (pass->profiler->has_sizes_of(chunk)) {
      const std::vector<Moment> moments =
          remapped(own_moments(*pass->moments), match_calls(chunk, calls_of(*pass)));
      chunk.later_untracked_bytes = untracked_bytes(chunk, moments, granularity);
      return;
    }
  }
}

PassSchedule SessionCore::recorded_schedule(const std::set<int>& chunks) const {
  PassSchedule schedule;
  for (const auto& [pass, backward] : order_) {
    if (!pass->backward_begun || !chunks.contains(pass->key.chunk)) continue;
    schedule.push_back({pass->key.chunk, pass->number, backward});
  }
  return schedule;
}

void SessionCore::adopt_plan(Plan plan) {
  if (!plan.limits.recompute_cache) plan.limits.recompute_cache = options_.recompute_cache;
  tails_.clear();
  step_time_.forget();
  budgeting_.measured_step = {};
  budgeting_.measured_peak = {};
  budgeting_.measured_steps = 0;
  budgeting_.verification_peak = {};
  keep_never_moved(plan);
  plan_ = std::make_shared<const Plan>(std::move(plan));
  verify_next_ = true;
  host_use_.state = HostUse::State::kSettling;
  host_use_.steps = 0;
  host_use_.verified = false;
  host_use_.reach = {};
  demoted_.clear();
  skipped_.clear();
  compared_.clear();
  verification_ = Verification();  // It counts the buffers of the last plan.
  sharding_.verified = false;
  sharding_.mismatched.clear();
  remember_plan();
  lay_out();
}

void SessionCore::lay_out() {
  set_engine_limits(plan_->limits);
  layouts_.clear();
  for (const ChunkPlan& chunk : plan_->chunks) {
    const std::shared_ptr<ChunkLayout> layout = layout_of(chunk, plan_->budget.has_value());
    if (profile_ != nullptr) {
      layout->verification_bytes = verification_bytes(*profile_, chunk, layout->compared);
      layout->saved_in = saving_scopes(*profile_, chunk.chunk);
    }
    layouts_[chunk.chunk] = layout;
  }
  sharding_.digest = shard_digest(*plan_);
}

std::shared_ptr<ChunkLayout> SessionCore::layout_of(const ChunkPlan& plan, bool budget) {
  auto layout = std::make_shared<ChunkLayout>();
  std::vector<at::ScalarType> dtypes;
  for (const SiteKind& kind : plan.sites.kinds) dtypes.push_back(dtype_named(kind.dtype));
  for (std::size_t i = 0; i < plan.sites.kind.size(); ++i) {
    const auto kind = static_cast<std::size_t>(plan.sites.kind[i]);
    const auto dimensions = static_cast<std::size_t>(plan.sites.kinds[kind].dimensions);
    layout->sites.push_back({plan.sites.buffer[i], dtypes[kind], dimensions});
    if (plan.sites.signature.empty()) continue;
    layout->sites.back().signature = plan.sites.signature[i];
    layout->sites_of[plan.sites.signature[i]].push_back(i);
  }
  for (const Decision& decision : plan.decisions) {
    layout->action.push_back(decision.action.kind);
    layout->shard.push_back(decision.action.shard && decision.fixed == FixedReason::kNone);
    layout->fallback.push_back(decision.fallback);
    layout->caller_owned.push_back(decision.fixed == FixedReason::kCallerOwned);
    layout->owned_elsewhere.push_back(decision.fixed == FixedReason::kOwnedElsewhere);
    layout->bytes.push_back(decision.bytes.count());
    layout->may_offload.push_back(budget && decision.reason == kKeptByPlanner);
    layout->recomputes = layout->recomputes || layout->action.back() == ActionKind::kRecompute;
    layout->must_not_move = layout->must_not_move || may_not_move(decision.fixed);
  }
  std::vector<bool> seen(plan.decisions.size());
  for (ChunkLayout::SiteShape& site : layout->sites) {
    const Decision& decision = plan.decisions[static_cast<std::size_t>(site.buffer)];
    const bool kept = decision.action.kind == ActionKind::kKeep && is_step_memory(decision.fixed);
    if (!seen[static_cast<std::size_t>(decision.buffer)] && kept)
      site.kept = decision.bytes.count();
    seen[static_cast<std::size_t>(decision.buffer)] = true;
  }
  for (const Anchor& anchor : plan.anchors) {
    layout->anchors.push_back({anchor.call, anchor.saves, anchor.ordinal, anchor.output,
                               anchor.name, anchor.action.kind});
    layout->action.push_back(anchor.action.kind);
    layout->shard.push_back(anchor.action.shard);
  }
  layout->compared = compared_buffers(*layout, plan);
  layout->calls_before_first_save = plan.calls_before_first_save;
  for (const Bytes bytes : plan.forward_allowance)
    layout->forward_allowance.push_back(bytes.count());
  for (const Bytes bytes : plan.backward_allowance)
    layout->backward_allowance.push_back(bytes.count());
  layout->gathers = gather_order(plan);
  for (const bool shard : layout->shard) layout->shards += shard ? 1 : 0;
  std::vector<bool> queued(layout->action.size());
  const auto queue = [&](int id) {
    const auto index = static_cast<std::size_t>(id);
    const bool offloads = layout->action[index] == ActionKind::kOffload ||
                          (index < layout->may_offload.size() && layout->may_offload[index]);
    if (!offloads || queued[index]) return;
    queued[index] = true;
    layout->reload_order.push_back(id);
  };
  for (const int id : plan.need_order) queue(id);
  for (auto id = static_cast<int>(layout->action.size()) - 1; id >= 0; --id) {
    queue(id);  // What the profiled backward did not read comes last.
  }
  return layout;
}

void SessionCore::use_plan(Plan plan) {
  const std::lock_guard lock(mutex_);
  if (in_step()) throw InvalidArgument("plan", "a step is under way; end it first");
  if (profile_ == nullptr) {
    record_next_ = false;  // Whether it fits is seen when it is executed.
  } else if (!made_for(plan, *profile_)) {
    throw InvalidArgument("plan",
                          "the plan was made for another structure than the one recorded; "
                          "make a new one with `spillway plan`");
  } else {
    plan = with_signatures_of(*profile_, std::move(plan));
  }
  options_.plan = plan;
  forget_planning();
  budgeting_.unplanned = false;
  budgeting_.error = nullptr;
  budgeting_.smallest = nullptr;
  budgeting_.problem.clear();
  if (budgeting_.on_problem == OnProblem::kThrow) budgeting_.on_problem = OnProblem::kWarn;
  budgeting_.time_next = false;
  fitting_.enabled = false;
  adopt_plan(std::move(plan));
}

void SessionCore::verify_next_step() {
  const std::lock_guard lock(mutex_);
  verify_next_ = true;
}

void SessionCore::record_next_step() {
  const std::lock_guard lock(mutex_);
  record_next_ = true;
  next_cause_ = RecordingCause::kAsked;
}

bool SessionCore::next_step_records() const {
  const std::lock_guard lock(mutex_);
  return record_next_;
}

std::shared_ptr<const Profile> SessionCore::profile() const {
  const std::lock_guard lock(mutex_);
  return profile_;
}

std::shared_ptr<const Plan> SessionCore::plan() const {
  const std::lock_guard lock(mutex_);
  return plan_;
}

}  // namespace spillway
