//! Which operations share a mean.
//!
//! A key is made of the call alone, since an operation without a device record has nothing else.

use gputrace_wire::call::Detail;

use crate::model::operation::{HostCall, Operation, What};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EstimateKey {
    pub process: u32,
    /// Of the call.
    pub stack: u32,
    pub work: KeyWork,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum KeyWork {
    Kernel {
        function: u32,
        grid: [u32; 3],
        block: [u16; 3],
    },
    Copy {
        direction: u8,
        size: u16,
    },
    Fill {
        size: u16,
    },
    /// A launch of that graph, timed as a whole.
    Graph(u32),
    /// Launches of that graph that were made while device times were taken.
    GraphLaunches(u32),
    /// Nodes that such launches executed, by the call that made them.
    Node {
        graph: u32,
        made: u32,
        name: u32,
        grid: [u32; 3],
        block: [u32; 3],
    },
}

impl EstimateKey {
    /// The key of an operation; `None` if its call does not say what it executes.
    #[inline]
    pub fn of(operation: &Operation, call: &HostCall) -> Option<EstimateKey> {
        let work = match (&call.detail, operation.graph, operation.what) {
            (Detail::Launch(launch), ..) => {
                KeyWork::Kernel { function: launch.function, grid: launch.grid, block: launch.block }
            }
            (Detail::Copy(copy), ..) => {
                KeyWork::Copy { direction: copy.direction, size: size_class(copy.bytes) }
            }
            (Detail::Fill { bytes, .. }, ..) => KeyWork::Fill { size: size_class(*bytes) },
            (Detail::GraphLaunch { graph }, _, What::Graph) | (Detail::GraphLaunch { graph }, None, _) => {
                KeyWork::Graph(*graph)
            }
            (Detail::GraphLaunch { graph }, Some(node), what) => {
                let made = node.made.map_or(0, |made| made.stack);
                match what {
                    What::Kernel(kernel) => KeyWork::Node {
                        graph: *graph,
                        made,
                        name: kernel.name,
                        grid: kernel.grid,
                        block: kernel.block,
                    },
                    // Copies and fills of a graph: by their node.
                    _ => KeyWork::Node {
                        graph: *graph,
                        made,
                        name: 0,
                        grid: [0; 3],
                        block: [(node.node >> 32) as u32, node.node as u32, 0],
                    },
                }
            }
            _ => return None,
        };
        Some(EstimateKey { process: call.process, stack: call.stack, work })
    }

    /// The key that all launches of the function share once there are too many; others have their own.
    pub fn by_function(self) -> EstimateKey {
        match self.work {
            KeyWork::Kernel { function, .. } => EstimateKey {
                stack: 0,
                work: KeyWork::Kernel { function, grid: [0; 3], block: [0; 3] },
                ..self
            },
            _ => self,
        }
    }

    /// The launches of the same graph by the same stack.
    pub fn launches(self, graph: u32) -> EstimateKey {
        EstimateKey { work: KeyWork::GraphLaunches(graph), ..self }
    }
}

/// Four classes for each doubling of the size.
fn size_class(bytes: u64) -> u16 {
    match bytes.checked_ilog2() {
        None => 0,
        Some(log @ 0..2) => bytes as u16 + log as u16,
        Some(log) => (4 * log) as u16 + ((bytes >> (log - 2)) & 3) as u16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_one_class_differ_by_a_quarter_at_most() {
        let mut first_of_class = 0u64;
        for bytes in 0..100_000u64 {
            if size_class(bytes) != size_class(first_of_class) {
                assert!(size_class(bytes) > size_class(first_of_class), "{bytes}");
                first_of_class = bytes;
            }
            assert!(bytes * 4 <= first_of_class * 5, "{bytes} with {first_of_class}");
        }
        assert_eq!((size_class(u64::MAX), size_class(4096)), (255, 48));
    }
}
