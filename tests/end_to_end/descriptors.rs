//! Programs that close what they did not open, take every number for themselves, or have hardly any.

use crate::harness::life::same_as_untraced;
use crate::harness::tool::{count, dropped};

/// Its numbers, files and sockets are its own from there on. What it launches goes on to be read:
/// the memory is handed over already. What threads launch that need more of it than can be handed
/// over without a socket is counted as lost.
#[test]
fn program_that_closes_everything_and_takes_every_number_has_them_for_itself() {
    for how in ["close", "close_range", "closefrom", "dup2"] {
        let lives = same_as_untraced("closes_all", &[how]);
        assert_eq!(lives.untraced.code(), Some(7), "{how}: {}", lives.untraced.stderr);
        assert!(
            lives.untraced.stdout.contains("the file has 9 bytes: begin end\n"),
            "{}",
            lives.untraced.stdout
        );
        assert!(
            lives.untraced.stdout.ends_with("messages at the other end: 0\n"),
            "{}",
            lives.untraced.stdout
        );
        let said = "the program closed the connection to the collector";
        assert!(lives.bare.ended.stderr.contains(said), "{how}: {}", lives.bare.ended.stderr);
        lives.each(|report, under| {
            let (launches, lost) = (count(report, "launches"), dropped(report));
            // Such a thread loses eleven calls, of which ten are launches.
            assert_eq!(launches + lost / 11 * 10, 1_001, "{how} {under}: {report:#}");
            assert!(lost % 11 == 0 && launches > 800, "{how} {under}: {launches}, {lost} lost");
            assert_eq!(report["dropped"]["no_ring"].as_u64().unwrap_or(0), lost, "{how} {under}: {report:#}");
        });
    }
}
