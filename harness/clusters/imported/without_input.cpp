#include "harness/clusters/imported/without_input.hpp"

#include <algorithm>
#include <string_view>

namespace sparfuse::harness {
namespace {

// Follows a value over several lines.
class ValueScanner {
 public:
  // Whether the value continues in the next line.
  bool GoesOn(std::string_view line) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string_view rest = line.substr(i);
      if (!quotes_.empty()) {
        if (quotes_.front() == '"' && rest.front() == '\\') {
          ++i;
        } else if (rest.starts_with(quotes_)) {
          i += quotes_.size() - 1;
          quotes_ = {};
        }
      } else if (rest.front() == '#') {
        break;
      } else if (rest.starts_with("\"\"\"") || rest.starts_with("'''")) {
        quotes_ = rest.substr(0, 3) == "'''" ? "'''" : "\"\"\"";
        i += 2;
      } else if (rest.front() == '"' || rest.front() == '\'') {
        quotes_ = rest.front() == '"' ? "\"" : "'";
      } else if (rest.front() == '[' || rest.front() == '{') {
        ++depth_;
      } else if (rest.front() == ']' || rest.front() == '}') {
        --depth_;
      }
    }
    if (quotes_.size() == 1) quotes_ = {};  // a single-line text ends with its line
    return depth_ > 0 || !quotes_.empty();
  }

 private:
  int depth_ = 0;
  std::string_view quotes_;  // the quotes that end the open text
};

// A key, or the head of a table, without spaces and quotes.
std::string Bare(std::string_view text) {
  std::string bare;
  for (const char c : text) {
    if (c != ' ' && c != '\t' && c != '"' && c != '\'' && c != '\r') bare += c;
  }
  return bare;
}

}  // namespace

std::string WithoutInput(const std::string& text, const std::string& name) {
  const std::string wanted = "input." + name;
  const auto is_wanted = [&](const std::string& key) {
    return key == wanted || key.starts_with(wanted + ".");
  };
  std::string made, table;
  bool goes_on = false, taken = false;
  ValueScanner value;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string line = text.substr(begin, end - begin);
    begin = end;
    if (!goes_on) {
      const std::string bare = Bare(line.substr(0, line.find('#')));
      const std::size_t equals = line.find('=');
      value = {};
      if (bare.starts_with("[") && !bare.starts_with("[[")) {
        table = bare.substr(1, bare.find(']') - 1);
        taken = is_wanted(table);
      } else if (bare.starts_with("[[")) {
        table = bare;
        taken = false;
      } else if (bare.find('=') != std::string::npos) {
        const std::string key = Bare(line.substr(0, equals));
        taken = is_wanted(table) || is_wanted(table.empty() ? key : table + "." + key);
        goes_on = value.GoesOn(std::string_view(line).substr(equals + 1));
      } else {
        taken = false;  // a comment or an empty line
      }
    } else {
      goes_on = value.GoesOn(line);
    }
    made += taken ? "# " + line : line;
  }
  return made;
}

}  // namespace sparfuse::harness
