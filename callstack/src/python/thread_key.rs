//! What `pthread_getspecific` reads, so that a hook can read it too without calling it: each call waits for
//! the function's line of code, in a library of which a launch needs nothing else.
//!
//! glibc has a thread's values of the first 32 keys in the thread's descriptor, each after the number of the
//! key's life, and the numbers of all keys' lives in one table. A value counts if both numbers are equal. The
//! table's address is in the function's code, and is confirmed by the life of a key made for that. A key
//! that cannot be read in this way is asked for by the function.
//!
//! PyTorch's extension modules keep the thread's Python state under a key of their own, so that the
//! interpreter's key is not known by its value alone. It is where the interpreter's function takes it from.

use core::sync::atomic::{AtomicU64, Ordering};

use super::accessor::Code;
use super::memory::{Checked, Memory, is_plausible};

/// The keys whose values are in the descriptor.
const NEAR_KEYS: u32 = 32;
/// glibc has so many keys.
const KEYS: u32 = 1024;
/// The distance from the thread's descriptor to its first value's pair, in all of glibc's versions.
const FIRST: u64 = 0x310;
const PAIR_BYTES: u64 = 16;
/// The bytes of the function that are looked at.
const CODE_BYTES: usize = 64;

/// The table's address, once it is confirmed; 1 if it is not known.
static TABLE: AtomicU64 = AtomicU64::new(0);
const UNKNOWN: u64 = 1;

/// The key under which the calling thread stores a value. Zeroed memory is valid: not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownKey {
    /// The address of the thread's pair; 0 if it cannot be read.
    pair: u64,
    /// The address of the key's number.
    life: u64,
    /// The key, counted from 1; 0 if it is not known.
    key: u32,
}

impl KnownKey {
    /// The key `own`, if the calling thread stores that value under it, or else the only key of which that
    /// is so.
    pub fn of_value(value: u64, own: Option<u32>) -> KnownKey {
        let mut keys = (0..KEYS).filter(|key| get(*key) == value);
        let key = match own.filter(|own| *own < KEYS && get(*own) == value) {
            Some(own) => Some(own),
            None => keys.next().filter(|_| keys.next().is_none()),
        };
        let Some(key) = key.filter(|_| value != 0) else { return KnownKey::default() };
        let called = KnownKey { key: key + 1, ..KnownKey::default() };
        let Some(table) = table() else { return called };
        // SAFETY: pthread_self has no preconditions. glibc returns the descriptor's address.
        let descriptor = unsafe { libc::pthread_self() };
        let at = u64::from(key) * PAIR_BYTES;
        let read = KnownKey { pair: descriptor + FIRST + at, life: table + at, ..called };
        let memory = Checked::new();
        let is_there = key < NEAR_KEYS
            && memory.word(read.pair, 8) == Some(value)
            && memory.word(read.pair, 0).is_some_and(|number| memory.word(read.life, 0) == Some(number));
        if is_there { read } else { called }
    }

    pub fn is_known(self) -> bool {
        self.key != 0
    }

    /// Whether the calling thread, the one that found the key, stores that value under it. False if the key
    /// was deleted.
    #[inline(always)]
    pub fn holds(self, value: u64) -> bool {
        match self.pair {
            0 => self.is_said_to_hold(value),
            _ => self.is_read_to_hold(value),
        }
    }

    /// The same; false where the value cannot be read.
    #[inline(always)]
    pub fn is_read_to_hold(self, value: u64) -> bool {
        // SAFETY: `of_value` read both, in the thread's own descriptor and in the C library's data.
        let load = |at: u64| unsafe { (*(at as *const AtomicU64)).load(Ordering::Relaxed) };
        self.pair != 0 && load(self.pair + 8) == value && load(self.pair) == load(self.life)
    }

    #[cold]
    #[inline(never)]
    fn is_said_to_hold(self, value: u64) -> bool {
        self.key != 0 && get(self.key - 1) == value
    }
}

