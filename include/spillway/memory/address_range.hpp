/// A reserved range of addresses whose pages are committed part by part. Nothing is registered with
/// any device here.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "spillway/core/bytes.hpp"
#include "spillway/memory/host_system.hpp"

namespace spillway {

inline constexpr Bytes kHugePage{2ULL << 20U};

class AddressRange {
 public:
  /// Reserves addresses only; aligned to huge pages, `size` rounded up to one.
  /// Errors: OutOfMemory if there are no such addresses.
  explicit AddressRange(Bytes size);
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange();

  /// Makes [from, to) usable: huge pages are asked for, the pages are bound to `numa_node` if one
  /// is given and the machine has several, and every page is touched by several threads, so that
  /// later use finds it resident. Offsets must be multiples of 2 MiB. Slow; meant for a background
  /// thread.
  /// Errors: OutOfMemory if the machine has not that much left besides host_reserve(); the part is
  /// as before then.
  std::span<std::byte> commit(Bytes from, Bytes to, std::optional<int> numa_node,
                              const HostView& view = {});

  /// Gives the pages of a committed part back to the system; the addresses stay reserved.
  void decommit(Bytes from, Bytes to) noexcept;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] Bytes size() const noexcept { return size_; }

 private:
  Bytes size_;
  std::byte* mapping_ = nullptr;
  Bytes mapping_size_;
  std::byte* data_ = nullptr;
};

}  // namespace spillway
