// For tests: the bytes that a sender of fragments sends.
#pragma once

#include <cstring>

#include "fanin/source/receive_format.hpp"
#include "fanin/source/testing/queue_fixture.hpp"

namespace fanin::source::testing {

class SenderBytes {
public:
  explicit SenderBytes(SourceId source) : source_(source) {}

  SenderBytes& preface() {
    ReceivePreface preface;
    preface.source = source_;
    return append(&preface, sizeof preface);
  }
  SenderBytes& preface_2(std::uint64_t sender) { return preface_of(2, sender); }
  SenderBytes& preface_of(std::uint16_t version, std::uint64_t sender) {
    ReceivePreface preface;
    preface.version = version;
    preface.source = source_;
    const ReceiveSender number{sender};
    append(&preface, sizeof preface);
    return append(&number, sizeof number);
  }
  SenderBytes& fragment(EventNumber event, const Bytes& payload, bool with_crc = true) {
    ReceiveHeader header = plain(event);
    header.size = static_cast<std::uint32_t>(payload.size());
    if (with_crc) {
      header.flags = receive_has_crc;
      header.crc32c = wire::crc32c(payload);
    }
    append(&header, sizeof header);
    return append(payload.data(), payload.size());
  }
  SenderBytes& skip_to(EventNumber event) {
    ReceiveHeader header = plain(event);
    header.kind = ReceiveKind::skip_to;
    return append(&header, sizeof header);
  }
  SenderBytes& end() {
    ReceiveHeader header = plain(0);
    header.kind = ReceiveKind::end;
    return append(&header, sizeof header);
  }
  SenderBytes& pause() {
    ReceiveHeader header = plain(0);
    header.kind = ReceiveKind::pause;
    return append(&header, sizeof header);
  }
  SenderBytes& header(const ReceiveHeader& header) { return append(&header, sizeof header); }
  [[nodiscard]] ReceiveHeader plain(EventNumber event) const {
    ReceiveHeader header;
    header.source = source_;
    header.event = event;
    return header;
  }
  [[nodiscard]] Bytes& bytes() { return bytes_; }

private:
  SenderBytes& append(const void* data, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
    return *this;
  }

  SourceId source_;
  Bytes bytes_;
};

} // namespace fanin::source::testing
