//! The name of a node's type: `MmBackward0`.
//!
//! Each C++ object with virtual functions begins with the address of its type's virtual table. The word
//! before that table is the address of the type's description, whose second word is the mangled name.

use core::arch::asm;

use crate::fold::fold;
use crate::python::memory::is_plausible;

/// Names longer than this are cut.
const NAME_MAX: usize = 512;

/// A node, identified by its type.
#[derive(Clone, Copy, Debug)]
pub struct GradNode {
    name: *const u8,
    length: usize,
    /// A hash of the name's bytes; never 0.
    pub hash: u64,
}

impl GradNode {
    /// # Safety
    ///
    /// `node` is a live C++ object with virtual functions and a type description.
    pub unsafe fn read(node: u64) -> Option<GradNode> {
        // SAFETY: the caller's word: all of these are there, and what they lead to is constant.
        unsafe {
            let functions = word(node)?;
            let description = word(functions.checked_sub(8)?)?;
            if !is_plausible(description) {
                return None;
            }
            let name = ((description + 8) as *const u64).read();
            if name == 0 {
                return None;
            }
            Some(GradNode::named(name as *const u8))
        }
    }

    /// # Safety
    ///
    /// `name` is a C string that stays mapped.
    unsafe fn named(name: *const u8) -> GradNode {
        const ONES: u64 = u64::MAX / 0xff;
        let (mut length, mut hash) = (0, 0u64);
        loop {
            // SAFETY: the first of these bytes is in the string, and the others are in the same page. They
            // may be after the string's end, which the language does not let a program read: hence the
            // instruction.
            let step = unsafe {
                let at = name.add(length);
                if at.addr() & 4095 > 4096 - 8 {
                    u64::from(at.read())
                } else {
                    let word: u64;
                    asm!("mov {}, qword ptr [{}]", out(reg) word, in(reg) at, options(pure, readonly, nostack, preserves_flags));
                    word
                }
            };
            let is_byte = name.addr().wrapping_add(length) & 4095 > 4096 - 8;
            let zeros = if is_byte {
                u64::from(step == 0) << 7
            } else {
                step.wrapping_sub(ONES) & !step & (ONES << 7)
            };
            if zeros != 0 {
                let rest = zeros.trailing_zeros() / 8;
                let kept = if rest == 0 { 0 } else { step & (u64::MAX >> (64 - 8 * rest)) };
                hash = fold(hash ^ kept, rest.into());
                return GradNode { name, length: length + rest as usize, hash: hash.max(1) };
            }
            hash = fold(hash, step);
            length += if is_byte { 1 } else { 8 };
            if length >= NAME_MAX {
                return GradNode { name, length, hash: hash.max(1) };
            }
        }
    }

    /// The mangled name.
    pub fn mangled(&self) -> &[u8] {
        // SAFETY: so many bytes were read of it when the value was made, in the same call.
        unsafe { core::slice::from_raw_parts(self.name, self.length) }
    }
}

/// # Safety
///
/// A plausible address must be that of a readable word.
unsafe fn word(at: u64) -> Option<u64> {
    // SAFETY: the caller's word.
    is_plausible(at).then(|| unsafe { (at as *const u64).read() })
}

/// The readable name of the type: the last part of its name, and of its template argument if that is a
/// single type. A name of an unsupported form is returned unchanged.
pub fn readable<'r>(mangled: &'r [u8], buffer: &'r mut [u8]) -> &'r [u8] {
    // The name of a type that is local to a file begins with a mark.
    let mangled = mangled.strip_prefix(b"*").unwrap_or(mangled);
    let mut parts = NameParts { left: mangled };
    let Some(name) = parts.last_of_name() else { return mangled };
    let inner = parts.left.strip_prefix(b"I").and_then(|left| NameParts { left }.last_of_name());
    let Some(inner) = inner else { return name };
    let mut length = 0;
    for part in [name, b"<", inner, b">"] {
        let Some(free) = buffer.get_mut(length..length + part.len()) else { return name };
        free.copy_from_slice(part);
        length += part.len();
    }
    buffer.get(..length).unwrap_or(name)
}

