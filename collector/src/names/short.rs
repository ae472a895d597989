//! Short names: what a person would call a kernel.
//!
//! Left out: return type, parameters, namespaces, plumbing among the template arguments.
//! Wrappers are looked through to the functor that does the work. What is still too long loses
//! depth, then arguments, then its middle; every loss shows as `…`.

use crate::names::path::{Node, Part, parse};

/// The most characters of a short name.
pub const SHORT_MAX_CHARS: usize = 96;
/// A name this short is not simplified further.
const COMFORTABLE_CHARS: usize = 76;
/// Longer names are only cut: nothing that long reads well however it is taken apart.
const PARSED_MAX_BYTES: usize = 32 * 1024;

/// How much of the template arguments to show.
#[derive(Clone, Copy)]
struct Detail {
    depth: usize,
    arguments: usize,
    flags: bool,
}

/// Tried in this order until the name is comfortable.
const DETAILS: [Detail; 8] = [
    Detail { depth: 4, arguments: 12, flags: true },
    Detail { depth: 4, arguments: 8, flags: false },
    Detail { depth: 3, arguments: 6, flags: false },
    Detail { depth: 2, arguments: 6, flags: false },
    Detail { depth: 2, arguments: 4, flags: false },
    Detail { depth: 1, arguments: 4, flags: false },
    Detail { depth: 1, arguments: 2, flags: false },
    Detail { depth: 0, arguments: 0, flags: false },
];

/// Libraries whose name stays in front of a kernel's own, because it says whose kernel it is.
const LIBRARIES: [&str; 14] = [
    "cub",
    "cudf",
    "cudnn",
    "cuml",
    "cute",
    "cutlass",
    "fbgemm_gpu",
    "flashinfer",
    "raft",
    "rmm",
    "tensorrt_llm",
    "thrust",
    "vllm",
    "xgboost",
];

/// Types that carry data to a kernel and say nothing about what it does.
const PLUMBING: [&str; 14] = [
    "FusedOptimizerTensorListMetadata",
    "LoadWithCast",
    "LoadWithoutCast",
    "OffsetCalculator",
    "Params",
    "StoreWithCast",
    "StoreWithoutCast",
    "TensorListMetadata",
    "TensorListScalarListMetadata",
    "TensorListScalarTensorMetadata",
    "TrivialOffsetCalculator",
    "allocator",
    "array",
    "default_delete",
];

/// Wrappers that are not shown, with the place of the argument that does the work.
const WRAPPERS: [(&str, usize); 3] = [("BinaryFunctor", 3), ("ReduceOp", 1), ("func_wrapper_t", 1)];

/// Wrappers of which only one argument is shown.
const HOLDERS: [(&str, usize); 3] = [("AUnaryFunctor", 3), ("BUnaryFunctor", 3), ("ParallelForAgent", 0)];

/// Names that say nothing without the namespace or class around them.
const GENERIC: [&str; 8] = ["Kernel", "apply", "entry", "impl", "kernel", "launch", "main", "run"];

/// Kernels whose numbers are the same in all their instances.
const CONSTANT_NUMBERS: [&str; 3] =
    ["elementwise_kernel", "unrolled_elementwise_kernel", "elementwise_kernel_with_index"];

/// Types that are lists of numbers, shown as 128x64x32.
const SHAPES: [&str; 6] = ["GemmShape", "MatrixShape", "PitchLinearShape", "Shape", "shape", "tuple"];

/// The short form of a name in source form. Never longer than [`SHORT_MAX_CHARS`].
pub fn short(full: &str) -> String {
    let full = full.split(" [clone ").next().unwrap_or(full).trim();
    let full = full.strip_prefix("__device_stub__").unwrap_or(full);
    if full.len() > PARSED_MAX_BYTES || !full.contains(['<', '(', ':']) {
        return cut(full);
    }
    let Node::Path { parts, .. } = parse(full) else { return cut(full) };
    let mut name = String::new();
    for detail in DETAILS {
        name = function(&parts, detail);
        if name.chars().count() <= COMFORTABLE_CHARS {
            break;
        }
    }
    cut(&name)
}

/// Takes characters out of the middle: the end often tells two names apart.
fn cut(name: &str) -> String {
    let count = name.chars().count();
    if count <= SHORT_MAX_CHARS {
        return name.to_owned();
    }
    let tail = SHORT_MAX_CHARS / 3;
    let head: String = name.chars().take(SHORT_MAX_CHARS - tail - 1).collect();
    head + "…" + &name.chars().skip(count - tail).collect::<String>()
}

