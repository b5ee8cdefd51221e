// Passes a control message to its handler.
#pragma once

#include <type_traits>

#include "fanin/base/identity.hpp"
#include "fanin/wire/control.hpp"

namespace fanin::builder {

// Reads a message and calls `(receiver.*on)(message)`. False: it is too short, or the receiver says
// that it is invalid.
template <class Receiver, class Message>
[[nodiscard]] bool take_message(wire::MessageReader& reader, Receiver& receiver,
                                bool (Receiver::*on)(const Message&)) {
  Message message;
  return reader.read(message) && (receiver.*on)(message);
}
// The same for a message of a node: calls `(receiver.*on)(node, message)`, for which all messages
// are valid if it returns nothing.
template <class Receiver, class Answer, class Message>
[[nodiscard]] bool take_message(wire::MessageReader& reader, Receiver& receiver,
                                Answer (Receiver::*on)(NodeId, const Message&), NodeId node) {
  Message message;
  if (!reader.read(message)) return false;
  if constexpr (std::is_void_v<Answer>) {
    (receiver.*on)(node, message);
    return true;
  } else {
    return (receiver.*on)(node, message);
  }
}

} // namespace fanin::builder
