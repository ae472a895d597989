//! Short names of kernels for people.
//!
//! A short name leaves out return type, parameters, namespaces and template arguments that only carry data.
//! It shows the functor inside a wrapper instead of the wrapper. A name that is still too long shows fewer
//! arguments, then a summary of the nested ones, and then loses its middle.

use crate::names::argument::{Detail, part, path, tiled};
use crate::names::identifier::{cut, identifier};
use crate::names::path::{NameNode, PathPart, parse};

use crate::names::vocabulary as known;

/// The most characters of a short name.
pub const SHORT_MAX_CHARS: usize = 80;
/// A name this short is not simplified further.
const COMFORTABLE_CHARS: usize = 60;
/// A name of at most this length keeps its second argument.
const BEARABLE_CHARS: usize = 72;
/// Showing fewer arguments than this is a noticeable loss.
const NOTICED_ARGUMENTS: usize = 3;
/// Longer names are only cut in the middle.
const PARSED_MAX_BYTES: usize = 32 * 1024;

/// The most classes shown around a kernel.
const CLASSES_MAX: usize = 4;
/// At this depth or below, matrix kernels are summarized.
const TILED_MAX_DEPTH: usize = 3;

/// Tried in this order until the name is comfortable.
const DETAILS: [Detail; 12] = [
    Detail { depth: 4, arguments: 12, flags: true, elements: true },
    Detail { depth: 4, arguments: 8, flags: false, elements: true },
    Detail { depth: 3, arguments: 6, flags: false, elements: true },
    Detail { depth: 2, arguments: 6, flags: false, elements: true },
    Detail { depth: 2, arguments: 4, flags: false, elements: true },
    Detail { depth: 1, arguments: 6, flags: false, elements: true },
    Detail { depth: 1, arguments: 4, flags: false, elements: true },
    Detail { depth: 1, arguments: 4, flags: false, elements: false },
    Detail { depth: 1, arguments: 3, flags: false, elements: true },
    Detail { depth: 1, arguments: 3, flags: false, elements: false },
    Detail { depth: 1, arguments: 2, flags: false, elements: false },
    Detail { depth: 1, arguments: 1, flags: false, elements: true },
];

/// The short form of a name in source form. Never longer than [`SHORT_MAX_CHARS`].
pub fn short(full: &str) -> String {
    let bare = bare(full);
    match structure(bare) {
        Some(parts) => cut(&comfortable(&parts), SHORT_MAX_CHARS),
        None => cut(&identifier(bare), SHORT_MAX_CHARS),
    }
}

/// The name without the prefixes and suffixes of compilers.
pub fn bare(full: &str) -> &str {
    let full = full.split(" [clone ").next().unwrap_or(full).trim();
    full.strip_prefix("__device_stub__").unwrap_or(full)
}

/// The parts of a C++ name; `None` for plain words and for names too long to read.
pub fn structure(bare: &str) -> Option<Vec<PathPart<'_>>> {
    if bare.len() > PARSED_MAX_BYTES || !bare.contains(['<', '(', ':']) {
        return None;
    }
    match parse(bare) {
        NameNode::Path { parts, .. } => Some(parts),
        NameNode::Text(_) => None,
    }
}

