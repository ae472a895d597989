//! Failed calls: which calls count as failed, their category, and advice.
//!
//! The report, spans and metrics all use this module, so that they agree. docs/FAILURES.md has the tables in
//! prose.
//!
//! | file | noun |
//! |---|---|
//! | `names` | the names of the driver's error numbers |
//! | `answer` | errors that are returned by design, and why |
//! | `category` | the subject of an error |
//! | `advice` | what to do about an error, in words |
//! | `argument` | the arguments of a call |

mod advice;
mod answer;
mod argument;
mod category;
mod names;

pub use advice::{advice, of_status as advice_on};
pub use answer::{ANSWERS, Answer, of as answer};
pub use argument::{Arguments, wait_name};
pub use category::Category;
pub use names::name;

use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Succeeded,
    /// It returned an error by design.
    Answered(&'static Answer),
    Failed,
}

#[inline]
pub fn outcome(call: &HostCall, definitions: &Definitions) -> Outcome {
    if call.status == 0 { Outcome::Succeeded } else { refusal(call, definitions) }
}

/// Whether a call failed, other than by design.
#[inline]
pub fn has_failed(call: &HostCall, definitions: &Definitions) -> bool {
    call.status != 0 && refusal(call, definitions) == Outcome::Failed
}

#[cold]
fn refusal(call: &HostCall, definitions: &Definitions) -> Outcome {
    let asked = argument::asked_name(call, definitions).unwrap_or("");
    match answer::of(definitions.api(call.api).unwrap_or(""), call.status, asked) {
        Some(answer) => Outcome::Answered(answer),
        None => Outcome::Failed,
    }
}
