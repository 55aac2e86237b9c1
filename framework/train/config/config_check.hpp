/// What keys mean together.
#pragma once

#include <map>
#include <string>

#include "spillway/core/source_location.hpp"
#include "train/config/config.hpp"

namespace spillway::app {

/// Where a key got its value, by path ("model.heads"); keys with their default are not there.
using ConfigLocations = std::map<std::string, SourceLocation>;

/// Errors: ConfigError that names the location of the first of the keys that has one, and does the
/// arithmetic.
void check_together(const TrainConfig& config, const ConfigLocations& locations);

}  // namespace spillway::app
