/// The events of those who used something last, at most one a stream.
#pragma once

#include <vector>

#include "spillway/core/event.hpp"

namespace spillway {

using EventList = std::vector<EventRef>;

/// Adds `event` unless the list has the same or a later point of that stream; drops an earlier one.
/// An event never recorded is nothing to wait for and is not added.
void add_event(EventList& list, EventRef event);

}  // namespace spillway
