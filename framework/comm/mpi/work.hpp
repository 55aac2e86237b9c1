/// What c10d gets for an operation.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "comm/mpi/engine.hpp"

namespace spillway::mpi {

/// Of one operation or of several that were asked for together. Dropped: the engine goes on.
class Work final : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type, std::shared_ptr<Engine> engine,
       std::vector<std::shared_ptr<Operation>> operations, std::vector<at::Tensor> results);

  bool isCompleted() override;
  [[nodiscard]] bool isSuccess() const override;
  [[nodiscard]] std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

 private:
  std::shared_ptr<Engine> engine_;
  std::vector<std::shared_ptr<Operation>> operations_;
  std::vector<at::Tensor> results_;
};

}  // namespace spillway::mpi
