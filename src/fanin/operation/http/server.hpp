// HTTP for the API of run control: what it asks of a server. The server itself is in the shared
// module `http`, with libmicrohttpd (mhd_server.cpp); it is opened when it is needed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/descriptor.hpp"
#include "fanin/base/result.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::operation {

struct HttpRequest {
  std::string method;
  std::string path; // decoded, without the query
  std::map<std::string, std::string> query; // decoded
  std::map<std::string, std::string> headers; // names in small letters
  std::string body;
  std::optional<std::uint32_t> user; // who is connected: over a Unix socket; none: over TCP

  [[nodiscard]] std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// What follows a reply without end: gives the next piece, or nothing for now.
using HttpStream = std::function<std::string()>;

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers{};
  HttpStream stream{}; // instead of the body
};

// Thread: its loop.
class HttpServer {
public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;
  static constexpr std::size_t body_max = 64U << 10; // of a request; a larger one gets 413

  virtual ~HttpServer() = default;
  // Takes requests at a listening socket too. Errors: exhausted.
  [[nodiscard]] virtual Result<> listen(Descriptor listener) = 0;
  // Streams that had nothing are asked again.
  virtual void wake_streams() = 0;
};

// Opens the module. The loop outlives the server; `handler` is called on it, and must not throw.
// Errors: unsupported, with the package that is missing.
[[nodiscard]] Result<std::unique_ptr<HttpServer>> make_http_server(net::Loop& loop,
                                                                   HttpServer::Handler handler);

} // namespace fanin::operation
