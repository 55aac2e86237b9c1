#include "torch/record/storage_watch.hpp"

#include <algorithm>
#include <utility>

namespace spillway {

void StorageWatch::add(const std::shared_ptr<Pass>& pass, int id, const c10::Storage& storage,
                       const std::shared_ptr<SavedBuffer>& buffer) {
  const std::uint64_t step = std::max<std::uint64_t>(granularity_.count(), 1);
  Entry entry;
  entry.pass = pass;
  entry.id = id;
  entry.bytes = static_cast<std::int64_t>((storage.nbytes() + step - 1) / step * step);
  entry.managed = buffer != nullptr;
  entry.buffer = buffer;
  entry.original = StoragePin(storage.unsafeGetStorageImpl());
  entry.data = storage.data();
  entry.nbytes = storage.nbytes();
  if (entry.managed) entry.retained = storage;
  entries_.push_back(std::move(entry));
}

std::vector<StorageWatch::Entry>::iterator StorageWatch::find(const Pass& pass, int id) {
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.pass.get() == &pass && entry.id == id;
  });
}

void StorageWatch::unpacked(const Pass& pass, int id, SessionMutex& mutex) {
  const auto entry = find(pass, id);
  if (entry == entries_.end() || !entry->retained) return;
  mutex.free_outside(std::exchange(entry->retained, c10::Storage()));
}

void StorageWatch::remove(const Pass& pass, int id, SessionMutex& mutex) {
  const auto entry = find(pass, id);
  if (entry == entries_.end()) return;
  if (entry->retained) mutex.free_outside(std::exchange(entry->retained, c10::Storage()));
  entries_.erase(entry);
}

void StorageWatch::clear(SessionMutex& mutex) {
  for (Entry& entry : entries_) {
    if (entry.retained) mutex.free_outside(std::move(entry.retained));
  }
  entries_.clear();
  bytes_ = 0;
}

void StorageWatch::find_last_forward_use(SessionMutex& mutex, const CopySources& sources) {
  for (Entry& entry : entries_) {
    if (!entry.retained) continue;
    const std::shared_ptr<SavedBuffer> buffer = entry.buffer.lock();
    std::size_t ours = 1;
    if (buffer != nullptr && entry.original.is(buffer->storage.unsafeGetStorageImpl())) ++ours;
    if (sources.holds(entry.retained)) ++ours;
    ours += others_->holds(entry.retained.unsafeGetStorageImpl());
    if (entry.retained.use_count() > ours) continue;
    entry.pass->profiler->set_last_forward_use(entry.id, entry.pass->timed->moments);
    mutex.free_outside(std::exchange(entry.retained, c10::Storage()));
  }
}

std::vector<StorageWatch::Moved> StorageWatch::take_moved() {
  std::vector<Moved> moved;
  for (Entry& entry : entries_) {
    // What only autograd holds stays where it is.
    if (!entry.managed || !entry.retained || entry.data == nullptr) continue;
    if (entry.retained.data() == entry.data && entry.retained.nbytes() == entry.nbytes) continue;
    entry.data = nullptr;
    moved.push_back({entry.pass, entry.id});
  }
  return moved;
}

bool StorageWatch::on_device(const Entry& entry) {
  if (entry.retained || entry.original.alive()) return true;
  const std::shared_ptr<SavedBuffer> buffer = entry.buffer.lock();
  return buffer != nullptr && buffer->on_device();
}

void StorageWatch::refresh() {
  bytes_ = others_->bytes();
  for (const Entry& entry : entries_) {
    if (on_device(entry)) bytes_ += entry.bytes;
  }
}

}  // namespace spillway
