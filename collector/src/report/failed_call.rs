//! A failed call in both lists of failures: the driver entry, the error, and what helps.

use serde::Serialize;

use crate::failed_calls::{self, Category};
use crate::model::Process;
use crate::model::operation::HostCall;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailedCall {
    pub pid: u32,
    pub call: String,
    pub error: &'static str,
    pub code: u16,
    pub category: &'static str,
    pub advice: Option<String>,
}

impl FailedCall {
    pub(super) fn new(process: &Process, call: &HostCall) -> FailedCall {
        let definitions = &process.definitions;
        FailedCall {
            pid: process.begin.pid,
            call: definitions.call_name(call.api).to_owned(),
            error: failed_calls::name(call.status),
            code: call.status,
            category: Category::of(call, definitions).name(),
            advice: failed_calls::advice(call, definitions).map(|advice| advice.into_owned()),
        }
    }
}
