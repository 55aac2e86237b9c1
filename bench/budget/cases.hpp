/// The models that budgets are measured on, with the limits of their step times.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spillway/models/llama.hpp"
#include "util/text/budget_text.hpp"

namespace spillway::bench {

struct BudgetRow {
  std::string text;  ///< As on the command line: "8GiB", "25%".
  app::BudgetText budget;
  std::optional<double> wanted;  ///< Upper limit of the step time, relative to the baseline.
};

struct BudgetCase {
  LlamaShape shape;
  std::vector<BudgetRow> rows;
  std::size_t end_to_end = 0;  ///< The row that BudgetBench::run_end_to_end() measures.
};

/// "layers": the model of bench/layers; "long": four of its layers, 65,536 tokens; "moe": dense
/// and mixture-of-experts layers in turns.
[[nodiscard]] const std::vector<std::string>& budget_models();

/// `small`: of a size for the CPU, with shares as budgets and no limits.
/// Precondition: `model` is one of budget_models().
[[nodiscard]] BudgetCase budget_case(const std::string& model, at::Device device, bool small);

/// Replaces the budgets of the case; budgets that it had keep their limits.
void choose_budgets(BudgetCase& chosen, const std::vector<std::string>& texts);

}  // namespace spillway::bench
