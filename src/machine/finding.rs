//! One line of a diagnosis.

/// How a finding bears on tracing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Works, or is a plain fact.
    Good,
    /// Something works less well than it could.
    Limited,
    /// Tracing cannot work.
    Broken,
}

impl Verdict {
    pub const fn word(self) -> &'static str {
        match self {
            Verdict::Good => "ok",
            Verdict::Limited => "limited",
            Verdict::Broken => "broken",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub subject: &'static str,
    pub verdict: Verdict,
    pub text: String,
    /// What to do, where something is to be done.
    pub hint: Option<String>,
    /// The commands that do it, for a shell, where this machine shows which ones.
    pub commands: Vec<String>,
}

impl Finding {
    fn new(subject: &'static str, verdict: Verdict, text: impl Into<String>) -> Finding {
        Finding { subject, verdict, text: text.into(), hint: None, commands: Vec::new() }
    }

    pub fn good(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(subject, Verdict::Good, text)
    }

    pub fn limited(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(subject, Verdict::Limited, text)
    }

    pub fn broken(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(subject, Verdict::Broken, text)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Finding {
        self.hint = Some(hint.into());
        self
    }

    /// One command more that mends it.
    pub fn command(mut self, command: impl Into<String>) -> Finding {
        self.commands.push(command.into());
        self
    }

    pub fn commands(mut self, commands: impl IntoIterator<Item = String>) -> Finding {
        self.commands.extend(commands);
        self
    }
}
