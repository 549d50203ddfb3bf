// Runs prepared statements of SQLite.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "harness/store/index.hpp"

namespace sparfuse::harness {

// Parameters are bound in order; Run() makes it ready to be bound again.
class Statement {
 public:
  Statement(const Index& index, const char* sql) : index_(index) {
    if (sqlite3_prepare_v2(index.database_, sql, -1, &statement_, nullptr) != SQLITE_OK)
      index_.Fail("prepare");
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // A bound text must live until Run or the last Step.
  Statement& Bind(std::string_view text) {
    return Bound(sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                                   SQLITE_STATIC));
  }
  Statement& BindInteger(std::int64_t number) {
    return Bound(sqlite3_bind_int64(statement_, ++bound_, number));
  }
  Statement& BindNumber(double number) {
    return Bound(sqlite3_bind_double(statement_, ++bound_, number));
  }
  // A string, a number or null.
  Statement& BindJson(const nlohmann::json& value) {
    if (value.is_string()) return Bind(std::string_view(value.get_ref<const std::string&>()));
    if (value.is_number_integer()) return BindInteger(value.get<std::int64_t>());
    if (value.is_number()) return BindNumber(value.get<double>());
    return Bound(sqlite3_bind_null(statement_, ++bound_));
  }
  bool Step() {
    const int result = sqlite3_step(statement_);
    if (result != SQLITE_ROW && result != SQLITE_DONE) index_.Fail("run", statement_);
    return result == SQLITE_ROW;
  }
  void Run() {
    const int result = sqlite3_step(statement_);
    bound_ = 0;
    if (result != SQLITE_ROW && result != SQLITE_DONE) index_.Fail("run", statement_);
    sqlite3_reset(statement_);
  }

  // Valid until the next Step.
  std::string_view View(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    const int size = sqlite3_column_bytes(statement_, column);
    return text ? std::string_view(text, static_cast<std::size_t>(size)) : std::string_view();
  }
  std::string Text(int column) const { return std::string(View(column)); }
  double Number(int column) const { return sqlite3_column_double(statement_, column); }
  std::int64_t Integer(int column) const { return sqlite3_column_int64(statement_, column); }

 private:
  Statement& Bound(int result) {
    if (result != SQLITE_OK) index_.Fail("bind");
    return *this;
  }

  const Index& index_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

}  // namespace sparfuse::harness
