/// The warnings of torch, for tests.
#pragma once

#include <string>
#include <vector>

#include <c10/util/Exception.h>

namespace spillway::testing {

/// Keeps what torch would print, as long as it lives; on this thread.
class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts_.push_back(warning.msg()); }
  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

}  // namespace spillway::testing
