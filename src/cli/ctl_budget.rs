//! What tracing costs a session's programs against its budget, in words, from its status.

use gputrace_collector::report::mean_error;
use serde_json::Value;

/// `None` where no program that runs has a budget, or none has measured yet.
pub fn text(processes: &[&Value]) -> Option<String> {
    let sum = |name: &str| -> u64 {
        let values = processes.iter().filter_map(|process| process["counters"][name].as_u64());
        values.fold(0, u64::saturating_add)
    };
    let wall_ns = sum("budget_wall_ns");
    if wall_ns == 0 {
        return None;
    }
    let share = |name: &str| sum(name) as f64 / wall_ns as f64 * 100.0;
    let [hooks, records, switches] =
        ["budget_hooks_ns", "budget_records_ns", "budget_switches_ns"].map(share);
    let error_ppm =
        mean_error(sum("budget_intervals"), sum("budget_cost_ppm"), sum("budget_cost_ppm_squares"));
    let error = error_ppm.map_or_else(String::new, |ppm| format!(" ±{:.2}%", ppm / 1e4));
    let states: Vec<String> = [
        ("budget_full_ns", "all device times"),
        ("budget_unstacked_ns", "stacks of sampled launches only"),
        ("budget_counted_ns", "counts of launches outside of windows only"),
        ("budget_least_ns", "device times at their least"),
    ]
    .into_iter()
    .filter(|(name, _)| sum(name) > 0)
    .map(|(name, what)| format!("; {what} for {:.0}% of the time", share(name)))
    .collect();
    Some(format!(
        "{:.1}%, of which {:.2}%{error} spent: hooks {hooks:.2}%, CUPTI's records {records:.2}%, switches \
         {switches:.2}%{}",
        share("budget_allowed_ns"),
        hooks + records + switches,
        states.concat()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn costs_of_all_programs_are_of_their_time() {
        let one =
            json!({ "counters": { "budget_wall_ns": 1_000, "budget_allowed_ns": 10, "budget_hooks_ns": 4 } });
        let other = json!({ "counters": { "budget_wall_ns": 1_000, "budget_allowed_ns": 10, "budget_records_ns": 8,
                                          "budget_least_ns": 500 } });
        let none = json!({ "counters": {} });
        assert_eq!(text(&[&none]), None);
        let expected = "1.0%, of which 0.60% spent: hooks 0.20%, CUPTI's records 0.40%, switches 0.00%; device \
                        times at their least for 25% of the time";
        assert_eq!(text(&[&one, &other, &none]).as_deref(), Some(expected));
    }

    #[test]
    fn what_is_recorded_less_of_is_said_and_how_certain_the_cost_is() {
        let saving = json!({ "counters": {
            "budget_wall_ns": 1_000, "budget_allowed_ns": 10, "budget_hooks_ns": 10, "budget_intervals": 2,
            "budget_cost_ppm": 20_000, "budget_cost_ppm_squares": 200_000_000u64, "budget_full_ns": 100,
            "budget_unstacked_ns": 300, "budget_counted_ns": 200 } });
        let expected = "1.0%, of which 1.00% ±0.00% spent: hooks 1.00%, CUPTI's records 0.00%, switches 0.00%; \
                        all device times for 10% of the time; stacks of sampled launches only for 30% of the \
                        time; counts of launches outside of windows only for 20% of the time";
        assert_eq!(text(&[&saving]).as_deref(), Some(expected));
    }
}
