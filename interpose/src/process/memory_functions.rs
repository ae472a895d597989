//! `memcpy` and the like for this library alone: hidden symbols, so that none of our calls leaves it.
//!
//! The compiler inserts calls of these functions to copy, fill or compare, and the program may have wrapped
//! them. Sanitizers do, and they check what we copy: memory that CUPTI wrote counts as uninitialised, and a
//! record that our thread reads counts as a race with the thread that wrote it, because a sanitizer does not
//! see the atomics of code that it did not compile. The program would end with a report.
//!
//! Short lengths, nearly all here, take two loads and two stores that overlap. Long ones, which no hook has
//! on its path, use `rep movsb`. All loads of a short copy come before its stores, so that `memcpy` is
//! `memmove`.

/// The beginning of a function: a symbol that no other library sees.
macro_rules! symbol {
    ($prefix:literal, $name:literal) => {
        concat!(
            ".hidden ",
            $prefix,
            $name,
            "\n.globl ",
            $prefix,
            $name,
            "\n.type ",
            $prefix,
            $name,
            ", @function\n",
            $prefix,
            $name,
            ":"
        )
    };
}

macro_rules! functions {
    ($prefix:literal) => {
        core::arch::global_asm!(
            // rdi: to, rsi: from, rdx: bytes.
            ".p2align 4",
            symbol!($prefix, "memcpy"),
            ".cfi_startproc",
            symbol!($prefix, "memmove"),
            "mov rax, rdi",
            "20:",
            "cmp rdx, 16",
            "jb 22f",
            "cmp rdx, 32",
            "ja 24f",
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + rdx - 16]",
            "movups [rdi], xmm0",
            "movups [rdi + rdx - 16], xmm1",
            "ret",
            "22:",
            "cmp rdx, 8",
            "jb 23f",
            "mov rcx, [rsi]",
            "mov r8, [rsi + rdx - 8]",
            "mov [rdi], rcx",
            "mov [rdi + rdx - 8], r8",
            "ret",
            "23:",
            "cmp rdx, 4",
            "jb 25f",
            "mov ecx, [rsi]",
            "mov r8d, [rsi + rdx - 4]",
            "mov [rdi], ecx",
            "mov [rdi + rdx - 4], r8d",
            "ret",
            "25:",
            "test rdx, rdx",
            "jz 26f",
            "movzx ecx, byte ptr [rsi]",
            "movzx r8d, byte ptr [rsi + rdx - 1]",
            "mov r9, rdx",
            "shr r9, 1",
            "movzx r10d, byte ptr [rsi + r9]",
            "mov [rdi], cl",
            "mov [rdi + r9], r10b",
            "mov [rdi + rdx - 1], r8b",
            "26:",
            "ret",
            "24:",
            "cmp rdx, 64",
            "ja 27f",
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + 16]",
            "movups xmm2, [rsi + rdx - 32]",
            "movups xmm3, [rsi + rdx - 16]",
            "movups [rdi], xmm0",
            "movups [rdi + 16], xmm1",
            "movups [rdi + rdx - 32], xmm2",
            "movups [rdi + rdx - 16], xmm3",
            "ret",
            "27:",
            // Forward unless the destination begins inside the source.
            "mov rcx, rdi",
            "sub rcx, rsi",
            "cmp rcx, rdx",
            "jb 28f",
            "cmp rdx, 1024",
            "jae 29f",
            // The end is loaded first and stored last, since its bytes may be overwritten meanwhile.
            "movups xmm2, [rsi + rdx - 32]",
            "movups xmm3, [rsi + rdx - 16]",
            "lea r8, [rdi + rdx - 32]",
            "21:",
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + 16]",
            "movups [rdi], xmm0",
            "movups [rdi + 16], xmm1",
            "add rsi, 32",
            "add rdi, 32",
            "cmp rdi, r8",
            "jb 21b",
            "movups [r8], xmm2",
            "movups [r8 + 16], xmm3",
            "ret",
            "29:",
            "mov rcx, rdx",
            "rep movsb",
            "ret",
            "28:",
            "movups xmm0, [rsi + rdx - 16]",
            "movups [rdi + rdx - 16], xmm0",
            "sub rdx, 16",
            "cmp rdx, 16",
            "jae 28b",
            "jmp 20b",
            ".cfi_endproc",
            concat!(".size ", $prefix, "memcpy, . - ", $prefix, "memcpy"),
            // rdi: to, esi: the byte, rdx: bytes.
            ".p2align 4",
            symbol!($prefix, "memset"),
            ".cfi_startproc",
            "mov r8, rdi",
            "movzx eax, sil",
            "cmp rdx, 128",
            "jae 33f",
            "mov rcx, 0x0101010101010101",
            "imul rax, rcx",
            "cmp rdx, 8",
            "jb 32f",
            "mov [rdi + rdx - 8], rax",
            "31:",
            "mov [rdi], rax",
            "add rdi, 8",
            "sub rdx, 8",
            "cmp rdx, 8",
            "jae 31b",
            "mov rax, r8",
            "ret",
            "32:",
            "test rdx, rdx",
            "jz 34f",
            "mov [rdi + rdx - 1], al",
            "dec rdx",
            "jmp 32b",
            "33:",
            "mov rcx, rdx",
            "rep stosb",
            "34:",
            "mov rax, r8",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $prefix, "memset, . - ", $prefix, "memset"),
            // rdi, rsi: the operands, rdx: bytes. Compares whole words first, and bytes from the first that
            // differs.
            ".p2align 4",
            symbol!($prefix, "memcmp"),
            ".cfi_startproc",
            symbol!($prefix, "bcmp"),
            "41:",
            "cmp rdx, 8",
            "jb 42f",
            "mov rcx, [rdi]",
            "cmp rcx, [rsi]",
            "jne 42f",
            "add rdi, 8",
            "add rsi, 8",
            "sub rdx, 8",
            "jmp 41b",
            "42:",
            "test rdx, rdx",
            "jz 43f",
            "movzx eax, byte ptr [rdi]",
            "movzx ecx, byte ptr [rsi]",
            "sub eax, ecx",
            "jnz 44f",
            "inc rdi",
            "inc rsi",
            "dec rdx",
            "jmp 42b",
            "43:",
            "xor eax, eax",
            "44:",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $prefix, "memcmp, . - ", $prefix, "memcmp"),
            // rdi: start, rsi: bytes at most, xmm0: the byte, sixteen times. Returns the offset of its first
            // occurrence, or rsi. Blocks are aligned, so that none reaches a page outside of the requested
            // bytes.
            ".p2align 4",
            symbol!($prefix, "gputrace_find_byte"),
            ".cfi_startproc",
            "mov rax, rsi",
            "test rsi, rsi",
            "jz 53f",
            "mov r8, rdi",
            "and r8, -16",
            "mov ecx, edi",
            "and ecx, 15",
            "movdqa xmm1, [r8]",
            "pcmpeqb xmm1, xmm0",
            "pmovmskb r9d, xmm1",
            "shr r9d, cl",
            "xor eax, eax",
            "test r9d, r9d",
            "jnz 52f",
            // The offset of the second block.
            "mov eax, 16",
            "sub eax, ecx",
            "51:",
            "cmp rax, rsi",
            "jae 54f",
            "movdqa xmm1, [rdi + rax]",
            "pcmpeqb xmm1, xmm0",
            "pmovmskb r9d, xmm1",
            "test r9d, r9d",
            "jnz 52f",
            "add rax, 16",
            "jmp 51b",
            "52:",
            "bsf r9d, r9d",
            "add rax, r9",
            "cmp rax, rsi",
            "jb 53f",
            "54:",
            "mov rax, rsi",
            "53:",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $prefix, "gputrace_find_byte, . - ", $prefix, "gputrace_find_byte"),
            // rdi: start, esi: the byte, rdx: bytes at most.
            ".p2align 4",
            symbol!($prefix, "memchr"),
            ".cfi_startproc",
            "movd xmm0, esi",
            "punpcklbw xmm0, xmm0",
            "punpcklwd xmm0, xmm0",
            "pshufd xmm0, xmm0, 0",
            "mov rsi, rdx",
            concat!("call ", $prefix, "gputrace_find_byte"),
            "cmp rax, rdx",
            "je 55f",
            "add rax, rdi",
            "ret",
            "55:",
            "xor eax, eax",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $prefix, "memchr, . - ", $prefix, "memchr"),
            // rdi: a C string; strnlen also has rsi: bytes at most.
            ".p2align 4",
            symbol!($prefix, "strlen"),
            ".cfi_startproc",
            "mov rsi, -1",
            symbol!($prefix, "strnlen"),
            "pxor xmm0, xmm0",
            concat!("jmp ", $prefix, "gputrace_find_byte"),
            ".cfi_endproc",
            concat!(".size ", $prefix, "strnlen, . - ", $prefix, "strnlen"),
        );
    };
}

