//! One line on standard error, by a raw write: no lock, no buffer, no allocation.

/// Writes the parts as one line that begins with `gputrace: `. A closed descriptor is silence.
pub fn line(parts: &[&[u8]]) {
    let mut buffer = [0u8; 512];
    let mut length = 0;
    let all = [&b"gputrace: "[..]].into_iter().chain(parts.iter().copied()).chain([&b"\n"[..]]);
    for part in all {
        for byte in part {
            // The last byte is kept for the newline of a line that is cut.
            if (length + 1 < buffer.len() || *byte == b'\n')
                && let Some(to) = buffer.get_mut(length)
            {
                *to = *byte;
                length += 1;
            }
        }
    }
    raw(buffer.get(..length).unwrap_or_default());
}

/// Writes bytes as they are.
pub fn raw(mut bytes: &[u8]) {
    let saved = errno();
    while !bytes.is_empty() {
        // SAFETY: the pointer and length are of a live slice; the descriptor is only written to.
        let wrote = unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(wrote) {
            Ok(count) if count > 0 => bytes = bytes.get(count..).unwrap_or_default(),
            _ if errno() == libc::EINTR => {}
            _ => break,
        }
    }
    set_errno(saved);
}

/// The calling thread's errno.
pub fn errno() -> i32 {
    // SAFETY: glibc guarantees a valid pointer to the thread's errno.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Keeps errno as it is found: whatever we do inside a hook must not be seen in it.
#[derive(Debug)]
pub struct KeepErrno(i32);

impl KeepErrno {
    pub fn new() -> KeepErrno {
        KeepErrno(errno())
    }
}

impl Default for KeepErrno {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}
