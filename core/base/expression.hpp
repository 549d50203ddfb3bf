// Searches lines and names for users' regular expressions, in linear time: no expression has
// exponential cases.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

namespace re2 {
class RE2;
}

namespace sparfuse {

// An expression in RE2's syntax (Perl's, bytes as characters): without back references, look-ahead
// and look-behind. Copies share the compiled expression; threads may search at once.
class Expression {
 public:
  // Throws Error{kConfig} with `what` (the place of the expression and its text) and RE2's reason.
  Expression(std::string_view expression, std::string_view what);

  bool FoundIn(std::string_view text) const;
  // Sets `groups` to the texts of the first match and its groups; a group that did not match has no
  // data. Slower than FoundIn.
  bool Find(std::string_view text, std::vector<std::string_view>& groups) const;

 private:
  std::shared_ptr<const re2::RE2> compiled_;
};

}  // namespace sparfuse
