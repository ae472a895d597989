//! What a comparison cannot show, in words.

use std::collections::BTreeSet;

use crate::label::units::{duration, percent};
use crate::report::diff::MeasuredTwice;
use crate::report::words::plural;
use crate::report::{DeviceTimes, Report};

/// Of all that keeps two sides from being compared, what applies; how noise is dealt with first.
pub(super) fn notes(before: &[Report], after: &[Report]) -> Vec<String> {
    let mut notes = vec![noise(before.len(), after.len())];
    let is_simulated = |runs: &[Report]| {
        let with_work = runs.iter().filter(|report| !report.is_empty());
        with_work.map(|report| report.simulated).collect::<BTreeSet<_>>()
    };
    let simulated: BTreeSet<bool> = is_simulated(before).into_iter().chain(is_simulated(after)).collect();
    if simulated.len() > 1 {
        let text = "some runs are on the simulated device and others on a real one: only counts can be compared, no times";
        notes.push(text.to_owned());
    }
    let has_steps = |runs: &[Report]| runs.iter().all(|report| report.step_count().is_some());
    if has_steps(before) && has_steps(after) {
        let text = "figures per step are those of the whole run over its steps: what ran outside of steps, as at the start, is in them";
        notes.push(text.to_owned());
    }
    for (side, runs) in [("before", before), ("after", after)] {
        notes.extend(of_side(side, runs));
    }
    let devices = |runs: &[Report]| -> BTreeSet<String> {
        runs.iter().flat_map(Report::used_devices).map(|device| device.name.clone()).collect()
    };
    let (devices_before, devices_after) = (devices(before), devices(after));
    let are_known = !devices_before.is_empty() && !devices_after.is_empty();
    if are_known && devices_before != devices_after && simulated.len() == 1 {
        let list = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
        let (old, new) = (list(devices_before), list(devices_after));
        notes.push(format!("the devices differ: {old} before, {new} after"));
    }
    notes
}

fn noise(before: usize, after: usize) -> String {
    match (before, after) {
        (1, 1) => "one run each: differences below the run-to-run spread cannot be distinguished from noise"
            .to_owned(),
        (2.., 2..) => format!(
            "means of {} before and {} after with Welch's 95% intervals, each on its own: of 20 rows that did not change, one is beyond noise by chance",
            plural(before as u64, "run", "runs"),
            plural(after as u64, "run", "runs")
        ),
        _ => format!(
            "{} before, {} after: the spread of a side with one run is not known, so differences cannot be distinguished from noise",
            plural(before as u64, "run", "runs"),
            plural(after as u64, "run", "runs")
        ),
    }
}

/// How sure the difference of the mean step is by the spread of the steps, of one run each.
pub(super) fn step_note(step_time: &MeasuredTwice) -> Option<String> {
    let (difference, [least, most]) = step_time.difference.zip(step_time.interval)?;
    let half = duration(((most - least) / 2.0) as u64);
    let by = duration(difference.abs() as u64);
    Some(match step_time.beyond_noise? {
        true if difference < 0.0 => {
            format!("a step became {by} ± {half} shorter, by the spread of the steps")
        }
        true => format!("a step became {by} ± {half} longer, by the spread of the steps"),
        false => format!("the mean step did not change by more than its steps vary (± {half})"),
    })
}

fn of_side(side: &str, runs: &[Report]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut add = |is_so: fn(&Report) -> bool, text: &str| {
        let number = runs.iter().filter(|report| is_so(report)).count();
        if number > 0 {
            let of =
                if runs.len() > 1 { format!(" (in {number} of {} runs)", runs.len()) } else { String::new() };
            notes.push(format!("{side}: {text}{of}"));
        }
    };
    add(Report::is_empty, "no CUDA work was recorded");
    add(
        |report| report.device_times == DeviceTimes::None,
        "no device times: GPU, busy and idle times cannot be compared; counts and host times can",
    );
    add(
        |report| report.device_times == DeviceTimes::Windows,
        "device times in windows only: GPU times are estimates, and busy and idle times are those of the windows",
    );
    add(|report| !report.excerpts.is_empty(), "a flight recorder's last part: totals are those of that part");
    add(|report| !report.size_limits.is_empty(), "the trace file holds the first part only");
    add(|report| report.paused.is_some(), "recording was paused for a time");
    add(
        |report| !report.complete,
        "not everything was recorded or read; gputrace report shows what is missing",
    );
    let partial = runs.iter().filter(|report| report.device_times == DeviceTimes::Partial);
    let least = partial.map(|report| report.device_time_coverage).min_by(f64::total_cmp);
    if let Some(least) = least {
        let coverage = percent(least);
        notes.push(format!(
            "{side}: device times of {coverage} of the operations: GPU times are lower bounds"
        ));
    }
    notes
}
