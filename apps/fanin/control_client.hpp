// Asks a `fanin serve`, by libcurl: over its Unix socket, or over TCP with a token.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"

namespace fanin::command {

class ControlClient {
public:
  struct Place {
    std::string url; // "http://127.0.0.1:7080"; empty: the socket beside the registry
    std::string registry; // beside it are the socket and the file of tokens
    std::string token_file; // empty: that one
  };
  struct Reply {
    long status = 0;
    std::string body;
    json::Value value; // null: it is no JSON
  };

  // Errors: not_found (there is no run control), refused (the token file cannot be read).
  [[nodiscard]] static Result<ControlClient> open(const Place& place);
  ControlClient(ControlClient&&) noexcept;
  ~ControlClient();

  // `path`: after /api/v1/. Without a body: GET. Errors: disconnected.
  [[nodiscard]] Result<Reply> ask(const std::string& path, const json::Value* body = nullptr);
  // Reads server-sent events until `on_event` returns false. Errors: disconnected.
  [[nodiscard]] Result<>
  listen(const std::function<bool(std::string_view kind, const json::Value& data)>& on_event);

private:
  struct Curl;
  explicit ControlClient(std::unique_ptr<Curl> curl);
  std::unique_ptr<Curl> curl_;
};

} // namespace fanin::command
