/// How layers are split into stages, as text.
#pragma once

#include <string>
#include <vector>

namespace spillway::app {

/// The numbers of "0,3,6,8"; nothing if the text is one of the words.
/// Errors: InvalidArgument for what is neither.
[[nodiscard]] std::vector<int> parse_bounds(const std::string& text);

/// Errors: as parse_bounds().
void check_segmentation(const std::string& text);

}  // namespace spillway::app
