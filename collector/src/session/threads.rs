//! Starts the session's threads, which are named `gputrace-…`.

use std::thread::JoinHandle;

use crate::error::Error;

pub(super) fn spawn<T: Send + 'static>(
    name: &'static str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let builder = std::thread::Builder::new().name(format!("gputrace-{name}"));
    builder.spawn(run).map_err(|source| Error::Thread { name, source })
}