fn function(parts: &[Part<'_>], detail: Detail) -> String {
    let Some((own, outer)) = parts.split_last() else { return String::new() };
    if own.name == "operator()" || own.is_lambda() {
        return path(parts, detail, false);
    }
    if let Some(named) = named_by_argument(own) {
        return named.to_owned();
    }
    let mut name = String::new();
    if let Some(library) = outer.iter().find(|part| LIBRARIES.contains(&part.name))
        && !own.name.starts_with(library.name)
    {
        name += library.name;
        name += "::";
    } else if let Some(home) = outer.last().filter(|home| home.args.is_empty())
        && GENERIC.contains(&own.name)
        && home.name != "(anonymous namespace)"
    {
        name += home.name;
        name += "::";
    }
    for class in outer.iter().filter(|part| !part.args.is_empty() && !is_version(part.name)) {
        name += &part(class, Detail { depth: detail.depth.min(1), ..detail });
        name += "::";
    }
    name + &part(own, detail)
}

/// CUTLASS 2 puts a whole kernel name into the only argument of a nameless kernel.
fn named_by_argument<'a>(own: &Part<'a>) -> Option<&'a str> {
    let [Node::Path { parts, .. }] = own.args.as_slice() else { return None };
    let last = parts.last().filter(|last| last.args.is_empty())?;
    let nameless = matches!(own.name, "Kernel" | "Kernel2" | "device_kernel");
    (nameless && last.name.len() > 16).then_some(last.name)
}

fn is_version(name: &str) -> bool {
    name.starts_with("_V_") || name.starts_with("CUB_") || name.starts_with("THRUST_") || name == "__1"
}

fn part(part: &Part<'_>, detail: Detail) -> String {
    let numbers = !CONSTANT_NUMBERS.contains(&part.name);
    let kept: Vec<&Node<'_>> =
        part.args.iter().filter(|arg| !is_plumbing(arg) && (numbers || !is_number(arg))).collect();
    if kept.is_empty() {
        return part.name.to_owned();
    }
    if detail.depth == 0 {
        return match first_shape(&kept) {
            Some(shape) => format!("{}<{shape}, …>", part.name),
            None => format!("{}<…>", part.name),
        };
    }
    let inner = Detail { depth: detail.depth - 1, ..detail };
    let mut shown: Vec<String> = Vec::new();
    for arg in kept {
        if !detail.flags && is_flag(arg) {
            continue;
        }
        let text = argument(arg, inner);
        // `float, float, float` says nothing that `float` does not.
        if is_number(arg) || shown.last() != Some(&text) {
            shown.push(text);
        }
    }
    if shown.is_empty() {
        return part.name.to_owned();
    }
    if shown.len() > detail.arguments {
        shown.truncate(detail.arguments);
        shown.push("…".to_owned());
    }
    format!("{}<{}>", part.name, shown.join(", "))
}

fn argument(node: &Node<'_>, detail: Detail) -> String {
    match node {
        Node::Text(text) => literal(text),
        Node::Path { parts, pointer } => path(parts, detail, *pointer),
    }
}

/// `(Enum)3` and `3ul` as `3`; types in words as they are, unless long.
fn literal(text: &str) -> String {
    let value = match text.rsplit_once(')') {
        Some((before, value)) if before.starts_with('(') && !value.is_empty() => value,
        _ => text,
    };
    let digits = value.trim_end_matches(['u', 'l']);
    if digits.strip_prefix('-').unwrap_or(digits).bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty() {
        return digits.to_owned();
    }
    if value.chars().count() > 24 { "…".to_owned() } else { value.to_owned() }
}

