//! Whether a session records or is paused, and why, in words, from its status.

use serde_json::Value;

/// Programs that are named one by one.
const NAMED_MAX: usize = 20;

/// Of a session's programs: once if all do the same, else one by one.
pub fn text(state: &Value) -> String {
    // A session of an earlier version does not report it.
    if state.is_null() {
        return String::new();
    }
    let processes: Vec<&Value> = state["processes"].as_array().into_iter().flatten().collect();
    let words = |process: &&Value| one(&process["recording"], why(process, &state["ordered_by"]));
    let each: Vec<String> = processes.iter().map(words).collect();
    match each.split_first() {
        None => format!("{}; no program runs", one(&state["recording"], by_order(&state["ordered_by"]))),
        Some((first, rest)) if rest.iter().all(|other| other == first) => first.clone(),
        _ => {
            let named = processes.iter().zip(&each).take(NAMED_MAX);
            let named: Vec<String> =
                named.map(|(process, words)| format!("{} {words}", process["pid"])).collect();
            let more = each.len().saturating_sub(NAMED_MAX);
            let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
            named.join("; ") + &rest
        }
    }
}

fn one(recording: &Value, why: Option<&str>) -> String {
    let does = match recording.as_bool() {
        Some(true) => "recording",
        Some(false) => "paused",
        None => "as started",
    };
    why.map_or_else(|| does.to_owned(), |why| format!("{does}: {why}"))
}

fn why<'v>(process: &'v Value, ordered_by: &'v Value) -> Option<&'v str> {
    Some(match process["why"].as_str()? {
        "order" => return by_order(ordered_by),
        "start-paused" => "it began paused, until gputrace ctl PID start",
        "own-delay" => "its GPUTRACE_DELAY is not over",
        "capture-range-awaited" => "its capture range has not begun",
        "capture-range-open" => "it is in its capture range",
        "capture-ranges-over" => "its capture ranges are over",
        // Of a newer session.
        other => other,
    })
}

fn by_order(ordered_by: &Value) -> Option<&str> {
    Some(match ordered_by.as_str()? {
        "ctl" => "by gputrace ctl",
        "delay" => "--delay is not over",
        "delay-over" => "--delay is over",
        "duration" => "--duration is over",
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn state_is_said_once_or_for_each_program() {
        let ordered = json!({ "pid": 7, "recording": false, "why": "order" });
        let awaits = json!({ "pid": 8, "recording": false, "why": "capture-range-awaited" });
        for (processes, expected) in [
            (json!([]), "paused: by gputrace ctl; no program runs"),
            (json!([ordered, ordered]), "paused: by gputrace ctl"),
            (
                json!([ordered, awaits]),
                "7 paused: by gputrace ctl; 8 paused: its capture range has not begun",
            ),
        ] {
            let state = json!({ "recording": false, "ordered_by": "ctl", "processes": processes });
            assert_eq!(text(&state), expected);
        }
        let as_started = json!({ "recording": null, "ordered_by": null, "processes": [] });
        assert_eq!(text(&as_started), "as started; no program runs");
        let begins = json!([{ "pid": 9, "recording": true, "why": null }]);
        assert_eq!(text(&json!({ "recording": true, "ordered_by": null, "processes": begins })), "recording");
    }
}
