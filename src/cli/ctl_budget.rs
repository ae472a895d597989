//! What tracing costs a session's programs against its budget, in words, from its status.

use serde_json::Value;

/// `None` where no program that runs has a budget, or none has measured yet.
pub fn text(processes: &[&Value]) -> Option<String> {
    let sum = |name: &str| -> f64 {
        // A sum of no floats would be a negative zero.
        let values = processes.iter().filter_map(|process| process["counters"][name].as_u64());
        values.fold(0, u64::saturating_add) as f64
    };
    let wall_ns = sum("budget_wall_ns");
    if wall_ns <= 0.0 {
        return None;
    }
    let share = |name: &str| sum(name) / wall_ns * 100.0;
    let [hooks, records, switches] =
        ["budget_hooks_ns", "budget_records_ns", "budget_switches_ns"].map(share);
    let least = match share("budget_least_ns") {
        0.0 => String::new(),
        part => format!("; device times at their least for {part:.0}% of the time"),
    };
    Some(format!(
        "{:.1}%, of which {:.2}% spent: hooks {hooks:.2}%, CUPTI's records {records:.2}%, switches \
         {switches:.2}%{least}",
        share("budget_allowed_ns"),
        hooks + records + switches
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
}
