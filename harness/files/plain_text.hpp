// Tells plain text, and times, from characters that command a terminal or turn a page's lines
// round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sparfuse::harness {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: the text here is not UTF-8
};

// Precondition: `text` is not empty.
Character FirstCharacter(std::string_view text);

// Whether names of hosts, users and files have the character: a letter, a digit, '-', '_' or '.'.
bool IsOfName(char c);

// Whether a plain text may contain the character.
bool IsPlain(std::uint32_t code);

// Whether a text is plain. A plain text is UTF-8. It has no control characters except tabs and ends
// of lines, no characters that change the direction of writing, and no separators that only some
// programs take for an end of line.
bool IsPlainText(std::string_view text);

// The text with each character that is not plain written out: "\u202e", "\x9b". For printing text
// that others may have written.
std::string Visible(std::string_view text);

// Whether a text is a time as UtcNow (harness/files/durable_file.hpp) writes it, of a day that
// there is; fractions of a second may be left out.
bool IsUtcTime(std::string_view text);

}  // namespace sparfuse::harness
