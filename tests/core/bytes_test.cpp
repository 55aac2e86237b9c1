#include "spillway/core/bytes.hpp"

#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::error_text;

struct Accepted {
  const char* text;
  std::uint64_t count;
};

TEST(BytesText, IsReadInEveryUnit) {
  for (const Accepted& each : {Accepted{"0", 0},
                               {"4096", 4096},
                               {"7 B", 7},
                               {"8 GiB", 8ULL << 30U},
                               {"1.5GB", 1'500'000'000},
                               {"512 MiB", 512ULL << 20U},
                               {"2kib", 2048},
                               {"3 kB", 3000},
                               {"1 MB", 1'000'000},
                               {"0.5 TiB", 1ULL << 39U},
                               {"2TB", 2'000'000'000'000},
                               {" 1\tKiB ", 1024},
                               {"0.1 KiB", 102},
                               {"1.000001 GiB", 1'073'742'897},
                               {"256 TiB", kMostBytes.count()}}) {
    EXPECT_EQ(parse_bytes(each.text).count(), each.count) << each.text;
  }
}

struct Refused {
  const char* text;
  const char* reason;
};

TEST(BytesText, SaysWhatIsWrongAndWhere) {
  for (const Refused& each : {Refused{"", "there is no number at character 1"},
                              {"   ", "there is no number at character 4"},
                              {"lots", "a number was expected at character 1"},
                              {"-1 GiB", "a size cannot be negative at character 1"},
                              {"8 GiX", "unknown unit \"GiX\" at character 3"},
                              {"8 G", "unknown unit \"G\" at character 3"},
                              {"1. GB", "digits were expected after the point at character 3"},
                              {"1.1234567 GB", "more than six decimals at character 9"},
                              {"8 GiB!", "unexpected \"!\" at character 6"},
                              {"8 GiB 2", "unexpected \"2\" at character 7"},
                              {"1,5 GB", "unexpected \",\" at character 2"},
                              {"18446744073709551616", "more than 256 TiB at character 1"},
                              {"281474976710657", "more than 256 TiB at character 1"},
                              {"256.000001 TiB", "more than 256 TiB at character 1"},
                              {"17000000 TiB", "more than 256 TiB at character 1"}}) {
    EXPECT_EQ(error_text<InvalidArgument>([&] { (void)parse_bytes(each.text); }),
              std::string("[bytes] cannot read \"") + each.text + "\" as a size: " + each.reason +
                  "; write a number and a unit, such as \"8 GiB\", \"1.5 GB\", \"512 MiB\" or "
                  "\"0\"");
  }
}

TEST(BytesText, IsWrittenForPeople) {
  EXPECT_EQ(to_string(0_B), "0 B");
  EXPECT_EQ(to_string(1023_B), "1023 B");
  EXPECT_EQ(to_string(1_KiB), "1.0 KiB");
  EXPECT_EQ(to_string(Bytes(1536)), "1.5 KiB");
  EXPECT_EQ(to_string(Bytes((1ULL << 20U) - 1)), "1.0 MiB");
  EXPECT_EQ(to_string(8_GiB), "8.0 GiB");
  EXPECT_EQ(to_string(Bytes(26'199'300'506)), "24.4 GiB");
  EXPECT_EQ(to_string(8192_GiB), "8.0 TiB");
}

TEST(Bytes, RoundUpToAStep) {
  EXPECT_EQ(round_up(0_B, 512_B), 0_B);
  EXPECT_EQ(round_up(1_B, 512_B), 512_B);
  EXPECT_EQ(round_up(512_B, 512_B), 512_B);
  EXPECT_EQ(round_up(513_B, 512_B), 1024_B);
}

}  // namespace
}  // namespace spillway
