//! What is told of programs that came and went when there were so many that each by itself has no room.

use super::*;

/// The report lists 1000: those of one name, and those of the latest.
const GRAPHS: u64 = 480;

/// A program of so many graphs that are timed as a whole, each launched so often. Its id, when it has ended.
fn run(folder: &Folder, launches: u64) -> u32 {
    let mut command = tool::joining("many_graphs", &socket(folder));
    command.env("GPUTRACE_GRAPH_TIMES", "graph").args([GRAPHS, launches].map(|number| number.to_string()));
    let mut program = Running(command.spawn().unwrap());
    assert_eq!(program.end().code(), Some(0));
    program.0.id()
}

/// Of graphs 4096 are told apart, and all but the last of these programs have ended by the time it wants its own.
#[test]
fn graphs_and_failures_of_the_latest_program_have_room_however_many_ended_before() {
    const PROGRAMS: u64 = 10;
    let folder = Folder::new();
    let collector = Collector::start(&folder, "out", false);
    let mut latest = 0;
    for number in 1..=PROGRAMS {
        latest = run(&folder, if number < PROGRAMS { 1 } else { 2 });
    }
    let report = report(&[collector.end(false)]);
    let launches = (PROGRAMS + 1) * GRAPHS;
    assert_eq!((count(&report, "graph_launches"), tool::dropped(&report)), (launches, 0), "{report:#}");
    let whole = &report["whole_graphs"];
    assert_eq!((&whole["calls"], &whole["timed_calls"]), (&launches.into(), &launches.into()));
    // Launched twice, these are the longest of those that are told by themselves.
    let graphs = report["graphs"].as_array().unwrap();
    let own = graphs.iter().filter(|graph| graph["pid"] == latest);
    assert_eq!(own.filter(|graph| graph["calls"] == 2).count() as u64, GRAPHS, "{report:#}");
    let together = graphs.iter().filter(|graph| graph["pid"] == 0);
    let most = together.filter_map(|graph| graph["calls"].as_u64()).max().unwrap_or(0);
    assert!((3..PROGRAMS).contains(&most), "{most}");

    let errors = &report["errors"];
    let list = errors["list"].as_array().unwrap();
    let calls = |of: &dyn Fn(&&Value) -> bool| -> u64 {
        list.iter().filter(of).map(|error| error["calls"].as_u64().unwrap()).sum()
    };
    assert_eq!((errors["calls"].as_u64(), errors["left_out"].as_u64()), (Some(PROGRAMS), Some(0)));
    assert_eq!((calls(&|_| true), calls(&|error| error["pid"] == latest)), (PROGRAMS, 1), "{errors:#}");
    assert_eq!(calls(&|error| error["ended"].is_string()), most, "{errors:#}");
    let summary = fs::read_to_string(folder.join("out/summary.txt")).unwrap();
    // Those that can be found come first.
    let said = summary.split("\nFailed ").nth(1).unwrap().split("\n\n").next().unwrap();
    assert!(said.contains("CUDA_ERROR_OUT_OF_MEMORY") && !said.contains("[ended]"), "{summary}");
    assert!(summary.contains("processes that ended are told together"), "{summary}");
}