#[cfg(not(test))]
functions!("");
// The unit tests' program uses the C library's functions, and tests these beside them.
#[cfg(test)]
functions!("own_");

#[cfg(test)]
mod tests {
    use core::ffi::{c_char, c_int, c_void};

    unsafe extern "C" {
        fn own_memmove(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
        fn own_memset(to: *mut c_void, byte: c_int, bytes: usize) -> *mut c_void;
        fn own_memcmp(one: *const c_void, other: *const c_void, bytes: usize) -> c_int;
        fn own_memchr(from: *const c_void, byte: c_int, bytes: usize) -> *mut c_void;
        fn own_strlen(text: *const c_char) -> usize;
        fn own_strnlen(text: *const c_char, most: usize) -> usize;
    }

    /// Lengths around every threshold of the functions.
    fn lengths() -> impl Iterator<Item = usize> {
        (0..=260).chain([511, 512, 513, 4095, 4096, 4097])
    }

    #[test]
    fn copy_is_right_at_every_length_and_overlap() {
        let pattern: Vec<u8> = (0..9200u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for bytes in lengths() {
            for (from, to) in
                [(100, 5000), (100, 100), (100, 101), (101, 100), (100, 117), (117, 100), (100, 133)]
            {
                let (mut ours, mut expected) = (pattern.clone(), pattern.clone());
                expected.copy_within(from..from + bytes, to);
                // SAFETY: both ranges lie in the vector, which has 9200 bytes.
                let answer = unsafe {
                    let base = ours.as_mut_ptr();
                    own_memmove(base.add(to).cast(), base.add(from).cast(), bytes) == base.add(to).cast()
                };
                assert!(answer && ours == expected, "{bytes} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn fill_touches_its_bytes_and_no_others() {
        for bytes in lengths() {
            let mut ours = vec![1u8; bytes + 32];
            // SAFETY: the range lies in the vector.
            unsafe { own_memset(ours.as_mut_ptr().add(16).cast(), 0x1a5, bytes) };
            assert!(ours[..16].iter().chain(&ours[16 + bytes..]).all(|byte| *byte == 1), "{bytes}");
            assert!(ours[16..16 + bytes].iter().all(|byte| *byte == 0xa5), "{bytes}");
        }
    }

    #[test]
    fn comparison_has_the_sign_of_the_first_difference() {
        for bytes in lengths() {
            let one = vec![7u8; bytes];
            // SAFETY: both vectors have that many bytes.
            let compare =
                |other: &[u8]| unsafe { own_memcmp(one.as_ptr().cast(), other.as_ptr().cast(), bytes) };
            assert_eq!(compare(&one), 0);
            for at in [0, bytes / 2, bytes.wrapping_sub(1)].into_iter().filter(|at| *at < bytes) {
                let mut other = one.clone();
                other[at] = 200;
                assert!(compare(&other) < 0, "{bytes} {at}");
                other[at] = 3;
                assert!(compare(&other) > 0, "{bytes} {at}");
            }
        }
    }

    #[test]
    fn searches_end_at_the_byte_or_at_the_limit() {
        for start in 0..17 {
            for length in (0..70).chain([127, 128, 129, 1000]) {
                let mut text = vec![b'x'; start + length + 40];
                text[start + length] = 0;
                let from: *const c_char = text[start..].as_ptr().cast();
                for most in [0, 1, length.saturating_sub(1), length, length + 1, length + 20] {
                    // SAFETY: the limits are below what is left of the vector, and there is a NUL.
                    unsafe {
                        assert_eq!(own_strnlen(from, most), length.min(most), "{start} {length} {most}");
                        let found = own_memchr(from.cast(), 0x100, most);
                        let expected = if length < most { from.add(length) } else { core::ptr::null() };
                        assert_eq!(found.cast_const(), expected.cast(), "{start} {length} {most}");
                    }
                }
                // SAFETY: as above.
                assert_eq!(unsafe { own_strlen(from) }, length, "{start}");
            }
        }
    }

    /// The last byte before an unmapped page may be read, and none after it.
    #[test]
    fn searches_stay_out_of_the_next_page() {
        const PAGE: usize = 4096;
        // SAFETY: two pages of the test's own, of which the second cannot be read.
        unsafe {
            let pages = gputrace_producer::memory::map_bytes(2 * PAGE).unwrap();
            assert_eq!(libc::mprotect(pages.add(PAGE).cast(), PAGE, libc::PROT_NONE), 0);
            own_memset(pages.cast(), b'x'.into(), PAGE);
            for bytes in 0..40 {
                let from = pages.add(PAGE - bytes);
                assert_eq!(own_strnlen(from.cast(), bytes), bytes);
                assert!(own_memchr(from.cast(), b'y'.into(), bytes).is_null());
            }
        }
    }
}
