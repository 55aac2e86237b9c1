#include "spillway/plan/budget_report.hpp"

namespace spillway {

std::string_view to_string(StepKind kind) {
  switch (kind) {
    case StepKind::kRecording:
      return "recording";
    case StepKind::kUnplanned:
      return "unplanned";
    case StepKind::kVerification:
      return "verification";
    case StepKind::kDiverged:
      return "diverged";
    case StepKind::kTraced:
      return "traced";
    case StepKind::kPlanned:
      return "planned";
  }
  return "";
}

}  // namespace spillway
