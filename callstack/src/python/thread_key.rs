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

use super::memory::{Checked, Memory, is_plausible};

/// The keys whose values are in the descriptor.
const NEAR_KEYS: u32 = 32;
/// glibc has so many keys.
const KEYS: u32 = 1024;
/// The distance from the thread's descriptor to its first value's pair, in all of glibc's versions.
const FIRST: u64 = 0x310;
const PAIR_BYTES: u64 = 16;
/// The bytes of a function that are looked at.
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
        let (Some(table), Some(descriptor)) = (table(), descriptor()) else { return called };
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
        // SAFETY: `of_value` read both, in the thread's own descriptor and in the C library's data.
        let load = |at: u64| unsafe { (*(at as *const AtomicU64)).load(Ordering::Relaxed) };
        match self.pair {
            0 => self.is_said_to_hold(value),
            pair => load(pair + 8) == value && load(pair) == load(self.life),
        }
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
    let code = code(memory, function)?;
    // lea register, [table]
    let at = code.windows(3).position(|bytes| matches!(bytes, [0x48, 0x8d, mode] if mode & 0xc7 == 5))?;
    let table = relative(&code, function, at + 3).filter(|table| is_plausible(*table))?;
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

/// The address of the key that CPython's `PyGILState_GetThisThreadState` asks for, in the forms that
/// compilers write it in.
pub fn of_gil_state(memory: &impl Memory, function: u64) -> Option<u64> {
    let code = code(memory, function)?;
    // The argument of the first call: a Py_tss_t, which is whether it is initialized, and the key.
    let argument = |at: usize| {
        let next = code.get(at + 4..)?;
        // mov rbp, rsp
        let next = next.strip_prefix(&[0x48, 0x89, 0xe5]).unwrap_or(next);
        (next.first() == Some(&0xe8)).then_some(at)
    };
    if let Some(at) = code.iter().position(|byte| *byte == 0xbf).and_then(|at| argument(at + 1)) {
        // mov edi, address: a program at a fixed address.
        let address = u32::from_le_bytes(code.get(at..at + 4)?.try_into().ok()?);
        return Some(u64::from(address) + 4);
    }
    let lea = code.windows(3).position(|bytes| bytes == [0x48, 0x8d, 0x3d]);
    if let Some(at) = lea.and_then(|at| argument(at + 3)) {
        // lea rdi, [address]
        return relative(&code, function, at).map(|address| address + 4);
    }
    if let Some(at) = code.windows(7).position(|bytes| matches!(bytes, [0x8b, 0x3d, .., 0xe9])) {
        // mov edi, [key]; jmp pthread_getspecific
        return relative(&code, function, at + 2);
    }
    // mov rax, [runtime]; push rbx; lea rbx, [rax + offset]
    let rest = code.strip_prefix(&[0x48, 0x8b, 0x05])?;
    let runtime = memory.word(relative(&code, function, 3)?, 0)?;
    let rest = rest.get(4..)?.strip_prefix(&[0x53, 0x48, 0x8d, 0x98])?;
    let offset = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?);
    Some(runtime + u64::from(offset) + 4)
}

fn code(memory: &impl Memory, function: u64) -> Option<[u8; CODE_BYTES]> {
    let mut code = [0; CODE_BYTES];
    memory.read(function, 0, &mut code).then_some(code)
}

/// The address that the four bytes there give, from the next instruction on.
fn relative(code: &[u8], function: u64, at: usize) -> Option<u64> {
    let offset = i32::from_le_bytes(code.get(at..at + 4)?.try_into().ok()?);
    Some((function + at as u64 + 4).wrapping_add_signed(offset.into()))
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
    use crate::python::memory::ProcessImage;

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

    #[test]
    fn forms_of_the_interpreter_s_function() {
        const START: u64 = 0x10_0000;
        let key_of = |code: &[u8]| {
            let mut bytes = vec![0xcc; 0x200];
            bytes[..code.len()].copy_from_slice(code);
            bytes[0x107..0x10f].copy_from_slice(&0x7000u64.to_le_bytes());
            of_gil_state(&ProcessImage { start: START, bytes: &bytes }, START)
        };
        // CPython's own builds: mov rax, [rip + 0x100]; push rbx; lea rbx, [rax + 0x608].
        let own = [0x48, 0x8b, 0x05, 0, 1, 0, 0, 0x53, 0x48, 0x8d, 0x98, 8, 6, 0, 0, 0x48, 0x89, 0xdf];
        assert_eq!(key_of(&own), Some(0x7000 + 0x608 + 4));
        // Debian's: cmp qword [created], 0; je …; mov edi, [rip + 0x100]; jmp pthread_getspecific.
        let debian = [
            0x48, 0x83, 0x3d, 0x50, 0x3d, 0x56, 0, 0, 0x0f, 0x84, 0x1f, 0xc8, 0xf2, 0xff, 0x8b, 0x3d, 0, 1,
            0, 0, 0xe9, 0xa7, 0x8a, 0xf2, 0xff,
        ];
        assert_eq!(key_of(&debian), Some(START + 20 + 0x100));
        // Ubuntu's: endbr64; push rbp; mov edi, 0xb369c8; mov rbp, rsp; call PyThread_tss_is_created; …
        let ubuntu = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xbf, 0xc8, 0x69, 0xb3, 0, 0x48, 0x89, 0xe5, 0xe8, 0x2e, 0x82, 0,
            0, 0x85, 0xc0, 0x0f, 0x84, 0xab, 0xa5, 0xea, 0xff, 0xbf, 0xc8, 0x69, 0xb3, 0, 0x5d, 0xe9, 0x2b,
        ];
        assert_eq!(key_of(&ubuntu), Some(0xb3_69c8 + 4));
        // The same in a library: lea rdi, [rip + 0x100].
        let library = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x8d, 0x3d, 0, 1, 0, 0, 0x48, 0x89, 0xe5, 0xe8];
        assert_eq!(key_of(&library), Some(START + 12 + 0x100 + 4));
        for changed in [5, 10, 13] {
            let mut other = ubuntu;
            other[changed] ^= 0x40;
            assert_eq!(key_of(&other), None, "{changed}");
        }
        assert_eq!(key_of(&[0x31, 0xc0, 0xc3]), None);
        assert_eq!(key_of(&own[..8]), None);
    }
}
