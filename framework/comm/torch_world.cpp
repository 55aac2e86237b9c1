#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/partition.hpp"
#include "comm/process_end.hpp"
#include "spillway/comm/world.hpp"

namespace spillway {
namespace {

class TorchWorld final : public World {
 public:
  TorchWorld(int rank, int size, NewTorchGroup new_group, TorchAbort abort,
             const WorldOptions& options)
      : rank_(rank),
        size_(size),
        new_group_(std::move(new_group)),
        abort_(std::move(abort)),
        timeout_(options.timeout) {
    if (size < 1 || rank < 0 || rank >= size) {
      throw InvalidArgument("world", "rank " + std::to_string(rank) + " of " +
                                         std::to_string(size) +
                                         " cannot be; ask torch.distributed for both");
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] Group group(const std::string& name,
                            const std::vector<std::vector<int>>& partition) override {
    const std::vector<int>& mine = list_of(rank_, size_, name, partition);
    std::string registered;
    // Every rank makes every group, as torch.distributed requires; groups of one are not needed.
    for (const std::vector<int>& list : partition) {
      if (list.size() == 1) continue;
      std::string made = new_group_(list);
      if (&list == &mine) registered = std::move(made);
    }
    if (mine.size() == 1) return Group(rank_);
    c10::intrusive_ptr<c10d::ProcessGroup> found;
    try {
      found = c10d::resolve_process_group(registered);
    } catch (const c10::Error& error) {
      throw CommunicationError("group " + name, "torch.distributed has no group named '" +
                                                    registered +
                                                    "': " + error.what_without_backtrace() +
                                                    "; pass the name of the group that was made");
    }
    const int position = position_of(rank_, mine);
    if (found->getRank() != position) {
      throw CommunicationError(
          "group " + name, "rank " + std::to_string(rank_) + " is number " +
                               std::to_string(found->getRank()) + " of the group '" + registered +
                               "', but " + std::to_string(position) +
                               " of the list; torch.distributed sorts ranks, so sort the list");
    }
    return Group(std::move(found), mine, name, timeout_);
  }

  [[noreturn]] void abort(const std::string& why) noexcept override {
    try {
      if (abort_) abort_(why);
    } catch (const std::exception& error) {
      end_process(rank_, size_, why + " (and ending the job failed: " + error.what() + ')');
    }
    end_process(rank_, size_, why);
  }

 private:
  int rank_;
  int size_;
  NewTorchGroup new_group_;
  TorchAbort abort_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

std::unique_ptr<World> make_torch_world(int rank, int size, NewTorchGroup new_group,
                                        TorchAbort abort, const WorldOptions& options) {
  return std::make_unique<TorchWorld>(rank, size, std::move(new_group), std::move(abort), options);
}

}  // namespace spillway
