//! The subject of an error: by the error if that determines it, else by the call.

use gputrace_wire::cell::kind;

use crate::failed_calls::answer::base;
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Category {
    Initialisation,
    Device,
    Context,
    Memory,
    /// A launch that was rejected.
    Launch,
    /// A kernel that failed while it ran.
    Execution,
    Copy,
    /// Streams, events and waits for them.
    Stream,
    Capture,
    Graph,
    Module,
    /// Access from one device to another.
    Peer,
    /// MPS, by which processes share a device.
    Sharing,
    Other,
}

impl Category {
    /// All categories.
    pub const ALL: [Category; 14] = [
        Category::Initialisation,
        Category::Device,
        Category::Context,
        Category::Memory,
        Category::Launch,
        Category::Execution,
        Category::Copy,
        Category::Stream,
        Category::Capture,
        Category::Graph,
        Category::Module,
        Category::Peer,
        Category::Sharing,
        Category::Other,
    ];

    /// The name in reports and spans.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Initialisation => "initialisation",
            Category::Device => "device",
            Category::Context => "context",
            Category::Memory => "memory",
            Category::Launch => "launch",
            Category::Execution => "execution",
            Category::Copy => "copy",
            Category::Stream => "stream",
            Category::Capture => "capture",
            Category::Graph => "graph",
            Category::Module => "module",
            Category::Peer => "peer",
            Category::Sharing => "sharing",
            Category::Other => "other",
        }
    }

    pub fn of(call: &HostCall, definitions: &Definitions) -> Category {
        let by_call = || Category::of_call(call.kind, definitions.api(call.api).unwrap_or(""));
        Category::of_status(call.status).unwrap_or_else(by_call)
    }

    /// The category of an error that means the same in every call.
    pub const fn of_status(status: u16) -> Option<Category> {
        Some(match status {
            2 | 205..=208 | 211..=213 | 712 | 713 => Category::Memory,
            3 | 4 | 34 | 36 | 227 | 802..=804 => Category::Initialisation,
            46 | 100..=102 | 214 | 226 | 919 => Category::Device,
            201 | 202 | 216 | 708 | 709 => Category::Context,
            200 | 209 | 218 | 221..=223 | 300..=303 => Category::Module,
            217 | 220 | 704 | 705 | 711 => Category::Peer,
            700 | 702 | 710 | 714..=719 | 721 => Category::Execution,
            701 | 703 | 720 | 811 | 812 | 225 | 912 | 913 => Category::Launch,
            805..=810 => Category::Sharing,
            900..=908 => Category::Capture,
            910 | 918 => Category::Graph,
            _ => return None,
        })
    }

    fn of_call(call: u16, api: &str) -> Category {
        match call {
            kind::LAUNCH => return Category::Launch,
            kind::GRAPH_LAUNCH | kind::GRAPH => return Category::Graph,
            kind::COPY | kind::FILL => return Category::Copy,
            kind::ALLOC | kind::FREE => return Category::Memory,
            kind::WAIT => return Category::Stream,
            kind::MODULE => return Category::Module,
            _ => {}
        }
        const BY_BEGIN: [(&str, Category); 14] = [
            ("cuInit", Category::Initialisation),
            ("cuCtxEnablePeer", Category::Peer),
            ("cuCtx", Category::Context),
            ("cuDevicePrimaryCtx", Category::Context),
            ("cuDevice", Category::Device),
            ("cuStream", Category::Stream),
            ("cuEvent", Category::Stream),
            ("cuModule", Category::Module),
            ("cuLibrary", Category::Module),
            ("cuKernel", Category::Module),
            ("cuLink", Category::Module),
            ("cuLaunch", Category::Launch),
            ("cuFunc", Category::Launch),
            ("cuMem", Category::Memory),
        ];
        let base = base(api);
        let found = BY_BEGIN.iter().find(|(begin, _)| base.starts_with(begin));
        found.map_or(Category::Other, |(_, category)| *category)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_has_its_own_category_or_else_the_call_s() {
        assert_eq!(Category::of_status(2), Some(Category::Memory));
        assert_eq!(Category::of_status(802), Some(Category::Initialisation));
        assert_eq!(Category::of_status(209), Some(Category::Module));
        assert_eq!(Category::of_status(701), Some(Category::Launch));
        assert_eq!(Category::of_status(700), Some(Category::Execution));
        assert_eq!(Category::of_status(1), None);
        assert_eq!(Category::of_call(kind::LAUNCH, "cuLaunchKernel"), Category::Launch);
        assert_eq!(Category::of_call(kind::COPY, "cuMemcpyHtoD_v2"), Category::Copy);
        assert_eq!(Category::of_call(kind::WAIT, "cuStreamSynchronize"), Category::Stream);
        assert_eq!(Category::of_call(kind::CALL, "cuCtxSetCurrent"), Category::Context);
        assert_eq!(Category::of_call(kind::CALL, "cuEventRecord"), Category::Stream);
        assert_eq!(Category::of_call(kind::CALL, "cuFuncSetAttribute"), Category::Launch);
        assert_eq!(Category::of_call(kind::CALL, "cuSomethingNew"), Category::Other);
    }

    #[test]
    fn page_of_failures_has_every_category() {
        let page = include_str!("../../../docs/FAILURES.md");
        for category in Category::ALL {
            assert!(page.contains(&format!("| `{}` |", category.name())), "{category:?}");
        }
    }
}
