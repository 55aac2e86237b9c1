#include "torch/execute/stream_order.hpp"

#include <algorithm>

namespace spillway {

void StreamOrder::note(Pass& pass, Stream& stream) {
  const auto found = std::ranges::find(pass.streams, &stream);
  if (found == pass.streams.end()) pass.streams.push_back(&stream);
}

void StreamOrder::note_saver(SavedBuffer& buffer, const c10::Storage& storage) {
  Stream& stream = device_.current_stream();
  if (&stream == buffer.stream ||
      std::ranges::find(buffer.savers, &stream) != buffer.savers.end()) {
    return;
  }
  buffer.savers.push_back(&stream);
  note(*buffer.pass, stream);
  if (!buffer.on_device()) device_.keep_until_done(storage, stream);  // It was released already.
}

bool StreamOrder::is_new_reader(SavedBuffer& buffer, Stream& stream) {
  const auto found = std::ranges::find(buffer.readers, &stream);
  if (found != buffer.readers.end()) return false;
  buffer.readers.push_back(&stream);
  return true;
}

void StreamOrder::keep_until_read(const SavedBuffer& buffer, const c10::Storage& storage) {
  device_.keep_until_done(storage, *buffer.stream);
  for (Stream* const stream : buffer.savers) device_.keep_until_done(storage, *stream);
}

void StreamOrder::order_before_free(SavedBuffer& buffer) {
  if (buffer.action == ActionKind::kRecompute || buffer.verify) join(*buffer.pass);
  for (Stream* const reader : buffer.readers) {
    if (reader == buffer.stream) continue;
    const EventRef end = events_.take();
    reader->record(*end);
    buffer.stream->wait(*end);
  }
}

void StreamOrder::join(Pass& pass) {
  if (pass.streams.size() < 2) return;
  std::vector<EventRef> ends;
  for (Stream* const stream : pass.streams) {
    ends.push_back(events_.take());
    stream->record(*ends.back());
  }
  for (Stream* const stream : pass.streams) {
    for (const EventRef& end : ends) stream->wait(*end);
  }
}

void StreamOrder::wait_for(const std::vector<Stream*>& streams) {
  for (Stream* const stream : streams) {
    const EventRef end = events_.take();
    stream->record(*end);
    device_.current_stream().wait(*end);
  }
}

}  // namespace spillway
