//! What of the environment and the command line gets into a trace.

use gputrace_collector::batch::Batch;
use gputrace_collector::trace_file::TraceReader;

use crate::harness::program::{Link, compiled};
use crate::harness::tool::{Run, Traced, bare, bare_command, run, run_with};

const SECRETS: [&str; 6] =
    ["hunter2", "abc123def", "opensesame", "xyzzy-of-the-environment", "swordfish", "mellon"];

/// Everything that a run left, as a reader has it. A trace is compressed: its texts are read, all of them.
fn everything(traced: &Traced) -> String {
    let mut all = String::new();
    for file in std::fs::read_dir(&traced.output).unwrap() {
        let path = file.unwrap().path();
        match TraceReader::open(&path) {
            Ok(batches) => batches.for_each(|batch| all += &texts(&batch)),
            Err(_) => all += &String::from_utf8_lossy(&std::fs::read(path).unwrap()),
        }
    }
    assert!(all.contains("first_kernel"), "what is there is found");
    all + &traced.report().to_string() + &traced.ended.stderr
}

/// What a batch has of text.
fn texts(batch: &Batch) -> String {
    match batch {
        Batch::Definitions { records, .. } => {
            records.iter().map(|record| String::from_utf8_lossy(&record.text).into_owned() + "\n").collect()
        }
        other => format!("{other:?}\n"),
    }
}

fn with_secrets(run: Run) -> Run {
    run.env("SOME_PASSWORD", SECRETS[3])
        .env("BAGGAGE", format!("user=alice,session_token={}", SECRETS[4]))
        .env("OTEL_RESOURCE_ATTRIBUTES", format!("api_key={},team=vision", SECRETS[5]))
        .arg("--password=hunter2")
        .arg("--token")
        .arg(SECRETS[1])
        .arg("https://me:opensesame@host/")
        .arg("--epochs=90")
}

#[test]
fn arguments_that_look_like_secrets_and_the_environment_are_in_no_output() {
    for traced in [with_secrets(run("basic")).succeed(), with_secrets(bare("basic")).succeed()] {
        let all = everything(&traced);
        for secret in SECRETS {
            assert!(!all.contains(secret), "{secret}");
        }
        // Arguments are kept, where they are no secrets: in the session and in the process.
        let report = traced.report();
        let arguments =
            ["--password=[redacted]", "--token", "[redacted]", "https://[redacted]@host/", "--epochs=90"];
        for command in [&report["command"], &report["processes"][0]["command"]] {
            let command: Vec<_> =
                command.as_array().unwrap().iter().map(|part| part.as_str().unwrap()).collect();
            assert_eq!(command[1..], arguments);
        }
    }
}

#[test]
fn redact_leaves_the_program_only() {
    let redacted = [
        run_with(&["--redact"], compiled("basic", Link::Driver)),
        run("basic").env("GPUTRACE_REDACT", "on"),
        bare("basic").env("GPUTRACE_REDACT", "on"),
    ];
    for traced in redacted.map(|run| with_secrets(run).succeed()) {
        let all = everything(&traced);
        for argument in
            SECRETS.iter().chain(&["--password", "--token", "--epochs", "host/", "alice", "vision"])
        {
            assert!(!all.contains(argument), "{argument}");
        }
        let report = traced.report();
        for command in [&report["command"], &report["processes"][0]["command"]] {
            let command = command.as_array().unwrap();
            assert!(command[0].as_str().unwrap().ends_with("basic"));
            assert_eq!((command.len(), &command[1]), (2, &"[redacted]".into()));
        }
        assert!(traced.read("flame.folded").starts_with("basic"), "{}", traced.read("flame.folded"));
    }
    // A program that set its title, as this shell does for it, has all its arguments in one.
    let title = format!("exec -a 'basic --password {} --epochs=90' \"$0\"", SECRETS[1]);
    for run in [run_with(&["--redact"], "bash"), bare_command("bash").env("GPUTRACE_REDACT", "on")] {
        let traced = run.arg("-c").arg(&title).arg(compiled("basic", Link::Driver)).succeed();
        let all = everything(&traced);
        assert!(!all.contains(SECRETS[1]) && !all.contains("--epochs"), "{all}");
        let command = &traced.report()["processes"][0]["command"];
        assert_eq!(command, &serde_json::json!(["basic", "[redacted]"]));
    }
    // The option goes before the variable.
    let traced = run_with(&["--redact=off"], compiled("basic", Link::Driver));
    let traced = traced.env("GPUTRACE_REDACT", "on").arg("--epochs=90").succeed();
    assert_eq!(traced.report()["processes"][0]["command"][1], "--epochs=90");
}
