// What each contender is made of. contenders.hpp chooses among them by name.
#pragma once

#include <cstdint>

#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// fanin's message sockets: high throughput (stream, nxn), low latency (round trip), publish and
// subscribe. A process has one Context, hence one loop. Errors: unsupported: no such transport.
[[nodiscard]] Result<Ends> sockets_ends(const Spec& spec);

// nxn with traffic shaping: N senders to M receivers, in the order and with the grants of event
// building (builder/shaping), over data connections of its own. What event building under the same
// shaping can reach at most. A message is a carrier, filled with records (record.hpp). Errors:
// usage: a record is larger than a carrier; unsupported: no such transport here, or all in one
// process.
[[nodiscard]] Result<Ends> shaped_nxn_ends(const Spec& spec);

// The rungs of the ladder between the bare loop and the event builder: the same payload through a
// Transport and a Loop. N senders, M receivers, a process each. `spec.page`: bytes of one message,
// about. Pages of records, each one message: what the transport costs.
[[nodiscard]] Ends page_stream_ends(const Spec& spec);
// Data blocks of emulated sources, cut from fragment queues, without an event manager: what the
// source and the framing cost. `source_page`: of the sources' pools; `batch_events`: fragments in
// one message, at most.
[[nodiscard]] Ends block_stream_ends(const Spec& spec, std::uint32_t source_page,
                                     std::uint32_t batch_events);

// What sockets give without a library. N processes fill pages of records and write them to M
// processes in turn, which read and walk them; with pubsub, each page to all of them. With nxn a
// record is what a source makes of an event, else a copy (payload.hpp).
[[nodiscard]] Ends bare_tcp_ends(const Spec& spec);
// One socket at each end, nothing else.
[[nodiscard]] Ends bare_tcp_roundtrip(const Spec& spec);

// What memory gives without a library; both ends spin. A ring of pages of records that both
// processes map; one fills them, the other walks them. Errors: exhausted.
[[nodiscard]] Result<Ends> shared_memory_stream(const Spec& spec);
// Two cache lines, or two buffers of the message's size, back and forth. Errors: exhausted.
[[nodiscard]] Result<Ends> shared_memory_roundtrip(const Spec& spec);
// One process that fills a page and walks it.
[[nodiscard]] Ends one_process_stream(const Spec& spec);
// One process that copies message after message.
[[nodiscard]] Ends memcpy_stream(const Spec& spec);

// What FI_EP_MSG of the same provider gives without a library: two endpoints, a window of buffers
// at each, and fi_cq_read in a loop. Errors: unsupported, where there is no libfabric or the
// provider has datagrams only.
[[nodiscard]] Result<Ends> bare_fabric_ends(const Spec& spec); // a stream, or a round trip

// ZeroMQ: PUSH and PULL, PAIR, PUB and SUB, with its default settings. Over ipc where fanin's URL
// is of this host only. Errors: unsupported, with how to get it.
[[nodiscard]] Result<Ends> zeromq_ends(const Spec& spec);

// MPI: fanin-mpi-peer, a program beside the command, started by mpirun as two ranks of this host.
// It measures what the others do; libfanin does not depend on MPI. Whether it can be run here.
// Errors: unsupported, with how to get it.
[[nodiscard]] Result<> find_mpi(const Spec& spec);
[[nodiscard]] Result<Sample> run_mpi(const Spec& spec, const Window& window);

} // namespace fanin::bench
