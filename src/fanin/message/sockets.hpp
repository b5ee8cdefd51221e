/// \file
/// NetIO's six message sockets (Schumacher 2017, section III), over any transport.
#pragma once

#include "fanin/message/context.hpp"                  // IWYU pragma: export
#include "fanin/message/high_throughput_receiver.hpp" // IWYU pragma: export
#include "fanin/message/high_throughput_sender.hpp"   // IWYU pragma: export
#include "fanin/message/low_latency.hpp"              // IWYU pragma: export
#include "fanin/message/publisher.hpp"                // IWYU pragma: export
#include "fanin/message/subscriber.hpp"               // IWYU pragma: export
