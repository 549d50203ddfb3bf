// Describes the launcher of live trials, its hosts and its network interface. Reads and fills in
// the command line of a launcher that the program does not know.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/records/cell_config.hpp"
#include "harness/run/live/launch/hostfile.hpp"

namespace sparfuse::harness {

// The values of a template's placeholders.
struct TemplateValues {
  std::map<std::string, std::string> within_words;  // by placeholder: "ranks", "worker"
  std::vector<std::string> arguments;               // of the worker
  std::vector<std::string> environment;             // NAME=VALUE
};

// A file with `command = ["word", ...]`, the words that the launcher gets; no shell reads them.
// {ranks}, {ranks_per_node}, {nodes}, {timeout} (seconds), {worker}, {hostfile} and {interface} may
// be part of a word. {arguments} and {environment}, each any number of words, must be a word of
// their own. {environment} is NAME=VALUE, as env(1) takes it. {ranks}, {worker}, {arguments} and
// {environment} must be there. {nonce} is a word that no other launch has.
//
// `end = ["word", ...]`, if given, runs when a launch is ended early, in addition to SIGTERM to the
// command. Its only placeholder is {nonce}.
class LaunchTemplate {
 public:
  LaunchTemplate() = default;
  // Throws Error{kConfig} naming file, line, key and value.
  static LaunchTemplate Read(const std::filesystem::path& file);

  bool Uses(const std::string& placeholder) const;  // "hostfile"
  std::vector<std::string> Fill(const TemplateValues& values) const;
  // Empty if there is no `end`.
  std::vector<std::string> FillEnd(const std::string& nonce) const;

 private:
  std::vector<std::string> words_, end_;
};

// The options of a command line, as typed.
struct LaunchOptions {
  std::string launch;              // "local", "mpirun", "srun", a template's file; "": local, or
                                   // mpirun if there is a hostfile
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
  // kMpirun: the hostfile for mpirun, if mpirun would read the original differently
  // (FileForMpirun), or "".
  std::filesystem::path mpirun_hostfile = {};

  // Ranks may be on other hosts than the controller.
  bool across_hosts() const noexcept { return kind != Kind::kLocal; }
};

// For srun, asks srun for its abilities. Throws Error{kConfig} naming the option and its value:
// options that exclude each other, an interface that this host does not have, or an srun without
// PMIx. Throws the errors of LaunchTemplate::Read.
LaunchMethod ReadLaunchMethod(const LaunchOptions& options);

// Checks that a launch can start now. Throws Error{kConfig} for srun outside of an allocation: it
// would wait in a queue while the launch's deadline passes.
void CheckMayLaunch(const LaunchMethod& method);

// The plugin for `srun --mpi` with which Open MPI's ranks find one another, from the output of
// `srun --mpi=list`: pmix, else the newest pmix_vN; "" if there is none.
std::string PickPmi(const std::string& list);

// The hosts of the method's hostfile. Precondition: it has one. Throws as ReadHostfile.
std::vector<Host> HostsOf(const LaunchMethod& launch);

// The number of hosts in the hostfile or the allocation. Throws Error{kConfig} if neither exists,
// naming the option that gives one.
int HostCount(const LaunchMethod& launch);

// The number of `ranks` on each host if they are spread over all hosts. Throws Error{kConfig}, also
// if a host has too few slots.
int RanksPerNode(const LaunchMethod& launch, int ranks);

// Checks that the ranks of a node are on one host, and the ranks of different nodes on different
// hosts. Otherwise a link between nodes would lead back to its own host, and nobody would notice.
// placement: host names in the order of ranks. Throws Error{kConfig} naming two ranks that violate
// this.
void CheckPlacement(const std::vector<std::string>& placement, const CellConfig& config,
                    const LaunchMethod& launch);

}  // namespace sparfuse::harness
