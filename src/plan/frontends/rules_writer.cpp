#include <array>
#include <charconv>

#include "spillway/plan/rules.hpp"
#include "util/toml_text.hpp"

namespace spillway {
namespace {

std::string number(double value) {
  std::array<char, 32> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

/// Exact, unlike to_string(): in the largest unit that leaves a whole number.
std::string size_text(Bytes bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::uint64_t count = bytes.count();
  std::size_t unit = 0;
  while (count != 0 && count % 1024 == 0 && unit + 1 < kUnits.size()) {
    count /= 1024;
    ++unit;
  }
  return in_quotes(std::to_string(count) + " " + kUnits[unit]);
}

/// Lines `key = value`, left out where there is nothing to say.
class TomlWriter {
 public:
  void line(const std::string& text) { text_ += text + "\n"; }
  void value(const char* key, const std::string& value) { line(std::string(key) + " = " + value); }
  void patterns(const char* key, const std::vector<std::string>& patterns) {
    if (patterns.size() == 1) value(key, in_quotes(patterns.front()));
    if (patterns.size() < 2) return;
    std::string list;
    for (const std::string& each : patterns) list += (list.empty() ? "" : ", ") + in_quotes(each);
    value(key, "[" + list + "]");
  }
  void bytes(const char* key, const std::optional<Bytes>& bytes) {
    if (bytes) value(key, size_text(*bytes));
  }
  void flag(const char* key, bool on) {
    if (on) value(key, "true");
  }

  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

void write_rule(const Rule& rule, TomlWriter& out) {
  out.line("\n[[rule]]");
  if (!rule.name.empty()) out.value("name", in_quotes(rule.name));
  out.patterns("scope", rule.scope);
  out.patterns("saved_by", rule.saved_by);
  out.patterns("module", rule.module);
  out.patterns("producer", rule.producer);
  out.patterns("made_in", rule.made_in);
  out.patterns("made_in_module", rule.made_in_module);
  if (rule.layers) out.value("layers", in_quotes(to_string(*rule.layers)));
  if (rule.group_inputs) out.value("group_inputs", std::to_string(*rule.group_inputs));
  out.bytes("min_size", rule.min_size);
  out.bytes("max_size", rule.max_size);
  if (rule.min_elements) out.value("min_elements", std::to_string(*rule.min_elements));
  out.value("action", in_quotes(to_string(rule.action.kind)));
  out.flag("shard", rule.action.shard);
  if (rule.fallback != ActionKind::kKeep)
    out.value("fallback", in_quotes(to_string(rule.fallback)));
  if (rule.skip != Bytes(0)) out.bytes("skip", rule.skip);
  if (rule.fraction != 1) out.value("fraction", number(rule.fraction));
}

void write_limits(const Rules& rules, TomlWriter& out) {
  if (rules.limits == Limits{} && !rules.offload_window_modules && !rules.recompute_collectives &&
      !rules.plan_shards) {
    return;
  }
  out.line("\n[limits]");
  out.bytes("host", rules.limits.host);
  out.bytes("offload_window", rules.limits.offload_window);
  if (rules.offload_window_modules) {
    out.value("offload_window_modules", std::to_string(*rules.offload_window_modules));
  }
  out.bytes("prefetch_window", rules.limits.prefetch_window);
  out.bytes("min_size", rules.limits.min_size);
  out.bytes("recompute_cache", rules.limits.recompute_cache);
  if (rules.limits.slowdown) out.value("slowdown", number(*rules.limits.slowdown));
  out.flag("recompute_collectives", rules.recompute_collectives);
  out.flag("shard", rules.plan_shards);
}

}  // namespace

std::string to_toml(const Rules& rules) {
  TomlWriter out;
  for (const std::string& note : rules.notes) out.line("# " + note);
  for (const Rule& rule : rules.rules) write_rule(rule, out);
  write_limits(rules, out);
  std::string text = std::move(out).text();
  if (text.starts_with('\n')) text.erase(0, 1);
  return text;
}

}  // namespace spillway
