/// HiGHS as a library that is loaded when it is first asked for; internal.
///
/// It is not linked: it was built by another compiler, for the std::string of before g++ 5, and
/// carries parts of that compiler's C++ library which it offers to everyone it is linked with. Our
/// code would take its std::thread and std::runtime_error from there, and HiGHS what it shares with
/// us from here. Loaded for itself alone, neither sees the other; only its C interface is used.
#pragma once

#include <string>
#include <vector>

#include <interfaces/highs_c_api.h>

namespace spillway {

/// The functions of its C interface that are used.
struct HighsFunctions {
  decltype(&Highs_create) create = nullptr;
  decltype(&Highs_destroy) destroy = nullptr;
  decltype(&Highs_versionMajor) version_major = nullptr;
  decltype(&Highs_versionMinor) version_minor = nullptr;
  decltype(&Highs_getSizeofHighsInt) size_of_int = nullptr;
  decltype(&Highs_setBoolOptionValue) set_bool_option = nullptr;
  decltype(&Highs_setIntOptionValue) set_int_option = nullptr;
  decltype(&Highs_setStringOptionValue) set_string_option = nullptr;
  decltype(&Highs_passMip) pass_mip = nullptr;
  decltype(&Highs_setBasis) set_basis = nullptr;
  decltype(&Highs_getBasis) get_basis = nullptr;
  decltype(&Highs_changeColBounds) change_column_bounds = nullptr;
  decltype(&Highs_run) run = nullptr;
  decltype(&Highs_getModelStatus) get_model_status = nullptr;
  decltype(&Highs_getIntInfoValue) get_int_info = nullptr;
  decltype(&Highs_getDoubleInfoValue) get_double_info = nullptr;
  decltype(&Highs_getSolution) get_solution = nullptr;
};

/// Where HiGHS is looked for, in this order: what the environment variable SPILLWAY_HIGHS names, if
/// it is set, and nothing else then; else "libhighs.so" as the loader finds it, which looks along
/// the run path of the program or of the Python module; then where it was when this was built.
[[nodiscard]] std::vector<std::string> highs_paths();

/// Loads the first of `paths` that can be used, for good: it opens, and is of the version that
/// this was built for.
/// Errors: Error if there is none; the text says what was found at each path and what to do.
[[nodiscard]] HighsFunctions load_highs(const std::vector<std::string>& paths);

/// load_highs(highs_paths()), once; again after an error. Any thread.
[[nodiscard]] const HighsFunctions& highs();

}  // namespace spillway
