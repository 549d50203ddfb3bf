#include "harness/store/stored_json.hpp"

#include <mutex>
#include <unordered_set>

#include "harness/files/canonical.hpp"

namespace sparfuse::harness {

StoredJson::StoredJson(nlohmann::json value) : shared_(std::make_shared<Shared>()) {
  shared_->value = std::move(value);
}

StoredJson StoredJson::OfText(std::string text) {
  StoredJson stored;
  stored.shared_ = std::make_shared<Shared>();
  stored.shared_->text = std::move(text);
  return stored;
}

const nlohmann::json& StoredJson::Value() const {
  static const nlohmann::json null;
  if (!shared_) return null;
  if (!shared_->value) shared_->value = nlohmann::json::parse(shared_->text);
  return *shared_->value;
}

std::string_view StoredJson::Text() const {
  if (!shared_) return "null";
  if (shared_->text.empty()) shared_->text = CanonicalJson(*shared_->value);
  return shared_->text;
}

nlohmann::json& StoredJson::operator[](const std::string& key) {
  *this = StoredJson(nlohmann::json(Value()));
  return (*shared_->value)[key];
}

std::string_view Interned(std::string_view name) {
  static std::mutex mutex;
  static std::unordered_set<std::string> names;  // whose elements stay where they are
  thread_local std::unordered_set<std::string_view> known;
  if (const auto found = known.find(name); found != known.end()) return *found;
  const std::lock_guard lock(mutex);
  return *known.insert(*names.emplace(name).first).first;
}

}  // namespace sparfuse::harness
