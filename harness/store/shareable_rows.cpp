#include "harness/store/shareable_rows.hpp"

#include <map>
#include <utility>

#include "harness/records/private_facts.hpp"
#include "harness/store/scrubber.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

PrivateNames NamesKnownTo(const std::vector<TrialRow>& rows, const std::filesystem::path& results) {
  PrivateNames names = PrivateNames::OfThisMachine();
  for (const TrialRow& row : rows) names.Add(ReadPrivateFacts(results / row.directory));
  return names;
}

// Scrubs a value that many trials share once.
class SharedScrubber {
 public:
  explicit SharedScrubber(PrivateNames names) : scrubber_(std::move(names)) {}

  const TextScrubber& texts() const { return scrubber_; }

  template <class Scrub>
  void Replace(StoredJson& value, const Scrub& scrub) {
    const auto [entry, is_new] = scrubbed_.try_emplace(value.Text().data(), value);
    if (is_new) {
      json leaves = scrub(value.Value(), scrubber_);
      if (leaves != value.Value()) entry->second.shown = StoredJson(std::move(leaves));
    }
    value = entry->second.shown;
  }

 private:
  struct Scrubbed {
    explicit Scrubbed(const StoredJson& value) : original(value), shown(value) {}
    StoredJson original;  // keeps its text, by whose place it is found, where it is
    StoredJson shown;
  };

  const TextScrubber scrubber_;
  std::map<const char*, Scrubbed> scrubbed_;
};

json ScrubbedTexts(json value, const TextScrubber& scrubber) {
  Form<json>::Scrub(value, Leaves::kCitation, scrubber);
  return value;
}

}  // namespace

void MakeShareable(std::vector<TrialRow>& rows, const std::filesystem::path& results) {
  SharedScrubber scrubber(NamesKnownTo(rows, results));
  for (TrialRow& row : rows) {
    scrubber.Replace(row.config, ScrubbedConfig);
    for (StoredJson* value : {&row.system, &row.provenance, &row.quiet})
      scrubber.Replace(*value, ScrubbedTexts);
    for (std::string& reason : row.annotations)
      reason = scrubber.texts().Scrubbed(reason, Leaves::kWords);
  }
}

}  // namespace sparfuse::harness
