//! What `pthread_getspecific` reads, so that a hook can read it too without calling it: each call waits for
//! the function's line of code, in a library of which a launch needs nothing else.
//!
//! glibc has a thread's values of the first 32 keys in the thread's descriptor, each after the number of the
//! key's life, and the numbers of all keys' lives in one table. A value counts if both numbers are equal. If
//! a value that the function returns is not found there, a hook goes on calling the interpreter.

use core::sync::atomic::{AtomicU64, Ordering};

use super::memory::{Checked, Memory, is_plausible};

const KEYS: u64 = 32;
/// The distance from the thread's descriptor to its first value's pair, in all of glibc's versions.
const FIRST: u64 = 0x310;
const PAIR_BYTES: u64 = 16;
/// The bytes of the function that are looked at.
const CODE_BYTES: usize = 64;

/// The key under which the calling thread stores a value. Zeroed memory is valid: not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownKey {
    /// The address of the thread's pair; 0 if it is not known.
    pair: u64,
    /// The address of the key's number.
    life: u64,
}

impl KnownKey {
    /// The key under which the calling thread stores that value, if it is one alone.
    pub fn of_value(value: u64) -> KnownKey {
        let (memory, Some(descriptor)) = (Checked::new(), descriptor()) else { return KnownKey::default() };
        let Some(table) = table(&memory) else { return KnownKey::default() };
        let known = |key: u64| KnownKey {
            pair: descriptor + FIRST + key * PAIR_BYTES,
            life: table + key * PAIR_BYTES,
        };
        let is_it = |key: &u64| {
            let KnownKey { pair, life } = known(*key);
            let number = memory.word(pair, 0);
            // The number of a key in use is odd.
            number.is_some_and(|number| number % 2 == 1)
                && memory.word(pair, 8) == Some(value)
                && memory.word(life, 0) == number
                // SAFETY: the function takes any key.
                && unsafe { libc::pthread_getspecific(*key as u32) } as u64 == value
        };
        let mut keys = (0..KEYS).filter(is_it);
        match (keys.next(), keys.next()) {
            (Some(key), None) if value != 0 => known(key),
            _ => KnownKey::default(),
        }
    }

    pub fn is_known(self) -> bool {
        self.pair != 0
    }

    /// Whether the calling thread, the one that found the key, stores that value under it. False if the key
    /// was deleted.
    #[inline(always)]
    pub fn holds(self, value: u64) -> bool {
        // SAFETY: `of_value` read both, in the thread's own descriptor and in the C library's data.
        let load = |at: u64| unsafe { (*(at as *const AtomicU64)).load(Ordering::Relaxed) };
        self.pair != 0 && load(self.pair + 8) == value && load(self.pair) == load(self.life)
    }
}

/// The table of all keys, as the function's code says.
fn table(memory: &impl Memory) -> Option<u64> {
    let function = libc::pthread_getspecific as *const () as u64;
    let mut code = [0; CODE_BYTES];
    memory.read(function, 0, &mut code).then_some(())?;
    // lea register, [table]
    let at = code.windows(3).position(|bytes| matches!(bytes, [0x48, 0x8d, mode] if mode & 0xc7 == 5))?;
    let offset = code.get(at + 3..at + 7)?.try_into().ok()?;
    let next = function + at as u64 + 7;
    Some(next.wrapping_add_signed(i32::from_le_bytes(offset).into())).filter(|table| is_plausible(*table))
}

#[cfg(target_arch = "x86_64")]
fn descriptor() -> Option<u64> {
    let descriptor: u64;
    // SAFETY: the thread pointer, which is stored where it points.
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) descriptor, options(nostack, readonly));
    }
    Some(descriptor)
}

/// Other processors' libraries are not read.
#[cfg(not(target_arch = "x86_64"))]
fn descriptor() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_key() -> u32 {
        let mut key = 0;
        // SAFETY: a place for the key, and no destructor.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, None) }, 0);
        key
    }

    fn set(key: u32, value: u64) {
        // SAFETY: any value is valid under a key without a destructor.
        assert_eq!(unsafe { libc::pthread_setspecific(key, value as *const libc::c_void) }, 0);
    }

    fn delete(key: u32) {
        // SAFETY: a key of this test's.
        assert_eq!(unsafe { libc::pthread_key_delete(key) }, 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no glibc")]
    fn value_is_known_until_it_changes_or_its_key_is_deleted() {
        let (key, value) = (new_key(), 0x5eed_0001);
        assert!(!KnownKey::of_value(value).holds(value));
        set(key, value);
        let known = KnownKey::of_value(value);
        assert!(known.holds(value) && !known.holds(value + 1));
        assert!(!std::thread::spawn(move || KnownKey::of_value(value).holds(value)).join().unwrap());
        set(key, value + 1);
        assert!(!known.holds(value) && known.holds(value + 1));
        let other = new_key();
        set(other, value + 1);
        assert!(!KnownKey::of_value(value + 1).holds(value + 1), "two keys have it");
        delete(other);
        assert!(KnownKey::of_value(value + 1).holds(value + 1));
        delete(key);
        // The old value is still there, and another key may have the deleted one's number.
        assert!(!known.holds(value + 1));
        let again = new_key();
        assert!(!known.holds(value + 1));
        delete(again);
        assert!(!KnownKey::default().holds(0) && !KnownKey::of_value(0).holds(0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no glibc")]
    fn keys_beyond_the_descriptor_are_not_known() {
        let keys: Vec<u32> = (0..40).map(|_| new_key()).collect();
        let (last, value) = (*keys.last().unwrap(), 0x5eed_0003);
        set(last, value);
        assert!(last >= 32 && !KnownKey::of_value(value).holds(value));
        keys.into_iter().for_each(delete);
    }
}
