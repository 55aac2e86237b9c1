/// The digest of what must be equal for a plan to fit a profile; internal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "spillway/plan/profile.hpp"
#include "util/digest.hpp"

namespace spillway {

/// Of chunks, their buffers and sites in order. Profiles and plans both have these.
class StructureDigest {
 public:
  void add_chunk(int chunk) { add("chunk", chunk); }
  void add_buffer(const Position& position) {
    digest_.add_field(position.scope);
    add(position.saver, position.ordinal);
  }
  void add_site(int buffer, std::string_view dtype, std::size_t dimensions) {
    add(dtype, buffer);
    digest_.add(dimensions);
  }

  [[nodiscard]] std::string text() const { return digest_text(digest_.value()); }

 private:
  void add(std::string_view text, int number) {
    digest_.add_field(text);
    digest_.add(static_cast<std::uint64_t>(number));
  }

  Digest digest_;
};

}  // namespace spillway