fn get(key: u32) -> u64 {
    // SAFETY: the function takes any key.
    unsafe { libc::pthread_getspecific(key) as u64 }
}

/// The table of all keys.
fn table() -> Option<u64> {
    let table = match TABLE.load(Ordering::Relaxed) {
        0 => {
            let table = find_table(&Checked::new()).unwrap_or(UNKNOWN);
            TABLE.store(table, Ordering::Relaxed);
            table
        }
        table => table,
    };
    (table != UNKNOWN).then_some(table)
}

/// The table that the function's code names, if it has the life of a new key, and sees it end.
fn find_table(memory: &impl Memory) -> Option<u64> {
    let function = libc::pthread_getspecific as *const () as u64;
    let mut bytes = [0; CODE_BYTES];
    memory.read(function, 0, &mut bytes).then_some(())?;
    // lea register, [table]
    let at = bytes.windows(3).position(|bytes| matches!(bytes, [0x48, 0x8d, mode] if mode & 0xc7 == 5))?;
    let mut code = Code { bytes: bytes.get(at + 3..)?, at: function + at as u64 + 3 };
    let table = code.relative().filter(|table| is_plausible(*table))?;
    let mut key = 0;
    // SAFETY: memory for the key; without a destructor.
    if unsafe { libc::pthread_key_create(&raw mut key, None) } != 0 {
        return None;
    }
    let number = || memory.word(table + u64::from(key) * PAIR_BYTES, 0);
    let before = number();
    // SAFETY: the key was made above, and nobody else knows it.
    unsafe { libc::pthread_key_delete(key) };
    // The number of a key in use is odd. Another thread may have made the key anew since.
    before.filter(|before| before % 2 == 1 && number() > Some(*before)).map(|_| table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which key a new one is depends on those that other tests have.
    static KEYS_ARE_USED: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn new_key() -> u32 {
        let mut key = 0;
        // SAFETY: memory for the key; without a destructor.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, None) }, 0);
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

    fn holds(value: u64, own: Option<u32>) -> bool {
        KnownKey::of_value(value, own).holds(value)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no glibc")]
    fn value_is_known_until_it_changes_or_its_key_is_deleted() {
        let _alone = KEYS_ARE_USED.lock();
        let (key, other) = (new_key(), new_key());
        let value = 0x5eed_0001;
        assert!(!holds(value, None));
        set(key, value);
        let known = KnownKey::of_value(value, None);
        assert!(known.pair != 0, "glibc's table was not found");
        assert!(known.holds(value) && !known.holds(value + 1));
        assert!(!std::thread::spawn(move || holds(value, None)).join().unwrap());
        set(key, value + 1);
        assert!(!known.holds(value) && known.holds(value + 1));
        set(other, value + 1);
        assert!(!holds(value + 1, None), "two keys have it");
        assert!(holds(value + 1, Some(key)) && holds(value + 1, Some(other)) && !holds(value + 1, Some(99)));
        assert_eq!(KnownKey::of_value(value + 1, Some(key)).key, key + 1);
        delete(other);
        assert!(holds(value + 1, None));
        delete(key);
        // The old value is still there, and another key may have the deleted one's number.
        assert!(!known.holds(value + 1));
        let again = new_key();
        assert!(!known.holds(value + 1));
        delete(again);
        assert!(!KnownKey::default().holds(0) && !holds(0, None));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no glibc")]
    fn keys_beyond_the_descriptor_are_asked_for() {
        let _alone = KEYS_ARE_USED.lock();
        let keys: Vec<u32> = (0..40).map(|_| new_key()).collect();
        let (last, value) = (*keys.last().unwrap(), 0x5eed_0003);
        set(last, value);
        let known = KnownKey::of_value(value, None);
        assert!(last >= NEAR_KEYS && known.pair == 0 && known.holds(value) && !known.holds(value + 1));
        keys.into_iter().for_each(delete);
        assert!(!known.holds(value));
    }
}
