#include "fanin/net/transport_module.hpp"

#include <fmt/format.h>

#include <utility>

#include "fanin/base/shared_module.hpp"

namespace fanin::net {
namespace {

struct Module {
  std::string name;
  std::string packages;

  Result<std::unique_ptr<Transport>> make(const std::string& scheme, Loop& loop,
                                          const LogFunction& log) const {
    const auto refused = [&](const Error& error) {
      return fail(ErrorKind::unsupported,
                  fmt::format("{}: {}; it needs {}", scheme, error.text, packages));
    };
    const auto opened = SharedModule::open(name);
    if (!opened) return refused(opened.error());
    const std::string function = fmt::format("fanin_{}_register_transports", name);
    const auto add = opened->function<void(TransportRegistry&)>(function.c_str());
    if (!add) return refused(add.error());
    TransportRegistry registry;
    (*add)(registry);
    const TransportFactory factory = registry.find(scheme);
    if (factory) return factory(loop, log);
    return fail(ErrorKind::unsupported, fmt::format("{}: not in fanin_{}.so", scheme, name));
  }
};

} // namespace

TransportFactory from_module(std::string name, std::string packages, std::string scheme) {
  return [module = Module{std::move(name), std::move(packages)}, wanted = std::move(scheme)](
             Loop& loop, const LogFunction& log) { return module.make(wanted, loop, log); };
}

TransportFamily family_from_module(std::string name, std::string packages) {
  return [module = Module{std::move(name), std::move(packages)}](Loop& loop, const LogFunction& log,
                                                                 std::string_view member) {
    return module.make(fmt::format("{}+{}", module.name, member), loop, log);
  };
}

} // namespace fanin::net
