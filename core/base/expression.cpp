#include "core/base/expression.hpp"

#include <re2/re2.h>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

re2::RE2::Options OptionsOfPatterns() {
  re2::RE2::Options options(re2::RE2::CannedOptions::Latin1);
  options.set_log_errors(false);
  return options;
}

// Names the feature of backtracking libraries that RE2 lacks.
std::string Missing(const re2::RE2& compiled) {
  const std::string& wrong = compiled.error_arg();
  if (compiled.error_code() == re2::RE2::ErrorBadPerlOp) {
    if (wrong.starts_with("(?=") || wrong.starts_with("(?!") || wrong.starts_with("(?<"))
      return " (looking ahead or behind is not supported)";
  }
  const bool digit = wrong.size() == 2 && wrong[0] == '\\' && wrong[1] >= '1' && wrong[1] <= '9';
  return digit ? " (back references are not supported)" : "";
}

}  // namespace

Expression::Expression(std::string_view expression, std::string_view what)
    : compiled_(std::make_shared<const re2::RE2>(
          re2::StringPiece(expression.data(), expression.size()), OptionsOfPatterns())) {
  if (compiled_->ok()) return;
  SPARFUSE_THROW(kConfig, what,
                 ": expected a regular expression as RE2 reads it: ", compiled_->error(),
                 Missing(*compiled_));
}

bool Expression::FoundIn(std::string_view text) const {
  return re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), *compiled_);
}

bool Expression::Find(std::string_view text, std::vector<std::string_view>& groups) const {
  const re2::StringPiece searched(text.data(), text.size());
  std::vector<re2::StringPiece> found(1 + compiled_->NumberOfCapturingGroups());
  if (!compiled_->Match(searched, 0, text.size(), re2::RE2::UNANCHORED, found.data(),
                        static_cast<int>(found.size()))) {
    return false;
  }
  groups.resize(found.size());
  for (std::size_t g = 0; g < found.size(); ++g) groups[g] = {found[g].data(), found[g].size()};
  return true;
}

}  // namespace sparfuse
