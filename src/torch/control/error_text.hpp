/// The text of a caught error; internal.
#pragma once

#include <exception>
#include <string>

namespace spillway {

[[nodiscard]] inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace spillway
