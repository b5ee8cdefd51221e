/// \file
/// The names that a shared library of fanin exports; all others are hidden (docs/abi.md). Before a
/// class the macro exports all its functions that are not inline, and its type; before a function
/// that function alone.
#pragma once

/// A name of the public interface: its header is installed.
#define FANIN_API [[gnu::visibility("default")]]

/// A name that only parts of fanin of the same commit use across the border of a library: the event
/// builder's library, the command, the shared modules.
#define FANIN_INTERNAL_API [[gnu::visibility("default")]]
