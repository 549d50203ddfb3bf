// Says which launcher starts the ranks of live trials, where, and over which network interface.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/run/live/launch/launch_template.hpp"

namespace sparfuse::harness {

// As typed.
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

  // Ranks may be on other hosts than the controller.
  bool across_hosts() const noexcept { return kind != Kind::kLocal; }
};

// Asks srun what it can do where it is meant. Throws Error{kConfig} that names the option and its
// value: options that do not go together, an interface that this host does not have, an srun
// without PMIx; what LaunchTemplate::Read throws.
LaunchMethod ReadLaunchMethod(const LaunchOptions& options);

// What a launch needs besides when it is to start now. Throws Error{kConfig}: srun outside of an
// allocation, which would wait in a queue while the launch's deadline passes.
void CheckMayLaunch(const LaunchMethod& method);

// The plugin for `srun --mpi` that Open MPI's ranks find one another by, among those that `srun
// --mpi=list` printed: pmix, else the newest pmix_vN; "" where there is none.
std::string PickPmi(const std::string& list);

}  // namespace sparfuse::harness
