//! The table of errors that calls return by design: queries, and attempts for which the caller has a
//! fallback.

/// Calls that return an error by design, and the error.
#[derive(PartialEq, Eq, Debug)]
pub struct Answer {
    /// The calls, without suffixes of versions and variants; empty: any call.
    pub calls: &'static [&'static str],
    /// `None`: any status.
    pub statuses: &'static [u16],
    /// Only look-ups of functions whose unmangled names begin so; empty: any look-up.
    pub names: &'static str,
    pub why: &'static str,
}

pub static ANSWERS: [Answer; 12] = [
    Answer {
        calls: &[],
        statuses: &[600],
        names: "",
        why: "asked whether something is done yet, and it is not",
    },
    Answer {
        calls: &[],
        statuses: &[4],
        names: "",
        why: "the process is ending and its driver is gone already: what is given back then is so by itself",
    },
    Answer { calls: &["cuInit"], statuses: &[100], names: "", why: "asked whether there is a device" },
    Answer {
        calls: &["cuGetProcAddress"],
        statuses: &[],
        names: "",
        why: "asked which functions this driver has: an older one has fewer",
    },
    Answer {
        calls: &[
            "cuModuleGetFunction",
            "cuModuleGetGlobal",
            "cuModuleGetTexRef",
            "cuModuleGetSurfRef",
            "cuLibraryGetKernel",
            "cuLibraryGetGlobal",
            "cuLibraryGetManaged",
            "cuLibraryGetUnifiedFunction",
        ],
        statuses: &[500],
        names: "",
        why: "looked for a name in one module of several",
    },
    // An ordinary two-rank DDP run had eight of these (gpu-test everyday, ddp-nccl-2): NCCL 2.28.9 has code
    // for sm_100 alone of four kernels, and asks for all its kernels in each process.
    Answer {
        calls: &["cuLibraryGetKernel", "cuModuleGetFunction"],
        statuses: &[209],
        names: "nccl",
        why: "NCCL asks for each of its kernels, also for those that it has no code of for this device, and does without them",
    },
    Answer {
        calls: &["cuPointerGetAttribute", "cuPointerGetAttributes"],
        statuses: &[1],
        names: "",
        why: "asked whether the driver knows a pointer: it knows none to ordinary memory",
    },
    Answer {
        calls: &["cuDeviceGetAttribute", "cuDeviceGetP2PAttribute"],
        statuses: &[1, 801],
        names: "",
        why: "asked for a property that this driver or device does not know",
    },
    Answer {
        calls: &["cuDevicePrimaryCtxRetain"],
        statuses: &[46],
        names: "",
        why: "tried one device after the other: another process has this one for itself",
    },
    Answer {
        calls: &["cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"],
        statuses: &[704, 705],
        names: "",
        why: "asked for what was so already, rather than to keep book of it",
    },
    Answer {
        calls: &["cuMemCreate", "cuMemPoolCreate", "cuMemExportToShareableHandle"],
        statuses: &[800, 801],
        names: "",
        why: "tried a kind of memory (fabric handles) that not every machine has, before another kind",
    },
    Answer {
        calls: &["cuGraphExecUpdate"],
        statuses: &[910],
        names: "",
        why: "tried to change a graph in place: where that cannot be, it is instantiated anew",
    },
];

/// The row for a call that returned `status` by design. `asked`: the mangled name of the function that the
/// call looked up, or empty.
pub fn of(api: &str, status: u16, asked: &str) -> Option<&'static Answer> {
    let base = base(api);
    ANSWERS.iter().find(|answer| {
        (answer.calls.is_empty() || answer.calls.contains(&base))
            && (answer.statuses.is_empty() || answer.statuses.contains(&status))
            && identifier(asked).starts_with(answer.names)
    })
}

/// `stepPf` of `_Z4stepPf`: the name from its first identifier on. Other names are returned as they are.
fn identifier(name: &str) -> &str {
    name.strip_prefix("_Z").map_or(name, |rest| rest.trim_start_matches(|digit: char| digit.is_ascii_digit()))
}

/// A driver's symbol without the suffixes of its version and of its default stream.
pub fn base(api: &str) -> &str {
    let plain = api.strip_suffix("_ptsz").or_else(|| api.strip_suffix("_ptds")).unwrap_or(api);
    match plain.rsplit_once("_v") {
        Some((base, version)) if version.parse::<u8>().is_ok() => base,
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failed_calls::name;

    #[test]
    fn questions_differ_from_failures_by_call_and_error() {
        for (api, status, is_answer) in [
            ("cuEventQuery", 600, true),
            ("cuStreamQuery_ptsz", 600, true),
            ("cuStreamQuery", 700, false),
            ("cuGetProcAddress_v2", 500, true),
            ("cuModuleGetFunction", 500, true),
            ("cuModuleGetFunction", 400, false),
            ("cuModuleGetGlobal_v2", 500, true),
            ("cuModuleLoadData", 500, false),
            ("cuPointerGetAttribute", 1, true),
            ("cuMemcpyHtoD_v2", 1, false),
            ("cuDeviceGetAttribute", 1, true),
            ("cuDevicePrimaryCtxRetain", 46, true),
            ("cuDevicePrimaryCtxRetain", 2, false),
            ("cuCtxEnablePeerAccess", 704, true),
            ("cuCtxEnablePeerAccess", 217, false),
            ("cuMemCreate", 801, true),
            ("cuMemCreate", 2, false),
            ("cuGraphExecUpdate_v2", 910, true),
            ("cuInit", 100, true),
            ("cuInit", 802, false),
            ("cuMemFree_v2", 4, true),
            ("cuMemFree_v2", 1, false),
            ("", 1, false),
        ] {
            assert_eq!(of(api, status, "").is_some(), is_answer, "{api} {status}");
        }
    }

    #[test]
    fn kernel_without_code_for_the_device_is_an_answer_only_where_nccl_asks_for_its_own() {
        for (asked, is_answer) in [
            ("_Z47ncclSymkDevKernel_ReduceScatter_LDMC_sum_f8e4m321ncclSymkDevWorkArgs4K", true),
            ("ncclDevKernel_Generic", true),
            ("_Z4stepPf", false),
            ("_ZN4nccl4stepEPf", false),
            ("_Z9my_ncclOpPf", false),
            ("", false),
        ] {
            assert_eq!(of("cuLibraryGetKernel", 209, asked).is_some(), is_answer, "{asked}");
        }
        assert!(of("cuLibraryLoadData", 209, "ncclDevKernel_Generic").is_none());
        assert!(of("cuLibraryGetKernel", 700, "ncclDevKernel_Generic").is_none());
    }

    #[test]
    fn page_of_failures_has_every_answer() {
        let page = include_str!("../../../docs/FAILURES.md");
        for answer in &ANSWERS {
            let calls: Vec<String> = answer.calls.iter().map(|call| format!("`{call}`")).collect();
            let calls = if calls.is_empty() { "any call".to_owned() } else { calls.join(", ") };
            let named = format!(" of functions named `{}…`", answer.names);
            let calls = calls + if answer.names.is_empty() { "" } else { &named };
            let errors: Vec<String> =
                answer.statuses.iter().map(|status| format!("`{}`", name(*status))).collect();
            let errors = if errors.is_empty() { "any error".to_owned() } else { errors.join(", ") };
            let row = format!("| {calls} | {errors} | {} |", answer.why);
            assert!(page.contains(&row), "docs/FAILURES.md lacks this row:\n{row}");
        }
    }
}
