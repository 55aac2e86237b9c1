#include "check.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <random>
#include <sstream>

#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.hpp"
#include "spillway/core/error.hpp"
#include "spillway/torch/host_memory.hpp"

namespace spillway::testing {
namespace {

using namespace spillway::literals;

std::string mixed_rules(std::mt19937& random) {
  const auto action = [&]() -> std::string {
    switch (random() % 5) {
      case 0:
        return "action = \"keep\"\n";
      case 1:
        return "action = \"offload\"\n";
      case 2:
        return "action = \"recompute\"\nfallback = \"offload\"\n";
      default:
        return "action = \"recompute\"\n";
    }
  };
  std::string rules;
  if (random() % 2 == 0) {
    rules += "[[rule]]\nlayers = \"0..-1\"\ngroup_inputs = 1\naction = \"offload\"\n";
  }
  for (const char* const producer : {"*mul*", "*add*", "*mm*", "*tanh*", "*norm*", "*_", "*"}) {
    rules += std::string("[[rule]]\nproducer = \"") + producer + "\"\n" + action();
  }
  return rules;
}

std::string rules_of(Policy policy, std::mt19937& random) {
  switch (policy) {
    case Policy::kKeep:
      return "[[rule]]\naction = \"keep\"\n";
    case Policy::kOffload:
      return "[[rule]]\naction = \"offload\"\n";
    case Policy::kRecompute:
      return "[[rule]]\naction = \"recompute\"\n";
    case Policy::kRecomputeOrOffload:
      return "[[rule]]\naction = \"recompute\"\nfallback = \"offload\"\n";
    case Policy::kMixed:
      return mixed_rules(random);
    case Policy::kBudget:
      break;
  }
  return {};
}

SessionOptions options_of(const RandomProgram& program, const Variant& variant,
                          const Features& features) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(program.seed * 8 + 3));
  const auto one_of = [&](std::uint32_t count) { return random() % count == 0; };
  SessionOptions options;
  options.device = device();
  options.small = 256_B;
  options.host = 32_MiB;
  options.recompute_cache = one_of(2) ? 1_B : 8_KiB;
  options.fuse_replays = !one_of(4);
  if (const bool verify = one_of(4); verify && features.has(Feature::kVerify)) {
    options.verify_every = 2;
  }
  // Plans that do not recompute see such writes in verification steps only.
  const bool recomputes =
      variant.policy == Policy::kRecompute || variant.policy == Policy::kRecomputeOrOffload;
  if (!recomputes && program.features().has(Feature::kDataWriteLate)) options.verify_every = 1;
  if (const bool full = one_of(6); full && features.has(Feature::kFullHost)) options.host = 6_KiB;
  const bool background = one_of(3) && features.has(Feature::kBackgroundPlan);
  switch (variant.window) {
    case Window::kZero:
      options.offload_window = 0_B;
      options.prefetch_window = 0_B;
      break;
    case Window::kSmall:
      options.offload_window = 3_KiB;
      options.prefetch_window = 4_KiB;
      break;
    case Window::kLarge:
      options.offload_window = 64_MiB;
      options.prefetch_window = 64_MiB;
      break;
    case Window::kFitted:
      break;
  }
  if (variant.policy == Policy::kBudget) {
    options.budget = Budget::share(variant.share);
    options.plan_in_background = background;
    options.planning_time = std::chrono::milliseconds(100);
    if (const bool little = one_of(2); little && features.has(Feature::kRegions)) {
      options.budget = Bytes(4096U << random() % 4U);
      options.host = 6_KiB;
    }
  } else {
    options.rules = parse_rules(rules_of(variant.policy, random), "stress.toml");
  }
  return options;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.cpu().contiguous();
  const at::Tensor y = b.cpu().contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

std::string how_they_differ(const at::Tensor& without, const at::Tensor& with) {
  if (!without.defined() || !with.defined()) return with.defined() ? "is there" : "is missing";
  if (without.sizes() != with.sizes()) return "has another shape";
  const at::Tensor x = without.to(at::kCPU, at::kDouble).contiguous().view(-1);
  const at::Tensor y = with.to(at::kCPU, at::kDouble).contiguous().view(-1);
  std::int64_t different = 0;
  std::int64_t first = -1;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (x.const_data_ptr<double>()[i] == y.const_data_ptr<double>()[i]) continue;
    if (first < 0) first = i;
    ++different;
  }
  std::ostringstream out;
  out << "differs in " << different << " of " << x.numel() << " elements";
  if (first >= 0) {
    out << ", first in element " << first << ": " << x.const_data_ptr<double>()[first]
        << " without a session, " << y.const_data_ptr<double>()[first] << " with it";
  }
  return out.str();
}

