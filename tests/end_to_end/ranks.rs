//! The processes of one job are distinguished by their ranks.

use crate::harness::program::{Link, compiled};
use crate::harness::tool::run_command;

#[test]
fn processes_of_a_job_are_named_by_rank() {
    let program = compiled("basic", Link::Driver);
    let script = format!(
        "RANK=1 LOCAL_RANK=0 {0} & OMPI_COMM_WORLD_RANK=0 {0} & SLURM_PROCID=x {0} & wait",
        program.display()
    );
    let traced = run_command("/bin/sh").arg("-c").arg(script).succeed();
    let report = traced.report();
    let processes = report["processes"].as_array().unwrap();
    let mut ranks: Vec<_> =
        processes.iter().map(|process| (process["rank"].as_i64(), process["local_rank"].as_i64())).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [(None, None), (Some(0), None), (Some(1), Some(0))]);
    let folded = traced.read("flame.folded");
    let bottoms: Vec<_> = folded.lines().filter_map(|line| line.split(';').next()).collect();
    assert!(bottoms.contains(&"basic [rank 0]") && bottoms.contains(&"basic [rank 1]"), "{folded}");
    let pid = processes.iter().find(|process| process["rank"].is_null()).unwrap()["pid"].as_i64().unwrap();
    assert!(bottoms.contains(&format!("basic [{pid}]").as_str()), "{folded}");
}
