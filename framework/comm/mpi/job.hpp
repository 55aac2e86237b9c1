/// MPI in this process, from MPI_Init to MPI_Finalize.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/mpi/channel.hpp"
#include "comm/mpi/engine.hpp"
#include "comm/mpi/watch.hpp"
#include "comm/mpi_plugin.hpp"

namespace spillway::mpi {

class Job final : public MpiJob {
 public:
  explicit Job(const WorldOptions& options);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() override;

  [[nodiscard]] int rank() const override { return everyone_->rank; }
  [[nodiscard]] int size() const override { return everyone_->size(); }
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> split(
      const std::string& name, const std::vector<std::vector<int>>& partition) override;
  [[noreturn]] void abort(const std::string& why) noexcept override;

 private:
  void start();
  void finish();
  /// Splits `parent`; the channel is freed when the job ends.
  std::shared_ptr<Channel> make_channel(int color, int key, std::string name,
                                        std::vector<int> ranks);
  /// Throws unless all ranks ask for the same.
  void check_agreement(const std::string& name, const std::vector<std::vector<int>>& partition);

  WorldOptions options_;
  bool started_here_ = false;
  int exceptions_ = std::uncaught_exceptions();
  std::shared_ptr<Engine> engine_;
  std::vector<std::shared_ptr<Channel>> channels_;
  std::shared_ptr<Channel> everyone_;
  std::shared_ptr<Channel> watched_;
  std::unique_ptr<Watch> watch_;
};

}  // namespace spillway::mpi