/// Events after which a session may record again.
bool is_regular(const RandomProgram& program) {
  const Features used = program.features();
  for (const Feature each :
       {Feature::kSkip, Feature::kSwap, Feature::kGradInForward, Feature::kFailInForward,
        Feature::kFailInBackward, Feature::kNoBackward, Feature::kEarlyEnd, Feature::kLateBackward,
        Feature::kSetDataBetween, Feature::kSetDataInside, Feature::kRetain}) {
    if (used.has(each)) return false;
  }
  return true;
}

/// What a session must not hold once every graph is gone.
std::string problem_of_end(const SessionReport& report, const RandomProgram& program,
                           const Variant& variant) {
  std::ostringstream out;
  if (report.device_now != Bytes()) {
    out << "after the last step saved buffers still have " << to_string(report.device_now)
        << " on the device";
  } else if (report.host_now != Bytes()) {
    out << "after the last step saved buffers still have " << to_string(report.host_now)
        << " of host memory";
  } else if (variant.policy != Policy::kBudget && is_regular(program) &&
             report.recorded_steps > 1) {
    out << report.recorded_steps << " steps were recorded, although all save the same";
  }
  return out.str();
}

Reuse reuse_of(std::uint64_t seed, Window window) {
  const char* const text = std::getenv("SPILLWAY_TEST_REUSE");
  if (text == nullptr) {
    return kAllReuses[(seed + static_cast<std::uint64_t>(window)) % kAllReuses.size()];
  }
  std::string known;
  for (const Reuse each : kAllReuses) {
    if (testing::to_string(each) == text) return each;
    known += (known.empty() ? "" : ", ") + std::string(testing::to_string(each));
  }
  throw InvalidArgument(
      "stress", "SPILLWAY_TEST_REUSE is \"" + std::string(text) + "\"; known are: " + known);
}

char crash_text[1 << 14];

void print_and_die(int signal) {
  const ssize_t written = ::write(STDERR_FILENO, crash_text, std::strlen(crash_text));
  (void)written;
  ::raise(signal);  // The default action now.
}

}  // namespace

std::string Variant::to_string() const {
  static constexpr const char* kPolicies[] = {
      "keep", "offload", "recompute", "recompute or offload", "mixed rules", "budget"};
  static constexpr const char* kWindows[] = {"zero", "small", "large", "fitted"};
  std::ostringstream out;
  out << kPolicies[static_cast<std::size_t>(policy)];
  if (policy == Policy::kBudget) out << " of " << share;
  out << ", windows " << kWindows[static_cast<std::size_t>(window)] << ", memory reused "
      << testing::to_string(reuse);
  return out.str();
}

std::vector<Variant> variants_of(Policy policy, std::uint64_t seed, bool all) {
  const auto variant = [&](Window window, double share = 0) {
    return Variant{policy, window, share, reuse_of(seed, window)};
  };
  if (policy == Policy::kKeep) return {variant(Window::kZero)};
  const auto one = static_cast<Window>(seed % 4);
  if (policy == Policy::kBudget) {
    static constexpr double kShares[] = {0.35, 0.5, 0.65, 0.8, 0.95};
    if (!all && one != Window::kFitted) return {};
    return {variant(one, kShares[seed / 4 % 5])};
  }
  if (!all) return {variant(one)};
  return {variant(Window::kZero), variant(Window::kSmall), variant(Window::kLarge),
          variant(Window::kFitted)};
}

void Totals::add(const SessionReport& report) {
  ++sessions;
  steps += report.steps;
  offloaded_bytes += report.bytes_out.count();
  repeated_calls += report.repeated_calls;
  regions += report.regions.regions;
  for (const auto& [reason, count] : report.fallbacks) {
    fallbacks[reason.substr(0, reason.find('('))] += count;
  }
}

void Totals::add(const Totals& other) {
  models += other.models;
  unrepeatable += other.unrepeatable;
  sessions += other.sessions;
  steps += other.steps;
  offloaded_bytes += other.offloaded_bytes;
  repeated_calls += other.repeated_calls;
  regions += other.regions;
  for (const auto& [reason, count] : other.fallbacks) fallbacks[reason] += count;
}

std::ostream& operator<<(std::ostream& out, const Totals& totals) {
  if (totals.unrepeatable > 0) {
    out << totals.unrepeatable << " models left out, which differ without a session, too; ";
  }
  out << totals.models << " models, " << totals.sessions << " sessions, " << totals.steps
      << " steps; in the last steps " << totals.offloaded_bytes << " B offloaded, "
      << totals.repeated_calls << " calls repeated; " << totals.regions << " regions\n";
  for (const auto& [reason, count] : totals.fallbacks)
    out << "  " << count << "x " << reason << "\n";
  return out;
}

