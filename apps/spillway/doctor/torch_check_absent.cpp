#include "doctor/torch_check.hpp"

namespace spillway::app {

Check check_torch(const GpuSystem& /*gpus*/) {
  Check check;
  check.id = "torch";
  check.label = "torch";
  check.state = CheckState::kNote;
  check.found = "this program was built without torch";
  check.works = "Buffers move between tiers; what needs torch tensors is not built.";
  check.change = "To build with torch: scripts/setup.sh, then configure with SPILLWAY_TORCH=ON.";
  check.values = {{"built_in", false}};
  return check;
}

}  // namespace spillway::app
