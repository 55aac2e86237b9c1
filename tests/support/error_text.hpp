/// The text of the error that a call throws.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace spillway::testing {

/// Fails the test unless `call` throws an E; returns its text.
template <typename E, typename F>
std::string error_text(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "another kind of error was thrown: " << other.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace spillway::testing
