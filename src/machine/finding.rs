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
}

impl Finding {
    fn new(subject: &'static str, verdict: Verdict, text: impl Into<String>) -> Finding {
        Finding { subject, verdict, text: text.into(), hint: None }
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
}
