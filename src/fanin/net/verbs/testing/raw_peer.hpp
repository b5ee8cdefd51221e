// For the tests: a peer made of librdmacm alone, that can say what no transport of fanin says.
#pragma once

#include <array>
#include <cstring>
#include <optional>
#include <string>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>

#include <gtest/gtest.h>
#include <rdma/rdma_verbs.h>

#include "fanin/net/rdma/hello.hpp"
#include "fanin/net/verbs/handle.hpp"

namespace fanin::net::verbs {

class RawPeer {
public:
  RawPeer() : channel_(rdma_create_event_channel()) {
    EXPECT_EQ(fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP), 0);
    id_.reset(id);
  }
  ~RawPeer() { close(); }

  // The type of the next event, if there is one, with its private data.
  std::optional<rdma_cm_event_type> event() {
    rdma_cm_event* taken = nullptr;
    if (rdma_get_cm_event(channel_.get(), &taken) != 0) return {};
    const rdma_cm_event_type type = taken->event;
    private_data_.assign(
        static_cast<const char*>(taken->param.conn.private_data),
        taken->param.conn.private_data == nullptr ? 0 : taken->param.conn.private_data_len);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) requested_ = taken->id;
    rdma_ack_cm_event(taken);
    if (requested_ != nullptr && request_ == nullptr) request_.reset(requested_);
    return type;
  }
  [[nodiscard]] Result<rdma::Hello> hello() const {
    return rdma::decode_hello(std::as_bytes(std::span(private_data_)));
  }

  void resolve(const std::string& host, std::uint16_t port) {
    sockaddr_in address = address_of(host, port);
    ASSERT_EQ(rdma_resolve_addr(id_.get(), nullptr, reinterpret_cast<sockaddr*>(&address), 2000),
              0);
  }
  void resolve_route() { ASSERT_EQ(rdma_resolve_route(id_.get(), 2000), 0); }
  void connect(const rdma::HelloBytes& hello) {
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {4, 16, 1, 1, 0};
    ASSERT_EQ(rdma_create_qp(id_.get(), nullptr, &attributes), 0);
    region_.reset(ibv_reg_mr(id_->pd, bytes_.data(), bytes_.size(), int{IBV_ACCESS_LOCAL_WRITE}));
    ASSERT_NE(region_, nullptr);
    for (int i = 0; i < 8; ++i) {
      ASSERT_EQ(rdma_post_recv(id_.get(), nullptr, bytes_.data(), bytes_.size(), region_.get()), 0);
    }
    rdma_conn_param parameters{};
    parameters.private_data = hello.data();
    parameters.private_data_len = rdma::hello_size;
    parameters.retry_count = 7;
    ASSERT_EQ(rdma_connect(id_.get(), &parameters), 0);
  }
  void listen(const std::string& host) {
    sockaddr_in address = address_of(host, 0);
    ASSERT_EQ(rdma_bind_addr(id_.get(), reinterpret_cast<sockaddr*>(&address)), 0);
    ASSERT_EQ(rdma_listen(id_.get(), 4), 0);
  }
  [[nodiscard]] std::uint16_t port() const { return ntohs(rdma_get_src_port(id_.get())); }
  void reject(const rdma::HelloBytes& hello) {
    ASSERT_EQ(rdma_reject(request_.get(), hello.data(), rdma::hello_size), 0);
  }

  void send(std::size_t size, std::optional<std::uint32_t> tag) {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(bytes_.data()), static_cast<std::uint32_t>(size),
                  region_->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = tag ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    request.imm_data = htonl(tag.value_or(0));
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(id_->qp, &request, &bad), 0);
  }

  // Writes to an address of the other side, past its process.
  void write_to(std::uint64_t address, std::uint32_t key) {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(bytes_.data()), 64, region_->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = key;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(id_->qp, &request, &bad), 0);
  }
  [[nodiscard]] std::uint32_t key() const { return region_->rkey; }
  // How the last request ended, if it has.
  [[nodiscard]] std::optional<ibv_wc_status> ended() {
    ibv_wc completion{};
    if (ibv_poll_cq(id_->send_cq, 1, &completion) != 1) return {};
    return completion.status;
  }

  // Whether one more of what was sent has arrived.
  [[nodiscard]] bool arrived() {
    ibv_wc completion{};
    return ibv_poll_cq(id_->send_cq, 1, &completion) == 1 && completion.status == IBV_WC_SUCCESS;
  }

  // As a host without power: nobody is told.
  void fall_silent() {
    region_.reset();
    rdma_destroy_qp(id_.get());
  }
  // As a process that dies.
  void close() {
    region_.reset();
    if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_.get());
    request_.reset();
    id_.reset();
  }

private:
  static sockaddr_in address_of(const std::string& host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1);
    return address;
  }

  EventChannel channel_;
  CmId id_;
  CmId request_;
  rdma_cm_id* requested_ = nullptr;
  MemoryRegion region_;
  std::array<std::byte, 32768> bytes_{};
  std::string private_data_;
};

} // namespace fanin::net::verbs
