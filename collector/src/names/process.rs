//! Names of processes: by the title that each gave itself, or by its command.

use crate::model::definitions::ProcessInfo;

/// What a process is called: by the title that it gave itself, as `ps` shows it, else by its command.
pub fn process_name(info: &ProcessInfo) -> String {
    match &info.title {
        // The first word alone was written over.
        Some(title) if title.get(1..) == info.command.get(1..) => {
            title.first().map_or_else(String::new, |first| cut(first))
        }
        Some(title) => cut(&title.join(" ")),
        None => short_command(&info.command),
    }
}

/// The longest title that is shown.
const TITLE_CHARS: usize = 60;

fn cut(title: &str) -> String {
    let title = title.trim();
    if title.chars().count() <= TITLE_CHARS {
        return title.to_owned();
    }
    title.chars().take(TITLE_CHARS - 1).collect::<String>() + "…"
}

/// `python train.py` of `/usr/bin/python -u /home/me/train.py --lr 3`: the program and, for an
/// interpreter, what it runs.
pub fn short_command(command: &[String]) -> String {
    const INTERPRETERS: [&str; 9] = ["python", "pypy", "bash", "dash", "sh", "perl", "ruby", "node", "julia"];
    let Some((program, arguments)) = command.split_first() else { return String::new() };
    // A process that set its title before it was traced has all of it in one word.
    if arguments.is_empty() && program.contains(' ') && !program.starts_with(['/', '.']) {
        return cut(program);
    }
    let program = file_name(program);
    let plain = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&plain) {
        return program.to_owned();
    }
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        match argument {
            "-m" => return format!("{program} -m {}", rest.next().unwrap_or("")),
            "-c" | "-e" => return format!("{program} {argument}"),
            // Options that take the next argument along.
            "-W" | "-X" | "-Q" => _ = rest.next(),
            option if option.starts_with('-') => {}
            script => return format!("{program} {}", file_name(script)),
        }
    }
    program.to_owned()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_named_by_what_they_run() {
        for (command, short) in [
            ("/usr/bin/python3 -u /home/me/train.py --lr 3", "python3 train.py"),
            ("python -W ignore -m torch.distributed.run x.py", "python -m torch.distributed.run"),
            ("python3.12 -c pass", "python3.12 -c"),
            ("./build/saxpy 1000", "saxpy"),
            ("bash ./go.sh", "bash go.sh"),
            ("python", "python"),
            ("", ""),
        ] {
            let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            assert_eq!(short_command(&command), short);
        }
    }

    #[test]
    fn processes_are_called_by_their_titles() {
        let words = |text: &str| -> Vec<String> { text.split('|').map(str::to_owned).collect() };
        let called = |command: &str, title: Option<&str>| {
            let (command, title) = (words(command), title.map(words));
            process_name(&ProcessInfo { command, title, ..ProcessInfo::default() })
        };
        for (command, title, name) in [
            ("python|serve.py|--port|80", None, "python serve.py"),
            ("python|serve.py|--port|80", Some("engine: core 3 /v1"), "engine: core 3 /v1"),
            ("./worker|a|b", Some("worker 7 of 8|a|b"), "worker 7 of 8"),
            ("./worker|a", Some("worker|idle|"), "worker idle"),
            ("engine: rank 1 /v1/models", None, "engine: rank 1 /v1/models"),
            ("/home/me/my program", None, "my program"),
        ] {
            assert_eq!(called(command, title), name);
        }
        let long = called("x", Some(&"é".repeat(100)));
        assert_eq!((long.chars().count(), long.ends_with('…')), (60, true));
    }
}
