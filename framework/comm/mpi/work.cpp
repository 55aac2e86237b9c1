#include "comm/mpi/work.hpp"

#include <algorithm>
#include <utility>

namespace spillway::mpi {

Work::Work(int rank, c10d::OpType type, std::shared_ptr<Engine> engine,
           std::vector<std::shared_ptr<Operation>> operations, std::vector<at::Tensor> results)
    : c10d::Work(rank, type),
      engine_(std::move(engine)),
      operations_(std::move(operations)),
      results_(std::move(results)) {}

bool Work::isCompleted() {
  const auto finished = [this] {
    return std::all_of(operations_.begin(), operations_.end(),
                       [](const auto& each) { return each->finished(); });
  };
  if (!finished()) engine_->advance();
  return finished();
}

bool Work::isSuccess() const {
  return std::all_of(operations_.begin(), operations_.end(),
                     [](const auto& each) { return each->finished() && !each->failed(); });
}

std::exception_ptr Work::exception() const {
  for (const auto& each : operations_) {
    if (each->finished() && each->failed()) return each->error();
  }
  return nullptr;
}

bool Work::wait(std::chrono::milliseconds timeout) {
  for (const auto& each : operations_) engine_->wait(*each, timeout);
  return true;
}

}  // namespace spillway::mpi
