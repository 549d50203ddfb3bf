#include "harness/files/canonical.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/base/error.hpp"
#include "workloads/data/data_file.hpp"

namespace sparfuse::harness {
namespace {

void AppendNumber(double value, std::string& out) {
  if (!std::isfinite(value))
    SPARFUSE_THROW(kInternal, "a number without canonical form: not finite");
  if (value == 0) value = 0;  // drops the sign of a negative zero
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  out.append(text.data(), end.ptr);
}

void AppendText(const std::string& text, std::string& out) {
  const bool plain = std::ranges::all_of(
      text, [](unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
  if (plain) {  // most strings are
    out += '"';
    out += text;
    out += '"';
  } else {
    out += nlohmann::json(text).dump();
  }
}

void Append(const nlohmann::json& value, std::string& out) {
  switch (value.type()) {
    case nlohmann::json::value_t::object: {
      out += '{';
      bool first = true;
      for (const auto& [key, member] : value.items()) {  // nlohmann::json keeps keys sorted
        if (!first) out += ',';
        first = false;
        AppendText(key, out);
        out += ':';
        Append(member, out);
      }
      out += '}';
      return;
    }
    case nlohmann::json::value_t::array: {
      out += '[';
      for (std::size_t i = 0; i < value.size(); ++i) {
        if (i > 0) out += ',';
        Append(value[i], out);
      }
      out += ']';
      return;
    }
    case nlohmann::json::value_t::string:
      return AppendText(value.get_ref<const std::string&>(), out);
    case nlohmann::json::value_t::number_float:
      return AppendNumber(value.get<double>(), out);
    default:
      out += value.dump();
  }
}

}  // namespace

std::string CanonicalJson(const nlohmann::json& value) {
  std::string out;
  Append(value, out);
  return out;
}

std::string Sha256Hex(std::string_view bytes) { return workloads::Sha256Of(bytes); }

std::string ShortHash(std::string_view bytes) {
  constexpr std::size_t kDigits = 12;
  return Sha256Hex(bytes).substr(0, kDigits);
}

std::string ContentHash(const nlohmann::json& value) { return Sha256Hex(CanonicalJson(value)); }

}  // namespace sparfuse::harness
