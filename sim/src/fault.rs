//! Kernels that fault: `// sim.fault = 700` in a kernel's body.
//!
//! Such a kernel does not end, and nothing in its context that would have ended later does: there is
//! no record of it. Whoever waits learns the code at the kernel's stated end, and from then on every
//! call that needs the context returns it. The error stays, as the driver's do.

use crate::activity::Activity;
use crate::clock;
use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::status;
use crate::world::{self, World};

/// What became of a context.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub at_ns: u64,
    pub code: Code,
}

/// The fault that the calling thread's context will have had at `by_ns`.
pub fn by(by_ns: u64) -> Option<Fault> {
    if status::read() & status::FAULTED == 0 {
        return None;
    }
    let context = crate::context::current()?;
    world::with(|world| world.contexts.get(context).ok()?.fault).filter(|fault| fault.at_ns <= by_ns)
}

impl World {
    /// The context is lost from `at_ns` on, unless it is so earlier.
    pub fn fault(&mut self, context: Handle, at_ns: u64, code: Code) {
        if let Ok(held) = self.contexts.get_mut(context)
            && held.fault.is_none_or(|known| at_ns < known.at_ns)
        {
            held.fault = Some(Fault { at_ns, code });
            status::set(status::FAULTED, true);
        }
    }

    /// Whether the context can be used now.
    pub fn check_fault(&self, context: Handle) -> Result {
        match self.contexts.get(context)?.fault {
            Some(fault) if fault.at_ns <= clock::now_ns() => Err(fault.code),
            _ => Ok(()),
        }
    }

    /// Has an operation recorded, if it ends at all.
    pub fn deliver(&mut self, context: Handle, record: Activity) {
        let fault = self.contexts.get(context).ok().and_then(|held| held.fault);
        if fault.is_none_or(|fault| record.end_ns < fault.at_ns) {
            self.after.record(record);
        }
    }
}
