#include "spillway/core/stream.hpp"

#include <utility>

#include "spillway/core/error.hpp"

namespace spillway {

namespace {

void require_pointers(const CopyItem& item) {
  if (item.to != nullptr && item.from != nullptr) return;
  throw InvalidArgument("copy", std::string(item.to == nullptr ? "the destination" : "the source") +
                                    " of a copy of " + to_string(item.size) + " is null");
}

}  // namespace

void Stream::copy(void* to, const void* from, Bytes size, CopyKind kind) {
  if (size == Bytes(0)) return;
  require_pointers({to, from, size});
  do_copy(to, from, size, kind);
}

void Stream::copy_batch(std::span<const CopyItem> items, CopyKind kind) {
  for (const CopyItem& item : items) require_pointers(item);
  if (items.size() == 1) {
    copy(items[0].to, items[0].from, items[0].size, kind);
  } else if (!items.empty()) {
    do_copy_batch(items, kind);
  }
}

void Stream::do_copy_batch(std::span<const CopyItem> items, CopyKind kind) {
  for (const CopyItem& item : items) copy(item.to, item.from, item.size, kind);
}

void Stream::fill(void* to, std::byte value, Bytes size) {
  if (size == Bytes(0)) return;
  if (to == nullptr) {
    throw InvalidArgument("fill", "the destination of a fill of " + to_string(size) + " is null");
  }
  do_fill(to, value, size);
}

void Stream::call(std::string operation, std::function<void()> function) {
  do_call(std::move(operation), std::move(function));
}

void Stream::record(Event& event) {
  do_record(event);
  event.point_ = {id_, ++records_};
}

void Stream::wait(const Event& event) {
  const StreamPoint point = event.point();
  if (point.order == 0 || point.stream == id_) return;
  StreamPoint& latest = latest_wait_on(point.stream);
  if (point.order <= latest.order) return;
  do_wait(event);
  latest = point;
}

StreamPoint& Stream::latest_wait_on(std::uint64_t stream) {
  // Few streams ever meet; a search beats a map.
  for (StreamPoint& entry : waited_) {
    if (entry.stream == stream) return entry;
  }
  return waited_.emplace_back(StreamPoint{stream, 0});
}

}  // namespace spillway
