//! The table of settings: warnings about what is not in it, and that it is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::harness::process::finish;
use crate::harness::tool::{bare, gputrace, run, run_command};

#[test]
fn unknown_variable_is_warned_about_with_its_neighbour() {
    let traced = run_command("true").env("GPUTRACE_DEVICE_TIME", "off").succeed();
    assert!(
        traced.ended.stderr.starts_with(
            "gputrace: warning: GPUTRACE_DEVICE_TIME is not a variable of gputrace; did you mean GPUTRACE_DEVICE_TIMES?\n"
        ),
        "{}",
        traced.ended.stderr
    );
}

/// The program may change its environment at any time, and no lock keeps a getenv of another thread
/// from reading what it frees: after the start our thread reads none.
#[test]
fn service_thread_reads_no_variable() {
    for traced in [run("environment_reads").succeed(), bare("environment_reads").succeed()] {
        assert!(traced.ended.stderr.contains("turns 1\n"), "{}", traced.ended.stderr);
    }
}

#[test]
fn invalid_value_is_warned_about() {
    let traced = run_command("true").env("GPUTRACE_DEVICE_TIMES", "sometimes").succeed();
    let expected = "gputrace: warning: GPUTRACE_DEVICE_TIMES=sometimes: not full, off, windows or windows=ON/MEAN; the default, full, holds\n";
    assert!(traced.ended.stderr.starts_with(expected), "{}", traced.ended.stderr);
}

#[test]
fn invalid_number_is_warned_about() {
    let traced = run_command("true").env("GPUTRACE_SIM_DEVICES", "-1").succeed();
    let expected = "gputrace: warning: GPUTRACE_SIM_DEVICES=-1 is no whole number; the default, 1, holds\n";
    assert!(traced.ended.stderr.starts_with(expected), "{}", traced.ended.stderr);
    let traced = run_command("true").env("GPUTRACE_SIM_DEVICES", "2").succeed();
    assert!(!traced.ended.stderr.contains("warning"), "{}", traced.ended.stderr);
}

/// `lib` reads one variable; of the others the traced program's own run warns.
#[test]
fn lib_warns_about_its_own_variable_only() {
    let mut command = gputrace();
    command.arg("lib").env("GPUTRACE_OUTPUT", "x").env("GPUTRACE_CACHES", "y");
    let ended = finish(&mut command).expect_code(0);
    assert_eq!(
        ended.stderr,
        "gputrace: warning: GPUTRACE_CACHES is not a variable of gputrace; did you mean GPUTRACE_CACHE?\n"
    );
}

#[test]
fn switch_is_checked_too() {
    for (value, is_warned) in [("OFF", true), ("bogus", true), ("off", false), ("0", false), ("on", false)] {
        let traced = run_command("true").env("GPUTRACE", value).succeed();
        let expected = format!("gputrace: warning: GPUTRACE={value} is not one of on, off");
        assert_eq!(traced.ended.stderr.contains(&expected), is_warned, "{}", traced.ended.stderr);
        let is_off = ["off", "0"].contains(&value);
        assert_eq!(traced.ended.stderr.contains("nothing will be traced"), is_off, "{}", traced.ended.stderr);
    }
}

/// Every variable that any part reads or sets by name stands in the table, and so in the help.
#[test]
fn table_of_variables_is_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named = BTreeSet::new();
    for folder in [
        "src",
        "interpose/src",
        "producer/src",
        "callstack/src",
        "cupti-sys/src",
        "collector/src",
        "monitor/src",
        "sim",
    ] {
        collect(&root.join(folder), &mut named);
    }
    let page = finish(gputrace().args(["help", "variables"])).expect_code(0).stdout;
    let documented: BTreeSet<String> = variables_in(&page).collect();
    // Set by gputrace for its own parts, and by people who build it.
    let internal = ["GPUTRACE_SESSION", "GPUTRACE_PREBUILT_DIR"];
    let table = fs::read_to_string(root.join("src/cli/options.rs")).unwrap();
    let rows: BTreeMap<_, _> = table.split("\npub static ").filter_map(row).collect();
    assert!(rows.len() > documented.len(), "{rows:?}");
    let named: BTreeSet<_> = named.into_iter().filter_map(|name| variable_of(name, &rows)).collect();
    for name in named.difference(&documented) {
        assert!(internal.contains(&name.as_str()), "{name} is read somewhere and not in the table");
    }
    let unread: Vec<_> = documented.difference(&named).collect();
    assert!(unread.is_empty(), "in the table, and nobody reads them: {unread:?}");
}

fn collect(folder: &Path, named: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // Tests have variables of their own, and misspell some on purpose.
        let stem = path.file_stem().unwrap_or_default();
        if ["tests", "golden", "fake", "benches"].iter().any(|name| stem == *name) {
            continue;
        }
        if path.is_dir() {
            collect(&path, named);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            // A row of the table counts where other code names it.
            if !path.ends_with("cli/options.rs") {
                named.extend(variables_in(code));
                named.extend(rows_in(code));
            }
        }
    }
}

/// The names by which code refers to rows of the table.
fn rows_in(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split("options::").skip(1).map(|rest| {
        let name = rest.chars().take_while(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_');
        format!("options::{}", name.collect::<String>())
    })
}

/// The name of a row, and its variable.
fn row(text: &str) -> Option<(String, String)> {
    let (name, rest) = text.split_once(": Setting = ")?;
    Some((format!("options::{name}"), variables_in(rest).next()?))
}

fn variable_of(name: String, rows: &BTreeMap<String, String>) -> Option<String> {
    if name.starts_with("options::") { rows.get(&name).cloned() } else { Some(name) }
}

fn variables_in(text: &str) -> impl Iterator<Item = String> + '_ {
    text.match_indices("GPUTRACE_").filter_map(|(at, _)| {
        let name: String = text[at..]
            .chars()
            .take_while(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_')
            .collect();
        (name.len() > "GPUTRACE_".len() && !name.ends_with('_')).then_some(name)
    })
}
