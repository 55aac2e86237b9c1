#include "models/moe_dispatch.hpp"

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "models/moe_rows.hpp"
#include "models/moe_slots.hpp"
#include "spillway/comm/exchange.hpp"
#include "spillway/torch/read_back.hpp"
#include "spillway/torch/scope.hpp"

namespace spillway {
namespace {

using Counts = std::vector<std::int64_t>;

/// Rows by rank and then by expert, or by expert and then by rank.
enum class Major { kRank, kExpert };

/// How many rows of each rank this rank's experts get, and how many of its own go where.
class RowCounts {
 public:
  /// `counts`: [source, target, expert].
  RowCounts(const Group& group, Counts counts)
      : ranks_(static_cast<std::size_t>(group.size())),
        local_(counts.size() / (ranks_ * ranks_)),
        rank_(static_cast<std::size_t>(group.rank())),
        counts_(std::move(counts)) {}

  [[nodiscard]] Counts sent() const {
    return by_rank([&](std::size_t member, std::size_t i) { return count_of(rank_, member, i); });
  }
  [[nodiscard]] Counts received() const {
    return by_rank([&](std::size_t member, std::size_t i) { return count_of(member, rank_, i); });
  }
  /// Of this rank's experts.
  [[nodiscard]] Counts by_expert() const {
    Counts sums(local_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      for (std::size_t i = 0; i < local_; ++i) sums[i] += count_of(rank, rank_, i);
    }
    return sums;
  }

  /// The rows of this rank's experts, from one order into the other.
  [[nodiscard]] at::Tensor reorder(const at::Tensor& rows, Major from) const {
    if (ranks_ == 1 || local_ == 1) return rows;
    const bool rank_first = from == Major::kRank;
    const std::size_t outer = rank_first ? ranks_ : local_;
    const std::size_t inner = rank_first ? local_ : ranks_;
    Counts sizes;
    for (std::size_t i = 0; i < outer; ++i) {
      for (std::size_t j = 0; j < inner; ++j) {
        sizes.push_back(rank_first ? count_of(i, rank_, j) : count_of(j, rank_, i));
      }
    }
    const std::vector<at::Tensor> parts = rows.split_with_sizes(sizes);
    std::vector<at::Tensor> ordered;
    for (std::size_t j = 0; j < inner; ++j) {
      for (std::size_t i = 0; i < outer; ++i) ordered.push_back(parts[i * inner + j]);
    }
    return at::cat(ordered);
  }

 private:
  /// Rows of `source` for the expert number `expert` of `target`.
  [[nodiscard]] std::int64_t count_of(std::size_t source, std::size_t target,
                                      std::size_t expert) const {
    return counts_[(source * ranks_ + target) * local_ + expert];
  }

  template <typename Count>
  [[nodiscard]] Counts by_rank(const Count& count) const {
    Counts sums(ranks_);
    for (std::size_t member = 0; member < ranks_; ++member) {
      for (std::size_t i = 0; i < local_; ++i) sums[member] += count(member, i);
    }
    return sums;
  }

  std::size_t ranks_, local_, rank_;
  Counts counts_;  // [source, target, expert]
};

/// What does not depend on how many rows an expert takes.
class RowDispatch : public MoeDispatch {
 public:
  RowDispatch(const Group& group, const Routing& routing) : group_(group), routing_(routing) {}

  at::Tensor collect() final {
    const Scope scope("combine");
    return collect_rows(exchange_.wait(), slots_.slot_of, slots_.lost, slots_.choice_of,
                        slots_.empty);
  }

 protected:
  /// Sends the rows of `x` from where slots_ has them.
  void send_from(const at::Tensor& x, const Counts& sent, const Counts& received) {
    const at::Tensor rows = spread_rows(x, slots_.row_of, slots_.empty, slots_.slot_of, slots_.lost,
                                        routing_.chosen.size(1));
    exchange_ = RowExchange::start(group_, rows, sent, received);
  }

