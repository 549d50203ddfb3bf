// Shows the progress of a run: one line that updates on a terminal, plain lines otherwise.
#pragma once

#include <cstdio>
#include <string>

namespace sparfuse::harness {

class Progress {
 public:
  // total: trials to run.
  Progress(std::size_t total, std::FILE* out);

  // Whether Tick shows anything.
  bool terminal() const noexcept { return terminal_; }
  // remaining_seconds < 0: not known yet.
  void Begin(const std::string& name, double remaining_seconds);
  // doing: what the trial says it does, or "".
  void Tick(double elapsed_seconds, const std::string& doing = "");
  // Of a trial, whose name need not be what was begun.
  void End(const std::string& name, const std::string& status, const std::string& detail,
           double seconds, double remaining_seconds);
  // So many trials more than `total`.
  void Expect(std::size_t more) { total_ += more; }
  // A line of its own.
  void Say(const std::string& line);

 private:
  void Clear();

  std::size_t total_;
  std::size_t done_ = 0;
  std::size_t failed_ = 0;
  std::FILE* out_;
  bool terminal_;
  std::string name_;
  double remaining_seconds_ = -1;
};

// "about 4 min left", "about 20 s left"; "" below 0.
std::string TimeLeft(double seconds);

}  // namespace sparfuse::harness
