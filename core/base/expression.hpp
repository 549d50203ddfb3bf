// Finds regular expressions of users in lines and names, in time in proportion to these: no
// expression has exponential cases.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace re2 {
class RE2;
}

namespace sparfuse {

// An expression as RE2 reads it (Perl's, bytes as characters): without back references and without
// looking ahead or behind. Copies share what was compiled; threads may search at once.
class Expression {
 public:
  // Throws Error{kConfig}: `what` (where it stands and what it says), then what is wrong with it.
  Expression(std::string_view expression, std::string_view what);

  bool FoundIn(std::string_view text) const;
  // Sets `groups` to what the first match and its groups have; without data where a group has
  // nothing. Takes longer than FoundIn.
  bool Find(std::string_view text, std::vector<std::string_view>& groups) const;

 private:
  std::shared_ptr<const re2::RE2> compiled_;
};

}  // namespace sparfuse