std::string first_difference(const std::vector<StepResult>& without,
                             const std::vector<StepResult>& with) {
  for (std::size_t i = 0; i < without.size(); ++i) {
    const std::string where = "step " + std::to_string(i) + ": ";
    if (without[i].error != with[i].error) {
      const auto quoted = [](const std::string& text) {
        return text.empty() ? std::string("no error") : "\"" + text + "\"";
      };
      return where + quoted(without[i].error) + " without a session, " + quoted(with[i].error) +
             " with it";
    }
    for (std::size_t k = 0; k < without[i].values.size(); ++k) {
      const NamedTensor& a = without[i].values[k];
      if (k >= with[i].values.size()) return where + a.name + " is missing";
      const NamedTensor& b = with[i].values[k];
      if (!same_bits(a.tensor, b.tensor)) {
        return where + "the " + a.name + " " + how_they_differ(a.tensor, b.tensor);
      }
    }
  }
  return {};
}

bool is_repeatable(const RandomProgram& program, const std::vector<StepResult>& results) {
  if (!on_cuda()) return true;
  for (const StepResult& each : results) {
    if (each.error.find("deterministic") != std::string::npos) return false;
  }
  return first_difference(results, run(program, nullptr)).empty();
}

std::string problem_of_baseline(const std::vector<StepResult>& results) {
  for (const StepResult& each : results) {
    if (!each.error.empty() && each.error != IntendedFailure().what()) return each.error;
  }
  return {};
}

std::string problem_of_session(const RandomProgram& program, const Variant& variant,
                               const Features& features, const std::vector<StepResult>& expected,
                               Totals* totals) {
  try {
    Session session(options_of(program, variant, features));
    const std::string problem = first_difference(expected, run(program, &session));
    const SessionReport report = session.report();
    if (totals != nullptr) totals->add(report);
    return problem.empty() ? problem_of_end(report, program, variant) : problem;
  } catch (const std::exception& error) {
    return std::string("outside of a step: ") + error.what();
  }
}

std::string problem_of(const RandomProgram& program, const Variant& variant,
                       const Features& features, const std::vector<StepResult>& expected,
                       Totals* totals) {
  restart_reuse(variant.reuse, program.seed);
  const Bytes before = host_memory();
  const std::string problem = problem_of_session(program, variant, features, expected, totals);
  if (problem.empty() && host_memory() > before) {
    return to_string(host_memory() - before) + " of tensors were not freed";
  }
  return problem;
}

std::string problem_of(const RandomProgram& program, const Variant& variant,
                       const Features& features) {
  const std::vector<StepResult> expected = run(program, nullptr);
  if (!problem_of_baseline(expected).empty()) return {};
  return problem_of(program, variant, features, expected, nullptr);
}

std::string in_child(const std::function<std::string()>& work) {
  int ends[2] = {-1, -1};
  TORCH_CHECK(::pipe(ends) == 0, "[stress] no pipe to a child process: ", std::strerror(errno));
  const pid_t child = ::fork();
  TORCH_CHECK(child >= 0, "[stress] no child process: ", std::strerror(errno));
  if (child == 0) {
    announce("");
    const std::string answer = work();
    const ssize_t written = ::write(ends[1], answer.data(), answer.size());
    ::_exit(written < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string answer;
  char part[4096];
  for (ssize_t size = 0; (size = ::read(ends[0], part, sizeof(part))) > 0;) {
    answer.append(part, static_cast<std::size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    return std::string("the process crashed: ") + ::strsignal(WTERMSIG(status));
  }
  return answer;
}

RandomProgram simplified(RandomProgram program,
                         const std::function<bool(const RandomProgram&)>& fails, int tries) {
  for (bool again = true; again;) {
    again = false;
    for (RandomProgram& each : simpler(program)) {
      if (tries-- <= 0) return program;
      if (!fails(each)) continue;
      program = std::move(each);
      again = true;
      break;
    }
  }
  return program;
}

void announce(const std::string& text) {
  static const bool kInstalled = [] {
    struct sigaction action {};
    action.sa_handler = &print_and_die;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
      ::sigaction(signal, &action, nullptr);
    }
    return true;
  }();
  (void)kInstalled;
  const std::string cut = text.substr(0, sizeof(crash_text) - 1);
  std::memcpy(crash_text, cut.c_str(), cut.size() + 1);
}

}  // namespace spillway::testing