  const Group& group_;
  const Routing& routing_;
  RowSlots slots_;
  RowExchange exchange_;
};

class DroplessDispatch final : public RowDispatch {
 public:
  DroplessDispatch(const Group& group, const Routing& routing, RowCounts counts)
      : RowDispatch(group, routing), counts_(std::move(counts)) {}

  void send(const at::Tensor& x) override {
    const Scope scope("dispatch");
    slots_ = dropless_slots(routing_);
    send_from(x, counts_.sent(), counts_.received());
  }

  void run(const ExpertWeights& experts) override {
    at::Tensor rows;
    {
      const Scope scope("dispatch");
      rows = counts_.reorder(exchange_.wait(), Major::kRank);
    }
    {
      const Scope scope("experts");
      rows = experts.forward(rows, counts_.by_expert());
    }
    const Scope scope("combine");
    rows = counts_.reorder(rows, Major::kExpert);
    exchange_ = RowExchange::start(group_, rows, counts_.received(), counts_.sent());
  }

 private:
  RowCounts counts_;
};

class CapacityDispatch final : public RowDispatch {
 public:
  CapacityDispatch(const Group& group, const Routing& routing, double factor)
      : RowDispatch(group, routing),
        local_(routing.counts.size(0) / group.size()),
        capacity_(capacity_of(factor, routing.chosen.size(0), routing.chosen.size(1),
                              routing.counts.size(0))),
        splits_(static_cast<std::size_t>(group.size()), local_ * capacity_) {}

  void send(const at::Tensor& x) override {
    const Scope scope("dispatch");
    slots_ = capacity_slots(routing_, capacity_);
    send_from(x, splits_, splits_);
  }

  void run(const ExpertWeights& experts) override {
    const std::int64_t ranks = group_.size();
    at::Tensor rows;
    {
      const Scope scope("dispatch");
      rows = exchange_.wait();
      const std::int64_t hidden = rows.size(-1);
      rows = rows.view({ranks, local_, capacity_, hidden})
                 .transpose(0, 1)
                 .reshape({local_, ranks * capacity_, hidden});
    }
    {
      const Scope scope("experts");
      rows = experts.forward(rows);
    }
    const Scope scope("combine");
    const std::int64_t hidden = rows.size(-1);
    rows = rows.view({local_, ranks, capacity_, hidden}).transpose(0, 1).reshape({-1, hidden});
    exchange_ = RowExchange::start(group_, rows, splits_, splits_);
  }

 private:
  std::int64_t local_, capacity_;
  Counts splits_;
};

/// Of every part. The host waits for the device nowhere else.
std::vector<RowCounts> counts_of(const Group& group, const std::vector<Routing>& parts) {
  std::vector<at::Tensor> mine;
  for (const Routing& part : parts) mine.push_back(part.counts);
  const at::Tensor all = read_back(gather_rows(group, at::stack(mine)));
  const at::Tensor by_part =
      all.view({group.size(), -1, all.size(-1)}).transpose(0, 1).contiguous();
  const auto* next = by_part.const_data_ptr<std::int64_t>();
  const auto each = by_part.numel() / by_part.size(0);
  std::vector<RowCounts> counts;
  for (std::size_t i = 0; i < parts.size(); ++i, next += each) {
    counts.emplace_back(group, Counts(next, next + each));
  }
  return counts;
}

}  // namespace

std::vector<std::unique_ptr<MoeDispatch>> make_dispatches(const MoeShape& shape,
                                                          const std::vector<Routing>& parts) {
  const Scope scope("dispatch");
  std::vector<std::unique_ptr<MoeDispatch>> made;
  if (shape.capacity_factor == 0) {
    std::vector<RowCounts> counts = counts_of(shape.group, parts);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      made.push_back(
          std::make_unique<DroplessDispatch>(shape.group, parts[i], std::move(counts[i])));
    }
  } else {
    for (const Routing& part : parts) {
      made.push_back(std::make_unique<CapacityDispatch>(shape.group, part, shape.capacity_factor));
    }
  }
  return made;
}

}  // namespace spillway
