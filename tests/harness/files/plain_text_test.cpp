// Tests which text is plain, and how other bytes are written out.
#include "harness/files/plain_text.hpp"

#include <gtest/gtest.h>

#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

TEST(PlainText, IsWhatNeitherCommandsNorTurnsLinesRound) {
  for (const char* plain : {"", "a line\n\tof text", "µ, 3×, naïve, 北京, 😀", "<textarea>"}) {
    EXPECT_TRUE(IsPlainText(plain)) << plain;
    EXPECT_EQ(Visible(plain), plain);
  }
  EXPECT_TRUE(IsPlainText(std::string_view("\xe2\x80\xa7", 3)));  // U+2027, just before
}

TEST(PlainText, WritesTheRestOut) {
  for (const auto& [text, visible] : {std::pair("\x1b]0;x\x07", "\\u001b]0;x\\u0007"),
                                      {"a\xe2\x80\xae b", "a\\u202e b"},
                                      {"\xc2\x9b"
                                       "31m",
                                       "\\u009b31m"},
                                      {"two\rlines", "two\\u000dlines"},
                                      {"\x7f", "\\u007f"},
                                      {"\xef\xbb\xbfx", "\\ufeffx"},
                                      {"\xe2\x81\xa6", "\\u2066"},
                                      {"\xe2\x80\xa8", "\\u2028"},
                                      {"\x9b", "\\x9b"},
                                      {"\xc2", "\\xc2"},
                                      {"\xed\xa0\x80", "\\xed\\xa0\\x80"}}) {
    EXPECT_FALSE(IsPlainText(text)) << visible;
    EXPECT_EQ(Visible(text), visible);
    EXPECT_TRUE(IsPlainText(Visible(text)));
  }
  EXPECT_EQ(Visible(std::string_view("a\0b", 3)), "a\\u0000b");
}

TEST(UtcTime, IsOfADayThatThereIs) {
  EXPECT_TRUE(IsUtcTime(UtcNow()));
  for (const char* good : {"2026-01-31T12:34:56.789Z", "2024-02-29T00:00:00Z",
                           "2016-12-31T23:59:60Z", "2026-01-01T00:00:00.123456789Z"})
    EXPECT_TRUE(IsUtcTime(good)) << good;
  for (const char* bad :
       {"", "Z", "9999-99-99T99:99:99Z", "2026-02-29T00:00:00Z", "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00", "<textarea>",
        "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00.1234567890Z", "2026-1-01T00:00:000Z",
        "2026-01-01T00:00:00+01Z", "-026-01-01T00:00:00Z", "2026-01-01T00:00:00ZZ"})
    EXPECT_FALSE(IsUtcTime(bad)) << bad;
}

}  // namespace
}  // namespace sparfuse::harness
