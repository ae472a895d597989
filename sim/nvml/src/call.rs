//! What every call does first: find its device, and do what the script has for it.

use std::sync::Arc;
use std::time::Duration;

use crate::abi::{Code, GPU_IS_LOST, Handle, INVALID_ARGUMENT, UNINITIALIZED};
use crate::script::{Fault, Section};
use crate::state::{self, State};

/// A call for a device.
pub struct Call {
    pub state: Arc<State>,
    pub number: usize,
    pub now: Duration,
}

impl Call {
    pub fn device(&self) -> &Section {
        // `enter` made sure that it is there.
        &self.state.script.devices[self.number]
    }

    pub fn value(&self, key: &str) -> Option<u64> {
        self.device().value(key, self.now)
    }
}

/// A call that is for no device.
pub fn system(function: &str) -> Result<Arc<State>, Code> {
    let state = state::current().ok_or(UNINITIALIZED)?;
    perform(&state.script.system, function, state.now())?;
    Ok(state)
}

/// A call for the device with that handle.
pub fn enter(function: &str, handle: Handle) -> Result<Call, Code> {
    let state = system(function)?;
    let number = (handle as usize).checked_sub(1).filter(|number| *number < state.script.devices.len());
    let call = Call { number: number.ok_or(INVALID_ARGUMENT)?, now: state.now(), state };
    if call.device().lost.is_some_and(|lost| lost.holds(call.now)) {
        return Err(GPU_IS_LOST);
    }
    perform(call.device(), function, call.now)?;
    Ok(call)
}

/// The fault of a function now: a pause, an error, or no end.
pub fn perform(section: &Section, function: &str, now: Duration) -> Result<(), Code> {
    match section.fault(function, now) {
        None => Ok(()),
        Some(Fault::Code(code)) => Err(code),
        Some(Fault::Slow(time)) => {
            std::thread::sleep(time);
            Ok(())
        }
        Some(Fault::Hang) => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
    }
}
