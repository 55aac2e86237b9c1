/// Adds the time of a scope to a sum.
#pragma once

#include <chrono>

namespace spillway {

class Timed {
 public:
  explicit Timed(std::chrono::nanoseconds& sum) : sum_(sum) {}
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() { sum_ += std::chrono::steady_clock::now() - begin_; }

 private:
  std::chrono::nanoseconds& sum_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace spillway
