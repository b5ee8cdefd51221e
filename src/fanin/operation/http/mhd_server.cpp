// HTTP by libmicrohttpd, whose epoll descriptor nests in our loop.
#include <microhttpd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "fanin/base/export.hpp"
#include "fanin/operation/http/server.hpp"

namespace fanin::operation {
namespace {

constexpr unsigned idle_s = 30; // after which a connection that says nothing is closed
constexpr unsigned connections_max = 2000;
constexpr std::size_t connection_memory = 32U << 10; // of request line and headers
constexpr std::size_t piece = 16U << 10; // of a stream
constexpr std::uint64_t no_end = MHD_SIZE_UNKNOWN;

class MhdServer;

// One listening socket.
class Daemon final : public net::Service {
public:
  Daemon(net::Loop& loop, MHD_Daemon* daemon) : loop_(loop), daemon_(daemon) { loop_.add(*this); }
  ~Daemon() override { loop_.remove(*this); }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  [[nodiscard]] int descriptor() const override {
    return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  }
  bool poll() override {
    if (!due_ && loop_.now() < next_) return false;
    due_ = false;
    MHD_run(daemon_);
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    next_ = never;
    if (MHD_get_timeout(daemon_, &wait_ms) == MHD_YES)
      next_ = loop_.now() + std::chrono::milliseconds{wait_ms};
    timer_.set(loop_, next_);
    return next_ <= loop_.now();
  }
  bool arm() override {
    const bool idle = !due_;
    due_ = true; // it is woken by the descriptor, by the timer, or by somebody else
    return idle;
  }
  void run_soon() { due_ = true; }
  [[nodiscard]] MHD_Daemon* handle() const { return daemon_; }

private:
  net::Loop& loop_;
  MHD_Daemon* daemon_;
  net::Timer timer_; // only wakes the loop
  bool due_ = true;
  Time next_ = never;
};

struct Exchange { // a request, and the stream that answers it
  HttpRequest request;
  bool too_large = false;
  MhdServer* server = nullptr;
  MHD_Connection* connection = nullptr;
  HttpStream stream;
  std::string pending; // of the stream
  bool suspended = false;
};

class MhdServer final : public HttpServer {
public:
  MhdServer(net::Loop& loop, Handler handler) : loop_(loop), handler_(std::move(handler)) {}
  ~MhdServer() override {
    for (Exchange* const exchange : streams_) {
      if (exchange->suspended) MHD_resume_connection(exchange->connection);
    }
    for (const auto& daemon : daemons_) {
      MHD_quiesce_daemon(daemon->handle()); // else it would close its listening socket
      MHD_stop_daemon(daemon->handle());
    }
  }

  Result<> listen(Descriptor listener) override {
    MHD_Daemon* const daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, nullptr, nullptr, &MhdServer::on_request, this,
        MHD_OPTION_LISTEN_SOCKET, listener.get(), MHD_OPTION_CONNECTION_TIMEOUT, idle_s,
        MHD_OPTION_CONNECTION_LIMIT, connections_max, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        connection_memory, MHD_OPTION_NOTIFY_COMPLETED, &MhdServer::on_completed, this,
        MHD_OPTION_END);
    if (daemon == nullptr) return fail(ErrorKind::exhausted, "the HTTP server cannot start");
    listeners_.push_back(std::move(listener));
    daemons_.push_back(std::make_unique<Daemon>(loop_, daemon));
    return {};
  }

