#include "spillway/trace/names.hpp"

#include <algorithm>

namespace spillway {

std::string name_in(const std::string& scope, const std::string& what) {
  return scope.empty() ? what : scope + " " + what;
}

std::string name_of(const PassStep& pass) {
  return std::string(pass.backward ? "backward" : "forward") + ", chunk " +
         std::to_string(pass.chunk) + ", micro-batch " + std::to_string(pass.micro_batch);
}

std::string buffer_name(const ChunkPlan& plan, int id) {
  const auto index = static_cast<std::size_t>(id);
  if (id >= 0 && index < plan.decisions.size()) {
    const Position& position = plan.decisions[index].position;
    const std::string number = position.ordinal > 0 ? " " + std::to_string(position.ordinal) : "";
    return name_in(position.scope, position.saver) + number;
  }
  if (id < 0 || index - plan.decisions.size() >= plan.anchors.size()) {
    return "a buffer that is not in the plan";
  }
  const Anchor& anchor = plan.anchors[index - plan.decisions.size()];
  return name_in(anchor.scope, anchor.name) + " (anchor)";
}

std::vector<Piece> pieces_of(const std::vector<Moment>& moments,
                             const std::function<std::string(int)>& call,
                             const std::function<std::string(int)>& unpacked) {
  struct Running {
    int call = 0;
    Piece piece;
  };
  std::vector<Running> running;
  Piece outside{"between operators", -1, false};
  std::vector<Piece> pieces;
  pieces.reserve(moments.size() + 1);
  int number = 0;
  for (const Moment& moment : moments) {
    // What lies before a moment belongs to what went on then.
    pieces.push_back(running.empty() ? outside : running.back().piece);
    switch (moment.kind) {
      case MomentKind::kCallBegins:
        running.push_back({moment.index, {call(moment.index), number, false}});
        break;
      case MomentKind::kCallEnds:
        std::erase_if(running, [&](const Running& each) { return each.call == moment.index; });
        if (running.empty()) outside.since = number;
        break;
      case MomentKind::kBackwardBegins:
        running.clear();
        outside = {"backward begins", number, true};
        break;
      case MomentKind::kUnpack:
        outside = {unpacked(moment.index) + " backward", number, outside.backward};
        break;
      case MomentKind::kSave:
      case MomentKind::kDrop:
      case MomentKind::kEnd:
        break;
    }
    ++number;
  }
  pieces.push_back(running.empty() ? outside : running.back().piece);
  return pieces;
}

}  // namespace spillway
