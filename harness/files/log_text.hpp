// Decodes text of other programs, and takes off the labels that launchers put before the lines of a
// log.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

// `text` without white space around it.
std::string_view Trimmed(std::string_view text);

// `bytes` as UTF-8 with lines that end by '\n'. A byte-order mark is removed, and "\r\n" and the
// carriage returns of progress bars become '\n'. encoding: "" and "utf-8" take UTF-8, and UTF-16 if
// it has a mark; "latin-1" makes each byte a character, also the characters of Windows; "any" takes
// bytes unchanged. Throws Error{kConfig} naming file, line and byte of text that is not UTF-8 or of
// a NUL, and for other encodings.
std::string DecodedText(std::string_view bytes, const std::string& name,
                        const std::string& encoding = "");

// DecodedText of a program's output: without colours and moves of the cursor, and with a line for
// each state of a progress bar that goes back by backspaces.
std::string DecodedLog(std::string_view bytes, const std::string& name,
                       const std::string& encoding = "");

struct LogLine {
  int number = 0;          // from 1
  std::string_view text;   // without the removed text, and white space around it
  std::string_view whole;  // without white space around it
};

struct LogText {
  std::vector<LogLine> lines;      // without empty ones
  std::vector<std::string> notes;  // removed text: "labels of srun (\"0: \") before 12 lines"
};

// The lines of a decoded log. A label or a time stamp is taken off where most lines begin by one
// of its form; mpirun's and horovodrun's "[1,0]<stdout>:", which nothing else prints, everywhere.
LogText LinesOfLog(std::string_view text);

// `text` for files that have to be UTF-8: bytes that are none as "\xE9", as a file's name may have.
std::string AsUtf8(std::string_view text);

// `text` with spaces for the spaces of typesetters, as U+00A0 and U+202F. count: gets how many.
std::string WithPlainSpaces(std::string_view text, std::size_t* count = nullptr);

// The first characters of `text` beyond ASCII that look like others: "U+2011 (a hyphen) at
// character 7"; "" if there are none.
std::string OddCharacters(std::string_view text);

}  // namespace sparfuse::harness
