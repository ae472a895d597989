//! The manual pages and the completions that packages install.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::tool::gputrace;

/// What `gputrace --help` lists.
fn subcommands() -> BTreeSet<String> {
    let page = finish(gputrace().arg("--help")).expect_code(0).stdout;
    let list = page.split_once("Commands:\n").unwrap().1.split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn manual_has_a_page_for_every_subcommand_and_each_of_its_options() {
    let folder = Folder::new();
    finish(gputrace().arg("man").arg(folder.join("man1"))).expect_code(0);
    let files = fs::read_dir(folder.join("man1")).unwrap().map(|entry| entry.unwrap().file_name());
    let files: BTreeSet<_> = files.map(|name| name.into_string().unwrap()).collect();
    let mut wanted: BTreeSet<_> = subcommands().iter().map(|name| format!("gputrace-{name}.1")).collect();
    assert!(wanted.len() >= 9, "{wanted:?}");
    for name in &wanted {
        let page = fs::read_to_string(folder.join("man1").join(name)).unwrap().replace("\\-", "-");
        let name = name.strip_prefix("gputrace-").unwrap().strip_suffix(".1").unwrap();
        let help = finish(gputrace().args([name, "--help"])).expect_code(0).stdout;
        let options = help.lines().filter_map(|line| {
            line.trim_start().split([' ', ',', '=', '[']).find(|word| word.starts_with("--"))
        });
        let options: BTreeSet<_> = options.filter(|option| option.len() > 2).collect();
        assert!(options.contains("--help"), "{name}");
        for option in options {
            assert!(page.contains(option), "{name}: {option}\n{page}");
        }
    }
    wanted.insert("gputrace.1".to_owned());
    assert_eq!(files, wanted);
    let main = fs::read_to_string(folder.join("man1/gputrace.1")).unwrap().replace("\\-", "-");
    for part in [".SH ENVIRONMENT", "GPUTRACE_STACKS=", ".SH \"EXIT STATUS\"", "  126  ", "gputrace-run(1)"] {
        assert!(main.contains(part), "{part}: {main}");
    }
    assert!(!main.contains("gputrace-demo-workload"), "{main}");
}

#[test]
fn manual_that_cannot_be_written_is_an_error() {
    let ended = finish(gputrace().args(["man", "/proc/nowhere"])).expect_code(73);
    assert!(
        ended.stderr.starts_with("gputrace: cannot write manual pages to /proc/nowhere: "),
        "{}",
        ended.stderr
    );
}

#[test]
fn completions_name_every_subcommand_and_are_sound() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = finish(gputrace().args(["completions", shell])).expect_code(0).stdout;
        for name in subcommands() {
            assert!(script.contains(&name), "{shell}: {name}");
        }
        for internal in ["demo-workload", "completions SHELL"] {
            assert!(!script.contains(internal), "{shell}: {internal}");
        }
        let file = folder.join(shell);
        fs::write(&file, script).unwrap();
        if Command::new(shell).args(["-c", "true"]).output().is_err() {
            needs::skipped(
                &format!("completions_name_every_subcommand_and_are_sound ({shell})"),
                "it is not installed",
            );
            continue;
        }
        let ended = finish(Command::new(shell).arg("-n").arg(&file)).expect_code(0);
        assert_eq!(ended.stderr, "", "{shell}");
    }
}

/// As bash asks: the words so far, and which of them is being typed.
#[test]
fn completions_offer_subcommands_and_options_in_bash() {
    let folder = Folder::new();
    let script = finish(gputrace().args(["completions", "bash"])).expect_code(0).stdout;
    fs::write(folder.join("gputrace.bash"), script).unwrap();
    let offered = |words: &str| {
        let ask = format!(
            "source gputrace.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _gputrace gputrace \"${{COMP_WORDS[COMP_CWORD]}}\" x; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let ended = finish(Command::new("bash").args(["-c", &ask]).current_dir(folder.path())).expect_code(0);
        ended.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered("gputrace fl"), ["flamegraph"]);
    assert_eq!(offered("gputrace run --flight"), ["--flight-recorder"]);
    assert_eq!(offered("gputrace doctor --js"), ["--json"]);
}
