//! Options of `run` that come after the command, and so went to the command.

use std::ffi::OsString;
use std::path::Path;

use crate::cli::kind::Kind;
use crate::cli::options::SETTINGS;

/// One line about options that were surely meant for `run`: each is a word of the command before any `--` of
/// the command's own, is the long name of an option that hardly any other program has, and is followed by a
/// value that `run` would take. None if the command is or starts a gputrace, which may have the option.
pub fn warning(command: &[OsString]) -> Option<String> {
    let is_gputrace = |word: &OsString| Path::new(word).file_name().is_some_and(|name| name == "gputrace");
    if command.iter().any(is_gputrace) {
        return None;
    }
    let words: Vec<&str> = command
        .iter()
        .skip(1)
        .take_while(|word| *word != "--")
        .map(|word| word.to_str().unwrap_or(""))
        .collect();
    let followed = words.iter().zip(words.iter().skip(1).copied().chain([""]));
    let found: Vec<String> =
        followed.filter_map(|(word, next)| ours(word, next)).map(|name| format!("--{name}")).collect();
    let first = found.first()?;
    let (was, they) = if found.len() == 1 { ("comes", "it") } else { ("come", "them") };
    Some(format!(
        "{} {was} after the command and so went to it; to have gputrace take {they}: gputrace run {first} … -- {}",
        found.join(", "),
        command.first()?.display()
    ))
}

/// The name of our option that the word is, with `next` behind it.
fn ours(word: &str, next: &str) -> Option<&'static str> {
    let word = word.strip_prefix("--")?;
    let (name, inline) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let setting = SETTINGS.iter().find(|setting| setting.is_unmistakable && setting.option == Some(name))?;
    let is_taken = match inline {
        None if setting.kind == Kind::Flag => true,
        value => setting.kind.takes(value.unwrap_or(next)),
    };
    setting.option.filter(|_| is_taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warns(command: &str) -> bool {
        let words: Vec<OsString> = command.split(' ').map(Into::into).collect();
        warning(&words).is_some()
    }

    #[test]
    fn option_of_ours_after_the_command_is_found() {
        for command in [
            "python x.py --otlp http://localhost:4318",
            "python x.py --flight-recorder 30",
            "python x.py --flight-recorder=30",
            "./app --max-size 1G",
            "./app --device-times off -v",
            "./app --torch-ops",
            "./app --threshold-us 100",
            "./app --group-by process,thread",
            "./app --stacks native",
        ] {
            assert!(warns(command), "{command}");
        }
        let command: Vec<OsString> = ["python", "x.py", "--torch-ops", "--otlp=u"].map(Into::into).into();
        assert_eq!(
            warning(&command).unwrap(),
            "--torch-ops, --otlp come after the command and so went to it; to have gputrace take them: gputrace run \
             --torch-ops … -- python"
        );
    }

    #[test]
    fn options_that_may_be_the_program_s_are_left_alone() {
        for command in [
            "python x.py",
            "python x.py -o out --output out --all --json --simulate --redact",
            // Values that we would not take.
            "python x.py --flight-recorder",
            "python x.py --flight-recorder buffer",
            "python x.py --stacks 3",
            "python x.py --group-by user_id",
            "python x.py --threshold-us 0.5",
            "python x.py --otlp --verbose",
            // For somebody behind the command.
            "torchrun -- x.py --torch-ops",
            "sh -c gputrace --torch-ops",
            "env A=1 /usr/bin/gputrace run --torch-ops x",
            "--torch-ops",
        ] {
            assert!(!warns(command), "{command}");
        }
    }
}
