#include "fanin/bench/sockets.hpp"

namespace fanin::bench {

Result<Ends> sockets_ends(const Spec&) { return fail(ErrorKind::unsupported, "fanin: not yet"); }

} // namespace fanin::bench
