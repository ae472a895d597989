//! Tables of names from libraries with kernels, and look-ups in them: which words of a kernel's name describe
//! it, and which only carry data (plumbing).

use crate::names::path::{NameNode, PathPart};

/// Libraries whose name is shown before the kernel's own, since it shows whose kernel it is.
const LIBRARIES: [&str; 16] = [
    "cub",
    "cublasLt",
    "cudf",
    "cudnn",
    "cuml",
    "cusparse",
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
const PLUMBING: [&str; 28] = [
    "CUDAGeneratorImpl",
    "Empty",
    "FusedOptimizerTensorListMetadata",
    "LoadWithCast",
    "LoadWithoutCast",
    "NullType",
    "OffsetCalculator",
    "Params",
    "StoreWithCast",
    "StoreWithoutCast",
    "TensorListMetadata",
    "TensorListScalarListMetadata",
    "TensorListScalarTensorMetadata",
    "TrivialOffsetCalculator",
    "allocator",
    "always_true",
    "array",
    "default_delete",
    "enable_if",
    "identity",
    "identity_decomposer_t",
    "__identity",
    "no_init_t",
    "null_type",
    "rng_config",
    "qrng_config_override",
    "use_default",
    "void",
];

/// The same, for families of types.
const PLUMBING_PREFIXES: [&str; 6] = [
    "cublasGemvTensor",
    "curandDiscreteDistribution",
    "normal_args_",
    "policy_hub",
    "policy_selector",
    "policy_wrapper",
];

/// Wrappers that are not shown, with the index of the argument that does the work.
const WRAPPERS: [(&str, usize); 14] = [
    ("AlignedArray", 0),
    ("BinaryFunctor", 3),
    ("InputValue", 0),
    ("ReduceOp", 1),
    ("ReducedPrec", 0),
    ("UnaryFunctor", 2),
    ("arg_t", 0),
    ("device_pointer_t", 0),
    ("device_ptr", 0),
    ("device_reference", 0),
    ("func_wrapper_t", 1),
    ("kernel_arg", 0),
    ("normal_iterator", 0),
    ("op_wrapper_t", 1),
];

/// Wrappers of which only one argument is shown.
const HOLDERS: [(&str, usize); 5] = [
    ("AUnaryFunctor", 3),
    ("BUnaryFunctor", 3),
    ("ParallelForAgent", 0),
    ("binary_transform_f", 4),
    ("unary_transform_f", 3),
];

/// Kernels that only run the kernel class given as their first argument.
const SHELLS: [&str; 6] =
    ["DeviceKernel", "Kernel", "Kernel2", "_kernel_agent", "device_kernel", "kernel_agent"];

/// Functions that only pass on the functor among their own arguments.
const LAUNCHERS: [&str; 5] =
    ["gpu_kernel", "launch_", "LaunchN", "opmath_gpu_kernel", "opmath_symmetric_gpu_kernel"];

/// Names that are shown with the namespace or class around them.
const GENERIC: [&str; 12] = [
    "Kernel",
    "apply",
    "entry",
    "impl",
    "invoke",
    "kernel",
    "kernelImpl",
    "launch",
    "main",
    "run",
    "static_kernel",
    "transform",
];

/// Kernels whose numbers are the same in all their instances.
const CONSTANT_NUMBERS: [&str; 3] =
    ["elementwise_kernel", "unrolled_elementwise_kernel", "elementwise_kernel_with_index"];

/// Kernels whose flags are build options.
const CONSTANT_FLAGS: [&str; 1] = ["vectorized_elementwise_kernel"];

/// Types that are lists of numbers, shown as 128x64x32.
const SHAPES: [&str; 7] =
    ["GemmShape", "MatrixShape", "PitchLinearShape", "Shape", "shape", "tuple", "TensorNHWCShape"];

/// Types that stand for a number.
const NUMBERS: [&str; 5] = ["C", "Int", "bool_constant", "constant", "integral_constant"];

/// Element types, with the names that libraries have for them and ours.
const ELEMENTS: [(&str, &str); 45] = [
    ("BFloat16", "bf16"),
    ("Complex", "complex"),
    ("Float4_e2m1fn_x2", "e2m1"),
    ("Float8_e4m3fn", "e4m3"),
    ("Float8_e4m3fnuz", "e4m3fnuz"),
    ("Float8_e5m2", "e5m2"),
    ("Float8_e5m2fnuz", "e5m2fnuz"),
    ("Float8_e8m0fnu", "e8m0"),
    ("Half", "half"),
    ("__half", "half"),
    ("__int128", "int128"),
    ("__half2", "half2"),
    ("__nv_bfloat16", "bf16"),
    ("__nv_bfloat162", "bf162"),
    ("__nv_fp4_e2m1", "e2m1"),
    ("__nv_fp8_e4m3", "e4m3"),
    ("__nv_fp8_e5m2", "e5m2"),
    ("__nv_fp8_e8m0", "e8m0"),
    ("bfloat16_t", "bf16"),
    ("complex", "complex"),
    ("cuComplex", "complex<float>"),
    ("cuDoubleComplex", "complex<double>"),
    ("double", "double"),
    ("double2", "double2"),
    ("float", "float"),
    ("float2", "float2"),
    ("float_e2m1_t", "e2m1"),
    ("float_e4m3_t", "e4m3"),
    ("float_e5m2_t", "e5m2"),
    ("float_ue4m3_t", "ue4m3"),
    ("float_ue8m0_t", "ue8m0"),
    ("half", "half"),
    ("half_t", "half"),
    ("int4b_t", "int4"),
    ("int8_t", "int8"),
    ("nv_bfloat16", "bf16"),
    ("nv_float4_t", "nvfp4"),
    ("mx_float4_t", "mxfp4"),
    ("mx_float8_t", "mxfp8"),
    ("mx_float6_t", "mxfp6"),
    ("signed char", "schar"),
    ("tfloat32_t", "tf32"),
    ("uint4b_t", "uint4"),
    ("uint8_t", "uint8"),
    ("unsigned char", "uchar"),
];

/// Builtin types of several words.
const BUILTINS: [(&str, &str); 9] = [
    ("__int128", "int128"),
    ("long long", "longlong"),
    ("signed char", "schar"),
    ("unsigned __int128", "uint128"),
    ("unsigned char", "uchar"),
    ("unsigned int", "uint"),
    ("unsigned long", "ulong"),
    ("unsigned long long", "ulonglong"),
    ("unsigned short", "ushort"),
];

pub fn is_library(name: &str) -> bool {
    LIBRARIES.contains(&name)
}

pub fn is_generic(name: &str) -> bool {
    GENERIC.contains(&name)
}

pub fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

pub fn is_launcher(name: &str) -> bool {
    LAUNCHERS.iter().any(|prefix| name.starts_with(prefix))
}

pub fn has_constant_numbers(name: &str) -> bool {
    CONSTANT_NUMBERS.contains(&name)
}

pub fn has_constant_flags(name: &str) -> bool {
    CONSTANT_FLAGS.contains(&name)
}

/// Types that carry data or settings for the functors beside them.
pub fn is_carrier(name: &str) -> bool {
    name.contains("iter") || name.contains("Iter") || name.contains("Policy") || name.contains("TileState")
}

/// Whether the name is one of our names of element types.
pub fn is_element(name: &str) -> bool {
    let name = name.split('<').next().unwrap_or(name);
    ELEMENTS.iter().any(|(_, ours)| ours.split('<').next() == Some(name))
}

pub fn is_number_type(name: &str) -> bool {
    NUMBERS.contains(&name)
}

pub fn is_shape(name: &str) -> bool {
    SHAPES.contains(&name)
}

/// Bundles of a kernel's settings, which read better without the bundle's name.
pub fn is_bundle(name: &str) -> bool {
    name.ends_with("traits") || name.ends_with("Traits")
}

/// Namespaces that libraries add for their versions.
pub fn is_version(name: &str) -> bool {
    name.starts_with("_V_") || name.starts_with("CUB_") || name.starts_with("THRUST_") || name == "__1"
}

/// The argument inside a wrapper that is not shown.
pub fn unwrapped<'n, 'a>(own: &'n PathPart<'a>) -> Option<&'n NameNode<'a>> {
    if own.name.starts_with("enable_") && own.args.len() == 1 {
        return own.args.first();
    }
    let (_, index) = WRAPPERS.iter().find(|(name, _)| *name == own.name.trim_start_matches('_'))?;
    own.args.get(*index)
}

/// The functor of a type that holds one.
pub fn held<'n, 'a>(own: &'n PathPart<'a>) -> Option<&'n NameNode<'a>> {
    let (_, index) = HOLDERS.iter().find(|(name, _)| *name == own.name)?;
    own.args.get(*index)
}

/// Our name of an element type.
pub fn element(name: &str) -> Option<&'static str> {
    ELEMENTS.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}

