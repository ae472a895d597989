//! `memcpy` and its like for this library alone: hidden symbols, so that no call of ours leaves it.
//!
//! The compiler makes calls of these functions wherever it copies, fills or compares, and anybody may have
//! wrapped them. Sanitizers do, and judge what we copy: memory that CUPTI wrote counts as uninitialised, and
//! a record that our thread reads counts as a race with the thread that wrote it, though our orderings are
//! atomics that a sanitizer does not see in code that it did not compile. The program would end with a report.
//!
//! Short lengths, nearly all here, are two loads and two stores that overlap; long ones go to `rep movsb`.
//! All loads of a short copy come before its stores, so that `memcpy` is `memmove`.

/// A function's begin: a symbol that no other library sees.
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
            // rdi, rsi: what is compared, rdx: bytes. Whole words first, then from the first that differs by bytes.
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
            // rdi: where, esi: the byte, rdx: bytes at most.
            ".p2align 4",
            symbol!($prefix, "memchr"),
            ".cfi_startproc",
            "51:",
            "test rdx, rdx",
            "jz 52f",
            "cmp [rdi], sil",
            "je 53f",
            "inc rdi",
            "dec rdx",
            "jmp 51b",
            "52:",
            "xor edi, edi",
            "53:",
            "mov rax, rdi",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $prefix, "memchr, . - ", $prefix, "memchr"),
            // rdi: a C string; of strnlen rsi: bytes at most.
            ".p2align 4",
            symbol!($prefix, "strlen"),
            ".cfi_startproc",
            "mov rsi, -1",
            symbol!($prefix, "strnlen"),
            "xor eax, eax",
            "61:",
            "cmp rax, rsi",
            "je 62f",
            "cmp byte ptr [rdi + rax], 0",
            "je 62f",
            "inc rax",
            "jmp 61b",
            "62:",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $prefix, "strlen, . - ", $prefix, "strlen"),
        );
    };
}

#[cfg(not(test))]
functions!("");
// The unit tests' program keeps the C library's, and tests these beside them.
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

    /// Lengths around every step of the functions.
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
        let text = b"a name\0behind";
        let start: *const c_char = text.as_ptr().cast();
        // SAFETY: the lengths are at most the text's, which has a NUL.
        unsafe {
            assert_eq!((own_strlen(start), own_strnlen(start, 3), own_strnlen(start, 13)), (6, 3, 6));
            assert_eq!(own_strnlen(start, 0), 0);
            assert_eq!(own_memchr(start.cast(), b'm'.into(), 13), start.add(4).cast_mut().cast());
            assert!(own_memchr(start.cast(), b'm'.into(), 4).is_null());
            assert!(own_memchr(start.cast(), b'a'.into(), 0).is_null());
        }
    }
}
