#include "program.hpp"

#include <algorithm>
#include <random>
#include <sstream>

#include "operators.hpp"

namespace spillway::testing {
namespace {

constexpr int kSteps = 6;

class Maker {
 public:
  Maker(std::uint64_t seed, const Features& features)
      : features_(features), random_(static_cast<std::mt19937::result_type>(seed * 2654435761U)) {
    for (std::size_t op = 0; op < operators().size(); ++op) {
      (operators()[op].feature == Feature::kCommon ? common_ : special_).push_back(op);
    }
    program_.seed = seed;
  }

  RandomProgram make() {
    const std::uint32_t precision = below(20);
    if (precision < 5 && features_.has(Feature::kLowPrecision)) program_.dtype = at::kBFloat16;
    if (precision >= 16 && features_.has(Feature::kDoublePrecision)) program_.dtype = at::kDouble;
    program_.width = one_of(2) ? 16 : 32;
    program_.tied = one_of(3, Feature::kTied);
    const std::uint32_t unregistered = draw();
    if (one_of(4, Feature::kUnregistered)) program_.unregistered = unregistered;
    pick_special();
    const std::uint32_t blocks = 1 + below(4);
    for (std::uint32_t i = 0; i < blocks; ++i) add_block(static_cast<int>(i));
    make_steps();
    return std::move(program_);
  }

 private:
  std::uint32_t draw() { return static_cast<std::uint32_t>(random_()); }
  std::uint32_t below(std::size_t count) {
    return static_cast<std::uint32_t>(draw() % std::max<std::size_t>(count, 1));
  }
  bool one_of(std::uint32_t count) { return below(count) == 0; }
  /// Draws in any case, so that a program changes little where a feature is switched off.
  bool one_of(std::uint32_t count, Feature feature) {
    return one_of(count) && features_.has(feature);
  }

  /// A program has few special operators, so that a failure has few possible causes. Where few are
  /// switched on, these.
  void pick_special() {
    constexpr std::size_t kFew = 10;
    std::vector<std::size_t> on;
    for (const std::size_t op : special_) {
      if (features_.has(operators()[op].feature)) on.push_back(op);
    }
    if (on.size() <= kFew) special_ = std::move(on);
    std::shuffle(special_.begin(), special_.end(), random_);
    special_.resize(std::min<std::size_t>(special_.size(), 1 + below(6)));
  }

  Instruction instruction(const std::vector<int>& near) {
    Instruction made;
    made.id = next_id_++;
    made.op = common_[below(common_.size())];
    if (const std::uint32_t drawn = draw(); drawn % 3 == 0 && !special_.empty()) {
      const std::size_t special = special_[drawn / 3 % special_.size()];
      if (features_.has(operators()[special].feature)) made.op = special;
    }
    const auto operand = [&] {
      if (!near.empty() && !one_of(3))
        return near[near.size() - 1 - below(std::min(near.size(), std::size_t{3}))];
      if (!far_.empty() && one_of(4)) return far_[below(far_.size())];
      return kBlockInput;
    };
    made.a = operand();
    made.b = operand();
    made.draw = draw();
    made.held = one_of(12, Feature::kHeld);
    return made;
  }

  std::vector<Instruction> branch(std::uint32_t length) {
    std::vector<Instruction> made;
    std::vector<int> near;
    for (std::uint32_t i = 0; i < length; ++i) {
      made.push_back(instruction(near));
      near.push_back(made.back().id);
    }
    return made;
  }

  void add_block(int number) {
    Block block;
    block.number = number;
    block.residual = one_of(2);
    block.norm = !one_of(4);
    block.main = branch(1 + below(7));
    std::vector<Instruction> other = branch(1 + below(4));
    if (one_of(3, Feature::kBranches)) block.other = std::move(other);
    for (const Instruction& each : block.main) far_.push_back(each.id);
    for (const Instruction& each : block.other) far_.push_back(each.id);
    program_.blocks.push_back(std::move(block));
  }

  void make_steps() {
    StepEvents usual;
    usual.rows = one_of(2) ? 16 : 24;
    const bool several = one_of(3, Feature::kMicroBatches);
    if (several) usual.micro_batches = 2 + static_cast<int>(below(2));
    const bool forward_first = one_of(2, Feature::kPasses) && several;
    if (forward_first) usual.order = PassOrder::kForwardFirst;
    program_.passes = usual.order == PassOrder::kForwardFirst || one_of(4, Feature::kPasses);
    program_.schedule = one_of(3, Feature::kSchedule) && program_.passes;
    program_.steps.assign(kSteps, usual);
    const bool lengths = one_of(2, Feature::kLengths);
    const bool skips = one_of(4, Feature::kSkip);
    const bool swaps = one_of(2, Feature::kSwap);
    for (int i = 0; i < kSteps; ++i) {
      StepEvents& step = program_.steps[static_cast<std::size_t>(i)];
      if (lengths && one_of(3)) step.rows = 8 + 4 * static_cast<std::int64_t>(below(8));
      if (several && one_of(6)) step.micro_batches = 1 + static_cast<int>(below(4));
      if (skips && one_of(3)) step.skipped = 1U << below(program_.blocks.size());
      if (swaps && one_of(3)) step.swapped = ~0U;
      step.traced = one_of(20, Feature::kTrace);
      add_ending(step);
      if (one_of(20, Feature::kSetDataBetween)) {
        step.replaced_before = one_of(2) ? Replaced::kRegistered : Replaced::kUnregistered;
      }
      step.replaced_inside = one_of(20, Feature::kSetDataInside);
    }
  }

