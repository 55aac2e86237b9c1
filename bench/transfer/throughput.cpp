#include <array>
#include <string>

#include "devices/link_test.hpp"
#include "measures.hpp"

namespace spillway::bench {
namespace {

constexpr Bytes kJudgedFrom{1ULL << 20U};
constexpr double kWantedShare = 97;

struct Mode {
  const char* id;
  const char* text;
  Nanoseconds app::LinkTimes::*time;
};

constexpr std::array<Mode, 3> kModes = {{{"out", "out", &app::LinkTimes::out},
                                         {"back", "back", &app::LinkTimes::back},
                                         {"both", "both at once", &app::LinkTimes::both}}};

struct Pair {
  app::LinkTimes bare;
  app::LinkTimes engine;
};

Figure figure_of(const Mode& mode, const app::LinkRound& round, const std::vector<Pair>& pairs,
                 const Settings& settings) {
  std::vector<double> bare;
  std::vector<double> engine;
  std::vector<double> share;
  for (const Pair& pair : pairs) {
    bare.push_back(app::gigabytes_per_second(round.total(), pair.bare.*mode.time));
    engine.push_back(app::gigabytes_per_second(round.total(), pair.engine.*mode.time));
    share.push_back(100 * engine.back() / bare.back());
  }
  Figure figure;
  figure.id = "throughput." + std::string(mode.id) + "." + std::to_string(round.block.count());
  figure.found = {"engine / bare copies, " + std::string(mode.text) + ", " + to_string(round.block),
                  "%", 1, app::spread_of(share)};
  if (round.block >= kJudgedFrom) {
    figure.wanted = Wanted{Wanted::Kind::kAtLeast, kWantedShare, settings.judge_device};
  }
  figure.beside = {{"bare copies", "GB/s", 2, app::spread_of(bare)},
                   {"engine", "GB/s", 2, app::spread_of(engine)}};
  return figure;
}

}  // namespace

std::vector<Figure> measure_throughput(Device& device, const Settings& settings) {
  const std::uint64_t most_blocks = settings.quick ? 256 : 4096;
  app::LinkTest test(device, settings.area);
  std::vector<Figure> figures;
  for (const Bytes size : settings.sizes) {
    std::vector<Pair> pairs;
    // Both take turns, so that drift affects both. Turn 0 warms up.
    for (int turn = 0; turn <= settings.repeats; ++turn) {
      const app::LinkRound round =
          app::make_round(settings.area, size, most_blocks, static_cast<std::uint64_t>(turn));
      const app::LinkTimes bare = test.bare(round);
      const app::LinkTimes engine = test.engine(round);
      if (turn > 0) pairs.push_back({bare, engine});
    }
    const app::LinkRound round = app::make_round(settings.area, size, most_blocks, 0);
    for (const Mode& mode : kModes) figures.push_back(figure_of(mode, round, pairs, settings));
  }
  return figures;
}

}  // namespace spillway::bench
