//! The script: what the driver and each device answer.

use std::collections::HashMap;
use std::time::Duration;

use crate::value::{Value, Window, time};

/// What a call does instead of answering.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Returns this code.
    Code(u32),
    /// Answers after this time.
    Slow(Duration),
    /// Never returns.
    Hang,
}

/// A fault of one function.
#[derive(Clone, Debug)]
pub struct Rule {
    pub function: String,
    pub fault: Fault,
    pub window: Window,
}

#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub is_graphics: bool,
    pub memory: Option<u64>,
    pub sm: Option<Value>,
    pub mem: u32,
}

/// What is before the first `[device]`, and each device.
#[derive(Clone, Debug, Default)]
pub struct Section {
    texts: HashMap<String, String>,
    values: HashMap<String, Value>,
    /// Values that hold for a while, instead of the others.
    passing: Vec<(String, Value, Window)>,
    pub rules: Vec<Rule>,
    pub processes: Vec<Process>,
    /// When, and the code.
    pub xids: Vec<(Duration, u64)>,
    pub lost: Option<Window>,
}

impl Section {
    pub fn text(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(String::as_str)
    }

    pub fn value(&self, key: &str, now: Duration) -> Option<u64> {
        let passing = self.passing.iter().find(|(of, _, window)| of == key && window.holds(now));
        passing.map(|(_, value, _)| value).or_else(|| self.values.get(key)).map(|value| value.at(now))
    }

    /// The fault of a call now.
    pub fn fault(&self, function: &str, now: Duration) -> Option<Fault> {
        let rule = self.rules.iter().find(|rule| rule.function == function && rule.window.holds(now));
        rule.map(|rule| rule.fault)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (line, window) = match line.split_once(" @ ") {
            Some((line, window)) => (line, Window::parse(window)?),
            None => (line, Window::ALWAYS),
        };
        let (key, text) = line.split_once('=').map_or((line, ""), |(key, text)| (key.trim(), text.trim()));
        let words: Vec<&str> = key.split_whitespace().collect();
        match (words.as_slice(), text) {
            (["fail", function], code) => self.rule(function, Fault::Code(code.parse().ok()?), window),
            // NVML_ERROR_FUNCTION_NOT_FOUND
            (["missing", function], "") => self.rule(function, Fault::Code(13), window),
            (["slow", function], duration) => self.rule(function, Fault::Slow(time(duration)?), window),
            (["hang", function], "") => self.rule(function, Fault::Hang, window),
            (["lost"], "") => self.lost = Some(window),
            (["xid"], text) => {
                let (code, at) = text.split_once(" at ")?;
                self.xids.push((time(at)?, code.trim().parse().ok()?));
            }
            (["process"], text) => self.processes.push(process(text)?),
            ([key], text) if window != Window::ALWAYS => {
                self.passing.push(((*key).to_owned(), Value::parse(text)?, window));
            }
            ([key], text) => {
                if let Some(value) = Value::parse(text) {
                    self.values.insert((*key).to_owned(), value);
                }
                self.texts.insert((*key).to_owned(), text.to_owned());
            }
            _ => return None,
        }
        Some(())
    }

    fn rule(&mut self, function: &str, fault: Fault, window: Window) {
        self.rules.push(Rule { function: function.to_owned(), fault, window });
    }
}

/// `1234 512MiB sm=30 mem=4 graphics`; `?` for a memory that is not known.
fn process(text: &str) -> Option<Process> {
    let mut words = text.split_whitespace();
    let pid = words.next()?.parse().ok()?;
    let memory = words.next()?;
    let memory = if memory == "?" { None } else { Some(Value::parse(memory)?.at(Duration::ZERO)) };
    let mut process = Process { pid, is_graphics: false, memory, sm: None, mem: 0 };
    for word in words {
        match word.split_once('=') {
            Some(("sm", value)) => process.sm = Some(Value::parse(value)?),
            Some(("mem", value)) => process.mem = value.parse().ok()?,
            None if word == "graphics" => process.is_graphics = true,
            _ => return None,
        }
    }
    Some(process)
}

#[derive(Clone, Debug, Default)]
pub struct Script {
    pub system: Section,
    pub devices: Vec<Section>,
}

impl Script {
    /// The error is the line that makes no sense.
    pub fn parse(text: &str) -> Result<Script, String> {
        let mut script = Script::default();
        let without_comment = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
        for line in text.lines().map(without_comment).filter(|line| !line.is_empty()) {
            let line = line.as_str();
            if line == "[device]" {
                script.devices.push(Section::default());
                continue;
            }
            let section = script.devices.last_mut().unwrap_or(&mut script.system);
            section.take(line).ok_or_else(|| line.to_owned())?;
        }
        Ok(script)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_has_a_system_and_devices() {
        let script = Script::parse(
            "driver = 580.95\nfail nvmlInit_v2 = 9 @ 1s..2s\n# a comment\n[device]\nname = Fake GPU\ngpu = 0..100/1s\n\
             process = 12 1MiB sm=5 graphics\nxid = 79 at 2s\nlost @ 3s..4s\n[device]\nname = Other",
        );
        let script = script.unwrap();
        assert_eq!(script.system.text("driver"), Some("580.95"));
        assert_eq!(script.system.fault("nvmlInit_v2", Duration::ZERO), None);
        assert_eq!(script.system.fault("nvmlInit_v2", Duration::from_secs(1)), Some(Fault::Code(9)));
        let [one, other] = &script.devices[..] else { panic!("{script:?}") };
        assert_eq!((one.text("name"), other.text("name")), (Some("Fake GPU"), Some("Other")));
        assert_eq!(one.value("gpu", Duration::from_millis(500)), Some(50));
        assert_eq!((one.processes[0].pid, one.processes[0].memory), (12, Some(1 << 20)));
        assert_eq!(one.xids, [(Duration::from_secs(2), 79)]);
        assert!(one.lost.is_some_and(|lost| lost.holds(Duration::from_secs(3))));
    }

    #[test]
    fn line_that_makes_no_sense_is_named() {
        assert_eq!(Script::parse("fail nvmlInit_v2 = x").unwrap_err(), "fail nvmlInit_v2 = x");
        assert_eq!(Script::parse("[device]\nprocess = many").unwrap_err(), "process = many");
    }
}