  void add_ending(StepEvents& step) {
    struct Choice {
      Feature feature;
      Ending ending;
    };
    static constexpr Choice kChoices[] = {
        {Feature::kRetain, Ending::kTwice},
        {Feature::kThread, Ending::kOnThread},
        {Feature::kNoBackward, Ending::kNone},
        {Feature::kEarlyEnd, Ending::kAfterStep},
        {Feature::kLateBackward, Ending::kNextStep},
        {Feature::kFailInForward, Ending::kFailsForward},
        {Feature::kFailInBackward, Ending::kFailsBackward},
    };
    if (!one_of(4)) return;
    const Choice& choice = kChoices[below(std::size(kChoices))];
    if (!features_.has(choice.feature)) return;
    step.ending = choice.ending;
    step.fails_at = static_cast<int>(below(20));
  }

  Features features_;
  std::mt19937 random_;
  std::vector<std::size_t> common_;
  std::vector<std::size_t> special_;
  std::vector<int> far_;  // Values of earlier blocks.
  int next_id_ = 0;
  RandomProgram program_;
};

std::string value_name(int id) { return id == kBlockInput ? "x" : "%" + std::to_string(id); }

void print(std::ostream& out, const std::vector<Instruction>& branch, const char* indent) {
  for (const Instruction& each : branch) {
    out << indent << value_name(each.id) << " = " << operators()[each.op].name << "("
        << value_name(each.a) << ", " << value_name(each.b) << "; " << each.draw << ")"
        << (each.held ? "  held until the step ends" : "") << "\n";
  }
}

const char* name_of(Ending ending) {
  switch (ending) {
    case Ending::kBackward:
      return "";
    case Ending::kTwice:
      return ", backward twice";
    case Ending::kOnThread:
      return ", backward on another thread";
    case Ending::kNone:
      return ", no backward";
    case Ending::kAfterStep:
      return ", backward after the step's end";
    case Ending::kNextStep:
      return ", backward in the next step";
    case Ending::kFailsForward:
      return ", an exception in forward";
    case Ending::kFailsBackward:
      return ", an exception in backward";
  }
  return "";
}

void print(std::ostream& out, const StepEvents& step, std::size_t blocks) {
  out << step.rows << " rows";
  if (step.micro_batches > 1) {
    out << ", " << step.micro_batches << " micro-batches"
        << (step.order == PassOrder::kInTurn ? " in turn" : ", all forwards first");
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    if ((step.skipped >> i & 1U) != 0) out << ", without layers." << i;
    if ((step.swapped >> i & 1U) != 0) out << ", layers." << i << " swapped";
  }
  out << name_of(step.ending);
  if (step.ending == Ending::kFailsForward) out << " at operator " << step.fails_at;
  if (step.replaced_before == Replaced::kRegistered) out << ", weights replaced and registered";
  if (step.replaced_before == Replaced::kUnregistered) out << ", weights replaced";
  if (step.replaced_inside) out << ", weights replaced before backward";
  if (step.traced) out << ", traced";
  out << "\n";
}

/// Programs without one instruction of the branch.
template <typename Branch>
void drop_instructions(const RandomProgram& program, std::size_t block, Branch branch,
                       std::vector<RandomProgram>& found) {
  const std::size_t length = (program.blocks[block].*branch).size();
  for (std::size_t i = length; i-- > 0;) {
    RandomProgram less = program;
    auto& list = less.blocks[block].*branch;
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
    found.push_back(std::move(less));
  }
}

}  // namespace

std::string RandomProgram::to_string() const {
  std::ostringstream out;
  out << "seed " << seed << ": " << c10::toString(dtype) << ", width " << width
      << (tied ? ", tied" : "") << (passes ? ", named passes" : "")
      << (schedule ? ", schedule given" : "");
  if (unregistered != 0) out << ", unregistered weights 0x" << std::hex << unregistered << std::dec;
  out << "\nfeatures: " << features().to_string() << "\n";
  for (const Block& block : blocks) {
    out << "layers." << block.number << (block.norm ? " (norm first" : " (no norm")
        << (block.residual ? ", residual)" : ")") << "\n";
    print(out, block.main, "    ");
    if (!block.other.empty()) {
      out << "  other branch\n";
      print(out, block.other, "    ");
    }
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    out << "step " << i << ": ";
    print(out, steps[i], blocks.size());
  }
  return out.str();
}

Features RandomProgram::features() const {
  Features used;
  const auto add = [&](bool is, Feature feature) {
    if (is) used = used.with(feature);
  };
  add(dtype == at::kBFloat16, Feature::kLowPrecision);
  add(dtype == at::kDouble, Feature::kDoublePrecision);
  add(tied, Feature::kTied);
  add(unregistered != 0, Feature::kUnregistered);
  add(passes, Feature::kPasses);
  add(schedule, Feature::kSchedule);
  for (const Block& block : blocks) {
    add(!block.other.empty(), Feature::kBranches);
    for (const auto* branch : {&block.main, &block.other}) {
      for (const Instruction& each : *branch) {
        add(true, operators()[each.op].feature);
        add(each.held, Feature::kHeld);
      }
    }
  }
  for (const StepEvents& step : steps) {
    add(step.rows != steps.front().rows, Feature::kLengths);
    add(step.micro_batches > 1, Feature::kMicroBatches);
    add(step.skipped != 0, Feature::kSkip);
    add(step.swapped != 0, Feature::kSwap);
    add(step.traced, Feature::kTrace);
    add(step.replaced_before != Replaced::kNo, Feature::kSetDataBetween);
    add(step.replaced_inside, Feature::kSetDataInside);
    add(step.ending == Ending::kTwice, Feature::kRetain);
    add(step.ending == Ending::kOnThread, Feature::kThread);
    add(step.ending == Ending::kNone, Feature::kNoBackward);
    add(step.ending == Ending::kAfterStep, Feature::kEarlyEnd);
    add(step.ending == Ending::kNextStep, Feature::kLateBackward);
    add(step.ending == Ending::kFailsForward, Feature::kFailInForward);
    add(step.ending == Ending::kFailsBackward, Feature::kFailInBackward);
  }
  return used;
}

RandomProgram random_program(std::uint64_t seed, const Features& features) {
  return Maker(seed, features).make();
}

std::vector<RandomProgram> simpler(const RandomProgram& program) {
  std::vector<RandomProgram> found;
  const auto edit = [&](auto&& change) {
    RandomProgram less = program;
    if (change(less)) found.push_back(std::move(less));
  };
  for (std::size_t i = 0; i < program.blocks.size(); ++i) {
    edit([&](RandomProgram& less) {
      less.blocks.erase(less.blocks.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    });
  }
  for (std::size_t i = program.steps.size(); program.steps.size() > 1 && i-- > 0;) {
    edit([&](RandomProgram& less) {
      less.steps.erase(less.steps.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    });
  }
  // An edit of all steps, then of each.
  const auto edit_steps = [&](auto&& change) {
    edit([&](RandomProgram& less) {
      bool any = false;
      for (StepEvents& step : less.steps) any = change(step) || any;
      return any;
    });
    for (std::size_t i = 0; program.steps.size() > 1 && i < program.steps.size(); ++i) {
      edit([&](RandomProgram& less) { return change(less.steps[i]); });
    }
  };
  const auto set = [](auto& field, auto value) {
    const bool other = field != value;
    field = value;
    return other;
  };
  const std::int64_t rows = program.steps.front().rows;
  edit_steps([&](StepEvents& step) { return set(step.ending, Ending::kBackward); });
  edit_steps([&](StepEvents& step) { return set(step.micro_batches, 1); });
  edit_steps([&](StepEvents& step) { return set(step.skipped, 0U); });
  edit_steps([&](StepEvents& step) { return set(step.swapped, 0U); });
  edit_steps([&](StepEvents& step) { return set(step.rows, rows); });
  edit_steps([&](StepEvents& step) { return set(step.replaced_before, Replaced::kNo); });
  edit_steps([&](StepEvents& step) { return set(step.replaced_inside, false); });
  edit_steps([&](StepEvents& step) { return set(step.traced, false); });
  edit([&](RandomProgram& less) { return set(less.schedule, false); });
  edit([&](RandomProgram& less) {
    for (StepEvents& step : less.steps) step.order = PassOrder::kInTurn;
    less.schedule = false;
    return set(less.passes, false);
  });
  edit([&](RandomProgram& less) { return set(less.dtype, at::kFloat); });
  edit([&](RandomProgram& less) { return set(less.tied, false); });
  edit([&](RandomProgram& less) { return set(less.unregistered, 0U); });
  for (std::size_t i = 0; i < program.blocks.size(); ++i) {
    drop_instructions(program, i, &Block::main, found);
    drop_instructions(program, i, &Block::other, found);
    edit([&](RandomProgram& less) { return set(less.blocks[i].residual, false); });
    edit([&](RandomProgram& less) { return set(less.blocks[i].norm, false); });
    for (auto branch : {&Block::main, &Block::other}) {
      for (std::size_t k = 0; k < (program.blocks[i].*branch).size(); ++k) {
        edit([&](RandomProgram& less) { return set((less.blocks[i].*branch)[k].held, false); });
        edit([&](RandomProgram& less) {
          Instruction& each = (less.blocks[i].*branch)[k];
          return set(each.b, each.a);
        });
      }
    }
  }
  return found;
}

}  // namespace spillway::testing
