// Reads the hosts that ranks may be started on.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace sparfuse::harness {

struct Host {
  std::string name;
  int slots = 0;  // ranks that it has room for
};

enum class HostfileForm {
  kOpenMpi,  // "NAME slots=N" a line, or a line a slot: of one line alone mpirun would guess
  kAny,      // also a line a slot, as PBS and LSF write theirs: "NAME" is one, repeats add up
};

// Reads a hostfile. # and // begin a comment. "slots = 8" and Open MPI's cpu=8 mean slots=8, and
// node[01-04,07] is five hosts. Only names of hosts are allowed, no options or commands. Two names
// of one host (Node1 and node1, localhost and 127.0.0.1) count as one host. Throws Error{kConfig}
// naming file and line, also for lines that the form does not allow: in kOpenMpi a host without
// slots, or a host that is listed twice. Throws Error{kData} if the file does not exist.
std::vector<Host> ReadHostfile(const std::filesystem::path& file,
                               HostfileForm form = HostfileForm::kOpenMpi);

// The lines of a hostfile of any form, one host each and without comments, for the hosts that
// `keep` accepts.
std::string LinesOfHosts(const std::filesystem::path& file,
                         const std::function<bool(const std::string& name)>& keep);

// The file that mpirun gets for a hostfile of form kOpenMpi. "" if mpirun reads the file itself as
// it is read here. Otherwise (node[01-04], names with commas, "slots = 8", lines that end with CR)
// it is a file in `folder`, named after its content, that lists the same hosts, one a line. Throws
// as ReadHostfile.
std::filesystem::path FileForMpirun(const std::filesystem::path& file,
                                    const std::filesystem::path& folder);

// The ranks on each host if `ranks` are spread equally over as many hosts as possible. Throws
// Error{kConfig} naming a host that has fewer slots.
int RanksPerHost(const std::vector<Host>& hosts, int ranks, const std::filesystem::path& file);

}  // namespace sparfuse::harness
