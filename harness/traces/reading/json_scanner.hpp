// Reads JSON (RFC 8259) of any size as a stream of events, several times faster than a parser that
// takes a character at a time: profiles of gigabytes consist of strings and numbers, which are
// taken in runs. A number stays text; its reader knows whether it needs it as one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sparfuse::harness {

// A source has `std::string_view Next()`, "" at the end. A handler has
//   void Key(std::string&), String(std::string&): may take the text;
//   void Number(std::string_view text, bool whole): whole without a fraction or an exponent;
//   void Literal(std::string_view): "null", "true" or "false";
//   void Open(bool object), Close(bool object);
//   void ParseError(std::size_t byte, std::string_view near): must throw; the byte counts from 1.
template <class Source, class Handler>
class JsonScanner {
 public:
  JsonScanner(Source& source, Handler& handler) : source_(source), handler_(handler) {}

  // Reads one value and white space up to the end. A byte order mark at the begin is skipped.
  void Read() {
    if (Peek() == 0xEF) {
      for (const int mark : {0xEF, 0xBB, 0xBF}) {
        if (Peek() != mark) Fail();
        Take();
      }
    }
    bool wants_value = true;
    while (true) {
      if (wants_value) {
        // An opened list or object that is not empty needs its first value.
        if (Value()) continue;
      }
      wants_value = AfterValue();
      if (open_.empty() && !wants_value) return;
    }
  }

 private:
  static constexpr int kEnd = -1;

  int Peek() {
    if (at_ == end_ && !Fill()) return kEnd;
    return static_cast<unsigned char>(*at_);
  }
  void Take() { ++at_; }
  bool Fill() {
    done_ += static_cast<std::size_t>(end_ - begin_);
    const std::string_view piece = source_.Next();
    begin_ = at_ = piece.data();
    end_ = begin_ + piece.size();
    return !piece.empty();
  }
  int PeekToken() {
    while (true) {
      const int c = Peek();
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
      Take();
    }
  }
  // The byte at hand is wrong, or the end is.
  [[noreturn]] void Fail() {
    if (Peek() != kEnd && static_cast<unsigned char>(*at_) >= ' ') token_ += *at_;
    handler_.ParseError(done_ + static_cast<std::size_t>(at_ - begin_) + 1, token_);
    __builtin_unreachable();
  }

  // Reads a value, or the begin of one that is not empty: then true.
  bool Value() {
    const int c = PeekToken();
    token_.clear();
    if (c == '{' || c == '[') {
      const bool object = c == '{';
      Take();
      handler_.Open(object);
      open_.push_back(object);
      const int next = PeekToken();
      if (next == (object ? '}' : ']')) {
        Take();
        open_.pop_back();
        handler_.Close(object);
        return false;
      }
      if (object) ReadKey();
      return true;
    }
    if (c == '"') {
      ReadString();
      handler_.String(token_);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      ReadNumber();
    } else if (c == 'n') {
      ReadLiteral("null");
    } else if (c == 't') {
      ReadLiteral("true");
    } else if (c == 'f') {
      ReadLiteral("false");
    } else {
      Fail();
    }
    return false;
  }

  // Reads what follows a value: false after the end of a list or object, or of the text.
  bool AfterValue() {
    const int c = PeekToken();
    token_.clear();
    if (open_.empty()) {
      if (c != kEnd) Fail();
      return false;
    }
    const bool object = open_.back() != 0;
    if (c == ',') {
      Take();
      if (object) {
        PeekToken();
        ReadKey();
      }
      return true;
    }
    if (c != (object ? '}' : ']')) Fail();
    Take();
    open_.pop_back();
    handler_.Close(object);
    if (open_.empty() && PeekToken() != kEnd) Fail();
    return false;
  }

  void ReadKey() {
    token_.clear();
    if (Peek() != '"') Fail();
    ReadString();
    handler_.Key(token_);
    token_.clear();
    if (PeekToken() != ':') Fail();
    Take();
  }

  void ReadLiteral(std::string_view text) {
    for (const char c : text) {
      if (Peek() != c) Fail();
      token_ += c;
      Take();
    }
    handler_.Literal(text);
  }

