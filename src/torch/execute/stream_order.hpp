/// The order of several compute streams around saved memory; internal. Under the session's lock.
///
/// Whatever is queued here makes streams wait for each other, and never the host.
#pragma once

#include <vector>

#include "spillway/core/event_pool.hpp"
#include "torch/device/torch_device.hpp"
#include "torch/record/pass.hpp"

namespace spillway {

class StreamOrder {
 public:
  explicit StreamOrder(TorchDevice& device)
      : device_(device), events_(device.device(), Timing::kOff) {}

  /// Operators of the pass run on the stream.
  static void note(Pass& pass, Stream& stream);
  /// The running stream saved something of the buffer, and so read it.
  void note_saver(SavedBuffer& buffer, const c10::Storage& storage);
  /// Whether `stream` has not read the buffer's present storage yet; from then on it has.
  [[nodiscard]] static bool is_new_reader(SavedBuffer& buffer, Stream& stream);

  /// Autograd would have held the memory until backward: it may be used again only after the
  /// streams that saved it have read it, whichever of them it was allocated on.
  void keep_until_read(const SavedBuffer& buffer, const c10::Storage& storage);
  /// Makes the stream whose allocator gets the buffer's memory back wait for those that read it.
  void order_before_free(SavedBuffer& buffer);
  /// Makes every stream of the pass wait for the others' present ends, if there are several.
  void join(Pass& pass);
  /// Makes the running stream wait for the present ends of others.
  void wait_for(const std::vector<Stream*>& streams);

 private:
  TorchDevice& device_;
  EventPool events_;
};

}  // namespace spillway