  void wake_streams() override {
    for (Exchange* const exchange : streams_) {
      if (!std::exchange(exchange->suspended, false)) continue;
      MHD_resume_connection(exchange->connection);
    }
    for (const auto& daemon : daemons_) daemon->run_soon();
    timer_.start(loop_, loop_.now());
  }

private:
  static std::string lower(const char* text) {
    std::string lowered = text;
    std::ranges::transform(lowered, lowered.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return lowered;
  }

  static MHD_Result on_header(void* closure, MHD_ValueKind kind, const char* key,
                              const char* value) {
    HttpRequest& request = *static_cast<HttpRequest*>(closure);
    const char* const text = value == nullptr ? "" : value;
    if (kind == MHD_HEADER_KIND) request.headers[lower(key)] = text;
    if (kind == MHD_GET_ARGUMENT_KIND) request.query[key] = text;
    return MHD_YES;
  }

  static std::optional<std::uint32_t> user_of(MHD_Connection* connection) {
    const auto* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    ucred peer{};
    socklen_t size = sizeof peer;
    sockaddr_storage address{};
    socklen_t address_size = sizeof address;
    const int descriptor = info->connect_fd;
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &address_size) != 0 ||
        address.ss_family != AF_UNIX ||
        getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
      return std::nullopt;
    return peer.uid;
  }

  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* url,
                               const char* method, const char* /*version*/, const char* data,
                               size_t* data_size, void** context) {
    MhdServer& server = *static_cast<MhdServer*>(self);
    auto* exchange = static_cast<Exchange*>(*context);
    if (exchange == nullptr) { // the headers are there
      exchange = new Exchange;
      *context = exchange;
      exchange->server = &server;
      exchange->connection = connection;
      HttpRequest& request = exchange->request;
      request.method = method;
      request.path = url;
      request.user = user_of(connection);
      MHD_get_connection_values(connection, MHD_HEADER_KIND, &MhdServer::on_header, &request);
      MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, &MhdServer::on_header, &request);
      return MHD_YES;
    }
    if (*data_size != 0) {
      std::string& body = exchange->request.body;
      exchange->too_large = exchange->too_large || body.size() + *data_size > body_max;
      if (!exchange->too_large) body.append(data, *data_size);
      *data_size = 0;
      return MHD_YES;
    }
    return server.answer(*exchange);
  }

  MHD_Result answer(Exchange& exchange) {
    HttpReply reply =
        exchange.too_large
            ? HttpReply{.status = 413, .body = R"({"error": "the request is larger than 64 KiB"})"}
            : handler_(exchange.request);
    MHD_Response* response = nullptr;
    if (reply.stream) {
      exchange.stream = std::move(reply.stream);
      streams_.insert(&exchange);
      response = MHD_create_response_from_callback(no_end, piece, &MhdServer::on_piece, &exchange,
                                                   nullptr);
    } else {
      response = MHD_create_response_from_buffer(reply.body.size(), reply.body.data(),
                                                 MHD_RESPMEM_MUST_COPY);
    }
    if (response == nullptr) return MHD_NO;
    if (!reply.type.empty())
      MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply.type.c_str());
    for (const auto& [name, value] : reply.headers)
      MHD_add_response_header(response, name.c_str(), value.c_str());
    const MHD_Result queued =
        MHD_queue_response(exchange.connection, static_cast<unsigned>(reply.status), response);
    MHD_destroy_response(response);
    return queued;
  }

  static ssize_t on_piece(void* closure, std::uint64_t /*position*/, char* buffer, size_t size) {
    Exchange& exchange = *static_cast<Exchange*>(closure);
    if (exchange.pending.empty()) exchange.pending = exchange.stream();
    if (exchange.pending.empty()) {
      exchange.suspended = true;
      MHD_suspend_connection(exchange.connection);
      return 0;
    }
    const std::size_t count = std::min(size, exchange.pending.size());
    std::copy_n(exchange.pending.data(), count, buffer);
    exchange.pending.erase(0, count);
    return static_cast<ssize_t>(count);
  }

  static void on_completed(void* self, MHD_Connection* /*connection*/, void** context,
                           MHD_RequestTerminationCode /*code*/) {
    auto* const exchange = static_cast<Exchange*>(*context);
    if (exchange == nullptr) return;
    static_cast<MhdServer*>(self)->streams_.erase(exchange);
    delete exchange;
    *context = nullptr;
  }

  net::Loop& loop_;
  Handler handler_;
  std::vector<Descriptor> listeners_;
  std::vector<std::unique_ptr<Daemon>> daemons_;
  std::set<Exchange*> streams_;
  net::Timer timer_; // only wakes the loop
};

} // namespace
} // namespace fanin::operation

extern "C" FANIN_INTERNAL_API void
fanin_make_http_server(fanin::net::Loop& loop, fanin::operation::HttpServer::Handler& handler,
                       std::unique_ptr<fanin::operation::HttpServer>& server);

extern "C" void fanin_make_http_server(fanin::net::Loop& loop,
                                       fanin::operation::HttpServer::Handler& handler,
                                       std::unique_ptr<fanin::operation::HttpServer>& server) {
  server = std::make_unique<fanin::operation::MhdServer>(loop, std::move(handler));
}
