/// \file
/// What every transport has to do, as GoogleTest tests. A transport's test is a few lines, in one
/// source file of its test program:
///
///     #include "fanin/net/conformance/suite.hpp"
///     namespace fanin::net::conformance {
///     INSTANTIATE_TEST_SUITE_P(Mine, TransportConformance,
///                              testing::Values(Parameter{"mine", [] { return make_mine(); }}),
///                              parameter_name);
///     }
///
/// where make_mine() returns a std::unique_ptr<Backend> (backend.hpp). Both sides run on one
/// thread; nothing sleeps, and no test depends on how long anything takes. FANIN_CONFORMANCE=full
/// tests with larger limits, which takes minutes.
#pragma once

#include "fanin/net/conformance/attacks.hpp"
#include "fanin/net/conformance/backpressure.hpp"
#include "fanin/net/conformance/connecting.hpp"
#include "fanin/net/conformance/ending.hpp"
#include "fanin/net/conformance/messages.hpp"
#include "fanin/net/conformance/script.hpp"
