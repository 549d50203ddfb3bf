// Tests the stream of JSON events against nlohmann's parser, for any cut of the text into pieces.
#include "harness/traces/reading/json_scanner.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Gives a text in pieces of `size` bytes.
class Pieces {
 public:
  Pieces(std::string_view text, std::size_t size) : text_(text), size_(size) {}
  std::string_view Next() {
    const std::string_view piece = text_.substr(0, size_);
    text_.remove_prefix(piece.size());
    return piece;
  }

 private:
  std::string_view text_;
  std::size_t size_;
};

struct Broken : std::runtime_error {
  Broken(std::size_t at, std::string_view what) : runtime_error(std::string(what)), byte(at) {}
  std::size_t byte;
};

// Builds a tree from the events, with numbers by nlohmann's own rule.
class Tree {
 public:
  json root;
  bool beyond = false;  // a number is larger than a double's; the other parser refuses it

  void Key(std::string& value) { key_ = value; }
  void String(std::string& value) { Add(value); }
  void Number(std::string_view text, bool whole) {
    EXPECT_EQ(whole, text.find_first_of(".eE") == text.npos) << text;
    try {
      Add(json::parse(text));
    } catch (const json::out_of_range&) {
      beyond = true;
      Add(nullptr);
    }
  }
  void Literal(std::string_view text) { Add(json::parse(text)); }
  void Open(bool object) { open_.push_back(Add(object ? json::object() : json::array())); }
  void Close(bool object) {
    EXPECT_EQ(open_.back()->is_object(), object);
    open_.pop_back();
  }
  [[noreturn]] void ParseError(std::size_t byte, std::string_view near) {
    throw Broken(byte, near);
  }

 private:
  json* Add(json value) {
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    json& into = *open_.back();
    if (into.is_object()) return &(into[key_] = std::move(value));
    into.push_back(std::move(value));
    return &into.back();
  }

  std::vector<json*> open_;
  std::string key_;
};

Tree TreeOf(std::string_view text, std::size_t piece) {
  Pieces pieces(text, piece);
  Tree tree;
  JsonScanner<Pieces, Tree>(pieces, tree).Read();
  return tree;
}

json Scanned(std::string_view text, std::size_t piece = 1 << 20) {
  return TreeOf(text, piece).root;
}

constexpr const char* kTexts[] = {
    R"({"a": [1, -2, 0, 1.5, -0.25e-3, 1E9], "b": {"c": null, "d": [true, false, []], "": {}}})",
    R"([{"ts": 1719263481123456.789, "dur": 0, "args": {"Input Dims": [[64, 3], [], [[]]]}}])",
    R"("\u0041\u00e9\u20ac\ud83d\ude00 \" \\ \/ \b\f\n\r\t")",
    "\" \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \x7F\"",
    " \t\r\n[ 18446744073709551615 , 123456789012345678901234567890 ] \n",
    "\xEF\xBB\xBF[0]",
    "-7",
    "{}",
    "[[[[[[[[]]]]]]]]"};

TEST(JsonScanner, GivesTheTreeOfAnotherParserForAnyPieces) {
  for (const std::string text : kTexts) {
    for (std::size_t piece = 1; piece <= text.size(); ++piece)
      EXPECT_EQ(Scanned(text, piece), json::parse(text)) << text << " in pieces of " << piece;
  }
}

TEST(JsonScanner, NamesTheByteThatIsWrong) {
  const std::pair<const char*, std::size_t> kBroken[] = {{"", 1},
                                                         {"[1,]", 4},
                                                         {"[1 2]", 4},
                                                         {"{\"a\" 1}", 6},
                                                         {"{\"a\":1,}", 8},
                                                         {"[01]", 3},
                                                         {"[1.]", 4},
                                                         {"[-]", 3},
                                                         {"[1e]", 4},
                                                         {"[tru]", 5},
                                                         {"[\"\n\"]", 3},
                                                         {"[\"\\x\"]", 4},
                                                         {"\"\\ud800\"", 8},
                                                         {"{1:2}", 2},
                                                         {"[1}", 3},
                                                         {"[\"abc", 6},
                                                         {"{} {}", 4},
                                                         {"\"\xC0\x80\"", 2},
                                                         {"\"\xED\xA0\x80\"", 3},
                                                         {"[NaN]", 2}};
  for (const auto& [text, byte] : kBroken) {
    EXPECT_FALSE(json::accept(text)) << text;
    try {
      Scanned(text);
      ADD_FAILURE() << text << " is no JSON";
    } catch (const Broken& error) {
      EXPECT_EQ(error.byte, byte) << text;
    }
  }
}

// One to three bytes of a text are replaced, removed or doubled: both parsers take it as the same,
// or neither takes it.
TEST(JsonScanner, TakesWhatAnotherParserTakes) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  constexpr std::string_view kBytes = "{}[]\",:\\u0e1-+.tn \xC3\xA9\xED\x01";
  int taken = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = kTexts[below(std::size(kTexts))];
    for (std::size_t edits = 1 + below(3); edits > 0 && !text.empty(); --edits) {
      const std::size_t at = below(text.size());
      const std::size_t how = below(3);
      if (how == 0) text[at] = kBytes[below(kBytes.size())];
      if (how == 1) text.erase(at, 1);
      if (how == 2) text.insert(at, 1, text[at]);
    }
    if (json::accept(text)) {
      ++taken;
      EXPECT_EQ(Scanned(text, 1 + below(9)), json::parse(text)) << text;
    } else {
      ++refused;
      try {
        EXPECT_TRUE(TreeOf(text, 1 + below(9)).beyond) << text;
      } catch (const Broken&) {
      }
    }
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace sparfuse::harness
