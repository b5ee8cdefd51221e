// For tests: the bytes that a sender of fragments sends.
#pragma once

#include "fanin/source/own_checksum.hpp"
#include "fanin/source/receive_format.hpp"
#include "fanin/source/testing/queue_fixture.hpp"

namespace fanin::source::testing {

class SenderBytes {
public:
  explicit SenderBytes(SourceId source) : source_(source) {}

  // Of a plain sender.
  SenderBytes& preface() {
    const ReceivePreface preface{.source = source_};
    return append(&preface, sizeof preface);
  }
  // Of a reliable sender, whose messages follow.
  SenderBytes& preface(std::uint64_t sender) {
    return reliable().append_checked(ReliablePreface{
        .common = {.form = ReceiveForm::reliable, .source = source_}, .sender = sender});
  }
  // Of a builder unit of a group.
  SenderBytes& preface(std::uint64_t sender, const RunIdentity& run) {
    return reliable().append_checked(GroupPreface{
        .reliable = {.common = {.form = ReceiveForm::group, .source = source_}, .sender = sender},
        .run_id = run.id,
        .run = run.number});
  }
  // Messages of a reliable sender follow.
  SenderBytes& reliable() {
    reliable_ = true;
    return *this;
  }
  SenderBytes& fragment(EventNumber event, const Bytes& payload, bool with_crc = true) {
    ReceiveHeader header = plain(event);
    header.size = static_cast<std::uint32_t>(payload.size());
    if (with_crc) {
      header.flags = receive_has_crc;
      header.crc32c = wire::crc32c(payload);
    }
    append_checked(header);
    return append(payload.data(), payload.size());
  }
  SenderBytes& skip_to(EventNumber event) {
    ReceiveHeader header = plain(event);
    header.kind = ReceiveKind::skip_to;
    return append_checked(header);
  }
  SenderBytes& end() {
    ReceiveHeader header = plain(0);
    header.kind = ReceiveKind::end;
    return append_checked(header);
  }
  SenderBytes& pause() {
    ReceiveHeader header = plain(0);
    header.kind = ReceiveKind::pause;
    return append_checked(header);
  }
  SenderBytes& header(const ReceiveHeader& header) { return append_checked(header); }
  [[nodiscard]] ReceiveHeader plain(EventNumber event) const {
    ReceiveHeader header;
    header.source = source_;
    header.event = event;
    return header;
  }
  [[nodiscard]] Bytes& bytes() { return bytes_; }

private:
  template <class Structure>
  SenderBytes& append_checked(const Structure& structure) {
    const auto bytes = with_own_checksum(structure);
    return append(bytes.data(), reliable_ ? bytes.size() : sizeof structure);
  }
  SenderBytes& append(const void* data, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
    return *this;
  }

  SourceId source_;
  bool reliable_ = false;
  Bytes bytes_;
};

} // namespace fanin::source::testing
