#include "spillway/torch/session.hpp"

#include <utility>

#include "torch/execute/session_core.hpp"
#include "torch/hooks/interception.hpp"

namespace spillway {

void Step::pass(int chunk, int micro_batch) { core_->begin_explicit_pass({chunk, micro_batch}); }

void Step::backward() { core_->announce_backward(); }

void Step::end() {
  if (core_ == nullptr) return;
  const std::shared_ptr<SessionCore> core = std::exchange(core_, nullptr);
  core->end_step();
  core->throw_step_error();
}

Step::~Step() {
  if (core_ != nullptr) core_->end_step();
}

Session::Session(SessionOptions options) {
  std::unique_ptr<TorchDevice> device = make_torch_device(options.device);
  core_ = std::make_shared<SessionCore>(std::move(options), std::move(device));
  install_interception();
}

Session Session::from_file(const std::filesystem::path& rules) {
  SessionOptions options;
  options.rules = load_rules(rules);
  return Session(std::move(options));
}

Session::~Session() {
  if (core_ != nullptr) core_->end_step();
}

void Session::register_fixed(const at::Tensor& tensor, FixedReason reason) {
  core_->register_fixed(tensor, reason);
}

void Session::set_shard_group(std::shared_ptr<ShardGroup> group) {
  core_->set_shard_group(std::move(group));
}

Step Session::step() { return step(PassSchedule()); }

Step Session::step(const PassSchedule& schedule) {
  require_valid(schedule);
  core_->begin_step(schedule);
  return Step(core_);
}

void Session::record_next_step() { core_->record_next_step(); }

bool Session::next_step_records() const { return core_->next_step_records(); }

bool Session::next_step_wants_scopes() const { return core_->next_step_wants_scopes(); }

std::shared_ptr<const Profile> Session::profile() const { return core_->profile(); }

std::shared_ptr<const Plan> Session::plan() const { return core_->plan(); }

void Session::use_plan(Plan plan) { core_->use_plan(std::move(plan)); }

void Session::verify_next_step() { core_->verify_next_step(); }

void Session::trace_next_step() { core_->trace_next_step(); }

std::shared_ptr<const StepEvents> Session::step_events() const { return core_->step_events(); }

Trace Session::trace() const { return core_->trace(); }

SessionReport Session::report() const { return core_->report(); }

}  // namespace spillway
