#include "cases.hpp"

#include <algorithm>

#include "support/small_llama.hpp"

namespace spillway::bench {
namespace {

BudgetRow row(const std::string& text, std::optional<double> wanted = std::nullopt) {
  return {text, app::parse_budget(text), wanted};
}

LlamaShape shape_of(const std::string& model, at::Device device, bool small) {
  LlamaShape shape = small ? small_llama(device) : LlamaShape();
  shape.device = device;
  if (model == "long") {
    shape.layers = small ? 2 : 4;
    shape.tokens = small ? 2048 : 65536;
  }
  if (model == "moe") {
    shape.moe.experts = small ? 4 : 8;
    shape.moe.ffn = small ? 256 : 7168;
  }
  return shape;
}

std::vector<BudgetRow> large_rows(const std::string& model) {
  if (model == "long") return {row("25%", 1.02)};
  if (model == "moe") return {row("60%"), row("40%"), row("25%")};
  return {row("14.4GiB", 1.01), row("12GiB", 1.015), row("10GiB"),      row("8GiB", 1.03),
          row("6GiB", 1.05),    row("4GiB"),         row("3GiB", 1.11), row("2GiB", 1.13)};
}

}  // namespace

const std::vector<std::string>& budget_models() {
  static const std::vector<std::string> kModels = {"layers", "long", "moe"};
  return kModels;
}

BudgetCase budget_case(const std::string& model, at::Device device, bool small) {
  BudgetCase made;
  made.shape = shape_of(model, device, small);
  made.rows = small ? std::vector{row("80%"), row("60%"), row("45%")} : large_rows(model);
  made.end_to_end = made.rows.size() / 2;
  return made;
}

void choose_budgets(BudgetCase& chosen, const std::vector<std::string>& texts) {
  std::vector<BudgetRow> rows;
  for (const std::string& text : texts) {
    const app::BudgetText budget = app::parse_budget(text);
    const auto known = std::find_if(chosen.rows.begin(), chosen.rows.end(),
                                    [&](const BudgetRow& each) { return each.budget == budget; });
    rows.push_back({text, budget, known == chosen.rows.end() ? std::nullopt : known->wanted});
  }
  chosen.rows = std::move(rows);
  chosen.end_to_end = chosen.rows.size() / 2;
}

}  // namespace spillway::bench
