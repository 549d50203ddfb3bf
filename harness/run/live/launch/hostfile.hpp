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

// # and // begin a comment; "slots = 8" and Open MPI's cpu=8 are slots=8, and node[01-04,07] is
// five hosts. Names are of hosts alone, no options or commands, and two that are one host (Node1
// and node1, localhost and 127.0.0.1) are one. Throws Error{kConfig} naming file and line, also for
// what is not of the form: of kOpenMpi a host without slots, or one that is there twice;
// Error{kData} where there is no such file.
std::vector<Host> ReadHostfile(const std::filesystem::path& file,
                               HostfileForm form = HostfileForm::kOpenMpi);

// Lines of a hostfile, of any form, a host each and without comments, whose hosts `keep` says true
// of.
std::string LinesOfHosts(const std::filesystem::path& file,
                         const std::function<bool(const std::string& name)>& keep);

// The file that mpirun is given for a hostfile of form kOpenMpi: "" where it reads the file itself
// as it is read here. Else, say of node[01-04], names with commas, "slots = 8" or lines that end by
// CR, one in `folder` with the same hosts, a line each, named after its content. Throws as
// ReadHostfile.
std::filesystem::path FileForMpirun(const std::filesystem::path& file,
                                    const std::filesystem::path& folder);

// Ranks a host where `ranks` are spread over as many of the hosts as possible, equally. Throws
// Error{kConfig} naming the host that has fewer slots.
int RanksPerHost(const std::vector<Host>& hosts, int ranks, const std::filesystem::path& file);

}  // namespace sparfuse::harness
