#include "spillway/memory/event_list.hpp"

#include <utility>

namespace spillway {

void add_event(EventList& list, EventRef event) {
  if (event == nullptr || event->point().order == 0) return;
  for (EventRef& each : list) {
    if (each->point().stream != event->point().stream) continue;
    if (each->point().order < event->point().order) each = std::move(event);
    return;
  }
  list.push_back(std::move(event));
}

}  // namespace spillway
