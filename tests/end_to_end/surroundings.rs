//! What a traced program sees changed around it: the variables named here, no more.

use std::collections::BTreeMap;
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, gputrace};

fn environment(command: &mut Command) -> BTreeMap<String, String> {
    let seen = finish(command).expect_code(0).stdout;
    let variables = seen.lines().filter(|line| !line.starts_with("Sig"));
    variables.filter_map(|line| line.split_once('=')).map(|(n, v)| (n.to_string(), v.to_string())).collect()
}

#[test]
fn environment_differs_by_these_variables_only() {
    let folder = Folder::new();
    let program = compiled("surroundings", Link::Nothing);
    let mut plain = Command::new(&program);
    tool::clean(&mut plain);
    let before = environment(&mut plain);
    let mut traced = gputrace();
    traced.args(["run", "-o"]).arg(folder.join("out")).arg("--").arg(&program);
    let after = environment(&mut traced);
    let allowed = ["LD_PRELOAD", "TRACEPARENT", "NVTX_INJECTION64_PATH"];
    for (name, value) in &after {
        let ours = allowed.contains(&name.as_str()) || name.starts_with("GPUTRACE_");
        assert!(before.get(name) == Some(value) || ours, "{name}={value}");
    }
    assert!(before.keys().all(|name| after.contains_key(name)));
    assert_eq!(after["LD_PRELOAD"], tool::library().to_str().unwrap());
    let fields: Vec<usize> = after["TRACEPARENT"].split('-').map(str::len).collect();
    assert_eq!(fields, [2, 32, 16, 2], "{}", after["TRACEPARENT"]);
}

#[test]
fn trace_context_is_left_as_it_is_where_that_is_asked_for() {
    let folder = Folder::new();
    let given = [("TRACESTATE", "vendor=x"), ("BAGGAGE", "user=7"), ("TRACEPARENT", "not one")];
    let seen = |variable: &str, option: Option<&str>, given: &[(&str, &str)]| {
        let mut traced = gputrace();
        traced.arg("run").args(option).arg("-o").arg(folder.join("out")).arg("--");
        traced.arg(compiled("surroundings", Link::Nothing)).env("GPUTRACE_TRACEPARENT", variable);
        environment(traced.envs(given.iter().copied()))
    };
    for (variable, option) in [("off", None), ("0", None), ("on", Some("--traceparent=off"))] {
        let after = seen(variable, option, &given);
        assert!(given.iter().all(|(name, value)| after[*name] == *value), "{after:?}");
        assert!(!seen(variable, option, &[]).contains_key("TRACEPARENT"));
    }
    let mut off = gputrace();
    off.args(["run", "-o"]).arg(folder.join("out")).arg("--").arg(compiled("surroundings", Link::Nothing));
    assert!(!environment(off.env("GPUTRACE", "off")).contains_key("TRACEPARENT"), "nothing is traced");
    let after = seen("on", None, &given);
    assert_ne!(after["TRACEPARENT"], "not one");
    assert!(given[..2].iter().all(|(name, value)| after[*name] == *value), "{after:?}");
}

#[test]
fn preload_that_is_there_stays() {
    let folder = Folder::new();
    let mut traced = gputrace();
    traced.args(["run", "-o"]).arg(folder.join("out")).arg("--").arg(compiled("surroundings", Link::Nothing));
    let after = environment(traced.env("LD_PRELOAD", "libm.so.6"));
    assert_eq!(after["LD_PRELOAD"], format!("{}:libm.so.6", tool::library().display()));
}

#[test]
fn descriptors_do_not_leak_into_the_program() {
    let program = compiled("nothing", Link::Nothing);
    let alone = finish(&mut Command::new(&program)).expect_code(0).stdout;
    let folder = Folder::new();
    let mut traced = gputrace();
    let ended =
        finish(traced.args(["run", "-o"]).arg(folder.join("out")).arg("--").arg(&program)).expect_code(0);
    assert_eq!(ended.stdout, alone);
}
