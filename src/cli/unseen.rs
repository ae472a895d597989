//! The messages of `run` about descendants of the command that are not in the record, and about why no CUDA
//! call was recorded at all.

use std::collections::BTreeMap;
use std::fs;

use gputrace_collector::model::Totals;

use crate::cli::{printable, variables};
use crate::launch::descendants::Seen;
use crate::workload::driver::Driver;

/// Processes that one line names.
const NAMED: usize = 5;

/// A line for each user that descendants of the command run as, and to whom the session is closed.
pub fn other_users(seen: &Seen) -> Vec<String> {
    let mut users: BTreeMap<u32, Vec<(u32, &str)>> = BTreeMap::new();
    for (pid, process) in &seen.other_users {
        users.entry(process.uid).or_default().push((*pid, &process.name));
    }
    let mut lines: Vec<_> = users
        .into_iter()
        .map(|(uid, processes)| {
            let (user, name) = user_names(uid);
            let (runs, it) = if processes.len() == 1 { ("runs", "it") } else { ("run", "them") };
            format!(
                "{} {runs} as {user}, and a session is open to its own user only; to trace {it}: gosu {name} \
                 gputrace run -- CMD",
                list(&processes)
            )
        })
        .collect();
    if seen.more_other_users > 0 {
        lines.push(format!("{} more processes of other users", seen.more_other_users));
    }
    lines
}

/// Where no process came to be traced: why that may be so, the likeliest cause first, of those that can
/// apply. `untraceable` says why the command's own program cannot be traced.
pub fn why_nothing(
    totals: &Totals,
    seen: &Seen,
    untraceable: Option<&str>,
    simulate: bool,
) -> Option<String> {
    let is_known = !totals.not_initialised.is_empty() || totals.sessions.iter().any(has_refused(seen));
    if !totals.processes.is_empty() || is_known || variables::switched_off().is_some() {
        return None;
    }
    let mut causes = Vec::new();
    if !seen.without_variables.is_empty() {
        let processes: Vec<_> =
            seen.without_variables.iter().map(|(pid, name)| (*pid, name.as_str())).collect();
        let were = if processes.len() == 1 { "was" } else { "were" };
        causes.push(format!(
            "{} {were} started without LD_PRELOAD and GPUTRACE_SESSION: put gputrace run behind what cleared \
             them (env -i, sudo)",
            list(&processes)
        ));
    }
    if !seen.other_users.is_empty() {
        causes.push("processes of another user are not traced: see above".to_owned());
    }
    causes.extend(untraceable.map(str::to_owned));
    if !simulate && let Err(error) = Driver::open() {
        causes.push(format!(
            "there is no CUDA driver: {error}; gputrace demo and run --simulate work without one"
        ));
    }
    if causes.is_empty() {
        return Some(
            "gputrace: was CUDA used at all? gputrace doctor shows whether tracing works here".to_owned(),
        );
    }
    let causes: String = causes.iter().map(|cause| format!("\n  - {}", printable::name(cause))).collect();
    Some(format!(
        "gputrace: why there may be no CUDA call, the likeliest first (gputrace doctor shows what \
         works):{causes}"
    ))
}

/// Whether the session says of more processes than those of other users why they are not recorded.
fn has_refused(seen: &Seen) -> impl Fn(&gputrace_collector::model::Session) -> bool {
    let lines = other_users(seen).len();
    move |session| session.unrecorded.len() > lines
}

/// `process 12 (python3)`, `processes 12 (python3), 13 (sh) and 4 more`.
fn list(processes: &[(u32, &str)]) -> String {
    let named: Vec<_> = processes
        .iter()
        .take(NAMED)
        .map(|(pid, name)| format!("{pid} ({})", printable::name(name)))
        .collect();
    let more = match processes.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if processes.len() == 1 { "process" } else { "processes" };
    format!("{noun} {}{more}", named.join(", "))
}

/// A user in words, and as commands take one. Only /etc/passwd is asked: a directory service may take long.
fn user_names(uid: u32) -> (String, String) {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    });
    match name {
        Some(name) => (format!("user {name} ({uid})"), name.to_owned()),
        None => (format!("user {uid}"), uid.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::descendants::OtherUser;

    #[test]
    fn processes_of_other_users_are_a_line_for_each_user() {
        let mut seen = Seen::default();
        let other = |uid, name: &str| OtherUser { uid, name: name.into() };
        seen.other_users.insert(7, other(4_000_000, "python3"));
        for pid in 10..17 {
            seen.other_users.insert(pid, other(4_000_001, "w"));
        }
        let lines = other_users(&seen);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("process 7 (python3) runs as user 4000000, "), "{lines:?}");
        assert!(lines[0].ends_with(": gosu 4000000 gputrace run -- CMD"), "{lines:?}");
        let many = "processes 10 (w), 11 (w), 12 (w), 13 (w), 14 (w) and 2 more run as user 4000001, ";
        assert!(lines[1].starts_with(many), "{lines:?}");
    }
}
