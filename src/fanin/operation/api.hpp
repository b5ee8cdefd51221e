// The API of run control (openapi.json describes it) and its page: requests in, replies out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fanin/net/loop.hpp"
#include "fanin/operation/event_sampler.hpp"
#include "fanin/operation/event_stream.hpp"
#include "fanin/operation/http/server.hpp"
#include "fanin/operation/registry.hpp"
#include "fanin/operation/run_control.hpp"
#include "fanin/operation/tokens.hpp"

namespace fanin::operation {

struct ApiOptions {
  std::vector<std::string> host_names; // by which it may be addressed over TCP, beside localhost
  std::uint64_t first_event = 1; // as of EventStream
  std::function<std::int64_t()> unix_ns;
};

// Thread: the loop's. All arguments outlive it.
class Api {
public:
  Api(net::Loop& loop, RunControl& control, Registry& registry, const Tokens& tokens,
      ApiOptions options);

  // For HttpServer.
  [[nodiscard]] HttpReply answer(const HttpRequest& request);
  // Before requests come; it outlives this.
  void set_server(HttpServer& server) { server_ = &server; }

  // For RunControlOptions.
  void on_change();
  void on_line(const ShownLine& line);

private:
  struct Caller {
    std::string who;
    AccessRole role{};
  };
  // A reply: why not.
  [[nodiscard]] std::optional<HttpReply> check_origin(const HttpRequest& request) const;
  [[nodiscard]] std::optional<Caller> identify(const HttpRequest& request,
                                               HttpReply& refused) const;
  [[nodiscard]] HttpReply get(const HttpRequest& request, std::string_view path,
                              const Caller& caller);
  [[nodiscard]] HttpReply post(const HttpRequest& request, std::string_view path,
                               const Caller& caller);
  [[nodiscard]] HttpReply command(Command command, const json::Value& body, const Caller& caller);
  [[nodiscard]] HttpReply get_run(std::string_view path);
  [[nodiscard]] HttpReply change_run(std::string_view path, const json::Value& body,
                                     const Caller& caller);
  [[nodiscard]] HttpReply list_runs(const HttpRequest& request);
  [[nodiscard]] HttpReply stream(const HttpRequest& request, const Caller& caller);
  [[nodiscard]] HttpReply log_lines(const HttpRequest& request) const;
  [[nodiscard]] HttpReply node(std::string_view name) const;
  [[nodiscard]] json::Value status(const Caller& caller) const;
  void record(const Caller& caller, std::string_view command, const json::Value& body,
              std::string_view outcome);
  void on_beat();

  net::Loop& loop_;
  RunControl& control_;
  Registry& registry_;
  const Tokens& tokens_;
  ApiOptions options_;
  HttpServer* server_ = nullptr;
  EventStream events_;
  EventSampler sampler_;
  net::Timer beat_;
  net::Timer changed_; // what follows soon after a change is told with it
};

} // namespace fanin::operation
