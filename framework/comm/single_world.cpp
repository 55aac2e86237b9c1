#include "comm/partition.hpp"
#include "comm/process_end.hpp"
#include "spillway/comm/world.hpp"

namespace spillway {
namespace {

class SingleWorld final : public World {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }

  [[nodiscard]] Group group(const std::string& name,
                            const std::vector<std::vector<int>>& partition) override {
    (void)list_of(0, 1, name, partition);
    return Group();
  }

  [[noreturn]] void abort(const std::string& why) noexcept override { end_process(0, 1, why); }
};

}  // namespace

std::unique_ptr<World> make_single_world() { return std::make_unique<SingleWorld>(); }

}  // namespace spillway
