#include "support/program.hpp"

#include <exception>
#include <iostream>

#include "common/command_line.hpp"
#include "util/files.hpp"

namespace spillway::bench {
namespace {

int run(const Program& program, int argc, char** argv) {
  CLI::App app(
      program.question + "\nbench/" + program.bench + "/main.cpp says how to read the answer.\n",
      "bench_" + program.bench);
  std::string out;
  std::string markdown;
  std::string commit;
  program.add_options(app);
  app.add_option("--out", out, "Write the results as JSON")->type_name("FILE");
  app.add_option("--markdown", markdown, "Write the table as Markdown")->type_name("FILE");
  app.add_option("--commit", commit, "Commit to name in the results (default: ask git)");
  if (const auto code = app::read_command_line(app, argc, argv)) return *code;

  const std::unique_ptr<Device> device = program.open_device();
  Report report;
  report.bench = program.bench;
  report.question = program.question;
  report.made = provenance_of(*device, argc, argv, commit);
  report.save = [&] {
    if (!out.empty()) write_output(out, to_json(report).dump(2) + "\n");
    if (!markdown.empty()) write_output(markdown, to_markdown(report));
  };
  program.measure(*device, report);
  std::cout << to_text(report);
  report.save();
  return 0;
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  try {
    return run(program, argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}

}  // namespace spillway::bench
