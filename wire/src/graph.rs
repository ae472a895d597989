//! Graph nodes and the calls that made them. One cell each, after that of the call.
//!
//! ```text
//!  0  kind, cells, flags      8  ticks              16  first node        24  nodes
//!  4  stack definition                              28  graph that the node is made of
//! ```
//!
//! Nodes and graphs have the numbers that device records use, so that the record of a replay is
//! joined to the stack that captured its node.

use crate::cell::{Cell, kind};

/// Records that a captured call, or one that adds nodes, made nodes of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodesMade {
    /// Stack definition of the call.
    pub stack: u32,
    /// When the call began.
    pub ticks: u64,
    /// The first node, by the number that device records use.
    pub node: u64,
    /// How many nodes there are: the others follow the first one.
    pub count: u32,
    /// The graph definition that the node holds a copy of; 0 if the node is no graph.
    pub child: u32,
}

impl NodesMade {
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(kind::GRAPH_NODE, 1, 0);
        cell.put_u32(4, self.stack);
        cell.put_u64(8, self.ticks);
        cell.put_u64(16, self.node);
        cell.put_u32(24, self.count);
        cell.put_u32(28, self.child);
        cell
    }

    pub fn from_cell(cell: &Cell) -> NodesMade {
        NodesMade {
            stack: cell.u32_at(4),
            ticks: cell.u64_at(8),
            node: cell.u64_at(16),
            count: cell.u32_at(24),
            child: cell.u32_at(28),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nodes_round_trip(small: [u32; 3], words: [u64; 2]) {
            let ([stack, count, child], [ticks, node]) = (small, words);
            let made = NodesMade { stack, ticks, node, count, child };
            prop_assert_eq!(NodesMade::from_cell(&made.to_cell()), made);
            prop_assert_eq!(made.to_cell().kind(), kind::GRAPH_NODE);
        }
    }
}
