/// Rows of cells, printed in columns two spaces apart.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace spillway {

/// `right`: the columns whose cells are aligned to the right.
[[nodiscard]] std::string in_columns(const std::vector<std::vector<std::string>>& rows,
                                     const std::vector<std::size_t>& right, std::size_t indent);

}  // namespace spillway
