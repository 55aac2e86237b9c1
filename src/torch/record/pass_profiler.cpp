#include "torch/record/pass_profiler.hpp"

#include <algorithm>
#include <utility>

#include "plan/profile/timeline.hpp"
#include "torch/record/freed_weights.hpp"
#include "torch/record/pass.hpp"

namespace spillway {

std::vector<std::string> saving_scopes(const BufferProfile& buffer) {
  std::vector<std::string> scopes;
  for (const Save& save : buffer.saves) {
    if (std::ranges::find(scopes, save.scope) == scopes.end()) scopes.push_back(save.scope);
  }
  return scopes;
}

int PassProfiler::save(const at::Tensor& tensor, FixedReason fixed, ValueId value, Save save,
                       Signature signature) {
  const int id = find_or_add(tensor, fixed, value, save);
  SiteProfile site;
  site.buffer = id;
  site.signature = signature;
  site.dtype = c10::toString(tensor.scalar_type());
  if (tensor.layout() == c10::kStrided) {
    site.sizes = tensor.sizes().vec();
    site.strides = tensor.strides().vec();
    site.offset = tensor.storage_offset();
  }
  chunk_.sites.push_back(std::move(site));
  chunk_.buffers[static_cast<std::size_t>(id)].saves.push_back(std::move(save));
  return id;
}

int PassProfiler::find_or_add(const at::Tensor& tensor, FixedReason fixed, ValueId value,
                              const Save& save) {
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
  buffer.position.scope = save.scope;
  buffer.position.saver = save.saver;
  buffer.position.ordinal = ordinals_[buffer.position.scope + "\n" + buffer.position.saver]++;
  buffer.fixed = fixed;
  if (storage != nullptr) {
    known_[storage] = {buffer.id, StoragePin(storage)};
  }
  chunk_.buffers.push_back(std::move(buffer));
  values_.push_back(value);
  return chunk_.buffers.back().id;
}

void PassProfiler::unpacked(int buffer) {
  BufferProfile& found = chunk_.buffers[static_cast<std::size_t>(buffer)];
  const int position = static_cast<int>(chunk_.unpack_order.size());
  if (found.first_unpack < 0) found.first_unpack = position;
  found.last_unpack = position;
  chunk_.unpack_order.push_back(buffer);
}

void PassProfiler::fix(int buffer, FixedReason reason) {
  FixedReason& fixed = chunk_.buffers[static_cast<std::size_t>(buffer)].fixed;
  if (fixed == FixedReason::kNone) fixed = reason;
}

void PassProfiler::set_last_forward_use(int buffer, std::size_t moment) {
  chunk_.buffers[static_cast<std::size_t>(buffer)].last_forward_use = static_cast<int>(moment);
}

void PassProfiler::released_with_forward(const std::vector<Moment>& moments) {
  const auto begins = std::find_if(moments.begin(), moments.end(), [](const Moment& moment) {
    return moment.kind == MomentKind::kBackwardBegins;
  });
  const auto position = static_cast<int>(begins - moments.begin());
  for (BufferProfile& buffer : chunk_.buffers) {
    if (position > 0 && buffer.last_forward_use == position) buffer.last_forward_use = position - 1;
  }
}

void PassProfiler::begin_backward(const RecipeBook& book, bool holds_some) {
  for (ValueId id = 0; id < book.values(); ++id) {
    const Value& value = book.value(id);
    if (!value.unchanged() || !(value.fixed || value.maker < 0)) continue;
    const auto alive = value.pin.lock();
    if (!alive) continue;
    std::size_t holders = alive.use_count() - 1;
    const auto take_off = [&](const c10::Storage& storage) {
      if (storage.unsafeGetStorageImpl() == alive.get()) --holders;
    };
    if (holds_some) {
      take_off(value.root_storage);
      if (const auto buffer = value.buffer.lock()) take_off(buffer->storage);
    }
    if (holders > 0) persistent_[id] = true;
  }
}

bool PassProfiler::has_sizes_of(const ChunkProfile& other) const {
  return std::equal(
      chunk_.buffers.begin(), chunk_.buffers.end(), other.buffers.begin(), other.buffers.end(),
      [](const BufferProfile& a, const BufferProfile& b) { return a.size == b.size; });
}

ChunkProfile PassProfiler::finish(int chunk, int pass, const RecipeBook& book,
                                  const std::vector<CallLocation>& locations,
                                  std::vector<Moment> moments, Bytes granularity,
                                  const FreedWeights& freed) {
  chunk_.chunk = chunk;
  add_operators(pass, book, locations);
  add_recipes(book);
  exclude_freed(freed);
  add_timeline(std::move(moments), granularity, chunk_);
  for (const BufferProfile& buffer : chunk_.buffers) {
    if (buffer.fixed == FixedReason::kNone || buffer.fixed == FixedReason::kSmall) {
      chunk_.theoretical_peak += buffer.size;
    }
  }
  return std::exchange(chunk_, ChunkProfile());
}

void PassProfiler::add_operators(int pass, const RecipeBook& book,
                                 const std::vector<CallLocation>& locations) {
  const auto number_of = [&](ValueId id) {
    const auto [entry, added] =
        value_numbers_.try_emplace(id, static_cast<int>(chunk_.values.size()));
    if (added) {
      ValueProfile value;
      value.size = Bytes(book.value(id).bytes);
      value.persistent = persistent_.contains(id);
      chunk_.values.push_back(value);
    }
    return entry->second;
  };
  for (CallId id = 0; id < book.calls(); ++id) {
    const Call& call = book.call(id);
    const CallLocation& location = locations[static_cast<std::size_t>(id)];
    if (call.pass != pass || !location.in_forward) continue;
    OperatorProfile profile;
    profile.name = call.traits->name;
    profile.scope = location.scope;
    profile.no_replay = call.no_replay;
    profile.saves = call.saves;
    profile.ordinal = call.ordinal;
    for (const TensorArgument& argument : call.tensors) {
      profile.reads.push_back(number_of(argument.value));
      if (argument.written) {
        chunk_.values[static_cast<std::size_t>(profile.reads.back())].overwritten = true;
      }
    }
    for (const Made& made : call.makes) {
      // An in-place change of a parameter is not a recipe for it.
      if (book.value(made.value).fixed) continue;
      profile.makes.push_back(number_of(made.value));
      ValueProfile& value = chunk_.values[static_cast<std::size_t>(profile.makes.back())];
      value.call = static_cast<int>(chunk_.operators.size());
      value.persistent = false;
    }
    chunk_.operators.push_back(std::move(profile));
    signatures_.push_back(call.signature);
  }
}

void PassProfiler::add_recipes(const RecipeBook& book) {
  for (BufferProfile& buffer : chunk_.buffers) {
    const ValueId id = values_[static_cast<std::size_t>(buffer.id)];
    const auto found = value_numbers_.find(id);
    if (found == value_numbers_.end()) {
      buffer.recipe.reason = "its producer is unknown";
      continue;
    }
    buffer.value = found->second;
    ValueProfile& value = chunk_.values[static_cast<std::size_t>(found->second)];
    value.buffer = buffer.id;
    if (value.call < 0) {
      buffer.recipe.reason = "its producer is unknown";
      continue;
    }
    const OperatorProfile& maker = chunk_.operators[static_cast<std::size_t>(value.call)];
    buffer.producer = {maker.name, maker.scope, -1, value.call};
    buffer.recipe.reason = maker.no_replay;
    if (book.call(book.value(id).maker).traits->uninitialised) {
      buffer.recipe.reason = "it was not written by an operator";
    }
    buffer.recipe.usable = buffer.recipe.reason.empty();
  }
}

void PassProfiler::exclude_freed(const FreedWeights& freed) {
  std::vector<BufferProfile*> order;  // What a recipe may read comes before it.
  for (BufferProfile& buffer : chunk_.buffers) {
    if (buffer.recipe.usable) order.push_back(&buffer);
  }
  std::ranges::stable_sort(order, {},
                           [](const BufferProfile* each) { return each->producer.call; });
  for (BufferProfile* const buffer : order) {
    if (!reads_freed(*buffer, freed)) continue;
    buffer->recipe = {false, std::string(kReadsFreedWeight)};
  }
}

bool PassProfiler::starts_replays(const ValueProfile& value, const std::string& reader) const {
  if (value.buffer >= 0) {
    const BufferProfile& buffer = chunk_.buffers[static_cast<std::size_t>(value.buffer)];
    return !buffer.recipe.usable || buffer.fixed != FixedReason::kNone;
  }
  const std::string& maker = chunk_.operators[static_cast<std::size_t>(value.call)].scope;
  const bool layers = in_one_layer(maker, maker) || in_one_layer(reader, reader);
  return layers && !in_one_layer(maker, reader);
}

bool PassProfiler::reads_freed(const BufferProfile& buffer, const FreedWeights& freed) const {
  const std::vector<std::string> scopes = saving_scopes(buffer);
  std::vector<bool> seen(chunk_.operators.size());
  std::vector<int> open{buffer.producer.call};
  while (!open.empty()) {
    const auto call = static_cast<std::size_t>(open.back());
    open.pop_back();
    if (seen[call]) continue;
    seen[call] = true;
    if (freed.contains(signatures_[call]) && !freed.are_there(signatures_[call], scopes)) {
      return true;
    }
    for (const int id : chunk_.operators[call].reads) {
      const ValueProfile& value = chunk_.values[static_cast<std::size_t>(id)];
      if (value.call >= 0 && !starts_replays(value, chunk_.operators[call].scope)) {
        open.push_back(value.call);
      }
    }
  }
  return false;
}

}  // namespace spillway
