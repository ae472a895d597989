//! Demangling: C++ and Rust names to source form; anything else passes through.

use std::fmt;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Names longer than this are not demangled. The longest of PyTorch's 40 845 kernels has 2 301
/// bytes; CUTLASS 3 reaches some 6 000.
const MANGLED_MAX_BYTES: usize = 12 * 1024;
/// The most bytes of a demangled name. By substitutions, a short mangled name can stand for an exponentially
/// long one.
const DEMANGLED_MAX_BYTES: usize = 32 * 1024;
/// Depth of nesting followed before giving up; real names stay below 40.
const RECURSION_LIMIT: u32 = 96;

/// The source form of a name from the device library. A name that is not mangled, or exceeds the bounds, is
/// returned as it is; invalid UTF-8 is replaced.
pub fn demangle(name: &[u8]) -> String {
    let plain = || String::from_utf8_lossy(name).into_owned();
    if name.len() > MANGLED_MAX_BYTES || !looks_mangled(name) {
        return plain();
    }
    if let Some(rust) = std::str::from_utf8(name).ok().and_then(rust_name) {
        return rust;
    }
    cpp_name(name).unwrap_or_else(plain)
}

/// A function's name without parameters and return type: `ns::step<float>` of `void ns::step<float>(int)`.
pub fn demangle_function(name: &[u8]) -> String {
    let plain = || String::from_utf8_lossy(name).into_owned();
    if name.len() > MANGLED_MAX_BYTES || !looks_mangled(name) {
        return plain();
    }
    let options = DemangleOptions::new().recursion_limit(RECURSION_LIMIT).no_params().no_return_type();
    let rust = std::str::from_utf8(name).ok().and_then(rust_name);
    rust.or_else(|| cpp_name_with(name, &options)).unwrap_or_else(plain)
}

fn looks_mangled(name: &[u8]) -> bool {
    [b"_Z".as_slice(), b"__Z", b"_R"].iter().any(|prefix| name.starts_with(prefix))
}

/// Rust's older mangling is C++'s with a hash as the last part; only the hash shows that it is Rust.
fn rust_name(name: &str) -> Option<String> {
    let hash = name.trim_end_matches('E');
    let legacy = name.ends_with('E')
        && hash.len() > 19
        && hash.is_char_boundary(hash.len() - 19)
        && hash[hash.len() - 19..].starts_with("17h")
        && hash[hash.len() - 16..].bytes().all(|b| b.is_ascii_hexdigit());
    if !name.starts_with("_R") && !legacy {
        return None;
    }
    let symbol = rustc_demangle::try_demangle(name).ok()?;
    let mut out = BoundedText::default();
    // The alternate form leaves the hash out.
    fmt::write(&mut out, format_args!("{symbol:#}")).ok()?;
    Some(out.0)
}

fn cpp_name(name: &[u8]) -> Option<String> {
    cpp_name_with(name, &DemangleOptions::new().recursion_limit(RECURSION_LIMIT))
}

fn cpp_name_with(name: &[u8], options: &DemangleOptions) -> Option<String> {
    let parse = ParseOptions::default().recursion_limit(RECURSION_LIMIT);
    let symbol = Symbol::new_with_options(name, &parse).ok()?;
    let mut out = BoundedText::default();
    symbol.structured_demangle(&mut out, options).ok()?;
    Some(usual_literals(out.0))
}