/// Our name of a builtin type of several words.
pub fn builtin(name: &str) -> Option<&'static str> {
    BUILTINS.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}

pub fn is_plumbing(node: &NameNode<'_>) -> bool {
    let NameNode::Path { parts, .. } = node else { return false };
    parts.last().is_some_and(|own| {
        PLUMBING.contains(&own.name)
            || PLUMBING_PREFIXES.iter().any(|prefix| own.name.starts_with(prefix))
            || (own.name.starts_with("cublas") && own.name.contains("Params"))
            || is_policy(own.name)
    })
}

/// CUB's tuning policies, one for each generation of devices.
fn is_policy(name: &str) -> bool {
    let rest = name.strip_prefix("Policy").or(name.strip_prefix("policy_")).or(name.strip_prefix("policy"));
    let rest = rest.map(|rest| rest.strip_suffix("_t").unwrap_or(rest));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

pub fn is_flag(node: &NameNode<'_>) -> bool {
    flag(node).is_some()
}

/// The value of an argument that is `true` or `false`.
pub fn flag(node: &NameNode<'_>) -> Option<bool> {
    match node {
        NameNode::Text(text) => match *text {
            "(bool)0" => Some(false),
            "(bool)1" => Some(true),
            _ => None,
        },
        NameNode::Path { parts, .. } => match parts.as_slice() {
            [only] if only.args.is_empty() && only.params.is_none() => match only.name {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            },
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuning_policies_differ_from_policies_that_say_something() {
        assert!(is_policy("Policy1000") && is_policy("policy_350_t") && is_policy("policy1000"));
        assert!(!is_policy("Policy") && !is_policy("CooMMPolicy") && !is_policy("policy_selector"));
    }
}
