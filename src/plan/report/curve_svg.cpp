#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "spillway/plan/curve.hpp"

namespace spillway {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 360;
constexpr double kLeft = 64;
constexpr double kRight = 616;
constexpr double kTop = 40;
constexpr double kBottom = 304;

constexpr const char* kStyle =
    "<style>\n"
    "text { font: 12px sans-serif; fill: #24292f; }\n"
    ".title { font-weight: bold; }\n"
    ".grid { stroke: #d0d7de; }\n"
    ".axis { stroke: #57606a; }\n"
    ".step { stroke: #0969da; fill: none; stroke-width: 2; }\n"
    ".bound { stroke: #bc4c00; fill: none; stroke-width: 1.5; stroke-dasharray: 5 4; }\n"
    ".base { stroke: #57606a; stroke-dasharray: 2 4; }\n"
    ".point { fill: #0969da; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "text { fill: #e6edf3; }\n"
    ".grid { stroke: #30363d; }\n"
    ".axis, .base { stroke: #8b949e; }\n"
    ".step { stroke: #58a6ff; }\n"
    ".bound { stroke: #f0883e; }\n"
    ".point { fill: #58a6ff; }\n"
    "}\n"
    "</style>\n";

/// "%g" has no zeros at its end and needs no locale.
std::string number(double value, int digits = 6) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  return text.data();
}

/// What a number on an axis is a multiple of.
struct Unit {
  const char* name;
  double size;
};

template <std::size_t Count>
Unit unit_for(double largest, const std::array<Unit, Count>& units) {
  for (const Unit& unit : units) {
    if (largest >= unit.size) return unit;
  }
  return units.back();
}

Unit byte_unit(double largest) {
  return unit_for(largest, std::array<Unit, 4>{
                               {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}});
}

Unit time_unit(double largest) {
  return unit_for(largest, std::array<Unit, 3>{{{"ms", 1e6}, {"us", 1e3}, {"ns", 1}}});
}

/// One axis: values from `low` to `high` onto coordinates of the picture.
struct Axis {
  double low;
  double high;
  double begin;
  double end;
  Unit unit;

  [[nodiscard]] double at(double value) const {
    return begin + (value - low) / (high - low) * (end - begin);
  }

  /// About five round numbers, in the unit.
  [[nodiscard]] std::vector<double> ticks() const {
    const double rough = (high - low) / unit.size / 5;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= rough) {
        step = factor * power;
        break;
      }
    }
    std::vector<double> found;
    const auto first = static_cast<long>(std::ceil(low / unit.size / step));
    const auto last = static_cast<long>(std::floor(high / unit.size / step));
    for (long i = first; i <= last; ++i) found.push_back(static_cast<double>(i) * step);
    return found;
  }
};

std::string line(const char* kind, double x1, double y1, double x2, double y2) {
  return std::string("<line class=\"") + kind + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) +
         "\" x2=\"" + number(x2) + "\" y2=\"" + number(y2) + "\"/>\n";
}

std::string label(double x, double y, const char* anchor, const std::string& text,
                  const char* kind = "") {
  return std::string("<text") + (*kind == 0 ? "" : std::string(" class=\"") + kind + "\"") +
         " x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" + text +
         "</text>\n";
}

std::vector<CurvePoint> feasible_points(const Curve& curve) {
  std::vector<CurvePoint> points;
  for (const CurvePoint& point : curve.points) {
    if (point.feasible) points.push_back(point);
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const CurvePoint& a, const CurvePoint& b) { return a.budget < b.budget; });
  return points;
}

double bytes_of(const CurvePoint& point) { return static_cast<double>(point.budget.count()); }

