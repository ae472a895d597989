//! What the interpreter's small functions read, so that a hook can read it too without calling them. Nothing
//! else in a program calls some of them, and so each call waits for its line of code, and for those of the
//! loader's function that finds a thread-local.
//!
//! Compilers write such a function in few forms. A function of another form is called as before.

use super::memory::Memory;

/// The bytes of a function that are looked at.
const CODE_BYTES: usize = 48;

/// What a function returns the value of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accessor {
    /// The variable at this address.
    Static(u64),
    /// A thread-local at this distance from the thread pointer.
    FromThread(u64),
    /// A thread-local that the loader finds by the index at this address.
    Indexed(u64),
}

/// Reads the function at that address; `None` if it has another form.
pub fn read<M: Memory>(memory: &M, function: u64) -> Option<Accessor> {
    let mut bytes = [0; CODE_BYTES];
    memory.read(function, 0, &mut bytes).then_some(())?;
    // A mark for indirect calls, a frame pointer, an aligned stack.
    let begins: [&[u8]; 3] = [&[0xf3, 0x0f, 0x1e, 0xfa], &[0x55, 0x48, 0x89, 0xe5], &[0x48, 0x83, 0xec, 8]];
    let mut code = Code { bytes: &bytes, at: function };
    begins.into_iter().for_each(|begin| _ = code.skip(begin));
    if code.skip(&[0x64, 0x48, 0x8b, 0x04, 0x25]) {
        // mov rax, fs:[distance]
        let distance = code.offset()?;
        return code.returns().then_some(Accessor::FromThread(distance));
    }
    if code.skip(&[0x66, 0x48, 0x8d, 0x3d]) {
        // lea rdi, [index]; call __tls_get_addr; mov rax, [rax]
        let index = code.relative()?;
        (code.skip(&[0x66, 0x66, 0x48, 0xe8]) || code.skip(&[0x66, 0x48, 0xff, 0x15])).then_some(())?;
        code.offset()?;
        return (code.skip(&[0x48, 0x8b, 0x00]) && code.returns()).then_some(Accessor::Indexed(index));
    }
    let is_word = code.skip(&[0x48]);
    code.skip(&[0x8b, 0x05]).then_some(())?;
    // mov rax, [variable]
    let at = code.relative()?;
    if code.returns() {
        return Some(Accessor::Static(at));
    }
    // mov rax, [table]; mov rax, [rax + offset]
    let base = || memory.word(at, 0).filter(|_| is_word);
    if code.skip(&[0x64, 0x48, 0x8b, 0x00]) {
        return code.returns().then(base).flatten().map(Accessor::FromThread);
    }
    let _is_word = code.skip(&[0x48]);
    let offset = if code.skip(&[0x8b, 0x40]) {
        u64::from(code.take::<1>()?[0])
    } else {
        code.skip(&[0x8b, 0x80]).then_some(())?;
        code.offset()?
    };
    code.returns().then(base).flatten().map(|base| Accessor::Static(base.wrapping_add(offset)))
}

/// The address of the key that `PyGILState_GetThisThreadState` at that address asks for; `None` if it has
/// another form.
pub fn read_key<M: Memory>(memory: &M, function: u64) -> Option<u64> {
    let mut bytes = [0; CODE_BYTES];
    memory.read(function, 0, &mut bytes).then_some(())?;
    let mut code = Code { bytes: &bytes, at: function };
    if code.skip(&[0x48, 0x83, 0x3d]) {
        // cmp qword ptr [is_created], 0; je …; mov edi, [key]; jmp pthread_getspecific
        code.take::<5>()?;
        code.skip(&[0x0f, 0x84]).then_some(())?;
        code.offset()?;
        code.skip(&[0x8b, 0x3d]).then_some(())?;
        let key = code.relative()?;
        return code.skip(&[0xe9]).then_some(key);
    }
    // The address of a Py_tss_t, which is whether it is initialized, and the key.
    let pair = if code.skip(&[0x48, 0x8b, 0x05]) {
        // mov rax, [runtime]; push rbx; lea rbx, [rax + offset]
        let runtime = memory.word(code.relative()?, 0)?;
        code.skip(&[0x53, 0x48, 0x8d, 0x98]).then_some(())?;
        runtime.wrapping_add(code.offset()?)
    } else {
        // A mark for indirect calls; push rbp; mov edi, address, or lea rdi, [address]; mov rbp, rsp; call …
        code.skip(&[0xf3, 0x0f, 0x1e, 0xfa]);
        code.skip(&[0x55]);
        let pair = match code.skip(&[0xbf]) {
            true => u32::from_le_bytes(code.take()?).into(),
            false => code.skip(&[0x48, 0x8d, 0x3d]).then(|| code.relative()).flatten()?,
        };
        code.skip(&[0x48, 0x89, 0xe5]);
        code.skip(&[0xe8]).then_some(pair)?
    };
    Some(pair.wrapping_add(4))
}

/// Instructions, and the address of the first.
pub(super) struct Code<'b> {
    pub bytes: &'b [u8],
    pub at: u64,
}

