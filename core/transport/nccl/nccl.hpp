// Makes transport `nccl`: collectives on the memory of one CUDA device a rank, from card to card.
//
// A communicator has an ncclComm, a stream of the device, and a host communicator (mpi, threads)
// over the same ranks. host() carries messages in host memory: counts, negotiations, probes, and
// the collectives that consist of messages.
//
// NativeAllReduceSum   ncclAllReduce.
// NativeAllGather      counts through the host, then a group of messages with their true bytes or
//                      ncclAllGather padded to the largest, whichever costs less by
//                      all_gather_cost.hpp.
// NativeRingStep       a group of ncclSend and ncclRecv; profiles measure links with it.
// Isend, Irecv         Error{kUnsupported}.
//
// All of them start in the order in which they are posted, which must be the same on all ranks:
// NCCL runs them in the order in which a rank starts them, and each ends only when all of its ranks
// have come to it. A ProgressLoop over NCCL has the NCCL world as its world: only its Idle looks at
// the device often.
//
// Memory is read and written in the order of stream(): before posting, let that stream wait for
// whoever writes what is sent or still reads what is received into. A request is complete, for the
// host and for every stream, when Test says so, and must not outlive its communicator.
#pragma once

#include <chrono>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/transport/communicator.hpp"
#include "core/transport/nccl/all_gather_cost.hpp"
#include "core/transport/nccl/api.hpp"

namespace sparfuse {

struct NcclSetup {
  // Over the ranks that take part, and theirs alone from here on.
  std::unique_ptr<Communicator> host;
  Device device;
  // Names this rank's card among those of all hosts: its UUID. At most 63 characters.
  std::string card;
  // Of the set-up and of the end. Requests have no deadline of their own: that is ProgressLoop's.
  std::chrono::milliseconds deadline{60'000};
  AllGatherLinks links;  // equal on all ranks
};

// Collective over setup.host, blocking up to the deadline; `api` outlives what it returns. Throws
//   Error{kUnsupported} naming the ranks when two of them have the same card;
//   Error{kConfig} when ranks have different versions of NCCL or different link constants;
//   Error{kTimeout} naming the ranks that did not come;
//   NcclError (handle.hpp).
//
// After an error of NCCL, of a peer or of the device, or when an unfinished request is destroyed,
// the communicator is aborted: what runs on the device ends, peers are told, and every request then
// throws that error. A peer that the host transport lost is Error{kComm} "rank 2 is lost": at once
// for what it has not started, after half a second for what was running. Split makes an ncclComm
// and a stream of its own. Destroying a sound communicator waits, up to the deadline, for the other
// ranks of the node to do so: destroy them in the same order everywhere.
std::unique_ptr<Communicator> MakeNcclWorld(const NcclApi& api, NcclSetup setup);

// What provenance says of NCCL. Up to 2.28 NCCL has no call that tells what carries the messages
// between two ranks: only its log does (NcclLinksInLog). (ncclCommQueryProperties of 2.29 tells
// what the device API can use.)
struct NcclDescription {
  std::string version;                // "2.28.9"
  std::vector<std::string> settings;  // NCCL_...=... of this process's environment, sorted
};
NcclDescription DescribeNccl(const NcclApi& api);

// Channels by what carries them, {"P2P/CUMEM": 16, "NET/IB/0/GDRDMA": 4}: from what NCCL writes
// when NCCL_DEBUG=INFO (and NCCL_DEBUG_SUBSYS, where set, has INIT) to standard output or to the
// file NCCL_DEBUG_FILE, of one process. Both must be set before NCCL's first call.
std::map<std::string, int> NcclLinksInLog(std::istream& log);

}  // namespace sparfuse
