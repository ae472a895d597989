//! `gputrace doctor`: what works on this machine, and why the rest does not.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;

use crate::cli::failure::Failure;
use crate::cli::{exit_code, options, stdout, variables};
use crate::launch::extract;
use crate::machine::finding::{Finding, Verdict};
use crate::machine::{cupti, gpu, preload, system};

pub fn command() -> Command {
    Command::new("doctor")
        .about("Say what works on this machine, and why the rest does not")
        .after_help("The exit code is 0 if CUDA programs can be traced here, 1 if not.")
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("For programs to read"))
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let caches = extract::cache_folders(options::CACHE.variable_value().map(Into::into));
    let usable = caches.iter().find(|cache| extract::extract(cache).is_ok());
    let cache = usable.or(caches.first()).cloned();
    let mut findings = system::findings();
    findings.extend(preload::findings(cache));
    findings.extend(switched_off());
    findings.extend(gpu::findings());
    findings.extend(cupti::findings(options::CUPTI.variable_value().map(Into::into)));

    let can_trace = findings.iter().all(|finding| finding.verdict != Verdict::Broken);
    let text =
        if matches.get_flag("json") { as_json(&findings, can_trace) } else { as_text(&findings, can_trace) };
    stdout::print(text.as_bytes())?;
    Ok(if can_trace { exit_code::SUCCESS } else { exit_code::FAILED })
}

/// Whoever switched the library off and forgot it would look for the fault everywhere else.
fn switched_off() -> Option<Finding> {
    variables::switched_off().map(|value| {
        let text = format!("GPUTRACE={value}: the library does nothing in the programs started here");
        Finding::broken("library", text).hint("unset GPUTRACE")
    })
}

fn as_text(findings: &[Finding], can_trace: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(text, "{:<8} {:<8} {}", finding.subject, finding.verdict.word(), finding.text);
        if let Some(hint) = &finding.hint {
            let _ = writeln!(text, "{:<17} hint: {hint}", "");
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
            })
        })
        .collect();
    format!("{:#}\n", json!({ "can_trace": can_trace, "findings": findings }))
}
