#include "spillway/torch/session.hpp"

#include <utility>

#include "spillway/core/error.hpp"
#include "spillway/core/process.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/hooks/interception.hpp"

namespace spillway {

namespace {

/// The session, unless this is a child made by fork(), where nothing of it works.
SessionCore& here(const std::shared_ptr<SessionCore>& core, const char* operation) {
  if (core->in_its_process()) return *core;
  throw InvalidArgument(operation,
                        "this session belongs to the process that called fork(); a child has none "
                        "of its threads: make a session there, or start the child with \"spawn\"");
}

}  // namespace

void Step::pass(int chunk, int micro_batch) {
  core_->begin_explicit_pass(number_, {chunk, micro_batch});
}

void Step::backward() { core_->announce_backward(number_); }

void Step::end() {
  if (core_ == nullptr) return;  // Moved from.
  core_->end_step(number_);
  core_->throw_error_of(number_);
}

Step::~Step() {
  if (core_ != nullptr) core_->end_step(number_);
}

Session::Session(SessionOptions options) {
  std::unique_ptr<TorchDevice> device = make_torch_device(options.device);
  core_ = std::shared_ptr<SessionCore>(new SessionCore(std::move(options), std::move(device)),
                                       DeleteInProcess());
  install_interception();
}

Session Session::from_file(const std::filesystem::path& rules) {
  SessionOptions options;
  options.rules = load_rules(rules);
  return Session(std::move(options));
}

Session::~Session() {
  if (core_ != nullptr) core_->end_any_step();
}

void Session::register_fixed(const at::Tensor& tensor, FixedReason reason) {
  here(core_, "register").register_fixed(tensor, reason);
}

void Session::set_shard_group(std::shared_ptr<ShardGroup> group) {
  here(core_, "shard_group").set_shard_group(std::move(group));
}

Step Session::step() { return step(PassSchedule()); }

Step Session::step(const PassSchedule& schedule) {
  require_valid(schedule);
  const std::uint64_t number = here(core_, "step").begin_step(schedule);
  return Step(core_, number);
}

void Session::record_next_step() { here(core_, "step").record_next_step(); }

bool Session::next_step_records() const { return here(core_, "step").next_step_records(); }

void Session::wait_for_plan() { here(core_, "plan").wait_for_plan(); }

std::optional<MeasuredStep> Session::last_step() const { return here(core_, "step").last_step(); }

std::shared_ptr<const Profile> Session::profile() const { return here(core_, "profile").profile(); }

std::shared_ptr<const Plan> Session::plan() const { return here(core_, "plan").plan(); }

void Session::use_plan(Plan plan) { here(core_, "plan").use_plan(std::move(plan)); }

void Session::verify_next_step() { here(core_, "step").verify_next_step(); }

void Session::trace_next_step() { here(core_, "step").trace_next_step(); }

std::shared_ptr<const StepEvents> Session::step_events() const {
  return here(core_, "trace").step_events();
}

Trace Session::trace() const { return here(core_, "trace").trace(); }

SessionReport Session::report() const { return here(core_, "report").report(); }

}  // namespace spillway
