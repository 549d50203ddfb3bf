#include "baselines/zen/server_sums.hpp"

#include <bit>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse::baselines {

ServerSums::ServerSums(const Servers& servers, ExchangeBuffers& buffers)
    : servers_(servers), buffers_(buffers), sums_(servers.count()) {
  std::size_t room = 0;
  for (std::size_t s = 0; s < sums_.size(); ++s) {
    sums_[s].list = servers.Size(s);
    sums_[s].head_begin = room;
    room += HeadBytes(IndexForm::kBitmap, sums_[s].list);
  }
  buffers.Keep(room);
}

std::span<std::byte> ServerSums::HeadRoom(std::size_t server) const {
  const Sums& sums = sums_[server];
  return buffers_.kept.host().subspan(sums.head_begin, HeadBytes(IndexForm::kBitmap, sums.list));
}

std::span<std::byte> ServerSums::RoomFor(std::size_t count) {
  const std::size_t bytes = count * kSparseElementBytes;
  if (bytes > buffers_.gathered.size() - placed_) {
    SPARFUSE_THROW(kComm, "zen: servers announce more sums than ranks can have sent");
  }
  placed_ += bytes;
  return buffers_.gathered.subspan(placed_ - bytes, bytes);
}

const SumsHead& ServerSums::Write(std::size_t server, const RangeSums& sums, FormChoice choice) {
  Sums& own = sums_[server];
  const std::size_t count = sums.count();
  const IndexForm form = FormOf(choice, own.list, count);
  own.head = WriteHead(form, own.list, count, sums.added(), HeadRoom(server));
  own.read = {form, count, own.head.subspan(kSumsHeaderBytes)};
  own.payload = RoomFor(count);
  own.complete = true;
  auto* index = reinterpret_cast<std::uint32_t*>(own.payload.data());
  auto* value = reinterpret_cast<float*>(index + count);
  const std::span<const std::uint64_t> added = sums.added();
  for (std::size_t w = 0; w < added.size(); ++w) {
    for (std::uint64_t word = added[w]; word != 0; word &= word - 1) {
      const std::size_t position = 64 * w + static_cast<std::size_t>(std::countr_zero(word));
      *index++ = servers_.IndexAt(server, position);
      *value++ = sums.dense()[position];
    }
  }
  return own.read;
}

void ServerSums::Place(std::size_t server, std::size_t bytes) {
  Sums& sums = sums_[server];
  sums.head = HeadRoom(server).first(bytes);
  sums.read = ReadHead(sums.head, server, sums.list);
  sums.payload = RoomFor(sums.read.count);
  sums.complete = sums.read.form == IndexForm::kCoo;
}

void ServerSums::CheckBody(std::size_t server, std::size_t bytes) const {
  if (bytes == Body(server).size()) return;
  SPARFUSE_THROW(kComm, "zen: the sums of server " + std::to_string(server) + " are " +
                            std::to_string(bytes) + " bytes: expected " +
                            std::to_string(Body(server).size()));
}

void ServerSums::DecodeInto(std::vector<std::span<const std::byte>>& payloads) const {
  for (std::size_t s = 0; s < sums_.size(); ++s) {
    const Sums& sums = sums_[s];
    payloads.emplace_back(sums.payload);
    if (sums.complete) continue;
    auto* const indices = reinterpret_cast<std::uint32_t*>(sums.payload.data());
    DecodeBitmap(sums.read.bitmap, servers_, s, {indices, sums.read.count});
  }
}

}  // namespace sparfuse::baselines
