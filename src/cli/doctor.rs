//! `gputrace doctor`: what works on this machine, and why the rest does not.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::process;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;

use crate::cli::failure::Failure;
use crate::cli::{exit_code, options, stdout, variables};
use crate::launch::extract;
use crate::machine::finding::{Finding, Verdict};
use crate::machine::{cupti, gpu, preload, system};

pub fn command() -> Command {
    Command::new("doctor")
        .about("Say what works on this machine, and why the rest does not")
        .after_help(
            "Lines that begin with $ are the commands that mend what was found.\n\
             The exit code is 0 if CUDA programs can be traced here, 1 if not.",
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("For programs to read"))
        .arg(
            Arg::new("preloaded")
                .long("preloaded")
                .value_name("LIST")
                .value_parser(value_parser!(OsString))
                .hide(true)
                .help("LD_PRELOAD as doctor was started with"),
        )
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    let preloaded = match matches.get_one::<OsString>("preloaded") {
        Some(list) => list.clone(),
        None => without_the_library(),
    };
    variables::warn_about_unknown();
    let caches = extract::cache_folders(options::CACHE.variable_value().map(Into::into));
    let usable = caches.iter().find(|cache| extract::extract(cache).is_ok());
    let cache = usable.or(caches.first()).cloned();
    let mut findings = system::findings();
    findings.extend(preload::findings(cache, &preloaded));
    findings.extend(switched_off());
    findings.extend(gpu::findings());
    findings.extend(cupti::findings(options::CUPTI.variable_value().map(Into::into)));

    let can_trace = findings.iter().all(|finding| finding.verdict != Verdict::Broken);
    let text =
        if matches.get_flag("json") { as_json(&findings, can_trace) } else { as_text(&findings, can_trace) };
    stdout::print(text.as_bytes())?;
    Ok(if can_trace { exit_code::SUCCESS } else { exit_code::FAILED })
}

/// LD_PRELOAD as it is. If it names our library, this process becomes a doctor without it: under the library
/// the driver's initialisation would be traced, and a folder be written.
fn without_the_library() -> OsString {
    let list = env::var_os("LD_PRELOAD").unwrap_or_default();
    if preload::ours(&list).is_some() {
        let mut again = process::Command::new("/proc/self/exe");
        again.args(env::args_os().skip(1)).arg("--preloaded").arg(&list).env_remove("LD_PRELOAD");
        // Returns only where there is no /proc.
        let _ = again.exec();
    }
    list
}

/// Whoever switched the library off and forgot it would look for the fault everywhere else.
fn switched_off() -> Option<Finding> {
    variables::switched_off().map(|value| {
        let text = format!("GPUTRACE={value}: the library does nothing in the programs started here");
        Finding::broken("library", text).hint("unset the variable").command("unset GPUTRACE")
    })
}

fn as_text(findings: &[Finding], can_trace: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(text, "{:<8} {:<8} {}", finding.subject, finding.verdict.word(), finding.text);
        if let Some(hint) = &finding.hint {
            let _ = writeln!(text, "{:<17} hint: {hint}", "");
        }
        for command in &finding.commands {
            let _ = writeln!(text, "{:<17} $ {command}", "");
        }
    }
    text.push_str(if can_trace {
        "CUDA programs can be traced here.\n"
    } else {
        "CUDA programs cannot be traced here; what is broken is marked above.\n"
    });
    text
}

fn as_json(findings: &[Finding], can_trace: bool) -> String {
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "subject": finding.subject,
                "verdict": finding.verdict.word(),
                "text": finding.text,
                "hint": finding.hint,
                "commands": finding.commands,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "can_trace": can_trace, "findings": findings }))
}
