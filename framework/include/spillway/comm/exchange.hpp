/// Rows that travel between the members of a group, seen by autograd: what experts on other ranks
/// need, and what they give back.
///
///   RowExchange sent = RowExchange::start(group, rows, send, receive);
///   ...                                    // Computing that does not need the rows.
///   at::Tensor received = sent.wait();
///
/// In backward the gradients travel the other way: they leave when backward comes to wait(), and
/// are waited for where it comes to start(), so that what was computed in between overlaps there
/// too.
///
/// These are functional collectives of c10d: a session sees them as operators and does not
/// recompute their results (recipes stop at them).
/// Ordering: all members start the same exchanges in the same order, forward and backward.
/// Threads:  as Group.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/groups/group.hpp"

namespace spillway {

class RowExchange {
 public:
  /// Sends send[i] of the rows (of the first dimension) to member i, in order; receive[i] rows come
  /// from member i. Both may be zero. A group of one gives `rows` back.
  /// Ordering: returns at once; on a GPU the copies follow what is queued on the current stream.
  ///           The host waits for nothing.
  /// Errors:   InvalidArgument if the numbers do not fit the rows or the group.
  [[nodiscard]] static RowExchange start(const Group& group, const at::Tensor& rows,
                                         std::vector<std::int64_t> send,
                                         std::vector<std::int64_t> receive);

  /// The rows from all members in the order of their group ranks. To be called once. On a GPU the
  /// current stream waits, not the host.
  [[nodiscard]] at::Tensor wait();

 private:
  struct PendingExchange;
  std::shared_ptr<PendingExchange> pending_;
  at::Tensor rows_;
};

/// The members' tensors one after the other along the first dimension; not differentiable. On a GPU
/// the host does not wait.
[[nodiscard]] at::Tensor gather_rows(const Group& group, const at::Tensor& tensor);

}  // namespace spillway
