#include <cmath>

#include "plan/profile/common_fields.hpp"
#include "plan/profile/profile_check.hpp"
#include "spillway/core/error.hpp"
#include "spillway/plan/profile.hpp"
#include "util/json_fields.hpp"

namespace spillway {

template <typename Fields, MaybeConst<OperatorProfile> Value>
void describe(Fields& fields, Value& call) {
  fields("name", call.name);
  fields("scope", call.scope);
  fields("layer", call.layer);
  fields("device_ns", call.device_ns);
  fields("workspace", call.workspace);
  fields("reads", call.reads);
  fields("makes", call.makes);
  fields("no_replay", call.no_replay);
  fields("saves", call.saves);
  fields("ordinal", call.ordinal);
}

template <typename Fields, MaybeConst<ValueProfile> Value>
void describe(Fields& fields, Value& value) {
  fields("size", value.size);
  fields("call", value.call);
  fields("buffer", value.buffer);
  fields("persistent", value.persistent);
  fields("overwritten", value.overwritten);
}

template <typename Fields, MaybeConst<Producer> Value>
void describe(Fields& fields, Value& producer) {
  fields("name", producer.name);
  fields("scope", producer.scope);
  fields("layer", producer.layer);
  fields("call", producer.call);
}

template <typename Fields, MaybeConst<Save> Value>
void describe(Fields& fields, Value& save) {
  fields("saver", save.saver);
  fields("scope", save.scope);
}

template <typename Fields, MaybeConst<RecipeProfile> Value>
void describe(Fields& fields, Value& recipe) {
  fields("usable", recipe.usable);
  fields("reason", recipe.reason);
}

template <typename Fields, MaybeConst<BufferProfile> Value>
void describe(Fields& fields, Value& buffer) {
  fields("id", buffer.id);
  fields("size", buffer.size);
  fields("position", buffer.position);
  fields("layer", buffer.layer);
  fields("producer", buffer.producer);
  fields("saves", buffer.saves);
  fields("fixed", buffer.fixed);
  fields("first_unpack", buffer.first_unpack);
  fields("last_unpack", buffer.last_unpack);
  fields("value", buffer.value);
  fields("last_forward_use", buffer.last_forward_use);
  fields("recipe", buffer.recipe);
}

template <typename Fields, MaybeConst<SiteProfile> Value>
void describe(Fields& fields, Value& site) {
  fields("buffer", site.buffer);
  fields("dtype", site.dtype);
  fields("sizes", site.sizes);
  fields("strides", site.strides);
  fields("offset", site.offset);
  fields.digest("signature", site.signature);
}

namespace {

/// A timeline has thousands of moments of a few kinds.
struct MomentColumns {
  std::vector<MomentKind> kinds;
  std::vector<int> kind;
  std::vector<int> index;
  std::vector<std::int64_t> compute_ns;
  std::vector<std::int64_t> untracked_bytes;
};

}  // namespace

template <typename Fields, MaybeConst<MomentColumns> Value>
void describe(Fields& fields, Value& columns) {
  fields("kinds", columns.kinds);
  fields("kind", columns.kind);
  fields("index", columns.index);
  fields("compute_ns", columns.compute_ns);
  fields("untracked_bytes", columns.untracked_bytes);
}

template <>
struct JsonColumns<Moment> {
  using Columns = MomentColumns;

  static Columns split(const std::vector<Moment>& moments) {
    Columns columns;
    for (const MomentKind kind : all_values(MomentKind{})) columns.kinds.push_back(kind);
    for (const Moment& moment : moments) {
      columns.kind.push_back(static_cast<int>(moment.kind));
      columns.index.push_back(moment.index);
      columns.compute_ns.push_back(moment.compute_ns);
      columns.untracked_bytes.push_back(moment.untracked_bytes);
    }
    return columns;
  }

  static std::vector<Moment> join(const Columns& columns, const JsonPath& path,
                                  const JsonSource& source) {
    const std::size_t count = columns.kind.size();
    const auto same = [&](const char* name, std::size_t found) {
      if (found == count) return;
      refuse(source, JsonPath(path, name),
             "as many as in kind wanted: " + std::to_string(count) + ", found " +
                 std::to_string(found));
    };
    same("index", columns.index.size());
    same("compute_ns", columns.compute_ns.size());
    same("untracked_bytes", columns.untracked_bytes.size());
    check_indices(columns.kind, columns.kinds.size(), "kind", JsonPath(path, "kind"), source);
    std::vector<Moment> moments;
    for (std::size_t i = 0; i < count; ++i) {
      moments.push_back({columns.kinds[static_cast<std::size_t>(columns.kind[i])], columns.index[i],
                         columns.compute_ns[i], columns.untracked_bytes[i]});
    }
    return moments;
  }
};

template <typename Fields, MaybeConst<ChunkProfile> Value>
void describe(Fields& fields, Value& chunk) {
  fields("chunk", chunk.chunk);
  fields("first_layer", chunk.first_layer);
  fields("layers", chunk.layers);
  fields("forward_ns", chunk.forward_ns);
  fields("backward_ns", chunk.backward_ns);
  fields("theoretical_peak", chunk.theoretical_peak);
  fields("measured_peak", chunk.measured_peak);
  fields("operators", chunk.operators);
  fields("values", chunk.values);
  fields("buffers", chunk.buffers);
  fields("sites", chunk.sites);
  fields("calls_before_first_save", chunk.calls_before_first_save);
  fields("unpack_order", chunk.unpack_order);
  fields("timeline", chunk.timeline);
  fields("later_untracked_bytes", chunk.later_untracked_bytes);
}

template <typename Fields, MaybeConst<LinkSpeed> Value>
void describe(Fields& fields, Value& link) {
  fields("out", link.out);
  fields("back", link.back);
  fields("out_with_back", link.out_with_back);
  fields("back_with_out", link.back_with_out);
  fields("slows_out", link.slows_out);
  fields("slows_back", link.slows_back);
}

template <typename Fields, MaybeConst<Profile> Value>
void describe(Fields& fields, Value& profile) {
  fields("device", profile.device);
  fields("link", profile.link);
  fields("layers", profile.layers);
  fields("layer_scope", profile.layer_scope);
  fields("pipeline_rank", profile.pipeline_rank);
  fields("fixed", profile.fixed);
  fields("granularity", profile.granularity);
  fields("chunks", profile.chunks);
}

std::string to_json(const Profile& profile) {
  const LinkSpeed& link = profile.link;
  for (const double speed : {link.out, link.back, link.out_with_back, link.back_with_out,
                             link.slows_out.value_or(0), link.slows_back.value_or(0)}) {
    if (!std::isfinite(speed)) {
      throw InvalidArgument("profile",
                            "a link speed is not a finite number; measure the link again");
    }
  }
  return write_document(profile, kProfileSchema);
}

Profile profile_from_json(std::string_view text, std::string_view file_name) {
  const JsonSource source{"profile", file_name};
  // The schema before had no signatures.
  auto profile = read_document<Profile>(text, source, kProfileSchema, "spillway.profile/4");
  check_profile(profile, source);
  return profile;
}

}  // namespace spillway