std::pair<Axis, Axis> axes_of(const Curve& curve, const std::vector<CurvePoint>& points) {
  const auto base = static_cast<double>(curve.base_ns);
  double most_bytes = static_cast<double>(curve.base_peak.count());
  double longest = base;
  double shortest = base;
  for (const CurvePoint& point : points) {
    most_bytes = std::max(most_bytes, bytes_of(point));
    longest = std::max(longest, static_cast<double>(point.step_ns));
    shortest = std::min(shortest, static_cast<double>(point.bound_ns));
  }
  most_bytes = std::max(most_bytes, 1.0);
  const double margin = std::max(0.08 * (longest - shortest), 0.01 * std::max(longest, 100.0));
  return {{0, 1.02 * most_bytes, kLeft, kRight, byte_unit(most_bytes)},
          {std::max(0.0, shortest - margin), longest + margin, kBottom, kTop, time_unit(longest)}};
}

std::string grid(const Axis& x, const Axis& y) {
  std::string text;
  for (const double tick : y.ticks()) {
    const double position = y.at(tick * y.unit.size);
    text += line("grid", kLeft, position, kRight, position);
    text += label(kLeft - 8, position + 4, "end", number(tick));
  }
  for (const double tick : x.ticks()) {
    const double position = x.at(tick * x.unit.size);
    text += line("axis", position, kBottom, position, kBottom + 5);
    text += label(position, kBottom + 20, "middle", number(tick));
  }
  text += line("axis", kLeft, kBottom, kRight, kBottom) + line("axis", kLeft, kTop, kLeft, kBottom);
  text +=
      label((kLeft + kRight) / 2, kBottom + 42, "middle", std::string("budget, ") + x.unit.name);
  return text + label(8, kTop - 16, "start", std::string("step time, ") + y.unit.name, "title");
}

template <typename Time>
std::string path(const char* kind, const std::vector<CurvePoint>& points, const Axis& x,
                 const Axis& y, const Time& time) {
  std::string coordinates;
  for (const CurvePoint& point : points) {
    coordinates += (coordinates.empty() ? "" : " ") + number(x.at(bytes_of(point))) + "," +
                   number(y.at(static_cast<double>(time(point))));
  }
  return std::string("<polyline class=\"") + kind + "\" points=\"" + coordinates + "\"/>\n";
}

std::string dots(const std::vector<CurvePoint>& points, const Axis& x, const Axis& y) {
  std::string text;
  for (const CurvePoint& point : points) {
    const auto ns = static_cast<double>(point.step_ns);
    text += "<circle class=\"point\" cx=\"" + number(x.at(bytes_of(point))) + "\" cy=\"" +
            number(y.at(ns)) + "\" r=\"3.5\"><title>" + to_string(point.budget) + ": " +
            number(ns / y.unit.size, 5) + " " + y.unit.name + "; kept " + to_string(point.kept) +
            ", offloaded " + to_string(point.offloaded) + ", recomputed " +
            to_string(point.recomputed) + "</title></circle>\n";
  }
  return text;
}

std::string legend() {
  constexpr double kRow = kTop - 20;
  return line("step", 380, kRow, 404, kRow) + label(410, kRow + 4, "start", "best plan found") +
         line("bound", 516, kRow, 540, kRow) + label(546, kRow + 4, "start", "lower bound");
}

}  // namespace

std::string to_svg(const Curve& curve) {
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(kWidth) +
                     " " + number(kHeight) + "\" role=\"img\">\n" +
                     "<title>Budget against predicted step time</title>\n" + kStyle;
  const std::vector<CurvePoint> points = feasible_points(curve);
  if (points.empty()) {
    return text + label(kWidth / 2, kHeight / 2, "middle", "none of the budgets has a plan") +
           "</svg>\n";
  }
  const auto [x, y] = axes_of(curve, points);
  const double base = y.at(static_cast<double>(curve.base_ns));
  text += grid(x, y) + legend() + line("base", kLeft, base, kRight, base) +
          label(kRight, base + 14, "end", "everything kept");
  text += path("bound", points, x, y, [](const CurvePoint& point) { return point.bound_ns; });
  text += path("step", points, x, y, [](const CurvePoint& point) { return point.step_ns; });
  return text + dots(points, x, y) + "</svg>\n";
}

}  // namespace spillway
