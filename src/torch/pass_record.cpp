#include "pass_record.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "spillway/torch/scope.hpp"

namespace spillway {

int PassRecord::save(const at::Tensor& tensor, FixedReason fixed, const OpRecorder& operators) {
  const int id = find_or_add(tensor, fixed, operators);
  SiteProfile site;
  site.buffer = id;
  site.dtype = c10::toString(tensor.scalar_type());
  if (tensor.layout() == c10::kStrided) {
    site.sizes = tensor.sizes().vec();
    site.strides = tensor.strides().vec();
    site.offset = tensor.storage_offset();
  }
  chunk_.sites.push_back(std::move(site));
  chunk_.buffers[static_cast<std::size_t>(id)].saves.push_back(
      {operators.current(), Scope::current()});
  return id;
}

int PassRecord::find_or_add(const at::Tensor& tensor, FixedReason fixed,
                            const OpRecorder& operators) {
  c10::StorageImpl* const storage =
      tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  if (storage != nullptr) {
    if (const auto found = known_.find(storage); found != known_.end()) {
      return found->second.buffer;
    }
  }
  BufferProfile buffer;
  buffer.id = static_cast<int>(chunk_.buffers.size());
  buffer.size = Bytes(storage == nullptr ? 0 : storage->nbytes());
  buffer.position.scope = Scope::current();
  buffer.position.saver = operators.current();
  buffer.position.ordinal = ordinals_[buffer.position.scope + "\n" + buffer.position.saver]++;
  buffer.fixed = fixed;
  buffer.recipe.reason = "recipes are not recorded yet";
  if (storage != nullptr) {
    known_[storage] = {buffer.id, StoragePin(storage)};
  }
  chunk_.buffers.push_back(std::move(buffer));
  return chunk_.buffers.back().id;
}

void PassRecord::unpacked(int buffer) {
  BufferProfile& found = chunk_.buffers[static_cast<std::size_t>(buffer)];
  const int place = static_cast<int>(chunk_.unpack_order.size());
  if (found.first_unpack < 0) found.first_unpack = place;
  found.last_unpack = place;
  chunk_.unpack_order.push_back(buffer);
}

void PassRecord::released(int buffer) {
  int& order = chunk_.buffers[static_cast<std::size_t>(buffer)].release_order;
  if (order < 0) order = releases_++;
}

void PassRecord::held_by_caller(int buffer) {
  FixedReason& fixed = chunk_.buffers[static_cast<std::size_t>(buffer)].fixed;
  if (fixed == FixedReason::kNone) fixed = FixedReason::kHeldByCaller;
}

ChunkProfile PassRecord::finish(int chunk, const OpRecorder& operators, TorchDevice& device) {
  chunk_.chunk = chunk;
  for (const RecordedCall& call : operators.calls()) {
    const bool ended = call.end.event != nullptr || call.end.host != Nanoseconds(0);
    const Nanoseconds time = ended ? device.elapsed(call.begin, call.end) : Nanoseconds(0);
    chunk_.operators.push_back({call.name, call.scope, -1, time.count(), {}});
  }
  // Only now: an operator may save its own result before it has ended.
  for (const auto& [storage, known] : known_) {
    const int call = operators.maker_of(storage);
    if (call < 0) continue;
    const RecordedCall& made_by = operators.calls()[static_cast<std::size_t>(call)];
    chunk_.buffers[static_cast<std::size_t>(known.buffer)].producer = {made_by.name, made_by.scope,
                                                                       -1, call};
  }
  if (had_backward()) {
    chunk_.forward_ns = device.elapsed(forward_begin_, forward_end_).count();
    chunk_.backward_ns = device.elapsed(forward_end_, backward_end_).count();
  }
  for (const BufferProfile& buffer : chunk_.buffers) {
    if (buffer.fixed == FixedReason::kNone || buffer.fixed == FixedReason::kSmall) {
      chunk_.theoretical_peak += buffer.size;
    }
  }
  return std::move(chunk_);
}

namespace {

/// The number behind `prefix` and a dot in `scope`; -1 if there is none.
int number_after(const std::string& scope, const std::string& prefix) {
  if (scope.size() < prefix.size() + 2 || scope.compare(0, prefix.size(), prefix) != 0) return -1;
  const std::size_t begin = prefix.empty() ? 0 : prefix.size() + 1;
  if (!prefix.empty() && scope[prefix.size()] != '.') return -1;
  int number = -1;
  const char* const first = scope.data() + begin;
  const char* const last = scope.data() + scope.size();
  const auto [end, error] = std::from_chars(first, last, number);
  if (error != std::errc() || (end != last && *end != '.')) return -1;
  return number;
}

/// Every prefix of `scope` that is followed by a number.
std::vector<std::string> numbered_prefixes(const std::string& scope) {
  std::vector<std::string> prefixes;
  for (std::size_t dot = scope.find('.'); dot != std::string::npos;
       dot = scope.find('.', dot + 1)) {
    const std::string prefix = scope.substr(0, dot);
    if (number_after(scope, prefix) >= 0) prefixes.push_back(prefix);
  }
  return prefixes;
}

}  // namespace

void find_layers(Profile& profile, const std::string& wanted) {
  std::map<std::string, std::set<int>> lists;
  for (const ChunkProfile& chunk : profile.chunks) {
    for (const OperatorProfile& call : chunk.operators) {
      for (const std::string& prefix : numbered_prefixes(call.scope)) {
        if (!wanted.empty() && prefix != wanted) continue;
        lists[prefix].insert(number_after(call.scope, prefix));
      }
    }
  }
  // The longest list; of equal ones the outermost, which comes first.
  const auto longest =
      std::max_element(lists.begin(), lists.end(), [](const auto& a, const auto& b) {
        return a.second.size() != b.second.size() ? a.second.size() < b.second.size()
                                                  : a.first.size() > b.first.size();
      });
  if (longest == lists.end()) return;
  profile.layer_scope = longest->first;
  profile.layers = *longest->second.rbegin() + 1;
  for (ChunkProfile& chunk : profile.chunks) {
    std::set<int> found;
    const auto layer_of = [&](const std::string& scope) {
      const int layer = number_after(scope, profile.layer_scope);
      if (layer >= 0) found.insert(layer);
      return layer;
    };
    for (OperatorProfile& call : chunk.operators) call.layer = layer_of(call.scope);
    for (BufferProfile& buffer : chunk.buffers) {
      buffer.layer = layer_of(buffer.position.scope);
      buffer.producer.layer = layer_of(buffer.producer.scope);
    }
    if (found.empty()) continue;
    chunk.first_layer = *found.begin();
    chunk.layers = *found.rbegin() - *found.begin() + 1;
  }
}

}  // namespace spillway
