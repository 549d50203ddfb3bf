// Says which launcher starts the ranks of live trials, where, and over which network interface;
// reads and fills in the command line of a launcher that the program has no form of.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace sparfuse::harness {

// The values that stand for the placeholders of a template.
struct TemplateValues {
  int ranks = 1, ranks_per_node = 1, nodes = 1;
  long timeout_seconds = 0;
  std::string worker, hostfile, interface, nonce;
  std::vector<std::string> arguments;    // of the worker
  std::vector<std::string> environment;  // NAME=VALUE
};

// A file with `command = ["word", ...]`, the words as the launcher gets them: no shell reads them.
// {ranks}, {ranks_per_node}, {nodes}, {timeout} (seconds), {worker}, {hostfile} and {interface} may
// stand within a word; {arguments} and {environment}, each any number of words, are a word of their
// own: {environment}, NAME=VALUE, is what env(1) takes. {ranks}, {worker}, {arguments} and
// {environment} must be there. {nonce} stands for a word that no other launch has.
//
// `end = ["word", ...]`, if given, is run when a launch is ended before its time, beside SIGTERM to
// the command; of placeholders it may have {nonce}.
class LaunchTemplate {
 public:
  LaunchTemplate() = default;
  // Throws Error{kConfig} naming file, line, key and value.
  static LaunchTemplate Read(const std::filesystem::path& file);

  bool Uses(const std::string& placeholder) const;  // "hostfile"
  std::vector<std::string> Fill(const TemplateValues& values) const;
  // Nothing where there is no `end`.
  std::vector<std::string> FillEnd(const std::string& nonce) const;

 private:
  std::vector<std::string> words_, end_;
};

// The options of a command line, as typed.
struct LaunchOptions {
  std::string launch;              // "local", "mpirun", "srun", a template's file; "": local, or
                                   // mpirun where there is a hostfile
  std::filesystem::path hostfile;  // or ""
  std::string interface;           // or ""
  bool ship = false;               // hosts share no folder with this one
  bool oversubscribe = false;      // hosts may get more ranks than they have slots or cores for
};

struct LaunchMethod {
  enum class Kind {
    kLocal,     // mpirun, all ranks on this machine
    kMpirun,    // mpirun, over the hostfile or the hosts of the allocation that it finds itself in
    kSrun,      // a step of the Slurm allocation that it finds itself in
    kTemplate,  // as a file says
  } kind = Kind::kLocal;
  std::filesystem::path hostfile = {};     // absolute, or ""
  std::string interface = {};              // that ranks talk over, or "": as their libraries choose
  std::string pmi = {};                    // kSrun: of --mpi
  bool oversubscribe = false;              // as asked for; on one host nobody asks
  LaunchTemplate form = {};                // kTemplate
  std::vector<std::string> left_out = {};  // kSrun: nodes of the allocation that get no ranks
  // kMpirun: what it is given for the hostfile where it would read that otherwise than it is read
  // here (FileForMpirun), or "".
  std::filesystem::path mpirun_hostfile = {};

  // Ranks may be on other hosts than the controller.
  bool across_hosts() const noexcept { return kind != Kind::kLocal; }
};

// The method that the options name; of srun, asks it what it can do. Throws Error{kConfig} that
// names the option and its value: options that do not go together, an interface that this host does
// not have, an srun without PMIx; what LaunchTemplate::Read throws.
LaunchMethod ReadLaunchMethod(const LaunchOptions& options);

// Checks what a launch needs to start now. Throws Error{kConfig}: srun outside of an
// allocation, which would wait in a queue while the launch's deadline passes.
void CheckMayLaunch(const LaunchMethod& method);

// The plugin for `srun --mpi` that Open MPI's ranks find one another by, among those that `srun
// --mpi=list` printed: pmix, else the newest pmix_vN; "" where there is none.
std::string PickPmi(const std::string& list);

}  // namespace sparfuse::harness
