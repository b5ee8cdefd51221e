#include "fanin/base/descriptor.hpp"

#include <unistd.h>

namespace fanin {

void Descriptor::reset() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

} // namespace fanin
