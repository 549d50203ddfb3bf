#include "core/transport/nccl/nccl.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <istream>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/transport/group.hpp"
#include "core/transport/nccl/communicator.hpp"
#include "core/transport/nccl/handle.hpp"

namespace sparfuse {
namespace {

// What ranks tell one another before they make a communicator.
struct Introduction {
  std::array<char, 64> card{};  // ends with a zero
  NcclUniqueId id{};            // rank 0's counts
  int version = 0;
  AllGatherLinks links;
};

std::vector<Introduction> Introduce(Communicator& host, const Introduction& own,
                                    std::chrono::milliseconds deadline) {
  std::vector<Introduction> all(static_cast<std::size_t>(host.size()), own);
  std::vector<std::unique_ptr<Request>> receives;
  std::vector<std::unique_ptr<Request>> sends;
  for (int peer = 0; peer < host.size(); ++peer) {
    if (peer == host.rank()) continue;
    const auto place = std::span(all).subspan(static_cast<std::size_t>(peer), 1);
    receives.push_back(host.Irecv(peer, 0, std::as_writable_bytes(place)));
    sends.push_back(host.Isend(peer, 0, std::as_bytes(std::span(&own, 1))));
  }
  AwaitPeers(host, receives, sends, deadline, "nccl");
  return all;
}

void CheckIntroductions(std::span<const Introduction> all) {
  for (std::size_t r = 1; r < all.size(); ++r) {
    for (std::size_t earlier = 0; earlier < r; ++earlier) {
      if (all[r].card != all[earlier].card) continue;
      SPARFUSE_THROW(kUnsupported, "nccl: ranks " + std::to_string(earlier) + " and " +
                                       std::to_string(r) + " have the same card, " +
                                       all[r].card.data() + std::string(kShareACard));
    }
    if (all[r].version != all[0].version) {
      SPARFUSE_THROW(kConfig, "nccl: rank " + std::to_string(r) + " has NCCL of version code " +
                                  std::to_string(all[r].version) + ": expected " +
                                  std::to_string(all[0].version) + ", as rank 0");
    }
    if (all[r].links != all[0].links) {
      SPARFUSE_THROW(kConfig, "nccl: ranks 0 and " + std::to_string(r) +
                                  " have different link constants: expected equal ones, by which "
                                  "all ranks choose alike");
    }
  }
}

}  // namespace

std::unique_ptr<Communicator> MakeNcclGroup(const NcclApi& api,
                                            std::shared_ptr<NcclSession> session, NcclSetup setup) {
  Introduction own;
  SPARFUSE_REQUIRE(!setup.card.empty() && setup.card.size() < own.card.size(),
                   "nccl: card \"" + setup.card + "\": expected a name of 1 to " +
                       std::to_string(own.card.size() - 1) + " characters");
  const auto call = [&](int result, const char* name) {
    if (result != kNcclSuccess) throw NcclError(api, result, name, nullptr);
  };
  std::copy(setup.card.begin(), setup.card.end(), own.card.begin());
  own.links = setup.links;
  call(api.get_version(&own.version), "ncclGetVersion");
  if (setup.host->rank() == 0) call(api.get_unique_id(&own.id), "ncclGetUniqueId");

  const std::vector<Introduction> all = Introduce(*setup.host, own, setup.deadline);
  CheckIntroductions(all);
  auto control = setup.host->Split(0, setup.host->rank(), setup.deadline);
  auto communicator = std::make_unique<NcclCommunicator>(api, std::move(session), std::move(setup),
                                                         std::move(control));
  communicator->Connect(all[0].id);
  return communicator;
}

std::unique_ptr<Communicator> MakeNcclWorld(const NcclApi& api, NcclSetup setup) {
  return MakeNcclGroup(api, std::make_shared<NcclSession>(), std::move(setup));
}

#ifndef SPARFUSE_CUDA
const NcclApi& LinkedNccl() {
  SPARFUSE_THROW(kUnsupported,
                 "transport \"nccl\": this build has no CUDA and no NCCL (sparfuse doctor)");
}
#endif

namespace {

// NCCL_VERSION of nccl.h: 22809 is 2.28.9; 2708, before 2.9, is 2.7.8.
std::string VersionText(int code) {
  const int major = code < 10'000 ? code / 1000 : code / 10'000;
  const int minor = code < 10'000 ? code % 1000 / 100 : code % 10'000 / 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(code % 100);
}

}  // namespace

NcclDescription DescribeNccl(const NcclApi& api) {
  int code = 0;
  if (const int result = api.get_version(&code); result != kNcclSuccess) {
    throw NcclError(api, result, "ncclGetVersion", nullptr);
  }
  NcclDescription description;
  description.version = VersionText(code);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with("NCCL_")) description.settings.emplace_back(*entry);
  }
  std::sort(description.settings.begin(), description.settings.end());
  return description;
}

std::map<std::string, int> NcclLinksInLog(std::istream& log) {
  std::map<std::string, int> channels;
  for (std::string line; std::getline(log, line);) {
    // "... Channel 00/1 : 0[0] -> 1[1] [send] via NET/IB/0"; the other side writes "[receive]".
    const auto channel = line.find("Channel ");
    const auto via = line.find(" via ");
    if (channel == std::string::npos || via == std::string::npos || via < channel) continue;
    if (line.find("[receive]") != std::string::npos) continue;
    const auto begin = via + std::string_view(" via ").size();
    ++channels[line.substr(begin, line.find_first_of(" \r", begin) - begin)];
  }
  return channels;
}

}  // namespace sparfuse
