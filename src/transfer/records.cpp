#include <utility>

#include "pending_record.hpp"
#include "spillway/transfer/engine.hpp"

namespace spillway {
namespace {

CopyRecord resolve(const detail::CopyTimes& times, const Event& epoch) {
  CopyRecord record;
  record.queued = times.queued;
  epoch.synchronize();
  times.done->synchronize();
  record.started = times.started->elapsed_since(epoch);
  record.done = times.done->elapsed_since(epoch);
  if (times.wait_end != nullptr) {
    times.wait_end->synchronize();
    record.wait = times.wait_end->elapsed_since(*times.wait_begin);
  }
  return record;
}

}  // namespace

void TransferEngine::keep_record(detail::TicketState& state) {
  if (state.out.times.started == nullptr) return;
  state.out.times.done = state.out.done;
  if (state.back.times.started != nullptr) state.back.times.done = state.back.done;
  records_.push_back(
      {state.id, state.size, std::move(state.out.times), std::move(state.back.times)});
}

std::vector<TransferRecord> TransferEngine::drain_records() {
  std::vector<detail::PendingRecord> pending;
  EventRef epoch;
  {
    const std::lock_guard lock(mutex_);
    pending.swap(records_);
    epoch = epoch_;
  }
  std::vector<TransferRecord> records;
  records.reserve(pending.size());
  for (const detail::PendingRecord& each : pending) {
    TransferRecord& record = records.emplace_back();
    record.ticket = each.id;
    record.bytes = each.size;
    record.out = resolve(each.out, *epoch);
    if (each.back.done != nullptr) record.back = resolve(each.back, *epoch);
  }
  return records;
}

}  // namespace spillway
