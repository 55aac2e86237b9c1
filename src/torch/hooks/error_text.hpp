/// The text of a caught error; internal.
#pragma once

#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace spillway {

/// Without torch's stack trace.
[[nodiscard]] inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& from_torch) {
    return from_torch.what_without_backtrace();
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace spillway
