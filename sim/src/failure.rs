//! Errors on demand: `GPUTRACE_SIM_FAIL="cuMemAlloc_v2:3=2,cuLaunchKernel:*=700"`.
//!
//! Each rule names an exported symbol, which of its calls (counted from 1, or
//! all), and the code that the call returns instead of doing anything.

use crate::error::Code;
use crate::settings::settings;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    /// Which call; none means each.
    call: Option<u64>,
    code: Code,
}

#[derive(Debug, Default)]
struct Rules {
    by_symbol: HashMap<String, (u64, Vec<Rule>)>,
}

impl Rules {
    fn parse(text: &str) -> Result<Rules, String> {
        let mut rules = Rules::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let parsed = part.split_once(':').and_then(|(symbol, rest)| {
                let (call, code) = rest.split_once('=')?;
                let call = if call == "*" { None } else { Some(call.parse().ok()?) };
                Some((symbol, Rule { call, code: Code(code.parse().ok()?) }))
            });
            let Some((symbol, rule)) = parsed else { return Err(part.to_string()) };
            rules.by_symbol.entry(symbol.to_string()).or_default().1.push(rule);
        }
        Ok(rules)
    }

    fn count(&mut self, symbol: &str) -> Option<Code> {
        let (calls, rules) = self.by_symbol.get_mut(symbol)?;
        *calls += 1;
        rules.iter().find(|rule| rule.call.is_none_or(|call| call == *calls)).map(|rule| rule.code)
    }
}

static RULES: LazyLock<Mutex<Rules>> = LazyLock::new(|| {
    Mutex::new(Rules::parse(&settings().failures).unwrap_or_else(|part| {
        eprintln!("gputrace: GPUTRACE_SIM_FAIL: cannot read '{part}'; the form is FUNCTION:NTH=CODE");
        Rules::default()
    }))
});

/// Whether any rule was given.
pub fn any() -> bool {
    !settings().failures.is_empty()
}

/// Counts one call. Returns the error if the call has to fail.
pub fn check(symbol: &str) -> Option<Code> {
    RULES.lock().unwrap_or_else(PoisonError::into_inner).count(symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nth_call_fails() {
        let mut rules = Rules::parse("cuA:2=7, cuB:*=700").unwrap();
        assert_eq!([rules.count("cuA"), rules.count("cuA"), rules.count("cuA")], [None, Some(Code(7)), None]);
        assert_eq!([rules.count("cuB"), rules.count("cuB")], [Some(Code(700)); 2]);
        assert_eq!(rules.count("cuC"), None);
    }

    #[test]
    fn bad_rules_are_named() {
        assert_eq!(Rules::parse("cuA:1=x").unwrap_err(), "cuA:1=x");
        assert_eq!(Rules::parse("cuA").unwrap_err(), "cuA");
    }
}