/// The most detailed form that is comfortable to read, or a longer one with more information, or else the
/// shortest.
fn comfortable(parts: &[PathPart<'_>]) -> String {
    let mut bearable = None;
    let mut shortest: Option<(usize, String)> = None;
    for detail in DETAILS {
        if (detail.arguments < NOTICED_ARGUMENTS || !detail.elements) && bearable.is_some() {
            break;
        }
        let name = function(parts, detail);
        let chars = name.chars().count();
        if chars <= COMFORTABLE_CHARS {
            return name;
        }
        if shortest.as_ref().is_none_or(|(least, _)| chars < *least) {
            shortest = Some((chars, name.clone()));
        }
        if chars <= BEARABLE_CHARS {
            bearable = Some(name);
        }
    }
    bearable.or(shortest.map(|(_, name)| name)).unwrap_or_default()
}

fn function(parts: &[PathPart<'_>], detail: Detail) -> String {
    let Some((own, outer)) = parts.split_last() else { return String::new() };
    if own.name == "operator()" || own.is_lambda() {
        return path(parts, detail, false);
    }
    if let Some(named) = named_by_argument(own) {
        return identifier(named);
    }
    if let Some(kernel) = inside_shell(own) {
        return function(kernel, detail);
    }
    let mut name = home(own, outer);
    let near = &outer[outer.len().saturating_sub(CLASSES_MAX)..];
    for class in near.iter().filter(|part| !part.args.is_empty() && !known::is_version(part.name)) {
        if detail.depth <= TILED_MAX_DEPTH
            && let Some(tiled) = tiled(class)
        {
            return format!("{name}{tiled}::{}", own.name);
        }
        name += &part(class, Detail { depth: detail.depth.min(1), ..detail });
        name += "::";
    }
    if own.args.is_empty() {
        return name + &identifier(own.name);
    }
    // The tile and the element types describe a matrix kernel better than its first arguments.
    let tiled = if detail.depth <= TILED_MAX_DEPTH { tiled(own) } else { None };
    name + &tiled.unwrap_or_else(|| part(own, detail))
}

/// The library and the classes shown before a kernel's own name.
fn home(own: &PathPart<'_>, outer: &[PathPart<'_>]) -> String {
    let mut name = String::new();
    if let Some(library) = outer.iter().find(|part| known::is_library(part.name))
        && !own.name.starts_with(library.name)
    {
        name += library.name;
        name += "::";
    }
    if let Some(home) = outer.last().filter(|home| home.args.is_empty())
        && known::is_generic(own.name)
        && home.name != "(anonymous namespace)"
    {
        name += home.name;
        name += "::";
    }
    name
}

/// CUTLASS 2 puts a whole kernel name into the only argument of a nameless kernel.
fn named_by_argument<'a>(own: &PathPart<'a>) -> Option<&'a str> {
    const NAMED_MIN_BYTES: usize = 16;
    let [NameNode::Path { parts, .. }] = own.args.as_slice() else { return None };
    let last = parts.last().filter(|last| last.args.is_empty())?;
    let named = known::is_shell(own.name)
        && last.name.len() > NAMED_MIN_BYTES
        && parts.iter().all(|part| part.args.is_empty());
    named.then_some(last.name)
}

/// The kernel class that a kernel without a name of its own runs.
fn inside_shell<'n, 'a>(own: &'n PathPart<'a>) -> Option<&'n [PathPart<'a>]> {
    if !known::is_shell(own.name) {
        return None;
    }
    let mut kernel = own.args.first()?;
    loop {
        let NameNode::Path { parts, .. } = kernel else { return None };
        let class = parts.last()?;
        match known::unwrapped(class) {
            Some(work) => kernel = work,
            None => return parts.iter().any(|part| !part.args.is_empty()).then_some(parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_pass_through_and_long_ones_lose_their_middle() {
        for name in ["triton_poi_fused_add_0", "ampere_sgemm_128x64_nn", "loop_add_fusion_3", ""] {
            assert_eq!(short(name), name);
        }
        let long = format!("triton_red_fused_{}_17", "native_layer_norm_".repeat(9));
        let name = short(&long);
        assert!(name.chars().count() <= SHORT_MAX_CHARS);
        assert!(name.starts_with("triton_red_fused_native") && name.ends_with("_17") && name.contains('…'));
    }

    #[test]
    fn functors_are_what_matters() {
        for (full, expected) in [
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
                "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
            ),
            (
                "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1})",
                "elementwise_kernel<CUDAFunctor_add<float>>",
            ),
            (
                "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8::Params)",
                "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8",
            ),
            ("vectorAdd(float const*, float const*, float*, int)", "vectorAdd"),
        ] {
            assert_eq!(short(full), expected);
        }
    }
}
