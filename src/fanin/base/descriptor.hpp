/// \file
/// Owns a file descriptor and closes it in its destructor.
#pragma once

#include <utility>

#include "fanin/base/export.hpp"

namespace fanin {

class Descriptor {
public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {} ///< negative: none
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() { reset(); }
  FANIN_API void reset();
  [[nodiscard]] int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

private:
  int descriptor_ = -1;
};

} // namespace fanin
