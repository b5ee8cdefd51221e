#include "fanin/operation/http/server.hpp"

#include <fmt/format.h>

#include "fanin/base/shared_module.hpp"

namespace fanin::operation {

Result<std::unique_ptr<HttpServer>> make_http_server(net::Loop& loop, HttpServer::Handler handler) {
  const auto refused = [](const Error& error) {
    return fail(ErrorKind::unsupported,
                fmt::format("fanin serve: {}; it needs libmicrohttpd12", error.text));
  };
  const auto opened = SharedModule::open("http");
  if (!opened) return refused(opened.error());
  using Make = void(net::Loop&, HttpServer::Handler&, std::unique_ptr<HttpServer>&);
  const auto make = opened->function<Make>("fanin_make_http_server");
  if (!make) return refused(make.error());
  std::unique_ptr<HttpServer> server;
  (*make)(loop, handler, server);
  return server;
}

} // namespace fanin::operation
