#include "plan/highs/highs_library.hpp"

#include <cstdlib>

#include <HConfig.h>
#include <dlfcn.h>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

constexpr const char* kVariable = "SPILLWAY_HIGHS";

/// Looks functions up, and remembers the first one that is missing.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

/// What is wrong with it; else nothing, and `functions` is filled.
std::string take_functions(void* library, HighsFunctions& functions) {
  Symbols symbols(library);
  symbols.find(functions.create, "Highs_create");
  symbols.find(functions.destroy, "Highs_destroy");
  symbols.find(functions.version_major, "Highs_versionMajor");
  symbols.find(functions.version_minor, "Highs_versionMinor");
  symbols.find(functions.size_of_int, "Highs_getSizeofHighsInt");
  symbols.find(functions.set_bool_option, "Highs_setBoolOptionValue");
  symbols.find(functions.set_int_option, "Highs_setIntOptionValue");
  symbols.find(functions.set_string_option, "Highs_setStringOptionValue");
  symbols.find(functions.pass_mip, "Highs_passMip");
  symbols.find(functions.set_basis, "Highs_setBasis");
  symbols.find(functions.get_basis, "Highs_getBasis");
  symbols.find(functions.change_column_bounds, "Highs_changeColBounds");
  symbols.find(functions.run, "Highs_run");
  symbols.find(functions.get_model_status, "Highs_getModelStatus");
  symbols.find(functions.get_int_info, "Highs_getIntInfoValue");
  symbols.find(functions.get_double_info, "Highs_getDoubleInfoValue");
  symbols.find(functions.get_solution, "Highs_getSolution");
  if (!symbols.missing().empty()) return "it has no function " + symbols.missing();
  const HighsInt major = functions.version_major();
  const HighsInt minor = functions.version_minor();
  if (major != HIGHS_VERSION_MAJOR || minor != HIGHS_VERSION_MINOR) {
    return "it is version " + std::to_string(major) + "." + std::to_string(minor);
  }
  const HighsInt bytes = functions.size_of_int(nullptr);
  if (bytes != static_cast<HighsInt>(sizeof(HighsInt))) {
    return "its whole numbers have " + std::to_string(bytes) + " bytes, not " +
           std::to_string(sizeof(HighsInt));
  }
  return {};
}

/// The same from opening it on. Never closed again: threads that solved something have data of it
/// until they end.
std::string open_highs(const std::string& path, HighsFunctions& functions) {
  if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    return take_functions(library, functions);
  }
  const char* const problem = ::dlerror();
  return problem == nullptr ? "it cannot be opened" : problem;
}

}  // namespace

std::vector<std::string> highs_paths() {
  if (const char* const path = std::getenv(kVariable); path != nullptr && *path != '\0') {
    return {path};
  }
  return {"libhighs.so", SPILLWAY_HIGHS_LIBRARY};
}

HighsFunctions load_highs(const std::vector<std::string>& paths) {
  std::string problems;
  for (const std::string& path : paths) {
    HighsFunctions functions;
    const std::string problem = open_highs(path, functions);
    if (problem.empty()) return functions;
    problems += (problems.empty() ? "" : ", ") + path + " (" + problem + ")";
  }
  throw Error("solve", "the planner needs the HiGHS solver, version " +
                           std::to_string(HIGHS_VERSION_MAJOR) + "." +
                           std::to_string(HIGHS_VERSION_MINOR) + ", and could not use " + problems +
                           "; install the Python package highsbox, or set " + kVariable +
                           " to the path of its libhighs.so, or plan by rules");
}

const HighsFunctions& highs() {
  static const HighsFunctions kFunctions = load_highs(highs_paths());
  return kFunctions;
}

}  // namespace spillway