fn path(parts: &[Part<'_>], detail: Detail, pointer: bool) -> String {
    let Some((own, outer)) = parts.split_last() else { return String::new() };
    if own.is_lambda() || (own.name == "operator()" && outer.iter().any(Part::is_lambda)) {
        return lambda(parts, detail);
    }
    if own.name == "operator()"
        && let Some(class) = outer.last()
    {
        return part(class, detail);
    }
    if let Some((_, place)) = WRAPPERS.iter().find(|(name, _)| *name == own.name)
        && let Some(work) = own.args.get(*place)
    {
        return argument(work, detail);
    }
    if let Some((holder, place)) = HOLDERS.iter().find(|(name, _)| *name == own.name)
        && let Some(work) = own.args.get(*place)
        && detail.depth > 0
    {
        return format!("{holder}<{}>", argument(work, Detail { depth: detail.depth - 1, ..detail }));
    }
    if matches!(own.name, "C" | "integral_constant" | "constant" | "Int")
        && let Some(value) = own.args.last()
    {
        return argument(value, detail);
    }
    if let Some(shape) = shape(own) {
        return shape;
    }
    let shown = part(own, detail);
    if pointer { shown + "*" } else { shown }
}

/// The tile of a matrix kernel whose arguments are not shown: the shape nearest to the surface.
fn first_shape(args: &[&Node<'_>]) -> Option<String> {
    const LEVELS: usize = 4;
    const BREADTH: usize = 64;
    let mut level: Vec<&Node<'_>> = args.to_vec();
    for _ in 0..LEVELS {
        let own = |node: &&'_ Node<'_>| match node {
            Node::Path { parts, .. } => parts.last().and_then(shape).filter(|shape| is_tile(shape)),
            Node::Text(_) => None,
        };
        if let Some(found) = level.iter().find_map(own) {
            return Some(found);
        }
        let below = level.iter().filter_map(|node| match node {
            Node::Path { parts, .. } => parts.last().map(|part| &part.args),
            Node::Text(_) => None,
        });
        level = below.flatten().take(BREADTH).collect();
    }
    None
}

/// Clusters of thread blocks are shapes too, but small ones.
fn is_tile(shape: &str) -> bool {
    const SMALLEST: u32 = 16;
    shape.contains('x') && shape.split('x').any(|side| side.parse().is_ok_and(|side: u32| side >= SMALLEST))
}

fn shape(part: &Part<'_>) -> Option<String> {
    if !SHAPES.contains(&part.name) || part.args.is_empty() {
        return None;
    }
    Some(part.args.iter().map(size).collect::<Option<Vec<_>>>()?.join("x"))
}

/// A number, or a type that stands for one.
fn size(node: &Node<'_>) -> Option<String> {
    match node {
        Node::Text(_) if is_number(node) => Some(argument(node, DETAILS[0])),
        Node::Text(_) => None,
        Node::Path { parts, .. } => {
            let own = parts.last()?;
            let constant = matches!(own.name, "C" | "integral_constant" | "constant" | "Int");
            if constant { size(own.args.last()?) } else { None }
        }
    }
}

/// A lambda is called after the function that it was written in; `gpu_kernel_impl` and its like
/// only pass on the functor in their own arguments.
fn lambda(parts: &[Part<'_>], detail: Detail) -> String {
    let Some(at) = parts.iter().position(|part| part.params.is_some() || part.is_lambda()) else {
        return "lambda".to_owned();
    };
    let home = &parts[at];
    if home.name == "operator()" && at > 0 {
        return part(&parts[at - 1], detail);
    }
    if (home.name.starts_with("gpu_kernel") || home.name.starts_with("launch_"))
        && let Some(work) = home.args.iter().find(|arg| matches!(arg, Node::Path { .. }))
    {
        return argument(work, detail);
    }
    let params = parts.iter().rev().find(|part| part.is_lambda()).map_or("", |part| lambda_params(part));
    let types: Vec<String> = match parse(&format!("f<{params}>")) {
        Node::Path { parts, .. } if !params.is_empty() => parts
            .last()
            .map(|list| list.args.iter().map(|arg| argument(arg, Detail { depth: 0, ..detail })).collect())
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    let mut types = types;
    types.dedup();
    let home = if home.is_lambda() { "lambda".to_owned() } else { part(home, detail) + "::lambda" };
    if types.is_empty() { home } else { format!("{home}({})", types.join(", ")) }
}

/// The parameters of `{lambda(float, int)#1}` or `'lambda'(float, int)`.
fn lambda_params<'a>(part: &Part<'a>) -> &'a str {
    let inside = part.name.strip_prefix("{lambda(").and_then(|rest| rest.rsplit_once(')'));
    inside.map(|(params, _)| params).or(part.params).unwrap_or("")
}

fn is_plumbing(node: &Node<'_>) -> bool {
    let Node::Path { parts, .. } = node else { return false };
    parts.last().is_some_and(|own| PLUMBING.contains(&own.name) || is_policy(own.name))
}

/// CUB's tuning policies, one a generation of devices.
fn is_policy(name: &str) -> bool {
    name.strip_prefix("Policy")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

fn is_flag(node: &Node<'_>) -> bool {
    match node {
        Node::Text(text) => matches!(*text, "(bool)0" | "(bool)1"),
        Node::Path { parts, .. } => {
            matches!(parts.as_slice(), [only] if matches!(only.name, "true" | "false"))
        }
    }
}

fn is_number(node: &Node<'_>) -> bool {
    let Node::Text(text) = node else { return false };
    literal(text).bytes().all(|b| b.is_ascii_digit() || b == b'-')
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
        assert_eq!(name.chars().count(), SHORT_MAX_CHARS);
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