  bool TakeDigits() {
    bool any = false;
    for (int c = Peek(); c >= '0' && c <= '9'; c = Peek()) {
      token_ += static_cast<char>(c);
      Take();
      any = true;
    }
    return any;
  }
  bool TakeOne(char a, char b) {
    const int c = Peek();
    if (c != a && c != b) return false;
    token_ += static_cast<char>(c);
    Take();
    return true;
  }
  void ReadNumber() {
    bool whole = true;
    TakeOne('-', '-');
    if (!TakeOne('0', '0') && !TakeDigits()) Fail();
    if (TakeOne('.', '.')) {
      whole = false;
      if (!TakeDigits()) Fail();
    }
    if (TakeOne('e', 'E')) {
      whole = false;
      TakeOne('+', '-');
      if (!TakeDigits()) Fail();
    }
    handler_.Number(token_, whole);
  }

  // Bytes that stand for themselves in a string: all ASCII but controls, quotes and backslashes.
  static constexpr std::array<bool, 256> kPlain = [] {
    std::array<bool, 256> plain{};
    for (std::size_t c = ' '; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
    return plain;
  }();

  // Into token_, without its quotes.
  void ReadString() {
    Take();
    while (true) {
      const char* run = at_;
      while (run != end_ && kPlain[static_cast<unsigned char>(*run)]) ++run;
      token_.append(at_, run);
      at_ = run;
      if (at_ == end_) {
        if (!Fill()) Fail();
        continue;
      }
      const auto c = static_cast<unsigned char>(*at_);
      if (c == '"') {
        Take();
        return;
      }
      if (c == '\\')
        ReadEscape();
      else if (c >= 0x80)
        ReadRune(c);
      else
        Fail();
    }
  }

  void ReadEscape() {
    Take();
    const int c = Peek();
    constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    if (c == 'u') {
      Take();
      AppendUnicode();
      return;
    }
    const std::size_t at = c == kEnd ? kNames.npos : kNames.find(static_cast<char>(c));
    if (at == kNames.npos) Fail();
    Take();
    token_ += kValues[at];
  }

  std::uint32_t ReadHex() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const int c = Peek();
      if (c >= '0' && c <= '9')
        value = 16 * value + static_cast<std::uint32_t>(c - '0');
      else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f' && c != kEnd)
        value = 16 * value + static_cast<std::uint32_t>((c | 0x20) - 'a' + 10);
      else
        Fail();
      Take();
    }
    return value;
  }
  void AppendUnicode() {
    std::uint32_t rune = ReadHex();
    if (rune >= 0xDC00 && rune <= 0xDFFF) Fail();
    if (rune >= 0xD800 && rune <= 0xDBFF) {  // the first of a pair
      for (const int c : {'\\', 'u'}) {
        if (Peek() != c) Fail();
        Take();
      }
      const std::uint32_t second = ReadHex();
      if (second < 0xDC00 || second > 0xDFFF) Fail();
      rune = 0x10000 + ((rune - 0xD800) << 10) + (second - 0xDC00);
    }
    const auto add = [&](std::uint32_t byte) { token_ += static_cast<char>(byte); };
    if (rune < 0x80) {
      add(rune);
      return;
    }
    if (rune < 0x800) {
      add(0xC0 | rune >> 6);
    } else {
      if (rune < 0x10000) {
        add(0xE0 | rune >> 12);
      } else {
        add(0xF0 | rune >> 18);
        add(0x80 | (rune >> 12 & 0x3F));
      }
      add(0x80 | (rune >> 6 & 0x3F));
    }
    add(0x80 | (rune & 0x3F));
  }

  // One character of UTF-8 (Unicode, table 3-7): no overlong form, no surrogate.
  void ReadRune(unsigned char first) {
    int more = 0, low = 0x80, high = 0xBF;
    if (first >= 0xC2 && first <= 0xDF) {
      more = 1;
    } else if (first >= 0xE0 && first <= 0xEF) {
      more = 2;
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
    } else if (first >= 0xF0 && first <= 0xF4) {
      more = 3;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    } else {
      Fail();
    }
    token_ += static_cast<char>(first);
    Take();
    for (; more > 0; --more) {
      const int c = Peek();
      if (c < low || c > high) Fail();
      token_ += static_cast<char>(c);
      Take();
      low = 0x80;
      high = 0xBF;
    }
  }

  Source& source_;
  Handler& handler_;
  std::string token_;
  std::string open_;  // 1: an object, 0: a list
  const char *begin_ = nullptr, *at_ = nullptr, *end_ = nullptr;
  std::size_t done_ = 0;  // bytes before this piece
};

}  // namespace sparfuse::harness
