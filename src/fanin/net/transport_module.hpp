/// \file
/// Transports in shared modules (base/shared_module.hpp). The module NAME defines
///
///     extern "C" void fanin_NAME_register_transports(fanin::net::TransportRegistry& registry);
///
/// and is opened when an address names one of its schemes.
#pragma once

#include <string>

#include "fanin/net/registry.hpp"

namespace fanin::net {

/// A factory for a scheme that the module NAME registers. `packages`: the Debian packages of the
/// libraries that the module needs, for the error. Errors of the factory: those of
/// SharedModule::open() and of the module's own factory.
[[nodiscard]] TransportFactory from_module(std::string name, std::string packages,
                                           std::string scheme);
/// A family that the module NAME registers: "ofi" of ofi+tcp.
[[nodiscard]] TransportFamily family_from_module(std::string name, std::string packages);

} // namespace fanin::net
