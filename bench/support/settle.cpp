#include "support/settle.hpp"

#include <cstdint>

namespace spillway::bench {
namespace {

constexpr int kSame = 3;

}  // namespace

void settle(const Session& session, const std::function<void()>& step, int min_steps,
            int max_steps) {
  std::uint64_t plans = 0;
  int same = 0;
  for (int i = 0; i < max_steps && (i < min_steps || same < kSame); ++i) {
    step();
    const SessionReport report = session.report();
    const std::uint64_t made = report.budget ? report.budget->plans : 1;
    same = made == plans && made > 0 ? same + 1 : 0;
    plans = made;
  }
}

}  // namespace spillway::bench