/// Writes numbers as GNU's demangler and so every other profiler does: `3ul` for
/// `(unsigned long)3`. Names can then be compared as text.
fn usual_literals(text: String) -> String {
    const SUFFIXES: [(&str, &str); 6] = [
        ("(unsigned long long)", "ull"),
        ("(unsigned long)", "ul"),
        ("(unsigned int)", "u"),
        ("(long long)", "ll"),
        ("(long)", "l"),
        ("(int)", ""),
    ];
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('(') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let cast = SUFFIXES.iter().find_map(|(cast, suffix)| Some((from.strip_prefix(cast)?, *suffix)));
        let number = cast.and_then(|(after, suffix)| {
            let digits = after.strip_prefix('-').unwrap_or(after);
            let length = digits.bytes().take_while(u8::is_ascii_digit).count();
            (length > 0).then(|| (after.split_at(after.len() - digits.len() + length), suffix))
        });
        rest = match number {
            Some(((number, after), suffix)) => {
                out.push_str(number);
                out.push_str(suffix);
                after
            }
            None => {
                out.push('(');
                &from[1..]
            }
        };
    }
    out + rest
}

/// Refuses to grow beyond the bound, which makes the demangler stop.
#[derive(Default)]
struct BoundedText(String);

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > DEMANGLED_MAX_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::names::path::tests::BYTES_READ;

    #[test]
    fn names_come_back_in_source_form() {
        for (mangled, source) in [
            (&b"_Z9vectorAddPKfS0_Pfi"[..], "vectorAdd(float const*, float const*, float*, int)"),
            (b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
             "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"),
            (b"_ZN6vision3ops61_GLOBAL__N__d1018eed_22_ps_roi_align_kernel_cu_f5d54401_1632010roi_kernelIfEEvPT_",
             "void vision::ops::(anonymous namespace)::roi_kernel<float>(float*)"),
            (b"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            (b"_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            (b"triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            (b"_Znonsense", "_Znonsense"),
            (b"ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
            (b"bad\xff\xfeutf8", "bad\u{fffd}\u{fffd}utf8"),
            (b"", ""),
        ] {
            assert_eq!(demangle(mangled), source);
        }
    }

    /// Names built to blow a demangler up: nesting, doubling by substitution, huge lengths.
    pub(crate) fn hostile() -> Vec<Vec<u8>> {
        let mut names = vec![
            [b"_Z1f".to_vec(), b"P".repeat(10_000), b"i".to_vec()].concat(),
            [b"_Z1f".to_vec(), b"FvP".repeat(3_000), b"i".to_vec()].concat(),
            [b"_ZN".to_vec(), b"1a".repeat(5_000), b"E".to_vec()].concat(),
            [b"_Z".to_vec(), b"1aI".repeat(3_000)].concat(),
            [b"_Z1fI".to_vec(), b"X".repeat(9_000)].concat(),
            b"_Z999999999999999999999999f".to_vec(),
            [b"_R".to_vec(), b"IC".repeat(4_000)].concat(),
            b"_".repeat(10_000),
            b"<".repeat(10_000),
            b"(".repeat(10_000),
            [b"f".to_vec(), b"<a::".repeat(2_500)].concat(),
            [b"void f<".to_vec(), b"(a<b>::c)->".repeat(900), b">()".to_vec()].concat(),
            b"operator".repeat(1_250),
            b"{lambda(".repeat(1_250),
            "é<…>".repeat(1_500).into_bytes(),
            nested("f", "a<", "b", ">", 3_000),
            nested("void f", "<iter<x,", "b", ">>", 1_500),
            nested("void f<g", "(int)::{lambda(h", "b", ")#1}", 1_000),
            format!("void f<{}b>(int)", "iter<a<b<c, d>, e>, f>, ".repeat(1_200)).into_bytes(),
            format!("void f<{}>(int)", nested_list(3, 16)).into_bytes(),
            format!("void f<{}1>(int)", "true, 1, ".repeat(3_000)).into_bytes(),
            format!("sm80_xmma_{}tilesize{}", "a_".repeat(4_000), "_stage3".repeat(2_000)).into_bytes(),
        ];
        // Each parameter doubles the one before: 2^60 characters if nobody stops it.
        let mut doubling = b"_Z1f1aIiiE".to_vec();
        for step in 0..60u32 {
            let id = if step == 0 { "_".into() } else { format!("{}_", base36(step - 1)) };
            doubling.extend(format!("S_IS{id}S{id}E").into_bytes());
        }
        names.push(doubling);
        names
    }

    fn nested(begin: &str, open: &str, inside: &str, close: &str, depth: usize) -> Vec<u8> {
        [begin, &open.repeat(depth), inside, &close.repeat(depth)].concat().into_bytes()
    }

    fn nested_list(depth: usize, width: usize) -> String {
        if depth == 0 {
            return "a".to_owned();
        }
        let inside = nested_list(depth - 1, width);
        vec![format!("iter<{inside}>"); if depth == 1 { 8 } else { width }].join(", ")
    }

    fn base36(mut value: u32) -> String {
        let mut digits = Vec::new();
        loop {
            digits.push(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[(value % 36) as usize]);
            value /= 36;
            if value == 0 {
                break;
            }
        }
        digits.reverse();
        String::from_utf8(digits).unwrap()
    }

    #[test]
    fn hostile_names_are_distinguished_in_bounded_time() {
        for name in hostile() {
            let begun = processor_time();
            let full = demangle(&name);
            let mut table = crate::names::NameTable::default();
            let mut seen = std::collections::HashSet::new();
            for other in [full.clone(), full.replace('a', "z"), full.replace("1", "2"), format!("{full} ")] {
                table.short(&other);
                seen.insert(other);
            }
            let shorts: std::collections::HashSet<_> = seen.iter().map(|full| table.short(full)).collect();
            assert_eq!(shorts.len(), seen.len());
            let took = processor_time() - begun;
            let shown = String::from_utf8_lossy(&name[..name.len().min(24)]).into_owned();
            assert!(took < Duration::from_secs(8), "{shown}… took {took:?}");
        }
    }

    /// CPU time of this thread alone.
    fn processor_time() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a live timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
    }

    /// A name that is eight times as long makes the parser read some eight times as many bytes, not 64 times.
    #[test]
    fn parsing_work_grows_with_the_length() {
        let lists: [fn(usize) -> String; 3] = [
            |n| format!("void f<{}b>(int)", "iter<a<b<c, d>, e>, f>, ".repeat(n)),
            |n| format!("void {}f<int>(int)", "a<b>::".repeat(4 * n)),
            |n| format!("void f<{}>(int)", "a".repeat(24 * n)),
        ];
        let work = |full: &str| {
            let before = BYTES_READ.get();
            std::hint::black_box(crate::names::short(full));
            BYTES_READ.get() - before
        };
        for list in lists {
            let (one, eight) = (work(&list(100)), work(&list(800)));
            assert!(one >= 2_400, "{one} bytes");
            assert!(eight < 9 * one, "{}…: {one} bytes, eight times as long {eight}", &list(1)[..20]);
        }
    }

    #[test]
    fn hostile_names_are_bounded_in_time_and_space() {
        for name in hostile() {
            let begun = processor_time();
            let source = demangle(&name);
            let short = crate::names::short(&source);
            let took = processor_time() - begun;
            let shown = String::from_utf8_lossy(&name[..name.len().min(24)]).into_owned();
            assert!(took < Duration::from_secs(2), "{shown}… took {took:?}");
            assert!(source.len() <= DEMANGLED_MAX_BYTES, "{shown}…");
            assert!(short.chars().count() <= crate::names::SHORT_MAX_CHARS, "{shown}… gives {short}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(name in prop::collection::vec(any::<u8>(), 0..300)) {
            let source = demangle(&name);
            prop_assert!(crate::names::short(&source).chars().count() <= crate::names::SHORT_MAX_CHARS);
        }

        #[test]
        fn anything_that_looks_mangled_is_survived(tail in "[0-9A-Za-z_]{0,200}") {
            let source = demangle(format!("_Z{tail}").as_bytes());
            prop_assert!(source.len() <= DEMANGLED_MAX_BYTES);
        }
    }
}
