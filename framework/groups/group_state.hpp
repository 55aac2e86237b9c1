/// What a group knows, and the checks that its operations share.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "spillway/groups/group.hpp"

namespace spillway {

struct Group::State {
  using Backend = c10::intrusive_ptr<c10d::Backend>;

  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  std::vector<int> ranks;
  std::string name;
  std::chrono::milliseconds timeout{};
  int rank = 0;
  Backend cpu;   ///< Null if there is none for CPU tensors.
  Backend cuda;  ///< Null unless it takes them without a way through host memory.
  bool goes_on_alone = false;

  [[nodiscard]] bool alone() const { return ranks.size() == 1; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  /// "group data (ranks 0 2)".
  [[nodiscard]] std::string text() const;
  /// "rank 2", for the group rank of it.
  [[nodiscard]] std::string member_text(int member) const;

  [[noreturn]] void refuse(const char* operation, const std::string& detail) const;
  void check_member(const char* operation, int member) const;
  void check_peer(const char* operation, int peer, int tag) const;
  void check_written(const char* operation, const at::Tensor& tensor) const;
  /// Of two tensors one has size() times the elements of the other, of the same type.
  void check_parts(const char* operation, const char* which, const at::Tensor& whole,
                   const at::Tensor& part) const;
  /// The sum of the splits of an all-to-all; `which` is "input" or "output".
  [[nodiscard]] std::int64_t checked_rows(const std::vector<std::int64_t>& splits,
                                          const char* which) const;

  [[nodiscard]] const Backend& backend_for(const char* operation, const at::Tensor& tensor) const;
  /// What the backend works on instead of `tensor`.
  [[nodiscard]] at::Tensor staged(const at::Tensor& tensor, const Backend& backend) const;
  /// What `launch` gives, which starts a work on `backend`.
  /// Threads: one at a time in the process for torch's backends for CPU tensors. Each start looks
  ///          its group up in a map that c10d's flight recorder does not lock (2.11), and the first
  ///          one of a group writes to it. Not for NCCL, whose first starts wait for other ranks.
  template <typename Launch>
  [[nodiscard]] c10::intrusive_ptr<c10d::Work> start(const Backend& backend, Launch launch) const {
    if (goes_on_alone || backend != cpu) return launch();
    const std::lock_guard lock(starting());
    return launch();
  }
  /// Of `work` on `host`, which is `target` or stands for it. `with` ends the text of errors.
  [[nodiscard]] Pending pending(c10::intrusive_ptr<c10d::Work> work, const char* operation,
                                std::vector<at::Tensor> tensors, const std::string& with,
                                const at::Tensor& target, const at::Tensor& host) const;

 private:
  static std::mutex& starting();
};

}  // namespace spillway