impl Code<'_> {
    fn take<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (taken, rest) = self.bytes.split_first_chunk::<COUNT>()?;
        (self.bytes, self.at) = (rest, self.at + COUNT as u64);
        Some(*taken)
    }

    fn skip(&mut self, begin: &[u8]) -> bool {
        let Some(rest) = self.bytes.strip_prefix(begin) else { return false };
        (self.bytes, self.at) = (rest, self.at + begin.len() as u64);
        true
    }

    /// A number of 32 bits.
    fn offset(&mut self) -> Option<u64> {
        Some(i64::from(i32::from_le_bytes(self.take()?)).cast_unsigned())
    }

    /// An address given from the next instruction on.
    pub fn relative(&mut self) -> Option<u64> {
        let offset = self.offset()?;
        Some(self.at.wrapping_add(offset))
    }

    /// Whether the function returns here.
    fn returns(&mut self) -> bool {
        self.skip(&[0x48, 0x83, 0xc4, 8]);
        self.skip(&[0x5d]);
        self.skip(&[0xc3])
    }
}

impl Accessor {
    /// The address of the variable, which is the calling thread's if it is a thread-local.
    ///
    /// # Safety
    ///
    /// The function was read from a library that stays mapped.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub unsafe fn address(self) -> u64 {
        unsafe extern "C" {
            fn __tls_get_addr(index: *const u64) -> *mut u64;
        }
        match self {
            Accessor::Static(at) => at,
            Accessor::FromThread(distance) => {
                let thread: u64;
                // SAFETY: the thread pointer, which is stored where it points.
                unsafe {
                    core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) thread, options(nostack, readonly))
                };
                thread.wrapping_add(distance)
            }
            // SAFETY: the index that the function passes; the caller guarantees that it is there.
            Accessor::Indexed(index) => unsafe { __tls_get_addr(index as *const u64) as u64 },
        }
    }

    /// Other processors' functions are not read.
    ///
    /// # Safety
    ///
    /// None is needed.
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    pub unsafe fn address(self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::{Checked, ProcessImage};
    use super::*;

    const START: u64 = 0x10_0000;

    fn read(code: &[u8], table: u64) -> Option<Accessor> {
        let mut bytes = vec![0xcc; 0x200];
        bytes[..code.len()].copy_from_slice(code);
        bytes[0x107..0x10f].copy_from_slice(&table.to_le_bytes());
        super::read(&ProcessImage { start: START, bytes: &bytes }, START)
    }

    #[test]
    fn forms_of_cpython_s_functions() {
        for (code, expected) in [
            // Py_IsInitialized of a program, and of a library.
            (&[0x8b, 0x05, 0x7c, 0xa1, 0x63, 0x00, 0xc3][..], Accessor::Static(START + 6 + 0x63_a17c)),
            (&[0x48, 0x8b, 0x05, 0, 1, 0, 0, 0x8b, 0x40, 0x10, 0xc3], Accessor::Static(0x7010)),
            (&[0x48, 0x8b, 0x05, 0, 1, 0, 0, 0x8b, 0x80, 0x58, 2, 0, 0, 0xc3], Accessor::Static(0x7258)),
            (
                &[0x48, 0x8b, 0x05, 0, 1, 0, 0, 0x48, 0x8b, 0x80, 0x78, 2, 0, 0, 0xc3],
                Accessor::Static(0x7278),
            ),
            (&[0x48, 0x8b, 0x05, 0xf9, 0xff, 0xff, 0xff, 0xc3], Accessor::Static(START)),
            // _PyThreadState_UncheckedGet, with frame pointers and without.
            (
                &[
                    0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x64, 0x48, 0x8b, 4, 0x25, 0xf8, 255,
                    255, 255, 0x5d, 0xc3,
                ],
                Accessor::FromThread(-8i64 as u64),
            ),
            (&[0x48, 0x8b, 0x05, 0, 1, 0, 0, 0x64, 0x48, 0x8b, 0, 0xc3], Accessor::FromThread(0x7000)),
            (
                &[
                    0x48, 0x83, 0xec, 8, 0x66, 0x48, 0x8d, 0x3d, 0, 2, 0, 0, 0x66, 0x66, 0x48, 0xe8, 1, 2, 3,
                    4, 0x48, 0x8b, 0, 0x48, 0x83, 0xc4, 8, 0xc3,
                ],
                Accessor::Indexed(START + 12 + 0x200),
            ),
        ] {
            assert_eq!(read(code, 0x7000), Some(expected), "{code:x?}");
            for changed in 0..code.len() - 1 {
                let mut other = code.to_vec();
                other[changed] ^= 0x1a;
                assert_ne!(read(&other[..changed + 1], 0x7000), Some(expected), "{other:x?}");
            }
        }
        // PyGILState_GetThisThreadState.
        assert_eq!(read(&[0x48, 0x8b, 0x05, 0, 1, 0, 0, 0x53, 0x48, 0x8d, 0x98], 0x7000), None);
    }

    #[test]
    fn forms_of_the_function_that_asks_for_a_key() {
        let key_of = |code: &[u8]| {
            let mut bytes = vec![0xcc; 0x200];
            bytes[..code.len()].copy_from_slice(code);
            bytes[0x107..0x10f].copy_from_slice(&0x7000u64.to_le_bytes());
            read_key(&ProcessImage { start: START, bytes: &bytes }, START)
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

    #[test]
    fn nothing_is_read_where_nothing_is_mapped() {
        assert_eq!(super::read(&Checked::new(), 0x1000), None);
    }
}