struct NameParts<'m> {
    left: &'m [u8],
}

impl<'m> NameParts<'m> {
    /// The last identifier of a name: of `N5torch8autograd5ErrorE` as of `5Error`.
    fn last_of_name(&mut self) -> Option<&'m [u8]> {
        let (is_nested, mut last) = (self.left.first() == Some(&b'N'), None);
        if is_nested {
            self.left = self.left.get(1..)?;
        }
        // Types that are local to a file are in a namespace of this name.
        while let Some(found) = self.identifier() {
            if found != b"_GLOBAL__N_1" {
                last = Some(found);
            }
            if !is_nested {
                break;
            }
        }
        last
    }

    fn identifier(&mut self) -> Option<&'m [u8]> {
        let digits = self.left.iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
        let length =
            self.left.get(..digits)?.iter().fold(0, |sum, digit| 10 * sum + usize::from(digit - b'0'));
        if length == 0 {
            return None;
        }
        let found = self.left.get(digits..digits + length)?;
        self.left = self.left.get(digits + length..)?;
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_called_by_their_last_part() {
        for (mangled, expected) in [
            ("N5torch8autograd9generated11MmBackward0E", "MmBackward0"),
            ("N5torch8autograd14AccumulateGradE", "AccumulateGrad"),
            ("5MyOwn", "MyOwn"),
            ("*N12_GLOBAL__N_15MyOwnE", "MyOwn"),
            ("N5torch8autograd7CppNodeI5MyOwnEE", "CppNode<MyOwn>"),
            ("N5torch8autograd7CppNodeIN2my5MyOwnEEE", "CppNode<MyOwn>"),
            ("N5torch8autograd7CppNodeINS_1XEEE", "CppNode"),
            ("St9exception", "St9exception"),
            ("N999a", "N999a"),
            ("N99999999999999999999aE", "N99999999999999999999aE"),
            ("", ""),
        ] {
            let mut buffer = [0; 100];
            let said = readable(mangled.as_bytes(), &mut buffer);
            assert_eq!(core::str::from_utf8(said).unwrap(), expected);
        }
        assert_eq!(readable(b"N1a1bI1cEE", &mut [0; 3]), b"b", "no buffer");
    }

    #[test]
    fn names_that_differ_anywhere_differ_in_their_number_and_where_they_lie_does_not_matter() {
        let mut page = vec![b'x'; 3 * 4096];
        let edge = 4096 - page.as_ptr().addr() % 4096 + 4096;
        let mut seen = std::collections::HashMap::new();
        for length in 0..40usize {
            for flipped in 0..=length {
                let mut expected = None;
                for from in (edge - 60)..=edge {
                    page[from..from + length].fill(b'a');
                    page[from + length..from + length + 9].fill(0);
                    if flipped < length {
                        page[from + flipped] = b'b';
                    }
                    // SAFETY: a C string in the vector.
                    let node = unsafe { GradNode::named(page[from..].as_ptr()) };
                    assert_eq!(node.length, length);
                    assert_eq!(node.mangled(), &page[from..from + length]);
                    let crosses = from + length + 8 > edge;
                    if !crosses {
                        assert_eq!(*expected.get_or_insert(node.hash), node.hash);
                    }
                }
                if let Some(hash) = expected {
                    assert!(seen.insert(hash, (length, flipped)).is_none());
                }
            }
        }
    }

    #[test]
    fn name_is_read_through_an_objects_table_of_functions() {
        let name = b"N1a11MmBackward0E\0";
        let description = [0u64, name.as_ptr() as u64];
        let table = [description.as_ptr() as u64, 0];
        let object = [&raw const table[1] as u64, 0];
        // SAFETY: laid out as a C++ object's, and live.
        let node = unsafe { GradNode::read(object.as_ptr() as u64) }.unwrap();
        assert_eq!(node.mangled(), &name[..name.len() - 1]);
        // SAFETY: nothing is read where an address cannot be one.
        assert!(unsafe { GradNode::read(0) }.is_none() && unsafe { GradNode::read(7) }.is_none());
    }
}
